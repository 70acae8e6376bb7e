"""trainer status: the progress of a run, from its working directory. It calls no service and changes nothing."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from finetune import checkpoint
from finetune.errors import TrainError

from .common import OK, Json, PipelineError, parser, read
from .resume import unfinished


def checkpoints(workdir: Path) -> Json:
    """Of each run the newest that verifies."""
    out: Json = {}
    for path in sorted(workdir.glob("checkpoints/*/step-*"), reverse=True):
        try:
            manifest = checkpoint.verify(path)
        except TrainError as error:
            print(f"trainer: passed over: {error}", file=sys.stderr)
            continue
        kept: Json = {key: manifest[key] for key in ("step", "steps", "created") if key in manifest}
        if manifest.get("run"):
            out.setdefault(manifest["run"], {"path": str(path)} | kept)
    return out


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def rounds(workdir: Path) -> Json:
    """Of each directory of trainer bestofn what its journal and its report have, and the names of its files."""
    out: Json = {}
    for path in sorted(filter(Path.is_dir, workdir.glob("outputs/bestofn_*"))):
        tasks, answers, last = set(), 0, {}  # last: what was ours to mend is judged again, and counts as it came then
        for record in journal(path / "journal.jsonl"):
            if record.get("event") == "sampled":
                answers += len(record["answers"])
            elif record.get("event") == "judged":
                tasks.add(record["task"])
                last[record["task"], record["turn"]] = record["verdicts"]
        verdicts = [one for turn in last.values() for one in turn]
        rewards = [one["reward"] for one in verdicts if one.get("reward") is not None]
        report = read(path / "report.json", dict) or {}
        out[path.name.removeprefix("bestofn_")] = {
            "path": str(path),
            "files": sorted(file.name for file in path.iterdir()),
            "is_finished": bool(report),
            "tasks": report.get("tasks"),
            "tasks_judged": len(tasks),
            "answers": answers,
            "answers_judged": len(verdicts),
            "mean_reward": sum(rewards) / len(rewards) if rewards else None,
        }
    return out


def journal(path: Path) -> Iterator[Json]:
    """Its records. Text after the last line's end was not written completely."""
    try:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield json.loads(line)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise PipelineError(f"{path}: {error}") from error


def read_status(workdir: Path) -> Json:
    state = read(workdir / "run.json", dict)
    found, restoring, made = checkpoints(workdir), unfinished(workdir), rounds(workdir)
    if state is None and not found and not restoring and not made:
        raise PipelineError(f"{workdir} has neither a run nor a checkpoint nor a round of bestofn")
    state = state or {}
    is_running = bool(state.get("pid")) and is_alive(state["pid"])
    document: Json = {"is_running": is_running, "steps": {}, "checkpoints": found, "rounds": made}
    for name, step in (state.get("steps") or {}).items():
        is_lost = not is_running and step.get("state") == "running"
        kept = {key: step[key] for key in ("seconds", "at") if key in step}
        document["steps"][name] = {"state": "interrupted" if is_lost else step.get("state"), **kept}
    more: Json = {"sync": read(workdir / "sync.json", dict), "along": state.get("along") if is_running else None}
    more["restoring"] = restoring
    return document | {key: value for key, value in more.items() if value is not None}


def show(document: Json) -> None:
    if document["steps"] or not document["rounds"]:  # not known for a round without a run
        print("running" if document["is_running"] else "not running")
    for name, step in document["steps"].items():
        print(f"  {name:<18} {step['state']:<12} {step.get('seconds', 0):8.0f} s  {step.get('at', '')}")
    for name, one in document["checkpoints"].items():
        print(f"  checkpoint of {name}: step {one.get('step')} of {one.get('steps', '?')}, {one['path']}")
    for name, one in document["rounds"].items():
        tasks = f"{one['tasks_judged']}{' of ' + str(one['tasks']) if one['is_finished'] else ''} tasks"
        reward = "" if one["mean_reward"] is None else f", mean reward {one['mean_reward']:.3f}"
        judged = f"{one['answers_judged']} of {one['answers']} answers judged{reward}"
        print(f"  round {name}: {'' if one['is_finished'] else 'not '}finished, {tasks}, {judged}, {one['path']}")
        print(f"    {' '.join(one['files'])}")
    for name, one in document.get("along", {}).items():
        if one["ended"] > 0:
            now = "runs again" if one["is_running"] else "does not run"
            print(f"  {name} ended {one['ended']} times, last with {one['how']} at {one['at']}: {now}")
    if "restoring" in document:
        print(f"  a restore was begun and not finished: trainer resume --remote={document['restoring']} goes on")
    sync = document.get("sync")
    if sync:
        ago = f"last good copy: {time.time() - sync['good_at']:.0f} s ago" if sync["good_at"] else "no good copy yet"
        print(f"  {ago}, to {sync['remote']}")
        if sync.get("error"):
            print(f"  the last attempt failed: {sync['error']}")


def main(arguments: list[str]) -> int:
    p = parser("status", "Where a run stands.")
    p.add_argument("--json", "-j", action="store_true", help="print JSON")
    given: Any = p.parse_args(arguments)
    document = read_status(given.workdir)
    if given.json:
        print(json.dumps(document))
    else:
        show(document)
    return OK
