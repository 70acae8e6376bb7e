"""A failure that a neighbour may have brought about does not count: it is judged once more, alone.

Those who burn share one CPU, so how much each of them gets follows from their number, not from the machine's load.
"""

from __future__ import annotations

import json
import time

import pytest
import service
from scripted import TASK

LIMIT_S = 120.0
HOGS = 10
BURNT_S = 0.3  # too much for an eleventh of the limit below, and a small part of the whole


def body(script: str, **more: object) -> dict[str, object]:
    return {"task": "scripted", "candidate": f"# script: {script}\n# {time.monotonic_ns()}\n", **more}


def wait_until_at(client: service.Client, ids: list[str], stage: str) -> None:
    service.wait_for(
        lambda: not any(client.get(f"/v1/submissions/{one}").json()["stage"] != stage for one in ids), LIMIT_S
    )


def log_of(daemon: service.Daemon) -> list[service.Json]:
    """Its whole lines so far."""
    return [json.loads(line) for line in daemon.log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def is_put_back(line: service.Json, one: str) -> bool:
    return line.get("subject") == one and "judged again alone" in line["msg"]


def wait_until_returned(daemon: service.Daemon, one: str) -> None:
    """It was begun, and is queued once more."""
    service.wait_for(
        lambda: any(is_put_back(line, one) for line in log_of(daemon)), LIMIT_S, what="it was not put back"
    )


def others_during_rerun(daemon: service.Daemon, one: str) -> list[service.Json]:
    """What was decided of others from the moment that it was begun again until its verdict, by the log."""
    lines = log_of(daemon)
    own = [i for i, line in enumerate(lines) if line.get("subject") == one]
    again = next(i for i in own if is_put_back(lines[i], one))
    begun, *_, end = [i for i in own if i > again]
    others = {line.get("subject") for line in lines if line["msg"] == "submission accepted"} - {one}
    found = lines[begun : end + 1]
    assert "ast: pass" in found[0]["msg"] and "reward" in found[-1]["msg"]
    return [line for line in found if line.get("subject") in others and line["msg"] != "submission accepted"]


def reruns(client: service.Client, outcome: str) -> float:
    return float(client.expect("GET", "/v1/status")["counts"]["reruns"][outcome])


@pytest.mark.parametrize("end", ["pass", "reopen"])
def test_starved_call_is_judged_again_alone(start_scripted: service.StartDaemon, end: str) -> None:
    """An honest candidate beside others that burn the CPU gets the class that it has without them.

    Also where the referee would excuse an ended process, and reports no failure.
    """
    daemon = start_scripted(cpu_jobs=HOGS + 1, tiny_limit_ms=2000)
    client = daemon.client
    client.add_task(TASK)
    go = daemon.directory / "go"
    hogs = [client.submit(body(f"compile=burn_until:{go},pass")) for _ in range(HOGS)]
    wait_until_at(client, hogs, "compile")
    honest = client.submit(body(f"tiny=burn:{BURNT_S},{end} timing=1.5"))
    later = [client.submit(body("compile=sleep:1,pass")) for _ in range(8)]
    wait_until_returned(daemon, honest)  # however late it came to tiny
    go.touch()
    verdict = client.wait(honest, LIMIT_S)
    assert (verdict["class"], verdict["passed_stage"], verdict["attempts"]) == ("ok", "timing", 1), verdict
    assert others_during_rerun(daemon, honest) == []
    why = verdict["rerun"].pop("why")
    assert verdict["rerun"] == {"class": "timeout", "stage": "tiny", "alone": True}
    assert "others had the CPU" in why and "of a limit of 2 s" in why
    for one in hogs + later:
        assert client.wait(one, LIMIT_S)["class"] == "ok"
    assert [reruns(client, key) for key in ("cleared", "confirmed", "refused")] == [1, 0, 0]
    assert reruns(client, "held_s") > 0
    text = client.get("/metrics").body.decode()
    assert 'verifierd_reruns_total{outcome="cleared"} 1\n' in text


def test_endless_loops_are_told_from_those_they_starve(start_scripted: service.StartDaemon) -> None:
    """Each is judged once more alone; only the loops fail there, and they are not tried a third time."""
    daemon = start_scripted(cpu_jobs=5, stage_limit_ms=4000)
    client = daemon.client
    client.add_task(TASK)
    go = daemon.directory / "go"  # for all at once: whoever is late has the CPU to itself in the end
    loops = [client.submit(body(f"ast=until:{go},pass compile=burn:1000")) for _ in range(4)]
    honest = client.submit(body(f"ast=until:{go},pass compile=burn:1.2,pass timing=1.5"))
    go.touch()
    verdict = client.wait(honest, LIMIT_S)
    assert verdict["class"] == "ok", verdict
    for one in loops:
        verdict = client.wait(one, LIMIT_S)
        assert (verdict["class"], verdict["stage"], verdict["attempts"]) == ("timeout", "compile", 1), verdict
        assert verdict["rerun"]["class"] == "timeout" and verdict["rerun"]["alone"] is True
    assert reruns(client, "confirmed") == 4


def test_rerun_outlives_a_killed_daemon(start_scripted: service.StartDaemon) -> None:
    """What waits to be judged again is queued in the store, and is judged after a restart."""
    daemon = start_scripted(cpu_jobs=HOGS + 2, tiny_limit_ms=2000)
    client = daemon.client
    client.add_task(TASK)
    sleeper = client.submit(body("compile=hang"))  # nothing begins alone before it is through
    hogs = [client.submit(body("compile=burn:1000")) for _ in range(HOGS)]  # however late the honest one comes to tiny
    wait_until_at(client, [sleeper, *hogs], "compile")
    honest = client.submit(body(f"tiny=burn:{BURNT_S},pass timing=1.5"))
    wait_until_returned(daemon, honest)
    daemon.kill()
    daemon.start()
    for one in [sleeper, *hogs]:
        daemon.client.call("DELETE", f"/v1/submissions/{one}")
        assert daemon.client.wait(one, LIMIT_S)["state"] == "cancelled"
    verdict = daemon.client.wait(honest, LIMIT_S)
    assert verdict["class"] == "ok", verdict


def test_work_that_somebody_else_did_on_the_device_is_nobodys_hack(start_scripted: service.StartDaemon) -> None:
    """It is found again when the submission is alone, or it does not count."""
    client = start_scripted().client
    client.add_task(TASK)
    found = client.wait(client.submit(body("timing=background")), LIMIT_S)
    assert (found["class"], found["timing"]["outcome"]) == ("ok", "measured")
    assert (found["rerun"]["class"], found["rerun"]["alone"]) == ("hack", True)


def test_background_work_that_is_not_looked_for_again_is_infra(start_scripted: service.StartDaemon) -> None:
    """There is a share of the time for looking again, enough for six at once; the others are not convicted."""
    daemon = start_scripted(device="cpu:0,1,2,3,4,5,6,7")
    client = daemon.client
    client.add_task(TASK)
    go = daemon.directory / "go"
    ids = [client.submit(body(f"full=until:{go} timing=fail:hack:background_work")) for _ in range(8)]
    wait_until_at(client, ids, "full")
    go.touch()
    verdicts = [client.wait(one, LIMIT_S) for one in ids]
    alone = [one for one in verdicts if one["rerun"]["alone"]]
    assert alone and {(one["class"], one["rule"]) for one in alone} == {("hack", "background_work")}
    others = [one for one in verdicts if not one["rerun"]["alone"]]
    assert others, "all were looked for again"
    assert {(one["class"], one["rule"], one["reward"]) for one in others} == {("infra", None, None)}
