"""kill -9 of the daemon and of its workers at random instants, under load: nothing acknowledged is lost.

KILL_ROUNDS rounds (50) with scripted workers; KILL_HARNESS=real uses the real ones (KILL_ROUNDS=5 then).
KILL_SEED repeats a run; the seed stands in the test's output.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import corpus
import pytest
import service
from scripted import SCRIPTED, TASK

IS_REAL = os.environ.get("KILL_HARNESS") == "real"
ROUNDS = int(os.environ.get("KILL_ROUNDS", "5" if IS_REAL else "50"))
SEED = int(os.environ.get("KILL_SEED", str(time.time_ns() % 1_000_000)))
MAX_ATTEMPTS = 3
PAUSE_S = 0.5 if IS_REAL else 0.03
"""Between two posts: enough to have all stages busy, and few enough to be judged afterwards."""
LIMIT_S = 600.0 if IS_REAL else 120.0

SCRIPTS = {
    "timing=1.3": "ok",
    "compile=sleep:0.05,pass timing=1.1": "ok",
    "ast=fail:syntax": "syntax",
    "compile=fail:compile": "compile",
    "compile=exit:0": "crash",
    "tiny=fail:shape": "shape",
    "full=sleep:0.05,fail:mismatch": "mismatch",
    "full=crash": "crash",
}


def options() -> dict[str, object]:
    if IS_REAL:
        return {"device": "cpu", "max_attempts": MAX_ATTEMPTS, "stage_limit_ms": 30000}
    return {**SCRIPTED, "max_attempts": MAX_ATTEMPTS}


def bodies(generator: random.Random) -> Iterator[tuple[dict[str, object], frozenset[str]]]:
    """Submissions without end, and what each of them must be found to be."""
    at = 0
    if IS_REAL:
        names = ("honest", "syntax_error", "exit_at_import", "unknown_name", "leaky", "late_segfault")
        known = [one for one in corpus.load_candidates() if one.task == "relu" and one.name in names]
        assert len(known) == len(names)
        while True:
            one = generator.choice(known)
            at += 1
            yield {**one.body("relu"), "candidate": f"{one.text}\n# {SEED} {at}\n"}, one.classes
    while True:
        script, class_ = generator.choice(list(SCRIPTS.items()))
        at += 1
        yield {"task": "scripted", "candidate": f"# script: {script}\n# {SEED} {at}\n"}, frozenset({class_})


class Load(threading.Thread):
    """Posts until it is told to stop; what was acknowledged is in `expected`."""

    def __init__(self, client: service.Client, source: Iterator[tuple[dict[str, object], frozenset[str]]]) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._source = source
        self._stop_now = threading.Event()
        self.expected: dict[str, frozenset[str]] = {}

    def run(self) -> None:
        while not self._stop_now.wait(PAUSE_S):
            body, classes = next(self._source)
            try:
                answer = self._client.post("/v1/submissions", body)
            except (OSError, HTTPException, urllib.error.URLError):
                return
            if answer.status == 202:
                self.expected[str(answer.json()["id"])] = classes
            elif answer.status != 503:
                raise AssertionError(f"{answer.status}: {answer.body[:300]!r}")

    def wait_acknowledged(self) -> None:
        """Until the first of them is."""
        deadline = time.monotonic() + LIMIT_S
        while not self.expected and self.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def end(self) -> None:
        self._stop_now.set()
        self.join(60)
        assert not self.is_alive()


def add_task(client: service.Client) -> None:
    client.add_task(corpus.load_tasks()["relu"].registration() if IS_REAL else TASK)


def check_verdict(verdict: service.Json, classes: frozenset[str]) -> None:
    """Its own class; or, where it was begun as often as is allowed and cut short each time, ours: without a reward."""
    assert verdict["state"] == "done", verdict
    if verdict["class"] in classes:
        assert verdict["class"] != "ok" or verdict["reward"] > 0, verdict
        return
    assert verdict["attempts"] >= MAX_ATTEMPTS, verdict
    assert (verdict["class"], verdict["reward"]) == ("infra", None), verdict


def test_daemon_is_killed() -> None:
    """Restarted each time, it finishes what it had taken on; each submission has exactly one verdict."""
    print(f"KILL_SEED={SEED}")
    generator = random.Random(SEED)
    source = bodies(generator)
    expected: dict[str, frozenset[str]] = {}
    with service.directory() as directory:
        daemon = service.Daemon(directory, options())
        daemon.start()
        add_task(daemon.client)
        for turn in range(ROUNDS):
            load = Load(daemon.client, source)
            load.start()
            if turn % 2:  # else it may be killed while it starts
                load.wait_acknowledged()
            time.sleep(generator.uniform(0.0, 6.0 if IS_REAL else 0.5))
            daemon.kill()
            load.end()
            expected.update(load.expected)
            daemon.start(ready=False)
        daemon.wait_ready()
        verdicts = {one: daemon.client.wait(one, LIMIT_S) for one in expected}
        for one, classes in expected.items():
            check_verdict(verdicts[one], classes)
        again = {one: daemon.client.get(f"/v1/submissions/{one}").json() for one in expected}
        assert again == verdicts, "a verdict is final"
        assert daemon.stop() == 0
    ours = sum(verdict["class"] == "infra" for verdict in verdicts.values())
    print(f"{ROUNDS} kills of the daemon, {len(expected)} acknowledged, {ours} of them infra")
    assert len(expected) >= ROUNDS // 2


def workers(daemon: service.Daemon) -> list[int]:
    return [int(worker["pid"]) for worker in daemon.client.expect("GET", "/v1/status")["workers"] if worker["pid"]]


def children(daemon: service.Daemon) -> list[int]:
    """Those of the workers, as far as /proc tells."""
    pids = []
    for pid in workers(daemon):
        with suppress(OSError):
            pids += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return pids


def verdicts_of_a_load(victims: Callable[[service.Daemon], list[int]]) -> list[tuple[service.Json, frozenset[str]]]:
    """Of submissions during which one of the victims after another is killed, with what each must be found to be."""
    print(f"KILL_SEED={SEED}")
    generator = random.Random(SEED + 1)
    source = bodies(generator)
    kills = 0
    with service.directory() as directory, service.Daemon(directory, options()) as daemon:
        add_task(daemon.client)
        load = Load(daemon.client, source)
        load.start()
        for _ in range(ROUNDS):
            time.sleep(generator.uniform(0.05, 8.0 if IS_REAL else 0.3))
            pids = victims(daemon)
            if pids:
                with suppress(ProcessLookupError):
                    os.kill(generator.choice(pids), signal.SIGKILL)
                    kills += 1
        load.end()
        assert load.expected
        assert kills, "nothing was killed"
        found = [(daemon.client.wait(one, LIMIT_S), classes) for one, classes in load.expected.items()]
        status = daemon.client.expect("GET", "/v1/status")
        assert status["counts"]["finished"] == len(load.expected)
    ours = sum(verdict["class"] == "infra" for verdict, _ in found)
    print(f"{kills} kills, {len(found)} acknowledged, {ours} of them infra")
    return found


def test_workers_are_killed() -> None:
    """Whichever of the workers goes, nobody pays for it: each submission is found to be what it is, or ours."""
    for verdict, classes in verdicts_of_a_load(workers):
        check_verdict(verdict, classes)


def test_children_are_killed() -> None:
    """Each submission comes to its end. A child killed from outside is not to be told from one that killed itself."""
    for verdict, classes in verdicts_of_a_load(children):
        check_verdict(verdict, classes | {"crash"})


def test_who_waits_for_a_device_does_not_pay_for_the_deaths_of_the_daemon(start_scripted: service.StartDaemon) -> None:
    """Issue 21.1: waiting is no attempt; and who is on the device each time ends as ours, without a reward."""
    daemon = start_scripted(max_attempts=2)
    client = daemon.client
    client.add_task(TASK)
    go = daemon.directory / "go"
    on_device = client.submit({"task": "scripted", "candidate": f"# script: full=until:{go},pass timing=1.2\n"})
    waits = ""

    def is_waiting() -> bool:
        queues = daemon.client.expect("GET", "/v1/status")["queues"]
        return bool(queues["gpu_running"] == 1 and queues["ready"]["interactive"] == (1 if waits else 0))

    for _ in range(2):
        wait_for(is_waiting)
        if not waits:
            waits = client.submit({"task": "scripted", "candidate": "# script: compile=sleep:0.5,pass timing=1.1\n"})
            wait_for(is_waiting)
        wait_for(lambda: daemon.client.expect("GET", "/v1/status")["store"]["queued_writes"] == 0)
        daemon.kill()
        daemon.start()
    lost, honest = (daemon.client.wait(one, LIMIT_S) for one in (on_device, waits))
    assert (lost["class"], lost["reward"], lost["attempts"]) == ("infra", None, 2), lost
    assert "went down 2 times" in lost["feedback"]["text"], lost["feedback"]
    assert (honest["class"], honest["attempts"]) == ("ok", 1), honest


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.01)


@pytest.mark.parametrize("what", ["compile zygote", "run zygote cpu", "referee cpu"])
def test_worker_comes_back(start_scripted: service.StartDaemon, what: str) -> None:
    daemon = start_scripted()
    daemon.client.add_task(TASK)
    for _ in range(3):
        workers = daemon.client.expect("GET", "/v1/status")["workers"]
        pid = next(int(worker["pid"]) for worker in workers if worker["name"] == what and worker["pid"])
        os.kill(pid, signal.SIGKILL)
        body = {"task": "scripted", "candidate": "# script: timing=1.2\n", "cache": False}
        assert daemon.client.judge(body, 60)["class"] == "ok"
