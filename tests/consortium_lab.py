"""A consortium on one machine, for tests: keys, certificates, files of records, real agent processes, and a checker.

Agents run as processes of their own, forked from one that has the imports behind it: a start costs a tenth of a second
instead of three. They share nothing but that.
"""

from __future__ import annotations

import atexit
import csv
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np

from relaydp.network.operations.rehearsal import free_ports

SEED = 11
BATON, ROUND, ENDING = 1, 2, 3  # kinds of messages, as the journals have them
STUCK = 300.0  # seconds that nothing takes, on the slowest and busiest machine, unless it will never come


def wait_for(what: Callable[[], Any], seconds: float = STUCK) -> Any:
    """The first true answer; AssertionError if there is none."""
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, f"waited {seconds:g} s for {what}"
        time.sleep(0.01)
    return found


@lru_cache(maxsize=8)
def _read(file: Path, text: bytes) -> Any:
    from relaydp.network.consortium.file import read_consortium

    return read_consortium(file)


@dataclass
class Lab:
    """`file` is the consortium's, `homes` and `tables` one a party, in order."""

    folder: Path
    file: Path
    homes: list[Path]
    tables: list[Path]

    @property
    def consortium(self) -> Any:
        return _read(self.file, self.file.read_bytes())

    def journal(self, party: int) -> Path:
        from relaydp.network.operations.paths import journal_folder

        return journal_folder(self.homes[party], self.consortium.identity)

    def settings(self, party: int, **changes: Any) -> Any:
        from relaydp.network.records.public_plan import Settings

        given = dict(home=self.homes[party], consortium=self.file, data=self.tables[party], max_epsilon=100.0)
        return Settings(**{**given, "seed": SEED, "linger": 0.3, "isolated": False, **changes})


def make_lab(
    folder: Path,
    parties: int = 4,
    *,
    graph: str = "ring",
    algorithm: str = "recal",
    walk: str = "cyclic",
    activations: int = 3,
    features: int = 6,
    records: int = 30,
    edges: list[tuple[int, int]] | None = None,
    epsilon: float = 4.0,
    ports: list[int] | None = None,
    **run: Any,
) -> Lab:
    """Everything a consortium needs, under `folder`; breast-cancer records, a few each."""
    import relaydp as rd
    from relaydp.network.consortium.file import draw_up, read_consortium, write_consortium
    from relaydp.network.consortium.identity import CERTIFICATE, fingerprint, keygen

    data = rd.load_data("breast-cancer")
    low, high = data.ranges
    low, high = (np.broadcast_to(bound, (data.features,))[:features] for bound in (low, high))
    names = [f"p{i}" for i in range(parties)]
    ports = ports or free_ports(parties)
    homes, tables, blocks = [], [], []
    for i, name in enumerate(names):
        home, table = folder / name, folder / f"{name}.csv"
        keygen(home, name)
        rows = slice(i * records, (i + 1) * records)
        X, y = np.asarray(data.X)[rows, :features], np.asarray(data.y)[rows]
        with table.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow([*(f"c{k}" for k in range(features)), "label"])
            out.writerows([*map(repr, map(float, row)), int(label)] for row, label in zip(X, y, strict=True))
        pem = (home / CERTIFICATE).read_text()
        homes.append(home)
        tables.append(table)
        blocks.append(
            f'[[parties]]\nname = "{name}"\naddress = "127.0.0.1:{ports[i]}"\nrecords = {records}\n'
            f"fingerprint = \"{fingerprint(pem)}\"\ncertificate = '''\n{pem}'''\n"
        )
    shape = (
        rd.from_edges(edges) if edges else {"ring": rd.ring, "complete": rd.complete, "path": rd.path}[graph](parties)
    )
    links = [[names[i], names[j]] for i, j in shape.edges.tolist()]
    kind = "" if algorithm not in ("recal", "walkman-gradient") else f'walk = "{walk}"\n'
    extra = "".join(f"{key} = {json.dumps(value)}\n" for key, value in {"patience": 400, **run}.items())
    columns = [f"c{k}" for k in range(features)]
    ranges = [[float(a), float(b)] for a, b in zip(low, high, strict=True)]
    text = (
        'version = 1\nname = "lab"\n'
        f'[problem]\nloss = "logistic"\nclasses = {json.dumps(sorted(set(np.asarray(data.y).tolist())))}\n'
        f'columns = {json.dumps(columns)}\nlabel = "label"\nl2 = 0.05\nranges = {json.dumps(ranges)}\n'
        f"[privacy]\nepsilon = {epsilon}\ndelta = 1e-4\n"
        f'[run]\nalgorithm = "{algorithm}"\n{kind}walk_seed = 5\nstart = "{names[0]}"\n{extra}'
        f"[network]\nedges = {json.dumps(links)}\n" + "".join(blocks)
    )
    file = folder / "consortium.toml"
    file.write_text(text)
    write_consortium(file, draw_up(read_consortium(file), activations=activations))
    return Lab(folder, file, homes, tables)


# -- processes

Body = Callable[..., None]
_FORK = multiprocessing.get_context("forkserver")
_FORK.set_forkserver_preload(["tests_preload"])


def run_agent(settings: Any, log: str, hook: Callable[[], Callable[[str], None]] | None = None) -> None:
    """What an agent process does: log to a file, serve, exit as the command line would."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 2)
    from relaydp.errors import RelayError
    from relaydp.network.operations.serve import serve

    try:
        serve(settings, None if hook is None else hook())
    except RelayError as error:
        os.write(2, f"error: {error}\n".encode())
        os._exit(2)
    os._exit(0)


def start(settings: Any, log: Path, hook: Any = None, body: Body = run_agent) -> Any:
    """An agent in a process of its own. `hook` goes there pickled; called there, it makes the journal's checkpoint."""
    _ensure_forkserver()
    process = _FORK.Process(target=body, args=(settings, str(log), hook), daemon=True)
    process.start()
    return process


def _ensure_forkserver() -> None:
    """It looks for what it preloads on PYTHONPATH only, not on our sys.path, and says nothing if it finds nothing."""
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {"PYTHONPATH": os.pathsep.join(path), "RELAYDP_COMPILED": _kept_programs()}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@lru_cache(maxsize=1)
def _kept_programs() -> str:
    """A folder for what agents compile: they all compile the same, at every start."""
    folder = tempfile.mkdtemp(prefix="lab-compiled-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def run_all(lab: Lab, **changes: Any) -> list[int]:
    """Run every agent to its end; their exit codes."""
    running = [start(lab.settings(i, **changes), lab.folder / f"p{i}.log") for i in range(len(lab.homes))]
    return wait_all(running)


def wait_all(running: list[Any], seconds: float = STUCK) -> list[int]:
    """The exit codes of processes; whoever is left after so many seconds is killed."""
    until = time.monotonic() + seconds
    for process in running:
        process.join(max(0.0, until - time.monotonic()))
    codes = [process.exitcode for process in running]
    for process in running:
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            process.join()
    return codes


# -- what is true of a run that ended, however it came there


def rows_of(lab: Lab, party: int, query: str) -> list[tuple]:
    with closing(sqlite3.connect(lab.journal(party) / "journal.db")) as db:
        return db.execute(query).fetchall()


def models(lab: Lab) -> list[np.ndarray]:
    return [np.load(lab.journal(i) / "result" / "model.npz")["x"] for i in range(len(lab.homes))]


def taken_route(lab: Lab) -> list[tuple[int, int, bool]]:
    """(holder, receiver, acted) of every hop, from the journals; the last hop has itself as receiver."""
    names = [party.name for party in lab.consortium.parties]
    hops = {}
    for i in range(len(names)):
        acted = {seq for (seq,) in rows_of(lab, i, "SELECT seq FROM ledger WHERE reason='activation'")}
        sent = rows_of(lab, i, "SELECT seq, receiver FROM outbox WHERE kind=1 AND acknowledged<2")
        for seq, receiver in sent:
            assert seq - 1 not in hops, f"hop {seq - 1} was made twice"
            hops[seq - 1] = (i, names.index(receiver), seq - 1 in acted)
        held = rows_of(lab, i, "SELECT seq FROM inbox WHERE kind=1")
        for (seq,) in held:
            if not any(s == seq + 1 for s, _ in sent):
                hops[seq] = (i, i, seq in acted)
    assert sorted(hops) == list(range(len(hops))), "a hop is missing"
    return [hops[k] for k in range(len(hops))]


@dataclass
class Books:
    """What one party is left with on its disk: its journal's tables, and its result folder if there is one."""

    name: str
    folder: Path
    facts: dict[str, Any]
    ledger: list[tuple[int, int, str, float, float, float]]  # epoch, seq, reason, sensitivity, scale, rho
    boxes: dict[str, list[tuple[int, int, int, str, str, int]]]  # epoch, kind, seq, who, hash, state
    result: dict[str, Any] | None

    @property
    def activations(self) -> list[int]:
        return [seq for _, seq, reason, *_ in self.ledger if reason == "activation"]

    def places(self, box: str, kind: int) -> set[int]:
        return {seq for _, each, seq, *_ in self.boxes[box] if each == kind}


def read_books(lab: Lab, party: int) -> Books:
    folder = lab.journal(party)
    name = lab.consortium.parties[party].name
    if not (folder / "journal.db").exists() or not rows_of(lab, party, "SELECT 1 FROM sqlite_master"):
        return Books(name, folder, {}, [], {"inbox": [], "outbox": []}, None)
    boxes = {}
    for box, who, state in (("inbox", "sender", "done"), ("outbox", "receiver", "acknowledged")):
        boxes[box] = rows_of(lab, party, f"SELECT epoch, kind, seq, {who}, lower(hex(hash)), {state} FROM {box}")
    result = None
    if (folder / "result" / "certificate.json").exists():
        names = ("certificate", "summary", "ledger", "transcript")
        result = {name: json.loads((folder / "result" / f"{name}.json").read_text()) for name in names}
        with np.load(folder / "result" / "model.npz") as saved:
            result["model"] = saved["x"]
    facts = dict(rows_of(lab, party, "SELECT key, value FROM meta"))
    columns = "epoch, seq, reason, sensitivity, scale, rho"
    ledger = rows_of(lab, party, f"SELECT {columns} FROM ledger ORDER BY number")
    return Books(name, folder, facts, ledger, boxes, result)


def faults(lab: Lab) -> list[str]:
    """What is wrong with a finished run; empty if nothing. Looks at the journals and files, not at the program."""
    everyone = [read_books(lab, i) for i in range(len(lab.homes))]
    found = [f"{book.name} {text}" for i, book in enumerate(everyone) for text in _own_faults(lab, i, book)]
    found += _shared_faults(everyone)
    # whoever has the ending has the counts that the last holder saw
    relay = lab.consortium.walk is not None
    if relay and all(book.result for book in everyone):
        charged = [len(book.activations) for book in everyone]
        for book in everyone:
            if book.result["summary"]["made"] != charged:
                found.append(f"{book.name} was told of {book.result['summary']['made']} activations, charged {charged}")
    if lab.consortium.algorithm == "recal" and all(book.result for book in everyone):
        found += _price_faults(lab)
    return found


def _own_faults(lab: Lab, party: int, book: Books) -> Iterable[str]:
    """What one party's books show by themselves."""
    from relaydp.errors import RelayError
    from relaydp.network.operations.serve import inspect

    if not book.facts:
        yield "has no journal"
        return
    try:
        inspect(book.folder)
    except RelayError as error:
        yield f"has a journal that does not hold: {error}"
    yield from _result_faults(book, lab.consortium.plan.activations)
    yield from _spending_faults(lab, party, book)
    yield from _baton_faults(book) if lab.consortium.walk else _round_faults(lab, party, book)
    if any(not state for rows in book.boxes.values() for *_, state in rows):
        yield "has unfinished messages"


def _result_faults(book: Books, planned: int) -> Iterable[str]:
    if book.result is None:
        yield "has no result"
        return
    certificate, summary, listed = (book.result[name] for name in ("certificate", "summary", "ledger"))
    counts = [len(book.activations), certificate["activations"], summary["activations"]]
    counts += [certificate["releases"], len(listed["releases"]["hop"])]
    if set(counts) != {planned}:
        yield f"charged, certified, summed up, released and listed {counts}, planned {planned}"
    if listed["releases"]["hop"] != [seq for _, seq, *_ in book.ledger]:
        yield "lists other hops in ledger.json than it charged"
    if summary["status"] != "finished":
        yield f"ended {summary['status']}"
    yield from _transcript_faults(book)


def _spending_faults(lab: Lab, party: int, book: Books) -> Iterable[str]:
    from relaydp.privacy.accountant import epsilon_exact

    agreed, acted = lab.consortium, book.activations
    if len(set(acted)) != len(acted):
        yield "charged one hop twice"
    rho = sum(row[-1] for row in book.ledger)
    if rho > float(book.facts.get("limit_rho", 0.0)) * (1 + 1e-9):
        yield "spent more than its plan"
    if rho > 0 and epsilon_exact(rho, agreed.delta) > agreed.epsilon * (1 + 1e-6):
        yield "spent more than the agreed epsilon"
    for t, (_, seq, reason, *charge) in enumerate(book.ledger[: agreed.plan.activations]):
        sensitivity, scale = float(agreed.plan.sensitivity[party]), float(agreed.plan.scales[t, party])
        ratio = sensitivity / scale
        if reason == "activation" and charge != [sensitivity, scale, ratio * ratio / 2]:
            yield f"charged hop {seq} otherwise than planned"


def _baton_faults(book: Books) -> Iterable[str]:
    """A baton that was taken in goes on, or ends here; and what was charged went with it."""
    taken, sent = (book.places(box, BATON) for box in ("inbox", "outbox"))
    ends = any(kind == ENDING and who == book.name for _, kind, _, who, *_ in book.boxes["inbox"])
    went = {seq for seq in taken if seq + 1 in sent or (ends and seq == max(taken))}
    if taken - went:
        yield f"took hops {sorted(taken - went)} in and passed nothing on"
    if {seq - 1 for seq in sent} - taken:
        yield f"passed on from hops {sorted({seq - 1 for seq in sent} - taken)}, which it never took in"
    for seq in sorted(set(book.activations) - went):
        yield f"charged hop {seq} and released nothing"


def _round_faults(lab: Lab, party: int, book: Books) -> Iterable[str]:
    """Every round once to every neighbour, once from each, and charged once."""
    agreed = lab.consortium
    around = [agreed.parties[j].name for j in agreed.graph.neighbours(party).tolist()]
    wanted = Counter((t, name) for t in range(agreed.plan.activations) for name in around)
    for box, rows in book.boxes.items():
        if Counter((seq, who) for _, kind, seq, who, *_ in rows if kind == ROUND) != wanted:
            yield f"has rounds missing or too many in its {box}"
    spoken, charged = book.places("outbox", ROUND), set(book.activations)
    for seq in sorted(charged - spoken):
        yield f"charged hop {seq} and released nothing"
    if spoken - charged:
        yield f"spoke in rounds {sorted(spoken - charged)} and charged nothing"


def _transcript_faults(book: Books) -> Iterable[str]:
    """transcript.json against the journal; the ending may still be passed on after it was written."""
    listed = Counter(
        (line["box"], line["epoch"], line["kind"], line["seq"], line["peer"], line["hash"])
        for line in book.result["transcript"]
        if line["kind"] != ENDING
    )
    kept = Counter((box, *row[:5]) for box, rows in book.boxes.items() for row in rows if row[1] != ENDING)
    if listed != kept:
        yield f"has {len(listed - kept)} messages in transcript.json only and {len(kept - listed)} in its journal only"


def _shared_faults(everyone: list[Books]) -> list[str]:
    """What shows when the parties lay their books side by side."""
    found = []
    contents: dict[tuple[Any, ...], set[str]] = {}
    passed: Counter[tuple[int, int]] = Counter()
    ways: dict[str, set[tuple[Any, ...]]] = {"inbox": set(), "outbox": set()}
    for book in everyone:
        for box, rows in book.boxes.items():
            for epoch, kind, seq, who, digest, state in rows:
                sender, receiver = (who, book.name) if box == "inbox" else (book.name, who)
                # a baton is one thing whoever brings it; a round has as many messages as speakers
                contents.setdefault((epoch, kind, seq, sender if kind == ROUND else ""), set()).add(digest)
                passed[epoch, seq] += box == "outbox" and kind == BATON and state < 2
                if kind != ENDING and sender != receiver and state < 2:
                    ways[box].add((epoch, kind, seq, sender, receiver, digest))
    found += [f"seq {key[2]} has {len(seen)} contents" for key, seen in contents.items() if len(seen) > 1]
    found += [f"baton {seq} was passed on {times} times" for (_, seq), times in passed.items() if times > 1]
    for one, other, text in (("inbox", "outbox", "never sent"), ("outbox", "inbox", "never taken in")):
        for _, _, seq, sender, receiver, _ in sorted(ways[one] - ways[other]):
            found.append(f"seq {seq} from {sender} to {receiver} was {text}")
    models = {book.result["model"].tobytes() for book in everyone if book.result}
    hashes = {book.result["summary"]["model_sha256"] for book in everyone if book.result}
    if len(models) > 1 or len(hashes) > 1:
        found.append("the parties have different models")
    return found


def _price_faults(lab: Lab) -> list[str]:
    """u = sum of l_i, to rounding: no activation was lost or counted twice in the baton."""
    from relaydp.network.messages.wire import parse

    parties, dim = len(lab.homes), len(lab.consortium.problem.columns)
    prices = np.zeros(dim)
    for i in range(parties):
        rows = np.frombuffer(rows_of(lab, i, "SELECT value FROM meta WHERE key='rows'")[0][0], "<f8").reshape(2, dim)
        prices += rows[1]
    u = parse(rows_of(lab, 0, "SELECT message FROM inbox WHERE kind=3 AND message NOTNULL")[0][0]).vectors(2)[0]
    gap = float(np.abs(u - prices).max())
    return [] if gap <= 1e-12 * max(1.0, float(np.abs(u).max())) else [f"u differs from the sum of prices by {gap:.3g}"]
