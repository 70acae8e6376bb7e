# kind: suspicious
# class: ok
# needs: gpu
# what: loads and stores by tensor descriptors, for which it sets an allocator
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    target = tl.make_tensor_descriptor(y_ptr, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    place = [tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS]
    target.store(place, tl.maximum(source.load(place), 0.0))


def allocate(size, alignment, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


class ModelNew(nn.Module):
    def forward(self, x):
        triton.set_allocator(allocate)
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        grid = (triton.cdiv(rows, 16), triton.cdiv(columns, 64))
        relu_kernel[grid](x, y, rows, columns, ROWS=16, COLUMNS=64)
        return y
