"""The backward pass of torch.autograd in Python: torch's own engine needs a device, and threads that no mode sees.

The graph and the formula of each node are torch's; their operators are recorded as all others are. A node gives all
gradients that it can: what only those need that nobody asked for is left out of a trace. Other than with torch's
engine, a graph that was used can be used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch.autograd.function import BackwardCFunction, FunctionCtx

from tracer.recorder import Recorder

NO_GRAPH: Final = "element {} of tensors does not require grad and does not have a grad_fn"
NOT_ASKED: Final = "One of the differentiated Tensors does not require grad"
UNUSED: Final = "One of the differentiated Tensors appears to not have been used in the graph."


def install(recorder: Recorder) -> None:
    package, context = torch, FunctionCtx  # type: Any, Any
    run = partial(run_backward, recorder=recorder)
    engine = SimpleNamespace(run_backward=run, is_checkpoint_valid=lambda: True)
    package.autograd.Variable._execution_engine = engine
    context.set_materialize_grads = fill
    for name in ("register_hook", "retain_grad", "register_post_accumulate_grad_hook"):
        setattr(package.Tensor, name, _refused(recorder, name))


def fill(context: Any, value: bool) -> None:
    context.materialize_grads = context.isfilled = value  # the first cannot be read


def _refused(recorder: Recorder, name: str) -> Callable[..., Any]:
    def refused(*_: Any, **__: Any) -> Any:
        raise recorder.refuse(f"Tensor.{name}() cannot be traced")

    return refused


def _in_order(roots: Iterable[Any]) -> list[Any]:
    """All nodes of a graph, each before those that it leads to."""
    found: dict[Any, None] = {}
    seen: set[Any] = set()
    waiting = [(node, False) for node in roots]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            found[node] = None
        elif node not in seen:
            seen.add(node)
            waiting += [(node, True), *((following, False) for following, _ in node.next_functions if following)]
    return list(reversed(found))


def run_backward(
    tensors: Sequence[Any], gradients: Sequence[Any], keep_graph: bool, create_graph: bool, inputs: Sequence[Any] = (),
    allow_unreachable: bool = False, accumulate_grad: bool = False, *, recorder: Recorder,
) -> tuple[Any, ...]:  # fmt: skip
    """As the method of torch's engine."""
    for place, tensor in enumerate(tensors):
        if tensor.grad_fn is None:
            raise RuntimeError(NO_GRAPH.format(place))
    if not all(tensor.requires_grad for tensor in inputs):
        raise RuntimeError(NOT_ASKED)
    order = _in_order(tensor.grad_fn for tensor in tensors)
    leaves = {id(node.variable): (node, 0) for node in order if type(node).__name__ == "AccumulateGrad"}
    ends = [(one.grad_fn, one.output_nr) if one.grad_fn else leaves.get(id(one), (None, 0)) for one in inputs]
    leading = set() if inputs else set(order)
    for node in reversed(order) if inputs else ():
        if any(following in leading or following in dict(ends) for following, _ in node.next_functions if following):
            leading.add(node)
    needed = leading.union(node for node, _ in ends)
    given = {node: [None] * len(node._input_metadata) for node in order if node in needed}
    for tensor, gradient in zip(tensors, gradients, strict=True):
        _add(given, tensor.grad_fn, tensor.output_nr, gradient)
    with torch.set_grad_enabled(create_graph):
        for node in (node for node in order if node in leading):
            if type(node).__name__ == "AccumulateGrad":
                _accumulate(node.variable, given[node][0], gradients)
                continue
            for (following, place), gradient in zip(
                node.next_functions, _results(node, given[node], recorder), strict=True
            ):
                _add(given, following, place, gradient)
        found = tuple(given[node][place] if node in given else None for node, place in ends)
        for tensor, gradient in zip(inputs, found, strict=True) if accumulate_grad else ():
            _accumulate(tensor, gradient, gradients)
    if not allow_unreachable and any(gradient is None for gradient in found):
        raise RuntimeError(UNUSED)
    return found


def _results(node: Any, gradients: list[Any], recorder: Recorder) -> list[Any]:
    """What a node makes of the gradients of its results: those of its arguments."""
    if not isinstance(node, BackwardCFunction):
        before, recorder.is_spare = recorder.is_spare, True
        try:
            found = node(*gradients)
        finally:
            recorder.is_spare = before
        return list(found) if isinstance(found, tuple) else [found]
    function: Any = node
    for place, kind in enumerate(function._input_metadata):
        if gradients[place] is None and getattr(function, "isfilled", True):
            gradients[place] = torch.zeros(kind.shape, dtype=kind.dtype, device=kind.device)
    results = function.apply(*gradients)
    results = results if isinstance(results, tuple | list) else (results,)
    if len(results) < len(function.needs_input_grad):
        raise RuntimeError(f"function {function.name()} returned an incorrect number of gradients")
    asked = iter([one for one, is_asked in zip(results, function.needs_input_grad, strict=False) if is_asked])
    return [next(asked) if following else None for following, _ in function.next_functions]


def _add(given: dict[Any, list[Any]], node: Any, place: int, gradient: Any) -> None:
    """Add one to what a node is given, in the form that it takes."""
    if node in given and gradient is not None:
        kind, before = node._input_metadata[place], given[node][place]
        gradient = gradient.sum_to_size(kind.shape) if tuple(gradient.shape) != tuple(kind.shape) else gradient
        given[node][place] = gradient.to(kind.dtype) if before is None else before + gradient.to(kind.dtype)


def _accumulate(tensor: Any, gradient: Any, held: Sequence[Any]) -> None:
    """Into tensor.grad. held: gradients that the candidate has, and may write to."""
    if gradient is not None and tensor.grad is None:
        is_free = not any(gradient is one for one in held) and gradient.stride() == tensor.stride()
        tensor.grad = gradient.detach() if is_free else gradient.clone()
    elif gradient is not None:
        tensor.grad = tensor.grad.add(gradient) if torch.is_grad_enabled() else tensor.grad.add_(gradient)
