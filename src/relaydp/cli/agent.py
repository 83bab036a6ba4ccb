"""`relaydp agent`: one party's side of a consortium."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp import defaults
from relaydp.cli.options import OUTPUT, AsJson, Overwrite, example, print_json
from relaydp.errors import InputError

if TYPE_CHECKING:
    from relaydp.network.messages.journal import Journal

app = typer.Typer(
    no_args_is_help=True,
    help="Take part in a consortium: one agent per party, no server.",
    epilog=example(
        "relaydp agent keygen north --name north",
        "relaydp agent serve north-sea.toml --home north --data visits.csv --max-epsilon 1",
        "relaydp agent status --home north",
    ),
)

Home = Annotated[Path, typer.Option(help="The party's folder: key, certificate, journals.", metavar="FOLDER")]
File = Annotated[Path, typer.Argument(metavar="CONSORTIUM.toml", help="The file that all parties agreed on.")]
Data = Annotated[Path, typer.Option(help="This party's records: CSV, TSV, Parquet, LIBSVM or NPZ. They never leave.")]
MaxEpsilon = Annotated[
    float,
    typer.Option(
        help="The most this party allows for its records, over all consortia of this home.", metavar="EPSILON"
    ),
]
MaxDelta = Annotated[
    float,
    typer.Option(
        help="The delta at which --max-epsilon is meant, whatever the file's is; below 1/(its records).",
        metavar="DELTA",
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(help="Where to listen, if not at the agreed address (NAT, containers).", metavar="HOST:PORT"),
]
StatusPort = Annotated[int, typer.Option(help="Port of the local status page and metrics; 0 takes any free port.")]
Mark = Annotated[
    Path | None,
    typer.Option(
        help="A file that counts commits, best on another disk: it detects a journal restored from an older copy."
    ),
]
DevelopmentSeed = Annotated[
    int | None, typer.Option(help="Noise from a seed, for tests: the certificate then says NOT PRIVATE.")
]
Linger = Annotated[float, typer.Option(help="Seconds to keep serving neighbours after the end.")]


@app.command()
def keygen(
    home: Annotated[Path, typer.Argument(metavar="HOME", help="A new folder for this party.")],
    name: Annotated[str, typer.Option(help="The name that the other parties use, such as north-hospital.")],
    days: Annotated[int, typer.Option(help="How long the certificate is valid.")] = 825,
    json_: AsJson = False,
) -> None:
    """Make this party's key and certificate. The key never leaves the folder; the certificate goes to the others.

    \b
    relaydp agent keygen north --name north
    """
    from relaydp.network.consortium.identity import CERTIFICATE
    from relaydp.network.consortium.identity import keygen as make

    made = make(home, name, days=days).fingerprint
    if json_:
        print_json({"name": name, "certificate": str(home / CERTIFICATE), "fingerprint": made})
        return
    typer.echo(f"certificate  {home / CERTIFICATE}")
    typer.echo(f"fingerprint  {made}")
    typer.echo("Send the certificate to whoever writes the consortium file, and read the fingerprint to them by phone.")


@app.command()
def serve(
    consortium: File,
    home: Home,
    data: Data,
    max_epsilon: MaxEpsilon,
    max_delta: MaxDelta = defaults.DELTA,
    listen: Listen = None,
    status_port: StatusPort = 0,
    mark: Mark = None,
    linger: Linger = 60.0,
    development_seed: DevelopmentSeed = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Check the journal first; refuse to start if there is none or if it is corrupt."),
    ] = False,
) -> None:
    """Run this party's agent until every party has the model. Started again after a stop or a crash, it continues.

    \b
    relaydp agent serve north-sea.toml --home north --data visits.csv --max-epsilon 1
    relaydp agent serve north-sea.toml --home north --data visits.csv --max-epsilon 1 --resume

    It logs JSON lines to stderr. Ctrl-C and SIGTERM stop it without loss. Exit code 2: an operator has to look at it.
    """
    if resume:
        _check_journal(consortium, home)
    from relaydp.network.operations.serve import serve as run
    from relaydp.network.records.public_plan import Settings

    settings = Settings(
        home=home,
        consortium=consortium,
        data=data,
        max_epsilon=max_epsilon,
        max_delta=max_delta,
        listen=listen,
        status_port=status_port,
        mark=mark,
        seed=development_seed,
        linger=linger,
    )
    found = run(settings)
    if found is not None:
        typer.echo(f"model {found}")


def _check_journal(consortium: Path, home: Path) -> None:
    """Say what the journal holds; an error if there is none, or if it is corrupt."""
    from relaydp.network.consortium.file import read_consortium
    from relaydp.network.operations.paths import journal_folder
    from relaydp.network.operations.serve import inspect

    found = inspect(journal_folder(home, read_consortium(consortium).identity))
    typer.echo(f"journal whole: {found['releases']} releases, rho {found['rho']:.6g}, {found['waiting']}", err=True)


@app.command()
def status(home: Home, json_: AsJson = False) -> None:
    """Print what this party's agents are doing: budget spent, peers, where the baton was last seen here.

    \b
    relaydp agent status --home north
    """
    from relaydp.network.operations.serve import statuses

    found = statuses(home)
    if not found:
        raise InputError(
            f"{home} holds no journal: no agent has run there yet. Check --home, or run `relaydp agent serve`."
        )
    if json_:
        print_json(found)
        return
    from relaydp.network.operations.metrics import print_status

    for each in found:
        print_status(each)


@app.command()
def export(
    home: Home,
    out: Annotated[
        Path, typer.Option(help="Keep the copy in this new folder.", metavar="FOLDER", rich_help_panel=OUTPUT)
    ],
    json_: AsJson = False,
) -> None:
    """Copy the results of finished runs: model, ledger, certificate, transcript. No key, no private state.

    \b
    relaydp agent export --home north --out handover
    relaydp ledger verify handover/0123456789abcdef
    """
    import shutil

    from relaydp.network.operations.paths import RESULT

    done = sorted(home.glob(f"*/{RESULT}"))
    if not done:
        raise InputError(f"{home} holds no finished run. See `relaydp agent status --home {home}`.")
    if out.exists():
        raise InputError(f"--out {out} exists already; choose another folder.")
    out.mkdir(parents=True)
    copies = [str(shutil.copytree(folder, out / folder.parent.name)) for folder in done]
    if json_:
        print_json({"results": copies})
        return
    typer.echo("\n".join(copies))


reroute = typer.Typer(
    no_args_is_help=True,
    help="Give up a party that never comes back: an order that all the others sign.",
    epilog=example(
        "relaydp agent reroute order north-sea.toml --home north --out lost-south.json",
        "relaydp agent reroute sign north-sea.toml lost-south.json --home east",
        "relaydp agent reroute apply north-sea.toml lost-south.json --home east",
    ),
)
app.add_typer(reroute, name="reroute")
OrderFile = Annotated[Path, typer.Argument(metavar="ORDER.json", help="The rerouting order.")]


def _journal(consortium: Any, home: Path) -> tuple[Any, Journal]:
    """This party's identity and journal; the lock makes sure that its agent is stopped."""
    from relaydp.network.consortium.identity import read_identity
    from relaydp.network.consortium.limits import promised
    from relaydp.network.messages.journal import Journal
    from relaydp.network.operations.paths import journal_folder

    identity = read_identity(home)
    folder = journal_folder(home, consortium.identity)
    if not (folder / "journal.db").exists():
        raise InputError(f"{home} has no journal of this consortium; nothing to reroute.")
    return identity, Journal(folder, consortium.identity, identity.name, promised(home)[folder.name])


@reroute.command("order")
def reroute_order(
    consortium: File,
    home: Home,
    out: Annotated[
        Path,
        typer.Option(help="Write the order to this new file.", metavar="ORDER.json", rich_help_panel=OUTPUT),
    ],
    overwrite: Overwrite = False,
    json_: AsJson = False,
) -> None:
    """Write the order and sign it, at the party whose baton is stuck. Stop its agent first.

    \b
    relaydp agent reroute order north-sea.toml --home north --out lost-south.json
    """
    from relaydp.network.consortium.file import read_consortium
    from relaydp.network.messages.reroute import new_order, sign_order, write_order

    if out.exists() and not overwrite:
        raise InputError(f"--out {out} exists already; choose another file, or pass --overwrite to replace it.")
    agreed = read_consortium(consortium)
    identity, journal = _journal(agreed, home)
    try:
        order = sign_order(new_order(agreed, journal), identity, agreed, journal)
    finally:
        journal.close()
    write_order(out, order)
    if json_:
        print_json({"order": str(out), "lost": order.lost, "epoch": order.epoch, "signed": sorted(order.signatures)})
        return
    typer.echo(f"{order.lost} is given up from epoch {order.epoch} on, once all others have signed {out}.")


@reroute.command("sign")
def reroute_sign(consortium: File, order: OrderFile, home: Home, json_: AsJson = False) -> None:
    """Sign the order, if this party's journal agrees that the baton is lost.

    \b
    relaydp agent reroute sign north-sea.toml lost-south.json --home east
    """
    from relaydp.network.consortium.file import read_consortium
    from relaydp.network.messages.reroute import read_order, sign_order, write_order

    agreed = read_consortium(consortium)
    identity, journal = _journal(agreed, home)
    try:
        signed = sign_order(read_order(order), identity, agreed, journal)
    finally:
        journal.close()
    write_order(order, signed)
    missing = [party.name for party in agreed.parties if party.name not in (*signed.signatures, signed.lost)]
    if json_:
        print_json({"order": str(order), "signed": sorted(signed.signatures), "missing": missing})
        return
    typer.echo(f"signed; still missing: {', '.join(missing) or 'nobody'}.")


@reroute.command("apply")
def reroute_apply(consortium: File, order: OrderFile, home: Home, json_: AsJson = False) -> None:
    """Begin the new epoch here, once all have signed; then start the agent again.

    \b
    relaydp agent reroute apply north-sea.toml lost-south.json --home east
    """
    from relaydp.network.consortium.file import read_consortium
    from relaydp.network.messages.reroute import apply_order, read_order

    agreed = read_consortium(consortium)
    _, journal = _journal(agreed, home)
    try:
        receiver = apply_order(read_order(order), agreed, journal)
    finally:
        journal.close()
    if json_:
        print_json({"order": str(order), "receiver": receiver})
        return
    typer.echo("applied." + (f" The baton will go to {receiver}." if receiver else "") + " Start the agent again.")
