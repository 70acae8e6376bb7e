"""How a corpus is read: the headers of its files, and what they may not say."""

from __future__ import annotations

from pathlib import Path

import pytest
from selftest.corpus import Candidate, CorpusError, load, load_candidate, load_task


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture
def candidate_of(tmp_path: Path) -> object:
    return lambda text, name="x.py": load_candidate(put(tmp_path / "relu" / name, text))


HEADER = "# kind:  cheat \n#class:hack\n# what: a, b: c\r\n"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (HEADER + "import torch\n# needs: gpu\n", "import torch\n# needs: gpu\n"),
        (HEADER + "# Why: no key\n", "# Why: no key\n"),
        ("\ufeff" + HEADER.rstrip("\r\n"), ""),
    ],
)
def test_a_header_ends_at_the_first_other_line(candidate_of: object, text: str, rest: str) -> None:
    found: Candidate = candidate_of(text, "x.txt")  # type: ignore[operator]
    assert (found.kind, found.expected, found.what) == ("cheat", "hack", "a, b: c")
    assert (found.text, found.needs_gpu) == (rest, False)


@pytest.mark.parametrize(
    ("text", "classes", "stages"),
    [
        ("# kind: cheat\n# class: hack|mismatch | policy\n", "policy|mismatch|hack", ""),
        ("# kind: cheat\n# class: policy|ok\n", "ok|policy", ""),  # where its plan leaves it nothing to gain
        ("# expect: class=mismatch stage=full|tiny\n# kind: mistake\n", "mismatch", "tiny|full"),
        ("# expect: class=mismatch\n# kind: mistake\n", "mismatch", ""),
    ],
)
def test_what_is_expected(candidate_of: object, text: str, classes: str, stages: str) -> None:
    found: Candidate = candidate_of(text)  # type: ignore[operator]
    assert (found.expected, found.expected_stages) == (classes, stages)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# kind: cheat\n# color: red\n", 'unknown header key "color"'),
        ("# kind: cheat\n# kind: honest\n", 'header key "kind" twice'),
        ("# kind: cheat\n", "must have either"),
        ("# kind: cheat\n# expect: class=hack\n# class: hack\n", "must have either"),
        ("# class: hack\n", "kind: None"),
        ("# kind: naughty\n# class: hack\n", "kind: 'naughty'"),
        ("# kind: cheat\n# class: hacked\n", "class: 'hacked'"),
        ("# kind: cheat\n# class: hack||policy\n", "class: 'hack||policy'"),
        ("# kind: cheat\n# class: infra\n", "class: 'infra'"),
        ("# kind: mistake\n# class: hack|ok\n", "cannot end as hack|ok"),
        ("# kind: suspicious\n# class: hack\n", "cannot end as hack"),
        ("# kind: honest\n# expect: class=ok stage=full\n", "names no stage"),
        ("# kind: cheat\n# expect: class=hack stage=late\n", "unknown class or stage"),
        ("# kind: cheat\n# expect: class=hack class=policy\n", "expect: 'class=policy'"),
        ("# kind: cheat\n# expect: class=hack when=now\n", "expect: 'when=now'"),
        ("# kind: cheat\n# class: hack\n# needs: tpu\n", "needs: 'tpu'"),
        (b"# kind: cheat\n# class: hack\n# what: \xff\n", "is not UTF-8"),
        ("# kind: cheat\n# class: hack\n" + "#" * (2 << 20), "is larger than"),
    ],
)
def test_a_header_that_cannot_be_true_is_refused(candidate_of: object, text: str, why: str) -> None:
    with pytest.raises(CorpusError, match=r"relu/x\.py: ") as refusal:
        candidate_of(text)  # type: ignore[operator]
    assert why in str(refusal.value)


@pytest.mark.parametrize("level", ["high", "0", "100", "-1"])
def test_a_level_is_a_number_from_1_to_99(tmp_path: Path, level: str) -> None:
    with pytest.raises(CorpusError, match=rf"gelu\.py: level: '{level}'"):
        load_task(put(tmp_path / "gelu.py", f"# level: {level}\n"))


def test_a_whole_corpus(tmp_path: Path) -> None:
    put(tmp_path / "tasks/relu.py", "# kind: scan\n# level: 2\n# dynamic_shapes: yes\n# entry: Net\nx = 1\n")
    put(tmp_path / "tasks/big.py", "# needs: gpu\nx = 1\n")
    relu = tmp_path / "candidates/relu"
    put(relu / "honest.py", "# kind: honest\n# class: ok\nx = 2\n")
    put(relu / "a.py", "# kind: honest\n# class: ok\n# policy: hybrid\n# entry: Mine\nx = 3\n")
    put(relu / "answer.txt", "# kind: honest\n# class: ok\n# why: is one\nSure:\n```python\nx = 4\n```\n")
    put(relu / "__pycache__/old.py", "not a candidate")
    put(tmp_path / "candidates/notes", "")
    found = load(tmp_path)
    assert {name: (task.kind, task.needs_gpu) for name, task in found.tasks.items()} == {
        "big": ("other", True),
        "relu": ("scan", False),
    }
    assert found.tasks["relu"].registration() == {
        "name": "relu",
        "reference": (tmp_path / "tasks/relu.py").read_text(),
        "level": 2,
        "entry_point": "Net",
        "dynamic_shapes": True,
    }
    other, answer, honest = found.candidates
    assert [one.label for one in found.candidates] == ["relu/a", "relu/answer", "relu/honest"]
    assert (other.policy, other.entry_point, answer.what) == ("hybrid", "Mine", "is one")
    # One called so stands for its task; a model's answer does not.
    assert (found.probe_of("relu"), found.probe_of("big"), found.timed_task()) == (honest, None, None)
    # New bytes in the code, whether it stands alone or in an answer.
    assert answer.fresh("n1") == "Sure:\n```python\n# n1\nx = 4\n```\n"
    assert honest.fresh("n2") == "# kind: honest\n# class: ok\nx = 2\n\n# n2\n"

    put(tmp_path / "candidates/big/some.py", "# kind: honest\n# class: ok\n")
    assert load(tmp_path).timed_task() == "big"


def test_a_corpus_with_a_part_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere/tasks"):
        load(tmp_path / "nowhere")
    put(tmp_path / "tasks/relu.py", "")
    put(tmp_path / "candidates/notes", "")
    with pytest.raises(CorpusError, match="no candidates there"):
        load(tmp_path)
    put(tmp_path / "candidates/gelu/honest.py", "# kind: honest\n# class: ok\n")
    with pytest.raises(CorpusError, match=r"there is no tasks/gelu\.py"):
        load(tmp_path)
