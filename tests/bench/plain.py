"""Times taken the usual way, and a profiler's: what the referee's are compared with.

Reads a list of jobs (JSON) from standard input, answers each with one line of JSON. Each job has a process of
its own, forked from this one, which has imported torch and triton but not touched the GPU: fresh, without the
seconds of the imports. `events` is the mean of so many CUDA-event times with the L2 cache overwritten before
each call, the reference first and the candidate afterwards; `profile` is the time of the candidate's kernels
as CUPTI records it, the median of so many calls. The sources are the bench's own: they are run as they are.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import triton  # noqa: F401  (imported before the fork, as a candidate needs it)

FLUSH_BYTES = 256 << 20
WARMUPS = 3
PROFILED = 20
SEED = 42


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"plain: {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


class Evaluation:
    """A task's reference and a candidate on the GPU."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self._task = load(job["task"])
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
        self.reference = self._build(self._task.Model)
        source = load(job["candidate"]) if job.get("candidate") else self._task
        self.candidate = self._build(getattr(source, job.get("entry", "ModelNew")))
        torch.manual_seed(SEED)
        with torch.device("cuda"):
            self.inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in self._task.get_inputs()]

    def _build(self, model: Callable[..., Any]) -> Callable[..., Any]:
        torch.manual_seed(SEED)
        built: Callable[..., Any] = model(*self._task.get_init_inputs()).cuda()
        return built

    def events_ms(self, model: Callable[..., Any], trials: int) -> float:
        for _ in range(WARMUPS):
            model(*self.inputs)
        torch.cuda.synchronize()
        total = 0.0
        for _ in range(trials):
            self.flush.zero_()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            model(*self.inputs)
            end.record()
            torch.cuda.synchronize()
            total += begin.elapsed_time(end)
        return total / trials

    def profiled(self, work: Callable[[], object]) -> list[tuple[str, float, float]]:
        """The kernels that `work` started, so many times: name, beginning and end in microseconds, in their order."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(PROFILED):
                work()
                torch.cuda.synchronize()
        found = [
            (event.name, event.time_range.start, event.time_range.end)
            for event in profile.events() or []
            if event.device_type == torch.autograd.DeviceType.CUDA
        ]
        return sorted(found, key=lambda kernel: kernel[1])


def events(job: Mapping[str, Any]) -> dict[str, Any]:
    evaluation = Evaluation(job)
    trials = int(job.get("trials", 100))
    torch.cuda.synchronize()
    started = time.monotonic()
    reference = evaluation.events_ms(evaluation.reference, trials)
    candidate = evaluation.events_ms(evaluation.candidate, trials)
    gpu_s = time.monotonic() - started
    return {"reference_ms": reference, "candidate_ms": candidate, "speedup": reference / candidate, "gpu_s": gpu_s}


def profile(job: Mapping[str, Any]) -> dict[str, Any]:
    """The time of the kernels of one call, and from the first's beginning to the last's end; what the flush itself
    starts is found out, and divides the calls."""
    evaluation = Evaluation(job)
    evaluation.events_ms(evaluation.candidate, 2)
    flushes = {name for name, _, _ in evaluation.profiled(lambda: evaluation.flush.zero_())}

    def call() -> None:
        evaluation.flush.zero_()
        evaluation.candidate(*evaluation.inputs)

    calls: list[list[tuple[str, float, float]]] = []
    for kernel in evaluation.profiled(call):
        if kernel[0] in flushes:
            calls.append([])
        elif calls:
            calls[-1].append(kernel)
    if not calls or not all(calls):
        return {"error": f"{sum(map(bool, calls))} of {PROFILED} calls started a kernel"}
    return {
        "kernel_ms": statistics.median(sum(end - begin for _, begin, end in one) for one in calls) / 1000,
        "span_ms": statistics.median(one[-1][2] - one[0][1] for one in calls) / 1000,
        "kernels": [name[:80] for name, _, _ in calls[-1]],
    }


JOBS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"events": events, "profile": profile}


def in_a_process(job: Mapping[str, Any]) -> dict[str, Any]:
    """The job's result from a forked process, or {"error": …}."""
    started = time.monotonic()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            with torch.no_grad():
                result = JOBS[job["op"]](job)
        except Exception as error:  # told to the parent, whose business it is
            result = {"error": "".join(traceback.format_exception_only(error)).strip()}
        with os.fdopen(writer, "w") as out:
            json.dump(result, out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    found: dict[str, Any] = json.loads(text) if text else {"error": "the process ended without a word"}
    return {"id": job["id"], **found, "wall_s": time.monotonic() - started}


def main() -> int:
    for job in json.load(sys.stdin):
        print(json.dumps(in_a_process(job)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
