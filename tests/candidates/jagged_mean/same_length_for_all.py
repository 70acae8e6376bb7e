# kind: mistake
# class: mismatch|nonfinite
# what: divides by the mean length of all
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x_ptr, offset_ptr, y_ptr, width, BR: tl.constexpr, BC: tl.constexpr):
    sequence = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    begin = tl.load(offset_ptr + sequence)
    end = tl.load(offset_ptr + sequence + 1)
    total = tl.zeros((BC,), dtype=tl.float32)
    row = begin
    while row < end:
        r = row + tl.arange(0, BR)
        mask = (r[:, None] < end) & (c[None, :] < width)
        total += tl.sum(tl.load(x_ptr + r[:, None] * width + c[None, :], mask=mask, other=0.0), axis=0)
        row += BR
    count = tl.load(offset_ptr + tl.num_programs(0)).to(tl.float32) / tl.num_programs(0)
    tl.store(y_ptr + sequence * width + c, total / count, mask=c < width)


class ModelNew(nn.Module):
    def forward(self, x, offsets):
        x, offsets = x.contiguous(), offsets.contiguous()
        sequences, width = offsets.numel() - 1, x.shape[1]
        y = torch.empty((sequences, width), device=x.device, dtype=x.dtype)
        mean_kernel[(sequences, triton.cdiv(width, 16))](x, offsets, y, width, BR=8, BC=16)
        return y
