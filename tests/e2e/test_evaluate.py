"""trainer evaluate: kernels on disk in KernelBench's layout, several policies, one input beside five."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import service
from endpoint import TESTS, Endpoint, Json, code, run

# Right on the task's own input alone: torch.rand() is never negative.
IDENTITY = """
import torch, triton
import triton.language as tl


@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        copy[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
LIBRARY = (
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
)
RELU = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(64, 32)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """KernelBench's layout: three problems of level 1, one of level 2."""
    for level, name in ((1, "1_relu"), (1, "2_softmax"), (1, "3_missing"), (2, "1_other")):
        path = tmp_path / "KernelBench" / f"level{level}" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((TESTS / "tasks" / "softmax.py").read_text() if "softmax" in name else RELU)
    return tmp_path / "KernelBench"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "mine"
    path.mkdir(parents=True)
    for problem, sample, text in (
        (1, 0, IDENTITY),
        (1, 1, code("relu/honest")),
        (1, 7, LIBRARY),
        (2, 0, code("softmax/unnormalised")),
        (2, 1, ""),
    ):
        (path / f"level_1_problem_{problem}_sample_{sample}_kernel.py").write_text(text)
    (path / "level_1_problem_1_sample_0_prompt.txt").write_text("not ours")
    (path / "generation_config.yaml").write_text("level: 1\n")
    return path


def report(tmp_path: Path, name: str) -> Json:
    document = json.loads((tmp_path / "outputs" / f"eval_{name}.json").read_text())
    assert isinstance(document, dict)
    return document


def test_kernels_on_disk_are_judged_in_every_way(
    client: service.Client, endpoint: Endpoint, tmp_path: Path, checkout: Path, runs: Path
) -> None:
    done = run(client, endpoint, tmp_path, "evaluate", f"--tasks={checkout}", f"--runs={runs}", "--columns", "--ablate")
    assert done.returncode == 0, done.stderr
    assert endpoint.asked == []
    said = report(tmp_path, "mine")
    assert (said["model_path"], said["source"], said["prompt"]) == (str(runs), "runs", None)
    # The level without kernels is not asked; the problem without kernels counts as failed, as in KernelBench.
    assert (said["num_tasks"], said["failed_tasks"], list(said["levels"])) == (3, 1, ["1"])
    of = {(row["id"], row["sample"]): row.get("class") for row in said["detailed_results"] if "sample" in row}
    assert of == {
        ("level1/1_relu", 0): "mismatch",
        ("level1/1_relu", 1): "ok",
        ("level1/1_relu", 2): "form",
        ("level1/2_softmax", 0): "mismatch",
        ("level1/2_softmax", 1): "extract",
    }
    # pass@1 of problem 1: one of three samples; by KernelBench's own rule, which sees no negative input, all.
    rate = {name: column["metrics"]["pass_at"]["1"] for name, column in said["columns"].items()}
    assert rate == pytest.approx({"strict": 100 / 6, "hybrid": 100 / 6, "kernelbench": 50.0})
    assert all(name in done.stdout for name in ("strict 1", "hybrid 1", "kernelbench 1"))
    # One input accepts what five refuse.
    ablation = said["ablation"]
    assert (ablation["answers"], ablation["correct_on_one_input"], ablation["correct_on_five_inputs"]) == (5, 2, 1)
    assert [(row["id"], row["sample"], row["class"]) for row in ablation["refused_by_five"]] == [
        ("level1/1_relu", 0, "mismatch")
    ]
    assert "one input accepts it, five do not (mismatch)" in done.stdout
    # What each feature is worth, over the same answers: five inputs refuse one more, and the funnel judges less.
    settings = ablation["settings"]
    assert {name: one["correct"] for name, one in settings.items()} == {
        "one_input": 2, "five_inputs": 1, "all_on": 1, "funnel_off": 1,
    }  # fmt: skip
    assert all(one["answers"] == 5 and one["judging_s"] > 0 for one in settings.values())
    assert settings["one_input"]["reward"] > settings["five_inputs"]["reward"]
    for feature, off, on in (("inputs", "one", "five"), ("timing", "off", "on"), ("funnel", "off", "on")):
        assert re.search(rf"^{feature} +{off} +5 ", done.stdout, re.M), done.stdout
        assert re.search(rf"^{feature} +{on} +5 ", done.stdout, re.M), done.stdout
    # And as KernelBench's own scripts read it.
    there = tmp_path / "outputs" / "eval_mine_level1"
    results = json.loads((there / "eval_results.json").read_text())
    assert list(results) == ["1", "2"]
    assert [row["sample_id"] for row in results["1"]] == [0, 1, 7]
    assert [row["correctness"] for row in results["1"]] == [False, True, False]
    for row in results["1"] + results["2"]:
        assert set(row) == {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}
        assert row["runtime"] == -1.0 or row["runtime_stats"]["num_trials"] > 0
    assert (there / "level_1_problem_1_sample_7_kernel.py").read_text() == LIBRARY
    # Again: all is known, and no daemon is asked.
    away = service.Client("http://127.0.0.1:9")
    again = run(away, endpoint, tmp_path, "evaluate", f"--tasks={checkout}", f"--runs={runs}", "--columns", "--ablate")
    assert again.returncode == 0, again.stderr
    assert report(tmp_path, "mine")["columns"] == said["columns"]
    # With another kernel in it the directory is another run.
    (runs / "level_1_problem_3_sample_0_kernel.py").write_text(LIBRARY)
    other = run(client, endpoint, tmp_path, "evaluate", f"--tasks={checkout}", f"--runs={runs}")
    assert other.returncode == 3 and '"sampling" differs' in other.stderr, other.stderr


def test_what_was_written_is_a_runs_directory(
    client: service.Client, endpoint: Endpoint, tmp_path: Path, checkout: Path, runs: Path
) -> None:
    arguments = ("evaluate", f"--tasks={checkout}", "--until=ast")
    assert run(client, endpoint, tmp_path, *arguments, f"--runs={runs}").returncode == 0
    there = tmp_path / "outputs" / "eval_mine_level1"
    # Shells complete a directory's name with a slash, which is no part of the evaluation's.
    assert run(client, endpoint, tmp_path, *arguments, f"--runs={runs}/").returncode == 0
    assert sorted(path.name for path in there.parent.iterdir() if path.is_dir()) == [there.name]
    done = run(client, endpoint, tmp_path, *arguments, f"--runs={there}", "--name=again")
    assert done.returncode == 0, done.stderr
    first, second = (report(tmp_path, name)["metrics"] for name in ("mine", "again"))
    assert first["valid_rate"] == second["valid_rate"] > 0
    assert "are of no task" not in done.stderr
    (there / "level_1_problem_99_sample_0_kernel.py").write_text("pass")
    (there / "level_7_problem_1_sample_0_kernel.py").write_text("pass")
    done = run(client, endpoint, tmp_path, *arguments, f"--runs={there}", "--name=more")
    assert f"2 of the 7 kernels of {there} are of no task, and not judged; level 1, problem 99" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (["--runs=/nowhere"], 3, "/nowhere"),
        (["--runs={tmp}"], 3, "level_L_problem_P_sample_S_kernel.py"),
        (["--runs={runs}", "--level=4"], 3, "level 4"),
        (["--runs={runs}", "--columns=strict,lenient"], 2, "strict,lenient"),
        (["--runs={runs}", "--name=of/mine"], 2, "of/mine"),
        (["--runs={runs}", "--tasks={other}"], 3, "no level in common"),
    ],
)
def test_what_cannot_be_evaluated_is_said(
    endpoint: Endpoint, tmp_path: Path, checkout: Path, runs: Path, arguments: list[str], status: int, why: str
) -> None:
    other = tmp_path / "one.py"
    other.write_text(RELU)
    away = service.Client("http://127.0.0.1:9")
    told = [one.format(tmp=tmp_path, runs=runs, other=other) for one in arguments]
    done = run(away, endpoint, tmp_path, "evaluate", f"--tasks={checkout}", *told)
    assert done.returncode == status and why in done.stderr, done.stderr
