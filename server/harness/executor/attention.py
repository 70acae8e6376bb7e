"""The attention operators that a plan has for a GPU, on CPU tensors: the plain formula, results laid out as theirs."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import library

FLASH: Final = "_scaled_dot_product_flash_attention"
EFFICIENT: Final = "_scaled_dot_product_efficient_attention"
_registered: list[library.Library] = []
"""Kept: what they register lasts as long as they do."""


def _flash(
    query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, debug: bool = False, *,
    scale: float | None = None,
) -> Any:  # fmt: skip
    found = _attended(query, key, value, None, dropout_p, is_causal, scale)
    return _laid_out(found, FLASH, (query, key, value, dropout_p, is_causal, debug), scale)


def _efficient(
    query: Any, key: Any, value: Any, bias: Any, sums: bool, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None,
) -> Any:  # fmt: skip
    found = _attended(query, key, value, bias, dropout_p, is_causal, scale)
    return _laid_out(found, EFFICIENT, (query, key, value, bias, sums, dropout_p, is_causal), scale)


def _attended(query: Any, key: Any, value: Any, bias: Any, dropout_p: float, is_causal: bool, scale: Any) -> Any:
    """In float32, as GPUs add up."""
    wide = [None if x is None else x.float() for x in (query, key, value, bias)]
    return torch.ops.aten._scaled_dot_product_attention_math.default(*wide, dropout_p, is_causal, scale=scale)[0]


def _laid_out(found: torch.Tensor, name: str, args: tuple[Any, ...], scale: float | None) -> tuple[Any, ...]:
    """All results of the operator: those other than the answer are zeros."""
    forms = [arg.to("meta") if isinstance(arg, torch.Tensor) else arg for arg in args]
    made = [
        torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).zero_() if isinstance(x, torch.Tensor) else x
        for x in getattr(torch.ops.aten, name).default(*forms, scale=scale)
    ]
    made[0].copy_(found)
    return tuple(made)


def install() -> None:
    """Once for a process, before a plan is run."""
    if not _registered:
        aten = library.Library("aten", "IMPL")
        aten.impl(FLASH, _flash, "CPU")
        aten.impl(EFFICIENT, _efficient, "CPU")
        _registered.append(aten)
