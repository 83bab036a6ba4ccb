"""`relaydp audit`: test a privacy claim by attacks, and say what that proves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from relaydp import defaults
from relaydp.cli import choices
from relaydp.cli.choices import among
from relaydp.cli.options import GRAPH, PRIVACY, RUN, AsJson, Collusion, Quiet, flag, print_json
from relaydp.cli.progress import step_bar

if TYPE_CHECKING:
    from relaydp.auditing import AuditReport

REFUTED = 1  # exit code


def audit(
    algorithm: Annotated[
        str,
        flag(
            RUN, "The algorithm whose claim is tested; default recal.", "NAME", complete=among(choices.NAMED_ALGORITHMS)
        ),
    ] = "recal",
    mechanism: Annotated[
        str,
        flag(
            PRIVACY,
            "gradient (sound), objective (a simulation's), or published (the paper's); default gradient.",
            "NAME",
            complete=among(choices.MECHANISMS[:3]),
        ),
    ] = "gradient",
    epsilon: Annotated[float, typer.Option(help="The epsilon to test.", rich_help_panel=PRIVACY)] = 1.0,
    delta: Annotated[float, typer.Option(help="The delta of that epsilon.", rich_help_panel=PRIVACY)] = defaults.DELTA,
    collusion: Collusion = None,
    variant: Annotated[
        str | None,
        flag(
            PRIVACY,
            "Of --mechanism published: for recal memoryless, carried or replace; default: the first.",
            "NAME",
            complete=among(choices.VARIANTS),
        ),
    ] = None,
    canary: Annotated[
        str,
        flag(
            RUN,
            "What differs: worst (all that one record can do; the default), mislabelled, stranger, turned or long.",
            "NAME",
            complete=among(choices.CANARIES),
        ),
    ] = "worst",
    runs: Annotated[
        int | None, flag(RUN, "How many runs, half with each of two records; default 100000, for objective 10000.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence that the bound holds.", rich_help_panel=RUN)] = 0.999,
    agents: Annotated[int, typer.Option(help="How many agents.", rich_help_panel=GRAPH)] = 3,
    activations: Annotated[int | None, flag(RUN, "Releases of each agent; default: enough for 60 in all.")] = None,
    seed: Annotated[
        int | None,
        flag(
            RUN,
            "Of a simulation whose noise is audited. Default: none, and the secret noise of private runs; for "
            "objective and published 0.",
        ),
    ] = None,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Look at the noise of every release, attack transcripts of neighbouring data sets, and bound epsilon from below.

    \b
    relaydp audit --epsilon 0.5
    relaydp audit --mechanism published --runs 30000
    relaydp audit --algorithm pg-extra --canary mislabelled --json
    relaydp audit --algorithm relay-gradient --agents 4 --collusion 1

    \b
    Exit codes:
      0    consistent: nothing contradicts the claim
      1    refuted: the noise is not as claimed, or the bound is above the claim, at the stated confidence
      2    an error to correct: nothing ran
    """
    with step_bar(quiet or json_, "getting ready") as tell:
        from relaydp.auditing import audit as attack
        from relaydp.privacy import Budget

        report = attack(
            algorithm,
            mechanism,
            Budget(epsilon, delta),
            agents=agents,
            runs=runs,
            activations=activations,
            canary=canary,
            confidence=confidence,
            seed=seed,
            variant=variant,
            collusion=collusion,
            progress=tell.hops(f"runs of {algorithm}"),
        )
    if json_:
        print_json(report.summary())
    elif not quiet:
        print_report(report)
    if report.refuted:
        raise typer.Exit(REFUTED)


def print_report(report: AuditReport) -> None:
    """The sentence, then every bound behind it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(report.sentence))
    if report.reach is not None:
        console.print(f"This canary could show about {report.reach:.4g} at most.")
    if report.checks:
        looked = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("check", "verdict", "the worst that was seen"):
            looked.add_column(name, overflow="fold")
        for check in report.checks:
            looked.add_row(check.name, "passed" if check.passed else "FAILED", check.finding)
        console.print(looked)
    if not report.bounds:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("score", "holds for", "epsilon >=", "false alarms", "misses", "of each"):
        table.add_column(name, justify="left" if name in ("score", "holds for") else "right", no_wrap=True)
    for bound in report.bounds:
        kind = "any mechanism" if bound.kind == "any" else "claims of mu-GDP"
        counts = (str(bound.false_alarms), str(bound.misses), str(bound.runs))
        table.add_row(bound.score, kind, f"{bound.epsilon:.4f}", *counts)
    console.print(table)
