"""python -m prepare prepare|fuse ARGUMENT...: what trainer(1) starts."""

from __future__ import annotations

import sys

from .command import complain, prepare
from .errors import PrepareError
from .fuse import fuse


def main() -> int:
    commands = {"prepare": prepare, "fuse": fuse}
    try:
        return commands[sys.argv[1]](sys.argv[2:])
    except (PrepareError, OSError) as error:
        return complain(error)


if __name__ == "__main__":
    sys.exit(main())
