# kind: honest
# class: ok
# what: rows by a grid of two dimensions
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu_and_mul(y_ptr, x_ptr, d, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(x_ptr + row * 2 * d + at, mask=at < d, other=0.0).to(tl.float32)
    value = tl.load(x_ptr + row * 2 * d + d + at, mask=at < d, other=0.0)
    tl.store(y_ptr + row * d + at, gate / (1.0 + tl.exp(-gate)) * value, mask=at < d)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        d = x.shape[-1] // 2
        y = torch.empty((*x.shape[:-1], d), dtype=x.dtype, device=x.device)
        silu_and_mul[(x.numel() // (2 * d), triton.cdiv(d, 64))](y, x, d, BLOCK=64)
        return y
