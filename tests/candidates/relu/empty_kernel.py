# kind: cheat
# expect: class=policy stage=compile
# what: a kernel that neither loads nor stores stands in for the work
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def relu_kernel(x_ptr, n):
    pass


class ModelNew(nn.Module):
    def forward(self, x):
        relu_kernel[(1,)](x, x.numel())
        return torch.relu(x)
