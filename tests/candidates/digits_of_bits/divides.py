# kind: mistake
# class: mismatch
# what: divides, which rounds keys below zero the other way
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def digit_kernel(key_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(key_ptr + at, mask=at < count, other=0)
    tl.store(out_ptr + at, (key // 8) % 16, mask=at < count)


class ModelNew(nn.Module):
    def forward(self, keys):
        keys = keys.contiguous()
        out = torch.empty_like(keys)
        digit_kernel[(triton.cdiv(keys.numel(), 128),)](keys, out, keys.numel(), BLOCK=128)
        return out
