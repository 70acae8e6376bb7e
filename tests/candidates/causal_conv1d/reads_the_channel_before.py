# kind: mistake
# class: mismatch|nonfinite
# what: the first tokens see the end of the channel before
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def conv_kernel(x_ptr, w_ptr, b_ptr, y_ptr, channels, tokens, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    channel = row % channels
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32) + tl.load(b_ptr + channel)
    for tap in range(4):
        source = at + tap - 3
        x = tl.load(x_ptr + row * tokens + source, mask=(row * tokens + source >= 0) & (source < tokens), other=0.0)
        total += x * tl.load(w_ptr + channel * 4 + tap)
    tl.store(y_ptr + row * tokens + at, total / (1.0 + tl.exp(-total)), mask=at < tokens)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, 4))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        x = x.contiguous()
        batch, channels, tokens = x.shape
        y = torch.empty_like(x)
        conv_kernel[(batch * channels, triton.cdiv(tokens, 64))](
            x, self.weight, self.bias, y, channels, tokens, BLOCK=64
        )
        return y
