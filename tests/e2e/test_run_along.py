"""What goes along with trainer run: a sync and a watch that die are started again, and after a notice all is copied.

The gradient step is a stand-in, which writes checkpoints as the real one does and learns nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import service
from answering import Call, Reply, answering
from finetune import checkpoint, layout

ENGINE = "cp -rT {source} {target}"
TRAINER = service.BINARY.with_name("trainer")
LIMIT_S = 120.0
RESUME = 75
Json = dict[str, Any]
# Saves step 1; then one more for each file step-N that appears, and the finished adapter with the file "end". On
# SIGTERM: step 9, and the status of an interrupted run; with STUBBORN its step takes longer than any notice.
TRAINING = """#!/bin/sh
shift 2
exec "$REAL_PYTHON" -c '
import json, os, pathlib, signal, sys, time
from finetune import checkpoint, layout
workdir = pathlib.Path(json.load(open(sys.argv[2]))["workdir"])
came = []
signal.signal(signal.SIGTERM, lambda *_: came.append(1))
def save(root, name, step):
    def write(directory):
        (directory / "adapter_model.safetensors").write_text(f"weights {step}")
    checkpoint.save(root, name, write, {"run": "sft", "method": "sft", "step": step})
def save_step(step):
    save(layout.steps(workdir, "sft"), layout.step_name(step), step)
save_step(1)
at = 1
while not (workdir / "end").exists():
    if came and "STUBBORN" not in os.environ:
        save_step(9)
        sys.exit(75)
    if (workdir / f"step-{at + 1}").exists():
        at += 1
        save_step(at)
    time.sleep(0.02)
save(layout.checkpoints(workdir), "sft_final", at)
pathlib.Path(sys.argv[2]).with_name("status").write_text("0")
' "$@"
"""


@contextmanager
def cloud(answers: dict[str, str]) -> Iterator[str]:
    """A metadata service of AWS and GCP: host and port."""

    def answer(call: Call) -> Reply:
        found = "the-token" if call.method == "PUT" else answers.get(call.path)
        return 404 if found is None else 200, {}, (found or "").encode()

    with answering(answer) as url:
        yield url.removeprefix("http://")


def wait_until(is_so: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while not (found := is_so()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def status(workdir: Path) -> Json:
    done = subprocess.run(
        [str(TRAINER), "status", "--json", f"--workdir={workdir}"], capture_output=True, text=True, check=False
    )
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


@contextmanager
def running(
    tmp_path: Path, at: str = "127.0.0.1:9", clouds: str = "aws", **more: str
) -> Iterator[subprocess.Popen[str]]:
    """trainer run, fine-tuning, with its first copy made."""
    work, python = tmp_path / "work", tmp_path / "python"
    (work / "data/processed").mkdir(parents=True)
    (work / "data/processed/sft_train.jsonl").write_text("{}\n")
    python.write_text(TRAINING)
    python.chmod(0o755)
    (tmp_path / "remote").mkdir()
    conf = tmp_path / "conf"
    conf.write_text(
        f'python = "{python}"\nsync {{\n remote = "{tmp_path / "remote"}"\n every_s = 86400\n engine = "{ENGINE}"\n}}\n'
        f"watch {{\n clouds = {clouds}\n every_s = 0.05\n}}\n"
    )
    own = {
        "REAL_PYTHON": os.environ.get("PYTHON", "python3"),
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{at}",
        "GCE_METADATA_HOST": at,
    }
    process = subprocess.Popen(
        [str(TRAINER), "run", str(conf), "--stage=sft", f"--workdir={work}"],
        env=os.environ | own | more,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: process.poll() is not None or saved(work, 1), "the first checkpoint")
        wait_until(lambda: process.poll() is not None or status(work).get("sync", {}).get("good_at"), "the first copy")
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        yield process
    finally:
        taken_away(process)


def taken_away(process: subprocess.Popen[str]) -> None:
    """The machine is gone: this process, and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def saved(workdir: Path, step: int) -> bool:
    return (layout.steps(workdir, "sft") / layout.step_name(step) / layout.MANIFEST).exists()


def restored(tmp_path: Path) -> list[int]:
    """The steps that a new machine gets."""
    new = tmp_path / "new"
    done = subprocess.run(
        [str(TRAINER), "resume", f"--remote={tmp_path / 'remote'}", f"--workdir={new}", f"--copy-command={ENGINE}"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return sorted(checkpoint.verify(path)["step"] for path in checkpoint.step_directories(layout.steps(new, "sft")))


def runs_again(workdir: Path, name: str) -> Json | None:
    """A companion that ended once, as status shows it, when it runs again."""
    now = dict(status(workdir)["along"][name])
    return now if now["ended"] == 1 and now["is_running"] else None


def test_a_companion_that_dies_is_started_again_and_training_goes_on(tmp_path: Path) -> None:
    work = tmp_path / "work"
    with running(tmp_path) as process:
        for name in ("sync", "watch"):
            before = status(work)["along"][name]
            assert before["is_running"] and before["ended"] == 0
            os.kill(before["pid"], signal.SIGKILL)
            now = wait_until(partial(runs_again, work, name), name)
            assert now["pid"] != before["pid"] and now["how"] == "signal 9"
        said = subprocess.run([str(TRAINER), "status", f"--workdir={work}"], capture_output=True, text=True).stdout
        assert "sync ended 1 times, last with signal 9" in said and "runs again" in said
        (work / "end").touch()
        assert process.wait(LIMIT_S) == 0
    log = (work / "training.log").read_text()
    for name in ("sync", "watch"):
        assert f"{name} ended (signal 9): it is started again in 1 s, training goes on" in log
        assert f"{name} was started again" in log
    assert "run: done" in log and "last copy" not in log
    assert checkpoint.verify(tmp_path / "remote/checkpoints/sft_final")["step"] == 1
    assert status(work)["sync"]["good_at"] and "along" not in status(work)


NOTICES = [
    ("aws", 120, "/latest/meta-data/spot/instance-action", '{"action":"terminate","time":"2026-01-01T00:00:00Z"}'),
    ("gcp", 30, "/computeMetadata/v1/instance/preempted", "TRUE"),
]


@pytest.mark.parametrize(("name", "seconds", "path", "notice"), NOTICES)
def test_notice_checkpoint_and_copy_fit_within_the_notice(
    tmp_path: Path, name: str, seconds: float, path: str, notice: str
) -> None:
    """The machine is taken away when the cloud's time is up, whatever runs on it."""
    answers: dict[str, str] = {}
    with cloud(answers) as at, running(tmp_path, at, name) as process:
        answers[path] = notice
        try:
            assert process.wait(seconds) == RESUME
        except subprocess.TimeoutExpired:
            taken_away(process)
    assert restored(tmp_path) == [1, 9]


def test_a_step_that_is_longer_than_the_notice_costs_nothing_that_verifies(tmp_path: Path) -> None:
    """What was saved since the last copy is sent at once, not after the step."""
    answers: dict[str, str] = {}
    with cloud(answers) as at, running(tmp_path, at, STUBBORN="1") as process:
        (tmp_path / "work/step-2").touch()
        wait_until(lambda: saved(tmp_path / "work", 2), "the second checkpoint")
        answers[NOTICES[0][2]] = NOTICES[0][3]
        latest = tmp_path / "remote/checkpoints/sft/latest"
        wait_until(
            lambda: latest.exists() and latest.read_text().strip() == layout.step_name(2), "the emergency's copy"
        )
        assert process.poll() is None
    assert restored(tmp_path) == [1, 2]


def test_no_run_begins_where_a_restore_is_not_finished(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "data/processed").mkdir(parents=True)
    (work / "data/processed/sft_train.jsonl").write_text("{}\n")
    (work / ".resume.json").write_text('{"remote": "s3:bucket/run", "is_fetched": false}')
    (tmp_path / "conf").write_text("\n")
    for command in (["run", str(tmp_path / "conf"), "--stage=sft"], ["sft"]):
        done = subprocess.run(
            [str(TRAINER), *command, f"--workdir={work}"], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 3 and "trainer resume --remote=s3:bucket/run goes on" in done.stderr, done.stderr
    assert status(work)["restoring"] == "s3:bucket/run"
