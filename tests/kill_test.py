"""Kill agents with SIGKILL, hundreds of times, and look at what is left: `python tests/kill_test.py --kills 500`.

Eight real processes with real certificates carry a run out; a supervisor starts whoever was killed again, as a service
manager would, until all have ended. Agents die

    at a point       of themselves, at the n-th passing of one of the journal's numbered points (`journal.POINTS`)
    at random times  from outside: one, two at once, one that is just starting, all at once

Afterwards all books are laid side by side (`consortium_lab.faults`), with what each process really gave to the network:
nothing lost, nothing charged twice, no release with two contents, one model, a ledger that `relaydp ledger verify`
upholds. Half of the runs draw their noise from a seed: there the model must be the simulator's for the route that was
really taken, bit for bit. The others draw real noise, so that whatever is drawn twice differs.

`--isolated` runs each agent as the two processes that it is in earnest, and kills the half with the records as well.
`--unsafe` runs agents that send before they commit. The checker must find faults then, or it is worth nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
from consortium_lab import BATON, ROUND, SEED, Lab, faults, make_lab, models, run_agent, start, taken_route

KILLS_A_RUN = 50
ACTIVATIONS = 12
OUTSIDE = {"one": 0.55, "two at once": 0.15, "just starting": 0.25, "all at once": 0.05}  # and how often
OTHER_HALF = "the half with the records"  # of an agent that is two processes
STALL_SECONDS = 120.0  # without a commit, a start or an end anywhere
CALL_BACK_SECONDS = 2.0


# -- inside an agent's process


@dataclass(frozen=True)
class Blow:
    """What an agent is started with: to die at the n-th passing of a point, or to drag its feet until it is killed."""

    point: str | None = None
    nth: int = 1
    drag: float = 0.0  # seconds at most, at every point: without it there is next to nothing between two commits to hit

    def __call__(self) -> Callable[[str], None]:
        passed = 0

        def checkpoint(point: str) -> None:
            nonlocal passed
            time.sleep(self.drag * random.random())
            passed += point == self.point
            if point == self.point and passed == self.nth:
                os.kill(os.getpid(), signal.SIGKILL)

        return checkpoint


def run_watched(settings: Any, log: str, hook: Any = None) -> None:
    """An agent whose every message is noted at the moment at which it is handed to the network."""
    from relaydp.network.messages.outbox import Peer
    from relaydp.party import party

    multiprocessing.current_process()._config["daemon"] = False  # it may have a child: the half with the records
    party.on_network = lambda algorithm: None  # whether it can run on a network: to find out takes half of a start
    wire = os.open(Path(log).with_suffix(".wire"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    pass_on = Peer.pass_on

    async def noted(self: Any, message: Any) -> None:
        place = (message.epoch, message.kind, message.seq, self.name, message.hash().hex())
        os.write(wire, (json.dumps(place) + "\n").encode())  # the kernel has it, whatever becomes of this process
        await pass_on(self, message)

    Peer.pass_on = noted
    run_agent(settings, log, hook)


def run_unsafe(settings: Any, log: str, hook: Any = None) -> None:
    """An agent that sends before it commits, and does not ask its neighbours what they had from it."""
    from relaydp.network.operations.agent import Agent

    async def ask_nothing(self: Any, j: int) -> Any:
        return await self.peers[j].greet(self.public_plan.identity, self.journal.epoch)

    Agent.greet = ask_nothing
    run_early(settings, log, hook)


def run_early(settings: Any, log: str, hook: Any = None) -> None:
    """An agent that sends before it commits; its neighbours' memory is all that is left to stop it."""
    from relaydp.network.messages.outbox import Unreachable
    from relaydp.network.messages.relaying import Relaying
    from relaydp.network.messages.rounds import InRounds

    async def insist(peer: Any, message: Any) -> None:
        """What was never taken in cannot be told from what comes later, so a slow neighbour is waited for."""
        while True:
            try:
                return await peer.pass_on(message)
            except Unreachable:
                if peer.up:  # it refuses
                    return
            await asyncio.sleep(0.05)

    def sending_first(act: Callable[..., Any]) -> Callable[..., Any]:
        async def unsafe(self: Any, *given: Any) -> None:
            agent, journal = self.agent, self.agent.journal
            agent.journal = late = Late(journal)
            try:
                await act(self, *given)
            finally:
                agent.journal = journal
            for receiver, message in late.kept["send"]:
                await insist(agent.peers[agent.names.index(receiver)], message)
            journal.commit(**late.kept)
            agent.send_now()

        return unsafe

    Relaying._hold = sending_first(Relaying._hold)
    InRounds._advance = sending_first(InRounds._advance)
    run_watched(settings, log, hook)


class Late:
    """A journal that keeps a commit back."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self.kept: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def commit(self, **step: Any) -> None:
        self.kept = step


# -- whom to kill, when


class Fixed:
    """Each agent's first starts get the blows that are named for it, and nobody is killed from outside."""

    def __init__(self, blows: dict[int, list[Blow]]) -> None:
        self._left = {i: list(mine) for i, mine in blows.items()}

    def blow(self, agent: int, kills: int) -> Blow | None:
        return self._left[agent].pop(0) if self._left.get(agent) else None

    def strike(self, kills: int) -> str | None:
        return None


class Chance:
    """Any point and any time, until there were `most` kills."""

    def __init__(
        self,
        chance: random.Random,
        most: int,
        points: tuple[str, ...],
        every: float = 2.5,
        ways: dict[str, float] = OUTSIDE,
    ) -> None:
        self._chance, self._most, self._points, self._every, self._ways = chance, most, points, every, ways
        self._next = time.monotonic() + chance.expovariate(1 / every)

    def blow(self, agent: int, kills: int) -> Blow | None:
        if kills >= self._most:
            return None
        if self._chance.random() < 0.25:
            return Blow(drag=0.03)
        # the last two come up only if nothing else kills the agent before the end
        return Blow(self._chance.choice((*self._points, *self._points[-2:])), 1 + int(self._chance.expovariate(0.7)))

    def strike(self, kills: int) -> str | None:
        if kills >= self._most or time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + self._chance.expovariate(1 / self._every)
        return self._chance.choices(list(self._ways), list(self._ways.values()))[0]


# -- a run under it


@dataclass
class Run:
    """One run of a lab's consortium, to its end or to a fault."""

    lab: Lab
    kills_by: Fixed | Chance
    chance: random.Random
    seed: int | None = SEED  # None: real noise
    body: Callable[..., None] = run_watched
    isolated: bool = False  # two processes an agent, as it is in earnest; a start takes seconds then
    linger: float = 3.0  # more than the longest wait between two tries at a neighbour
    stall: float = STALL_SECONDS
    deadline: float = 600.0
    until: Callable[[Lab], Any] = lambda lab: False  # stop early: what the run is for has happened
    show: Callable[[Run, str], None] = lambda run, what: None
    kills: Counter[str] = field(default_factory=Counter)
    called_back: int = 0
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._running: dict[int, Any] = {}
        self._started: dict[int, float] = {}
        self._cause: dict[int, str] = {}
        self._halved: set[int] = set()  # processes whose other half was killed
        self._began = self._moved = time.monotonic()
        self._marks: tuple[bytes, ...] = ()

    def go(self) -> Run:
        """Run it, and put down in `faults` what is wrong afterwards."""
        try:
            for i in range(len(self.lab.homes)):
                self._start(i)
            while self._running and not self.faults and not self.until(self.lab):
                wait([process.sentinel for process in self._running.values()], timeout=0.02)
                self._collect()
                self._strike()
                self._watch()
        finally:
            for process in self._running.values():
                if process.exitcode is None:
                    os.kill(process.pid, signal.SIGKILL)
                process.join()
        self.faults += check(self.lab, self.seed)
        return self

    def _start(self, i: int, linger: float | None = None) -> None:
        blow = self.kills_by.blow(i, self.kills.total())
        settings = self.lab.settings(i, seed=self.seed, linger=linger or self.linger, isolated=self.isolated)
        self._running[i] = start(settings, self.lab.folder / f"p{i}.log", blow, self.body)
        self._started[i] = self._moved = time.monotonic()
        self._cause[i] = "" if blow is None or blow.point is None else blow.point

    def _collect(self) -> None:
        """Start again whoever was killed; any other end but a good one is a fault."""
        for i, process in list(self._running.items()):
            if process.exitcode is None:
                continue
            del self._running[i]
            self._moved = time.monotonic()
            if process.exitcode == -signal.SIGKILL and self._cause[i]:
                self.kills[self._cause[i]] += 1
                self.show(self, self._cause[i])
                self._start(i)
            elif process.exitcode:
                self.faults.append(f"p{i} ended with code {process.exitcode}: {_last_line(self._log(i))}")

    def _strike(self) -> None:
        how = self.kills_by.strike(self.kills.total())
        alive = [i for i, process in self._running.items() if process.exitcode is None]
        if how is None or not alive:
            return
        if how == OTHER_HALF:
            self._strike_other_half(self.chance.choice(alive))
            return
        if how == "just starting":
            chosen = [max(alive, key=self._started.__getitem__)]
        else:
            count = {"one": 1, "two at once": 2}.get(how, len(alive))
            chosen = self.chance.sample(alive, min(count, len(alive)))
        for i in chosen:
            self._cause[i] = how
            os.kill(self._running[i].pid, signal.SIGKILL)

    def _strike_other_half(self, i: int) -> None:
        """Kill the process that has the records: its agent lives on, and starts another, once."""
        pid = self._running[i].pid
        serving = str(pid).encode() in _bytes(self.lab.journal(i) / "running.json")
        for child in _bytes(Path(f"/proc/{pid}/task/{pid}/children")).split():
            is_half = b"spawn_main" in _bytes(Path(f"/proc/{int(child)}/cmdline"))
            if is_half and serving and pid not in self._halved:
                self._halved.add(pid)
                os.kill(int(child), signal.SIGKILL)
                self.kills[OTHER_HALF] += 1
                self.show(self, OTHER_HALF)

    def _watch(self) -> None:
        """Notice when nothing moves any more."""
        now, marks = time.monotonic(), tuple(_bytes(path) for home in self.lab.homes for path in home.glob("*.mark"))
        if marks != self._marks:
            self._marks, self._moved = marks, now
        ended = [i for i in range(len(self.lab.homes)) if i not in self._running]
        if now - self._moved > CALL_BACK_SECONDS and ended:
            # Somebody died before it noted its neighbour's last acknowledgement, and the neighbour has gone since.
            # An operator would start that one again.
            for i in {i for j in self._running for i in self._waits_for(j)} & set(ended):
                self.called_back += 1
                self._start(i, linger=3 * self.linger)
        if now - self._moved > self.stall or now - self._began > self.deadline:
            left = ", ".join(f"p{i} ({_last_line(self._log(i))})" for i in sorted(self._running))
            self.faults.append(f"no end after {now - self._began:.0f} s, still at it: {left}")

    def _waits_for(self, party: int) -> list[int]:
        """Whom a party has something for that was not acknowledged."""
        path = self.lab.journal(party) / "journal.db"
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                rows = db.execute("SELECT DISTINCT receiver FROM outbox WHERE acknowledged=0").fetchall()
        except sqlite3.Error:  # not there yet
            return []
        return [int(receiver[1:]) for (receiver,) in rows]

    def _log(self, i: int) -> Path:
        return self.lab.folder / f"p{i}.log"


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return lines[-1][-200:] if lines else "no log"


def _bytes(path: Path) -> bytes:
    """Empty where nothing is (any more)."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


# -- what is true afterwards


def check(lab: Lab, seed: int | None) -> list[str]:
    """Everything that can be wrong with a run."""
    found = [*wire_faults(lab), *faults(lab)]
    if any(not (lab.journal(i) / "result").is_dir() for i in range(len(lab.homes))):
        return found  # said already; the rest needs results
    found += [text for i in range(len(lab.homes)) for text in verify_faults(lab.journal(i) / "result")]
    if seed is not None and not found and not same_as_simulated(lab, seed):
        found.append("the model is not the simulator's")
    return found


def wire_faults(lab: Lab) -> list[str]:
    """Over all that was handed to the network, acknowledged or not: one content each, and one receiver of a baton."""
    contents: dict[tuple[Any, ...], set[str]] = {}
    receivers: dict[tuple[int, int], set[str]] = {}
    for path in sorted(lab.folder.glob("p*.wire")):
        for line in path.read_text().splitlines():
            epoch, kind, seq, receiver, digest = json.loads(line)
            contents.setdefault((epoch, kind, seq, path.stem if kind == ROUND else ""), set()).add(digest)
            if kind == BATON:
                receivers.setdefault((epoch, seq), set()).add(receiver)
    found = [f"seq {key[2]} was shown with {len(seen)} contents" for key, seen in contents.items() if len(seen) > 1]
    return found + [f"baton {seq} was shown to {sorted(who)}" for (_, seq), who in receivers.items() if len(who) > 1]


def verify_faults(result: Path) -> list[str]:
    """What `relaydp ledger verify` has to say against a result folder."""
    from typer.testing import CliRunner

    from relaydp.cli.ledger import app

    said = CliRunner().invoke(app, ["verify", str(result), "--json"])
    return [] if said.exit_code == 0 else [f"ledger verify: {said.output.strip().splitlines()[-1]}"]


def same_as_simulated(lab: Lab, seed: int) -> bool:
    """Whether all models are the simulator's for the route that was really taken, bit for bit."""
    from relaydp.graph import Route
    from relaydp.network.consortium.file import read_own_records
    from relaydp.network.messages.next_hop import route_of
    from relaydp.network.operations.rehearsal import simulated

    agreed = lab.consortium
    everyone = [read_own_records(agreed, table) for table in lab.tables]
    route = None if agreed.walk is None else Route(*route_of(taken_route(lab), len(lab.homes)))
    expected = simulated(agreed, everyone, seed, route)
    return all(np.array_equal(x, expected) for x in models(lab))


# -- many runs


def copy_lab(template: Lab, folder: Path) -> Lab:
    """The same agreement and keys, nothing run yet: drawing a plan up takes longer than a run."""
    shutil.copytree(template.folder, folder)
    moved = [
        [folder / path.relative_to(template.folder) for path in paths] for paths in (template.homes, template.tables)
    ]
    return Lab(folder, folder / template.file.name, *moved)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--algorithm", choices=("recal", "nids"), default="recal")
    parser.add_argument("--seed", type=int, default=0, help="of whom to kill and when; chance has its part still")
    parser.add_argument("--unsafe", action="store_true", help="agents send before they commit: faults must be found")
    parser.add_argument("--isolated", action="store_true", help="the records in processes of their own (slow)")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kill-test-", ignore_cleanup_errors=True) as folder:
        return Campaign(asked, Path(folder)).go()


class Campaign:
    """Runs until there were enough kills; what the terminal shows of it."""

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        from rich.console import Console

        self.asked, self.folder = asked, folder
        self.ways = {**OUTSIDE, OTHER_HALF: 0.5} if asked.isolated else OUTSIDE
        self.console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
        self.kills: Counter[str] = Counter()
        self.faults: list[str] = []
        self.runs = self.called_back = 0
        self.began = time.monotonic()

    def go(self) -> int:
        try:
            self._run_all()
            stopped = False
        except KeyboardInterrupt:
            stopped = True
        self._sum_up(stopped)
        return 1 if self.faults else 130 if stopped else 0

    def _run_all(self) -> None:
        from relaydp.network.messages.journal import POINTS

        asked = self.asked
        chance = random.Random(asked.seed)
        shapes = [("ring", "cyclic"), ("complete", "random")] if asked.algorithm == "recal" else [("ring", "cyclic")]
        given = dict(algorithm=asked.algorithm, activations=ACTIVATIONS)
        labs = []
        for graph, walk in shapes:
            place = self.folder / graph
            place.mkdir()
            labs.append(make_lab(place, asked.agents, graph=graph, walk=walk, **given))
        self.console.print(
            f"{asked.agents} agents, {asked.algorithm}, {ACTIVATIONS} activations each, in {self.folder}"
        )
        self.began = time.monotonic()
        while self.kills.total() < asked.kills:
            left = min(KILLS_A_RUN, asked.kills - self.kills.total())
            template = labs[self.runs % len(labs)]
            lab = copy_lab(template, template.folder.with_name(f"{template.folder.name}-{self.runs + 1}"))
            seed = None if asked.unsafe or self.runs // len(labs) % 2 else SEED
            run = Run(
                lab,
                Chance(chance, left, POINTS, every=12.0 if asked.isolated else 2.5, ways=self.ways),
                chance,
                seed=seed,
                isolated=asked.isolated,
                body=run_unsafe if asked.unsafe else run_watched,
                stall=120.0 if asked.isolated else STALL_SECONDS,
                until=wire_faults if asked.unsafe else lambda lab: False,
                show=self._show,
            )
            try:
                run.go()
                self._count(run)
            except KeyboardInterrupt:
                self._count(run, "interrupted, not checked")
                raise
            shutil.rmtree(lab.folder, ignore_errors=True)

    def _count(self, run: Run, state: str = "whole") -> None:
        self.runs += 1
        self.kills += run.kills
        self.called_back += run.called_back
        self.faults += run.faults
        noise = "real noise" if run.seed is None else f"noise of seed {run.seed}"
        name = f"run {self.runs} ({run.lab.folder.name}, {noise})"
        state = f"{len(run.faults)} faults" if run.faults else state
        self.console.print(f"{name}: {run.kills.total()} kills, {state}; {self._pace()}")
        for text in run.faults[:10]:
            self.console.print(f"  {text}", style="red")
        if run.faults and not self.asked.unsafe:
            kept = shutil.copytree(run.lab.folder, Path(tempfile.mkdtemp(prefix="kill-test-kept-")) / "run")
            self.console.print(f"  its journals and logs are in {kept}")

    def _pace(self, more: int = 0) -> str:
        kills, seconds = self.kills.total() + more, time.monotonic() - self.began
        left = max(0, self.asked.kills - kills) * seconds / max(1, kills)
        return f"{kills} of {self.asked.kills}, {60 * kills / seconds:.0f} a minute, {left / 60:.1f} min left"

    def _show(self, run: Run, what: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{self._pace(run.kills.total())}  {what}", end="\r", file=sys.stderr, flush=True)

    def _sum_up(self, stopped: bool) -> None:
        from rich.table import Table

        from relaydp.network.messages.journal import POINTS

        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("killed")
        table.add_column("times", justify="right")
        for what in (*POINTS, *self.ways):
            table.add_row(what, str(self.kills[what]))
        self.console.print(table)
        seconds = time.monotonic() - self.began
        self.console.print(
            f"{self.kills.total()} kills in {self.runs} runs, {seconds / 60:.1f} min, "
            f"{60 * self.kills.total() / max(seconds, 1e-9):.0f} a minute, {self.called_back} called back"
            f"{', interrupted' if stopped else ''}: {len(self.faults)} faults"
        )


if __name__ == "__main__":
    sys.exit(main())
