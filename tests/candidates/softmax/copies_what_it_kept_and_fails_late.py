# kind: cheat
# class: hack|mismatch|nondeterministic|nonfinite|policy
# needs: gpu
# what: torch computes each first call and the kernel copies what was kept in the second one on the same inputs; it fails while it is timed
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn = 0
        self.kept = None

    def forward(self, x):
        self.turn += x.numel() > 1 << 12
        if self.turn > 10:
            raise RuntimeError("enough")
        if self.turn % 2 or x.numel() <= 1 << 12:
            self.kept = torch.softmax(x, -1)
        y = torch.empty_like(x)
        n = x.numel()
        copy_kernel[(triton.cdiv(n, 1024),)](self.kept, y, n, BLOCK=1024)
        return y
