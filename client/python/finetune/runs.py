"""The common part of all trainings: a run's names, log, figures and signals, and TRL's trainers with our checkpoints.

The loop, the optimizer and the distribution over processes are TRL's, transformers' and accelerate's.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType, gather_object
from transformers import PrinterCallback, TrainerCallback
from transformers.integrations import get_available_reporting_integrations

from . import checkpoint, layout
from . import model as models
from .errors import RESUME, SERVICE, StopRequested, TrainError
from .publish import ONE_PIECE, copy_weights
from .settings import Settings, that_matter

Json = dict[str, Any]
MEMORY_KNOBS = "lower batch (and raise accumulation by as much), or length; turn on checkpointing; or set base_bits = 8"


class Log:
    """training.log in the working directory and stderr, from the first process alone."""

    def __init__(self, workdir: Path, is_main: bool, name: str) -> None:
        self._path = workdir / str(layout.TABLE["log"])
        self._is_main = is_main
        self._name = name

    def __call__(self, text: str) -> None:
        if not self._is_main:
            return
        stamp = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        print(f"{self._name}: {text}", file=sys.stderr, flush=True)
        with self._path.open("a") as file:
            file.write(f"{stamp} {self._name}: {text}\n")


class Metrics:
    """One line for each step. What was written after the checkpoint that a run goes on from is dropped."""

    def __init__(self, path: Path, is_main: bool, step: int) -> None:
        self._path = path
        self._is_main = is_main
        old = path.read_text().splitlines() if path.exists() else []
        self.rows = [row for row in (json.loads(line) for line in old if line.endswith("}")) if row["step"] <= step]
        if is_main:
            path.parent.mkdir(parents=True, exist_ok=True)
            checkpoint.replace(path, "".join(json.dumps(row) + "\n" for row in self.rows))

    def add(self, row: Json) -> None:
        self.rows.append(row)
        if self._is_main:
            with self._path.open("a") as file:
                file.write(json.dumps(row | gpu_memory()) + "\n")


def gpu_memory() -> Json:
    """The most that this process's GPU has held so far; nothing on a CPU."""
    if not torch.cuda.is_available():
        return {}
    return {"gpu_peak_gib": round(torch.cuda.max_memory_allocated() / (1 << 30), 2)}


def said_of_memory() -> str:
    """The same for training.log."""
    return "".join(f", {gib} GiB of the GPU at most" for gib in gpu_memory().values())


class Stop:
    """True once SIGTERM or SIGINT came."""

    def __init__(self) -> None:
        self.is_set = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)

    def _set(self, number: int, frame: object) -> None:
        self.is_set = True

    def anywhere(self) -> bool:
        """In any of the processes? All have to ask, and get the same answer."""
        return bool(sum(gather_object([self.is_set])))


def flat(identity: Json) -> Json:
    """The values that must be equal for a run to be the same, of an identity that is new or was read from a manifest.

    The digest of the data stands in place of the setting of that name, which is its path.
    """
    more = {k: v for k, v in identity.items() if k != "settings"}
    return that_matter(str(identity.get("method")), identity.get("settings", {})) | more


class Run:
    """A run: its model, and where it stands."""

    progress = staticmethod(lambda step: None)  # called with each step of a save before it is taken; for tests

    def __init__(self, method: str, settings: Settings, workdir: Path, identity: Json) -> None:
        """identity: further values that the result depends on (digests of its data and prompt, by name)."""
        processes = PartialState(cpu=not torch.cuda.is_available())
        self.method, self.settings, self.workdir = method, settings, workdir
        self.world, self.is_main = processes.num_processes, processes.is_main_process
        workdir.mkdir(parents=True, exist_ok=True)
        self.say = Log(workdir, self.is_main, method)
        self.stop = Stop()
        self.root = layout.steps(workdir, settings.run)
        self.final = layout.checkpoints(workdir) / settings.final
        self.out = layout.outputs(workdir, settings.run)
        self.model, self.tokenizer, self.base_digest = models.prepare(settings, self.say)
        kept = that_matter(method, vars(settings))
        kept.pop("model")
        kept["adapter"] = models.identity_of_adapter(settings)
        rows = settings.batch * settings.accumulation * self.world
        self.identity = {"method": method, "loop": "trl", "base_digest": self.base_digest, "settings": kept, **identity}
        if method not in ("reinforce", "grpo"):
            self.identity["step_rows"] = rows
        self.found = checkpoint.newest(self.root, self.say)
        if self.found:
            self._check_same(*self.found)
        self.step = int(self.found[1]["step"]) if self.found else 0
        processes.wait_for_everyone()  # no process writes before all have read
        self.metrics = Metrics(self.out / layout.TABLE["metrics"], self.is_main, self.step)

    def _check_same(self, path: Path, manifest: Json) -> None:
        old, new = flat(manifest.get("identity", {})), flat(self.identity)
        differing = [
            f"{k}: {old.get(k)!r}, now {new.get(k)!r}" for k in sorted(set(old) | set(new)) if old.get(k) != new.get(k)
        ]
        if differing:
            both = f"{self.root} and {self.final}" if self.final.exists() else f"{self.root}"
            raise TrainError(
                f"{path} is of another run ({'; '.join(differing)}): give this one another name (run), or remove {both}"
            )

    def is_finished(self) -> bool:
        """Is the run's result there already? A result of another run is an error."""
        if not self.final.exists():
            return False
        manifest = checkpoint.verify(self.final)
        if manifest.get("run") != self.settings.run:
            return False
        self._check_same(self.final, manifest)
        self.say(f"{self.final} is finished already: step {manifest['step']}")
        return True

    def arguments(self, total: int) -> Json:
        """The arguments of TRL that all methods share. total: steps of the run."""
        s, precision = self.settings, models.precision_of(self.settings)
        reported = [name for name in s.report_to.split(",") if name]
        if missing := set(reported) - set(get_available_reporting_integrations()):
            raise TrainError(f"report_to: {sys.executable} has no {', '.join(sorted(missing))}: pip install it")
        return {
            "output_dir": str(self.out / "trl"),
            "max_steps": total,
            "learning_rate": s.learning_rate,
            "lr_scheduler_type": "constant_with_warmup" if s.schedule == "constant" else s.schedule,
            "warmup_steps": int(s.warmup * total),
            "weight_decay": s.weight_decay,
            "max_grad_norm": s.gradient_norm,
            "gradient_checkpointing": s.checkpointing,
            "bf16": precision == "bf16",
            "fp16": precision == "fp16",
            "use_cpu": not torch.cuda.is_available(),
            "save_strategy": "steps",
            "save_steps": s.save_steps,
            "logging_steps": 1,
            "logging_nan_inf_filter": False,
            "report_to": reported,
            "run_name": s.run,
            "seed": s.seed,
            "disable_tqdm": True,
        }

    # --- checkpoints ---

    def adopt(self, written: Path, model: Any, step: int, total: int) -> None:
        """A directory that TRL wrote becomes a checkpoint of ours: manifest last, then a rename."""

        def write(directory: Path) -> None:
            for path in written.iterdir():
                if path.name != "README.md":
                    shutil.move(path, directory / path.name)
            self.tokenizer.save_pretrained(directory)
            models.check_written(model, directory)
            curriculum = layout.checkpoints(self.workdir) / layout.TABLE["curriculum"]
            if curriculum.exists():
                shutil.copy(curriculum, directory)

        self._save(self.root, layout.step_name(step), write, step, total)
        shutil.rmtree(written)
        checkpoint.prune(self.root, self.settings.keep)

    def finish(self, total: int) -> None:
        """The result, of the newest checkpoint's files."""
        newest = checkpoint.newest(self.root, self.say)
        if newest is None:
            raise TrainError(f"{self.root} has no checkpoint")
        self._save(*(self.final.parent, self.final.name), lambda d: copy_weights(*newest, d), newest[1]["step"], total)
        checkpoint.verify(self.final)
        self.say(f"finished: step {newest[1]['step']}, {self.final}")

    def _save(self, root: Path, name: str, write: Callable[[Path], None], step: int, total: int) -> None:
        about = {
            "method": self.method,
            "run": self.settings.run,
            "step": step,
            "steps": total,
            "base_model": self.settings.model,
            "base_digest": self.base_digest,
            "identity": self.identity,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        checkpoint.save(root, name, write, about, self.progress)


def check_sharding(state: Any) -> None:
    """Of accelerate's state. TrainError: it passes over what its configuration asks for, or saves weights in pieces."""
    for kind in (DistributedType.FSDP, DistributedType.DEEPSPEED):
        if os.environ.get(f"ACCELERATE_USE_{kind.value}") == "true" and state.distributed_type != kind:
            raise TrainError(f"accelerate has {kind.value} on GPUs alone: leave it out of its configuration")
    if state.distributed_type == DistributedType.FSDP and state.fsdp_plugin.state_dict_type.name != "FULL_STATE_DICT":
        raise TrainError(f"{state.fsdp_plugin.state_dict_type.name} saves pieces of weights: {ONE_PIECE}")
    if state.distributed_type == DistributedType.DEEPSPEED:
        zero = state.deepspeed_plugin.deepspeed_config["zero_optimization"]
        if zero["stage"] == 3 and not zero.get("stage3_gather_16bit_weights_on_model_save"):
            raise TrainError(f"ZeRO 3 saves pieces of weights: {ONE_PIECE}")


class Kept:
    """A second base of a trainer of TRL's: our checkpoints, and a stop between two passes.

    StopRequested leaves train() when a signal came. Nothing is learned from the unfinished step.
    """

    run: Run
    random: Json  # as it was after the last finished step
    saved = -1

    def __init__(self, **trl: Any) -> None:
        super().__init__(**trl)
        check_sharding(self.accelerator.state)  # type: ignore[attr-defined]
        if self.run.settings.base_bits == 8:  # TRL has rounded the adapter to bf16, where AdamW's steps are lost
            for parameter in self.run.model.parameters():
                if parameter.requires_grad:
                    parameter.data = parameter.data.float()

    def training_step(self, *given: Any, **more: Any) -> Any:
        if self.run.stop.anywhere():
            raise StopRequested()
        return super().training_step(*given, **more)  # type: ignore[misc]

    def _save_checkpoint(self: Any, model: Any, trial: Any) -> None:
        if self.state.global_step == self.saved:
            return
        super()._save_checkpoint(model, trial)  # type: ignore[misc]
        step = self.state.global_step
        self.accelerator.wait_for_everyone()  # each wrote its random state
        if self.accelerator.is_main_process:
            written = Path(self.args.output_dir) / f"checkpoint-{step}"
            is_whole = self.accelerator.distributed_type in (
                DistributedType.NO, DistributedType.MULTI_GPU, DistributedType.MULTI_CPU,
            )  # fmt: skip
            model = self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False) if is_whole else None
            self.run.adopt(written, model, step, self.args.max_steps)
        self.saved = step
        self.accelerator.wait_for_everyone()

    def leave_step(self: Any) -> None:
        """Give up the step that is under way: a checkpoint of the last finished one, from which it is drawn again."""
        if self.state.global_step > max(self.run.step, self.saved):
            models.restore_random(self.random)
            self._save_checkpoint(self.model, None)

    def learn(self: Any) -> int:
        """Train to the end; the exit status. TrainError: memory ran out."""
        run, total = self.run, self.args.max_steps
        self.remove_callback(PrinterCallback)
        self.add_callback(Watch(self))
        if run.found:
            run.say(f"goes on from {run.found[0]}: {run.method}, step {run.step}, with its optimizer and random state")
        self.random = models.random_state()
        try:
            if run.step < total:
                self.train(resume_from_checkpoint=str(run.found[0]) if run.found else None)
        except StopRequested:
            self.leave_step()
        except TrainError as error:
            if error.status == SERVICE:
                self.leave_step()
            raise
        except RuntimeError as error:
            if not isinstance(error, torch.cuda.OutOfMemoryError) and "can't allocate memory" not in str(error):
                raise
            raise self.out_of_memory() from error
        if run.stop.anywhere():
            step = max(run.step, self.state.global_step)
            run.say(f"interrupted after step {step}, checkpoint written: the same command goes on")
            return RESUME
        if run.is_main:
            run.finish(total)
        return 0

    def out_of_memory(self: Any) -> TrainError:
        s = self.run.settings
        return TrainError(
            f"out of memory at step {self.state.global_step + 1} (batch {self.args.per_device_train_batch_size}, "
            f"length {s.length}, checkpointing {'on' if s.checkpointing else 'off'}): {MEMORY_KNOBS}"
        )

    def figures(self, logs: Json) -> Json:
        """Figures of the step that TRL has just logged, in addition to those of every method."""
        return {}

    def check_loss(self: Any, loss: float) -> None:
        """TrainError: nothing good can come of this."""
        if not math.isfinite(loss):
            raise TrainError(
                f"the loss is {loss} at step {self.state.global_step}: lower learning_rate, or use precision = bf16 or "
                f"fp32; the last good checkpoint is below {self.run.root}"
            )


class Watch(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Figures of each step, and signals."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._tokens = 0
        self._began = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._tokens = state.num_input_tokens_seen
        self._began = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        if not logs or "loss" not in logs:
            return
        run, now, tokens = self._trainer.run, time.monotonic(), int(logs["num_tokens"])
        self._trainer.check_loss(logs["loss"])
        row = {
            "step": state.global_step,
            "loss": logs["loss"],
            "learning_rate": logs["learning_rate"],
            "gradient_norm": logs["grad_norm"],
            "tokens": tokens - self._tokens,
            "seconds": round(now - self._began, 4),
            "processes": run.world,
            "epoch": logs["epoch"],
        } | self._trainer.figures(logs)
        self._tokens, self._began = tokens, now
        run.metrics.add(row)
        if state.global_step in (1, args.max_steps) or state.global_step % 10 == 0 or "reward_mean" in row:
            what = f"mean reward {row['reward_mean']}" if "reward_mean" in row else f"loss {row['loss']:.4f}"
            run.say(f"step {state.global_step} of {args.max_steps}: {what}{said_of_memory()}")

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """A step with nothing to learn from moves nothing: AdamW goes on by its momentum where a gradient is 0."""
        learned = [p for p in self._trainer.model.parameters() if p.grad is not None]
        if not any(p.grad.any() for p in learned):
            for parameter in learned:
                parameter.grad = None

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
        self._trainer.random = models.random_state()
        if self._trainer.run.stop.anywhere():
            control.should_save = control.should_training_stop = True
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
        control.should_save = True
        return control
