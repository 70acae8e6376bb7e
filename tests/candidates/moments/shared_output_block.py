# kind: suspicious
# class: ok
# what: one allocation, of which both outputs are views
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments_kernel(x_ptr, mean_ptr, variance_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    tl.store(mean_ptr + row, mean)
    tl.store(variance_ptr + row, tl.sum(centred * centred, axis=0) / columns)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        both = torch.empty((2, rows), device=x.device, dtype=x.dtype)
        moments_kernel[(rows,)](x, both[0], both[1], columns, BLOCK=triton.next_power_of_2(columns))
        return {"mean": both[0], "variance": both[1]}
