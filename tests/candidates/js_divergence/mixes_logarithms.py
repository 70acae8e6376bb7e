# kind: mistake
# class: mismatch
# what: the mean of the logarithms for the logarithm of the mean
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def log_softmax(x):
    x = x - tl.max(x, axis=0)
    return x - tl.log(tl.sum(tl.exp(x), axis=0))


@triton.jit
def jsd_kernel(a_ptr, b_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    log_p = log_softmax(tl.load(a_ptr + row * columns + at, mask=mask, other=-float("inf")))
    log_q = log_softmax(tl.load(b_ptr + row * columns + at, mask=mask, other=-float("inf")))
    log_p, log_q = tl.where(mask, log_p, 0.0), tl.where(mask, log_q, 0.0)
    high, low = tl.maximum(log_p, log_q), tl.minimum(log_p, log_q)
    log_m = 0.5 * (high + low)
    terms = tl.exp(log_p) * (log_p - log_m) + tl.exp(log_q) * (log_q - log_m)
    tl.store(y_ptr + row, 0.5 * tl.sum(tl.where(mask, terms, 0.0), axis=0))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        y = torch.empty((a.shape[0],), device=a.device, dtype=a.dtype)
        jsd_kernel[(a.shape[0],)](a, b, y, a.shape[1], BLOCK=triton.next_power_of_2(a.shape[1]))
        return y
