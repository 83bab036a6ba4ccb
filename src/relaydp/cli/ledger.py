"""`relaydp ledger`: whether a saved ledger holds. `relaydp show` prints one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp._atomic import find_saved
from relaydp.cli.options import AsJson, Quiet, example, print_json
from relaydp.cli.progress import step_bar
from relaydp.errors import InputError, short

if TYPE_CHECKING:
    from relaydp.privacy import Verification

app = typer.Typer(
    no_args_is_help=True,
    help="Check what was released, by whom, and what it cost. `relaydp show` prints a ledger.",
    epilog=example("relaydp ledger verify first", "relaydp show first/publish/ledger.json"),
)

BROKEN = 1  # exit code
CAVEATS = {
    "private": "",
    "published": " No guarantee: the charges are what the paper claims, without a proof (docs/privacy.md).",
    "simulation": " Simulation: no promise. This is what a private run of the same plan costs.",
    "objective": " Simulation: no promise. This is what noise in the objective costs in real numbers alone.",
    None: " Nothing here says where the noise came from: the sum holds, and a promise is the certificate's to make.",
}

File = Annotated[
    Path, typer.Argument(help="A ledger.json, a folder written by `relaydp run --out`, or its publish/ alone.")
]
Delta = Annotated[
    float | None, typer.Option(help="The chance that the promise fails; default: that of the run's budget.")
]


@app.callback()
def group() -> None:
    pass  # a group of one command stays a group


@app.command()
def verify(file: File, delta: Delta = None, json_: AsJson = False, quiet: Quiet = False) -> None:
    """Recompute every agent's epsilon from the raw releases with dp-accounting, and check that nothing is missing.

    \b
    relaydp ledger verify results/seven
    relaydp ledger verify ledger.json --delta 1e-5

    Exit codes: 0 the ledger holds, 1 it does not (the reasons are printed), 2 it cannot be read.
    """
    path, folder, saved = _open(file)
    run, chance = _run_kind(folder, saved), _delta(delta, folder, path)
    if run == "private":
        _check_delta(chance, folder)
    with step_bar(quiet or json_, "recomputing every agent's epsilon"):
        from relaydp.privacy import verify as check
        from relaydp.privacy.trust import trust_from

        found = check(saved, chance)
    reasons = [*found.reasons, *_broken_claims(folder, found), *_broken_certificate(folder, saved, run, found)]
    if json_:
        print_json({"file": str(path), "run": run, **found.to_json(), "holds": not reasons, "reasons": reasons})
    elif not quiet:
        names = ["agent", "releases", "rho", "limit", "epsilon", "found by", "PLD", "RDP"]
        keys = ["agent", "releases", "rho", "limit_rho", "epsilon", "account", "epsilon_pld", "epsilon_rdp"]
        _print_table(names, [[row[key] for key in keys] for row in found.to_json()["agents"]])
        if not reasons:
            whom = f", against {trust_from(saved['trust']).against}" if "trust" in saved else ""
            cost = f"epsilon {found.epsilon:.6g} at delta {found.delta:g}{whom}"
            typer.echo(f"holds: as charged, {cost}.{_caveat(run, saved)}")
    if reasons:
        typer.echo("\n".join(["does not hold:", *(f"  {text}" for text in reasons)]), err=True)
        raise typer.Exit(BROKEN)


def show_ledger(file: Path, delta: float | None, json_: bool) -> None:
    """Print what every agent has released, what that cost, and what is left of its limit."""
    from relaydp.privacy import Ledger

    path, folder, saved = _open(file)
    ledger, run = Ledger.from_json(saved), _run_kind(folder, saved)
    chance = _delta(delta, folder, path, needed=False)
    if run == "private" and chance is not None:
        _check_delta(chance, folder)
    worth = [(None, None)] * ledger.agents if chance is None else ledger.by_agent(chance)
    columns = (ledger.counts.tolist(), ledger.spent().tolist(), ledger.limit.tolist(), worth)
    rows = [
        {
            "agent": agent,
            "releases": count,
            "rho": spent,
            "epsilon": epsilon,
            "account": account,
            "limit_rho": _finite(limit),
            "left_rho": _finite(max(0.0, limit - spent)),
        }
        for agent, (count, spent, limit, (epsilon, account)) in enumerate(zip(*columns, strict=True))
    ]
    if json_:
        facts = {"file": str(path), "run": run, "delta": chance, "releases": len(ledger), "plf": ledger.plf}
        print_json({**facts, "agents": rows})
        return
    names = ["agent", "releases", "rho", "epsilon", "found by", "limit", "left"]
    _print_table(names, [list(row.values()) for row in rows])
    at = "pass --delta for epsilon" if chance is None else f"epsilon {ledger.epsilon(chance):.6g} at delta {chance:g}"
    typer.echo(f"{len(ledger)} releases, PLF {ledger.plf}, rho {ledger.rho:.6g}; {at}.{_caveat(run, saved)}")


def _open(file: Path) -> tuple[Path, Path, dict[str, Any]]:
    """(the ledger's file, the folder it lies in, what it holds)."""
    if not file.exists():
        raise InputError(
            f"{file} does not exist; needed a ledger.json, or a folder written by `relaydp run --out`. Check the path."
        )
    path = find_saved(file, "ledger.json") if file.is_dir() else file
    if path is None:
        raise InputError(f"{file} holds no ledger.json: nothing was released with noise there. Name another folder.")
    saved = _load(path)
    if not isinstance(saved, dict):
        raise InputError(f"{path} holds no JSON object; needed a ledger.json as `relaydp run --out` writes it.")
    return path, path.parent, saved


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); needed a JSON file written by relaydp.") from error


def _beside(folder: Path, name: str) -> dict[str, Any]:
    """Another file of the result folder; empty where there is none."""
    found = _load(folder / name) if (folder / name).is_file() else {}
    return found if isinstance(found, dict) else {}


def _asked(folder: Path) -> dict[str, Any]:
    """What the run was asked for, by its config.json."""
    found = _beside(folder, "config.json").get("solve")
    return found if isinstance(found, dict) else {}


def _delta(given: float | None, folder: Path, path: Path, needed: bool = True) -> Any:
    """--delta, else the one of the budget in config.json."""
    if given is not None:
        return given
    budget = _asked(folder).get("budget") or {}
    if needed and "delta" not in budget:
        raise InputError(
            f"no delta known for {path}: no budget in a config.json beside it. Pass --delta, such as 1e-5."
        )
    return budget.get("delta")


def _check_delta(delta: Any, folder: Path) -> None:
    """Refuse an epsilon of a private run at a delta that its noise cannot keep, or that says nothing (1/m or more)."""
    from relaydp.privacy import Budget
    from relaydp.privacy.budget import check_floor

    config, certificate = _beside(folder, "config.json"), _beside(folder, "certificate.json")
    check_floor(Budget(1.0, delta).delta)
    sizes = (config.get("facts") or certificate.get("public_constants") or {}).get("sizes")
    own = (_asked(folder).get("budget") or {}).get("delta")  # was asked for by name, if it is large
    if sizes and delta != own:
        most = int(max(sizes))
        if delta * most >= 1.0:
            raise InputError(
                f"delta={delta!r} for a private run whose largest agent has {most} records; needed less than "
                f"1/{most} = {1 / most:.3g}: an agent that hands out one of its records whole, picked at random, "
                "promises as much. Pass a smaller one, or leave it out for the run's own."
            )


def _broken_claims(folder: Path, found: Verification) -> list[str]:
    """Where summary.json promises something other than the ledger shows, for the same delta."""
    claim = _beside(folder, "summary.json")
    promised = claim.get("epsilon")
    if not isinstance(promised, float | int | None):
        return [f"summary.json says epsilon {short(promised)}, which is no number."]
    if promised is None or claim.get("delta") != found.delta or found.epsilon is None:
        return []
    # A run that stopped early claims its whole plan, hence more than its ledger shows.
    close = abs(promised - found.epsilon) <= 1e-6 * promised
    if found.epsilon <= promised * (1 + 1e-6) and (close or claim.get("status") != "finished"):
        return []
    return [f"summary.json says epsilon {promised:.6g} of a run that {claim.get('status')}; here {found.epsilon:.6g}."]


def _broken_certificate(folder: Path, saved: dict[str, Any], kind: str | None, found: Verification) -> list[str]:
    """Where certificate.json, which is what people pass on, is not of this ledger. No other kind of run promises."""
    claim, run = _beside(folder, "certificate.json"), _beside(folder, "summary.json")
    named = claim.get("ledger_sha256")
    reasons = []
    if named is not None and "digest" in saved and named != saved["digest"]:
        reasons.append(f"certificate.json names the ledger {short(named)}; here is {short(saved['digest'])}.")
    if kind != "private" or not claim.get("private"):
        return reasons
    promised = claim.get("epsilon")
    if promised is not None and not isinstance(promised, float | int):
        return [*reasons, f"certificate.json says epsilon {short(promised)}, which is no number."]
    # Of its own delta, whatever delta was asked for here; a run that stopped early claims its whole plan.
    if promised is not None and claim.get("delta") == found.delta and found.epsilon is not None:
        if found.epsilon > promised * (1 + 1e-6):
            reasons.append(f"certificate.json says epsilon {promised:.6g}; here {found.epsilon:.6g}.")
    reasons += [
        f"certificate.json says {name} {short(claim.get(name))}, and summary.json {short(run[here])}."
        for name, here in (("epsilon", "epsilon"), ("delta", "delta"), ("promise", "guarantee"))
        if here in run and run[here] != claim.get(name)
    ]
    return reasons


def _run_kind(folder: Path, saved: dict[str, Any]) -> str | None:
    """What the ledger is of, by its own statement or by the files beside it; None where nothing says so.

    The weakest statement counts: one file that says "simulation" is enough.
    """
    run, asked = _beside(folder, "summary.json"), _asked(folder)
    said = {str(saved.get("run"))}
    if run.get("mechanism") == "published":
        said.add("published")
    # Earlier versions called noise from a seed private; a party of a rehearsed consortium says it in its certificate.
    seeded = asked.get("seed") is not None or _beside(folder, "certificate.json").get("private") is False
    if run.get("simulation") or seeded:
        said.add("simulation")
    if "epsilon" in run and run["epsilon"] is not None:
        said.add("private")
    kind = next((kind for kind in ("published", "simulation", "private") if kind in said), None)
    # Earlier versions called noise in the objective private: all of it is a simulation's.
    return "simulation" if kind == "private" and _is_pure(saved) else kind


def _is_pure(saved: dict[str, Any]) -> bool:
    """Whether there is a release of noise in the objective, where relaydp made the ledger."""
    return "pure" in ((saved.get("releases") or {}).get("kind") or ())


def _caveat(run: str | None, saved: dict[str, Any]) -> str:
    return CAVEATS["objective" if run == "simulation" and _is_pure(saved) else run]


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def _print_table(names: list[str], rows: list[list[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=110)  # a file or a pipe has room for every column
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name == "found by" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*("-" if x is None else f"{x:.6g}" if isinstance(x, float) else str(x) for x in row))
    console.print(table)
