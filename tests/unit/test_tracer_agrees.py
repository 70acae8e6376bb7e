"""A plan, replayed, computes what the module computed: random modules of views, copies and in-place operators."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import tracing
from executor import steps
from shared import plan

SIZE = 6
STATEMENTS = (
    "{new} = {a}.t()",
    "{new} = {a}[:, :]",
    "{new} = {a}.clone()",
    "{new} = {a} * 0.5 + {b}",
    "{new} = torch.empty_like({a}).copy_({b})",
    "{new} = {a}.contiguous()",
    "{new} = {a}.detach().mul_(0.5)",
    "{new} = {a}.data.add_(1)",
    "{new} = torch.cat([{a}, {b}], 0)[1:7]",
    "{new} = {a}.unsqueeze(0).expand(2, 6, 6)[1]",
    "{new} = {a}.flip(0).tril()",
    "{new} = torch.stack({a}.unbind(1))",
    "{new} = {a}.view(4, 9).reshape(6, 6) if {a}.is_contiguous() else {a}",
    "{new} = torch.tensor([[0.5], [1.0], [2.0], [0.25], [3.0], [1.5]], device={a}.device) * {a}",
    "{new} = {a} @ {b}",
    "{new} = {a}.to(torch.float16).to(torch.float32)",
    "{new} = self.layer({a})",
    "{new} = {a} * {b}.sum().item()",
    "{a}.add_({b})",
    "{a}[1:3].mul_(2)",
    "{a}[:, 2] = {b}[:, 3]",
    "{a}.t_()",
    "{a}.transpose_(0, 1)",
    "{a}.unsqueeze_(0).squeeze_(0)",
    "{a}.masked_fill_({b} > 0.5, 0.25)",
    "self.buffer.copy_({a}); {new} = self.buffer * 1",
    "self.weight.mul_(1.25); {new} = self.weight + {a}",
    "self.weight.data = self.weight.data.t().contiguous()",
)
CLASS = """
class ModelNew(nn.Module):
    def __init__(self, *given):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6))
        self.layer = nn.Linear(6, 6)
        self.register_buffer("buffer", torch.zeros(6, 6))
        self.packed = None
    def forward(self, x, y):
        if self.packed is None:
            self.packed = self.weight.t().contiguous() + 1
        v0 = x
        v1 = y
        v2 = self.packed.clone()
"""


def module(seed: int) -> str:
    chance = random.Random(seed)
    names = ["v0", "v1", "v2"]
    rows = []
    for _ in range(chance.randint(3, 12)):
        a, b = chance.choice(names), chance.choice(names)
        statement = chance.choice(STATEMENTS)
        new = f"v{len(names)}"
        rows.append("        " + statement.format(new=new, a=a, b=b))
        if "{new}" in statement:
            names.append(new)
    return tracing.HEAD + CLASS + "\n".join(rows) + f"\n        return {', '.join(names[-3:])}, x\n"


def inputs(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(SIZE, SIZE, generator=generator) * 0.25 for _ in range(2)]


def eager(source: str) -> Any:
    names: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(source, "candidate.py", "exec"), names)
    torch.manual_seed(7)
    model = names["ModelNew"]()
    with torch.no_grad():
        model(*inputs(1))
        return model(*inputs(2))


def _no_launch(*_: Any) -> Any:
    raise AssertionError("there is nothing to launch")


def replayed(trace: plan.Trace) -> Any:
    device = torch.device("cpu")
    values: dict[int, torch.Tensor] = {}
    every = range(plan.TENSORS_MAX)
    torch.manual_seed(7)
    with torch.no_grad():
        for part in (trace.construct, trace.first):
            steps.Program.of(part, every, device, lambda _call: True).run(values, _no_launch, _no_launch)
        given = inputs(2)
        steps.bind(trace.inputs, given, values, "inputs")
        steps.Program.of(trace.steps, every, device, lambda _call: True).run(values, _no_launch, _no_launch)
    return steps.build(trace.output, values)


@pytest.mark.parametrize("seed", range(60))
def test_a_plan_computes_what_its_module_computes(seed: int) -> None:
    source = module(seed)
    found = tracing.traced(source, {"own": tracing.case(inputs(1))})
    assert found.plan is not None, f"{found.refusals}\n{source}"
    wanted = eager(source)
    got = replayed(plan.parse(found.plan).trace("own"))
    for left, right in zip(wanted, got, strict=True):
        assert left.shape == right.shape, source
        assert torch.allclose(left, right, atol=1e-4, rtol=1e-3, equal_nan=True), source
