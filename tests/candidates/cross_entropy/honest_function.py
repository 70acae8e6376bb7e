# kind: honest
# class: ok
# what: an autograd function: a running maximum over blocks, the gradient written on the way, atomics for the mean
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def loss_and_gradient(
    x_ptr, target_ptr, grad_ptr, loss_ptr, count_ptr, classes, IGNORE: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    x_ptr += row * classes
    grad_ptr += row * classes
    if target == IGNORE:
        for start in range(0, classes, BLOCK):
            at = start + tl.arange(0, BLOCK)
            tl.store(grad_ptr + at, 0.0, mask=at < classes)
        return
    count = tl.load(count_ptr)
    m = -float("inf")
    d = 0.0
    picked = tl.load(x_ptr + target)
    for start in range(0, classes, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < classes, other=-float("inf"))
        new = tl.maximum(m, tl.max(x))
        d = d * tl.exp(m - new) + tl.sum(tl.exp(x - new))
        m = new
    for start in range(0, classes, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < classes, other=-float("inf"))
        share = tl.exp(x - m) / d - tl.where(at == target, 1.0, 0.0)
        tl.store(grad_ptr + at, share / count, mask=at < classes)
    tl.atomic_add(loss_ptr, (m + tl.log(d) - picked) / count)


@triton.jit
def count_kernel(target_ptr, count_ptr, batch, IGNORE: tl.constexpr, BLOCK: tl.constexpr):
    total = 0
    for start in range(0, batch, BLOCK):
        at = start + tl.arange(0, BLOCK)
        target = tl.load(target_ptr + at, mask=at < batch, other=IGNORE)
        total += tl.sum((target != IGNORE).to(tl.int32))
    tl.store(count_ptr, total.to(tl.float32))


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target):
        batch, classes = logits.shape
        grad = torch.empty_like(logits)
        loss = torch.zeros((), device=logits.device, dtype=torch.float32)
        count = torch.empty((), device=logits.device, dtype=torch.float32)
        count_kernel[(1,)](target, count, batch, IGNORE=-100, BLOCK=64)
        loss_and_gradient[(batch,)](logits, target, grad, loss, count, classes, IGNORE=-100, BLOCK=128)
        ctx.save_for_backward(grad)
        return loss

    @staticmethod
    def backward(ctx, dy):
        (grad,) = ctx.saved_tensors
        return grad * dy, None


class ModelNew(nn.Module):
    def forward(self, logits, target):
        return CrossEntropy.apply(logits.contiguous(), target.contiguous())
