"""Fine-tuning on rows: supervised, on what Best-of-N kept (the same with other numbers), and weighted by reward."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import losses
from .checkpoint import digest_of
from .data import Example, examples
from .errors import FAILED, TrainError
from .loop import Loop, run_guarded, said_of_memory
from .settings import Settings


def order_of(n: int, epoch: int, seed: int) -> list[int]:
    """Every row once, drawn anew for each epoch; the same for the same seed, so that nothing has to be stored."""
    order = list(range(n))
    random.Random(f"{seed} {epoch}").shuffle(order)
    return order


def with_coefficients(rows: Sequence[Example], is_weighted: bool) -> list[tuple[Example, list[float]]]:
    """The rows of one step, with a coefficient for each of their tokens (0 for the prompt's)."""
    counts = [row.count for row in rows]
    each = losses.weighted([row.weight for row in rows], counts) if is_weighted else losses.supervised(counts)
    return [(row, [0.0] * row.prompt + [c] * row.count) for row, c in zip(rows, each, strict=True)]


def weigh(rows: list[Example], settings: Settings) -> list[Example]:
    """Weights by the rewards of all rows; rows of weight 0 are left out, since they would only dilute a step."""
    rewards = [row.reward for row in rows]
    if settings.weight == "column":
        weights = rewards
    else:
        if losses.is_constant(rewards) and len(rows) > 1:
            raise TrainError(
                f"the reward is {rewards[0]:g} in all {len(rows)} rows: weights would teach nothing that `trainer sft` "
                "does not; sample more answers, or use another reward",
                FAILED,
            )
        weights = losses.weights_of(rewards, settings.weight, settings.tau, settings.weight_cap)
    kept = [Example(r.ids, r.prompt, r.reward, w) for r, w in zip(rows, weights, strict=True) if w > 0]
    if not kept:
        raise TrainError(f"no row is left to learn from: all {len(rows)} weights are 0", FAILED)
    return kept


def train(method: str, settings: Settings, workdir: Path, more: dict[str, Any]) -> int:
    """Returns the exit status; TrainError where it cannot be begun or gone on with."""
    is_weighted = method == "weighted"
    data = workdir / settings.data
    if not data.is_file():
        raise TrainError(f"the data {data} does not exist")
    loop = Loop(method, settings, workdir, {"data": digest_of(data), "prompt": more.get("prompt")})
    if loop.finished():
        return 0
    rows = examples(loop.tokenizer, settings, data, more.get("prompts") or [], is_weighted, loop.say)
    if is_weighted:
        rows = weigh(rows, settings)
    size = settings.batch * settings.accumulation * loop.world
    per_epoch = math.ceil(len(rows) / size)
    loop.total = min(settings.epochs * per_epoch, settings.max_steps or settings.epochs * per_epoch)

    def body() -> None:
        while loop.step < loop.total:
            epoch, at = divmod(loop.step, per_epoch)
            chosen = [rows[i] for i in order_of(len(rows), epoch, settings.seed)[at * size : (at + 1) * size]]
            least = settings.least_loss if epoch == 0 else 0.0
            figures = loop.take_step(with_coefficients(chosen, is_weighted), least=least)
            loop.metrics.add(figures | {"epoch": epoch})
            if loop.step % 10 == 0 or loop.step in (1, loop.total):
                loop.say(f"step {loop.step} of {loop.total}: loss {figures['loss']:.4f}{said_of_memory()}")
            loop.after_step(is_epoch_end=at + 1 == per_epoch or loop.step == loop.total)
        loop.save_final()

    return run_guarded(loop, body)
