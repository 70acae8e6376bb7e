# kind: honest
# expect: class=ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pack_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    low = tl.load(x_ptr + 2 * at, mask=inside, other=0) & 15
    high = tl.load(x_ptr + 2 * at + 1, mask=inside, other=0) & 15
    tl.store(y_ptr + at, (low | (high << 4)).to(tl.uint8), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty((x.shape[0], x.shape[1] // 2), device=x.device, dtype=torch.uint8)
        pack_kernel[(triton.cdiv(y.numel(), 256),)](x, y, y.numel(), BLOCK=256)
        return y
