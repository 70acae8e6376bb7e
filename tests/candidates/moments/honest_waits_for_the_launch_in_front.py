# kind: suspicious
# class: ok
# what: two kernels launched as dependents, the second of which waits for the first, and each for the call before

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def parts_kernel(x_ptr, s_ptr, columns, BLOCK: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    d = tl.where(at < columns, x - mean, 0.0)
    tl.store(s_ptr + 2 * row, mean)
    tl.store(s_ptr + 2 * row + 1, tl.sum(d * d, axis=0) / columns)
    tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def split_kernel(s_ptr, mean_ptr, var_ptr, rows, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.extra.cuda.gdc_wait()
    tl.store(mean_ptr + at, tl.load(s_ptr + 2 * at, mask=at < rows, other=0.0), mask=at < rows)
    tl.store(var_ptr + at, tl.load(s_ptr + 2 * at + 1, mask=at < rows, other=0.0), mask=at < rows)
    tl.extra.cuda.gdc_launch_dependents()


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        parts = torch.empty((rows, 2), device=x.device, dtype=x.dtype)
        mean = torch.empty((rows,), device=x.device, dtype=x.dtype)
        variance = torch.empty_like(mean)
        parts_kernel[(rows,)](x, parts, columns, BLOCK=triton.next_power_of_2(columns), launch_pdl=True)
        split_kernel[(triton.cdiv(rows, 64),)](parts, mean, variance, rows, BLOCK=64, launch_pdl=True)
        return {"mean": mean, "variance": variance}
