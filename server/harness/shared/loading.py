"""How a candidate's source becomes a module: the same way wherever it runs.

Triton's cache key has the kernel's text and its line number, so compile and run children must load alike.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

from shared import inductor
from shared.wire import CANDIDATE_FILE

MODULE_NAME: Final = "candidate"


class EntryMissing(Exception):
    """The module has no class of that name."""


def load_candidate(
    source: bytes, directory: Path, before: Callable[[ModuleType], None] = lambda module: None
) -> ModuleType:
    """Write the source to directory/candidate.py and import it. Exceptions of its code are not caught.

    before: called with the module while it is still empty.
    """
    path = directory / CANDIDATE_FILE
    path.write_bytes(source)
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    os.chdir(directory)
    inductor.add_grids(source)
    before(module)
    spec.loader.exec_module(module)
    return module


def find_entry(module: ModuleType, entry: str) -> Any:
    found = getattr(module, entry, None)
    if not callable(found):
        raise EntryMissing(f"the module has no class {entry!r}")
    return found


def line_of_traceback(file: str, trace: TracebackType | None) -> int:
    """The innermost line of a file that an exception passed; 0 where there is none."""
    line = 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
