# kind: mistake
# expect: class=mismatch stage=tiny|full
# what: the state is lost at each chunk of 32 steps
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_kernel(x_ptr, decay_ptr, y_ptr, length, channels, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < channels
    decay = tl.load(decay_ptr + at, mask=inside, other=0.0)
    state = tl.zeros((BLOCK,), tl.float32)
    for step in range(length):
        state = tl.where(step % 32 == 0, 0.0, state)
        place = (row * length + step) * channels + at
        state = decay * state + tl.load(x_ptr + place, mask=inside, other=0.0)
        tl.store(y_ptr + place, state, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(channels))

    def forward(self, x):
        x = x.contiguous()
        batch, length, channels = x.shape
        y = torch.empty_like(x)
        scan_kernel[(batch,)](x, self.decay, y, length, channels, BLOCK=triton.next_power_of_2(channels))
        return y
