"""trainer status: where a run stands, from what is in its working directory. Asks no service, changes nothing."""

from __future__ import annotations

import json
import os
import sys
import time
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


def read_status(workdir: Path) -> Json:
    state = read(workdir / "run.json", dict)
    found, restoring = checkpoints(workdir), unfinished(workdir)
    if state is None and not found and not restoring:
        raise PipelineError(f"{workdir} has neither a run nor a checkpoint")
    state = state or {}
    is_running = bool(state.get("pid")) and is_alive(state["pid"])
    document: Json = {"is_running": is_running, "steps": {}, "checkpoints": found}
    for name, step in (state.get("steps") or {}).items():
        is_lost = not is_running and step.get("state") == "running"
        kept = {key: step[key] for key in ("seconds", "at") if key in step}
        document["steps"][name] = {"state": "interrupted" if is_lost else step.get("state"), **kept}
    more: Json = {"sync": read(workdir / "sync.json", dict), "along": state.get("along") if is_running else None}
    more["restoring"] = restoring
    return document | {key: value for key, value in more.items() if value is not None}


def show(document: Json) -> None:
    print("running" if document["is_running"] else "not running")
    for name, step in document["steps"].items():
        print(f"  {name:<18} {step['state']:<12} {step.get('seconds', 0):8.0f} s  {step.get('at', '')}")
    for name, one in document["checkpoints"].items():
        print(f"  checkpoint of {name}: step {one.get('step')} of {one.get('steps', '?')}, {one['path']}")
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
