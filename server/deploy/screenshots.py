"""make screenshots: have a daemon of one's own judge a part of the corpus, and take pictures of its dashboard.

They go to docs/screenshots, where the README shows them. A machine with a GPU and no browser judges with --judge-into
DIRECTORY, which another then photographs, within an hour, with --photograph DIRECTORY.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from browser import Browser, BrowserError, browser, is_there  # noqa: E402
from corpus import Candidate, load_candidates, load_tasks  # noqa: E402
from daemon import Daemon, DaemonError, running_daemon  # noqa: E402

TASKS = ("relu", "softmax", "gelu", "layer_norm", "linear_relu", "row_sum", "global_norm", "cross_entropy")
KINDS = ("honest", "mistake", "cheat")
LEAVE_OUT = ("timeout", "oom")  # they take long, and show nothing new
EACH = 12
RUN = "corpus"
GROUP_LIMIT_S = 900
Json = dict[str, Any]


def chosen(candidates: list[Candidate], task: str, step: int) -> list[Candidate]:
    """Drawn of each kind, the later the step the more honest ones, as if a model learned."""
    fit = [
        c for c in candidates if c.task == task and not c.needs_gpu and not c.is_completion and c.entry_point is None
    ]
    fit = [c for c in fit if c.policy == "strict" and not c.classes.intersection(LEAVE_OUT)]
    kinds = [kind for name in KINDS if (kind := [c for c in fit if c.kind == name])]
    rng = random.Random(f"{task} {step}")
    weights = [1 + step if kind[0].kind == "honest" else 1 for kind in kinds]
    return [rng.choice(kind) for kind in rng.choices(kinds, weights, k=EACH)]


def submit(daemon: Daemon, task: str, candidates: list[Candidate], step: int) -> str:
    # A comment makes each another text: it is judged, and not answered from the cache.
    labels = {"run": RUN, "step": step}
    bodies = [
        {"candidate": f"{c.text}\n# {step}, {i}\n", "metadata": {**labels, "file": f"{c.label}.py"}}
        for i, c in enumerate(candidates)
    ]
    group = {"task": task, "candidates": bodies, "client": "screenshots", "metadata": labels}
    return str(daemon.post("/v1/groups", group)["id"])


def wait(daemon: Daemon, group: str) -> Json:
    for _ in range(GROUP_LIMIT_S // 30):
        found: Json = daemon.get(f"/v1/groups/{group}?wait=30", 60)
        if found["state"] == "done":
            return found
    raise DaemonError(f"group {group} is not done after {GROUP_LIMIT_S} s")


def first(daemon: Daemon, *classes: str) -> str:
    """The newest submission of the first of these classes that any has."""
    for class_ in classes:
        if items := daemon.get(f"/v1/submissions?view=brief&limit=1&class={class_}")["items"]:
            return str(items[0]["id"])
    raise DaemonError(f"no candidate ended as {classes}")


def longest(daemon: Daemon, groups: list[Json]) -> str:
    """A correct submission, timed where anything was, with the most steps in its plan."""

    def key(item: Json) -> tuple[bool, int]:
        verdict = daemon.get(f"/v1/submissions/{item['id']}")
        return bool(item["components"].get("speedup")), len((verdict["plan"] or {}).get("steps") or [])

    return str(max((item for group in groups for item in group["items"] if item["class"] == "ok"), key=key)["id"])


Picture = tuple[str, str, str, Json]
"""Name, address, words that stand there when it is drawn, and the look."""

BUSY: list[Picture] = [
    ("overview", "#/", "verdicts a minute", {"height": 1400}),
    ("overview-dark", "#/", "verdicts a minute", {"height": 800, "dark": True}),
    ("overview-phone", "#/", "verdicts a minute", {"narrow": True}),
]
ANSWERS = ("/v1/status", "/v1/submissions?view=brief&limit=8", "/v1/trends?window=1h", "/v1/trends?window=5m")
"""What BUSY shows."""


def pictures(daemon: Daemon, groups: list[Json]) -> list[Picture]:
    error, mismatch = first(daemon, "compile", "import", "launch"), first(daemon, "mismatch")
    best = max(groups, key=lambda group: len({item["class"] for item in group["items"]}))
    return [
        ("submission", f"#/submissions/{error}", "Run it again", {"height": 1180}),
        ("plan", f"#/submissions/{longest(daemon, groups)}", "Plan of one call", {"height": 900}),
        ("mismatch", f"#/submissions/{mismatch}", "First mismatch", {"height": 800}),
        ("group", f"#/groups/{best['id']}", "Compare the best", {"height": 620}),
        ("compare", f"#/compare/{mismatch}?with=best", "How B differs from A", {"height": 620}),
        ("rewards", "#/rewards?window=1h", "How rewards are spread", {"height": 700}),
        ("failures", "#/failures", "the last one", {"height": 620}),
        ("run", f"#/runs/{RUN}", "Tasks by step", {"height": 900}),
    ]


def take(window: Browser, url: str, directory: Path, wanted: list[Picture]) -> None:
    for name, address, words, look in wanted:
        window.look(**{"width": 1100, **look})
        window.open(f"{url}/{address}")
        window.wait_text(words)
        if name == "plan":
            window.script(
                "for (const h of document.querySelectorAll('h2')) if (h.innerText === arguments[0]) h.scrollIntoView()",
                words,
            )
        window.shoot(directory / f"{name}.png")
        print(f"  {directory / name}.png", flush=True)


def judge(daemon: Daemon, steps: int) -> Iterator[list[Json]]:
    """The groups of all tasks: first those of them that are done when half are, then the others."""
    known, candidates = load_tasks(), load_candidates()
    tasks = {name: daemon.post("/v1/tasks", known[name].registration(), 300)["id"] for name in TASKS}
    groups = [
        submit(daemon, task, chosen(candidates, name, step), step)
        for step in range(steps)
        for name, task in tasks.items()
    ]
    half = len(groups) // 2
    for part in (groups[:half], groups[half:]):
        yield [wait(daemon, group) for group in part]


def judge_into(kept: Path, programs: Path, python: str, steps: int) -> None:
    kept.mkdir(parents=True, exist_ok=True)
    with running_daemon(programs, python, "--store", str(kept / "store.db"), log=kept / "log") as daemon:
        daemon.wait_until_ready()
        for i, _ in enumerate(judge(daemon, steps)):
            if i == 0:
                (kept / "answers.json").write_text(json.dumps({path: daemon.get(path) for path in ANSWERS}))


def photograph(kept: Path, programs: Path, python: str, directory: Path) -> None:
    answers = (kept / "answers.json").read_text()
    store = ("--store", str(kept / "store.db"), "--device", "cpu")
    with running_daemon(programs, python, *store) as daemon, browser() as window:
        daemon.wait_until_ready()
        listed = daemon.get("/v1/groups")["items"]
        take(window, daemon.url, directory, pictures(daemon, [daemon.get(f"/v1/groups/{one['id']}") for one in listed]))
        window.cdp(
            "Page.addScriptToEvaluateOnNewDocument",
            source=f"const answers = {answers}, ask = fetch; window.fetch = (path, options) => path in answers"
            " ? Promise.resolve(new Response(JSON.stringify(answers[path]))) : ask(path, options);",
        )
        take(window, daemon.url, directory, BUSY)


def run(programs: Path, python: str, directory: Path, steps: int) -> None:
    with running_daemon(programs, python) as daemon, browser() as window:
        daemon.wait_until_ready()
        parts = judge(daemon, steps)
        done = next(parts)
        take(window, daemon.url, directory, BUSY)
        done += next(parts)
        take(window, daemon.url, directory, pictures(daemon, done))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True, help="directory of verifierd")
    parser.add_argument("--python", required=True, help="interpreter with torch and triton")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "screenshots", help="where the pictures go")
    parser.add_argument("--steps", type=int, default=1, help="of the run: groups of each task")
    parser.add_argument("--judge-into", type=Path, metavar="DIRECTORY", help="no pictures: keep store and status here")
    parser.add_argument("--photograph", type=Path, metavar="DIRECTORY", help="judge nothing: pictures of what is here")
    arguments = parser.parse_args()
    programs, python = arguments.programs, arguments.python
    if arguments.judge_into is None and not is_there():
        print("screenshots: chromium and chromedriver are needed: make setup-test installs them", file=sys.stderr)
        return 1
    try:
        if arguments.judge_into:
            judge_into(arguments.judge_into, programs, python, arguments.steps)
            return 0
        arguments.out.mkdir(parents=True, exist_ok=True)
        if arguments.photograph:
            photograph(arguments.photograph, programs, python, arguments.out)
        else:
            run(programs, python, arguments.out, arguments.steps)
    except (DaemonError, BrowserError) as error:
        print(f"screenshots: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
