# kind: honest
# class: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


def small_enough(configs, named_args, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["M"]]


@triton.autotune(
    configs=[triton.Config({"BLOCK": 16, "GROUP": 4}), triton.Config({"BLOCK": 32, "GROUP": 2}, num_warps=8)],
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": small_enough},
)
@triton.jit
def grouped_kernel(x_ptr, w_ptr, y_ptr, M, N, K, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    down, across = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    pid = tl.program_id(0)
    first = pid // (GROUP * across) * GROUP
    size = tl.minimum(down - first, GROUP)
    rows = (first + pid % (GROUP * across) % size) * BLOCK + tl.arange(0, BLOCK)
    columns = pid % (GROUP * across) // size * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, 16):
        k = start + tl.arange(0, 16)
        x = tl.load(x_ptr + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + k[:, None] * N + columns[None, :], mask=(columns[None, :] < N) & (k[:, None] < K), other=0.0)
        total += tl.dot(x, w)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(y_ptr + rows[:, None] * N + columns[None, :], total.to(tl.bfloat16), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, w):
        x, w = x.contiguous(), w.contiguous()
        (M, K), N = x.shape, w.shape[1]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grouped_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK"]) * triton.cdiv(N, meta["BLOCK"]),)](x, w, y, M, N, K)
        return y
