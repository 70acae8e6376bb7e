"""The daemon's check before it listens: can this Python judge here, and which layers does the sandbox have?

Prints one JSON object, {"layers": {name: "on" | "absent: why"}} or {"error": text}. It imports neither torch nor
triton, which takes seconds: a broken module is reported by the worker that imports it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

MODULES: Final = ("torch", "triton", "numpy")


class CheckFailed(Exception):
    """For people."""


def layers() -> dict[str, str]:
    """The sandbox's layers as the children of a zygote would have them; CheckFailed."""
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise CheckFailed(f"{sys.executable} has no module {', '.join(missing)}")
    try:
        import zygote
        from shared import native
    except (ImportError, OSError, AttributeError) as error:
        raise CheckFailed(f"the harness cannot be loaded: {error}") from error
    try:
        mode = native.isolate_zygote()
        base = Path(tempfile.mkdtemp(prefix="verifierd-check-"))
        try:
            base.chmod(0o755)
            return zygote.probe(base, mode, "cpu").report
        finally:
            shutil.rmtree(base, ignore_errors=True)
    except OSError as error:
        raise CheckFailed(f"the sandbox: {error}") from error


def main() -> int:
    sys.dont_write_bytecode = True
    os.umask(0o022)
    answer: dict[str, object]
    try:
        answer = {"layers": layers()}
    except CheckFailed as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
