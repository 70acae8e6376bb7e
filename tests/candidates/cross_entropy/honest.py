# kind: honest
# expect: class=ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, target_ptr, loss_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * classes + at, mask=at < classes, other=-float("inf"))
    top = tl.max(x, axis=0)
    total = tl.log(tl.sum(tl.exp(x - top), axis=0)) + top
    picked = tl.load(x_ptr + row * classes + tl.maximum(target, 0))
    tl.store(loss_ptr + row, tl.where(target == -100, 0.0, total - picked))


@triton.jit
def mean_kernel(loss_ptr, target_ptr, out_ptr, batch, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < batch
    loss = tl.load(loss_ptr + at, mask=inside, other=0.0)
    counts = (tl.load(target_ptr + at, mask=inside, other=-100) != -100).to(tl.float32)
    tl.store(out_ptr, tl.sum(loss, axis=0) / tl.sum(counts, axis=0))


class ModelNew(nn.Module):
    def forward(self, logits, target):
        logits = logits.contiguous()
        batch, classes = logits.shape
        loss = torch.empty((batch,), device=logits.device, dtype=torch.float32)
        out = torch.empty((), device=logits.device, dtype=torch.float32)
        row_kernel[(batch,)](logits, target, loss, classes, BLOCK=triton.next_power_of_2(classes))
        mean_kernel[(1,)](loss, target, out, batch, BLOCK=triton.next_power_of_2(batch))
        return out
