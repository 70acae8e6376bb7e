"""bench-learning, gradient, forging and round at their smallest sizes: every part ends, and is recorded."""

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
    assert list(found) == ["base", "sft", "bestofn", "weighted", "reinforce", "grpo"]
    assert {found[method]["judged"] for method in ("bestofn", "weighted", "reinforce", "grpo")} == {4}
    assert found["reinforce"]["is_complete"] is found["grpo"]["is_complete"] is True
    steps = [(row["method"], row["step"]) for row in rows if row["kind"] == "step"]
    assert steps == [("reinforce", 1), ("reinforce", 2), ("grpo", 1), ("grpo", 2)]
    table = [line.split(" |")[0] for line in said.splitlines()[-6:]]
    assert table == ["| base", "| sft", "| bestofn", "| weighted", "| reinforce", "| grpo"]
    report = json.loads((tmp_path / "out" / "report" / "outputs" / "report.json").read_text())
    assert {"seed0_base", "seed0_sft"} <= set(report["evaluations"])
    assert {"seed0_sft", "seed0_reinforce", "mean_reinforce"} <= set(report["losses"])


def test_gradient_measures_a_method_of_each_kind_on_both_sides(tmp_path: Path) -> None:
    said, rows = bench("gradient", tmp_path / "out", "--judge=scripted", "--methods=sft,grpo")
    figures = [row for row in rows if row["kind"] == "figure"]
    assert [(row["method"], row["side"]) for row in figures] == [
        (method, side) for method in ("sft", "grpo") for side in ("ours", "plain")
    ]
    for row in figures:
        assert row["status"] == 0 and row["tokens_per_s"] > 0 and row["peak_gib"] > 0
    assert "not measured" not in said


def test_forging_trains_under_both_rules_and_asks_all_three(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHON": os.environ.get("PYTHON", sys.executable), "OMP_NUM_THREADS": "1"}
    environment["VERIFIERD_BUILD"] = str(service.BINARY.parents[1])
    sizes = {
        "hidden": 32, "layers": 1, "rank": 8, "chains": 3, "rows": 12, "sft-epochs": 2, "sft-batch": 4, "tasks": 1,
        "tasks-per-step": 1, "rounds": 2, "samples": 2, "held-out": 1, "held-out-samples": 2,
    }  # fmt: skip
    command = [environment["PYTHON"], str(BENCH / "forging.py"), "--device=cpu", "--shape=4, 8", "--seeds=0"]
    command += [f"--out={tmp_path / 'out'}", f"--limit-s={LIMIT_S}", *(f"--{k}={v}" for k, v in sizes.items())]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S + 100, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "out" / "forging.jsonl").read_text().splitlines()]
    held = {row["arm"]: row["answers"] for row in rows if row["kind"] == "held_out"}
    assert held == {"sft": 2, "true": 2, "forged": 2}
    steps = [(row["run"], row["step"], len(row["answers"])) for row in rows if row["kind"] == "group"]
    assert steps == [("true0", 1, 2), ("true0", 2, 2), ("forged0", 1, 2), ("forged0", 2, 2)]
    sampled = {row["answer"] for row in rows if row["kind"] == "answer" and row["rule"] == "forged"}
    assert {row["answer"] for row in rows if row["kind"] == "truth"} == sampled


@pytest.mark.parametrize(("limit_s", "done"), [(LIMIT_S, 2), (1, 0)])
def test_a_round_is_reported_whole_or_not(tmp_path: Path, limit_s: int, done: int) -> None:
    environment = os.environ | {"OUT": str(tmp_path), "VERIFIERD_BUILD": str(service.BINARY.parents[1])}
    command = [sys.executable, str(BENCH / "round.py"), "--tasks=2", "--samples=4", f"--limit-s={limit_s}"]
    said = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S + 100, check=False
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    line = next(line for line in said.stdout.splitlines() if line.startswith("{"))
    told = json.loads(line)
    assert told == json.loads((tmp_path / "round.json").read_text())
    assert (told["tasks_done"], told["verdicts"], told["was_interrupted"]) == (done, 4 * done, done == 0)
    assert told["unexpected"] == [] and (told["kept"] is None) == (done == 0)
    assert said.stdout.splitlines()[-1].startswith("| its journal |")
    left = {"daemon.log", "trainer.log", *(["journal.jsonl"] if done else [])}
    assert left <= {path.name for path in tmp_path.iterdir()}
