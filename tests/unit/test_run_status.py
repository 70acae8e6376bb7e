"""trainer status of what was left in a working directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pipeline import status
from pipeline.common import Json, PipelineError


def left(path: Path, *records: Json, torn: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + torn)


BEGIN = {"event": "begin", "version": 1, "samples": 3}
SAMPLED = [{"event": "sampled", "task": task, "turn": 0, "answers": [{"text": ""}] * 3} for task in ("relu", "softmax")]
JUDGED = {"event": "judged", "task": "relu", "turn": 0, "verdicts": [{"reward": 0.5}, {"reward": 1}, {"reward": None}]}


def test_rounds_of_bestofn_are_shown_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left(tmp_path / "outputs/bestofn_a/journal.jsonl", BEGIN, *SAMPLED, JUDGED, torn='{"event": "judged", "ta')
    left(tmp_path / "outputs/bestofn_b/journal.jsonl", BEGIN, SAMPLED[0], JUDGED)
    (tmp_path / "outputs/bestofn_b/report.json").write_text('{"tasks": 1}')
    assert status.main([f"--workdir={tmp_path}"]) == 0
    text = capsys.readouterr().out
    assert "round a: not finished, 1 tasks, 3 of 6 answers judged, mean reward 0.750" in text
    assert "running" not in text and "round b: finished, 1 of 1 tasks" in text and "journal.jsonl report.json" in text
    status.main([f"--workdir={tmp_path}", "--json"])
    found = json.loads(capsys.readouterr().out)["rounds"]
    assert [(name, one["is_finished"], one["tasks"]) for name, one in found.items()] == [
        ("a", False, None),
        ("b", True, 1),
    ]


def test_answers_that_are_judged_again_count_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = {**JUDGED, "verdicts": [{"reward": 0}] * 3}
    left(tmp_path / "outputs/bestofn_a/journal.jsonl", BEGIN, SAMPLED[0], JUDGED, again)
    assert status.main([f"--workdir={tmp_path}"]) == 0
    assert "3 of 3 answers judged, mean reward 0.000" in capsys.readouterr().out


def test_a_directory_of_nothing_and_a_journal_that_is_none_end_status(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="nor a round of bestofn"):
        status.main([f"--workdir={tmp_path}"])
    left(tmp_path / "outputs/bestofn_a/journal.jsonl", torn="no JSON\n")
    with pytest.raises(PipelineError, match="bestofn_a/journal"):
        status.main([f"--workdir={tmp_path}"])
