"""`relaydp data`: data sets to train on, and where they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp.cli import choices
from relaydp.cli.choices import among
from relaydp.cli.options import AsJson, Quiet, example, print_json
from relaydp.errors import InputError, RelayError

if TYPE_CHECKING:
    import numpy as np

    from relaydp.data import Records
    from relaydp.data.fit_of_ranges import Fit

app = typer.Typer(
    no_args_is_help=True,
    help="The data sets relaydp knows by name, and files of your own.",
    epilog=example("relaydp data list", "relaydp data info visits.csv --groups hospital", "relaydp data fetch mnist"),
)

SHOWN = 40  # columns that `check` prints
NAMED = 5  # columns that a warning names
MANY = 20  # labels are counted one by one up to here; beyond, they are numbers with a range


@app.command("list")
def list_(json_: AsJson = False) -> None:
    """List the data sets known by name, and whether they are on this machine.

    \b
    relaydp data list
    """
    from relaydp.data import catalogue_names, describe

    facts = [describe(name) for name in catalogue_names()]
    if json_:
        print_json(facts)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading, side in (("name", "left"), ("what", "left"), ("records", "right"), ("features", "right")):
        table.add_column(heading, justify=side, no_wrap=heading != "what")  # type: ignore[arg-type]
    table.add_column("classes", justify="right")
    table.add_column("where")
    for fact in facts:
        records = f"{fact['train_records']:,} + {fact['test_records']:,}"
        table.add_row(
            fact["name"], fact["title"], records, str(fact["features"]), str(len(fact["classes"])), fact["available"]
        )
    Console(highlight=False, markup=False).print(table)
    typer.echo("Records are training + test. Needs download: `relaydp data fetch NAME`, or set RELAYDP_DATA.")


@app.command()
def info(
    source: Annotated[
        str,
        typer.Argument(
            metavar="NAME|PATH", help="A catalogue name or a file.", autocompletion=among(choices.DATA_SETS)
        ),
    ],
    label: Annotated[str | None, typer.Option(help="The file's label column.")] = None,
    groups: Annotated[list[str] | None, typer.Option(help="A column that is not a feature; repeatable.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; repeatable.")] = None,
    json_: AsJson = False,
) -> None:
    """Say what a data set holds. A file is read as `relaydp run` would read it.

    \b
    relaydp data info digits
    relaydp data info visits.csv --label outcome --groups hospital
    """
    from relaydp.data import describe

    if _is_file(source) or label or groups or drop:
        facts = _file_facts(source, label, groups or [], drop or [])
    else:
        facts = describe(source)
    if json_:
        print_json(facts)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, value in facts.items():
        if value not in (None, "", [], {}):
            table.add_row(name.replace("_", " "), Text(_words(value)))
    Console(highlight=False).print(table)


@app.command()
def check(
    source: Annotated[str, typer.Argument(metavar="PATH", help="A file, or settings (.toml) that name one.")],
    ranges: Annotated[
        str | None, typer.Option(metavar="LOW,HIGH", help="The public range, as for `relaydp run`.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="The file's label column.")] = None,
    groups: Annotated[list[str] | None, typer.Option(help="A column that is not a feature; repeatable.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; repeatable.")] = None,
    json_: AsJson = False,
) -> None:
    """Say whether public ranges fit the records of a file: how many values are clipped, how much of a range is used.

    \b
    relaydp data check visits.csv --ranges 0,100 --label readmitted --groups hospital
    relaydp data check run.toml

    Not private, and for the owner of the records alone: it looks at them without noise. Use it to find a wrong unit or
    a wrong order of columns. A range that is fitted to what it prints depends on the records, and no epsilon covers
    that.

    Exit codes: 0 the ranges fit, 1 some do not.
    """
    from relaydp.data.fit_of_ranges import check_ranges
    from relaydp.problem.bounds import as_ranges

    records, asked = _records_and_ranges(source, ranges, label, groups or [], drop or [])
    fits = check_ranges(records.X, *as_ranges(asked, records.features))
    names = records.columns or [f"column {k}" for k in range(records.features)]
    if json_:
        print_json([{"name": names[fit.column], **fit._asdict(), "verdict": fit.verdict or "fits"} for fit in fits])
    else:
        _print_fits(fits, list(names))
    if any(fit.verdict for fit in fits):
        raise typer.Exit(1)


def _records_and_ranges(
    source: str, ranges: str | None, label: str | None, groups: list[str], drop: list[str]
) -> tuple[Records, Any]:
    """The records of a file, or of settings that name one, and the ranges that are asked about."""
    from relaydp.settings.config import load_records, read_config

    given = {"label": label, "groups": groups, "drop": drop, "ranges": ranges}
    flags: dict[str, Any] = {name: value for name, value in given.items() if value}
    settings = Path(source) if source.endswith(".toml") else None
    config = read_config(settings, flags if settings else {"data": source, **flags})
    asked = config.problem.ranges
    if asked is None or isinstance(asked, str):
        given = "no ranges" if asked is None else f"ranges={asked!r}"
        raise InputError(
            f"{given}: there is nothing to check. Pass --ranges LOW,HIGH, or a TOML file with ranges = "
            "[[low, ...], [high, ...]] in [problem]."
        )
    return load_records(config.data, config.problem.agents), asked


def _print_fits(fits: list[Fit], names: list[str]) -> None:
    """One row a column, those with a range that does not fit first."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("column", "range", "outside it", "of it used", ""):
        table.add_column(heading, justify="left" if heading in ("column", "") else "right")
    for fit in sorted(fits, key=lambda fit: not fit.verdict)[:SHOWN]:
        table.add_row(
            names[fit.column], f"{fit.low:g} to {fit.high:g}", f"{fit.outside:.0%}", f"{fit.used:.0%}", fit.verdict
        )
    Console(highlight=False, markup=False).print(table)
    if len(fits) > SHOWN:
        typer.echo(f"... {len(fits) - SHOWN} more columns (--json has all).")
    typer.echo("Not private: this looks at the records without noise. It stays on this machine, for their owner alone.")


def warn_of_ranges(records: Records, low: np.ndarray, high: np.ndarray) -> None:
    """On the owner's stderr: ranges that clip most values of a column, or of which hardly anything is used."""
    from relaydp.data.fit_of_ranges import check_ranges

    fits = check_ranges(records.X, low, high)
    names = records.columns or [f"column {k}" for k in range(records.features)]
    for verdict in ("mostly clipped", "hardly used"):
        bad = [names[fit.column] for fit in fits if fit.verdict == verdict]
        if bad:
            named = ", ".join(bad[:NAMED]) + (f" and {len(bad) - NAMED} more" if len(bad) > NAMED else "")
            typer.echo(
                f"warning: the ranges do not fit the records ({verdict}: {named}); little can be learnt from such "
                "columns. See `relaydp data check`. This line is not private and stays on this machine.",
                err=True,
            )


@app.command()
def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Data sets to have on disk.", autocompletion=among(choices.DATA_SETS)),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All of the catalogue.")] = False,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find data sets in $RELAYDP_DATA or the cache, else download them; say where they are.

    \b
    relaydp data fetch mnist fashion
    relaydp data fetch --all
    """
    from relaydp.data import catalogue_names, describe

    if quiet or json_ or not sys.stderr.isatty():
        _silence_downloads()
    if every == bool(names):
        raise InputError("needed either names of data sets or --all; `relaydp data list` shows the names.")
    chosen = catalogue_names() if every else [describe(name)["name"] for name in names or []]  # a misspelling first
    found: list[dict[str, Any]] = []
    failed: list[RelayError] = []
    for name in dict.fromkeys(chosen):
        try:
            found.append(_fetched(name))
        except RelayError as error:  # the others may still be found
            failed.append(error)
            continue
        if not (json_ or quiet):
            places = found[-1]["files"] or [f"comes with {found[-1]['available']}; nothing to download"]
            typer.echo("\n".join([name, *(f"  {place}" for place in places)]))
    if json_:
        print_json(found)
    if failed:
        raise InputError("\n".join(map(str, failed)))


def _silence_downloads() -> None:
    """No bar and no line for each file: pooch draws by tqdm, which reads this variable when it is first imported."""
    import logging

    os.environ["TQDM_DISABLE"] = "1"
    logging.getLogger("pooch").setLevel(logging.WARNING)


def _fetched(name: str) -> dict[str, Any]:
    from relaydp.data import CATALOGUE
    from relaydp.data.fetch import find

    entry = CATALOGUE[name]
    home = {"embedded": "relaydp"}.get(entry.home, entry.home) or "local file"
    return {"name": name, "available": home, "files": [str(file) for file in find(entry.files)]}


def _is_file(source: str) -> bool:
    from relaydp.data.formats import file_kind

    return "/" in source or os.sep in source or file_kind(Path(source)) is not None


def _file_facts(source: str, label: str | None, groups: list[str], drop: list[str]) -> dict[str, Any]:
    import numpy as np

    from relaydp.data import load_data

    data = load_data(source, label=label, groups=groups, drop=drop)
    values, counts = np.unique(data.y, return_counts=True)
    labels: dict[str, Any]
    if len(values) <= MANY:
        labels = {str(value): int(count) for value, count in zip(values, counts, strict=True)}
    elif values.dtype.kind in "buif":
        labels = {"different": len(values), "low": float(values[0]), "high": float(values[-1])}
    else:
        labels = {"different": len(values)}
    return {
        "name": data.name,
        "path": source,
        "records": len(data),
        "test_records": 0 if data.test is None else len(data.test),
        "features": data.features,
        "dtype": str(data.X.dtype),
        "columns": None if data.columns is None else list(data.columns),
        "labels": labels,
        "groups": {name: len(np.unique(column)) for name, column in data.groups.items()},
        "bytes": data.X.nbytes + data.y.nbytes,
    }


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {part}" for key, part in value.items())
    if isinstance(value, list):
        shown = [_words(part) for part in value[:30]]
        return ", ".join([*shown, f"... ({len(value)} in all)"] if len(value) > 30 else shown)
    return str(value)
