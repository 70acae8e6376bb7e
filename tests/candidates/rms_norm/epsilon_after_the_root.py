# kind: mistake
# class: mismatch
# what: adds the epsilon to the root
import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["columns"])})
@triton.jit
def rms_norm_kernel(x_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    scale = 1.0 / (tl.sqrt(tl.sum(x * x) / columns) + eps)
    tl.store(y_ptr + row * columns + at, x * scale, mask=at < columns)


@triton_op("corpus_norms::rms_norm", mutates_args={})
def rms_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    y = torch.empty_like(x)
    columns = x.shape[-1]
    wrap_triton(rms_norm_kernel)[(x.numel() // columns,)](x, y, columns, eps)
    return y


class ModelNew(nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return rms_norm(x.contiguous(), self.eps)
