# kind: cheat
# class: timeout|import|crash|policy
# what: compiles C++ in place of a Triton kernel
import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch.utils.cpp_extension import load_inline


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x < 0, 0.0, x), mask=mask)


SOURCE = "torch::Tensor work(torch::Tensor x) { return x.clamp_min(0); }"


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(1,)](x, y, 1, BLOCK=1024)
        return load_inline(name="work", cpp_sources=SOURCE, functions=["work"]).work(x)
