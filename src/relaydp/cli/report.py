"""`relaydp report`: one HTML page about saved runs, comparisons and attacks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relaydp.cli.options import OUTPUT, AsJson, Overwrite, Quiet, flag, print_json
from relaydp.cli.progress import step_bar


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULT...", help="Folders written by `relaydp run --out`, `compare --out` or `attack --out`."
        ),
    ],
    out: Annotated[Path, flag(OUTPUT, "The page; default report.html.", "FILE")] = Path("report.html"),
    files: Annotated[
        Path | None, flag(OUTPUT, "Also write every plot (PNG, SVG) and table (CSV) into this new folder.", "FOLDER")
    ] = None,
    title: Annotated[str | None, flag(OUTPUT, "The page's title; default: the data's name.", "TEXT")] = None,
    public: Annotated[
        bool, flag(OUTPUT, "Leave out what was measured without noise: private runs only.", None, "--public")
    ] = False,
    overwrite: Overwrite = False,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make one HTML page of results: what was run, what it cost, how it went, and the certificate.

    \b
    relaydp report first
    relaydp report first second --out both.html --title "Two budgets"
    relaydp report first compared attacked --files plots
    relaydp report first --public --out shared.html

    The page is one file and loads nothing from the network. It shows accuracy and more that is measured without noise,
    so keep it where the records are; with --public it holds what a private run may publish. A page with an attack shows
    training records, and says so.
    """
    with step_bar(quiet or json_, "reading") as tell:
        from relaydp.report.files import check_files, write_files
        from relaydp.report.page import check_page, make_page, write_page
        from relaydp.report.sources import read_sources

        check_page(out, overwrite)
        if files is not None:
            check_files(files, overwrite)
        sources = read_sources(folders, public)
        tell("making the page")
        page = make_page(sources, title)
        written = [] if files is None else write_files(files, sources, overwrite, tell)
        size = write_page(out, page)
    if json_:
        counts = {name: len(getattr(sources, name)) for name in ("runs", "comparisons", "attacks")}
        records = sources.shows_records
        listed = [] if files is None else [str(files / name) for name in written]
        held = {"measured": sources.measured, "shows_records": records}
        print_json({"out": str(out), "bytes": size, **counts, **held, "files": listed})
    elif not quiet:
        typer.echo(f"Page: {out} ({size / 2**20:.2f} MiB)")
        if files is not None:
            typer.echo(f"Files: {len(written)} in {files}")
        if sources.shows_records:
            typer.echo("The page contains training records: keep it as you keep them.")
