# kind: honest
# class: ok
# what: an autograd function that keeps mean and scale, with a backward of its own kernels
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def forward_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    partial = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        partial += tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(partial, axis=0) / N
    partial = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        partial += x * x
    rstd = 1 / tl.sqrt(tl.sum(partial, axis=0) / N + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N
        w = tl.load(w_ptr + cols, mask=mask)
        b = tl.load(b_ptr + cols, mask=mask)
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + cols, (x - mean) * rstd * w + b, mask=mask)


@triton.jit
def backward_kernel(dx_ptr, dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0)
    dy = tl.load(dy_ptr + row * stride + cols, mask=mask, other=0.0)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    rstd = tl.load(rstd_ptr + row)
    normal = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
    weighted = w * dy
    c1 = tl.sum(normal * weighted, axis=0) / N
    c2 = tl.sum(weighted, axis=0) / N
    tl.store(dx_ptr + row * stride + cols, (weighted - (normal * c1 + c2)) * rstd, mask=mask)


class LayerNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        flat = x.reshape(-1, x.shape[-1])
        rows, N = flat.shape
        y = torch.empty_like(flat)
        mean = torch.empty((rows,), dtype=torch.float32, device=x.device)
        rstd = torch.empty((rows,), dtype=torch.float32, device=x.device)
        BLOCK = min(512, triton.next_power_of_2(N))
        forward_kernel[(rows,)](flat, weight, bias, y, mean, rstd, flat.stride(0), N, eps, BLOCK=BLOCK, num_warps=4)
        ctx.save_for_backward(flat, weight, mean, rstd)
        return y.view_as(x)

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        rows, N = x.shape
        dx = torch.empty_like(x)
        flat = dy.reshape(rows, N).contiguous()
        backward_kernel[(rows,)](dx, flat, x, weight, mean, rstd, N, N, BLOCK=triton.next_power_of_2(N))
        return dx.view_as(dy), None, None, None


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.norm.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.norm.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return LayerNormFunction.apply(x, self.norm.weight, self.norm.bias, self.norm.eps)
