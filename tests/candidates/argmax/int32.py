# kind: mistake
# expect: class=dtype stage=tiny
# what: int32 where int64 was asked for
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def argmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
    tl.store(y_ptr + row, tl.argmax(x, axis=0).to(tl.int32))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty((rows,), device=x.device, dtype=torch.int32)
        argmax_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
        return y
