"""TRL's GRPOTrainer, two steps of a tiny model. What it samples is noise: the reward is asked for prepared answers."""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

from datasets import Dataset
from packages import answer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer
from verifierd_client.trl import make_reward

url, scripts = sys.argv[1], sys.argv[2:]
EACH = len(scripts)
reward = make_reward(url, reward={"kind": "rank", "params": {"beta": 0}}, num_generations=EACH)
seen: list[dict[str, Any]] = []


def verifierd(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
    answers = [
        [{"role": "assistant", "content": answer(scripts[row % EACH], row)}]
        if row < EACH
        else answer(scripts[row % EACH], row)
        for row in range(len(completions))
    ]
    rewards = reward(prompts, answers, **columns)
    seen.append({"rewards": rewards, "groups": [prompts[row] for row in range(0, len(prompts), EACH)]})
    return rewards


words = {word: number for number, word in enumerate(["<pad>", "<eos>", "<unk>", "write", "a", "kernel", "softmax"])}
raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), num_key_value_heads=2, **shape))
rows = Dataset.from_list([{"prompt": f"write a {word}", "task": "scripted"} for word in ("kernel", "softmax")] * 2)
with tempfile.TemporaryDirectory() as where:
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=rows,
        reward_funcs=verifierd,
        args=GRPOConfig(
            output_dir=where,
            max_steps=2,
            per_device_train_batch_size=2 * EACH,
            num_generations=EACH,
            max_completion_length=4,
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            bf16=False,
            save_strategy="no",
        ),
    )
    trainer.train()
history = [entry for entry in trainer.state.log_history if "reward" in entry]
print(json.dumps({"seen": seen, "history": history}))
