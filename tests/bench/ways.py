"""Small candidates judged by their plan: verdicts a second, spread of speed-ups, and what the corpus comes to.

A stream of honest candidates for small tasks, each under another comment so that none is answered from the cache, with
so many under way, alone or in groups; then, where --corpus asks for it, the whole corpus by the plan. Prints a line of
JSON for each figure and a table last. Needs a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import corpus  # noqa: E402
from daemon import Daemon, DaemonError, first_gpu, running_daemon  # noqa: E402

SMALL = (
    "softmax/honest", "layer_norm/honest", "rms_norm/honest", "gelu/honest", "relu/honest", "row_sum/honest",
    "argmax/honest", "scaled_add/honest", "copy/honest", "moments/honest", "row_extremes/honest",
)  # fmt: skip
LIMIT_S = 300.0
STAGE_LIMIT_MS = 20_000
"""Of the corpus: who never ends under load is judged once more alone, and nobody else meanwhile."""
Json = dict[str, Any]


def register(daemon: Daemon, tasks: set[str]) -> dict[str, str]:
    """The ids of these tasks; one that is refused is told, and left out."""
    known, found = corpus.load_tasks(), {}
    for name in sorted(tasks):
        try:
            found[name] = daemon.post("/v1/tasks", known[name].registration(), LIMIT_S)["id"]
        except DaemonError as error:
            print(json.dumps({"task": name, "refused": str(error)}), flush=True)
    return found


def judged(daemon: Daemon, candidate: corpus.Candidate, task: str, turn: int | None, limit_s: float = LIMIT_S) -> Json:
    """Its verdict. turn: of a stream, by which it differs from itself in another."""
    body = candidate.body(task)
    if turn is not None:
        key = "completion" if candidate.is_completion else "candidate"
        body[key] = f"{body[key]}\n# {turn}\n"
    try:
        return daemon.judge(body, limit_s)
    except DaemonError as error:
        return {"class": f"none: {error}", "components": {}, "stages": [], "plan": None}


def group_judged(daemon: Daemon, candidate: corpus.Candidate, task: str, turns: range) -> list[Json]:
    """The verdicts of a group of it, each member under another comment."""
    bodies = [candidate.body(task) for _ in turns]
    more = {key: value for key, value in bodies[0].items() if key not in ("candidate", "completion")}
    members = [{"candidate": f"{body['candidate']}\n# {turn}\n"} for body, turn in zip(bodies, turns, strict=True)]
    group = daemon.post("/v1/groups", {**more, "candidates": members})
    end = time.monotonic() + LIMIT_S
    while group["state"] != "done" and time.monotonic() < end:
        group = daemon.get(f"/v1/groups/{group['id']}?wait=30", 60)
    return [daemon.get(f"/v1/submissions/{item['id']}") for item in group["items"]]


def stream(
    daemon: Daemon, candidates: list[corpus.Candidate], rounds: int, at_once: int, group: int = 1
) -> tuple[float, list[Json]]:
    """Seconds, and the verdicts with their candidates' labels. group: so many of a candidate's are posted together."""
    tasks = register(daemon, {candidate.task for candidate in candidates})
    for candidate in candidates:  # whoever comes first pays for what is made once
        judged(daemon, candidate, tasks[candidate.task], -1)

    def some(turns: range, candidate: corpus.Candidate) -> list[Json]:
        task = tasks[candidate.task]
        found = (
            [judged(daemon, candidate, task, turns[0])]
            if len(turns) == 1
            else group_judged(daemon, candidate, task, turns)
        )
        return [{**verdict, "label": candidate.label} for verdict in found]

    began = time.monotonic()
    with ThreadPoolExecutor(max(1, at_once // group)) as pool:
        parts = [range(first, min(first + group, rounds)) for first in range(0, rounds, group)]
        jobs = [pool.submit(some, turns, candidate) for turns in parts for candidate in candidates]
        found = [verdict for job in jobs for verdict in job.result()]
    return time.monotonic() - began, found


def stage_ms(verdicts: list[Json], stage: str) -> float | None:
    found = [s["run_ms"] for v in verdicts for s in v["stages"] if s["stage"] == stage and s.get("run_ms")]
    return round(statistics.median(found), 1) if found else None


def spread(verdicts: list[Json]) -> Iterator[tuple[str, float, float, int]]:
    """Of each candidate: label, median speed-up, coefficient of variation, count."""
    by_label: dict[str, list[float]] = {}
    for verdict in verdicts:
        speedup = verdict["components"].get("speedup")
        if speedup:
            by_label.setdefault(verdict["label"], []).append(speedup)
    for label, found in sorted(by_label.items()):
        if len(found) > 1:
            yield label, statistics.median(found), statistics.stdev(found) / statistics.mean(found), len(found)


def overlaps(verdicts: list[Json]) -> tuple[int, int]:
    """Of pairs of judgements of one candidate: whose intervals overlap, and all."""
    by_label: dict[str, list[tuple[float, float]]] = {}
    for verdict in verdicts:
        low, high = (verdict["components"].get(f"speedup_{end}") for end in ("lo", "hi"))
        if low and high:
            by_label.setdefault(verdict["label"], []).append((low, high))
    pairs = [pair for found in by_label.values() for pair in itertools.combinations(found, 2)]
    return sum(a[0] <= b[1] and b[0] <= a[1] for a, b in pairs), len(pairs)


def compare(options: argparse.Namespace, out: Path) -> list[str]:
    """The stream; lines of the table."""
    chosen = [candidate for candidate in corpus.load_candidates() if candidate.label in SMALL]
    flags = ("--device", first_gpu(), *options.flags.split())
    with running_daemon(options.programs, sys.executable, *flags, log=out / "stream.log") as daemon:
        daemon.wait_until_ready()
        took, verdicts = stream(daemon, chosen, options.rounds, options.at_once, options.group)
    (out / "stream.jsonl").write_text("".join(json.dumps(verdict) + "\n" for verdict in verdicts))
    figures = {
        "verdicts": len(verdicts),
        "per_s": round(len(verdicts) / took, 2),
        "classes": dict(Counter(verdict["class"] for verdict in verdicts)),
        "outcomes": dict(Counter((verdict.get("timing") or {}).get("outcome") for verdict in verdicts)),
        "methods": dict(Counter((verdict.get("timing") or {}).get("method") for verdict in verdicts)),
        "overlapping_intervals": overlaps(verdicts),
        **{f"{stage}_ms": stage_ms(verdicts, stage) for stage in ("compile", "tiny", "full", "timing")},
    }
    print(json.dumps(figures), flush=True)
    for label, speedup, cv, count in spread(verdicts):
        print(json.dumps({"label": label, "speedup": speedup, "cv": round(cv, 4), "n": count}))
    return [f"{figures['per_s']} verdicts/s  {figures['classes']} {figures['outcomes']}"]


def whole_corpus(options: argparse.Namespace, out: Path) -> list[str]:
    """Every candidate: what became of each kind."""
    candidates = [one for one in corpus.load_candidates() if options.only in one.label and one.label > options.after]
    end = time.monotonic() + options.limit_s
    limit = ("--stage-limit-ms", str(STAGE_LIMIT_MS))
    flags = ("--device", first_gpu(), *limit, *options.flags.split())
    rows: list[Json] = []
    with running_daemon(options.programs, sys.executable, *flags, log=out / "corpus.log") as daemon:
        daemon.wait_until_ready()
        tasks = register(daemon, {candidate.task for candidate in candidates})

        def one(candidate: corpus.Candidate) -> Json | None:
            if time.monotonic() > end or candidate.task not in tasks:
                return None
            verdict = judged(daemon, candidate, tasks[candidate.task], None, max(1.0, end - time.monotonic()))
            plan = verdict.get("plan") or {}
            return {
                "label": candidate.label, "kind": candidate.kind, "expected": sorted(candidate.classes),
                "class": verdict["class"], "is_right": verdict["class"] in candidate.classes,
                "traced": plan.get("traced"), "why": (plan.get("error") or {}).get("text"),
                "text": (verdict.get("feedback") or {}).get("text"), "speedup": verdict["components"].get("speedup"),
            }  # fmt: skip

        with ThreadPoolExecutor(options.at_once) as pool, (out / "corpus.jsonl").open("w", buffering=1) as file:
            for row in pool.map(one, candidates):
                if row is not None:
                    rows.append(row)
                    file.write(json.dumps(row) + "\n")
    lines = []
    for kind in corpus.KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        right, traced = sum(row["is_right"] for row in mine), sum(row["traced"] is True for row in mine)
        accepted = sum(row["class"] == "ok" for row in mine)
        lines.append(
            f"{kind:11} {len(mine):4} judged, {right} as expected, {accepted} accepted, {traced} by their plan"
        )
    lines += [f"  {row['label']}: {row['class']}, expected {row['expected']}" for row in rows if not row["is_right"]]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "build/ways"))
    parser.add_argument("--rounds", type=int, default=6, help="of the stream; 0: no stream")
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--group", type=int, default=1, help="of the stream: members of a group that is posted")
    parser.add_argument("--corpus", action="store_true", help="the whole corpus, too")
    parser.add_argument("--only", default="", help="of the corpus: labels with this in them")
    parser.add_argument("--flags", default="", help="more of the daemon's")
    parser.add_argument("--after", default="", help="of the corpus: labels behind this one")
    parser.add_argument("--limit-s", type=float, default=300.0, help="of the corpus")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    lines = compare(options, options.out) if options.rounds else []
    if options.corpus:
        lines += whole_corpus(options, options.out)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
