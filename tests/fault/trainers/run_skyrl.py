"""skyrl-gym: registered by name, made, and stepped, as SkyRL's generator does."""

from __future__ import annotations

import json
import sys

import skyrl_gym
from omegaconf import OmegaConf
from packages import answer

url, scripts = sys.argv[1], sys.argv[2:]
skyrl_gym.register(id="verifierd", entry_point="verifierd_client.skyrl:KernelEnv")
extras = {"reward_spec": {"method": "rule", "ground_truth": "scripted"}, "extra_info": {"max_turns": len(scripts)}}
extras["max_turns"] = 1  # the generator's, which stands in every row
config = OmegaConf.create({"url": url, "reward": {"kind": "staged"}, "fill": 0.125})
environment = skyrl_gym.make("verifierd", env_config=config, extras=extras)
prompt, _ = environment.init([{"role": "user", "content": "Write a kernel."}])
found = []
for number, script in enumerate(scripts):
    found.append(dict(environment.step(answer(script, number))))
    if found[-1]["done"]:
        break
print(json.dumps({"steps": found, "metrics": environment.get_metrics()}))
