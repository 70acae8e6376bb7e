"""Which of torch's operators a plan may run, and where: the one table of it (proto/plan.md).

`movement` allocates, views, moves, casts or fills with constants: every policy allows it. `library` is a product, a
convolution or an attention: for policies that allow a library. Every other operator of torch computes what a kernel
should: only over parameters, before the first timed call, or where the policy allows anything. A few are `refused`
wherever they stand, since they name files or reach around torch's own checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from shared.movement import words
from shared.plan import CONSTANT as CONSTANT
from shared.plan import SEED as SEED
from shared.plan import Call, Operation, Plan, Ref, Sym, walk

Kind: TypeAlias = Literal["movement", "library", "compute", "refused"]
Foreign: TypeAlias = Literal["movement", "library", "any"]
"""A policy's key `foreign`: what may be computed by others than the candidate's kernels."""


MOVEMENT: Final = words(
    """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided
    zeros zeros_like new_zeros zero zero_ ones ones_like new_ones full full_like new_full fill fill_
    scalar_tensor arange eye linspace
    alias as_strided as_strided_ detach detach_ view _unsafe_view reshape view_as_real view_as_complex
    expand permute transpose transpose_ t t_ squeeze squeeze_ unsqueeze unsqueeze_ select slice narrow split
    split_with_sizes chunk unbind unfold diagonal movedim _conj _neg_view resolve_conj resolve_neg
    lift lift_fresh lift_fresh_copy resize_
    alias_copy as_strided_copy detach_copy view_copy expand_copy permute_copy transpose_copy t_copy squeeze_copy
    unsqueeze_copy select_copy slice_copy narrow_copy split_copy split_with_sizes_copy unbind_copy unfold_copy
    diagonal_copy view_as_real_copy view_as_complex_copy
    clone contiguous copy copy_ _to_copy to
    cat stack repeat repeat_interleave flip roll rot90 tril tril_ triu triu_ constant_pad_nd
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    gather embedding index _unsafe_index index_select take index_copy index_copy_ masked_select
    select_scatter slice_scatter diagonal_scatter as_strided_scatter
    pixel_shuffle pixel_unshuffle channel_shuffle im2col diag_embed
    """
)
"""By name without overload, in aten. Not `_reshape_alias`, a view of any size, which no trace has: on the host it leads
to all memory."""

MOVEMENT_OVERLOADS: Final = words(
    """
    aten.scatter.src aten.scatter.value aten.scatter_.src aten.scatter_.value
    aten.index_put.default aten.index_put_.default aten._unsafe_index_put.default plan.constant.default
    """
)
"""Where other overloads reduce, or an argument says that values are added up (see _accumulates)."""

FILLS: Final = words("full full_like new_full fill fill_ scalar_tensor scatter scatter_ constant_pad_nd")
"""Of these, those that write a number."""

LIBRARY: Final = words(
    """
    mm addmm addmm_ bmm baddbmm baddbmm_ addbmm addbmm_ mv addmv addmv_ dot vdot linear matmul
    _int_mm _scaled_mm _grouped_mm _scaled_grouped_mm
    convolution _convolution cudnn_convolution cudnn_convolution_transpose conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d conv_depthwise3d _conv_depthwise2d
    scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention
    _scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math _flash_attention_forward
    _efficient_attention_forward _cudnn_attention_forward
    """
)

ON_HOST: Final = words(
    """
    bernoulli cauchy dropout exponential geometric log_normal multinomial normal rand rand_like randint randint_like
    randn randn_like randperm random uniform
    all amax amin aminmax any argmax argmin cumprod cumsum linalg_vector_norm logcumsumexp logsumexp max mean min
    nonzero norm prod softmax _softmax log_softmax _log_softmax std std_mean sum var var_mean argsort sort topk
    addmm addmv addr baddbmm bmm dot einsum linear matmul mm mv outer tensordot vdot complex floor_divide polar
    linalg_cross linalg_eigh _linalg_eigh linalg_inv_ex linalg_qr linalg_svd _linalg_svd
    abs copysign eq gcd ge gelu gt heaviside lcm le lt masked_fill mish ne relu6 threshold true_divide xlogy
    """
)
"""Of those that compute, the ones that may run on tensors of the host beside a GPU, as do all that are pointwise, and
all with a final underscore: those of the last line are not told to be pointwise where they have one. Others believe an
index or a size that they are given (`max_pool2d_with_indices_backward` adds to any address), and the executor's own
memory is that of trusted code."""

REFUSED: Final = words(
    """
    from_file set_ set data set_data record_stream _local_scalar_dense item equal is_nonzero allclose is_same_size
    is_set_to is_pinned pin_memory _pin_memory resize_as_sparse_ rename rename_ retain_grad requires_grad_
    """
)

PRIVATE: Final = (
    "_softmax", "_log_softmax", "_safe_softmax", "_weight_norm", "_native_batch_norm_legit", "_batch_norm_with_update",
    "_batch_norm_no_update", "_fused_rms_norm", "_adaptive_avg_pool", "_upsample_", "_fft_", "_linalg_", "_cdist_",
    "_pdist_", "_euclidean_dist", "_embedding_bag", "_prelu_kernel", "_trilinear", "_thnn_fused_", "_foreach_",
    "_cumcum", "_logcumsumexp", "_stack", "_masked_", "_native_multi_head_attention", "_transform_bias_rescale_qkv",
    "_assert_async", "_functional_assert_async", "_addmm_activation", "_chunk_cat", "_fused_dropout",
)  # fmt: skip
"""How the private operators begin that may compute; all others are refused."""


def kind(operator: str) -> Kind:
    """Of an operator by its full name, "aten.view.default"."""
    if operator in MOVEMENT_OVERLOADS:
        return "movement"
    if operator == SEED:
        return "compute"
    namespace, name, _ = operator.split(".")
    if namespace not in ("aten", "prims") or name in REFUSED:
        return "refused"
    if namespace == "aten" and name in MOVEMENT:
        return "movement"
    if namespace == "aten" and name in LIBRARY:
        return "library"
    if name.startswith("_") and not name.startswith(PRIVATE):
        return "refused"
    return "compute"


def _accumulates(call: Call) -> bool:
    """Whether index_put adds up instead of moving."""
    given = dict(call.kwargs).get("accumulate", call.args[3] if len(call.args) > 3 else False)
    return "index_put" in call.op and given is not False


def _calculates(call: Call) -> bool:
    """Whether what it fills with is calculated from numbers of the device, and not one that was read."""
    name = call.op.split(".")[1]
    numbers = (*call.args, *(value for _, value in call.kwargs))
    if name == "linspace":
        return any(isinstance(number, Ref | Sym) for number in numbers)
    if call.op.startswith("aten.arange.start"):
        named = (value for key, value in call.kwargs if key in ("start", "step"))
        return any(isinstance(number, Sym) for number in (*call.args[:1], *call.args[2:], *named))
    return name in FILLS and any(isinstance(number, Sym) and isinstance(number.expr, Operation) for number in numbers)


def kind_of(call: Call) -> Kind:
    """The same of an operator with its arguments. Pinned memory, for which the tracer never asks, is under no limit of
    a process, and torch keeps it for the next candidate."""
    found = kind(call.op) if dict(call.kwargs).get("pin_memory") in (None, False) else "refused"
    return "compute" if found == "movement" and (_accumulates(call) or _calculates(call)) else found


@dataclass(frozen=True)
class Refusal:
    """An operator that the policy does not allow where it stands."""

    case: str
    step: int
    """Index among the operators and launches of the call, or of what made the state."""
    operator: str
    line: int
    advice: str


TOLD_MOST: Final = 4


def told(refusals: Sequence[Refusal]) -> str:
    """The first of them with what to do instead, and the lines of the next ones; its own line is a separate field."""
    first, *others = refusals
    places = [f"{one.operator} in line {one.line}" for one in others[: TOLD_MOST - 1]]
    places += [f"{len(refusals) - TOLD_MOST} more"] if len(refusals) > TOLD_MOST else []
    more = f" (nor {', '.join(places)})" if places else ""
    return f"{first.operator} is not allowed here{more}: {first.advice}"


_ADVICE: Final[dict[str, str]] = {
    "movement": "this policy lets torch only allocate, view, move and cast; compute it in a @triton.jit kernel, or in "
    "the constructor where it needs nothing but parameters",
    "library": "beside movement, this policy lets torch only multiply matrices, convolve and attend; compute it in a "
    "@triton.jit kernel, or in the constructor where it needs nothing but parameters",
    "refused": "no policy lets a plan run it; write what it is for with other operators or a kernel",
}


def _is_allowed(found: Kind, foreign: Foreign) -> bool:
    if found == "refused":
        return False
    return found == "movement" or foreign == "any" or (found == "library" and foreign == "library")


def permits(call: Call, foreign: Foreign) -> bool:
    """Whether a policy with this key lets the operator be called with these arguments."""
    return _is_allowed(kind_of(call), foreign)


def allowed(plan: Plan, foreign: Foreign) -> list[Refusal]:
    """The operators of the plan that the policy does not allow: each of a line once. Empty: all are allowed."""
    found: dict[tuple[str, int], Refusal] = {}
    for trace in plan.traces:
        for steps, permitted in ((trace.construct + trace.first, "any"), (trace.steps, foreign)):
            for index, step in enumerate(walk(steps)):
                if not isinstance(step, Call) or _is_allowed(kind_of(step), permitted):  # type: ignore[arg-type]
                    continue
                advice = _ADVICE["refused" if kind_of(step) == "refused" else permitted]
                key = (step.op, step.line)
                found.setdefault(key, Refusal(trace.case, index, step.op, step.line, advice))
    return list(found.values())
