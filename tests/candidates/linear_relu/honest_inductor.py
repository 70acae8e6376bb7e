# kind: honest
# class: ok
# policy: hybrid
# what: the product by the library into a buffer, as torch.compile prints it, and the epilogue in place
import torch
import torch.nn as nn
import triton
import triton.language as tl

empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
assert_size_stride = torch._C._dynamo.guards.assert_size_stride


@triton.jit
def triton_poi_fused_relu_0(in_out_ptr0, in_ptr0, xnumel, ks0, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x2 = xindex
    x0 = xindex % ks0
    tmp0 = tl.load(in_out_ptr0 + (x2), xmask)
    tmp1 = tl.load(in_ptr0 + (x0), xmask, eviction_policy="evict_last")
    tmp2 = tmp0 + tmp1
    tmp3 = tl.full([1], 0, tl.int32)
    tmp4 = tl.maximum(tmp3, tmp2)
    tl.store(in_out_ptr0 + (x2), tmp4, xmask)


def call(args):
    primals_1, primals_2, primals_3 = args
    args.clear()
    rows, inner = primals_3.shape
    columns = primals_1.shape[0]
    assert_size_stride(primals_1, (columns, inner), (inner, 1))
    assert_size_stride(primals_2, (columns,), (1,))
    buf0 = empty_strided_cuda((rows, columns), (columns, 1), torch.float32)
    torch.mm(primals_3, reinterpret_tensor(primals_1, (inner, columns), (1, inner), 0), out=buf0)
    buf1 = buf0
    del buf0
    xnumel = rows * columns
    triton_poi_fused_relu_0[(triton.cdiv(xnumel, 1024), 1, 1)](buf1, primals_2, xnumel, columns, XBLOCK=1024)
    del primals_2
    return (buf1,)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return call([self.linear.weight, self.linear.bias, x.contiguous()])[0]
