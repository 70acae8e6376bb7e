"""What clients call tasks: whose a name is, and what it leads to."""

from __future__ import annotations

import json
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import service
from scripted import TASK

LIMIT_S = 60.0


@pytest.fixture
def client(start_scripted: service.StartDaemon) -> service.Client:
    return start_scripted(cpu_jobs=1).client


def task(name: str, text: str, **more: object) -> dict[str, object]:
    return {"name": name, "reference": f"# script: describe=pass\n# {text}\n", **more}


def judged_as(client: service.Client, name: str, who: str | None = None) -> str:
    """The task that a submission by this name is of."""
    body = {"task": name, "candidate": f"# script: ast=fail:syntax\n# {time.monotonic_ns()}\n", "client": who}
    return str(client.judge(body, LIMIT_S)["task"])


def refusal(answer: service.Answer) -> tuple[int, str]:
    return answer.status, str(answer.json()["code"])


def test_another_reference_under_a_name_in_use_ends_nobodys_run(client: service.Client) -> None:
    """Of one client it is refused; another client's is that client's alone."""
    first = client.add_task(task("gelu", "one"))
    answer = client.post("/v1/tasks", task("gelu", "two"))
    assert refusal(answer) == (409, "name_taken") and first in answer.json()["detail"]
    second = client.add_task(task("gelu", "two", client="bob"))
    assert judged_as(client, "gelu") == first
    assert judged_as(client, "gelu", "bob") == second
    assert judged_as(client, "gelu", "carol") == first  # who has none of that name gets the oldest
    assert client.expect("GET", "/v1/tasks/gelu")["id"] == first


def test_a_client_finds_a_task_that_another_registered_by_a_name_of_its_own(client: service.Client) -> None:
    first = client.add_task(task("gelu", "one"))
    assert client.add_task(task("mine", "one", client="bob")) == first
    assert judged_as(client, "mine", "bob") == first
    assert {one["id"] for one in client.expect("GET", "/v1/tasks?name=mine")["items"]} == {first}


def test_a_task_that_was_first_sent_inline_shows_the_name_that_it_is_given(client: service.Client) -> None:
    text = task("gelu", "one")["reference"]
    first = client.judge({"reference": text, "candidate": "# script: ast=fail:syntax\n"}, LIMIT_S)
    assert first["task_name"] == "Model"
    assert client.add_task(task("gelu", "one")) == first["task"]
    assert client.add_task(task("other", "one", client="bob")) == first["task"]  # a second name displaces none
    assert client.expect("GET", f"/v1/tasks/{first['task']}")["name"] == "gelu"
    assert [one["name"] for one in client.expect("GET", "/v1/tasks")["items"]] == ["gelu"]
    assert client.judge({"reference": text, "candidate": "# script: timing=1\n"}, LIMIT_S)["task_name"] == "gelu"


def test_model_spelled_out_is_the_same_task(client: service.Client) -> None:
    first = client.add_task(task("gelu", "one"))
    answer = client.post("/v1/tasks", task("gelu", "one", entry_point="Model"))
    assert (answer.status, answer.json()["id"]) == (200, first)
    assert judged_as(client, "gelu") == first


def test_a_task_is_renamed(client: service.Client) -> None:
    first, other = client.add_task(task("gelu", "one")), client.add_task(task("relu", "two"))
    answer = client.call("PATCH", f"/v1/tasks/{first}", {"name": "gelu1"})
    assert (answer.status, answer.json()["name"]) == (200, "gelu1")
    assert judged_as(client, "gelu1") == first
    assert refusal(client.get("/v1/tasks/gelu")) == (404, "unknown_task")
    assert refusal(client.call("PATCH", "/v1/tasks/gelu1", {"name": "relu"})) == (409, "name_taken")
    assert refusal(client.call("PATCH", "/v1/tasks/gelu1", {"name": ""})) == (400, "bad_body")
    assert refusal(client.call("PATCH", "/v1/tasks/gelu", {"name": "x"})) == (404, "unknown_task")
    assert client.add_task(task("gelu", "three")) not in (first, other)  # the name is free again


def test_a_task_is_deleted_once_nothing_of_it_is_under_way(client: service.Client) -> None:
    """What was judged stays; the same reference registered again is the same task."""
    first = client.add_task(TASK)
    done = client.judge({"task": first, "candidate": "# script: timing=1.5\n"}, LIMIT_S)
    held = client.submit({"task": first, "candidate": "# script: ast=hang\n"})
    assert refusal(client.call("DELETE", f"/v1/tasks/{first}")) == (409, "task_in_use")
    assert client.expect("GET", f"/v1/tasks/{first}")["id"] == first
    client.call("DELETE", f"/v1/submissions/{held}")
    client.wait(held, LIMIT_S)
    assert client.expect("GET", "/v1/leaderboard")["items"] != []
    assert client.call("DELETE", f"/v1/tasks/{first}").json() == {"id": first, "deleted": True}
    assert refusal(client.get(f"/v1/tasks/{first}")) == (404, "unknown_task")
    late = {"task": first, "candidate": "# late\n"}
    assert refusal(client.post("/v1/submissions", late)) == (404, "unknown_task")
    assert client.expect("GET", f"/v1/submissions/{done['id']}")["class"] == "ok"
    assert client.expect("GET", "/v1/leaderboard")["items"] == []
    assert client.add_task(TASK) == first
    assert judged_as(client, str(TASK["name"])) == first


def test_while_a_task_is_being_deleted_its_submissions_are_put_off(start_scripted: service.StartDaemon) -> None:
    """Another client's name may keep it: until that is known nobody is told that there is no such task."""
    daemon = start_scripted()
    client = daemon.client
    first = client.add_task(task("gelu", "one"))
    body = {"task": "gelu", "candidate": "# script: ast=fail:syntax\n"}
    with ThreadPoolExecutor() as pool, closing(sqlite3.connect(daemon.directory / "store.db")) as db:
        db.isolation_level = None
        db.execute("BEGIN IMMEDIATE")
        deleting = pool.submit(client.call, "DELETE", f"/v1/tasks/{first}")
        while client.expect("GET", "/v1/status")["store"]["queued_writes"] == 0:
            assert not deleting.done()
        for answer in (client.post("/v1/submissions", body), client.call("DELETE", "/v1/tasks/gelu")):
            assert refusal(answer) == (503, "unavailable") and answer.headers["Retry-After"]
        db.execute("ROLLBACK")
        assert deleting.result().json() == {"id": first, "deleted": True}
    assert refusal(client.post("/v1/submissions", body)) == (404, "unknown_task")


def test_no_group_is_accepted_for_a_task_that_is_deleted_while_it_is_read(start_scripted: service.StartDaemon) -> None:
    """The task is found before the candidates are read, which takes a while beside the loop."""
    client = start_scripted(paused=True, ready=False).client
    filler = "#" * 12000
    with ThreadPoolExecutor() as pool:
        for turn in range(12):
            first = client.add_task(task(f"task {turn}", str(turn)))
            items = [{"candidate": f"# script: timing=1\n# {i}\n{filler}"} for i in range(256)]
            body = json.dumps({"task": first, "candidates": items}).encode()
            groups = [pool.submit(client.post, "/v1/groups", body) for _ in range(4)]
            time.sleep(0.01 * turn)  # to meet it at any moment
            deleted = client.call("DELETE", f"/v1/tasks/{first}").status
            accepted = [one.result().json()["id"] for one in groups if one.result().status == 202]
            assert deleted == (409 if accepted else 200)
            for group in accepted:
                client.expect("DELETE", f"/v1/groups/{group}")


def test_a_weakened_policy_is_not_told_as_strict_and_leads_no_board(client: service.Client) -> None:
    first = client.add_task(TASK)

    def judge(script: str, policy: object) -> service.Json:
        text = f"# script: {script}\n# {time.monotonic_ns()}\n"
        return client.judge({"task": first, "candidate": text, "policy": policy}, LIMIT_S)

    assert judge("timing=9.5", {"name": "strict", "foreign": "any"})["policy"] == "strict*"
    assert client.expect("GET", f"/v1/tasks/{first}/leaders")["items"] == []
    assert sum(step["n"] for step in client.expect("GET", "/v1/trends")["steps"]) == 0
    honest = judge("timing=1.5", "strict")
    assert honest["policy"] == "strict"
    leaders = client.expect("GET", f"/v1/tasks/{first}/leaders")
    assert [one["id"] for one in leaders["items"]] == [honest["id"]]
    assert leaders["n"] == 1 and leaders["speedup"] == pytest.approx(honest["components"]["speedup"])
