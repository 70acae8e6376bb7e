"""What schemathesis cannot know of the contract: values that refer to what is there, and formats of ours."""

from __future__ import annotations

import os
import re
from typing import Any

import schemathesis
from hypothesis import strategies as st

TASK = os.environ["CONTRACT_TASK"]
"""The id of the task that the test has registered."""

schemathesis.openapi.format(
    "reward-expression",
    st.sampled_from(["correct", "0.3*compiled + 0.7*correct", "has_speed ? min(s, 3) : 0", "log(2) - 1"]),
)
schemathesis.openapi.format("notify-url", st.sampled_from(["http://127.0.0.1:1/", "http://127.0.0.1:1/a?b=c"]))
schemathesis.openapi.format("reward-parameter", st.sampled_from(["alpha", "w_1", "_x"]))


def written(value: Any) -> Any:
    """What the contract says in words: integers without a fraction and of 64 bits, no NUL in a key."""
    if isinstance(value, dict):
        return {key.replace("\0", ""): written(item) for key, item in value.items()}
    if isinstance(value, list):
        return [written(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-(2**63), min(value, 2**63 - 1))
    return value


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    """A valid name of a task becomes that of one that is there, so that submissions are made and judged; that of a GPU
    is left out, since the daemon has none."""
    body = written(body)
    if isinstance(body, dict) and body.keys() & {"candidates", "candidate", "completion"}:
        name = body.get("task")
        if isinstance(name, str) and 1 <= len(name) <= 200 and "\0" not in name:
            body["task"] = TASK
        gpu = body.get("gpu")
        if isinstance(gpu, str) and re.fullmatch("[ -~]{1,127}", gpu):
            body["gpu"] = None
    return body


@schemathesis.hook
def map_query(context: schemathesis.HookContext, query: Any) -> Any:
    """A stream that is left to itself goes on for ever: it is asked for what there is. A step goes with a run."""
    if context.operation is not None and context.operation.path.endswith("/events"):
        query = dict(query or {})
        wait = query.get("wait", 0)
        if isinstance(wait, int | float) and not isinstance(wait, bool) and 0 <= wait <= 86400:
            query["wait"] = 0
    if query and "step" in query and "run" not in query:
        query = {**query, "run": "r"}
    return query
