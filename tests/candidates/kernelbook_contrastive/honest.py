# kind: honest
# expect: class=ok
# entry: ContrastiveMarginNew
# what: KernelBook calls the candidate's class <Entry>New and passes keywords to its constructor
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def hinge_kernel(a_ptr, b_ptr, y_ptr, weight, margin, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    d = tl.load(a_ptr + offsets, mask=mask) - tl.load(b_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, weight * tl.maximum(margin - d * d, 0.0), mask=mask)


class ContrastiveMarginNew(nn.Module):
    def __init__(self, weight, margin=1.0):
        super().__init__()
        self.weight = weight
        self.margin = margin

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        y = torch.empty_like(a)
        n = a.numel()
        hinge_kernel[(triton.cdiv(n, 256),)](a, b, y, self.weight, self.margin, n, BLOCK=256)
        return y
