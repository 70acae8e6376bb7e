"""Give a finished adapter another name: a checkpoint of its own, written as every one is.

python -m finetune publish CHECKPOINT ROOT NAME
"""

from __future__ import annotations

import shutil
from fnmatch import fnmatch
from pathlib import Path

from . import checkpoint, layout
from .errors import TrainError

ONE_PIECE = "set fsdp_state_dict_type to FULL_STATE_DICT, of DeepSpeed zero3_save_16bit_model to true"


def copy_weights(source: Path, manifest: checkpoint.Manifest, directory: Path) -> None:
    """A checkpoint's files without what only its training needs. TrainError: none of them are weights."""
    kept = [file for file in manifest["files"] if not any(fnmatch(file, state) for state in layout.STATE)]
    if not any(file.endswith(".safetensors") for file in kept):
        raise TrainError(f"{source} has no weights in one piece: {ONE_PIECE}")
    for file in kept:
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / file, directory / file)


def main(arguments: list[str]) -> int:
    source, root, name = Path(arguments[0]), Path(arguments[1]), arguments[2]
    manifest = checkpoint.verify(source)

    kept = {key: value for key, value in manifest.items() if key not in ("files", "version", "name")}
    path = checkpoint.save(
        root, name, lambda d: copy_weights(source, manifest, d), kept | {"published_from": source.name}
    )
    checkpoint.verify(path)
    print(f"{path} is {source.name}")
    return 0
