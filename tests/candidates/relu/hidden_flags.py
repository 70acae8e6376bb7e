# kind: robustness
# class: crash
# what: has its compile stage report flags that are another stage's, or nobody's, and more reports than one
import gc

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y


for found in vars(gc)["get_" + "objects"]():
    if type(found).__name__ == "Channel":
        report = b'{"ev":"result","outcome":"pass","flags":["decoy_kernel","a\\u0000b",7],"kernels":[null],"error":[]}'
        vars(found)["_socket"].send(report)
