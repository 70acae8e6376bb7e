# kind: suspicious
# policy: kernelbench
# expect: class=ok
# what: leaves processes behind that took leave of it in every way there is
import torch
import torch.nn as nn
import triton
import triton.language as tl
import os
import signal
import time


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def misbehave():
    for _ in range(3):
        if getattr(os, "fo" + "rk")() == 0:
            os.setsid()
            for _ in range(2):
                if getattr(os, "fo" + "rk")() != 0:
                    os._exit(0)
            for number in range(1, 32):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            time.sleep(600)
            os._exit(0)


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x):
        ModelNew.calls += 1
        if ModelNew.calls <= 8:  # more than a limit on processes allows would be an error of its own
            misbehave()
        x = x.contiguous()
        y = torch.empty_like(x)
        copy_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return y
