"""GRPO by TRL, with verifierd as its reward. The algorithm, its loss and its loop are TRL's; checkpoints are ours."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from . import checkpoint, layout
from . import model as models
from .errors import RESUME, TrainError
from .judge import Judge, Task, code_token, tasks_of
from .loop import Log, Metrics, Stop
from .reinforce import ConstantGuard
from .settings import INCIDENTAL, Settings

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

    def __call__(self, prompts: Any, completions: Any, task: list[str], **more: Any) -> list[float | None]:
        texts = [c if isinstance(c, str) else str(c[-1]["content"]) for c in completions]
        groups: list[tuple[Task, list[str]]] = []
        for one, text in zip(task, texts, strict=True):
            if not groups or groups[-1][0].id != one:
                groups.append((self._tasks[one], []))
            groups[-1][1].append(text)
        verdicts = self._judge.judge(groups)
        flat = [verdict for group in verdicts for verdict in group]
        self._guard.add([[v.reward for v in group] for group in verdicts])
        self.parts = [dict(v.parts) for v in flat]
        self.rewards = [v.reward for v in flat]
        self.classes = [v.kind for v in flat]
        return list(self.rewards)


def train(settings: Settings, workdir: Path, request: Json) -> int:
    """Returns the exit status."""
    try:
        from datasets import Dataset
        from transformers import TrainerCallback
        from trl import GRPOConfig, GRPOTrainer
    except ImportError as error:
        raise TrainError(f"grpo needs TRL and its datasets: pip install trl ({error})") from error

    tasks = tasks_of(request)
    if settings.max_samples:
        tasks = tasks[: settings.max_samples]
    judge = Judge(str(request["daemon"]), settings.reward, settings.until)
    reward = Reward(judge, tasks, settings)
    model, tokenizer, digest = models.prepare(settings, lambda text: None)
    root = layout.steps(workdir, settings.run)
    stop = Stop()
    precision = models.precision_of(settings)
    out = layout.outputs(workdir, settings.run)
    kept = {name: value for name, value in vars(settings).items() if name not in INCIDENTAL and name != "model"}
    kept["adapter"] = models.identity_of_adapter(settings)
    identity: Json = {
        "method": "grpo",
        "base_digest": digest,
        "tasks": [task.id for task in tasks],
        "prompt": request.get("prompt"),
        "settings": kept,
    }

    def arguments(world: int) -> Any:
        answers = settings.tasks_per_step * settings.samples
        if answers % (settings.batch * world) != 0:
            raise TrainError(
                f"tasks_per_step * samples = {answers} is no multiple of batch * processes = {settings.batch * world}"
            )
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
            report_to=[],
            disable_tqdm=True,
        )

    class Trainer(GRPOTrainer):  # type: ignore[misc, unused-ignore]
        """TRL's, with our checkpoints and, for tritonrl, advantages by token."""

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            super()._save_checkpoint(model, trial)
            written = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            if self.accelerator.is_main_process:
                _adopt(written)
            self.accelerator.wait_for_everyone()

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            made = super()._generate_and_score_completions(inputs)
            if judge.alpha is not None:
                made["advantages"] = _by_token(made, self.accelerator, self.num_generations)
            return made

    def _adopt(written: Path) -> None:
        """What TRL wrote becomes a checkpoint of ours: manifest last, then a rename."""

        def write(directory: Path) -> None:
            shutil.copytree(written, directory, dirs_exist_ok=True)
            tokenizer.save_pretrained(directory)

        _save(root, layout.step_name(int(written.name.split("-")[-1])), write)
        shutil.rmtree(written)
        checkpoint.prune(root, settings.keep)

    def _save(where: Path, name: str, write: Any) -> Path:
        about = {
            "method": "grpo",
            "run": settings.run,
            "step": trainer.state.global_step,
            "base_model": settings.model,
            "base_digest": digest,
            "identity": identity,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        return checkpoint.save(where, name, write, about)

    def _by_token(made: Json, accelerator: Any, size: int) -> torch.Tensor:
        from accelerate.utils import gather_object

        ids = made["completion_ids"]
        everyone = gather_object(reward.parts)
        each: Json = {}
        for part in ("plan", "code"):
            values = [float(p.get(part) or 0.0) for p in everyone]
            groups = [normalised(values[i : i + size]) for i in range(0, len(values), size)]
            each[part] = [a for group in groups for a in group]
        first = accelerator.process_index * len(ids)
        rows = []
        for number, row in enumerate(ids.tolist()):
            text = tokenizer.decode(row, skip_special_tokens=True)
            at = code_token(tokenizer, row, text)
            plan, code = judge.alpha * each["plan"][first + number], each["code"][first + number]
            rows.append([plan] * at + [code] * (len(row) - at))
        return torch.tensor(rows, dtype=torch.float32, device=ids.device)

    class Watch(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Figures of each step; a loss that is no number, and signals."""

        waited = 0.0

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            if not logs or "loss" not in logs:
                return
            if not math.isfinite(logs["loss"]):
                raise TrainError(f"the loss is {logs['loss']} at step {state.global_step}: lower learning_rate")
            known = [r for r in reward.rewards if r is not None]
            metrics.add(
                {
                    "step": state.global_step,
                    "loss": logs["loss"],
                    "learning_rate": logs.get("learning_rate"),
                    "gradient_norm": logs.get("grad_norm"),
                    "seconds": round(logs.get("step_time", 0.0), 4),
                    "tokens": int(logs.get("num_tokens", 0)),
                    "rewards": known,
                    "reward_mean": math.fsum(known) / len(known) if known else None,
                    "classes": {kind: reward.classes.count(kind) for kind in sorted(set(reward.classes))},
                    "wait_s": round(judge.waited_s - self.waited, 3),
                    "processes": args.world_size,
                }
            )
            self.waited = judge.waited_s

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
            if stop.is_set:
                control.should_save = control.should_training_stop = True
            return control

    rows = [{"prompt": [{"role": "user", "content": task.prompt}], "task": task.id} for task in tasks]
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available())
    say = Log(workdir, state.is_main_process, "grpo")
    final = layout.checkpoints(workdir) / settings.final
    if final.exists() and checkpoint.verify(final).get("identity") == identity:
        say(f"{final} is finished already")
        return 0
    found = checkpoint.newest(root, say)
    if found and found[1].get("identity") != identity:
        raise TrainError(f"{found[0]} is of another run: give this one another name (run), or remove {root}")
    metrics = Metrics(out / layout.TABLE["metrics"], state.is_main_process, found[1]["step"] if found else 0)
    trainer = Trainer(
        model=model,
        reward_funcs=reward,
        args=arguments(state.num_processes),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[Watch()],
    )
    if found:
        say(f"goes on from {found[0]}: grpo, step {found[1]['step']}")
    trainer.train(resume_from_checkpoint=str(found[0]) if found else None)
    if stop.is_set:
        say(f"interrupted after step {trainer.state.global_step}, checkpoint written: the same command goes on")
        return RESUME
    if state.is_main_process:
        _save(layout.checkpoints(workdir), settings.final, lambda d: models.write_adapter(model, tokenizer, d))
        checkpoint.verify(final)
        say(f"finished: step {trainer.state.global_step}, {final}")
    return 0
