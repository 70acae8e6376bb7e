"""An environment for SkyRL, with the daemon's feedback as the next observation.

    skyrl_gym.register(id="verifierd", entry_point="verifierd_client.skyrl:KernelEnv")

A row's reward_spec.ground_truth says the task; extra_info.max_turns, or max_turns, how many tries there are (1). A
turn's reward is its verdict's; the episode ends with the first that is correct, unless the configuration says go_on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from .client import Client, labels
from .numbers import numbers_of
from .rows import judge_row


class KernelEnv(BaseTextEnv):
    """env_config: url, token, reward, policy, fill (0), wait_s (900), go_on (false), run.

    The step in extra_info (global_step or step) is sent with each submission, as is the turn.
    """

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        settings = dict(env_config or {})
        row = dict(extras or {})
        self.task = dict(row.get("reward_spec") or {}).get("ground_truth")
        if self.task is None:
            raise ValueError("reward_spec.ground_truth is missing: it says the task")
        extra = dict(row.get("extra_info") or {})
        turns = extra.get("max_turns") or row.get("max_turns") or 1  # SkyRL puts its generator's into each row
        self.max_turns = int(turns)
        self.client = Client(settings.get("url"), settings.get("token"), float(settings.get("wait_s", 900.0)))
        self.options = {name: settings.get(name) for name in ("reward", "policy")}
        self.fill = float(settings.get("fill", 0.0))
        self.goes_on = bool(settings.get("go_on", False))
        self.run = settings.get("run")
        self.step_of_run = extra.get("global_step", extra.get("step"))
        self.numbers: dict[str, float] = {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        self.turns += 1
        told = labels(self.run, self.step_of_run, metadata={"turn": self.turns})
        verdict = judge_row(self.client, self.task, action, metadata=told, **self.options) or {"class": "infra"}
        self.numbers = numbers_of(verdict, self.fill)
        is_over = self.turns >= self.max_turns or (self.numbers["correct"] == 1 and not self.goes_on)
        text = str((verdict.get("feedback") or {}).get("text") or "It could not be judged.")
        return BaseTextEnvStepOutput(
            observations=[] if is_over else [{"role": "user", "content": text}],
            reward=self.numbers["score"],
            done=is_over,
            metadata={"class": verdict.get("class"), "submission": verdict.get("id"), **self.numbers},
        )

    def get_metrics(self) -> dict[str, float]:
        return {"turns": float(self.turns), **self.numbers}
