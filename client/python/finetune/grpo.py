"""GRPO by TRL (grpo_trl.py), with verifierd as its reward: algorithm and loop are TRL's, checkpoints are ours."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from . import checkpoint, layout
from . import model as models
from .errors import RESUME, StopRequested, TrainError
from .judge import Judge, Task, code_token, tasks_of
from .loop import Log, Loop, Metrics, Stop, flat
from .reinforce import ConstantGuard
from .settings import Settings, that_matter

Json = dict[str, Any]


def normalised(rewards: Sequence[float]) -> list[float]:
    """GRPO's advantages of one group."""
    mean = math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / max(1, len(rewards) - 1))
    return [(r - mean) / (deviation + 1e-4) for r in rewards]


class Reward:
    """What TRL calls with each batch of answers. Remembers plan and code where they are rewarded apart."""

    __name__ = "verifierd"

    def __init__(self, judge: Judge, tasks: Sequence[Task], settings: Settings) -> None:
        self._judge = judge
        self._tasks = {task.id: task for task in tasks}
        self._guard = ConstantGuard(settings.constant_steps)
        self.parts: list[Json] = []
        self.rewards: list[float | None] = []
        self.classes: list[str] = []

    def __call__(
        self, prompts: Any, completions: Any, task: list[str], trainer_state: Any, **more: Any
    ) -> list[float | None]:
        texts = [c if isinstance(c, str) else str(c[-1]["content"]) for c in completions]
        groups: list[tuple[Task, list[str]]] = []
        for one, text in zip(task, texts, strict=True):
            if not groups or groups[-1][0].id != one:
                groups.append((self._tasks[one], []))
            groups[-1][1].append(text)
        verdicts = self._judge.judge(groups, trainer_state.global_step + 1)
        flat = [verdict for group in verdicts for verdict in group]
        self._guard.add([[v.reward for v in group] for group in verdicts])
        self.parts = [
            {**v.parts, "entry_point": one.entry_point}
            for (one, _), group in zip(groups, verdicts, strict=True)
            for v in group
        ]
        self.rewards = [v.reward for v in flat]
        self.classes = [v.kind for v in flat]
        return list(self.rewards)


def by_token(
    rows: Sequence[Sequence[int]], parts: Sequence[Json], first: int, size: int, tokenizer: Any, alpha: float
) -> list[list[float]]:
    """Advantages of each token of rows: alpha times the plan's before the code, the code's from there on.

    parts are the rewards of all processes' answers, in groups of size; rows are those from first on.
    """
    each: dict[str, list[float]] = {}
    for part in ("plan", "code"):
        values = [float(p.get(part) or 0.0) for p in parts]
        each[part] = [a for i in range(0, len(values), size) for a in normalised(values[i : i + size])]
    out = []
    for number, row in enumerate(rows, first):
        text = tokenizer.decode(row, skip_special_tokens=True)
        at = code_token(tokenizer, row, text, parts[number]["entry_point"])
        out.append([alpha * each["plan"][number]] * at + [each["code"][number]] * (len(row) - at))
    return out


class Checkpoints:
    """Where a run's checkpoints are, and what their manifests say."""

    def __init__(self, settings: Settings, workdir: Path, base_digest: str, identity: Json, tokenizer: Any) -> None:
        self._settings = settings
        self._digest = base_digest
        self._identity = identity
        self._tokenizer = tokenizer
        self._root = layout.steps(workdir, settings.run)
        self._finals = layout.checkpoints(workdir)
        self.final = self._finals / settings.final

    def is_finished(self) -> bool:
        return self.final.exists() and flat(checkpoint.verify(self.final).get("identity", {})) == flat(self._identity)

    def newest(self, say: Callable[[str], None]) -> tuple[Path, Json] | None:
        """What one goes on from."""
        found = checkpoint.newest(self._root, say)
        if found and flat(found[1].get("identity", {})) != flat(self._identity):
            raise TrainError(f"{found[0]} is of another run: give this one another name (run), or remove {self._root}")
        return found

    def adopt(self, written: Path, step: int) -> None:
        """What TRL wrote becomes a checkpoint of ours: manifest last, then a rename."""

        def write(directory: Path) -> None:
            shutil.copytree(written, directory, dirs_exist_ok=True)
            self._tokenizer.save_pretrained(directory)

        self._save(self._root, layout.step_name(step), write, step)
        shutil.rmtree(written)
        checkpoint.prune(self._root, self._settings.keep)

    def finish(self, model: Any, step: int) -> None:
        """The finished adapter, which loads back."""
        self._save(self._finals, self._settings.final, lambda d: models.write_adapter(model, self._tokenizer, d), step)
        checkpoint.verify(self.final)

    def _save(self, where: Path, name: str, write: Callable[[Path], None], step: int) -> None:
        about = {
            "method": "grpo",
            "run": self._settings.run,
            "step": step,
            "base_model": self._settings.model,
            "base_digest": self._digest,
            "identity": self._identity,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        checkpoint.save(where, name, write, about)


def identity_of(settings: Settings, digest: str, tasks: Sequence[Task], request: Json) -> Json:
    """What makes a checkpoint this run's."""
    kept = that_matter("grpo", vars(settings))
    kept.pop("model")
    kept["adapter"] = models.identity_of_adapter(settings)
    return {
        "method": "grpo",
        "base_digest": digest,
        "tasks": [task.id for task in tasks],
        "prompt": request.get("prompt"),
        "settings": kept,
    }


def train(settings: Settings, workdir: Path, request: Json) -> int:
    """Returns the exit status."""
    try:
        from . import grpo_trl
    except ImportError as error:
        raise TrainError(f"grpo needs TRL and its datasets: pip install trl ({error})") from error

    tasks = tasks_of(request)
    if settings.max_samples:
        tasks = tasks[: settings.max_samples]
    stop = Stop()
    state = grpo_trl.process_state()
    # Several processes can only stop together, between two passes.
    is_alone = state.num_processes == 1
    judge = Judge(
        str(request["daemon"]), settings.reward, settings.until, settings.run, lambda: is_alone and stop.is_set
    )
    reward = Reward(judge, tasks, settings)
    model, tokenizer, digest = models.prepare(settings, lambda text: None)
    checkpoints = Checkpoints(settings, workdir, digest, identity_of(settings, digest, tasks, request), tokenizer)
    if is_alone:
        grpo_trl.stop_sampling(model, stop)
    say = Log(workdir, state.is_main_process, "grpo")
    if checkpoints.is_finished():
        say(f"{checkpoints.final} is finished already")
        return 0
    found = checkpoints.newest(say)
    out = layout.outputs(workdir, settings.run)
    metrics = Metrics(out / layout.TABLE["metrics"], state.is_main_process, found[1]["step"] if found else 0)
    trainer = grpo_trl.Trainer(
        checkpoints,
        reward,
        judge.alpha,
        stop,
        model=model,
        args=grpo_trl.arguments(settings, out, state.num_processes),
        train_dataset=grpo_trl.dataset(tasks),
        processing_class=tokenizer,
    )

    def finished() -> None:
        trainer.random = Loop.random_state()

    trainer.add_callback(grpo_trl.Watch(reward, judge, metrics, stop, finished))
    if found:
        say(f"goes on from {found[0]}: grpo, step {found[1]['step']}")
    try:
        trainer.train(resume_from_checkpoint=str(found[0]) if found else None)
    except StopRequested:
        trainer.leave_step()
    step = trainer.state.global_step
    if stop.is_set:
        say(f"interrupted after step {step}, checkpoint written: the same command goes on")
        return RESUME
    if state.is_main_process:
        checkpoints.finish(model, step)
        say(f"finished: step {step}, {checkpoints.final}")
    return 0
