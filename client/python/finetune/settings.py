"""The settings of a run: the rows of settings.json, as trainer(1) or a configuration file filled them in."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .errors import TrainError

ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("settings.json").read_text())
METHODS = ("sft", "bestofn", "weighted", "reinforce", "grpo")
# Settings that do not change the weights: a run may be continued under another value.
INCIDENTAL = frozenset({"save_steps", "keep", "checkpointing", "batch", "accumulation", "least_loss"}) | frozenset(
    {"rollouts", "vllm_url", "vllm_memory", "report_to"}
)


@dataclass(frozen=True)
class Settings:
    """One field for each row of settings.json."""

    model: str
    adapter: str
    data: str
    run: str
    final: str
    epochs: int
    max_steps: int
    max_samples: int
    learning_rate: float
    schedule: str
    warmup: float
    weight_decay: float
    gradient_norm: float
    batch: int
    accumulation: int
    length: int
    lora_r: int
    lora_alpha: int
    lora_dropout: float
    lora_targets: str
    precision: str
    base_bits: int
    checkpointing: bool
    save_steps: int
    keep: int
    weight: str
    tau: float
    weight_cap: float
    tasks_per_step: int
    samples: int
    sampling_batch: int
    temperature: float
    answer_tokens: int
    reward: str
    until: str
    baseline: str
    truncated: str
    constant_steps: int
    rollouts: str
    vllm_url: str
    vllm_memory: float
    report_to: str
    least_loss: float
    seed: int


def defaults(method: str) -> dict[str, Any]:
    """The defaults of a method."""
    return {row["name"]: row.get("presets", {}).get(method, row["default"]) for row in ROWS}


def that_matter(method: str, values: dict[str, Any]) -> dict[str, Any]:
    """Of these settings those that a run of the method depends on: it may be gone on with under others of the rest."""
    concern = [row["name"] for row in ROWS if row["methods"] == "all" or method in row["methods"].split()]
    return {name: values[name] for name in concern if name in values and name not in INCIDENTAL}


def _checked(row: dict[str, Any], value: Any) -> Any:
    name, kind = row["name"], row["type"]
    wanted: Any = {"int": int, "float": (int, float), "bool": bool}.get(kind, str)
    if not isinstance(value, wanted) or (kind != "bool" and isinstance(value, bool)):
        raise TrainError(f"{name}: {value!r} is no {kind}")
    if kind in ("int", "float") and not row["min"] <= value <= row["max"]:
        raise TrainError(f"{name}: {value!r} is not from {row['min']} to {row['max']}")
    if kind == "choice" and value not in row["choices"].split():
        raise TrainError(f"{name}: {value!r} is none of {row['choices']}")
    return float(value) if kind == "float" else value


def settings_of(method: str, given: dict[str, Any]) -> Settings:
    """Defaults of the method with what was given put over them. TrainError names the setting that is wrong."""
    if method not in METHODS:
        raise TrainError(f"there is no method {method!r}; there are {', '.join(METHODS)}")
    rows = {row["name"]: row for row in ROWS}
    for name in given:
        if name not in rows:
            raise TrainError(f"there is no setting {name!r}")
    values = defaults(method) | given
    if values["run"] == values["final"]:
        raise TrainError(f"run and final are both {values['run']!r}: a run's steps and its result need a name each")
    if method in ("reinforce", "grpo") and str(values["rollouts"]).startswith("vllm") and values["base_bits"] == 8:
        raise TrainError("a base in 8 bits cannot be handed to vLLM: base_bits = 16, or rollouts = generate")
    if (
        method in ("reinforce", "grpo")
        and values["samples"] == 1
        and (method, values["baseline"]) != ("reinforce", "none")
    ):
        raise TrainError(
            "samples = 1 leaves nothing to compare an answer with: give more, or reinforce a baseline of none"
        )
    return Settings(**{field.name: _checked(rows[field.name], values[field.name]) for field in fields(Settings)})
