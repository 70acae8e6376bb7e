"""Chains of operations that are worth fusing, found by torch.fx in real modules: those of transformers.

Models are made from their configurations on meta tensors: no weights are fetched and none is computed with. A module
that torch.fx cannot trace is passed over; the modules within it are looked at by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import nn
from torch.fx import GraphModule, Node, symbolic_trace
from torch.nn import functional

IMAGES = {"pixel_values": torch.Size((4, 3, 64, 64))}
WORDS = {"input_ids": torch.Size((4, 128))}
SOUND = {"input_values": torch.Size((2, 4000))}
# A configuration of transformers, what differs from its defaults, and the inputs of one call.
MODELS: tuple[tuple[str, dict[str, Any], dict[str, torch.Size]], ...] = (
    ("ResNetConfig", {}, IMAGES),
    ("RegNetConfig", {}, IMAGES),
    ("MobileNetV1Config", {}, IMAGES),
    ("MobileNetV2Config", {}, IMAGES),
    ("BertConfig", {"num_hidden_layers": 1}, WORDS),
    ("OPTConfig", {"num_hidden_layers": 1}, WORDS),
    ("Wav2Vec2Config", {"feat_extract_norm": "layer", "conv_bias": True, "num_hidden_layers": 1}, SOUND),
)
HEADS = (nn.Conv1d, nn.Conv2d, nn.Linear, nn.LayerNorm)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm)
ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Hardswish, nn.LeakyReLU)
FUNCTIONS = {
    functional.relu: "F.relu({x})",
    torch.relu: "torch.relu({x})",
    functional.gelu: "F.gelu({x})",
    functional.silu: "F.silu({x})",
    torch.tanh: "torch.tanh({x})",
    torch.sigmoid: "torch.sigmoid({x})",
}
FORM = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{init}
    def forward(self, x):
{forward}        return x


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""


def inputs_seen(model: nn.Module, inputs: dict[str, torch.Size]) -> dict[nn.Module, tuple[int, ...]]:
    """The shape of what each head was called with, in one call of the model."""
    seen: dict[nn.Module, tuple[int, ...]] = {}

    def note(module: nn.Module, given: tuple[Any, ...]) -> None:
        if given and isinstance(given[0], torch.Tensor):
            seen.setdefault(module, tuple(given[0].shape))

    hooks = [module.register_forward_pre_hook(note) for module in model.modules() if isinstance(module, HEADS)]
    kinds = {name: torch.long if name == "input_ids" else torch.float32 for name in inputs}
    with torch.no_grad():
        model(**{name: torch.zeros(shape, dtype=kinds[name], device="meta") for name, shape in inputs.items()})
    for hook in hooks:
        hook.remove()
    return seen


def traced(model: nn.Module) -> Iterator[GraphModule]:
    """The modules that torch.fx can trace, the outermost of them first."""
    for module in model.modules():
        if not any(module.children()):
            continue
        try:
            yield symbolic_trace(module)
        except Exception:  # a module may raise anything where it cannot be traced
            continue


def step(graph: GraphModule, node: Node) -> tuple[nn.Module | None, str] | None:
    """An operation as a line of forward: its module, if it is one, and its text. None: none that is fused."""
    if node.op == "call_module":
        module = graph.get_submodule(str(node.target))
        return (module, "self.{name}({x})") if isinstance(module, HEADS + NORMS + ACTIVATIONS) else None
    if node.op == "call_function" and node.target in FUNCTIONS and len(node.args) == 1:
        return None, FUNCTIONS[node.target]
    if node.op == "call_method" and node.target == "transpose":
        return None, "{x}.transpose" + str(tuple(node.args[1:]))
    return None


def chain(graph: GraphModule, head: Node) -> list[tuple[nn.Module | None, str]]:
    """From a head on: as long as one operation alone reads what the last one made."""
    found: list[tuple[nn.Module | None, str]] = []
    node: Node | None = head
    while node is not None and (here := step(graph, node)) is not None:
        if found and isinstance(here[0], (nn.Conv1d, nn.Conv2d, nn.Linear)):
            break  # another head
        found.append(here)
        users = list(node.users)
        node = users[0] if len(users) == 1 and users[0].args and users[0].args[0] is node else None
    while found and found[-1][1].startswith("{x}.transpose"):
        found.pop()
    return found


def words(module: nn.Module | None, text: str) -> str:
    return type(module).__name__.lower() if module is not None else re.findall(r"(\w+)\(", text)[-1]


def is_fused(found: list[tuple[nn.Module | None, str]]) -> bool:
    """A head or a norm, and an activation behind it: conv-bn-relu, GEMM-bias-activation, layer norm-GELU."""
    last = found[-1] if found else (None, "")
    return len(found) > 1 and (isinstance(last[0], ACTIVATIONS) or last[1] in FUNCTIONS.values())


def source_of(found: list[tuple[nn.Module | None, str]], shape: tuple[int, ...]) -> str:
    """The chain as a task: the modules with their own sizes, in the order of the calls."""
    init = forward = ""
    for number, (module, text) in enumerate(found):
        name = f"{words(module, text)}{number}"
        if module is not None:
            init += f"        self.{name} = nn.{module!r}\n"
        forward += f"        x = {text.format(x='x', name=name)}\n"
    return FORM.format(init=init, forward=forward, shape=", ".join(map(str, shape)))


def patterns(model: nn.Module, inputs: dict[str, torch.Size], of: str) -> Iterator[dict[str, Any]]:
    """Each chain of a model. The same kinds with the same kernel sizes are one, whatever their channels."""
    seen = inputs_seen(model, inputs)
    for graph in traced(model):
        for node in graph.graph.nodes:
            first = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
            if first not in seen or not is_fused(found := chain(graph, node)):
                continue
            kernel = "x".join(map(str, getattr(first, "kernel_size", ())))
            kinds = [words(module, text) for module, text in found]
            depthwise = "depthwise_" if getattr(first, "groups", 1) > 1 else ""
            yield {
                "name": f"{depthwise}{kinds[0]}{kernel}_{'_'.join(kinds[1:])}",
                "source": source_of(found, seen[first]),
                "operations": sum(kind != "transpose" for kind in kinds),
                "from": of,
            }


def mined() -> list[dict[str, Any]]:
    """The patterns of all models, each once."""
    found: dict[str, dict[str, Any]] = {}
    for name, settings, inputs in MODELS:
        with torch.device("meta"):
            model = transformers.AutoModel.from_config(getattr(transformers, name)(**settings))
        for pattern in patterns(model.eval(), inputs, name.removesuffix("Config")):
            found.setdefault(pattern["name"], pattern)
    return list(found.values())
