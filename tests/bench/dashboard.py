"""make bench-dashboard: what the dashboard weighs and how soon it is there, with 100,000 submissions stored.

A month of a made-up training run (dashboard_store.c) is stored; then each page is loaded by headless Chromium with an
empty cache, and each call that it makes is timed by itself. ARGS='--count 1000000' stores more.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import service  # noqa: E402
from browser import Browser, browser  # noqa: E402

BUILD = Path(os.environ.get("VERIFIERD_BUILD", str(ROOT / "build")))
PAINT = "return performance.getEntriesByName('first-contentful-paint').map((e) => e.startTime)[0]"
WEIGHT = """return ["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type))
    .filter((e) => !e.name.includes("/v1/") && !e.name.includes("/readyz"))
    .reduce((sum, e) => sum + e.transferSize, 0)"""
# Set by the first frame after the data were drawn.
DRAWN = """
const look = () => {
  const main = document.getElementById("main");
  if (main && main.innerText.includes(WORDS)) requestAnimationFrame(() => { window.drawnAt = performance.now(); });
  else setTimeout(look, 5);
};
look();
"""


def median_ms(seconds: list[float]) -> float:
    return 1000 * statistics.median(seconds)


def pages(client: service.Client) -> dict[str, tuple[str, str]]:
    """Addresses, and words that stand on a page once it is drawn."""
    newest = client.expect("GET", "/v1/submissions?limit=1&class=ok")["items"][0]
    failed = client.expect("GET", "/v1/submissions?limit=3&class=mismatch")["items"]
    return {
        "overview, 30 days": ("#/?window=30d", "verdicts a minute"),
        "submissions": ("#/submissions", "Older"),
        "one submission, timed": (f"#/submissions/{newest['id']}", "Run it again"),
        "compare of three": ("#/compare/" + ",".join(item["id"] for item in failed), "How C differs"),
        "groups": ("#/groups", "Older"),
        "a group": (f"#/groups/{newest['group']}", "Compare the best"),
        "tasks": ("#/tasks", "Last verdict"),
        "a task": (f"#/tasks/{newest['task']}", "Leaderboard"),
        "rewards, 30 days": ("#/rewards?window=30d", "How rewards are spread"),
        "failures, 30 days": ("#/failures?window=30d", "the last one"),
    }


def calls(client: service.Client) -> list[str]:
    task = client.expect("GET", "/v1/leaderboard?limit=1")["items"][0]["task"]
    trends = [f"/v1/trends?window={window}" for window in ("5m", "1h", "24h", "7d", "30d")]
    failures = [f"/v1/failures?window={window}&limit=100" for window in ("24h", "30d")]
    rest = ["/v1/leaderboard?limit=50", f"/v1/tasks/{task}/leaders?limit=20", "/v1/groups?limit=30"]
    return [*trends, *failures, *rest, "/v1/submissions?view=brief&limit=40", "/v1/status"]


def load(window: Browser, url: str, words: str) -> tuple[float, float, float]:
    """First paint and the moment the data stood there, ms after the page was asked for; bytes of its files."""
    window.cdp("Network.clearBrowserCache")
    made = window.cdp("Page.addScriptToEvaluateOnNewDocument", source=DRAWN.replace("WORDS", repr(words)))
    window.open(url)
    drawn = float(window.wait("window.drawnAt"))
    window.cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=made["identifier"])
    return float(window.script(PAINT)), drawn, float(window.script(WEIGHT))


def report_files() -> None:
    files = sorted((ROOT / "server" / "dashboard").iterdir())
    sizes = [(path.stat().st_size, len(gzip.compress(path.read_bytes(), 9))) for path in files]
    print(
        f"files: {len(files)}, {sum(a for a, _ in sizes)} bytes ({sum(b for _, b in sizes)} if they were compressed)\n"
    )


def report_pages(client: service.Client, loads: int) -> None:
    print("| page | first paint, ms | data drawn, ms | slowest |\n| --- | --- | --- | --- |")
    with browser() as window:
        window.cdp("Network.enable")
        load(window, f"{client.url}/#/", "verdicts a minute")  # the browser's own first time
        weight = 0.0
        for name, (address, words) in pages(client).items():
            seen = [load(window, f"{client.url}/{address}", words) for _ in range(loads)]
            weight = max(weight, *(one[2] for one in seen))
            paint, drawn = (statistics.median(one[i] for one in seen) for i in (0, 1))
            print(f"| {name} | {paint:.0f} | {drawn:.0f} | {max(one[1] for one in seen):.0f} |", flush=True)
    print(f"\nsent for a page's files with an empty cache, headers included: {weight:.0f} bytes\n")


def report_calls(client: service.Client, repeats: int) -> None:
    print("| call | median, ms | slowest | bytes |\n| --- | --- | --- | --- |")
    for path in calls(client):
        taken, size = [], 0
        for _ in range(repeats):
            start = time.perf_counter()
            size = len(client.get(path).body)
            taken.append(time.perf_counter() - start)
        shown = path.replace("sha256:" + path.partition("sha256:")[2][:64], "{task}")
        print(f"| `{shown}` | {median_ms(taken):.1f} | {1000 * max(taken):.1f} | {size} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the dashboard.")
    parser.add_argument("--count", type=int, default=100_000, help="submissions to store")
    parser.add_argument("--loads", type=int, default=7, help="of each page")
    parser.add_argument("--repeats", type=int, default=20, help="of each call")
    arguments = parser.parse_args()
    with service.directory() as directory:
        store = directory / "store.db"
        start = time.perf_counter()
        tool = BUILD / "plain" / "bench" / "dashboard_store"
        subprocess.run([str(tool), str(store), str(arguments.count)], check=True, timeout=3600)
        print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f};", end=" ")
        print(f"{arguments.count} submissions stored in", end=" ")
        print(f"{time.perf_counter() - start:.0f} s, {store.stat().st_size / 2**20:.0f} MiB")
        with service.Daemon(directory) as daemon:
            report_files()
            report_pages(daemon.client, arguments.loads)
            report_calls(daemon.client, arguments.repeats)
    return 0


if __name__ == "__main__":
    sys.exit(main())
