#!/bin/bash
# Every call of the HTTP API, each after those that it depends on. From the top of a checkout, with a daemon to try with
# (its store keeps what is posted here):
#   VERIFIERD_URL=http://127.0.0.1:8080 [VERIFIERD_TOKEN=vd_…] bash docs/calls.sh
# A comment names the command of verifier that makes the same call; `verifier get PATH` reads all others.
set -eu -o pipefail

URL=${VERIFIERD_URL:-http://127.0.0.1:8080}
FILES=$(mktemp -d)
trap 'rm -r "$FILES"' EXIT

json='Content-Type: application/json'
call() { curl -sS --fail-with-body ${VERIFIERD_TOKEN:+-H "Authorization: Bearer $VERIFIERD_TOKEN"} "$@"; echo; }
get() { call "$URL$1" "${@:2}"; }
post() { call "$URL$1" -H "$json" -d "$2" "${@:3}"; }
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
# A document in which e is docs/example.json: a reference and a candidate.
example() { python3 -c 'import json, sys; e = json.load(open("docs/example.json")); print(json.dumps(eval(sys.argv[1])))' "$1"; }

# --- tasks ---
TASK=$(post /v1/tasks "$(example '{"name": "relu", "reference": e["reference"]}')" | field id) # verifier task add
get "/v1/tasks?name=relu" # verifier task list
get "/v1/tasks/$TASK" # verifier task show
post /v1/tasks "$(example '{"name": "spare", "reference": e["reference"] + "\n"}')"
call -X PATCH "$URL/v1/tasks/spare" -H "$json" -d '{"name": "spare1"}' # verifier task rename
call -X DELETE "$URL/v1/tasks/spare1" # verifier task rm

# --- one submission, from its acceptance to its bundle ---
ID=$(post /v1/submissions "$(example '{"task": "'"$TASK"'", "candidate": e["candidate"]}')" | field id) # verifier submit
get "/v1/submissions/$ID?wait=60" # verifier show
get "/v1/submissions?task=$TASK&view=brief&limit=10" # verifier list
get "/v1/submissions/$ID/source" # verifier show --source
get "/v1/submissions/$ID/answer" # verifier show --answer
get "/v1/submissions/$ID/log" # verifier show --log
get "/v1/submissions/$ID/timing" # verifier timing: raw samples too
get "/v1/submissions/$ID/plan" # without one: traced is false, and error says why
get "/v1/submissions/$ID/events?wait=0" # verifier events
get "/v1/submissions/$ID/bundle" >"$FILES/bundle" # verifier bundle
post /v1/replays "@$FILES/bundle" # verifier replay

# --- a file, as it is ---
example 'e["candidate"]' | python3 -c 'import json, sys; print(json.load(sys.stdin))' >"$FILES/kernel.py"
call "$URL/v1/submissions?task=$TASK&wait=60" -H 'Content-Type: text/x-python' --data-binary "@$FILES/kernel.py"

# --- the same POST under the same key makes nothing new; an unchanged answer is not sent again ---
ONCE='{"task": "'$TASK'", "candidate": "x = 1", "until": "ast"}'
post /v1/submissions "$ONCE" -H "Idempotency-Key: night-7-$$"
post /v1/submissions "$ONCE" -H "Idempotency-Key: night-7-$$" -i
TAG=$(get "/v1/submissions/$ID" -o /dev/null -w '%header{etag}')
get "/v1/submissions/$ID" -i -H "If-None-Match: $TAG"

# --- a group, watched, and one that is cancelled too late: 409 ---
BODY='{"task": "'$TASK'", "candidates": [{"candidate": "x = 1"}, {"completion": "I cannot."}],
       "metadata": {"run": "grpo-7", "step": 3}}'
GROUP=$(post /v1/groups "$BODY" | field id) # verifier group
get "/v1/groups/$GROUP?wait=60" # verifier show
get "/v1/groups/$GROUP/events?view=brief" # verifier events: verdicts as they finish, then the ranking
get "/v1/groups?run=grpo-7&step=3&limit=10"
get "/v1/events?wait=2" # verifier events: two seconds of all that happens
post /v1/rescore '{"group": "'"$GROUP"'", "reward": {"kind": "binary"}}' # verifier rescore
call -X DELETE "$URL/v1/groups/$GROUP" || true # verifier cancel
call -X DELETE "$URL/v1/submissions/$ID" || true # verifier cancel

# --- sums, exports, and what an operator needs ---
get "/v1/tasks/$TASK/leaders"
get "/v1/leaderboard?limit=10" # verifier leaderboard
get "/v1/runs?limit=10"
get "/v1/runs/grpo-7"
get "/v1/runs/grpo-7/tasks?limit=20"
get "/v1/stats" # verifier top
get "/v1/trends?window=24h"
get "/v1/failures?window=24h" # verifier failures
get "/v1/export?what=rewards" # verifier export
get "/v1/status" # verifier status
get "/v1/nodes"
get "/v1/calibrations"
post /v1/calibrations '{"gpu": "none", "bias": 0.01, "spread": 0.02, "runs": [{"name": "relu", "kind": "aa", "outcome": "measured"}]}' # verifier calibrate
get "/v1/canaries"
post /v1/canaries '{"forget": "GPU-0"}' # no command
get "/v1/audit?limit=10"
get "/v1/retention" # verifier retention
post /v1/retention '{}' # verifier retention --run
get /metrics
get /healthz
get /readyz
get /openapi.yaml -o /dev/null
get /openapi.json -o /dev/null
get /docs -o /dev/null
get / -o /dev/null # verifier open

# --- the formats of other trainers (docs/trainers.md) ---
post /compat/openrlhf '{"query": ["Write it. x = 1"], "prompts": ["Write it. "], "labels": ["'"$TASK"'"]}'
post /compat/slime '{"response": "x = 1", "label": "'"$TASK"'"}'
post /compat/sandboxfusion/run_code '{"code": "x = 1", "stdin": "{\"task\": \"'"$TASK"'\", \"gate\": \"correct\"}"}'
CALL='{"task_id": "t1", "reference_code": e["reference"], "kernel_code": e["candidate"]}'
post /compat/kernelgym/evaluate "$(example "$CALL")"
post /compat/kernelgym/evaluate/batch "$(example '{"batch_id": "b", "tasks": ['"$CALL"']}')"
get /compat/kernelgym/status/t1
get /compat/kernelgym/results/t1
post /compat/tritonforge/eval "$(example '{"original_model_src": e["reference"], "custom_model_src": e["candidate"]}')"
