# kind: honest
# class: ok
# what: a kernel as Inductor's own output has it, with its decorator, configurations and call
import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch._C import _cuda_getCurrentRawStream as get_raw_stream
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties


@triton_heuristics.pointwise(
    size_hints={"x": 131072},
    filename=__file__,
    triton_meta={
        "signature": {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"},
        "device": DeviceProperties(
            type="cuda", index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536,
            max_threads_per_multi_processor=2048, warp_size=32,
        ),
        "constants": {},
        "configs": [{(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]}],
    },
    inductor_meta={
        "grid_type": "Grid1D", "autotune_hints": set(), "kernel_name": "triton_poi_fused_relu_0",
        "mutated_arg_names": [], "optimize_mem": True, "no_x_dim": False, "num_load": 1, "num_reduction": 0,
        "autotune_pointwise": True, "autotune_local_cache": False, "autotune_remote_cache": False,
    },
    min_elem_per_thread=0,
)
@triton.jit
def triton_poi_fused_relu_0(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (xindex), xmask)
    tmp1 = tl.full([1], 0, tl.int32)
    tl.store(out_ptr0 + (xindex), triton_helpers.maximum(tmp1, tmp0), xmask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        stream0 = get_raw_stream(0)
        triton_poi_fused_relu_0.run(x, y, x.numel(), stream=stream0)
        return y
