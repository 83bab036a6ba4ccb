"""Killed agents lose nothing and spend nothing twice; and the checker that says so can fail.

The short form of `kill_test.py`: every numbered point of the journal once, a few random times, real processes.
"""

import itertools
import json
import os
import random
import sqlite3
from collections import Counter
from contextlib import closing

import numpy as np
import pytest
from consortium_lab import SEED, faults, make_lab, rows_of
from kill_test import (
    Blow,
    Chance,
    Fixed,
    Run,
    check,
    copy_lab,
    run_early,
    run_unsafe,
    wire_faults,
)

from relaydp.network.consortium.limits import promised
from relaydp.network.messages.journal import (
    ACCEPT_AFTER,
    ACCEPT_BEFORE,
    ASKED,
    COMMIT_AFTER,
    COMMIT_INSIDE,
    DRAWN,
    END_AFTER,
    END_BEFORE,
    NOTED,
    POINTS,
    SENT,
    Journal,
    JournalError,
)
from relaydp.network.messages.wire import ENDING, Message, pack

PARTIES = 4
# Each start of an agent gets the next of these; together they are all points, those of the end last.
EVERY_POINT = {
    0: [DRAWN, SENT, END_BEFORE],
    1: [ACCEPT_BEFORE, COMMIT_INSIDE, END_AFTER],
    2: [ACCEPT_AFTER, COMMIT_AFTER],
    3: [ASKED, NOTED],
}
SHAPES = {
    "ring": dict(graph="ring", walk="cyclic"),
    "complete": dict(graph="complete", walk="random"),
    "rounds": dict(graph="ring", algorithm="nids"),
}


def killed(lab, kills_by, **given):
    return Run(lab, kills_by, random.Random(0), linger=1.0, **given).go()


def blows():
    return Fixed({i: [Blow(point) for point in points] for i, points in EVERY_POINT.items()})


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A consortium of each shape, drawn up when first asked for and never run itself."""
    made = {}

    def get(shape):
        if shape not in made:
            made[shape] = make_lab(tmp_path_factory.mktemp(shape), PARTIES, **SHAPES[shape])
        return made[shape]

    return get


@pytest.fixture
def lab(template, tmp_path):
    copies = itertools.count()
    return lambda shape: copy_lab(template(shape), tmp_path / f"{shape}{next(copies)}")


@pytest.fixture(scope="module")
def good(template, tmp_path_factory):
    """What a run on a ring left behind in which every point was hit once."""
    return killed(copy_lab(template("ring"), tmp_path_factory.mktemp("good") / "ring"), blows())


@pytest.fixture(scope="module")
def good_rounds(template, tmp_path_factory):
    return killed(copy_lab(template("rounds"), tmp_path_factory.mktemp("good") / "rounds"), blows())


# -- nothing is lost


@pytest.mark.parametrize("run", ["good", "good_rounds"])
def test_a_kill_at_every_point_changes_nothing(run, request):
    """The noise is seeded here, so that the model has to be the simulator's, bit for bit."""
    run = request.getfixturevalue(run)
    assert run.faults == []
    assert run.kills == Counter(POINTS)


def test_kills_at_random_times_of_a_random_walk_change_nothing(lab):
    """The noise is real here: had anything been drawn twice, there would be two contents of it."""
    kills, chance = 0, random.Random(5)
    while kills < 8:  # a run may be over before
        run = killed(lab("complete"), Chance(chance, 8, POINTS, every=0.5), seed=None)
        assert run.faults == []
        kills += run.kills.total()


def cut_short(*paths):
    raise OSError("this is where it ends")


def test_a_start_that_was_cut_short_can_be_made_again(tmp_path, monkeypatch):
    """A journal comes into being at once, tables and all: half of one would stop its party for good."""
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", cut_short)
        with pytest.raises(JournalError):
            Journal(tmp_path / "id", bytes(32), "north", 1.0)
    assert promised(tmp_path) == {}
    Journal(tmp_path / "id", bytes(32), "north", 1.0).close()
    assert promised(tmp_path) == {"id": 1.0}


def test_whoever_brings_the_ending_need_not_be_told_of_it(tmp_path):
    """It may be gone by the time at which a killed agent is back: it left when its own message was acknowledged."""
    journal = Journal(tmp_path / "id", bytes(32), "north", 1.0)
    ending = Message(bytes(32), 0, ENDING, 0, (0, 0, 0), 0, b"", pack(np.ones(4)))
    journal.accept("south", ending)
    assert not journal.accept("west", ending)  # before it was passed on
    assert journal.holders(ending) == {"south", "west"}
    journal.commit(done=(ENDING, 0), send=[("east", ending)])
    assert not journal.accept("east", ending)  # and after
    assert journal.undelivered() == []
    assert [who for _, who in journal.received(ENDING)] == ["south"]
    journal.close()


# -- the checker can fail


@pytest.mark.parametrize("shape", ["complete", "rounds"])
def test_an_agent_that_sends_before_it_commits_is_found_out(lab, shape):
    """It dies inside its second commit (the first one notes that it met its neighbours), its message gone out."""
    run = killed(lab(shape), Fixed({1: [Blow(COMMIT_INSIDE, 2)]}), seed=None, body=run_unsafe, until=found_out)
    assert any("was shown with 2 contents" in text for text in run.faults)
    assert any(text.endswith("has 2 contents") for text in run.faults)


def test_neighbours_remember_what_an_agent_forgot(lab):
    """The same without a commit before the sending, but asking: it stops before it draws a second time."""
    run = killed(lab("ring"), Fixed({1: [Blow(COMMIT_INSIDE, 2)]}), seed=None, body=run_early)
    assert run.faults[0].startswith("p1 ended with code 2") and "older" in run.faults[0]
    assert wire_faults(run.lab) == []


def found_out(lab):
    return wire_faults(lab) and any(text.endswith("has 2 contents") for text in faults(lab))


def change(lab, party, *statements):
    with closing(sqlite3.connect(lab.journal(party) / "journal.db")) as db, db:
        for statement in statements:
            assert db.execute(statement).rowcount > 0, f"it changes nothing, so it shows nothing: {statement}"


def rewrite(lab, party, name, alter):
    path = lab.journal(party) / "result" / name
    content = json.loads(path.read_text())
    alter(content)
    path.write_text(json.dumps(content))


def first(lab, party):
    """The first hop at which a party acted."""
    return rows_of(lab, party, "SELECT MIN(seq) FROM ledger")[0][0]


def twice(lab):
    change(
        lab, 1, "INSERT INTO ledger SELECT 99, epoch, 99, reason, sensitivity, scale, rho, chain FROM ledger LIMIT 1"
    )


def forgotten(lab):
    change(lab, 1, f"DELETE FROM ledger WHERE seq={first(lab, 1)}")


def cheap(lab):
    change(lab, 1, f"UPDATE ledger SET rho=rho/2 WHERE seq={first(lab, 1)}")


def other_content(lab):
    change(lab, 1, f"UPDATE outbox SET hash=zeroblob(32) WHERE kind<3 AND seq={first(lab, 1) + 1}")


def second_receiver(lab):
    row = "epoch, kind, seq, 'p3', hash, message, 1"
    change(lab, 1, f"INSERT INTO outbox SELECT {row} FROM outbox WHERE kind=1 AND receiver<>'p3' LIMIT 1")


def never_sent(lab):
    change(lab, 1, f"DELETE FROM outbox WHERE kind=1 AND seq={first(lab, 1) + 1}")


def never_taken(lab):
    change(lab, 1, f"DELETE FROM inbox WHERE kind=1 AND seq={first(lab, 1)}")


def undone(lab):
    # a baton: of the ending p1 may have nothing to send, where both its neighbours brought it first
    change(lab, 1, f"UPDATE outbox SET acknowledged=0 WHERE kind=1 AND seq={first(lab, 1) + 1}")


def private_state(lab):
    rows = np.frombuffer(rows_of(lab, 1, "SELECT value FROM meta WHERE key='rows'")[0][0], "<f8") + 1e-6
    change(lab, 1, f"UPDATE meta SET value=x'{rows.tobytes().hex()}' WHERE key='rows'")


def no_result(lab):
    (lab.journal(1) / "result" / "certificate.json").unlink()


def certified_less(lab):
    rewrite(lab, 1, "certificate.json", lambda content: content.update(activations=2))


def cut_ledger(lab):
    rewrite(lab, 1, "ledger.json", lambda content: content["releases"]["scale"].reverse())


def cut_transcript(lab):
    rewrite(lab, 1, "transcript.json", lambda content: content.pop(0))


def other_model(lab):
    path = lab.journal(1) / "result" / "model.npz"
    with np.load(path) as saved:
        x = saved["x"]
    np.savez(path, x=x + 1e-12)


def everybody_else(lab):
    for party in range(PARTIES):
        path = lab.journal(party) / "result" / "model.npz"
        with np.load(path) as saved:
            x = saved["x"]
        np.savez(path, x=np.nextafter(x, np.inf))


def beyond(lab):
    change(lab, 1, "UPDATE meta SET value=value/2 WHERE key='limit_rho'")


def on_the_wire(lab):
    with (lab.folder / "p1.wire").open("a") as wire:
        wire.write(json.dumps([0, 1, first(lab, 1) + 1, "p3", "00" * 32]) + "\n")


RELAY_DOCTORS = {
    twice: ["p1 charged hop 99 and released nothing", "p1 spent more than its plan", "than the agreed epsilon"],
    forgotten: ["p1 charged, certified, summed up, released and listed [2, 3, 3, 3, 3], planned 3", "does not hold"],
    cheap: ["otherwise than planned", "was changed or removed"],
    other_content: ["has 2 contents", "was never sent", "was never taken in", "in its journal only"],
    second_receiver: ["was passed on 2 times", "to p3 was never taken in"],
    never_sent: ["released nothing", "in and passed nothing on", "was never sent"],
    never_taken: ["which it never took in", "was never taken in"],
    undone: ["p1 has unfinished messages"],
    private_state: ["u differs from the sum of prices"],
    no_result: ["p1 has no result"],
    certified_less: ["listed [3, 2, 3, 3, 3], planned 3"],
    cut_ledger: ["ledger verify"],
    cut_transcript: ["p1 has 0 messages in transcript.json only and 1 in its journal only"],
    other_model: ["the parties have different models"],
    everybody_else: ["the model is not the simulator's"],
    beyond: ["p1 spent more than its plan"],
    on_the_wire: ["was shown with 2 contents", "was shown to ["],
}


@pytest.mark.parametrize("doctor", RELAY_DOCTORS, ids=lambda doctor: doctor.__name__)
def test_each_fault_of_a_relay_is_named(good, tmp_path, doctor):
    found = doctored(good.lab, tmp_path, doctor)
    for text in RELAY_DOCTORS[doctor]:
        assert any(text in line for line in found), (text, found)


def another_to_one(lab):
    change(lab, 1, "UPDATE outbox SET hash=zeroblob(32) WHERE kind=2 AND seq=1 AND receiver='p2'")


def missing_round(lab):
    change(lab, 1, "DELETE FROM inbox WHERE kind=2 AND seq=1 AND sender='p2'")


def uncharged_round(lab):
    change(lab, 1, "DELETE FROM ledger WHERE seq=1")


def charged_round(lab):
    change(lab, 1, "UPDATE ledger SET seq=7 WHERE seq=1")


ROUND_DOCTORS = {
    another_to_one: ["seq 1 has 2 contents", "seq 1 from p1 to p2 was never sent"],
    missing_round: ["p1 has rounds missing or too many in its inbox", "seq 1 from p2 to p1 was never taken in"],
    uncharged_round: ["p1 spoke in rounds [1] and charged nothing", "does not hold"],
    charged_round: ["p1 charged hop 7 and released nothing", "p1 spoke in rounds [1] and charged nothing"],
    everybody_else: ["the model is not the simulator's"],
}


@pytest.mark.parametrize("doctor", ROUND_DOCTORS, ids=lambda doctor: doctor.__name__)
def test_each_fault_of_rounds_is_named(good_rounds, tmp_path, doctor):
    found = doctored(good_rounds.lab, tmp_path, doctor)
    for text in ROUND_DOCTORS[doctor]:
        assert any(text in line for line in found), (text, found)


def doctored(whole, tmp_path, doctor):
    lab = copy_lab(whole, tmp_path / "doctored")
    doctor(lab)
    return check(lab, SEED)
