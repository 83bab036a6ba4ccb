"""A relay at one party: receive the baton, act, ask a neighbour, commit, send it on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from relaydp.network.messages.journal import ASKED, DRAWN
from relaydp.network.messages.outbox import Unreachable, under_way
from relaydp.network.messages.wire import BATON, ENDING, Message, Refusal

if TYPE_CHECKING:
    from relaydp.network.operations.agent import Agent

FRESH_SECONDS = 5.0  # an older answer, such as one given while this agent was starting, may be out of date
ALL_DOWN_WAIT = 0.2  # seconds before a holder asks its neighbours again when none of them answered


class Relaying:
    """What an agent does with batons. All lasting state is in the journal; this object may be lost at any time."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.pace, self.way = agent, agent.public_plan.pace, agent.public_plan.way
        self._asking: tuple[bytes, float, asyncio.Task[int]] | None = None  # for which baton, since when

    @property
    def made(self) -> int:
        """How many activations count as made; a rerouted release may have cost some of the later ones."""
        return int(self.agent.journal.get("made", 0))

    # -- incoming messages

    def admit(self, message: Message) -> None:
        """Refuse a checked baton or ending that contradicts this journal."""
        agent = self.agent
        if message.made[agent.party] != self.made:
            raise Refusal(
                "counts",
                f"it says that {agent.name} has acted {message.made[agent.party]} times, and its journal says "
                f"{self.made}. The message is forged, or the journal was replaced by an older copy.",
            )
        seen = json.loads(agent.journal.get("seen", "[]")) or [0] * agent.parties
        if any(now < before for now, before in zip(message.made, seen, strict=True)):
            raise Refusal("counts", "a party has a smaller count of activations than in an earlier message.")
        holding = agent.journal.waiting(BATON) is not None
        if message.kind == ENDING:
            if holding or not self.pace.ended(message.made, message.idle, agent.lost):
                raise Refusal(
                    "early-ending",
                    "activations are left and no party has been idle, so the run has not ended.",
                )
            return
        self._check_pace(message)
        if agent.endings():
            raise Refusal("ended", "the ending was received before; there is no baton any more.")
        if message.seq <= agent.journal.highest:
            raise Refusal("behind", f"seq {message.seq} came after {agent.journal.highest}.")
        if holding:
            raise Refusal("second-baton", "this agent holds a baton already, and there is only one.")

    def _check_pace(self, baton: Message) -> None:
        """A relay ends after `patience` hops without an activation, so there are at most so many before each
        activation."""
        most = self.pace.patience
        if baton.idle > most or baton.seq > sum(baton.made) * (most + 1) + baton.idle:
            raise Refusal("counts", f"the baton claims more than {most} successive hops without an activation.")

    async def look_ahead(self, sender: str, message: Message) -> None:
        """Ask for a baton's next holder early: the answer comes while the disk writes the baton itself."""
        if message.kind != BATON:
            return
        self._ask_next(sender, message)
        try:
            await under_way()
        except BaseException:  # the caller has gone, and with it its baton
            self._stop_asking()
            raise

    def _ask_next(self, sender: str, baton: Message) -> asyncio.Task[int]:
        """Ask for a baton's next holder; a recent question about the same baton is not repeated."""
        now = time.monotonic()
        if self._asking is None or self._asking[0] != baton.hash() or now - self._asking[1] > FRESH_SECONDS:
            self._stop_asking()
            self._asking = baton.hash(), now, asyncio.create_task(self._find_receiver(sender, baton))
        return self._asking[2]

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._asking[2].cancel()  # this has no effect on a task that is done
            self._asking = None

    # -- processing

    async def start(self) -> None:
        """The first holder makes the baton, once per consortium."""
        agent = self.agent
        if agent.party != agent.public_plan.start or agent.journal.get("started"):
            return
        first = agent.message(BATON, 0, await agent.ask("first_baton"), made=(0,) * agent.parties)
        agent.journal.commit(take=[(agent.name, first)], facts={"started": 1})
        agent.log.info("baton-made", seq=0)

    async def run(self) -> None:
        """Process every baton that comes, until the ending is known."""
        agent = self.agent
        try:
            while not agent.has_ending():
                agent.arrived.clear()
                held = agent.journal.waiting(BATON)
                if held is not None:
                    await self._hold(*held)
                elif not await agent.forward_ending():
                    await agent.arrived.wait()
        finally:
            self._stop_asking()

    async def _hold(self, sender: str, baton: Message) -> None:
        agent, journal, hop = self.agent, self.agent.journal, baton.seq
        began = time.perf_counter()
        made = list(baton.made)
        charge, acts = None, self.pace.acts(hop, made[agent.party])
        if acts:
            charge = agent.charge_for(seq=hop, activation=made[agent.party])
            if not journal.affords(charge):  # a rerouted release has used the budget planned for this one
                charge, acts, made[agent.party] = None, False, self.pace.activations
        made[agent.party] += acts
        idle = 0 if acts else baton.idle + 1
        ends = self.pace.ended(tuple(made), idle, agent.lost)
        body = baton.body
        facts: dict[str, Any] = {"made": made[agent.party], "seen": json.dumps(made)}
        async with self._working(acts, journal.get("rows"), body, hop, baton.made[agent.party]) as work:
            receiver = None if ends else await self._ask_next(sender, baton)
            self._stop_asking()
            journal.checkpoint(ASKED)
            if work is not None:
                assert charge is not None
                facts["rows"], body = await work
                agent.stop_if_grown(body, charge, (BATON, hop))
        journal.checkpoint(DRAWN)
        kind, seq = (ENDING, 0) if ends else (BATON, hop + 1)
        message = agent.message(kind, seq, body, made=tuple(made), idle=idle, previous=baton.hash())
        to = agent.neighbours if receiver is None else [receiver]
        journal.commit(
            done=(BATON, hop),
            charges=() if charge is None else (charge,),
            send=[(agent.names[j], message) for j in to],
            take=[(agent.name, message)] if ends else [],
            facts=facts,
        )
        await agent.send_now()
        agent.noted("activation" if acts else "relay", hop, sender, receiver, time.perf_counter() - began)

    @asynccontextmanager
    async def _working(self, acts: bool, *arguments: Any) -> AsyncIterator[asyncio.Task[Any] | None]:
        """The activation, computed while the next holder is asked. Its result stays in memory until both are done: one
        commit charges it and stores it for sending, and a crash before that loses it without a trace."""
        if not acts:
            yield None
            return
        work = asyncio.create_task(self.agent.ask("relay", *arguments))
        try:
            yield work
        finally:
            work.cancel()  # where asking failed; this has no effect on a task that is done

    async def _find_receiver(self, sender: str, baton: Message) -> int:
        """Ask the walk's choice, then the others; no message is committed to a neighbour that has not answered
        recently."""
        agent, hop = self.agent, baton.seq
        came_from = agent.names.index(sender) if hop else -1
        if pause := self.pace.pause(baton.idle):
            await asyncio.sleep(pause)
        while True:
            for j in await self._choices(hop, came_from, baton.made):
                try:
                    standing = await agent.greet(j)
                except Unreachable as error:
                    agent.log.warning("skipped", peer=agent.names[j], seq=hop, reason=str(error))
                    continue
                if standing.ready:
                    return j
                agent.log.warning("skipped", peer=agent.names[j], seq=hop, reason=standing.why)
            await asyncio.sleep(ALL_DOWN_WAIT)

    async def _choices(self, hop: int, came_from: int, made: tuple[int, ...]) -> list[int]:
        agent = self.agent
        if self.way.lap is None:
            return await agent.ask("choices", hop, came_from, made, agent.lost)
        return self.way.choices(*self.way.on_lap(hop, came_from), came_from, made, agent.lost)
