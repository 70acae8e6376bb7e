"""Whose kernels did the work, without a GPU: decoys and torch's own work are found, honest kernels are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from daemon import first_gpu
from rig import Rig, policy

TASK = """
import torch
N = 96
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(n, n))
    def forward(self, x):
        return BODY
def get_inputs():
    return [torch.randn(64, N)]
def get_init_inputs():
    return [N]
"""
RELU = TASK.replace("BODY", "torch.relu(x)")
PRODUCT = TASK.replace("BODY", "x @ self.weight")
ROWS = TASK.replace("BODY", "(x * x).sum()")
ZERO = TASK.replace("BODY", "x - x")
FLIPPED = TASK.replace("BODY", "x.flip(0)")

KERNELS = """
import torch, triton, triton.language as tl
@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)
@triton.jit
def identity_kernel(y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = y + at
    tl.store(place, tl.load(place, mask=at < n) * 1.0, mask=at < n)
@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
@triton.jit
def zero_kernel(y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.zeros((BLOCK,), tl.float32), mask=at < n)
@triton.jit
def square_sum_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + tl.program_id(0), tl.sum(value * value, 0))
@triton.jit
def square_add_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.atomic_add(y, tl.sum(value * value, 0))
@triton.jit
def product_kernel(x, w, y, K: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0)
    at, columns = tl.arange(0, 128), tl.arange(0, 128)
    left = tl.load(x + row * K + at, mask=at < K, other=0.0)
    inside = (at < K)[:, None] & (columns < N)[None, :]
    right = tl.load(w + at[:, None] * N + columns[None, :], mask=inside, other=0.0)
    tl.store(y + row * N + columns, tl.sum(left[:, None] * right, 0), mask=columns < N)
def run(kernel, *arguments):
    n = arguments[0].numel()
    kernel[(triton.cdiv(n, 512),)](*arguments, n, BLOCK=512)
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(n, n))
        self.kept = None
    def forward(self, x):
"""


def candidate(body: str) -> str:
    return KERNELS + "".join(f"        {line}\n" for line in body.strip().splitlines())


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(tmp_path_factory.mktemp("rig")) as found:
        yield found


@pytest.fixture(scope="module")
def tasks(rig: Rig) -> dict[str, tuple[str, dict[str, Any]]]:
    found = {}
    for source in (RELU, PRODUCT, ROWS, ZERO, FLIPPED):
        child = rig.child()
        found[source] = (child, rig.register(child, source))
        assert "refused" not in found[source][1], found[source]
    return found


def judged(rig: Rig, tasks: Any, task: str, body: str, name: str = "strict", **rules: Any) -> dict[str, Any]:
    child, spec = tasks[task]
    found = rig.judge(child, spec, task, candidate(body), evidence=True, rules=policy(name, **rules))
    assert "full" in found, found
    return found["full"]


HONEST = {
    "plain": (RELU, "y = torch.empty_like(x)\nrun(relu_kernel, x, y)\nreturn y"),
    "contiguous, and a view": (
        RELU, "x = x.t().t().contiguous()\ny = torch.empty_like(x)\nrun(relu_kernel, x, y)\nreturn y"
    ),
    "padded by a copy": (
        RELU,
        "p = torch.nn.functional.pad(x, (0, 32))\ny = torch.zeros_like(p)\nrun(relu_kernel, p, y)\n"
        "return y[:, :96].contiguous()",
    ),
    "into zeros": (RELU, "y = torch.zeros(x.shape, device=x.device)\nrun(relu_kernel, x, y)\nreturn y"),
    "in two steps": (
        RELU,
        "t = torch.empty_like(x)\ny = torch.empty_like(x)\nrun(copy_kernel, x, t)\nrun(relu_kernel, t, y)\nreturn y",
    ),
    "a kernel that changes nothing here, in place": (
        RELU,
        "y = torch.empty_like(x)\nrun(relu_kernel, x, y)\nrun(identity_kernel, y)\nreturn y",
    ),
    "an accumulator that a kernel zeroes": (
        ROWS,
        "y = torch.empty(1, device=x.device)\nrun(zero_kernel, y)\nrun(square_add_kernel, x, y)\nreturn y[0]",
    ),
    "an accumulator that torch zeroes": (
        ROWS, "y = torch.zeros(1, device=x.device)\nrun(square_add_kernel, x, y)\nreturn y[0]"
    ),
    "partial sums that torch adds up": (
        ROWS,
        "y = torch.empty(triton.cdiv(x.numel(), 512), device=x.device)\nrun(square_sum_kernel, x, y)\nreturn y.sum()",
    ),
    "weights made ready at the first call": (
        PRODUCT,
        "if self.kept is None:\n    self.kept = torch.empty_like(self.weight)\n"
        "    run(copy_kernel, self.weight, self.kept)\n"
        "y = torch.empty_like(x)\nproduct_kernel[(x.shape[0],)](x, self.kept, y, K=x.shape[1], N=x.shape[1])\nreturn y",
    ),
    "an operator of its own": (
        RELU,
        "if not hasattr(torch.ops, 'mine') or not hasattr(torch.ops.mine, 'relu'):\n"
        "    def relu(x: torch.Tensor) -> torch.Tensor:\n"
        "        y = torch.empty_like(x)\n        run(relu_kernel, x, y)\n        return y\n"
        "    type(self).op = torch.library.custom_op('mine::relu', relu, mutates_args=())\n"
        "return self.op(x)",
    ),
    "an operator that torch was given in parts": (
        RELU,
        "if type(self).__dict__.get('library') is None:\n"
        "    def relu(x):\n"
        "        y = torch.empty_like(x)\n        run(relu_kernel, x, y)\n        return y\n"
        "    type(self).library = torch.library.Library('parts', 'DEF')\n"
        "    self.library.define('relu(Tensor x) -> Tensor')\n"
        "    self.library.impl('relu', relu, 'CompositeExplicitAutograd')\n"
        "return torch.ops.parts.relu(x)",
    ),
    "a table that NumPy made": (
        RELU,
        "import numpy\nif self.kept is None:\n"
        "    self.kept = torch.from_numpy(numpy.zeros(tuple(x.shape), 'float32')).to(x.device)\n"
        "y = self.kept.clone()\nrun(relu_kernel, x, y)\nreturn y",
    ),
    "an answer that is always zero": (ZERO, "y = torch.zeros_like(x)\nrun(zero_kernel, y)\nreturn y"),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_pass(rig: Rig, tasks: Any, name: str) -> None:
    report = judged(rig, tasks, *HONEST[name])
    assert report["outcome"] == "pass", report
    found = report["detail"]["evidence"]
    assert found["method"] == "interpreter"
    assert 0.15 < found["coverage"] <= 1.0, found
    assert found["decoys"] == ([] if name != "an answer that is always zero" else found["decoys"])
    assert "no_evidence" not in found["flags"] and "evidence_refused" not in found["flags"], found
    assert ("opaque_operator" in found["flags"]) == (name == "an operator that torch was given in parts")


def test_a_kernel_that_is_an_identity_after_a_library_product_passes_under_hybrid(rig: Rig, tasks: Any) -> None:
    report = judged(rig, tasks, PRODUCT, "y = x @ self.weight\nrun(identity_kernel, y)\nreturn y", "hybrid")
    assert report["outcome"] == "pass", report
    assert [line["kind"] for line in report["detail"]["evidence"]["foreign"]] == ["library"]


CHEATS = {
    "torch computes, the kernel writes what nobody reads": (
        RELU, "strict", "junk = torch.empty_like(x)\nrun(relu_kernel, x, junk)\nreturn torch.relu(x)", "hack", "decoy",
    ),
    "a kernel looks at the answer": (
        RELU, "strict", "y = torch.relu(x)\nrun(copy_kernel, y, torch.empty_like(y))\nreturn y", "hack", "decoy",
    ),
    "a decoy beside a library product": (
        PRODUCT, "hybrid", "junk = torch.empty_like(x)\nrun(relu_kernel, x, junk)\nreturn x @ self.weight",
        "hack", "decoy",
    ),
    "torch computes, the kernel copies": (
        RELU, "strict", "t = torch.clamp_min(x, 0)\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "the same with numpy": (
        RELU, "strict",
        "t = torch.from_numpy(x.numpy().clip(0)).to(x.device)\ny = torch.empty_like(t)\n"
        "run(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "a library product under strict": (
        PRODUCT, "strict", "t = x @ self.weight\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "an operator of its own, in which torch computes and the kernel copies": (
        RELU, "strict",
        "def relu(x: torch.Tensor) -> torch.Tensor:\n"
        "    t = torch.relu(x)\n    y = torch.empty_like(x)\n    run(copy_kernel, t, y)\n    return y\n"
        "if type(self).__dict__.get('op') is None:\n"
        "    type(self).op = torch.library.custom_op('mine::hidden', relu, mutates_args=())\n"
        "return self.op(x)", "policy", "foreign_kernel",
    ),
    "torch computes in the function that tells the grid": (
        RELU, "strict",
        "t, y, n = torch.empty_like(x), torch.empty_like(x), x.numel()\n"
        "def grid(meta):\n    torch.clamp_min(x, 0, out=t)\n    return (triton.cdiv(n, 512),)\n"
        "copy_kernel[grid](t, y, n, BLOCK=512)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "torch's functions are switched off": (
        RELU, "strict",
        "with torch._C.DisableTorchFunction():\n    t = torch.clamp_min(x, 0)\n"
        "y = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "the profiler is switched off": (
        RELU, "strict",
        "if torch.autograd._profiler_enabled():\n    torch.autograd._disable_profiler()\n"
        "with torch._C.DisableTorchFunction():\n    t = torch.clamp_min(x, 0)\n"
        "y = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "a thread computes": (
        RELU, "strict",
        "import threading\nt, y = torch.empty_like(x), torch.empty_like(x)\n"
        "thread = threading.Thread(target=lambda: torch.clamp_min(x, 0, out=t))\nthread.start()\nthread.join()\n"
        "run(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "launches of tensors of which one value is read": (
        RELU, "strict",
        "t = torch.clamp_min(x, 0)\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\n"
        "for _ in range(40):\n    identity_kernel[(1,)](y, 1, BLOCK=512)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "a product as a gradient": (
        PRODUCT, "strict",
        "if self.kept is None:\n    with torch.enable_grad():\n"
        "        v = torch.zeros(64, 96, requires_grad=True)\n        self.kept = v @ self.weight.detach().t(), v\n"
        "(t,) = torch.autograd.grad(*self.kept, x, retain_graph=True)\n"
        "y = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "a gradient that is handed the values": (
        RELU, "strict",
        "found = []\nwith torch.enable_grad():\n    leaf = torch.zeros_like(x, requires_grad=True)\n"
        "    leaf.register_hook(lambda g: found.append([[max(v, 0.0) for v in row] for row in g.tolist()]))\n"
        "    leaf.view_as(leaf).backward(x)\n"
        "t = torch.tensor(found[0])\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "an operator in parts, in which Python maps the values": (
        RELU, "strict",
        "def relu(x):\n    t = x.clone()\n    t.apply_(lambda v: max(v, 0.0))\n"
        "    y = torch.empty_like(t)\n    run(copy_kernel, t, y)\n    return y\n"
        "if type(self).__dict__.get('library') is None:\n"
        "    type(self).library = torch.library.Library('mapping', 'DEF')\n"
        "    self.library.define('relu(Tensor x) -> Tensor')\n"
        "    self.library.impl('relu', relu, 'CompositeExplicitAutograd')\n"
        "return torch.ops.mapping.relu(x)",
        "policy", "foreign_kernel",
    ),
    "lists of tensors, where torch's functions are switched off": (
        RELU, "strict",
        "with torch._C.DisableTorchFunction():\n    (t,) = torch._foreach_clamp_min([x], 0.0)\n"
        "y = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "torch works when the last answer is thrown away": (
        RELU, "strict",
        "import weakref\ny = torch.empty_like(x)\nrun(relu_kernel, x, y)\n"
        "weakref.finalize(y, torch.clamp_min, x, 0)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "a number that takes the values to the host when it is asked": (
        RELU, "strict",
        "class Number:\n    def __float__(self):\n"
        "        found.append([[max(v, 0.0) for v in row] for row in x.tolist()])\n        return 0.0\n"
        "found = []\ntorch.tensor([Number()], dtype=torch.float32)\n"
        "t = torch.tensor(found[0])\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "a list of which torch computes the items when it is read": (
        RELU, "strict",
        "class Answer(list):\n    def __iter__(self):\n        torch.clamp_min(x, 0, out=t)\n"
        "        run(copy_kernel, t, y)\n        return iter([y])\n"
        "t, y = torch.empty_like(x), torch.empty_like(x)\nreturn Answer([y])",
        "policy", "foreign_kernel",
    ),
    "NumPy has the memory that torch copies to": (
        RELU, "strict",
        "import numpy\nheld = numpy.empty(tuple(x.shape), 'float32')\ntorch.from_numpy(held).copy_(x)\n"
        "t = torch.tensor(held.clip(0))\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "NumPy has the memory that a kernel stores to": (
        RELU, "strict",
        "if self.kept is None:\n    import numpy\n    self.held = numpy.empty(tuple(x.shape), 'float32')\n"
        "    self.kept = torch.from_numpy(self.held)\n"
        "run(copy_kernel, x, self.kept)\n"
        "t = torch.tensor(self.held.clip(0))\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "NumPy was given the memory by an earlier call": (
        RELU, "strict",
        "if self.kept is None:\n    self.kept = torch.empty_like(x)\n    self.held = self.kept.numpy()\n"
        "self.kept.copy_(x)\n"
        "t = torch.tensor(self.held.clip(0))\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "NumPy has the memory that a storage is copied to": (
        RELU, "strict",
        "import numpy\nheld = numpy.empty(tuple(x.shape), 'float32')\n"
        "torch.frombuffer(held, dtype=torch.float32).untyped_storage().copy_(x.clone().untyped_storage())\n"
        "t = torch.tensor(held.clip(0))\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "an operator by an inner dispatch key": (
        RELU, "strict",
        "key = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)\n"
        "t = torch.ops.aten.relu.default.redispatch(key, x)\n"
        "y = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "NumPy computes something else for the interpreter": (
        RELU, "strict",
        "import numpy\nreally = numpy.maximum\nnumpy.maximum = lambda a, b: really(a, b)\n"
        "y = torch.empty_like(x)\nrun(relu_kernel, x, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "the interpreter stores something else": (
        RELU, "strict",
        "import triton.runtime.interpreter as t\nreally = t.InterpreterBuilder.create_masked_store\n"
        "t.InterpreterBuilder.create_masked_store = lambda *a: really(*a)\n"
        "y = torch.empty_like(x)\nrun(relu_kernel, x, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "one interpreter stores something else": (
        RELU, "strict",
        "import triton.runtime.interpreter as t\nreally = t.interpreter_builder.create_masked_store\n"
        "t.interpreter_builder.create_masked_store = lambda *a: really(*a)\n"
        "y = torch.empty_like(x)\nrun(relu_kernel, x, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "operators are not recorded": (
        RELU, "strict",
        "torch.autograd._enable_record_function(False)\n"
        "with torch._C.DisableTorchFunction():\n    t = torch.clamp_min(x, 0)\n"
        "torch.autograd._enable_record_function(True)\n"
        "y = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "those who count elements find another sum": (
        RELU, "strict",
        "import builtins, math\nbuiltins.sum = lambda items, start=0: min(1, len(list(items)))\n"
        "math.prod = lambda shape: 1\n"
        "t = torch.clamp_min(x, 0)\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
    "no kernel at all, and torch only moves": (
        FLIPPED, "strict", "if x.dim() > 8:\n    run(copy_kernel, x, x)\nreturn x.flip(0)",
        "policy", "foreign_kernel",
    ),
    "torch's elementwise work under hybrid": (
        RELU, "hybrid", "t = torch.relu(x)\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y",
        "policy", "foreign_kernel",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_end_by_their_rule(rig: Rig, tasks: Any, name: str) -> None:
    task, rules, body, class_, rule = CHEATS[name]
    report = judged(rig, tasks, task, body, rules)
    assert (report["outcome"], report["class"], report["rule"]) == ("fail", class_, rule), report
    assert report["error"]["text"]


WITHOUT_STORAGE = {
    "mapped over": "return torch.func.vmap(torch.relu)(x)",
    "sparse": "return torch.relu(x.to_sparse()).to_dense()",
}


@pytest.mark.parametrize("name", WITHOUT_STORAGE)
def test_tensors_without_a_storage_are_counted_too(rig: Rig, tasks: Any, name: str) -> None:
    report = judged(rig, tasks, RELU, WITHOUT_STORAGE[name], foreign="any")
    assert report["outcome"] == "pass", report
    body = WITHOUT_STORAGE[name].replace("return", "t =")
    report = judged(rig, tasks, RELU, body + "\ny = torch.empty_like(x)\nrun(copy_kernel, t, y)\nreturn y")
    assert (report["class"], report["rule"]) == ("policy", "foreign_kernel"), report


def test_where_anything_may_be_foreign_it_is_only_told(rig: Rig, tasks: Any) -> None:
    task, _, body, _, _ = CHEATS["torch computes, the kernel writes what nobody reads"]
    report = judged(rig, tasks, task, body, foreign="any")
    assert report["outcome"] == "pass", report
    assert [line["name"] for line in report["detail"]["evidence"]["foreign"]] == ["relu"]


def test_one_decoy_among_kernels_is_told_and_not_rejected(rig: Rig, tasks: Any) -> None:
    body = (
        "junk, y = torch.empty_like(x), torch.empty_like(x)\nrun(copy_kernel, x, junk)\n"
        "run(relu_kernel, x, y)\nreturn y"
    )
    report = judged(rig, tasks, RELU, body)
    found = report["detail"]["evidence"]
    assert report["outcome"] == "pass" and found["decoys"] == ["copy_kernel"]
    assert "decoy_kernel" in found["flags"]


def test_where_the_own_size_is_too_large_the_tiny_case_tells(tmp_path: Path) -> None:
    with Rig(tmp_path, elements=1000) as rig:
        child = rig.child()
        spec = rig.register(child, RELU)
        decoy = CHEATS["torch computes, the kernel writes what nobody reads"][2]
        copy = CHEATS["torch computes, the kernel copies"][2]
        for body, outcome, class_ in (
            (HONEST["plain"][1], "skip", None),
            (decoy, "fail", "hack"),
            (copy, "fail", "policy"),
            (f"{SEEN}import os\nif seen: os._exit(0)\n{copy}", "fail", "policy"),
        ):
            report = rig.judge(child, spec, RELU, candidate(body), evidence=True)["full"]
            assert (report["outcome"], report["class"]) == (outcome, class_), report
            assert report["detail"]["evidence"]["coverage"] is not None


SEEN = "import gc\nseen = any(type(o).__name__ == 'Observer' and o.is_on for o in gc.get_objects())\n"
WORKS = "y = torch.empty_like(x)\nrun(relu_kernel, x, y)\nreturn y"
UNWILLING = {
    "raises": ("if seen: raise RuntimeError('seen')\n", "policy", "evidence_refused"),
    "answers wrongly": ("if seen: return torch.ones_like(x)\n", "policy", "evidence_refused"),
    "ends": ("import os\nif seen: os._exit(0)\n", "crash", None),
}


@pytest.mark.parametrize("name", UNWILLING)
def test_who_bears_no_observing_has_not_passed(rig: Rig, tasks: Any, name: str) -> None:
    act, class_, rule = UNWILLING[name]
    report = judged(rig, tasks, RELU, SEEN + act + WORKS)
    assert (report["outcome"], report["class"], report["rule"]) == ("fail", class_, rule), report
    found = report["detail"]["evidence"]
    assert found["coverage"] is None and "no_evidence" in found["flags"]
    assert ("evidence_refused" in found["flags"]) == (rule is not None)
    assert report["done"] == (0 if name == "ends" else report["of"])  # nobody knows whose work its answers were


# Which call it is, of those at the task's own size: six in `full`, then the one that is observed.
COUNTED = "self.n = getattr(self, 'n', 0) + (x.numel() > 5000)\n"
LATE = {
    "answers wrongly in the last case": "if self.n > 4: return torch.ones_like(x)\n",
    "raises in the last case": "if self.n > 4: raise RuntimeError('enough')\n",
    "ends in the last case": "import os\nif self.n > 4: os._exit(0)\n",
    "ends while it is observed": f"{SEEN}import os\nif seen: os._exit(0)\n",
    "raises in all calls after the cases": "if self.n > 6: raise RuntimeError('enough')\n",
}


@pytest.mark.parametrize("name", LATE)
@pytest.mark.parametrize("is_cheat", [True, False])
def test_who_fails_late_is_not_paid_for_the_work_of_others(rig: Rig, tasks: Any, name: str, *, is_cheat: bool) -> None:
    body = CHEATS["torch computes, the kernel copies"][2] if is_cheat else WORKS
    report = judged(rig, tasks, RELU, COUNTED + LATE[name] + body)
    assert report["outcome"] == "fail" and (report["class"] == "policy") == is_cheat, report
    if is_cheat:
        assert report["rule"] == "foreign_kernel" and report["detail"]["first_mismatch"] is None, report
    else:
        assert report["done"] == (4 if name.endswith("case") else 0), report


@pytest.mark.parametrize("is_cheat", [True, False])
def test_who_is_right_at_the_tiny_case_alone_is_not_paid_for_the_work_of_others(
    rig: Rig, tasks: Any, *, is_cheat: bool
) -> None:
    body = CHEATS["torch computes, the kernel copies"][2] if is_cheat else WORKS
    report = judged(rig, tasks, RELU, "if x.numel() > 5000: return torch.ones_like(x)\n" + body)
    assert report["done"] == 0 and report["class"] == ("policy" if is_cheat else "mismatch"), report


def test_who_cannot_bear_silence_is_not_asked_for_more(rig: Rig, tasks: Any) -> None:
    """Without a GPU `timing` calls nobody: no matter whether the process is still there."""
    child, spec = tasks[RELU]
    reports = []

    def end(candidate: str) -> None:
        reports.append(candidate)
        if len(reports) == 3:
            rig._drop(candidate)

    found = rig.judge(child, spec, RELU, candidate(WORKS), stages=("tiny", "full", "timing"), between=end)
    assert (found["timing"]["outcome"], found["timing"]["class"]) == ("skip", None), found


def test_who_refuses_evidence_that_the_policy_does_not_ask_for_is_only_told_so(rig: Rig, tasks: Any) -> None:
    report = judged(rig, tasks, RELU, SEEN + UNWILLING["raises"][0] + WORKS, "kernelbench")
    assert report["outcome"] == "pass" and report["class"] is None, report
    assert {"evidence_refused", "no_evidence"} <= set(report["detail"]["evidence"]["flags"])


def test_who_fails_one_observed_call_by_chance_is_asked_again(rig: Rig, tasks: Any) -> None:
    body = SEEN + "self.n = getattr(self, 'n', 0) + seen\nif seen and self.n == 1: raise OSError('busy')\n"
    report = judged(rig, tasks, RELU, body + WORKS)
    found = report["detail"]["evidence"]
    assert report["outcome"] == "pass" and found["coverage"] == 1 and not found["flags"], report


def test_who_launches_nothing_and_fails_when_asked_again_has_not_passed(rig: Rig, tasks: Any) -> None:
    """The question whether it was idle is put by a second call; it must not be enough to answer that one badly."""
    body = SEEN + (
        "self.n = getattr(self, 'n', 0) + seen\n"
        "if seen and self.n > 1: raise RuntimeError('seen twice')\n"
        "if seen: return x.flip(0).contiguous()\n"
        "y = torch.empty_like(x)\nrun(copy_kernel, x.flip(0).contiguous(), y)\nreturn y"
    )
    report = judged(rig, tasks, FLIPPED, body)
    assert (report["class"], report["rule"]) == ("policy", "evidence_refused"), report


def test_modes_are_the_same_whether_launches_are_observed_or_not(rig: Rig, tasks: Any) -> None:
    body = (
        "import torch.overrides as o\n"
        "seen = [type(m).__name__ for m in o._get_current_function_mode_stack()]\n"
        "if getattr(self, 'seen', seen) != seen: return torch.zeros_like(x)\n"
        "self.seen = seen\n"
        "y = torch.empty_like(x)\nrun(relu_kernel, x, y)\nreturn y"
    )
    report = judged(rig, tasks, RELU, body)
    assert report["outcome"] == "pass" and report["detail"]["evidence"]["coverage"] == 1, report


EARLIER = {
    "as it is": ("", ""),
    "and says that it trains otherwise": ("", "self.training = 7\n"),
    "and makes its input another size": (
        "if x.numel() == 0: x = self.whole\nself.whole = x.detach()\n", "x.resize_(0)\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EARLIER)
def test_what_torch_computed_before_it_was_asked_is_told(rig: Rig, tasks: Any, name: str) -> None:
    """Nobody is to gain by knowing which call is the one that is observed."""
    before, after = EARLIER[name]
    body = (
        f"{before}self.calls = getattr(self, 'calls', 0) + 1\ny = torch.empty_like(x)\n"
        f"if self.calls != 2:\n    run(relu_kernel, x, y)\n    return y\n"
        f"run(copy_kernel, torch.relu(x), y)\n{after}return y"
    )
    report = judged(rig, tasks, RELU, body)
    assert (report["outcome"], report["rule"]) == ("fail", "foreign_kernel"), report


MANY = "for _ in range(200): x.view(-1)\n"


def test_who_uses_more_functions_than_are_watched_gets_nothing_for_what_follows(tmp_path: Path) -> None:
    """Else many that do nothing would hide those that compute where only the profiler sees them."""
    with Rig(tmp_path, child_prelude="import launches\nlaunches.FUNCTIONS_MAX = 100") as rig:
        child = rig.child()
        tasks = {RELU: (child, rig.register(child, RELU))}
        honest = HONEST["plain"][1]
        hidden = CHEATS["torch's functions are switched off"][2]
        assert judged(rig, tasks, RELU, honest)["outcome"] == "pass"
        for body in (MANY + hidden, MANY + honest):
            report = judged(rig, tasks, RELU, body)
            assert (report["outcome"], report["rule"]) == ("fail", "foreign_kernel"), report
            assert "more than 8,192 of torch's functions" in report["error"]["text"]


def test_what_a_call_raises_passes_as_it_is(rig: Rig, tasks: Any) -> None:
    """An exception may run the candidate's code when it is looked at: here one that ends the process."""
    body = (
        "def end(e): raise SystemExit(3)\n"
        "kind = type('Kind', (type,), {'__name__': property(end)})\n"
        "raise kind('Own', (Exception,), {'__traceback__': property(end)})"
    )
    child, spec = tasks[RELU]
    report = rig.judge(child, spec, RELU, candidate(body))["tiny"]
    assert (report["outcome"], report["class"]) == ("fail", "crash"), report


def test_triton_looks_the_same_whether_launches_are_observed_or_not(rig: Rig, tasks: Any) -> None:
    body = (
        "import triton.runtime.interpreter as i\n"
        "seen = (i.InterpretedFunction.run, i.InterpretedFunction.run.__module__)\n"
        "if getattr(self, 'seen', seen) != seen or seen[1] != i.__name__: return torch.zeros_like(x)\n"
        "self.seen = seen\n"
        "y = torch.empty_like(x)\nrun(relu_kernel, x, y)\nreturn y"
    )
    report = judged(rig, tasks, RELU, body)
    assert report["outcome"] == "pass" and report["detail"]["evidence"]["coverage"] == 1, report


def test_who_fails_on_later_inputs_has_failed(rig: Rig, tasks: Any) -> None:
    body = (
        "self.calls = getattr(self, 'calls', 0) + 1\n"
        "if self.calls > 2: raise RuntimeError('tired')\n"
        "y = torch.empty_like(x)\nrun(relu_kernel, x, y)\nreturn y"
    )
    report = judged(rig, tasks, RELU, body, variations={"count": 1, "value": False, "shape": False, "dtype": False})
    assert (report["outcome"], report["class"]) == ("fail", "launch"), report


# --- on a GPU ---

LARGE = ("N = 96", "N = 2048"), ("torch.randn(64, N)", "torch.randn(2048, N)")


def enlarged(source: str) -> str:
    for small, large in LARGE:
        source = source.replace(small, large)
    return source


@pytest.fixture(scope="module")
def gpu_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    if not torch.cuda.is_available():
        pytest.skip("gpu: no GPU on this machine")
    with Rig(tmp_path_factory.mktemp("gpu"), device=first_gpu()) as found:
        yield found


@pytest.fixture(scope="module")
def gpu_tasks(gpu_rig: Rig) -> dict[str, tuple[str, dict[str, Any]]]:
    found = {}
    for source in (RELU, PRODUCT, ROWS):
        child = gpu_rig.child()
        found[source] = (child, gpu_rig.register(child, enlarged(source)))
        assert "refused" not in found[source][1], found[source]
    return found


ROWS_OF_GPU: dict[str, tuple[str, str, str, str | None]] = {
    "plain": (RELU, "strict", HONEST["plain"][1], None),
    "partial sums that torch adds up": (ROWS, "strict", HONEST["partial sums that torch adds up"][1], None),
    "a library product, then a kernel": (
        PRODUCT, "hybrid", "t = x @ self.weight\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y", None,
    ),
    "a captured graph": (
        RELU, "strict",
        "if self.kept is None:\n"
        "    self.x, self.y = torch.empty_like(x), torch.empty_like(x)\n"
        "    run(relu_kernel, self.x, self.y)\n"
        "    torch.cuda.synchronize()\n"
        "    self.kept = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(self.kept):\n"
        "        run(relu_kernel, self.x, self.y)\n"
        "self.x.copy_(x)\nself.kept.replay()\nreturn self.y.clone()",
        None,
    ),
    "a library product under strict": (
        PRODUCT, "strict", CHEATS["a library product under strict"][2], "foreign_kernel",
    ),
    "torch computes, the kernel copies": (
        RELU, "strict", CHEATS["torch computes, the kernel copies"][2], "foreign_kernel",
    ),
    "an operator of its own, in which torch computes and the kernel copies": (
        RELU, "strict",
        "def relu(x: torch.Tensor) -> torch.Tensor:\n"
        "    t = torch.relu(x)\n    y = torch.empty_like(x)\n    run(copy_kernel, t, y)\n    return y\n"
        "if type(self).__dict__.get('op') is None:\n"
        "    type(self).op = torch.library.custom_op('mine::hidden', relu, mutates_args=())\n"
        "return self.op(x)", "foreign_kernel",
    ),
    "torch's elementwise work under hybrid": (
        RELU, "hybrid", CHEATS["torch's elementwise work under hybrid"][2], "foreign_kernel",
    ),
    "a decoy": (RELU, "strict", CHEATS["torch computes, the kernel writes what nobody reads"][2], "decoy"),
    "torch in all calls before the evidence pass": (
        RELU, "strict",
        "self.turn = getattr(self, 'turn', 0) + 1\ny = torch.empty_like(x)\n"
        "if self.turn <= 4:\n    run(copy_kernel, torch.relu(x), y)\nelse:\n    run(relu_kernel, x, y)\nreturn y",
        "foreign_kernel",
    ),
    "weights that a model's first call prepares": (
        PRODUCT, "hybrid",
        "if getattr(self, 'kept', None) is None:\n    self.kept = (self.weight * 2) / 2\n"
        "t = x @ self.kept\ny = torch.empty_like(t)\nrun(copy_kernel, t, y)\nreturn y", None,
    ),
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("name", ROWS_OF_GPU)
def test_records_of_a_gpu_decide(gpu_rig: Rig, gpu_tasks: Any, name: str) -> None:
    task, rules, body, rule = ROWS_OF_GPU[name]
    body = body.replace("[(64,)]", "[(2048,)]")
    child, spec = gpu_tasks[task]
    counted = {"count": 2, "value": False, "shape": False, "dtype": False}
    found = gpu_rig.judge(
        child, spec, enlarged(task), candidate(body), evidence=True, rules=policy(rules, variations=counted)
    )
    assert "full" in found, found
    evidence = found["full"]["detail"]["evidence"]
    print(name, {key: evidence[key] for key in ("coverage", "own_ms", "all_ms", "foreign", "decoys", "flags", "why")})
    assert (found["full"]["outcome"], found["full"]["rule"]) == ("pass" if rule is None else "fail", rule), found
    assert evidence["method"] == "cupti" and evidence["lost"] == 0, evidence
    assert evidence["all_ms"] > 0 and (rule == "decoy" or evidence["coverage"] > 0.05), evidence
    assert not {"evidence_refused", "no_evidence"} & set(evidence["flags"]), evidence


@pytest.mark.gpu
def test_time_is_not_credited_below_that_of_the_kernels(gpu_rig: Rig, gpu_tasks: Any) -> None:
    child, spec = gpu_tasks[RELU]
    found = gpu_rig.judge(
        child, spec, enlarged(RELU), candidate(HONEST["plain"][1]), stages=("full", "timing"), evidence=True
    )
    detail = found["timing"]["detail"]
    evidence = detail["evidence"]
    print("timing", evidence["own_ms"], sorted(detail["candidate_ns"])[::10], evidence["flags"])
    assert found["timing"]["outcome"] == "pass" and evidence["coverage"] > 0.95, found["timing"]
    assert min(detail["candidate_ns"]) >= 0.5e6 * evidence["own_ms"]
    assert "held_to_kernel_time" not in evidence["flags"], evidence


@pytest.mark.gpu
def test_whom_full_catches_is_not_timed(gpu_rig: Rig, gpu_tasks: Any) -> None:
    """Its calls in `timing` would fail: that is no way around the evidence."""
    child, spec = gpu_tasks[RELU]
    body = "self.n = getattr(self, 'n', 0) + 1\nif self.n > 40: raise RuntimeError('enough')\n"
    cheat = body + CHEATS["torch computes, the kernel writes what nobody reads"][2]
    found = gpu_rig.judge(child, spec, enlarged(RELU), candidate(cheat), stages=("full", "timing"), evidence=True)
    assert (found["full"]["class"], found["full"]["rule"]) == ("policy", "foreign_kernel"), found
    assert "timing" not in found and found["full"]["detail"]["evidence"]["calls"] == 5
