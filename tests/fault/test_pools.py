"""Children kept ready: a fixed number of them for each device and each CPU stage, none made beside timing.

Whoever is taken, dies or goes with its zygote is replaced.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import service
from scripted import TASK

LIMIT_S = 60.0
MAKE_S = 0.4
"""How long the scripted children take to be ready."""


def pool_of(client: service.Client) -> service.Json:
    (referee,) = (worker for worker in client.get("/v1/status").json()["workers"] if worker["kind"] == "referee")
    return dict(referee["pool"])


def burst(client: service.Client, n: int, script: str) -> list[str]:
    return [
        client.submit({"task": "scripted", "candidate": f"# script: {script}\n# {at}\n", "cache": False})
        for at in range(n)
    ]


def test_as_many_are_kept_ready_as_pool_says(
    start_scripted: service.StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is taken is replaced, and nobody waits for a child while one is ready."""
    monkeypatch.setenv("SCRIPT_MAKE_S", str(MAKE_S))
    client = start_scripted(pool=3).client
    client.add_task(TASK)
    service.wait_for(lambda: pool_of(client)["ready"] == 3)
    ids = burst(client, 8, "tiny=fail:shape")
    for one in ids:
        assert client.wait(one, LIMIT_S)["class"] == "shape"
        now = pool_of(client)
        assert now["ready"] + now["making"] <= 4, now  # one more for whom a job waits
    service.wait_for(lambda: (lambda p: (p["ready"], p["making"]) == (3, 0))(pool_of(client)))
    after = pool_of(client)
    assert after["made"] in (8 + 1 + 3, 8 + 1 + 4), "candidates, the reference, those ready"
    assert (after["most"], after["lost"]) == (3, 0)
    assert after["waited_s"] > 0
    metrics = client.get("/metrics").body.decode()
    assert f'verifierd_pool_made_total{{device="cpu"}} {after["made"]}\n' in metrics
    assert 'verifierd_pool_children{device="cpu",state="ready"} 3\n' in metrics


def children_of(client: service.Client, kind: str) -> set[int]:
    (zygote,) = (w for w in client.get("/v1/status").json()["workers"] if w["kind"] == kind)
    return {int(pid) for pid in Path(f"/proc/{zygote['pid']}/task/{zygote['pid']}/children").read_text().split()}


def test_none_is_made_beside_timing(start_scripted: service.StartDaemon) -> None:
    """One that dies while a submission is timed is replaced when the timing is over."""
    client = start_scripted(pool=1).client
    client.add_task(TASK)
    (timed,) = burst(client, 1, "timing=hang")
    service.wait_for(lambda: client.get(f"/v1/submissions/{timed}").json()["stage"] == "timing")
    # The reference, the candidate, one that waits.
    service.wait_for(lambda: len(children_of(client, "run_zygote")) == 3)
    service.wait_for(lambda: (pool_of(client)["ready"], pool_of(client)["making"]) == (1, 0))
    before = pool_of(client)
    os.kill(max(children_of(client, "run_zygote")), signal.SIGKILL)
    service.wait_for(lambda: pool_of(client)["lost"] == 1)
    waiting = burst(client, 4, "tiny=fail:shape")

    def are_waiting() -> bool:
        now = pool_of(client)
        assert (now["making"], now["made"], now["ready"]) == (0, before["made"], 0), now
        return bool(client.get("/v1/status").json()["queues"]["ready"]["interactive"] == len(waiting))

    service.wait_for(are_waiting)
    assert client.call("DELETE", f"/v1/submissions/{timed}").status == 200
    assert {client.wait(one, LIMIT_S)["class"] for one in waiting} == {"shape"}
    assert pool_of(client)["made"] > before["made"]


STAGES = {"ast", "compile", "build", "inspect"}


def spares_of(client: service.Client) -> dict[str, service.Json]:
    workers = client.get("/v1/status").json()["workers"]
    return {stage: one for worker in workers for stage, one in worker.get("spares", {}).items()}


def are_kept(client: service.Client, n: int) -> bool:
    return {stage: one["kept"] for stage, one in spares_of(client).items()} == dict.fromkeys(STAGES, n)


def judge(client: service.Client, script: str = "timing=1.2") -> service.Json:
    (one,) = burst(client, 1, script)
    return client.wait(one, LIMIT_S)


def test_the_cpu_stages_find_children_that_wait(start_scripted: service.StartDaemon) -> None:
    client = start_scripted(stage_pool=3, cpu_jobs=2, stage_limit_ms=2000).client
    client.add_task(TASK)
    service.wait_for(lambda: are_kept(client, 2))  # no more than there are slots
    assert judge(client)["class"] == "ok"
    service.wait_for(lambda: are_kept(client, 2))
    assert judge(client, "ast=signal:SEGV")["class"] == "crash"
    service.wait_for(lambda: are_kept(client, 2))
    assert judge(client, "compile=exit:3")["class"] == "crash"
    service.wait_for(lambda: are_kept(client, 2))
    assert judge(client, "compile=hang")["class"] == "timeout", "its time counts from when it was asked"
    found = spares_of(client)
    assert {stage: one["taken"] for stage, one in found.items()} == {"ast": 4, "compile": 3, "build": 1, "inspect": 0}
    assert all((one["most"], one["missed"], one["lost"]) == (2, 0, 0) for one in found.values()), found
    metrics = client.get("/metrics").body.decode()
    assert 'verifierd_spare_taken_total{stage="compile"} 3\n' in metrics
    assert 'verifierd_spare_missed_total{stage="inspect"} 0\n' in metrics


def test_no_child_waits_where_none_shall(start_scripted: service.StartDaemon) -> None:
    client = start_scripted(stage_pool=0).client
    client.add_task(TASK)
    assert judge(client)["class"] == "ok"
    assert all(set(one.values()) == {0} for one in spares_of(client).values())


def test_a_waiting_child_that_dies_is_replaced(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(stage_pool=1)
    daemon.client.add_task(TASK)
    service.wait_for(lambda: are_kept(daemon.client, 1))
    (zygote,) = (w for w in daemon.client.get("/v1/status").json()["workers"] if w["kind"] == "compile_zygote")
    children = Path(f"/proc/{zygote['pid']}/task/{zygote['pid']}/children")
    service.wait_for(lambda: len(children.read_text().split()) == 2)  # one for `compile` and one for `build`
    for pid in children.read_text().split():
        os.kill(int(pid), signal.SIGKILL)

    def are_replaced() -> bool:
        found = spares_of(daemon.client)
        return found["compile"]["lost"] == found["build"]["lost"] == 1 and are_kept(daemon.client, 1)

    service.wait_for(are_replaced)
    assert judge(daemon.client)["class"] == "ok"


def test_children_that_wait_go_and_come_with_their_zygote(start_scripted: service.StartDaemon) -> None:
    client = start_scripted(stage_pool=2).client
    client.add_task(TASK)
    service.wait_for(lambda: are_kept(client, 2))
    (before,) = (w for w in client.get("/v1/status").json()["workers"] if w["kind"] == "static_zygote")
    os.kill(before["pid"], signal.SIGKILL)

    def is_another() -> bool:
        (now,) = (w for w in client.get("/v1/status").json()["workers"] if w["kind"] == "static_zygote")
        return now["starts"] > before["starts"] and now["state"] == "ready"

    service.wait_for(is_another)
    service.wait_for(lambda: are_kept(client, 2))
    found = judge(client)
    assert (found["class"], found["attempts"]) == ("ok", 1)
    assert all(one["lost"] == 0 for one in spares_of(client).values())
