"""trainer evaluate --model-path: an adapter over its base, a whole model, and what is neither."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from endpoint import TESTS, TRAINER, FakeDaemon, Json, fake_daemon
from finetune import tiny
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workdir with a base (tiny, random weights) and an adapter of it in checkpoints/good."""
    workdir = tmp_path_factory.mktemp("models")
    tiny.make(workdir / "base", ["import torch\nimport triton\n"], vocabulary=300, hidden=16, layers=1)
    base = AutoModelForCausalLM.from_pretrained(workdir / "base")
    adapted = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    adapted.save_pretrained(workdir / "checkpoints" / "good")
    return workdir


@pytest.fixture
def judge() -> Iterator[FakeDaemon]:
    with fake_daemon() as script:
        yield script


def evaluate(judge: FakeDaemon, workdir: Path, model: Path, *more: str) -> subprocess.CompletedProcess[str]:
    tasks = TESTS / "tasks" / "relu.py"
    return subprocess.run(
        [
            str(TRAINER), "evaluate", f"--url={judge.url}", f"--workdir={workdir}", f"--tasks={tasks}", "--level=0",
            f"--model-path={model}", f"--python={sys.executable}", "--samples=2", "--max-tokens=8", *more,
        ],
        capture_output=True, text=True, timeout=300, check=False, env=os.environ | {"TRAINER_ENDPOINT": "http://none"},
    )  # fmt: skip


def report(workdir: Path, name: str) -> Json:
    loaded: Json = json.loads((workdir / "outputs" / f"eval_{name}.json").read_text())
    return loaded


def test_an_adapter_is_loaded_over_its_base(judge: FakeDaemon, models: Path) -> None:
    adapter = models / "checkpoints" / "good"
    done = evaluate(judge, models, adapter)
    assert done.returncode == 0, done.stderr
    said = report(models, "good")
    assert (said["model_path"], said["source"], said["num_tasks"]) == (str(adapter), "checkpoint", 1)
    assert len(said["detailed_results"]) == 2
    (begin, *_) = (models / "outputs/eval_good.journal.jsonl").read_text().splitlines()
    assert json.loads(begin)["sampling"]["endpoint"].startswith("weights sha256:")
    # It is the same run again, and what was sampled is there.
    asked = len(judge.asked)
    assert evaluate(judge, models, adapter).returncode == 0 and len(judge.asked) == asked


@pytest.mark.slow
def test_a_whole_model_is_its_own_base(judge: FakeDaemon, models: Path) -> None:
    done = evaluate(judge, models, models / "base", "--name=whole")
    assert done.returncode == 0, done.stderr
    assert report(models, "whole")["source"] == "checkpoint"


def test_what_is_no_checkpoint_ends_before_anything_is_sampled(judge: FakeDaemon, models: Path, tmp_path: Path) -> None:
    good = models / "checkpoints" / "good"
    empty, weightless = tmp_path / "empty", tmp_path / "weightless"
    empty.mkdir()
    weightless.mkdir()
    shutil.copy(good / "adapter_config.json", weightless)
    for path, why in (
        (tmp_path / "missing", "there is no such directory"),
        (empty, "it is no checkpoint"),
        (weightless, "no weights"),
        (TESTS / "tasks" / "relu.py", "it is no directory"),
        (models, "it is no checkpoint"),
    ):
        done = evaluate(judge, models, path, "--name=bad")
        assert done.returncode == 3 and why in done.stderr, done.stderr
        assert "these directories hold a checkpoint: " in done.stderr and str(good) in done.stderr
    none = evaluate(judge, tmp_path, empty, "--name=bad")
    assert none.returncode == 3 and "holds a checkpoint" in none.stderr
    assert judge.asked == [] and not (models / "outputs/eval_bad.json").exists()


def test_what_does_not_load_says_why_and_names_what_would(judge: FakeDaemon, models: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    shutil.copytree(models / "checkpoints" / "good", torn)
    weights = torn / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    done = evaluate(judge, models, torn)
    assert done.returncode == 3 and "does not load" in done.stderr, done.stderr
    assert str(models / "checkpoints" / "good") in done.stderr and "Traceback" not in done.stderr
    homeless = tmp_path / "homeless"
    shutil.copytree(models / "checkpoints" / "good", homeless)
    config = json.loads((homeless / "adapter_config.json").read_text())
    (homeless / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": ""}))
    nameless = evaluate(judge, models, homeless)
    assert nameless.returncode == 3 and "--model" in nameless.stderr
    assert judge.asked == []
    assert evaluate(judge, models, torn, "--runs=/tmp").returncode == 2
