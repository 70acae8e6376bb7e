"""compute-sanitizer over a replay of the plan, where a policy asks for it: it is told, and decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import service
from test_plan import AUTOTUNED, BRANCHES, HONEST, TASK

STORES = "tl.store(y + at, value, mask=inside)"
BEYOND = HONEST.replace(STORES, "tl.store(y + at, value, mask=at <= total)")
FAR_BEYOND = HONEST.replace(STORES, "tl.store(y + at + (1 << 40), value, mask=inside)")
UNWRITTEN = HONEST.replace(STORES, "value += tl.load(y + at, mask=inside) * 0.0\n    " + STORES)
RACING = HONEST.replace(
    STORES,
    "value = tl.inline_asm_elementwise("
    "'{ .shared .align 4 .b32 cell; st.shared.b32 [cell], $1; ld.shared.b32 $0, [cell]; }', '=r,r', [value], "
    "dtype=tl.float32, is_pure=False, pack=1)\n    " + STORES,
)


def judge(client: service.Client, candidate: str, policy: object) -> service.Json:
    return client.wait(client.submit({"reference": TASK, "candidate": candidate, "policy": policy}))


def test_it_is_told_why_nothing_was_looked_at(client: service.Client, gpu: bool) -> None:
    sanitized = {"sanitize": True}
    assert judge(client, HONEST, "strict")["sanitize"] is None
    rows = [(HONEST.replace("tl.load", "tl.loads"), "it did not reach a device")]
    rows += [(BRANCHES, "it has no plan, and only a plan can be replayed")] if gpu else [(HONEST, "there is no GPU")]
    for candidate, why in rows:
        verdict = judge(client, candidate, sanitized)
        assert verdict["sanitize"] == {"why": why, "tools": []}, verdict
        assert verdict["policy_on"]["sanitize"] is True


@pytest.fixture(scope="module")
def sanitizing() -> Iterator[service.Client]:
    """With memory for three processes that have imported torch."""
    if not Path("/dev/nvidiactl").exists():
        pytest.skip("needs a GPU")
    with service.directory() as directory, service.Daemon(directory, {}) as running:
        yield running.client


def line_of(candidate: str, text: str) -> int:
    return next(number for number, line in enumerate(candidate.splitlines(), 1) if text in line)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "candidate, tool, what",
    [
        pytest.param(HONEST, None, "", id="honest"),
        pytest.param(AUTOTUNED, None, "", id="autotuned"),
        pytest.param(BEYOND, "memcheck", "Invalid __global__ write of size", id="one beyond the end"),
        pytest.param(FAR_BEYOND, "memcheck", "Invalid __global__ write of size", id="far beyond"),
        pytest.param(RACING, "racecheck", "Race reported between Write access", id="race"),
        pytest.param(UNWRITTEN, "initcheck", "Uninitialized __global__ memory read of size", id="not written"),
    ],
)
def test_what_is_planted_is_found(sanitizing: service.Client, candidate: str, tool: str | None, what: str) -> None:
    plain, verdict = (judge(sanitizing, candidate, policy) for policy in ("strict", "strict,sanitize=true"))
    assert (verdict["class"], verdict["rule"]) == (plain["class"], plain["rule"])
    seen = verdict["sanitize"]
    assert seen["why"] is None and [one["tool"] for one in seen["tools"]] == ["memcheck", "racecheck", "initcheck"]
    text = {"memcheck": "tl.store(", "racecheck": "inline_asm", "initcheck": "tl.load(y"}
    for one in seen["tools"]:
        if candidate is FAR_BEYOND and one["tool"] != "memcheck":
            continue  # the launch fails, and says so
        assert one["ran"], one
        assert bool(one["errors"]) == bool(one["findings"]) == (one["tool"] == tool), one
        if one["tool"] == tool:
            assert all(found["what"].startswith(what) and found["kernel"] == "kernel" for found in one["findings"]), one
            line = line_of(candidate, text[one["tool"]])
            assert {(found["file"], found["line"]) for found in one["findings"]} == {("candidate.py", line)}, one
        elif tool is None:
            assert one["why"] is None and one["cases"], one
