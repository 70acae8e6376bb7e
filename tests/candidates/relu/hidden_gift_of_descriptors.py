# kind: robustness
# class: ok
# what: sends descriptors along with its reports, for the referee to keep
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


import gc  # noqa: E402
import sys  # noqa: E402


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        for found in vars(gc)["get_" + "objects"]():
            if type(found).__name__ == "Channel" and "send" not in vars(found):
                keep = found.send
                gifts = {f"gift{n}": 2 for n in range(8)}
                vars(found)["send"] = lambda message, fds=None, keep=keep: keep(message, fds or gifts)

    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
