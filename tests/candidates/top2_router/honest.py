# kind: honest
# class: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def router_kernel(x_ptr, weight_ptr, index_ptr, experts, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * experts + at, mask=at < experts, other=-float("inf"))
    first = tl.max(x, axis=0)
    one = tl.min(tl.where(x == first, at, BLOCK), axis=0)
    rest = tl.where(at == one, -float("inf"), x)
    second = tl.max(rest, axis=0)
    two = tl.min(tl.where((rest == second) & (at != one), at, BLOCK), axis=0)
    share = tl.exp(second - first)
    tl.store(weight_ptr + row * 2, 1.0 / (1.0 + share))
    tl.store(weight_ptr + row * 2 + 1, share / (1.0 + share))
    tl.store(index_ptr + row * 2, one.to(tl.int64))
    tl.store(index_ptr + row * 2 + 1, two.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, logits):
        logits = logits.contiguous()
        tokens, experts = logits.shape
        weights = torch.empty((tokens, 2), device=logits.device, dtype=logits.dtype)
        indices = torch.empty((tokens, 2), device=logits.device, dtype=torch.int64)
        router_kernel[(tokens,)](logits, weights, indices, experts, BLOCK=triton.next_power_of_2(experts))
        return weights, indices
