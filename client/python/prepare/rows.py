"""The rows of a data set, one at a time: the file may be larger than memory."""

from __future__ import annotations

import json
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from .errors import PrepareError

ROW_MAX = 16 * 1024 * 1024
SOURCE_MAX = 1024 * 1024
CHUNK = 1 << 20
BATCH = 64
OUTSIDE = re.compile(rb'["\[\]{},]')
INSIDE = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
INT_MAX = 1 << 63


class Broken:
    """In the place of a row that cannot be read: why."""

    def __init__(self, fault: str) -> None:
        self.fault = fault


def rows_of(path: Path) -> Iterator[tuple[int, Any]]:
    """(number, row or Broken) of a JSON array, JSON Lines, parquet, a saved Dataset or a directory of modules."""
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path)
        elif path.is_dir() and (path / "state.json").exists():
            yield from _saved(path)
        elif path.is_dir():
            yield from enumerate(modules_of(path), 1)
        else:
            with path.open("rb") as file:
                yield from _json(file, path)
    except OSError as error:
        raise PrepareError(f"cannot read {path}: {error.strerror or error}") from error


# --- JSON ---


def _json(file: BinaryIO, path: Path) -> Iterator[tuple[int, Any]]:
    if file.read(len(BOM_UTF8)) != BOM_UTF8:
        file.seek(0)
    blank = 0
    while (first := file.read(1)) and first in b" \t\r\n":
        blank += first == b"\n"
    if first == b"[":
        texts: Iterator[tuple[int, bytes | None]] = enumerate(_elements(file, path), 1)
    else:
        file.seek(-len(first), 1)
        texts = _lines(file, blank)
    for number, text in texts:
        yield number, Broken(f"longer than {ROW_MAX} bytes") if text is None else decoded(text)


def _lines(file: BinaryIO, number: int) -> Iterator[tuple[int, bytes | None]]:
    """Rows are numbered as an editor numbers lines."""
    while line := file.readline(ROW_MAX + 1):
        number += 1
        if len(line) > ROW_MAX:
            while line and not line.endswith(b"\n"):
                line = file.readline(CHUNK)
            yield number, None
        elif line.strip():
            yield number, line


def _elements(file: BinaryIO, path: Path) -> Iterator[bytes | None]:
    """The texts between the commas behind an array's bracket; None for one that is longer than ROW_MAX."""
    buffer, at, depth, count = b"", 0, 0, 0
    is_text = is_long = False
    while True:
        if is_text:
            found = INSIDE.match(buffer, at)
            at = found.end() if found else at
            is_text = not buffer.startswith(b'"', at)
            at += not is_text
        token = None if is_text else OUTSIDE.search(buffer, at)
        if token is None:  # all of it was read, but for a backslash whose letter is to come
            at = at if is_text else len(buffer)
            if at > ROW_MAX:
                buffer, at, is_long = buffer[at:], 0, True
            chunk = file.read(CHUNK)
            if not chunk:
                raise PrepareError(f"{path} ends inside its array, after row {count}")
            buffer += chunk
            continue
        mark, at = token[0], token.end()
        if mark == b'"':
            is_text = True
        elif depth == 0 and mark in b",]":
            text = buffer[: at - 1]
            if mark == b"]" and not text.strip() and not is_long:
                return
            count += 1
            yield None if is_long or len(text) > ROW_MAX else text
            if mark == b"]":
                return
            buffer, at, is_long = buffer[at:], 0, False
        else:
            depth = max(0, depth + (mark in b"{[") - (mark in b"}]"))


def decoded(text: bytes) -> Any:
    """The row, or Broken: also where it holds what no JSON document of ours could hold again."""
    try:
        row = json.loads(text.decode(), parse_constant=_refuse, parse_float=_real, parse_int=_whole)
        if b"\\u" in text:
            _check_texts(row)
        return row
    except UnicodeDecodeError as error:
        return Broken(f"not JSON: {error.reason}")
    except RecursionError:
        return Broken("not JSON: nested too deep")
    except ValueError as error:
        return Broken(f"not JSON: {error}")


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _real(text: str) -> float:
    value = float(text)
    return value if abs(value) != float("inf") else _refuse(text)


def _whole(text: str) -> int:
    return int(text) if len(text) < 20 or abs(int(text)) < INT_MAX else _refuse(text)


def _check_texts(value: Any) -> None:
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("a text has a NUL")
        value.encode()  # half of a surrogate pair is not a character
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_texts(key)
            _check_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_texts(inner)


# --- parquet, and what datasets saved ---


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise PrepareError(f"a parquet file needs pyarrow in {sys.executable} (--python)") from None
    if not path.stat().st_size:
        raise PrepareError(f"{path} is empty")
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=BATCH):
            for row in batch.to_pylist():
                number += 1
                yield number, decoded(json.dumps(row, default=str).encode())
    except ArrowException as error:
        raise PrepareError(f"{path}: {error}") from error


def _saved(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        from datasets import load_from_disk
    except ImportError:
        raise PrepareError(f"a saved data set needs datasets in {sys.executable} (--python)") from None
    for number, row in enumerate(load_from_disk(str(path)), 1):
        yield number, decoded(json.dumps(row, default=str).encode())


# --- modules and tasks ---


def modules_of(path: Path) -> list[dict[str, Any]]:
    """A directory's Python files as rows, as `--tasks` reads them: by level, number and name."""
    found: dict[str, dict[str, Any]] = {}
    files = (file for file in sorted(path.rglob("*.py")) if not _is_hidden(file.relative_to(path)))
    for file in files:
        text = file.read_bytes()
        if not text or b"\0" in text or len(text) > SOURCE_MAX:
            print(f"trainer: {file}: empty, binary or longer than 1 MiB; skipped", file=sys.stderr)
            continue
        levels = [int(part[5:]) for part in file.parts[:-1] if re.fullmatch(r"level\d+", part)]
        name = f"level{levels[-1]}/{file.stem}" if levels and levels[-1] else file.stem
        number = re.match(r"\d+", file.stem)
        row = {"name": name, "code": text.decode("utf-8-sig", errors="replace"), "level": levels[-1] if levels else 0}
        found.setdefault(name, row | {"problem_id": int(number[0]) if number else 0, "entry_point": "Model"})
    if not found:
        raise PrepareError(f"nothing in {path} is a task")
    return sorted(found.values(), key=lambda row: (row["level"], row["problem_id"], row["name"]))


def _is_hidden(path: Path) -> bool:
    return path.name.startswith("__") or any(part.startswith(".") for part in path.parts[:-1])


def tasks_of(path: Path) -> Iterator[tuple[str, str, str]]:
    """(name, reference, entry point) of a set of tasks: a directory, a module, JSON or JSON Lines."""
    if path.suffix == ".py":
        yield path.stem, path.read_text(encoding="utf-8-sig", errors="replace"), "Model"
        return
    for number, row in rows_of(path):
        texts = [row.get(key) for key in ("pytorch_code", "python_code", "reference", "code")] if is_row(row) else []
        source = next((text for text in texts if isinstance(text, str)), None)
        if source is None or len(source) > SOURCE_MAX:
            print(f"trainer: {path}, row {number}: no reference of at most 1 MiB in it; skipped", file=sys.stderr)
            continue
        names = [row.get(key) for key in ("name", "id", "uuid")]
        name = next((str(one) for one in names if isinstance(one, (str, int))), f"row{number}")
        yield name, source, row["entry_point"] if isinstance(row.get("entry_point"), str) else "Model"


def is_row(row: object) -> bool:
    return isinstance(row, dict)
