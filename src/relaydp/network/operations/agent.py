"""The agent: one party's process on the network, from its start until every party has the model on disk.

    service              answers the others' calls        relaying, rounds     process their messages
    outbox               resends until acknowledged        pipe                 connects to the process with the records

Everything that must last is in the journal; a killed agent that is started again continues from there.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from relaydp.errors import PrivacyError
from relaydp.network.consortium import identity as tls
from relaydp.network.messages import relay_pb2 as pb
from relaydp.network.messages.journal import END_AFTER, END_BEFORE, Journal, ReleaseCharge
from relaydp.network.messages.outbox import Peer, Unreachable, deliver, under_way
from relaydp.network.messages.relaying import Relaying
from relaydp.network.messages.rounds import InRounds
from relaydp.network.messages.service import Service
from relaydp.network.messages.wire import BATON, ENDING, MOST_SEQ, Message, Rules
from relaydp.network.records.public_plan import JournalSummary, PublicPlan

if TYPE_CHECKING:
    from relaydp.network.operations.metrics import Log, Metrics
    from relaydp.network.records.pipe import InProcess, RecordsPipe

GREETING_SECONDS = 3.0  # between two greetings of all neighbours, for the status only
DIVERGED = (
    "the model grew without bound instead of settling, and this agent stopped before sending it on. The agreed steps "
    "are too long for this graph: agree on a new plan. The budget already spent cannot be recovered."
)


class Agent:
    """One party. `await run()` returns when it has the model and its neighbours have it too, or when it is stopped."""

    def __init__(
        self,
        public_plan: PublicPlan,
        identity: tls.Identity,
        records: RecordsPipe | InProcess,
        journal: Journal,
        log: Log,
        metrics: Metrics,
        *,
        listen: str | None,
        linger: float,
    ) -> None:
        self.public_plan, self.identity, self.records = public_plan, identity, records
        self.journal, self.log, self.metrics = journal, log, metrics
        self.names, self.party, self.neighbours = public_plan.names, public_plan.party, public_plan.neighbours
        self.name, self.parties = public_plan.names[public_plan.party], len(public_plan.names)
        self.linger = linger
        self.rules = Rules(
            public_plan.identity,
            self.parties,
            public_plan.pace.activations,
            public_plan.relay,
            public_plan.vectors,
            public_plan.dim,
            public_plan.largest,
        )
        self.role = Relaying(self) if public_plan.relay else InRounds(self)
        self.arrived = asyncio.Event()
        self._outgoing: dict[int, asyncio.Event] = {}
        self.peers: dict[int, Peer] = {}
        self.state = "waiting for peers"
        self.model_sha256: str | None = None
        self._last: tuple[int, str | None, str | None, float] | None = None
        self._began = time.monotonic()
        self._fatal: asyncio.Future[None] | None = None
        self.serving = False  # for gRPC's health service
        self.service = Service(self, listen or public_plan.addresses[public_plan.party])

    # -- used by relaying and rounds

    @property
    def lost(self) -> frozenset[int]:
        """Parties that an agreed rerouting has declared lost."""
        names = str(self.journal.get("lost", "")).split()
        return frozenset(self.names.index(name) for name in names)

    def message(
        self,
        kind: int,
        seq: int,
        body: bytes,
        made: tuple[int, ...] = (),
        idle: int = 0,
        previous: bytes = b"",
    ) -> Message:
        return Message(self.public_plan.identity, self.journal.epoch, kind, seq, made, idle, previous, body)

    def charge_for(self, seq: int, activation: int) -> ReleaseCharge:
        return ReleaseCharge(seq, self.public_plan.sensitivity, self.public_plan.scales[activation])

    async def ask(self, method: str, *arguments: Any) -> Any:
        """The records process's answer; this process keeps serving meanwhile."""
        return await self.records.ask(method, *arguments)

    def stop_if_grown(self, body: bytes, charge: ReleaseCharge, done: tuple[int, int] | None) -> None:
        """Stop before sending what every neighbour would refuse. The release is charged, because stopping depends on
        it."""
        size = float(np.abs(np.frombuffer(body, dtype="<f8")).max())
        if not size <= self.rules.largest:
            self.journal.commit(charges=(charge,), done=done, facts={"diverged": 1})
            raise PrivacyError(DIVERGED)

    async def send_now(self) -> None:
        """Wake the outbox, and return when it has started to send, so that the work left here does not delay a
        message."""
        for event in self._outgoing.values():
            event.set()
        await under_way()

    def noted(self, kind: str, seq: int, sender: str | None, receiver: int | None, seconds: float) -> None:
        to = None if receiver is None else self.names[receiver]
        self._last = (seq, sender, to, time.monotonic())
        self.metrics.hops.labels(kind=kind).inc()
        self.metrics.hop_seconds.observe(seconds)
        self.metrics.last_baton_seq.set(seq)
        if kind == "activation":
            self.metrics.activations.inc()
            self._show_spending()
        self.log.info(kind, seq=seq, sender=sender, receiver=to, seconds=round(seconds, 6))

    def _show_spending(self) -> None:
        spent = self.journal.spent
        self.metrics.rho_spent.set(spent)
        self.metrics.rho_limit.set(self.journal.limit_rho)
        self.metrics.epsilon_spent.set(self.public_plan.epsilon_at(spent))

    # -- the ending

    def has_ending(self) -> bool:
        """Whether every part of the final model is here and on its way to the neighbours."""
        parts = 1 if self.rules.relay else self.parties
        return len(self.endings()) == parts and self.journal.waiting(ENDING) is None

    def endings(self) -> dict[int, Message]:
        return {seq: message for (seq, _), message in self.journal.received(ENDING).items()}

    async def forward_ending(self) -> bool:
        """Send a part of the ending that was received to the other neighbours; False if there is none."""
        found = self.journal.waiting(ENDING)
        if found is None:
            return False
        sender, part = found
        own = sender == self.name  # committed together with its messages
        known = self.journal.holders(part)
        to = [] if own else [j for j in self.neighbours if self.names[j] not in known and j not in self.lost]
        self.journal.commit(done=(ENDING, part.seq), send=[(self.names[j], part) for j in to])
        await self.send_now()
        return True

    async def _conclude(self) -> None:
        parts, journal = self.endings(), self.journal
        ending = JournalSummary(
            folder=journal.folder,
            made=parts[0].made,
            releases=tuple((row.seq, row.sensitivity, row.scale) for row in journal.ledger()),
            activations=journal.activations,
            epoch=journal.epoch,
            lost=tuple(sorted(self._lost_names())),
            transcript=journal.transcript(),
        )
        self.journal.checkpoint(END_BEFORE)
        self.model_sha256 = await self.ask("finish", [parts[k].body for k in sorted(parts)], ending)
        self.journal.checkpoint(END_AFTER)
        self.state = "finished"
        self.log.info("finished", model_sha256=self.model_sha256, activations=self.journal.activations)

    # -- start and end

    async def run(self) -> None:
        """Serve until every party has the model. Raises RelayError if an operator has to act."""
        loop = asyncio.get_running_loop()
        self._fatal = loop.create_future()
        loop.set_exception_handler(self._unhandled)
        tasks: list[asyncio.Task[Any]] = []
        try:
            await self.service.open()
            self.log.info("serving", address=self.service.listen, resumed=not self.journal.is_fresh)
            tasks.append(asyncio.create_task(self.service.keep_serving()))
            self._show_spending()
            for j in self.neighbours:
                credentials = tls.channel_credentials(self.identity, self.public_plan.certificates[j])
                self.peers[j] = Peer(self.names[j], self.public_plan.addresses[j], credentials, self.rules.most_bytes)
                self._outgoing[j] = asyncio.Event()
                sending = deliver(self.peers[j], self.journal, self._outgoing[j], self.log, self.metrics)
                tasks.append(asyncio.create_task(sending))
            tasks.append(asyncio.create_task(self._greet_all()))
            work = asyncio.create_task(self._work())
            tasks.append(work)
            await self._until(work, tasks)
        finally:
            self.state = self.state if self.state == "finished" else "stopped"
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.serving = False
            await self.service.close()
            await asyncio.gather(*(peer.channel.close() for peer in self.peers.values()))
            self.log.info("stopped", unacknowledged=len(self.journal.undelivered()))

    def fail(self, error: Exception) -> None:
        """End the run, whatever it is doing."""
        if self._fatal is not None and not self._fatal.done():
            self._fatal.set_exception(error)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error in the background is logged by its class: a traceback could quote private values."""
        self.log.failed("unhandled", context.get("exception") or RuntimeError())

    async def _until(self, work: asyncio.Task[Any], tasks: list[asyncio.Task[Any]]) -> None:
        """Wait for the work's end; a failure of any other task, or a broken journal, ends it too."""
        assert self._fatal is not None
        waiting: set[asyncio.Future[Any]] = {*tasks, self._fatal}
        while not work.done():
            finished, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in finished:
                each.result()
        work.result()

    async def _work(self) -> None:
        if self.journal.get("diverged"):
            raise PrivacyError(DIVERGED)
        await self._introduce()
        self.state = "running"
        self.serving = True
        await self.role.start()
        await self.role.run()
        await self._conclude()
        while any(receiver not in self._lost_names() for receiver, _ in self.journal.undelivered()):
            await asyncio.sleep(0.05)
        await asyncio.sleep(self.linger)  # a neighbour whose acknowledgement was lost sends again

    def _lost_names(self) -> set[str]:
        return {self.names[j] for j in self.lost}

    async def _introduce(self) -> None:
        """Before anything is released, ask the neighbours what they received from us.

        With a new journal all of them have to answer: an older journal might have been lost.
        """
        todo, known = [j for j in self.neighbours if j not in self.lost], self.journal.get("introduced")
        while todo:
            missing = []
            for j in todo:
                try:
                    await self.greet(j)
                except Unreachable as error:
                    missing.append(j)
                    self.log.info("waiting-for", peer=self.names[j], reason=str(error))
            if known:
                return
            todo = missing
            await asyncio.sleep(0.3 if todo else 0.0)
        self.journal.commit(facts={"introduced": 1})

    async def _greet_all(self) -> None:
        while True:
            for j, peer in self.peers.items():
                if peer.seen is None or time.monotonic() - peer.seen > GREETING_SECONDS:
                    try:
                        await self.greet(j)
                    except Unreachable:
                        pass  # shown as down
                self.metrics.peer_up.labels(peer=peer.name).set(peer.up)
            await asyncio.sleep(GREETING_SECONDS)

    async def greet(self, j: int) -> pb.Standing:
        """Ask a neighbour for its state, and compare it with our journal."""
        standing = await self.peers[j].greet(self.public_plan.identity, self.journal.epoch)
        name = self.names[j]
        for box, has, seq, digest in (
            ("outbox", standing.has_accepted, standing.accepted_seq, standing.accepted_hash),
            ("inbox", standing.has_sent, standing.sent_seq, standing.sent_hash),
        ):
            if has and not (seq < MOST_SEQ and self.journal.knows(box, name, seq, digest)):
                way = "received from us" if box == "outbox" else "sent us"
                raise PrivacyError(
                    f"{name} {way} message {seq}, and it is not in this journal: the journal was replaced by an older "
                    f"copy, or another agent runs with the key of {self.name}. Nothing more is released. Restore the "
                    "newest journal."
                )
        return standing

    # -- what an operator sees

    def status(self) -> dict[str, Any]:
        now, journal = time.monotonic(), self.journal
        seq, sender, to, when = self._last or (0, None, None, 0.0)
        spent = journal.spent
        return {
            "party": self.name,
            "consortium": self.public_plan.name,
            "identity": self.public_plan.identity.hex(),
            "state": "holding the baton" if self.state == "running" and journal.waiting(BATON) else self.state,
            "algorithm": self.public_plan.algorithm,
            "epoch": journal.epoch,
            "hops_seen": journal.get("commits"),
            "last_baton": None
            if self._last is None
            else {"seq": seq, "from": sender, "to": to, "seconds_ago": round(now - when, 1)},
            "activations": [journal.activations, self.public_plan.pace.activations],
            "rho": [spent, journal.limit_rho],
            "epsilon": [self.public_plan.epsilon_at(spent), self.public_plan.epsilon_at(journal.limit_rho)],
            "delta": self.public_plan.delta,
            "private": self.public_plan.private,
            "peers": [
                {
                    "name": peer.name,
                    "address": peer.address,
                    "up": peer.up,
                    "last_seen_seconds_ago": None if peer.seen is None else round(now - peer.seen, 1),
                }
                for peer in self.peers.values()
            ],
            "unacknowledged": len(journal.undelivered()),
            "model_sha256": self.model_sha256,
            "uptime_seconds": round(now - self._began, 1),
        }
