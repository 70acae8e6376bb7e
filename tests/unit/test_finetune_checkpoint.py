"""Checkpoints: whole or not there, whatever the moment at which the process or the disk ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from finetune import checkpoint, layout
from finetune.errors import TrainError

ROOT = Path(__file__).resolve().parents[2]
# Saves a checkpoint and is killed before the given step of it.
KILLED = """
import os, signal, sys
from pathlib import Path
from finetune import checkpoint
root, name, text, step, times = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])
seen = []
def write(directory):
    (directory / "weights").write_text(text)
    (directory / "config").write_text("c")
def progress(now):
    seen.append(now)
    if seen.count(step) == times and now == step:
        os.kill(os.getpid(), signal.SIGKILL)
checkpoint.save(root, name, write, {"step": int(name.split("-")[-1])}, progress)
"""
STEPS = (("files", 1), ("sync", 1), ("digest", 1), ("digest", 2), ("manifest", 1), ("rename", 1), ("latest", 1))


def save(root: Path, step: int, text: str = "w") -> Path:
    def write(directory: Path) -> None:
        (directory / "weights").write_text(text)

    return checkpoint.save(root, layout.step_name(step), write, {"step": step})


def save_killed(root: Path, name: str, text: str, step: str, times: int) -> int:
    arguments = [sys.executable, "-c", KILLED, str(root), name, text, step, str(times)]
    environment = {"PYTHONPATH": str(ROOT / "client" / "python")}
    return subprocess.run(arguments, env=environment, timeout=60, check=False).returncode


@pytest.mark.parametrize(("step", "times"), STEPS)
def test_a_kill_at_any_step_of_a_save_loses_nothing(tmp_path: Path, step: str, times: int) -> None:
    save(tmp_path, 1)
    assert save_killed(tmp_path, layout.step_name(2), "w2", step, times) == -signal.SIGKILL
    said: list[str] = []
    newest = checkpoint.newest(tmp_path, said.append)
    assert newest is not None
    assert newest[1]["step"] == (2 if step == "latest" else 1)
    checkpoint.prune(tmp_path, 2)
    assert not list(tmp_path.glob(checkpoint.PARTIAL + "step*"))
    save(tmp_path, 3)
    assert (tmp_path / layout.LATEST).read_text().strip() == layout.step_name(3)


@pytest.mark.parametrize(("step", "times"), STEPS)
def test_a_kill_while_one_is_replaced_leaves_the_old_or_the_new(tmp_path: Path, step: str, times: int) -> None:
    save(tmp_path, 1, "old")
    assert save_killed(tmp_path, layout.step_name(1), "new", step, times) == -signal.SIGKILL
    checkpoint.verify(tmp_path / layout.step_name(1))
    assert (tmp_path / layout.step_name(1) / "weights").read_text() == ("new" if step == "latest" else "old")


@pytest.mark.parametrize(
    "damage", ["truncated", "changed", "missing", "no manifest", "half a manifest", "not an object"]
)
def test_what_is_not_as_written_is_passed_over(tmp_path: Path, damage: str) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2, "weights")
    manifest = path / layout.MANIFEST
    if damage == "truncated":
        (path / "weights").write_text("weig")
    elif damage == "changed":
        (path / "weights").write_text("WEIGHTS")
    elif damage == "missing":
        (path / "weights").unlink()
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "half a manifest":
        manifest.write_text(manifest.read_text()[:40])
    else:
        manifest.write_text("[]")
    said: list[str] = []
    newest = checkpoint.newest(tmp_path, said.append)
    assert newest is not None and newest[1]["step"] == 1
    assert len(said) == 1 and layout.step_name(2) in said[0]


def test_one_that_is_pruned_while_it_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(partial: Path) -> None:
        (partial / "w").write_text("x")

    path = checkpoint.save(tmp_path, "step-00000001", write, {})
    digest_of = checkpoint.digest_of

    def pruned(file: Path) -> str:
        file.unlink()
        return digest_of(file)

    monkeypatch.setattr(checkpoint, "digest_of", pruned)
    with pytest.raises(TrainError, match="w is missing"):
        checkpoint.verify(path)


def test_two_good_ones_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step)
    (tmp_path / layout.step_name(5) / "weights").unlink()
    checkpoint.prune(tmp_path, 2)
    whole = [p.name for p in checkpoint.step_directories(tmp_path) if (p / "weights").exists()]
    assert whole == [layout.step_name(4), layout.step_name(3)]


def test_a_disk_that_is_full_is_told(tmp_path: Path) -> None:
    def write(directory: Path) -> None:
        raise OSError(28, "No space left on device")

    save(tmp_path, 1)
    with pytest.raises(TrainError, match="No space left"):
        checkpoint.save(tmp_path, layout.step_name(2), write, {"step": 2})
    assert sorted(p.name for p in tmp_path.iterdir()) == [layout.LATEST, layout.step_name(1)]


def test_the_names_are_those_of_peft() -> None:
    assert layout.TABLE["finals"] == {"sft": "sft_final", "rl": "rl_final"}
    assert layout.TABLE["adapter_files"] == ["adapter_config.json", "adapter_model.safetensors"]
    assert json.loads((ROOT / "client/python/finetune/layout.json").read_text()) == layout.TABLE
