"""A task set for verifiers (and prime-rl): rows of a JSON Lines file, each with `prompt` and `task`.

    uv run eval verifierd-taskset --env.taskset.path prompts.jsonl --env.taskset.task.url http://verifier:8080

A rollout without a reward fails with an error, which verifiers keeps with it and trainers leave out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from .client import Client, Unavailable, labels
from .numbers import numbers_of, reward_of
from .rows import POOL
from .types import Verdict


class KernelData(vf.TaskData):
    """task: as verifierd_client.task_of() takes it, as text."""

    task: str


class KernelConfig(vf.TaskConfig):
    url: str | None = None
    """Where verifierd is; VERIFIERD_URL otherwise."""
    token: str | None = None
    """VERIFIERD_TOKEN otherwise."""
    reward: str = "staged"
    """A reward's kind; one that needs a rank needs a group, which this is not."""
    policy: str | None = None
    wait_s: float = 900.0
    run: str | None = None
    """VERIFIERD_RUN otherwise; it goes with each submission."""


class KernelTask(vf.Task[KernelData, vf.State, KernelConfig]):
    @vf.reward
    async def verifierd(self, trace: vf.Trace[Any, Any, Any]) -> float:
        """The reward of the last reply; what else is known goes to the metrics."""
        verdict = await asyncio.get_running_loop().run_in_executor(POOL, self._judge, trace.last_reply)
        numbers = numbers_of(verdict)
        trace.record_metrics({name: value for name, value in numbers.items() if name not in ("score", "masked")})
        trace.info["verifierd"] = {"class": verdict.get("class"), "submission": verdict.get("id")}
        reward = reward_of(verdict)
        if reward is None:
            raise Unavailable(f"verifierd: {verdict.get('class')}: no reward for submission {verdict.get('id')}")
        return reward

    def _judge(self, reply: str) -> Verdict:
        config = self.config
        client = Client(config.url, config.token, config.wait_s)
        told = labels(config.run, metadata={"name": self.data.name} if self.data.name else None)
        return client.judge(self.data.task, reply, reward=config.reward, policy=config.policy, metadata=told)


class KernelTasksetConfig(vf.TasksetConfig):
    path: Path = Path("prompts.jsonl")
    """Rows {"prompt": text or messages, "task": id, name, source or object, "name"?: text}."""
    task: KernelConfig = KernelConfig()


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    def load(self) -> Iterator[KernelTask]:
        with self.config.path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                row = json.loads(line)
                if not isinstance(row, dict) or "prompt" not in row or "task" not in row:
                    raise ValueError(f"{self.config.path}:{number}: a row has prompt and task")
                task = row["task"] if isinstance(row["task"], str) else json.dumps(row["task"])
                data = KernelData(prompt=row["prompt"], task=task, name=row.get("name"))
                yield KernelTask(data, self.config.task)


__all__ = ["KernelTaskset"]
