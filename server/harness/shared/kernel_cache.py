"""Triton's cache of compiled kernels in layers: read-only ones first, then the child's own directory.

Triton notes absolute paths in its cache; here a group is found by name in the folder of its own note, so that a cache
may be moved (and given to another user) after it was filled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import triton
from triton.runtime.cache import FileCacheManager


class LayeredCache(FileCacheManager):
    """Reads from every layer, writes to the last one only (the directory that TRITON_CACHE_DIR names)."""

    layers: tuple[Path, ...] = ()
    adopts: bool = False
    """A kernel found in a layer is copied into the child's own directory, which may be moved to where no layer is."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        self.lock_path = ""
        root = triton.knobs.cache.dir
        if override or dump:
            root = triton.knobs.cache.override_dir if override else triton.knobs.cache.dump_dir
        self.cache_dir = os.path.join(root, key)  # noqa: PTH118 - a string, as the parent has it
        self._folders = [str(layer / key) for layer in self.layers]

    def get_file(self, filename: str) -> str | None:
        for folder in (*self._folders, self.cache_dir):
            path = Path(folder, filename)
            if path.exists():
                is_own = folder == self.cache_dir or not self.adopts
                return str(path) if is_own else self.put(path.read_bytes(), filename)
        return None

    def has_file(self, filename: str) -> bool:
        return self.get_file(filename) is not None

    def get_group(self, filename: str) -> dict[str, str] | None:
        note = self.get_file(f"__grp__{filename}")
        if note is None:
            return None
        names = json.loads(Path(note).read_text()).get("child_paths")
        if not isinstance(names, dict):
            return None
        found = {name: self.get_file(name) for name in names}
        return {name: path for name, path in found.items() if path is not None}

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        Path(self.cache_dir).mkdir(parents=True, exist_ok=True)
        return str(super().put(data, filename, binary))


def install(writable: Path, layers: Sequence[Path] = (), *, adopts: bool = False) -> None:
    """From now on triton reads from layers (which need not exist) and writable, and writes to writable."""
    os.environ["TRITON_CACHE_DIR"] = str(writable)
    LayeredCache.layers, LayeredCache.adopts = tuple(layers), adopts
    triton.knobs.cache.manager_class = LayeredCache
