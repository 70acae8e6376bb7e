"""The one table of directory names (layout.json): the trainer in C carries the same file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("layout.json").read_text())
MANIFEST: str = TABLE["manifest"]
LATEST: str = TABLE["latest"]
STATE: tuple[str, ...] = tuple(TABLE["state"])  # patterns: what only the training itself needs


def checkpoints(workdir: Path) -> Path:
    return workdir / str(TABLE["checkpoints"])


def steps(workdir: Path, run: str) -> Path:
    """Where a run's checkpoints are."""
    return checkpoints(workdir) / TABLE["steps"].format(run=run)


def step_name(step: int) -> str:
    return str(TABLE["step"].format(step=step))


def outputs(workdir: Path, run: str) -> Path:
    return workdir / str(TABLE["outputs"]) / TABLE["training"].format(run=run)
