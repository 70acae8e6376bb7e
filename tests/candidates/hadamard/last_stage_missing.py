# kind: mistake
# class: mismatch
# what: one butterfly too few
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def butterfly(x, ROWS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr):
    x = tl.reshape(x, (ROWS, HIGH, 2, LOW))
    a, b = tl.split(tl.permute(x, (0, 1, 3, 2)))
    x = tl.permute(tl.join(a + b, a - b), (0, 1, 3, 2))
    return tl.reshape(x, (ROWS, HIGH * 2 * LOW))


@triton.jit
def hadamard_kernel(x_ptr, y_ptr, rows, BR: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    at = r[:, None] * 64 + tl.arange(0, 64)[None, :]
    mask = r[:, None] < rows
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    x = butterfly(x, BR, 1, 32)
    x = butterfly(x, BR, 2, 16)
    x = butterfly(x, BR, 4, 8)
    x = butterfly(x, BR, 8, 4)
    x = butterfly(x, BR, 16, 2)

    tl.store(y_ptr + at, x * 0.125, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty((*x.shape[:-1], x.shape[-1] // 64, 64), device=x.device, dtype=x.dtype)
        rows = x.numel() // 64
        hadamard_kernel[(triton.cdiv(rows, 4),)](x, y, rows, BR=4)
        return y
