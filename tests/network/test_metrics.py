"""What an operator sees: a log without private values, metrics that parse, a page for this machine alone."""

import base64
import hashlib
import http.client
import io
import json
import re
import shutil
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from relaydp.errors import InputError
from relaydp.network.operations import status_page as page_module
from relaydp.network.operations.log import FIELDS, LONGEST, WHOLE
from relaydp.network.operations.metrics import MOST_REASONS, Log, Metrics, StatusServer, print_status

DEPLOY = Path(__file__).parents[2] / "deploy"
WAIT = 120  # seconds after which a test that hangs fails

STATUS = {
    "party": "north",
    "consortium": "four hospitals",
    "identity": "9f" * 32,
    "state": "holding the baton",
    "algorithm": "recal",
    "epoch": 0,
    "hops_seen": 123_456,
    "last_baton": {"seq": 123_455, "from": "east", "to": "north", "seconds_ago": 0.8},
    "activations": [155, 310],
    "rho": [0.0213, 0.0421],
    "epsilon": [0.684, 1.0],
    "delta": 1e-5,
    "private": True,
    "peers": [
        {"name": "east", "address": "east.example.org:7443", "up": True, "last_seen_seconds_ago": 61.0},
        {"name": "west", "address": "10.20.30.40:7443", "up": False, "last_seen_seconds_ago": None},
    ],
    "unacknowledged": 1,
    "model_sha256": None,
    "uptime_seconds": 93784.2,
}

# --- the log

BY_TYPE = {kind: sorted(name for name, own in FIELDS.items() if own is kind) for kind in (str, int, float, bool)}
VALUES = {
    str: st.text(max_size=2 * LONGEST),
    int: st.integers(-WHOLE, WHOLE - 1),
    float: st.floats() | st.integers(-WHOLE, WHOLE - 1),
    bool: st.booleans(),
}
# one value of each kind that could be, or hold, somebody's data
PRIVATE = {
    "array": np.arange(3.0),
    "array of nothing": np.zeros(()),
    "jax array": jnp.ones(()),
    "element of an array": np.ones(2)[0],
    "integer of an array": np.arange(2)[1],
    "truth of an array": np.ones(2, bool)[0],
    "text of an array": np.array(["a"])[0],
    "bytes": b"gradient",
    "bytearray": bytearray(8),
    "list": [1.0, 2.0],
    "tuple": (1,),
    "dict": {"x": 1.0},
    "object": object(),
    "complex": 1j,
    "exception": ValueError("array([1., 2.])"),
    "a number of many bits": int.from_bytes(b"eight bytes and more"),
}


def one(line):
    assert line.endswith("\n") and line.count("\n") == 1 and line.isascii() and line[:-1].isprintable()
    return json.loads(line, parse_constant=pytest.fail)  # NaN and Infinity are no JSON


@st.composite
def fields(draw):
    names = draw(st.sets(st.sampled_from(sorted(FIELDS)), max_size=6))
    return {name: draw(VALUES[FIELDS[name]]) for name in names}


@given(fields(), st.text(min_size=1, max_size=30), st.sampled_from(["info", "warning", "error"]))
def test_every_event_is_one_line_and_one_object(fields, party, level):
    stream = io.StringIO()
    getattr(Log(party, stream), level)("baton-sent", **fields)
    found = one(stream.getvalue())
    assert list(found)[:4] == ["time", "level", "event", "party"]
    assert datetime.fromisoformat(found["time"]).tzinfo == UTC
    assert (found["level"], found["event"], found["party"]) == (level, "baton-sent", party)
    assert found.keys() - {"time", "level", "event", "party"} == fields.keys()
    for name, value in fields.items():
        if isinstance(value, str):
            cut = len(value) > LONGEST
            assert found[name] == (value[: LONGEST - 1] + "…" if cut else value) and len(found[name]) <= LONGEST
        elif isinstance(value, float) and not np.isfinite(value):
            assert found[name] is None
        else:
            assert found[name] == value and type(found[name]) is type(value)


@pytest.mark.parametrize("value", PRIVATE.values(), ids=PRIVATE.keys())
@pytest.mark.parametrize("kind", BY_TYPE, ids=lambda kind: kind.__name__)
def test_nothing_that_may_be_private_gets_through(kind, value):
    stream = io.StringIO()
    for name in BY_TYPE[kind]:
        with pytest.raises(TypeError, match=f"the log's {name} .*must be") as caught:
            Log("north", stream).info("baton-sent", **{name: value})
        assert "gradient" not in str(caught.value) and "array([" not in str(caught.value)
    assert stream.getvalue() == ""


@given(st.sampled_from(sorted(FIELDS)), st.sampled_from([str, int, float, bool]), st.data())
def test_a_field_has_one_type(name, kind, data):
    value = data.draw(VALUES[kind])
    fits = type(value) is FIELDS[name] or (type(value), FIELDS[name]) == (int, float)
    stream = io.StringIO()
    if fits:
        Log("north", stream).info("baton-sent", **{name: value})
        one(stream.getvalue())
    else:
        with pytest.raises(TypeError, match="plain"):
            Log("north", stream).info("baton-sent", **{name: value})
        assert stream.getvalue() == ""


@given(st.text(max_size=20).filter(lambda name: name not in FIELDS and name != "event"))
def test_a_name_that_is_not_listed_is_refused(name):
    stream = io.StringIO()
    with pytest.raises(TypeError, match="no field"):
        Log("north", stream)._write("info", "baton-sent", {name: 1})
    assert stream.getvalue() == ""


@pytest.mark.parametrize("event", ["", "Baton", "baton sent", "baton\nsent", "baton_sent", "-", "a" * 500, b"x", None])
def test_an_event_is_a_few_words_in_kebab_case(event):
    with pytest.raises(TypeError, match="kebab-case"):
        Log("north", io.StringIO()).info(event)


def test_a_refusal_says_why_and_whose():
    stream = io.StringIO()
    log = Log("north", stream)
    log.refused("unknown-certificate", 'mallory"}\n{"event": "finished', seq=3)
    found = one(stream.getvalue())
    assert (found["event"], found["level"], found["reason"], found["seq"]) == (
        "refused",
        "warning",
        "unknown-certificate",
        3,
    )
    assert found["peer"] == 'mallory"}\n{"event": "finished'
    for missing in ({"peer": "south"}, {"reason": "late"}, {"peer": None, "reason": "late"}):
        with pytest.raises(TypeError, match="'refused' lacks"):
            log.warning("refused", **missing)


def test_foreign_errors_are_named_and_never_quoted():
    stream = io.StringIO()
    log = Log("north", stream)
    log.failed("hop-failed", ValueError("operands array([0.25, 1.5]) do not fit"), seq=7)
    log.failed("start-failed", InputError("records.csv has 9 records; needed 10."))
    log.failed("journal-failed", OSError(28, "No space left on device", "journal.db"))
    hop, start, journal = map(json.loads, stream.getvalue().splitlines())
    assert hop["error"] == "ValueError" and hop["seq"] == 7 and "detail" not in hop
    assert start["error"] == "InputError" and start["detail"] == "records.csv has 9 records; needed 10."
    assert journal["error"] == "OSError" and journal["detail"] == "No space left on device"


class Broken(io.StringIO):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(28, "full"), ValueError("closed file"), RuntimeError("reentrant call")]
)
def test_a_stream_that_fails_never_stops_the_agent(error):
    Log("north", Broken(error)).info("baton-sent")
    with pytest.raises(TypeError):  # a wrong field still shows, wherever the stream goes
        Log("north", Broken(error)).info("baton-sent", seq=np.arange(2))


def test_a_peer_that_is_refused_for_ever_does_not_fill_the_log(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("relaydp.network.operations.log.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    log = Log("north", stream)
    for _ in range(500):
        log.refused("replayed", "south")
    log.refused("replayed", "west")  # another peer, and another reason, have lines of their own
    log.refused("wrong-size", "south")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(lines) == 60 + 2 and not any("left_out" in line for line in lines)
    clock[0] += 60.0
    log.refused("replayed", "south")
    log.refused("replayed", "west")
    later = [json.loads(line) for line in stream.getvalue().splitlines()[len(lines) :]]
    assert [line.get("left_out") for line in later] == [440, None]


def test_without_a_stream_it_is_the_stderr_of_the_moment(monkeypatch, capsys):
    log = Log("north")
    log.info("started")
    assert one(capsys.readouterr().err)["event"] == "started"
    monkeypatch.setattr("sys.stderr", None)
    log.info("started")


class Slow(io.StringIO):
    """Gives way after each character, as a pipe may."""

    def write(self, text):
        for letter in text:
            super().write(letter)
        return len(text)


def test_lines_of_many_threads_do_not_mix():
    stream = Slow()
    log = Log("north", stream)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seq: log.info("baton-sent", seq=seq, detail="x" * 50), range(400)))
    assert sorted(json.loads(line)["seq"] for line in stream.getvalue().splitlines()) == list(range(400))


def test_a_handler_may_log_while_a_line_is_written():
    class Handled(io.StringIO):
        def write(self, text):
            if '"started"' in text:
                log.warning("stopping", signal="SIGTERM")
            return super().write(text)

    stream = Handled()
    log = Log("north", stream)
    thread = threading.Thread(target=log.info, args=("started",), daemon=True)
    thread.start()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["stopping", "started"]


# --- metrics

PROMISED = {
    "relaydp_hops_total": {"kind"},
    "relaydp_activations_total": set(),
    "relaydp_rho_spent": set(),
    "relaydp_rho_limit": set(),
    "relaydp_epsilon_spent": set(),
    "relaydp_messages_refused_total": {"reason"},
    "relaydp_resends_total": set(),
    "relaydp_hop_seconds_bucket": {"le"},
    "relaydp_last_baton_seq": set(),
    "relaydp_peer_up": {"peer"},
}


def used():
    metrics = Metrics(["south"])
    metrics.hops.labels(kind="activation").inc()
    metrics.rho_spent.set(0.25)
    metrics.refuse("equivocation")
    metrics.hop_seconds.observe(0.02)
    return metrics


def samples(text):
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def test_two_agents_in_one_process_do_not_mix():
    one, other = used(), Metrics()
    assert one.registry.get_sample_value("relaydp_rho_spent") == 0.25
    assert other.registry.get_sample_value("relaydp_rho_spent") == 0.0
    assert one.registry.get_sample_value("relaydp_peer_up", {"peer": "south"}) == 0.0


@given(st.lists(st.text() | st.from_regex(r"[a-z]{1,3}(-[a-z]{1,3})?", fullmatch=True), max_size=150))
def test_strangers_cannot_make_time_series_without_end(reasons):
    metrics = Metrics()
    for reason in reasons:
        metrics.refuse(reason)
    (family,) = metrics.messages_refused.collect()
    counts = {
        sample.labels["reason"]: sample.value for sample in family.samples if sample.name.endswith("refused_total")
    }
    assert sum(counts.values()) == len(reasons) and len(counts) <= MOST_REASONS + 1
    assert all(re.fullmatch("[a-z0-9-]+", reason) for reason in counts)


# --- the server


@pytest.fixture(scope="module")
def server():
    with StatusServer(0, lambda: STATUS, used().registry) as running:
        yield running


def ask(server, path="/", method="GET", host=None, headers=()):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
    connection.putrequest(method, path, skip_host=True)
    for value in [f"127.0.0.1:{server.port}"] if host is None else host:
        connection.putheader("Host", value)
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def raw(server, request):
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(4096), b""))


def test_what_the_agent_says_is_what_is_served(server):
    answer, body = ask(server, "/status.json")
    assert answer.status == 200 and answer.headers.get_content_type() == "application/json"
    assert json.loads(body) == STATUS


def test_metrics_parse_and_are_those_promised(server):
    answer, body = ask(server, "/metrics")
    assert answer.status == 200 and answer.headers.get_content_type() == "text/plain"
    found = {sample.name: set(sample.labels) for sample in samples(body)}
    assert PROMISED.items() <= found.items()
    assert next(sample.value for sample in samples(body) if sample.name == "relaydp_rho_spent") == 0.25


@pytest.mark.parametrize("path", ["/", "/status.json", "/metrics", "/nothing"])
def test_every_answer_keeps_other_pages_out(server, path):
    answer, body = ask(server, path, headers=[("Origin", "http://elsewhere.example")])
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Frame-Options"] == "DENY" and answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert answer.headers["Server"] == "relaydp"
    again, nothing = ask(server, path, method="HEAD")
    assert (again.status, again.headers["Content-Length"], nothing) == (answer.status, str(len(body.encode())), "")


@pytest.mark.parametrize("path", ["/nothing", "/status.json/", "/../../etc/passwd", "http://elsewhere.example/"])
def test_there_are_three_paths(server, path):
    answer, body = ask(server, path)
    assert answer.status == 404 and path not in body.split()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/", "/status.json", "/nothing"])
def test_nothing_can_be_changed(server, method, path):
    answer, _ = ask(server, path, method)
    assert answer.status == 405 and answer.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "host",
    [
        [],
        [""],
        ["127.0.0.1"],
        ["127.0.0.1:1"],
        ["elsewhere.example:{port}"],
        ["127.0.0.1.elsewhere.example:{port}"],
        ["localhost.elsewhere.example:{port}"],
        ["localhost:{port}@elsewhere.example"],
        ["0.0.0.0:{port}"],
        ["localhost:{port}", "elsewhere.example:{port}"],
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_another_name_for_this_machine_is_refused(server, host, method):
    for path in ("/", "/status.json", "/metrics"):
        answer, body = ask(server, path, method, [value.format(port=server.port) for value in host])
        assert answer.status == 421 and "north" not in body and "relaydp_" not in body


def test_both_names_of_this_machine_are_known(server):
    for name in ("127.0.0.1", "localhost", "LocalHost"):
        assert ask(server, host=[f"{name}:{server.port}"])[0].status == 200


@pytest.mark.parametrize(
    "request_",
    [b"<script>\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"GET /\r\n\r\n"],
)
def test_what_is_no_request_is_not_quoted_back(server, request_):
    found = raw(server, request_)
    assert b"<" not in found and b"aaa" not in found and b"north" not in found and b"Traceback" not in found
    assert ask(server)[0].status == 200


def test_only_this_machine_is_listened_to(server):
    assert server.url == f"http://127.0.0.1:{server.port}/"
    assert server._server.socket.getsockname() == ("127.0.0.1", server.port)


@pytest.mark.parametrize(
    "status",
    [
        lambda: {"secret": 1 / 0},
        lambda: {"gradient": np.arange(3.0)},
        lambda: {"gradient": b"secret"},
        lambda: {"peers": [{"name": object()}]},
    ],
)
def test_a_status_that_fails_is_an_error_without_words(status, capfd):
    stream = io.StringIO()
    with StatusServer(0, status, CollectorRegistry(), Log("north", stream)) as server:
        answer, body = ask(server, "/status.json")
        assert answer.status == 500 and body == "500 Internal Server Error: the error is in the agent's log\n"
        assert ask(server, "/")[0].status == 200
    assert one(stream.getvalue())["event"] == "status-failed" and "secret" not in stream.getvalue()
    assert capfd.readouterr().err == ""


def test_numbers_that_are_not_finite_are_null():
    odd = {"rho": [0.0, float("inf")], "delta": float("nan"), "peers": ({"last_seen_seconds_ago": -float("inf")},)}
    with StatusServer(0, lambda: odd, CollectorRegistry()) as server:
        found = json.loads(ask(server, "/status.json")[1], parse_constant=pytest.fail)
    assert found == {"rho": [0.0, None], "delta": None, "peers": [{"last_seen_seconds_ago": None}]}


def test_requests_are_answered_side_by_side():
    """No answer is given before all have asked: one after another they would wait for ever."""
    together = threading.Barrier(8, timeout=WAIT)

    def status():
        together.wait()
        return STATUS

    with StatusServer(0, status, CollectorRegistry()) as server, ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda _: ask(server, "/status.json")[0].status, range(8)))
    assert codes == [200] * 8


def test_clients_that_say_nothing_hold_up_nobody(monkeypatch, capfd):
    monkeypatch.setattr(page_module._Handler, "timeout", None)  # they would wait for ever
    server = StatusServer(0, lambda: STATUS, CollectorRegistry())
    slow = []
    for _ in range(page_module.MOST_CLIENTS - 1):
        slow.append(socket.create_connection(("127.0.0.1", server.port), timeout=WAIT))
        slow[-1].sendall(b"GET / HT")
    assert ask(server, "/status.json")[0].status == 200
    server.close()
    server.close()
    for client in slow:
        assert client.recv(1) == b""  # cut off
        client.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=WAIT)
    assert capfd.readouterr().err == ""


def test_one_client_too_many_is_turned_away(monkeypatch):
    monkeypatch.setattr(page_module, "MOST_CLIENTS", 2)
    with StatusServer(0, lambda: STATUS, CollectorRegistry()) as server:
        slow = [socket.create_connection(("127.0.0.1", server.port), timeout=WAIT) for _ in range(2)]
        for client in slow:
            client.sendall(b"GET / HT")
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT) as late:
            assert late.recv(1) == b""  # accepted in order, so both others were there
        for client in slow:
            client.sendall(f"TP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode())
            assert client.recv(12) == b"HTTP/1.0 200"
            while client.recv(4096):
                pass
            client.close()


def test_a_client_that_is_silent_for_long_is_let_go(monkeypatch):
    monkeypatch.setattr(page_module._Handler, "timeout", 0.05)
    with StatusServer(0, lambda: STATUS, CollectorRegistry()) as server:
        assert raw(server, b"GET / HT") == b""


def test_a_client_that_goes_away_is_no_news(capfd):
    asked, gone = threading.Event(), threading.Event()

    def status():
        asked.set()
        assert gone.wait(WAIT)
        return {"long": "x" * 10_000_000}  # more than the socket's buffers hold

    with StatusServer(0, status, CollectorRegistry()) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT) as client:
            client.sendall(f"GET /status.json HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode())
            assert asked.wait(WAIT)
        gone.set()
        assert ask(server, "/")[0].status == 200
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_cannot_be_is_refused(port):
    with pytest.raises(InputError, match=f"127.0.0.1:{port}.*--status-port"):
        StatusServer(port, dict, CollectorRegistry())


def test_a_port_that_is_taken_is_refused(server):
    with pytest.raises(InputError, match=r"Pass another --status-port: a free port"):
        StatusServer(server.port, dict, CollectorRegistry())


# --- the page


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.inside, self.ids = [], {}, set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids |= {value for name, value in attrs if name == "id"}

    def handle_data(self, data):
        self.inside.setdefault(self.tags[-1][0] if self.tags else "", []).append(data)


@pytest.fixture
def page(server):
    answer, body = ask(server)
    assert answer.headers.get_content_type() == "text/html"
    return answer.headers["Content-Security-Policy"], body, Reader(body)


def test_a_browser_runs_the_page_and_nothing_else(page):
    policy, body, reader = page
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    for tag in ("style", "script"):
        (start,), (end,) = ([found.end() for found in re.finditer(f"<{tag}>", body)], [body.index(f"</{tag}>")])
        digest = base64.b64encode(hashlib.sha256(body[start:end].encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'" and rules["connect-src"] == "'self'" and "unsafe" not in policy
    for tag, attributes in reader.tags:  # what the policy would stop is not tried
        assert "style" not in attributes and not any(name.startswith("on") for name in attributes), tag
        assert all(value.startswith("data:") for name, value in attributes.items() if name in ("src", "href")), tag
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", body)


def test_values_are_written_as_text(page):
    script = "".join(page[2].inside["script"])
    assert "textContent" in script
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script)


def test_the_script_speaks_of_what_is_on_the_page_and_in_the_status(page):
    _, body, reader = page
    script = "".join(reader.inside["script"])
    named = set(re.findall(r'(?:say|element|meter)\("([a-z-]+)"', script))
    named |= {f"{name}-{part}" for name in re.findall(r'meter\("([a-z]+)"', script) for part in ("bar", "share")}
    assert named == reader.ids - {"budget", "training", "details"}
    assert set(re.findall(r"\bstatus\.(\w+)", script)) - {"json"} == STATUS.keys()
    assert {*re.findall(r"\bpeer\.(\w+)", script)} == STATUS["peers"][0].keys()
    assert {*re.findall(r"\bbaton\.(\w+)", script)} == STATUS["last_baton"].keys()


def test_the_page_can_be_read_aloud_and_on_a_phone(page):
    _, body, reader = page
    tags = [tag for tag, _ in reader.tags]
    assert {"caption", "thead", "tbody", "main", "header", "noscript"} <= set(tags) and tags.count("h1") == 1
    assert all("aria-label" in attributes for tag, attributes in reader.tags if tag == "progress")
    assert ("p", {"id": "state", "role": "status", "aria-live": "polite"}) in reader.tags
    assert ("html", {"lang": "en-GB"}) in reader.tags
    assert any(attributes.get("name") == "viewport" for _, attributes in reader.tags)
    assert "prefers-color-scheme: dark" in body and "max-width" in body
    assert "Agent not reachable" in body


# --- the table


def printed(status, **settings):
    stream = io.StringIO()
    print_status(status, Console(file=stream, highlight=False, **settings))
    return stream.getvalue()


def test_the_table_says_it_all_in_plain_text():
    text = printed(STATUS)
    assert "\x1b" not in text
    rows = dict(line.split(maxsplit=1) for line in text.splitlines() if line)
    assert rows["party"].strip() == "north" and rows["state"].strip() == "holding the baton"
    assert rows["epsilon"].strip() == "0.684 of 1 (68%) at delta 1e-05"
    assert rows["activations"].strip() == "155 of 310 (50%)"
    assert rows["identity"].strip() == "9f" * 32
    assert rows["uptime"].strip() == "1 d 2 h"
    assert rows["east"].split() == ["east.example.org:7443", "up", "1", "min", "1", "s", "ago"]
    assert rows["west"].split() == ["10.20.30.40:7443", "down", "never"]
    assert "123456" in text and "number 123455, from east, to north, just now" in text
    assert "privacy" not in text and "model" not in text


def test_a_pipe_has_room_for_an_address(capsys):
    address = "relay.university-hospital-of-the-south.example.org:7443"
    print_status({**STATUS, "peers": [{**STATUS["peers"][0], "name": "n" * 30, "address": address}]})
    assert f"{'n' * 30}  {address}" in capsys.readouterr().out


def test_on_a_terminal_it_has_colours_and_fits():
    text = printed(STATUS, force_terminal=True, width=40)
    assert "\x1b[" in text
    assert all(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= 40 for line in text.splitlines())


def test_a_run_that_is_not_private_says_so():
    assert "NONE" in printed({**STATUS, "private": False})


def test_an_agent_that_does_not_run_is_shown_as_far_as_it_is_known():
    unknown = {name: None for name in STATUS} | {"party": "north", "state": "stopped", "peers": []}
    known = {"last_baton": {"seq": 7, "from": None, "to": None}, "activations": [3, None], "rho": [0.1, 0.2]}
    assert [" ".join(line.split()) for line in printed(unknown | known).splitlines()] == [
        "party north",
        "state stopped",
        "activations 3",
        "rho 0.1 of 0.2 (50%)",
        "last baton number 7",
    ]


def test_a_run_without_limits_or_peers_is_shown_too():
    bare = {"party": "north", "rho": [0.5, float("inf")], "epsilon": [0.0, None], "activations": [0, 0], "peers": []}
    assert [line.split(maxsplit=1)[1].strip() for line in printed(bare).splitlines()] == ["north", "0 of 0", "0", "0.5"]


@given(st.text())
def test_no_name_reaches_the_terminal_as_a_command(name):
    peer = {**STATUS["peers"][0], "name": name, "address": name}
    text = printed({**STATUS, "party": name, "consortium": f"[red]{name}\x1b[2J", "peers": [peer]})
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert "[red]" in text


# --- the unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_the_unit_is_one_and_is_hardened(tmp_path):
    unit = (DEPLOY / "relaydp-agent@.service").read_text()
    path = tmp_path / "relaydp-agent@north.service"
    path.write_text(unit.replace("/opt/relaydp/bin/relaydp", shutil.which("true")))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
    assert verified.returncode == 0 and str(path.name) not in verified.stderr, verified.stderr
    # the threshold is ten times the exposure: a service with default settings has 9.6
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", path],
        capture_output=True,
        text=True,
    )
    if "unrecognized option" in judged.stderr:
        pytest.skip("this systemd cannot judge a file")
    assert judged.returncode == 0, judged.stdout
