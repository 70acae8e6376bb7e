# kind: mistake
# class: mismatch
# what: takes the statistics for what they are in a new model
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalise_kernel(x_ptr, mean_ptr, scale_ptr, out_ptr, features, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside)
    mean = tl.load(mean_ptr + at % features, mask=inside)
    scale = tl.load(scale_ptr + at % features, mask=inside)
    tl.store(out_ptr + at, x * scale, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("mean_ema", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        count = x.numel()
        normalise_kernel[(triton.cdiv(count, 256),)](
            x, self.mean_ema, self.scale, out, x.shape[-1], count, BLOCK=256
        )
        return out
