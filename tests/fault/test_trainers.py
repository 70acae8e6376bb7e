"""Trainers' own packages from PyPI against scripted workers. They live in BUILD/trainers (`setup trainers`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import service
from scripted import SCRIPTED, TASK

HERE = Path(__file__).resolve().parent
PYTHON = service.BINARY.parents[1] / "trainers" / "bin" / "python3"
PACKAGE = service.ROOT / "client" / "python"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with service.directory() as directory, service.Daemon(directory, SCRIPTED) as running:
        running.client.add_task(TASK)
        yield running.client.url


def run(name: str, url: str, *scripts: str) -> Any:
    """What the package's own code made of the answers."""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is missing: server/deploy/setup trainers")
    environment = {"PYTHONPATH": str(PACKAGE), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    done = subprocess.run(
        [str(PYTHON), str(HERE / "trainers" / f"run_{name}.py"), url, *scripts],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_openrlhf(url: str) -> None:
    fast, wrong, lost = run("openrlhf", url, "timing=1.3", "full=fail:mismatch", "full=reference")
    assert (fast["reward"], fast["score"]) == (pytest.approx(0.895, rel=1e-3), 1)
    assert (wrong["reward"], wrong["score"], wrong["compiled"]) == (0.5, 0, 1)
    assert (lost["reward"], lost["score"], lost["masked"]) == (0.125, 0, 1)


def test_verl(url: str) -> None:
    fast, bad, lost = run("verl", url, "timing=1.3", "compile=fail:compile", "full=reference")
    assert fast["gates"] == pytest.approx(6 / 7)
    assert (fast["score"], fast["correct"]) == (pytest.approx(0.895, rel=1e-3), 1)
    assert (bad["gates"], bad["score"], bad["compiled"]) == (0, 0, 0)
    assert (lost["gates"], lost["score"], lost["masked"]) == (0, 0.125, 1)


def test_trl(url: str) -> None:
    found = run("trl", url, "timing=1.5", "timing=3", "full=fail:mismatch", "full=reference")
    assert len(found["seen"]) == 2
    for step in found["seen"]:
        assert len(set(step["groups"])) == 2
        assert step["rewards"] == pytest.approx([0.5, 1, 0, None] * 2)
    for entry in found["history"]:
        assert entry["rewards/verifierd/mean"] == pytest.approx(0.5)
        assert entry["verifierd/correct"] == pytest.approx(0.5)


def test_skyrl(url: str) -> None:
    found = run("skyrl", url, "compile=fail:compile", "full=reference", "timing=2", "timing=3")
    first, lost, last = found["steps"]
    assert (first["reward"], first["done"], first["observations"][0]["role"]) == (0, False, "user")
    assert "compile" in first["observations"][0]["content"]
    assert (lost["reward"], lost["metadata"]["masked"]) == (0.125, 1)
    assert (last["reward"], last["done"], last["observations"]) == (pytest.approx(1, rel=1e-3), True, [])
    assert found["metrics"]["turns"] == 3


def test_verifiers(url: str) -> None:
    fast, lost = run("verifiers", url, "timing=1.3", "full=reference")
    assert fast["rewards"] == {"verifierd": pytest.approx(0.895, rel=1e-3)}
    assert (fast["metrics"]["correct"], fast["info"]["verifierd"]["class"]) == (1, "ok")
    assert lost["rewards"] == {"verifierd": None}
    assert "no reward" in lost["error"]


def test_the_package_installs_into_a_fresh_environment(url: str, tmp_path: Path) -> None:
    copy = tmp_path / "python"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python3"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", str(copy)]
    subprocess.run(pip, check=True, timeout=300)
    code = "import sys, verifierd_client as v; print(v.Client(sys.argv[1]).judge('scripted', sys.argv[2])['class'])"
    command = [str(python), "-I", "-c", code, url, "```python\n# script: timing=2\n```"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.strip(), done.stderr) == ("ok", "")


def test_an_agent_has_kernels_judged_over_the_model_context_protocol(url: str) -> None:
    found = run("mcp", url, "timing=1.3", "full=fail:mismatch")
    assert found["tools"] == ["add_task", "feedback", "group", "leaderboard", "submit", "tasks"]
    assert {"scripted", "scripted-too"} <= {task["name"] for task in found["tasks"]["result"]}
    fast, wrong = found["submitted"]
    assert (fast["class"], fast["speedup"], fast["passed"]) == ("ok", pytest.approx(1.3, rel=1e-3), 1)
    assert (wrong["class"], wrong["first_mismatch"]["index"], "speedup" in wrong) == ("mismatch", [0, 3], False)
    assert [one["result"] for one in found["feedback"]] == [fast["feedback"], wrong["feedback"]]
    assert [one["class"] for one in found["group"]["result"]] == ["ok", "mismatch"]
    assert found["leaders"]["result"][0]["speedup"] == pytest.approx(1.3, rel=1e-3)
    assert found["leaderboard"]["result"][0]["task_name"] == "scripted"
    assert "nobody-knows-this" in found["unknown"]["error"]
