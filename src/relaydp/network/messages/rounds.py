"""Synchronous rounds at one party: send to all neighbours, receive from all, continue.

A round's messages are computed and committed (with the charge and the released gradient, which is public) before a byte
is sent; the round is finished from the neighbours' messages. Finishing one round and computing the next one's messages
is one transaction.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from relaydp.network.messages.journal import ASKED, DRAWN
from relaydp.network.messages.wire import ENDING, ROUND, Message, Refusal

if TYPE_CHECKING:
    from relaydp.network.operations.agent import Agent


class InRounds:
    """What an agent does in rounds. All lasting state is in the journal."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    @property
    def number(self) -> int:
        """The round whose messages are committed and that is not finished; -1 before the first."""
        return int(self.agent.journal.get("round", -1))

    def admit(self, message: Message) -> None:
        """A neighbour can be at most one round ahead: it needs this party's message to continue. Each further link adds
        at most one round, so no party's part of the ending is made long before this party's own."""
        agent = self.agent
        if message.kind == ROUND:
            if not self.number <= message.seq <= self.number + 1:
                raise Refusal(
                    "seq",
                    f"a message of round {message.seq} came in round {self.number}; no neighbour can be that far.",
                )
            return
        planned = agent.public_plan.pace.activations
        if message.seq == agent.party or any(count != planned for count in message.made):
            raise Refusal(
                "counts",
                "this is a part of the ending that only this party makes, or rounds are still to be made.",
            )
        ahead = 1 if message.seq in agent.neighbours else agent.parties - 1
        if self.number + ahead < planned:
            raise Refusal("early-ending", f"a part of the ending came in round {self.number} of {planned}.")

    async def look_ahead(self, sender: str, message: Message) -> None:
        """Nothing to ask: a round goes to all neighbours."""

    async def start(self) -> None:
        """Rounds need no baton: every party starts by itself."""

    async def run(self) -> None:
        agent = self.agent
        if self.number < 0:
            await self._advance(None)
        while not agent.has_ending():
            agent.arrived.clear()
            heard = self._heard()
            if heard is not None:
                await self._advance(heard)
            elif not await agent.forward_ending():
                await agent.arrived.wait()

    def _heard(self) -> dict[int, bytes] | None:
        """All neighbours' messages of this round; None while one is missing."""
        agent = self.agent
        if self.number >= agent.public_plan.pace.activations:
            return None
        got = agent.journal.received(ROUND, self.number)
        bodies = {agent.names.index(who): message.body for (_, who), message in got.items()}
        return bodies if bodies.keys() == set(agent.neighbours) else None

    async def _advance(self, heard: dict[int, bytes] | None) -> None:
        """Finish the round whose messages have come, and send the next one's or share the result."""
        agent, journal, before = self.agent, self.agent.journal, self.number
        began = time.perf_counter()
        rows, done = journal.get("rows"), None
        if heard is not None:
            rows = await agent.ask("listen", rows, before, journal.get("released"), heard)
            done = (ROUND, before)
        journal.checkpoint(ASKED)
        number = before + 1
        facts: dict[str, Any] = {"round": number, "rows": rows}
        if number < agent.public_plan.pace.activations:
            charge = agent.charge_for(seq=number, activation=number)
            facts["released"], body = await agent.ask("speak", rows, number)
            agent.stop_if_grown(body, charge, done)
            journal.checkpoint(DRAWN)
            message = agent.message(ROUND, number, body)
            charges, take = (charge,), []
        else:
            counts = (agent.public_plan.pace.activations,) * agent.parties
            message = agent.message(ENDING, agent.party, await agent.ask("share", rows), made=counts)
            charges, take, facts["released"] = (), [(agent.name, message)], b""
        journal.commit(
            done=done,
            charges=charges,
            send=[(agent.names[j], message) for j in agent.neighbours],
            take=take,
            facts=facts,
        )
        await agent.send_now()
        agent.noted("activation" if charges else "relay", number, None, None, time.perf_counter() - began)
