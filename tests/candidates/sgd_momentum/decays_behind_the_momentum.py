# kind: mistake
# class: mismatch
# what: the decay does not reach the buffer
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 512}, num_warps=4)],
    key=["total"],
    restore_value=["p_ptr", "buffer_ptr"],
)
@triton.jit
def step_kernel(p_ptr, g_ptr, buffer_ptr, out_ptr, total, rate, momentum, decay, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < total
    p = tl.load(p_ptr + at, mask=mask)
    g = tl.load(g_ptr + at, mask=mask)
    buffer = tl.load(buffer_ptr + at, mask=mask) * momentum + g
    p -= rate * (g + momentum * buffer + decay * p)
    tl.store(buffer_ptr + at, buffer, mask=mask)
    tl.store(p_ptr + at, p, mask=mask)
    tl.store(out_ptr + at, p, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, rate, momentum, decay):
        super().__init__()
        self.rate, self.momentum, self.decay = rate, momentum, decay

    def forward(self, p, g, buffer):
        out = torch.empty_like(p)
        grid = lambda meta: (triton.cdiv(p.numel(), meta["BLOCK"]),)
        step_kernel[grid](p, g, buffer, out, p.numel(), self.rate, self.momentum, self.decay)
        return out
