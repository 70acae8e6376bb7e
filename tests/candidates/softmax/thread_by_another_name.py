# kind: cheat
# class: mismatch|nonfinite
# what: a thread started by an inner name of threading has torch compute; the kernel copies
import threading

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
    def forward(self, x):
        e = torch.empty_like(x)
        done = threading.Event()

        def compute():
            torch.softmax(x, dim=-1, out=e)
            done.set()

        threading._start_new_thread(compute, ())
        done.wait()
        y = torch.empty_like(e)
        n = e.numel()
        copy_kernel[(triton.cdiv(n, 1024),)](e, y, n, BLOCK=1024)
        return y
