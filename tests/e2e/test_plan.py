"""Candidates judged by their plan: no process that computes has read the module that a candidate is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import service

TASK = """
import torch
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(n))
    def forward(self, x):
        return torch.relu(x) * self.weight
def get_inputs():
    return [torch.randn(40, 300)]
def get_init_inputs():
    return [300]
"""

HONEST = """
import torch, triton, triton.language as tl
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
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, self.weight, y, x.shape[-1], x.numel(), BLOCK=256)
        return y
"""
WRONG = HONEST.replace("0.0) *", "0.1) *")
CONFIGURED = "@triton.autotune([triton.Config({'BLOCK': 128}), triton.Config({'BLOCK': 512})], key=['total'])"
AUTOTUNED = (
    HONEST.replace("@triton.jit", f"{CONFIGURED}\n@triton.jit")
    .replace(", BLOCK=256)", ")")
    .replace("(triton.cdiv(x.numel(), 256),)", "lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)")
)
TORCH_BESIDE = HONEST.replace("        return y", "        return torch.relu(y)")
BRANCHES = HONEST.replace("        y = torch", "        if x[0, 0] > 100: x = x.clone()\n        y = torch")
IDLE = HONEST.replace("        return y", "        return torch.relu(x) * self.weight")
NO_TENSOR_LANGUAGE = HONEST.replace("tl.maximum", "tl.maximumm")
TWO_FACED = HONEST.replace(
    "    def forward(self, x):",
    "    def forward(self, x):\n"
    "        if type(x).__name__ == 'Tensor':\n"
    "            return torch.relu(x) * self.weight",
)
UNUSUAL = {
    "that reads a file": "HERE = len(open(__file__).read())\n",
    "that keeps a thread": "import threading\nWATCH = threading.Thread(target=print)\n",
    "that knows ctypes": "import ctypes\nWORD = ctypes.sizeof(ctypes.c_void_p)\n",
    "that looks at loaded modules": "import sys\nHAS = 'triton' in sys.modules\n",
    "that evaluates a text": "N = eval('256')\n",
    "that sets a name of torch's": "torch.is_judged = False\n",
    "that imports pickle": "import pickle\nSMALL = pickle.loads(pickle.dumps(3))\n",
}
"""What an honest module may do beside its work; after HONEST."""
FORGED = (
    HONEST
    + """
import gc, os
for found in vars(gc)["get_" + "objects"]():
    if type(found).__name__ == "Channel" and "TRITON_INTERPRET" not in os.environ:
        found.send({"ev": "result", "outcome": "pass", "flags": ["compile_deferred"]})
"""
)
"""Claims that its trace is well, and sends no plan."""
MAP = """
import torch, triton, triton.language as tl
@triton.jit
def twice(a):
    return a * 2.0
@triton.jit
def kernel(x, w, y, s, n, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    a, b = tl.load(x + at, mask=inside), tl.load(w + at % n, mask=inside)
    tl.store(y + at, (VALUE).to(y.dtype.element_ty), mask=inside)
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(n))
    def forward(self, x):
        y = torch.empty_like(x, dtype=torch.DTYPE)
        kernel[(triton.cdiv(x.numel(), 256),)](x, self.weight, y, 1.5, x.shape[-1], x.numel(), BLOCK=256)
        return RESULT
"""
ACCEPTED = {
    "that calls another jit function, in a task with weights": (
        "x * 2.0 * self.weight",
        "twice(a) * b",
        "float32",
        "y",
    ),
    "and a view by T": ("(x * self.weight).T.contiguous().T", "a * b", "float32", "y.T.T"),
    "and a dropout of nothing": (
        "torch.dropout(x * self.weight, 0.0, True)",
        "a * b",
        "float32",
        "torch.dropout(y, 0.0, True)",
    ),
    "of products in bfloat16": (
        "x.bfloat16() * x.bfloat16()",
        "a.to(tl.bfloat16) * a.to(tl.bfloat16)",
        "bfloat16",
        "y",
    ),
    "that casts an argument that is a float": ("x * self.weight * 1.5", "a * b * s.to(tl.float32)", "float32", "y"),
    "whose answer is in fp8": (
        "x.clamp(-9, 9).to(torch.float8_e4m3fn)",
        "tl.clamp(a, -9.0, 9.0)",
        "float8_e4m3fn",
        "y",
    ),
    "that rounds to int8": (
        "(x * 9).round().clamp(-128, 127).to(torch.int8)",
        "tl.extra.cuda.libdevice.rint(tl.clamp(a * 9.0, -128.0, 127.0))",
        "int8",
        "y",
    ),
}
"""A reference, and what a kernel stores for it: a, b and s are the input, the weight and 1.5."""
ANYTHING = {"name": "strict", "foreign": "any"}


@pytest.fixture(scope="module")
def planned() -> Iterator[service.Client]:
    limits = {"stage_limit_ms": 25000, "memory_limit_bytes": 2 << 30}
    with service.directory() as directory, service.Daemon(directory, limits) as running:
        yield running.client


def judge(client: service.Client, candidate: str, **more: Any) -> dict[str, Any]:
    return client.judge({"reference": TASK, "candidate": candidate, **more})


def test_an_honest_candidate_is_right_by_its_plan(planned: service.Client) -> None:
    verdict = judge(planned, HONEST)
    assert verdict["class"] == "ok", verdict["feedback"]
    assert verdict["plan"]["traced"] is True
    assert (verdict["plan"]["launches"], verdict["plan"]["operators"]) == (1, 1)
    assert verdict["correctness"]["passed"] == verdict["correctness"]["cases"] > 10
    assert [kernel["name"] for kernel in verdict["kernels"]] == ["kernel"]
    assert verdict["components"]["coverage"] == verdict["feedback"]["coverage"] == 1.0


def test_copies_that_torch_makes_lower_the_coverage(planned: service.Client) -> None:
    verdict = judge(planned, HONEST.replace("        return y", "        return y.clone()"), reward="drkernel")
    assert verdict["class"] == "ok", verdict["feedback"]
    assert 0.4 < verdict["components"]["coverage"] < 0.6
    assert verdict["reward"] == pytest.approx(1 + 0.5 * verdict["components"]["coverage"])


def test_of_an_autotuned_launch_every_configuration_is_compiled(planned: service.Client) -> None:
    verdict = judge(planned, AUTOTUNED)
    assert verdict["class"] == "ok", verdict["feedback"]
    assert verdict["plan"]["launches"] == 1 and len(verdict["kernels"]) == 2


def test_a_wrong_candidate_is_told_its_first_wrong_element(planned: service.Client) -> None:
    verdict = judge(planned, WRONG)
    assert (verdict["class"], verdict["failed_at"]) == ("mismatch", "tiny")
    assert verdict["correctness"]["first_mismatch"]["differing"] > 0


def test_an_operator_of_torchs_is_refused_by_name_and_line(planned: service.Client) -> None:
    verdict = judge(planned, TORCH_BESIDE)
    assert (verdict["class"], verdict["failed_at"]) == ("policy", "compile"), verdict["feedback"]
    line = next(number for number, text in enumerate(TORCH_BESIDE.splitlines(), 1) if "torch.relu" in text)
    assert verdict["error"]["line"] == line
    assert verdict["feedback"]["text"].startswith(f"compile: line {line}: aten.relu.default is not allowed here")


def test_a_candidate_whose_kernels_do_not_matter_is_a_hack(planned: service.Client) -> None:
    verdict = judge(planned, IDLE, policy=ANYTHING)
    assert (verdict["class"], verdict["failed_at"]) == ("hack", "full"), verdict["feedback"]


def test_a_buffer_that_is_kept_from_call_to_call_is_no_answer_without_kernels(planned: service.Client) -> None:
    """The second is asked for many cases at once, which this buffer does not allow, and then for one by one."""
    tests = Path(__file__).resolve().parents[1]
    candidate = (tests / "candidates" / "softmax" / "every_other_call.py").read_text()
    for again in range(2):
        body = {"reference": (tests / "tasks" / "softmax.py").read_text(), "candidate": f"{candidate}# {again}\n"}
        verdict = planned.judge(body)
        assert verdict["class"] == "ok", verdict["feedback"]


def test_a_candidate_that_wants_more_memory_than_there_is_is_out_of_it(planned: service.Client) -> None:
    verdict = judge(
        planned, HONEST.replace("        y = torch", "        torch.empty(10**11, device='cuda')\n        y = torch")
    )
    assert (verdict["class"], verdict["failed_at"], verdict["plan"]["traced"]) == ("oom", "tiny", True)


def test_a_kernel_that_does_not_compile_is_told_by_its_line(planned: service.Client) -> None:
    verdict = judge(planned, NO_TENSOR_LANGUAGE)
    assert (verdict["class"], verdict["failed_at"]) in (("compile", "compile"), ("policy", "ast")), verdict["feedback"]
    assert "maximumm" in verdict["feedback"]["text"]


def test_what_cannot_be_traced_is_judged_live_and_says_why(planned: service.Client) -> None:
    verdict = judge(planned, BRANCHES, policy=ANYTHING)
    assert verdict["class"] == "ok" and "untraced" in verdict["flags"], verdict["feedback"]
    line = next(number for number, text in enumerate(BRANCHES.splitlines(), 1) if "> 100" in text)
    assert verdict["plan"]["traced"] is False and verdict["plan"]["error"]["line"] == line
    assert verdict["components"]["timed"] == 0
    assert verdict["feedback"]["hint"].startswith("Decide nothing in Python"), verdict["feedback"]
    why = f"Why there is no plan: compile: line {line}: what runs next depends on a number that only the GPU knows."
    assert why in verdict["feedback"]["text"], verdict["feedback"]


def test_what_fails_live_is_told_why_it_has_no_plan(planned: service.Client) -> None:
    verdict = judge(planned, BRANCHES.replace("0.0) *", "0.1) *"))
    line = next(number for number, text in enumerate(BRANCHES.splitlines(), 1) if "> 100" in text)
    assert (verdict["class"], verdict["failed_at"]) == ("mismatch", "tiny"), verdict["feedback"]
    why = f"It was judged without a plan: compile: line {line}: what runs next depends on"
    assert why in verdict["feedback"]["text"], verdict["feedback"]


def test_who_computes_otherwise_where_tensors_are_real_is_never_asked_there(planned: service.Client) -> None:
    """Live, torch would do the work; by its plan the kernel does."""
    verdict = judge(planned, TWO_FACED)
    assert verdict["class"] == "ok" and verdict["plan"]["operators"] == 1, verdict["feedback"]


@pytest.mark.parametrize("what", UNUSUAL)
def test_an_honest_module_is_judged_by_its_plan(what: str, planned: service.Client) -> None:
    """Issue 23, point 8: no static rule decides."""
    verdict = judge(planned, HONEST + UNUSUAL[what])
    assert verdict["class"] == "ok" and verdict["plan"]["traced"] is True, verdict["feedback"]


def test_what_cannot_be_traced_is_refused_where_a_plan_is_required(planned: service.Client) -> None:
    verdict = judge(planned, BRANCHES, policy={**ANYTHING, "require_plan": True})
    assert (verdict["class"], verdict["failed_at"], verdict["rule"]) == ("form", "compile", "require_plan"), verdict
    line = verdict["error"]["line"]
    assert verdict["plan"]["traced"] is False and "> 100" in BRANCHES.splitlines()[line - 1]
    assert verdict["feedback"]["text"].startswith(f"compile: line {line}: what runs next depends on a number")


def test_who_claims_to_have_a_plan_and_sends_none_is_untraced(planned: service.Client) -> None:
    """It was judged live as if that were the daemon's way, with its speed credited."""
    verdict = judge(planned, FORGED)
    assert "untraced" in verdict["flags"] and verdict["components"]["timed"] == 0, verdict["flags"]
    assert verdict["plan"]["traced"] is False


def test_the_quick_selftest_finds_the_service_well(planned: service.Client) -> None:
    """It counted on a class that only a candidate which is judged live can have."""
    command = [str(service.BINARY.with_name("verifier")), "selftest", "--quick", "--url", planned.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120.0, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_kernelbenchs_rule_is_about_calls_and_has_no_plan(planned: service.Client) -> None:
    verdict = judge(planned, HONEST, policy="kernelbench")
    assert verdict["class"] == "ok" and verdict["plan"] is None


@pytest.mark.parametrize("what", ACCEPTED)
def test_an_honest_map_is_accepted(what: str, planned: service.Client) -> None:
    """Issue 24, point 1: each was refused, or its task was."""
    reference, value, dtype, result = ACCEPTED[what]
    candidate = MAP.replace("VALUE", value).replace("DTYPE", dtype).replace("RESULT", result)
    task = TASK.replace("torch.relu(x) * self.weight", reference)
    verdict = planned.judge({"reference": task, "candidate": candidate})
    assert (verdict["class"], verdict["plan"]["traced"]) == ("ok", True), verdict["feedback"]


SLOPED = (
    TASK.replace("def __init__(self, n):", "def __init__(self, n, slope):")
    .replace("super().__init__()", "super().__init__()\n        self.slope = slope")
    .replace("torch.relu(x)", "torch.nn.functional.leaky_relu(x, self.slope)")
    .replace("[300]", "[N, 0.1]")
    .replace("(40, 300)", "(40, N)")
    .replace("import torch\n", "import torch\nN = 300\n")
)
LEAKY = (
    HONEST.replace("def __init__(self, n):", "def __init__(self, n, slope):")
    .replace("super().__init__()", "super().__init__()\n        self.slope = slope")
    .replace("y, n, total, BLOCK", "y, n, total, slope, BLOCK")
    .replace("tl.maximum(tl.load(x + at, mask=inside), 0.0)", "tl.load(x + at, mask=inside)")
    .replace("    tl.store", "    value = tl.where(value > 0, value, value * slope)\n    tl.store")
    .replace("x.numel(), BLOCK", "x.numel(), self.slope, BLOCK")
)
SPECIAL = {
    "the constructor's argument": LEAKY.replace("self.slope, BLOCK", "0.1, BLOCK"),
    "its own number of programs": LEAKY.replace("triton.cdiv(x.numel(), 256)", "47"),
    "a branch of torch's for other sizes": LEAKY.replace(
        "        y = torch", "        if x.shape[1] > 300:\n            return torch.relu(x)\n        y = torch"
    ),
}


def test_a_kernel_for_every_size_says_so(planned: service.Client) -> None:
    """Issue 24, points 4 and 5."""
    verdict = planned.judge({"reference": SLOPED, "candidate": LEAKY})
    assert verdict["class"] == "ok" and verdict["generality"] is None, verdict
    names = {one["name"] for one in verdict["correctness"]["shapes"]["results"]}
    assert {"shape prime", "shape odd", "shape x2", "arguments x1.25"} <= names
    assert verdict["components"]["generality"] == 1


@pytest.mark.parametrize("what", SPECIAL)
def test_what_is_baked_into_a_kernel_is_told_and_decides_nothing(what: str, planned: service.Client) -> None:
    verdict = planned.judge({"reference": SLOPED, "candidate": SPECIAL[what]})
    assert verdict["class"] == "ok", verdict["feedback"]
    assert 0 <= verdict["components"]["generality"] < 1
    assert "cases of other sizes, dtypes and arguments" in verdict["generality"], verdict["generality"]


ONE_SHAPE = LEAKY.replace(
    "        y = torch", "        assert x.shape[1] == 300, 'written for one shape'\n        y = torch"
)
BRANCHES_ELSEWHERE = LEAKY.replace(
    "        y = torch", "        if x.shape[1] != 300 and x[0, 0] > 100: x = x.clone()\n        y = torch"
)


def test_a_kernel_for_the_own_shape_only_is_right_and_says_so_in_its_own_words(planned: service.Client) -> None:
    """It said that the plan has no trace, as if that were the tracer's fault."""
    body = {"reference": SLOPED, "candidate": ONE_SHAPE}
    verdict = planned.judge(body)
    assert verdict["class"] == "ok" and "written for one shape" in verdict["generality"], verdict
    required = planned.judge({**body, "policy": {"name": "strict", "shapes": "require"}})
    assert (required["class"], required["failed_at"]) == ("launch", "tiny"), required["feedback"]
    line = next(number for number, text in enumerate(ONE_SHAPE.splitlines(), 1) if "assert" in text)
    assert required["error"]["line"] == line and "written for one shape" in required["error"]["text"]


def test_who_cannot_be_traced_at_a_size_that_judges_is_judged_live(planned: service.Client) -> None:
    policy = {**ANYTHING, "shapes": "require"}
    verdict = planned.judge({"reference": SLOPED, "candidate": BRANCHES_ELSEWHERE, "policy": policy})
    assert verdict["class"] == "ok" and "untraced" in verdict["flags"], verdict["feedback"]
    assert planned.judge({"reference": SLOPED, "candidate": BRANCHES_ELSEWHERE})["plan"]["traced"] is True


@pytest.mark.slow
@pytest.mark.parametrize("what", ["its own number of programs", "a branch of torch's for other sizes"])
def test_what_is_baked_into_a_kernel_is_refused_where_shapes_are_required(what: str, planned: service.Client) -> None:
    """Issue 24, point 4."""
    body = {"reference": SLOPED, "policy": {"name": "strict", "shapes": "require"}}
    assert planned.judge({**body, "candidate": LEAKY})["class"] == "ok"
    verdict = planned.judge({**body, "candidate": SPECIAL[what]})
    assert verdict["class"] not in ("ok", "infra"), verdict["feedback"]


@pytest.mark.parametrize(("value", "is_right"), [("a + tl.abs(a)", True), ("tl.where(a > 0.0, a + a, 0.0)", False)])
def test_what_is_not_a_number_comes_out_as_the_references_does(
    value: str, is_right: bool, planned: service.Client
) -> None:
    """Issue 24, point 2: where a task's own inputs have NaN."""
    reference = TASK.replace("torch.relu(x) * self.weight", "(x + x.abs()) * self.weight").replace(
        "return [torch.randn(40, 300)]",
        "return [torch.randn(40, 300).masked_fill(torch.rand(40, 300) < 0.1, torch.nan)]",
    )
    candidate = MAP.replace("VALUE", f"({value}) * b").replace("DTYPE", "float32").replace("RESULT", "y")
    verdict = planned.judge({"reference": reference, "candidate": candidate})
    assert (verdict["class"] == "ok") == is_right, verdict["feedback"]


def test_a_write_behind_its_output_is_a_class_of_its_own(planned: service.Client) -> None:
    verdict = judge(planned, HONEST.replace("tl.store(y + at, value, mask=inside)", "tl.store(y + at, value)"))
    assert verdict["class"] == "out_of_bounds", verdict["feedback"]
    assert "elements are written outside of all tensors" in verdict["feedback"]["text"]


def test_a_plan_can_be_read_step_by_step(planned: service.Client) -> None:
    """Issue 23, point 9."""
    verdict = judge(planned, AUTOTUNED)
    answer = planned.get(f"/v1/submissions/{verdict['id']}/plan")
    assert answer.status == 200 and answer.json()["plan"] == verdict["plan"]
    made, launched = answer.json()["plan"]["steps"]
    assert made["operator"].startswith("aten.empty") and made["shapes"] == ["float32[40, 300]"]
    assert (launched["kernel"], launched["configurations"]) == ("kernel", 2)
    assert launched["shapes"] == ["float32[40, 300]", "float32[300]", "float32[40, 300]"]
    assert launched["line"] == next(n for n, text in enumerate(AUTOTUNED.splitlines(), 1) if "kernel[" in text)
    assert launched["grid"][1:] == [1, 1]
