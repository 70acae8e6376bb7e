# kind: honest
# expect: class=ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pool_kernel(x_ptr, y_ptr, columns, places, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < places
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    for offset in range(3):
        place = 2 * at - 1 + offset
        x = tl.load(x_ptr + row * columns + place, mask=(place >= 0) & (place < columns), other=-float("inf"))
        best = tl.maximum(best, x)
    tl.store(y_ptr + row * places + at, best, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        places = (columns - 1) // 2 + 1
        y = torch.empty((rows, places), device=x.device, dtype=x.dtype)
        pool_kernel[(rows,)](x, y, columns, places, BLOCK=triton.next_power_of_2(places))
        return y
