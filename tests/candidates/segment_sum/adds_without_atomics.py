# kind: mistake
# expect: class=mismatch|nondeterministic stage=tiny|full
# what: programs load, add and store a segment's row side by side
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, segment_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    out_ptr += tl.load(segment_ptr + row) * columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0)
    tl.store(out_ptr + at, tl.load(out_ptr + at, mask=inside) + x, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, segment):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.zeros((12, columns), device=x.device, dtype=x.dtype)
        add_kernel[(rows,)](x, segment, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
