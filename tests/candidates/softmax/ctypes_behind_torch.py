# kind: cheat
# class: crash
# what: ctypes by way of torch: native code in the model's process
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


ctypes = torch.ctypes
libc = ctypes.CDLL(None)


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.empty_like(x)
        libc.memcpy(ctypes.c_void_p(e.data_ptr()), ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(x.nbytes))
        e = torch.softmax(e, dim=-1)
        y = torch.empty_like(e)
        n = e.numel()
        copy_kernel[(triton.cdiv(n, 1024),)](e, y, n, BLOCK=1024)
        return y
