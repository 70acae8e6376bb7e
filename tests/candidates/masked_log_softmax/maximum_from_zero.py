# kind: mistake
# class: nonfinite|mismatch
# what: the maximum begins at zero, and values far below leave a sum of nothing
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def log_softmax_kernel(x_ptr, hidden_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=-float("inf"))
    hidden = tl.load(hidden_ptr + row * columns + at, mask=inside, other=1)
    x = tl.where(hidden != 0, -float("inf"), x)
    x = x - tl.maximum(tl.max(x, axis=0), 0.0)
    y = x - tl.log(tl.sum(tl.exp(x), axis=0))
    tl.store(y_ptr + row * columns + at, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, hidden):
        x, hidden = x.contiguous(), hidden.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        log_softmax_kernel[(rows,)](x, hidden, y, columns, BLOCK=triton.next_power_of_2(columns))
        return y
