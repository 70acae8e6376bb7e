# kind: suspicious
# class: ok
# needs: gpu
# what: works on a stream of its own that the current one waits for
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


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = None

    def forward(self, x):
        if self.stream is None:
            self.stream = torch.cuda.Stream()
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            relu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        torch.cuda.current_stream().wait_stream(self.stream)
        return y
