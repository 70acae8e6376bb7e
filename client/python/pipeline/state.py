"""run.json: which steps were finished, with which arguments, from what; and the files that they declare."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from finetune import checkpoint
from finetune.errors import TrainError

from .common import Json, PipelineError
from .plan import SFT, Step
from .serving import WEIGHTS

# The addresses of services and programs do not change the result.
PLACES = ("--url=", "--endpoint=", "--concurrency=", "--python=")


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_checkpoint(path: str) -> bool:
    return re.search(r"checkpoints/[^/]*$", path) is not None


def round_of(step: Step) -> int:
    """0: none."""
    found = re.search(r"\d+", step.name)
    return int(found[0]) if found else 0


def work_of(argv: Sequence[str]) -> list[str]:
    return [word for word in argv if not word.startswith(PLACES)]


class State:
    def __init__(self, workdir: Path, steps: list[Step], rounds: int, model: Sequence[str]) -> None:
        self.workdir, self.steps, self.rounds, self.model = workdir, steps, rounds, list(model)
        self.path = workdir / "run.json"
        self.document: Json = {"steps": {}}

    def open(self, configuration: Json, file: Path) -> None:
        """Read the state of an earlier run, and record the present process."""
        try:
            self.document = json.loads(self.path.read_text())
        except FileNotFoundError:
            pass
        except (OSError, ValueError):
            self.document = {}
        if not isinstance(self.document, dict) or not isinstance(self.document.get("steps"), dict):
            raise PipelineError(f"{self.path} cannot be read: remove it to begin again")
        self.document |= {"configuration": configuration, "file": str(file), "pid": os.getpid(), "along": {}}
        self.save()

    def save(self) -> None:
        checkpoint.replace(self.path, json.dumps(self.document, indent=2) + "\n")

    # --- the inputs and outputs that steps declare: paths below the working directory, or absolute ones ---

    def fault(self, path: str) -> str:
        """Why a declared path cannot be used: it is not there, or not as its manifest says. "": it can."""
        where = self.workdir / path
        if not where.exists():
            return f"{where} is not there"
        if is_checkpoint(path):
            try:
                checkpoint.verify(where)
            except TrainError as error:
                return str(error)
        return ""

    def digest(self, path: str) -> str | None:
        """Of a checkpoint its weights: when it was written is nothing that a step reads."""
        where = self.workdir / path
        try:
            return checkpoint.digest_of(where / WEIGHTS if is_checkpoint(path) else where)
        except OSError:
            return None

    def is_made(self, path: str) -> bool:
        """Is it left by a step of the plan?"""
        made = (self.workdir / output for step in self.steps for output in step.outputs)
        return self.workdir / path in made

    def adapter(self, n: int) -> str:
        """The adapter before a round of the plan (0: after the last): of the newest round that learned something."""
        for k in range(n - 1 if n else self.rounds, 0, -1):
            path = f"checkpoints/rl_round{k}"
            is_skipped = self.document["steps"].get(f"rl_round{k}", {}).get("state") == "skipped"
            if self.is_made(path) and not is_skipped and not self.fault(path):
                return path
        return SFT

    # --- steps ---

    def inputs(self, step: Step) -> Iterator[tuple[str, object]]:
        """The present inputs of a step: the existing files, the adapter, the base model that answers."""
        paths = list(step.inputs)
        if step.serve == "{adapter}" or step.argv[0] == "@publish" or any("{adapter}" in word for word in step.argv):
            paths.append(self.adapter(round_of(step)))
        for path in paths:
            digest = self.digest(path)
            if digest:
                yield path, digest
        if step.serve == "":
            yield "model", self.model

    def set(self, step: Step, state: str, seconds: float = 0.0) -> None:
        """Running, done, failed, interrupted or skipped. Seconds of attempts at the same work are added up."""
        old = self.document["steps"].get(step.name, {})
        is_same = old.get("argv") == step.argv
        from_ = old.get("from") if is_same and state not in ("running", "skipped") else None
        self.document["steps"][step.name] = {
            "state": state,
            "seconds": seconds + (old.get("seconds", 0) if is_same else 0),
            "at": now(),
            "argv": step.argv,
            "from": from_ if from_ is not None else dict(self.inputs(step)),
            "stage": step.stage,
            "trains": step.is_training,
        }
        self.save()

    def is_same_work(self, step: Step) -> bool:
        """Was it begun with these arguments and the present inputs? An input removed since does not count."""
        was = self.document["steps"].get(step.name)
        if was is None or work_of(was.get("argv", [])) != work_of(step.argv):
            return False
        before = was.get("from")  # a record of an older release does not say
        return before is None or all(before.get(path) == digest for path, digest in self.inputs(step))

    def is_other_work(self, step: Step) -> bool:
        """Was it begun before, with other arguments or from other inputs? What that left may be in the way."""
        return step.name in self.document["steps"] and not self.is_same_work(step)

    def is_finished(self, step: Step) -> bool:
        """And what it left is still there and whole."""
        state = self.document["steps"].get(step.name, {}).get("state")
        if state not in ("done", "skipped") or not self.is_same_work(step):
            return False
        return state == "skipped" or not any(self.fault(path) for path in step.outputs)
