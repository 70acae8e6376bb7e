"""The reference under torch.compile, as a baseline: right before it counts, timed like a candidate, named if it fails.

Without a GPU the clock's GPU is host_gpu.py, as in test_clock_protocol.py, and children do not pretend to have one
(cpu_device.py would take torch.compile away). Dynamo alone is quick (the backend `eager` runs its graphs as they
are); the one test with Inductor's compiler is slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from daemon import first_gpu
from rig import Rig, policy

PRELUDE = """
import host_gpu, referee
referee.Referee._timing = lambda self, job: host_gpu.time_job(job, {directory!r})
"""

CHILD = """
import contextlib
from live import compiled
from live import cpu_device
cpu_device.install = lambda: None
cpu_device.torch_function_mode = contextlib.nullcontext
compiled.BACKEND = {backend!r}
"""

# Its uncompiled forward waits, which torch.compile leaves out of the graph and out of the calls that follow.
TASK = """
import time, torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
    def forward(self, x):
        if not torch.compiler.is_compiling():
            time.sleep(0.1)
        return torch.relu(self.layer(x)) * 2 + 1
def get_inputs():
    return [torch.randn(32, 64)]
def get_init_inputs():
    return []
"""

TIMING = {"warmup": 2, "trials": 5, "fixed": True, "events": True}


class Bench:
    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def compile(self, task: str, *, stages: tuple[str, ...] = ("full", "timing")) -> dict[str, dict[str, Any]]:
        """The reports of the task's reference, compiled, beside itself."""
        child = self._rig.child()
        spec = self._rig.register(child, task)
        rules = policy(foreign="any", variations={"count": 3, "value": True, "shape": False}, timing=TIMING)
        return self._rig.judge(child, spec, task, task, stages=stages, rules=rules, entry="Model", compiles=True)


@contextmanager
def running(directory: Path, backend: str) -> Iterator[Bench]:
    child = CHILD.format(backend=backend)
    with Rig(directory, prelude=PRELUDE.format(directory=str(directory)), child_prelude=child) as rig:
        yield Bench(rig)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with running(tmp_path_factory.mktemp("compiled"), "eager") as found:
        yield found


def ratio(report: dict[str, Any]) -> float:
    """By the least of each side: a busy machine makes some calls longer, and none shorter."""
    assert report["outcome"] == "pass", report
    return float(min(report["detail"]["reference_ns"]) / min(report["detail"]["candidate_ns"]))


def test_it_is_checked_and_timed_beside_the_uncompiled_one(bench: Bench) -> None:
    found = bench.compile(TASK)
    assert [(stage, report["outcome"]) for stage, report in found.items()] == [
        ("open", "pass"), ("full", "pass"), ("timing", "pass"),
    ]  # fmt: skip
    assert found["full"]["detail"]["passed"] == 3
    assert ratio(found["timing"]) > 3  # it does not wait; and what compiling took is not in its times


def test_a_compiled_reference_that_answers_otherwise_is_no_baseline(bench: Bench) -> None:
    task = TASK.replace("* 2 + 1", "* (3 if torch.compiler.is_compiling() else 2) + 1")
    found = bench.compile(task)
    assert list(found) == ["open", "full"]
    assert (found["full"]["outcome"], found["full"]["class"]) == ("fail", "mismatch")


@pytest.mark.slow
def test_a_reference_that_does_not_compile_is_named(bench: Bench) -> None:
    task = TASK.replace("        return torch.relu", "        refuse(x)\n        return torch.relu")
    task += """
def refuse(x):
    if torch.compiler.is_compiling():
        raise ValueError("not while it is compiled")
"""
    found = bench.compile(task)["full"]
    assert found["outcome"] == "fail" and found["error"]["text"], found


@pytest.mark.slow
def test_what_torch_leaves_as_it_is_is_not_called_compiled(bench: Bench) -> None:
    task = TASK.replace("    def forward", "    @torch.compiler.disable\n    def forward")
    found = bench.compile(task)["full"]
    assert (found["outcome"], found["error"]["type"]) == ("fail", "NothingCompiled")


@pytest.mark.slow
def test_inputs_that_the_reference_changes_are_as_they_were(bench: Bench) -> None:
    """The call that compiles is made on copies."""
    task = TASK.replace("return torch.relu(self.layer(x)) * 2 + 1", "return x.add_(1) * 2")
    assert bench.compile(task, stages=("full",))["full"]["outcome"] == "pass"


@pytest.mark.slow
def test_nobody_else_is_compiled(bench: Bench) -> None:
    """A candidate's message is what it was: the reference that it is timed beside waits, and so does a copy of it."""
    child = bench._rig.child()
    spec = bench._rig.register(child, TASK)
    rules = policy("kernelbench", variations={"count": 1}, timing=TIMING)
    copy = TASK.replace("Model(", "ModelNew(")
    found = bench._rig.judge(child, spec, TASK, copy, stages=("full", "timing"), rules=rules)
    assert 0.7 < ratio(found["timing"]) < 1.4


@pytest.mark.slow
def test_inductor_makes_kernels_of_a_reference(tmp_path: Path) -> None:
    with running(tmp_path, "inductor") as bench:
        found = bench.compile(TASK)
    assert ratio(found["timing"]) > 3


CHAIN = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sigmoid(torch.relu(x * 2 + 1)) * x
def get_inputs():
    return [torch.randn(8192, 8192)]
def get_init_inputs():
    return []
"""


@pytest.mark.gpu
def test_inductor_makes_one_kernel_of_five_on_a_gpu(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("gpu: no GPU on this machine")
    with Rig(tmp_path, device=first_gpu()) as rig:
        found = Bench(rig).compile(CHAIN)
    assert found["full"]["outcome"] == "pass", found
    assert found["timing"]["detail"]["outcome"] == "measured", found["timing"]
    assert ratio(found["timing"]) > 2
