"""What the tests of this folder have in common: settings for scripted workers, and a task for them."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

SCRIPTED: dict[str, object] = {
    "harness": HERE / "harness",
    "device": "cpu",
    "python": sys.executable,
    "stage_limit_ms": 600000,
    "tiny_limit_ms": 600000,
    "cpu_jobs": 2,
}
"""No stage is too slow for a machine that has other work."""

HASTY: dict[str, object] = {"stage_limit_ms": 2000, "tiny_limit_ms": 1000}
"""For those who wait until one of these is over."""

TASK = {"name": "scripted", "reference": "# script: describe=pass\n"}
