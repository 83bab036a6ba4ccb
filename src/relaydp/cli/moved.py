"""Options and commands that are elsewhere now: whoever types an old one is told where it went."""

from __future__ import annotations

# option: what stands in a TOML file of settings instead
IN_A_FILE = {
    "--variant": '[run] variant = "NAME"',
    "--ratio": "[run] ratio = NUMBER",
    "--start": "[run] start = AGENT",
    "--allow-large-delta": "[run] allow_large_delta = true",
    "--threshold": "[problem] threshold = NUMBER",
    "--clip": "[problem] clip = NUMBER",
    "--l1": "[problem] l1 = NUMBER",
    "--objective": '[run] objective = "NAME"',
    "--prior": '[run] prior = "PUBLIC.csv"',
    "--limit": '[run] limits = { "AGENT" = EPSILON }',
}
APART = {
    "--columns": '[apart] columns = ["NAME", "NAME"]',
    "--checkpoint": '[apart] checkpoint = "FOLDER"',
}
OF_A_COMPARISON = {
    "--clip": IN_A_FILE["--clip"],
    "--l1": IN_A_FILE["--l1"],
    "--objective": IN_A_FILE["--objective"],
    "--groups": '[data] groups = ["COLUMN"]',
    "--drop": '[data] drop = ["COLUMN"]',
    "--features": "[data] features = N",
    "--loss": '[problem] loss = "NAME"',
    "--label-bound": "[problem] label_bound = NUMBER",
    "--intercept": "[problem] intercept = true",
    "--no-intercept": "[problem] intercept = false",
    "--l2": "[problem] l2 = NUMBER",
    "--walk": '[run] walk = "NAME"',
    "--mechanism": '[run] mechanism = "NAME"',
}
OF_AN_ATTACK = {
    "--delta": "[attack] delta = NUMBER",
    "--variant": '[attack] variant = "NAME"',
    "--activations": "[attack] activations = N",
    "--intercept": "[attack] intercept = true",
    "--no-intercept": "[attack] intercept = false",
    "--l1": "[attack] l1 = NUMBER",
    "--record-norm": "[attack] record_norm = NUMBER",
    "--iterations": "[attack] iterations = N",
    "--restarts": "[attack] restarts = N",
}
# command: its options that are settings of a TOML file now
SETTINGS = {
    "relaydp run": IN_A_FILE | APART,
    "relaydp plan": IN_A_FILE,
    "relaydp compare": OF_A_COMPARISON,
    "relaydp attack": OF_AN_ATTACK,
}
# option of `consortium new`: what stands in the file that it writes
IN_AN_AGREEMENT = {
    "--edges": '[network] edges = [["A", "B"], ["B", "C"]]',
    "--walk": '[run] walk = "NAME"',
    "--walk-seed": "[run] walk_seed = NUMBER",
    "--start": '[run] start = "NAME"',
    "--patience": "[run] patience = HOPS",
    "--l1": "[problem] l1 = NUMBER",
    "--l2": "[problem] l2 = NUMBER",
    "--clip": "[problem] clip = NUMBER",
    "--threshold": "[problem] threshold = NUMBER",
}
ADDRESS = "--address is part of --on now: --on ray:ADDRESS, such as --on ray:HOST:6379."
# (command, option): where it went, where that is no setting of a file
ELSEWHERE = {
    ("relaydp run", "--address"): ADDRESS,
    ("relaydp sweep", "--address"): ADDRESS,
    ("relaydp attack", "--curve"): (
        "--curve is part of --figure now, which draws the error of a search where the records are not images; "
        "`relaydp report FOLDER --files PLOTS` draws it for every attack kept with --out FOLDER."
    ),
    ("relaydp consortium new", "--data-columns"): "--data-columns is part of --columns now: --columns TABLE.csv.",
    ("relaydp consortium new", "--drop"): (
        "--drop has gone: take the name out of `columns` in the file before `relaydp consortium plan`."
    ),
    ("relaydp consortium new", "--features"): "--features is part of --columns now: --columns 784.",
}
# (group, command): where it went
COMMANDS = {
    ("relaydp agent", "resume"): "`agent resume` is an option now: relaydp agent serve ... --resume.",
    ("relaydp account", "show"): "`account show` is `relaydp show FILE` now.",
    ("relaydp ledger", "show"): "`ledger show` is `relaydp show` now: relaydp show FOLDER/publish/ledger.json.",
    ("relaydp consortium", "show"): "`consortium show` is `relaydp show CONSORTIUM.toml` now.",
    ("relaydp paper", "all"): "`paper all` is `relaydp paper run` without a name now.",
}


def moved(command: str, option: str) -> str | None:
    """Where an option has gone that a command does not have any more; None if it never had it.

    >>> moved("relaydp run", "--ratio")
    '--ratio is set in a TOML file: [run] ratio = NUMBER. Pass the file: relaydp run CONFIG.toml.'
    >>> moved("relaydp show", "--ratio") is None
    True
    """
    if said := ELSEWHERE.get((command, option)):
        return said
    if said := SETTINGS.get(command, {}).get(option):
        return f"{option} is set in a TOML file: {said}. Pass the file: {command} CONFIG.toml."
    if command == "relaydp consortium new" and (said := IN_AN_AGREEMENT.get(option)):
        return f"{option} is set in the file that this command writes: {said}. Edit it before it is planned."
    return None


def moved_from(command: str) -> list[str]:
    """The options that a command had once.

    >>> moved_from("relaydp sweep"), moved_from("relaydp show")
    (['--address'], [])
    """
    known = [option for where, option in ELSEWHERE if where == command] + list(SETTINGS.get(command, {}))
    return known + (list(IN_AN_AGREEMENT) if command == "relaydp consortium new" else [])


def settings_of(command: str) -> dict[str, str]:
    """What errors should say of settings without an option, by the name that Python knows each by.

    >>> settings_of("relaydp run")["clip"]
    'clip in [problem] of a TOML file'
    """
    said = {}
    for text in SETTINGS.get(command, {}).values():
        table, key, _ = text.split(" ", 2)
        said[key] = f"{key} in {table} of a TOML file"
    return said
