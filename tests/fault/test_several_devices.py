"""Several devices: each judges by itself, and a submission goes where its task's reference is loaded."""

from __future__ import annotations

import service
from scripted import TASK

LIMIT_S = 120.0


def post(client: service.Client, script: str, n: int = 1, **more: object) -> list[str]:
    return [
        client.submit({"task": "scripted", "candidate": f"# script: {script}\n# {at}\n", "cache": False, **more})
        for at in range(n)
    ]


def wait_for_stage(client: service.Client, one: str, stage: str) -> None:
    service.wait_for(lambda: client.get(f"/v1/submissions/{one}").json()["stage"] == stage, LIMIT_S)


def start_on(start: service.StartDaemon, device: str, **options: object) -> service.Client:
    """With all devices at rest, and the task registered."""
    client = start(device=device, **options).client
    client.add_task(TASK)
    service.wait_for(lambda: {worker["lane"] for worker in referees(client)} == {"idle"}, LIMIT_S)
    return client


def referees(client: service.Client) -> list[service.Json]:
    return [worker for worker in client.get("/v1/status").json()["workers"] if worker["kind"] == "referee"]


def test_a_device_whose_workers_go_down_leaves_the_others_at_work(start_scripted: service.StartDaemon) -> None:
    client = start_on(start_scripted, "cpu:0,1", max_attempts=2)
    bad = post(client, "tiny=kill_referee", 1)
    good = post(client, "tiny=sleep:0.1,pass full=pass timing=1.5", 6)
    for one in good:
        assert client.wait(one, LIMIT_S)["class"] == "ok"
    assert client.wait(bad[0], LIMIT_S)["class"] in ("crash", "infra")
    assert {worker["device"] for worker in referees(client)} == {"cpu:0", "cpu:1"}


def test_a_submission_goes_where_its_reference_is(start_scripted: service.StartDaemon) -> None:
    """Two tasks, two devices that keep one reference each, and a queue in pairs: each device stays with its task."""
    client = start_on(start_scripted, "cpu:0,1", references_kept=1)
    for name in ("one", "other"):
        client.add_task({"name": name, "reference": f"# script: describe=pass\n# {name}\n"})
    held = post(client, "tiny=hang", 2)
    for one in held:
        wait_for_stage(client, one, "tiny")
    before = loads(client)
    queued = [
        client.submit({"task": name, "candidate": f"# script: timing=1.5\n# {at}\n", "cache": False})
        for at, name in enumerate(("one", "one", "other", "other") * 6)
    ]
    service.wait_for(lambda: sum(client.get("/v1/status").json()["queues"]["ready"].values()) >= len(queued), LIMIT_S)
    for one in held:
        client.call("DELETE", f"/v1/submissions/{one}")
    for one in queued:
        assert client.wait(one, LIMIT_S)["class"] == "ok"
    assert loads(client) - before <= len(queued) // 2


def loads(client: service.Client) -> int:
    return sum(worker["references"]["loads"] for worker in referees(client))
