"""The clock's operations on the GPU: a cold cache, a check for other work, a gather, and the state around a block.

The canary is a kernel of the referee with a time known from the start, before any candidate. Contexts take turns on a
GPU, so a canary that is much slower has waited for foreign work.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

import torch
from shared import native
from shared.wire import Json

GATHER: Final = 512
"""Elements of the output that are read while the clock runs."""
ASIDE: Final = 64 << 20
CANARY_STEPS: Final = 1000
DRIFT_STEPS: Final = 20_000
KIND: Final = f"chain-{DRIFT_STEPS}"
"""Of the long canary: another chain (native/gpu.c) or length has another name, for its times are not comparable."""
WARM_UP_S: Final = 0.005
LEARNING_ROUNDS: Final = 30
DRIFT_ROUNDS: Final = 8
SLOWER: Final = 2.0
SLOWER_NS: Final = 100_000
"""A canary that took SLOWER times its known time, and SLOWER_NS more, has waited for foreign work."""
LOOKS: Final = 6
DRIFT: Final = 0.05
THROTTLED: Final = 0x8 | 0x20 | 0x40 | 0x80
"""NVML's hardware slowdown, software and hardware thermal slowdown, power brake. A power cap (4) is shown only: heavy
kernels run under it for as long as they run, the reference like the candidate."""


TOLD_S: Final = 1.0
_told: tuple[tuple[int, ...], float, list[int]] = ((), 0.0, [])
"""Of which processes foreign() was asked last, until when its answer holds, and the answer."""


class Gpu:
    """The GPU of this process; native.gpu_init() came first. One thread."""

    def __init__(self, device: torch.device) -> None:
        self.known_ns = self.known_long_ns = 0
        self.had_hiccup = False
        native.flush_setup(2 * torch.cuda.get_device_properties(device).L2_cache_size)
        native.gather_setup(GATHER)
        native.canary_setup()
        self._aside = torch.empty(ASIDE, dtype=torch.uint8, device=device)

    # --- before a bell ---

    def copy(self, to: int, source: int, size: int) -> None:
        """Device to device; queued."""
        native.gpu_copy(to, source, size)

    def copy_aside(self, source: int, size: int) -> None:
        """Copies the first `size` bytes to a place that is not read; queued. A call after a copy takes some 15 us more,
        and the size of the copy does not matter."""
        native.gpu_copy(self._aside.data_ptr(), source, min(ASIDE, size))

    def flush(self) -> None:
        """Wash the L2 cache, end what was to persist in it, and wait until that and all copies are done."""
        native.gpu_flush()

    def wait(self) -> None:
        native.gpu_sync()

    def gather_set(self, addresses: torch.Tensor, width: int) -> None:
        native.gather_set_pointers(addresses, width)

    def gather_read(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return native.gather_read(count, dtype)

    # --- the canary ---

    def learn(self) -> None:
        """Time the canary, with the GPU otherwise idle."""
        self.known_ns = self._measure(CANARY_STEPS)
        self.known_long_ns = self._measure(DRIFT_STEPS)

    def _measure(self, steps: int, rounds: int = LEARNING_ROUNDS) -> int:
        """The canary's time at the clock of a busy GPU: the least of many, which short foreign work does not change."""
        end = time.monotonic() + WARM_UP_S
        while time.monotonic() < end:
            native.gpu_flush()
        return min(native.canary_run(steps) for _ in range(rounds))

    def steps_of(self, ns: int) -> int:
        """The steps of a canary that takes about `ns` on the GPU."""
        return max(1, round(ns * (DRIFT_STEPS - CANARY_STEPS) / max(1, self.known_long_ns - self.known_ns)))

    def others_ns(self, span_ns: int = 0) -> int:
        """How long the slowest canary of this span had to wait for foreign work; 0: there is none.

        had_hiccup: one was slow alone, because of the host, or of work that ended within its context's turn.
        """
        self.had_hiccup = False
        end, longest = time.monotonic_ns() + span_ns, self._look_ns()
        while time.monotonic_ns() < end:
            longest = max(longest, self._look_ns())
        return longest

    def _look_ns(self) -> int:
        first = native.canary_run(CANARY_STEPS)
        if not self._is_slow(first):
            return 0
        looks = [native.canary_run(CANARY_STEPS) for _ in range(LOOKS)]
        if sum(map(self._is_slow, looks)) < 2:  # one hiccup of the host is none
            self.had_hiccup = True
            return 0
        return int(max(first, *looks) - self.known_ns)

    def _is_slow(self, ns: int) -> bool:
        return ns > max(SLOWER * self.known_ns, self.known_ns + SLOWER_NS)

    def is_quiet(self, limit_s: float) -> bool:
        """Whether no foreign work is seen for a tenth of a second, within the limit."""
        end, since = time.monotonic() + limit_s, time.monotonic()
        while time.monotonic() < end:
            if self.others_ns():
                since = time.monotonic()
            if time.monotonic() - since > 0.1:
                return True
            time.sleep(0.005)
        return False

    def drift(self) -> float:
        """A long canary's time now over the known one, less 1; the lesser of two looks where the first is off."""
        found = self._measure(DRIFT_STEPS, DRIFT_ROUNDS) / self.known_long_ns - 1
        if abs(found) <= DRIFT:
            return found
        time.sleep(0.5)
        return min(found, self._measure(DRIFT_STEPS) / self.known_long_ns - 1, key=abs)

    # --- around a block ---

    def state(self) -> Json:
        return native.nvml_state()


def foreign(pids: tuple[int, ...]) -> list[int] | None:
    """The processes on a GPU that are not part of this daemon. None: not known, NVML's namespace differs.

    For the same processes as in the last call the result is the same.
    """
    global _told
    if os.getpid() not in pids:
        return None
    if _told[0] != pids or time.monotonic() > _told[1]:
        _told = pids, time.monotonic() + TOLD_S, [pid for pid in pids if _is_foreign(pid)]
    return _told[2]


def _is_foreign(pid: int) -> bool:
    """It lives, and neither it nor one above it is our parent's."""
    root, at = os.getppid(), pid
    while at > 1:
        if at == root:
            return False
        parent = _parent(at)
        if parent is None:
            return False  # gone meanwhile
        at = parent
    return True


def _parent(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def summary(before: Json, after: Json) -> Json:
    """The state around a block, briefly: each figure before and after it, None if the GPU does not provide it."""

    def pair(name: str, scale: float = 1.0) -> list[Any]:
        found = (before.get(name), after.get(name))
        return [x if x is None or scale == 1.0 else round(x * scale, 1) for x in found]

    return {
        "sm_mhz": pair("sm_clock_mhz"),
        "mem_mhz": pair("mem_clock_mhz"),
        "temp_c": pair("temp_c"),
        "power_w": pair("power_mw", 1e-3),
        "throttle": (before.get("throttle_reasons") or 0) | (after.get("throttle_reasons") or 0),
        "ecc": after.get("ecc_errors"),
        "processes": after.get("n_processes"),
    }


def disturbance(before: Json, after: Json) -> str | None:
    """Why a block between these two states is not to be believed, through no fault of the candidate; None: it is."""
    reasons = (before.get("throttle_reasons") or 0) | (after.get("throttle_reasons") or 0)
    if reasons & THROTTLED:
        return f"the GPU throttles (NVML's reasons: {reasons:#x})"
    others = foreign(tuple(after.get("pids") or ()))
    if others:
        return f"another process uses the GPU (pid {others[0]})"
    if (after.get("ecc_errors") or 0) > (before.get("ecc_errors") or 0):
        return "the GPU's memory had an uncorrected error"
    return None
