"""Labels of a training run: from what is submitted to filters and to the run's sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest
import service
from test_trends import BROKEN, CHEAT


def group(client: service.Client, task: str, metadata: object, candidates: Sequence[object]) -> dict[str, Any]:
    body = {"task": task, "metadata": metadata, "candidates": candidates, "until": "full"}
    ident = str(client.expect("POST", "/v1/groups", body)["id"])
    return client.wait(ident, kind="groups")


def ids(client: service.Client, path: str) -> list[str]:
    return [str(item["id"]) for item in client.expect("GET", path)["items"]]


def test_a_run_is_filtered_and_summed_up_by_its_steps(client: service.Client, task_ids: dict[str, str]) -> None:
    task, run = task_ids["relu"], "grpo/ünï 7"
    name = quote(run, safe="")
    first = group(client, task, {"run": run, "step": 0}, [{"candidate": BROKEN}, {"candidate": CHEAT}])
    other = [{"candidate": BROKEN, "metadata": {"file": "a.py"}}, {"candidate": BROKEN, "metadata": {"step": 9}}]
    second = group(client, task, {"run": run, "step": 4, "policy_version": "step-3"}, other)
    client.judge({"task": task, "candidate": BROKEN, "metadata": {"run": run + "b", "step": 4}})

    items = [[str(item["id"]) for item in one["items"]] for one in (first, second)]
    assert sorted(ids(client, f"/v1/submissions?run={name}&view=brief")) == sorted(items[0] + items[1])
    assert ids(client, f"/v1/submissions?run={name}&step=4") == [items[1][0]]
    assert sorted(ids(client, f"/v1/submissions?run={name}&step=0&limit=1&view=brief")) == [max(items[0])]
    assert sorted(ids(client, f"/v1/submissions?run={name}&policy_version=step-3&view=brief")) == sorted(items[1])
    assert ids(client, f"/v1/submissions?run={name}&policy_version=step") == []
    every = f"state=done&task={task}&class=syntax&client=c&group={second['id']}&run={name}&step=4&policy_version=step-3"
    assert ids(client, f"/v1/submissions?{every}&cursor={second['id']}&limit=1") == []
    assert ids(client, f"/v1/groups?run={name}&step=4") == [second["id"]]
    (listed,) = client.expect("GET", f"/v1/groups?run={name}&step=4")["items"]
    assert (listed["run"], listed["step"]) == (run, 4)
    exported = client.get(f"/v1/export?run={name}&step=9").body.decode().splitlines()
    assert len(exported) == 1 and items[1][1] in exported[0]
    (brief,) = client.expect("GET", f"/v1/submissions?run={name}&step=4&view=brief")["items"]
    assert (brief["run"], brief["step"], brief["policy_version"]) == (run, 4, "step-3")

    found = client.expect("GET", f"/v1/runs/{name}")
    assert (found["n"], found["ok"], found["cheats"], found["first_step"], found["last_step"]) == (4, 0, 1, 0, 9)
    assert found["correct"] == 0 and found["hack"] == 0.25 and found["fast_1.5"] == 0 and found["speedup"] is None
    assert [(step["step"], step["n"], step["hack"]) for step in found["steps"]] == [(0, 2, 0.5), (4, 1, 0), (9, 1, 0)]
    assert sum(bin["n"] for bin in found["speedups"]) == 0 and found["speedups"][2] == {"above": 0.8, "to": 1, "n": 0}
    (by_task,) = client.expect("GET", f"/v1/runs/{name}/tasks")["items"]
    assert (by_task["task"], by_task["task_name"]) == (task, "relu")
    assert [(step["step"], step["n"]) for step in by_task["steps"]] == [(0, 2), (4, 1), (9, 1)]
    page = client.expect("GET", "/v1/runs?limit=1")
    assert [item["run"] for item in page["items"]] == [run + "b"]
    rest = client.expect("GET", "/v1/runs?limit=1&cursor=" + quote(page["next"], safe=""))
    assert [item["run"] for item in rest["items"]] == [run]


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/v1/submissions?step=1", "step"),
        ("/v1/groups?run=r&step=x", "step"),
        ("/v1/export?run=r&step=-1", "step"),
        ("/v1/submissions?policy_version=v", "policy_version"),
        ("/v1/runs?cursor=r", "cursor"),
    ],
)
def test_a_filter_that_cannot_be_is_named(client: service.Client, path: str, parameter: str) -> None:
    answer = client.get(path)
    assert answer.status == 400 and answer.json()["errors"][0]["parameter"] == parameter


def test_a_run_without_a_verdict_is_not_found(client: service.Client) -> None:
    assert client.get("/v1/runs/nobody").status == client.get("/v1/runs/nobody/tasks").status == 404


def test_a_label_of_another_type_is_refused_where_it_is(client: service.Client, task_ids: dict[str, str]) -> None:
    body = {"task": task_ids["relu"], "candidate": BROKEN, "metadata": {"run": "r", "step": "4"}}
    answer = client.call("POST", "/v1/submissions", body)
    assert answer.status == 400 and answer.json()["errors"][0]["pointer"] == "/metadata/step"
