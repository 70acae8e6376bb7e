"""python -m prepare prepare|fuse ARGUMENT...: what trainer(1) starts."""

from __future__ import annotations

import sys

from verifierd_client import VerifierdError

from .command import complain, prepare
from .errors import SERVICE, PrepareError
from .fuse import fuse


def main() -> int:
    commands = {"prepare": prepare, "fuse": fuse}
    try:
        return commands[sys.argv[1]](sys.argv[2:])
    except (PrepareError, OSError) as error:
        return complain(error)
    except VerifierdError as error:
        return complain(PrepareError(str(error), SERVICE))


if __name__ == "__main__":
    sys.exit(main())
