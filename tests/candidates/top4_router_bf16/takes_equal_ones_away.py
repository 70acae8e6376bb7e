# kind: mistake
# class: mismatch
# what: takes all away that are as large as the best
import torch
import torch.nn as nn
import triton
import triton.language as tl

CHOSEN = tl.constexpr(4)


@triton.jit
def route_kernel(logits_ptr, weight_ptr, index_ptr, experts, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + token * experts + at, mask=at < experts, other=-float("inf")).to(tl.float32)
    left = tl.exp(x - tl.max(x, axis=0))
    place = tl.arange(0, CHOSEN)
    weights, indices = tl.zeros([CHOSEN], tl.float32), tl.zeros([CHOSEN], tl.int32)
    for k in tl.static_range(CHOSEN):
        best, index = tl.max(left, axis=0), tl.argmax(left, axis=0)
        weights, indices = tl.where(place == k, best, weights), tl.where(place == k, index, indices)
        left = tl.where(left == best, -1.0, left)
    tl.store(weight_ptr + token * CHOSEN + place, weights / tl.sum(weights, axis=0))
    tl.store(index_ptr + token * CHOSEN + place, indices)


class ModelNew(nn.Module):
    def forward(self, logits):
        logits = logits.contiguous()
        tokens, experts = logits.shape
        weights = torch.empty((tokens, 4), device=logits.device, dtype=torch.float32)
        indices = torch.empty((tokens, 4), device=logits.device, dtype=torch.int32)
        route_kernel[(tokens,)](logits, weights, indices, experts, BLOCK=triton.next_power_of_2(experts))
        return weights, indices
