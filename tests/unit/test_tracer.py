"""The tracer against small modules: tests/unit/plans/NAME.txt has a module, a line of dashes and the plan it becomes.

Run as a program, this file writes the plans anew; read what changed before it is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import tracing
from shared import operators, plan
from torch.autograd.function import FunctionCtx
from tracer import gradients
from tracer import trace as tracer_trace
from tracer.recorder import Recorder

PLANS = Path(__file__).parent / "plans"
DASHES = "----\n"
FIRST = 11
"""The line of a model's text where its forward begins."""


def result(source: str) -> str:
    found = tracing.traced(source, {"own": tracing.case([torch.empty(8, 64)])})
    if found.plan is not None:
        return tracing.text(plan.parse(found.plan))
    return "".join(f"{one.kind}: {str(one).splitlines()[-1]}, line {one.line}\n" for one in found.refusals)


@pytest.mark.parametrize("path", sorted(PLANS.iterdir()), ids=lambda path: path.stem)
def test_a_module_becomes_this_plan(path: Path) -> None:
    source, _, expected = path.read_text().partition(DASHES)
    assert result(source) == expected


def model(forward: str, construct: str = "pass", more: str = "") -> str:
    def indented(body: str) -> str:
        return "\n".join(f"        {line}" for line in body.strip("\n").split("\n"))

    return (
        f"{tracing.HEAD}{more}\nclass ModelNew(nn.Module):\n    def __init__(self, *given):\n"
        f"        super().__init__()\n{indented(construct)}\n    def forward(self, x):\n{indented(forward)}\n"
    )


def of(source: str, *more: Any, **cases: Any) -> Any:
    return tracing.traced(source, {"own": tracing.case([torch.empty(8, 64), *more]), **cases})


@pytest.mark.parametrize("in_turn_s", [60.0, 0.0], ids=["in one fork", "in a fork each"])
@pytest.mark.parametrize(
    ("place", "key"),
    [("{}", "tuple(x.shape)"), ("vars(torch).setdefault('left', {})", "0")],
    ids=["in the module", "outside of it"],
)
def test_each_case_is_traced_without_what_another_left(
    place: str, key: str, in_turn_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracer_trace, "IN_TURN_S", in_turn_s)
    source = model(
        f"key = {key}\nif key not in CACHE:\n    CACHE[key] = torch.zeros(len(CACHE) + 1, device='cuda')\n"
        "return x.view(-1), CACHE[key]",
        more=f"CACHE = {place}\n",
    )
    shapes = [tracing.case([torch.empty(2, size)]) for size in (3, 5, 7)]
    found = of(source, tiny=tracing.case([torch.empty(4, 4)]), shapes=shapes)
    assert found.refusals == ()
    traces = plan.parse(found.plan).traces
    assert [trace.case for trace in traces] == ["own", "tiny", "shape0", "shape1", "shape2"]
    assert [trace.output[1].shape for trace in traces] == [(1,)] * 5  # type: ignore[index, union-attr]


def test_a_case_that_raises_is_left_out_and_named() -> None:
    found = of(model("assert x.shape[0] == 8\nreturn x + 1"), tiny=tracing.case([torch.empty(4, 4)]))
    parsed = plan.parse(found.plan)
    assert [trace.case for trace in parsed.traces] == ["own"]
    assert parsed.refusals == (plan.Refusal("tiny", "call", FIRST, "AssertionError"),)
    assert [(one.case, one.kind, one.line) for one in found.refusals] == [("tiny", "call", FIRST)]


COPIES = """
import copy
layer = nn.Linear(64, 64)
self.copies = nn.ModuleList([copy.deepcopy(layer), copy.deepcopy(layer)])
self.drawn = nn.Parameter(torch.empty(64, 64))
nn.init.trunc_normal_(self.drawn, std=0.02)
"""


def test_a_constructor_that_copies_and_draws_within_bounds_is_traced() -> None:
    found = of(model("return x + 0", COPIES))
    assert found.plan is not None, found.refusals
    names = [name for name, _ in plan.parse(found.plan).trace("own").parameters]
    assert names == ["drawn", "copies.0.weight", "copies.0.bias", "copies.1.weight", "copies.1.bias"]


@pytest.mark.parametrize("device", ["0", "torch.cuda.current_device()", "torch.device(0)", "x.get_device()"])
def test_a_number_is_a_device(device: str) -> None:
    found = of(model(f"return torch.zeros(x.shape, device={device}).to({device})", more="D = torch.device(0)"))
    assert found.plan is not None, found.refusals


def test_a_constructors_own_seed_is_in_the_plan() -> None:
    """Else what it draws, and gives no name, would not be the reference's."""
    found = of(model("return x @ self.drawn", "torch.manual_seed(3)\nself.drawn = torch.randn(64, 8)"))
    construct = plan.parse(found.plan).trace("own").construct
    assert [getattr(step, "op", None) for step in construct] == [plan.SEED, "aten.randn.default"]


def test_a_seed_that_torch_refuses_is_refused_as_by_torch() -> None:
    assert [one.kind for one in of(model("return x", "torch.manual_seed(1 << 64)")).refusals] == ["construct"]


def test_a_limit_that_is_a_number_of_numpys_is_a_comparison() -> None:
    found = of(model("import numpy\nreturn x / max(x.abs().max().item(), numpy.float32(1))"))
    assert [one.kind for one in found.refusals] == ["untraced"]


def test_a_limit_of_a_number_of_the_gpu_is_no_comparison() -> None:
    found = of(model("return x / max(x.abs().max().item(), 1e-8)"))
    assert found.plan is not None, found.refusals


@pytest.mark.parametrize("where", ["import", "construct"])
def test_a_module_that_hoards_memory_is_out_of_it(where: str) -> None:
    hoard = "raise MemoryError"
    source = model("return x", hoard) if where == "construct" else model("return x", more=hoard)
    assert [one.kind for one in of(source).refusals] == ["oom"]


def test_the_tasks_own_case_that_raises_leaves_no_plan() -> None:
    found = of(model("assert x.shape[0] == 4\nreturn x + 1"), tiny=tracing.case([torch.empty(4, 4)]))
    assert found.plan is None
    assert [(one.case, one.kind) for one in found.refusals] == [("own", "call")]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("raise SystemExit(0)", "import"),
        ("import torch\n1 / 0", "import"),
        ("def (", "import"),
        ("x = 1", "construct"),
        (model("return x", "raise KeyboardInterrupt"), "construct"),
        (model("raise GeneratorExit"), "call"),
    ],
)
def test_what_the_candidate_raises_is_its_own_failure(source: str, kind: str) -> None:
    found = of(source)
    assert found.plan is None
    assert [one.kind for one in found.refusals] == [kind]


@pytest.mark.parametrize(
    ("source", "part", "line"),
    [
        (model("while x.shape[0]:\n    pass\nreturn x"), "forward()", FIRST),
        (model("return x", "while True:\n    torch.ones(4)"), "__init__()", FIRST - 2),
        (f"{tracing.HEAD}while True:\n    pass\n", "the import", 5),
    ],
)
def test_a_loop_without_an_end_is_named_with_its_line(
    source: str, part: str, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 28: an endless loop in `forward` was told as a compilation that did not finish."""
    monkeypatch.setattr(tracer_trace, "TRACE_CPU_S", 1)
    (refusal,) = of(source, tiny=tracing.case([torch.empty(4, 4)])).refusals
    assert (refusal.kind, refusal.reason) == ("timeout", f"{part} ran for over 1 s while it was traced")
    assert refusal.line in (line, line + 1)


def test_a_candidate_that_catches_the_refusal_gets_no_plan() -> None:
    draw = "torch.randn(3, generator=torch.Generator())"
    found = of(model(f"try:\n    return {draw}\nexcept BaseException:\n    return x"))
    assert found.plan is None
    assert "Generator" in found.refusals[0].reason


@pytest.mark.parametrize(
    ("forward", "reason", "line"),
    [
        ("return x.numpy()", "numpy", FIRST),
        ("y = x[0, :2] + 1\nreturn y.tolist()", "the output has a number that only the GPU knows", 0),
        ("return 1 if x.any() else 2", "only the GPU knows", FIRST),
        ("return x.masked_select(x > 0)[: x.nonzero().shape[0]]", "no number that a plan can name", FIRST),
        ("return object()", "the output has a object, which cannot be traced", 0),
        ("g = torch.cuda.CUDAGraph()\nreturn x", "CUDA graphs", FIRST),
        ("return x.to_sparse()", "_to_sparse", FIRST),
        ("return x.to('meta')", "the device meta", FIRST),
        ("return torch.full((1,), x.data_ptr())", "the address of a tensor", FIRST),
        ("with torch.enable_grad():\n    (x * 1).requires_grad_().register_hook(print)", "register_hook()", FIRST + 1),
    ],
)
def test_what_cannot_be_traced_has_its_reason_and_line(forward: str, reason: str, line: int) -> None:
    found = of(model(forward))
    assert found.plan is None
    assert (found.refusals[0].kind, found.refusals[0].line) == ("untraced", line)
    assert reason in found.refusals[0].reason


TUNED = """
import torch, triton, triton.language as tl

@triton.autotune([triton.Config({"B": 64}), triton.Config({"B": 128})], key=["n"])
@triton.jit
def double(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, y, x.numel())
        return y[: HOW]
"""


def test_which_configuration_is_best_is_not_known_to_a_trace() -> None:
    """A size of it, in what follows the launch, would be that of another configuration than the one which runs."""
    assert of(TUNED.replace("HOW", "64")).plan is not None
    found = of(TUNED.replace("HOW", 'double.best_config.kwargs["B"]'))
    assert found.plan is None and found.refusals[0].kind == "untraced"
    assert "configuration" in found.refusals[0].reason


def test_a_number_read_before_its_tensor_changed_is_untraced() -> None:
    found = of(model("s = x.sum()\nn = s.item()\ns.zero_()\nreturn x * n"))
    assert found.refusals[0].reason == "the tensor that a number was read from has been written to since"
    assert found.refusals[0].line == FIRST + 3


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("math.ceil(n / 64)", "floordiv(add(63, item(%3)), 64)"),
        ("math.floor(n / 64) + 1", "add(1, floordiv(item(%3), 64))"),
        ("n * n", "mul(item(%3), item(%3))"),
    ],
)
def test_what_is_computed_of_a_number_of_the_gpu_is_in_a_plan(number: str, expected: str) -> None:
    more = "import math\n@triton.jit\ndef put(y):\n    tl.store(y + tl.program_id(0), 1)\n"
    assert expected in result(model(f"n = int(x[0, 0])\nput[({number},)](x)\nreturn x", more=more))


def test_a_number_that_is_an_offset_of_what_a_kernel_writes_is_as_it_was() -> None:
    more = "@triton.jit\ndef put(y, at, n):\n    tl.store(y + at, n)\n"
    body = "y = torch.empty_like(x)\nat = x[0, 0].int().item()\nfor n in range(2):\n    put[(1,)](y, at, n)\nreturn y"
    assert of(model(body, more=more)).plan is not None


COMPOSITES = """
y = x.flatten(0, -2).view_as(x).mT.swapaxes(0, 1)
z = torch.nn.functional.pad(y.type_as(x), (1, 2)).narrow(1, 0, 4).expand_as(torch.empty(8, 4, device='cuda'))
w = torch.hstack((z.ravel().unflatten(0, (4, 8)), torch.zeros(4, 1, device='cuda')))
a, b = w.chunk(2, dim=1)
return a.contiguous(), torch.broadcast_to(b, (2, 4, 4)), x.reshape(-1, 4).movedim(0, 1)
"""


@pytest.mark.parametrize(
    "around",
    [
        "with torch.profiler.record_function('copying'):",
        "if not torch.cuda.is_current_stream_capturing():",
        "with torch.accelerator.device_index(x.device.index):",
        "with torch.cuda.device(torch.accelerator.current_device_index()):",
        "if x.record_stream(torch.cuda.Stream(x.device)) is None:",
    ],
)
def test_what_means_nothing_to_a_plan_is_left_out_of_it(around: str) -> None:
    body = "y = torch.empty_like(x)\n{}\n    y.copy_(x)\nreturn y"
    assert result(model(body.format(around))) == result(model(body.format("if True:")))


COUNTER = "self.norm = torch.nn.BatchNorm1d(64)"


@pytest.mark.parametrize(
    ("used", "is_left"),
    [
        ("", False),
        ("y += self.norm.num_batches_tracked", True),
        ("return y, self.norm.num_batches_tracked", True),
    ],
)
def test_a_count_of_calls_that_nothing_reads_is_left_out_of_a_plan(used: str, is_left: bool) -> None:
    body = f"y = x.clone()\nself.norm.num_batches_tracked += 1\n{used or 'pass'}\nreturn y"
    (trace,) = plan.parse(of(model(body, COUNTER)).plan).traces
    counts = [step for step in trace.steps if isinstance(step, plan.Call) and step.line == FIRST + 1]
    assert bool(counts) is is_left, trace.steps


@pytest.mark.parametrize("block", ["np.int64(64)", "np.float32(0.5)", "np.bool_(True)"])
def test_a_number_of_numpys_is_a_constant(block: str) -> None:
    more = "import numpy as np\n@triton.jit\ndef put(y, B: tl.constexpr):\n    tl.store(y, B)\n"
    found = of(model(f"y = torch.empty_like(x)\nput[(1,)](y, {block})\nreturn y", more=more))
    assert found.plan is not None, found.refusals
    (kernel,) = plan.parse(found.plan).kernels
    assert kernel.constants[0][1] in (64, 0.5, True)


def test_a_member_of_an_enumeration_of_texts_is_its_text() -> None:
    """str() of it is its name, by which a kernel's other branch was compiled."""
    more = "import enum\nclass Kind(str, enum.Enum):\n    ONE = 'one'\n"
    more += "@triton.jit\ndef put(y, KIND: tl.constexpr):\n    tl.store(y, KIND == 'one')\n"
    found = of(model("y = torch.empty_like(x)\nput[(1,)](y, Kind.ONE)\nreturn y", more=more))
    assert found.plan is not None, found.refusals
    (kernel,) = plan.parse(found.plan).kernels
    assert kernel.constants[0][1] == "one"


class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, how: int, y: torch.Tensor) -> Any:
        ctx.set_materialize_grads(how == 1)
        return x / 2, y.bool(), y * how

    @staticmethod
    def backward(ctx: Any, dx: Any, _: Any, dy: Any) -> Any:
        assert isinstance(dx, torch.Tensor | None) and isinstance(dy, torch.Tensor | None)
        return None if dx is None else dx / 2, None, None if dy is None else dy * 3, None


def uneven(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A result of which not all parts have a gradient, one of them twice."""
    a, b, c = (x * y.sin()[:1]).unbind(1)[:3]
    return (a * a + b).half() * c.detach()


GRADIENTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "broadcast": lambda x, y: x[:1] * y + x,
    "views and writes": lambda x, y: (z := x.clone(), z[:, :2].mul_(y[:, :2]), z.t() @ y)[2],
    "norm": lambda x, y: torch.nn.functional.layer_norm(x, (4,), y[0], y[1]),
    "uneven": uneven,
    "a first result": lambda x, y: Halves.apply(x, 1, y)[0],
    "a last result": lambda x, y: Halves.apply(x, 0, y)[2] + y,
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("asked", [(0,), (1,), (0, 1)])
def test_gradients_are_those_of_torchs_own_engine(
    name: str, asked: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FunctionCtx, "set_materialize_grads", gradients.fill)
    torch.manual_seed(0)
    leaves = [torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)]
    found = []
    walk = partial(gradients.run_backward, recorder=Recorder(""))
    for run in (torch.autograd.Variable._execution_engine.run_backward, walk):
        answer = GRADIENTS[name](*leaves)
        given, inputs = torch.full_like(answer, 0.5), tuple(leaves[at] for at in asked)
        found.append(run((answer,), (given,), True, False, inputs, allow_unreachable=True))
        run((answer,), (given,), True, False, (), allow_unreachable=True, accumulate_grad=True)
        run((answer,), (given,), False, False, inputs, allow_unreachable=True, accumulate_grad=True)
        found.append([leaf.grad for leaf in leaves])
        leaves[0].grad = leaves[1].grad = None
    torch.testing.assert_close(found[2:], found[:2], rtol=0, atol=0)


def test_a_gradient_that_nobody_asked_for_is_no_step() -> None:
    body = "with torch.enable_grad():\n    leaf = x.detach().requires_grad_()\n"
    body += "    return torch.autograd.grad(self.layer(leaf) * self.scale, leaf, x)[0]"
    found = of(model(body, "self.layer = nn.Linear(64, 64)\nself.scale = nn.Parameter(torch.ones(8, 1))"))
    steps = plan.parse(found.plan).trace("own").steps
    made = [step.op.split(".")[1] for step in steps if isinstance(step, plan.Call)]
    assert made == ["t", "addmm", "mul", "mul", "t", "mm"]


STORES = """
@triton.jit
def put(y, value):
    tl.store(y, value)
@triton.jit
def fill(y, STORE: tl.constexpr):
    STORE(y, 1.0)
"""


def test_what_a_function_that_is_an_argument_writes_is_written() -> None:
    """A buffer that the first call fills so was left as it was made."""
    body = "if not hasattr(self, 'kept'):\n    self.kept = torch.empty(1, device=x.device)\n"
    body += "    fill[(1,)](self.kept, put)\nreturn x + self.kept"
    found = of(model(body, more=STORES))
    assert found.plan is not None, found.refusals
    assert any(isinstance(step, plan.Launch) for step in plan.parse(found.plan).trace("own").first)


@pytest.mark.parametrize("mode", ["inference_mode", "no_grad"])
def test_operators_are_taken_apart_in_any_mode(mode: str) -> None:
    """Under inference_mode() flatten and its like are one operator for a dispatch mode, and were refused."""
    plain = result(model(COMPOSITES))
    found = of(model(COMPOSITES).replace("    def forward", f"    @torch.{mode}()\n    def forward"))
    assert operators.allowed(plan.parse(found.plan), "movement") == []
    shown = tracing.text(plan.parse(found.plan))
    assert [row.partition(": ")[2] for row in shown.split("\n")] == [
        row.partition(": ")[2] for row in plain.split("\n")
    ]


def test_an_operator_that_the_policy_refuses_has_the_candidates_line() -> None:
    found = of(model("y = x.t()\nreturn torch.softmax(y, 0)"))
    refused = operators.allowed(plan.parse(found.plan), "movement")
    assert [(one.operator, one.line) for one in refused] == [("aten._softmax.default", FIRST + 1)]


if __name__ == "__main__":
    for file in sorted(PLANS.iterdir()):
        text = file.read_text().partition(DASHES)[0]
        file.write_text(text + DASHES + result(text))


COPIED = """
import importlib.util
spec = importlib.util.find_spec("triton.language.extra.libdevice")
copied = importlib.util.module_from_spec(spec)
spec.loader.exec_module(copied)
rsqrt = copied.rsqrt
{more}
@triton.jit
def root(x, y):
    tl.store(y, rsqrt(tl.load(x)))
"""
FORGED = """
def forged(_semantic=None):
    return rsqrt
forged.__module__, forged.__name__ = rsqrt.__module__, rsqrt.__name__
rsqrt = forged
"""


@pytest.mark.parametrize("more", ["", FORGED], ids=["copied", "forged"])
def test_a_function_of_a_second_copy_of_tritons_module_is_that_of_the_first(more: str) -> None:
    """xformers takes what it calls from such a copy. What the name means is for the compiler to say."""
    found = of(model("y = torch.empty_like(x)\nroot[(1,)](x, y)\nreturn y", more=COPIED.format(more=more)))
    if more:
        assert found.plan is None and "the global rsqrt, of type function" in found.refusals[0].reason
    else:
        (function,) = plan.parse(found.plan).functions
        assert dict(function.globals)["rsqrt"] == plan.ObjectRef("triton.language.extra.libdevice.rsqrt")
