"""`relaydp show`: print again what relaydp wrote: a result, a ledger, an account, a consortium file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relaydp._atomic import find_saved
from relaydp.cli.account import show_account
from relaydp.cli.consortium import show_consortium
from relaydp.cli.ledger import show_ledger
from relaydp.cli.options import PRIVACY, AsJson, flag
from relaydp.cli.run import show_result
from relaydp.errors import InputError

WRITTEN = "a result folder, a ledger.json, an account or a consortium file"


def show(
    path: Annotated[Path, typer.Argument(help="A result folder, its ledger.json, an account or a consortium file.")],
    delta: Annotated[
        float | None, flag(PRIVACY, "Of a ledger: the delta of every epsilon; default: that of the run's budget.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Print what relaydp wrote: a result, a ledger, an account or a consortium file.

    \b
    relaydp show first                        a result, as `run` printed it
    relaydp show first/publish/ledger.json    what every agent released, and what is left
    relaydp show visits.account               what was charged, and what is left
    relaydp show north-sea.toml               who takes part, what was agreed, what it costs

    A folder that holds a ledger and no model, such as the publish/ of a simulation, shows its ledger.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist; needed {WRITTEN}. Check the path.")
    alone = path.is_dir() and find_saved(path, "model.npz") is None and find_saved(path, "ledger.json") is not None
    if path.suffix == ".json" or alone:
        show_ledger(path, delta, json_)
        return
    if delta is not None:
        raise InputError(f"--delta {delta:g} is for a ledger, and {path} is not one; pass its ledger.json.")
    if path.is_dir():
        show_result(path, json_)
    elif path.suffix == ".toml":
        show_consortium(path, json_)
    else:
        show_account(path, json_)
