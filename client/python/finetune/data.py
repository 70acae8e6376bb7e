"""Rows into token ids. Only the answer is learned: the prompt's labels are masked."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import TrainError
from .settings import Settings

IGNORED = -100  # the label of tokens that are not learned


@dataclass(frozen=True)
class Example:
    """One row: ids of prompt and answer."""

    ids: list[int]
    prompt: int  # ids before the answer
    reward: float = 0.0
    weight: float = 1.0

    @property
    def count(self) -> int:
        """Tokens that are learned."""
        return len(self.ids) - self.prompt

    @property
    def labels(self) -> list[int]:
        return [IGNORED] * self.prompt + self.ids[self.prompt :]


def chat_prompt(tokenizer: Any, instruction: str) -> list[int]:
    """The ids that a model is shown before it answers."""
    if not getattr(tokenizer, "chat_template", None):
        raise TrainError(
            f"the tokenizer of {tokenizer.name_or_path} has no chat template: use an instruction-tuned model, or put a "
            "chat_template.jinja beside its tokenizer_config.json"
        )
    messages = [{"role": "user", "content": instruction}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def encode(tokenizer: Any, instruction: str, output: str) -> tuple[list[int], int]:
    """Ids of prompt and answer, the end of the turn included, and how many are the prompt's."""
    prompt = chat_prompt(tokenizer, instruction)
    answer = list(tokenizer(output, add_special_tokens=False)["input_ids"]) if output.strip() else []
    return prompt + answer + ([tokenizer.eos_token_id] if answer else []), len(prompt)


def read_rows(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as file:  # splitlines() ends a line at U+2028, too
            lines = file.readlines()
    except OSError as error:
        raise TrainError(f"cannot read the data {path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise TrainError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise TrainError(f"{path}:{number}: not an object")
        rows.append(row)
    return rows


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a round's candidates.jsonl as one of its kept.jsonl; others as they are."""
    verdict = row.get("verdict")
    if not isinstance(verdict, dict):
        return row
    return row | {"output": row.get("text"), "reward": verdict.get("reward"), "copy": "duplicate_of" in verdict}


def _texts(row: dict[str, Any], where: str) -> tuple[str, str]:
    instruction, output = row.get("instruction"), row.get("output")
    if not isinstance(instruction, str) or not isinstance(output, str):
        raise TrainError(f'{where}: a row needs "instruction" and "output", both text')
    return instruction, output


def _reward(row: dict[str, Any], where: str, kind: str) -> float | None:
    """None: the row has no verdict, and is left out."""
    name = "weight" if kind == "column" else "reward"
    value = row.get(name)
    if value is None and name == "reward":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TrainError(f'{where}: "{name}" is {value!r}, and has to be a number')
    if name == "weight" and value < 0:
        raise TrainError(f'{where}: "weight" is {value!r}, and may not be negative')
    return float(value)


def examples(
    tokenizer: Any,
    settings: Settings,
    path: Path,
    prompts: Sequence[str],
    is_weighted: bool,
    say: Callable[[str], None],
) -> list[Example]:
    """The rows of a file. prompts: digests of the templates that they may be made with; none: any.

    TrainError: none is left, or no row has anything to learn (one is shown decoded).
    """
    rows = read_rows(path)
    if settings.max_samples:
        rows = rows[: settings.max_samples]
    out = []
    left_out: Counter[str] = Counter()
    masked: list[int] | None = None
    for number, row in enumerate(rows, 1):
        where = f"{path}:{number}"
        row = _flat(row)
        if row.get("copy") is True:
            left_out["a copy of another"] += 1
            continue
        instruction, output = _texts(row, where)
        made_with = row.get("prompt")
        if prompts and made_with and made_with not in prompts:
            raise TrainError(
                f"{where}: made with the prompt template {made_with}, not with this trainer's {prompts[0]}; "
                "prepare or sample the data again"
            )
        reward = _reward(row, where, settings.weight) if is_weighted else 0.0
        ids, prompt = encode(tokenizer, instruction, output)
        if reward is None:
            left_out["without a reward"] += 1
        elif len(ids) > settings.length:
            left_out[f"longer than {settings.length} tokens (length)"] += 1
        elif len(ids) == prompt:
            left_out["with nothing to learn"] += 1
            masked = ids
        else:
            out.append(Example(ids, prompt, reward))
    if not out and masked is not None and left_out["with nothing to learn"] == len(rows):
        raise TrainError(
            f"{path}: the labels of all {len(rows)} rows are masked, there is no answer to learn. One row, decoded:\n"
            + tokenizer.decode(masked)
        )
    why = ", ".join(f"{n} {reason}" for reason, n in left_out.items())
    if not out:
        raise TrainError(f"{path}: no row is left to learn from ({len(rows)} rows{': ' + why if why else ''})")
    say(f"data: {len(out)} rows, {sum(e.count for e in out)} answer tokens" + (f"; left out: {why}" if why else ""))
    return out
