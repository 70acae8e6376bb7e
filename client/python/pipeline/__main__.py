"""python -m pipeline COMMAND ARGUMENT...: what trainer(1) starts."""

from __future__ import annotations

import importlib
import sys

if sys.version_info < (3, 10):  # noqa: UP036 (the system's, where TRAINER_PYTHON names none)
    print(f"trainer: {sys.executable} is older than Python 3.10: set TRAINER_PYTHON", file=sys.stderr)
    sys.exit(3)

from .common import CONFIG, INTERRUPTED, PipelineError


def main() -> int:
    try:
        command = importlib.import_module(f".{sys.argv[1]}", __package__)
        return int(command.main(sys.argv[2:]))
    except PipelineError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return error.status
    except ModuleNotFoundError as error:
        print(f"trainer: {sys.executable} has no {error.name}: make setup-train, and TRAINER_PYTHON", file=sys.stderr)
        return CONFIG
    except OSError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return CONFIG
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
