# kind: mistake
# class: mismatch|nonfinite|nondeterministic
# what: equal values have one rank, and a place stays empty
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rank_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=mask, other=float("inf"))
    before = x[None, :] < x[:, None]
    rank = tl.sum(before.to(tl.int32), axis=1)
    tl.store(y_ptr + row * columns + rank, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rank_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
