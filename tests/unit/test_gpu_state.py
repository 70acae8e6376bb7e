"""What the referee tells of its canary, with a GPU whose kernels take as long as a test says."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from oracle import gpu_state
from oracle.judge import Report
from oracle.peer import Peer
from referee import Referee
from shared import native, wire

STEP_NS = 16


class Said:
    """The daemon's end: what it was told last."""

    def __init__(self) -> None:
        self.body: dict[str, Any] = {}

    def send(self, body: dict[str, Any], fds: object = None, contents: object = None) -> None:
        self.body = body


class Device:
    """A step of the canary takes `step_ns`; NVML says `state`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.step_ns: float = STEP_NS
        self.state: dict[str, Any] = {"throttle_reasons": 0, "pids": []}
        self.said = Said()
        patch.setattr(native, "canary_run", lambda steps: round(steps * self.step_ns))
        patch.setattr(native, "gpu_flush", lambda: None)
        patch.setattr(native, "nvml_state", lambda: self.state)
        patch.setattr(gpu_state, "WARM_UP_S", 0.0)
        patch.setattr(time, "sleep", lambda _: None)
        self.referee = Referee(self.said, torch.device("cpu"), None, None, {})  # type: ignore[arg-type]
        gpu = object.__new__(gpu_state.Gpu)
        gpu.learn()
        self.referee._gpu = gpu

    def canary(self) -> dict[str, Any]:
        self.referee._op_canary(SimpleNamespace(body={}))  # type: ignore[arg-type]
        return self.said.body


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


LONG_NS = STEP_NS * gpu_state.DRIFT_STEPS


def test_its_time_is_told_with_the_kind_of_canary(device: Device) -> None:
    body = device.canary()
    assert (body["ev"], body["outcome"]) == ("canary", "pass")
    assert body["detail"] == {
        "known_answer": True,
        "memory_back": True,
        "ns": LONG_NS,
        "kind": gpu_state.KIND,
        "drift": 0.0,
        "disturbed": None,
    }
    assert str(gpu_state.DRIFT_STEPS) in gpu_state.KIND


@pytest.mark.parametrize(("factor", "outcome"), [(1.04, "pass"), (0.96, "pass"), (1.06, "fail"), (0.94, "fail")])
def test_the_time_is_that_of_now_and_not_what_was_learned(device: Device, factor: float, outcome: str) -> None:
    """A daemon that knows the GPU's norm compares with that."""
    device.step_ns = STEP_NS * factor
    body = device.canary()
    assert body["outcome"] == outcome
    assert body["detail"]["ns"] == pytest.approx(LONG_NS * factor, rel=1e-6)
    assert body["detail"]["drift"] == pytest.approx(factor - 1, abs=1e-4)


def test_what_slows_it_is_told(device: Device) -> None:
    device.state = {"throttle_reasons": 0x40, "pids": []}
    assert device.canary()["detail"]["disturbed"] == "the GPU throttles (NVML's reasons: 0x40)"


def test_one_that_answers_wrongly_has_no_time(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.referee, "_known_answer", lambda: False)
    body = device.canary()
    assert (body["outcome"], body["detail"]) == ("fail", {"known_answer": False, "memory_back": True})


def test_without_a_gpu_it_has_none(device: Device) -> None:
    device.referee._gpu = None
    body = device.canary()
    assert (body["outcome"], body["detail"]) == ("pass", {"known_answer": True, "memory_back": True})


class Memory:
    """A GPU's, as torch.cuda tells it: bytes that are free."""

    def __init__(self, patch: pytest.MonkeyPatch, free: int) -> None:
        self.free = free
        patch.setattr(torch.cuda, "mem_get_info", lambda _: (self.free, 80 << 30))
        patch.setattr(torch.cuda, "empty_cache", lambda: None)
        for name in ("memory_reserved", "memory_allocated"):
            patch.setattr(torch.cuda, name, lambda _: 0)


def executor(patch: pytest.MonkeyPatch, arena: int) -> Peer:
    peer = Peer("r1", SimpleNamespace(close=lambda: None), -1, torch.device("cuda"))  # type: ignore[arg-type]
    peer.arena = SimpleNamespace(size=arena, close=lambda: None)  # type: ignore[assignment]
    patch.setattr(peer, "renew", lambda: None)
    return peer


def test_what_nobody_foresaw_is_no_fault_of_the_candidates(capfd: pytest.CaptureFixture[str]) -> None:
    """The referee lives on: it has the references of all tasks."""
    said = Said()
    referee = Referee(said, torch.device("cpu"), None, None, {})  # type: ignore[arg-type]

    def judge() -> Report:
        raise IndexError("a secret value")

    referee._report("j1", judge)
    assert (said.body["outcome"], said.body["class"]) == ("fail", "infra")
    assert "secret" not in str(said.body) and "a secret value" in capfd.readouterr().err


@pytest.mark.parametrize("leak", [0, 20 << 30])
def test_what_an_executor_held_is_due_until_others_take_memory(monkeypatch: pytest.MonkeyPatch, leak: int) -> None:
    said = Said()
    referee = Referee(said, torch.device("cpu"), None, None, {})  # type: ignore[arg-type]
    referee._device = torch.device("cuda")
    memory = Memory(monkeypatch, 50 << 30)
    now = [0.0]
    monkeypatch.setattr(time, "sleep", lambda s: now.__setitem__(0, now[0] + 1.0))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    job = SimpleNamespace(candidate=executor(monkeypatch, 20 << 30), is_planned=True)
    referee._jobs["j1"] = job  # type: ignore[assignment]
    referee._op_close(wire.Message({"op": "close", "job": "j1", "keep": True}))
    memory.free += (20 << 30) - leak
    assert referee._memory_is_back() is (leak == 0)
    with pytest.raises(wire.ProtocolError):
        referee._op_open(wire.Message({"op": "open", "job": "j2"}))  # which has no source
    assert referee._memory_is_back()


def test_whose_processes_work_on_the_gpu_is_asked_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(gpu_state, "_told", ((), 0.0, []))

    def is_foreign(pid: int) -> bool:
        asked.append(pid)
        return pid == 7

    monkeypatch.setattr(gpu_state, "_is_foreign", is_foreign)
    ours = os.getpid()
    assert gpu_state.foreign((7, 8)) is None and not asked  # NVML counts otherwise
    for pids, later_s, found, asks in (
        ((ours, 7), 0.0, [7], 2),
        ((ours, 7), 0.5, [7], 2),
        ((ours, 7, 8), 0.5, [7], 5),
        ((ours, 8), 0.5, [], 7),
        ((ours, 8), 2.0, [], 9),
    ):
        now[0] = later_s
        assert gpu_state.foreign(pids) == found
        assert len(asked) == asks
