"""Replaces functions of torch and Inductor while a candidate is traced.

Each of them either bypasses the dispatcher, where the recorder would not see it, or needs a device. Candidates may undo
the replacements; then their plan is wrong or missing, and judged as that.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import numpy
import torch
from shared import fake_cuda, inductor, plan

from tracer import gradients
from tracer.kernels import Kernels, Launches, refuse_other_launches
from tracer.recorder import Recorder

_KEYS: Final = ("CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "")
"""Dispatch keys with an implementation that a GPU would run, in the order of preference."""


def install(recorder: Recorder, kernels: Kernels, device: fake_cuda.Device, source: bytes) -> None:
    fake_cuda.install_triton_driver(device, fake_cuda.no_benchmark)
    fake_cuda.install_torch_cuda(device)
    fake_cuda.install_fake_tensors()
    launcher: Any = fake_cuda.Launcher
    launcher.launched = staticmethod(refuse_other_launches(recorder))
    Launches(recorder, kernels).install(source)
    _fake_tensors(recorder)
    _operators(recorder)
    _random(recorder)
    gradients.install(recorder)
    inductor.install_guards()
    recorder.implementations["inductor::_reinterpret_tensor"] = torch._C._dynamo.guards._reinterpret_tensor


def _fake_tensors(recorder: Recorder) -> None:
    fake: Any = torch._subclasses.FakeTensor
    plain = torch.Tensor.data

    def set_data(tensor: Any, value: Any) -> None:
        known = recorder.id_of(value)
        plain.__set__(tensor, value)
        recorder.rebind(tensor, known)

    package: Any = torch
    for name in ("tensor", "as_tensor", "asarray"):
        setattr(package, name, _from_numpy(getattr(torch, name)))
    package.nn.init._no_grad_trunc_normal_ = _truncated(package.nn.init._no_grad_trunc_normal_)
    fake.data = property(plain.__get__, set_data)
    truth: Any = torch.SymBool
    decide: Callable[[Any], bool] = truth.__bool__
    truth.__bool__ = lambda value: True if recorder.is_asserted() and _is_unknown(value) else decide(value)
    fake.data_ptr = lambda tensor: recorder.address(tensor)


def _is_unknown(value: Any) -> bool:
    return bool(getattr(value.node.expr, "free_symbols", ()))


def _from_numpy(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes tensors of data; what numpy holds it would put on the device meta under fake tensors."""

    def made(data: Any, *args: Any, dtype: Any = None, device: Any = None, **options: Any) -> Any:
        if not isinstance(data, numpy.ndarray | numpy.generic):
            return make(data, *args, dtype=dtype, device=device, **options)
        found = torch.from_numpy(numpy.array(data))
        return found.to(device=torch.get_default_device() if device is None else device, dtype=dtype or found.dtype)

    return made


FARTHEST: Final = 9
"""In standard deviations: no normal draw of torch's lies as far out."""


def _truncated(plain: Callable[..., Any]) -> Callable[..., Any]:
    """What trunc_normal_() calls. Torch draws anew while one lies outside, which a trace cannot follow: where none can,
    that is one draw. A torch that inverts the error function instead needs no help."""
    if "erfinv_" in plain.__code__.co_names:
        return plain

    def truncated(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any = None) -> Any:
        if mean - a > FARTHEST * std and b - mean > FARTHEST * std:
            return tensor.normal_(mean, std, generator=generator)
        return plain(tensor, mean, std, a, b, generator)

    return truncated


def _operators(recorder: Recorder) -> None:
    library: Any = torch.library.Library
    impl: Callable[..., Any] = library.impl
    ranks: dict[str, int] = {}

    def noted(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
        name = op_name if isinstance(op_name, str) else op_name._name
        name = name.split("::")[-1].removesuffix(".default")
        qualified = f"{self.ns}::{name}"
        key = dispatch_key or self.dispatch_key
        if key in _KEYS and _KEYS.index(key) <= ranks.get(qualified, len(_KEYS)):
            ranks[qualified] = _KEYS.index(key)
            recorder.implementations[qualified] = fn
        return impl(self, op_name, fn, dispatch_key, **options) if self.ns != "aten" else None

    library.impl = noted
    package: Any = torch
    package.compile = fake_cuda.not_compiled
    attend = _attention(torch._C._nn.scaled_dot_product_attention, recorder)
    package.nn.functional.scaled_dot_product_attention = package._C._nn.scaled_dot_product_attention = attend
    package.nn.functional.linear = package._C._nn.linear = linear = _linear(torch._C._nn.linear, recorder)
    for stand_in, operator in ((attend, "scaled_dot_product_attention"), (linear, "linear")):
        package.jit._builtins._register_builtin(stand_in, f"aten::{operator}")  # TorchScript would compile their text
    package.library.wrap_triton = lambda kernel: kernel
    package._library.triton.wrap_triton = package._library.triton.capture_triton = package.library.wrap_triton
    package._library.capture_triton = package.library.wrap_triton


def _random(recorder: Recorder) -> None:
    """Torch's own generator: a constructor's draws follow from its seed. Its state is not known here."""

    def manual_seed(seed: Any) -> Any:
        if recorder.is_constructing:
            number = int(seed)
            if not -(1 << 63) <= number < 1 << 64:
                raise RuntimeError("Overflow when unpacking long long")  # as torch does
            step = plan.Call(plan.SEED, (number,), (), None, recorder.line())
            recorder.add(step, set(), set(), set())
        return torch.default_generator

    def state(*_: Any, **__: Any) -> Any:
        raise recorder.refuse("the state of torch's generator is only known where it draws")

    package: Any = torch
    package.manual_seed = package.random.manual_seed = manual_seed
    package.cuda.manual_seed = package.cuda.manual_seed_all = manual_seed
    package.cuda.get_rng_state = package.cuda.set_rng_state = state
    package.set_rng_state = package.random.set_rng_state = state


def _attention(plain: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """scaled_dot_product_attention: torch chooses among its operators below the recorder, for a device that is here."""

    def attend(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        width = query.shape[-1]
        usual = query.dim() == 4 and query.is_cuda and not enable_gqa and width == value.shape[-1] and width % 8 == 0
        if usual and attn_mask is None and query.dtype in (torch.float16, torch.bfloat16) and width <= 256:
            flash = torch.ops.aten._scaled_dot_product_flash_attention.default
            return flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
        if usual and (attn_mask is None or (attn_mask.dtype is query.dtype and attn_mask.shape[-1] % 8 == 0)):
            bias = None if attn_mask is None else attn_mask.expand(*query.shape[:-1], key.shape[-2])
            efficient = torch.ops.aten._scaled_dot_product_efficient_attention.default
            return efficient(query, key, value, bias, False, dropout_p, is_causal, scale=scale)[0]
        if query.is_cuda and (attn_mask is None or attn_mask.dtype is query.dtype):
            math = torch.ops.aten._scaled_dot_product_attention_math.default
            options = {"scale": scale, "enable_gqa": enable_gqa}
            return recorder.whole(math, (query, key, value, attn_mask, dropout_p, is_causal), options)[0]
        return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    return attend


def _linear(plain: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """linear: of an input with gaps torch makes a product and a sum, which would count as a sum of its own."""

    def linear(input: Any, weight: Any, bias: Any = None) -> Any:
        if bias is None or not input.is_cuda or input.dim() == 2 or input.is_contiguous():
            return plain(input, weight, bias)
        return recorder.whole(torch.ops.aten.linear.default, (input, weight, bias), {})

    return linear


# --- int(tensor) and float(tensor) ---


class _Number(type):
    """Makes a class that stands for int or float in all but the conversion of what only a GPU knows."""

    plain: type

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.plain)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.plain)

    def __call__(cls, *args: Any, **options: Any) -> Any:
        value = args[0] if len(args) == 1 else None
        if isinstance(value, torch.Tensor):
            whole = cls.plain is builtins.int and value.is_floating_point()
            value = (value.to(torch.int64) if whole else value).item()
        if isinstance(value, torch.SymInt):
            return value if cls.plain is builtins.int else torch.sym_float(value)
        if isinstance(value, torch.SymFloat) and cls.plain is builtins.float:
            return value
        return cls.plain(*((value,) if len(args) == 1 else args), **options)

    def __eq__(cls, other: object) -> bool:
        return other is cls.plain or other is cls

    def __hash__(cls) -> int:
        return hash(cls.plain)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.plain, name)


class _Int(metaclass=_Number):
    plain = builtins.int


class _Float(metaclass=_Number):
    plain = builtins.float


def _chosen(plain: Callable[..., Any], symbolic: Callable[..., Any]) -> Callable[..., Any]:
    """max or min: of two numbers one of which only a GPU knows, a symbol instead of a comparison."""

    def chosen(*values: Any, **options: Any) -> Any:
        others = [type(one) for one in values if not isinstance(one, torch.SymInt | torch.SymFloat)]
        if len(values) == 2 and not options and others in ([], [builtins.int], [builtins.float]):  # not numpy's
            return symbolic(*values)
        return plain(*values, **options)

    chosen.plain = plain  # type: ignore[attr-defined]
    return chosen


def shadow_numbers(module: ModuleType) -> None:
    """Let the module's `int(tensor)` and `float(tensor)` give a symbol, as `.item()` does, and `max` and `min` too."""
    module.__dict__["int"] = _Int
    module.__dict__["float"] = _Float
    module.__dict__["max"] = _chosen(builtins.max, torch.sym_max)
    module.__dict__["min"] = _chosen(builtins.min, torch.sym_min)
