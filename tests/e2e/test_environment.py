"""Issue 21: what stands in the daemon's environment no child can see, and what workers write there goes with them."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import corpus
import pytest
import service
from daemon import running_daemon

NAME = "CANARY_OF_THE_DAEMON"
VALUE = "planted-by-a-test-7f3a"
KINDS = ("static", "compile", "run")
"""Of zygotes; their children are forks, with the same command line."""
ROUNDS = 20
"""Submissions until both static children of one, which live for milliseconds, were seen."""

LOOK = f"""
import os
def find_canary():
    seen = [open("/proc/self/environ", "rb").read(), repr(dict(os.environ)).encode()]
    if any({VALUE.encode()!r} in one or {NAME.encode()!r} in one for one in seen):
        raise RuntimeError("the daemon's environment: " + repr(seen))
find_canary()
"""


class Watch(threading.Thread):
    """The environment of everything below a process, as it comes and goes."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._over = threading.Event()
        self.environments: dict[tuple[int, str], bytes] = {}
        """By pid and command line, since a number is given again."""

    def run(self) -> None:
        while not self._over.wait(0.0005):
            todo = [self._root]
            while todo:
                pid = todo.pop()
                below = self._children(pid)
                for child in below:
                    self._look(child)
                todo += below

    def _children(self, pid: int) -> list[int]:
        found: list[int] = []
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                found += map(int, path.read_text().split())
            except OSError:
                continue
        return found

    def _look(self, pid: int) -> None:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if command and (pid, command) not in self.environments:
                self.environments[pid, command] = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return

    def stop(self) -> None:
        self._over.set()
        self.join()

    def pids_of(self, kind: str) -> set[int]:
        return {pid for pid, command in self.environments if f"--kind {kind} " in command}


@contextmanager
def _watching(daemon: service.Daemon) -> Iterator[Watch]:
    watch = Watch(daemon.pid)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, start_daemon: service.StartDaemon) -> service.Daemon:
    monkeypatch.setenv(NAME, VALUE)
    monkeypatch.setenv("VERIFIERD_" + NAME, VALUE)
    return start_daemon()


def test_no_child_sees_the_daemons_environment(daemon: service.Daemon, tasks: dict[str, corpus.Task]) -> None:
    """Code of a reference and of a candidate looks for itself; zygotes, referee, `ast` and `inspect` are looked at."""
    client, registration = daemon.client, tasks["relu"].registration()
    honest = next(c for c in corpus.load_candidates() if c.label == "relu/honest")
    with _watching(daemon) as watch:
        task = client.add_task({**registration, "reference": f"{registration['reference']}\n{LOOK}"})
        for number in range(ROUNDS):
            before = watch.pids_of("static")
            source = f"{honest.text}\n{LOOK}\n# {number}\n"
            body = {"task": task, "candidate": source, "policy": "kernelbench", "cache": False}
            verdict = client.judge(body)
            assert verdict["class"] == "ok", verdict
            if len(watch.pids_of("static") - before) == 2:  # `ast` and `inspect`
                break
        else:
            pytest.fail(f"no {ROUNDS} submissions were slow enough to be seen")
    seen = {command for _, command in watch.environments}
    for kind in KINDS:
        assert watch.pids_of(kind), f"no {kind} zygote among {seen}"
    assert any("referee.py" in command for command in seen), seen
    for (pid, command), environment in watch.environments.items():
        assert environment, f"nothing could be read of {pid}, {command}"
        assert VALUE.encode() not in environment, f"{pid}, {command}: {environment!r}"


def test_a_refused_reference_does_not_answer_with_the_daemons_environment(daemon: service.Daemon) -> None:
    """A token that may submit can register a task, and is told what its code raised."""
    reference = "raise RuntimeError(open('/proc/self/environ').read() + 'END')\n"
    answer = daemon.client.post("/v1/tasks", {"name": "curious", "reference": reference})
    assert answer.status == 422, answer
    assert b"PATH=" in answer.body and b"END" in answer.body, "it was raised, and told"
    assert VALUE.encode() not in answer.body


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a daemon as another user")
def test_an_ordinary_users_files_are_not_read(tasks: dict[str, corpus.Task]) -> None:
    """All processes of such a daemon have its uid, so that no file's mode keeps a candidate out."""
    user = 12345
    honest = next(c for c in corpus.load_candidates() if c.label == "relu/honest")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for place in (directory, directory / "store"):
            place.mkdir(exist_ok=True)
            os.chown(place, user, user)
        look = f"""
import os
for name in ("verifierd.db", "verifierd.db-wal"):
    print("looked", os.path.exists({str(directory / "store")!r} + "/" + name))
"""
        flags = (f"--store={directory / 'store/verifierd.db'}", f"--scratch={directory / 'scratch'}")
        alone = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
        programs, python = service.BINARY.parent, os.environ.get("PYTHON", sys.executable)
        with running_daemon(programs, python, *flags, prefix=alone) as running:
            running.wait_until_ready()
            task = running.post("/v1/tasks", tasks["relu"].registration(), 300)["id"]
            verdict = running.judge({"task": task, "candidate": f"{look}\n{honest.text}"}, 300)
            assert verdict["class"] == "ok", verdict
            with urllib.request.urlopen(f"{running.url}/v1/submissions/{verdict['id']}/log", timeout=30) as log:
                said = log.read().decode()
        assert said.count("looked False") >= 2 and "looked True" not in said, said
        assert (directory / "store/verifierd.db").stat().st_uid == user


def test_a_stop_leaves_no_folder_of_a_worker(
    monkeypatch: pytest.MonkeyPatch, start_daemon: service.StartDaemon
) -> None:
    """Issue 21, point 9: each stop left those of three zygotes and, with a GPU, of each referee."""
    with service.directory() as place:
        monkeypatch.setenv("TMPDIR", str(place))
        daemon = start_daemon()
        made = sorted(path.name.rpartition("-")[0] for path in place.iterdir())
        assert made.count("verifierd-zygote") == 3 and "verifierd-referee" in made, made
        assert daemon.stop() == 0
        assert not list(place.iterdir())
