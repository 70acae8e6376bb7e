# kind: honest
# class: ok
# what: each output gathers the taps that reach it
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gather_taps(x_ptr, w_ptr, y_ptr, C, F, L, OL, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    n, f = tl.program_id(0), tl.program_id(1)
    t = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(C):
        for k in tl.static_range(TAPS):
            twice = t + 1 - k
            s = twice // 2
            mask = (twice >= 0) & (twice % 2 == 0) & (s < L) & (t < OL)
            x = tl.load(x_ptr + (n * C + c) * L + s, mask=mask, other=0.0)
            acc += x * tl.load(w_ptr + (c * F + f) * TAPS + k)
    tl.store(y_ptr + (n * F + f) * OL + t, acc, mask=t < OL)


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, filters, 4))

    def forward(self, x):
        x = x.contiguous()
        n, c, length = x.shape
        filters = self.weight.shape[1]
        y = torch.empty((n, filters, 2 * length), device=x.device, dtype=x.dtype)
        gather_taps[(n, filters, triton.cdiv(2 * length, 64))](
            x, self.weight, y, c, filters, length, 2 * length, TAPS=4, BLOCK=64
        )
        return y
