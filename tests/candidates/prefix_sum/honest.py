# kind: honest
# class: ok
# what: three kernels: blocks, the sums of blocks, and the sums added to their blocks
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_blocks(x_ptr, y_ptr, sum_ptr, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, tl.cumsum(x, axis=0), mask=at < n)
    tl.store(sum_ptr + block, tl.sum(x, axis=0))


@triton.jit
def scan_sums(sum_ptr, before_ptr, blocks, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(sum_ptr + at, mask=at < blocks, other=0.0)
    tl.store(before_ptr + at, tl.cumsum(x, axis=0) - x, mask=at < blocks)


@triton.jit
def add_sums(y_ptr, before_ptr, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, y + tl.load(before_ptr + block), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.numel()
        blocks = triton.cdiv(n, 128)
        y = torch.empty_like(x)
        sums, before = x.new_empty((blocks,)), x.new_empty((blocks,))
        scan_blocks[(blocks,)](x, y, sums, n, BLOCK=128)
        scan_sums[(1,)](sums, before, blocks, BLOCK=triton.next_power_of_2(blocks))
        add_sums[(blocks,)](y, before, n, BLOCK=128)
        return y
