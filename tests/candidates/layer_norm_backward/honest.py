# kind: honest
# class: ok
# what: programs walk through rows and keep partial sums, a second kernel adds them
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows_kernel(dy_ptr, x_ptr, w_ptr, dx_ptr, dw_ptr, db_ptr, rows, columns, per_program, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < columns
    w = tl.load(w_ptr + c, mask=mask, other=0.0)
    dw = tl.zeros((BLOCK,), dtype=tl.float32)
    db = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(program * per_program, min((program + 1) * per_program, rows)):
        x = tl.load(x_ptr + row * columns + c, mask=mask, other=0.0)
        dy = tl.load(dy_ptr + row * columns + c, mask=mask, other=0.0)
        mean = tl.sum(x, axis=0) / columns
        centred = tl.where(mask, x - mean, 0.0)
        rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
        normal = centred * rstd
        g = dy * w
        c1 = tl.sum(g * normal, axis=0) / columns
        c2 = tl.sum(g, axis=0) / columns
        tl.store(dx_ptr + row * columns + c, rstd * (g - c2 - normal * c1), mask=mask)
        dw += dy * normal
        db += dy
    tl.store(dw_ptr + program * columns + c, dw, mask=mask)
    tl.store(db_ptr + program * columns + c, db, mask=mask)


@triton.jit
def add_parts(dw_part_ptr, db_part_ptr, dw_ptr, db_ptr, parts, columns, BP: tl.constexpr, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    p = tl.arange(0, BP)
    mask = (p[:, None] < parts) & (c[None, :] < columns)
    at = p[:, None] * columns + c[None, :]
    tl.store(dw_ptr + c, tl.sum(tl.load(dw_part_ptr + at, mask=mask, other=0.0), axis=0), mask=c < columns)
    tl.store(db_ptr + c, tl.sum(tl.load(db_part_ptr + at, mask=mask, other=0.0), axis=0), mask=c < columns)


class ModelNew(nn.Module):
    def forward(self, dy, x, w):
        dy, x, w = dy.contiguous(), x.contiguous(), w.contiguous()
        rows, columns = x.shape
        parts = min(4, rows)
        dx = torch.empty_like(x)
        dw_part = torch.empty((parts, columns), dtype=torch.float32, device=x.device)
        db_part = torch.empty_like(dw_part)
        dw, db = torch.empty_like(w), torch.empty_like(w)
        rows_kernel[(parts,)](
            dy, x, w, dx, dw_part, db_part, rows, columns, triton.cdiv(rows, parts),
            BLOCK=triton.next_power_of_2(columns),
        )
        add_parts[(triton.cdiv(columns, 32),)](dw_part, db_part, dw, db, parts, columns, BP=4, BC=32)
        return dx, dw, db
