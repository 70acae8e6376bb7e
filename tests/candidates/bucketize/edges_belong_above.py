# kind: mistake
# class: mismatch
# what: a value that equals an edge goes above it
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bucket_kernel(x_ptr, edge_ptr, out_ptr, count, edges, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    low = tl.zeros((BLOCK,), tl.int32)
    high = tl.zeros((BLOCK,), tl.int32) + edges
    left = edges
    while left > 0:
        middle = (low + high) // 2
        edge = tl.load(edge_ptr + middle, mask=middle < edges, other=float("inf"))
        above = (edge <= x) & (low < high)
        low = tl.where(above, middle + 1, low)
        high = tl.where(above, high, middle)
        left = left // 2
    tl.store(out_ptr + at, low.to(tl.int64), mask=at < count)


class ModelNew(nn.Module):
    def forward(self, x, edges):
        x, edges = x.contiguous(), edges.contiguous()
        out = torch.empty_like(x, dtype=torch.int64)
        count = x.numel()
        bucket_kernel[(triton.cdiv(count, 128),)](x, edges, out, count, edges.numel(), BLOCK=128)
        return out
