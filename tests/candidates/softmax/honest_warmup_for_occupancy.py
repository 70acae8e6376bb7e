# kind: honest
# class: ok
# what: compiles by warmup, asks the compiled kernel how many programs fit, and launches that by positions
import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()
PROPERTIES = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)


@triton.jit
def rows_kernel(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr, num_stages: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=num_stages):
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + row * columns + at, e / tl.sum(e, axis=0), mask=at < columns)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        block, stages = triton.next_power_of_2(columns), 2
        compiled = rows_kernel.warmup(x, y, rows, columns, BLOCK=block, num_stages=stages, num_warps=4, grid=(1,))
        compiled._init_handles()
        fit = PROPERTIES["max_num_regs"] // (max(1, compiled.n_regs) * PROPERTIES["warpSize"] * 4)
        fit = max(1, min(fit, PROPERTIES["max_shared_mem"] // max(1, compiled.metadata.shared)))
        programs = min(rows, fit * PROPERTIES["multiprocessor_count"])
        compiled[(programs, 1, 1)](x, y, rows, columns, block, stages)
        return y
