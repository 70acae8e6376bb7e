"""Are right kernels of other people accepted? pairs.py FOLDER...

Each NAME.py of a folder is a candidate with a class ModelNew, and NAME.ref beside it the reference with a class Model
and its inputs. A first line such as `# policy: hybrid,foreign=any` names the policy; else it is strict. Each is judged
with timing, a line of JSON about it is added to --out as it comes, and those that stand there already are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "client/python")]

from daemon import Daemon, DaemonError, running_daemon  # noqa: E402
from selftest.score import wilson  # noqa: E402


def policy_of(text: str) -> str:
    found = re.match(r"# policy: (\S+)\n", text)
    return found[1] if found else "strict"


def judged(daemon: Daemon, path: Path, limit_s: float) -> dict[str, Any]:
    """What became of one pair."""
    text, begun = path.read_text(), time.monotonic()
    line: dict[str, Any] = {"label": f"{path.parent.name}/{path.stem}", "policy": policy_of(text)}
    task = {"name": line["label"], "reference": path.with_suffix(".ref").read_text(), "level": 1}
    try:
        known = daemon.post("/v1/tasks", task, limit_s)["id"]
        body = {"task": known, "candidate": text, "policy": line["policy"], "cache": False}
        verdict = daemon.judge(body, limit_s)
    except DaemonError as error:
        return line | {"class": "not judged", "text": str(error)[:2000]}
    told = {
        "class": verdict["class"],
        "failed_at": verdict["failed_at"],
        "traced": (verdict.get("plan") or {}).get("traced"),
    }
    told["speedup"] = (verdict.get("components") or {}).get("speedup")
    if verdict["class"] != "ok":
        told["text"] = str((verdict.get("feedback") or {}).get("text"))
        told["correctness"] = verdict.get("correctness")
    return line | told | {"seconds": round(time.monotonic() - begun, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--out", type=Path, default=ROOT / "build/pairs.jsonl")
    parser.add_argument("--side-by-side", type=int, default=8, help="pairs in flight")
    parser.add_argument("--pair-limit-s", type=float, default=120.0, help="for registration, and again for judging")
    parser.add_argument("--limit-s", type=float, default=86400.0, help="of all; what is left then is not run")
    parser.add_argument("folders", nargs="+", type=Path)
    given = parser.parse_args()
    deadline, lock = time.monotonic() + given.limit_s, threading.Lock()
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {line["label"] for line in lines}
    paths = [path for folder in given.folders for path in sorted(folder.glob("*.py"))]
    paths = [path for path in paths if f"{path.parent.name}/{path.stem}" not in done]
    log = given.out.with_suffix(".log")
    with running_daemon(given.programs, os.environ.get("PYTHON", sys.executable), log=log) as daemon:
        daemon.wait_until_ready()

        def judge(path: Path) -> None:
            left_s = deadline - time.monotonic()
            if left_s < 10:
                return
            line = judged(daemon, path, min(given.pair_limit_s, left_s))
            with lock, given.out.open("a") as out:
                out.write(json.dumps(line) + "\n")
                lines.append(line)
                print(f"{line['label']:<40} {line['class']:<12} {line.get('text', '')[:150]!r}", flush=True)

        with ThreadPoolExecutor(given.side_by_side) as pool:
            list(pool.map(judge, paths))
    wrong = sum(line["class"] != "ok" for line in lines)
    if lines:
        low, high = wilson(wrong, len(lines))
        print(f"{wrong} of {len(lines)} not accepted ({wrong / len(lines):.1%}; 95 %: {low:.1%} to {high:.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
