# kind: suspicious
# class: ok
# what: autotunes with a pruning function and a key
import torch
import torch.nn as nn
import triton
import triton.language as tl


def prune(configs, arguments, **options):
    return [config for config in configs if config.num_warps * 32 <= 1024] or configs


@triton.autotune(
    configs=[triton.Config({}, num_warps=warps) for warps in (2, 4)],
    key=["columns"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        softmax_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
        return y
