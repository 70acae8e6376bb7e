"""trainer bestofn --stop-correct: a task that has enough correct answers has the rest of them cancelled."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import service
from answering import Reply
from endpoint import Endpoint, Json, lines, run, serving
from scripted import TASK

OUT = Path("outputs/bestofn_run")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as script:
        yield script


def answers(scripts: Sequence[str]) -> Reply:
    texts = [f"```python\n# script: {script}\n```" for script in scripts]
    choices = [{"index": i, "message": {"content": text}} for i, text in enumerate(texts)]
    return 200, {}, json.dumps({"choices": choices}).encode()


def one_task(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps({"name": "scripted", "pytorch_code": TASK["reference"], "level": 2}) + "\n")
    return path


def outcome(row: Json) -> tuple[int, object, object]:
    return row["sample"], row["verdict"]["class"], row["verdict"]["cancel_reason"]


def test_the_rest_is_cancelled_kept_apart_and_counted(
    start_scripted: service.StartDaemon, endpoint: Endpoint, tmp_path: Path
) -> None:
    daemon = start_scripted(cpu_jobs=1)
    scripts = ["ast=fail:syntax", "timing=1.5", "compile=hang", "compile=hang", "timing=3"]
    endpoint.faults = [lambda body: answers(scripts)]
    usual = ("bestofn", f"--tasks={one_task(tmp_path)}", "--samples=5", "--stop-correct=1", "--turns=2")
    done = run(daemon.client, endpoint, tmp_path, *usual)
    assert done.returncode == 0, done.stderr
    assert len(endpoint.asked) == 1  # what is decided takes no second turn
    judged, cancelled = (lines(tmp_path / OUT / f"{name}.jsonl") for name in ("candidates", "cancelled"))
    assert [outcome(row) for row in judged] == [(0, "syntax", None), (1, "ok", None)]
    assert [outcome(row) for row in cancelled] == [(i, None, "group_decided") for i in (2, 3, 4)]
    assert all(row["verdict"]["reward"] is None and row["text"] for row in cancelled)
    assert [row["submission"] for row in lines(tmp_path / OUT / "kept.jsonl")] == [judged[1]["verdict"]["id"]]
    report = json.loads((tmp_path / OUT / "report.json").read_text())
    assert {key: report[key] for key in ("answers", "distinct", "correct", "kept", "cancelled")} == {
        "answers": 5, "distinct": 2, "correct": 1, "kept": 1, "cancelled": 2
    }  # fmt: skip
    assert report["classes"] == {"syntax": 1, "ok": 1} and "2 (no verdict" in done.stdout, done.stdout
    # Killed before the verdicts were in the journal, it finds the group as it was decided.
    journal = tmp_path / OUT / "journal.jsonl"
    journal.write_text("".join(json.dumps(one) + "\n" for one in lines(journal) if one["event"] != "judged"))
    files = {
        name: (tmp_path / OUT / name).read_text() for name in ("kept.jsonl", "candidates.jsonl", "cancelled.jsonl")
    }
    again = run(daemon.client, endpoint, tmp_path, *usual)
    assert again.returncode == 0 and len(endpoint.asked) == 1, again.stderr
    assert {name: (tmp_path / OUT / name).read_text() for name in files} == files
    other = run(daemon.client, endpoint, tmp_path, *usual, "--stop-correct=2")
    assert other.returncode == 3 and '"stop_correct" differs' in other.stderr, other.stderr


def test_without_it_all_are_judged(start_scripted: service.StartDaemon, endpoint: Endpoint, tmp_path: Path) -> None:
    daemon = start_scripted(cpu_jobs=1)
    endpoint.faults = [lambda body: answers(["timing=1.5", "full=fail:mismatch", "timing=3"])]
    done = run(daemon.client, endpoint, tmp_path, "bestofn", f"--tasks={one_task(tmp_path)}", "--samples=3")
    assert done.returncode == 0, done.stderr
    classes = [row["verdict"]["class"] for row in lines(tmp_path / OUT / "candidates.jsonl")]
    assert classes == ["ok", "mismatch", "ok"] and lines(tmp_path / OUT / "cancelled.jsonl") == []


def test_a_decision_needs_the_full_stage(endpoint: Endpoint, tmp_path: Path) -> None:
    done = run(service.Client("http://127.0.0.1:9"), endpoint, tmp_path, "bestofn", "--stop-correct=1", "--until=tiny")
    assert done.returncode == 2 and "--stop-correct: nothing is found correct with --until=tiny" in done.stderr
