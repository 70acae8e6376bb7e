"""OpenRLHF's single-turn agent, from generation to reward, with a tokenizer of characters and a scripted engine."""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
from packages import answer, bare

bare("openrlhf")
bare("openrlhf.utils")
from openrlhf.utils.agent import SingleTurnAgentExecutor  # noqa: E402

PROMPT = "<|im_start|>user\nWrite it: ```python\nclass ModelNew: pass\n```<|im_end|>\n<|im_start|>assistant\n"


class Tokenizer:
    def __call__(self, text: str, **_: object) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, ids: list[int], **_: object) -> str:
        return "".join(map(chr, ids))


class Engine:
    def __init__(self, text: str) -> None:
        self.text = text

    async def generate(self, ids: list[int], *_: object, **__: object) -> Any:
        tokens = [ord(letter) for letter in self.text + "<|im_end|>"]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=None)])


async def main(url: str) -> list[dict[str, Any]]:
    executor = SingleTurnAgentExecutor([url + "/compat/openrlhf?reward=staged&fill=0.125"])
    parameters = SimpleNamespace(max_tokens=1000, logprobs=None)

    async def one(script: str) -> dict[str, Any]:
        output = await executor.execute(PROMPT, "scripted", parameters, 10000, Tokenizer(), Engine(answer(script)))
        # As its samples_generator makes tensors of them.
        reward, score = torch.tensor([output["reward"]]), torch.tensor([output["scores"]])
        logs = {key: torch.tensor([value]).item() for key, value in output["extra_logs"].items()}
        return {"reward": reward.item(), "score": score.item(), **logs}

    return list(await asyncio.gather(*map(one, sys.argv[2:])))


print(json.dumps(asyncio.run(main(sys.argv[1]))))
