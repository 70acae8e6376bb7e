"""speed.py's load: groups posted without a pause for a while, and where the time of that while went.

The loop is closed: a fixed number of groups is under way, and each that ends is followed by another. They begin one
after the other, so that what is looked at, a window after all have begun, is a steady state. What happened in the
window is the difference of two `/v1/status`, whose counts are those of the moment.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit

from speed_mix import EXPECTED, RIGHT, Answer, Mix

SAMPLE_S = 0.25
GROUP_LIMIT_S = 120
DRAIN_LIMIT_S = 30.0
Json = dict[str, Any]


class CallError(Exception):
    """The daemon did not answer as it should."""


class Caller:
    """A connection that is kept: what is timed is the daemon, not the making of connections."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=GROUP_LIMIT_S + 60)

    def call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Json:
        data = None if body is None else json.dumps(body)
        headers = {} if data is None else {"Content-Type": "application/json"}
        try:
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise CallError(f"{method} {path}: {error}") from error
        if answer.status >= 300:
            raise CallError(f"{method} {path}: {answer.status}: {text[:500].decode(errors='replace')}")
        found: Json = json.loads(text)
        return found

    def judge(self, body: Mapping[str, object]) -> tuple[float, Json]:
        """Seconds from POST to verdict, and the verdict."""
        started = time.perf_counter()
        verdict = self.call("POST", f"/v1/submissions?wait={GROUP_LIMIT_S}", body)
        if verdict.get("state") != "done":
            raise CallError(f"submission {verdict.get('id')}: no verdict within {GROUP_LIMIT_S} s")
        return time.perf_counter() - started, verdict

    def close(self) -> None:
        self._connection.close()


class Utilisation(ctypes.Structure):
    """Of NVML: percent of the last moments in which a kernel ran, and in which memory was used."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Gpus:
    """How busy GPUs are, by NVML; without one there is nothing to say."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._handles: list[ctypes.c_void_p] = []
        try:
            self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if self._nvml.nvmlInit_v2() != 0:
            return
        for uuid in uuids:
            handle = ctypes.c_void_p()
            name = "GPU-" + uuid.removeprefix("GPU-")  # torch leaves the prefix out
            if self._nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle)) == 0:
                self._handles.append(handle)

    def busy(self) -> float | None:
        """The mean share of all of them; None: not known."""
        found = []
        for handle in self._handles:
            seen = Utilisation()
            if self._nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(seen)) == 0:
                found.append(seen.gpu / 100)
        return sum(found) / len(found) if found else None


@dataclass
class Samples:
    """What was seen every SAMPLE_S of the window."""

    busy: list[float] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    """Devices that were given to a submission."""
    ready: list[int] = field(default_factory=list)
    """Submissions that waited for a device."""
    cpu: list[int] = field(default_factory=list)
    """CPU slots that were taken."""


@dataclass(frozen=True)
class Stage:
    """One stage in the window."""

    name: str
    decided: int
    wait_ms: float
    """Mean of those that waited for it."""
    service_ms: float
    device_s: float


@dataclass(frozen=True)
class Window:
    """What came of a load."""

    seconds: float
    devices: int
    finished: int
    classes: dict[str, int]
    stages: list[Stage]
    device_s: float
    samples: Samples
    surprises: list[str]
    """Answers that did not end as they had to."""
    pairs_ms: dict[str, float]
    """By task, the longest call of reference and candidate together."""
    groups: int
    cpu_slots: int
    supply: dict[str, float]
    """Of the window: seconds that devices were held by work that waited for a child (they count to its first stage),
    children made, right answers to small cases that were known."""

    @property
    def rate(self) -> float:
        """Verdicts a second of the whole mix: what is right is dear, and must not be missing from the window."""
        return min(self.finished, self.classes.get("ok", 0) / RIGHT_SHARE) / self.seconds

    @property
    def busy(self) -> float:
        """The share of the devices' time in which they were given to a submission."""
        return self.device_s / (self.seconds * self.devices)

    @property
    def kernels(self) -> float | None:
        """The share of time in which a kernel ran, by NVML."""
        return mean(self.samples.busy)

    def record(self) -> Json:
        return {
            **self.__dict__,
            "samples": self.samples.__dict__,
            "stages": [stage.__dict__ for stage in self.stages],
            "rate": self.rate,
            "busy": self.busy,
            "kernels": self.kernels,
        }


RIGHT_SHARE = 0.3


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


class Load:
    """Threads that post groups."""

    def __init__(self, url: str, mixes: Sequence[Mix], staged: bool) -> None:
        self._url, self._staged = url, staged
        self._tasks: dict[str, str] = {}
        caller = Caller(url)
        for mix in mixes:
            self._tasks[mix.bench.task] = str(caller.call("POST", "/v1/tasks", mix.registration)["id"])
        caller.close()
        self._turns = cycle([(mix, mix.groups()) for mix in mixes])
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._open: set[str] = set()
        self.done = 0
        self.surprises: list[str] = []
        self.pairs_ms: dict[str, float] = {}
        self.failures: list[str] = []

    def _next(self) -> tuple[Mix, list[Answer]]:
        with self._lock:
            mix, groups = next(self._turns)
            return mix, next(groups)

    def _body(self, mix: Mix, answers: list[Answer]) -> Json:
        policy: Json = {"name": mix.policy}
        if not self._staged:
            policy |= {"staged": False, "skip_timing_on_failure": False}
        candidates = [{"candidate": answer.source} for answer in answers]
        return {"task": self._tasks[mix.bench.task], "candidates": candidates, "policy": policy, "cache": False}

    def _one(self, caller: Caller) -> None:
        mix, answers = self._next()
        group = caller.call("POST", "/v1/groups", self._body(mix, answers))
        with self._lock:
            self._open.add(str(group["id"]))
        group = caller.call("GET", f"/v1/groups/{group['id']}?wait={GROUP_LIMIT_S}")
        wrong: list[str] = []
        pairs = []
        for answer, verdict in zip(answers, group.get("items", []), strict=True):
            if verdict.get("state") == "done" and verdict.get("class") not in EXPECTED[answer.fails_at]:
                text = (verdict.get("feedback") or {}).get("text")
                wrong.append(f"{mix.bench.task}, to fail in {answer.fails_at}: {verdict.get('class')}: {text}"[:300])
                continue
            timing = verdict.get("timing") or {}
            if answer.fails_at == RIGHT and timing.get("outcome") in ("inconclusive", "too_small"):
                wrong.append(f"{mix.bench.task}: {timing['outcome']}: {timing.get('why')}"[:300])
            if timing.get("reference_ms") and timing.get("candidate_ms"):
                pairs.append(timing["reference_ms"] + timing["candidate_ms"])
        with self._lock:
            self._open.discard(str(group["id"]))
            self.surprises += wrong
            self.pairs_ms[mix.bench.task] = max([*pairs, self.pairs_ms.get(mix.bench.task, 0.0)])
            self.done += 1

    def _work(self, begin_s: float) -> None:
        caller = Caller(self._url)
        self._stop.wait(begin_s)
        while not self._stop.is_set():
            try:
                self._one(caller)
            except (CallError, ValueError) as error:
                if not self._stop.is_set():
                    self.failures.append(str(error))
                break
        caller.close()

    @contextmanager
    def running(self, groups: int, warm_s: float) -> Iterator[None]:
        """So many groups under way, begun over warm_s; what is under way at the end is cancelled."""
        threads = [threading.Thread(target=self._work, args=(warm_s * i / groups,)) for i in range(groups)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            caller = Caller(self._url)
            for group in list(self._open):
                with suppress(CallError):  # it may have ended by now
                    caller.call("DELETE", f"/v1/groups/{group}")
            caller.close()
            for thread in threads:
                thread.join(DRAIN_LIMIT_S)


def _watch(caller: Caller, gpus: Gpus, seconds: float) -> Samples:
    samples = Samples()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        queues = caller.call("GET", "/v1/status")["queues"]
        samples.given.append(queues["gpu_running"])
        samples.ready.append(sum(queues["ready"].values()))
        samples.cpu.append(queues["cpu_running"])
        busy = gpus.busy()
        if busy is not None:
            samples.busy.append(busy)
        time.sleep(max(0.0, min(SAMPLE_S, end - time.monotonic())))
    return samples


def _stages(before: Json, after: Json) -> list[Stage]:
    found = []
    for name, now in after["stages"].items():
        then = before["stages"][name]
        change = {
            key: now[key] - then[key] for key in ("pass", "fail", "skip", "run_ms", "waited", "wait_ms", "device_s")
        }
        decided = change["pass"] + change["fail"] + change["skip"]
        found.append(
            Stage(
                name,
                decided,
                change["wait_ms"] / max(1, change["waited"]),
                change["run_ms"] / max(1, decided),
                change["device_s"],
            )
        )
    return found


def supply(status: Json) -> dict[str, float]:
    """Since the daemon's start, of all devices."""
    lanes = [worker for worker in status["workers"] if worker["kind"] == "referee"]
    return {
        "waited_s": sum(lane["pool"]["waited_s"] for lane in lanes),
        "made": sum(lane["pool"]["made"] for lane in lanes),
        "recalled": sum(lane["references"]["recalled"] for lane in lanes),
    }


def saturate(url: str, mixes: Sequence[Mix], staged: bool, groups: int, warm_s: float, window_s: float) -> Window:
    """groups: how many are under way for each device. Raises CallError where the daemon refuses."""
    caller = Caller(url)
    status = caller.call("GET", "/v1/status")
    gpus = Gpus([str(gpu.get("uuid")) for gpu in status["gpus"]])
    stats = caller.call("GET", "/v1/stats")
    devices = int(stats["devices"])
    load = Load(url, mixes, staged)
    with load.running(groups * devices, warm_s):
        time.sleep(warm_s)
        started, first = time.monotonic(), caller.call("GET", "/v1/status")
        samples = _watch(caller, gpus, window_s)
        last = caller.call("GET", "/v1/status")
        seconds = time.monotonic() - started
    if load.failures:
        raise CallError(load.failures[0])
    deadline = time.monotonic() + DRAIN_LIMIT_S
    while caller.call("GET", "/v1/status")["counts"]["running"] and time.monotonic() < deadline:
        time.sleep(0.1)
    caller.close()
    before, after, supplied = first["counts"], last["counts"], supply(first)
    classes = Counter(after["classes"])
    classes.subtract(before["classes"])
    return Window(
        seconds,
        devices,
        after["finished"] - before["finished"],
        {name: n for name, n in classes.items() if n},
        _stages(before, after),
        after["device_s"]["used"] - before["device_s"]["used"],
        samples,
        load.surprises,
        {name: value for name, value in load.pairs_ms.items() if value > 0},
        load.done,
        int(status["queues"]["cpu_slots"]),
        {name: value - supplied[name] for name, value in supply(last).items()},
    )


def lost(window: Window) -> list[tuple[str, float]]:
    """Where the devices' time went: shares of the window, by cause. Together they are 1."""
    whole = window.seconds * window.devices
    stages = [(stage.name, stage.device_s / whole) for stage in window.stages if stage.device_s > 0]
    given = window.device_s / whole
    between = max(0.0, given - sum(share for _, share in stages))
    # A device that stands idle has nothing to do, or is making children, checking itself or registering a task.
    idle = max(0.0, 1 - given)
    waiting = [ready > 0 for ready, given in zip(window.samples.ready, window.samples.given, strict=True)
               if given < window.devices]  # fmt: skip
    held = idle * sum(waiting) / len(waiting) if waiting else 0.0
    return [
        *stages,
        ("opening, closing, another task's reference", between),
        ("free while some wait: children made, gone or checked", held),
        ("free, and nothing waits: the CPU stages are behind", idle - held),
    ]


def table(window: Window) -> str:
    lines = [f"{'stage':10}{'decided':>9}{'waited for, ms':>16}{'took, ms':>10}{'device, s':>11}"]
    lines += [
        f"{stage.name:10}{stage.decided:9}{stage.wait_ms:16.0f}{stage.service_ms:10.1f}{stage.device_s:11.2f}"
        for stage in window.stages
    ]
    lines += ["", f"{'share of the devices time':60}"]
    lines += [f"  {name:58}{share:6.1%}" for name, share in lost(window)]
    waited = window.supply["waited_s"] / (window.seconds * window.devices)
    lines += [f"  {'(waiting for a child, within the first stage)':58}{waited:6.1%}"]
    if window.kernels is not None:
        lines += [f"  {'(a kernel runs, by NVML)':58}{window.kernels:6.1%}"]
    cpu = mean(window.samples.cpu)
    lines += [f"CPU slots taken: {cpu or 0:.1f} of {window.cpu_slots}"]
    lines += [f"children made: {window.supply['made']:.0f}; right answers known: {window.supply['recalled']:.0f}"]
    return "\n".join(lines)
