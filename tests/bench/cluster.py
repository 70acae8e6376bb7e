#!/usr/bin/env python3
"""make bench-cluster: verdicts a second of one, two and three nodes on a PostgreSQL, beside one on a file.

All of it in one run on one machine, with scripted workers (tests/fault/harness): a verdict takes --seconds of one of
the --jobs slots of a node, and little processor time. With --seconds=0 the machine is the limit instead. The rounds
alternate. What a verdict writes is asked of the database; how long a claim takes is read from its log, in rounds of
their own, since the log costs time. A JSON line for each round, then a table.

--simulate measures the database alone, with threads in place of daemons (cluster_load.c); --polls measures clients that
wait, spread over three nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "server" / "deploy"))

from demo_cluster import BINARY, TASK, ClusterError, Database, Node  # noqa: E402

GROUP = 16
LIMIT_S = 900.0
LAYOUTS = (("sqlite", 1), ("postgresql", 1), ("postgresql", 2), ("postgresql", 3))
COUNTS = (
    "SELECT pg_current_wal_lsn() - '0/0', pg_database_size(current_database()),"
    " (SELECT tup_inserted + tup_updated + tup_deleted FROM pg_stat_database WHERE datname = current_database())"
)

Json = dict[str, Any]


@contextmanager
def nodes(directory: Path, url: str, n: int, jobs: int) -> Iterator[list[Node]]:
    with ExitStack() as stack:
        found = []
        for name in "abc"[:n]:
            found.append(Node(name, directory, url, [f"--cpu-jobs={jobs}", "--device=cpu:" + ",".join("01")]))
            stack.callback(found[-1].stop)
        for node in found:
            node.wait_ready()
        status, answer = found[0].call("POST", "/v1/tasks", TASK)
        if status not in (200, 201, 202):
            raise ClusterError(f"the task is not taken: {answer}")
        yield found


def post(node: Node, groups: int, seconds: float, ids: list[str]) -> None:
    script = f"# script: compile=sleep:{seconds},pass timing=1.3\n"
    for number in range(groups):
        items = [{"candidate": f"{script}# {time.monotonic_ns()} {number} {i}\n"} for i in range(GROUP)]
        status, document = node.call("POST", "/v1/groups", {"task": "scripted", "candidates": items})
        if status == 202:
            ids.append(str(document["id"]))


def judge(found: Sequence[Node], verdicts: int, seconds: float) -> Json:
    """Post that many, spread over the nodes, and wait for all of them."""
    groups = verdicts // GROUP // len(found)
    ids: list[str] = []
    begun = time.monotonic()
    posting = [threading.Thread(target=post, args=[node, groups, seconds, ids]) for node in found]
    for thread in posting:
        thread.start()
    for thread in posting:
        thread.join()
    posted = time.monotonic()
    for number, one in enumerate(ids):
        node = found[number % len(found)]
        while node.call("GET", f"/v1/groups/{one}?wait=60")[1]["state"] != "done":
            if time.monotonic() - begun > LIMIT_S:
                raise ClusterError(f"group {one} is not done after {LIMIT_S:.0f} s")
    took = time.monotonic() - begun
    if len(ids) != groups * len(found):
        raise ClusterError(f"{len(ids)} of {groups * len(found)} groups were taken")
    n = len(ids) * GROUP
    return {"verdicts": n, "verdicts_s": n / took, "posted_s": n / (posted - begun), "seconds": took}


def counted(database: Database) -> list[int]:
    time.sleep(1)  # backends report what they did once they are idle
    database.ask("CHECKPOINT")
    return [int(value) for value in database.ask(COUNTS)[0].split("|")]


def claim_times_ms(log: Path) -> list[float]:
    """Of the statements that found something or not: the log has a line for each execution."""
    pattern = re.compile(r"duration: ([0-9.]+) ms +execute [^:]*: WITH lease AS MATERIALIZED")
    return sorted(float(found.group(1)) for found in pattern.finditer(log.read_text(errors="replace")))


def run_round(directory: Path, store: str, n: int, options: argparse.Namespace, logs: bool) -> Json:
    directory.mkdir()
    directory.chmod(0o755)
    line: Json = {"store": store, "nodes": n, "load": os.getloadavg()[0]}
    if store == "sqlite":
        with nodes(directory, str(directory / "store.db"), 1, options.jobs) as found:
            judge(found, GROUP * n, 0)
            line |= judge(found, options.verdicts, options.seconds)
            status = found[0].call("GET", "/v1/status")[1]["store"]
            line["rows"] = status["rows_written"] / (line["verdicts"] + GROUP * n)
        line["disk_bytes"] = sum(f.stat().st_size for f in directory.glob("store.db*")) / line["verdicts"]
        return line
    said = ["log_min_messages=log", "log_min_duration_statement=0", "logging_collector=off"] if logs else []
    database = Database(directory / "database", said)
    try:
        with nodes(directory, database.url, n, options.jobs) as found:
            judge(found, GROUP * n, 0)  # statements are prepared, workers warm
            before = counted(database)
            line |= judge(found, options.verdicts, options.seconds)
            wal, disk, rows = (b - a for a, b in zip(before, counted(database), strict=True))
            line |= {
                key: value / line["verdicts"]
                for key, value in (("wal_bytes", wal), ("disk_bytes", disk), ("rows", rows))
            }
    finally:
        database.stop()
    if logs:
        times = claim_times_ms(directory / "postgres.log")
        if not times:
            raise ClusterError("no claim is in the log")
        line |= {
            "claims": len(times),
            "claim_p50_ms": times[len(times) // 2],
            "claim_p99_ms": times[len(times) * 99 // 100],
        }
    return line


def simulate(directory: Path, cases: Sequence[tuple[int, int]], seconds: float) -> Iterator[Json]:
    """So many nodes as threads, which store, claim and end as fast as they can, on an empty database each time.

    The other number is of clients that wait at the same time.
    """
    program = BINARY.parents[1] / "plain" / "bench" / "cluster_load"
    for n, clients in cases:
        place = directory / f"{n}-{clients}"
        place.mkdir()
        place.chmod(0o755)
        database = Database(place / "database", ["max_connections=600"])
        try:
            ran = subprocess.run(
                [str(program), database.url, str(n), str(seconds), str(clients)],
                capture_output=True,
                text=True,
                check=False,
            )
            if ran.returncode != 0:
                raise ClusterError(ran.stderr)
            yield {"load": os.getloadavg()[0], **json.loads(ran.stdout)}
        finally:
            database.stop()


def sweep(directory: Path, seconds: float) -> Json:
    """What ten simulated nodes have judged in so many seconds goes, all but a hundred, while one more works.

    Then the tables are vacuumed, at the pace of autovacuum.
    """
    program = str(BINARY.parents[1] / "plain" / "bench" / "cluster_load")
    database = Database(directory / "database", ["max_connections=600", "autovacuum=off", "vacuum_cost_delay=2"])
    try:
        subprocess.run([program, database.url, "10", str(seconds)], capture_output=True, check=True)
        with nodes(directory, database.url, 1, 1):
            pass
        database.ask("ANALYZE")
        node = Node("sweeper", directory, database.url, ["--paused=true", "--retention-rows=100"])
        writer = subprocess.Popen([program, database.url, "1", str(LIMIT_S)], stdout=subprocess.DEVNULL)
        try:
            node.call("POST", "/v1/retention", {})
            begun, count = time.monotonic(), "SELECT coalesce(sum(n), 0) FROM verifierd.tally WHERE what = 2"
            stored = int(database.ask(count)[0])
            while (state := node.call("GET", "/v1/retention")[1])["running"] and time.monotonic() < begun + LIMIT_S:
                time.sleep(0.05)
            took = time.monotonic() - begun
        finally:
            writer.kill()
            writer.wait()
            node.stop()
        removed = state["last"]["submissions"]
        written = int(database.ask(count)[0]) + removed - stored
        begun = time.monotonic()
        database.ask("VACUUM")
        vacuum = time.monotonic() - begun
    finally:
        database.stop()
    return {
        "load": os.getloadavg()[0],
        "removed": removed,
        "removed_s": removed / took,
        "blobs": state["last"]["blobs"],
        "verdicts_s": written / took,
        "vacuumed_s": removed / vacuum,
    }


async def poll(node: Node, one: str) -> tuple[float, float]:
    """When it was asked for and when its verdict came."""
    port = int(node.url.rpartition(":")[2])
    asked = time.time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET /v1/submissions/{one}?wait=120 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
    )
    answer = await reader.read(-1)
    writer.close()
    if b'"class"' not in answer:
        raise ClusterError(answer[:300].decode(errors="replace"))
    return asked, time.time()


async def poll_all(found: Sequence[Node], ids: Sequence[str], n: int, gate: Path) -> list[tuple[float, float]]:
    waiting = [asyncio.create_task(poll(found[i % len(found)], ids[i // len(found) % len(ids)])) for i in range(n)]
    await asyncio.sleep(5)
    gate.touch()
    return list(await asyncio.gather(*waiting))


def run_polls(directory: Path, n: int) -> Json:
    """n clients wait for 100 submissions, each of them at all nodes, and are told once those end."""
    database = Database(directory / "database")
    gate = directory / "gate"
    try:
        with nodes(directory, database.url, 3, 4) as found:
            ids = []
            for number in range(100):
                body = {
                    "task": "scripted",
                    "candidate": f"# script: compile=until:{gate},pass timing=1.3\n# {number}\n",
                }
                ids.append(str(found[number % 3].call("POST", "/v1/submissions", body)[1]["id"]))
            answers = asyncio.run(poll_all(found, ids, n, gate))
    finally:
        database.stop()
    ends: dict[str, list[float]] = {}
    for number, (_, came) in enumerate(answers):
        ends.setdefault(ids[number // 3 % len(ids)], []).append(came)
    spread = sorted(max(times) - min(times) for times in ends.values())
    return {
        "polls": len(answers),
        "verdicts": len(ends),
        "spread_p50_ms": 1000 * spread[len(spread) // 2],
        "spread_max_ms": 1000 * spread[-1],
    }


def table(lines: Sequence[Json]) -> str:
    out = [
        "| store | nodes | verdicts/s | rows a verdict | WAL a verdict | disk a verdict | claim p50, p99 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for store, n in LAYOUTS:
        mine = [line for line in lines if (line["store"], line["nodes"]) == (store, n) and "claims" not in line]
        claims = [line for line in lines if (line["store"], line["nodes"]) == (store, n) and "claims" in line]
        rates = ", ".join(f"{line['verdicts_s']:.1f}" for line in mine)

        def middle(key: str, rows: Sequence[Json] = mine) -> str:
            values = [row[key] for row in rows if key in row]
            return f"{statistics.median(values):,.1f}" if values else ""

        times = f"{claims[0]['claim_p50_ms']:.2f}, {claims[0]['claim_p99_ms']:.2f} ms" if claims else ""
        out.append(
            f"| {store} | {n} | {rates} | {middle('rows')} | {middle('wal_bytes')} B"
            f" | {middle('disk_bytes')} B | {times} |"
        )
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verdicts", type=int, default=480, help="in each round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=4, help="CPU slots of each node")
    parser.add_argument("--seconds", type=float, default=0.4, help="that a verdict takes of a slot")
    parser.add_argument("--simulate", type=int, nargs="*", default=[], help="numbers of simulated nodes")
    parser.add_argument("--clients", type=int, nargs="*", default=[0], help="of whom something waits, while simulated")
    parser.add_argument("--for", type=float, default=20, dest="length", help="seconds of each simulation")
    parser.add_argument("--sweep", type=float, default=0, help="seconds that are judged before retention removes it")
    parser.add_argument("--polls", type=int, default=0, help="clients that wait")
    options = parser.parse_args()
    lines: list[Json] = []
    print(f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f} at the start", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="verifierd-bench-", ignore_cleanup_errors=True) as name:
        top = Path(name)
        top.chmod(0o755)
        if options.simulate or options.polls or options.sweep:
            cases = [(n, clients) for clients in options.clients for n in options.simulate]
            for line in simulate(top, cases, options.length):
                print(json.dumps(line), flush=True)
            if options.sweep:
                print(json.dumps(sweep(top, options.sweep)), flush=True)
            if options.polls:
                print(json.dumps(run_polls(top, options.polls)))
            return 0
        rounds = [(store, n, False) for _ in range(options.rounds) for store, n in LAYOUTS]
        rounds += [("postgresql", n, True) for n in (1, 3)]
        for number, (store, n, logs) in enumerate(rounds):
            try:
                lines.append(run_round(top / str(number), store, n, options, logs))
            except ClusterError as error:
                print(f"bench-cluster: {store}, {n} nodes: {error}", file=sys.stderr)
                return 1
            print(json.dumps(lines[-1]), flush=True)
    print(table(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
