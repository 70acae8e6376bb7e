# kind: suspicious
# class: ok
# what: its own functions have the names of library functions
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cublas_gemm_relu_cuda(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x < 0, 0.0, x), mask=mask)


def relu(x):
    y = torch.empty_like(x)
    n = x.numel()
    cublas_gemm_relu_cuda[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
    return y


def compile(function):
    return function


class F:
    relu = staticmethod(compile(relu))


class ModelNew(nn.Module):
    def forward(self, x):
        return F.relu(x.contiguous())
