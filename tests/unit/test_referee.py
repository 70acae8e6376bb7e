"""The referee and its children, without a daemon: honest kernels pass, others get their own class."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig import Rig, policy

TASK = """
import torch
N = 300
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(n))
    def forward(self, x):
        return torch.relu(x) * self.weight
def get_inputs():
    return [torch.randn(40, N)]
def get_init_inputs():
    return [N]
"""

HONEST = """
import os, torch, triton, triton.language as tl
@triton.jit
def kernel(x, w, y, n, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    value = tl.maximum(tl.load(x + at, mask=inside), 0.0) * tl.load(w + at % n, mask=inside)
    tl.store(y + at, value, mask=inside)
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(n))
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, self.weight, y, x.shape[-1], x.numel(), BLOCK=256)
        return y
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(tmp_path_factory.mktemp("rig")) as found:
        yield found


@pytest.fixture(scope="module")
def task(rig: Rig) -> tuple[str, dict[str, object]]:
    child = rig.child()
    spec = rig.register(child, TASK)
    assert "refused" not in spec, spec
    return child, spec


def judge(
    rig: Rig, task: tuple[str, dict[str, object]], source: str, **options: object
) -> dict[str, dict[str, object]]:
    child, spec = task
    return rig.judge(child, spec, TASK, source, **options)  # type: ignore[arg-type]


def test_honest_kernel_passes_every_case(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    source = HONEST.replace("torch.rand(n)", "torch.zeros(n)")
    found = judge(rig, task, source)
    assert found["full"]["outcome"] == "pass", found
    detail = found["full"]["detail"]
    assert isinstance(detail, dict)
    names = [case["name"] for case in detail["cases"]]
    assert names == ["original", "signs", "spikes", "other weights", "original again"]
    assert {case["against"] for case in detail["cases"]} == {"fp64"}


@pytest.mark.parametrize(
    ("change", "stage", "class_"),
    [
        (("return y", "return y[:, :-1]"), "tiny", "shape"),
        (("return y", "return y, y"), "tiny", "shape"),
        (("return y", "return None"), "tiny", "shape"),
        (("return y", "return y.double()"), "tiny", "dtype"),
        (("return y", "return y / 0"), "tiny", "nonfinite"),
        (("return y", "return y * 1.01"), "tiny", "mismatch"),
        (("return y", "x.zero_(); return y"), "tiny", "mutated_input"),
        (("return y", "x.copy_(y); return x"), "tiny", "mutated_input"),
        (("return y", "raise ValueError('no')"), "tiny", "launch"),
        (("return y", "os._exit(0)"), "tiny", "crash"),
        (("return y", "os.kill(os.getpid(), 9)"), "tiny", "crash"),
        (("return y", "return torch.empty(1 << 60)"), "tiny", "oom"),
        (("return y", "return y if self.calls < 2 else y + 1"), "full", "nondeterministic"),
        (("return y", "return y + torch.rand_like(y)"), "full", "mismatch"),
        (("import os,", "raise ImportError('gone')\nimport os,"), "open", "import"),
        (("import os,", "import os; os._exit(0)\nimport os,"), "open", "crash"),
        (("super().__init__()", "raise TypeError('no')"), "tiny", "import"),
        (("x, self.weight, y", "x, torch.ones_like(self.weight), y"), "tiny", "mismatch"),
    ],
)
def test_each_failure_has_its_class(
    rig: Rig, task: tuple[str, dict[str, object]], change: tuple[str, str], stage: str, class_: str
) -> None:
    assert change[0] in HONEST
    found = judge(rig, task, HONEST.replace(*change, 1))
    last = list(found)[-1]
    report = found[last]
    assert (report["class"], report["outcome"]) == (class_, "fail"), found
    assert last == stage or class_ in ("mismatch", "nondeterministic"), found
    assert report["error"]


def test_first_mismatch_is_named(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    found = judge(rig, task, HONEST.replace("return y", "y.view(-1)[7] += 1; return y"))
    detail = found["tiny"]["detail"]
    assert isinstance(detail, dict)
    first = detail["first_mismatch"]
    assert first["index"] == [0, 7] and first["differing"] == 1 and first["of"] == 12000
    assert first["got"] == pytest.approx(first["expected"] + 1)


def test_endless_call_ends_at_its_limit(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    found = judge(rig, task, HONEST.replace("return y", "while True: pass"), limit_ms=500)
    assert found["tiny"]["class"] == "timeout"
    assert judge(rig, task, HONEST)["full"]["outcome"] == "pass"


def test_fixed_shape_kernel_is_judged_at_its_own_shape(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    found = judge(rig, task, HONEST.replace("return y", "assert x.shape[0] == 40; return y"))
    assert found["tiny"]["outcome"] == "pass" and "launch" in str(found["tiny"]["generality"])
    assert found["full"]["outcome"] == "pass"


def test_kernelbench_policy_has_five_seeds(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    found = judge(rig, task, HONEST, rules=policy("kernelbench"))
    detail = found["full"]["detail"]
    assert isinstance(detail, dict)
    assert [case["name"] for case in detail["cases"]] == [f"seed {n}" for n in range(1, 6)]


def test_reference_that_does_not_run_is_refused_with_its_traceback(rig: Rig) -> None:
    found = rig.register(rig.child(), TASK.replace("torch.relu(x)", "torch.relu(y)"))
    error = found["refused"]
    assert "NameError" in error["text"] and "reference.py" in error["text"] and error["line"] == 9
