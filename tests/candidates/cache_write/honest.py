# kind: honest
# expect: class=ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def write_kernel(cache_ptr, new_ptr, position_ptr, length, features, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < features
    position = tl.load(position_ptr + row)
    new = tl.load(new_ptr + row * features + at, mask=inside)
    tl.store(cache_ptr + (row * length + position) * features + at, new, mask=inside)


@triton.jit
def sum_kernel(cache_ptr, out_ptr, length, features, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < features
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(length):
        total += tl.load(cache_ptr + (row * length + step) * features + at, mask=inside, other=0.0)
    tl.store(out_ptr + row * features + at, total, mask=inside)


class ModelNew(nn.Module):
    def forward(self, cache, new, position):
        batch, length, features = cache.shape
        out = torch.empty((batch, features), device=cache.device, dtype=cache.dtype)
        block = triton.next_power_of_2(features)
        write_kernel[(batch,)](cache, new, position, length, features, BLOCK=block)
        sum_kernel[(batch,)](cache, out, length, features, BLOCK=block)
        return out
