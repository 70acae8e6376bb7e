# kind: honest
# class: ok
# what: blocks of columns, several rows at once
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kl_rows(log_ptr, t_ptr, y_ptr, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    total = tl.zeros((BR,), dtype=tl.float32)
    for start in range(0, columns, BC):
        c = start + tl.arange(0, BC)
        mask = (r[:, None] < rows) & (c[None, :] < columns)
        at = r[:, None] * columns + c[None, :]
        t = tl.abs(tl.load(t_ptr + at, mask=mask, other=0.0))
        log_input = tl.load(log_ptr + at, mask=mask, other=0.0)
        entropy = tl.where(t > 0.0, t * tl.log(tl.where(t > 0.0, t, 1.0)), 0.0)
        total += tl.sum(entropy - t * log_input, axis=1)
    tl.store(y_ptr + r, total, mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, log_input, target):
        log_input, target = log_input.contiguous(), target.contiguous()
        rows, columns = target.shape
        y = torch.empty((rows,), device=target.device, dtype=target.dtype)
        kl_rows[(triton.cdiv(rows, 8),)](log_input, target, y, rows, columns, BR=8, BC=32)
        return y
