"""`relaydp consortium`: write the file that all parties agree on, plan its run, check it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaydp import defaults
from relaydp.cli import choices
from relaydp.cli.choices import among
from relaydp.cli.ledger import _print_table
from relaydp.cli.options import (
    DATA,
    DELTA_TEXT,
    GRAPH,
    OUTPUT,
    PRIVACY,
    PROBLEM,
    RUN,
    AsJson,
    Overwrite,
    Quiet,
    example,
    flag,
    print_json,
)
from relaydp.cli.progress import step_bar
from relaydp.errors import InputError, choose

if TYPE_CHECKING:
    from relaydp.network.consortium.file import Consortium
    from relaydp.planning.run_plan import Plan

app = typer.Typer(
    no_args_is_help=True,
    help="The file that all parties of a network run agree on.",
    epilog=example(
        "relaydp consortium demo",
        "relaydp consortium plan north-sea.toml",
        "relaydp consortium check north-sea.toml",
        "relaydp show north-sea.toml",
    ),
)

# A random walk crosses most networks of n parties within n^2 hops; ten times that is not chance.
PATIENCE = 10
PARTIES = "Parties"

File = Annotated[Path, typer.Argument(metavar="CONSORTIUM.toml", help="The consortium file.")]


@app.command()
def new(
    out: Annotated[Path, typer.Argument(metavar="OUT.toml", help="The file to write.")],
    party: Annotated[
        list[str], flag(PARTIES, "A party; repeat for each, in order.", "NAME=HOST:PORT,RECORDS,CERTIFICATE.pem")
    ],
    epsilon: Annotated[float, flag(PRIVACY, "How much may leak about any record, over the whole run.")],
    delta: Annotated[float, flag(PRIVACY, DELTA_TEXT)] = defaults.DELTA,
    name: Annotated[str | None, flag(PARTIES, "The consortium's name; default: the file's.", "NAME")] = None,
    graph: Annotated[
        str | None,
        flag(
            GRAPH,
            f"ring, complete, path or star (with the first party in the middle); default {defaults.GRAPH}.",
            "NAME",
            complete=among(choices.PLAIN_GRAPHS),
        ),
    ] = None,
    columns: Annotated[
        str | None,
        flag(
            DATA,
            "Names of the features, in order; or a table, all of whose columns but the label are taken; or their "
            "number, for files without names.",
            "A,B,C|FILE|N",
        ),
    ] = None,
    label: Annotated[str | None, flag(DATA, "The label's column.", "COLUMN")] = None,
    loss: Annotated[
        str,
        flag(
            PROBLEM,
            "logistic, softmax, least-squares or huber; default logistic.",
            "NAME",
            complete=among(choices.LOSSES),
        ),
    ] = "logistic",
    classes: Annotated[str | None, flag(PROBLEM, "Every label there may be, such as 0,1 or no,yes.", "A,B")] = None,
    intercept: Annotated[bool, flag(PROBLEM, "Add an unpenalised constant.", None, "--intercept")] = defaults.INTERCEPT,
    record_norm: Annotated[float | None, flag(PROBLEM, "Public bound on a record's norm.")] = None,
    ranges: Annotated[
        list[str] | None,
        flag(PROBLEM, "Public range of the features; once for all features, or once per column.", "LOW,HIGH"),
    ] = None,
    label_bound: Annotated[float | None, flag(PROBLEM, "Public bound on labels; least-squares needs it.")] = None,
    algorithm: Annotated[
        str, flag(RUN, "recal, nids, ...; default recal.", "NAME", complete=among(choices.NETWORK_ALGORITHMS))
    ] = "recal",
    overwrite: Overwrite = False,
    json_: AsJson = False,
) -> None:
    """Write a consortium file from what the parties have told each other. It has no plan yet.

    \b
    relaydp consortium new north-sea.toml --epsilon 1 --classes 0,1 --label outcome \\
        --columns age,dose,weight --ranges 0,120 --ranges 0,500 --ranges 0,250 \\
        --party north=relay.north.example:7443,1500,north.pem \\
        --party south=relay.south.example:7443,900,south.pem \\
        --party east=relay.east.example:7443,1200,east.pem
    relaydp consortium plan north-sea.toml
    relaydp consortium check north-sea.toml

    The walk, the party that starts, the weights of the regulariser and the links are in the file with their usual
    values. Edit it before it is planned.
    """
    from relaydp.network.consortium.agreed_plan import network_algorithms
    from relaydp.network.consortium.file import make_consortium, write_consortium
    from relaydp.settings.values import as_labels

    _refuse_existing(out, overwrite)
    parties = [_party(text) for text in party]
    names = [each["name"] for each in parties]
    method = network_algorithms().get(algorithm)
    problem = {
        "loss": loss,
        "classes": None if classes is None else as_labels(classes),
        **_columns(columns, label),
        "label": label,
        "l1": defaults.L1,
        "l2": defaults.L2,
        "intercept": intercept,
        "record_norm": record_norm,
        "ranges": None if not ranges else _ranges(ranges),
        "label_bound": label_bound,
        "threshold": defaults.THRESHOLD if loss == "huber" else None,
    }
    run = {
        "algorithm": algorithm,
        "walk": defaults.WALK if method is not None and method.kind == "relay" else None,
        "walk_seed": 0,
        "start": names[0],
        "patience": PATIENCE * len(names) ** 2,
    }
    tables = {
        "version": 1,
        "name": out.stem if name is None else name,
        "problem": {key: value for key, value in problem.items() if value is not None},
        "privacy": {"epsilon": epsilon, "delta": delta},
        "run": {key: value for key, value in run.items() if value is not None},
        "network": {"edges": _edges(graph, names)},
        "parties": parties,
    }
    made = make_consortium(tables, "flags")
    write_consortium(out, made)
    if json_:
        print_json(_facts(out, made, None))
        return
    typer.echo(f"{out}: {len(names)} parties, {algorithm}. Next: relaydp consortium plan {out}")


@app.command()
def plan(
    file: File,
    activations: Annotated[int | None, flag(RUN, "How often each party acts; default: chosen.")] = None,
    steps: Annotated[str, flag(RUN, "tuned or paper; default tuned.", "NAME", complete=among(choices.STEPS))] = "tuned",
    ratio: Annotated[
        float | None,
        flag(PRIVACY, "Ratio of each activation's share of the budget to the one before; default: the best."),
    ] = None,
    out: Annotated[Path | None, flag(OUTPUT, "Write to this new file instead.", "OTHER.toml")] = None,
    overwrite: Overwrite = False,
    json_: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Plan from public facts alone, and write the plan into the file: activations, steps and noise of every party.

    \b
    relaydp consortium plan north-sea.toml
    relaydp consortium plan north-sea.toml --activations 40 --out other.toml

    The file is replaced in one step. Your own comments in it are lost; those of relaydp are written again.
    """
    with step_bar(quiet or json_, "reading the agreement") as report:
        from relaydp.network.consortium.agreed_plan import plan_of, propose, with_plan
        from relaydp.network.consortium.file import read_consortium, write_consortium

        consortium = read_consortium(file)
        if out is not None:
            _refuse_existing(out, overwrite)
        elif consortium.plan is not None and not overwrite:
            raise InputError(
                f"{file} has a plan, which others may have agreed on; pass --overwrite to replace it, or --out "
                "OTHER.toml."
            )
        report("planning")
        made = propose(consortium, activations=activations, steps=steps, ratio=ratio)
        planned = with_plan(consortium, made)
        _check_patience(file, planned, plan_of(planned))
    write_consortium(out or file, planned)
    if json_:
        print_json(_facts(out or file, planned, made) | {"predicted_excess": made.predicted})
        return
    if quiet:
        return
    from relaydp.cli.plan import print_plan

    print_plan(made, consortium.name, None)
    typer.echo(f"written to {out or file}; identity {planned.identity.hex()}")


@app.command()
def check(file: File, json_: AsJson = False, quiet: Quiet = False) -> None:
    """Check everything: the file, the certificates, and that the plan keeps its promise to every party's records.

    \b
    relaydp consortium check north-sea.toml

    What the plan costs is computed from its numbers with the ledger and, independently, with dp-accounting. Parties
    whose files have the same identity agree on everything. Exit codes: 0 all is well, 2 it is not (and why).
    """
    with step_bar(quiet or json_, "recomputing what the plan costs"):
        from relaydp.network.consortium.agreed_plan import plan_of, verified
        from relaydp.network.consortium.file import read_consortium

        consortium = read_consortium(file)
        planned = plan_of(consortium)
        found = verified(consortium, planned)
        _check_patience(file, consortium, planned)
    if json_:
        facts = _facts(file, consortium, planned)
        for row, second in zip(facts["parties"], found.agents, strict=True):
            row |= {"epsilon_pld": second.epsilon_pld, "epsilon_rdp": second.epsilon_rdp}
        print_json(facts | {"holds": True})
        return
    if quiet:
        return
    rows = [
        [party.name, party.records, row.releases, row.rho, row.epsilon, row.epsilon_pld, row.epsilon_rdp]
        for party, row in zip(consortium.parties, found.agents, strict=True)
    ]
    _print_table(["party", "records", "releases", "rho", "epsilon", "PLD", "RDP"], rows)
    typer.echo(
        f"holds: every party stays within epsilon {consortium.epsilon:g} at delta {consortium.delta:g}, and its "
        f"certificate is valid today.\nidentity {consortium.identity.hex()}"
    )


def show_consortium(file: Path, json_: bool) -> None:
    """Print who takes part, what was agreed on, and what it will cost each of them."""
    from relaydp.network.consortium.agreed_plan import plan_of
    from relaydp.network.consortium.file import read_consortium

    consortium = read_consortium(file)
    facts = _facts(file, consortium, None if consortium.plan is None else plan_of(consortium))
    if json_:
        print_json(facts)
        return
    lines = [f"{consortium.name}: {len(consortium.parties)} parties"]
    wide = max(len(party.name) for party in consortium.parties)
    for row in facts["parties"]:
        cost = "" if row["epsilon"] is None else f", epsilon {row['epsilon']:.6g}"
        lines += [f"  {row['name']:<{wide}}  {row['address']}, {row['records']} records{cost}"]
        lines += [f"  {'':<{wide}}  {row['fingerprint']}"]
    run = ", ".join(f"{key} {value}" for key, value in facts["run"].items())
    problem = ", ".join(f"{key} {_brief(value)}" for key, value in facts["problem"].items())
    lines += [f"edges     {', '.join('-'.join(edge) for edge in facts['edges'])}", f"problem   {problem}"]
    lines += [f"privacy   epsilon {consortium.epsilon:g} at delta {consortium.delta:g}", f"run       {run}"]
    if facts["plan"] is None:
        lines.append(f"plan      none yet: relaydp consortium plan {file}")
    else:
        steps = ", ".join(f"{key} {_brief(value)}" for key, value in facts["plan"]["steps"].items())
        lines.append(
            "plan      {activations} activations each, {hops} hops, {messages} messages".format(**facts["plan"])
        )
        lines.append(f"steps     {steps}")
    typer.echo("\n".join([*lines, f"identity  {facts['identity']}"]))


def _facts(file: Path, consortium: Consortium, planned: Plan | None) -> dict[str, Any]:
    """The agreement as one JSON object: all of it public."""
    tables = consortium.tables()
    ledger = None if planned is None else planned.ledger
    worth = [None] * len(consortium.parties)
    if ledger is not None:
        worth = [epsilon for epsilon, _ in ledger.by_agent(consortium.delta)]
    parties = [
        {key: row[key] for key in ("name", "address", "records", "fingerprint")} | {"epsilon": epsilon}
        for row, epsilon in zip(tables["parties"], worth, strict=True)
    ]
    plan = None
    if planned is not None:
        plan = {key: planned.summary()[key] for key in ("activations", "hops", "messages", "steps", "epsilon")}
    return {
        "file": str(file),
        "name": consortium.name,
        "identity": consortium.identity.hex(),
        "parties": parties,
        "edges": tables["network"]["edges"],
        "problem": tables["problem"],
        "privacy": tables["privacy"],
        "run": tables["run"],
        "plan": plan,
    }


def _brief(value: object) -> str:
    """A value on one line; of a long list the number of its entries."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list) and len(value) > 4:
        return f"({len(value)})"
    return "[" + ", ".join(map(_brief, value)) + "]" if isinstance(value, list) else str(value)


def _check_patience(file: Path, consortium: Consortium, planned: Plan) -> None:
    """Refuse a patience that would give up a relay in which nothing went wrong."""
    from relaydp.network.consortium.agreed_plan import longest_wait

    wait = longest_wait(planned)
    if wait > consortium.patience:
        raise InputError(
            f"{file}: on this walk {wait} hops in a row find nobody who may act, and after {consortium.patience} the "
            f"relay gives up. Set patience = {2 * wait} in [run], or another walk."
        )


def _refuse_existing(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; pass --overwrite to replace it, or choose another name.")


def _party(text: str) -> dict[str, Any]:
    from relaydp.network.consortium.identity import fingerprint

    name, equals, rest = text.partition("=")
    words = rest.split(",", 2)
    if not equals or len(words) != 3 or re.fullmatch(r"\d{1,12}", words[1].strip()) is None:
        raise InputError(f"--party {text!r}; needed NAME=HOST:PORT,RECORDS,CERTIFICATE.pem.")
    path = Path(words[2].strip()).expanduser()
    try:
        pem = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the certificate {path} of {name} cannot be read ({error}); needed a PEM file.") from error
    return {
        "name": name.strip(),
        "address": words[0].strip(),
        "records": int(words[1]),
        "fingerprint": fingerprint(pem),
        "certificate": pem,
    }


def _edges(graph: str | None, names: list[str]) -> list[list[str]]:
    """The pairs of parties that a named graph connects."""
    from relaydp.graph.named import PLAIN

    made = PLAIN[choose("graph", graph or defaults.GRAPH, PLAIN)](len(names))
    return [[names[i], names[j]] for i, j in made.edges.tolist()]


def _columns(text: str | None, label: str | None) -> dict[str, Any]:
    """The features by name, as listed or as a table's header has them; or only their number."""
    if text is None:
        return {}
    if re.fullmatch(r"\d{1,9}", text):
        return {"features": int(text)}
    from relaydp.settings.values import is_path

    if not is_path("data", text):
        return {"columns": [name.strip() for name in text.split(",")]}
    from relaydp.network.records.own_records import column_names

    names = column_names(Path(text))
    if label is None:
        raise InputError(f"--columns {text} needs --label, the column that is not a feature. Add --label COLUMN.")
    choose(f"column in {Path(text).name}", label, names)
    return {"columns": [name for name in names if name != label]}


def _ranges(texts: list[str]) -> list[Any]:
    try:
        pairs = [[float(word) for word in text.split(",")] for text in texts]
    except ValueError:
        raise InputError(f"--ranges {texts} are not numbers; needed LOW,HIGH such as 0,255.") from None
    return pairs[0] if len(pairs) == 1 else pairs
