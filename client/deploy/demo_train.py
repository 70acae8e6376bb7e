"""make demo-train: one Best-of-N round and two evaluations against a scripted model, on any machine.

The model is a table of prepared answers behind an OpenAI-compatible endpoint, and the daemon that judges them is the
real one. The second evaluation is of a model that answers with what the round kept: what fine-tuning would aim at.
The status is 0 only if exactly the expected candidates were kept, and the comparison says so.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from answering import answering, document  # noqa: E402
from corpus import CorpusError, load_task  # noqa: E402
from daemon import Daemon, DaemonError, running_daemon  # noqa: E402

LIMIT_S = 900
KEEP = 2
PROSE = "I would begin by looking at the memory traffic, and then choose a block size."

# The answers of the scripted model to each task, in this order; candidates of tests/candidates.
ANSWERS = {
    "relu": ("leaky", "honest", "no_kernel", "syntax_error", "honest", PROSE),
    "softmax": ("padding_counts", "honest_heuristics", "honest", "unnormalised", "nan", PROSE),
    "linear_relu": ("no_bias", "no_relu", "honest", "zeros", PROSE, "linear_and_decoy"),
}
EXPECTED = {"relu": {"honest"}, "softmax": {"honest", "honest_heuristics"}, "linear_relu": {"honest"}}


class DemoError(Exception):
    """Something that ends the demo; the text is for people."""


def source(task: str, label: str) -> str:
    return (ROOT / "tests" / "candidates" / task / f"{label}.py").read_text()


def answer(task: str, label: str) -> str:
    if label == PROSE:
        return PROSE
    return f"<think>Which candidate is it?</think>\nHere it is:\n```python\n{source(task, label)}\n```\n"


@dataclass
class Model:
    """An OpenAI-compatible endpoint. `answers` may be changed while it serves."""

    marks: dict[str, str]  # text of a reference -> its task
    answers: dict[str, list[str]]
    asked: int = field(default=0)

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = body["messages"][0]["content"]
        task = next(name for mark, name in self.marks.items() if mark in prompt)
        texts = [self.answers[task][i % len(self.answers[task])] for i in range(body["n"])]
        self.asked += len(texts)
        choices = [
            {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            for i, text in enumerate(texts)
        ]
        return {"choices": choices}


@contextmanager
def served(model: Model) -> Iterator[str]:
    """The model's address, while it answers."""

    with answering(lambda call: document(200, model.reply(call.body))) as url:
        yield url + "/v1"


def trainer(programs: Path, *arguments: str) -> None:
    """Run it with its output where ours goes; DemoError when it fails."""
    print("\n$ trainer " + " ".join(arguments), flush=True)
    done = subprocess.run([str(programs / "trainer"), *arguments], timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise DemoError(f"trainer {arguments[0]} ended with status {done.returncode}")


def write_tasks(path: Path) -> dict[str, str]:
    """The data set's rows; by what a prompt shows of each, its name."""
    tasks = [load_task(ROOT / "tests" / "tasks" / f"{name}.py") for name in ANSWERS]
    rows = [{"name": task.name, "pytorch_code": task.source, "level": task.level} for task in tasks]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {task.source.strip(): task.name for task in tasks}


def kept_labels(rows: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Which of the prepared candidates were kept, by task."""
    out: dict[str, set[str]] = {name: set() for name in ANSWERS}
    for row in rows:
        names = [label for label in ANSWERS[row["task"]] if label != PROSE]
        label = next((label for label in names if source(row["task"], label).strip() == row["code"].strip()), "unknown")
        out[row["task"]].add(label)
    return out


def check(rows: list[dict[str, Any]]) -> bool:
    kept = kept_labels(rows)
    print()
    for name in ANSWERS:
        mark = "" if kept[name] == EXPECTED[name] else f"   <-- expected {', '.join(sorted(EXPECTED[name]))}"
        print(f"{name:<14} kept {', '.join(sorted(kept[name])) or 'nothing'}{mark}")
    sys.stdout.flush()
    return kept == EXPECTED and len(rows) == sum(map(len, EXPECTED.values()))


def demo(programs: Path, daemon: Daemon, directory: Path) -> bool:
    tasks = directory / "tasks.jsonl"
    marks = write_tasks(tasks)
    model = Model(marks, {task: [answer(task, label) for label in labels] for task, labels in ANSWERS.items()})
    with served(model) as url:
        services = (f"--url={daemon.url}", f"--endpoint={url}", f"--workdir={directory}", f"--tasks={tasks}")
        common = (*services, "--level=0", "--policy=strict")
        trainer(programs, "bestofn", *common, "--model=scripted", "--samples=6", f"--keep={KEEP}")
        rows = [json.loads(line) for line in (directory / "outputs/bestofn_run/kept.jsonl").read_text().splitlines()]
        is_expected = check(rows)
        trainer(programs, "evaluate", *common, "--model=scripted", "--samples=2", "--name=before")
        for task in {row["task"] for row in rows}:
            model.answers[task] = [row["output"] for row in rows if row["task"] == task]
        trainer(programs, "evaluate", *common, "--model=scripted", "--samples=2", "--name=after")
    trainer(programs, "compare", "before", "after", f"--workdir={directory}", "--published=TritonRL=63,7")
    rates = [
        json.loads((directory / f"outputs/eval_{name}.json").read_text())["metrics"]["correct_rate"]
        for name in ("before", "after")
    ]
    if rates != [0.0, 100.0]:
        print(f"correct before and after: {rates[0]} and {rates[1]} %, not 0 and 100 %", file=sys.stderr)
    return is_expected and rates == [0.0, 100.0]


def main() -> int:
    parser = argparse.ArgumentParser(description="A small Best-of-N round against a scripted model.")
    parser.add_argument("--programs", type=Path, required=True, help="directory of verifierd and trainer")
    parser.add_argument("--python", required=True, help="interpreter with torch and triton")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="trainer-") as directory,
            running_daemon(arguments.programs, arguments.python) as daemon,
        ):
            print(f"verifierd listens on {daemon.url}; its workers import torch and triton ...", flush=True)
            daemon.wait_until_ready()
            is_well = demo(arguments.programs, daemon, Path(directory))
    except (DemoError, DaemonError, CorpusError, subprocess.TimeoutExpired) as error:
        print(f"demo-train: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"{'the expected candidates were kept' if is_well else 'NOT as expected'}; ", end="")
    print(f"{time.monotonic() - started:.0f} s in all")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
