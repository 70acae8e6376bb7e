# kind: honest
# expect: class=ok
# policy: hybrid
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476)), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)
        self.tied = nn.Linear(width, width, bias=False)
        self.tied.weight = self.up.weight

    def forward(self, x):
        hidden = F.linear(x, self.up.weight, self.up.bias).contiguous()
        activated = torch.empty_like(hidden)
        n = hidden.numel()
        gelu_kernel[(triton.cdiv(n, 1024),)](hidden, activated, n, BLOCK=1024)
        return F.linear(F.linear(activated, self.down.weight, self.down.bias), self.tied.weight)
