"""From a home folder and a consortium file to a running agent, and its status from outside."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sqlite3
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from relaydp.errors import InputError, PrivacyError
from relaydp.network.consortium import identity as tls
from relaydp.network.messages import handshakes
from relaydp.network.messages.journal import Journal, JournalError, chained
from relaydp.network.operations.paths import RESULT, RUNNING, journal_folder
from relaydp.network.records.pipe import InProcess, RecordsPipe
from relaydp.network.records.public_plan import Settings


def open_agent(settings: Settings, log: Any, metrics: Any, checkpoint: Callable[[str], None] | None = None) -> Any:
    """Let the records process check everything and open the journal; returns an Agent that is ready to run."""
    from relaydp.network.operations.agent import Agent

    identity = tls.read_identity(settings.home)
    records = (RecordsPipe if settings.isolated else InProcess)(settings)
    public_plan = records.public_plan
    options: dict[str, Any] = {} if checkpoint is None else {"checkpoint": checkpoint}
    folder = journal_folder(settings.home, public_plan.identity)
    try:
        journal = Journal(
            folder,
            public_plan.identity,
            identity.name,
            public_plan.limit_rho,
            tolerance=public_plan.tolerance,
            mark=settings.mark,
            **options,
        )
    except BaseException:
        records.close()
        raise
    return Agent(public_plan, identity, records, journal, log, metrics, listen=settings.listen, linger=settings.linger)


def inspect(folder: Path) -> dict[str, Any]:
    """Check a journal's pages and its ledger's chain; returns a summary for an operator. Refuses a missing one."""
    path = folder / "journal.db"
    if not path.is_file():
        raise InputError(f"{path} does not exist: there is nothing to resume. Start with `relaydp agent serve`.")
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            pages = db.execute("PRAGMA integrity_check").fetchone()[0]
            facts = dict(db.execute("SELECT key, value FROM meta"))
            rows = db.execute("SELECT epoch, seq, reason, sensitivity, scale, rho, chain FROM ledger ORDER BY number")
            ledger = rows.fetchall()
            (unsent,) = db.execute("SELECT COUNT(*) FROM outbox WHERE acknowledged=0").fetchone()
            (undone,) = db.execute("SELECT COUNT(*) FROM inbox WHERE done=0").fetchone()
            last = db.execute("SELECT MAX(seq) FROM inbox WHERE kind<>3").fetchone()[0]
    except sqlite3.Error as error:
        raise JournalError(f"{path} cannot be read ({error}); restore its newest copy, with journal.db-wal.") from error
    chain = bytes(32)
    for row in ledger:
        chain = chained(chain, row[:-1])
        if chain != row[-1]:
            raise PrivacyError(
                f"{path}: the ledger's release at seq {row[1]} was changed or removed. The journal is not used; "
                "restore its newest copy."
            )
    if pages != "ok" or chain != facts["chain"]:
        raise PrivacyError(f"{path} is corrupt ({pages}); restore its newest copy, with journal.db-wal.")
    waiting = f"{unsent} messages to send, {undone} to process"
    rho = math.fsum(row[5] for row in ledger)
    return {"releases": len(ledger), "rho": rho, "waiting": waiting, "facts": facts, "unsent": unsent, "last": last}


def statuses(home: Path) -> list[dict[str, Any]]:
    """The state of each agent of this home: asked of those that run, read from the journals of the others."""
    found = []
    for path in sorted(home.glob("*/journal.db")):
        note = path.parent / RUNNING
        try:
            port = int(json.loads(note.read_text())["status_port"])
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json", timeout=5) as answer:
                found.append(json.load(answer))
        except (OSError, ValueError, KeyError):  # no agent runs, or it was killed and its file was left
            found.append(_resting(path.parent))
    return found


def _resting(folder: Path) -> dict[str, Any]:
    seen = inspect(folder)
    facts = seen["facts"]
    ended = (folder / RESULT / "summary.json").is_file()
    summary = json.loads((folder / RESULT / "summary.json").read_text()) if ended else {}
    return {
        "party": facts["party"],
        "consortium": summary.get("consortium"),
        "identity": facts["identity"].hex(),
        "state": "finished" if ended else "stopped",
        "algorithm": summary.get("algorithm"),
        "epoch": facts["epoch"],
        "hops_seen": facts["commits"],
        "last_baton": None if seen["last"] is None else {"seq": seen["last"], "from": None, "to": None},
        "activations": [seen["releases"], None],
        "rho": [seen["rho"], facts["limit_rho"]],
        "epsilon": None,
        "delta": summary.get("delta"),
        "private": None,
        "peers": [],
        "unacknowledged": seen["unsent"],
        "model_sha256": summary.get("model_sha256"),
        "uptime_seconds": None,
    }


def serve(settings: Settings, checkpoint: Callable[[str], None] | None = None) -> str | None:
    """Run this party's agent in the foreground until the end or a signal; returns the model's hash if the run has
    ended."""
    handshakes.ask_for_reasons()
    tls.require_tls13()
    from relaydp.network.operations.metrics import Log, Metrics

    with handshakes.own_stderr() as stream:
        log, metrics = Log(tls.read_identity(settings.home).name, stream), Metrics()
        agent = open_agent(settings, log, metrics, checkpoint)
        stop_listening = handshakes.listen(log, metrics, stream)
        try:
            asyncio.run(_serve(agent, settings))
        finally:
            agent.journal.close()
            agent.records.close()
            stop_listening()  # an error that ended the run is written after this
    return agent.model_sha256


async def _serve(agent: Any, settings: Settings) -> None:
    from relaydp.network.operations.metrics import StatusServer

    loop = asyncio.get_running_loop()

    def status() -> dict[str, Any]:  # called from the page's threads; the journal belongs to the loop's thread
        async def now() -> dict[str, Any]:
            return agent.status()

        return asyncio.run_coroutine_threadsafe(now(), loop).result(timeout=5)

    running = asyncio.create_task(agent.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    page = StatusServer(settings.status_port, status, agent.metrics.registry, agent.log)
    note = agent.journal.folder / RUNNING
    new = note.with_suffix(".new")
    new.write_text(json.dumps({"pid": os.getpid(), "status_port": page.port}) + "\n")
    os.replace(new, note)  # a reader finds the whole file or none
    try:
        await running
    except asyncio.CancelledError:
        agent.log.info("stopping", signal="terminate")
    finally:
        note.unlink(missing_ok=True)
        # the page may be waiting for this loop, so it is closed from outside
        await asyncio.to_thread(page.close)
