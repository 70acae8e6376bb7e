# kind: cheat
# expect: class=compile stage=compile
# what: sends its own plan, for a target that nobody asked for: the compiler must refuse it by name
import os

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y


if "TRITON_INTERPRET" not in os.environ:
    import shared.wire

    plain = shared.wire.make_memfd

    def make_memfd(data, name="message"):
        head, found, rest = data.partition(b'"target":"cuda:')
        return plain(head + found + b"1" + rest if name == "plan" and found else data, name)

    shared.wire.make_memfd = make_memfd
