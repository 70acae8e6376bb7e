#!/bin/sh
# GRPO by OpenRLHF, judged by verifierd over its own address: nothing of ours runs in the trainer.
#   TASKS=KernelBench/KernelBench/level1 client/examples/openrlhf.sh [more of OpenRLHF's options]
set -eu
URL=${VERIFIERD_URL:-http://127.0.0.1:8080}
python3 "$(dirname "$0")/prompts.py" "${TASKS:?a directory of modules}" prompts
exec python3 -m openrlhf.cli.train_ppo_ray \
    --actor.model_name_or_path "${MODEL:-Qwen/Qwen2.5-Coder-7B-Instruct}" \
    --reward.remote_url "$URL/compat/openrlhf?reward=staged" \
    --data.prompt_dataset prompts.jsonl --data.input_key prompt --data.label_key task --data.apply_chat_template \
    --algo.advantage.estimator group_norm --rollout.n_samples_per_prompt 8 --rollout.batch_size 32 \
    --data.max_len 6144 --train.colocate_all --vllm.num_engines 8 --vllm.enable_sleep --ds.enable_sleep \
    --vllm.gpu_memory_utilization 0.5 "$@"
