"""trainer sync, resume and status: what goes up, what an engine is told and says, and what is there."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from finetune import checkpoint
from pipeline import engine, status, sync
from pipeline.common import PipelineError, read
from pipeline.resume import drop_damaged
from pipeline.sync import Snapshot, Sync


class Rig:
    """A working directory and what was sent of it."""

    def __init__(self, root: Path) -> None:
        self.root, self.sent = root, dict[str, str]()

    def put(self, name: str, text: str = "x") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def checkpoint(self, name: str, weights: str = "hello\n", run: str = "sft") -> None:
        """One that says its weights are "hello"."""
        path = self.put(f"checkpoints/{name}/weights", "hello\n")
        files = {"weights": {"size": 6, "digest": checkpoint.digest_of(path)}}
        about = {"run": run, "step": int(name[-8:]) if name[-8:].isdecimal() else 0, "files": files}
        self.put(f"checkpoints/{name}/manifest.json", json.dumps(about))
        path.write_text(weights)

    def take(self) -> Snapshot:
        """Lay it out, and take what is in it for sent."""
        snapshot = Snapshot(self.root, self.sent)
        self.sent |= snapshot.take()
        return snapshot

    def part(self, name: str) -> str:
        """Its files by their paths."""
        root = self.root / ".sync" / name
        return " ".join(sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_data_goes_before_manifests_before_latest_and_what_is_nobodys_stays(rig: Rig) -> None:
    rig.checkpoint("sft/step-00000050")
    rig.checkpoint("sft_final")
    for name in ("checkpoints/sft/latest", "checkpoints/latest", "checkpoints/curriculum.json", "outputs/report.html",
                 "checkpoints/sft/.partial-step-00000100/weights", "checkpoints/.partial-sft_final/manifest.json",
                 "outputs/train_sft/metrics.jsonl", "data/processed/tasks.jsonl", "data/raw/rows",
                 "evaluation/data/processed/tasks.jsonl", "evaluation/data/raw/rows", "run.json", "training.log",
                 "run.lock", "sync.json", "outputs/.report.html.7"):  # fmt: skip
        rig.put(name)
    snapshot = rig.take()
    assert rig.part("data") == (
        "checkpoints/curriculum.json checkpoints/sft/step-00000050/weights checkpoints/sft_final/weights "
        "data/processed/tasks.jsonl evaluation/data/processed/tasks.jsonl outputs/report.html "
        "outputs/train_sft/metrics.jsonl run.json training.log"
    )
    manifests = "checkpoints/sft/step-00000050/manifest.json checkpoints/sft_final/manifest.json"
    assert rig.part("manifests") == manifests
    assert rig.part("latest") == "checkpoints/latest checkpoints/sft/latest"
    snapshot.remove()
    assert not snapshot.stage.exists()


def test_only_what_is_new_goes_and_what_was_replaced_goes_again(rig: Rig) -> None:
    rig.checkpoint("sft/step-00000050")
    rig.take()
    rig.checkpoint("sft/step-00000100")
    rig.take()
    assert rig.part("manifests") == "checkpoints/sft/step-00000100/manifest.json"
    rig.checkpoint("sft/step-00000050", run="another")
    rig.take()
    assert rig.part("manifests") == "checkpoints/sft/step-00000050/manifest.json"
    rig.take()
    assert rig.part("manifests") == ""


def test_what_does_not_verify_does_not_go_and_is_not_taken_for_sent(rig: Rig) -> None:
    rig.checkpoint("sft/step-00000050")
    rig.checkpoint("sft/step-00000100", "hellO\n")
    rig.checkpoint("sft/step-00000150", "hell")
    rig.put("checkpoints/sft/step-00000200/weights", "hello\n")
    rig.take()
    assert rig.part("data") == "checkpoints/sft/step-00000050/weights"
    assert list(rig.sent) == ["checkpoints/sft/step-00000050"]
    rig.put("checkpoints/sft/step-00000100/weights", "hello\n")
    rig.take()
    assert rig.part("data") == "checkpoints/sft/step-00000100/weights"


def test_what_changes_while_it_is_sent_is_sent_as_it_was(rig: Rig) -> None:
    """What is pruned meanwhile is still there; a link that leads nowhere is nothing."""
    rig.checkpoint("sft/step-00000050")
    log = rig.put("training.log", "hello\n")
    (rig.root / "checkpoints/sft/latest").symlink_to("nowhere")
    rig.take()
    with log.open("a") as file:
        file.write("more\n")
    checkpoint.discard(rig.root / "checkpoints/sft/step-00000050")
    for name in ("checkpoints/sft/step-00000050/weights", "training.log"):
        assert (rig.root / ".sync/data" / name).read_text() == "hello\n"
    assert rig.part("latest") == ""


def test_damaged_files_go_so_that_they_are_fetched_again(tmp_path: Path) -> None:
    """None outside the checkpoint, whatever its manifest names: it is another machine's text."""
    (tmp_path / "c").mkdir()
    for name, text in (("c/a", "hello\n"), ("c/b", "hellO\n"), ("d", "another's\n")):
        (tmp_path / name).write_text(text)
    expected = {"size": 6, "digest": checkpoint.digest_of(tmp_path / "c/a")}
    names = ("a", "b", "../d", str(tmp_path / "d"), "gone")
    (tmp_path / "c/manifest.json").write_text(json.dumps({"files": dict.fromkeys(names, expected)}))
    assert drop_damaged(tmp_path / "c") == 1
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["a", "manifest.json"]
    assert (tmp_path / "d").exists() and drop_damaged(tmp_path / "nowhere") == 0


def test_status_has_of_each_run_the_newest_checkpoint_that_verifies(rig: Rig) -> None:
    for name in ("sft/step-00000050", "sft/step-00000100", "grpo/step-00000008"):
        rig.checkpoint(name, run=name.split("/")[0])
    for name in ("sft/step-00000150", "sft/step-00000200", "other/step-00000001"):
        rig.checkpoint(name, "hell")
    rig.put("checkpoints/sft/step-00000300/weights", "hello\n")  # its manifest was never written
    found = status.checkpoints(rig.root)
    assert {run: one["step"] for run, one in found.items()} == {"sft": 100, "grpo": 8}
    assert found["sft"]["path"].endswith("/checkpoints/sft/step-00000100")
    assert status.checkpoints(Path("/nowhere")) == {}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (engine.COPY, "rclone|copy|/a b|s3:bucket/x"),
        ("aws s3 cp --recursive {source} {target}", "aws|s3|cp|--recursive|/a b|s3:bucket/x"),
        ("  cp   {target}  ", "cp|s3:bucket/x"),
        ("cp x{source} {sourc} {source}/", "cp|x/a b|{sourc}|/a b/"),
        ("sh -c $(x);`y`", "sh|-c|$(x);`y`"),  # no shell reads it
        ("", ""),
    ],
)
def test_places_are_put_into_an_engines_words(command: str, words: str) -> None:
    assert "|".join(engine.words(command, "/a b", "s3:bucket/x")) == words


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("x\nERROR : InvalidAccessKeyId: The\nlast", "does not know the access key: ERROR : InvalidAccessKeyId: The"),
        ("SignatureDoesNotMatch: status code: 403", "the secret is not that"),
        ("fatal error: Unable to locate credentials", "there are no credentials"),
        ("AccessDenied: Access Denied\n\tstatus code: 403", "do not suffice: AccessDenied: Access Denied"),
        ("NoSuchBucket: The specified bucket does not exist", "no such bucket"),
        ("Failed to create file system: didn't find section in config file", "rclone knows no such remote"),
        ("first\ndial tcp: lookup s3: no such host\n\n", "dial tcp: lookup s3: no such host"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_line_that_tells_why_is_shown_with_what_it_means(said: str, means: str) -> None:
    assert means in engine.reason(said)


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        ("true {source} {target}", 0, ""),
        ("false", 7, "to: "),
        ("", 3, "the engine's command is empty"),
        ("/no/such/engine {source}", 7, "cannot start /no/such/engine"),
        ("cat /nowhere/x", 7, "No such file"),
    ],
)
def test_an_engine_that_fails_says_why(command: str, status: int, says: str) -> None:
    if not status:
        engine.run(command, "from", "to")
        return
    with pytest.raises(PipelineError, match=says) as caught:
        engine.run(command, "from", "to")
    assert caught.value.status == status


def test_rclone_gets_the_bundle_of_aws_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RCLONE_CA_CERT", raising=False)
    monkeypatch.setenv("AWS_CA_BUNDLE", "/a.pem")
    assert "AWS_CA_BUNDLE" not in engine.environment("/usr/bin/rclone")
    assert engine.environment("rclone")["RCLONE_CA_CERT"] == "/a.pem"
    assert engine.environment("aws")["AWS_CA_BUNDLE"] == "/a.pem" and "RCLONE_CA_CERT" not in engine.environment("aws")


@pytest.mark.parametrize("where", ["the snapshot", "sync.json"])
def test_a_full_disk_is_told_and_the_copy_is_tried_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    place, name = (Snapshot, "take") if where == "the snapshot" else (checkpoint, "replace")
    inner, before = getattr(place, name), list[object]()

    class Twice:
        def __bool__(self) -> bool:
            return len(before) > 1

    def full_at_first(*arguments: object) -> object:
        before.append(read(rig.root / "sync.json", dict))
        if len(before) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return inner(*arguments)

    monkeypatch.setattr(place, name, full_at_first)
    given = SimpleNamespace(copy_command="true", remote="there", check_command="true", workdir=rig.root)
    stop: Any = Twice()
    hurry: Any = SimpleNamespace(is_on=True)
    Sync(given, stop).loop(60, hurry)
    said = capsys.readouterr()
    assert "No space left on device" in said.err and "there has all of" in said.out
    if where == "the snapshot":
        told: Any = before[1]
        assert "No space left on device" in told["error"]
    state = json.loads((rig.root / "sync.json").read_text())
    assert state["good_at"] > 0 and "error" not in state


def test_a_python_that_is_too_old_is_told_in_one_line() -> None:
    code = "import sys; sys.version_info = (3, 9, 0); sys.modules['pipeline.common'] = None; import pipeline.__main__"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(sync.__file__).parents[1], capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 3 and done.stderr.splitlines() == [
        f"trainer: {sys.executable} is older than Python 3.10: set TRAINER_PYTHON"
    ]
