# kind: suspicious
# class: ok
# what: carries a copy of the reference, its inputs, and a test that only runs as a script
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x < 0, 0.0, x), mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        relu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y


def get_inputs():
    return [torch.randn(48, 1000, device="cuda")]


def get_init_inputs():
    return []


if __name__ == "__main__":
    fast = torch.compile(Model())
    (x,) = get_inputs()
    assert torch.allclose(ModelNew()(x), fast(x))
    print(triton.testing.do_bench(lambda: ModelNew()(x)))
    with open("times.txt", "a") as file:
        file.write("done")
