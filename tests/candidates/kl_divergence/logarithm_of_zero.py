# kind: mistake
# class: mismatch|nonfinite
# what: takes 0 log 0 for what arithmetic makes of it
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def divergence_kernel(log_ptr, target_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    given = tl.load(log_ptr + row * columns + at, mask=inside, other=0.0)
    t = tl.abs(tl.load(target_ptr + row * columns + at, mask=inside, other=1.0))
    parts = t * tl.log(t) - t * given
    tl.store(y_ptr + row, tl.sum(tl.where(inside, parts, 0.0), axis=0))


class ModelNew(nn.Module):
    def forward(self, log_input, target):
        log_input, target = log_input.contiguous(), target.contiguous()
        rows, columns = target.shape
        y = torch.empty((rows,), device=target.device, dtype=target.dtype)
        divergence_kernel[(rows,)](log_input, target, y, columns, BLOCK=triton.next_power_of_2(columns))
        return y
