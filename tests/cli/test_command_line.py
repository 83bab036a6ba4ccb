"""Laws that hold for every command: a map that fits a screen, examples that parse, flags that mean one thing,
completion that knows what there is, and usage errors that name what was meant.

Under --json stdout is one JSON document and stderr has errors only; an error is one paragraph on stderr and exit code 2
whether or not --json was given. Under --quiet neither has anything but errors.
"""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperOption as Option
from typer.testing import CliRunner

from relaydp.cli import choices
from relaydp.cli.main import MAP, app, flags_of, in_flags
from relaydp.cli.moved import COMMANDS, ELSEWHERE, IN_AN_AGREEMENT, SETTINGS
from relaydp.cli.options import MAIN
from relaydp.network.consortium.file import TABLES
from relaydp.settings.config import ATTACKED, SECTIONS

ROOT = typer.main.get_command(app)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Small and of one shape, so that all runs of a test process share their compiled loops.
SMALL = (
    "--data breast-cancer --agents 3 --activations 3 --walk cyclic --record-norm 1 --steps paper --epsilon 1".split()
)


def walk(command=ROOT, words=()):
    """Every command and group with the words that lead to it."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, (*words, name))


EVERY = {" ".join(words): command for words, command in walk() if words}
LEAVES = {name: command for name, command in EVERY.items() if not hasattr(command, "commands")}


def call(*args, **env):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="relaydp", env=env)


def strict(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


# ---------------------------------------------------------------- the map


def test_the_map_fits_a_screen_and_says_every_line_in_full():
    lines = call("--help", COLUMNS="80").stdout.split("\n")
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "…" not in text and "..." not in text.replace("[ARGS]...", "")
    for name, _, line, _ in MAP:
        assert re.search(rf"│ {name} +{re.escape(line)} +│", text), name


def test_panels_follow_a_users_journey():
    text = call("--help").stdout
    panels = [name for name in re.findall(r"╭─ (\w+) ─", text) if name != "Options"]
    assert panels == ["Start", "Train", "Check", "Deploy", "Data"]
    assert {name for name, *_ in MAP} == set(ROOT.commands)
    shown = [word for word in re.findall(r"^│ (\w+) ", text, re.M) if word in ROOT.commands]
    assert shown == [name for name, *_ in MAP]


# Somebody new reads all of this, and each option is one more that `--help` shows to everybody. There were 32 commands
# with 259 options, of which most people used a tenth. A setting that a hospital's engineer does not type in the first
# week belongs into the TOML file. Whoever adds an option beyond these numbers takes another one away.
MOST_COMMANDS, MOST_OPTIONS, MOST_OF_ONE = 30, 211, 29


def test_commands_and_options_do_not_creep_up():
    counts = {name: len([p for p in command.params if isinstance(p, Option)]) for name, command in LEAVES.items()}
    assert len(counts) <= MOST_COMMANDS, sorted(counts)
    assert sum(counts.values()) <= MOST_OPTIONS, counts
    assert max(counts.values()) <= MOST_OF_ONE, counts


# ---------------------------------------------------------------- examples


def examples(command):
    """The lines of a help text that can be copied; a backslash joins lines, three blanks begin a remark."""
    text = f"{command.help or ''}\n{command.epilog or ''}".replace("\\\n", " ")
    lines = [line.strip() for line in text.split("\n")]
    return [re.split(r"\s{3,}(?=[a-z])", line)[0] for line in lines if line.startswith("relaydp ")]


@pytest.mark.parametrize("name", EVERY)
def test_every_command_has_an_example_of_itself(name):
    assert any(line.startswith(f"relaydp {name}") for line in examples(EVERY[name])), name


def parse(line):
    """Parse as the app would, and run nothing: an unknown flag, a missing one or a word too many raises."""
    _, *words = shlex.split(line)
    command, context = ROOT, ROOT.make_context("relaydp", [], resilient_parsing=True)
    while hasattr(command, "commands"):
        name = words.pop(0)
        command = command.commands[name]
        inner = [] if hasattr(command, "commands") else words
        context = command.make_context(name, inner, parent=context, resilient_parsing=hasattr(command, "commands"))
    return context


@pytest.mark.parametrize("name", EVERY)
def test_every_example_parses(name):
    for line in examples(EVERY[name]):
        parse(line)


@pytest.mark.parametrize(
    "line", ["relaydp run --epsilom 1", "relaydp show", "relaydp show a b", "relaydp run --seed x"]
)
def test_a_wrong_example_would_not_parse(line):
    with pytest.raises(Exception, match="No such option|Missing|unexpected|valid"):
        parse(line)


# ---------------------------------------------------------------- one name, one meaning

JSON, OUT, SEED, QUIET = "--json", "--out", "--seed", "--quiet"
# What each command does: prints a result, makes files, is random, takes more than two seconds.
DOES = {
    "demo": {JSON, SEED, QUIET},
    "doctor": {JSON, QUIET},
    "run": {JSON, OUT, SEED, QUIET},
    "plan": {JSON, SEED, QUIET},
    "account new": {JSON, OUT},
    "compare": {JSON, OUT, SEED, QUIET},
    "sweep": {JSON, OUT, SEED, QUIET},
    "report": {JSON, OUT, QUIET},
    "show": {JSON},
    "rerun": {JSON, QUIET},
    "ledger verify": {JSON, QUIET},
    "audit": {JSON, SEED, QUIET},
    "attack": {JSON, OUT, SEED, QUIET},
    "paper list": {JSON},
    "paper run": {JSON, OUT, SEED, QUIET},
    "consortium new": {JSON, OUT, SEED},
    "consortium plan": {JSON, OUT, QUIET},
    "consortium check": {JSON, QUIET},
    "consortium demo": {JSON, OUT, SEED, QUIET},
    "agent keygen": {JSON, OUT},
    "agent serve": {JSON, SEED, QUIET},
    "agent status": {JSON},
    "agent export": {JSON, OUT},
    "agent reroute order": {JSON, OUT},
    "agent reroute sign": {JSON},
    "agent reroute apply": {JSON},
    "data list": {JSON},
    "data info": {JSON},
    "data check": {JSON},
    "data fetch": {JSON, QUIET},
}
SERVED = "runs for days, logs JSON lines to stderr, and its result is a folder"
DEVELOPMENT = "called --development-seed, for noise from a seed is not private"
SEEDED = "runs the seeds 0 to N-1 of --seeds N and shows medians over them"
KEPT_ON = "goes on from what is in --out; --fresh computes it again"
WITHOUT = {
    ("compare", SEED): SEEDED,
    ("sweep", SEED): "the study file lists its seeds",
    ("paper run", SEED): SEEDED,
    ("paper run", "--overwrite"): KEPT_ON,
    ("consortium new", OUT): "the file is its argument",
    ("consortium new", SEED): "called walk_seed in the file, for it is part of what parties agree on, and public",
    ("consortium demo", SEED): DEVELOPMENT,
    ("consortium demo", "--overwrite"): "holds keys and journals, which nothing replaces",
    ("account new", OUT): "the file is its argument",
    ("account new", "--overwrite"): "what was spent is never forgotten",
    ("agent keygen", OUT): "the folder is its argument",
    ("agent keygen", "--overwrite"): "a key is never replaced",
    ("agent export", "--overwrite"): "a handover is never replaced",
    **{("agent serve", flag): SERVED for flag in (JSON, QUIET)},
    ("agent serve", SEED): DEVELOPMENT,
}


def flags(command):
    return {name: param for param in command.params for name in param.opts}


def test_every_command_says_what_it_does():
    assert DOES.keys() == LEAVES.keys()


@pytest.mark.parametrize("name", LEAVES)
def test_what_a_command_does_gives_it_its_flags(name):
    needed = DOES[name] | ({"--overwrite"} if OUT in DOES[name] else set())
    missing = {flag for flag in needed if flag not in flags(LEAVES[name])}
    assert missing == {flag for which, flag in WITHOUT if which == name}, name


@pytest.mark.parametrize("flag", [JSON, QUIET, "--overwrite"])
def test_a_shared_flag_has_one_text(flag):
    having = [flags(command)[flag] for command in LEAVES.values() if flag in flags(command)]
    assert len({param.help for param in having}) == 1 and len(having) > 5
    assert all(param.is_flag and param.default is False for param in having)
    assert all(("-q" in param.opts) == (flag == QUIET) for param in having)


def test_a_seed_says_what_it_is_the_seed_of_and_that_it_takes_the_promise():
    assert "a simulation without a promise" in flags(LEAVES["run"])[SEED].help
    having = [flags(command)[SEED] for command in LEAVES.values() if SEED in flags(command)]
    assert len(having) >= 5
    assert all(param.help.startswith("Of ") and param.default in (0, None) for param in having)


# ---------------------------------------------------------------- options that have moved


FIRST = "--data --label --agents --classes --ranges --graph --epsilon --algorithm --seed --out".split()


def test_help_of_run_shows_first_what_a_newcomer_needs():
    text = call("run", "--help", COLUMNS="100").stdout
    panels = re.findall(r"╭─ ([^─]+?) ─", text)
    assert panels[:3] == ["Arguments", "Options", MAIN]
    first = text.split(f"─ {MAIN} ─")[1].split("╰")[0]
    assert re.findall(r"^│ (--[\w-]+)", first, re.M) == FIRST


@pytest.mark.parametrize("name", ["run", "plan", "compare"])
def test_commands_share_the_texts_of_settings(name):
    ours, theirs = flags(LEAVES[name]), flags(LEAVES["run"])
    settings = [option for option in ours if option in theirs and option not in ("--out", "--help")]
    assert len(settings) > {"run": 20, "plan": 20, "compare": 10}[name]
    assert [option for option in settings if ours[option].help != theirs[option].help] == []


NEEDS = {"relaydp sweep": " study.toml", "relaydp consortium new": " north-sea.toml"}  # arguments of such a command
MOVED = {
    **{(command, option): text for command, known in SETTINGS.items() for option, text in known.items()},
    **{("relaydp consortium new", option): text for option, text in IN_AN_AGREEMENT.items()},
    **{place: text.partition(": ")[2] or text for place, text in ELSEWHERE.items()},
}


@pytest.mark.parametrize(("name", "option"), MOVED)
def test_an_option_that_has_moved_says_where_it_is(name, option):
    for words in ([option, "1"], [f"{option}=1"]):
        done = call(*f"{name}{NEEDS.get(name, '')}".split()[1:], *words)
        assert done.exit_code == 2 and done.stdout == "" and "Traceback" not in done.stderr
        said = " ".join(re.sub("[│╭╰─╮╯]", " ", done.stderr).split())
        assert said.count(option) >= 1 and MOVED[name, option] in said and "Did you mean" not in said, said


@pytest.mark.parametrize(("command", "option"), MOVED)
def test_what_has_moved_is_no_option_any_more(command, option):
    assert option not in flags(LEAVES[command.removeprefix("relaydp ")])


@pytest.mark.parametrize(("group", "name"), COMMANDS)
def test_a_command_that_has_moved_says_where_it_is(group, name):
    done = call(*group.split()[1:], name, "somewhere")
    said = " ".join(re.sub("[│╭╰─╮╯]", " ", done.stderr).split())
    assert done.exit_code == 2 and done.stdout == "" and COMMANDS[group, name] in said, said
    there = re.search(r"relaydp ([a-z ]*[a-z])", COMMANDS[group, name])[1]
    assert there in LEAVES


@pytest.mark.parametrize(
    ("words", "meant", "where"),
    [
        (["run", "--adress", "ray:1"], "--address", "--on ray:ADDRESS"),
        (["plan", "--varant", "carried"], "--variant", '[run] variant = "NAME"'),
        (["compare", "--objectiv", "loss"], "--objective", '[run] objective = "NAME"'),
        (["consortium", "new", "a.toml", "--patienc", "9"], "--patience", "[run] patience = HOPS"),
        (["run", "--wlak", "tour"], "--walk", ""),
    ],
)
def test_a_misspelt_option_is_found_even_where_it_has_moved(words, meant, where):
    done = call(*words)
    said = " ".join(re.sub("[│╭╰─╮╯]", " ", done.stderr).split())
    assert done.exit_code == 2 and f"Did you mean {meant}?" in said and where in said, said


def test_a_setting_that_has_moved_is_one_of_the_files():
    known = {**SECTIONS, **ATTACKED}
    for files, texts in [(known, text) for text in SETTINGS.values()] + [(TABLES, IN_AN_AGREEMENT)]:
        for text in texts.values():
            table, key = re.match(r"\[(\w+)\] (\w+) = ", text).groups()
            assert key in files[table].model_fields


def test_an_error_about_a_setting_without_an_option_says_where_it_is_set():
    words = ["--epsilon", 1, "--sizes", "3x9", "--features", 2, "--record-norm", 1, "--loss", "least-squares"]
    said = " ".join(call("plan", *words).stderr.split())
    assert "Pass clip in [problem] of a TOML file." in said


def test_resume_looks_at_the_journal_first(tmp_path):
    words = ["--home", tmp_path, "--data", "visits.csv", "--max-epsilon", 1]
    done = call("agent", "serve", tmp_path / "none.toml", *words, "--resume")
    assert done.exit_code == 2 and "none.toml" in done.stderr


@pytest.mark.parametrize("on", ["mars", "local:head:6379", "ray:", ""])
def test_a_place_that_is_none_is_refused(on):
    done = call("run", "--on", on)
    assert done.exit_code == 2 and "needed local, ray or ray:ADDRESS" in done.stderr


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """One saved simulation, and what `run --json` printed about it."""
    folder = tmp_path_factory.mktemp("kept") / "first"
    done = call("run", *SMALL, "--seed", 0, "--out", folder, "--json")
    assert done.exit_code == 0 and done.stderr == "", done.output
    return folder, strict(done.stdout)


QUICK = [
    ["plan", *SMALL],
    ["show", "KEPT"],
    ["rerun", "KEPT"],
    ["show", "KEPT/publish/ledger.json"],
    ["ledger", "verify", "KEPT"],
    ["data", "list"],
    ["data", "info", "digits"],
    ["data", "fetch", "digits"],
]


@pytest.mark.parametrize("words", QUICK, ids=lambda words: " ".join(words[:2]))
def test_json_is_one_document_and_quiet_is_silent(words, kept):
    folder, summary = kept
    words = [word.replace("KEPT", str(folder)) for word in words]
    done = call(*words, "--json")
    assert done.exit_code == 0 and done.stderr == "", done.output
    found = strict(done.stdout)
    if words == ["show", str(folder)]:
        assert found == summary
    if QUIET in flags(parse(shlex.join(["relaydp", *words])).command):
        done = call(*words, "--quiet")
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


def test_show_tells_by_the_path_what_to_show(kept, tmp_path):
    folder, summary = kept
    ledger = strict(call("show", folder / "publish" / "ledger.json", "--delta", "1e-6", "--json").stdout)
    assert ledger["delta"] == 1e-6 and len(ledger["agents"]) == summary["agents"]
    assert not (folder / "publish" / "model.npz").exists()  # a simulation's: what is left to show is the ledger
    assert strict(call("show", folder / "publish", "--delta", "1e-6", "--json").stdout)["agents"] == ledger["agents"]
    refused = call("show", folder, "--delta", "1e-6")
    assert refused.exit_code == 2 and "pass its ledger.json" in refused.stderr
    assert call("account", "new", tmp_path / "a.account", "--epsilon", 2).exit_code == 0
    assert strict(call("show", tmp_path / "a.account", "--json").stdout)["left"] == 2.0
    shown = strict(call("show", EXAMPLES / "consortium.toml", "--json").stdout)
    assert shown["name"] == "north-sea" and len(shown["parties"]) == 3


def test_an_error_under_json_is_still_an_error():
    done = call("run", "--data", "digit", "--json")
    assert done.exit_code == 2 and done.stdout == "" and done.stderr.startswith("error: ")


# ---------------------------------------------------------------- completion


def real_lists():
    from relaydp.algorithm import algorithms
    from relaydp.attack.exposure import METHODS
    from relaydp.auditing.canary import CANARIES
    from relaydp.data import catalogue_names
    from relaydp.graph import WALKS
    from relaydp.graph.named import NAMED, PLAIN
    from relaydp.network.consortium.agreed_plan import network_algorithms
    from relaydp.paper import EXPERIMENTS
    from relaydp.paper.experiment import DATA
    from relaydp.problem.bounds import FITTED
    from relaydp.settings import values

    return {
        "ALGORITHMS": ["auto", *algorithms()],
        "NAMED_ALGORITHMS": algorithms(),
        "NETWORK_ALGORITHMS": network_algorithms(),
        "GRAPHS": NAMED,
        "PLAIN_GRAPHS": PLAIN,
        "WALKS": WALKS,
        "LOSSES": values.loss_functions(),
        "MECHANISMS": values.MECHANISMS,
        "VARIANTS": values.VARIANTS,
        "RANGES": FITTED,
        "STEPS": ("tuned", "paper"),
        "PLACES": ("local", "ray"),
        "DATA_SETS": catalogue_names(),
        "CANARIES": CANARIES,
        "METHODS": METHODS,
        "EXPERIMENTS": EXPERIMENTS,
        "PAPER_DATA": DATA,
    }


def test_the_lists_for_completion_are_the_real_ones():
    real = real_lists()
    written = {name: value for name, value in vars(choices).items() if name.isupper()}
    assert {name: sorted(value) for name, value in written.items()} == {n: sorted(v) for n, v in real.items()}


def offered(line, shell="bash"):
    """What a shell is offered at the end of a line, by the protocol its script speaks."""
    words = line.split(" ")
    env = {"_RELAYDP_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line, "COMP_WORDS": line}
    env |= {"COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = call(**env)
    assert done.exit_code == 0 and done.stderr == "", done.output
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_offered_commands_flags_and_values(shell):
    for line, word in (("relaydp ru", "run"), ("relaydp run --wa", "--walk"), ("relaydp run --walk cy", "cyclic")):
        assert re.search(rf"(?<![\w-]){word}(?!\w)", "\n".join(offered(line, shell))), (line, shell)


# of every command, the flags whose values are a closed list
CLOSED = {
    "algorithm": choices.ALGORITHMS,
    "graph": choices.GRAPHS,
    "walk": choices.WALKS,
    "mechanism": choices.MECHANISMS,
    "loss": choices.LOSSES,
}


@pytest.mark.parametrize("name", ["run", "plan", "audit", "consortium new", "consortium demo"])
def test_closed_lists_are_offered(name):
    asked = [param for param in LEAVES[name].params if param.name in CLOSED]
    assert asked
    for param in asked:
        found = set(offered(f"relaydp {name} {param.opts[0]} "))
        assert found and found <= set(CLOSED[param.name]), (name, param.name)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("relaydp run --data brea", ["breast-cancer"]),
        ("relaydp data info dig", ["digits"]),
        ("relaydp paper run table-li", ["table-linear"]),
        ("relaydp paper run plf --data mnist,cif", ["mnist,cifar10"]),
        ("relaydp run --graph visits.csv", []),  # nothing of ours: bash goes on with file names
    ],
)
def test_values_are_offered(line, found):
    assert offered(line) == found


HEAVY = """
import sys
from relaydp.cli.main import main
sys.argv = ["relaydp"]
try: main()
except SystemExit as stop: assert not stop.code
heavy = {"jax", "numpy", "scipy", "sklearn", "matplotlib", "networkx"} & set(sys.modules)
assert not heavy, heavy
"""


def test_completion_of_the_real_command_waits_for_nothing_heavy():
    env = {"_RELAYDP_COMPLETE": "complete_bash", "COMP_WORDS": "relaydp run --algorithm pg", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-c", HEAVY], env={**os.environ, **env}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["pg-admm", "pg-extra"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(shell, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # the shell is then an argument
    done = call("--show-completion", shell)
    assert done.exit_code == 0 and f"complete_{shell}" in done.stdout


# ---------------------------------------------------------------- wrong usage


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["rnu"], "'run'"),
        (["docter"], "'doctor'"),
        (["ledger", "verfy", "first"], "'verify'"),
        (["verify", "first"], "'ledger verify'"),
        (["run", "--epsilom", "1"], "--epsilon"),
        (["run", "--quite"], "--quiet"),
        (["--verson"], "--version"),
        (["consortium", "demo", "--epsilonn", "1"], "--epsilon"),
    ],
)
def test_wrong_usage_names_what_was_meant(words, meant):
    done = call(*words)
    assert done.exit_code == 2 and done.stdout == "" and "Traceback" not in done.stderr
    said = " ".join(re.sub("[│╭╰─╮╯]", " ", done.stderr).split())
    assert re.search(rf"Did you mean {re.escape(meant)}\?", said), said


def test_errors_speak_of_flags_that_the_command_has():
    known = flags_of(ROOT.commands["run"])
    said = in_flags("Pass record_norm=2, ranges=(low, high), l2=, drop='a b' or colour=3; seed=7.", known)
    assert said == "Pass --record-norm=2, --ranges=LOW,HIGH, --l2=NUMBER, --drop='a b' or colour=3; --seed=7."
    for text in ("x=[1, 2]", "ranges=[0.0, 1.0] arrived", "no flags here", "a.epsilon=1"):
        assert in_flags(text, known) == text


# ---------------------------------------------------------------- files of one's own

ROWS = "age,dose,hospital,outcome\n" + "".join(
    f"{20 + k},{k % 7 / 7:.2f},{'ab'[k % 2]},{k % 3 % 2}\n" for k in range(30)
)
TABLE = {"visits.csv": ROWS}
PRIVATE = ["--agents", "hospital", "--epsilon", 1]
CLASSED = [*PRIVATE, "--classes", "0,1"]
# name: (files, arguments of run, what the error must say)
MISTAKES = {
    "no such file": (TABLE, ["--data", "visit.csv"], ["does not exist", "Did you mean 'visits.csv'?"]),
    "no suffix": (TABLE, ["--data", "visits"], ["Did you mean 'visits.csv'?"]),
    "a folder": ({}, ["--data", "."], ["folder", "file in it"]),
    "a PDF": ({"scan.pdf": "%PDF-1.7"}, ["--data", "scan.pdf"], ["scan.pdf", "as CSV"]),
    "a PDF by another name": ({"scan.csv": "%PDF-1.7\n1 0"}, ["--data", "scan.csv"], ["is a PDF", "must be CSV"]),
    "Excel": ({"a.xlsx": "PK\x03\x04"}, ["--data", "a.xlsx"], ["spreadsheet", "save the sheet as CSV"]),
    "Excel by another name": ({"a.csv": "PK\x03\x04..."}, ["--data", "a.csv"], ["Excel", "save the sheet as CSV"]),
    "empty": ({"a.csv": ""}, ["--data", "a.csv"], ["0 bytes"]),
    "ragged": ({"a.csv": "a,b\n1,2\n1,2,3\n"}, ["--data", "a.csv"], ["row 2 (line 3)", "3 values", "2 columns"]),
    "semicolons": ({"a.csv": "a;b\n1;2\n"}, ["--data", "a.csv"], ["semicolons", "must be commas"]),
    "column": (
        TABLE,
        ["--data", "visits.csv", "--label", "outcom"],
        ["age, dose, hospital", "Did you mean 'outcome'?"],
    ),
    "classes": (TABLE, ["--data", "visits.csv", *PRIVATE], ["--classes a,b", "--loss huber"]),
    "bounds": (TABLE, ["--data", "visits.csv", *CLASSED], ["--record-norm=NUMBER", "--ranges=LOW,HIGH"]),
    "fitted": (
        TABLE,
        ["--data", "visits.csv", *CLASSED, "--ranges", "fit"],
        ["--ranges=LOW,HIGH", "--ranges=fit-public"],
    ),
    "label bound": (
        TABLE,
        ["--data", "visits.csv", *PRIVATE, "--ranges", "0,99", "--label", "age", "--loss", "least-squares"],
        ["clip in [problem] of a TOML file", "--label-bound=NUMBER"],
    ),
    "one class": (
        {"a.csv": re.sub(r",\d\n", ",1\n", ROWS)},
        ["--data", "a.csv", "--agents", "hospital"],
        ["one class", "--label=COLUMN"],
    ),
    "one site": (
        {"a.csv": ROWS.replace(",b,", ",a,")},
        ["--data", "a.csv", *CLASSED, "--ranges", "0,99"],
        ["'hospital' holds one value only, 'a'", "--agents 4"],
    ),
    "text": (TABLE, ["--data", "visits.csv", "--agents", 2], ["'hospital' holds 'a'", "--drop=hospital"]),
    "gap": (
        {"a.csv": ROWS.replace("22,0.29", "22,")},
        ["--data", "a.csv", *PRIVATE],
        ["'dose' holds nothing in row 3", "--drop=dose"],
    ),
    "a word among numbers": (
        {"a.csv": ROWS.replace("22,0.29", "22,unknown")},
        ["--data", "a.csv", *PRIVATE],
        ["'dose' holds 'unknown' in row 3", "Fill it", "--drop=dose"],
    ),
    "three ranges": (TABLE, ["--data", "visits.csv", "--ranges", "0,1,2"], ["--ranges", "needed two"]),
    "records for settings": (TABLE, ["visits.csv"], ["--data visits.csv"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_with_a_file_of_ones_own_says_which_flag_to_pass(name, tmp_path, monkeypatch):
    files, args, needles = MISTAKES[name]
    monkeypatch.chdir(tmp_path)
    for file, content in files.items():
        Path(file).write_text(content)
    done = call("run", *args)
    assert done.exit_code == 2 and done.stdout == "", done.output
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    for needle in needles:
        assert needle in done.stderr, done.stderr
    assert not re.search(r"(?<!--)\b(record_norm|label_bound|groups|drop)=", done.stderr), done.stderr


@pytest.mark.parametrize("words", [["show"], ["rerun"], ["ledger", "verify"]])
def test_a_result_that_is_not_there(words, tmp_path):
    done = call(*words, tmp_path / "nowhere")
    assert done.exit_code == 2 and "does not exist" in done.stderr and "Errno" not in done.stderr


# ---------------------------------------------------------------- progress

# It sleeps because a bar is drawn, and says what is left, by the time that passes; more of it does no harm.
BAR = """
import time
from relaydp.cli.progress import step_bar
with step_bar({silent}, "getting ready") as report:
    time.sleep(0.3)
    for done in range(1, 7):
        report.hops("recal on ring(8)")(done, 10)
        time.sleep(0.15)
"""


def on_a_terminal(code):
    """What a program writes to a stderr that is a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
    done = subprocess.Popen([sys.executable, "-c", code], stderr=theirs, stdout=subprocess.PIPE, env=env)
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 4096):
            text += part
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(ours)
    assert done.communicate(timeout=300)[0] == b"" and done.returncode == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode())


def test_a_terminal_sees_how_far_and_how_long():
    text = on_a_terminal(BAR.format(silent=False))
    assert "getting ready" in text and "recal on ring(8)" in text
    assert re.search(r"\d/10 +\d:\d\d:\d\d +\d+:\d\d left", text), text


def test_no_bar_where_nobody_looks():
    assert on_a_terminal(BAR.format(silent=True)).strip() == ""
    done = subprocess.run([sys.executable, "-c", BAR.format(silent=False)], capture_output=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
