"""Tasks few and small enough to be learned from nothing: chains of element-wise steps, and the kernels that do them.

A step is one line of the reference and one of the kernel, and each line is one token of the model's: what is to be
learned is which line stands for which, their order, and the program around them.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from finetune import tiny
from transformers.utils import logging

ROOT = Path(__file__).resolve().parents[2]
# What the module computes, and what the kernel does. All of them keep large inputs finite and comparable.
STEPS = {
    "relu": ("torch.relu(x)", "tl.maximum(x, 0.0)"),
    "negate": ("-x", "-x"),
    "double": ("x * 2.0", "x * 2.0"),
    "halve": ("x * 0.5", "x * 0.5"),
    "absolute": ("torch.abs(x)", "tl.abs(x)"),
    "raise": ("x + 1.0", "x + 1.0"),
    "lower": ("x - 1.0", "x - 1.0"),
    "square": ("x * x", "x * x"),
    "bound": ("torch.clamp(x, max=1.0)", "tl.minimum(x, 1.0)"),
    "triple": ("x * 3.0", "x * 3.0"),
}
DEPTH = 3
HEAD = "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
TAIL = (
    "        return x\n\n\ndef get_inputs():\n    return [torch.randn(4, 8)]\n\n\ndef get_init_inputs():\n    return []"
)
# The program around the steps, in pieces that are one token each.
BEFORE = (
    "```python\nimport torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n\n",
    "@triton.jit\ndef kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n",
    "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n",
    "    x = tl.load(x_ptr + at, mask=at < n)\n",
)
AFTER = (
    "    tl.store(y_ptr + at, x, mask=at < n)\n\n\n",
    "class ModelNew(nn.Module):\n    def forward(self, x):\n",
    "        y = torch.empty_like(x)\n",
    "        kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)\n",
    "        return y\n```\n",
)
Chain = tuple[str, ...]


def reference(chain: Chain) -> str:
    return HEAD + "".join(f"        x = {STEPS[name][0]}\n" for name in chain) + TAIL


def answer(chain: Chain) -> str:
    """What a model should say: the program in a fence."""
    return "".join((*BEFORE, *(f"    x = {STEPS[name][1]}\n" for name in chain), *AFTER))


def program(chain: Chain) -> str:
    return answer(chain).removeprefix("```python\n").removesuffix("```\n")


def is_constant(chain: Chain) -> bool:
    """Does the chain forget its input? Such a task would be done by a kernel that ignores it."""

    def value(x: float) -> float:
        for name in chain:
            x = eval(STEPS[name][0], {"torch": _Scalar}, {"x": x})  # our own table
        return x

    return len({round(value(x), 6) for x in (-2.3, -0.7, 0.4, 1.9, 3.1)}) < 3


class _Scalar:
    """torch's functions of one number."""

    relu = staticmethod(lambda x: max(x, 0.0))
    abs = staticmethod(abs)
    clamp = staticmethod(lambda x, max: min(x, max))


def chains(seed: int) -> list[Chain]:
    """All of the family but those that are constant, in an order of the seed's."""
    kept = [c for c in itertools.product(STEPS, repeat=DEPTH) if not is_constant(c)]
    random.Random(seed).shuffle(kept)
    return kept


def task_row(chain: Chain) -> dict[str, object]:
    return {"name": "-".join(chain), "pytorch_code": reference(chain), "level": 1}


def training_rows(chains: Sequence[Chain], seed: int, wrong: float) -> list[dict[str, object]]:
    """Rows as `trainer prepare --file` reads them; each step of an answer is any one with a chance of `wrong`."""
    draw = random.Random(f"answers {seed}")
    said = [tuple(draw.choice(list(STEPS)) if draw.random() < wrong else name for name in chain) for chain in chains]
    return [training_row(chain, answer) for chain, answer in zip(chains, said, strict=True)]


def training_row(chain: Chain, said: Chain) -> dict[str, object]:
    return {
        "id": "-".join(chain),
        "python_code": reference(chain),
        "triton_code": program(said),
        "entry_point": "Model",
        "licenses": ["mit"],
        "level": 1,
    }


def write_rows(path: Path, rows: Iterable[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def whole_tokens(tail: str = TAIL, more: Sequence[str] = ()) -> list[str]:
    """Texts of one token each: the prompt's two halves, the steps' lines, the pieces of the program, the turns."""
    template = (ROOT / "client" / "prompt" / "kernel.txt").read_text().replace("{{class}}", "ModelNew").strip()
    before, _, after = template.partition("{{reference}}")
    indents = ("        ", "    ")
    steps = [f"{indent}x = {code}\n" for pair in STEPS.values() for indent, code in zip(indents, pair, strict=True)]
    return list(dict.fromkeys([before + HEAD, tail + after, *steps, *BEFORE, *AFTER, *more, "user\n", "assistant\n"]))


def make_base(directory: Path, seed: int, hidden: int, layers: int, tail: str = TAIL, more: Sequence[str] = ()) -> int:
    """A model with random weights and the family's tokenizer; its number of parameters.

    An adapter changes neither embeddings nor biases. So the embeddings are wide, that a frozen head can be sure, and
    have a part in common, which with the biases makes attention to a place; the projections, which it has to outdo,
    are narrow.
    """
    logging.disable_progress_bar()
    model = tiny.make(
        directory,
        ["import triton"],
        vocabulary=300,
        hidden=hidden,
        layers=layers,
        seed=seed,
        whole=whole_tokens(tail, more),
    )
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("proj.weight"):
                value *= 0.1
            elif "embed_tokens" in name:
                value[:, : hidden // 16] = 0.4
            elif name.endswith(("q_proj.bias", "k_proj.bias")):
                value.normal_(std=0.5)
    model.save_pretrained(directory)
    return int(model.num_parameters())


def split(seed: int, sizes: Sequence[int]) -> list[list[Chain]]:
    """Disjoint sets of chains, of these sizes."""
    every = chains(seed)
    if sum(sizes) > len(every):
        raise SystemExit(f"the family has {len(every)} tasks, and {sum(sizes)} are asked for")
    edges = [0, *itertools.accumulate(sizes)]
    return [every[a:b] for a, b in itertools.pairwise(edges)]
