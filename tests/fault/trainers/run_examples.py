"""What OpenRLHF, verl and slime do with the arguments and rows of client/examples: NAME ROWS ARGUMENT..."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from packages import answer, bare

name, rows, arguments = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
row = json.loads(rows.read_text().splitlines()[0])
ANSWER = answer("timing=1.3")


def after(option: str) -> str:
    return arguments[arguments.index(option) + 1]


class Letters:
    def __call__(self, text: str, **_: object) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, ids: list[int], **_: object) -> str:
        return "".join(map(chr, ids))


class Engine:
    async def generate(self, ids: list[int], *_: object, **__: object) -> Any:
        tokens = [ord(letter) for letter in ANSWER]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=None)])


def openrlhf() -> float:
    bare("openrlhf")
    bare("openrlhf.utils")
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    executor = SingleTurnAgentExecutor([after("--reward.remote_url")])
    prompt = row[after("--data.input_key")][0]["content"]
    label = row[after("--data.label_key")]
    parameters = SimpleNamespace(max_tokens=1000, logprobs=None)
    output = asyncio.run(executor.execute(prompt, label, parameters, 10000, Letters(), Engine()))
    return float(torch.tensor([output["reward"]]).item())


def verl() -> float:
    bare("verl")
    bare("verl.utils")
    from verl.utils.import_utils import load_extern_object

    told = dict(one.partition("=")[::2] for one in arguments if "=" in one)
    part = "reward.custom_reward_function."
    score = load_extern_object(told[part + "path"], told[part + "name"])
    truth = row["reward_model"]["ground_truth"]
    return float(score(row["data_source"], ANSWER, truth, dict(row["extra_info"]))["score"])


async def slime() -> float:
    """As remote_rm() of slime/rollout/rm_hub (0b420f1) does."""
    import aiohttp

    body = {"prompt": row[after("--input-key")], "response": ANSWER, "label": row[after("--label-key")]}
    async with aiohttp.ClientSession() as session, session.post(after("--rm-url"), json=body) as reply:
        reply.raise_for_status()
        return float(await reply.json())


print(json.dumps(asyncio.run(slime()) if name == "slime" else {"openrlhf": openrlhf, "verl": verl}[name]()))
