"""One candidate evaluated the usual way: what the daemon's time from POST to verdict is compared with.

A fresh process imports torch and triton, loads both files, makes inputs with torch.rand on the CPU and
copies them to the GPU, compares five trials, and times 100 of the candidate and 100 of the reference with
CUDA events and a flushed L2 cache. Prints one line of JSON; what counts is the time of the whole process. `beyond_s`
is how much of it the timed calls beyond the fiftieth took: without them it is an evaluation with as many as verifierd
makes at most. With `--device cpu` it goes the same way by Triton's interpreter and times nothing worth reading.
"""

from __future__ import annotations

import time

STARTED = time.monotonic()

import argparse  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Mapping, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from types import ModuleType  # noqa: E402
from typing import Any  # noqa: E402

CORRECTNESS_TRIALS = 5
TIMING_TRIALS = 100
OUR_TRIALS = 50
WARMUPS = 3
TOLERANCE = {"torch.float32": 1e-4, "torch.float16": 1e-2, "torch.bfloat16": 1e-2}
FLUSH_BYTES = 256 << 20


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"baseline: {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Evaluation:
    """Both models on the device, and how long each phase took."""

    def __init__(self, task: Path, candidate: Path, entry: str, candidate_entry: str, seed: int, device: str) -> None:
        if device == "cpu":
            os.environ["TRITON_INTERPRET"] = "1"
        import torch
        import triton  # noqa: F401  (its import is part of an ordinary evaluation)

        self.torch: Any = torch
        self.phases: dict[str, float] = {}
        self._mark = STARTED
        self.seed, self.device, self.trials = seed, device, TIMING_TRIALS
        self.beyond_s = 0.0
        if device == "cuda" and not torch.cuda.is_available():
            raise SystemExit("baseline: no GPU here")
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        self.phase("import")
        self.module = load(task, "reference_module")
        self.reference = self._build(self.module, entry)
        self.candidate = self._build(load(candidate, "candidate_module"), candidate_entry)
        self.synchronize()
        self.phase("build")

    def synchronize(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def phase(self, name: str) -> None:
        now = time.monotonic()
        self.phases[name] = round(now - self._mark, 3)
        self._mark = now

    def _build(self, module: ModuleType, entry: str) -> Callable[..., Any]:
        self.torch.manual_seed(self.seed)
        init: Sequence[Any] = self.module.get_init_inputs()
        if len(init) == 2 and isinstance(init[0], list) and isinstance(init[1], Mapping):
            model = getattr(module, entry)(*init[0], **init[1])
        else:
            model = getattr(module, entry)(*init)
        built: Callable[..., Any] = model.to(self.device)
        return built

    def inputs(self, seed: int) -> list[Any]:
        self.torch.manual_seed(seed)
        return [x.to(self.device) if isinstance(x, self.torch.Tensor) else x for x in self.module.get_inputs()]

    def is_correct(self) -> bool:
        for trial in range(CORRECTNESS_TRIALS):
            inputs = self.inputs(self.seed + 1 + trial)
            expected, got = self.reference(*inputs), self.candidate(*inputs)
            self.synchronize()
            tolerance = TOLERANCE.get(str(expected.dtype), 1e-4)
            if expected.shape != got.shape or not self.torch.allclose(expected, got, atol=tolerance, rtol=tolerance):
                return False
            del inputs, expected, got
        self.phase("correctness")
        return True

    def time_ms(self, model: Callable[..., Any], name: str) -> float:
        """Median of the trials, the L2 cache overwritten before each."""
        inputs = self.inputs(self.seed)
        flush = self.torch.empty(FLUSH_BYTES, dtype=self.torch.int8, device=self.device)
        for _ in range(WARMUPS):
            model(*inputs)
        times, half = [], time.monotonic()
        for trial in range(self.trials):
            if trial == OUR_TRIALS:
                half = time.monotonic()
            flush.zero_()
            times.append(self._call_ms(model, inputs))
        if self.trials > OUR_TRIALS:
            self.beyond_s += time.monotonic() - half
        self.phase(name)
        return float(statistics.median(times))

    def _call_ms(self, model: Callable[..., Any], inputs: list[Any]) -> float:
        """By CUDA events, on a GPU."""
        if self.device != "cuda":
            started = time.perf_counter()
            model(*inputs)
            return (time.perf_counter() - started) * 1e3
        event = self.torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        begin.record()
        model(*inputs)
        end.record()
        self.torch.cuda.synchronize()
        return float(begin.elapsed_time(end))


def main() -> int:
    parser = argparse.ArgumentParser(description="Evaluate one candidate the usual way.")
    parser.add_argument("task", type=Path)
    parser.add_argument("candidate", type=Path)
    parser.add_argument("--entry", default="Model")
    parser.add_argument("--candidate-entry", default="ModelNew")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--trials", type=int, default=TIMING_TRIALS, help="timed calls of each (default 100)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    evaluation = Evaluation(
        arguments.task, arguments.candidate, arguments.entry, arguments.candidate_entry, arguments.seed,
        arguments.device,
    )  # fmt: skip
    evaluation.trials = arguments.trials
    result: dict[str, object] = {"correct": False}
    with evaluation.torch.no_grad():
        if evaluation.is_correct():
            candidate_ms = evaluation.time_ms(evaluation.candidate, "time_candidate")
            reference_ms = evaluation.time_ms(evaluation.reference, "time_reference")
            result = {
                "correct": True,
                "candidate_ms": candidate_ms,
                "reference_ms": reference_ms,
                "speedup": reference_ms / candidate_ms,
            }
    result |= {"phases_s": evaluation.phases, "beyond_s": round(evaluation.beyond_s, 3)}
    result["seconds"] = round(time.monotonic() - STARTED, 3)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
