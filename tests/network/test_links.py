"""Links that fail: cut, stalling, slow, or losing connections and packets. A run is delayed by that, and nothing else.

Between the agents stand proxies: the consortium file has their addresses, and the agents listen elsewhere. A proxy
knows which agent connects by asking the kernel whose socket it is, so that single links can be cut.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import functools
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from consortium_lab import STUCK, Lab, faults, free_ports, make_lab, rows_of, run_agent, start, wait_all, wait_for
from hostile_peer import lines, stopped_at

from relaydp.network.messages.journal import ACCEPT_AFTER, NOTED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def owner_of(port, pids):
    """Which of these processes has the socket with this local port; its place in the list."""
    for table in ("tcp6", "tcp"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].split(":")[1], 16) != port or fields[9] == "0":
                continue
            for place, pid in enumerate(pids):
                with contextlib.suppress(OSError):
                    folder = Path(f"/proc/{pid}/fd")
                    if any(os.readlink(each) == f"socket:[{fields[9]}]" for each in folder.iterdir()):
                        return place
    return None


class Network:
    """Proxies in front of all agents, in a thread of their own. `delay` and `loss` are for each piece of data."""

    def __init__(self, public, private):
        self.pids, self.delay, self.loss, self.cuts, self.held = {}, 0.0, 0.0, 0, 0
        self._private, self._cut, self._live, self._random = private, set(), {}, random.Random(0)
        self._loop, self._flowing = asyncio.new_event_loop(), asyncio.Event()
        self._flowing.set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers = [
            self._do(asyncio.start_server(functools.partial(self._connect, party), "127.0.0.1", port))
            for party, port in enumerate(public)
        ]

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(STUCK)

    def cut(self, *links):
        """No connection between these pairs from now on, in either direction."""

        async def now():
            self._cut |= {frozenset(link) for link in links}
            for link in self._cut:
                for writer in self._live.get(link, ()):
                    writer.transport.abort()

        self._do(now())

    def heal(self):
        async def now():
            self._cut.clear()
            self._flowing.set()

        self._do(now())

    def stall(self):
        """Connections stay, and nothing comes through."""

        async def now():
            self._flowing.clear()

        self._do(now())

    async def _connect(self, to, reader, writer):
        port = writer.get_extra_info("peername")[1]
        places = list(self.pids)
        found = await asyncio.to_thread(owner_of, port, [self.pids[place] for place in places])
        link = frozenset((places[found], to)) if found is not None else None
        try:
            if link is None or link in self._cut:
                return
            there = await asyncio.open_connection("127.0.0.1", self._private[to])
            both = {writer, there[1]}
            live = self._live.setdefault(link, set())
            live |= both
            try:
                await asyncio.gather(self._carry(reader, there[1], both), self._carry(there[0], writer, both))
            finally:
                live -= both
                there[1].transport.abort()
        except OSError:
            pass
        finally:
            writer.transport.abort()

    async def _carry(self, reader, writer, both):
        while data := await reader.read(65536):
            self.held += not self._flowing.is_set()
            await self._flowing.wait()
            await asyncio.sleep(self.delay)
            if self._random.random() < self.loss:
                self.cuts += 1
                break
            writer.write(data)
            await writer.drain()
        for each in both:
            each.transport.abort()

    def close(self):
        async def now():
            for server in self._servers:
                server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._do(now())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STUCK)
        self._loop.close()


class Linked:
    """A consortium behind proxies. `hooks` stop single agents at a point of their work until `go`."""

    def __init__(self, folder, graph="ring", parties=4, hooks=None, **changes):
        ports = free_ports(2 * parties)
        public, private = ports[::2], ports[1::2]
        self.lab: Lab = make_lab(folder, parties, graph=graph, ports=public, **changes)
        self.go, self.stopped = folder / "go", folder / "go.stopped"
        self.network = Network(public, private)
        self.running = []
        for party in range(parties):
            stop = (hooks or {}).get(party)
            settings = self.lab.settings(party, listen=f"127.0.0.1:{private[party]}", linger=3600.0)
            hook = stop and functools.partial(stopped_at, *stop, self.go)
            self.running.append(start(settings, self.log(party), hook))
            self.network.pids[party] = self.running[-1].pid

    def log(self, party):
        return self.lab.folder / f"p{party}.log"

    def events(self, party, event, **fields):
        return [line for line in lines(self.log(party)) if line["event"] == event and fields.items() <= line.items()]

    def links(self, of=None):
        """All links, or those of one party."""
        edges = [tuple(edge) for edge in self.lab.consortium.graph.edges.tolist()]
        return [edge for edge in edges if of is None or of in edge]

    def troubles(self):
        """How often anybody found a neighbour out of reach."""
        events = [line["event"] for party in range(len(self.running)) for line in lines(self.log(party))]
        return events.count("skipped") + events.count("not-delivered")

    def activations(self, party):
        return len(rows_of(self.lab, party, "SELECT 1 FROM ledger"))

    def end(self):
        """Wait until everybody has the model and knows that its neighbours have it."""
        parties = range(len(self.running))
        wait_for(lambda: all(self.events(party, "finished") for party in parties))
        unsure = "SELECT 1 FROM outbox WHERE acknowledged=0"
        wait_for(lambda: not any(rows_of(self.lab, party, unsure) for party in parties))
        for process in self.running:
            process.terminate()
        assert wait_all(self.running) == [0] * len(self.running)
        assert faults(self.lab) == []

    def close(self):
        wait_all(self.running, 0)
        self.network.close()


@pytest.fixture
def linked(tmp_path):
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(contextlib.closing(Linked(tmp_path, **options)))


# -- cut links

AFTER_ITS_FIRST = {2: (NOTED, 1)}  # p2 has acted once and passed the baton on
FOR_EVER = 10**6  # hops that nobody acts on: a run waits for whom it cannot reach, however slow this process is


def cut_in_the_middle(made, links):
    wait_for(made.stopped.exists)
    made.network.cut(*links)
    made.go.touch()


def test_all_links_cut_until_they_are_missed(linked):
    made = linked(hooks=AFTER_ITS_FIRST)
    cut_in_the_middle(made, made.links())
    before = made.troubles()
    wait_for(lambda: made.troubles() > before + 3)
    assert not any(made.events(party, "finished") for party in range(4))
    made.network.heal()
    made.end()


@pytest.mark.slow
@pytest.mark.parametrize("links", ["all", "one party's", "two halves'"])
def test_links_cut_for_a_minute(linked, links):
    made = linked(hooks=AFTER_ITS_FIRST)
    chosen = {"all": made.links(), "one party's": made.links(2), "two halves'": [(1, 2), (0, 3)]}[links]
    cut_in_the_middle(made, chosen)
    time.sleep(60.0)  # a span is what this is about
    assert not any(made.events(party, "finished") for party in range(4))
    made.network.heal()
    made.end()


@pytest.mark.parametrize("graph", ["complete", "ring"])
def test_the_others_go_on_without_one_that_is_cut_off_and_it_makes_up_for_it(linked, graph):
    made = linked(graph=graph, hooks=AFTER_ITS_FIRST, patience=FOR_EVER)
    cut_in_the_middle(made, made.links(2))
    wait_for(lambda: [made.activations(party) for party in range(4)] == [3, 3, 1, 3])
    assert any(made.events(party, "skipped", peer="p2") for party in (0, 1, 3))
    made.network.heal()
    made.end()


def test_a_link_cut_between_commit_and_acknowledgement(linked):
    """p1 has the baton on its disk and cannot say so: p0 sends it again, and it is recognised."""
    made = linked(hooks={1: (ACCEPT_AFTER, 1)})
    wait_for(made.stopped.exists)
    made.network.cut((0, 1))
    made.go.touch()
    wait_for(lambda: made.events(0, "not-delivered", seq=1))
    made.network.heal()
    made.end()
    assert len(made.events(0, "delivered", kind="baton", seq=1)) == 1
    assert len(made.events(1, "accepted", kind="baton", seq=1)) == 1


# -- links that are there, more or less


def test_connections_that_break_one_time_in_ten(linked):
    made = linked(activations=2)
    made.network.loss = 0.1
    made.end()
    assert made.network.cuts > 0


def test_links_that_are_slow_and_stall(linked):
    made = linked(hooks=AFTER_ITS_FIRST)
    made.network.delay = 0.02
    wait_for(made.stopped.exists)
    made.network.stall()
    made.go.touch()
    wait_for(lambda: made.network.held > 3)
    assert not any(made.events(party, "finished") for party in range(4))
    made.network.heal()
    made.end()


# -- lost packets: every agent in a network namespace of its own, and between them a switch that loses one in ten

NEW_NETWORK, SET_DEVICE, TUN, BARE = 0x40000000, 0x400454CA, 0x0001, 0x1000


def run_behind_switch(settings, log, hook=None):
    """An agent in a namespace with one device, whose other end goes to the switch."""
    device = own_device(f"10.77.0.{int(settings.home.name[1:]) + 1}")
    with socket.socket(socket.AF_UNIX) as switch:
        switch.connect(str(Path(log).parent / "switch"))
        socket.send_fds(switch, [settings.home.name.encode()], [device])
        switch.recv(1)
    run_agent(settings, log, hook)


def own_device(address):
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "no namespace of our own")
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, SET_DEVICE, struct.pack("16sH22x", b"wire", TUN | BARE))
    for command in (f"addr add {address}/24 dev wire", "link set wire up", "link set lo up"):
        subprocess.run(["ip", *command.split()], check=True)
    return device


class Switch:
    """Carries packets from device to device, and loses some."""

    def __init__(self, path, loss):
        self.lost = self.carried = 0
        self._loss, self._random, self._devices = loss, random.Random(0), {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._select, self._is_open = selectors.DefaultSelector(), True
        self._select.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while self._is_open:
            for key, _ in self._select.select(0.1):
                if key.fileobj is self._listener:
                    self._plug_in()
                else:
                    self._carry(key.fd)

    def _plug_in(self):
        caller, _ = self._listener.accept()
        with caller:
            name, (device, *_), *_ = socket.recv_fds(caller, 16, 1)
            self._devices[socket.inet_aton(f"10.77.0.{int(name[1:]) + 1}")] = device
            self._select.register(device, selectors.EVENT_READ)
            caller.sendall(b"!")

    def _carry(self, device):
        try:
            packet = os.read(device, 65536)
            to = self._devices.get(packet[16:20])
            if self._random.random() < self._loss:
                self.lost += 1
            elif to is not None:
                os.write(to, packet)
                self.carried += 1
        except OSError:  # its agent has ended
            self._select.unregister(device)

    def close(self):
        self._is_open = False
        self._thread.join(STUCK)
        for device in self._devices.values():
            os.close(device)
        self._listener.close()
        self._select.close()


@pytest.fixture
def switch(tmp_path):
    trial = "import test_links; test_links.own_device('10.77.0.1')"
    places = os.pathsep.join(sys.path)
    tried = subprocess.run([sys.executable, "-c", trial], env={**os.environ, "PYTHONPATH": places}, capture_output=True)
    if tried.returncode:
        pytest.skip("network namespaces and their devices are for root")
    with contextlib.closing(Switch(tmp_path / "switch", loss=0.1)) as made:
        yield made


@pytest.mark.slow
def test_one_packet_in_ten_is_lost(tmp_path, switch):
    lab = make_lab(tmp_path, 4, ports=[7700 + party for party in range(4)])
    text = lab.file.read_text()
    for party in range(4):
        text = text.replace(f"127.0.0.1:{7700 + party}", f"10.77.0.{party + 1}:7700")
    lab.file.write_text(text)
    running = [start(lab.settings(i), tmp_path / f"p{i}.log", body=run_behind_switch) for i in range(4)]
    assert wait_all(running) == [0] * 4
    assert faults(lab) == []
    assert switch.lost > 10
