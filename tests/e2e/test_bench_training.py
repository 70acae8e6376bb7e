"""bench-learning and bench-gradient at their smallest sizes: every phase and method ends, and is recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import service

pytestmark = pytest.mark.slow

BENCH = Path(__file__).parents[1] / "bench"
LIMIT_S = 900
Json = dict[str, Any]


def bench(name: str, out: Path, *arguments: str) -> tuple[str, list[Json]]:
    """What it printed, and its raw data."""
    environment = os.environ | {"PYTHON": os.environ.get("PYTHON", sys.executable), "OMP_NUM_THREADS": "1"}
    environment["VERIFIERD_BUILD"] = str(service.BINARY.parents[1])
    command = [environment["PYTHON"], str(BENCH / f"{name}.py"), "--tiny", f"--limit-s={LIMIT_S}", f"--out={out}"]
    done = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, timeout=LIMIT_S + 100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()]


def test_learning_goes_through_every_phase(tmp_path: Path) -> None:
    said, rows = bench("learning", tmp_path / "out")
    found = {row["phase"]: row for row in rows if row["kind"] == "evaluation"}
    assert list(found) == ["base", "sft", "bestofn", "reinforce"]
    assert found["reinforce"]["judged"] == found["bestofn"]["judged"] == 4
    assert found["reinforce"]["is_complete"] is True
    assert [row["step"] for row in rows if row["kind"] == "step"] == [1, 2]
    assert said.splitlines()[-1].startswith("| reinforce |")
    report = json.loads((tmp_path / "out" / "report" / "outputs" / "report.json").read_text())
    assert {"seed0_base", "seed0_sft"} <= set(report["evaluations"])
    assert {"seed0_sft", "seed0_reinforce", "mean_reinforce"} <= set(report["losses"])


def test_gradient_measures_every_method_on_both_sides(tmp_path: Path) -> None:
    said, rows = bench("gradient", tmp_path / "out", "--judge=scripted")
    figures = [row for row in rows if row["kind"] == "figure"]
    assert [(row["method"], row["side"]) for row in figures] == [
        (method, side) for method in ("sft", "weighted", "reinforce", "grpo") for side in ("ours", "plain")
    ]
    for row in figures:
        assert row["status"] == 0 and row["tokens_per_s"] > 0 and row["peak_gib"] > 0
    assert "not measured" not in said
