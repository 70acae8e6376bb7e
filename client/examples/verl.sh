#!/bin/sh
# GRPO by verl, judged by the function of verifierd_client (pip install ./client/python in verl's environment).
#   TASKS=KernelBench/KernelBench/level1 client/examples/verl.sh [more of verl's overrides]
set -eu
export VERIFIERD_URL="${VERIFIERD_URL:-http://127.0.0.1:8080}" VERIFIERD_RUN="${VERIFIERD_RUN:-verl}"
python3 "$(dirname "$0")/prompts.py" "${TASKS:?a directory of modules}" prompts
exec python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \
    data.train_files=prompts.parquet data.val_files=prompts.parquet data.train_batch_size=32 \
    data.max_prompt_length=4096 data.max_response_length=2048 \
    actor_rollout_ref.model.path="${MODEL:-Qwen/Qwen2.5-Coder-7B-Instruct}" \
    actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_mini_batch_size=32 \
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8 trainer.logger=console \
    reward.custom_reward_function.path=pkg://verifierd_client.verl \
    reward.custom_reward_function.name=compute_score "$@"
