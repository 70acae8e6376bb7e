"""A trainer's own package, one part at a time: its modules without what its __init__ would import (ray, vLLM, CUDA)."""

from __future__ import annotations

import importlib.metadata
import sys
from types import ModuleType


def bare(name: str) -> ModuleType:
    """Have this package be found without running it."""
    folder = importlib.metadata.distribution(name.partition(".")[0]).locate_file(name.replace(".", "/"))
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    return package


def answer(script: str, number: int = 0) -> str:
    """What a model says, for scripted workers."""
    return f"<think>```python\nno\n```</think>\n```python\n# script: {script}\n# {number}\nclass ModelNew: ...\n```"
