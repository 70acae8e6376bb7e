"""make screenshots: have a daemon of one's own judge a part of the corpus, and take pictures of its dashboard.

They go to docs/screenshots, where the README shows them. Everything on them was judged on this machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from browser import Browser, BrowserError, browser, is_there  # noqa: E402
from corpus import Candidate, load_candidates, load_tasks  # noqa: E402
from daemon import Daemon, DaemonError, running_daemon  # noqa: E402

TASKS = ("relu", "softmax", "gelu", "layer_norm", "linear_relu", "row_sum", "copy", "argmax")
KINDS = ("honest", "mistake", "cheat")
LEAVE_OUT = ("timeout", "oom")  # they take long, and show nothing new
EACH = 12
GROUP_LIMIT_S = 900


def chosen(candidates: list[Candidate], task: str) -> list[Candidate]:
    """Of each kind in turn, so that a group has right, wrong and cheating candidates."""
    fit = [
        c for c in candidates if c.task == task and not c.needs_gpu and not c.is_completion and c.entry_point is None
    ]
    fit = [c for c in fit if c.policy == "strict" and not c.classes.intersection(LEAVE_OUT)]
    kinds = [[c for c in fit if c.kind == kind] for kind in KINDS]
    mixed = [kind[i] for i in range(EACH) for kind in kinds if i < len(kind)]
    return mixed[:EACH]


def submit(daemon: Daemon, task: str, candidates: list[Candidate]) -> str:
    bodies = [{"candidate": c.text, "metadata": {"file": f"{c.label}.py"}} for c in candidates]
    return str(daemon.post("/v1/groups", {"task": task, "candidates": bodies, "client": "screenshots"})["id"])


def wait(daemon: Daemon, group: str) -> dict[str, Any]:
    for _ in range(GROUP_LIMIT_S // 30):
        found: dict[str, Any] = daemon.get(f"/v1/groups/{group}?wait=30", 60)
        if found["state"] == "done":
            return found
    raise DaemonError(f"group {group} is not done after {GROUP_LIMIT_S} s")


def first(groups: list[dict[str, Any]], class_: str, stage: str | None = None) -> str:
    """A submission that ended so."""
    for group in groups:
        for item in group["items"]:
            if item["class"] == class_ and (stage is None or item["failed_at"] == stage):
                return str(item["id"])
    raise DaemonError(f"no candidate ended as {class_}")


Picture = tuple[str, str, str, dict[str, Any]]
"""Name, address, words that stand there when it is drawn, and the look."""

BUSY: list[Picture] = [
    ("overview", "#/", "verdicts a minute", {"height": 800}),
    ("overview-dark", "#/", "verdicts a minute", {"height": 800, "dark": True}),
    ("overview-phone", "#/", "verdicts a minute", {"narrow": True}),
]


def pictures(groups: list[dict[str, Any]]) -> list[Picture]:
    compile_error, mismatch = first(groups, "compile"), first(groups, "mismatch")
    best = max(groups, key=lambda group: len(group["items"]))
    ranked = [str(best["items"][i]["id"]) for i in best["ranking"]]
    return [
        ("submission", f"#/submissions/{compile_error}", "Run it again", {"height": 1180}),
        ("mismatch", f"#/submissions/{mismatch}", "First mismatch", {"height": 800}),
        ("group", f"#/groups/{best['id']}", "Compare the best", {"height": 620}),
        ("compare", f"#/compare/{ranked[0]},{ranked[-1]}", "How B differs from A", {"height": 620}),
        ("rewards", "#/rewards?window=1h", "How rewards are spread", {"height": 700}),
        ("failures", "#/failures", "the last one", {"height": 620}),
    ]


def take(window: Browser, url: str, directory: Path, wanted: list[Picture]) -> None:
    for name, address, words, look in wanted:
        window.look(**{"width": 1100, **look})
        window.open(f"{url}/{address}")
        window.wait_text(words)
        window.shoot(directory / f"{name}.png")
        print(f"  {directory / name}.png", flush=True)


def run(programs: Path, python: str, directory: Path) -> None:
    known, candidates = load_tasks(), load_candidates()
    directory.mkdir(parents=True, exist_ok=True)
    with running_daemon(programs, python) as daemon, browser() as window:
        daemon.wait_until_ready()
        tasks = {name: daemon.post("/v1/tasks", known[name].registration(), 300)["id"] for name in TASKS}
        groups = [submit(daemon, task, chosen(candidates, name)) for name, task in tasks.items()]
        half = len(groups) // 2
        done = [wait(daemon, group) for group in groups[:half]]
        take(window, daemon.url, directory, BUSY)
        done += [wait(daemon, group) for group in groups[half:]]
        take(window, daemon.url, directory, pictures(done))


def main() -> int:
    parser = argparse.ArgumentParser(description="Take pictures of the dashboard.")
    parser.add_argument("--programs", type=Path, required=True, help="directory of verifierd")
    parser.add_argument("--python", required=True, help="interpreter with torch and triton")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "screenshots", help="where the pictures go")
    arguments = parser.parse_args()
    if not is_there():
        print("screenshots: chromium and chromedriver are needed: make setup-test installs them", file=sys.stderr)
        return 1
    try:
        run(arguments.programs, arguments.python, arguments.out)
    except (DaemonError, BrowserError) as error:
        print(f"screenshots: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
