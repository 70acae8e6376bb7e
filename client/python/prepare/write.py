"""The files of data/processed: whole, or not there."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from .entry import Entry, Rules, relabel

Json = dict[str, Any]


class Prompt:
    """The instruction of a task; tries_sizes: the policy's answers are tried with other sizes."""

    def __init__(self, tries_sizes: bool) -> None:
        here = Path(__file__).with_name("prompt")
        folder = here if here.is_dir() else Path(__file__).parents[2] / "prompt"
        self._text = (folder / "kernel.txt").read_text()
        self._behind = (folder / "sizes.txt").read_text() if tries_sizes else ""
        self.digest = "sha256:" + hashlib.sha256((self._text + self._behind).encode()).hexdigest()

    def of(self, reference: str, class_name: str) -> str:
        before, _, rest = self._text.partition("{{reference}}")
        return before + reference + rest.replace("{{class}}", class_name) + self._behind


@dataclass
class Outputs:
    """The accepted and the refused rows, in the order of the rows. verified: the policy of --verify, else None."""

    directory: Path
    rules: Rules
    prompt: Prompt
    checked: str
    verified: str | None
    enlarges: bool
    kept: int = 0
    answers: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    levels: Counter[int] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)
    files: dict[str, IO[str]] = field(default_factory=dict)

    NAMES = ("tasks", "sft_train", "difficulty_labels", "dropped")

    def open(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in self.NAMES:
            self.files[name] = (self.directory / f"{name}.jsonl.part").open("w", encoding="utf-8")

    def close(self, is_whole: bool) -> None:
        """The files under their names, or none of them."""
        for name, file in self.files.items():
            file.close()
            part = self.directory / f"{name}.jsonl.part"
            if is_whole:
                part.replace(self.directory / f"{name}.jsonl")
            else:
                part.unlink()
        self.files = {}

    def add(self, e: Entry) -> None:
        if e.name in self.names:  # the journal of a round knows tasks by name
            e.name += f"-row{e.number}"
        relabel(e, self.rules.labels)
        reason = e.reason or e.said.get("reason")
        if reason:
            self._drop(e, reason, e.detail if e.reason else e.said.get("detail"))
            return
        kind = e.said.get("answer")
        if e.fault:
            self._drop(e, *e.fault)
        elif kind is not None and kind != "ok":
            self._drop(e, "answer_fails", kind)
        self.names.add(e.name)
        is_task = not self.enlarges or "ms" in e.said
        if not is_task:
            self._drop(e, "run_time", "no shape that was tried brings the reference to 50 us to 20 ms")
        self._keep(e, is_task, e.has_answer and (self.verified is None or kind == "ok"))

    def _line(self, name: str, row: Json) -> None:
        self.files[name].write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")

    def _drop(self, e: Entry, reason: str, detail: str | None = None) -> None:
        self._line("dropped", {"row": e.number, "id": e.name or None, "reason": reason, "detail": detail or None})
        self.reasons[reason] += 1

    def _keep(self, e: Entry, is_task: bool, has_answer: bool) -> None:
        task = self._task(e)
        if is_task:
            self._line("tasks", task)
            self.levels[e.level] += 1
            self.kept += 1
        if is_task or has_answer:
            self._line("difficulty_labels", self._label(e, task["pytorch_code"]))
        if has_answer:
            self._line("sft_train", self._answer(e))
            self.answers += 1

    def _task(self, e: Entry) -> Json:
        row: Json = {
            "name": e.name,
            "source": self.rules.source,
            "pytorch_code": e.source,
            "entry_point": e.entry_point,
            "level": e.level,
            "operations": e.operations,
            "digest": e.digest,
            "license": e.license,
            "checked": self.checked,
            "timing": "window" if self.enlarges else "untimed",
        }
        if e.problem > 0:  # KernelBench's, by which its problems are known
            row["problem_id"] = e.problem
        if "ms" in e.said:
            row["reference_ms"] = e.said["ms"]
        if larger := e.said.get("enlarged"):  # both shapes are kept
            row |= {"pytorch_code_own": e.source, "pytorch_code": larger["source"]}
            row["enlarged"] = {"how": larger["how"], "factor": larger["factor"]}
        return row

    def _label(self, e: Entry, reference: str) -> Json:
        """The label with what it is of, so that the file is a list of tasks by itself."""
        return {
            "id": e.name,
            "difficulty": e.difficulty,
            "operations": e.operations,
            "method": e.labelled_by(self.rules.labels),
            "digest": e.digest,
            "prompt": self.prompt.digest,
            "instruction": self.prompt.of(reference, e.wanted),
            "pytorch_code": reference,
            "entry_point": e.entry_point,
        }

    def _answer(self, e: Entry) -> Json:
        assert e.answer
        end = "" if e.answer.endswith("\n") else "\n"
        return {
            "id": e.name,
            "source": self.rules.source,
            "prompt": self.prompt.digest,
            "instruction": self.prompt.of(e.source, e.wanted),
            "output": f"```python\n{e.answer}{end}```\n",
            "pytorch_code": e.source,
            "triton_code": e.answer,
            "entry_point": e.entry_point,
            "difficulty": e.difficulty,
            "verified": self.verified or "no",
            "license": e.license,
        }

    def summary(self, rows: int, more: Json) -> Json:
        levels = {
            str(level): {"tasks": n, "percent": 100.0 * n / self.kept} for level, n in sorted(self.levels.items())
        }
        return {
            "source": self.rules.source,
            "prompt": self.prompt.digest,
            "rows": rows,
            "kept": self.kept,
            "with_answer": self.answers,
            "dropped": dict(self.reasons),
            "levels": levels,
            "labels": self.rules.labels,
            "checked": self.checked,
            "verified": self.verified,
            **more,
        }


def print_summary(summary: Json) -> None:
    print(f"{summary['rows']} rows, {summary['kept']} kept, {summary['with_answer']} of them with an answer")
    for level, of in summary["levels"].items():
        print(f"  level {level}         {of['tasks']:6}  {of['percent']:5.1f}%")
    for reason, n in summary["dropped"].items():
        print(f"  {reason:<15} {n:6}")
