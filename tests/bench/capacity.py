"""make bench-capacity: is the daemon itself fast enough, and small enough? No GPU is needed.

Its answers are held against an empty libmicrohttpd handler, and its durable submissions against a bare group commit
through SQLite, in alternating rounds, since a machine's speed changes from minute to minute. The workers are
scripted ones: torch is not loaded, and nothing is judged while anything is measured. Then the same with 10^3 to
--stored submissions in the store, each time beside the bare library, and with --queued that wait. A share is that of
the least disturbed rounds. Ends with a line for each target, met or missed; status 1 when one is missed.
docs/measurements/speed.md has results; --out keeps every round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e")]

import service  # noqa: E402
from durable import BenchError, figures, tool  # noqa: E402
from target import Target  # noqa: E402

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
SHARE = 0.25
"""Least of the bare library's rate: a request costs at most as much as four of its own."""
GPU_HALF = "latency, load, funnel and what the time of the GPU goes to: make bench-speed"


@dataclass
class Rounds:
    """What one kind of request got, round by round."""

    rates: list[float]
    p99_ms: list[float]
    cpu_us: list[float] = field(default_factory=list)
    """Of the server, for each request."""

    def rate(self) -> float:
        return statistics.median(self.rates)

    def p99(self) -> float:
        return statistics.median(self.p99_ms)

    def share(self, base: Rounds) -> float:
        """Of what the other got, each in its least disturbed round: what else runs can only take away."""
        return max(self.rates) / max(base.rates)


RAW: dict[str, object] = {}
"""What was measured, by table: for --out."""

IN_FLIGHT = (1, 10, 100, 1000)
SMALLEST_STORE = 1_000
"""Submissions in the smallest store that is filled."""


def port_of(client: service.Client) -> int:
    port = urlsplit(client.url).port
    assert port is not None
    return port


@contextmanager
def bare_handler() -> Iterator[tuple[int, int]]:
    """The port and the process of an empty libmicrohttpd handler."""
    command = [str(TOOLS / "http_load"), "bare"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield int(figures(process.stdout.readline())["port"]), process.pid
        process.stdin.close()
        process.wait(LIMIT_S)


def resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise BenchError("no VmRSS")


def get(port: int, path: str, count: int, connections: int) -> dict[str, float]:
    return figures(tool("http_load", "get", port, path, count, connections))


def cpu_ns(pid: int) -> int:
    """What all its threads have had so far."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


Servers = dict[str, tuple[int, int, str]]
"""Port, process, path."""


def compare(ports: Servers, count: int, connections: int, rounds: int) -> dict[str, Rounds]:
    """Each kind of GET once a round, so that all see the same machine."""
    found = {name: Rounds([], []) for name in ports}
    for _ in range(rounds):
        for name, (port, pid, path) in ports.items():
            before = cpu_ns(pid)
            seen = get(port, path, count, connections)
            found[name].cpu_us.append((cpu_ns(pid) - before) / 1e3 / count)
            found[name].rates.append(seen["rate"])
            found[name].p99_ms.append(seen["p99_ms"])
    return found


def print_rates(title: str, found: dict[str, Rounds], base: str) -> None:
    print(f"\n{title:44}{'median/s':>10}{'least':>9}{'most':>9}{'p99 ms':>9}{'of bare':>9}{'cpu µs':>8}")
    RAW[title] = {name: asdict(one) for name, one in found.items()}
    for name, one in found.items():
        share = one.share(found[base])
        print(
            f"{name:44}{one.rate():10.0f}{min(one.rates):9.0f}{max(one.rates):9.0f}{one.p99():9.2f}{share:9.2f}"
            + (f"{statistics.median(one.cpu_us):8.1f}" if one.cpu_us else "")
        )


def answers(given: argparse.Namespace, daemon: service.Daemon, verdict: str) -> list[Target]:
    """Status and a stored verdict beside the empty handler."""
    port = port_of(daemon.client)
    paths = {"GET /v1/status": "/v1/status", "GET of a stored verdict": f"/v1/submissions/{verdict}"}
    with bare_handler() as bare:
        ports = {"empty handler": (*bare, "/"), **{name: (port, daemon.pid, path) for name, path in paths.items()}}
        found = compare(ports, given.count, given.connections, given.rounds)
        print_rates(f"GETs over {given.connections} connections", found, "empty handler")
        in_flight: dict[str, list[Rounds]] = {name: [Rounds([], []) for _ in IN_FLIGHT] for name in ports}
        for _ in range(given.rounds):
            for i, n in enumerate(IN_FLIGHT):
                for name, one in compare(ports, given.count // 2, n, 1).items():
                    in_flight[name][i].rates += one.rates
                    in_flight[name][i].p99_ms += one.p99_ms
    print_in_flight("a second, by requests in flight", in_flight)
    base = found["empty handler"]
    return [
        Target(f"{name}, of an empty handler's rate", found[name].share(base), SHARE, "of it", True) for name in paths
    ]


def print_in_flight(title: str, found: dict[str, list[Rounds]]) -> None:
    """A line of medians, and one of the 99th percentiles."""
    RAW[title] = {name: dict(zip(IN_FLIGHT, map(asdict, rounds), strict=True)) for name, rounds in found.items()}
    print(f"\n{title:44}" + "".join(f"{n:>9}" for n in IN_FLIGHT))
    for name, rounds in found.items():
        print(f"{name:44}" + "".join(f"{one.rate():9.0f}" for one in rounds))
        print(f"{'  its 99th percentile, ms':44}" + "".join(f"{one.p99():9.2f}" for one in rounds))


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
    share = found["POST"].share(found["bare SQLite"])
    in_flight = [Rounds([], []) for _ in IN_FLIGHT]
    for one, n in zip(in_flight, IN_FLIGHT, strict=True):
        seen = figures(tool("durable_load", "http", port, task, max(n, given.posts // 2), n, first, directory / "ids"))
        first += max(n, given.posts // 2)
        one.rates.append(seen["rate"])
        one.p99_ms.append(seen["p99_ms"])
    print_in_flight("durable submissions, by posts in flight", {"POST": in_flight})
    return [
        Target("durable submissions, of a bare group commit's rate", share, SHARE, "of it", True),
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


@contextmanager
def on_store(directory: Path, store: Path) -> Iterator[tuple[service.Daemon, float]]:
    """A daemon that judges nothing over a filled store, and how long it took to answer."""
    daemon = service.Daemon(directory, {**OPTIONS, "paused": True, "store": store})
    start: Callable[..., service.Client] = daemon.start
    began = time.monotonic()
    start(ready=False)
    try:
        yield daemon, time.monotonic() - began
    finally:
        daemon.kill()


@dataclass
class Stored:
    """What a store of one size gave."""

    rows: int
    start_s: float
    resident_mb: float
    gets: dict[str, Rounds]
    posts: dict[str, Rounds]


def forget_briefs(store: Path) -> str:
    """The oldest hundred become such as an earlier version stored, which a page has to parse; their cursor."""
    with closing(sqlite3.connect(store)) as db, db:
        cursor = str(db.execute("SELECT id FROM submission ORDER BY id LIMIT 1 OFFSET 100").fetchone()[0])
        db.execute("UPDATE submission SET brief = NULL WHERE id < ?", (cursor,))
    return cursor


def with_stored(given: argparse.Namespace, directory: Path, rows: int) -> Stored:
    """Everything at one size of the store."""
    store = directory / f"{rows}.db"
    if given.stores and (given.stores / store.name).exists():
        store = given.stores / store.name
    else:
        tool("durable_store", "fill", store, rows)
    task = tool("durable_store", "task", store).strip()
    old = forget_briefs(store)
    posts = {"bare SQLite": Rounds([], []), "POST": Rounds([], [])}
    with on_store(directory, store) as (daemon, start_s), bare_handler() as bare:
        port = port_of(daemon.client)
        newest = daemon.client.expect("GET", "/v1/submissions?limit=1&view=brief")
        middle = daemon.client.expect("GET", f"/v1/submissions?limit=200&view=brief&cursor={newest['next']}")["next"]
        paths = {
            "GET /v1/status": "/v1/status",
            "GET of a stored verdict": f"/v1/submissions/{middle}",
            "a page of 20": "/v1/submissions?limit=20&view=brief",
            "a page of 20 by class": "/v1/submissions?limit=20&view=brief&class=mismatch",
            "a page of 20 that is parsed": f"/v1/submissions?limit=20&view=brief&cursor={old}",
        }
        ports = {"empty handler": (*bare, "/"), **{name: (port, daemon.pid, path) for name, path in paths.items()}}
        gets = compare(ports, max(given.count // 15, 1), given.connections, given.rounds)
        for at in range(given.rounds):
            shape = (given.posts // 2, given.connections, at * given.posts)
            seen = figures(tool("durable_load", "bare", directory / "bare.db", task, *shape))
            posts["bare SQLite"].rates.append(seen["rate"])
            seen = figures(tool("durable_load", "http", port, task, *shape, directory / "ids"))
            posts["POST"].rates.append(seen["rate"])
        return Stored(rows, start_s, resident_kb(daemon.pid) / 1024, gets, posts)


def stored(given: argparse.Namespace, directory: Path) -> list[Target]:
    """How it all grows with what is stored."""
    sizes = [SMALLEST_STORE * 10**n for n in range(7) if SMALLEST_STORE * 10**n <= given.stored]
    found = [with_stored(given, directory, rows) for rows in sizes]
    RAW["by submissions stored"] = [asdict(one) for one in found]
    print(f"\n{'a second, and of bare, by submissions stored':44}" + "".join(f"{n:>17}" for n in sizes))
    for kind in ("gets", "posts"):
        base, *names = getattr(found[0], kind)
        for name in (base, *names):
            cells = [(getattr(one, kind)[name], getattr(one, kind)[base]) for one in found]
            print(f"{name:44}" + "".join(f"{one.rate():11.0f}{one.share(bare):6.2f}" for one, bare in cells))
    for name in found[0].gets:
        cpu_us = [statistics.median(one.gets[name].cpu_us) for one in found]
        print(f"{'cpu µs, ' + name:44}" + "".join(f"{cell:17.1f}" for cell in cpu_us))
    print(f"{'seconds to start':44}" + "".join(f"{one.start_s:17.2f}" for one in found))
    print(f"{'resident, MB':44}" + "".join(f"{one.resident_mb:17.1f}" for one in found))
    last, base = found[-1], found[-1].gets["empty handler"]
    return [
        Target(f"{name} with {last.rows} stored", last.gets[name].share(base), SHARE, "of it", True)
        for name in ("GET /v1/status", "GET of a stored verdict")
    ] + [
        Target(
            f"durable submissions with {last.rows} stored",
            last.posts["POST"].share(last.posts["bare SQLite"]),
            SHARE,
            "of it",
            True,
        )
    ]


def queued(given: argparse.Namespace, directory: Path) -> list[Target]:
    """What those that wait cost."""
    store = directory / "queued.db"
    task = tool("durable_store", "task", store).strip()
    with on_store(directory, store) as (daemon, _):
        empty_kb = resident_kb(daemon.pid)
    tool("durable_store", "add", store, task, given.queued, 1000, 0)
    with on_store(directory, store) as (daemon, start_s), bare_handler() as bare:
        waiting = daemon.client.expect("GET", "/v1/status")["queues"]["waiting"]
        if waiting != given.queued:
            raise BenchError(f"{waiting} wait, and {given.queued} were stored")
        ports = {
            "empty handler": (*bare, "/"),
            "GET /v1/status": (port_of(daemon.client), daemon.pid, "/v1/status"),
        }
        found = compare(ports, given.count, given.connections, given.rounds)
        print_rates(f"with {given.queued} that wait", found, "empty handler")
        full_kb = resident_kb(daemon.pid)
    each = (full_kb - empty_kb) / given.queued
    RAW["queued"] = {"n": given.queued, "start_s": start_s, "resident_kb": full_kb, "resident_kb_empty": empty_kb}
    print(f"taken up in {start_s:.1f} s; resident {full_kb / 1024:.1f} MB, {each:.2f} KB each")
    status = found["GET /v1/status"].share(found["empty handler"])
    return [Target(f"GET /v1/status with {given.queued} that wait", status, SHARE, "of it", True)]


GROUP = 256
"""Candidates of a group, of FILLER each."""
FILLER = "".join(
    f"# line {i} of a candidate kernel, with about seventy bytes of text in it .......\n" for i in range(80)
)
LOOP_MS = {"POST of a group of 256": 5.0, "GET of it, all queued": 3.0, "DELETE of it": 5.0}
"""What the loop's thread may have for each: everybody else's requests wait as long."""


def loop_ns(pid: int) -> int:
    """What the thread of the loop has had so far, which is the first."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])


def groups(given: argparse.Namespace, directory: Path) -> list[Target]:
    """What a large group costs the loop, beside an empty handler's answers in the same rounds."""
    store = directory / "groups.db"
    task = tool("durable_store", "task", store).strip()
    took: dict[str, list[float]] = {name: [] for name in LOOP_MS}
    empty_us: list[float] = []
    with on_store(directory, store) as (daemon, _), bare_handler() as bare:
        client = daemon.client

        def timed(name: str, method: str, path: str, body: object = None) -> service.Json:
            before = loop_ns(daemon.pid)
            found = client.expect(method, path, body)
            time.sleep(0.05)  # what it left to do is done
            took[name].append((loop_ns(daemon.pid) - before) / 1e6)
            return found

        for at in range(2 * given.rounds):
            empty_us += compare({"empty": (*bare, "/")}, given.count // 15, 1, 1)["empty"].cpu_us
            items = [{"candidate": f"# {at} {i}\n{FILLER}"} for i in range(GROUP)]
            post, get, delete = LOOP_MS
            made = timed(post, "POST", "/v1/groups", {"task": task, "candidates": items})
            path = f"/v1/groups/{made['id']}"
            states = {item["state"] for item in timed(get, "GET", path)["items"]}
            ended = timed(delete, "DELETE", path)
            if states != {"queued"} or ended["state"] != "cancelled":
                raise BenchError(f"the group was {states}, and is {ended['state']}")
    RAW["of a group"] = {"loop_ms": took, "empty_us": empty_us}
    print(f"\n{'the loop, for a group of 256 of 6.5 KB':44}{'median ms':>10}{'least':>9}{'most':>9}{'of empty':>9}")
    for name, found in took.items():
        share = 1e3 * statistics.median(found) / statistics.median(empty_us)
        print(f"{name:44}{statistics.median(found):10.2f}{min(found):9.2f}{max(found):9.2f}{share:9.0f}")
    return [Target(f"{name}, of the loop", min(took[name]), most, "ms", False) for name, most in LOOP_MS.items()]


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
            # First, while nothing has left memory behind that could be used again.
            targets.append(long_polls(given, daemon, task))
            targets += durable(given, directory, daemon, task)
        finally:
            daemon.kill()
    with service.directory() as directory:
        targets += groups(given, directory)
    with service.directory() as directory:
        targets += queued(given, directory)
        if given.stored >= SMALLEST_STORE:
            targets += stored(given, directory)
    targets.append(Target("resident when idle", idle, 20, "MB", False))
    return targets


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=6_000, help="GETs a round (default 6000)")
    parser.add_argument("--posts", type=int, default=1_000, help="submissions a round (default 1000)")
    parser.add_argument("--connections", type=int, default=8, help="how many are under way (default 8)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each kind (default 9)")
    parser.add_argument(
        "--stored",
        type=int,
        default=100_000,
        help=f"up to so many stored (10^5; 10^6 take minutes and 5 GB; less than {SMALLEST_STORE} leaves the part out)",
    )
    parser.add_argument("--stores", type=Path, help="a directory with stores just filled, as ROWS.db")
    parser.add_argument("--queued", type=int, default=100_000, help="submissions that wait (default 100000)")
    parser.add_argument("--out", type=Path, help="keep every round here, as JSON")
    parser.add_argument("--polls", type=int, default=1_000, help="long polls that wait (default 1000)")
    given = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "load_before": os.getloadavg()[0]}
    targets = measure(given)
    if given.out:
        RAW.update(machine=machine, targets=[asdict(target) for target in targets])
        given.out.write_text(json.dumps(RAW, indent=1) + "\n")
    print()
    for target in targets:
        print(target.line())
    print(f"not in here, as it needs a GPU: {GPU_HALF}")
    return 0 if all(target.is_met() for target in targets) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BenchError, service.ServiceError) as error:
        print(f"daemon: {error}", file=sys.stderr)
        sys.exit(1)
