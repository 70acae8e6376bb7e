# kind: honest
# class: ok
# what: each input channel adds its taps by atomics
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scatter_taps(x_ptr, w_ptr, y_ptr, C, F, L, OL, TAPS: tl.constexpr, BF: tl.constexpr, BL: tl.constexpr):
    n, c = tl.program_id(0), tl.program_id(1)
    f, s = tl.arange(0, BF)[:, None], tl.arange(0, BL)[None, :]
    x = tl.load(x_ptr + (n * C + c) * L + s, mask=s < L, other=0.0)
    for k in tl.static_range(TAPS):
        w = tl.load(w_ptr + (c * F + f) * TAPS + k, mask=f < F, other=0.0)
        t = 2 * s - 1 + k
        tl.atomic_add(y_ptr + (n * F + f) * OL + t, x * w, mask=(f < F) & (s < L) & (t >= 0) & (t < OL))


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, filters, 4))

    def forward(self, x):
        x = x.contiguous()
        n, c, length = x.shape
        filters = self.weight.shape[1]
        y = torch.zeros((n, filters, 2 * length), device=x.device, dtype=x.dtype)
        scatter_taps[(n, c)](
            x, self.weight, y, c, filters, length, 2 * length,
            TAPS=4, BF=triton.next_power_of_2(filters), BL=triton.next_power_of_2(length),
        )
        return y
