# kind: robustness
# policy: kernelbench
# expect: class=oom stage=compile
# what: fills the buffers of as many sockets as it gets, in many processes: memory that is in nobody's pages
import torch
import torch.nn as nn
import triton
import triton.language as tl
import importlib
import os
import time


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def misbehave():
    sockets = importlib.import_module("soc" + "ket")
    for _ in range(4):
        getattr(os, "fo" + "rk")()
    pairs = []
    while True:
        try:
            pairs.append(sockets.socketpair())
            for end in pairs[-1]:
                end.setblocking(False)
                end.send(bytes(1 << 20))
        except BlockingIOError:
            continue
        except OSError:
            time.sleep(60)


class ModelNew(nn.Module):
    def forward(self, x):
        misbehave()
        x = x.contiguous()
        y = torch.empty_like(x)
        copy_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return y
