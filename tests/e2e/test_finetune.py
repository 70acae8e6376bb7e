"""trainer sft as people call it: flags to settings, a request written down, and the training's own exit status."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import service
from finetune import checkpoint, tiny

pytestmark = pytest.mark.slow

TRAINER = service.BINARY.with_name("trainer")
Json = dict[str, Any]


def trainer(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TRAINER_PYTHON": os.environ.get("PYTHON", "python3")}
    return subprocess.run(
        [str(TRAINER), *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def settings(*arguments: str) -> Json:
    done = trainer(*arguments, "--print-settings")
    assert done.returncode == 0, done.stderr
    printed: Json = json.loads(done.stdout)
    return printed


def test_every_method_has_its_numbers() -> None:
    sft, bestofn = settings("sft"), settings("sft", "--preset=bestofn", "--learning-rate=2e-6")
    assert (sft["model"], sft["epochs"], sft["batch"]) == ("Qwen/Qwen2.5-Coder-7B-Instruct", 1, 2)
    assert (bestofn["epochs"], bestofn["batch"], bestofn["learning_rate"]) == (2, 4, 2e-6)
    assert bestofn["final"] == "rl_final" and sft["final"] == "sft_final"
    assert settings("reinforce", "--baseline=none")["baseline"] == "none"
    assert settings("grpo", "--model=somewhere/else")["model"] == "somewhere/else"


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("sft", "--learning-rate=fast"), 2, "learning_rate takes a number"),
        (("sft", "--precision=fp8"), 2, "precision takes one of auto bf16"),
        (("sft", "--preset=grpo"), 2, "the only one is bestofn"),
        (("sft", "--baseline=none"), 2, "unrecognized option"),
        (("sft", "--run=../x"), 3, "no name for a directory"),
        (("reinforce",), 3, "which tasks?"),
        (("sft", "--python=/no/python"), 3, "cannot start /no/python"),
    ],
)
def test_bad_options(tmp_path: Path, arguments: tuple[str, ...], status: int, says: str) -> None:
    done = trainer(*arguments, f"--workdir={tmp_path}")
    assert (done.returncode, says in done.stderr) == (status, True), done.stderr


def test_sft_by_flags(tmp_path: Path) -> None:
    rows = [{"instruction": f"Write kernel {i}.", "output": f"```python\nx = {i}\n```"} for i in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tiny.make(tmp_path / "tiny", [row["output"] for row in rows], vocabulary=300, hidden=16, layers=1)
    options = (f"--model={tmp_path / 'tiny'}", f"--workdir={tmp_path}", "--learning-rate=0.01")
    done = trainer("sft", *options, "--data=rows.jsonl")
    assert done.returncode == 0, done.stderr
    manifest = checkpoint.verify(tmp_path / "checkpoints/sft_final")
    assert (manifest["method"], manifest["step"]) == ("sft", 1)
    request = json.loads((tmp_path / "outputs/train_sft/request.json").read_text())
    assert request["settings"]["learning_rate"] == 0.01 and request["prompt"].startswith("sha256:")
    done = trainer("sft", *options, "--data=none.jsonl", "--run=other")
    assert done.returncode == 3 and "none.jsonl does not exist" in done.stderr
