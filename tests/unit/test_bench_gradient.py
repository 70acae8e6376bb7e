"""What bench-gradient makes of its steps, and who is judged in the model's place."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import gradient


def test_the_first_step_is_no_part_of_a_rate(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    rows = [(10.0, 5.0, 9.0, 1 << 30), (12.0, 6.0, 9.5, 2 << 30), (14.0, 6.5, 10.0, 1 << 30)]
    more = {"tokens": 100, "answer_tokens": 40}
    path.write_text(
        "".join(
            json.dumps(more | {"at": at, "waited_s": waited, "sampled_s": sampled, "peak_bytes": peak}) + "\n"
            for at, waited, sampled, peak in rows
        )
        + '{"at": 15.0, "tok'  # killed while it wrote
    )
    found = gradient.figures(path, -1, "")
    assert found["steps"] == 3
    assert found["tokens_per_s"] == pytest.approx(200 / 4)
    assert found["waiting"] == pytest.approx(1.5 / 4)
    assert found["sampling"] == pytest.approx(1.0 / 4)
    assert found["rollout_tokens_per_s"] == pytest.approx(80 / 1.0)
    assert found["peak_gib"] == 2.0
    assert found["why"] == "no time was left"
    path.write_text(json.dumps({"at": 1.0, "tokens": 1, "waited_s": 0.0, "peak_bytes": 0}) + "\n")
    assert "tokens_per_s" not in gradient.figures(path, 0, "")


def test_the_table_of_methods_has_ratios_only_of_both_sides() -> None:
    rows = [
        {"kind": "figure", "method": "sft", "side": "ours", "tokens_per_s": 300.0, "peak_gib": 1.0, "waiting": 0.0},
        {"kind": "figure", "method": "sft", "side": "plain", "tokens_per_s": 200.0, "peak_gib": 2.0, "waiting": 0.0},
        {"kind": "figure", "method": "grpo", "side": "ours", "tokens_per_s": 50.0, "peak_gib": 3.0, "waiting": 0.25}
        | {"rollout_tokens_per_s": 70.0},
    ]
    text = gradient.table(rows).splitlines()
    assert text[2] == "| sft | 300 | 200 | 1.50 | 1.00 | 2.00 | - | - | - | - |"
    assert text[3] == "| grpo | 50 | - | - | 3.00 | - | 25.0% | - | 70 | - |"


def test_other_texts_reach_the_judge_and_no_two_are_alike() -> None:
    substitute = gradient.Substitute(None, "")
    made = substitute.answer("POST", "/v1/groups", {"candidates": [{"completion": " "}] * 4})
    items = substitute.answer("GET", f"/v1/groups/{made['id']}?wait=5", None)["items"]
    assert [round(item["reward"], 1) for item in items] == [0.7, 0.3, 0.7, 0.3]
    texts = [substitute._fresh(n) for n in range(4)]
    assert len(set(texts)) == 4
    for text in texts:
        compile(text, "candidate", "exec")
