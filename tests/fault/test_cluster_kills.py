"""A cluster whose nodes are killed, stopped (also before they hear of a COMMIT) and drained two at once, whose database
crashes, whose standby takes over (also while the primary goes on), and whose connections are cut after a COMMIT and
within any message. Clients post single candidates, and groups of which one is timed.

KILLS faults (8), one after the other under load; KILLS_SEED repeats their order. What clients were told is compared
with what the store has at the end: nothing acknowledged is lost, no verdict is doubled, and none changes.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
import urllib.error
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path

import pytest
import service
from standby import Pair

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "deploy"))

from demo_cluster import TASK, Node

KILLS = int(os.environ.get("KILLS", "8"))
SEED = int(os.environ.get("KILLS_SEED", str(time.time_ns() % 1_000_000)))
LIMIT_S = 180.0
POSTERS = 2
PAUSE_S = 0.15
STEADY_S = 3.0
BACK_S = 10.0
PATIENCE_S = 5.0
"""How long a client waits for an answer."""
CALM_S = PATIENCE_S + 2
"""Longer than a client that waits in vain takes from one request to the next."""
SOCKET = ".s.PGSQL.5432"
COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"
"""The server's answer to a COMMIT."""
UNREACHABLE = (OSError, urllib.error.URLError, HTTPException, ValueError)


class Proxy:
    """Between nodes and databases. What is armed happens once: at the answer to a writer's next COMMIT it can cut the
    connection ("cut"), or stop the node for longer than its lease ("stop"), and any next message it can tear ("tear").
    """

    def __init__(self, directory: Path, databases: Sequence[Path]) -> None:
        directory.mkdir()
        directory.chmod(0o755)
        self._lock = threading.Lock()
        self._armed: Counter[str] = Counter()
        self.cuts: Counter[str] = Counter()
        self._listeners = []
        places = [directory / database.name for database in databases]
        self.url = f"postgresql://verifierd@/postgres?host={','.join(map(str, places))}&target_session_attrs=read-write"
        for place, database in zip(places, databases, strict=True):
            place.mkdir()
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(place / SOCKET))
            listener.listen(64)
            self._listeners.append(listener)
            threading.Thread(target=self._accept, args=[listener, str(database / SOCKET)], daemon=True).start()

    def arm(self, how: str) -> None:
        with self._lock:
            self._armed[how] += 1

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()

    def _accept(self, listener: socket.socket, database: str) -> None:
        while True:
            try:
                node = listener.accept()[0]
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(database)
            except OSError:
                node.close()
                continue
            writes = threading.Event()
            for source, sink, is_answer in ((node, server, False), (server, node, True)):
                threading.Thread(target=self._pass_on, args=[source, sink, is_answer, writes], daemon=True).start()

    def _happens(self, how: str) -> bool:
        with self._lock:
            if self._armed[how] == 0:
                return False
            self._armed[how] -= 1
            self.cuts[how] += 1
            return True

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_answer: bool, writes: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not is_answer and b"INSERT INTO writer" in data:
                    writes.set()
                if is_answer and writes.is_set() and COMMITTED in data:
                    if self._happens("cut"):
                        break
                    if self._happens("stop"):
                        stop_peer(sink)
                if self._happens("tear"):
                    sink.sendall(data[: len(data) // 2])
                    break
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def stop_peer(end: socket.socket) -> None:
    """For longer than its lease."""
    pid = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(20, wake_up, [pid]).start()


def wake_up(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


class World:
    """The databases, the nodes by their places, and what clients were told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.random = random.Random(SEED)
        self.databases = Pair(directory)
        self.proxy = Proxy(directory / "proxy", self.databases.places)
        self.lives = 0
        self.nodes: list[Node] = []
        self.acknowledged: list[str] = []
        self.told: dict[str, str] = {}
        self.changed: list[str] = []
        self.faults: Counter[str] = Counter()
        self.acknowledged_s: list[float] = []
        self.refused_s: list[float] = []
        """When each request began that was refused, or not answered in time."""
        self.struck: list[tuple[str, float]] = []
        """Each fault and when it began."""
        self.gaps_s: list[float] = []
        self.is_over = False

    def start_node(self) -> Node:
        """Under a name of its own: one that is used again waits for the lease of its life before."""
        self.lives += 1
        while True:
            try:
                return Node(f"n{self.lives}", self.directory, self.proxy.url, ["--stage-pool=1", "--max-attempts=50"])
            except Exception:  # the database may be away just now
                if self.is_over:
                    raise
                time.sleep(0.5)

    # --- clients ---

    def post(self, number: int) -> None:
        for mark in range(10**6):
            if self.is_over:
                return
            node = self.random.choice(self.nodes)
            candidate = f"# script: compile=sleep:0.3,pass timing=1.3\n# {number} {mark}\n"
            path = "/v1/submissions"
            body: dict[str, object] = {"task": "scripted", "candidate": candidate}
            if mark % 8 == 7:
                items = [{"candidate": f"{candidate}# {item}\n"} for item in range(3)]
                path, body = "/v1/groups", {"task": "scripted", "candidates": items, "time_top_k": 1}
            begun, status = time.monotonic(), 0
            with suppress(*UNREACHABLE):
                status, document = node.call("POST", path, body, PATIENCE_S)
            if status == 202:
                self.acknowledged += [str(one["id"]) for one in document.get("items", [document])]
                self.acknowledged_s.append(time.monotonic())
                with suppress(*UNREACHABLE):
                    self.look(node, self.random.choice(self.acknowledged[-200:]), PATIENCE_S)
            else:
                self.refused_s.append(begun)
            time.sleep(PAUSE_S)

    def look(self, node: Node, one: str, limit_s: float) -> bool:
        status, document = node.call("GET", f"/v1/submissions/{one}", None, limit_s)
        if status != 200 or document.get("state") != "done":
            return False
        text = json.dumps(document, sort_keys=True)
        if self.told.setdefault(one, text) != text:
            self.changed.append(one)
        return True

    # --- faults ---

    def kill_node(self) -> None:
        place = self.random.randrange(len(self.nodes))
        self.nodes[place].kill()
        self.nodes[place] = self.start_node()

    def stop_node(self) -> None:
        """Now and then for longer than its lease."""
        node = self.random.choice(self.nodes)
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(self.random.choice((1, 1, 1, 2, 2, 2, 20, 60)))
        node.process.send_signal(signal.SIGCONT)

    def crash_database(self) -> None:
        self.databases.crash()

    def fail_over(self) -> None:
        self.databases.fail_over()

    def fail_over_late(self) -> None:
        """The primary goes on for a while: it acknowledges nothing, and its nodes stay with it."""
        self.databases.fail_over(both_s=2)

    def fail_over_hung(self) -> None:
        self.databases.fail_over(is_hung=True)

    def end_backends(self) -> None:
        for _ in range(10):
            with suppress(Exception):
                self.ask(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                    " WHERE application_name = 'verifierd' AND random() < 0.5"
                )
            time.sleep(0.1)

    def cut_after_commit(self) -> None:
        self.proxy.arm("cut")
        time.sleep(0.3)

    def tear_messages(self) -> None:
        """Of five connections, whatever they are for."""
        for _ in range(5):
            self.proxy.arm("tear")
            time.sleep(0.1)

    def stop_after_commit(self) -> None:
        """What it has claimed or ended it hears of when its lease is over."""
        self.proxy.arm("stop")
        time.sleep(21)

    def drain_two(self) -> None:
        for node in self.nodes[:2]:
            node.process.send_signal(signal.SIGTERM)
        for place in range(2):
            self.nodes[place].stop()
            assert self.nodes[place].process.returncode == 0
            self.nodes[place] = self.start_node()

    def strike(self) -> None:
        """Any of them; a failover takes longest, and is rarer."""
        rare = self.random.choice((self.fail_over, self.fail_over_late, self.crash_database, self.crash_database))
        nodes = (self.kill_node, self.stop_node, self.stop_after_commit, self.drain_two)
        connections = (self.end_backends, self.tear_messages, *[self.cut_after_commit] * 4)
        self.suffer(self.random.choice((*nodes, rare, *connections)))

    def suffer(self, fault: Callable[[], None]) -> float:
        """How long the fault itself took, and with a failover the making of the next standby."""
        self.struck.append((fault.__name__, time.monotonic()))
        fault()
        self.faults[fault.__name__] += 1
        before, begun = self.done(), time.monotonic()
        while self.done() <= before:
            assert time.monotonic() < begun + LIMIT_S
            time.sleep(0.1)
        self.gaps_s.append(time.monotonic() - begun)
        return begun - self.struck[-1][1]

    # --- what clients noticed ---

    def silences_s(self) -> dict[str, list[float]]:
        """By fault: the longest time after each in which nothing was acknowledged, shortest first."""
        found: dict[str, list[float]] = {name: [] for name, _ in self.struck}
        times = sorted(self.acknowledged_s)
        ends = [*(begun for _, begun in self.struck[1:]), max(times[-1], self.struck[-1][1])]
        for (name, begun), end in zip(self.struck, ends, strict=True):
            seen = [begun, *times[bisect(times, begun) : bisect(times, end)], end]
            found[name].append(max(b - a for a, b in pairwise(seen)))
        return {name: sorted(values) for name, values in sorted(found.items())}

    def back_s(self, begun: float) -> float:
        """Until CALM_S began in which no request was refused; infinite while there are none."""
        known_s = time.monotonic() - PATIENCE_S
        marks = [begun, *sorted(at for at in self.refused_s if at > begun), known_s]
        return next((at - begun for at, after in pairwise(marks) if after - at >= CALM_S), math.inf)

    def ask(self, sql: str) -> list[str]:
        return self.databases.primary.ask(sql)

    def done(self) -> int:
        return int(self.ask("SELECT count(*) FROM verifierd.submission WHERE state = 2")[0])

    def close(self) -> None:
        self.is_over = True
        for node in self.nodes:
            node.process.send_signal(signal.SIGCONT)
            node.kill()
        self.proxy.close()
        self.databases.stop()


@pytest.fixture
def world() -> Iterator[World]:
    with service.directory() as directory:
        made = World(directory)
        try:
            made.nodes = [made.start_node() for _ in range(3)]
            for node in made.nodes:
                node.wait_ready()
            made.nodes[0].call("POST", "/v1/tasks", TASK)
            yield made
        finally:
            made.close()


@contextmanager
def load(world: World) -> Iterator[None]:
    """Clients meanwhile; at the end all that they were told is there."""
    posting = [threading.Thread(target=world.post, args=[number], daemon=True) for number in range(POSTERS)]
    for thread in posting:
        thread.start()
    yield
    world.is_over = True
    for thread in posting:
        thread.join(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    left = list(world.acknowledged)
    while left and time.monotonic() < deadline:
        left = [one for one in left if not world.look(world.nodes[0], one, 30)]
        time.sleep(0.2)
    for one in world.acknowledged:
        world.look(world.nodes[1], one, 30)
    counted = int(world.ask("SELECT coalesce(sum(n), 0) FROM verifierd.tally WHERE what = 2")[0])
    summed = int(world.ask("SELECT coalesce(sum(n), 0) FROM verifierd.trend WHERE scope = '' AND span_s = 60")[0])
    stored = world.done()
    fenced = sum(int(node.call("GET", "/v1/status")[1]["counts"]["fenced"]) for node in world.nodes)
    gaps = sorted(world.gaps_s)
    print(
        f"seed {SEED}, faults {dict(world.faults)}, by the proxy {dict(world.proxy.cuts)}, acknowledged"
        f" {len(world.acknowledged)}, stored {stored}, lost {len(left)}, changed {len(world.changed)},"
        f" counted {counted}, fenced by the living {fenced}, next verdict after a fault: median"
        f" {gaps[len(gaps) // 2]:.1f} s, 99 of 100 {gaps[len(gaps) * 99 // 100]:.1f} s, longest {gaps[-1]:.1f} s"
    )
    for name, values in world.silences_s().items():
        middle, longest = values[len(values) // 2], values[-1]
        print(f"{name}: nothing acknowledged for {middle:.1f} s at the median, {longest:.1f} s at most")
    assert world.acknowledged and (left, world.changed) == ([], [])
    assert (counted, summed) == (stored, stored)
    assert stored >= len(set(world.acknowledged))


def test_no_fault_loses_doubles_or_changes_a_verdict(world: World) -> None:
    with load(world):
        for _ in range(KILLS):
            world.strike()


def check_back(world: World, fault: Callable[[], None], what: str) -> None:
    """No client is refused any more BACK_S after the fault is over."""
    time.sleep(STEADY_S)
    begun = time.monotonic()
    took_s = world.suffer(fault)
    while math.isinf(world.back_s(begun)) and time.monotonic() < begun + took_s + BACK_S + CALM_S + PATIENCE_S:
        time.sleep(0.1)
    back_s = world.back_s(begun)
    print(f"{fault.__name__}: {what} after {took_s:.1f} s, no request refused from {back_s:.1f} s on")
    assert back_s <= took_s + BACK_S


def test_a_standby_that_takes_over_has_all_that_was_acknowledged(world: World) -> None:
    """There and back, and soon no client is refused. The second time both can be written for a while."""
    with load(world):
        for fault in (world.fail_over, world.fail_over_late):
            check_back(world, fault, "the next standby")


@pytest.mark.slow
def test_no_client_is_refused_soon_after_any_other_fault(world: World) -> None:
    """A node is stopped for as long as its draw says, and clients that asked it wait meanwhile."""
    with load(world):
        for fault in (
            world.kill_node,
            world.crash_database,
            world.end_backends,
            world.cut_after_commit,
            world.stop_node,
        ):
            check_back(world, fault, "over")


@pytest.mark.slow
def test_a_primary_that_hangs_is_left_for_the_standby_that_took_over(world: World) -> None:
    """Its connections stay open, and nothing comes of them."""
    with load(world):
        time.sleep(STEADY_S)
        world.suffer(world.fail_over_hung)
        time.sleep(STEADY_S)
