"""What clients may use, and that one of them cannot take it all."""

from __future__ import annotations

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import service
from scripted import TASK

LIMIT_S = 60.0


def body(script: str, client: str, **more: object) -> dict[str, object]:
    text = f"# script: {script}\n# {time.monotonic_ns()}\n"
    return {"task": "scripted", "candidate": text, "client": client, **more}


def refusal(answer: service.Answer) -> tuple[int, str]:
    assert 1 <= int(answer.headers["Retry-After"]) <= 86400
    return answer.status, str(answer.json()["code"])


def limited(start_scripted: service.StartDaemon, quotas: str, **more: object) -> service.Daemon:
    daemon = start_scripted(quotas=quotas, **more)
    daemon.client.add_task(TASK)
    return daemon


def test_rate(start_scripted: service.StartDaemon) -> None:
    """A client's own, and no other's; the operator, who is no client, has none."""
    daemon = limited(start_scripted, "slow:rate=2")
    for _ in range(2):
        daemon.client.submit(body("ast=fail:syntax", "slow"))
    answer = daemon.client.post("/v1/submissions", body("ast=fail:syntax", "slow"))
    assert refusal(answer) == (429, "quota_rate")
    assert "slow may submit 2 a minute" in answer.json()["detail"]
    assert daemon.client.post("/v1/submissions", body("ast=fail:syntax", "other")).status == 202
    assert daemon.client.post("/v1/submissions", body("ast=fail:syntax", "slow") | {"client": None}).status == 202


def test_a_task_that_there_is_not_costs_no_rate(start_scripted: service.StartDaemon) -> None:
    daemon = limited(start_scripted, "slow:rate=2")
    wrong = {"task": "skripted", "client": "slow", "candidates": [{"candidate": "# a\n"}, {"candidate": "# b\n"}]}
    assert daemon.client.post("/v1/groups", wrong).status == 404
    assert daemon.client.post("/v1/groups", wrong | {"task": "scripted"}).status == 202


def test_queued_holds_for_requests_at_once(start_scripted: service.StartDaemon) -> None:
    daemon = limited(start_scripted, "*:queued=3", cpu_jobs=1)
    first = daemon.client.submit(body("ast=hang", "other"))  # has the only slot: none of the others begins
    service.wait_for(lambda: daemon.client.expect("GET", f"/v1/submissions/{first}")["stage"] == "ast")
    with (
        closing(sqlite3.connect(daemon.directory / "store.db", isolation_level=None)) as other,
        ThreadPoolExecutor(16) as pool,
    ):
        other.execute("BEGIN IMMEDIATE")  # none of them is in the store before all have asked
        asked = [pool.submit(daemon.client.post, "/v1/submissions", body("ast=hang", "one")) for _ in range(16)]
        time.sleep(0.5)
        other.execute("ROLLBACK")
        answers = [one.result().status for one in asked]
    assert sorted(answers) == [202] * 3 + [429] * 13


def test_what_waits_is_not_claimed_before_it_begins(start_scripted: service.StartDaemon) -> None:
    """A claim that a kill ends counts as an attempt."""
    daemon = limited(start_scripted, "greedy:running=1", cpu_jobs=3)
    for _ in range(4):
        daemon.client.submit(body("ast=hang", "greedy"))
    path = daemon.directory / "store.db"

    def attempts() -> list[int]:
        with closing(sqlite3.connect(path)) as store:
            return [row[0] for row in store.execute("SELECT attempts FROM submission ORDER BY attempts")]

    service.wait_for(lambda: attempts()[-1] == 1)
    time.sleep(2.5)  # the store is looked at each second
    assert attempts() == [0, 0, 0, 1]


def test_queued(start_scripted: service.StartDaemon) -> None:
    daemon = limited(start_scripted, "*:queued=3", cpu_jobs=1)
    held = [daemon.client.submit(body("ast=hang", "one"))]
    deadline = time.monotonic() + LIMIT_S
    while daemon.client.expect("GET", f"/v1/submissions/{held[0]}")["stage"] != "ast":
        assert time.monotonic() < deadline
    held += [daemon.client.submit(body("ast=hang", "one")) for _ in range(3)]
    assert refusal(daemon.client.post("/v1/submissions", body("ast=hang", "one"))) == (429, "quota_queued")
    items = [{"candidate": f"# {n}\n"} for n in range(4)]
    group = {"task": "scripted", "client": "two", "candidates": items}
    never = daemon.client.post("/v1/groups", group)
    assert (never.status, never.json()["retryable"]) == (400, False) and "4 submissions" in never.json()["detail"]
    assert daemon.client.post("/v1/groups", group | {"candidates": items[:3]}).status == 202
    assert daemon.client.call("DELETE", f"/v1/submissions/{held[3]}").status == 200
    daemon.client.wait(held[3], LIMIT_S)
    assert daemon.client.post("/v1/submissions", body("ast=hang", "one")).status == 202


def test_a_new_reference_with_its_candidate_waits_as_one(start_scripted: service.StartDaemon) -> None:
    """It was refused as two, for ever, where one may wait."""
    daemon = limited(start_scripted, "*:queued=1")
    inline = body("ast=fail:syntax", "one") | {"task": None, "reference": registration("one")["reference"]}
    assert daemon.client.judge(inline, LIMIT_S)["class"] == "syntax"


def test_running(start_scripted: service.StartDaemon) -> None:
    """More than may run wait, and another client's goes past them."""
    daemon = limited(start_scripted, "greedy:running=1", cpu_jobs=3)
    held = [daemon.client.submit(body("ast=hang", "greedy")) for _ in range(3)]
    assert daemon.client.judge(body("timing=1.5", "modest", priority="batch"), LIMIT_S)["class"] == "ok"
    states = [daemon.client.expect("GET", f"/v1/submissions/{one}")["state"] for one in held]
    assert states == ["running", "queued", "queued"]


def seconds_used_up(daemon: service.Daemon) -> None:
    answer = daemon.client.post("/v1/submissions", body("timing=1", "busy"))
    assert refusal(answer) == (429, "quota_gpu_seconds")
    assert daemon.client.post("/v1/submissions", body("timing=1", "idle")).status == 202


def test_device_seconds(start_scripted: service.StartDaemon) -> None:
    """They count over a restart."""
    daemon = limited(start_scripted, "busy:gpu_s=1")
    verdict = daemon.client.judge(body("full=sleep:1.1,pass", "busy"), LIMIT_S)
    assert verdict["class"] == "ok"
    seconds_used_up(daemon)
    daemon.kill()
    daemon.start()
    seconds_used_up(daemon)


SLOW = "ast=sleep:0.5,fail:syntax"


def flood(client: service.Client, name: str, scripts: list[str], **more: object) -> str:
    """Many at once; the group's id."""
    items = [{"candidate": f"# script: {script}\n# {n} {time.monotonic_ns()}\n"} for n, script in enumerate(scripts)]
    group = {"task": "scripted", "client": name, "candidates": items, **more}
    return str(client.expect("POST", "/v1/groups", group)["id"])


def states(client: service.Client, group: str) -> list[str]:
    return [str(item["state"]) for item in client.expect("GET", f"/v1/groups/{group}")["items"]]


@pytest.mark.parametrize("priority", ["interactive", "batch"])
def test_a_flood_of_one_client_does_not_keep_another_waiting(
    start_scripted: service.StartDaemon, priority: str
) -> None:
    daemon = limited(start_scripted, "", cpu_jobs=1)
    first = flood(daemon.client, "flood", [SLOW] * 40, priority=priority)
    late = flood(daemon.client, "late", ["ast=fail:syntax"] * 3, priority=priority)
    daemon.client.wait(late, LIMIT_S, "groups")
    assert states(daemon.client, first)[-1] == "queued"


def test_interactive_passes_batch(start_scripted: service.StartDaemon) -> None:
    daemon = limited(start_scripted, "", cpu_jobs=1)
    first = flood(daemon.client, "one", [SLOW] * 40)
    assert daemon.client.judge(body("ast=fail:syntax", "one"), LIMIT_S)["class"] == "syntax"
    assert states(daemon.client, first)[-1] == "queued"


def test_an_interactive_follower_hurries_its_leader(start_scripted: service.StartDaemon) -> None:
    daemon = limited(start_scripted, "", cpu_jobs=1)
    first = flood(daemon.client, "one", [SLOW] * 40)
    last = daemon.client.expect("GET", f"/v1/groups/{first}")["items"][-1]["id"]
    text = daemon.client.get(f"/v1/submissions/{last}/source").body.decode()
    verdict = daemon.client.judge({"task": "scripted", "client": "one", "candidate": text}, LIMIT_S)
    assert (verdict["cache"], verdict["cached_from"]) == ("joined", last)
    assert states(daemon.client, first)[-2:] == ["queued", "done"]


def registration(client: str, script: str = "describe=pass") -> dict[str, object]:
    stamp = time.monotonic_ns()
    return {"name": f"t{stamp}", "reference": f"# script: {script}\n# {stamp}\n", "client": client}


def test_registrations_wait_in_their_clients_turn_and_hold_nobody_else_up(start_scripted: service.StartDaemon) -> None:
    """Six of one second each are asked for at once; another client's reference and candidate go between them."""
    daemon = limited(start_scripted, "")
    bodies = [registration("flood", "describe=sleep:1,pass") for _ in range(6)]
    flood = [threading.Thread(target=daemon.client.post, args=("/v1/tasks", one)) for one in bodies]
    for thread in flood:
        thread.start()
    service.wait_for(lambda: daemon.client.expect("GET", "/v1/status")["queues"]["registering"] >= len(flood))
    inline = body("timing=1", "victim") | {"task": None, "reference": registration("victim")["reference"]}
    assert daemon.client.judge(inline, LIMIT_S)["class"] == "ok"
    # Its registration and its candidate each wait for one of the others' at most.
    assert daemon.client.expect("GET", "/v1/status")["queues"]["registering"] >= 3
    for thread in flood:
        thread.join(LIMIT_S)


def test_a_registration_counts_against_the_rate_and_a_known_task_does_not(
    start_scripted: service.StartDaemon,
) -> None:
    daemon = limited(start_scripted, "slow:rate=2")
    first = registration("slow")
    assert [daemon.client.post("/v1/tasks", first).status for _ in range(3)] == [201, 200, 200]
    inline = body("ast=fail:syntax", "slow") | {"task": None, "reference": registration("slow")["reference"]}
    assert refusal(daemon.client.post("/v1/submissions", inline)) == (429, "quota_rate")  # it would be two
    assert daemon.client.post("/v1/tasks", registration("slow")).status == 201
    assert refusal(daemon.client.post("/v1/tasks", registration("slow"))) == (429, "quota_rate")
    assert daemon.client.post("/v1/tasks", registration("other")).status == 201


def test_the_device_seconds_of_a_registration_are_its_clients(start_scripted: service.StartDaemon) -> None:
    daemon = limited(start_scripted, "busy:gpu_s=1")
    assert daemon.client.post("/v1/tasks", registration("busy", "describe=sleep:1.1,pass")).status == 201
    seconds_used_up(daemon)
    assert refusal(daemon.client.post("/v1/tasks", registration("busy"))) == (429, "quota_gpu_seconds")


def test_of_two_clients_that_ask_for_one_registration_the_first_in_turn_pays(
    start_scripted: service.StartDaemon,
) -> None:
    """Nobody can hold a task up by asking for it behind a queue of its own."""
    daemon = limited(start_scripted, "flood:running=1")
    shared = registration("flood", "describe=sleep:0.3,pass")
    bodies = [registration("flood", "describe=sleep:1,pass") for _ in range(5)] + [shared]
    flood = [threading.Thread(target=daemon.client.post, args=("/v1/tasks", one)) for one in bodies]
    for thread in flood:
        thread.start()
        time.sleep(0.05)  # the shared one is the last of its client's
    assert daemon.client.post("/v1/tasks", shared | {"client": "victim"}).status in (200, 201)
    assert daemon.client.expect("GET", "/v1/status")["queues"]["registering"] >= 3
    for thread in flood:
        thread.join(LIMIT_S)
