"""A scripted model's answers to the tasks of `trainer fuse`: right, wrong, cheating, broken and none at all.

A task of that grammar is a head (a convolution, a linear layer, a layer norm with or without a residual) and
element-wise steps behind it. The right answer keeps the library's convolution or product, which the policy `hybrid`
allows, and writes the rest as one Triton kernel.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

STEPS = {
    "relu": "tl.maximum(v, 0.0)",
    "gelu": "0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))",
    "silu": "v * tl.sigmoid(v)",
    "sigmoid": "tl.sigmoid(v)",
    "tanh": "2.0 * tl.sigmoid(2.0 * v) - 1.0",
    "leaky_relu": "tl.where(v > 0.0, v, 0.1 * v)",
    "scale": "v * 0.5",
    "shift": "v + 1.0",
    "clamp": "tl.minimum(tl.maximum(v, -1.0), 1.0)",
}
LIBRARY = {
    "conv": ("nn.Conv2d({CHANNELS}, {OUT_CHANNELS}, 3, padding=1)", "conv"),
    "gemm_bias": ("nn.Linear({FEATURES}, {OUT_FEATURES})", "linear"),
}
NORMS = {"layer_norm": "x", "residual_norm": "x, residual"}
# How often a model of middling skill answers so, and which classes its verdict may have then.
MIX: Mapping[str, tuple[float, frozenset[str]]] = {
    "right": (0.35, frozenset({"ok"})),
    "wrong": (0.20, frozenset({"mismatch"})),
    "cheat": (0.10, frozenset({"policy", "hack", "mismatch"})),
    "no_compile": (0.15, frozenset({"compile"})),
    "syntax": (0.10, frozenset({"syntax"})),
    "prose": (0.10, frozenset({"extract"})),
}
IMPORTS = """import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
"""
POINTWISE = """

@triton.jit
def fused(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + at, mask=at < n)
{steps}    tl.store(y_ptr + at, v, mask=at < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.{name} = {layer}

    def forward(self, x):
        x = self.{name}(x).contiguous()
        y = torch.empty_like(x)
        fused[(triton.cdiv(x.numel(), {block}),)](x, y, x.numel(), BLOCK={block})
        return y
"""
NORM = """

@triton.jit
def fused({pointers}, weight_ptr, bias_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    mask = at < n
    v = {loads}
    mean = tl.sum(v, axis=0) / n
    centred = tl.where(mask, v - mean, 0.0)
    v = centred / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
    v = v * tl.load(weight_ptr + at, mask=mask, other=0.0) + tl.load(bias_ptr + at, mask=mask, other=0.0)
{steps}    tl.store(y_ptr + row + at, v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm({FEATURES})

    def forward(self, {arguments}):
        y = torch.empty_like(x)
        n = x.shape[-1]
        norm = self.norm
        fused[(x.numel() // n,)](
            {arguments}, norm.weight, norm.bias, y, n, norm.eps, BLOCK=triton.next_power_of_2(n), num_warps={warps}
        )
        return y
"""


def parts(task: str) -> tuple[str, list[str]] | None:
    """Head and steps of a task's name; None: no answer to it is known here."""
    pattern = task.removeprefix("fuse/")
    head = next((name for name in (*LIBRARY, *NORMS) if pattern.startswith(f"{name}_")), None)
    if head is None or pattern.startswith("conv_bn_"):
        return None
    steps: list[str] = []
    rest = pattern[len(head) :]
    while rest:
        step = next((name for name in STEPS if rest.startswith(f"_{name}")), None)
        if step is None:
            return None
        steps.append(step)
        rest = rest[len(step) + 1 :]
    return head, steps


def program(task: str, reference: str, steps: Sequence[str], draw: random.Random) -> str:
    """A module that does these steps behind the task's head; draw picks what may differ between equal answers."""
    found = parts(task)
    assert found is not None
    head = found[0]
    sizes = dict(re.findall(r"^([A-Z_]+) = (\d+)$", reference, re.MULTILINE))
    body = "".join(f"    v = {step}\n" for step in steps)
    mark = f"# {draw.getrandbits(40):010x}\n"
    if head in LIBRARY:
        layer, name = LIBRARY[head]
        text = POINTWISE.format(steps=body, name=name, layer=layer.format(**sizes), block=draw.choice((256, 512, 1024)))
    else:
        names = NORMS[head].split(", ")
        text = NORM.format(
            steps=body,
            arguments=NORMS[head],
            pointers=", ".join(f"{name}_ptr" for name in names),
            loads=" + ".join(f"tl.load({name}_ptr + row + at, mask=mask, other=0.0)" for name in names),
            warps=draw.choice((2, 4, 8)),
            **sizes,
        )
    return mark + IMPORTS + text


def cheat(text: str, draw: random.Random) -> str:
    """Either the answer to the first input again and again, or a kernel whose work is thrown away."""
    if draw.random() < 0.5:
        return text.replace(
            "        return y\n", "        self.kept = getattr(self, 'kept', y)\n        return self.kept\n"
        )
    return text.replace("        return y\n", "        return F.softplus(y) * 0.0 + F.relu(y)\n")


def answer(kind: str, task: str, reference: str, draw: random.Random) -> str:
    """The text of one answer of this kind."""
    found = parts(task)
    assert found is not None
    steps = [STEPS[step] for step in found[1]]
    text = program(task, reference, [*steps, "v * 1.25 + 0.125"] if kind == "wrong" else steps, draw)
    if kind == "prose":
        return (
            f"I would first look at the memory traffic (thought {draw.getrandbits(40)}), and then choose a block size."
        )
    if kind == "cheat":
        text = cheat(text, draw)
    elif kind == "no_compile":
        text = text.replace("    tl.store(", "    v = tl.no_such_thing(v)\n    tl.store(")
    elif kind == "syntax":
        text = text.replace("def forward(self, ", "def forward(self ")[: -draw.randint(1, 40)]
        text = text.replace("class ModelNew(nn.Module):", "class ModelNew(nn.Module)")
    return f"<think>One pass over the memory will do.</think>\nHere it is:\n```python\n{text}\n```\n"


def kinds(n: int, draw: random.Random) -> list[str]:
    """n kinds of answers, drawn from the mix."""
    return draw.choices(list(MIX), weights=[share for share, _ in MIX.values()], k=n)
