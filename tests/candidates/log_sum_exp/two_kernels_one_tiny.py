# kind: suspicious
# class: ok
# what: partial results by one kernel, put together by a tiny second one
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part_kernel(x_ptr, largest_ptr, total_ptr, columns, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    offsets = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
    largest = tl.max(x, axis=0)
    tl.store(largest_ptr + row * parts + part, largest)
    tl.store(total_ptr + row * parts + part, tl.sum(tl.exp(x - largest), axis=0))


@triton.jit
def join_kernel(largest_ptr, total_ptr, y_ptr, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < parts
    largest = tl.load(largest_ptr + row * parts + offsets, mask=mask, other=-float("inf"))
    total = tl.load(total_ptr + row * parts + offsets, mask=mask, other=0.0)
    best = tl.max(largest, axis=0)
    tl.store(y_ptr + row, best + tl.log(tl.sum(total * tl.exp(largest - best), axis=0)))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        parts = triton.cdiv(columns, 256)
        largest = torch.empty((rows, parts), device=x.device, dtype=torch.float32)
        total = torch.empty_like(largest)
        y = torch.empty((rows,), device=x.device, dtype=x.dtype)
        part_kernel[(rows, parts)](x, largest, total, columns, parts, BLOCK=256)
        join_kernel[(rows,)](largest, total, y, parts, BLOCK=triton.next_power_of_2(parts))
        return y
