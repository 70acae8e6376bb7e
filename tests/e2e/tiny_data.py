"""What tests/e2e/tiny.conf starts from: a dozen element-wise kernels and a model small enough to learn them on a CPU.

python tests/e2e/tiny_data.py DIRECTORY    makes DIRECTORY/rows.jsonl and DIRECTORY/tiny
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "client" / "python"))

from finetune import tiny  # noqa: E402

# By name: what the module computes, and what the kernel stores.
OPERATIONS = {
    "relu": ("torch.relu(x)", "tl.where(x < 0, 0.0, x)"),
    "negate": ("-x", "-x"),
    "double": ("x * 2.0", "x * 2.0"),
    "square": ("x * x", "x * x"),
    "absolute": ("torch.abs(x)", "tl.abs(x)"),
    "shift": ("x + 1.0", "x + 1.0"),
    "halve": ("x * 0.5", "x * 0.5"),
    "cube": ("x * x * x", "x * x * x"),
}
REFERENCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return []
"""
KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, {expression}, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""


def rows() -> list[dict[str, object]]:
    return [
        {
            "id": name,
            "python_code": REFERENCE.format(expression=reference),
            "triton_code": KERNEL.format(expression=kernel),
            "entry_point": "Model",
            "licenses": ["mit"],
            "level": 1,
        }
        for name, (reference, kernel) in OPERATIONS.items()
    ]


def main(directory: Path) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    made = rows()
    (directory / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    template = (ROOT / "client" / "prompt" / "kernel.txt").read_text()
    # Twice each, so that whole lines become tokens.
    texts = [str(row[key]) for row in made for key in ("python_code", "triton_code")] + [template, "```python\n"]
    tiny.make(directory / "tiny", texts * 2, vocabulary=4096, hidden=96)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
