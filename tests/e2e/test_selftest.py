"""`verifier selftest` against scripted services, which it must see through, and against the real daemon."""

from __future__ import annotations

import itertools
import json
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import service
from answering import Call, Reply, answering, document

VERIFIER = service.BINARY.with_name("verifier")
LIMIT_S = 300.0
QUICK_LIMIT_S = 60.0
Json = dict[str, Any]
Judge = Callable[[Json], Json]


def run(url: str, *arguments: str, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    command = [str(VERIFIER), "selftest", "--url", url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)


def last_line(done: subprocess.CompletedProcess[str]) -> Json:
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def verdict(of: str, **more: Any) -> Json:
    """A verdict of this class, which failed at `full` unless it is ok."""
    failed = None if of == "ok" else "full"
    return {"class": of, "failed_at": failed, "reward": 0.7 if of == "ok" else 0.0, "components": {}, **more}


class Fake:
    """A service whose verdicts are made up by a function of what is submitted."""

    def __init__(self, judge: Judge, gpus: list[str]) -> None:
        self.judge = judge
        self.gpus = gpus
        self.bodies: list[Json] = []
        self.refused: set[str] = set()
        self.busy = 0
        self.verdicts: dict[str, Json] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()

    def answer(self, call: Call) -> Reply:
        return document(*self._answer(call.method, call.path, call.body))

    def _answer(self, method: str, path: str, body: Json | None) -> tuple[int, Json]:
        with self._lock:
            if path == "/readyz":
                return 200, {"status": "ready"}
            if path == "/v1/status":
                return 200, {"gpus": self.gpus, "sandbox": {"run_layers": {}}}
            if method == "POST" and body is not None:
                return self._post(path, body)
            name = path.rpartition("/")[2].partition("?")[0]
            return 200, {"id": name, "state": "done", **self.verdicts[name]}

    def _post(self, path: str, body: Json) -> tuple[int, Json]:
        if self.busy > 0:
            self.busy -= 1
            return 429, {"title": "Too much is waiting", "status": 429}
        if path == "/v1/tasks":
            name = body["name"].partition(" ")[0]
            refused = name in self.refused
            return (422, {"title": "no", "status": 422}) if refused else (201, {"id": "sha256:" + name})
        self.bodies.append(body)
        name = f"s{next(self._ids)}"
        self.verdicts[name] = self.judge(body)
        return 202, {"id": name, "state": "queued"}


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[str, Fake]]]:
    with ExitStack() as stack:

        def start(judge: Judge, gpus: list[str] | None = None) -> tuple[str, Fake]:
            fake = Fake(judge, gpus or [])
            return stack.enter_context(answering(fake.answer)), fake

        yield start


FILES = {
    "tasks/relu.py": "task = 1\n",
    "candidates/relu/honest.py": "# kind: honest\n# class: ok\nhonest = 1\n",
    "candidates/relu/odd.py": "# kind: suspicious\n# class: ok\nodd = 1\n",
    "candidates/relu/cheat.py": "# kind: cheat\n# class: hack|policy\n# what: patches the clock\ncheat = 1\n",
    "candidates/relu/late.py": "# kind: cheat\n# class: hack\n# needs: gpu\ncheat = 2\n",
    "candidates/relu/wrong.py": "# kind: mistake\n# expect: class=mismatch stage=full\nwrong = 1\n",
    "candidates/relu/bomb.txt": "# kind: robustness\n# class: crash\n```python\nbomb = 1\n```\n",
}
TRUE = {"cheat = ": "hack", "wrong = ": "mismatch", "bomb = ": "crash"}


@pytest.fixture
def corpus_directory(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def text_of(body: Json) -> str:
    return str(body.get("candidate") or body.get("completion"))


def truthful(body: Json) -> Json:
    text = text_of(body)
    return verdict(next((of for mark, of in TRUE.items() if mark in text), "ok"))


def test_a_service_that_tells_the_truth_passes(serve: Any, corpus_directory: Path) -> None:
    url, fake = serve(truthful)
    fake.busy = 2
    done = run(url, "--corpus", str(corpus_directory))
    assert done.returncode == 0, done.stdout + done.stderr
    last = last_line(done)
    assert last["ok"] is True
    assert (last["ran"], last["skipped"], last["killed"], last["kill_rate"]) == (5, 1, 1, 1.0)
    assert (last["probes"], last["followed"], last["contaminated"]) == (1, 2, 0)
    assert "SKIP relu/late: needs a GPU" in done.stdout
    # What was judged before would be answered from the store: no text is sent twice, nor in another run.
    first = [text_of(body) for body in fake.bodies]
    assert run(url, "--corpus", str(corpus_directory)).returncode == 0
    assert len({*first, *(text_of(body) for body in fake.bodies)}) == len(fake.bodies)
    # The honest kernel is judged before anything hostile, and after it.
    kinds = [
        "honest" if "honest = 1" in text else "hostile" if "cheat" in text or "bomb" in text else "" for text in first
    ]
    assert kinds.index("honest") < kinds.index("hostile")
    assert kinds[-1] == "honest"


def test_an_honest_kernel_follows_every_fourth_hostile_row_and_the_last(serve: Any, corpus_directory: Path) -> None:
    for number in range(8):
        cheat = f"# kind: cheat\n# class: hack\ncheat = {number}\n"
        (corpus_directory / f"candidates/relu/cheat_{number}.py").write_text(cheat)
    url, _ = serve(truthful)
    last = last_line(run(url, "--corpus", str(corpus_directory)))
    assert (last["probes"], last["followed"], last["contaminated"]) == (3, 10, 0)


def test_with_a_gpu_nothing_is_skipped(serve: Any, corpus_directory: Path) -> None:
    url, _ = serve(truthful, ["one"])
    done = run(url, "--corpus", str(corpus_directory))
    assert done.returncode == 0
    assert last_line(done)["skipped"] == 0
    assert "needs a GPU" not in done.stdout


@pytest.mark.parametrize(
    ("judge", "line"),
    [
        (lambda body: verdict("ok"), "SURPRISE relu/cheat: class ok, expected policy|hack (patches the clock)"),
        (lambda body: verdict("hack"), "SURPRISE relu/honest: class hack, expected ok"),
        (lambda body: verdict("infra"), "SURPRISE relu/cheat: class infra, expected policy|hack"),
        (
            lambda body: truthful(body) | ({"failed_at": "tiny"} if "wrong" in text_of(body) else {}),
            "SURPRISE relu/wrong: mismatch at stage tiny, expected full",
        ),
        (
            lambda body: truthful(body) | ({"reward": 0.5} if "cheat" in text_of(body) else {}),
            "SURPRISE relu/cheat: class hack with a reward of 0.5",
        ),
    ],
)
def test_a_service_that_is_wrong_fails(serve: Any, corpus_directory: Path, judge: Judge, line: str) -> None:
    url, _ = serve(judge)
    done = run(url, "--corpus", str(corpus_directory))
    assert done.returncode == 1, done.stdout
    assert line in done.stdout
    assert last_line(done)["ok"] is False


def test_contamination_is_seen(serve: Any, corpus_directory: Path) -> None:
    seen: list[str] = []

    def suffers(body: Json) -> Json:
        seen.append(text_of(body))
        spoilt = any("cheat = 1" in text for text in seen) and "honest" in seen[-1]
        return verdict("nonfinite") if spoilt else truthful(body)

    url, _ = serve(suffers)
    done = run(url, "--corpus", str(corpus_directory))
    assert done.returncode == 1
    assert "CONTAMINATED relu/honest: class nonfinite, was ok before" in done.stdout
    last = last_line(done)
    assert (last["contaminated"], last["surprises"]) == (1, 0)


def test_contamination_of_times_is_seen(serve: Any, corpus_directory: Path) -> None:
    """A patched timer credits those that come later: their verdicts are right, their times are not."""
    seen: list[str] = []

    def credits(body: Json) -> Json:
        seen.append(text_of(body))
        speed = 60.0 if any("cheat = 1" in text for text in seen) else 1.2
        figures = {"speedup": speed, "speedup_lo": speed * 0.99, "speedup_hi": speed * 1.01}
        answer = truthful(body)
        return (
            answer | {"components": figures, "timing": {"outcome": "measured"}} if answer["class"] == "ok" else answer
        )

    url, _ = serve(credits, ["one"])
    done = run(url, "--corpus", str(corpus_directory))
    assert done.returncode == 1
    assert "CONTAMINATED relu/honest: speedup 60.000 [59.400, 60.600], was within [1.188, 1.212] before" in done.stdout
    assert last_line(done)["times_compared"] == 1


def test_a_long_task_is_timed_after_cheats_of_a_short_one(serve: Any, corpus_directory: Path) -> None:
    """The short one's times are never conclusive; the cheat spoils the clock all the same."""
    (corpus_directory / "tasks/big.py").write_text("# needs: gpu\nbig = 1\n")
    (corpus_directory / "candidates/big").mkdir()
    (corpus_directory / "candidates/big/honest.py").write_text("# kind: honest\n# class: ok\nlong = 1\n")
    seen: list[str] = []

    def credits(body: Json) -> Json:
        seen.append(text_of(body))
        if "long = 1" not in seen[-1]:
            return truthful(body)
        speed = 60.0 if any("cheat = " in text for text in seen) else 1.2
        figures = {"speedup": speed, "speedup_lo": speed * 0.99, "speedup_hi": speed * 1.01}
        return verdict("ok", components=figures, timing={"outcome": "measured"})

    url, _ = serve(credits, ["one"])
    done = run(url, "--corpus", str(corpus_directory))
    assert done.returncode == 1
    assert "CONTAMINATED big/honest: speedup 60.000" in done.stdout
    assert (last_line(done)["followed"], last_line(done)["times_compared"]) == (3, 1)


def test_the_other_policy_is_shown_and_decides_nothing(serve: Any, corpus_directory: Path) -> None:
    url, fake = serve(lambda body: verdict("ok") if body.get("policy") == "kernelbench" else truthful(body))
    done = run(url, "--corpus", str(corpus_directory), "--policy", "kernelbench")
    assert done.returncode == 0, done.stdout
    last = last_line(done)
    assert last["other_ran"] == 5
    assert last["kinds"]["cheat"]["other_accepted"] == 1
    assert "ACCEPTED BY kernelbench" in done.stdout
    assert sum(body.get("policy") == "kernelbench" for body in fake.bodies) == 5


def test_lines_for_programs(serve: Any, corpus_directory: Path) -> None:
    url, _ = serve(truthful)
    done = run(url, "--corpus", str(corpus_directory), "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    cheat = next(line for line in lines if line.get("row") == "relu/cheat")
    assert (cheat["kind"], cheat["class"], cheat["expected"], cheat["right"]) == ("cheat", "hack", "policy|hack", True)
    assert {"skipped": "relu/late", "kind": "cheat", "why": "needs a GPU"} in lines
    assert sum("probe" in line for line in lines) == 1
    assert lines[-1]["ok"] is True


def test_a_part_of_the_corpus(serve: Any, corpus_directory: Path) -> None:
    url, _ = serve(truthful)
    done = run(url, "--corpus", str(corpus_directory), "--only", "*/wrong")
    assert done.returncode == 0
    assert last_line(done)["ran"] == 1
    done = run(url, "--corpus", str(corpus_directory), "--only", "*/wrong", "--only", "relu/o*")
    assert last_line(done)["ran"] == 2
    done = run(url, "--corpus", str(corpus_directory), "--only", "nothing")
    assert done.returncode == 2
    assert "--only nothing: no candidate is called so" in done.stderr


def test_a_refused_task_is_a_failure(serve: Any, corpus_directory: Path) -> None:
    url, fake = serve(truthful)
    fake.refused.add("relu")
    done = run(url, "--corpus", str(corpus_directory))
    assert done.returncode == 1
    assert "SURPRISE relu/cheat: its task was refused" in done.stdout
    assert last_line(done)["unjudged"] == 5


def test_errors_are_told(serve: Any, corpus_directory: Path, tmp_path: Path) -> None:
    done = run("http://127.0.0.1:9", "--corpus", str(corpus_directory))
    assert done.returncode == 7
    assert "cannot talk to" in done.stderr

    url, _ = serve(truthful)
    done = run(url, "--corpus", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert "nowhere/tasks: No such file or directory" in done.stderr

    (corpus_directory / "candidates/relu/cheat.py").write_text("# kind: cheat\n# colour: red\n")
    done = run(url, "--corpus", str(corpus_directory))
    assert done.returncode == 2
    assert 'candidates/relu/cheat.py: unknown header key "colour"' in done.stderr

    (corpus_directory / "candidates/relu/cheat.py").unlink()
    (corpus_directory / "candidates/relu/honest.py").unlink()
    done = run(url, "--corpus", str(corpus_directory))
    assert done.returncode == 2
    assert "no honest candidate for the task relu" in done.stderr


def test_a_service_that_breaks_off_is_not_asked_again(serve: Any, corpus_directory: Path) -> None:
    """A candidate may have killed it."""

    def dies(body: Json) -> Json:
        raise ConnectionAbortedError

    url, fake = serve(dies)
    done = run(url, "--corpus", str(corpus_directory), limit_s=60.0)
    assert (done.returncode, len(fake.bodies)) == (7, 1)
    assert "cannot talk to" in done.stderr


def test_an_interrupt_ends_it_at_once(serve: Any, corpus_directory: Path) -> None:
    url, fake = serve(lambda body: verdict("ok") | {"state": "running"})
    command = [str(VERIFIER), "selftest", "--url", url, "--corpus", str(corpus_directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 30
        while not fake.bodies and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (130, b"SKIP relu/late: needs a GPU\n", b"")


# --- the real daemon ---


def test_quick(daemon: service.Daemon, gpu: bool) -> None:
    done = run(daemon.client.url, "--quick", limit_s=QUICK_LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()[:-1]}
    assert outcomes.pop("curriculum") in ("PASS", "SKIP")
    expected = {"multi-input": "PASS", "funnel": "PASS", "timing": "PASS" if gpu else "SKIP"}
    assert outcomes == expected | {"sandbox": "PASS"}
    last = last_line(done)
    assert last["ok"] is True
    assert last["seconds"] < QUICK_LIMIT_S


def test_quick_is_well_again_and_where_a_user_has_names_like_its_own(start_daemon: service.StartDaemon) -> None:
    """A name is one reference's: users have a task "relu", and the sandbox's probe is another text each time."""
    client = start_daemon().client
    text = (service.ROOT / "tests" / "tasks" / "relu.py").read_text()
    client.add_task({"name": "relu", "reference": text + "\n# a user's\n"})
    for _ in range(2):
        done = run(client.url, "--quick", limit_s=QUICK_LIMIT_S)
        assert done.returncode == 0, done.stdout + done.stderr


def test_quick_fails_against_a_service_that_accepts_everything(serve: Any) -> None:
    """No kernel is judged, no stage is left out, nothing is denied: each check must say so."""
    url, _ = serve(lambda body: verdict("ok"))
    done = run(url, "--quick")
    assert done.returncode == 1
    outcomes = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()[:-1]}
    del outcomes["curriculum"]
    assert outcomes == {"multi-input": "FAIL", "funnel": "FAIL", "timing": "SKIP", "sandbox": "FAIL"}


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (0, "PASS curriculum  trainer selftest --quick ended with status 0"),
        (3, "FAIL curriculum  trainer selftest --quick ended with status 3"),
        (2, "SKIP curriculum  the trainer beside this program has no selftest"),
        (None, "SKIP curriculum  there is no trainer program beside this one"),
    ],
)
def test_quick_asks_the_trainer_beside_it(
    daemon: service.Daemon, tmp_path: Path, status: int | None, line: str
) -> None:
    """The programs elsewhere, with a trainer of the test's."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "verifier").write_bytes(VERIFIER.read_bytes())
    (programs / "verifier").chmod(0o755)
    for name in ("lib", "share"):
        (tmp_path / name).symlink_to(VERIFIER.parents[1] / name)
    trainer = programs / "trainer"
    if status is not None:
        trainer.write_text(f'#!/bin/sh\necho "$@ $VERIFIERD_URL" >"$0.args"\nexit {status}\n')
        trainer.chmod(trainer.stat().st_mode | stat.S_IXUSR)
    command = [str(programs / "verifier"), "selftest", "--quick"]
    environment = {**os.environ, "VERIFIERD_URL": daemon.client.url}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert line in done.stdout
    assert done.returncode == (1 if status == 3 else 0)
    if status is not None:
        assert trainer.with_name("trainer.args").read_text() == f"selftest --quick {daemon.client.url}\n"


def test_the_probe_finds_a_missing_sandbox() -> None:
    """Run without one, it must say what it could do, or its silence in the sandbox would mean nothing."""
    probe = VERIFIER.parents[1] / "share/verifierd/corpus/quick/sandbox.py"
    done = subprocess.run(
        [os.environ.get("PYTHON", "python3"), str(probe)], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode != 0
    said = done.stderr.splitlines()[-1]
    assert said.startswith("RuntimeError: the sandbox permits: ")
    assert {"reach_the_network", "gain_privileges", "see_other_processes"} <= set(
        said.partition(": the sandbox permits: ")[2].split(", ")
    )


def test_a_task_with_its_cheats(daemon: service.Daemon) -> None:
    """The whole corpus is test_corpus.py's."""
    done = run(daemon.client.url, "--only", "gelu/*", limit_s=600.0)
    assert done.returncode == 0, done.stdout + done.stderr
    last = last_line(done)
    assert last["kill_rate"] == 1.0
    assert (last["false_rejects"], last["contaminated"], last["unjudged"], last["surprises"]) == (0, 0, 0, 0)
    assert last["followed"] > 0
