"""The journal: one transaction or none, nothing twice, and copies that were set back are noticed."""

import multiprocessing
import os
import resource
import shutil
import signal
import sqlite3

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaydp.errors import InputError, PrivacyError
from relaydp.network.consortium.limits import check_limit, promised
from relaydp.network.messages import journal as journal_module
from relaydp.network.messages.journal import COMMIT_INSIDE, POINTS, Journal, JournalError, ReleaseCharge
from relaydp.network.messages.wire import BATON, ENDING, Message, Refusal, Rules, pack, parse
from relaydp.network.operations.serve import inspect

IDENTITY = bytes(range(32))


def baton(seq, value=0.5, epoch=0, kind=BATON, made=(0, 0)):
    return Message(IDENTITY, epoch, kind, seq, made, 0, b"", pack(np.full(4, value)))


def opened(folder, limit=1.0, **options):
    return Journal(folder / "north" / "id", IDENTITY, "north", limit, **options)


@pytest.fixture
def journal(tmp_path):
    made = opened(tmp_path)
    yield made
    made.close()


def step(journal, seq, receiver="south", rho=0.1, **more):
    """An activation at hop `seq`, as an agent commits it."""
    charge = ReleaseCharge(seq, 1.0, float(np.sqrt(1 / (2 * rho))))
    send = [(receiver, baton(seq + 1))]
    journal.commit(done=(BATON, seq), charges=(charge,), send=send, facts={"rows": b"r"}, **more)


def everything(folder):
    with sqlite3.connect(folder / "north" / "id" / "journal.db") as db:
        tables = ("meta", "inbox", "outbox", "ledger")
        found = {name: db.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in tables}
    db.close()
    return found


# -- taking in, charging, passing on


def test_a_message_is_taken_in_once(journal):
    assert journal.accept("south", baton(3))
    assert not journal.accept("south", baton(3))
    assert journal.waiting(BATON)[1].hash() == baton(3).hash()


@pytest.mark.parametrize("sender", ["south", "west"])
def test_a_second_content_in_its_place_is_refused_whoever_brings_it(journal, sender):
    journal.accept("south", baton(3))
    with pytest.raises(Refusal, match="another content") as refused:
        journal.accept(sender, baton(3, value=0.25))
    assert refused.value.code == "equivocation"
    assert journal.waiting(BATON)[1].hash() == baton(3).hash()


def test_an_activation_is_one_transaction(journal):
    journal.accept("south", baton(0))
    step(journal, 0)
    assert journal.waiting(BATON) is None
    assert [(row.seq, round(row.rho, 12)) for row in journal.ledger()] == [(0, 0.1)]
    assert [(who, message.seq) for who, message in journal.undelivered()] == [("south", 1)]
    assert journal.get("rows") == b"r"
    journal.acknowledge("south", baton(1))
    assert journal.undelivered() == []


def test_what_does_not_fit_the_budget_changes_nothing(tmp_path, journal):
    journal.accept("south", baton(0))
    before = everything(tmp_path)
    with pytest.raises(PrivacyError, match="does not fit"):
        step(journal, 0, rho=1.1)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("spoil", ["budget", "twice", "crash"])
def test_what_is_remembered_is_what_is_on_the_disk_after_a_failure_too(tmp_path, journal, spoil):
    """Facts and spending are kept in memory; a transaction that was rolled back must leave no trace there."""
    journal.accept("south", baton(0))
    step(journal, 0)
    spent = journal.spent

    def strike(point):
        if point == COMMIT_INSIDE:
            raise KeyboardInterrupt

    if spoil == "crash":
        journal.checkpoint = strike
    with pytest.raises((PrivacyError, JournalError, KeyboardInterrupt)):
        step(journal, 0 if spoil == "twice" else 1, rho=1.0 if spoil == "budget" else 0.2)
    kept = dict(everything(tmp_path)["meta"])
    assert kept["commits"] == 2
    assert {key: journal.get(key) for key in kept} == kept
    assert journal.spent == spent == sum(row.rho for row in journal.ledger())


def test_the_budget_is_for_all_releases_together(journal):
    for seq in range(10):
        journal.accept("south", baton(seq))
        step(journal, seq)
    assert journal.spent == pytest.approx(1.0, rel=1e-12)
    with pytest.raises(PrivacyError):
        step(journal, 10)


def test_one_hop_cannot_be_charged_twice(tmp_path, journal):
    journal.accept("south", baton(0))
    step(journal, 0)
    before = everything(tmp_path)
    with pytest.raises(JournalError, match="UNIQUE"):
        step(journal, 0, receiver="west")
    assert everything(tmp_path) == before


def test_only_the_newest_bytes_are_kept_and_every_hash(journal):
    for seq in range(4):
        journal.accept("south", baton(seq))
        step(journal, seq)
        journal.acknowledge("south", baton(seq + 1))
    kept = journal._db.execute("SELECT COUNT(*) FROM outbox WHERE message NOTNULL").fetchone()[0]
    assert kept == 1
    hashes = {(row["box"], row["seq"]): row["hash"] for row in journal.transcript()}
    assert all(hashes["outbox", k + 1] == baton(k + 1).hash().hex() for k in range(4))


def test_an_ending_that_came_from_a_neighbour_need_not_go_to_it(journal):
    ending = baton(0, kind=ENDING)
    journal.commit(take=[("north", ending)], send=[("south", ending), ("west", ending)])
    with pytest.raises(Refusal):
        journal.accept("south", baton(0, kind=ENDING, value=2.0))
    assert not journal.accept("south", ending)  # the same: it is here already


# -- crashes


class Crash(Exception):
    pass


@pytest.mark.parametrize("point", [name for name in POINTS if not name.startswith(("act", "end"))])
def test_a_crash_between_two_writes_leaves_all_or_nothing(tmp_path, point):
    """Stop at each numbered point, open again, go on: the same end as without the crash."""

    def crash(at):
        if at == point:
            raise Crash

    def go_on(journal):
        journal.accept("south", baton(0))
        if journal.waiting(BATON):
            step(journal, 0)
        for who, message in journal.undelivered():
            journal.acknowledge(who, message)

    journal = opened(tmp_path, checkpoint=crash)
    with pytest.raises(Crash):
        go_on(journal)
    journal.close()
    journal = opened(tmp_path)
    go_on(journal)
    found = everything(tmp_path)
    journal.close()

    straight = opened(tmp_path / "straight")
    go_on(straight)
    expected = everything(tmp_path / "straight")
    straight.close()
    ignore = lambda rows: [row for row in rows if row[0] != "commits"]  # noqa: E731
    assert {**found, "meta": ignore(found["meta"])} == {**expected, "meta": ignore(expected["meta"])}


def elsewhere(body, *arguments):
    """The exit code of a process of its own that runs `body`."""
    process = multiprocessing.get_context("spawn").Process(target=body, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def _write_and_die(folder, steps):
    journal = opened(folder)
    for seq in range(steps):
        journal.accept("south", baton(seq))
        step(journal, seq, rho=0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def killed_while_writing(folder, steps):
    """A process that commits and is killed without closing: its WAL stays."""
    assert elsewhere(_write_and_die, folder, steps) == -signal.SIGKILL


def test_what_was_committed_survives_kill_9(tmp_path):
    killed_while_writing(tmp_path, 5)
    journal = opened(tmp_path)
    assert journal.activations == 5
    journal.close()


def test_a_torn_write_after_the_last_commit_is_ignored(tmp_path):
    """Power loss in the middle of a write: the frames of an unfinished transaction stand at the end of the WAL."""
    killed_while_writing(tmp_path, 5)
    wal = tmp_path / "north" / "id" / "journal.db-wal"
    with wal.open("ab") as file:
        file.write(os.urandom(3000))
    journal = opened(tmp_path)
    assert journal.activations == 5
    journal.close()


def test_lost_commits_are_noticed_and_put_back_go_on(tmp_path):
    """A disk that loses what it said was written: the mark outside remembers; with the WAL put back all is well."""
    killed_while_writing(tmp_path, 5)
    wal = tmp_path / "north" / "id" / "journal.db-wal"
    whole = wal.read_bytes()
    wal.write_bytes(whole[: len(whole) // 2])
    shutil.copytree(tmp_path / "north", tmp_path / "copy")
    with pytest.raises(PrivacyError, match="older than it should be.*Restore the newer journal.db"):
        opened(tmp_path)
    shutil.rmtree(tmp_path / "north" / "id")
    shutil.copytree(tmp_path / "copy" / "id", tmp_path / "north" / "id")
    wal.write_bytes(whole)
    journal = opened(tmp_path)
    assert journal.activations == 5
    journal.close()


def test_an_old_copy_is_noticed(tmp_path):
    killed_while_writing(tmp_path, 3)
    shutil.copytree(tmp_path / "north" / "id", tmp_path / "old")
    killed_while_writing_more = opened(tmp_path)
    killed_while_writing_more.accept("south", baton(9))
    killed_while_writing_more.close()
    shutil.rmtree(tmp_path / "north" / "id")
    shutil.copytree(tmp_path / "old", tmp_path / "north" / "id")
    with pytest.raises(PrivacyError, match="counts 7"):
        opened(tmp_path)


def _write_until_full(folder):
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        journal = opened(folder)
        for seq in range(200):
            journal.accept("south", baton(seq))
            step(journal, seq, rho=0.001)
    except JournalError as error:
        code = 0 if "Free space" in " ".join(str(error).split()) else 3
    finally:
        os._exit(code)


def test_a_full_disk_stops_with_what_to_do_and_loses_nothing(tmp_path):
    """RLIMIT_FSIZE makes writes fail as a full disk does."""
    assert elsewhere(_write_until_full, tmp_path) == 0
    journal = opened(tmp_path)
    done = journal.activations
    assert done > 0
    for seq in range(journal.waiting(BATON)[1].seq if journal.waiting(BATON) else done, done + 3):
        journal.accept("south", baton(seq))
        step(journal, seq, rho=0.001)
    assert journal.activations == done + 3
    journal.close()


def _open_it_too(folder):
    try:
        opened(folder)
    except InputError as error:
        os._exit(0 if "running already" in str(error) else 3)
    os._exit(1)


def test_a_second_process_is_refused(tmp_path, journal):
    assert elsewhere(_open_it_too, tmp_path) == 0


@pytest.mark.parametrize(
    "other", [dict(identity=bytes(32)), dict(party="west"), dict(limit=2.0)], ids=["consortium", "party", "budget"]
)
def test_a_journal_belongs_to_one_party_of_one_plan(tmp_path, other):
    opened(tmp_path).close()
    given = {"identity": IDENTITY, "party": "north", "limit": 1.0, **other}
    with pytest.raises(JournalError):
        Journal(tmp_path / "north" / "id", given["identity"], given["party"], given["limit"])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["accept", "act", "deliver", "reopen"]), max_size=25))
def test_any_order_of_events_and_restarts_keeps_the_accounts(tmp_path_factory, events):
    """Charged = released = passed on, after every event, however often the process restarts in between."""
    folder = tmp_path_factory.mktemp("journal")
    journal, seq = opened(folder, limit=100.0), 0
    for event in events:
        if event == "accept" and journal.waiting(BATON) is None:
            journal.accept("south", baton(seq))
        elif event == "act" and journal.waiting(BATON):
            step(journal, seq)
            seq += 2
        elif event == "deliver":
            for who, message in journal.undelivered():
                journal.acknowledge(who, message)
        elif event == "reopen":
            journal.close()
            journal = opened(folder, limit=100.0)
        charged = [row.seq for row in journal.ledger()]
        passed = [row["seq"] - 1 for row in journal.transcript() if row["box"] == "outbox"]
        assert charged == passed == list(range(0, seq, 2))
        assert inspect(folder / "north" / "id")["releases"] == len(charged)
    journal.close()


# -- what operators do with it


def test_resume_looks_at_every_release(tmp_path):
    with pytest.raises(InputError, match="nothing to resume"):
        inspect(tmp_path / "north" / "id")
    killed_while_writing(tmp_path, 4)
    assert inspect(tmp_path / "north" / "id")["releases"] == 4
    with sqlite3.connect(tmp_path / "north" / "id" / "journal.db") as db:
        db.execute("UPDATE ledger SET scale=scale*2 WHERE number=2")
    db.close()
    with pytest.raises(PrivacyError, match="changed or removed"):
        inspect(tmp_path / "north" / "id")


def test_earlier_consortia_over_the_same_records_count(tmp_path):
    check_limit(tmp_path / "north", IDENTITY, 0.02, 1e-5, 1.0)
    for k in range(3):
        Journal(tmp_path / "north" / f"run{k}", bytes([k] * 32), "north", 0.02).close()
    assert len(promised(tmp_path / "north")) == 3
    with pytest.raises(PrivacyError, match="3 earlier consortia"):
        check_limit(tmp_path / "north", IDENTITY, 0.02, 1e-5, 1.0)
    check_limit(tmp_path / "north", IDENTITY, 0.02, 1e-5, 2.0)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_is_a_number(tmp_path, limit):
    with pytest.raises(PrivacyError, match="max_epsilon"):
        check_limit(tmp_path, IDENTITY, 0.02, 1e-5, limit)


# -- messages


RULES = Rules(IDENTITY, parties=2, activations=5, relay=True, vectors=2, dim=2, largest=1e3)


@given(st.binary(max_size=300))
def test_bytes_from_outside_are_a_message_or_a_refusal(data):
    try:
        RULES.check(parse(data), 0)
    except Refusal as refused:
        assert refused.code and str(refused)


def test_a_message_survives_the_wire():
    sent = baton(7, made=(2, 3))
    got = parse(sent.to_bytes())
    assert got.hash() == sent.hash() and np.array_equal(got.vectors(2), np.full((2, 2), 0.5))
    RULES.check(got, 0)


BAD = {
    "other-consortium": dict(consortium=bytes(32)),
    "epoch": dict(epoch=1),
    "kind": dict(kind=2),
    "header": dict(previous=b"short"),
    "seq": dict(seq=2**60),
    "counts": dict(made=(1, 1, 1)),
    "size": dict(body=b"\0" * 31),
    "not-finite": dict(body=pack(np.array([1.0, np.nan, 0, 0]))),
    "too-large": dict(body=pack(np.full(4, 1e300))),
}


@pytest.mark.parametrize("code", BAD)
def test_each_fault_has_its_word(code):
    fields = {**baton(7, made=(2, 3)).__dict__, **BAD[code]}
    with pytest.raises(Refusal) as refused:
        RULES.check(Message(**fields), 0)
    assert refused.value.code == code


@given(st.sampled_from(["consortium", "epoch", "kind", "seq", "made", "idle", "previous", "body"]))
def test_every_field_is_in_the_hash(name):
    before = baton(7, made=(2, 3))
    other = dict(
        consortium=bytes(32), epoch=1, kind=3, seq=8, made=(3, 2), idle=1, previous=b"p" * 32, body=pack(np.ones(4))
    )
    assert Message(**{**before.__dict__, name: other[name]}).hash() != before.hash()


def test_points_have_names_of_their_own():
    assert len(set(POINTS)) == len(POINTS)
    assert journal_module.COMMIT_AFTER in POINTS
