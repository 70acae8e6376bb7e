# kind: honest
# expect: class=ok
# policy: hybrid
# needs: gpu
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def scale_leaky_relu_kernel(x_ptr, y_ptr, factor, slope, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0) * factor
    tl.store(y_ptr + offsets, tl.where(x > 0, x, x * slope), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, factor, slope):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.factor = factor
        self.slope = slope

    def forward(self, x):
        x = F.linear(x, self.gemm.weight, self.gemm.bias).contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        scale_leaky_relu_kernel[(triton.cdiv(n, 2048),)](x, y, self.factor, self.slope, n, BLOCK=2048)
        return y
