# kind: honest
# class: ok
# what: a kernel made by a function, nested in it
import torch
import torch.nn as nn
import triton
import triton.language as tl


def make_kernel():
    @triton.jit
    def relu_2d(x_ptr, y_ptr, rows, columns, stride, BR: tl.constexpr, BC: tl.constexpr):
        r = tl.program_id(1) * BR + tl.arange(0, BR)[:, None]
        c = tl.program_id(0) * BC + tl.arange(0, BC)[None, :]
        inside = (r < rows) & (c < columns)
        x = tl.load(x_ptr + r * stride + c, mask=inside)
        tl.store(y_ptr + r * columns + c, tl.where(x > 0, x, 0.0), mask=inside)

    return relu_2d


relu_kernel = make_kernel()


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
        relu_kernel[(triton.cdiv(columns, 256), triton.cdiv(rows, 4))](
            x, y, rows, columns, x.stride(0), BR=4, BC=256
        )
        return y
