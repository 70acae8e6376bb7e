"""make bench-durable: how fast submissions become durable, and that none is lost.

Posts distinct submissions of about 4 KB over a few connections to a daemon that judges nothing (paused), and
in the same run inserts the same sources into a bare SQLite table, as many rows to a commit as there are
connections; the rounds alternate, because the disk's speed changes from minute to minute. The store without
HTTP stands between the two. Afterwards every acknowledged id has to be listed, again after kill -9 and a
restart, and after a kill -9 in the middle of a load. Status 1 when one is missing.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import service  # noqa: E402

BUILD = Path(os.environ.get("VERIFIERD_BUILD", str(ROOT / "build")))
TOOLS = BUILD / "plain" / "bench"
LIMIT_S = 900.0
PAGE = 200


class BenchError(Exception):
    """A part of the run did not do its work; the text says which."""


@dataclass(frozen=True)
class Settings:
    """What the command line asks for."""

    count: int
    connections: int
    rounds: int
    rows: int


@dataclass
class Rates:
    """Submissions a second, one figure for each round."""

    bare: list[float] = field(default_factory=list)
    store: list[float] = field(default_factory=list)
    http: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)


def tool(name: str, *arguments: object, may_fail: bool = False) -> str:
    """Run one of the C programs beside this file; its output."""
    command = [str(TOOLS / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0 and not may_fail:
        raise BenchError(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def figures(text: str) -> dict[str, float]:
    """The numbers of "key value" lines."""
    return {key: float(value) for key, value in (line.split() for line in text.splitlines())}


class Run:
    """One daemon, and what it has acknowledged so far."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self.directory = directory
        self.settings = settings
        self.task = tool("durable_store", "task", directory / "store.db").strip()
        self.daemon = service.Daemon(directory, {"paused": True, "queue_limit": 10_000_000, "log_level": "warn"})
        self.acknowledged: set[str] = set()
        self.next_number = 0

    def numbers(self) -> int:
        """The first number of a run of submissions that nobody has sent yet."""
        first = self.next_number
        self.next_number += self.settings.count
        return first

    def load_arguments(self, ids: Path) -> list[object]:
        port = urlsplit(self.daemon.client.url).port
        return [port, self.task, self.settings.count, self.settings.connections, self.numbers(), ids]

    def note_ids(self, ids: Path, expected: int | None) -> None:
        new = {line for line in ids.read_text().splitlines() if len(line) == 36}
        if expected is not None and len(new) != expected:
            raise BenchError(f"{expected} were acknowledged, with {len(new)} distinct ids")
        self.acknowledged |= new

    def round(self, rates: Rates) -> None:
        settings = self.settings
        bare = self.directory / "bare.db"
        alone = self.directory / "alone.db"
        first = self.numbers()
        rates.bare.append(
            figures(tool("durable_load", "bare", bare, self.task, settings.count, settings.connections, first))["rate"]
        )
        rates.store.append(
            figures(tool("durable_store", "add", alone, self.task, settings.count, settings.connections, first))["rate"]
        )
        ids = self.directory / "ids"
        seen = figures(tool("durable_load", "http", *self.load_arguments(ids)))
        rates.http.append(seen["rate"])
        rates.p50_ms.append(seen["p50_ms"])
        rates.p99_ms.append(seen["p99_ms"])
        self.note_ids(ids, settings.count)

    def missing(self) -> int:
        """How many acknowledged submissions a walk through all pages does not show."""
        listed: set[str] = set()
        query = f"/v1/submissions?limit={PAGE}"
        cursor: str | None = None
        while True:
            page = self.daemon.client.expect("GET", query + (f"&cursor={cursor}" if cursor else ""))
            listed.update(item["id"] for item in page["items"])
            cursor = page.get("next")
            if not cursor:
                return len(self.acknowledged - listed)

    def newest(self) -> str:
        """The id of the submission that was stored last."""
        return str(self.daemon.client.expect("GET", "/v1/submissions?limit=1")["items"][0]["id"])

    def restart(self) -> None:
        self.daemon.kill()
        self.daemon.start(ready=False)

    def kill_under_load(self, after_s: float) -> int:
        """Kill -9 while submissions come in; how many of this load had been acknowledged."""
        ids = self.directory / "ids-killed"
        command = [str(TOOLS / "durable_load"), "http", *map(str, self.load_arguments(ids))]
        before = len(self.acknowledged)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as load:
            while load.poll() is None and self.newest() in self.acknowledged:
                time.sleep(0.01)
            time.sleep(after_s)
            if load.poll() is not None:
                raise BenchError("the load ended before the daemon could be killed in the middle of it")
            os.kill(self.daemon.pid, signal.SIGKILL)
            load.wait(LIMIT_S)
        self.note_ids(ids, None)
        self.restart()
        if len(self.acknowledged) == before:
            raise BenchError("nothing was acknowledged before the daemon was killed")
        return len(self.acknowledged) - before


def table(rates: Rates, settings: Settings) -> str:
    """Medians and ranges, with ratios of medians."""
    bare = statistics.median(rates.bare)
    lines = [f"{'':44}{'median/s':>10}{'least':>8}{'most':>8}{'of bare':>9}"]
    rows: Mapping[str, Sequence[float]] = {
        f"bare SQLite, {settings.connections} rows to a commit": rates.bare,
        f"the store alone, {settings.connections} writes under way": rates.store,
        f"POST over {settings.connections} connections": rates.http,
    }
    for name, values in rows.items():
        median = statistics.median(values)
        lines.append(f"{name:44}{median:10.0f}{min(values):8.0f}{max(values):8.0f}{median / bare:9.2f}")
    lines.append(
        f"from POST to 202, ms: p50 {statistics.median(rates.p50_ms):.2f}, p99 {statistics.median(rates.p99_ms):.2f}"
        " (medians of the rounds)"
    )
    return "\n".join(lines)


def measure(settings: Settings) -> int:
    lost = 0
    rates = Rates()
    with service.directory() as directory:
        run = Run(directory, settings)
        run.daemon.start(ready=False)
        try:
            for _ in range(settings.rounds):
                run.round(rates)
            print(table(rates, settings), flush=True)
            total = len(run.acknowledged)
            counts = [("listed afterwards", run.missing())]
            run.restart()
            counts.append(("after kill -9 and a restart", run.missing()))
            killed = run.kill_under_load(0.5)
            counts.append((f"after kill -9 in the middle of a load ({killed} more)", run.missing()))
            for when, missing in counts:
                print(f"{total} acknowledged, {when}: {missing} missing")
                lost += missing
        finally:
            run.daemon.kill()
    return lost


def pages(rows: int) -> None:
    """How long pages take in a large store."""
    with service.directory() as directory:
        file = directory / "large.db"
        began = time.monotonic()
        tool("durable_store", "fill", file, rows)
        print(f"\n{rows} submissions stored in {time.monotonic() - began:.0f} s, {file.stat().st_size >> 20} MiB")
        print(tool("durable_store", "pages", file), end="")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="submissions in each round (default 10000)")
    parser.add_argument("--connections", type=int, default=8, help="how many are under way (default 8)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each kind (default 3)")
    parser.add_argument("--rows", type=int, default=0, help="also time pages in a store of this many submissions")
    given = parser.parse_args()
    settings = Settings(given.count, given.connections, given.rounds, given.rows)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    print(f"{settings.count} submissions of about 4 KB a round, {settings.rounds} rounds")
    lost = measure(settings)
    if settings.rows > 0:
        pages(settings.rows)
    return 1 if lost else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BenchError, service.ServiceError) as error:
        print(f"durable: {error}", file=sys.stderr)
        sys.exit(1)
