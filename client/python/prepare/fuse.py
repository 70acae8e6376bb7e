"""trainer fuse: new tasks of level 2, composed of operations that are worth fusing.

A head (convolution and batch norm, a linear layer, layer norm, residual and norm) and up to three element-wise steps
behind it. With --mined those come first that torch.fx finds in real modules (finetune.mine). Each is registered with
the daemon, which runs it, before it is kept. The same seed makes the same tasks.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetune import checkpoint
from verifierd_client import Refused

from .ask import Daemon
from .command import believe, common, stop, whole
from .errors import FAILED, INTERRUPTED, PrepareError

TAILS_MOST = 3
CONV = "self.conv = nn.Conv2d(CHANNELS, OUT_CHANNELS, 3, padding=1)"
IMAGE = "torch.randn(BATCH, CHANNELS, SIDE, SIDE)"
ROWS = "torch.randn(ROWS, FEATURES)"


@dataclass(frozen=True)
class Head:
    name: str
    operations: int
    init: tuple[str, ...]
    forward: str
    inputs: str
    arguments: str = "x"

    @property
    def is_image(self) -> bool:
        return self.inputs == IMAGE


HEADS = (
    Head("conv_bn", 2, (CONV, "self.norm = nn.BatchNorm2d(OUT_CHANNELS)"), "x = self.norm(self.conv(x))", IMAGE),
    Head("conv", 1, (CONV,), "x = self.conv(x)", IMAGE),
    Head("gemm_bias", 1, ("self.linear = nn.Linear(FEATURES, OUT_FEATURES)",), "x = self.linear(x)", ROWS),
    Head("layer_norm", 1, ("self.norm = nn.LayerNorm(FEATURES)",), "x = self.norm(x)", ROWS),
    Head("residual_norm", 2, ("self.norm = nn.LayerNorm(FEATURES)",), "x = self.norm(x + residual)",
         f"{ROWS}, {ROWS}", "x, residual"),
)  # fmt: skip
TAILS = {
    "relu": "x = torch.relu(x)",
    "gelu": "x = F.gelu(x)",
    "silu": "x = F.silu(x)",
    "sigmoid": "x = torch.sigmoid(x)",
    "tanh": "x = torch.tanh(x)",
    "leaky_relu": "x = F.leaky_relu(x, 0.1)",
    "scale": "x = x * 0.5",
    "shift": "x = x + 1.0",
    "clamp": "x = torch.clamp(x, -1.0, 1.0)",
}
FORM = """import torch
import torch.nn as nn
import torch.nn.functional as F

{sizes}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}
        return x


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class Made:
    """origin: fuse or mined."""

    name: str
    source: str
    operations: int
    origin: str


def compose(draw: random.Random) -> Made:
    head = draw.choice(HEADS)
    tails: list[str] = []
    for _ in range(draw.randint(1, TAILS_MOST)):
        tails.append(draw.choice([name for name in TAILS if name not in tails[-1:]]))
    if head.is_image:
        sizes = {"BATCH": (4, 16), "CHANNELS": (8, 16, 32), "OUT_CHANNELS": (8, 16, 32), "SIDE": (16, 32)}
    else:
        sizes = {"ROWS": (128, 512, 2048), "FEATURES": (256, 512, 1024), "OUT_FEATURES": (256, 512, 1024)}
    source = FORM.format(
        sizes="\n".join(f"{name} = {draw.choice(among)}" for name, among in sizes.items()),
        init="\n        ".join(head.init),
        arguments=head.arguments,
        forward="\n        ".join([head.forward, *(TAILS[name] for name in tails)]),
        inputs=head.inputs,
    )
    return Made("fuse/" + "_".join([head.name, *tails]), source, head.operations + len(tails), "fuse")


def composed(seed: int, n: int) -> Iterator[Made]:
    """Patterns that differ in more than their sizes; a seed that draws the same ones again and again ends, too."""
    draw, seen = random.Random(seed), set()
    for _ in range(200 * n):
        made = compose(draw)
        if made.name not in seen:
            seen.add(made.name)
            yield made


def mined() -> Iterator[Made]:
    try:
        from finetune import mine
    except ModuleNotFoundError as error:
        raise PrepareError(
            f"the patterns of --mined were not found: {sys.executable} has no {error.name} (--python)"
        ) from None
    found = mine.mined()
    if not found:
        raise PrepareError("no pattern was found in any model of transformers")
    for row in found:
        yield Made(f"mined/{row['name']}"[:146], row["source"], row["operations"], "mined")


def is_kept(daemon: Daemon | None, made: Made) -> bool:
    """Does the daemon take it for a task to learn from?"""
    if daemon is None:
        return True
    try:
        flags = daemon.register(made.name, made.source, "Model", 2).get("flags")
    except Refused as error:
        print(f"trainer: {made.name}: verifierd answered {error.status}: {error.detail}; left out", file=sys.stderr)
        return False
    if flags:
        print(f"trainer: {made.name}: {flags}; left out", file=sys.stderr)
    return not flags


def options() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        "trainer fuse",
        description="Compose new tasks of level 2 from operations that are worth fusing.",
        allow_abbrev=False,
    )
    a = p.add_argument
    a("-n", "--number", type=whole(1), default=100, metavar="N", help="tasks to make (default 100)")
    a("--output", default="fused.jsonl", metavar="NAME", help="file in data/processed (default fused.jsonl)")
    a("--mined", action="store_true", help="first the patterns that torch.fx finds in the models of transformers")
    a("--with", dest="also", type=Path, metavar="FILE", help="tasks as JSON Lines: write them and the new ones to "
      "data/processed/rl_tasks.jsonl, too")  # fmt: skip
    a("--static", action="store_true", help="ask no daemon: no task is run")
    common(p)
    return p


def rows_of(o: argparse.Namespace, daemon: Daemon | None) -> Iterator[dict[str, Any]]:
    left = o.number
    sources = ([mined()] if o.mined else []) + [composed(o.seed, o.number)]
    for made in (made for source in sources for made in source):
        if left == 0:
            return
        if not is_kept(daemon, made):
            continue
        left -= 1
        yield {
            "name": made.name,
            "source": made.origin,
            "pytorch_code": made.source,
            "entry_point": "Model",
            "level": 2,
            "operations": made.operations,
            "seed": o.seed,
            "checked": "static" if daemon is None else "ran",
        }


def fuse(arguments: list[str]) -> int:
    p = options()
    o = p.parse_args(arguments)
    if o.number > 1000 or "/" in o.output:
        p.error("--number takes 1 to 1000, and --output a name without slashes")
    if o.check_arguments:
        return 0
    if o.cacert:
        believe(p, o.cacert)
    signal.signal(signal.SIGTERM, stop)
    path: Path = o.workdir / "data/processed" / o.output
    also = o.also.read_text() if o.also else ""
    try:
        rows = [json.dumps(row) + "\n" for row in rows_of(o, None if o.static else Daemon(o.url))]
    except KeyboardInterrupt:
        print("trainer: interrupted", file=sys.stderr)
        return INTERRUPTED
    checkpoint.replace(path, "".join(rows))
    if o.also:
        before = also if not also or also.endswith("\n") else also + "\n"
        checkpoint.replace(path.with_name("rl_tasks.jsonl"), before + "".join(rows))
    print(f"{len(rows)} tasks in {path}")
    if len(rows) < o.number:
        print(f"trainer: the grammar gave {len(rows)} tasks of {o.number}", file=sys.stderr)
        return FAILED
    return 0
