# kind: honest
# class: ok
# what: a product over channels for each image, block pointers
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def conv_kernel(x_ptr, w_ptr, b_ptr, y_ptr, C, F, P, BF: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    n, f0, p0 = tl.program_id(2), tl.program_id(0) * BF, tl.program_id(1) * BP
    w = tl.make_block_ptr(w_ptr, (F, C), (C, 1), (f0, 0), (BF, BC), (1, 0))
    x = tl.make_block_ptr(x_ptr + n * C * P, (C, P), (P, 1), (0, p0), (BC, BP), (1, 0))
    acc = tl.zeros((BF, BP), dtype=tl.float32)
    for _ in range(0, C, BC):
        acc = tl.dot(
            tl.load(w, boundary_check=(0, 1), padding_option="zero"),
            tl.load(x, boundary_check=(0, 1), padding_option="zero"),
            acc,
            input_precision="ieee",
        )
        w = tl.advance(w, (0, BC))
        x = tl.advance(x, (BC, 0))
    f = f0 + tl.arange(0, BF)
    acc += tl.load(b_ptr + f, mask=f < F, other=0.0)[:, None]
    y = tl.make_block_ptr(y_ptr + n * F * P, (F, P), (P, 1), (f0, p0), (BF, BP), (1, 0))
    tl.store(y, acc, boundary_check=(0, 1))


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=1)

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        filters = self.conv.weight.shape[0]
        y = torch.empty((n, filters, h, w), device=x.device, dtype=x.dtype)
        grid = lambda meta: (triton.cdiv(filters, meta["BF"]), triton.cdiv(h * w, meta["BP"]), n)
        conv_kernel[grid](x, self.conv.weight, self.conv.bias, y, c, filters, h * w, BF=32, BP=64, BC=16)
        return y
