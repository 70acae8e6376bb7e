"""trainer when what it talks to is slow, full, broken, away or gone: a named error or a counted skip."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import service
from answering import Reply, document
from endpoint import (
    LIMIT_S,
    TESTS,
    TRAINER,
    Endpoint,
    FakeDaemon,
    Json,
    command,
    fake_daemon,
    lines,
    run,
    serving,
)
from test_prepare import BROKEN, COLUMNS

OUT = Path("outputs/bestofn_run")


@pytest.fixture
def judge() -> Iterator[FakeDaemon]:
    with fake_daemon() as script:
        yield script


@pytest.fixture
def tasks_file(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    rows = [
        {"name": name, "pytorch_code": (TESTS / "tasks" / f"{name}.py").read_text(), "level": 2}
        for name in ("relu", "softmax")
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def bestofn(tasks_file: Path, *more: str) -> tuple[str, ...]:
    return ("bestofn", f"--tasks={tasks_file}", "--samples=4", "--concurrency=1", *more)


def report(tmp_path: Path) -> Json:
    loaded = json.loads((tmp_path / OUT / "report.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


# --- the endpoint ---


def test_a_slow_endpoint_is_asked_again_and_then_named(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    endpoint.delay_s = 3
    done = run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--timeout=1", "--attempts=2", "--max-tasks=1"))
    assert done.returncode == 1 and "1 of 1 tasks failed" in done.stderr, done.stderr  # nothing was answered
    assert "relu: failed" in done.stderr or "softmax: failed" in done.stderr
    assert report(tmp_path)["tasks_failed"] == 1 and len(endpoint.asked) == 2
    endpoint.delay_s = 0
    again = run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--max-tasks=1"))
    assert again.returncode == 0 and report(tmp_path)["tasks_failed"] == 0


def test_fewer_choices_than_asked_are_made_up_for(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    endpoint.most = 2
    assert run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--max-tasks=1")).returncode == 0
    assert [body["n"] for body in endpoint.asked] == [4, 1, 1]
    assert report(tmp_path)["answers"] == 4


def test_reasoning_is_kept_by_whichever_name_it_has(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    named: list[Json] = [
        {"reasoning_content": "A", "reasoning": None},
        {"reasoning_content": None, "reasoning": "B"},
        {"reasoning_content": None},
        {"reasoning": "D"},
    ]
    choices = [{"message": {"content": f"{i}"} | name} for i, name in enumerate(named)]
    endpoint.faults = [lambda body: document(200, {"choices": choices})]
    assert run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--max-tasks=1")).returncode == 0
    rows = lines(tmp_path / OUT / "candidates.jsonl")
    assert [row.get("reasoning") for row in rows] == ["A", "B", None, "D"]


def test_reasoning_makes_no_group_too_long(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    texts = [f"<think>{'x' * 900_000}</think>answer {i}" for i in range(10)]
    said = document(200, {"choices": [{"message": {"content": text}} for text in texts]})
    endpoint.faults = [lambda body: said, lambda body: said]
    assert run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--max-tasks=1", "--samples=10")).returncode == 0
    (posted,) = [body for method, path, body in judge.asked if path == "/v1/groups"]
    assert [one["completion"] for one in posted["candidates"]] == [f"answer {i}" for i in range(10)]
    assert [row["text"] for row in lines(tmp_path / OUT / "candidates.jsonl")] == texts


def test_what_was_answered_before_a_failure_is_not_asked_for_again(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    """One by one: where n is not heeded, and in a later turn."""
    endpoint.most = 1
    for before_the_failure, status in ((2, 1), (3, 1), (9, 0)):
        endpoint.faults = [*([lambda body: None] * before_the_failure), lambda body: (401, {}, b"{}")]
        done = run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--max-tasks=1", "--turns=2"))
        assert done.returncode == status, done.stderr
    seeds = [body["seed"] for body in endpoint.asked]
    assert len(seeds) == 8 + 2 and len(set(seeds)) == 8 and report(tmp_path)["answers"] == 8
    assert [row["seed"] for row in lines(tmp_path / OUT / "candidates.jsonl")] == sorted(set(seeds))


@pytest.mark.parametrize(("kept", "cut"), [("x" * (1 << 20), "yy"), ("x" * ((1 << 20) - 1), "éyy")])
def test_a_megabyte_of_text_is_cut_between_characters_and_told(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path, kept: str, cut: str
) -> None:
    long = kept + cut
    said = json.dumps({"choices": [{"message": {"content": long}, "finish_reason": "length"}] * 4}).encode()
    endpoint.faults = [lambda body: (200, {}, said)]
    assert run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--max-tasks=1")).returncode == 0
    rows = lines(tmp_path / OUT / "candidates.jsonl")
    assert [(row["text"] == kept, row["cut_bytes"]) for row in rows] == [(True, len(cut.encode()))] * 4
    posted = [body for method, path, body in judge.asked if path == "/v1/groups"]
    assert len(posted[0]["candidates"]) == 1  # the same text four times is judged once
    assert posted[0]["metadata"] == {"run": "bestofn_run", "policy_version": "scripted"}


def test_a_round_may_be_a_step_of_the_run_that_its_directory_is(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    assert run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--step=3", "--max-tasks=1")).returncode == 0
    (posted,) = [body for method, path, body in judge.asked if path == "/v1/groups"]
    assert posted["metadata"] == {"run": tmp_path.name, "step": 3, "policy_version": "scripted"}


def test_log_probabilities_and_token_ids_are_kept_where_they_are_asked_for(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    assert run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--logprobs")).returncode == 0
    assert all(body["logprobs"] is True and body["return_token_ids"] is True for body in endpoint.asked)
    rows = lines(tmp_path / OUT / "candidates.jsonl")
    assert all(row["token_ids"] == [1, 2] and row["logprobs"] == [] for row in rows)
    other = run(judge, endpoint, tmp_path, *bestofn(tasks_file))
    assert other.returncode == 3 and '"sampling" differs' in other.stderr
    warmer = run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--logprobs", "--temperature=1"))
    assert warmer.returncode == 3 and '"sampling" differs in temperature' in warmer.stderr


def test_a_model_that_has_moved_goes_on_with_its_run(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    endpoint.faults = [lambda body: None, lambda body: (404, {}, b"{}")]
    first = run(judge, endpoint, tmp_path, *bestofn(tasks_file))
    assert first.returncode == 0 and report(tmp_path)["tasks_failed"] == 1
    with serving() as elsewhere:
        assert run(judge, elsewhere, tmp_path, *bestofn(tasks_file)).returncode == 0
        assert report(tmp_path)["tasks_failed"] == 0 and len(elsewhere.asked) == 1
        moved = [record for record in lines(tmp_path / OUT / "journal.jsonl") if record["event"] == "moved"]
        assert [record["endpoint"] for record in moved] == [elsewhere.url]


def test_what_decides_is_sent_unless_the_server_knows_none_of_it(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    assert run(judge, endpoint, tmp_path, *bestofn(tasks_file)).returncode == 0
    assert {(body["top_k"], body["min_p"], body["repetition_penalty"]) for body in endpoint.asked} == {(-1, 0, 1)}
    asked = len(endpoint.asked)
    assert run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--plain", "--name=plain")).returncode == 0
    known = {"model", "messages", "n", "temperature", "top_p", "max_tokens", "seed", "stream", "path"}
    assert all(set(body) == known for body in endpoint.asked[asked:])


@pytest.mark.parametrize("name", ["bestofn", "evaluate"])
def test_a_run_of_which_nothing_came_is_no_success(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path, name: str
) -> None:
    said = json.dumps({"error": {"message": "there is no model scripted"}}).encode()
    endpoint.faults = [lambda body: (404, {}, said)] * 2
    curriculum = ["--curriculum=frontier"] if name == "bestofn" else ["--level=0"]
    done = run(judge, endpoint, tmp_path, name, f"--tasks={tasks_file}", "--name=run", *curriculum)
    assert done.returncode == 1, done.stderr
    assert "2 of 2 tasks failed" in done.stderr and "there is no model scripted" in done.stderr.splitlines()[-1]
    # The same command again finds the model, and what it says now counts.
    again = run(judge, endpoint, tmp_path, name, f"--tasks={tasks_file}", "--name=run", *curriculum)
    assert again.returncode == 0 and "failed" not in again.stderr, again.stderr
    if name == "bestofn":
        state = json.loads((tmp_path / "checkpoints" / "curriculum.json").read_text())
        assert sorted(state["curriculum"]["tried"]) == ["relu", "softmax"]


# --- a teacher ---


def test_a_teacher_is_paid_once_for_an_answer(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    endpoint.reasoning = "First the maximum."
    endpoint.faults = [lambda body: None, lambda body: (429, {"Retry-After": "0"}, b"slow down")]
    endpoint.most = 1
    first = run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--as=sft", "--attempts=1", "--max-tasks=1"))
    assert first.returncode == 1 and report(tmp_path)["tasks_failed"] == 1
    assert len(endpoint.asked) == 2
    second = run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--as=sft", "--attempts=1", "--max-tasks=1"))
    assert second.returncode == 0, second.stderr
    assert len(endpoint.asked) == 5  # of four answers one was there
    rows = lines(tmp_path / OUT / "sft_train.jsonl")
    assert len(rows) == 3  # --keep
    schema = json.loads((TESTS.parent / "proto/sft_train.schema.json").read_text())
    for row in rows:
        assert set(row) == set(schema["required"])
        assert row["output"].startswith("<think>\nFirst the maximum.\n</think>\n\n")
        assert row["triton_code"].strip() and row["triton_code"].strip() in row["output"]
        assert (row["source"], row["verified"], row["difficulty"]) == ("scripted", "strict", 2)
    assert len({row["id"] for row in rows}) == 3
    # Another run of the same questions asks nothing; other parameters are other questions.
    same = run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--as=sft", "--max-tasks=1", "--name=two"))
    assert same.returncode == 0 and len(endpoint.asked) == 5
    (tmp_path / "data/cache/answers").joinpath("zz").mkdir()
    warmer = run(
        judge, endpoint, tmp_path, *bestofn(tasks_file, "--as=sft", "--max-tasks=1", "--name=three", "--temperature=1")
    )
    assert warmer.returncode == 0 and len(endpoint.asked) == 9
    # What a crash left half is asked again.
    for path in (tmp_path / "data/cache/answers").rglob("*"):
        if path.is_file():
            path.write_text('{"answers":[{"te')
    torn = run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--as=sft", "--max-tasks=1", "--name=four"))
    assert torn.returncode == 0 and len(endpoint.asked) == 13


@pytest.mark.parametrize(("more", "why"), [(["--as=dpo"], "--as"), (["--as=sft", "--allow-incorrect"], "verified")])
def test_a_teacher_writes_only_what_is_verified(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path, more: list[str], why: str
) -> None:
    done = run(judge, endpoint, tmp_path, *bestofn(tasks_file, *more))
    assert done.returncode == 2 and why in done.stderr


# --- the daemon ---


def busy(method: str, path: str, body: Json) -> Reply:
    return document(429, {"title": "The queue is full"}, {"Retry-After": "1"})


def draining(method: str, path: str, body: Json) -> Reply:
    return document(503, {"title": "Draining"}, {"Retry-After": "1"})


def test_a_full_or_draining_daemon_is_waited_for(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    judge.faults = [draining, lambda *asked: None, busy, lambda *asked: None, draining]
    done = run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--max-tasks=1"))
    assert done.returncode == 0, done.stderr
    assert "waiting: verifierd answered 503: Draining" in done.stderr  # and who looks on is told why nothing happens
    assert [path.partition("?")[0] for _, path, _ in judge.asked] == [
        "/v1/tasks", "/v1/tasks", "/v1/groups", "/v1/groups", "/v1/groups/group-0", "/v1/groups/group-0"
    ]  # fmt: skip


@pytest.mark.parametrize("status", [502, 504])
def test_a_proxy_whose_daemon_is_away_is_waited_for(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path, status: int
) -> None:
    judge.faults = [lambda *asked: None, lambda *asked: (status, {"Content-Type": "text/html"}, b"<html>")]
    done = run(judge, endpoint, tmp_path, *bestofn(tasks_file, "--max-tasks=1"))
    assert done.returncode == 0, done.stderr
    assert f"waiting: verifierd answered {status}: no reason given (verifierd; for 10 minutes at most)" in done.stderr
    paths = [path.partition("?")[0] for _, path, _ in judge.asked]
    assert paths == ["/v1/tasks", "/v1/groups", "/v1/groups", "/v1/groups/group-0"]


@pytest.mark.parametrize(
    ("reply", "status", "why"),
    [
        (document(401, {"title": "Which token?"}), 7, "401: Which token?"),
        (document(500, {"title": "The store is gone"}), 7, "500: The store is gone"),
        (document(422, {"detail": "no", "errors": [{"pointer": "/reference", "detail": "raises"}]}), 0, "raises"),
        ((200, {}, b"<html>"), 0, "is this verifierd?"),
        ((200, {}, b"{}"), 0, "has no id"),
    ],
)
def test_a_daemon_that_refuses_is_told(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path, reply: Reply, status: int, why: str
) -> None:
    judge.faults = [lambda *asked: reply]
    done = run(judge, endpoint, tmp_path, *bestofn(tasks_file))
    assert done.returncode == status and why in done.stderr, done.stderr
    if status == 0:  # one task's fault: the other is done, and this one when it is asked again
        assert report(tmp_path)["tasks_failed"] == 1
    asked = len(endpoint.asked)
    again = run(judge, endpoint, tmp_path, *bestofn(tasks_file))
    assert again.returncode == 0 and report(tmp_path)["tasks_failed"] == 0
    assert len(endpoint.asked) == (asked if status == 0 else 2)  # what was sampled is not sampled again


@pytest.mark.parametrize("how", [{"class": "infra"}, {"class": None, "state": "cancelled", "cancel_reason": "asked"}])
def test_what_was_not_judged_is_said_beside_the_rates_and_judged_again(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path, how: Json
) -> None:
    verdict = FakeDaemon.verdict(None) | {"reward": None, "components": {"correct": None}} | how
    reply = document(200, {"id": "group-0", "state": "done", "items": [verdict]})
    judge.faults = [lambda *asked: None, lambda *asked: None, lambda *asked: reply]
    done = run(judge, endpoint, tmp_path, "evaluate", f"--tasks={tasks_file}", "--concurrency=1", "--name=x")
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "outputs" / "eval_x.json").read_text())["metrics"]
    assert (metrics["infra"], metrics["correct_rate"], metrics["pass_at"]) == (1, 50, {"1": 100})
    assert "1 answers could not be judged (infra, or cancelled)" in done.stdout
    asked = len(endpoint.asked)
    run(judge, endpoint, tmp_path, "evaluate", f"--tasks={tasks_file}", "--concurrency=1", "--name=x")
    metrics = json.loads((tmp_path / "outputs" / "eval_x.json").read_text())["metrics"]
    assert (metrics["infra"], metrics["correct_rate"], len(endpoint.asked)) == (0, 100, asked)


def test_no_share_is_said_of_what_was_not_timed(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    """All are correct, and of none is it known how fast it is. Where none is correct, none is fast."""
    done = run(judge, endpoint, tmp_path, "evaluate", f"--tasks={tasks_file}", "--name=untimed")
    assert done.returncode == 0, done.stderr
    fast = json.loads((tmp_path / "outputs" / "eval_untimed.json").read_text())["metrics"]["fast_p"]
    assert fast == {"0": 100} | dict.fromkeys(("0.5", "0.8", "1", "1.5", "2"))
    assert re.search(r"^all +2 +100\.0% +100\.0% +100\.0% +100\.0% +- +100\.0%  -$", done.stdout, re.M), done.stdout
    wrong = FakeDaemon.verdict(None)
    wrong |= {"class": "mismatch", "components": wrong["components"] | {"correct": 0}}
    judge.verdict = lambda timing: wrong  # type: ignore[method-assign]
    done = run(judge, endpoint, tmp_path, "evaluate", f"--tasks={tasks_file}", "--name=wrong")
    assert re.search(r"^all +2 +100\.0% +100\.0% +100\.0% +0\.0% +0\.0% +0\.0%  -$", done.stdout, re.M), done.stdout
    command = [str(TRAINER), "compare", f"--workdir={tmp_path}", "untimed", "wrong"]
    side = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert re.search(r"^fast_0 +100\.0% +0\.0% *$", side.stdout, re.M), side.stdout + side.stderr
    assert re.search(r"^fast_1 +- +0\.0% *$", side.stdout, re.M), side.stdout


def quiet_port() -> int:
    """One that no connection is given while the daemon is away: below the range that the kernel draws from."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("a hundred ports are taken")


def test_a_daemon_that_is_killed_and_comes_back(
    start_daemon: service.StartDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    port = quiet_port()
    daemon = start_daemon(ready=False, listen=f"127.0.0.1:{port}")
    client = daemon.client
    comers: list[threading.Thread] = []

    def kill(body: Json) -> None:
        daemon.kill()
        comers.append(threading.Thread(target=lambda: daemon.start(ready=False)))
        comers[0].start()

    endpoint.faults = [kill]
    done = run(client, endpoint, tmp_path, *bestofn(tasks_file, "--until=ast", "--threshold=-1", "--allow-incorrect"))
    comers[0].join()
    assert done.returncode == 0, done.stderr
    assert (report(tmp_path)["tasks_failed"], report(tmp_path)["answers"]) == (0, 8)


# --- the tasks ---


def test_a_task_broken_in_each_of_its_columns(judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path) -> None:
    rows: list[str] = []
    for column in COLUMNS:
        for value in BROKEN:
            row = {"name": f"t{len(rows)}", "pytorch_code": f"class Model: n = {len(rows)}\n", "level": 2}
            row.pop(column, None)
            rows.append(json.dumps(row)[:-1] + f', "{column}": {value}}}')
    rows.append(json.dumps({"name": "the last", "pytorch_code": "class Model: pass\n", "level": 2}))
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(rows) + "\n")
    answer = json.dumps({"choices": [{"message": {"content": "```python\nx = 1\n```"}}]}).encode()
    endpoint.faults = [lambda body: (200, {}, answer)] * len(rows)
    done = run(judge, endpoint, tmp_path, "bestofn", f"--tasks={path}", "--samples=1", "--level=0", "--max-tasks=0")
    assert done.returncode == 0, done.stderr
    # Each row is judged, or skipped with its number and why; the run goes on.
    said = report(tmp_path)
    skipped = [line for line in done.stderr.splitlines() if line.endswith("; skipped")]
    assert (said["tasks"] + said["rows_skipped"], said["tasks_failed"]) == (len(rows), 0)
    assert said["rows_skipped"] == len(skipped) >= len(BROKEN) and all(f"{path}, row " in line for line in skipped)
    judged = [row["task"] for row in lines(tmp_path / OUT / "candidates.jsonl")]
    assert len(judged) == said["tasks"] and "the last" in judged


# --- the disk ---


def test_a_full_disk_ends_the_run_which_goes_on_when_there_is_room(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    def little() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    arguments = command(judge, endpoint, tmp_path, *bestofn(tasks_file))
    full = subprocess.run(
        arguments, capture_output=True, text=True, timeout=LIMIT_S, check=False, preexec_fn=little
    )  # fmt: skip
    assert full.returncode == 3 and "cannot write the journal" in full.stderr, full.stderr
    assert not (tmp_path / OUT / "kept.jsonl").exists()
    # Now there is room for the journal, and none for a file of the report.
    (tmp_path / OUT / "candidates.jsonl.part").symlink_to("/dev/full")
    again = run(judge, endpoint, tmp_path, *bestofn(tasks_file))
    assert again.returncode == 3 and "cannot write" in again.stderr and "candidates.jsonl" in again.stderr
    assert not (tmp_path / OUT / "candidates.jsonl").exists()
    asked = len(endpoint.asked)
    done = run(judge, endpoint, tmp_path, *bestofn(tasks_file))
    assert done.returncode == 0 and len(endpoint.asked) == asked
    assert len(lines(tmp_path / OUT / "candidates.jsonl")) == 8


# --- kill -9, in every phase ---


def start(judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(judge, endpoint, tmp_path, *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.mark.parametrize("phase", ["sampling", "registering", "posting", "waiting", "writing"])
def test_killed_in_every_phase(
    judge: FakeDaemon, endpoint: Endpoint, tmp_path: Path, tasks_file: Path, phase: str
) -> None:
    reached, gone = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        gone.wait(60)

    if phase == "sampling":
        endpoint.faults = [lambda body: hold()]
    elif phase == "writing":  # who opens a FIFO for writing waits for a reader
        (tmp_path / OUT).mkdir(parents=True)
        os.mkfifo(tmp_path / OUT / "candidates.jsonl.part")
    else:
        before = ["registering", "posting", "waiting"].index(phase)
        judge.faults = [*([lambda *asked: None] * before), lambda *asked: hold()]
    process = start(judge, endpoint, tmp_path, *bestofn(tasks_file))
    if phase == "writing":
        deadline = time.monotonic() + 60
        while not (tmp_path / OUT / "kept.jsonl.part").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
    else:
        assert reached.wait(60)
    end(process)
    gone.set()
    if phase == "writing":
        (tmp_path / OUT / "candidates.jsonl.part").unlink()
    asked, posted = len(endpoint.asked), len(judge.groups)
    done = run(judge, endpoint, tmp_path, *bestofn(tasks_file))
    assert done.returncode == 0, done.stderr
    assert len(lines(tmp_path / OUT / "candidates.jsonl")) == 8 and report(tmp_path)["tasks_failed"] == 0
    stored = [record["event"] for record in lines(tmp_path / OUT / "journal.jsonl")]
    assert [stored.count(event) for event in ("begin", "sampled", "posted", "judged")] == [1, 2, 2, 2]
    # What had been answered and stored is not asked for again.
    total = {"sampling": 3, "registering": 2, "posting": 2, "waiting": 2, "writing": 2}[phase]
    assert len(endpoint.asked) == total and asked <= total
    assert posted <= len(judge.groups)
