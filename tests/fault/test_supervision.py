"""What becomes of a submission whose processes do everything that processes can do."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import service
from scripted import HASTY, SCRIPTED, TASK

LIMIT_S = 60.0


@dataclass(frozen=True)
class Case:
    """A script, and the verdict that it deserves."""

    script: str
    class_: str
    stage: str
    text: str = ""
    more: tuple[tuple[str, object], ...] = ()
    policy: str = "strict"


CASES = [
    Case("timing=1.3", "ok", "timing", "times as fast"),
    Case("ast=fail:syntax", "syntax", "ast", "line 1"),
    Case("ast=fail:policy", "policy", "ast"),
    Case("ast=signal:SEGV", "crash", "ast", "SIGSEGV"),
    Case("compile=fail:compile", "compile", "compile", "line 2"),
    Case("compile=fail:import", "import", "compile"),
    Case("compile=fail:nonsense", "import", "compile"),
    Case("compile=exit:0", "crash", "compile", "exited with status 0 before answering"),
    Case("compile=exit:7", "crash", "compile", "status 7"),
    Case("compile=signal:KILL", "crash", "compile", "SIGKILL"),
    Case("compile=litter,pass timing=2", "ok", "timing"),
    Case("compile=litter,pass timing=3", "ok", "timing", policy="kernelbench"),
    Case("compile=bury,pass", "compile", "compile", "too many or too large", policy="kernelbench"),
    Case("open=fail:import", "import", "tiny"),
    Case("open=crash", "crash", "tiny", "SIGSEGV"),
    Case("tiny=fail:shape", "shape", "tiny"),
    Case("tiny=exit:0", "crash", "tiny", "exited with status 0 before answering"),
    Case("tiny=reopen timing=1.5", "ok", "timing", more=(("generality", "fails where nobody promised"),)),
    Case("tiny=generality", "ok", "timing", more=(("generality", "fails where nobody promised"),)),
    Case("full=fail:mismatch", "mismatch", "full", "5 of 64 values differ"),
    Case("full=crash", "crash", "full", "SIGSEGV"),
    Case("full=sleep:0.1,fail:oom", "oom", "full"),
    Case("timing=fail:mismatch", "mismatch", "timing"),
    Case("full=fail:timeout", "timeout", "full", "full: as the script says; the process was stopped."),
]

ENDLESS = [
    Case("ast=hang", "timeout", "ast", "2 s"),
    Case("compile=hang", "timeout", "compile", "2 s"),
    Case("build=hang", "timeout", "compile", "within 2 s and was stopped; 2 of 4 kernels were compiled."),
    Case("open=hang", "timeout", "tiny"),
    Case("tiny=hang", "timeout", "tiny", "1 s"),
    Case("full=hang,fail:policy:foreign_operator", "policy", "full", more=(("reward", 0.0),)),
    Case("timing=hang", "timeout", "timing", "did not finish within 2 s"),
]


@pytest.fixture(scope="module")
def shared() -> Iterator[service.Daemon]:
    with service.directory() as directory, service.Daemon(directory, SCRIPTED) as running:
        running.client.add_task(TASK)
        yield running


@pytest.fixture(scope="module")
def hasty() -> Iterator[service.Daemon]:
    with service.directory() as directory, service.Daemon(directory, SCRIPTED | HASTY) as running:
        running.client.add_task(TASK)
        yield running


def body(script: str, **more: object) -> dict[str, object]:
    return {"task": "scripted", "candidate": f"# script: {script}\n# {time.monotonic_ns()}\n", **more}


def honest(client: service.Client) -> service.Json:
    verdict = client.judge(body("timing=1.2"), LIMIT_S)
    assert (verdict["class"], verdict["attempts"]) == ("ok", 1), verdict
    return verdict


def in_a_table(verdict: service.Json) -> service.Json:
    """What a page with view=brief has of it."""
    keys = ("id", "group", "task", "task_name", "client", "state", "stage", "passed_stage", "failed_at", "class")
    more = ("reward", "flags", "cache", "attempts", "created", "finished")
    shown = {key: verdict[key] for key in keys + more}
    shown["stages"] = [{key: stage[key] for key in ("stage", "outcome")} for stage in verdict["stages"]]
    labels = {key: (verdict["metadata"] or {}).get(key) for key in ("run", "step", "policy_version")}
    return {**shown, **labels, "speedup": verdict["components"]["speedup"]}


def test_a_table_says_what_the_verdicts_say(shared: service.Daemon) -> None:
    """Of a text that was stored beside each verdict, and the same for one that an earlier version stored."""
    scripts = ("timing=1.2", "ast=fail:syntax", "full=fail:mismatch", "timing=1.7")
    ids = [shared.client.judge(body(script), LIMIT_S)["id"] for script in scripts][::-1]
    brief, whole = "/v1/submissions?limit=2&view=brief", "/v1/submissions?limit=4"
    expected = [in_a_table(verdict) for verdict in shared.client.expect("GET", whole)["items"]]
    assert [one["id"] for one in expected] == ids
    for was_stored in (True, False):
        first = shared.client.expect("GET", brief)
        second = shared.client.expect("GET", f"{brief}&cursor={first['next']}")
        assert first["items"] + second["items"] == expected, was_stored
        assert first["next"] == ids[1]
        with closing(sqlite3.connect(shared.directory / "store.db")) as db, db:
            db.execute("UPDATE submission SET brief = NULL")


def check(daemon: service.Daemon, case: Case) -> None:
    verdict = daemon.client.judge({**body(case.script), "policy": case.policy}, LIMIT_S)
    assert (verdict["class"], verdict["stage"]) == (case.class_, case.stage), verdict
    assert case.text in verdict["feedback"]["text"], verdict["feedback"]
    for key, value in case.more:
        assert verdict[key] == value
    assert verdict["attempts"] == 1
    assert (verdict["failed_at"] is None) == (case.class_ == "ok")
    honest(daemon.client)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.script)
def test_verdict(shared: service.Daemon, case: Case) -> None:
    """Each end has its own class and stage, its words, and does nothing to the next submission."""
    check(shared, case)


@pytest.mark.parametrize("case", ENDLESS, ids=lambda case: case.script)
def test_verdict_at_a_limit(hasty: service.Daemon, case: Case) -> None:
    check(hasty, case)


def test_worth_of_a_measured_one(shared: service.Daemon) -> None:
    """The figures are made of the raw samples."""
    verdict = shared.client.judge(body("timing=1.3"), LIMIT_S)
    assert verdict["timing"]["outcome"] == "measured"
    assert verdict["components"]["speedup"] == pytest.approx(1.3, rel=1e-3)
    assert verdict["reward"] == pytest.approx(0.7 + 0.3 * 1.3 / 2, rel=1e-3)
    assert verdict["timing"]["candidate_ms"] == pytest.approx(1.0, rel=1e-3)
    assert verdict["components"]["peak_mem_ratio"] == 2.0


def test_failing_reference_is_told_with_its_words(shared: service.Daemon) -> None:
    """Nobody but the task is to blame: no reward, and what the reference said."""
    verdict = shared.client.judge(body("full=reference"), LIMIT_S)
    assert (verdict["class"], verdict["stage"], verdict["reward"]) == ("infra", "full", None), verdict
    assert "as the script says" in verdict["feedback"]["text"], verdict["feedback"]
    honest(shared.client)


def test_flags_of_a_task_are_told(shared: service.Daemon) -> None:
    assert shared.client.get("/v1/tasks/scripted").json()["flags"] == ["random_reference"]


@pytest.mark.parametrize("script", ["compile=kill_zygote", "tiny=kill_referee", "open=kill_referee"])
def test_worker_taken_down_each_time(start_scripted: service.StartDaemon, script: str) -> None:
    """A submission that takes its worker down each time ends as crash, and the worker is there for the next."""
    daemon = start_scripted(max_attempts=2)
    daemon.client.add_task(TASK)
    verdict = daemon.client.judge(body(script), LIMIT_S)
    assert (verdict["class"], verdict["attempts"]) == ("crash", 2), verdict
    assert "took its worker down" in verdict["feedback"]["text"]
    assert verdict["reward"] is not None
    honest(daemon.client)


@pytest.mark.parametrize("script", ["compile=oom_zygote", "tiny=oom_referee", "full=oom_zygote"])
def test_who_is_on_a_worker_that_somebody_kills_is_not_to_blame(
    start_scripted: service.StartDaemon, script: str
) -> None:
    """Issue 21.1: as the kernel does for want of memory. Alone there each time, it ends as ours all the same."""
    daemon = start_scripted(max_attempts=3)
    daemon.client.add_task(TASK)
    verdict = daemon.client.judge(body(script), LIMIT_S)
    assert (verdict["class"], verdict["attempts"], verdict["reward"]) == ("infra", 3, None), verdict
    honest(daemon.client)


def test_who_dies_with_its_zygote_has_not_crashed(start_scripted: service.StartDaemon) -> None:
    """Issue 21.1: the referee takes for a crash of the candidate's what was the end of the zygote."""
    daemon = start_scripted(max_attempts=2)
    daemon.client.add_task(TASK)
    posted = daemon.client.submit(body("full=stop_zygote,crash"))
    for attempt in (1, 2):
        service.wait_for(lambda: daemon.log.read_text().count("full: fail crash") == attempt)  # noqa: B023
        workers = daemon.client.expect("GET", "/v1/status")["workers"]
        os.kill(next(int(one["pid"]) for one in workers if one["name"] == "run zygote cpu"), signal.SIGKILL)
    verdict = daemon.client.wait(posted, LIMIT_S)
    assert (verdict["class"], verdict["attempts"], verdict["reward"]) == ("infra", 2, None), verdict
    honest(daemon.client)


def test_worker_lost_while_nobodys_code_ran(start_scripted: service.StartDaemon) -> None:
    """What takes down the zygote of `ast` and `inspect` each time is no doing of the candidate's."""
    daemon = start_scripted(max_attempts=2)
    daemon.client.add_task(TASK)
    verdict = daemon.client.judge(body("ast=kill_zygote"), LIMIT_S)
    assert (verdict["class"], verdict["attempts"], verdict["reward"]) == ("infra", 2, None), verdict


def test_bystanders_of_a_lost_zygote(start_scripted: service.StartDaemon) -> None:
    """Those who were on the worker that somebody took down are judged again, and are not blamed."""
    daemon = start_scripted(max_attempts=2, cpu_jobs=4)
    daemon.client.add_task(TASK)
    ids = [daemon.client.submit(body("compile=sleep:0.5,pass timing=1.1")) for _ in range(3)]
    guilty = daemon.client.submit(body("compile=sleep:0.2,kill_zygote"))
    assert [daemon.client.wait(one, LIMIT_S)["class"] for one in ids] == ["ok"] * 3
    assert daemon.client.wait(guilty, LIMIT_S)["class"] == "crash"


def test_reference_that_does_not_run(shared: service.Daemon, hasty: service.Daemon) -> None:
    answer = shared.client.post("/v1/tasks", {"name": "broken", "reference": "# script: describe=fail\n"})
    assert answer.status == 422, answer.body
    assert b"Traceback: fail" in answer.body
    answer = shared.client.post("/v1/tasks", {"name": "crashing", "reference": "# script: describe=crash\n"})
    assert answer.status == 422, answer.body
    answer = hasty.client.post("/v1/tasks", {"name": "endless", "reference": "# script: describe=hang\n"})
    assert answer.status == 422, answer.body
    for daemon in (shared, hasty):
        honest(daemon.client)


def test_output_is_kept_up_to_the_limit(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(output_limit_bytes=65536)
    daemon.client.add_task(TASK)
    verdict = daemon.client.judge(body("compile=print:1000,pass full=print:3000000,pass"), LIMIT_S)
    assert verdict["class"] == "ok"
    log = daemon.client.get(f"/v1/submissions/{verdict['id']}/log").body
    assert log.startswith(b"x" * 999 + b"\n")
    assert 65536 <= len(log) < 65536 + 200
    assert b"output truncated: 2935464 bytes more" in log[-200:], log[-200:]


def test_nothing_is_left_in_scratch(start_scripted: service.StartDaemon) -> None:
    with service.directory() as scratch:
        daemon = start_scripted(scratch=scratch / "scratch", pool=1, stage_pool=0, references_kept=1)
        daemon.client.add_task(TASK)
        for script, class_ in (("compile=litter,pass", "ok"), ("compile=litter,crash", "crash")):
            assert daemon.client.judge({**body(script), "policy": "kernelbench"}, LIMIT_S)["class"] == class_

        def is_clean() -> bool:
            names = [path.name for path in (scratch / "scratch").iterdir()]
            return len(names) <= 2 and all(name.startswith("r") for name in names)

        service.wait_for(is_clean)


STATES = ["queued", "ast", "compile", "tiny", "full", "timing"]


@pytest.mark.parametrize("stage", STATES)
def test_cancel(start_scripted: service.StartDaemon, stage: str) -> None:
    """Cancelled in any state: no reward, no class, and the workers are free again."""
    daemon = start_scripted(paused=stage == "queued", ready=False)
    daemon.client.add_task(TASK)
    one = daemon.client.submit(body(f"{stage}=hang"))
    if stage != "queued":
        service.wait_for(lambda: daemon.client.get(f"/v1/submissions/{one}").json()["stage"] == stage)
    assert daemon.client.call("DELETE", f"/v1/submissions/{one}").status == 200
    verdict = daemon.client.wait(one, LIMIT_S)
    assert (verdict["state"], verdict["class"], verdict["reward"]) == ("cancelled", None, None)
    assert daemon.client.call("DELETE", f"/v1/submissions/{one}").status == 409
    if stage != "queued":
        honest(daemon.client)


def test_cancel_while_ready(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted()
    daemon.client.add_task(TASK)
    first = daemon.client.submit(body("tiny=hang"))
    # The device is taken before the second one is there: two that compile side by side may change places.
    service.wait_for(lambda: daemon.client.get(f"/v1/submissions/{first}").json()["stage"] == "tiny")
    second = daemon.client.submit(body("timing=1.2"))
    service.wait_for(lambda: daemon.client.get("/v1/status").json()["queues"]["ready"]["interactive"] == 1)
    for one in (second, first):
        assert daemon.client.call("DELETE", f"/v1/submissions/{one}").status == 200
        assert daemon.client.wait(one, LIMIT_S)["state"] == "cancelled"


def test_group(shared: service.Daemon) -> None:
    scripts = ["timing=1.1", "full=fail:mismatch", "timing=1.9", "ast=fail:syntax"]
    items = [{"candidate": f"# script: {script}\n", "metadata": {"at": at}} for at, script in enumerate(scripts)]
    group = shared.client.expect("POST", "/v1/groups", {"task": "scripted", "candidates": items})
    done = shared.client.wait(str(group["id"]), LIMIT_S, "groups")
    assert [item["class"] for item in done["items"]] == ["ok", "mismatch", "ok", "syntax"]
    assert done["ranking"][0] == 2 and done["ranking"][1] == 0
    assert len({item["seed"] for item in done["items"]}) == 1, "a group shares its secret inputs"
    assert [item["metadata"]["at"] for item in done["items"]] == [0, 1, 2, 3]


def test_cancel_group(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(paused=True, ready=False)
    daemon.client.add_task(TASK)
    items = [{"candidate": "# script: full=hang\n"}] * 5
    group = daemon.client.expect("POST", "/v1/groups", {"task": "scripted", "candidates": items})
    assert daemon.client.call("DELETE", f"/v1/groups/{group['id']}").status == 200
    assert daemon.client.wait(str(group["id"]), LIMIT_S, "groups")["state"] == "cancelled"
    assert daemon.client.call("DELETE", f"/v1/groups/{group['id']}").status == 409


def test_until_and_switches(shared: service.Daemon) -> None:
    """Every part of the policy has its switch, and the verdict says how it was set."""
    for stage in ("ast", "compile", "tiny", "full"):
        verdict = shared.client.judge(body("timing=1.4", until=stage), LIMIT_S)
        assert (verdict["class"], verdict["stage"], verdict["passed_stage"]) == ("ok", stage, stage)
        assert verdict["timing"]["outcome"] == "skipped"
    policy = {"name": "strict", "tiny_first": False, "variations": {"count": 2}, "timing": {"events": False}}
    verdict = shared.client.judge(body("tiny=fail:shape timing=1.4", policy=policy), LIMIT_S)
    assert verdict["class"] == "ok"
    assert [stage["outcome"] for stage in verdict["stages"]] == ["pass", "pass", "skip", "pass", "pass"]
    assert verdict["policy_on"]["tiny_first"] is False
    assert verdict["policy_on"]["variations"]["count"] == 2
    assert verdict["policy_on"]["timing"]["events"] is False
    policy = {"name": "hybrid", "staged": False, "skip_timing_on_failure": False}
    verdict = shared.client.judge(body("ast=fail:policy full=fail:mismatch timing=1.4", policy=policy), LIMIT_S)
    assert (verdict["class"], verdict["failed_at"], verdict["stage"]) == ("policy", "ast", "timing")
    assert [stage["outcome"] for stage in verdict["stages"]] == ["fail", "pass", "pass", "fail", "pass"]
    assert verdict["reward"] == 0
    verdict = shared.client.judge(body("full=fail:mismatch", policy={"staged": False}), LIMIT_S)
    assert (verdict["class"], verdict["stage"]) == ("mismatch", "full")
    verdict = shared.client.judge(body("full=fail:mismatch", policy={"skip_timing_on_failure": False}), LIMIT_S)
    assert (verdict["class"], verdict["stage"], verdict["components"]["timed"]) == ("mismatch", "timing", 0)


@pytest.mark.parametrize(("class_", "is_correct"), [("mismatch", 0), ("mutated_input", 0), ("launch", 1)])
def test_a_wrong_answer_while_timed_refutes_full(shared: service.Daemon, class_: str, is_correct: int) -> None:
    verdict = shared.client.judge(body(f"timing=fail:{class_}"), LIMIT_S)
    assert (verdict["class"], verdict["failed_at"]) == (class_, "timing")
    assert (verdict["passed_stage"], verdict["reward"]) == (("full", 0.7) if is_correct else ("tiny", 0.5))
    assert verdict["components"]["correct"] == is_correct
    again = {"submissions": [verdict["id"]], "reward": {"kind": "binary"}}
    assert shared.client.expect("POST", "/v1/rescore", again)["items"][0]["reward"] == is_correct


def test_drain_puts_back_and_restart_judges(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(drain_ms=200)
    daemon.client.add_task(TASK)
    ids = [daemon.client.submit(body("compile=sleep:3,pass timing=1.1")) for _ in range(6)]
    service.wait_for(lambda: daemon.client.get("/v1/status").json()["queues"]["cpu_running"] > 0)
    assert daemon.stop() == 0
    daemon.start()
    verdicts = [daemon.client.wait(one, LIMIT_S) for one in ids]
    assert {verdict["class"] for verdict in verdicts} == {"ok"}
    assert {verdict["attempts"] for verdict in verdicts} == {1}, "an attempt that the drain cut short counted"


def test_a_stop_leaves_no_scratch_directory(
    start_scripted: service.StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service.directory() as place:
        monkeypatch.setenv("TMPDIR", str(place))
        daemon = start_scripted()
        daemon.client.add_task(TASK)
        assert [path.name.startswith("verifierd-") for path in place.iterdir()] == [True]
        honest(daemon.client)
        assert daemon.stop() == 0
        assert not list(place.iterdir())


def test_compiled_while_draining_is_queued_in_the_store(start_scripted: service.StartDaemon) -> None:
    """Nobody gives it a device any more: the stop must not look like a daemon that died under it."""
    daemon = start_scripted(drain_ms=60000)
    daemon.client.add_task(TASK)
    daemon.client.submit(body("compile=sleep:4,pass timing=1.1"))
    service.wait_for(lambda: daemon.client.get("/v1/status").json()["queues"]["cpu_running"] > 0)
    assert daemon.stop() == 0
    with closing(sqlite3.connect(daemon.directory / "store.db")) as store:
        assert store.execute("SELECT state, attempts FROM submission").fetchall() == [(0, 0)]


def test_nothing_is_shown_before_it_is_durable(start_scripted: service.StartDaemon) -> None:
    """While somebody holds the store, a verdict that is out and not stored is "running" wherever one looks."""
    daemon = start_scripted()
    client = daemon.client
    client.add_task(TASK)
    go = daemon.directory / "go"
    posted = client.submit(body(f"compile=until:{go},fail:compile"))
    service.wait_for(lambda: client.get(f"/v1/submissions/{posted}").json()["state"] == "running")
    with closing(sqlite3.connect(daemon.directory / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        go.touch()
        service.wait_for(lambda: client.get("/v1/status").json()["counts"]["finished"] == 1)
        shown = [client.get(f"/v1/submissions/{posted}").json(), client.get("/v1/submissions").json()["items"][0]]
        other.execute("ROLLBACK")
    for one in shown:
        told = {key: one[key] for key in ("state", "class", "reward", "failed_at", "error", "finished", "stages")}
        assert told == dict.fromkeys(told) | {"state": "running", "stages": []}
    assert client.wait(posted)["class"] == "compile"


def test_the_log_ties_a_submission_to_its_request_and_trace(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted()
    daemon.client.add_task(TASK)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    sent = [{"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}, {"traceparent": f"00-{trace}"}, {}]
    answers = [daemon.client.call("POST", "/v1/submissions", body("timing=1.1"), headers) for headers in sent]
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if line.startswith("{")]
    for answer, wanted in zip(answers, (trace, None, None), strict=True):
        (line,) = [one for one in lines if one.get("request") == answer.headers["X-Request-Id"]]
        assert (line["subject"], line.get("trace")) == (answer.json()["id"], wanted)


def test_quarantine(start_scripted: service.StartDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device whose canary fails with fresh workers too serves nobody, and the status says so."""
    flag = tmp_path / "flag"
    monkeypatch.setenv("SCRIPT_CANARY_FAILS", str(flag))
    daemon = start_scripted()
    daemon.client.add_task(TASK)
    honest(daemon.client)
    flag.touch()
    assert daemon.client.judge(body("tiny=crash"), LIMIT_S)["class"] == "crash"

    def is_quarantined() -> bool:
        workers = daemon.client.get("/v1/status").json()["workers"]
        return any(worker.get("lane") == "quarantined" for worker in workers)

    service.wait_for(is_quarantined)
    assert daemon.client.get("/readyz").status == 503


def test_a_cheat_that_fails_honestly_first_is_a_cheat(shared: service.Daemon) -> None:
    policy = {"name": "strict", "staged": False}
    found = shared.client.judge(body("tiny=fail:mismatch full=fail:hack:idle_kernels", policy=policy), LIMIT_S)
    assert (found["class"], found["rule"], found["failed_at"], found["reward"]) == ("hack", "idle_kernels", "full", 0)
    found = shared.client.judge(body("tiny=fail:mismatch full=fail:shape", policy=policy), LIMIT_S)
    assert (found["class"], found["rule"], found["failed_at"]) == ("mismatch", None, "tiny")


def test_a_gpu_is_shown_as_it_was_when_something_was_last_timed(
    start_scripted: service.StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = {"sm_mhz": [1000, 1100], "temp_c": [30, 31], "throttle": 0}
    late = {
        "sm_mhz": [1965, 1980],
        "mem_mhz": [None, None],
        "temp_c": [41, 44],
        "power_w": [310, 342.5],
        "throttle": 0x40,
    }
    monkeypatch.setenv("SCRIPT_BLOCKS", json.dumps([early, late]))
    client = start_scripted().client
    client.add_task(TASK)
    (gpu,) = client.expect("GET", "/v1/status")["gpus"]
    assert (gpu["name"], gpu["seen"]) == ("scripted", None)
    client.judge({"task": "scripted", "candidate": "# script: timing=1.2\n"}, 60)
    (gpu,) = client.expect("GET", "/v1/status")["gpus"]
    seen = gpu["seen"]
    assert seen.pop("at")
    assert seen == {"sm_mhz": 1980, "mem_mhz": None, "temp_c": 44, "power_w": 342.5, "throttled": True}


def test_a_stored_request_that_cannot_be_read_is_ours(start_scripted: service.StartDaemon) -> None:
    """As after the return to an earlier version, which does not know a policy: masked, and as whole as any verdict."""
    daemon = start_scripted(paused=True, ready=False)
    daemon.client.add_task(TASK)
    posted = daemon.client.submit(body("timing=1.1"))
    assert daemon.stop() == 0
    with closing(sqlite3.connect(daemon.directory / "store.db")) as store, store:
        changed = "UPDATE submission SET request = replace(request, '\"strict\"', '\"stricter\"')"
        assert store.execute(changed).rowcount == 1
    daemon.options["paused"] = False
    daemon.start()
    verdict = daemon.client.wait(posted)
    assert (verdict["class"], verdict["reward"], verdict["failed_at"]) == ("infra", None, "ast")
    assert "cannot be read" in verdict["feedback"]["text"]
    whole = daemon.client.judge(body("ast=fail:syntax"), LIMIT_S)
    assert verdict.keys() == whole.keys()
    assert (verdict["reward_spec"], verdict["flags"]) == (whole["reward_spec"], [])


@pytest.mark.parametrize(
    ("kind", "worker"), [("static", "static zygote"), ("compile", "compile zygote"), ("run", "run zygote cpu")]
)
def test_a_zygote_that_lost_a_required_layer_is_out_of_service(
    start_scripted: service.StartDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, worker: str
) -> None:
    """Issue 21.3: the daemon lives, judges nothing there, says so, and goes on once the layer is back."""
    unconfined = tmp_path / "unconfined"
    monkeypatch.setenv("SCRIPT_UNCONFINED", str(unconfined))
    daemon = start_scripted(sandbox_require="seccomp")
    daemon.client.add_task(TASK)
    honest(daemon.client)

    def status() -> service.Json:
        found: service.Json = next(
            one for one in daemon.client.expect("GET", "/v1/status")["workers"] if one["name"] == worker
        )
        return found

    unconfined.write_text(kind)
    os.kill(status()["pid"], signal.SIGKILL)
    why = f"the {worker} lacks a layer of the sandbox that is required: the log says which"
    service.wait_for(lambda: why in daemon.client.get("/readyz").body.decode())
    service.wait_for(lambda: 'the layer "seccomp" is required' in str(status().get("why")))
    posted = daemon.client.submit(body("timing=1.2"))
    service.wait_for(lambda: status()["starts"] >= 4)
    assert daemon.client.expect("GET", f"/v1/submissions/{posted}")["state"] != "done"
    unconfined.unlink()
    assert daemon.client.wait(posted, LIMIT_S)["class"] == "ok"
    assert f'"subject":"{worker}","msg":"out of service: the layer' in daemon.log.read_text()


def test_a_plan_that_nobody_asked_for_is_not_taken(start_scripted: service.StartDaemon) -> None:
    """What a compile child sends beside its result is the candidate's: it must not choose how it is judged."""
    client = start_scripted().client
    client.add_task(TASK)
    verdict = client.judge({**body("compile=pass:plan"), "policy": "kernelbench"}, LIMIT_S)
    assert (verdict["class"], verdict["plan"]) == ("ok", None)


def test_who_is_never_traced_is_asked_to_be_once(start_scripted: service.StartDaemon) -> None:
    client = start_scripted().client
    client.add_task(TASK)
    verdict = client.judge(body("compile=untraced"), LIMIT_S)
    assert (verdict["failed_at"], verdict["plan"]["traced"]) == ("compile", False)
