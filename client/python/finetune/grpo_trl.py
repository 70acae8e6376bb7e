"""What grpo.py takes from TRL: its trainer with our checkpoints and advantages, its arguments and its figures.

The only module that imports TRL, which not every machine has.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import StoppingCriteriaList, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from . import model as models
from .errors import StopRequested, TrainError
from .grpo import Checkpoints, Reward, by_token
from .judge import Judge, Task
from .loop import Loop, Metrics, Stop
from .settings import Settings


def process_state() -> PartialState:
    return PartialState(cpu=not torch.cuda.is_available())


def dataset(tasks: Sequence[Task]) -> Any:
    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": task.prompt}], "task": task.id} for task in tasks]
    )


def rollouts_of(settings: Settings) -> dict[str, Any]:
    """The arguments of TRL by which answers are sampled. TrainError: vLLM is asked for and is not there."""
    has_vllm = importlib.util.find_spec("vllm") is not None
    kind = settings.rollouts
    if kind == "auto":
        kind = "vllm_colocate" if has_vllm and torch.cuda.is_available() else "generate"
    if kind == "generate":
        return {"use_vllm": False}
    if not has_vllm:
        raise TrainError(f"rollouts: {kind} needs vLLM in {sys.executable}: pip install vllm, or rollouts = generate")
    if kind == "vllm_server":
        return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": settings.vllm_url}
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": settings.vllm_memory,
        "vllm_max_model_length": settings.length,
    }


def arguments(settings: Settings, out: Path, world: int) -> Any:
    """world: the number of processes."""
    answers = settings.tasks_per_step * settings.samples
    if answers % (settings.batch * world) != 0:
        raise TrainError(
            f"tasks_per_step * samples = {answers} is no multiple of batch * processes = {settings.batch * world}"
        )
    precision = models.precision_of(settings)
    return GRPOConfig(
        output_dir=str(out / "trl"),
        per_device_train_batch_size=settings.batch,
        gradient_accumulation_steps=answers // (settings.batch * world),
        num_generations=settings.samples,
        max_completion_length=settings.answer_tokens,
        temperature=settings.temperature,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.gradient_norm,
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        lr_scheduler_type="constant",
        warmup_steps=0,
        save_strategy="steps",
        save_steps=settings.save_steps,
        logging_steps=1,
        seed=settings.seed,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=not torch.cuda.is_available(),
        gradient_checkpointing=settings.checkpointing,
        beta=0.0,
        report_to=[name for name in settings.report_to.split(",") if name],
        run_name=settings.run,
        disable_tqdm=True,
        **rollouts_of(settings),
    )


def any_of(is_so: bool) -> bool:
    """In any of the processes? All have to ask, and get the same answer."""
    return bool(sum(gather_object([is_so])))


def stop_sampling(model: Any, stop: Stop) -> None:
    """Have generate() end with the present token once a signal came. What it returns then is not to be used."""
    generate = model.generate

    def is_stopped(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        return torch.full((ids.shape[0],), stop.is_set, dtype=torch.bool, device=ids.device)

    def stoppable(*given: Any, **more: Any) -> Any:
        return generate(*given, stopping_criteria=StoppingCriteriaList([is_stopped]), **more)

    model.generate = stoppable


class Trainer(GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """TRL's, with our checkpoints and, where plan and code are rewarded apart (alpha), advantages by token.

    StopRequested leaves train() when a signal came: between two passes, and while one process alone samples or waits
    for verdicts. Nothing is learned from the step that was under way.
    """

    def __init__(self, checkpoints: Checkpoints, reward: Reward, alpha: float | None, stop: Stop, **trl: Any) -> None:
        super().__init__(reward_funcs=reward, **trl)
        self._checkpoints = checkpoints
        self._reward = reward
        self._alpha = alpha
        self._stop = stop
        self._saved = -1
        self.random = Loop.random_state()  # as it was after the last finished step

    def training_step(self, *given: Any, **more: Any) -> Any:
        if any_of(self._stop.is_set):
            raise StopRequested()
        return super().training_step(*given, **more)

    def leave_step(self) -> None:
        """Give up the step that is under way: a checkpoint of the last finished one, from which it is drawn again."""
        if self.state.global_step > max(0, self._saved):
            Loop.restore_random(self.random)
            self._save_checkpoint(self.model, None)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        step = self.state.global_step
        if self.accelerator.is_main_process:
            self._checkpoints.adopt(Path(self.args.output_dir) / f"checkpoint-{step}", step)
        self._saved = step
        self.accelerator.wait_for_everyone()

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        made = super()._generate_and_score_completions(inputs)
        if self._alpha is not None:
            ids = made["completion_ids"]
            rows = by_token(
                ids.tolist(),
                gather_object(self._reward.parts),
                self.accelerator.process_index * len(ids),
                self.num_generations,
                self.processing_class,
                self._alpha,
            )
            made["advantages"] = torch.tensor(rows, dtype=torch.float32, device=ids.device)
        return made


class Watch(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Figures of each step; a loss that is no number, and signals. finished is called after each step."""

    def __init__(
        self, reward: Reward, judge: Judge, metrics: Metrics, stop: Stop, finished: Callable[[], None]
    ) -> None:
        self._reward = reward
        self._judge = judge
        self._metrics = metrics
        self._stop = stop
        self._finished = finished
        self._waited = 0.0

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        if not logs or "loss" not in logs:
            return
        if not math.isfinite(logs["loss"]):
            raise TrainError(f"the loss is {logs['loss']} at step {state.global_step}: lower learning_rate")
        known = [r for r in self._reward.rewards if r is not None]
        classes = self._reward.classes
        self._metrics.add(
            {
                "step": state.global_step,
                "loss": logs["loss"],
                "learning_rate": logs.get("learning_rate"),
                "gradient_norm": logs.get("grad_norm"),
                "seconds": round(logs.get("step_time", 0.0), 4),
                "tokens": int(logs.get("num_tokens", 0)),
                "rewards": known,
                "reward_mean": math.fsum(known) / len(known) if known else None,
                "classes": {kind: classes.count(kind) for kind in sorted(set(classes))},
                "wait_s": round(self._judge.waited_s - self._waited, 3),
                "processes": args.world_size,
            }
        )
        self._waited = self._judge.waited_s

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
        self._finished()
        if any_of(self._stop.is_set):
            control.should_save = control.should_training_stop = True
        return control
