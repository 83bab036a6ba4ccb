"""`relaydp account`: one budget for many private runs on the same records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp import defaults
from relaydp.cli.options import DELTA_TEXT, PRIVACY, AsJson, example, flag, print_json

if TYPE_CHECKING:
    from relaydp.privacy import PrivacyAccount

app = typer.Typer(
    no_args_is_help=True,
    help="Hold many runs on the same records to one budget. Each run costs its own epsilon, and they add up: an "
    "account adds them up and refuses the run that would overspend, before it uses a record.",
    epilog=example(
        "relaydp account new visits.account --epsilon 2",
        "relaydp run visits.toml --account visits.account",
        "relaydp show visits.account",
    ),
)


@app.callback()
def group() -> None:
    pass  # a group of one command stays a group


@app.command()
def new(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The file to make. It holds no record.")],
    epsilon: Annotated[float, flag(PRIVACY, "How much all runs together may leak about any record.")],
    delta: Annotated[float, flag(PRIVACY, DELTA_TEXT)] = defaults.DELTA,
    json_: AsJson = False,
) -> None:
    """Make an account for one set of records. Its budget cannot be changed afterwards.

    \b
    relaydp account new visits.account --epsilon 2
    """
    from relaydp.errors import InputError
    from relaydp.privacy import PrivacyAccount

    if out.exists():
        raise InputError(f"{out} exists already; choose another file. An account is never started again.")
    _print(PrivacyAccount(epsilon, delta, out), json_)


def show_account(file: Path, json_: bool) -> None:
    """Say what was charged to an account, what is spent, and what is left."""
    from relaydp.privacy import PrivacyAccount

    _print(PrivacyAccount.open(file), json_)


def _print(account: PrivacyAccount, json_: bool) -> None:
    if json_:
        print_json(facts_of(account))
        return
    for number, run in enumerate(account.fits, 1):
        typer.echo(f"{number:4}  {run.charged}  epsilon {run.epsilon:.4g}  {run.what}")
    typer.echo(sentence_of(account))


def facts_of(account: PrivacyAccount) -> dict[str, Any]:
    """The account in one JSON object."""
    return {
        "file": None if account.path is None else str(account.path),
        "epsilon": account.budget.epsilon,
        "delta": account.budget.delta,
        "spent": account.spent,
        "left": account.left,
        "runs": [run._asdict() for run in account.fits],
    }


def sentence_of(account: PrivacyAccount) -> str:
    """What is spent and left, in one line."""
    from relaydp.privacy.account import rounded_down

    runs, budget = len(account.fits), account.budget
    return (
        f"{runs} run{'' if runs == 1 else 's'} charged: epsilon {account.spent:.4g} of {budget.epsilon:g} spent at "
        f"delta {budget.delta:g}, and one more run may cost {rounded_down(account.left):.4g}."
    )
