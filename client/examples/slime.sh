#!/bin/sh
# GRPO by slime, judged by verifierd over its own address. Run in slime's checkout: model and cluster are its scripts'.
#   TASKS=KernelBench/KernelBench/level1 .../client/examples/slime.sh ${MODEL_ARGS[@]} --hf-checkpoint ...
set -eu
URL=${VERIFIERD_URL:-http://127.0.0.1:8080}
python3 "$(dirname "$0")/prompts.py" "${TASKS:?a directory of modules}" prompts
exec python3 train.py --prompt-data prompts.jsonl --input-key prompt --label-key task --apply-chat-template \
    --advantage-estimator grpo --n-samples-per-prompt 8 \
    --rm-type remote_rm --rm-url "$URL/compat/slime?reward=staged" "$@"
