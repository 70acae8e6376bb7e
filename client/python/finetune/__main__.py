"""python -m finetune METHOD REQUEST: what trainer(1) starts. REQUEST is a JSON file.

{"settings": {name: value, ...}, "workdir": "...", "prompt": "sha256:...", ...}
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from . import layout
from .errors import CONFIG, TrainError
from .settings import METHODS, settings_of


def train(method: str, request: Path) -> int:
    document = json.loads(request.read_text())
    settings = settings_of(method, document["settings"])
    workdir = Path(document["workdir"])
    if "WORLD_SIZE" not in os.environ:  # one process trains on one GPU
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    if method in ("reinforce", "grpo"):
        from .policy import train as run
    else:
        from .supervised import train as run
    return run(method, settings, workdir, document)


def leave_status(request: Path, status: int) -> None:
    """Next to the request, by the first process: a launcher of several processes has a status of its own."""
    if os.environ.get("RANK", "0") == "0":
        request.with_name(str(layout.TABLE["status"])).write_text(f"{status}\n")


def main() -> int:
    command, arguments = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("", [])
    status = run_command(command, arguments)
    if command in METHODS and len(arguments) == 1 and Path(arguments[0]).is_file():
        leave_status(Path(arguments[0]), status)
    return status


def run_command(command: str, arguments: list[str]) -> int:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        if command in METHODS and len(arguments) == 1:
            return train(command, Path(arguments[0]))
        if command == "tiny":
            from .tiny import main as run

            return run(arguments)
        if command == "serve":
            from .serve import main as run

            return run(arguments)
        if command == "publish" and len(arguments) == 3:
            from .publish import main as run

            return run(arguments)
        if command == "check" and len(arguments) == 2:
            from .check import main as run

            return run(arguments)
    except TrainError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return error.status
    except ModuleNotFoundError as error:
        print(
            f"trainer: {sys.executable} has no {error.name}: make setup-train, or --python, or TRAINER_PYTHON",
            file=sys.stderr,
        )
        return CONFIG
    print(f"usage: finetune {'|'.join(METHODS)} REQUEST | tiny | serve | check | publish", file=sys.stderr)
    return CONFIG


if __name__ == "__main__":
    sys.exit(main())
