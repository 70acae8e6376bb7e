# kind: robustness
# class: ok|oom
# what: nests directories in its cache deeper than a walk may go
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


from pathlib import Path  # noqa: E402


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        cache = Path(triton.knobs.cache.dir)
        if not (cache / "d").is_dir():
            (cache / "/".join("d" * 200)).mkdir(parents=True, exist_ok=True)
        return y
