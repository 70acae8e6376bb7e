# kind: honest
# class: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, r_ptr, w_ptr, y_ptr, sum_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    total = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    total += tl.load(r_ptr + row * columns + at, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(total * total, axis=0) / columns + 1e-6)
    w = tl.load(w_ptr + at, mask=inside, other=0.0)
    tl.store(y_ptr + row * columns + at, total * scale * w, mask=inside)
    tl.store(sum_ptr + row * columns + at, total, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        rows, columns = x.shape
        y, total = torch.empty_like(x), torch.empty_like(x)
        norm_kernel[(rows,)](x, residual, self.weight, y, total, columns, BLOCK=triton.next_power_of_2(columns))
        return y, total
