"""`relaydp run`, `relaydp show` and `relaydp rerun`: train, look at what was saved, repeat it."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relaydp._atomic import RESULT, may_replace
from relaydp.cli import choices
from relaydp.cli.choices import among
from relaydp.cli.options import (
    DATA,
    GRAPH,
    OUTPUT,
    PRIVACY,
    PROBLEM,
    RUN,
    AsJson,
    Overwrite,
    Quiet,
    flag,
    print_json,
)
from relaydp.cli.progress import step_bar
from relaydp.errors import InputError, choose

if TYPE_CHECKING:
    from relaydp.privacy import PrivacyAccount
    from relaydp.result import Result
    from relaydp.settings.config import RunSection

DIVERGED, INTERRUPTED = 3, 130  # exit codes
CLUSTER, PLACES = "Cluster", ("local", "ray")

Folder = Annotated[Path, typer.Argument(help="A folder written by `relaydp run --out` or Result.save.")]


def run(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.toml", help="Settings; flags override them. See examples/run.toml."),
    ] = None,
    data: Annotated[
        str | None,
        flag(DATA, "Catalogue name or file; default fashion-small.", "NAME|PATH", complete=among(choices.DATA_SETS)),
    ] = None,
    label: Annotated[str | None, flag(DATA, "A file's label column.", "COLUMN")] = None,
    groups: Annotated[list[str] | None, flag(DATA, "A column that is no feature; repeatable.", "COLUMN")] = None,
    drop: Annotated[list[str] | None, flag(DATA, "A column to leave out; repeatable.", "COLUMN")] = None,
    features: Annotated[
        int | None,
        flag(
            DATA, "How many features a record has; a private run on a LIBSVM file, which does not say, needs it.", "N"
        ),
    ] = None,
    loss: Annotated[
        str | None,
        flag(
            PROBLEM,
            "logistic, least-squares, softmax or huber; default: by --classes, or without privacy by the labels.",
            "NAME",
            complete=among(choices.LOSSES),
        ),
    ] = None,
    classes: Annotated[
        str | None,
        flag(
            PROBLEM,
            "Every label there may be, known without the records; a private run on a file needs it for logistic and "
            "softmax. Two mean logistic, more softmax.",
            "A,B",
        ),
    ] = None,
    agents: Annotated[
        str | None, flag(PROBLEM, "A count, sizes such as 120,80,256, or a column; default 8.", "N|SIZES|COLUMN")
    ] = None,
    l1: Annotated[float | None, flag(PROBLEM, "Weight of the 1-norm; default 0.")] = None,
    l2: Annotated[float | None, flag(PROBLEM, "Weight of the ridge; default 0.01.")] = None,
    intercept: Annotated[
        bool | None, flag(PROBLEM, "Add an unpenalised constant.", None, "--intercept/--no-intercept")
    ] = None,
    record_norm: Annotated[
        float | None, flag(PROBLEM, "Public bound on a record's norm; longer ones are shrunk to it.")
    ] = None,
    ranges: Annotated[
        str | None,
        flag(
            PROBLEM,
            "Public range of the features, or fit (looks at the records), or fit-public (they are public); "
            "default: the catalogue's, or none.",
            "LOW,HIGH|fit",
            complete=among(choices.RANGES),
        ),
    ] = None,
    clip: Annotated[
        float | None, flag(PROBLEM, "Bound on one record's gradient; default: the most that the bounds above allow.")
    ] = None,
    label_bound: Annotated[float | None, flag(PROBLEM, "Public bound on labels (least-squares).")] = None,
    threshold: Annotated[float | None, flag(PROBLEM, "Where huber turns into a line; default 1.")] = None,
    graph: Annotated[
        str | None,
        flag(
            GRAPH,
            "ring, path, star, complete, grid:4x8, torus, hypercube, erdos-renyi:0.3, watts-strogatz:4,0.1, "
            "random-regular:4, or a .graphml, .txt, .csv or .edges file; default ring.",
            "NAME|PATH",
            complete=among(choices.GRAPHS),
        ),
    ] = None,
    walk: Annotated[
        str | None,
        flag(
            GRAPH,
            "random, cyclic, lazy, nonbacktracking or tour; default random.",
            "NAME",
            complete=among(choices.WALKS),
        ),
    ] = None,
    start: Annotated[int | None, flag(GRAPH, "The agent that holds the first baton; default 0.")] = None,
    epsilon: Annotated[
        float | None,
        flag(PRIVACY, "How much may leak about any record, over the whole run; without it there is no privacy."),
    ] = None,
    delta: Annotated[
        float | None,
        flag(PRIVACY, "The chance that the promise fails; below 1/m for agents with m records. Default 1e-5."),
    ] = None,
    allow_large_delta: Annotated[
        bool | None, flag(PRIVACY, "Promise a delta of 1/m or more all the same.", None, "--allow-large-delta")
    ] = None,
    account: Annotated[
        str | None,
        flag(
            PRIVACY,
            "Charge the run to this account, or refuse it: see `relaydp account --help`. All runs on the same records "
            "share one.",
            "FILE",
        ),
    ] = None,
    mechanism: Annotated[
        str | None,
        flag(
            PRIVACY,
            "gradient (sound), objective (of methods that minimise exactly; simulations only, with --seed), published "
            "(the paper's; no guarantee) or none; default with --epsilon: the algorithm's own, gradient or objective.",
            "NAME",
            complete=among(choices.MECHANISMS),
        ),
    ] = None,
    variant: Annotated[
        str | None,
        flag(
            PRIVACY,
            "Of published: for recal memoryless, carried or replace, for d-admm messages or objective; default: the "
            "first.",
            "NAME",
            complete=among(choices.VARIANTS),
        ),
    ] = None,
    ratio: Annotated[
        float | None,
        flag(PRIVACY, "Each activation's share of the budget over the one before; default: the best spread."),
    ] = None,
    limits: Annotated[
        list[str] | None,
        flag(PRIVACY, "An agent that allows less than --epsilon; repeatable.", "AGENT=EPSILON", "--limit"),
    ] = None,
    prior: Annotated[
        str | None,
        flag(
            PRIVACY,
            "PUBLIC records of the same columns: the budget is planned for them, and plans are tried on them.",
            "NAME|PATH",
            complete=among(choices.DATA_SETS),
        ),
    ] = None,
    algorithm: Annotated[
        str | None, flag(RUN, "recal, afbs, ...; default recal.", "NAME", complete=among(choices.ALGORITHMS))
    ] = None,
    activations: Annotated[
        int | None, flag(RUN, "How often an agent acts: the PLF; default: chosen from public facts.")
    ] = None,
    steps: Annotated[
        str | None,
        flag(
            RUN,
            "tuned, paper, or alpha=..,beta=..,gamma=..; default tuned.",
            "NAME|NUMBERS",
            complete=among(choices.STEPS),
        ),
    ] = None,
    seed: Annotated[
        int | None,
        flag(
            RUN,
            "Of walk and noise: makes the run a simulation without a promise, the same again for the same seed. "
            "Default: none, and secret noise.",
        ),
    ] = None,
    on: Annotated[str, flag(CLUSTER, "local (this process) or ray (a cluster); default local.", "PLACE")] = "local",
    address: Annotated[
        str | None,
        flag(
            CLUSTER, "Of a Ray cluster: HOST:6379, ray://HOST:10001 or auto; default: one is started here.", "ADDRESS"
        ),
    ] = None,
    columns: Annotated[
        str | None,
        flag(
            CLUSTER,
            "Features of --data 'PATTERN', one file an agent, in order; --features for files without names.",
            "NAME,NAME,...",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None, flag(CLUSTER, "Keep where such a run stands in this folder, and go on from it.", "FOLDER")
    ] = None,
    out: Annotated[Path | None, flag(OUTPUT, "Keep the result in this new folder.", "FOLDER")] = None,
    overwrite: Overwrite = False,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train one model over a graph of agents, with a privacy budget or without.

    \b
    relaydp run --epsilon 1
    relaydp run --data visits.csv --agents hospital --classes 0,1 --ranges 0,1 --epsilon 0.5 --account visits.account
    relaydp run examples/run.toml --seed 7 --out results/seven
    relaydp run --on ray --data 'parts/*.csv' --columns age,dose --label ill --classes 0,1 --ranges 0,1

    With --epsilon a run is private: its noise is secret, kept nowhere, and other in every run. With --seed it is a
    simulation, which can be repeated and promises nothing.

    \b
    Exit codes:
      0    finished
      2    something to put right: nothing ran and nothing was written
      3    the run diverged
      130  interrupted: what was done is shown, and kept with --out
    """
    from relaydp.settings.config import FLAGS, build, read_config

    if out is not None:
        check_out(out, overwrite)
    elif overwrite:
        raise InputError("--overwrite arrived without --out; needed the folder to replace. Add --out FOLDER.")
    # Every flag that was given, by name; what each means is config.py's business, for files and flags alike.
    given = {name: ctx.params[name] for name in FLAGS if ctx.params[name] not in (None, [], ())}
    settings = read_config(config, given)
    choose("--on", on, PLACES)
    public = {"--columns": columns, "--checkpoint": checkpoint}
    apart = on == "ray" and any(sign in settings.data.source for sign in "*?[")
    for name, value in ({} if apart else public).items():
        if value is not None:
            raise InputError(f"{name} arrived for a run in one piece; it needs --on ray and --data 'PATTERN'.")
    if address is not None and on != "ray":
        raise InputError(f"--address {address} arrived with --on local; add --on ray.")
    if on == "ray":
        from relaydp.cluster.solving_apart import check_seeded

        check_seeded(settings.run.epsilon is not None, settings.run.seed)
    check_kept(settings.run)
    charged = open_account(settings.run)
    with step_bar(quiet or json_, "reading the data") as report:
        if apart:
            from relaydp.cluster.solving_apart import solve_apart
            from relaydp.settings.config import build_apart

            parts, network, asked = build_apart(settings, columns)
            report("starting the agents")
            hops = report.hops(f"{asked['algorithm']} on {network.name}")
            with redirect_stdout(sys.stderr):  # where Ray tells of agents that it starts again: stdout is the result's
                result = solve_apart(parts, network, **asked, address=address, checkpoint=checkpoint, progress=hops)
        else:
            problem, network, asked = build(settings)
            # The transcript is only kept to be saved: it is by far the largest part of a result.
            asked["transcript"] = out is not None
            report("planning")
            if on == "ray":
                from relaydp.cluster.solving_apart import solve_on_ray

                result = solve_on_ray(problem, network, **asked, address=address)
            else:
                from relaydp.engine import solve

                hops = report.hops(f"{asked['algorithm']} on {network.name}")
                result = solve(problem, network, **asked, account=charged, progress=hops)
    saved = None if out is None else result.save(out, overwrite=overwrite)
    finish(result, saved, json_, quiet, charged)


def show(folder: Folder, json_: AsJson = False) -> None:
    """Print a saved result as `run` printed it.

    \b
    relaydp show results/seven
    """
    check_saved_folder(folder)
    from relaydp.result import load_result

    result = load_result(folder)
    if json_:
        print_json(result.summary())
    else:
        print_result(result, folder)


def rerun(
    folder: Folder,
    data: Annotated[str | None, flag(DATA, "The data, if it has moved since.", "NAME|PATH")] = None,
    seed: Annotated[
        int | None, flag(RUN, "Of a simulation of the plan: the one way to run a private one again.")
    ] = None,
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
    if parent is None or not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"--out {folder} cannot be made: {parent} is no folder we may write to. Choose another.")


def check_kept(run: RunSection) -> None:
    """Refuse a private run whose noise would keep no promise, before any record is read."""
    from relaydp.algorithm import find_algorithm
    from relaydp.oracle.randomness import choose_source
    from relaydp.planning.planner import AUTO, resolve_mechanism
    from relaydp.settings.config import solve_arguments

    asked, method = solve_arguments(run), find_algorithm(run.algorithm)
    choose_source(run.seed, resolve_mechanism(asked.get("mechanism", AUTO), asked.get("budget"), None, method), method)


def open_account(run: RunSection) -> PrivacyAccount | None:
    """The account that the run is charged to, or None; refused for a run that has nothing to charge."""
    if run.account is None:
        return None
    if run.seed is not None:
        raise InputError(
            f"account={str(run.account)!r} arrived with seed={run.seed}: a simulation promises nothing, and nothing is "
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


def _rows(result: Result) -> list[tuple[str, str]]:
    from relaydp.privacy import SOUND

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
        ("accuracy", number(facts["accuracy"], 4)),
        ("objective", number(facts["objective"])),
        ("relative error", number(facts["relative_error"], 4)),
    ]
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
        ("PLF", f"{facts['plf']} activations of the busiest agent"),
        ("messages", f"{facts['messages']}, {facts['vectors']} vectors"),
        ("guarantee", facts["guarantee"]),
        ("seconds", number(facts["seconds"], 3)),
    ]
