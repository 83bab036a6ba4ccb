"""`relaydp run` and `relaydp rerun`: train, and repeat what was saved."""

from __future__ import annotations

import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp._atomic import RESULT, may_replace
from relaydp.cli.options import (
    DATA,
    MAIN,
    PRIVACY,
    RUN,
    AgentOptions,
    AsJson,
    BudgetOptions,
    ColumnOptions,
    ConfigFile,
    DataOptions,
    GraphOptions,
    LossOptions,
    Mechanism,
    On,
    Overwrite,
    Quiet,
    RunOptions,
    TrustOptions,
    flag,
    parse_place,
    passed,
    print_json,
    spread,
)
from relaydp.cli.progress import Report, step_bar
from relaydp.errors import InputError, RelayError

if TYPE_CHECKING:
    from relaydp.graph import Graph
    from relaydp.privacy import PrivacyAccount
    from relaydp.problem import Problem
    from relaydp.result import Baselines, Result
    from relaydp.settings.config import Config, RunSection

DIVERGED, INTERRUPTED = 3, 130  # exit codes
ROOM = 2**20  # bytes that a folder must have room for
RULED = "relay-gradient"  # the algorithm whose plans say what accuracy to expect
LAPS_WITHOUT_PRIVACY = 200  # twice as many as a private run's: more hardly change its accuracy

Folder = Annotated[Path, typer.Argument(help="A folder written by `relaydp run --out` or Result.save.")]


@spread
def run(
    data: DataOptions,
    columns: ColumnOptions,
    agents: AgentOptions,
    loss: LossOptions,
    graph: GraphOptions,
    budget: BudgetOptions,
    whom: TrustOptions,
    how: RunOptions,
    config: ConfigFile = None,
    out: Annotated[Path | None, flag(MAIN, "Keep the result in this new folder.", "FOLDER")] = None,
    account: Annotated[
        str | None,
        flag(
            PRIVACY,
            "Charge the run to this account, or refuse it: see `relaydp account --help`. All runs on the same records "
            "share one.",
            "FILE",
        ),
    ] = None,
    mechanism: Mechanism = None,
    on: On = "local",
    overwrite: Overwrite = False,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train one model over a graph of agents, with a privacy budget or without.

    \b
    relaydp run --epsilon 1
    relaydp run visits.toml --epsilon 0.5 --account visits.account
    relaydp run examples/run.toml --seed 7 --out results/seven
    relaydp run parts.toml --on ray

    With --epsilon a run is private: its noise is secret, kept nowhere, and different in every run. With --seed it is a
    simulation, which can be repeated and promises nothing.

    Write a TOML file for records of your own: --ranges gives all columns one range, and a file gives each its own
    (docs/own-csv.md). Some settings have no option and are set in the file only: examples/run.toml lists them all.

    \b
    Exit codes:
      0    finished
      2    an error to correct: nothing ran and nothing was written
      3    the run diverged
      130  interrupted: what was done is shown, and kept with --out
    """
    from relaydp.settings.config import read_config

    if out is not None:
        check_out(out, overwrite)
    elif overwrite:
        raise InputError("--overwrite needs --out, the folder to replace. Add --out FOLDER.")
    given = passed(data, columns, agents, loss, graph, budget, whom, how, account=account, mechanism=mechanism)
    settings = read_config(config, given)
    place, address = parse_place(on)
    one_process_each = place == "ray" and any(sign in settings.data.source for sign in "*?[")
    if place == "ray":
        from relaydp.cluster.solving_apart import check_seeded

        check_seeded(settings.run.epsilon is not None, settings.run.seed)
    check_kept(settings.run)
    charged = open_account(settings.run)
    with step_bar(quiet or json_, "reading the data") as report:
        if one_process_each:
            result = _run_apart(settings, address, report)
        elif place == "ray":
            result = _run_on_ray(settings, address, out is not None, report, quiet or json_)
        else:
            result = _run_here(settings, charged, out is not None, report, quiet or json_)
    saved = None if out is None else save(result, out, overwrite)
    finish(result, saved, json_, quiet, charged)


def _run_here(
    settings: Config, account: PrivacyAccount | None, transcript: bool, report: Report, silent: bool
) -> Result:
    """In this process. The transcript is by far the largest part of a result, and only kept to be saved."""
    from relaydp.settings.config import build

    problem, network, asked = build(settings)
    report("planning")
    from relaydp.engine import solve

    tell_before(problem, network, asked, settings, silent)
    hops = report.hops(f"training on {network.name}")
    result = solve(problem, network, **asked, account=account, transcript=transcript, progress=hops)
    return _beside_no_privacy(result, problem, report)


def _beside_no_privacy(result: Result, problem: Problem, report: Report) -> Result:
    """With the accuracy of a model without privacy, where `solve` found no minimiser to compare with: that of
    accelerated gradient descent, without clip and noise. It is measured like any accuracy, and kept with them."""
    known = result.baselines
    if known is None or known.without_privacy is not None or result.status != "finished":
        return result
    from relaydp.engine import solve
    from relaydp.graph import complete, ring

    hops = report.hops("training without privacy, to compare with")
    graph = complete(1) if problem.agents == 1 else ring(problem.agents)
    bare = {"transcript": False, "trace": False, "reference": False}
    try:
        free = solve(problem, graph, RULED, activations=LAPS_WITHOUT_PRIVACY, progress=hops, **bare)  # type: ignore[arg-type]
        if free.status != "finished":
            return result
        return replace(result, baselines=known._replace(without_privacy=problem.accuracy(free.x)))
    except (KeyboardInterrupt, MemoryError, RelayError):
        return result  # which is paid for, and must not be lost for the sake of a comparison


def _run_on_ray(settings: Config, address: str | None, transcript: bool, report: Report, silent: bool) -> Result:
    """The whole run as one task of a Ray cluster."""
    from relaydp.settings.config import build

    problem, network, asked = build(settings)
    report("planning")
    tell_before(problem, network, asked, settings, silent)
    from relaydp.cluster import solve_on_ray

    return solve_on_ray(problem, network, **asked, transcript=transcript, address=address)


def tell_before(problem: Problem, network: Graph, asked: dict[str, Any], settings: Config, silent: bool) -> None:
    """On stderr, before anything is spent: what to expect of the budget, and ranges that do not fit the records.

    `silent` leaves the forecast out and no warning: --quiet and --json are for scripts, whose owners need them too.
    """
    from relaydp.cli.data import warn_of_ranges
    from relaydp.cli.plan import warn_before
    from relaydp.planning import plan
    from relaydp.planning.planner import resolve_algorithm
    from relaydp.privacy.trust import trust_of
    from relaydp.report.expectation import tell_expected, warn_of
    from relaydp.settings.config import TRUSTING

    private = asked.get("budget") is not None and asked.get("mechanism") in (None, "gradient")
    made = None
    if private:
        problem.public_facts()  # refuses what `solve` would refuse, before anything is said
        deciding = ("budget", "objective", "walk", "steps", "prior", "ratio")
        known = {name: asked[name] for name in deciding if name in asked}
        whom = [asked.get(name) for name in TRUSTING]
        known["trust"] = trust_of(whom[0], whom[1], whom[2], network.agents)
        # of classifiers by other algorithms nothing is said, and a plan takes its time, which `solve` spends again
        if resolve_algorithm(asked["algorithm"], problem, **known) == RULED or not problem.classifies:
            wanted = {name: value for name, value in asked.items() if name not in ("mechanism", "variant")}
            made = plan(problem, network, **wanted)
    if problem.scale is not None and not isinstance(settings.problem.ranges, str | None):
        warn_of_ranges(problem.data, problem.scale.low, problem.scale.high)
    if made is not None:
        # the table afterwards says it too: before, only to somebody who is there to stop the run, or has reason to
        if made.expected is not None and not silent and (sys.stderr.isatty() or warn_of(made)):
            typer.echo(f"expected: {tell_expected(made.expected)}", err=True)
        warn_before(made)


def _run_apart(settings: Config, address: str | None, report: Report) -> Result:
    """Every agent as a Ray actor, which alone reads its file."""
    from relaydp.cluster.solving_apart import solve_apart
    from relaydp.settings.config import build_apart

    parts, network, asked = build_apart(settings)
    report("starting the agents")
    hops = report.hops(f"training on {network.name}")
    with redirect_stdout(sys.stderr):  # Ray reports restarted agents on stdout, which is for the result
        return solve_apart(parts, network, **asked, address=address, progress=hops)


def show_result(folder: Path, json_: bool) -> None:
    """Print a saved result as `run` printed it."""
    from relaydp.result import load_result

    result = load_result(folder)
    if json_:
        print_json(result.summary())
    else:
        print_result(result, folder)


def rerun(
    folder: Folder,
    data: Annotated[str | None, flag(DATA, "The data, if it has moved since.", "NAME|PATH")] = None,
    seed: Annotated[int | None, flag(RUN, "Of a simulation of the plan, the only way to repeat a private run.")] = None,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Repeat a saved simulation and say whether it gives the same model, bit for bit. Nothing is written.

    \b
    relaydp rerun results/seven
    relaydp rerun results/private --seed 0

    A private run cannot be repeated: its noise was kept nowhere. With --seed its plan is simulated, without a promise.

    Exit codes: 0 the same bits (or another seed), 1 other bits (another machine or other versions, or the saved run was
    interrupted).
    """
    check_saved_folder(folder)
    with step_bar(quiet or json_, "reading the data") as report:
        from relaydp import engine
        from relaydp.result import load_result, versions

        saved = load_result(folder)
        hops = report.hops(f"{saved.algorithm} on {saved.graph}")
        again = engine.rerun(folder, data=data, seed=seed, progress=hops)
    if seed is not None and seed != saved.config["solve"].get("seed"):  # another run: there is nothing to compare
        if json_:
            print_json(again.summary())
        elif not quiet:
            print_result(again, folder, "plan of")
        return
    same = saved.x.shape == again.x.shape and saved.x.tobytes() == again.x.tobytes()
    now = versions()
    changed = {
        name: [saved.versions.get(name), now.get(name)]
        for name in sorted({*saved.versions, *now})
        if saved.versions.get(name) != now.get(name)
    }
    if json_:
        print_json({"identical": same, "versions_changed": changed, **again.summary()})
    elif not quiet:
        print_result(again, folder, "repeats")
        typer.echo("identical: x is the same, bit for bit." if same else _difference(saved, again, changed))
    if not same:
        raise typer.Exit(1)


def _difference(saved: Result, again: Result, changed: dict[str, list[str | None]]) -> str:
    import numpy as np

    apart = f"{np.abs(saved.x - again.x).max():.3g}" if saved.x.shape == again.x.shape else "its length"
    text = f"different: x differs from the saved one by up to {apart}."
    if saved.status != again.status:
        text += f" The saved run was {saved.status}, this one {again.status}."
    if changed:
        text += " Changed since: " + "; ".join(f"{name} {was} -> {now}" for name, (was, now) in changed.items()) + "."
    return text


def check_saved_folder(folder: Path) -> None:
    """Say plainly that there is no such folder; what is wrong inside one, `load_result` says."""
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {found}; needed a folder written by `relaydp run --out`. Check the path.")


def check_out(folder: Path, overwrite: bool) -> None:
    """Refuse an --out that could not be written, before a run is spent on it."""
    if folder.exists():
        if not overwrite:
            raise InputError(
                f"--out {folder} exists already; choose another folder, or pass --overwrite to replace it."
            )
        # Overwriting removes the folder: only what a run left there, or nothing, may go.
        if not may_replace(folder, RESULT):
            raise InputError(f"--out {folder} is not a result folder, so --overwrite leaves it alone; choose another.")
    parent = next((place for place in folder.absolute().parents if place.exists()), None)
    try:  # what the rights allow, a file system may still refuse: a long name, or a place that is not on a disk
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=parent) as probe:
            (Path(probe) / "room").write_bytes(bytes(ROOM))
    except OSError as error:
        raise InputError(
            f"--out {folder} cannot be made in {parent}: {error.strerror}. Choose another folder, or make room."
        ) from None


def save(result: Result, folder: Path, overwrite: bool) -> Path:
    """Write the result; where its folder cannot be written any more, into another, since what it cost is spent."""
    try:
        return result.save(folder, overwrite=overwrite)
    except OSError as error:
        spare = Path(tempfile.mkdtemp(prefix="relaydp-")) / folder.name
        saved = result.save(spare)
        typer.echo(
            f"warning: --out {folder} could not be written ({error.strerror}). The result is in {saved}.", err=True
        )
        return saved


def check_kept(run: RunSection) -> None:
    """Refuse a private run whose noise would keep no promise, before any record is read."""
    from relaydp.algorithm import find_algorithm
    from relaydp.oracle.randomness import choose_source
    from relaydp.planning.planner import AUTO, resolve_mechanism
    from relaydp.settings.config import solve_arguments

    asked = solve_arguments(run)
    # whichever algorithm 'auto' stands for has noise on gradients
    method = find_algorithm("recal" if run.algorithm == AUTO else run.algorithm)
    mechanism = asked.get("mechanism", AUTO)
    kind = resolve_mechanism(mechanism, asked.get("budget"), None, method, run.algorithm)
    choose_source(run.seed, kind, method)


def open_account(run: RunSection) -> PrivacyAccount | None:
    """The account that the run is charged to, or None; refused for a run that has nothing to charge."""
    if run.account is None:
        return None
    if run.seed is not None:
        raise InputError(
            f"account={str(run.account)!r} with seed={run.seed}: a simulation promises nothing, and nothing is "
            "charged for it. Leave the seed out for a private run, or the account."
        )
    from relaydp.privacy import PrivacyAccount

    return PrivacyAccount.open(run.account, allow_large_delta=run.allow_large_delta)


def finish(result: Result, saved: Path | None, json_: bool, quiet: bool, account: PrivacyAccount | None = None) -> None:
    """Print the result, and turn its status into the exit code."""
    if json_:
        from relaydp.cli.account import facts_of

        print_json({**result.summary(), **({} if account is None else {"account": facts_of(account)})})
    elif not quiet:
        print_result(result, saved, account=account)
    if result.status == "finished":
        return
    typer.echo(f"{result.status}: {result.message}", err=True)
    raise typer.Exit(DIVERGED if result.status == "diverged" else INTERRUPTED)


def print_result(
    result: Result, folder: Path | None, where: str = "saved in", account: PrivacyAccount | None = None
) -> None:
    """A short table: what ran, what it found, what it cost."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title="relaydp", title_justify="left", title_style="bold", show_header=False, box=None)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, value in _rows(result):
        table.add_row(name, Text(value))
    if account is not None:
        from relaydp.cli.account import sentence_of

        table.add_row("account", Text(sentence_of(account)))
    if folder is not None:
        table.add_row(where, Text(str(folder)))
    Console(highlight=False).print(table)
    if result.baselines is not None and result.baselines.answers is not None:
        from relaydp.report.expectation import tell_answers

        typer.echo(
            f"warning: {tell_answers(result.baselines)} Check the ranges (`relaydp data check`) and the budget "
            "(`relaydp plan`).",
            err=True,
        )


def _compared(baselines: Baselines | None) -> str:
    """What stands beside the accuracy."""
    if baselines is None:
        return ""
    text = f" (most frequent class {baselines.majority:.4g}"
    return f"{text}{'' if baselines.without_privacy is None else f', no privacy {baselines.without_privacy:.4g}'})"


def _rows(result: Result) -> list[tuple[str, str]]:
    from relaydp.privacy import SOUND
    from relaydp.report.expectation import tell_expected

    def number(value: float | None, digits: int = 6) -> str:
        return "-" if value is None else f"{value:.{digits}g}"

    facts = result.summary()
    problem = result.config["problem"]
    walk = f", {facts['walk']} walk" if facts["walk"] else ""
    noise = facts["mechanism"] or "no"
    noise += f" ({facts['variant']})" if facts["variant"] else ""
    rows = [
        ("ran", f"{facts['algorithm']}, {problem['loss']} on {problem['data']}, {noise} mechanism"),
        ("over", f"{facts['agents']} agents, {facts['graph']}{walk}"),
        ("status", f"{facts['status']}. {facts['message']}"),
        ("accuracy", number(facts["accuracy"], 4) + _compared(result.baselines)),
        ("objective", number(facts["objective"])),
    ]
    if facts["relative_error"] is not None:
        rows.append(("relative error", number(facts["relative_error"], 4)))
    if facts["mechanism"] is not None:
        delta = f" at delta {number(facts['delta'])}" if facts["delta"] is not None else ""
        if result.private:
            cost = f"{number(facts['epsilon'])} exact, {number(facts['epsilon_paper'])} by the paper's formula{delta}"
        elif result.simulation:
            costs = (
                "A private run of this plan costs" if result.mechanism in SOUND else "In real numbers its plan costs"
            )
            cost = f"none: simulation. {costs} {number(facts['epsilon_planned'])}{delta}"
        else:
            cost = f"none; {number(facts['epsilon_paper'])} by the paper's formula, a claim without a proof{delta}"
        rows.append(("epsilon", cost))
    return [
        *rows,
        *([("expected", tell_expected(facts["expected_gain"]))] if facts["expected_gain"] else []),
        ("PLF", f"{facts['plf']} activations of the busiest agent"),
        ("messages", f"{facts['messages']}, {facts['vectors']} vectors"),
        ("guarantee", facts["guarantee"]),
        ("seconds", number(facts["seconds"], 3)),
    ]
