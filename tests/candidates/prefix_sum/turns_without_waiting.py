# kind: mistake
# class: mismatch|nondeterministic
# what: takes a turn, and does not wait until the one before is done
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_kernel(x_ptr, y_ptr, turn_ptr, before_ptr, n, BLOCK: tl.constexpr):
    block = tl.atomic_add(turn_ptr, 1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    before = tl.load(before_ptr + block)
    tl.store(before_ptr + block + 1, before + tl.sum(x, axis=0))
    tl.store(y_ptr + at, before + tl.cumsum(x, axis=0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.numel()
        blocks = triton.cdiv(n, 128)
        y = torch.empty_like(x)
        turn = torch.zeros(1, device=x.device, dtype=torch.int32)
        before = x.new_zeros((blocks + 1,))
        scan_kernel[(blocks,)](x, y, turn, before, n, BLOCK=128)
        return y
