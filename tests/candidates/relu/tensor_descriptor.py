# kind: suspicious
# class: ok
# needs: gpu
# what: loads and stores by tensor descriptors, for which it sets an allocator
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [n], [1], [BLOCK])
    target = tl.make_tensor_descriptor(y_ptr, [n], [1], [BLOCK])
    place = [tl.program_id(0) * BLOCK]
    target.store(place, tl.maximum(source.load(place), 0.0))


def allocate(size, alignment, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


class ModelNew(nn.Module):
    def forward(self, x):
        triton.set_allocator(allocate)
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        relu_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
        return y
