"""Throw mutated and random bytes at a running agent, with a neighbour's own certificate, for as long as wanted.

    python tests/fuzz_agent.py --seconds 600

The agent holds a baton and waits for a neighbour that is not there. Whatever comes meanwhile, it must not die, log a
traceback, grow, or change its journal; then the neighbour is started, and the run must end right.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
from consortium_lab import STUCK, faults, make_lab, rows_of, start, wait_all, wait_for
from hostile_peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RELAY,
    SETTINGS,
    Wire,
    channel,
    frame,
    lines,
    memory,
    prefixed,
    request,
    tls_context,
)

from relaydp.network.messages import relay_pb2 as pb
from relaydp.network.messages.wire import BATON, ENDING, KINDS, Message, parse

GROWTH = 64 * 2**20  # bytes that the agent's memory may grow by, however long it takes
WHOLE = (0, 1, 2, 3, 4, 2**7, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1)
RAW_SHARE = 0.05  # of what is sent goes below gRPC, as HTTP/2 with wrong bytes


def random_bytes(chance: random.Random, most: int) -> bytes:
    return chance.randbytes(chance.randrange(most))


def mutated(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """A few random changes, each of a random kind."""
    for _ in range(chance.choice((1, 1, 1, 2, 5, 20))):
        data = _changed(data, chance, others)
    return data


def _changed(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    at, to = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
    over = at + chance.choice((0, 1, 8))  # what is put in comes before, or in place of, so many bytes
    match chance.randrange(7):
        case 0:
            return data[:at] + bytes(each ^ 1 << chance.randrange(8) for each in data[at : at + 1]) + data[at + 1 :]
        case 1:
            return data[:at] + data[to:]
        case 2:
            return data[:to] + data[at:to] * chance.choice((1, 2)) + data[to:]
        case 3:
            return data[:at] + random_bytes(chance, 30) + data[over:]
        case 4:
            return data[:at] + b"\xff" * chance.randrange(12) + data[over:]
        case 5:
            return data[:at] + chance.choice(others) + data[over:]
        case _:
            odd = chance.choice((float("nan"), float("inf"), -1e300, 5e-324, -0.0))
            return data[:at] + struct.pack("<d", odd) + data[over:]


def altered(message: Message, chance: random.Random) -> bytes:
    """A message with fields of other values, well written."""
    small = functools.partial(chance.choice, [value for value in WHOLE if value < 2**32])
    values: dict[str, Callable[[], Any]] = {
        "consortium": lambda: chance.choice((b"", bytes(32), random_bytes(chance, 64))),
        "epoch": small,
        "kind": small,
        "seq": lambda: chance.choice((*WHOLE, chance.randrange(20))),
        "made": lambda: tuple(chance.choice((0, 1, 2, 3, small())) for _ in range(chance.choice((0, 3, 4, 4, 4, 5)))),
        "idle": lambda: chance.choice(WHOLE),
        "previous": lambda: random_bytes(chance, 64),
        "body": lambda: mutated(message.body, chance, [b""]),
    }
    chosen = chance.sample(list(values), chance.choice((1, 1, 1, 2, 3)))
    return replace(message, **{name: values[name]() for name in chosen}).to_bytes()


class Fuzzer:
    """Sends to one agent as its neighbour. `seen` counts what came back."""

    def __init__(self, held: Message, calls: grpc.Channel, port: int, home: Path, chance: random.Random) -> None:
        self.held, self.chance, self.seen = held, chance, Counter()
        self._greet, self._pass = (calls.unary_unary(f"{RELAY}/{name}") for name in ("Greet", "Pass"))
        self._port, self._context = port, tls_context(home)
        kinds = [replace(held, kind=kind) for kind in KINDS]
        ending = replace(held, kind=ENDING, seq=0, made=(3,) * len(held.made))
        greeting = pb.Greeting(consortium=held.consortium, epoch=held.epoch).SerializeToString()
        self._models = [held, ending, *kinds]
        self._seeds = [greeting, *(message.to_bytes() for message in self._models)]

    def content(self) -> bytes:
        chance = self.chance
        if chance.random() < 0.1:
            return random_bytes(chance, 2000)
        if chance.random() < 0.5:
            return altered(chance.choice(self._models), chance)
        return mutated(chance.choice(self._seeds), chance, self._seeds)

    def shoot(self) -> None:
        """One call, or one connection with spoilt frames."""
        if self.chance.random() < RAW_SHARE:
            return self._spoil()
        data = self.content()
        method = self.chance.choice((self._greet, self._pass))
        try:
            answer = method(data, timeout=STUCK)
        except grpc.RpcError as error:
            self.seen[error.code().name] += 1
            return
        self.seen["OK"] += 1
        if method is self._pass:
            receipt = pb.Receipt.FromString(answer)
            assert receipt.again and receipt.hash == self.held.hash(), f"it took {data.hex()} for good"

    def _spoil(self) -> None:
        method = self.chance.choice((f"{RELAY}/Greet", f"{RELAY}/Pass", "/grpc.health.v1.Health/Check", "/"))
        frames = [
            PREFACE + frame(SETTINGS, 0, 0),
            frame(HEADERS, END_HEADERS, 1, request(method)),
            frame(DATA, END_STREAM, 1, prefixed(self.content()[:16_000])),
        ]
        at = self.chance.randrange(len(frames))
        frames[at] = mutated(frames[at], self.chance, frames)
        try:
            with closing(Wire(self._port, None, self._context, begin=False)) as wire:
                wire.send(b"".join(frames))
                wire.look(0.02)
            self.seen["spoilt frames"] += 1
        except OSError:  # the agent is opening its oracle anew
            self.seen["no connection"] += 1
            time.sleep(0.02)


def fuzz(folder: Path, seed: int, seconds: float = math.inf, shots: float = math.inf) -> dict[str, Any]:
    """What was sent, for so long or so often, and what came of it; `faults` is empty if all is well."""
    lab = make_lab(folder, 4)
    log = folder / "p1.log"
    running = {party: start(lab.settings(party), folder / f"p{party}.log") for party in (0, 1, 3)}
    try:
        wait_for(lambda: any(line["event"] == "accepted" for line in lines(log)))
        held = parse(rows_of(lab, 1, "SELECT message FROM inbox WHERE done=0")[0][0])
        assert held.kind == BATON
        pid, address = running[1].pid, lab.consortium.parties[1].address
        before, memory_before, until = journal_of(lab), memory(pid), time.monotonic() + seconds
        with closing(channel(lab.homes[0], lab.homes[1], address, "p1")) as calls:
            fuzzer = Fuzzer(held, calls, int(address.split(":")[1]), lab.homes[0], random.Random(seed))
            while time.monotonic() < until and fuzzer.seen.total() < shots and running[1].is_alive():
                fuzzer.shoot()
        found = [] if running[1].is_alive() else [f"the agent died with exit code {running[1].exitcode}"]
        growth = memory(pid) - memory_before if not found else 0
        found += [f"its memory grew by {growth} bytes"] if growth > GROWTH else []
        found += ["its journal changed"] if journal_of(lab) != before else []
        running[2] = start(lab.settings(2), folder / "p2.log")
        codes = wait_all(list(running.values()))
        found += [f"exit codes {codes}"] if any(codes) else faults(lab)
        found += odd_lines(log)
    finally:
        wait_all(list(running.values()), 0)
    return {"seed": seed, "sent": dict(fuzzer.seen), "growth": growth, "faults": found}


def journal_of(lab: Any) -> list[list[tuple]]:
    return [rows_of(lab, 1, f"SELECT * FROM {table}") for table in ("meta", "inbox", "outbox", "ledger")]


def odd_lines(log: Path) -> list[str]:
    """Lines of a log that an agent should never write: tracebacks, and what is no event."""
    found = []
    with log.open() as file:
        for line in file:
            if "Traceback" in line or not line.startswith('{"time"'):
                found.append(f"in the log: {line[:200]}")
    return found[:10]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        report = fuzz(Path(folder), seed, seconds=given.seconds)
    print(json.dumps(report, indent=2))
    return 1 if report["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
