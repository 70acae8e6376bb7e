"""trainer sync, resume and watch: copies that are whole or no checkpoint, and notices of three clouds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import service
from answering import Call, Reply, answering
from finetune import checkpoint, layout
from moto.server import ThreadedMotoServer

TRAINER = service.BINARY.with_name("trainer")
Json = dict[str, Any]
LIMIT_S = 120.0
RESUME = 75
# An engine that ends the trainer that called it, and itself, in its nth call: before it copies, in the middle of a
# file, or after.
DEADLY = """#!/bin/sh
echo >>"$COUNT"
end_if() { [ "$(wc -l <"$COUNT")" != "$NTH" ] || [ "$WHEN" != "$1" ] || { kill -9 $PPID; exit 1; }; }
end_if before
mkdir -p "$2"
first=$(cd "$1" && find . -type f | sort | head -n 1)
mkdir -p "$2/$(dirname "$first")"
head -c 3 "$1/$first" >"$2/$first"
end_if middle
cp -r "$1/." "$2"
end_if after
"""


def trainer(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [str(TRAINER), *arguments]
    return subprocess.run(command, env=os.environ | more, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def save(workdir: Path, run: str, step: int) -> Path:
    def write(directory: Path) -> None:
        (directory / "adapter_model.safetensors").write_text(f"{run} {step}")

    about = {"step": step, "run": run, "method": "sft"}
    return checkpoint.save(layout.steps(workdir, run), layout.step_name(step), write, about)


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    here = tmp_path / "work"
    here.mkdir()
    save(here, "sft", 1)
    save(here, "sft", 2)
    (here / "training.log").write_text("said\n")
    return here


def restored(remote: object, into: Path, *more: str) -> list[str]:
    """The checkpoints that a fresh machine gets."""
    done = trainer("resume", f"--remote={remote}", f"--workdir={into}", *more)
    assert done.returncode in (0, 1), done.stderr
    found = [line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("checkpoints/")]
    for path in found:
        checkpoint.verify(into / path)
    return found


def test_a_copy_is_restored_and_nothing_is_deleted(workdir: Path, tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    done = trainer("sync", f"--remote={remote}", f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    checkpoint.discard(layout.steps(workdir, "sft") / layout.step_name(1))
    save(workdir, "sft", 3)
    assert trainer("sync", f"--remote={remote}", f"--workdir={workdir}").returncode == 0
    steps = [f"checkpoints/sft/{layout.step_name(n)}" for n in (1, 2, 3)]
    assert restored(remote, tmp_path / "new") == steps
    assert (tmp_path / "new/training.log").read_text() == "said\n"
    assert (tmp_path / "new/checkpoints/sft/latest").read_text().strip() == layout.step_name(3)
    status = json.loads(trainer("status", "--json", f"--workdir={workdir}").stdout)
    assert abs(status["sync"]["good_at"] - time.time()) < LIMIT_S and status["sync"]["remote"] == str(remote)
    done = trainer("resume", f"--remote={remote}", f"--workdir={tmp_path / 'new'}")
    assert done.returncode == 3 and "is there already" in done.stderr


def test_what_does_not_verify_is_not_copied(workdir: Path, tmp_path: Path) -> None:
    damaged = layout.steps(workdir, "sft") / layout.step_name(2) / "adapter_model.safetensors"
    damaged.write_text("other")
    done = trainer("sync", f"--remote={tmp_path / 'remote'}", f"--workdir={workdir}")
    assert done.returncode == 0 and "not copied" in done.stderr
    assert restored(tmp_path / "remote", tmp_path / "new") == [f"checkpoints/sft/{layout.step_name(1)}"]


@pytest.mark.parametrize("when", ["before", "middle", "after"])
@pytest.mark.parametrize("nth", range(1, 5))
def test_a_kill_at_any_call_of_the_engine_loses_nothing(workdir: Path, tmp_path: Path, nth: int, when: str) -> None:
    """Data, manifests, the comparison of both, latest: a remote is as before, or has the new checkpoint whole."""
    engine, remote = tmp_path / "engine", tmp_path / "remote"
    engine.write_text(DEADLY)
    engine.chmod(0o755)
    options = (f"--remote={remote}", f"--workdir={workdir}", f"--copy-command={engine} {{source}} {{target}}")
    assert trainer("sync", *options, COUNT="/dev/null", NTH="1").returncode == 0
    save(workdir, "sft", 3)
    done = trainer("sync", *options, COUNT=str(tmp_path / "count"), NTH=str(nth), WHEN=when)
    assert done.returncode == -signal.SIGKILL
    plain = "--copy-command=cp -rT {source} {target}"
    found = [path.rsplit("-", 1)[1] for path in restored(remote, tmp_path / "new", plain)]
    assert [int(step) for step in found] == ([1, 2, 3] if nth > 2 or (nth, when) == (2, "after") else [1, 2])
    assert trainer("sync", *options, COUNT="/dev/null", NTH="1").returncode == 0
    assert len(restored(remote, tmp_path / "newer", plain)) == 3


def test_a_copy_that_is_not_what_was_sent_is_told(workdir: Path, tmp_path: Path) -> None:
    engine = tmp_path / "engine"
    engine.write_text(
        '#!/bin/sh\nmkdir -p "$2" && cp -r "$1/." "$2" && find "$2" -name "*.log" -exec sh -c ": >{}" ";"\n'
    )
    engine.chmod(0o755)
    done = trainer(
        "sync",
        f"--remote={tmp_path / 'remote'}",
        f"--workdir={workdir}",
        f"--copy-command={engine} {{source}} {{target}}",
    )
    assert done.returncode == 7 and "training.log is not there as it was sent" in done.stderr


def test_a_remote_that_cannot_be_used_is_named(workdir: Path) -> None:
    for arguments in (("--probe",), ()):
        done = trainer("sync", *arguments, "--remote=nosuch:bucket/run", f"--workdir={workdir}")
        assert done.returncode == 7 and "nosuch:bucket/run" in done.stderr and "config" in done.stderr
    status = trainer("status", f"--workdir={workdir}").stdout
    assert "no good copy yet" in status and "the last attempt failed" in status


def test_nothing_to_restore_is_not_a_remote_that_is_not_there(workdir: Path, tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    there = f"--remote={remote}"
    done = trainer("resume", there, f"--workdir={tmp_path / 'absent'}")
    assert done.returncode == 7 and "not found" in done.stderr
    remote.mkdir()
    done = trainer("resume", there, f"--workdir={tmp_path / 'new'}")
    assert done.returncode == 5 and "nothing to resume" in done.stderr
    assert trainer("sync", there, f"--workdir={workdir}").returncode == 0
    for path in remote.glob("checkpoints/sft/*/adapter_model.safetensors"):
        path.write_text("else")
    done = trainer("resume", there, f"--workdir={tmp_path / 'damaged'}")
    assert done.returncode == 1 and "no checkpoint that verifies" in done.stderr


@pytest.mark.parametrize(("status", "is_begun"), [(0, True), (5, True), (1, False), (7, False)])
def test_the_spot_job_begins_from_nothing_only_where_there_is_nothing(
    tmp_path: Path, status: int, is_begun: bool
) -> None:
    setup, script = (service.ROOT / "client" / "deploy" / "skypilot.yaml").read_text().split("\nrun: |\n")
    programs, serving = tmp_path / "build" / "bin", tmp_path / "vllm" / "bin"
    assert "~/vllm/bin/pip install vllm" in setup
    for directory in (programs, serving):
        directory.mkdir(parents=True)
    (serving / "vllm").touch(0o755)
    (programs / "verifierd").write_text("#!/bin/sh\n")
    (programs / "trainer").write_text(f"#!/bin/sh\necho $1 >>said\n[ $1 = run ] || exit {status}\ncommand -v vllm\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    (tmp_path / "run.conf").write_text("")
    own = {"HOME": str(tmp_path), "REMOTE": "s3:bucket/run", "CONF": "run.conf"}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=os.environ | own, timeout=LIMIT_S, check=False)
    assert (tmp_path / "said").read_text().split() == ["resume", *(["run"] if is_begun else [])]
    assert done.returncode == (0 if is_begun else status)


# Ends the process before its nth rename: of the mark, of a file to its place.
DIE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
int
rename(const char *from, const char *to)
{
    static int n;
    if (++n == atoi(getenv("NTH")))
        kill(getpid(), SIGKILL);
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}
"""


@pytest.fixture(scope="module")
def die(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to load before a program."""
    directory = tmp_path_factory.mktemp("die")
    (directory / "die.c").write_text(DIE)
    out = directory / "die.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(out), str(directory / "die.c"), "-ldl"]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    return out


def whole(remote: Path, into: Path, *more: str) -> None:
    """The restore is finished, and everything is where it belongs."""
    steps = [f"checkpoints/sft/{layout.step_name(n)}" for n in (1, 2)]
    assert restored(remote, into, *more) == steps
    there = {path.relative_to(into).as_posix() for path in into.rglob("*") if path.is_file()}
    assert there == {path.relative_to(remote).as_posix() for path in remote.rglob("*") if path.is_file()}
    assert "training.log" in there


@pytest.mark.parametrize("when", ["before", "middle", "after"])
def test_a_restore_that_is_killed_while_it_fetches_goes_on(workdir: Path, tmp_path: Path, when: str) -> None:
    engine, remote, new = tmp_path / "engine", tmp_path / "remote", tmp_path / "new"
    engine.write_text(DEADLY)
    engine.chmod(0o755)
    plain = "--copy-command=cp -rT {source} {target}"
    assert trainer("sync", f"--remote={remote}", f"--workdir={workdir}", plain).returncode == 0
    options = (f"--remote={remote}", f"--workdir={new}")
    deadly = f"--copy-command={engine} {{source}} {{target}}"
    done = trainer("resume", *options, deadly, COUNT=str(tmp_path / "count"), NTH="1", WHEN=when)
    assert done.returncode == -signal.SIGKILL
    assert not (new / "checkpoints").exists(), "nothing of it is taken for a run's"
    status = trainer("status", f"--workdir={new}").stdout
    assert f"trainer resume --remote={remote} goes on" in status
    other = trainer("resume", "--remote=/other", f"--workdir={new}", plain)
    assert other.returncode == 3 and "was begun here: go on with that" in other.stderr
    whole(remote, new, plain)
    assert "goes on" not in trainer("status", f"--workdir={new}").stdout


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_restore_that_is_killed_at_any_rename_goes_on(workdir: Path, tmp_path: Path, die: Path, nth: int) -> None:
    """Its mark, the mark that all has arrived, and each file on its way to its place."""
    remote, new = tmp_path / "remote", tmp_path / "new"
    plain = "--copy-command=cp -rT {source} {target}"
    assert trainer("sync", f"--remote={remote}", f"--workdir={workdir}", plain).returncode == 0
    options = (f"--remote={remote}", f"--workdir={new}", plain)
    done = trainer("resume", *options, LD_PRELOAD=str(die), NTH=str(nth))
    assert done.returncode == -signal.SIGKILL, "there are two marks, and six files or more"
    whole(remote, new, plain)


def test_what_had_arrived_is_not_fetched_again_and_what_is_torn_is(workdir: Path, tmp_path: Path) -> None:
    """By rclone: a whole file stays the file that it is; one of another size, or of other bytes, is fetched."""
    remote, new = tmp_path / "remote", tmp_path / "new"
    assert trainer("sync", f"--remote={remote}", f"--workdir={workdir}").returncode == 0
    landing = new / ".resume"
    shutil.copytree(remote, landing)
    (new / ".resume.json").write_text(json.dumps({"remote": str(remote), "is_fetched": False}))
    first, second = (Path("checkpoints/sft") / layout.step_name(n) / "adapter_model.safetensors" for n in (1, 2))
    (landing / "training.log").write_text("sa")
    times = (remote / second).stat()
    (landing / second).write_text("x" * times.st_size)  # as long and as old: only its digest tells
    os.utime(landing / second, ns=(times.st_atime_ns, times.st_mtime_ns))
    kept = (landing / first).stat().st_ino
    whole(remote, new)
    assert (new / first).stat().st_ino == kept and (new / "training.log").read_text() == "said\n"
    assert (new / second).read_text() == "sft 2"


def test_a_restore_from_nowhere_leaves_nothing(tmp_path: Path) -> None:
    new = tmp_path / "new"
    done = trainer("resume", "--remote=nosuch:bucket/run", f"--workdir={new}")
    assert done.returncode == 7 and "rclone knows no such remote" in done.stderr
    assert list(new.iterdir()) == []


@pytest.fixture
def s3() -> Iterator[dict[str, str]]:
    """An S3-compatible server, as rclone is told of it; credentials are canaries."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    own = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": f"http://{host}:{port}", "REGION": "us-east-1"}
    own |= {"ACCESS_KEY_ID": "canary", "SECRET_ACCESS_KEY": "canary"}
    yield {f"RCLONE_CONFIG_S3_{name}": value for name, value in own.items()} | {"AWS_CA_BUNDLE": "", "NO_PROXY": "*"}
    server.stop()


def test_a_bucket(workdir: Path, tmp_path: Path, s3: dict[str, str]) -> None:
    subprocess.run(["rclone", "mkdir", "s3:bucket"], env=os.environ | s3, check=True, timeout=LIMIT_S)
    done = trainer("resume", "--remote=s3:bucket/run", f"--workdir={tmp_path / 'none'}", **s3)
    assert done.returncode == 5, done.stderr
    done = trainer("resume", "--remote=s3:bucked/run", f"--workdir={tmp_path / 'none'}", **s3)
    assert done.returncode == 7, done.stderr
    done = trainer("sync", "--probe", "--remote=s3:bucket/run", f"--workdir={workdir}", **s3)
    assert done.returncode == 0, done.stderr
    assert trainer("sync", "--remote=s3:bucket/run", f"--workdir={workdir}", **s3).returncode == 0
    save(workdir, "sft", 3)
    assert trainer("sync", "--remote=s3:bucket/run", f"--workdir={workdir}", **s3).returncode == 0
    done = trainer("resume", "--remote=s3:bucket/run", f"--workdir={tmp_path / 'new'}", **s3)
    assert done.returncode == 0, done.stderr
    for step in (1, 2, 3):
        assert f"checkpoints/sft/{layout.step_name(step)}: sft, step {step}" in done.stdout
        checkpoint.verify(layout.steps(tmp_path / "new", "sft") / layout.step_name(step))


def test_a_bucket_where_aws_ca_bundle_is_set(workdir: Path, tmp_path: Path, s3: dict[str, str]) -> None:
    """rclone cannot use it, and is given the same certificates by a name that it knows."""
    subprocess.run(["rclone", "mkdir", "s3:bucket"], env=os.environ | s3, check=True, timeout=LIMIT_S)
    bundle = tmp_path / "bundle.pem"
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", bundle)
    s3["AWS_CA_BUNDLE"] = str(bundle)
    done = trainer("sync", "--remote=s3:bucket/run", f"--workdir={workdir}", **s3)
    assert done.returncode == 0, done.stderr
    # Behind another program's name rclone gets what is there, and the message says what to do.
    wrapper = tmp_path / "copy"
    wrapper.write_text('#!/bin/sh\nexec rclone copy "$1" "$2"\n')
    wrapper.chmod(0o755)
    command = f"--copy-command={wrapper} {{source}} {{target}}"
    done = trainer("sync", "--remote=s3:bucket/run", f"--workdir={workdir}", command, **s3)
    assert done.returncode == 7 and "AWS_CA_BUNDLE is set, which rclone cannot use" in done.stderr
    bundle.write_text("no certificate\n")
    done = trainer("sync", "--remote=s3:bucket/run", f"--workdir={workdir}", **s3)
    assert done.returncode == 7 and "the file of AWS_CA_BUNDLE" in done.stderr  # it is read


# --- notices ---


class Cloud:
    """A metadata service: paths with their answers, and what each has to be asked with."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []
        self.refused = 0  # tokens to refuse

    def answer(self, call: Call) -> Reply:
        path = call.path.split("?")[0]
        self.asked.append((call.method, call.path))
        if call.method == "PUT":
            is_well = call.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "21600"
            return 200 if is_well else 400, {}, b"the-token"
        wanted = {
            "/latest": ("X-aws-ec2-metadata-token", "the-token"),
            "/comput": ("Metadata-Flavor", "Google"),
            "/metada": ("Metadata", "true"),
        }[path[:7]]
        if call.headers[wanted[0]] != wanted[1]:
            return 403, {}, b""
        if self.refused:
            self.refused -= 1
            return 401, {}, b""
        return (200, {}, self.answers[path].encode()) if path in self.answers else (404, {}, b"")


NOTICES = [
    ("aws", "/latest/meta-data/spot/instance-action", '{"action":"terminate","time":"2026-01-01T00:00:00Z"}', ""),
    ("gcp", "/computeMetadata/v1/instance/preempted", "TRUE", "FALSE"),
    ("gcp", "/computeMetadata/v1/instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", "NONE"),
    ("azure", "/metadata/scheduledevents", '{"Events":[{"EventType":"Preempt","NotBefore":"x"}]}', '{"Events":[]}'),
]


@contextmanager
def watched(cloud: Cloud, name: str, *more: str) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[str]]]:
    """A process that ends by SIGTERM, and a watch over it."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    # Reap it as soon as it ends: the watch waits until it is gone.
    threading.Thread(target=sleeper.wait, daemon=True).start()
    with answering(cloud.answer) as url:
        command = [
            str(TRAINER),
            "watch",
            f"--pid={sleeper.pid}",
            f"--clouds={name}",
            f"--{name}-url={url}",
            "--every=0.05",
        ]
        watch = subprocess.Popen([*command, *more], stderr=subprocess.PIPE, text=True)
        try:
            yield sleeper, watch
        finally:
            watch.kill()
            watch.wait()
            sleeper.kill()


def wait_until_asked(cloud: Cloud, path: str, times: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while sum(asked.startswith(path) for _, asked in list(cloud.asked)) < times and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.parametrize(("name", "path", "notice", "before"), NOTICES)
def test_a_notice_ends_the_run_and_says_resume(name: str, path: str, notice: str, before: str) -> None:
    cloud = Cloud()
    if before:
        cloud.answers[path] = before
    with watched(cloud, name) as (sleeper, watch):
        wait_until_asked(cloud, path, 3)
        assert sleeper.poll() is None and watch.poll() is None
        cloud.answers[path] = notice
        assert watch.wait(LIMIT_S) == RESUME
        assert sleeper.wait(LIMIT_S) == -signal.SIGTERM


def test_a_token_is_asked_for_again_and_advice_ends_nothing() -> None:
    cloud = Cloud()
    cloud.answers["/latest/meta-data/events/recommendations/rebalance"] = '{"noticeTime":"x"}'
    action = "/latest/meta-data/spot/instance-action"
    with watched(cloud, "aws") as (sleeper, watch):
        wait_until_asked(cloud, action, 3)
        cloud.refused = 1
        wait_until_asked(cloud, "/latest/api/token", 2)
        wait_until_asked(cloud, action, 6)
        assert sleeper.poll() is None and watch.poll() is None
    tokens = [path for method, path in cloud.asked if method == "PUT"]
    assert len(tokens) == 2


def test_sigterm_is_a_notice_too_and_the_last_copy_is_made(workdir: Path, tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    cloud = Cloud()
    with watched(cloud, "azure", f"--remote={remote}", f"--workdir={workdir}") as (sleeper, watch):
        wait_until_asked(cloud, "/metadata", 1)
        watch.terminate()
        assert watch.wait(LIMIT_S) == RESUME
        assert sleeper.wait(LIMIT_S) == -signal.SIGTERM
    assert len(restored(remote, tmp_path / "new")) == 2


def test_a_save_that_takes_longer_than_the_notice_costs_nothing_that_was_verified(
    workdir: Path, tmp_path: Path
) -> None:
    """The process is still in its save when the time is up: what verifies is copied, and nothing of the rest."""
    half = layout.steps(workdir, "sft") / f"{checkpoint.PARTIAL}{layout.step_name(3)}"
    half.mkdir()
    (half / "adapter_model.safetensors").write_text("ha")
    torn = layout.steps(workdir, "sft") / layout.step_name(4)  # in place, but without its manifest
    torn.mkdir()
    (torn / "adapter_model.safetensors").write_text("ha")
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    saving = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert saving.stdout is not None and saving.stdout.readline()
    remote = tmp_path / "remote"
    options = (f"--pid={saving.pid}", "--grace=0.3", f"--remote={remote}", f"--workdir={workdir}", "--every=0.05")
    cloud = Cloud()
    cloud.answers["/latest/meta-data/spot/instance-action"] = '{"action":"terminate"}'
    try:
        with answering(cloud.answer) as url:
            done = trainer("watch", "--clouds=aws", f"--aws-url={url}", *options)
        assert saving.poll() is None
    finally:
        saving.kill()
        saving.wait()
    assert done.returncode == RESUME and "still runs after 0.3 s" in done.stderr, done.stderr
    assert restored(remote, tmp_path / "new") == [f"checkpoints/sft/{layout.step_name(n)}" for n in (1, 2)]
    assert not [path for path in remote.rglob("*") if path.name in (half.name, torn.name)]


def test_a_run_that_ended_is_not_watched_any_more() -> None:
    with watched(Cloud(), "gcp") as (sleeper, watch):
        sleeper.kill()
        assert watch.wait(LIMIT_S) == 0


def test_rclone_is_there() -> None:
    """The default engine is installed by make setup-test."""
    assert shutil.which("rclone")
