"""The journal: what an agent has received, released, spent and sent, on disk before any other party learns of it.

One SQLite file per agent and consortium (WAL, synchronous=FULL: a commit survives power loss), written by one process:

    accept    a message goes into `inbox` and is committed; only then is it acknowledged
    commit    ONE transaction holds all of an activation: the budget check, the ledger row, the message to send and its
              receiver, the agent's own state, and that the message it answers is done
    deliver   resends the same bytes to the same neighbour until it acknowledges them
    recover   after a restart, sends what is not acknowledged and processes what is not done; nothing else is needed

It keeps what was released, never the noise or a seed: noise and release together would reveal the gradient.

A journal restored from an old copy would spend the same budget twice. Two checks detect it: a file outside the folder
that counts commits, and the neighbours, who know the last message they received from us (`Agent` asks them).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relaydp.errors import InputError, PrivacyError, RelayError
from relaydp.network.messages.wire import BATON, ENDING, Message, Refusal, parse

VERSION = 1
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE inbox (
  epoch INTEGER, kind INTEGER, seq INTEGER, sender TEXT, hash BLOB NOT NULL, message BLOB, done INTEGER NOT NULL,
  PRIMARY KEY (epoch, kind, seq, sender)
) WITHOUT ROWID;
CREATE TABLE outbox (
  epoch INTEGER, kind INTEGER, seq INTEGER, receiver TEXT, hash BLOB NOT NULL, message BLOB,
  acknowledged INTEGER NOT NULL,
  PRIMARY KEY (epoch, kind, seq, receiver)
) WITHOUT ROWID;
CREATE TABLE ledger (
  number INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, reason TEXT NOT NULL,
  sensitivity REAL NOT NULL, scale REAL NOT NULL, rho REAL NOT NULL, chain BLOB NOT NULL, UNIQUE (epoch, seq, reason)
);
CREATE INDEX senders ON inbox (sender, epoch, seq);
CREATE INDEX receivers ON outbox (receiver, epoch, seq);
CREATE INDEX waiting ON inbox (done) WHERE done = 0;
CREATE INDEX undelivered ON outbox (acknowledged) WHERE acknowledged = 0;
CREATE INDEX kept ON outbox (seq) WHERE acknowledged = 1 AND message NOTNULL;
"""
ACTIVATION, REROUTE = "activation", "reroute"

# The points between two durable writes at which a crash can happen; `checkpoint` is called with these names.
POINTS = (
    "accept: before the commit",
    "accept: committed, not acknowledged",
    "act: neighbour asked, nothing drawn",
    "act: drawn, not committed",
    "commit: inside the transaction",
    "commit: committed, nothing sent",
    "deliver: sent, acknowledgement not noted",
    "deliver: acknowledgement noted",
    "end: model known, files not written",
    "end: files written",
)
ACCEPT_BEFORE, ACCEPT_AFTER, ASKED, DRAWN, COMMIT_INSIDE, COMMIT_AFTER, SENT, NOTED, END_BEFORE, END_AFTER = POINTS


class JournalError(RelayError):
    """The journal cannot be written, or is corrupt; the agent stops, and nothing that was committed is lost."""


@dataclass(frozen=True)
class ReleaseCharge:
    """One release and its cost."""

    seq: int
    sensitivity: float
    scale: float
    reason: str = ACTIVATION

    @property
    def rho(self) -> float:
        return (self.sensitivity / self.scale) * (self.sensitivity / self.scale) / 2


@dataclass(frozen=True)
class JournalRow:
    """One line of the ledger."""

    number: int
    epoch: int
    seq: int
    reason: str
    sensitivity: float
    scale: float
    rho: float


def _ignore(point: str) -> None:
    """The default `checkpoint`, used outside crash tests."""


class Journal:
    """Opened by one process at a time; every method is one transaction or a read."""

    def __init__(
        self,
        folder: Path,
        identity: bytes,
        party: str,
        limit_rho: float,
        *,
        tolerance: float = 1e-9,
        mark: Path | None = None,
        checkpoint: Callable[[str], None] = _ignore,
    ) -> None:
        self.folder, self.limit_rho, self.checkpoint = folder, limit_rho, checkpoint
        self._allowed = limit_rho * (1 + tolerance)  # sums are rounded
        self._mark = mark or folder.parent / f"{folder.name}.mark"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock(folder / "lock", party)
        try:
            with _clear_errors(folder):
                path = folder / "journal.db"
                if not path.exists():
                    self._create(path, identity, party)
                self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")
                self._recall()  # fails for an emptied file, which is not a new journal
            self._check_owner(identity, party)
            self._check_mark()
        except BaseException:
            self._lock.close()
            raise

    def _create(self, path: Path, identity: bytes, party: str) -> None:
        """Create the whole file or nothing: a journal without its tables would lose the record of what was spent."""
        facts = {"version": VERSION, "identity": identity, "party": party, "limit_rho": self.limit_rho}
        facts |= {"commits": 0, "epoch": 0, "chain": bytes(32)}
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)  # left by an interrupted start
        with closing(sqlite3.connect(new, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode=MEMORY")  # no second file
            db.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA.split(";")[:-1]:
                db.execute(statement)
            db.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
            db.execute("COMMIT")
        os.replace(new, path)

    def _recall(self) -> None:
        """Read the facts that are kept in memory: only this process writes them."""
        self._facts: dict[str, Any] = dict(self._db.execute("SELECT key, value FROM meta"))
        self._spent: float | None = None  # unknown until it is added up

    def _check_owner(self, identity: bytes, party: str) -> None:
        if (self.get("version"), self.get("identity"), self.get("party")) != (VERSION, identity, party):
            raise JournalError(
                f"{self.folder} holds the journal of {self.get('party')!r} in consortium "
                f"{bytes(self.get('identity')).hex()[:16]}; it must be that of {party!r} in {identity.hex()[:16]}. Use "
                "a folder of its own."
            )
        if self.get("limit_rho") != self.limit_rho:
            raise JournalError(f"{self.folder} was started with another budget. Use the plan it was started with.")

    def _check_mark(self) -> None:
        """The mark is written after the commit it counts, so a crash can leave it behind, never ahead."""
        try:
            counted = struct.unpack("<Q", self._mark.read_bytes())[0]
        except FileNotFoundError:
            counted = 0
        except (OSError, struct.error) as error:
            raise JournalError(
                f"{self._mark} cannot be read ({error}), and it counts this journal's commits. Restore the file."
            ) from error
        if self.get("commits") < counted:
            raise PrivacyError(
                f"{self.folder / 'journal.db'} has {self.get('commits')} commits and {self._mark} counts {counted}: "
                "the journal is older than it should be, because a copy was restored or a write was lost. What it has "
                "spent since is unknown, so it is not used. Restore the newer journal.db and journal.db-wal; without "
                "them this party can take no further part."
            )

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    # -- reading

    def get(self, key: str, default: Any = None) -> Any:
        return self._facts.get(key, default)

    @property
    def epoch(self) -> int:
        return int(self.get("epoch"))

    @property
    def is_fresh(self) -> bool:
        """Whether nothing was ever received or released."""
        return self.get("commits") == 0

    def waiting(self, kind: int) -> tuple[str, Message] | None:
        """A message of this kind that was received and not yet processed, with its sender."""
        row = self._db.execute(
            "SELECT sender, message FROM inbox WHERE done=0 AND kind=? ORDER BY epoch, seq LIMIT 1", (kind,)
        ).fetchone()
        return None if row is None else (row[0], parse(row[1]))

    def received(self, kind: int, seq: int | None = None) -> dict[tuple[int, str], Message]:
        """Messages of a kind that are still kept, by (seq, sender)."""
        rows = self._db.execute(
            "SELECT seq, sender, message FROM inbox WHERE epoch=? AND kind=? AND (seq=? OR ? IS NULL) "
            "AND message NOTNULL",
            (self.epoch, kind, seq, seq),
        )
        return {(row[0], row[1]): parse(row[2]) for row in rows}

    def undelivered(self, to: str | None = None) -> list[tuple[str, Message]]:
        """(receiver, message) of everything committed and not acknowledged, oldest first; of one receiver or of all."""
        rows = self._db.execute(
            "SELECT receiver, message FROM outbox WHERE acknowledged=0 AND (receiver=? OR ? IS NULL) "
            "ORDER BY epoch, kind, seq, receiver",
            (to, to),
        )
        return [(receiver, parse(message)) for receiver, message in rows]

    def last(self, box: str, who: str) -> tuple[int, bytes] | None:
        """(seq, hash) of the last baton or round message accepted from, or acknowledged by, a neighbour."""
        column, test = ("sender", "1") if box == "inbox" else ("receiver", "acknowledged=1")
        row = self._db.execute(
            f"SELECT seq, hash FROM {box} WHERE {column}=? AND kind<>? AND {test} "
            "ORDER BY epoch DESC, seq DESC LIMIT 1",
            (who, ENDING),
        ).fetchone()
        return None if row is None else (int(row[0]), bytes(row[1]))

    def knows(self, box: str, who: str, seq: int, digest: bytes) -> bool:
        """Whether this journal has that message in its inbox or outbox."""
        column = "sender" if box == "inbox" else "receiver"
        row = self._db.execute(
            f"SELECT 1 FROM {box} WHERE {column}=? AND seq=? AND hash=? AND kind<>?", (who, seq, digest, ENDING)
        ).fetchone()
        return row is not None

    @property
    def highest(self) -> int:
        """The largest baton seq that was received or sent; -1 if there is none."""
        newest = "SELECT MAX(seq) FROM {} WHERE epoch=? AND kind=?"  # reads only the end of an index
        found = [
            self._db.execute(newest.format(box), (epoch, BATON)).fetchone()[0]
            for box in ("inbox", "outbox")
            for epoch in (self.epoch - 1, self.epoch)
        ]
        return max(-1 if seq is None else int(seq) for seq in found)

    def has(self, sender: str, message: Message) -> bool:
        """Whether this message was received before. Refuses another one in its place."""
        # there is one baton: its seq has one content, whoever sends it; a part of the ending is the same from all
        # parties
        anyone = message.kind in (BATON, ENDING)
        rows = self._db.execute(
            "SELECT hash FROM inbox WHERE epoch=? AND kind=? AND seq=? AND (sender=? OR ?)",
            (message.epoch, message.kind, message.seq, sender, anyone),
        ).fetchall()
        if any(bytes(row[0]) != message.hash() for row in rows):
            raise Refusal("equivocation", f"seq {message.seq} was received before with another content.")
        return bool(rows)

    def holders(self, part: Message) -> set[str]:
        """The parties that sent this part of the ending, and ourselves: none of them needs to receive it."""
        rows = self._db.execute(
            "SELECT sender FROM inbox WHERE epoch=? AND kind=? AND seq=?", (part.epoch, part.kind, part.seq)
        )
        return {sender for (sender,) in rows}

    def ledger(self) -> list[JournalRow]:
        columns = "number, epoch, seq, reason, sensitivity, scale, rho"
        rows = self._db.execute(f"SELECT {columns} FROM ledger ORDER BY number")
        return [JournalRow(*row) for row in rows]

    @property
    def spent(self) -> float:
        """rho of all releases so far."""
        if self._spent is None:
            self._spent = float(self._db.execute("SELECT COALESCE(SUM(rho), 0) FROM ledger").fetchone()[0])
        return self._spent

    @property
    def activations(self) -> int:
        row = self._db.execute("SELECT COUNT(*) FROM ledger WHERE reason=?", (ACTIVATION,)).fetchone()
        return int(row[0])

    def affords(self, charge: ReleaseCharge) -> bool:
        return self.spent + charge.rho <= self._allowed

    def transcript(self) -> list[dict[str, Any]]:
        """Every message that was received or sent: its place and hash, both public."""
        names = ("epoch", "kind", "seq", "peer", "hash")
        found = []
        for box, who in (("inbox", "sender"), ("outbox", "receiver")):
            rows = self._db.execute(f"SELECT epoch, kind, seq, {who}, hash FROM {box} ORDER BY epoch, kind, seq, {who}")
            found += [{"box": box, **dict(zip(names, (*row[:4], bytes(row[4]).hex()), strict=True))} for row in rows]
        return found

    # -- writing

    def accept(self, sender: str, message: Message) -> bool:
        """Store a checked message; False if it was received before. Refuses another one in its place."""
        again = self.has(sender, message)
        if again and (message.kind != ENDING or sender in self.holders(message)):
            return False
        self.checkpoint(ACCEPT_BEFORE)
        with self._transaction() as db:
            _insert(db, sender, message, done=again)
            if message.kind == ENDING:  # its sender does not need it from us
                db.execute(
                    "UPDATE outbox SET acknowledged=1 WHERE kind=? AND seq=? AND receiver=? AND hash=?",
                    (ENDING, message.seq, sender, message.hash()),
                )
        self.checkpoint(ACCEPT_AFTER)
        return not again

    def commit(
        self,
        *,
        done: tuple[int, int] | None = None,
        charges: tuple[ReleaseCharge, ...] = (),
        send: Iterable[tuple[str, Message]] = (),
        take: Iterable[tuple[str, Message]] = (),
        cancel: tuple[str, Message] | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        """Write a whole step in one transaction. Raises PrivacyError and changes nothing if a charge exceeds the
        budget.

        `done` is the (kind, seq) of the message that this step processed. `take` puts messages made by the agent itself
        into its inbox: the first baton, its part of the ending. `cancel` is a message that an agreed rerouting has
        withdrawn.
        """
        with self._transaction() as db:
            for charge in charges:
                self._charge(db, charge)
            for receiver, message in send:
                db.execute(
                    "INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?, 0)",
                    (message.epoch, message.kind, message.seq, receiver, message.hash(), message.to_bytes()),
                )
            if cancel is not None:
                db.execute(
                    "UPDATE outbox SET acknowledged=2 WHERE receiver=? AND hash=?", (cancel[0], cancel[1].hash())
                )
            for sender, message in take:
                _insert(db, sender, message)
            if done is not None:
                _finish(db, *done)
            self._note(db, facts or {})
            self.checkpoint(COMMIT_INSIDE)
        self.checkpoint(COMMIT_AFTER)

    def acknowledge(self, receiver: str, message: Message) -> None:
        """Note that the receiver has it on disk. If a crash loses this note, the message is sent again and
        recognised."""
        self.checkpoint(SENT)
        with self._transaction(durable=False) as db:
            # the bytes of the newest message are kept, for a rerouting; of older ones only the hash
            db.execute(
                "UPDATE outbox SET message=NULL WHERE acknowledged=1 AND message NOTNULL AND (epoch, seq) < (?, ?)",
                (message.epoch, message.seq),
            )
            db.execute(
                "UPDATE outbox SET acknowledged=1 WHERE epoch=? AND kind=? AND seq=? AND receiver=?",
                (message.epoch, message.kind, message.seq, receiver),
            )
        self.checkpoint(NOTED)

    def _charge(self, db: sqlite3.Connection, charge: ReleaseCharge) -> None:
        if not self.affords(charge):
            raise PrivacyError(
                f"this party has spent rho {self.spent:.6g} of {self.limit_rho:.6g}; a release of rho {charge.rho:.6g} "
                "does not fit. Nothing was released."
            )
        values = (self.epoch, charge.seq, charge.reason, charge.sensitivity, charge.scale, charge.rho)
        self._spent, chain = None, chained(bytes(self.get("chain")), values)
        db.execute(
            "INSERT INTO ledger (epoch, seq, reason, sensitivity, scale, rho, chain) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*values, chain),
        )
        self._note(db, {"chain": chain})

    def _note(self, db: sqlite3.Connection, facts: dict[str, Any]) -> None:
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts.items())
        self._facts |= facts

    @contextmanager
    def _transaction(self, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction, on disk before the next line runs; with `durable=False` there is no wait."""
        with _clear_errors(self.folder):
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                if durable:
                    self._note(self._db, {"commits": self.get("commits") + 1})
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                self._recall()
                raise
            if durable:  # the mark must never be ahead of what survives power loss
                _write_mark(self._mark, self.get("commits"))


def chained(chain: bytes, values: tuple[Any, ...]) -> bytes:
    """The hash over all releases up to this one: a changed or missing row changes every later hash."""
    return hashlib.sha256(chain + repr(tuple(values)).encode()).digest()


def _finish(db: sqlite3.Connection, kind: int, seq: int) -> None:
    """Mark as done and keep only the hash, since the content was used. An ending is kept whole; it is the result."""
    left = "message" if kind == ENDING else "NULL"
    db.execute(f"UPDATE inbox SET done=1, message={left} WHERE done=0 AND kind=? AND seq=?", (kind, seq))


def _insert(db: sqlite3.Connection, sender: str, message: Message, done: bool = False) -> None:
    content = None if done else message.to_bytes()
    db.execute(
        "INSERT INTO inbox VALUES (?, ?, ?, ?, ?, ?, ?)",
        (message.epoch, message.kind, message.seq, sender, message.hash(), content, done),
    )


def _lock(path: Path, party: str) -> Any:
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise InputError(
            f"an agent of {party!r} is running already on {path.parent}; a journal allows one process only. Stop the "
            "other first (`relaydp agent status` shows it)."
        ) from None
    return file


@contextmanager
def _clear_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise JournalError(
            f"{folder / 'journal.db'} cannot be used: {error}. The agent stops; what was committed is kept. Free space "
            "on the disk or repair it, then start the agent again: it continues where it stopped."
        ) from error


def _write_mark(path: Path, commits: int) -> None:
    """Write eight bytes in place, without a sync: a mark that power loss sets back detects less, and never refuses a
    sound journal."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(file, struct.pack("<Q", commits), 0)
    finally:
        os.close(file)
