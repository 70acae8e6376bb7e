"""GRPO on kernels from nothing: TRL samples and learns, verifierd judges.

verifierd & git clone https://github.com/ScalingIntelligence/KernelBench; pip install trl ./client/python
TASKS=KernelBench/KernelBench/level1 python3 client/examples/trl_grpo.py
"""

import importlib.util
import os
from pathlib import Path

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
from verifierd_client import Client
from verifierd_client.trl import make_reward

PROMPT = """Rewrite this PyTorch module as a class `ModelNew` that computes the same in Triton kernels of your own, as
fast as you can make it. Answer in one python block.\n```python\n{}\n```"""

client = Client()  # VERIFIERD_URL, else http://127.0.0.1:8080
rows = []
for file in sorted(Path(os.environ.get("TASKS", "KernelBench/KernelBench/level1")).glob("*.py")):
    task = client.add_task(file.stem, file.read_text())
    rows.append({"prompt": [{"role": "user", "content": PROMPT.format(file.read_text())}], "task": task["id"]})
samples = int(os.environ.get("SAMPLES", "8"))
has_vllm = importlib.util.find_spec("vllm") is not None
args = GRPOConfig("kernels", max_steps=int(os.environ.get("STEPS", "200")), num_generations=samples, learning_rate=1e-6,
                  per_device_train_batch_size=samples, max_completion_length=int(os.environ.get("TOKENS", "2048")),
                  bf16=torch.cuda.is_available(), use_vllm=has_vllm, logging_steps=1, report_to="none")  # fmt: skip
model = os.environ.get("MODEL", "Qwen/Qwen2.5-Coder-0.5B-Instruct")
reward = make_reward(reward="staged", num_generations=samples, run=os.environ.get("VERIFIERD_RUN", "trl"))
trainer = GRPOTrainer(model, reward_funcs=reward, args=args, train_dataset=Dataset.from_list(rows))
trainer.train()
trainer.save_model("kernels/final")
