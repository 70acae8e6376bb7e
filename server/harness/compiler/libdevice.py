"""The part of NVIDIA's libdevice that most kernels need, cut out of it once for all forks.

To link a kernel that takes a square root, LLVM reads all of libdevice: 30 ms, a third of the compile. What Triton has
linked with one kernel that uses many functions is written to a file; a kernel that needs no others is linked with that
file, any other with the whole library. The machine code is the same.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from triton._C.libtriton import llvm

_NEEDED: Final = re.compile(r"^declare .*@(__nv_\w+)\(", re.M)
_DEFINED: Final = re.compile(r"^define .*@(__nv_\w+)\(", re.M)
_OWN: Final = re.compile(r"^define ptx_kernel .*?^}\n|^@global_smem.*?\n|^!llvm\..*?\n", re.M | re.S)
"""The parts of a linked kernel that are not libdevice's: code, memory, and flags, which follow a launch's options."""

link_whole: Final = llvm.link_extern_libs


@contextlib.contextmanager
def cut(path: Path) -> Iterator[None]:
    """Inside, one kernel is compiled that uses what shall be in the file; afterwards links of this process use it."""
    linked: list[tuple[str, list[str]]] = []

    def link_and_note(module: Any, paths: list[str]) -> None:
        link_whole(module, paths)
        linked.append((str(module), paths))

    llvm.link_extern_libs = link_and_note
    try:
        yield
    finally:
        llvm.link_extern_libs = link_whole
    ((text, known),) = linked
    part = _OWN.sub("", text).replace("\ndefine internal ", "\ndefine ")
    path.write_text(part)
    defined = frozenset(_DEFINED.findall(part))

    def link(module: Any, paths: list[str]) -> None:
        is_enough = paths == known and defined.issuperset(_NEEDED.findall(str(module))) and os.access(path, os.R_OK)
        link_whole(module, [str(path)] if is_enough else paths)

    llvm.link_extern_libs = link
