"""One agent of a cluster, and all of them as Ray actors.

An `Agent` is a `LocalParty` (the simulator's own step at one party) with the simulator's noise for the run's seed. It
runs where its records are, and no other process has them. Its calls are pure: an answer depends only on the arguments
and on records that do not change. So a call may be repeated, by Ray or by us, in this process or in a new one, and we
ask Ray to restart lost agents without limit (`max_restarts`) and to repeat their calls (`max_task_retries`). For actors
with state, repeating a call would be wrong: the new actor has lost the state, or counts twice, and there are two
batons.

Whoever knows the seed knows the noise. Inside one organisation they have the records anyway.
Between organisations agents run `relaydp.network`, which draws from the operating system and keeps a journal.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from relaydp.algorithm import ALGORITHMS
from relaydp.cluster.partitions import Part, PartReport, fingerprint, read_part
from relaydp.cluster.relay import HUGE, Lost
from relaydp.data import Records
from relaydp.errors import InputError, PrivacyError, RelayError, choose, short
from relaydp.graph import Graph
from relaydp.oracle.randomness import NOISE, key_for
from relaydp.party.noise import Seeded
from relaydp.party.party import Draw, Keyed, LocalParty
from relaydp.planning.run_plan import Plan
from relaydp.problem import Problem, ProblemSpec
from relaydp.problem.curvature import MANY_AGENTS, longest_curvatures
from relaydp.problem.kernels import dispatch
from relaydp.problem.loss import LinearLoss

RETRIES = 8  # restarts of a process per call; one that needs too much memory fails each time
ONE_THREAD = 2**17  # values: `problem.kernels.gradient` keeps fewer records in one part, which one thread sums
PLACES = ("resources", "labels")
Placement = Mapping[Any, Mapping[str, Any]]


@dataclass(frozen=True)
class PartySetup:
    """What every agent receives once the run is planned: public, and the same for all."""

    plan: Plan  # without its route, which can be long and is needed by the loop only
    graph: Graph
    seed: int
    raw: str  # number type of all agents' features, as read
    kept: str  # and as kept
    fingerprints: tuple[str, ...]


class Agent:
    """One agent: its records, read when first needed. `setup` comes in a list of one, so that Ray passes the reference
    on; only a process without a `LocalParty` reads the value."""

    def __init__(self, part: Part, task: ProblemSpec, key: str) -> None:
        self.part, self.task, self.key = part, task, key
        self._raw: str | None = None
        self._print = ""
        self._problem: Problem | None = None
        self._local: LocalParty | None = None

    def about(self, raw: str | None = None) -> PartReport:
        """What is public about the records; with their features as `raw` if other agents have other number types."""
        problem = self._own(raw)
        kept, data = str(problem.agent_records.X.dtype), problem.data
        return PartReport(len(data), data.features, str(data.X.dtype), kept, self._print)

    def curvature(self, raw: str, agents: int) -> float:
        """L_i, measured on the records: for runs without a guarantee."""
        problem = self._own(raw)
        if agents <= MANY_AGENTS or not isinstance(problem.loss, LinearLoss):
            return float(problem.measured_facts().smoothness[0])
        # as one process would for so many: from the longest record
        return float(problem.with_ridge(longest_curvatures(problem.agent_records))[0])

    def act(
        self, setup: list[Any], rows: bytes, baton: np.ndarray | None, hop: int, activation: int
    ) -> tuple[bytes, np.ndarray]:
        """One activation of a relay: the agent's new rows, and the baton to pass on."""
        local = self._local_party(setup)
        came = local.first_baton() if baton is None else baton
        return local.relay(rows or local.begin(), came, hop, activation)

    def turn(
        self,
        setup: list[Any],
        number: int,
        speaks: bool,
        rows: bytes,
        released: np.ndarray | None,
        heard: tuple[int, ...],
        *messages: np.ndarray,
    ) -> tuple[bytes, np.ndarray, np.ndarray | None]:
        """Receive the messages of the round before, then send in this one: new rows, g~ and a message; at the end rows
        and share.

        Values that grow without bound become NaN, and the next check stops the run.
        """
        local = self._local_party(setup)
        mine = rows or local.begin()
        gone = np.full((1, local.dim), np.nan)
        if released is not None and heard:
            if not all(np.isfinite(each).all() for each in (released, *messages)):
                return mine, gone[0], gone
            mine = local.listen(mine, number - 1, number - 1, released, dict(zip(heard, messages, strict=True)))
        if not speaks:
            return mine, local.share(mine), None
        released, message = local.speak(mine, number, number)
        return mine, released, message if np.abs(message).max() <= HUGE else gone

    def _own(self, raw: str | None) -> Problem:
        """The problem over this agent's records alone."""
        if self._problem is None or (raw is not None and raw != self._raw):
            records = read_part(self.part, self.task, _fetch, self._look)
            self._print = fingerprint(records, self.key)
            if raw is not None and str(records.X.dtype) != raw:
                records = replace(records, X=records.X.astype(raw))
            self._raw = str(records.X.dtype)
            self._problem = self.task.build_as_agreed(records, [len(records)])
        return self._problem

    def _look(self, records: Records) -> None:
        """Check what was read before JAX uses it."""

    def _local_party(self, setup: list[Any]) -> LocalParty:
        if self._local is None:
            told = setup[0] if isinstance(setup[0], PartySetup) else _fetch(setup[0])
            problem, party = self._own(told.raw), self.part.agent
            if self._print != told.fingerprints[party]:
                raise PrivacyError(
                    f"{self.part} has other records than when the run began. The same noise on both would reveal them, "
                    "so nothing was computed. Restore the old ones, or start a new run with another seed."
                )
            here = problem.agent_records
            if str(here.X.dtype) != told.kept:  # other agents have a wider type: then all sums are rounded alike
                problem = problem.with_agent_records(replace(here, X=here.X.astype(jnp.dtype(told.kept))))
                self._problem = problem  # and the narrow copy is not kept beside it
            # an unpickled algorithm equals no other, and compiled code is found by the one defined here
            method = ALGORITHMS.get(told.plan.algorithm.name, told.plan.algorithm)
            self._local = LocalParty(
                replace(told.plan, algorithm=method), told.graph, party, problem, _noise(told, party)
            )
        return self._local


class AgentProcess(Agent):
    """An agent with its own process. Its steps are short and sequential: more threads would cost more than they save,
    unless there are many records.

    fused   whether `problem.kernels.gradient` reads the records, which gives the same bits on any number of threads
    """

    def __init__(self, part: Part, task: ProblemSpec, key: str, fused: bool) -> None:
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        super().__init__(part, task, key)
        self.fused = fused

    def _look(self, records: Records) -> None:
        if self.fused and len(records) * records.features < ONE_THREAD:
            os.environ.setdefault("NPROC", "1")  # XLA's threads; read when JAX first computes, which it has not yet


def _noise(told: PartySetup, party: int) -> Draw | Keyed | None:
    """The simulator's noise for the run's seed; None if the plan has no guarantee."""
    if told.plan.mechanism is None:
        return None
    if told.plan.algorithm.kind == "rounds":
        return Seeded(told.seed).row(party, told.graph.agents)
    return Keyed(key_for(told.seed, NOISE))


def _fetch(reference: Any) -> Any:
    import ray

    return ray.get(reference, timeout=600)


# -- all agents


class RayAgents:
    """Agents as Ray actors, one each. Every wait ends with an answer, or with an error that names the call.

    patience    seconds that one answer may take, including the start of a process and the reading of its records
    """

    def __init__(
        self,
        ray: Any,
        parts: Sequence[Part],
        task: ProblemSpec,
        key: str,
        *,
        relays: bool = False,
        placement: Placement | None = None,
        gpus_per_agent: float = 0.0,
        patience: float = 600.0,
    ) -> None:
        self.ray, self.parts, self.patience = ray, parts, patience
        places = _places(placement, parts)
        check_travels(ray, task)
        kind = ray.remote(max_restarts=-1, max_task_retries=RETRIES)(AgentProcess)
        one_pass = relays and task.loss in dispatch.SLOPES
        self._agents = []
        for part in parts:
            options: dict[str, Any] = {"num_gpus": gpus_per_agent} if gpus_per_agent else {}
            options |= places.get(part.agent, {"scheduling_strategy": "SPREAD"})
            self._agents.append(kind.options(**options).remote(part, task, key, one_pass))

    def send(self, agent: int, method: str, *arguments: Any, returns: int = 1) -> Any:
        call = getattr(self._agents[agent], method)
        return call.options(num_returns=returns).remote(*arguments) if returns > 1 else call.remote(*arguments)

    async def ask(self, agent: int, method: str, *arguments: Any) -> Any:
        part = self.parts[agent]
        for _ in range(RETRIES + 1):
            try:
                return await self._answer(self.send(agent, method, *arguments), part, method)
            except Lost:  # lost with a node; the call is pure, so it is repeated
                continue
        raise InputError(
            f"{part}: its input or its answer was lost {RETRIES + 1} times ({method}). An object reference is valid as "
            "long as the node and the process that made it exist: look with `ray status`, or keep the records in a "
            "file."
        )

    async def ask_all(self, method: str, *arguments: Any) -> list[Any]:
        """Call all agents at once."""
        return await asyncio.gather(*(self.ask(part.agent, method, *arguments) for part in self.parts))

    async def pull(self, references: list[Any], what: str) -> list[Any]:
        count = len(self.parts)
        waits = [self._answer(each, self.parts[k % count], what) for k, each in enumerate(references)]
        return await asyncio.gather(*waits)

    def put(self, value: Any) -> Any:
        return self.ray.put(value)

    def close(self) -> None:
        for agent in self._agents:
            self.ray.kill(agent)

    async def _answer(self, reference: Any, part: Part, what: str) -> Any:
        """Wait for one answer. An exception of Ray becomes one sentence about the agent."""
        errors = self.ray.exceptions
        try:
            return await asyncio.wait_for(reference.as_future(), self.patience)
        except TimeoutError:
            raise InputError(
                f"{part} has not answered for {self.patience:g} s ({what}); its process may still be starting, or no "
                "node has what its placement asks for. Look with `ray status`, or allow more time with patience=."
            ) from None
        except errors.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, BaseException) else error
            if isinstance(cause, RelayError):
                raise cause from None
            if isinstance(cause, errors.RayError):
                raise Lost(str(part)) from None  # an argument was lost on its way
            if isinstance(cause, MemoryError):
                raise InputError(f"{part} ran out of memory ({what}). Give it a node with more memory.") from None
            # its text may quote records; the full text is in the log of the agent's process
            raise RelayError(
                f"{part} failed with {type(cause).__name__} ({what}); its log on the node says more."
            ) from None
        except (errors.RayActorError, errors.OutOfMemoryError) as error:
            if getattr(error, "actor_init_failed", False):  # an agent's own start cannot fail
                last = str(error).strip().splitlines()[-1].strip()
                raise InputError(
                    f"{part} could not be started on its node ({short(last)}). The node must have the same packages as "
                    "this process, and the module that defines the loss."
                ) from None
            raise InputError(
                f"the process of {part} died {RETRIES + 1} times in one call ({what}), most likely because it ran out "
                "of memory. Give it a node with more memory (placement=), or split its records between two agents."
            ) from None
        except (errors.ObjectLostError, errors.RayError) as error:
            raise Lost(type(error).__name__) from None


def check_travels(ray: Any, task: ProblemSpec) -> None:
    try:
        ray.cloudpickle.dumps(task)
    except Exception as error:  # broad, because pickling fails in many ways
        raise InputError(
            f"the loss {task.name!r} cannot be sent to the agents ({type(error).__name__}: {short(str(error))}); the "
            "function must not hold an open file, a lock or a device. Move what it uses into a module that all nodes "
            "have."
        ) from None


def _places(placement: Placement | None, parts: Sequence[Part]) -> dict[int, dict[str, Any]]:
    """Ray's options for agents that are placed by hand, by number or by name."""
    numbers = {part.name: part.agent for part in parts} | {str(part.agent): part.agent for part in parts}
    made = {}
    for who, place in (placement or {}).items():
        agent = numbers[choose("agent in placement", str(who), numbers)]
        if not isinstance(place, Mapping) or not place:
            raise InputError(
                f"placement of {who!r} is {short(place)}; it must be {{'resources': {{name: amount}}}} or {{'labels': "
                "{name: value}}, as the nodes were started with."
            )
        for name in place:
            choose(f"way to place {who!r}", name, PLACES)
        named = {"resources": "resources", "labels": "label_selector"}
        made[agent] = {named[name]: dict(value) for name, value in place.items()}
    return made
