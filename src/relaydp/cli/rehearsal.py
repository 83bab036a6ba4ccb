"""`relaydp consortium demo`: eight parties as eight processes on one machine, each with its own key and noise."""

from __future__ import annotations

import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp.cli import choices
from relaydp.cli.choices import among
from relaydp.cli.options import OUTPUT, AsJson, Quiet, flag, print_json
from relaydp.cli.progress import step_bar
from relaydp.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from relaydp.network.operations.rehearsal import Stage

PLENTY = 300.0  # seconds; it takes a tenth of that on two idle cores


def demo(
    algorithm: Annotated[
        str,
        typer.Option(
            help="recal (a relay), or nids, pg-extra, dgd, ... (rounds).",
            autocompletion=among(choices.NETWORK_ALGORITHMS),
        ),
    ] = "recal",
    epsilon: Annotated[float, typer.Option(help="How much may leak about any record.")] = 1.0,
    activations: Annotated[int, typer.Option(help="How often each party acts.", min=1)] = 20,
    development_seed: Annotated[
        int | None,
        typer.Option(help="Seeded noise, NOT private: the model is then compared with the simulator's, bit for bit."),
    ] = None,
    out: Annotated[
        Path | None,
        flag(OUTPUT, "Keep everything in this new folder: keys, journals, logs.", "FOLDER", "--out", "--keep"),
    ] = None,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train over 8 parties: 8 processes with keys of their own, mutual TLS, a journal each, and no server.

    \b
    relaydp consortium demo
    relaydp consortium demo --development-seed 0     the same bits as the simulator
    relaydp consortium demo --out rehearsal          look at the journals, ledgers and certificates afterwards
    """
    if out is not None and out.exists():
        raise InputError(f"--out {out} exists already; choose another folder.")
    began = time.perf_counter()
    silent = json_ or quiet
    holder = tempfile.TemporaryDirectory(prefix="relaydp-") if out is None else nullcontext(str(out))
    with holder as name:
        folder = Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        with step_bar(silent, "making keys and a plan for 8 parties"):
            from relaydp.network.operations.rehearsal import set_stage

            stage = set_stage(folder, algorithm, epsilon, activations)
        _run(stage, development_seed, silent)
        with step_bar(silent, "reading what the parties ended with"):
            found = {**_outcome(stage, development_seed), "seconds": round(time.perf_counter() - began, 1)}
    if json_:
        print_json(found)
    elif not quiet:
        _print(found, out)
    if found["equals_simulator"] is False or not found["same_model"] or not found["ledgers_hold"]:
        raise typer.Exit(1)


def _run(stage: Stage, seed: int | None, silent: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from relaydp.network.operations.rehearsal import rehearse

    console = Console(stderr=True)
    if silent or not console.is_terminal:
        rehearse(stage, seed, lambda statuses: None, PLENTY)
        return
    with Live(console=console, auto_refresh=False) as live:
        rehearse(stage, seed, lambda statuses: live.update(_table(stage, statuses), refresh=True), PLENTY)


def _table(stage: Stage, statuses: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table(title="eight parties, one baton", title_justify="left", box=None, header_style="bold")
    for name in ("party", "state", "activations", "epsilon", "last seq", "peers up", "unacknowledged"):
        table.add_column(name, justify="left" if name in ("party", "state") else "right", no_wrap=True)
    for home, status in zip(stage.homes, statuses, strict=True):
        if "activations" not in status:
            table.add_row(home.name, status.get("state", "starting"))
            continue
        made, planned = status["activations"]
        last, up = status["last_baton"], sum(peer["up"] for peer in status["peers"])
        held = status["state"] == "holding the baton"
        table.add_row(
            home.name,
            f"[bold]{status['state']}[/bold]" if held else status["state"],
            f"{made} of {planned}",
            f"{status['epsilon'][0]:.3f}",
            "-" if last is None else str(last["seq"]),
            f"{up} of {len(status['peers'])}",
            str(status["unacknowledged"]),
        )
    return table


def _outcome(stage: Stage, seed: int | None) -> dict[str, Any]:
    """What the parties ended with, read from their own disks."""
    import json

    from relaydp.data import load_data
    from relaydp.network.consortium.file import read_consortium, read_own_records, whole_problem
    from relaydp.network.operations.rehearsal import compare, models, results
    from relaydp.privacy import verify

    consortium = read_consortium(stage.file)
    folders = results(stage)
    certificates = [json.loads((folder / "certificate.json").read_text()) for folder in folders]
    ledgers = [json.loads((folder / "ledger.json").read_text()) for folder in folders]
    problem = whole_problem(consortium, [read_own_records(consortium, table) for table in stage.tables])
    test = load_data("fashion-small").test
    assert test is not None
    right = problem.predict(models(stage)[0], test.X) == test.y
    return {
        "algorithm": consortium.algorithm,
        "parties": len(folders),
        "activations": [each["activations"] for each in certificates],
        "private": all(each["private"] for each in certificates),
        "epsilon": [each["epsilon"] for each in certificates],
        "delta": consortium.delta,
        "accuracy": float(right.mean()),
        "model_sha256": certificates[0]["model_sha256"],
        "same_model": len({each["model_sha256"] for each in certificates}) == 1,
        "ledgers_hold": all(verify(ledger, consortium.delta).holds for ledger in ledgers),
        "equals_simulator": None if seed is None else compare(stage, seed),
    }


def _print(found: dict[str, Any], keep: Path | None) -> None:
    promise = f"epsilon {max(found['epsilon']):.6g} at delta {found['delta']:g}" if found["private"] else "NOT PRIVATE"
    rows = {
        "ran": f"{found['algorithm']} over {found['parties']} processes, mutual TLS on loopback, no server",
        "activations": f"{found['activations'][0]} a party, each charged once",
        "privacy": f"{promise}; every ledger {'holds' if found['ledgers_hold'] else 'DOES NOT HOLD'}",
        "accuracy": f"{found['accuracy']:.4f} on held-out records",
        "model": f"{found['model_sha256'][:16]}..., {'the same' if found['same_model'] else 'NOT the same'} everywhere",
        "seconds": f"{found['seconds']:g}",
    }
    if found["equals_simulator"] is not None:
        rows["simulator"] = "the same, bit for bit" if found["equals_simulator"] else "DIFFERENT"
    if keep is not None:
        rows["kept in"] = str(keep)
    for name, text in rows.items():
        typer.echo(f"{name:<12} {text}")
