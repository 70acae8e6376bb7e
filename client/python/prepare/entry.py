"""One row on its way to a task: its columns, and what its syntax tree says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .rows import SOURCE_MAX, Broken

SOURCES = ("python_code", "pytorch_code", "reference", "code")
ANSWERS = ("triton_code", "output")
LICENSES = "MIT,BSD-2-Clause,BSD-3-Clause,Apache-2.0,ISC,Unlicense,CC0-1.0,Zlib,0BSD,BSL-1.0"
DETAIL_MAX = 250


@dataclass(frozen=True)
class Rules:
    """The rows that are accepted."""

    source: str  # the rows' member that names their origin
    licenses: frozenset[str]  # in lower case
    lines_most: int = 200
    labels: str = "operations"


@dataclass
class Entry:
    """reason: why it is left out, else None."""

    number: int
    name: str = ""
    source: str = ""
    answer: str | None = None
    entry_point: str = "Model"
    license: str | None = None
    level: int = 0
    problem: int = 0
    is_level_given: bool = False
    is_traced: bool = False
    operations: int = 0
    digest: str = ""
    fault: tuple[str, str] | None = None  # of the answer alone
    reason: str | None = None
    detail: str | None = None
    said: dict[str, Any] = field(default_factory=dict)  # of the daemon

    def drop(self, reason: str, detail: str | None = None) -> None:
        self.reason, self.detail = reason, detail[:DETAIL_MAX] if detail else None

    @property
    def has_answer(self) -> bool:
        return bool(self.answer) and not self.fault

    @property
    def wanted(self) -> str:
        """The class that an answer has to bring."""
        return self.entry_point + "New"

    @property
    def difficulty(self) -> int:
        return min(self.level, 3)

    def labelled_by(self, labels: str) -> str:
        if self.is_level_given:
            return "given"
        if labels == "heuristic":
            return "heuristic"
        return "traced_graph" if self.is_traced else "syntax_tree"


def level_of(operations: int) -> int:
    return 1 if operations <= 1 else 2 if operations <= 8 else 3


def entry_of(number: int, row: Any, rules: Rules) -> Entry:
    """The row by its columns alone."""
    e = Entry(number)
    if isinstance(row, Broken):
        e.drop("not_json", row.fault)
        return e
    if not isinstance(row, dict):
        e.drop("not_an_object")
        return e
    e.name = _name_of(row, rules.source, number)
    e.source = (_text_in(row, SOURCES) or "").removeprefix("\ufeff")  # Python takes a file that begins so
    e.answer = _text_in(row, ANSWERS)
    for column in ("entry_point", "triton_code"):
        if row.get(column) is not None and not isinstance(row[column], str):
            e.drop("column_type", column)
            return e
    if not e.source:
        e.drop("no_reference")
        return e
    if max(len(e.source.encode()), len((e.answer or "").encode())) > SOURCE_MAX:
        e.drop("too_long")
        return e
    if isinstance(row.get("entry_point"), str):
        e.entry_point = row["entry_point"]
    named = _licenses_in(row)
    e.license = next((one for one in named if isinstance(one, str) and one.lower() in rules.licenses), None)
    if named and e.license is None:
        e.drop("license")
        return e
    e.level, e.problem = _whole(row, "level"), _whole(row, "problem_id")
    e.is_level_given = 1 <= e.level <= 4
    return e


def read_tree(e: Entry, tree: dict[str, Any], rules: Rules) -> None:
    """Applies the result of tree.check()."""
    if "fault" in tree:
        reason, *detail = tree["fault"]
        e.drop(reason, detail[0] if detail else None)
        return
    e.digest, e.operations = tree["digest"], tree["operations"]
    e.fault = tuple(tree["answer"]) if tree["answer"] else None
    if not e.is_level_given:
        e.level = tree["guessed"] if rules.labels == "heuristic" else level_of(e.operations)
    if "source" in tree:  # it was not in the form of a task
        e.source, e.entry_point = tree["source"], "Model"
    if tree["lines"] > rules.lines_most:
        e.drop("too_long")


def relabel(e: Entry, labels: str) -> None:
    """By the operations that the daemon counted when it ran the reference."""
    operations = e.said.get("operations")
    if not isinstance(operations, int) or labels != "operations":
        return
    e.operations, e.is_traced = operations, True
    if not e.is_level_given:
        e.level = level_of(operations)


def _text_in(row: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((row[name] for name in names if isinstance(row.get(name), str)), None)


def _name_of(row: dict[str, Any], source: str, number: int) -> str:
    name = _text_in(row, ("name", "id", "uuid"))
    if name:
        return name[:120]
    uuid = row.get("uuid")
    if isinstance(uuid, int) and not isinstance(uuid, bool):
        return f"{source}/{uuid}"
    return f"{source[:100]}/row{number}"


def _licenses_in(row: dict[str, Any]) -> list[Any]:
    found = list(row["licenses"]) if isinstance(row.get("licenses"), list) else []
    return found + [row[name] for name in ("licenses", "license") if isinstance(row.get(name), str)]


def _whole(row: dict[str, Any], name: str) -> int:
    """Also of "2", and of 2.0: pandas writes a column so of which some are missing."""
    value = row.get(name)
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        return int(value)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value == int(value) else 0
