"""`relaydp compare`: many algorithms, one problem, one graph, one budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp.cli.options import DATA, GRAPH, OUTPUT, PRIVACY, PROBLEM, RUN, AsJson, Overwrite, Quiet, flag, print_json
from relaydp.cli.progress import step_bar
from relaydp.cli.run import check_out
from relaydp.errors import InputError

if TYPE_CHECKING:
    from relaydp.engine import Comparison


def compare(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.toml", help="Settings as for `relaydp run`; flags override them."),
    ] = None,
    algorithms: Annotated[
        str, typer.Option(help="Names with commas between, or all.", metavar="NAMES|all", rich_help_panel=RUN)
    ] = "all",
    data: Annotated[str | None, flag(DATA, "Catalogue name or file; default fashion-small.", "NAME|PATH")] = None,
    label: Annotated[str | None, flag(DATA, "A file's label column.", "COLUMN")] = None,
    loss: Annotated[str | None, flag(PROBLEM, "As for run; default: by the classes.", "NAME")] = None,
    classes: Annotated[str | None, flag(PROBLEM, "As for run; default: those in the labels.", "A,B")] = None,
    agents: Annotated[str | None, flag(PROBLEM, "As for run; default 8.", "N|SIZES|COLUMN")] = None,
    l1: Annotated[float | None, flag(PROBLEM, "Weight of the 1-norm; default 0.")] = None,
    l2: Annotated[float | None, flag(PROBLEM, "Weight of the ridge; default 0.01.")] = None,
    record_norm: Annotated[float | None, flag(PROBLEM, "Public bound on a record's norm.")] = None,
    ranges: Annotated[str | None, flag(PROBLEM, "Public range of the features; as for run.", "LOW,HIGH|fit")] = None,
    clip: Annotated[float | None, flag(PROBLEM, "Bound on one record's gradient.")] = None,
    label_bound: Annotated[float | None, flag(PROBLEM, "Public bound on labels (least-squares).")] = None,
    graph: Annotated[str | None, flag(GRAPH, "As for run; default ring.", "NAME|PATH")] = None,
    walk: Annotated[str | None, flag(GRAPH, "What the relays follow; default tour.", "NAME")] = None,
    epsilon: Annotated[
        float | None, flag(PRIVACY, "The budget to simulate each run with; without it there is no noise.")
    ] = None,
    delta: Annotated[float | None, flag(PRIVACY, "The chance that the promise fails; default 1e-5.")] = None,
    mechanism: Annotated[
        str | None, flag(PRIVACY, "As for run; default with --epsilon: each algorithm's own.", "NAME")
    ] = None,
    activations: Annotated[
        int | None, flag(RUN, "The PLF of all; default: each algorithm's own, chosen from public facts.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, run at once.", rich_help_panel=RUN)] = 16,
    figure: Annotated[Path | None, flag(OUTPUT, "Draw the curves into this file (.png, .svg, .pdf).", "FILE")] = None,
    out: Annotated[
        Path | None, flag(OUTPUT, "Keep the table and the curves in this new folder, for `relaydp report`.", "FOLDER")
    ] = None,
    overwrite: Overwrite = False,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run many algorithms on one problem, graph and budget, and rank them.

    \b
    relaydp compare --data digits --epsilon 1
    relaydp compare --algorithms recal,nids,pg-extra --graph star --activations 300
    relaydp compare examples/run.toml --figure compare.png
    relaydp compare --epsilon 1 --out compared

    Steps are tuned by one rule for all, from public facts. An algorithm that cannot run as asked says why.

    With --epsilon the runs are simulations without a promise: their noise comes from seeds, and epsilon is what the
    proof gives each plan.
    """
    from relaydp.settings.config import FLAGS, build, read_config

    check_saved(out, overwrite, "comparison.json")
    if seeds < 1:
        raise InputError(f"--seeds {seeds} arrived; needed at least 1.")
    given = {name: value for name, value in ctx.params.items() if name in FLAGS and value not in (None, [], ())}
    problem, network, asked = build(read_config(config, given), simulated=True)
    for name in ("limits", "prior"):
        if name in asked:  # leaving an agent's limit unheeded would break its promise
            raise InputError(f"{config} has {name}, which a comparison does not take; leave it out, or use `run`.")
    names = "all" if algorithms.strip() == "all" else [name.strip() for name in algorithms.split(",") if name.strip()]
    options: dict[str, Any] = {key: asked[key] for key in ("budget", "mechanism", "ratio") if key in asked}
    options["walk"] = asked["walk"] if config is not None or walk is not None else "tour"

    from relaydp.engine import compare as run_all

    with step_bar(quiet or json_) as report:
        found = run_all(
            problem, network, names, seeds=range(seeds), activations=asked["activations"], progress=report, **options
        )
    if all(row["status"] == "refused" for row in found.rows):
        raise InputError(f"no algorithm can run as asked. {found.rows[0]['algorithm']}: {found.rows[0]['note']}")
    if figure is not None:
        from relaydp.report import draw_comparison

        draw_comparison(figure, found, f"{problem.data.name}, {problem.loss.name}, {network.name}")
    if out is not None:
        found.save(out, overwrite=overwrite)
    if json_:
        print_json({"data": problem.data.name, "graph": network.name, "seeds": seeds, **found.summary()})
    elif not quiet:
        print_comparison(found, figure, out)


def check_saved(folder: Path | None, overwrite: bool, mark: str) -> None:
    """Refuse an --out before anything runs. --overwrite removes the folder: only one with the file `mark`, or nothing,
    in it may go."""
    if folder is None:
        if overwrite:
            raise InputError("--overwrite arrived without --out; needed the folder to replace. Add --out FOLDER.")
        return
    if not (overwrite and folder.exists()):
        check_out(folder, overwrite=False)
    elif not folder.is_dir() or (not (folder / mark).is_file() and any(folder.iterdir())):
        raise InputError(f"--out {folder} has no {mark} in it, so --overwrite leaves it alone; choose another.")


def print_comparison(found: Comparison, figure: Path | None, out: Path | None = None) -> None:
    """The table, best first, then why some are missing."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=110)  # a file or a pipe has room for every column
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("algorithm", "excess F", "rel. error", "accuracy", "planned", "PLF", "messages", "vectors", "paper's"):
        table.add_column(name, justify="left" if name == "algorithm" else "right", no_wrap=True)
    for row in found.rows:
        if row["status"] == "refused":
            continue
        cells = [_number(row[key], form) for key, form in (("excess", ".2e"), ("relative_error", ".2e"))]
        cells += [_number(row["accuracy"], ".4f"), _number(row["epsilon_planned"], ".3f")]
        cells += [str(row[key]) for key in ("plf", "messages", "vectors", "messages_paper")]
        table.add_row(row["algorithm"], *cells)
    console.print(table)
    if found.budget is not None:
        console.print(Text(found.guarantee))
    notes: dict[str, list[str]] = {}
    for row in found.rows:
        if row["note"]:
            notes.setdefault(row["note"].replace(f"for {row['algorithm']};", "here;"), []).append(row["algorithm"])
    for note, names in notes.items():
        console.print(Text(f"{', '.join(names)}: {note}"))
    if figure is not None:
        console.print(f"Figure: {figure}")
    if out is not None:
        console.print(f"Saved in: {out}")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
