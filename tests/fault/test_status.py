"""/v1/status counts what was acknowledged, though most of it is not made anew for each request."""

from __future__ import annotations

import itertools
import resource
import time

import service
from scripted import TASK

LIMIT_S = 60.0


def status(client: service.Client) -> service.Json:
    return client.expect("GET", "/v1/status")


def test_what_was_acknowledged_is_counted(start_scripted: service.StartDaemon) -> None:
    """The very next request sees it: each submission, each cancellation."""
    daemon = start_scripted(paused=True, ready=False)
    first = daemon.client.submit({"reference": TASK["reference"], "candidate": "# 0\n"})
    task = daemon.client.get(f"/v1/submissions/{first}").json()["task"]
    ids = [first]
    for n in range(1, 40):
        ids.append(daemon.client.submit({"task": task, "candidate": f"# {n}\n"}))
        seen = status(daemon.client)
        assert (seen["queues"]["queued"]["interactive"], seen["queues"]["waiting"]) == (n + 1, n + 1)
        assert (seen["counts"]["queued"], seen["counts"]["tasks"]) == (n + 1, 1)
    for n, one in enumerate(ids, 1):
        assert daemon.client.call("DELETE", f"/v1/submissions/{one}").status == 200
        seen = status(daemon.client)
        assert (seen["counts"]["cancelled"], seen["counts"]["queued"]) == (n, len(ids) - n)
        assert (seen["counts"]["finished"], seen["queues"]["waiting"]) == (n, len(ids) - n)


def test_a_verdict_is_counted(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted()
    daemon.client.add_task(TASK)
    for n in range(1, 11):
        verdict = daemon.client.judge({"task": "scripted", "candidate": f"# script: ast=fail:syntax\n# {n}\n"}, LIMIT_S)
        counts = status(daemon.client)["counts"]
        assert verdict["class"] == "syntax"
        assert (counts["finished"], counts["done"], counts["classes"]["syntax"]) == (n, n, n)
        assert (counts["stages"]["ast"]["entered"], counts["stages"]["ast"]["fail"]) == (n, n)


def test_the_oldest_that_waits(start_scripted: service.StartDaemon) -> None:
    """Its age is that of the moment, whoever is gone."""
    daemon = start_scripted(paused=True, ready=False)

    def oldest() -> object:
        return status(daemon.client)["queues"]["oldest_s"]

    assert oldest() == {"queued": None, "ready": None}
    began, ids = [time.monotonic()], []
    ids.append(daemon.client.submit({"reference": TASK["reference"], "candidate": "# 0\n"}))
    task = daemon.client.get(f"/v1/submissions/{ids[0]}").json()["task"]
    for n in (1, 2):
        began.append(time.monotonic())
        ids.append(daemon.client.submit({"task": task, "candidate": f"# {n}\n"}))
    ended = time.monotonic()
    time.sleep(0.01)
    for n, (since, one) in enumerate(zip(began, ids, strict=True)):
        until = began[n + 1] if n + 1 < len(began) else ended
        least = time.monotonic() - until
        age = status(daemon.client)["queues"]["oldest_s"]["queued"]
        assert least - 0.001 <= age <= time.monotonic() - since + 0.001
        assert daemon.client.call("DELETE", f"/v1/submissions/{one}").status == 200
    assert oldest() == {"queued": None, "ready": None}


def test_its_own_figures_are_of_the_moment(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted()
    seen = [status(daemon.client) for _ in range(5)]
    requests = [one["http"]["requests"] for one in seen]
    assert [b - a for a, b in itertools.pairwise(requests)] == [1, 1, 1, 1]
    assert all(a["uptime_s"] <= b["uptime_s"] for a, b in itertools.pairwise(seen))


def test_a_daemon_whose_store_is_full_is_not_ready_and_says_so(start_scripted: service.StartDaemon) -> None:
    """Also where nobody posts; and it is ready again by itself."""
    daemon = start_scripted()

    def wait_for(status_code: int) -> service.Answer:
        deadline = time.monotonic() + LIMIT_S
        while (answer := daemon.client.get("/readyz")).status != status_code:
            assert time.monotonic() < deadline, answer.body
            time.sleep(0.1)
        return answer

    limits = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (4096, limits[1]))  # as a full disk: no file may grow
    answer = wait_for(503)
    assert answer.json()["code"] == "not_ready" and "the store cannot be written" in answer.json()["detail"]
    assert "the store" in status(daemon.client)["why"] and not status(daemon.client)["ready"]
    refused = daemon.client.call("POST", "/v1/submissions", {"reference": TASK["reference"], "candidate": "# 0\n"})
    assert refused.status == 503
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, limits)
    wait_for(200)
    assert daemon.client.get("/healthz").status == 200


def test_a_daemon_without_a_database_is_the_only_node(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(paused=True, ready=False)
    page = daemon.client.expect("GET", "/v1/nodes")
    assert [item["name"] for item in page["items"]] == [page["self"]]
    assert (page["items"][0]["state"], page["items"][0]["lease_s"]) == ("alive", None)
    text = daemon.client.get("/metrics").body
    for line in ('draining{node="%s"} 0', 'lease_seconds{node="%s"} +Inf'):
        assert f"verifierd_node_{line % page['self']}\n".encode() in text
