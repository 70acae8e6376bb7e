"""Inputs that tell right from nearly right: mistakes that kernels really have are seen, honest ones never refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import rig

TASK = """
import torch
import torch.nn.functional as F
ROWS = 64
def serial(x):
    total = torch.zeros(x.shape[0], dtype=x.dtype)
    for at in range(x.shape[1]):
        total = total + x[:, at]
    return total
class Model(torch.nn.Module):
    def forward(self, x):
        BODY
def get_inputs():
    return [INPUTS]
def get_init_inputs():
    return []
"""
UNIFORM, NORMAL = "torch.rand(ROWS, 130)", "torch.randn(ROWS, 130)"
LONGS, BYTES = (f"torch.randint(-100, 100, (ROWS, 300), dtype=torch.{kind})" for kind in ("int64", "int8"))
LAYER_NORM = "d = x - x.mean(-1, keepdim=True); return d / (d.square().mean(-1, keepdim=True) + EPS).sqrt()"
MISTAKES = {
    "a maximum that starts from zero": (UNIFORM, "return x.amax(-1)", "return x.amax(-1).clamp_min(0)"),
    "a running maximum that starts from -100": (
        UNIFORM,
        "return torch.softmax(x, -1)",
        "e = torch.exp(x - x.amax(-1, keepdim=True).clamp_min(-100)); return e / e.sum(-1, keepdim=True)",
    ),
    "an epsilon of 1e-6 for 1e-5": (
        NORMAL,
        LAYER_NORM.replace("EPS", "1e-5"),
        LAYER_NORM.replace("EPS", "1e-6"),
    ),
    "an epsilon outside of the root": (
        NORMAL,
        LAYER_NORM.replace("EPS", "1e-5"),
        "d = x - x.mean(-1, keepdim=True); return d / (d.square().mean(-1, keepdim=True).sqrt() + 1e-5)",
    ),
    "at least for more than": (NORMAL, "return torch.where(x > 0.5, x, -x)", "return torch.where(x >= 0.5, x, -x)"),
    "halves rounded up": (NORMAL, "return torch.round(x)", "return torch.floor(x + 0.5)"),
    "integers summed in float32": (LONGS, "return x.sum(-1)", "return x.float().sum(-1).long()"),
    "64 bits computed in 32": (LONGS, "return x * 3 + 1", "return (x.int() * 3 + 1).long()"),
    "an absolute value that breaks at -128": (
        BYTES,
        "return x.int().abs()",
        "return x.abs().int()",
    ),
    "nothing but spikes in a product": (
        "torch.randn(ROWS, 2048)",
        "return x @ torch.ones(2048, 8, dtype=x.dtype)",
        "x = x * (x.abs() > 1000) if (x.abs() > 1000).any() else x; return x @ torch.ones(2048, 8)",
    ),
}
HONEST = {
    "a layer norm by serial sums": (
        UNIFORM,
        LAYER_NORM.replace("EPS", "1e-5"),
        "n = x.shape[1]; d = x - (serial(x) / n)[:, None]; return d / (serial(d * d) / n + 1e-5).sqrt()[:, None]",
    ),
    "a serial scan": (
        NORMAL,
        "return torch.cumsum(x, -1)",
        "h = 0; out = []\n        for at in range(x.shape[1]):\n            h = h + x[:, at]; out.append(h)\n"
        "        return torch.stack(out, -1)",
    ),
    "one sum over everything": (
        NORMAL,
        "return x.sum().reshape(1)",
        "return serial(x[:32]).sum().reshape(1) + serial(x[32:].T.contiguous()).sum()",
    ),
    "a softmax by serial sums": (
        NORMAL,
        "return torch.softmax(x, -1)",
        "e = torch.exp(x - x.amax(-1, keepdim=True)); return e / serial(e)[:, None]",
    ),
    "a recurrence": (
        NORMAL,
        "h = torch.zeros_like(x[:, 0]); out = []\n        for at in range(x.shape[1]):\n"
        "            h = 0.9 * h + x[:, at]; out.append(h)\n        return torch.stack(out, -1)",
        "h = torch.zeros_like(x[:, 0]); out = []\n        for at in range(x.shape[1]):\n"
        "            h = torch.addcmul(x[:, at], h, torch.tensor(0.9)); out.append(h)\n"
        "        return torch.stack(out, -1)",
    ),
    "a convolution in another order": (
        NORMAL,
        "w = torch.linspace(-1, 1, 9, dtype=x.dtype); return F.conv1d(x[:, None], w.view(1, 1, 9))[:, 0]",
        "w = torch.linspace(-1, 1, 9); y = 0\n        for at in reversed(range(9)):\n"
        "            y = y + w[at] * x[:, at : x.shape[1] - 8 + at]\n        return y",
    ),
    "the largest few": (
        NORMAL,
        "return x.topk(3, -1)",
        "v, i = x.sort(-1, True); return v[:, :3], i[:, :3]",
    ),
    "an integer from a fast division": (
        NORMAL,
        "s = x.abs().amax(-1, keepdim=True) / 127; return torch.round(x / s).to(torch.int8), s",
        "s = x.abs().amax(-1, keepdim=True) / 127; return torch.round(torch.nextafter(x / s, 0 * x)).to(torch.int8), s",
    ),
    "a multiple from a fast division": (
        NORMAL,
        "s = x.abs().amax(-1, keepdim=True) / 127; return torch.round(x / s) * s",
        "s = x.abs().amax(-1, keepdim=True) / 127; return torch.round(torch.nextafter(x / s, 0 * x)) * s",
    ),
    "indices of a maximum": (NORMAL, "return x.argmax(-1)", "return (x == x.amax(-1, keepdim=True)).int().argmax(-1)"),
    "integers in 64 bits": (
        LONGS,
        "return x.sum(-1), x.abs()",
        "return x.cumsum(-1)[:, -1], torch.where(x < 0, -x, x)",
    ),
}
EVERYTHING = {"count": 14, "value": True, "shape": True, "dtype": True}


@pytest.fixture(scope="module")
def referee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Rig]:
    with rig.Rig(tmp_path_factory.mktemp("inputs")) as running:
        yield running


def judge(referee: rig.Rig, inputs: str, reference: str, mine: str, *, count: int, seed: int = 2) -> dict[str, Any]:
    reference, candidate = (TASK.replace("BODY", body).replace("INPUTS", inputs) for body in (reference, mine))
    child = referee.child()
    spec = referee.register(child, reference)
    assert "refused" not in spec, spec
    rules = rig.policy(foreign="any", variations={**EVERYTHING, "count": count})
    found = referee.judge(child, spec, reference, candidate, entry="Model", rules=rules, seed=seed)
    return list(found.values())[-1]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_seen(mistake: str, referee: rig.Rig) -> None:
    """Issue 24, point 2."""
    report = judge(referee, *MISTAKES[mistake], count=5)
    assert report["class"] in ("mismatch", "nonfinite"), report["detail"]["cases"]


@pytest.mark.parametrize("way", HONEST)
def test_an_honest_way_is_accepted_on_all_inputs(way: str, referee: rig.Rig) -> None:
    report = judge(referee, *HONEST[way], count=14)
    assert report["outcome"] == "pass", (report["error"], report["detail"]["cases"])
