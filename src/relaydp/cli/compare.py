"""`relaydp compare`: many algorithms, one problem, one graph, one budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp.cli.options import (
    MAIN,
    OUTPUT,
    RUN,
    Activations,
    AgentOptions,
    AsJson,
    BudgetOptions,
    ConfigFile,
    DataOptions,
    Graph,
    Overwrite,
    Quiet,
    flag,
    passed,
    print_json,
    spread,
)
from relaydp.cli.progress import step_bar
from relaydp.cli.run import check_out
from relaydp.errors import InputError

if TYPE_CHECKING:
    from relaydp.engine import Comparison


RANKED = {
    "accuracy": "ranked by accuracy, highest first",
    "excess": "ranked by excess F, least first",
    "objective": "ranked by F, least first",
}


@spread
def compare(
    data: DataOptions,
    agents: AgentOptions,
    budget: BudgetOptions,
    config: ConfigFile = None,
    graph: Graph = None,
    algorithms: Annotated[
        str, typer.Option(help="Names with commas between, or all.", metavar="NAMES|all", rich_help_panel=MAIN)
    ] = "all",
    activations: Activations = None,
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

    Loss, weights, walk, mechanism and objective are set in the TOML file: examples/run.toml lists all settings.
    """
    if figure is not None:
        from relaydp.report.figures import check_figure

        check_figure(figure)
    from relaydp.settings.config import TRUSTING, build, read_config

    check_saved(out, overwrite, "comparison.json")
    if seeds < 1:
        raise InputError(f"--seeds {seeds} is too few; needed 1 or more.")
    given = passed(data, agents, budget, graph=graph, activations=activations)
    found, network, asked = build(read_config(config, given), simulated=True)
    for name in ("limits", "prior", *TRUSTING):
        if name in asked:  # leaving an agent's limit unheeded would break its promise
            raise InputError(f"{config} has {name}, which a comparison does not take; leave it out, or use `run`.")
    names = "all" if algorithms.strip() == "all" else [name.strip() for name in algorithms.split(",") if name.strip()]
    taken = ("budget", "mechanism", "objective", "ratio", "walk")
    options: dict[str, Any] = {key: asked[key] for key in taken if key in asked}

    from relaydp.engine import compare as run_all

    with step_bar(quiet or json_) as report:
        table = run_all(
            found, network, names, seeds=range(seeds), activations=asked["activations"], progress=report, **options
        )
    if all(row["status"] == "refused" for row in table.rows):
        raise InputError(f"no algorithm can run as asked. {table.rows[0]['algorithm']}: {table.rows[0]['note']}")
    if figure is not None:
        from relaydp.report import draw_comparison

        draw_comparison(figure, table, f"{found.data.name}, {found.loss.name}, {network.name}")
    if out is not None:
        table.save(out, overwrite=overwrite)
    if json_:
        print_json({"data": found.data.name, "graph": network.name, "seeds": seeds, **table.summary()})
    elif not quiet:
        print_comparison(table, figure, out)


def check_saved(folder: Path | None, overwrite: bool, mark: str) -> None:
    """Refuse an --out before anything runs. --overwrite removes the folder: only one with the file `mark`, or nothing,
    in it may go."""
    if folder is None:
        if overwrite:
            raise InputError("--overwrite needs --out, the folder to replace. Add --out FOLDER.")
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
    table = Table(title=RANKED[found.ranked_by], title_justify="left", box=None, header_style="bold", pad_edge=False)
    minimised = found.best_value == found.best_value  # NaN: there is no minimiser
    loss = ("excess", "excess F") if minimised else ("objective", "F")
    for name in ("algorithm", loss[1], "rel. error", "accuracy", "planned", "PLF", "messages", "vectors", "paper's"):
        table.add_column(name, justify="left" if name == "algorithm" else "right", no_wrap=True)
    for row in found.rows:
        if row["status"] == "refused":
            continue
        cells = [_number(row[key], form) for key, form in ((loss[0], ".2e"), ("relative_error", ".2e"))]
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
