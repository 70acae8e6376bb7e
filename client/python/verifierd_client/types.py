"""The daemon's responses as types: the schemas of proto/openapi.yaml. A key may be missing, and most may be null."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypedDict

State = Literal["queued", "running", "done", "cancelled"]
Stage = Literal["ast", "compile", "tiny", "full", "timing"]


class StageResult(TypedDict, total=False):
    stage: Stage
    outcome: Literal["pass", "fail", "skip"]
    wait_ms: float
    run_ms: float
    done: int
    of: int
    why: str | None


class Feedback(TypedDict, total=False):
    """text is for the next prompt."""

    text: str | None
    stage: str | None
    passed: str | None
    error: dict[str, Any] | None
    mismatch: dict[str, Any] | None
    timing: dict[str, float | None] | None
    coverage: float | None
    bound: str | None
    hint: str | None


# "class" is a keyword of Python, so these have the functional form.
Verdict = TypedDict(
    "Verdict",
    {
        "id": str,
        "group": str | None,
        "group_index": int | None,
        "task": str,
        "task_name": str | None,
        "state": State,
        "stage": str | None,
        "passed_stage": str | None,
        "failed_at": str | None,
        "class": str | None,
        "rule": str | None,
        "cancel_reason": str | None,
        "reward": float | None,
        "reward_parts": dict[str, float | None] | None,
        "reward_spec": dict[str, Any],
        "flags": list[str] | None,
        "generality": str | None,
        "components": dict[str, float | None] | None,
        "correctness": dict[str, Any] | None,
        "timing": dict[str, Any] | None,
        "evidence": dict[str, Any] | None,
        "stages": list[StageResult] | None,
        "feedback": Feedback | None,
        "error": dict[str, Any] | None,
        "plan": dict[str, Any] | None,
        "sanitize": dict[str, Any] | None,
        "policy": str,
        "until": str | None,
        "seed": str | None,
        "entry_point": str | None,
        "source": str,
        "client": str | None,
        "priority": str,
        "metadata": dict[str, Any] | None,
        "cache": str,
        "attempts": int | None,
        "created": str,
        "finished": str | None,
    },
    total=False,
)
"""A submission; with state done or cancelled it is final."""

Filters = TypedDict(
    "Filters",
    {
        "state": State,
        "task": str,
        "class": str,
        "client": str,
        "group": str,
        "run": str,
        "step": int,
        "policy_version": str,
        "view": Literal["full", "brief"],
    },
    total=False,
)
"""Which submissions to list. task: an id, or a name; step and policy_version need run."""

Rescored = TypedDict(
    "Rescored",
    {
        "id": str,
        "state": State,
        "class": str | None,
        "reward": float | None,
        "reward_parts": dict[str, float | None] | None,
        "rank": float | None,
        "stored_reward": float | None,
    },
    total=False,
)


class Group(TypedDict, total=False):
    id: str
    state: State
    task: str
    items: list[Verdict]
    ranking: list[int]


class Task(TypedDict, total=False):
    id: str
    name: str | None
    entry_point: str
    level: int | None
    dynamic_shapes: bool
    created: str
    reference: str
    flags: list[str]
    spec: dict[str, Any]
    metadata: dict[str, Any] | None


class Event(NamedTuple):
    """Of a stream: its name (open, state, verdict, group, gap, end) and its data; docs/http.md has them."""

    name: str
    data: dict[str, Any]
    id: str = ""
