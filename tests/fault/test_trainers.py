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


def scripted() -> Iterator[str]:
    with service.directory() as directory, service.Daemon(directory, SCRIPTED) as running:
        running.client.add_task(TASK)
        yield running.client.url


url = pytest.fixture(scope="module", name="url")(scripted)
own_url = pytest.fixture(name="own_url")(scripted)  # what its leaders are is the test's alone


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


def test_an_agent_has_kernels_judged_over_the_model_context_protocol(own_url: str) -> None:
    found = run("mcp", own_url, "timing=1.3", "full=fail:mismatch")
    assert found["tools"] == ["add_task", "feedback", "group", "leaderboard", "plan", "submit", "tasks"]
    assert {"scripted", "scripted-too"} <= {task["name"] for task in found["tasks"]["result"]}
    fast, wrong = found["submitted"]
    assert (fast["class"], fast["speedup"], fast["passed"]) == ("ok", pytest.approx(1.3, rel=1e-3), 1)
    assert (wrong["class"], wrong["first_mismatch"]["index"], "speedup" in wrong) == ("mismatch", [0, 3], False)
    assert [one["result"] for one in found["feedback"]] == [fast["feedback"], wrong["feedback"]]
    assert [one["class"] for one in found["group"]["result"]] == ["ok", "mismatch"]
    assert [(one["class"], one["plan"]["traced"]) for one in found["plans"]] == [("ok", True), ("mismatch", True)]
    assert "no such submission" in found["no_plan"]["error"]
    assert found["leaders"]["result"][0]["speedup"] == pytest.approx(1.3, rel=1e-3)
    assert found["leaderboard"]["result"][0]["task_name"] == "scripted"
    assert "nobody-knows-this" in found["unknown"]["error"]
    assert "http://127.0.0.1:1: " in found["away"] and "refused" in found["away"]


EXAMPLES = service.ROOT / "client" / "examples"
OFFLINE = {"PYTHONPATH": str(PACKAGE), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def tasks_in(tmp_path: Path) -> Path:
    """A directory of modules, for scripted workers."""
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    for number in range(2):
        (tasks / f"{number}_example.py").write_text(f"# script: describe=pass\n# {number}\n")
    return tasks


def test_the_example_for_trl_works_as_it_stands(url: str, tmp_path: Path) -> None:
    tiny = [sys.executable, "-m", "finetune", "tiny", str(tmp_path / "model"), str(EXAMPLES / "trl_grpo.py")]
    subprocess.run(tiny, env=os.environ | OFFLINE, check=True, timeout=300, capture_output=True)
    own = {"MODEL": str(tmp_path / "model"), "TASKS": str(tasks_in(tmp_path)), "VERIFIERD_URL": url}
    size = {"STEPS": "2", "SAMPLES": "2", "TOKENS": "8", "CUDA_VISIBLE_DEVICES": "", "VERIFIERD_RUN": "example"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "trl_grpo.py")],
        env=os.environ | OFFLINE | own | size,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "rewards/verifierd/mean" in done.stdout and "verifierd/correct" in done.stdout
    assert (tmp_path / "kernels" / "final" / "model.safetensors").exists()
    judged = service.Client(url).get("/v1/submissions?limit=200").json()["items"]
    labels = [item["metadata"] for item in judged if (item["metadata"] or {}).get("run") == "example"]
    assert sorted(label["step"] for label in labels) == [0, 0, 1, 1], labels


@pytest.mark.parametrize("name", ["openrlhf", "verl", "slime"])
def test_the_examples_for_other_trainers_have_answers_judged(name: str, url: str, tmp_path: Path) -> None:
    """The script runs as it stands, but for the trainer itself, whose own client then asks with what it was given."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").write_text(
        f"""#!/bin/sh
case $1 in
-m | train.py) printf '%s\\n' "$@" >arguments ;;
*) exec {sys.executable} "$@" ;;
esac
"""
    )
    (programs / "python3").chmod(0o755)
    environment = os.environ | OFFLINE | {"PATH": f"{programs}:/usr/bin:/bin", "VERIFIERD_URL": url}
    subprocess.run(
        [str(EXAMPLES / f"{name}.sh")],
        env=environment | {"TASKS": str(tasks_in(tmp_path))},
        cwd=tmp_path,
        check=True,
        timeout=300,
    )
    arguments = (tmp_path / "arguments").read_text().splitlines()
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is missing: server/deploy/setup trainers")
    script = str(HERE / "trainers" / "run_examples.py")
    done = subprocess.run(
        [str(PYTHON), script, name, str(tmp_path / "prompts.jsonl"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == pytest.approx(0.895, rel=1e-3)
