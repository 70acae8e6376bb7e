"""The configuration file of trainer run: sections of keys, checked against one table and the settings of the methods.

KEY = VALUE and SECTION { KEY = VALUE ... }, with comments as in shell, C and C++. "${NAME}" is the environment's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from finetune.settings import ROWS as TRAINING

from .common import Json, PipelineError

METHODS = ("bestofn", "weighted", "reinforce", "grpo")
# By section ("" for the top): a text or a flag by its default, a list of words with the default first, a number by
# default, least and most. docs/pipeline.md says what each is for.
OWN: dict[str, dict[str, Any]] = {
    "": {
        "model": "Qwen/Qwen2.5-Coder-7B-Instruct",
        "model_config": "",
        "python": "",
        "workdir": "",
        "gpus": (1, 1, 1024),
        "devices": "",
        "gpu_memory_gb": (0.0, 0, 10000),
        "gpu_price": (0.0, 0, 10000),
        "seed": (0, 0, 2147483647),
    },
    "verifier": {"url": "", "devices": "", "selftest": True},
    "endpoint": {
        "url": "",
        "start": "",
        "model": "",
        "keep": False,
        "wait_s": (900, 1, 86400),
        "temperature": (0.8, 0, 10),
        "max_tokens": (2048, 1, 1000000),
        "concurrency": (8, 1, 64),
    },
    "prepare": {
        "file": "",
        "source": "",
        "overlap": "",
        "licenses": "",
        "max_samples": (1000, 0, 100000000),
        "static": False,
        "verify": True,
    },
    "rl": {
        "method": [*METHODS],
        "rounds": (3, 1, 10000),
        "tasks": "data/processed/tasks.jsonl",
        "fused": (0, 0, 1000),
        "max_tasks": (100, 1, 1000000),
        "level": (2, 0, 4),
        "samples": (10, 1, 256),
        "keep": (3, 1, 256),
        "curriculum": "",
        "mix": (0.5, 0, 1),
        "held_out": "",
        "held_out_tasks": (50, 1, 1000000),
        "reward": "staged",
        "policy": "",
        "until": "",
    },
    "evaluate": {
        "source": "",
        "tasks": "",
        "level": (2, 0, 4),
        "max_tasks": (20, 0, 1000000),
        "published": "",
        "samples": (1, 1, 256),
        "policy": "",
        "until": "",
    },
    "teacher": {"url": "", "model": "", "samples": (4, 1, 256)},
    "sync": {"remote": "", "every_s": (600, 1, 86400), "engine": "rclone"},
    "watch": {"clouds": "", "every_s": (5.0, 0.05, 3600)},
    "estimate": {
        "train_tokens_per_s": (4000.0, 1, 1e9),
        "sample_tokens_per_s": (2000.0, 1, 1e9),
        "verdicts_per_s": (1.0, 0.001, 1e6),
        "row_tokens": (2500.0, 1, 1e7),
    },
}
TRAINING_SECTIONS = ("sft", "train", *METHODS)

TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*|//[^\n]*|/\*.*?\*/)|(?P<mark>[={}])|"(?P<double>(?:\\.|[^"\\])*)"|"""
    r"""'(?P<single>(?:\\.|[^'\\])*)'|(?P<word>(?:\$\{[^}\n]*\}|[^\s"'={}(),])+)""",
    re.DOTALL,
)
PART = re.compile(r"\\(?P<escape>\n|.)|\$\{(?P<name>[^}:\n]+)(?::-(?P<default>[^}]*))?\}", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\n": ""}


def row_of(name: str, kind: Any) -> Json:
    """A row of OWN as settings.json has its rows."""
    if isinstance(kind, bool):
        return {"name": name, "type": "bool", "default": kind}
    if isinstance(kind, str):
        return {"name": name, "type": "text", "default": kind}
    if isinstance(kind, list):
        return {"name": name, "type": "choice", "default": kind[0], "choices": " ".join(kind)}
    default, low, high = kind
    return {"name": name, "type": type(default).__name__, "default": default, "min": low, "max": high}


def rows_of(section: str) -> dict[str, Json]:
    if section in TRAINING_SECTIONS:
        return {row["name"]: row for row in TRAINING}
    return {name: row_of(name, kind) for name, kind in OWN[section].items()}


def value_of(row: Json, text: str) -> Any:
    """ValueError says what the row takes."""
    name, kind = row["name"], row["type"]
    if kind in ("int", "float"):
        try:
            number = float(text) if re.fullmatch(r"[-+.\w]+", text) and "_" not in text else float("nan")
        except ValueError:
            number = float("nan")
        low, high = row["min"], row["max"]
        if not low <= number <= high or (kind == "int" and number != int(number)):
            whole = "whole " if kind == "int" else ""
            raise ValueError(f'{name} takes a {whole}number from {low:g} to {high:g}, not "{text}"')
        return int(number) if kind == "int" else number
    if kind == "bool":
        if text not in ("true", "false"):
            raise ValueError(f'{name} takes true or false, not "{text}"')
        return text == "true"
    if kind == "choice" and text not in row["choices"].split():
        raise ValueError(f'{name} takes one of {row["choices"]}, not "{text}"')
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is not UTF-8") from None
    return text


class Reader:
    """One file: its tokens, each with its line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.text = path.read_bytes().decode("utf-8", "surrogateescape")
        except OSError as error:
            raise PipelineError(f"cannot read {path}: {error.strerror}") from None

    def wrong(self, at: int, what: str) -> PipelineError:
        return PipelineError(f"{self.path}:{self.text.count(chr(10), 0, at) + 1}: {what}")

    def expanded(self, start: int, text: str) -> str:
        """Escapes and variables replaced. An unset variable would end a run far from its cause."""

        def replace(part: re.Match[str]) -> str:
            if part["escape"] is not None:
                return ESCAPES.get(part["escape"], part["escape"])
            found = os.environ.get(part["name"], part["default"])
            if found is None:
                raise self.wrong(start + part.start(), f"${{{part['name']}}} is not set in the environment")
            return found

        return PART.sub(replace, text)

    def tokens(self) -> Iterator[tuple[int, str, str]]:
        """Where it stands, "mark" or "text", and what it says; an end at last."""
        at = 0
        while at < len(self.text):
            found = TOKEN.match(self.text, at)
            if not found:
                raise self.wrong(at, f"what is {self.text[at]!r} here for?")
            kind = found.lastgroup or ""
            if kind == "mark":
                yield at, kind, found[0]
            elif kind == "single":
                yield at, "text", re.sub(r"\\([\\'])", r"\1", found[kind])
            elif kind != "space":
                yield at, "text", self.expanded(found.start(kind), found[kind])
            at = found.end()
        yield at, "end", "the end of the file"

    def values(self) -> Iterator[tuple[int, str, str, str]]:
        """Where, section, key, value."""
        section, tokens = "", self.tokens()
        for at, kind, name in tokens:
            if kind == "end" and not section:
                return
            if (kind, name) == ("mark", "}") and section:
                section = ""
                continue
            is_section = not section and name in (*OWN, *TRAINING_SECTIONS)
            if kind != "text" or not (is_section or name in rows_of(section)):
                raise self.wrong(at, f"no such option '{name}'" if kind == "text" else f"{name} is not expected")
            at, kind, mark = next(tokens)
            if (kind, mark) != ("mark", "{" if is_section else "="):
                raise self.wrong(at, f"{name} is followed by {mark}, not {'{' if is_section else '='}")
            if is_section:
                section = name
                continue
            at, kind, value = next(tokens)
            if kind != "text":
                raise self.wrong(at, f"{name} has no value")
            yield at, section, name, value


def read(path: Path) -> Json:
    """Every key with its value or default: {"model": ..., "endpoint": {...}, "sft": {...}, "train": {...}, ...}.

    "train" is what the file's section of that name says, over it what the section named by rl.method says, below both
    the method's defaults. PipelineError names file, line and key. Relative paths stay as they are.
    """
    conf: Json = {section: {} for section in (*OWN, *TRAINING_SECTIONS)}
    reader = Reader(path)
    for at, section, name, text in reader.values():
        try:
            conf[section][name] = value_of(rows_of(section)[name], text)
        except ValueError as error:
            raise reader.wrong(at, f"{section}{'.' * bool(section)}{error}") from None
    method = conf["rl"].get("method", METHODS[0])
    conf["train"] |= conf[method]
    out: Json = {}
    for section in (*OWN, "sft", "train"):
        preset = {"sft": "sft", "train": method}.get(section, "")
        rows = rows_of(section).values()
        filled = {row["name"]: row.get("presets", {}).get(preset, row["default"]) for row in rows} | conf[section]
        out |= {section: filled} if section else filled
    return out
