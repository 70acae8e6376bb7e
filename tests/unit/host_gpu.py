"""What the clock asks of a GPU, without one: so that the clock's protocol can be tried where there is none."""

from __future__ import annotations

import ctypes
import json
import time
from pathlib import Path
from typing import Any

import torch
from oracle import clock
from oracle.judge import Job, Report


class HostGpu:
    """A flush takes a while, as it does on a GPU. What the canary waits for is what the file `others` says.

    A list of nanoseconds, one after another; or when there is something: `always`, `alive` while the candidate is,
    `awake` while the reference is not frozen, or `bursts` of 60 ms five times a second.
    """

    known_ns = 20_000

    def __init__(self, directory: Path, job: Job) -> None:
        self._others = directory / "others"
        self._job = job
        self.had_hiccup = False
        self.hiccups: list[int] = []  # whether the next looks have one
        self.flush_s = 0.005
        self._addresses: list[int] = []
        self._width = 1

    def copy(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    def copy_aside(self, source: int, size: int) -> None:
        pass

    def flush(self) -> None:
        time.sleep(self.flush_s)

    def wait(self) -> None:
        pass

    def steps_of(self, ns: int) -> int:
        """None: there is no canary that could keep a call waiting."""
        return 0

    def gather_set(self, addresses: torch.Tensor, width: int) -> None:
        self._addresses, self._width = addresses.tolist(), width

    def gather_read(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        assert count == len(self._addresses)
        data = b"".join(ctypes.string_at(address, self._width) for address in self._addresses)
        return torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.zeros(0, dtype=dtype)

    def others_ns(self, span_ns: int = 0) -> int:
        self.had_hiccup = bool(self.hiccups.pop(0)) if self.hiccups else False
        waits = json.loads(self._others.read_text()) if self._others.exists() else []
        if isinstance(waits, str):
            return 2_000_000 if self._is_there(waits, time.monotonic() + span_ns / 1e9) else 0
        if not waits:
            return 0
        self._others.write_text(json.dumps(waits[1:]))
        return int(waits[0])

    def _is_there(self, when: str, end_s: float) -> bool:
        if when == "alive":
            return self._job.candidate.is_alive()
        if when == "awake":
            return not self._job.reference.peer.is_frozen
        while when == "bursts" and time.monotonic() % 0.2 > 0.06:
            if time.monotonic() > end_s:
                return False
            time.sleep(0.001)
        return True

    def is_quiet(self, limit_s: float) -> bool:
        end = since = time.monotonic()
        end += limit_s
        while time.monotonic() - since < 0.1:
            if self.others_ns():
                since = time.monotonic()
            if since > end:
                return False
        return True

    def drift(self) -> float:
        return 0.0

    def state(self) -> dict[str, Any]:
        return {}


class _Known(dict[Any, float]):
    """Baselines that all are the same, whatever is timed."""

    def __init__(self, ns: float) -> None:
        self._ns = ns

    def __contains__(self, key: object) -> bool:
        return True

    def get(self, key: object, default: Any = None) -> Any:
        return self._ns


class _Unbound(clock.Timer):
    """No head hides anything here, and what bells differ by is this machine's doing: launches are as they are said."""

    def _require_hidden_launches(self) -> None:
        assert not self._blocks or bool(self._blocks[0].counted) == (
            self._head_ns > 0 and self._protocol.asks_for_launches
        )


class _Bound(_Unbound):
    def _require_hidden_launches(self) -> None:
        super()._require_hidden_launches()
        if any(block.counted for block in self._blocks):
            raise clock.NotHidden


def time_job(job: Job, directory: str) -> Report:
    """The timing stage by the protocol that the file `protocol` names, all of it where there is none."""
    path = Path(directory) / "protocol"
    changes = json.loads(path.read_text()) if path.exists() else {}
    clock.SINGLE_NS = changes.pop("single_ns", 1)  # type: ignore[misc]
    clock.BELL_NS, clock.CALLS = 10 * clock.SINGLE_NS, (1, 2, 8)  # type: ignore[misc, assignment]
    # No head, unless it is asked for: calls that come out near a border would have one by chance.
    clock.HEAD_CALL_NS = changes.pop("head_call_ns", (0, 0))  # type: ignore[misc]
    clock.HEAD_BELL_NS = changes.pop("head_bell_ns", 0)  # type: ignore[misc]
    clock.TOO_SMALL_NS = changes.pop("too_small_ns", 3_000)  # type: ignore[misc]
    gpu = HostGpu(Path(directory), job)
    gpu.flush_s = changes.pop("flush_s", gpu.flush_s)
    gpu.hiccups = changes.pop("hiccups", [])
    known_ns, known = changes.pop("known_ns", None), job.reference.baselines
    if known_ns is not None:
        job.reference.baselines = _Known(known_ns)
    try:
        timer = _Bound if changes.pop("is_bound", False) else _Unbound
        return timer(job, gpu, clock.Protocol(**changes)).run()  # type: ignore[arg-type]
    finally:
        job.reference.baselines = known
