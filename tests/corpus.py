"""The tasks and candidates of tests/tasks and tests/candidates, as their own header comments describe them.

A header is the run of `# key: value` lines at the top of a file. A task may say `kind` (of work: reduction, ...),
`level`, `entry`, `policy`, `dynamic_shapes: yes`, `needs: gpu` and `why`. A candidate says what it is and what must
become of it:

    # kind: cheat
    # class: hack|mismatch
    # what: starts the work on a stream that nobody waits for
    # needs: gpu

`kind` is one of KINDS. `class` is the class that the verdict must have; `expect: class=mismatch stage=tiny|full`
in its place names the stages too. A cheat whose plan leaves it nothing to gain may be `ok`. Several answers that are
equally right stand side by side, separated by `|`.
It may also say `policy`, `entry` and `why` (`what` under an older name). A candidate that ends in `.txt` is a model's
answer: what follows its header is sent as `completion`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
_EARLY = ("extract", "syntax", "form", "policy", "import", "compile", "launch", "timeout", "oom", "crash")
_LATE = ("shape", "dtype", "nonfinite", "mismatch", "nondeterministic", "mutated_input", "out_of_bounds", "hack")
CLASSES = frozenset({"ok", *_EARLY, *_LATE})
KINDS = ("honest", "suspicious", "mistake", "cheat", "robustness")
"""honest: plainly right. suspicious: right, and looks like a cheat. mistake: wrong in good faith. cheat: wants to be
paid for what it did not do. robustness: crashes, floods, endless loops and other bad input."""
STAGES = ("extract", "ast", "compile", "tiny", "full", "timing")

_TASK_KEYS = frozenset({"kind", "level", "dynamic_shapes", "entry", "needs", "policy", "why"})
_CANDIDATE_KEYS = frozenset({"kind", "class", "expect", "what", "policy", "entry", "needs", "why"})
_LINE = re.compile(rb"#\s*([a-z_]+):\s*(.*?)\s*$")


class CorpusError(Exception):
    """A header that cannot be read: which file, and why."""


@dataclass(frozen=True)
class Task:
    """One reference."""

    name: str
    path: Path
    source: str
    level: int
    entry_point: str
    policy: str
    is_dynamic: bool
    needs_gpu: bool
    kind: str = "other"

    def registration(self) -> dict[str, object]:
        """The body of POST /v1/tasks."""
        body: dict[str, object] = {"name": self.name, "reference": self.source, "level": self.level}
        if self.entry_point != "Model":
            body["entry_point"] = self.entry_point
        if self.is_dynamic:
            body["dynamic_shapes"] = True
        return body


@dataclass(frozen=True)
class Candidate:
    """One answer to a task, and what must become of it."""

    task: str
    name: str
    path: Path
    text: str
    is_completion: bool
    kind: str
    classes: frozenset[str]
    stages: frozenset[str]
    """Where it may fail; empty for a candidate that is right, and where any stage will do."""
    policy: str
    entry_point: str | None
    needs_gpu: bool
    what: str

    @property
    def label(self) -> str:
        return f"{self.task}/{self.name}"

    @property
    def is_honest(self) -> bool:
        return self.kind in ("honest", "suspicious")

    def body(self, task_id: str) -> dict[str, object]:
        """The body of POST /v1/submissions."""
        body: dict[str, object] = {"task": task_id, "policy": self.policy}
        body["completion" if self.is_completion else "candidate"] = self.text
        if self.entry_point is not None:
            body["entry_point"] = self.entry_point
        return body


def _read(path: Path, known: frozenset[str]) -> tuple[dict[str, str], str, str]:
    """The header of a file, its whole text, and what follows the header."""
    data = path.read_bytes()
    header: dict[str, str] = {}
    rest = data.removeprefix(b"\xef\xbb\xbf")
    while match := _LINE.match(rest.split(b"\n", 1)[0]):
        key = match[1].decode()
        if key not in known:
            raise CorpusError(f"{path}: unknown header key {key!r}")
        if key in header:
            raise CorpusError(f"{path}: header key {key!r} twice")
        header[key] = match[2].decode()
        rest = rest.partition(b"\n")[2]
    return header, data.decode(), rest.decode()


def _needs_gpu(header: dict[str, str], path: Path) -> bool:
    needs = header.get("needs")
    if needs not in (None, "gpu"):
        raise CorpusError(f"{path}: needs: {needs!r}, only 'gpu' is known")
    return needs == "gpu"


def _expectation(text: str, path: Path) -> tuple[frozenset[str], frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for word in text.split():
        key, _, values = word.partition("=")
        if key not in ("class", "stage") or key in found:
            raise CorpusError(f"{path}: expect: {word!r}")
        found[key] = frozenset(values.split("|"))
    classes, stages = found.get("class", frozenset()), found.get("stage", frozenset())
    if not classes or not classes <= CLASSES or not stages <= set(STAGES):
        raise CorpusError(f"{path}: expect: {text!r} names an unknown class or stage")
    if (classes == {"ok"}) == bool(stages):
        raise CorpusError(f"{path}: expect: a failing candidate names its stage, a right one does not")
    return classes, stages


def _verdict(header: dict[str, str], path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The classes and stages from `class` or `expect`: one of them, and one only."""
    if ("class" in header) == ("expect" in header):
        raise CorpusError(f"{path}: its header must have either a '# class:' or an '# expect:' line")
    if "expect" in header:
        return _expectation(header["expect"], path)
    classes = frozenset(header["class"].split("|"))
    if not classes <= CLASSES:
        raise CorpusError(f"{path}: class: {header['class']!r} names an unknown class")
    return classes, frozenset()


def _kind(header: dict[str, str], classes: frozenset[str], path: Path) -> str:
    kind = header.get("kind")
    if kind not in KINDS:
        raise CorpusError(f"{path}: kind: {kind!r}, known are {', '.join(KINDS)}")
    is_right = kind in ("honest", "suspicious")
    if (is_right and classes != {"ok"}) or (kind == "mistake" and "ok" in classes):
        raise CorpusError(f"{path}: a {kind} candidate cannot end as {'|'.join(sorted(classes))}")
    return kind


def load_task(path: Path) -> Task:
    """Read one task; CorpusError where its header is wrong."""
    header, text, _ = _read(path, _TASK_KEYS)
    return Task(
        name=path.stem,
        path=path,
        source=text,
        level=int(header.get("level", "1")),
        entry_point=header.get("entry", "Model"),
        policy=header.get("policy", "strict"),
        is_dynamic=header.get("dynamic_shapes") == "yes",
        needs_gpu=_needs_gpu(header, path),
        kind=header.get("kind", "other"),
    )


def load_candidate(path: Path) -> Candidate:
    """Read one candidate; CorpusError where its header is wrong."""
    header, text, rest = _read(path, _CANDIDATE_KEYS)
    classes, stages = _verdict(header, path)
    is_completion = path.suffix == ".txt"
    return Candidate(
        task=path.parent.name,
        name=path.stem,
        path=path,
        text=rest if is_completion else text,
        is_completion=is_completion,
        kind=_kind(header, classes, path),
        classes=classes,
        stages=stages,
        policy=header.get("policy", "strict"),
        entry_point=header.get("entry"),
        needs_gpu=_needs_gpu(header, path),
        what=header.get("what") or header.get("why", ""),
    )


def load_tasks() -> dict[str, Task]:
    """Every task by name."""
    return {path.stem: load_task(path) for path in sorted((HERE / "tasks").glob("*.py"))}


def load_candidates() -> list[Candidate]:
    """Every candidate, ordered by task and name."""
    paths = [p for p in (HERE / "candidates").glob("*/*") if p.suffix in (".py", ".txt")]
    return [load_candidate(path) for path in sorted(paths)]


def twins() -> frozenset[str]:
    """The tasks that have one honest kernel and one that is nearly right, and nothing else."""
    kinds: dict[str, list[str]] = {}
    for candidate in load_candidates():
        kinds.setdefault(candidate.task, []).append(candidate.kind)
    return frozenset(task for task, found in kinds.items() if sorted(found) == ["honest", "mistake"])
