# kind: honest
# class: ok
# what: torch.library.custom_op with a fake, the kernel behind two helpers
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _mean_square(x_ptr, columns, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
        total += x * x
    return tl.sum(total, axis=0) / columns


@triton.jit
def rms_kernel(x_ptr, y_ptr, stride, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    scale = tl.rsqrt(_mean_square(x_ptr + row * stride, columns, BLOCK) + eps)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < columns, other=0.0)
        tl.store(y_ptr + row * columns + at, x * scale, mask=at < columns)


@torch.library.custom_op("corpus_norms2::rms", mutates_args=())
def rms(x: torch.Tensor, eps: float) -> torch.Tensor:
    rows, columns = x.shape
    y = torch.empty_like(x)
    rms_kernel[(rows,)](x, y, x.stride(0), columns, eps, BLOCK=512)
    return y


@rms.register_fake
def _(x, eps):
    return torch.empty_like(x)


class ModelNew(nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return rms(x.contiguous(), self.eps)
