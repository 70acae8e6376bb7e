"""make bench-capacity: is the daemon itself fast enough, and small enough? No GPU is needed.

Its answers are held against an empty libmicrohttpd handler, and its durable submissions against a bare group commit
through SQLite, in alternating rounds, since a machine's speed changes from minute to minute. The workers are
scripted ones: torch is not loaded, and nothing is judged while anything is measured. Ends with a line for each target,
met or missed; status 1 when one is missed. docs/performance.md has results.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e")]

import service  # noqa: E402
from durable import BenchError, figures, tool  # noqa: E402

TOOLS = Path(os.environ.get("VERIFIERD_BUILD", str(ROOT / "build"))) / "plain" / "bench"
HARNESS = ROOT / "tests" / "fault" / "harness"
OPTIONS = {
    "harness": HARNESS,
    "device": "cpu",
    "python": sys.executable,
    "log_level": "warn",
    "queue_limit": 10_000_000,
}
LIMIT_S = 120.0
GPU_HALF = (
    "latency of one candidate, first sight and repeat (make bench-speed)",
    "throughput of groups of ten with a mix of failures, on one GPU and on four",
    "the same mix with every stage attempted",
    "the share of time that the GPU is busy, and the gap to its physical limit",
)


@dataclass(frozen=True)
class Target:
    """One line at the end."""

    name: str
    value: float
    limit: float
    unit: str
    is_least: bool

    def line(self) -> str:
        met = self.value >= self.limit if self.is_least else self.value <= self.limit
        word = "at least" if self.is_least else "at most"
        return f"{'met' if met else 'MISSED':7}{self.name:58}{self.value:9.2f} {self.unit}, {word} {self.limit:g}"

    def is_met(self) -> bool:
        return self.line().startswith("met")


@dataclass
class Rounds:
    """What one kind of request got, round by round."""

    rates: list[float]
    p99_ms: list[float]

    def rate(self) -> float:
        return statistics.median(self.rates)

    def p99(self) -> float:
        return statistics.median(self.p99_ms)


def port_of(client: service.Client) -> int:
    port = urlsplit(client.url).port
    assert port is not None
    return port


@contextmanager
def bare_handler() -> Iterator[int]:
    """The port of an empty libmicrohttpd handler."""
    command = [str(TOOLS / "http_load"), "bare"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield int(figures(process.stdout.readline())["port"])
        process.stdin.close()
        process.wait(LIMIT_S)


def resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise BenchError("no VmRSS")


def get(port: int, path: str, count: int, connections: int) -> dict[str, float]:
    return figures(tool("http_load", "get", port, path, count, connections))


def compare(ports: dict[str, tuple[int, str]], count: int, connections: int, rounds: int) -> dict[str, Rounds]:
    """Each kind of GET once a round, so that all see the same machine."""
    found = {name: Rounds([], []) for name in ports}
    for _ in range(rounds):
        for name, (port, path) in ports.items():
            seen = get(port, path, count, connections)
            found[name].rates.append(seen["rate"])
            found[name].p99_ms.append(seen["p99_ms"])
    return found


def print_rates(title: str, found: dict[str, Rounds], base: str) -> None:
    print(f"\n{title:44}{'median/s':>10}{'least':>9}{'most':>9}{'p99 ms':>9}{'of bare':>9}")
    for name, one in found.items():
        share = one.rate() / found[base].rate()
        print(f"{name:44}{one.rate():10.0f}{min(one.rates):9.0f}{max(one.rates):9.0f}{one.p99():9.2f}{share:9.2f}")


def answers(given: argparse.Namespace, daemon: service.Daemon, verdict: str) -> list[Target]:
    """Status and a stored verdict beside the empty handler."""
    port = port_of(daemon.client)
    paths = {"GET /v1/status": "/v1/status", "GET of a stored verdict": f"/v1/submissions/{verdict}"}
    with bare_handler() as bare:
        ports = {"empty handler": (bare, "/"), **{name: (port, path) for name, path in paths.items()}}
        found = compare(ports, given.count, given.connections, given.rounds)
        print_rates(f"GETs over {given.connections} connections", found, "empty handler")
        print(f"\n{'how they grow: a second':44}" + "".join(f"{n:>9}" for n in (1, 10, 100, 1000)))
        for name, (where, path) in ports.items():
            rates = [get(where, path, given.count // 2, n)["rate"] for n in (1, 10, 100, 1000)]
            print(f"{name:44}" + "".join(f"{rate:9.0f}" for rate in rates))
    base = found["empty handler"].rate()
    return [
        Target(f"{name}, of an empty handler's rate", found[name].rate() / base, 0.4, "of it", True) for name in paths
    ]


def durable(given: argparse.Namespace, directory: Path, daemon: service.Daemon, task: str) -> list[Target]:
    """Submissions beside a bare group commit."""
    found = {"bare SQLite": Rounds([], []), "POST": Rounds([], [])}
    port, first = port_of(daemon.client), 0
    for _ in range(given.rounds):
        shape = (given.posts, given.connections, first)
        seen = figures(tool("durable_load", "bare", directory / "bare.db", task, *shape))
        found["bare SQLite"].rates.append(seen["rate"])
        found["bare SQLite"].p99_ms.append(0.0)
        seen = figures(tool("durable_load", "http", port, task, *shape, directory / "ids"))
        found["POST"].rates.append(seen["rate"])
        found["POST"].p99_ms.append(seen["p99_ms"])
        first += given.posts
    print_rates(f"durable submissions of 4 KB, {given.connections} together", found, "bare SQLite")
    share = found["POST"].rate() / found["bare SQLite"].rate()
    return [
        Target("durable submissions, of a bare group commit's rate", share, 0.3, "of it", True),
        Target("durable submissions, 99th percentile", found["POST"].p99(), 50, "ms", False),
    ]


def long_polls(given: argparse.Namespace, daemon: service.Daemon, task: str) -> Target:
    """What a request that waits costs in memory."""
    one = daemon.client.submit({"task": task, "candidate": "# waits\n"})
    request = f"GET /v1/submissions/{one}?wait=100 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    held = daemon.client.expect("GET", "/v1/status")["http"]["held"]
    before = resident_kb(daemon.pid)
    with ExitStack() as stack:
        for _ in range(given.polls):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port_of(daemon.client)), 10))
            connection.sendall(request)
        deadline = time.monotonic() + LIMIT_S
        while daemon.client.expect("GET", "/v1/status")["http"]["held"] < held + given.polls:
            if time.monotonic() > deadline:
                raise BenchError("the long polls were not all held")
            time.sleep(0.05)
        each = (resident_kb(daemon.pid) - before) / given.polls
    print(f"\n{given.polls} long polls waiting: {each:.1f} KB resident each")
    return Target(f"{given.polls} long polls, memory of each", each, 64, "KB", False)


def measure(given: argparse.Namespace) -> list[Target]:
    targets: list[Target] = []
    with service.directory() as directory:
        daemon = service.Daemon(directory, OPTIONS)
        start: Callable[..., service.Client] = daemon.start
        client = start()
        try:
            idle = resident_kb(daemon.pid) / 1024
            print(f"resident when idle: {idle:.1f} MB")
            task = client.add_task({"name": "bench", "reference": "# script: describe=pass\n"})
            verdict = str(client.judge({"task": task, "candidate": "# script: timing=1.2\n"}, LIMIT_S)["id"])
            targets += answers(given, daemon, verdict)
        finally:
            daemon.kill()
        # What is submitted stays where it is.
        daemon.options["paused"] = True
        start(ready=False)
        try:
            targets += durable(given, directory, daemon, task)
            targets.append(long_polls(given, daemon, task))
        finally:
            daemon.kill()
    targets.append(Target("resident when idle", idle, 20, "MB", False))
    return targets


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="GETs a round (default 20000)")
    parser.add_argument("--posts", type=int, default=5_000, help="submissions a round (default 5000)")
    parser.add_argument("--connections", type=int, default=8, help="how many are under way (default 8)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each kind (default 3)")
    parser.add_argument("--polls", type=int, default=1_000, help="long polls that wait (default 1000)")
    given = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    targets = measure(given)
    print()
    for target in targets:
        print(target.line())
    print("left out, as it needs a GPU:\n  " + "\n  ".join(GPU_HALF))
    return 0 if all(target.is_met() for target in targets) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BenchError, service.ServiceError) as error:
        print(f"daemon: {error}", file=sys.stderr)
        sys.exit(1)
