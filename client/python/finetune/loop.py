"""One step of training after another, checkpoints between them. The methods say what is in a step.

Distribution is accelerate's: every process has every row of a step in the same order and takes its own share, so that
the loss does not depend on how many there are.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import signal
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, broadcast_object_list, gather_object

from . import checkpoint, layout, losses
from . import model as models
from .data import Example
from .errors import RESUME, StopRequested, TrainError
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
        if not is_main:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        old = (
            [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []
        )
        checkpoint.replace(path, "".join(json.dumps(row) + "\n" for row in old if row["step"] <= step))

    def add(self, row: Json) -> None:
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


def flat(identity: Json) -> Json:
    """What has to be the same for a run to be the same, of an identity that is new or was read from a manifest.

    The digest of the data stands in place of the setting of that name, which is its path.
    """
    more = {k: v for k, v in identity.items() if k != "settings"}
    return that_matter(str(identity.get("method")), identity.get("settings", {})) | more


class Loop:
    """A run: its model, its optimizer and where it is."""

    progress = staticmethod(lambda step: None)  # told each step of a save before it is taken; for tests

    def __init__(self, method: str, settings: Settings, workdir: Path, identity: Json) -> None:
        """identity: what else the run's result depends on (digests of its data and prompt, by name)."""
        precision = models.precision_of(settings)
        self.accelerator = Accelerator(
            mixed_precision={"fp32": "no"}.get(precision, precision), cpu=not torch.cuda.is_available()
        )
        if self.accelerator.distributed_type not in (
            DistributedType.NO,
            DistributedType.MULTI_GPU,
            DistributedType.MULTI_CPU,
        ):
            kind = self.accelerator.distributed_type.value
            raise TrainError(
                f"accelerate is configured for {kind}: checkpoints are made of whole adapters (MULTI_GPU) only"
            )
        self.method, self.settings, self.workdir = method, settings, workdir
        self.rank, self.world = self.accelerator.process_index, self.accelerator.num_processes
        self.is_main = self.accelerator.is_main_process
        workdir.mkdir(parents=True, exist_ok=True)
        self.say = Log(workdir, self.is_main, method)
        self.stop = Stop()
        self.root = layout.steps(workdir, settings.run)
        self.step = 0
        self.saved = 0  # the step of the newest checkpoint
        self.carried: Json = {}  # what a method keeps from one step to the next; in each checkpoint
        self.total = 0
        bare, self.tokenizer, self.base_digest = models.prepare(settings, self.say)
        self.identity = self._identity(identity)
        trained = [p for p in bare.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=settings.learning_rate, weight_decay=settings.weight_decay)
        self.model, self.optimizer = self.accelerator.prepare(bare, optimizer)
        # Without accelerate's conversion of outputs: it makes a second copy of the logits, in fp32.
        self.bare = self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)
        self._seed()
        self._resume()
        self.metrics = Metrics(layout.outputs(workdir, settings.run) / layout.TABLE["metrics"], self.is_main, self.step)

    # --- what the run is, and going on with it ---

    def _identity(self, more: Json) -> Json:
        kept = that_matter(self.method, vars(self.settings))
        kept.pop("model")
        kept["adapter"] = models.identity_of_adapter(self.settings)
        return {
            "method": self.method,
            "base_digest": self.base_digest,
            "step_rows": self.settings.batch * self.settings.accumulation * self.world,
            "settings": kept,
            **more,
        }

    def _seed(self) -> None:
        seed = self.settings.seed * 1000003 + self.rank
        random.seed(seed)
        torch.manual_seed(seed)

    def _check_same(self, path: Path, manifest: Json) -> None:
        before = manifest.get("identity", {})
        old, new = flat(before), flat(self.identity)
        differing = [
            f"{k}: {old.get(k)!r}, now {new.get(k)!r}" for k in sorted(set(old) | set(new)) if old.get(k) != new.get(k)
        ]
        if differing:
            final = layout.checkpoints(self.workdir) / self.settings.final
            both = f"{self.root} and {final}" if final.exists() else f"{self.root}"
            raise TrainError(
                f"{path} is of another run ({'; '.join(differing)}): give this one another name (run), or remove {both}"
            )

    def finished(self) -> bool:
        """Is the run's result there already? A result of another run is an error."""
        path = layout.checkpoints(self.workdir) / self.settings.final
        if not path.exists():
            return False
        manifest = checkpoint.verify(path)
        if manifest.get("run") != self.settings.run:
            return False
        self._check_same(path, manifest)
        self.say(f"{path} is finished already: step {manifest['step']}")
        return True

    def _resume(self) -> None:
        found: list[Any] = [None]
        if self.is_main:
            newest = checkpoint.newest(self.root, self.say)
            found = [(str(newest[0]), newest[1])] if newest else [None]
        broadcast_object_list(found)
        if found[0] is None:
            return
        path, manifest = Path(found[0][0]), found[0][1]
        self._check_same(path, manifest)
        models.load_adapter_state(self.bare, path)
        state = torch.load(path / layout.STATE, map_location="cpu", weights_only=False)
        self.optimizer.load_state_dict(state["optimizer"])
        if self.rank < len(state["random"]):
            self.restore_random(state["random"][self.rank])
        self.carried = dict(state.get("carried", {}))
        self.step = self.saved = manifest["step"]
        self.say(f"goes on from {path}: {manifest['method']}, step {self.step}, with its optimizer and random state")

    @staticmethod
    def random_state() -> Json:
        """Of this process: all that a draw depends on."""
        return {
            "python": random.getstate(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        }

    @staticmethod
    def restore_random(state: Json) -> None:
        random.setstate(state["python"])
        torch.set_rng_state(state["torch"])
        if state["cuda"] is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])

    # --- a step ---

    def rate(self) -> float:
        """The learning rate of the present step."""
        s = self.settings
        warm = math.ceil(s.warmup * self.total)
        if self.step < warm:
            return s.learning_rate * (self.step + 1) / warm
        along = (self.step - warm) / max(1, self.total - warm)
        if s.schedule == "cosine":
            return s.learning_rate * 0.5 * (1 + math.cos(math.pi * along))
        return s.learning_rate * (1 - along if s.schedule == "linear" else 1)

    def _share(self, rows: Sequence[tuple[Example, list[float]]]) -> list[list[tuple[Example, list[float]]]]:
        """This process's passes. All processes make as many: one without rows repeats one with coefficients of 0."""
        mine = list(rows[self.rank :: self.world])
        size = self.settings.batch
        passes = [mine[i : i + size] for i in range(0, len(mine), size)]
        longest = math.ceil(math.ceil(len(rows) / self.world) / size)
        nothing = [(rows[0][0], [0.0] * len(rows[0][1]))]
        return passes + [nothing] * (longest - len(passes))

    def _tensors(self, rows: list[tuple[Example, list[float]]]) -> tuple[torch.Tensor, ...]:
        width = max(len(example.ids) for example, _ in rows)
        pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else self.tokenizer.eos_token_id

        def stack(lists: list[list[Any]], fill: Any, dtype: torch.dtype) -> torch.Tensor:
            filled = [one + [fill] * (width - len(one)) for one in lists]
            return torch.tensor(filled, dtype=dtype, device=self.accelerator.device)

        return (
            stack([e.ids for e, _ in rows], pad, torch.long),
            stack([[1] * len(e.ids) for e, _ in rows], 0, torch.long),
            stack([e.labels for e, _ in rows], losses.IGNORED, torch.long),
            stack([c for _, c in rows], 0.0, torch.float32),
        )

    def take_step(
        self, rows: Sequence[tuple[Example, list[float]]], temperature: float = 1.0, least: float = -math.inf
    ) -> Json:
        """One step of the optimizer on rows with a coefficient for each of their tokens; its figures.

        A loss under `least` ends the run: a likelihood's may not be near 0 before it is learned, a policy gradient's
        has either sign. TrainError also where the loss is no number or memory ran out.
        """
        started = time.monotonic()
        rate = self.rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        total = torch.zeros((), device=self.accelerator.device)
        passes = self._share(rows)
        try:
            for number, part in enumerate(passes):
                with self._quiet(number + 1 < len(passes)):
                    total += self._pass(part, temperature)
            loss = float(self.accelerator.reduce(total, "sum"))
            self._check_loss(loss, least)
            norm = float(self.accelerator.clip_grad_norm_(self.model.parameters(), self.settings.gradient_norm))
            self.optimizer.step()
            self.optimizer.zero_grad()
        except torch.cuda.OutOfMemoryError as error:
            raise self._out_of_memory(rows) from error
        except RuntimeError as error:
            if "can't allocate memory" not in str(error):
                raise
            raise self._out_of_memory(rows) from error
        self.step += 1
        tokens = sum(len(e.ids) for e, _ in rows)
        seconds = time.monotonic() - started
        return {
            "step": self.step,
            "loss": loss,
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens": tokens,
            "seconds": round(seconds, 4),
            "processes": self.world,
        }

    def skip_step(self) -> Json:
        """A step that has nothing to learn from."""
        self.step += 1
        return {"step": self.step, "loss": None, "tokens": 0, "seconds": 0.0, "processes": self.world}

    def _quiet(self, is_quiet: bool) -> Any:
        """Gradients are exchanged with the last pass of a step only."""
        return self.accelerator.no_sync(self.model) if is_quiet else contextlib.nullcontext()

    def _pass(self, part: list[tuple[Example, list[float]]], temperature: float) -> torch.Tensor:
        ids, mask, labels, coefficients = self._tensors(part)
        with self.accelerator.autocast():
            logits = self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        loss = (losses.token_nll(logits, labels, temperature) * coefficients).sum()
        # accelerate divides by the processes when it averages gradients: ours is a sum over them.
        self.accelerator.backward(loss * self.world)
        return loss.detach()

    def _check_loss(self, loss: float, least: float) -> None:
        if not math.isfinite(loss):
            raise TrainError(
                f"the loss is {loss} at step {self.step + 1}: lower learning_rate, or use precision = bf16 or fp32; "
                f"the last good checkpoint is below {self.root}"
            )
        if loss < least:
            raise TrainError(
                f"the loss is {loss:.5f} at step {self.step + 1}, in the first epoch: answers are known before "
                "they are learned. Are they part of the prompts, or was the adapter trained on these rows already? "
                "least_loss = 0 if they may well be known, as the model's own are."
            )

    def _out_of_memory(self, rows: Sequence[tuple[Example, list[float]]]) -> TrainError:
        longest = max(len(e.ids) for e, _ in rows)
        return TrainError(
            f"out of memory at step {self.step + 1} (batch {self.settings.batch}, longest row {longest} tokens, "
            f"checkpointing {'on' if self.settings.checkpointing else 'off'}): {MEMORY_KNOBS}"
        )

    # --- checkpoints ---

    def after_step(self, is_epoch_end: bool) -> None:
        """A checkpoint where one is due; StopRequested, after one, when a signal came."""
        if is_epoch_end or self.is_stopping() or self.step % self.settings.save_steps == 0:
            self.save_step()
            if self.is_stopping():  # also by a signal that came while the checkpoint was written
                raise StopRequested()

    def is_stopping(self) -> bool:
        """Did a signal come to any of the processes? All have to ask, and get the same answer."""
        return bool(sum(gather_object([self.stop.is_set])))

    def leave_step(self, began: Json) -> None:
        """Give up the step that is under way, of which nothing is learned yet. began: random_state() before it.

        Raises StopRequested with a checkpoint in place: who goes on draws what this step drew.
        """
        self.restore_random(began)
        if self.step > self.saved:
            self.save_step()
        raise StopRequested()

    def save_step(self) -> None:
        randoms = gather_object([self.random_state()])

        def write(directory: Path) -> None:
            models.write_adapter(self.bare, self.tokenizer, directory)
            models.check_written(self.bare, directory)
            state = {"optimizer": self.optimizer.state_dict(), "random": randoms, "step": self.step}
            state["carried"] = self.carried
            torch.save(state, directory / layout.STATE)
            curriculum = layout.checkpoints(self.workdir) / layout.TABLE["curriculum"]
            if curriculum.exists():
                (directory / curriculum.name).write_bytes(curriculum.read_bytes())

        self._save(self.root, layout.step_name(self.step), write)
        self.saved = self.step
        if self.is_main:
            checkpoint.prune(self.root, self.settings.keep)

    def save_final(self) -> Path:
        def write(directory: Path) -> None:
            models.write_adapter(self.bare, self.tokenizer, directory)
            models.check_written(self.bare, directory)

        path = self._save(layout.checkpoints(self.workdir), self.settings.final, write)
        if self.is_main:
            checkpoint.verify(path)
        self.say(f"finished: step {self.step}, {path}")
        return path

    def _save(self, root: Path, name: str, write: Any) -> Path:
        about = {
            "method": self.method,
            "run": self.settings.run,
            "step": self.step,
            "steps": self.total,
            "base_model": self.settings.model,
            "base_digest": self.base_digest,
            "identity": self.identity,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        if self.is_main:
            checkpoint.save(root, name, write, about, self.progress)
        self.accelerator.wait_for_everyone()
        return root / name


def run_guarded(loop: Loop, body: Any) -> int:
    """body(); the status of how it ended, told."""
    try:
        body()
    except StopRequested:
        loop.say(f"interrupted after step {loop.step}, checkpoint written: the same command goes on")
        return RESUME
    return 0
