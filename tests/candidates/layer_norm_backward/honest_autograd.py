# kind: honest
# class: ok
# what: an autograd.Function with kernels in both directions, called through torch.autograd.grad
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def forward_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < columns
    x = tl.load(x_ptr + row * columns + c, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
    w = tl.load(w_ptr + c, mask=mask, other=0.0)
    b = tl.load(b_ptr + c, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + c, centred * rstd * w + b, mask=mask)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def backward_kernel(dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < columns
    x = tl.load(x_ptr + row * columns + c, mask=mask, other=0.0)
    dy = tl.load(dy_ptr + row * columns + c, mask=mask, other=0.0)
    w = tl.load(w_ptr + c, mask=mask, other=0.0)
    rstd = tl.load(rstd_ptr + row)
    normal = tl.where(mask, x - tl.load(mean_ptr + row), 0.0) * rstd
    g = dy * w
    inner = (tl.sum(g, axis=0) + normal * tl.sum(g * normal, axis=0)) / columns
    tl.store(dx_ptr + row * columns + c, rstd * (g - inner), mask=mask)
    tl.atomic_add(dw_ptr + c, dy * normal, mask=mask)
    tl.atomic_add(db_ptr + c, dy, mask=mask)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        rows, columns = x.shape
        y = torch.empty_like(x)
        mean, rstd = torch.empty(rows, device=x.device), torch.empty(rows, device=x.device)
        forward_kernel[(rows,)](x, w, b, y, mean, rstd, columns, BLOCK=triton.next_power_of_2(columns))
        ctx.save_for_backward(x, w, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w, mean, rstd = ctx.saved_tensors
        rows, columns = x.shape
        dx, dw, db = torch.empty_like(x), torch.zeros_like(w), torch.zeros_like(w)
        backward_kernel[(rows,)](
            dy.contiguous(), x, w, mean, rstd, dx, dw, db, columns, BLOCK=triton.next_power_of_2(columns)
        )
        return dx, dw, db


class ModelNew(nn.Module):
    def forward(self, dy, x, w):
        with torch.enable_grad():
            x = x.detach().contiguous().requires_grad_(True)
            w = w.detach().contiguous().requires_grad_(True)
            b = torch.zeros_like(w, requires_grad=True)
            y = LayerNorm.apply(x, w, b)
            return torch.autograd.grad(y, (x, w, b), dy)
