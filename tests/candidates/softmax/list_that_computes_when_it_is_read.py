# kind: cheat
# class: ok|mismatch|nonfinite|nondeterministic
# what: answers with a list of its own kind, which has torch compute when it is read, after the call; the kernel copies
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def copied(z):
    y = torch.empty_like(z)
    n = z.numel()
    copy_kernel[(triton.cdiv(n, 1024),)](z, y, n, BLOCK=1024)
    return y


class Answer(list):
    def __iter__(self):
        x, y = self[0], self[1]
        y.copy_(torch.softmax(x, dim=-1))
        return iter([copied(y)])


class ModelNew(nn.Module):
    def forward(self, x):
        return Answer([x, copied(x)])
