"""Data out: GET /v1/export and verifier export, also of more than fits into memory."""

from __future__ import annotations

import contextlib
import csv
import http.client
import io
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import pytest
import service
from service import Client, Daemon, Json

VERIFIER = service.BINARY.with_name("verifier")
FORMULA = '=HYPERLINK("http://x","y")'
MANY = 6000
VERDICT_BYTES = 8000


def lines(answer: service.Answer) -> list[Json]:
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "application/jsonl"
    assert answer.body.isascii()
    return [json.loads(line) for line in answer.body.decode().splitlines()]


def table(client: Client, *arguments: str) -> list[dict[str, str]]:
    done = run(client.url, "--format=csv", *arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    return list(csv.DictReader(io.StringIO(done.stdout.decode(), newline="")))


@pytest.fixture(scope="module")
def filled() -> Iterator[tuple[Client, Daemon, list[Json]]]:
    """A daemon that judged a few, as far as the syntax, for two clients and a group."""
    relu = corpus.load_tasks()["relu"]
    with service.directory() as directory, contextlib.ExitStack() as stack:
        (directory / "conf").write_text("paused = false\n")
        daemon = stack.enter_context(Daemon(directory, {"config": directory / "conf"}))
        client = daemon.client
        task = client.add_task(relu.registration() | {"name": "@relu"})
        good = next(one.text for one in corpus.load_candidates() if one.label == "relu/honest")
        verdicts = []
        for i, (who, text) in enumerate([(FORMULA, "def ("), ("plain", f"# \x1b[31m\n{good}"), (FORMULA, good)]):
            labels = {"run": "r", "step": 7, "policy_version": "w1"} if who == "plain" else {}
            metadata = {"i": f"={i}\x7f"} | labels
            body = {"task": task, "candidate": text, "client": who, "until": "ast", "metadata": metadata}
            verdicts.append(client.judge(body))
        group = {"task": task, "candidates": [{"candidate": "x"}, {"candidate": "y ("}], "until": "ast"}
        made = client.wait(str(client.expect("POST", "/v1/groups", group)["id"]), kind="groups")
        verdicts += made["items"]
        yield client, daemon, sorted(verdicts, key=lambda one: str(one["id"]), reverse=True)


def test_verdicts_are_the_stored_ones(filled: tuple[Client, Daemon, list[Json]]) -> None:
    client, _, verdicts = filled
    assert lines(client.get("/v1/export")) == verdicts
    assert lines(client.get("/v1/export?what=verdicts&format=jsonl&class=syntax")) == [
        one for one in verdicts if one["class"] == "syntax"
    ]


def test_csv_has_a_row_for_each_and_no_formula(filled: tuple[Client, Daemon, list[Json]]) -> None:
    client, _, verdicts = filled
    for arguments in (["--what=verdicts"], ["--what=rewards"], ["--what=submissions", "--state=done"]):
        rows = table(client, *arguments)
        assert [row["id"] for row in rows] == [one["id"] for one in verdicts]
        assert [float(row["reward"]) for row in rows] == [one["reward"] for one in verdicts]
        assert {row["task_name"] for row in rows} == {"'@relu"}
        assert {row["client"] for row in rows} == {"'" + FORMULA, "plain", ""}
        for row in rows:
            assert None not in row and None not in row.values()
            for cell in row.values():
                assert not cell.startswith(("=", "+", "@", "\t", "\r")), row
                assert all(ord(letter) >= 0x20 and not 0x7F <= ord(letter) < 0xA0 for letter in cell), row


def test_rewards_have_their_components(filled: tuple[Client, Daemon, list[Json]]) -> None:
    client, _, verdicts = filled
    rows = lines(client.get("/v1/export?what=rewards"))
    assert [(row["reward"], row["components"]) for row in rows] == [(v["reward"], v["components"]) for v in verdicts]
    assert "stages" not in rows[0]


def test_submissions_with_their_source(filled: tuple[Client, Daemon, list[Json]]) -> None:
    client, _, verdicts = filled
    rows = lines(client.get("/v1/export?what=submissions&source=true&state=done"))
    assert [row["id"] for row in rows] == [one["id"] for one in verdicts]
    for row in rows:
        assert row["candidate"].encode() == client.get(f"/v1/submissions/{row['id']}/source").body
    assert rows[-1]["metadata"] == {"i": "=0\x7f"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("task=%40relu", 5),
        ("client=plain", 1),
        ("client=nobody", 0),
        ("run=r", 1),
        ("run=r&step=7&policy_version=w1", 1),
        ("run=r&step=8", 0),
        ("run=r&policy_version=w2", 0),
        ("since=2020-01-01", 5),
        ("since=2020-01-01&before=2021-01-01T00:00:00Z", 0),
        ("since=9999-01-01", 0),
        ("before=9999-01-01T10:11:12.345Z", 5),
        ("class=ok&client=plain", 1),
        ("what=submissions&state=done", 5),
        ("what=submissions&state=running", 0),
    ],
)
def test_filters(filled: tuple[Client, Daemon, list[Json]], query: str, expected: int) -> None:
    assert len(lines(filled[0].get(f"/v1/export?{query}"))) == expected


def test_since_and_before_part_the_rows(filled: tuple[Client, Daemon, list[Json]]) -> None:
    client, _, verdicts = filled
    middle = str(verdicts[2]["created"])
    later = lines(client.get(f"/v1/export?since={middle}"))
    earlier = lines(client.get(f"/v1/export?before={middle}"))
    assert later + earlier == verdicts
    assert all(row["created"] >= middle for row in later) and all(row["created"] < middle for row in earlier)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("format=xml", "format"),
        ("format=csv", "format"),
        ("what=tokens", "what"),
        ("source=yes", "source"),
        ("state=lost&what=submissions", "state"),
        ("state=queued", "state"),
        ("group=x", "group"),
        ("class=mismach", "class"),
        ("since=yesterday", "since"),
        ("before=2026-13-01", "before"),
        ("before=2026-01-01T00:00:00", "before"),
        ("limit=3", "limit"),
    ],
)
def test_bad_questions(filled: tuple[Client, Daemon, list[Json]], query: str, parameter: str) -> None:
    answer = filled[0].get(f"/v1/export?{query}")
    assert answer.status == 400
    assert answer.json()["errors"][0]["parameter"] == parameter


def pause(daemon: Daemon, paused: bool) -> None:
    """By the settings, read again; acknowledged by the daemon's own state."""
    (daemon.directory / "conf").write_text(f"paused = {str(paused).lower()}\n")
    os.kill(daemon.pid, signal.SIGHUP)
    service.wait_for(lambda: daemon.client.get("/readyz").status == (503 if paused else 200))


def test_unfinished_submissions_are_exported_too(filled: tuple[Client, Daemon, list[Json]]) -> None:
    client, daemon, verdicts = filled
    pause(daemon, True)
    try:
        body = {"task": verdicts[0]["task"], "candidate": "=1", "client": "waits", "metadata": {"k": 1}}
        submission = client.submit(body)
        (row,) = lines(client.get("/v1/export?what=submissions&source=true&state=queued"))
        assert (row["id"], row["state"], row["policy"], row["candidate"]) == (submission, "queued", "strict", "=1")
        assert (row["class"], row["reward"], row["metadata"]) == (None, None, {"k": 1})
        assert lines(client.get("/v1/export?client=waits")) == []
        (cells,) = table(client, "--what=submissions", "--client=waits")
        assert (cells["state"], cells["client"], cells["reward"]) == ("queued", "waits", "")
        client.expect("DELETE", f"/v1/submissions/{submission}")
        client.wait(submission)
        (cells,) = table(client, "--what=submissions", "--state=cancelled", "--client=waits")
        assert (cells["state"], cells["class"], cells["reward"]) == ("cancelled", "", "")
    finally:
        pause(daemon, False)


def run(url: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(VERIFIER), "--url", url, "export", *arguments],
        capture_output=True,
        timeout=120,
        check=False,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
    )


def test_the_command_writes_what_the_daemon_sends(filled: tuple[Client, Daemon, list[Json]], tmp_path: Path) -> None:
    client, _, verdicts = filled
    done = run(client.url)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == client.get("/v1/export").body
    there = tmp_path / "out.csv"
    done = run(client.url, "--what", "rewards", "--format=csv", "-o", str(there), "--task", "@relu", "--client=plain")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (row,) = csv.DictReader(io.StringIO(there.read_text(), newline=""))
    assert (row["client"], row["task_name"], row["class"]) == ("plain", "'@relu", "ok")
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    done = run(client.url, "--run=r", "--step=7", "--policy-version=w1")
    assert done.stdout == client.get("/v1/export?run=r").body and done.stdout.count(b"\n") == 1
    assert run(client.url, "--run=r", "--step=7", "--policy-version=w2").stdout == b""
    assert len(verdicts) == 5


def test_the_command_leaves_no_half_file(filled: tuple[Client, Daemon, list[Json]], tmp_path: Path) -> None:
    url = filled[0].url
    for wrong in ("--format=xml", "--what=tokens", "--state=lost"):
        assert run(url, wrong, "-o", str(tmp_path / "a")).returncode == (6 if "state" in wrong else 2)
    assert run(url, "--source", "--format=csv").returncode == 2
    assert run(url, "--task=nothing", "-o", str(tmp_path / "a")).returncode == 5
    assert run("http://127.0.0.1:1", "-o", str(tmp_path / "a")).returncode == 7
    assert run(url, "-o", "/dev/full/x").returncode == 2
    assert list(tmp_path.iterdir()) == []


# --- more than fits ---


def memory_kb(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise AssertionError(key)


@pytest.fixture(scope="module")
def large() -> Iterator[Daemon]:
    """A store with many large verdicts, as one that ran for long has them."""
    with service.directory() as directory:
        daemon = Daemon(directory, {"paused": True, "body_limit_ms": 6000})
        daemon.start(ready=False)
        daemon.stop()
        stored = sqlite3.connect(directory / "store.db")
        with stored:
            for i in range(MANY):
                one = f"0199f2c4-{i:04x}-7000-8000-000000000000"
                verdict = json.dumps(
                    {"id": one, "class": "ok", "state": "done", "reward": 0.5, "x": "y" * VERDICT_BYTES}
                )
                stored.execute(
                    "INSERT INTO submission (id, group_index, task_id, source_hash, state, priority, attempts,"
                    " created_ms, finished_ms, class, reward, request, verdict)"
                    " VALUES (?, 0, 'sha256:0', 'sha256:1', 2, 0, 1, 1, 2, 'ok', 0.5, '{}', ?)",
                    (one, verdict),
                )
        stored.close()
        daemon.start(ready=False)
        try:
            yield daemon
        finally:
            daemon.stop()


def test_everything_goes_out_in_little_memory(large: Daemon) -> None:
    before = memory_kb(large.pid, "VmHWM")
    rows = lines(large.client.get("/v1/export"))
    assert [row["id"] for row in rows] == sorted((row["id"] for row in rows), reverse=True)
    assert len(rows) == MANY and all(len(row["x"]) == VERDICT_BYTES for row in rows)
    grown = memory_kb(large.pid, "VmHWM") - before
    assert grown < 8000, f"an export of {MANY * VERDICT_BYTES / 1e6:.0f} MB took {grown} kB"
    assert len(table(large.client)) == MANY


def start_slow(daemon: Daemon) -> http.client.HTTPConnection:
    """An export of which only the header is taken."""
    host, _, port = daemon.client.url.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("GET", "/v1/export")
    return connection


def test_who_does_not_take_it_is_let_go_and_others_are_not_held_up(large: Daemon) -> None:
    slow = [start_slow(large) for _ in range(8)]
    answers: list[Any] = [connection.getresponse() for connection in slow]
    assert [answer.status for answer in answers] == [200] * 8
    full = large.client.get("/v1/export")
    assert (full.status, full.json()["code"]) == (503, "unavailable") and full.headers["Retry-After"]
    assert large.client.get("/healthz").status == 200
    # Their time is over after body_limit_ms; then there is room again.
    service.wait_for(lambda: large.client.get("/v1/status").json()["http"]["exports"] <= 0)
    assert large.client.get("/v1/export?since=9999-01-01").status == 200
    for answer in answers:
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()
    for connection in slow:
        connection.close()


def test_an_export_that_breaks_off_is_an_error_and_leaves_nothing(large: Daemon, tmp_path: Path) -> None:
    stored = sqlite3.connect(large.directory / "store.db")
    victim = f"0199f2c4-{MANY // 2:04x}-7000-8000-000000000000"
    (kept,) = stored.execute("SELECT verdict FROM submission WHERE id = ?", (victim,)).fetchone()
    with stored:
        stored.execute("UPDATE submission SET verdict = 'torn{' WHERE id = ?", (victim,))
    try:
        done = run(large.client.url, "-o", str(tmp_path / "out"))
        assert done.returncode == 7 and b"cannot talk" in done.stderr
        assert list(tmp_path.iterdir()) == []
        assert victim in large.log.read_text()
    finally:
        with stored:
            stored.execute("UPDATE submission SET verdict = ? WHERE id = ?", (kept, victim))
        stored.close()
