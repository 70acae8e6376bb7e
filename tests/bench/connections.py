"""make bench-connections: what slow and waiting clients cost those that are neither, and the daemon.

An honest client asks over and over, alone, then beside sockets that trickle a header, trickle a
body, or read no answer, which open again as fast as the daemon ends them, and then alone again: its p99 beside them
over its p99 alone. Long polls and event streams are opened, one stream in ten of which never reads: the daemon's memory
before and after, and the p99 of submissions that are posted and cancelled meanwhile, of which the streams are told.
Status 1 when a slow socket outlives its deadline, or a reader that reads misses an event.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import platform
import resource
import selectors
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import service  # noqa: E402

HEADER_S, BODY_S = 5.0, 8.0
TRICKLE_S = 1.0
GRACE_S = 1.0
KINDS = ("header", "body", "read")
GET = b"GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n"
OPENINGS = {
    "header": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ",
    "body": b"POST /v1/submissions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100000\r\n\r\n{",
    "read": GET * 100,
}
LIMITS_S = {"header": HEADER_S, "body": BODY_S, "read": BODY_S}
TASK = {"name": "scripted", "reference": "# script: describe=pass\n"}


class BenchError(Exception):
    """A part of the run did not do its work; the text says which."""


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98] * 1000


# --- slow clients, in a process of their own ---


@dataclass
class Slow:
    """One socket, and since when it is slow."""

    socket: socket.socket
    kind: str
    opened: float = field(default_factory=time.monotonic)


def open_slow(host: str, port: int, number: int) -> Slow:
    kind = KINDS[number % len(KINDS)]
    one = socket.socket()
    if kind == "read":
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.bind((f"127.0.0.{2 + number % 4}", 0))  # each address may have 2,000
    one.connect((host, port))
    one.sendall(OPENINGS[kind])
    one.setblocking(False)
    return Slow(one, kind)


def is_ended(slow: Slow) -> bool:
    """Trickle a byte; whether the daemon has had enough. One that reads nothing sees it by what it may not send."""
    try:
        slow.socket.send(b" " if slow.kind != "read" else b"\r\n")
        return slow.kind != "read" and slow.socket.recv(4096) != b""  # an answer: 408
    except BlockingIOError:
        return False
    except OSError:
        return True


def attack(host: str, port: int, count: int, seconds: float, tell: Connection) -> None:
    """Keep so many slow sockets open; tell when all are, and at the end how many were ended and the oldest age."""
    slow: list[Slow] = []
    oldest = dict.fromkeys(KINDS, 0.0)
    ended = dict.fromkeys(KINDS, 0)
    until = 0.0
    began, at = time.monotonic(), 0
    while not until or time.monotonic() < until:
        # Evenly over the second, as so many clients of their own would.
        time.sleep(max(0.0, began + at * TRICKLE_S / count - time.monotonic()))
        number = at % count
        at += 1
        if len(slow) == number:
            slow.append(open_slow(host, port, number))
        elif is_ended(one := slow[number]):
            oldest[one.kind] = max(oldest[one.kind], time.monotonic() - one.opened)
            ended[one.kind] += 1
            one.socket.close()
            slow[number] = open_slow(host, port, number)
        if not until and at == count:
            tell.send(None)
            until = time.monotonic() + seconds
    for one in slow:
        oldest[one.kind] = max(oldest[one.kind], time.monotonic() - one.opened)
        one.socket.close()
    tell.send((ended, oldest))


def honest(host: str, port: int, seconds: float) -> list[float]:
    """Seconds that each answer took: a kept connection and a new one by turns, 50 a second."""
    kept = http.client.HTTPConnection(host, port, timeout=60)
    times: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        new = http.client.HTTPConnection(host, port, timeout=60)
        for connection in (kept, new):
            began = time.monotonic()
            connection.request("GET", "/v1/submissions?limit=1")
            answer = connection.getresponse()
            answer.read()
            times.append(time.monotonic() - began)
            if answer.status != 200:
                raise BenchError(f"an honest client got {answer.status}")
        new.close()
        time.sleep(0.04)
    kept.close()
    return times


def slow_clients(daemon: service.Daemon, count: int, seconds: float) -> bool:
    parts = urlsplit(daemon.client.url)
    assert parts.hostname and parts.port
    honest(parts.hostname, parts.port, 1)
    alone = honest(parts.hostname, parts.port, seconds / 2)
    here, there = multiprocessing.Pipe()
    attacker = multiprocessing.Process(target=attack, args=(parts.hostname, parts.port, count, seconds + 2, there))
    attacker.start()
    here.recv()
    beside = honest(parts.hostname, parts.port, seconds)
    ended, oldest = here.recv()
    attacker.join()
    alone += honest(parts.hostname, parts.port, seconds / 2)
    print(f"\n{count} slow sockets for {seconds:.0f} s, a byte a second each; deadlines {HEADER_S:g} and {BODY_S:g} s")
    print(f"{'':28}{'requests':>10}{'p50 ms':>9}{'p99 ms':>9}")
    for name, times in (("alone, before and after", alone), ("beside them", beside)):
        print(f"{name:28}{len(times):>10}{statistics.median(times) * 1000:>9.2f}{p99(times):>9.2f}")
    print(f"p99 beside them over p99 alone: {p99(beside) / p99(alone):.2f}")
    late = False
    for kind in KINDS:
        late |= oldest[kind] > LIMITS_S[kind] + GRACE_S + 2 * TRICKLE_S or ended[kind] == 0
        print(f"slow {kind:8} ended by the daemon {ended[kind]:>6}, seen at the latest after {oldest[kind]:.1f} s")
    return not late


# --- those that wait ---


def resident(pid: int) -> float:
    """MiB"""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise BenchError("no VmRSS")


@contextlib.contextmanager
def opened(host: str, port: int, path: str, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            found.append(stack.enter_context(socket.create_connection((host, port))))
            found[-1].sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        yield found


def wait_for(client: service.Client, figure: str, count: int) -> None:
    deadline = time.monotonic() + 60
    while client.get("/v1/status").json()["http"][figure] != count:
        if time.monotonic() > deadline:
            raise BenchError(f"{figure} never was {count}")
        time.sleep(0.05)


def read_streams(readers: list[socket.socket], stop: Connection) -> None:
    """Read until told to stop; tell how many verdicts each was told of."""
    told = dict.fromkeys(readers, 0)
    with selectors.DefaultSelector() as selector:
        for one in readers:
            one.setblocking(False)
            selector.register(one, selectors.EVENT_READ, one)
        quiet_since = time.monotonic()
        while not stop.poll() or time.monotonic() - quiet_since < 2:
            for key, _ in selector.select(0.2):
                one = key.data
                # A name may be cut in two by the end of a read: the marker is one byte that nothing else has.
                told[one] += one.recv(1 << 20).count(b"~")
                quiet_since = time.monotonic()
    stop.send(sorted(told.values()))


def waiting_clients(daemon: service.Daemon, polls: int, streams: int, posts: int) -> bool:
    client, pid = daemon.client, daemon.pid
    parts = urlsplit(client.url)
    host, port = str(parts.hostname), int(parts.port or 0)
    waiting = client.submit({"task": "scripted", "candidate": "# waits\n"})
    stalled = streams // 10
    with contextlib.ExitStack() as stack:
        sizes = [resident(pid)]
        stack.enter_context(opened(host, port, f"/v1/submissions/{waiting}?wait=280", polls))
        wait_for(client, "held", polls)
        sizes.append(resident(pid))
        found = stack.enter_context(opened(host, port, "/v1/events", streams))
        wait_for(client, "streams", streams)
        sizes.append(resident(pid))
        for one in found[:stalled]:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        here, there = multiprocessing.Pipe()
        reader = multiprocessing.Process(target=read_streams, args=(found[stalled:], there))
        reader.start()
        connection = http.client.HTTPConnection(host, port, timeout=60)
        times: list[float] = []
        made = ""
        began = time.monotonic()
        for number in range(posts):
            body = f'{{"task":"scripted","candidate":"# {number}\\n","client":"bench~"}}'
            for method, path, text in (("POST", "/v1/submissions", body), ("DELETE", "", None)):
                started = time.monotonic()
                connection.request(
                    method, path or f"/v1/submissions/{made}", text, {"Content-Type": "application/json"}
                )
                answer = connection.getresponse()
                document = json.loads(answer.read())
                times.append(time.monotonic() - started)
                if answer.status not in (200, 202):
                    raise BenchError(f"{method}: {answer.status} {document}")
                made = document["id"]
        took = time.monotonic() - began
        sizes.append(resident(pid))
        here.send(None)
        counts = here.recv()
        reader.join()
        figures = client.get("/v1/status").json()["http"]
    print(f"\n{polls} long polls, {streams} event streams of which {stalled} never read")
    print(
        "memory of the daemon, MiB: "
        + ", ".join(
            f"{name} {size:.1f}"
            for name, size in zip(
                ("before", "with the polls", "with the streams", "after the load"), sizes, strict=True
            )
        )
    )
    print(
        f"{posts} submissions posted and cancelled in {took:.1f} s: {2 * posts / took:.0f} requests a second, "
        f"p50 {statistics.median(times) * 1000:.2f} ms, p99 {p99(times):.2f} ms"
    )
    print(
        f"events told to each of {len(counts)} readers: {counts[0]} to {counts[-1]}; "
        f"{len(counts) * counts[-1] / took:.0f} a second in all; stalled readers dropped: {figures['streams_dropped']}"
    )
    return bool(counts[0] == counts[-1] == 2 * posts)


def main() -> int:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", type=int, default=2000, help="slow sockets (2000)")
    parser.add_argument("--seconds", type=float, default=20, help="how long they last (20)")
    parser.add_argument("--polls", type=int, default=1000, help="long polls (1000)")
    parser.add_argument("--streams", type=int, default=200, help="event streams, one in ten of which stalls (200)")
    parser.add_argument("--posts", type=int, default=1000, help="submissions posted and cancelled beside them (1000)")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    settings: dict[str, object] = {
        "harness": ROOT / "tests" / "fault" / "harness",
        "python": sys.executable,
        "device": "cpu",
        "paused": True,
        "header_limit_ms": int(HEADER_S * 1000),
        "body_limit_ms": int(BODY_S * 1000),
        "queue_limit": 100000,
    }
    is_good = True
    with service.directory() as directory:
        daemon = service.Daemon(directory, settings)
        client = daemon.start(ready=False)
        try:
            while (answer := client.post("/v1/tasks", TASK)).status == 503:
                time.sleep(0.2)
            if answer.status not in (200, 201):
                raise BenchError(f"the task: {answer.status}")
            is_good &= waiting_clients(daemon, options.polls, options.streams, options.posts)
            is_good &= slow_clients(daemon, options.slow, options.seconds)
        finally:
            daemon.stop()
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
