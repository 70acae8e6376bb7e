"""Fine-tuning on rows by TRL's SFTTrainer: supervised, on what Best-of-N kept, and weighted by reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl import SFTConfig, SFTTrainer
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from . import rewards
from .checkpoint import digest_of
from .data import Example, examples
from .errors import FAILED, TrainError
from .runs import Kept, Run
from .settings import Settings


def weigh(rows: list[Example], settings: Settings) -> list[Example]:
    """Weights by the rewards of all rows; rows of weight 0 are left out, since they would only dilute a step.

    Only their proportions count: the least is 1, since TRL divides by 1 at least.
    """
    given = [row.reward for row in rows]
    if settings.weight == "column":
        weights = given
    else:
        if rewards.is_constant(given) and len(rows) > 1:
            raise TrainError(
                f"the reward is {given[0]:g} in all {len(rows)} rows: weights would teach nothing that `trainer sft` "
                "does not; sample more answers, or use another reward",
                FAILED,
            )
        weights = rewards.weights_of(given, settings.weight, settings.tau, settings.weight_cap)
    least = min((w for w in weights if w > 0), default=0.0)
    kept = [replace(r, weight=w / least) for r, w in zip(rows, weights, strict=True) if w > 0]
    if not kept:
        raise TrainError(f"no row is left to learn from: all {len(rows)} weights are 0", FAILED)
    return kept


class Trainer(Kept, SFTTrainer):  # type: ignore[misc, unused-ignore]
    """TRL's: the mean over a step's answer tokens."""

    def __init__(self, run: Run, **trl: Any) -> None:
        self.run = run
        super().__init__(**trl)

    def check_loss(self, loss: float) -> None:
        """A likelihood may not be near 0 before it is learned."""
        super().check_loss(loss)
        if self.state.epoch <= 1 and loss < self.run.settings.least_loss:
            raise TrainError(
                f"the loss is {loss:.5f} at step {self.state.global_step}, in the first epoch: answers are known "
                "before they are learned. Are they part of the prompts, or was the adapter trained on these rows "
                "already? least_loss = 0 if they may well be known, as the model's own are."
            )


class Weighted(Trainer):
    """sum_i w_i NLL_i / sum_i w_i over a step's rows, NLL_i the mean over the answer's tokens."""

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor:
        total = torch.stack([batch["weight"].sum() for batch in batch_samples]).sum().to(device)
        return self.accelerator.gather(total).sum()

    def compute_loss(self, model: Any, inputs: Any, *given: Any, **more: Any) -> Any:
        weight = inputs.pop("weight")

        def weighed(**inputs: Any) -> Any:
            outputs = model(**inputs)
            outputs.log_probs = outputs.log_probs * (weight / outputs.label_mask.sum(1).clamp(min=1)).unsqueeze(1)
            return outputs

        return super().compute_loss(weighed, inputs, *given, **more)


class WithWeights(DataCollatorForLanguageModeling):  # type: ignore[misc, unused-ignore]
    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        weights = torch.tensor([example["weight"] for example in examples], dtype=torch.float32)
        return {**super().torch_call(examples), "weight": weights}


def padded(rows: Sequence[Example], multiple: int, token: int) -> list[Example]:
    """With rows from which nothing is learned: several processes would else be given some rows a second time."""
    return [*rows, *[Example([token, token], 2, weight=0.0)] * (-len(rows) % multiple)]


def trainer_of(run: Run, rows: Sequence[Example]) -> Trainer:
    s, is_weighted = run.settings, run.method == "weighted"
    if run.world > 1:
        rows = padded(rows, s.batch * run.world, run.tokenizer.eos_token_id)
    passes = math.ceil(math.ceil(len(rows) / s.batch) / run.world)
    total = s.epochs * math.ceil(passes / s.accumulation)
    pad = run.tokenizer.pad_token_id
    return (Weighted if is_weighted else Trainer)(
        run,
        model=run.model,
        args=SFTConfig(
            per_device_train_batch_size=s.batch,
            gradient_accumulation_steps=s.accumulation,
            max_length=s.length,
            dataset_kwargs={"skip_prepare_dataset": True},
            remove_unused_columns=False,
            average_tokens_across_devices=True,
            **run.arguments(min(total, s.max_steps or total)),
        ),
        train_dataset=Dataset.from_list(
            [
                {"input_ids": row.ids, "labels": row.labels} | ({"weight": row.weight} if is_weighted else {})
                for row in rows
            ]
        ),
        data_collator=(WithWeights if is_weighted else DataCollatorForLanguageModeling)(
            pad if pad is not None else run.tokenizer.eos_token_id
        ),
        processing_class=run.tokenizer,
    )


def train(method: str, settings: Settings, workdir: Path, request: dict[str, Any]) -> int:
    """Returns the exit status; TrainError where it cannot be begun or gone on with."""
    data = workdir / settings.data
    if not data.is_file():
        raise TrainError(f"the data {data} does not exist")
    run = Run(method, settings, workdir, {"data": digest_of(data), "prompt": request.get("prompt")})
    if run.is_finished():
        return 0
    rows = examples(run.tokenizer, settings, data, request.get("prompts") or [], method == "weighted", run.say)
    return trainer_of(run, weigh(rows, settings) if method == "weighted" else rows).learn()
