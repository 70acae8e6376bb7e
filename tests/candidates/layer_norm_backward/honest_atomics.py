# kind: honest
# class: ok
# what: a program a row, the weight's gradients by atomics
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_kernel(dy_ptr, x_ptr, w_ptr, dx_ptr, dw_ptr, db_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < columns
    x = tl.load(x_ptr + row * columns + c, mask=mask, other=0.0)
    dy = tl.load(dy_ptr + row * columns + c, mask=mask, other=0.0)
    w = tl.load(w_ptr + c, mask=mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x, axis=0) / columns, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
    normal = centred * rstd
    g = dy * w
    inner = (tl.sum(g, axis=0) + normal * tl.sum(g * normal, axis=0)) / columns
    tl.store(dx_ptr + row * columns + c, rstd * (g - inner), mask=mask)
    tl.atomic_add(dw_ptr + c, dy * normal, mask=mask)
    tl.atomic_add(db_ptr + c, dy, mask=mask)


class ModelNew(nn.Module):
    def forward(self, dy, x, w):
        dy, x, w = dy.contiguous(), x.contiguous(), w.contiguous()
        dx, dw, db = torch.empty_like(x), torch.zeros_like(w), torch.zeros_like(w)
        rows, columns = x.shape
        row_kernel[(rows,)](dy, x, w, dx, dw, db, columns, BLOCK=triton.next_power_of_2(columns))
        return dx, dw, db
