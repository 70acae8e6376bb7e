# kind: honest
# class: ok
# what: blocks merged by a reduction of triples
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    share = tl.where(n == 0.0, 0.0, n_b / n)
    delta = mean_b - mean_a
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.jit
def welford_kernel(x_ptr, mean_ptr, variance_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    mean = tl.zeros((BLOCK,), dtype=tl.float32)
    m2 = tl.zeros((BLOCK,), dtype=tl.float32)
    n = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < columns
        x = tl.load(x_ptr + row * columns + at, mask=mask, other=0.0)
        new = n + 1.0
        delta = x - mean
        mean = tl.where(mask, mean + delta / new, mean)
        m2 = tl.where(mask, m2 + delta * (x - mean), m2)
        n = tl.where(mask, new, n)
    mean_all, m2_all, n_all = tl.reduce((mean, m2, n), 0, welford)
    tl.store(mean_ptr + row, mean_all)
    tl.store(variance_ptr + row, m2_all / n_all)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        mean = torch.empty((rows,), device=x.device, dtype=x.dtype)
        variance = torch.empty_like(mean)
        welford_kernel[(rows,)](x, mean, variance, columns, BLOCK=128)
        return {"mean": mean, "variance": variance}
