"""Give a finished adapter another name: a checkpoint of its own, written as every one is.

python -m finetune publish CHECKPOINT ROOT NAME
"""

from __future__ import annotations

import shutil
from pathlib import Path

from . import checkpoint, layout


def main(arguments: list[str]) -> int:
    source, root, name = Path(arguments[0]), Path(arguments[1]), arguments[2]
    manifest = checkpoint.verify(source)

    def write(directory: Path) -> None:
        for file in manifest["files"]:
            if file != layout.STATE:
                shutil.copyfile(source / file, directory / file)

    kept = {key: value for key, value in manifest.items() if key not in ("files", "version", "name")}
    path = checkpoint.save(root, name, write, kept | {"published_from": source.name})
    checkpoint.verify(path)
    print(f"{path} is {source.name}")
    return 0
