# kind: honest
# class: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gate_kernel(x_ptr, gate_ptr, scale_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    z = x * tl.load(scale_ptr + at % columns, mask=inside, other=0.0)
    tanh = 1.0 - 2.0 / (tl.exp(2.0 * z) + 1.0)
    tl.store(y_ptr + at, x + tl.load(gate_ptr) * tanh, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))
        self.scale = nn.Parameter(torch.rand(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        gate_kernel[(triton.cdiv(x.numel(), 1024),)](
            x, self.gate, self.scale, y, x.numel(), x.shape[-1], BLOCK=1024
        )
        return y
