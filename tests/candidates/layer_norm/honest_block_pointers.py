# kind: honest
# class: ok
# what: block pointers over several rows, and as many programs as blocks of rows
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm_rows(
    x_ptr, w_ptr, b_ptr, y_ptr, rows, columns, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    first = tl.program_id(0) * ROWS
    x_block = tl.make_block_ptr(x_ptr, (rows, columns), (columns, 1), (first, 0), (ROWS, BLOCK), (1, 0))
    y_block = tl.make_block_ptr(y_ptr, (rows, columns), (columns, 1), (first, 0), (ROWS, BLOCK), (1, 0))
    w_block = tl.make_block_ptr(w_ptr, (columns,), (1,), (0,), (BLOCK,), (0,))
    b_block = tl.make_block_ptr(b_ptr, (columns,), (1,), (0,), (BLOCK,), (0,))
    x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
    valid = (tl.arange(0, BLOCK) < columns)[None, :]
    mean = tl.sum(x, axis=1) / columns
    centred = tl.where(valid, x - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / columns
    normal = centred * tl.rsqrt(variance + eps)[:, None]
    w = tl.load(w_block, boundary_check=(0,), padding_option="zero")
    b = tl.load(b_block, boundary_check=(0,), padding_option="zero")
    tl.store(y_block, (normal * w[None, :] + b[None, :]).to(y_ptr.dtype.element_ty), boundary_check=(0, 1))


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.norm.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.norm.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        y = torch.empty_like(flat)
        rows, columns = flat.shape
        grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)
        layer_norm_rows[grid](
            flat, self.norm.weight, self.norm.bias, y, rows, columns, self.norm.eps,
            ROWS=4, BLOCK=triton.next_power_of_2(columns),
        )
        return y.view(x.shape)
