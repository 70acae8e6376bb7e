"""Functions of torch that move, copy, cast and fill: nothing is computed by them."""

from __future__ import annotations

from typing import Final


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS_AND_COPIES: Final = words(
    """
    __getitem__ __setitem__ as_strided atleast_1d atleast_2d atleast_3d bfloat16 bool broadcast_tensors
    broadcast_to byte cat channel_shuffle char chunk clone column_stack concat concatenate constant_pad_nd
    contiguous copy_ cpu cuda detach detach_ diag_embed diagonal double dstack expand expand_as fill_ flatten
    flip float full_like gather half hsplit hstack im2col index index_copy index_copy_ index_put index_put_
    index_select int long masked_select meshgrid moveaxis movedim narrow new_empty new_full new_ones new_tensor
    new_zeros ones_like pad permute pixel_shuffle pixel_unshuffle ravel repeat repeat_interleave requires_grad_
    reshape reshape_as resize_ resolve_conj resolve_neg roll rot90 row_stack scatter scatter_ select set_ short
    split split_with_sizes squeeze squeeze_ stack swapaxes swapdims t t_ take take_along_dim tensor_split tile
    to transpose transpose_ tril triu type type_as unbind unflatten unfold unsqueeze unsqueeze_ view view_as
    view_as_complex view_as_real vsplit vstack zero_ zeros_like empty_like arange as_tensor empty empty_strided
    eye full linspace ones tensor zeros from_numpy __get__ numpy_T matrix_H mT mH
    """
)
"""By the names that they have in Python."""
