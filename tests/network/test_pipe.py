"""Between the agent's two processes, and what a holder asks ahead: no answer for another question, none left over."""

import asyncio
import os
import signal
import time
from types import SimpleNamespace

import pytest

from relaydp.errors import InputError, RelayError
from relaydp.network.messages import relaying as relaying_module
from relaydp.network.messages.relaying import Relaying
from relaydp.network.messages.wire import BATON, Message
from relaydp.network.records import pipe
from relaydp.network.records.pipe import RecordsPipe
from relaydp.network.records.public_plan import Pace, Way


def answer_when_told(settings, pipe):
    """A stand-in for the process with the records: it answers a question that names a file when that file is there,
    and says by another that it has the question."""
    pipe.send((True, "public_plan"))
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return
        if method == "die":
            os._exit(1)
        for go in arguments:
            go.with_suffix(".asked").touch()
            stuck = time.monotonic() + 300
            while not go.exists() and time.monotonic() < stuck:
                time.sleep(0.01)
        pipe.send((False, InputError("no such thing")) if method == "wrong" else (True, (method, os.getpid())))


@pytest.fixture
def records(monkeypatch):
    monkeypatch.setattr(pipe, "_launch", answer_when_told)
    made = RecordsPipe(None)
    yield made
    made.close()


async def there(path):
    while not path.exists():
        await asyncio.sleep(0.01)


def test_questions_are_answered_one_after_the_other_and_the_loop_goes_on(records, tmp_path):
    """No question is answered before the loop, which waits for all of them, has gone on and allowed it."""

    async def main():
        async def allow():
            for name in "abc":
                await there(tmp_path / f"{name}.asked")
                (tmp_path / name).touch()

        *answers, _ = await asyncio.gather(*(records.ask(name, tmp_path / name) for name in "abc"), allow())
        return [name for name, _ in answers]

    assert asyncio.run(main()) == ["a", "b", "c"]


def test_a_question_that_nobody_waits_for_any_more_does_not_answer_the_next(records, tmp_path):
    async def main():
        go = tmp_path / "go"
        first = asyncio.create_task(records.ask("first", go))
        await there(tmp_path / "go.asked")
        first.cancel()
        second = asyncio.create_task(records.ask("second"))
        await asyncio.sleep(0)  # it has begun
        go.touch()
        return (await second)[0]

    assert asyncio.run(main()) == "second"


def test_errors_come_through_and_the_pipe_stays_open(records):
    async def main():
        with pytest.raises(InputError, match="no such thing"):
            await records.ask("wrong")
        return (await records.ask("right"))[0]

    assert asyncio.run(main()) == "right"


def test_a_process_that_was_killed_is_started_again_and_one_that_dies_each_time_is_not(records):
    async def main():
        _, before = await records.ask("first")
        os.kill(before, signal.SIGKILL)
        _, after = await records.ask("second")
        with pytest.raises(RelayError, match="ended twice while it worked on 'die'"):
            await records.ask("die")
        return before, after

    before, after = asyncio.run(main())
    assert before != after


# -- asking ahead


class Neighbourhood:
    """As much of an agent as asking takes: party 0 of a ring of three, whose neighbours answer when told to."""

    def __init__(self):
        pace, way = Pace(3, 5, 10), Way(0, 3, (1, 2), (0, 1, 2))
        self.public_plan, self.names, self.lost = SimpleNamespace(pace=pace, way=way), ("a", "b", "c"), frozenset()
        self.asked, self.answer = [], asyncio.Event()

    async def greet(self, j):
        self.asked.append(j)
        await self.answer.wait()
        return SimpleNamespace(ready=True)


def baton(seq, value=b"x"):
    return Message(bytes(32), 0, BATON, seq, (1, 1, 1), 0, b"", value * 8)


def test_the_next_holder_is_asked_once_and_the_answer_is_for_that_baton(monkeypatch):
    monkeypatch.setattr(relaying_module, "FRESH_SECONDS", float("inf"))

    async def main():
        agent = Neighbourhood()
        relaying = Relaying(agent)
        await relaying.look_ahead("c", baton(3))
        assert agent.asked == [1]  # before anything is on the disk
        agent.answer.set()
        assert await relaying._ask_next("c", baton(3)) == 1
        assert agent.asked == [1]
        first = relaying._ask_next("c", baton(3))
        other = relaying._ask_next("c", baton(3, b"y"))
        assert other is not first and await other == 1 and agent.asked == [1, 1]

    asyncio.run(main())


def test_an_old_answer_is_asked_for_again(monkeypatch):
    """An agent that was long in starting must not commit the baton to a neighbour that answered before."""

    async def main():
        agent = Neighbourhood()
        agent.answer.set()
        relaying = Relaying(agent)
        await relaying._ask_next("c", baton(3))
        monkeypatch.setattr(relaying_module, "FRESH_SECONDS", -1.0)
        await relaying._ask_next("c", baton(3))
        assert agent.asked == [1, 1]

    asyncio.run(main())


def test_a_caller_that_goes_away_takes_its_question_along():
    async def main():
        agent = Neighbourhood()
        relaying = Relaying(agent)
        call = asyncio.create_task(relaying.look_ahead("c", baton(3)))
        await asyncio.sleep(0)  # it has begun
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        agent.answer.set()
        assert relaying._asking is None
        for _ in range(10):  # turns of the loop, for what was cancelled to end
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
