"""The process of an agent that has the records: it checks the agreement, computes, adds the noise, and writes the
result.

It communicates only with the agent's other process, over a pipe (`pipe`), and its answers are public or released: the
public plan, noisy gradients and what is computed from them.
"""

from __future__ import annotations

import math
import signal
from typing import Any

import numpy as np

from relaydp.engine.loop import GROWTH
from relaydp.errors import InputError, RelayError
from relaydp.network.consortium.file import Consortium, local_problem, plan_of, read_consortium, read_own_records
from relaydp.network.consortium.identity import Identity, read_identity
from relaydp.network.consortium.limits import check_limit
from relaydp.network.messages.next_hop import NextHop
from relaydp.network.messages.wire import pack, unpack
from relaydp.network.records.final_result import write_result
from relaydp.network.records.public_plan import JournalSummary, Pace, PublicPlan, Settings
from relaydp.party.noise import Sampler, Seeded
from relaydp.party.party import LocalParty
from relaydp.privacy.accountant import epsilon_exact
from relaydp.privacy.ledger import TOLERANCE


class RecordsProcess:
    """Made from a party's settings; every method takes and returns plain values and bytes."""

    def __init__(self, settings: Settings) -> None:
        identity = read_identity(settings.home)
        self.consortium = consortium = read_consortium(settings.consortium)
        if consortium.plan is None:
            raise InputError(f"{settings.consortium} has no plan yet; run `relaydp consortium plan` and agree on it.")
        self.party = party = _party_in(consortium, identity, settings)
        self.plan = plan = plan_of(consortium)
        rhos = (plan.sensitivity[party] ** 2 / (2.0 * plan.scales[:, party] ** 2)).tolist()
        check_limit(
            settings.home,
            consortium.identity,
            math.fsum(rhos),
            settings.max_delta,
            settings.max_epsilon,
            consortium.parties[party].records,
        )
        problem = local_problem(consortium, party, read_own_records(consortium, settings.data))
        if settings.seed is None:
            self.draw = Sampler()
        else:
            seeded, relay = Seeded(settings.seed), plan.algorithm.kind == "relay"
            self.draw = seeded if relay else seeded.row(party, len(consortium.parties))
        self.local = LocalParty(plan, consortium.graph, party, problem, self.draw)
        self.next_hop = None
        if consortium.walk is not None:
            self.next_hop = NextHop(
                consortium.graph,
                consortium.walk,
                consortium.walk_seed,
                consortium.start,
                plan.activations,
                consortium.patience,
            )
        self.public_plan = self._make_public_plan(rhos)

    def _make_public_plan(self, rhos: list[float]) -> PublicPlan:
        consortium, plan, party = self.consortium, self.plan, self.party
        l2 = consortium.problem.l2
        sums = [math.fsum(rhos[: k + 1]) for k in range(len(rhos))]
        return PublicPlan(
            name=consortium.name,
            identity=consortium.identity,
            epsilon=consortium.epsilon,
            delta=consortium.delta,
            party=party,
            names=tuple(each.name for each in consortium.parties),
            addresses=tuple(each.address for each in consortium.parties),
            certificates=tuple(each.certificate for each in consortium.parties),
            fingerprints=tuple(each.fingerprint for each in consortium.parties),
            neighbours=tuple(consortium.graph.neighbours(party).tolist()),
            algorithm=plan.algorithm.name,
            relay=plan.algorithm.kind == "relay",
            vectors=self.local.vectors,
            dim=self.local.dim,
            largest=GROWTH * (math.sqrt(2.0 / l2) if l2 > 0 else 1e3),
            start=consortium.start,
            pace=Pace(1, plan.activations, 0) if self.next_hop is None else self.next_hop.pace,
            lap=None if self.next_hop is None else self.next_hop.lap,
            scales=tuple(plan.scales[:, party].tolist()),
            sensitivity=float(plan.sensitivity[party]),
            limit_rho=sums[-1],
            tolerance=TOLERANCE,
            spending=((0.0, 0.0), *((rho, epsilon_exact(rho, consortium.delta)) for rho in sums)),
            private=self.draw.private,
        )

    def choices(self, hop: int, came_from: int, made: tuple[int, ...], lost: frozenset[int]) -> list[int]:
        """The parties that the baton may go to from here, the walk's own choice first."""
        assert self.next_hop is not None
        return self.next_hop.choices(hop, self.party, came_from, made, lost)

    def first_baton(self) -> bytes:
        return pack(self.local.first_baton())

    def relay(self, rows: bytes | None, baton: bytes, hop: int, activation: int) -> tuple[bytes, bytes]:
        """One activation: the party's new rows, and the new baton."""
        vectors = unpack(baton, self.local.vectors)
        new_rows, sent = self.local.relay(rows or self.local.begin(), vectors, hop, activation)
        return new_rows, pack(sent)

    def speak(self, rows: bytes | None, number: int) -> tuple[bytes, bytes]:
        """A round's first half: the released gradient, and the message to all neighbours."""
        released, message = self.local.speak(rows or self.local.begin(), number, number)
        return pack(released), pack(message)

    def listen(self, rows: bytes | None, number: int, released: bytes, heard: dict[int, bytes]) -> bytes:
        """A round's second half: the party's new rows."""
        messages = {j: unpack(body, self.local.vectors) for j, body in heard.items()}
        return self.local.listen(rows or self.local.begin(), number, number, unpack(released, 1)[0], messages)

    def share(self, rows: bytes) -> bytes:
        return pack(self.local.share(rows))

    def finish(self, parts: list[bytes], ending: JournalSummary) -> str:
        """Assemble the model from the parts of the ending, write the result folder, and return the model's hash."""
        relay = self.public_plan.relay
        body = unpack(parts[0], self.local.vectors) if relay else np.concatenate([unpack(part, 1) for part in parts])
        return write_result(self.consortium, self.plan, self.party, self.draw, self.local.answer(body), ending)


def _party_in(consortium: Consortium, identity: Identity, settings: Settings) -> int:
    for i, party in enumerate(consortium.parties):
        if party.fingerprint == identity.fingerprint:
            return i
    names = ", ".join(party.name for party in consortium.parties)
    raise InputError(
        f"the certificate in {settings.home} ({identity.fingerprint[:23]}...) does not belong to this consortium "
        f"({names}). Use the home folder whose certificate was agreed on."
    )


def work(settings: Settings, pipe: Any) -> None:
    """The main loop of the process with the records: answer one question at a time until the other process closes the
    pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the other process, which then ends this one
    try:
        process = RecordsProcess(settings)
        pipe.send((True, process.public_plan))
    except Exception as error:
        pipe.send((False, _told(error)))
        return
    while True:
        try:
            if not pipe.poll(settings.rest):
                return  # idle for long: free the memory
            method, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = (True, getattr(process, method)(*arguments))
        except Exception as error:
            answer = (False, _told(error))
        pipe.send(answer)


def _told(error: Exception) -> Exception:
    """An error as the other process may see it: a text that was not written for users can quote private values."""
    if isinstance(error, RelayError):
        return error
    return RelayError(f"the process with the records failed ({type(error).__name__}); nothing was released.")
