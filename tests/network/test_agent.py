"""Whole consortia of real agent processes over mutual TLS on loopback: what they end with, and what operators do."""

import functools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from consortium_lab import (
    SEED,
    STUCK,
    faults,
    make_lab,
    models,
    rows_of,
    run_all,
    start,
    taken_route,
    wait_all,
    wait_for,
)
from hostile_peer import lines, stopped_at
from kill_test import Blow, copy_lab
from typer.testing import CliRunner

from relaydp.cli.main import app
from relaydp.graph import Route
from relaydp.network.consortium.file import read_own_records
from relaydp.network.messages.journal import ACCEPT_BEFORE, NOTED
from relaydp.network.messages.next_hop import route_of
from relaydp.network.operations.paths import RUNNING
from relaydp.network.operations.rehearsal import simulated
from relaydp.privacy import verify


def relaydp(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def log_of(lab, party):
    return (lab.folder / f"p{party}.log").read_text()


def records_of(lab):
    return [read_own_records(lab.consortium, table) for table in lab.tables]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished relay of four parties, with seeded noise."""
    lab = make_lab(tmp_path_factory.mktemp("done"), 4)
    assert run_all(lab) == [0, 0, 0, 0]
    return lab


@pytest.fixture(scope="module")
def drawn_up(tmp_path_factory):
    return make_lab(tmp_path_factory.mktemp("pair"), 2, graph="path", walk="tour")


@pytest.fixture
def pair(drawn_up, tmp_path):
    """Two parties that have agreed and not begun."""
    return copy_lab(drawn_up, tmp_path / "pair")


def end(*running):
    """By a signal, as a service manager would."""
    for process in running:
        os.kill(process.pid, signal.SIGTERM)
    return wait_all(list(running))


# -- what they end with


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("algorithm", "shape"),
    [
        ("recal", None),
        ("recal", dict(walk="random", graph="complete")),
        ("nids", dict()),
        ("pg-extra", dict(graph="path")),
    ],
    ids=["recal-cyclic", "recal-random", "nids", "pg-extra"],
)
def test_the_model_is_the_simulators_bit_for_bit(tmp_path, request, algorithm, shape):
    if shape is None:
        lab = request.getfixturevalue("done")
    else:
        lab = make_lab(tmp_path, 4, algorithm=algorithm, **shape)
        assert run_all(lab) == [0, 0, 0, 0]
    route = Route(*route_of(taken_route(lab), 4)) if algorithm == "recal" else None
    expected = simulated(lab.consortium, records_of(lab), SEED, route)
    assert all(np.array_equal(x, expected) for x in models(lab))
    assert faults(lab) == []


def test_a_private_run_draws_noise_that_nobody_can_repeat(pair, tmp_path):
    """The same agreement twice: other models, the same charges, certificates that promise what the plan promised."""
    lab, again = pair, copy_lab(pair, tmp_path / "again")
    assert run_all(lab, seed=None) == [0, 0]
    first = models(lab)
    certificate = json.loads((lab.journal(1) / "result" / "certificate.json").read_text())
    assert certificate["private"] and certificate["epsilon"] == pytest.approx(4.0, rel=1e-6)
    assert "the operating system" in certificate["mechanism"]["source"] and certificate["releases"] == 3
    assert faults(lab) == []
    assert run_all(again, seed=None) == [0, 0]
    assert not np.array_equal(first[0], models(again)[0])


def test_a_seeded_run_says_that_it_is_not_private(done):
    certificate = json.loads((done.journal(0) / "result" / "certificate.json").read_text())
    assert certificate["private"] is False and certificate["epsilon"] is None
    assert "not private" in certificate["promise"] and "NOT PRIVATE" in certificate["mechanism"]["source"]
    ledger = done.journal(0) / "result" / "ledger.json"
    assert json.loads(ledger.read_text())["run"] == "simulation"  # also where it lies alone
    assert "Simulation: no promise" in relaydp("ledger", "verify", ledger, "--delta", "1e-4").output


def test_every_ledger_verifies_and_every_activation_is_in_all_three_books(done):
    for party in range(4):
        result = done.journal(party) / "result"
        assert verify(json.loads((result / "ledger.json").read_text()), 1e-4).holds
        checked = relaydp("ledger", "verify", result)
        assert checked.exit_code == 0, checked.output
    assert faults(done) == []


def test_transcripts_of_all_parties_fit_together(done):
    """What one party says it sent is what the other says it received."""
    books = [json.loads((done.journal(i) / "result" / "transcript.json").read_text()) for i in range(4)]
    sent = {(i, int(row["peer"][1:]), row["kind"], row["seq"], row["hash"]) for i, book in enumerate(books)
            for row in book if row["box"] == "outbox"}  # fmt: skip
    received = {(int(row["peer"][1:]), i, row["kind"], row["seq"], row["hash"]) for i, book in enumerate(books)
                for row in book if row["box"] == "inbox" and row["peer"] != f"p{i}"}  # fmt: skip
    assert {row for row in received if row[2] == 1} == {row for row in sent if row[2] == 1}
    assert received <= sent


# -- where the records are


def test_the_process_on_the_network_never_holds_a_record(tmp_path):
    """Look through its whole memory for the bytes of a record; the other half's memory does have them."""
    lab = make_lab(tmp_path, 2, graph="path", walk="tour", activations=2, features=3)
    odd = 12.34567890123456  # a value that turns up nowhere by chance
    lines = lab.tables[0].read_text().splitlines()
    first = lines[1].split(",")
    lab.tables[0].write_text("\n".join([lines[0], ",".join([repr(odd), *first[1:]]), *lines[2:]]) + "\n")
    command = [sys.executable, "-m", "relaydp", "agent", "serve", lab.file, "--max-epsilon", "100", "--linger", "3600"]
    running = []
    for i in range(2):
        with (lab.folder / f"p{i}.log").open("w") as log:
            settings = ["--home", lab.homes[i], "--data", lab.tables[i], "--development-seed", str(SEED)]
            running.append(subprocess.Popen([*map(str, [*command, *settings])], stderr=log, stdout=subprocess.DEVNULL))
    try:
        wait_for(lambda: all('"finished"' in log_of(lab, i) for i in range(2)))
        others = Path(f"/proc/{running[0].pid}/task/{running[0].pid}/children").read_text().split()
        (low, *_), (high, *_) = lab.consortium.problem.spec.ranges
        feature = (odd - low) / (high - low)  # what gradients are computed with
        needle = [struct.pack("<d", odd), repr(odd).encode(), struct.pack("<d", feature)]
        assert not _memory_holds(running[0].pid, needle)
        assert any(_memory_holds(pid, needle) for pid in others), "the search would find it"
        # numpy is there for the messages; JAX, the reader of tables and the sampler belong to the other half
        maps = Path(f"/proc/{running[0].pid}/maps").read_text()
        assert not re.search("jaxlib|pyarrow|llvmlite", maps)
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(STUCK) for process in running] == [0, 0]


def _memory_holds(pid, needles):
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, access = line.split()[:2]
            if "r" not in access or line.rstrip().endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                continue
            low, high = (int(end, 16) for end in span.split("-"))
            try:
                memory.seek(low)
                block = memory.read(high - low)
            except (OSError, ValueError, OverflowError):
                continue
            if any(needle in block for needle in needles):
                return True
    return False


def test_logs_hold_no_number_of_anybodys_records_or_state(done):
    values = {f"{value:.6g}" for records in records_of(done) for value in np.asarray(records.X).ravel() if value % 1}
    for party in range(4):
        rows = np.frombuffer(rows_of(done, party, "SELECT value FROM meta WHERE key='rows'")[0][0])
        values |= {f"{value:.6g}" for value in rows}
        said = set()
        for line in log_of(done, party).splitlines():
            event = json.loads(line)
            said |= {f"{v:.6g}" for k, v in event.items() if isinstance(v, float) and k != "seconds"}
        assert not said & values


# -- what operators do


def test_status_of_a_running_agent_as_table_json_page_and_metrics(pair):
    lab = pair
    running = start(lab.settings(0), lab.folder / "p0.log")
    try:
        wait_for(lambda: (lab.journal(0) / RUNNING).exists())
        port = json.loads((lab.journal(0) / RUNNING).read_text())["status_port"]
        page = f"http://127.0.0.1:{port}/metrics"
        wait_for(lambda: b"relaydp_peer_up{" in urllib.request.urlopen(page).read())  # it has tried to reach p1
        shown = json.loads(relaydp("agent", "status", "--home", lab.homes[0], "--json").stdout)
        assert shown[0]["state"] == "waiting for peers" and shown[0]["activations"] == [0, 3]
        assert shown[0]["peers"][0]["up"] is False
        assert "p1" in relaydp("agent", "status", "--home", lab.homes[0]).stdout
        metrics = urllib.request.urlopen(page).read().decode()
        assert "relaydp_rho_spent 0.0" in metrics and 'relaydp_peer_up{peer="p1"} 0.0' in metrics
    finally:
        assert end(running) == [0]
    assert json.loads(relaydp("agent", "status", "--home", lab.homes[0], "--json").stdout)[0]["state"] == "stopped"


def test_a_stopped_run_goes_on_where_it_stood(tmp_path):
    """SIGTERM to everybody in the middle, then resume: the same end as without."""
    lab, go = make_lab(tmp_path, 3), tmp_path / "go"
    hooks = [functools.partial(stopped_at, NOTED, 2, go), None, None]  # p0 has passed its second baton on, of three
    running = [start(lab.settings(i), lab.folder / f"p{i}.log", hooks[i]) for i in range(3)]
    wait_for((tmp_path / "go.stopped").exists)
    assert end(*running[1:]) == [0, 0]
    os.kill(running[0].pid, signal.SIGTERM)
    go.touch()
    assert wait_all(running) == [0, 0, 0]
    assert not any((lab.journal(i) / "result").exists() for i in range(3))
    assert run_all(lab) == [0, 0, 0]
    assert faults(lab) == []
    assert np.array_equal(
        models(lab)[0], simulated(lab.consortium, records_of(lab), SEED, Route(*route_of(taken_route(lab), 3)))
    )


def test_export_copies_results_and_neither_key_nor_state(tmp_path, done):
    told = relaydp("agent", "export", "--home", done.homes[0], "--out", tmp_path / "out")
    assert told.exit_code == 0, told.output
    names = sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert names == ["certificate.json", "config.json", "ledger.json", "model.npz", "summary.json", "transcript.json"]
    assert relaydp("agent", "export", "--home", done.homes[0], "--out", tmp_path / "out").exit_code == 2


def test_a_second_agent_of_one_party_refuses(pair):
    lab = pair
    first = start(lab.settings(0), lab.folder / "p0.log")
    try:
        wait_for(lambda: (lab.journal(0) / RUNNING).exists())
        second = start(lab.settings(0), lab.folder / "second.log")
        assert wait_all([second]) == [2]
        assert "running already" in (lab.folder / "second.log").read_text()
    finally:
        end(first)


@pytest.fixture(scope="module")
def set_back(tmp_path_factory):
    """A run that waits for p1, which was killed twice, and a copy of p1's home from between."""
    folder = tmp_path_factory.mktemp("set-back")
    lab = make_lab(folder, 3, patience=10**6)  # of hops without it: the others wait for as long as this takes
    others = [start(lab.settings(i), lab.folder / f"p{i}.log") for i in (0, 2)]
    try:
        died = start(lab.settings(1), lab.folder / "p1.log", Blow(NOTED))  # as it has passed a baton on
        assert wait_all([died]) == [-signal.SIGKILL]
        shutil.copytree(lab.homes[1], folder / "copy")
        died = start(lab.settings(1), lab.folder / "p1.log", Blow(NOTED))
        assert wait_all([died]) == [-signal.SIGKILL]
        yield lab, folder / "copy"
        assert end(*others) == [0, 0]
    finally:
        wait_all(others, 0)


@pytest.mark.parametrize("how", ["lost", "old copy"])
def test_neighbours_notice_a_journal_that_was_set_back(set_back, how):
    """The mark is set back as well, as a restored disk image would: only the neighbours remember."""
    lab, kept = set_back
    if how == "lost":
        shutil.rmtree(lab.journal(1))
        for mark in lab.homes[1].glob("*.mark"):
            mark.unlink()
    else:
        shutil.rmtree(lab.homes[1])
        shutil.copytree(kept, lab.homes[1])
    charged = len(rows_of(lab, 1, "SELECT 1 FROM ledger")) if how == "old copy" else 0
    log = lab.folder / f"{how}.log"
    assert wait_all([start(lab.settings(1), log)]) == [2]
    assert "older copy" in log.read_text()
    assert len(rows_of(lab, 1, "SELECT 1 FROM ledger")) == charged, "nothing more was released"


def test_a_plan_beyond_the_partys_own_limit_is_refused(pair):
    lab = pair
    process = start(lab.settings(0, max_epsilon=3.9), lab.folder / "p0.log")
    assert wait_all([process]) == [2]
    said = log_of(lab, 0)
    assert "this party allows 3.9" in said and "Traceback" not in said
    assert not lab.journal(0).exists()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda lab: lab.tables[0].write_text("a,b\n1,2\n"), "column"),
        (lambda lab: lab.tables[0].write_text(lab.tables[0].read_text().rsplit("\n", 4)[0] + "\n"), "records"),
        (lambda lab: lab.file.write_text(lab.file.read_text().split("[plan]")[0]), "no plan"),
        (lambda lab: shutil.move(lab.homes[1] / "key.pem", lab.homes[0] / "key.pem"), "fit"),
        (lambda lab: (lab.homes[0] / "key.pem").chmod(0o644), "chmod"),
    ],
    ids=["columns", "count", "plan", "key", "mode"],
)
def test_what_cannot_be_served_is_refused_in_one_paragraph(pair, spoil, says):
    lab = pair
    spoil(lab)
    assert wait_all([start(lab.settings(0), lab.folder / "p0.log")]) == [2]
    (said,) = log_of(lab, 0).splitlines()
    assert says in said and "Traceback" not in said
    assert not list(lab.homes[0].glob("*/journal.db"))


def test_the_command_itself_refuses_what_its_other_half_finds(pair):
    """As above with all of both processes: the command, and what only the half with the records can see."""
    lab = pair
    lab.tables[0].write_text("a,b\n1,2\n")
    # in a process of its own: TLS 1.3 has to be asked for before anybody imports gRPC
    command = [sys.executable, "-m", "relaydp", "agent", "serve", lab.file, "--max-epsilon", "100"]
    command += ["--home", lab.homes[0], "--data", lab.tables[0]]
    told = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=STUCK)
    assert told.returncode == 2 and "column" in told.stderr and "Traceback" not in told.stderr
    assert not list(lab.homes[0].glob("*/journal.db"))


def test_a_party_that_never_returns_is_given_up_by_everybodys_signature(tmp_path):
    """The baton goes to p1, which dies with it for good. The others sign, apply, and finish without it."""
    lab = make_lab(tmp_path, 4, graph="complete", walk="cyclic", activations=8)
    # p1 dies as it takes its third baton in: it has said that it is ready, and never acknowledges
    hooks = [None, Blow(ACCEPT_BEFORE, 3), None, None]
    running = [start(lab.settings(i), lab.folder / f"p{i}.log", hooks[i]) for i in range(4)]
    unsent = "SELECT 1 FROM outbox WHERE acknowledged=0 AND kind=1 AND receiver='p1'"
    assert wait_all([running.pop(1)]) == [-signal.SIGKILL]
    assert end(*running) == [0, 0, 0]
    (sender,) = [i for i in (0, 2, 3) if rows_of(lab, i, unsent)]
    order = tmp_path / "order.json"
    told = relaydp("agent", "reroute", "order", lab.file, "--home", lab.homes[sender], "--out", order)
    assert told.exit_code == 0, told.output
    early = relaydp("agent", "reroute", "apply", lab.file, order, "--home", lab.homes[sender])
    assert early.exit_code == 2 and "missing or wrong" in early.output
    for i in (0, 2, 3):
        if i != sender:
            told = relaydp("agent", "reroute", "sign", lab.file, order, "--home", lab.homes[i])
            assert told.exit_code == 0, told.output
    spent = {i: rows_of(lab, i, "SELECT SUM(rho) FROM ledger")[0][0] for i in (0, 2, 3)}
    for i in (0, 2, 3):
        told = relaydp("agent", "reroute", "apply", lab.file, order, "--home", lab.homes[i])
        assert told.exit_code == 0, told.output
    after = {i: rows_of(lab, i, "SELECT SUM(rho) FROM ledger")[0][0] for i in (0, 2, 3)}
    assert after[sender] > spent[sender] and all(after[i] == spent[i] for i in (0, 2, 3) if i != sender)
    rest = [start(lab.settings(i, linger=3600.0), lab.folder / f"p{i}.log") for i in (0, 2, 3)]
    wait_for(lambda: all('"finished"' in log_of(lab, i) for i in (0, 2, 3)))
    hashes = set()
    for i in (0, 2, 3):
        certificate = json.loads((lab.journal(i) / "result" / "certificate.json").read_text())
        hashes.add(certificate["model_sha256"])
        assert certificate["consortium"]["epoch"] == 1 and certificate["consortium"]["lost"] == ["p1"]
        limit = rows_of(lab, i, "SELECT value FROM meta WHERE key='limit_rho'")[0][0]
        assert rows_of(lab, i, "SELECT SUM(rho) FROM ledger")[0][0] <= limit * (1 + 1e-9)
        assert relaydp("ledger", "verify", lab.journal(i) / "result").exit_code == 0
    assert len(hashes) == 1
    # and the lost one, back again with its old epoch, is turned away
    ghost = start(lab.settings(1), lab.folder / "ghost.log")
    wait_for(lambda: all(any(turned_away(line) for line in lines(lab.folder / f"p{i}.log")) for i in (0, 2, 3)))
    wait_all([ghost], 0)
    assert end(*rest) == [0, 0, 0]
    assert not (lab.journal(1) / "result").exists()


def turned_away(line):
    return line["event"] == "refused" and (line["reason"], line["peer"]) == ("lost", "p1")


def test_a_party_that_has_seen_the_baton_does_not_sign(tmp_path, done):
    from relaydp.errors import PrivacyError
    from relaydp.network.consortium.identity import read_identity
    from relaydp.network.messages.journal import Journal
    from relaydp.network.messages.reroute import Order, sign_order

    shutil.copytree(done.folder, tmp_path / "copy")
    home = tmp_path / "copy" / "p2"
    consortium = done.consortium
    folder = home / consortium.identity.hex()[:16]
    (limit,) = rows_of(done, 2, "SELECT value FROM meta WHERE key='limit_rho'")[0]
    journal = Journal(folder, consortium.identity, "p2", limit)
    order = Order(consortium.identity.hex(), 1, lost="p1", sender="p0", seq=1, hash="00")
    with pytest.raises(PrivacyError, match="not lost"):
        sign_order(order, read_identity(home), consortium, journal)
    journal.close()


def test_help_shows_every_command_with_an_example():
    for command in ("keygen", "serve", "status", "export"):
        told = relaydp("agent", command, "--help")
        assert told.exit_code == 0 and f"relaydp agent {command}" in told.output
