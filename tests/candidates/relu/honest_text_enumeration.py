# kind: honest
# class: ok
# what: an activation chosen by a member of an enumeration whose members are texts
import enum

import torch
import triton
import triton.language as tl


class Activation(str, enum.Enum):
    RELU = "relu"
    TANH = "tanh"


@triton.jit
def activation_kernel(x_ptr, y_ptr, total, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    x = tl.load(x_ptr + at, mask=inside)
    if ACTIVATION == "relu":
        x = tl.where(x > 0, x, tl.where(x == x, 0.0, x))
    else:
        x = 2 * tl.sigmoid(2 * x) - 1
    tl.store(y_ptr + at, x, mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, activation=Activation.RELU):
        super().__init__()
        self.activation = activation

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        activation_kernel[(triton.cdiv(total, 256),)](x, y, total, ACTIVATION=self.activation, BLOCK=256)
        return y
