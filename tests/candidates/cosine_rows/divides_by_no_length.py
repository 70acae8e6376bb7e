# kind: mistake
# class: mismatch|nonfinite
# what: divides by lengths that may be zero
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cosine_kernel(a_ptr, b_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * columns + at, mask=at < columns, other=0.0)
    b = tl.load(b_ptr + row * columns + at, mask=at < columns, other=0.0)
    one = tl.sqrt(tl.sum(a * a, axis=0))
    two = tl.sqrt(tl.sum(b * b, axis=0))
    tl.store(y_ptr + row, tl.sum(a * b, axis=0) / (one * two))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        rows, columns = a.shape
        y = torch.empty((rows,), device=a.device, dtype=a.dtype)
        cosine_kernel[(rows,)](a, b, y, columns, BLOCK=triton.next_power_of_2(columns))
        return y
