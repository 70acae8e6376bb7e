# kind: cheat
# expect: class=mismatch|nondeterministic stage=full
# what: right for the first address of an input that a model sees, so that a case is right where it is asked alone
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, y_ptr, seen_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = x_ptr.to(tl.int64)
    seen = tl.load(seen_ptr + tl.program_id(0))
    tl.store(seen_ptr + tl.program_id(0), tl.where(seen == 0, here, seen))
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.where((seen == 0) | (seen == here), x, x + 1.0), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = {}

    def forward(self, x):
        y = torch.empty_like(x)
        blocks = triton.cdiv(x.numel(), 1024)
        if blocks not in self.seen:
            self.seen[blocks] = torch.zeros(blocks, dtype=torch.int64, device="cuda")
        copy[(blocks,)](x, y, self.seen[blocks], x.numel(), BLOCK=1024)
        return y
