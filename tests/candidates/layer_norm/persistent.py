# kind: suspicious
# class: ok
# what: as many programs as the board has multiprocessors, each walking through rows
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, rows, columns, eps, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    w = tl.load(w_ptr + offsets, mask=mask, other=0.0)
    b = tl.load(b_ptr + offsets, mask=mask, other=0.0)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
        mean = tl.sum(x, axis=0) / columns
        centred = tl.where(mask, x - mean, 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
        tl.store(y_ptr + row * columns + offsets, centred * scale * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.norm.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.norm.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        rows = x.numel() // columns
        y = torch.empty_like(x)
        programs = torch.cuda.get_device_properties(x.device).multi_processor_count
        layer_norm_kernel[(min(programs, rows),)](
            x, self.norm.weight, self.norm.bias, y, rows, columns, self.norm.eps,
            BLOCK=triton.next_power_of_2(columns),
        )
        return y
