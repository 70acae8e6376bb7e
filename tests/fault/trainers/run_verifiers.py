"""verifiers: the task set found by its name, and each of its tasks scored over a finished rollout's trace."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from packages import answer
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import AgentInfo, TraceTask
from verifiers.v1.types import AssistantMessage
from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

url, scripts = sys.argv[1], sys.argv[2:]


async def score(task: Any, text: str) -> dict[str, Any]:
    trace = vf.Trace(
        task=TraceTask(type=type(task).__name__, data=task.data),
        agent=AgentInfo(config=vf.AgentConfig()),
        nodes=[MessageNode(message=AssistantMessage(content=text), sampled=True)],
    )
    error = ""
    try:
        await task.score(trace)
    except vf.TaskError as failure:
        error = str(failure)
    rewards = {name: reward.value if reward else None for name, reward in trace.rewards.items()}
    return {"rewards": rewards, "metrics": trace.metrics, "info": trace.info, "error": error}


async def main(path: Path) -> list[dict[str, Any]]:
    path.write_text("".join(json.dumps({"prompt": "Write it.", "task": "scripted"}) + "\n" for _ in scripts))
    told = {"id": "verifierd-taskset", "path": str(path), "task": {"url": url}}
    taskset = load_taskset(taskset_config_type("verifierd-taskset").model_validate(told))
    return [await score(task, answer(script, n)) for n, (task, script) in enumerate(zip(taskset, scripts, strict=True))]


with tempfile.TemporaryDirectory() as where:
    print(json.dumps(asyncio.run(main(Path(where) / "prompts.jsonl"))))
