"""Tasks and candidates with known verdicts, as their own header comments describe them.

A corpus is a directory with tasks/TASK.py and candidates/TASK/NAME.py, or NAME.txt for a model's whole answer, whose
text after the header is sent as `completion`. A header is the run of `# key: value` lines at the top of a file:

    # kind: cheat
    # class: hack|mismatch
    # what: starts the work on a stream that nobody waits for
    # needs: gpu

docs/selftest.md has the keys. `expect: class=mismatch stage=tiny|full` in place of `class` names the stages too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FILE_MAX = 2 << 20
_EARLY = ("extract", "syntax", "form", "policy", "import", "compile", "launch", "timeout", "oom", "crash")
_LATE = ("shape", "dtype", "nonfinite", "mismatch", "nondeterministic", "mutated_input", "out_of_bounds", "hack")
_ORDER = ("ok", *_EARLY, *_LATE)
CLASSES = frozenset(_ORDER)
"""Nothing may be expected to end by a fault of the service, so `infra` is none of them."""
KINDS = ("honest", "suspicious", "mistake", "cheat", "robustness")
"""honest: plainly right. suspicious: right, and looks like a cheat. mistake: wrong in good faith. cheat: wants to be
paid for what it did not do. robustness: crashes, floods, endless loops and other bad input."""
STAGES = ("extract", "ast", "compile", "tiny", "full", "timing")

_TASK_KEYS = frozenset({"kind", "level", "dynamic_shapes", "entry", "needs", "policy", "why", "what"})
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

    @property
    def expected(self) -> str:
        """Its classes, in the order in which the daemon's documents list them: policy|hack."""
        return "|".join(name for name in _ORDER if name in self.classes)

    @property
    def expected_stages(self) -> str:
        return "|".join(name for name in STAGES if name in self.stages)

    def fresh(self, nonce: str) -> str:
        """Its text as no one sent it before: with a comment at its end, in a model's answer in each fenced block."""
        if not self.is_completion:
            return f"{self.text}\n# {nonce}\n"
        return re.sub(r"(?m)^```.+\n", rf"\g<0># {nonce}\n", self.text)

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
    if len(data) > FILE_MAX:
        raise CorpusError(f"{path}: is larger than {FILE_MAX} bytes")
    header: dict[str, str] = {}
    rest = data.removeprefix(b"\xef\xbb\xbf")
    while match := _LINE.match(rest.split(b"\n", 1)[0]):
        key = match[1].decode()
        if key not in known:
            raise CorpusError(f'{path}: unknown header key "{key}"')
        if key in header:
            raise CorpusError(f'{path}: header key "{key}" twice')
        header[key] = match[2].decode(errors="replace")
        rest = rest.partition(b"\n")[2]
    try:
        return header, data.decode(), rest.decode()
    except UnicodeDecodeError:
        raise CorpusError(f"{path}: is not UTF-8 text") from None


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
    if classes == {"ok"} and stages:
        raise CorpusError(f"{path}: expect: what passes names no stage where it fails")
    return classes, stages


def _verdict(header: dict[str, str], path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The classes and stages from `class` or `expect`: one of them, and one only."""
    if ("class" in header) == ("expect" in header):
        raise CorpusError(f"{path}: its header must have either a '# class:' or an '# expect:' line")
    if "expect" in header:
        return _expectation(header["expect"], path)
    classes = frozenset(name.strip() for name in header["class"].split("|"))
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
    level = header.get("level", "1")
    if not re.fullmatch("[1-9][0-9]?", level):
        raise CorpusError(f"{path}: level: {level!r} is not a number from 1 to 99")
    return Task(
        name=path.stem,
        path=path,
        source=text,
        level=int(level),
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


@dataclass(frozen=True)
class Corpus:
    """Tasks by name, and candidates ordered by task and name."""

    place: Path
    tasks: dict[str, Task]
    candidates: list[Candidate]

    def probe_of(self, task: str) -> Candidate | None:
        """The honest candidate that stands for its task: the one called "honest", else the first."""
        all_ = [k for k in self.candidates if k.task == task and k.kind == "honest" and not k.is_completion]
        return next((k for k in all_ if k.name == "honest"), all_[0] if all_ else None)

    def timed_task(self) -> str | None:
        """The first task that needs a GPU, and so is long, with an honest candidate: its times can be compared."""
        return next((name for name, task in self.tasks.items() if task.needs_gpu and self.probe_of(name)), None)

    def needs_gpu(self, candidate: Candidate) -> bool:
        """Only a GPU can decide it."""
        return candidate.needs_gpu or self.tasks[candidate.task].needs_gpu


def load(directory: Path) -> Corpus:
    """Read a whole corpus. CorpusError names the file and the fault; OSError."""
    tasks = {p.stem: load_task(p) for p in sorted((directory / "tasks").iterdir()) if p.suffix == ".py"}
    folders = [p for p in (directory / "candidates").iterdir() if p.is_dir() and not p.name.startswith((".", "__"))]
    paths = sorted(p for folder in folders for p in folder.iterdir() if p.suffix in (".py", ".txt"))
    candidates = [load_candidate(path) for path in paths]
    if not tasks or not candidates:
        raise CorpusError(f"{directory}: no {'candidates' if tasks else 'tasks'} there")
    for candidate in candidates:
        if candidate.task not in tasks:
            raise CorpusError(f"{candidate.path}: there is no tasks/{candidate.task}.py")
    return Corpus(directory, tasks, candidates)
