"""Every reference is right by its own rule: judged as its own candidate under `strict`, whatever it returns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import rig

REFERENCE = """
import torch
import torch.nn.functional as F
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 32))
    def forward(self, x, *more):
        {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
PLAIN = "torch.randn(96, 64)"
HALF = "torch.randn(96, 64, dtype=torch.bfloat16)"
AGREE = {
    "rounds to int8 by a scale": ("return torch.round(x / 0.1).clamp(-128, 127).to(torch.int8)", PLAIN),
    "quantises rows of bfloat16": (
        "s = x.abs().amax(-1, keepdim=True) / 127; return (x / s).round().to(torch.int8), s",
        HALF,
    ),
    "floors": ("return torch.floor(x * 7).long()", HALF),
    "argmax of a product in bfloat16": ("return (x @ self.weight.to(x.dtype)).argmax(-1)", HALF),
    "routes by the top of a softmax": ("return torch.softmax(x @ self.weight, -1).topk(4, -1)", PLAIN),
    "routes in bfloat16": ("return torch.softmax((x @ self.weight.to(x.dtype)).float(), -1).topk(4, -1)[1]", HALF),
    "finds the nearest code": ("return torch.cdist(x, self.weight.t().repeat(4, 1)).argmin(-1)", PLAIN),
    "compares": ("return x > 0.5, (x @ self.weight) > 0", PLAIN),
    "returns fp8": ("return x.to(torch.float8_e4m3fn), (x * 2).to(torch.float8_e5m2)", PLAIN),
    "takes fp8": ("return x.float() @ self.weight", "torch.randn(96, 64).to(torch.float8_e4m3fn)"),
    "is complex": ("return torch.fft.rfft(x)", PLAIN),
    "is NaN in places": ("return torch.log(x)", PLAIN),
    "is a dictionary with a number": ("return {'b': x * 2, 'a': (x.sum(1), x.shape[0])}", PLAIN),
    "answers with a float": ("return x * 2, x.double().mean().item(), (x > 0).sum().item()", PLAIN),
    "counts integers": (
        "return torch.bincount(x.flatten(), minlength=9), x.sum()",
        "torch.randint(0, 9, (96, 64))",
    ),
    "writes into its input": (
        "x[:, 3] = more[0]; x.mul_(0.5); return x.sum(-1)",
        "torch.randn(96, 64), torch.randn(96)",
    ),
    "is in double precision": ("return torch.cumsum(x, -1)", "torch.randn(96, 64, dtype=torch.float64)"),
    "packs two integers into a byte": (
        "q = (x * 4).round().clamp(-8, 7).to(torch.int8) & 15; return (q[:, ::2] | (q[:, 1::2] << 4)).to(torch.uint8)",
        PLAIN,
    ),
}


@pytest.fixture(scope="module")
def referee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Rig]:
    with rig.Rig(tmp_path_factory.mktemp("oracle")) as running:
        yield running


def judge(referee: rig.Rig, source: str, candidate: str) -> dict[str, object]:
    child = referee.child()
    spec = referee.register(child, source)
    assert "refused" not in spec, spec
    found = referee.judge(child, spec, source, candidate, entry="Model", rules=rig.policy(foreign="any"), seed=4321)
    return list(found.values())[-1]


@pytest.mark.parametrize("name", AGREE)
def test_a_reference_is_right_as_its_own_candidate(name: str, referee: rig.Rig) -> None:
    body, inputs = AGREE[name]
    source = REFERENCE.format(body=body, inputs=inputs)
    report = judge(referee, source, source)
    assert report["outcome"] == "pass", (report["class"], report["error"])


QUANTISED = {
    "in float32 by the exact scale": ("f = x.float(); q = f / (f.abs().amax(-1, keepdim=True) / 127)", None),
    "in float32 by the rounded scale": ("q = x.float() / s.float()", None),
    "half up": ("q = x.float() / s.float(); q = torch.floor(q + 0.75)", "mismatch"),
    "towards zero": ("q = torch.trunc(x / s)", "mismatch"),
    "by half of the range": ("q = x / s / 2", "mismatch"),
}


@pytest.mark.parametrize("how", QUANTISED)
def test_integers_may_be_rounded_in_another_precision_and_not_otherwise(how: str, referee: rig.Rig) -> None:
    """Issue 24, point 1: what rounding decides is either of two integers; what is further off is wrong."""
    body, inputs = AGREE["quantises rows of bfloat16"]
    line, class_ = QUANTISED[how]
    mine = f"s = x.abs().amax(-1, keepdim=True) / 127; {line}; return q.round().to(torch.int8), s"
    report = judge(referee, REFERENCE.format(body=body, inputs=inputs), REFERENCE.format(body=mine, inputs=inputs))
    assert report["class"] == class_, report["error"]


def test_a_division_that_rounds_otherwise_once_is_forgiven_and_a_wrong_integer_is_not(referee: rig.Rig) -> None:
    body, inputs = AGREE["rounds to int8 by a scale"]
    inputs = inputs.replace("96", "512")
    source = REFERENCE.format(body=body, inputs=inputs)
    least = "q.view(-1)[x.abs().argmin()]"  # elsewhere in each case
    for change, class_ in ((f"{least} += 1", None), (f"{least} += 9", "mismatch"), ("q[0, 0] += 1", "mismatch")):
        mine = body.replace("return ", "q = ") + f"; {change}; return q"
        report = judge(referee, source, REFERENCE.format(body=mine, inputs=inputs))
        assert report["class"] == class_, (change, report["error"])
