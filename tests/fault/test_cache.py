"""Identical candidates are judged once: who gets whose verdict, and who is judged after all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest
import service
from scripted import HASTY, SCRIPTED, TASK

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def shared() -> Iterator[service.Daemon]:
    with service.directory() as directory, service.Daemon(directory, SCRIPTED | {"cache_recheck_percent": 0}) as daemon:
        daemon.client.add_task(TASK)
        yield daemon


def body(script: str, **more: object) -> dict[str, object]:
    """A candidate that nobody has sent before."""
    return {"task": "scripted", "candidate": f"# script: {script}\n# {time.monotonic_ns()}\n", **more}


def figures(client: service.Client) -> Mapping[str, int]:
    found: dict[str, int] = client.expect("GET", "/v1/status")["counts"]["cache"]
    return found


def entered(client: service.Client) -> int:
    """How many candidates were read so far: each that is judged is."""
    return int(client.expect("GET", "/v1/status")["counts"]["stages"]["ast"]["entered"])


def test_the_second_gets_the_stored_verdict(shared: service.Daemon) -> None:
    """All that was found is the same; id, metadata and times are its own."""
    request = body("compile=print:40,pass timing=1.3", metadata={"n": 1})
    first = shared.client.judge(request, LIMIT_S)
    before = entered(shared.client)
    second = shared.client.judge(request | {"metadata": {"n": 2}}, LIMIT_S)
    assert (first["cache"], first["cached_from"]) == ("miss", None)
    assert (second["cache"], second["cached_from"], second["attempts"]) == ("hit", first["id"], 0)
    own = {"id", "cache", "cached_from", "attempts", "created", "finished", "metadata"}
    assert {key for key in first if first[key] != second[key]} == own
    assert second["metadata"] == {"n": 2}
    assert second["created"] >= first["finished"]
    assert entered(shared.client) == before
    logs = [shared.client.get(f"/v1/submissions/{one['id']}/log").body for one in (first, second)]
    assert len(logs[0]) >= 40 and logs[0] == logs[1]
    third = shared.client.judge(request, LIMIT_S)
    assert third["cached_from"] == first["id"]


def test_the_reward_is_that_of_the_request(shared: service.Daemon) -> None:
    request = body("timing=1.3")
    first = shared.client.judge(request, LIMIT_S)
    second = shared.client.judge(request | {"reward": "best_of_n"}, LIMIT_S)
    assert second["cache"] == "hit"
    assert first["reward"] == pytest.approx(0.7 + 0.3 * 1.3 / 2, rel=1e-3)
    assert second["reward"] == pytest.approx(1 + 0.3 * 1.3, rel=1e-3)
    assert second["reward_spec"]["kind"] == "best_of_n"
    listed = shared.client.expect("GET", "/v1/submissions?limit=1")["items"][0]
    assert (listed["id"], listed["reward"]) == (second["id"], pytest.approx(second["reward"]))


@pytest.mark.parametrize(
    "more",
    [
        {"until": "full"},
        {"policy": "kernelbench"},
        {"client": "another"},
        {"entry_point": "Other"},
        {"cache": False},
        {"task": "other"},
    ],
    ids=str,
)
def test_what_differs_is_judged(shared: service.Daemon, more: dict[str, object]) -> None:
    shared.client.add_task({"name": "other", "reference": "# script: describe=pass\n# other\n"})
    request = body("timing=1.2")
    shared.client.judge(request, LIMIT_S)
    assert shared.client.judge(request | more, LIMIT_S)["cache"] == "miss"


@pytest.mark.parametrize(
    ("script", "class_"),
    [
        ("compile=exit:7", "crash"),
        ("full=fail:oom", "oom"),
        ("full=reference", "infra"),
    ],
)
def test_what_may_be_chance_is_judged_again(shared: service.Daemon, script: str, class_: str) -> None:
    is_judged_again(shared, script, class_)


def test_a_timeout_is_judged_again(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(cache_recheck_percent=0, **HASTY)
    daemon.client.add_task(TASK)
    is_judged_again(daemon, "ast=hang", "timeout")


def is_judged_again(daemon: service.Daemon, script: str, class_: str) -> None:
    request = body(script)
    verdicts = [daemon.client.judge(request, LIMIT_S) for _ in range(2)]
    assert [(verdict["class"], verdict["cache"]) for verdict in verdicts] == [(class_, "miss")] * 2


@pytest.mark.parametrize("script", ["ast=fail:syntax", "ast=fail:policy", "compile=fail:compile", "full=fail:mismatch"])
def test_failures_of_its_own_are_known_again(shared: service.Daemon, script: str) -> None:
    request = body(script)
    first, second = (shared.client.judge(request, LIMIT_S) for _ in range(2))
    assert (second["cache"], second["class"], second["feedback"]) == ("hit", first["class"], first["feedback"])


def test_a_group_of_the_same_is_judged_once(shared: service.Daemon) -> None:
    before, counted = entered(shared.client), figures(shared.client)["joined"]
    items = [{"candidate": body("tiny=sleep:0.3,pass timing=1.4")["candidate"]}] * 6
    group = shared.client.expect("POST", "/v1/groups", {"task": "scripted", "candidates": items})
    done = shared.client.wait(str(group["id"]), LIMIT_S, "groups")
    assert sorted(item["cache"] for item in done["items"]) == ["joined"] * 5 + ["miss"]
    assert len({item["id"] for item in done["items"]}) == 6
    assert {item["reward"] for item in done["items"]} == {done["items"][0]["reward"]}
    assert entered(shared.client) == before + 1
    assert figures(shared.client)["joined"] == counted + 5


def test_an_unclear_timing_is_made_again(shared: service.Daemon) -> None:
    request = body("timing=inconclusive")
    verdicts = [shared.client.judge(request, LIMIT_S) for _ in range(2)]
    assert [(one["timing"]["outcome"], one["cache"]) for one in verdicts] == [("inconclusive", "miss")] * 2


def test_when_the_first_is_cancelled_the_next_is_judged(start_scripted: service.StartDaemon) -> None:
    """And one that follows can be cancelled without harm to the others."""
    daemon = start_scripted()
    daemon.client.add_task(TASK)
    go = daemon.directory / "go"
    request = body(f"full=until:{go},pass timing=1.2")
    ids = [daemon.client.submit(request) for _ in range(4)]
    waiting = daemon.client.expect("GET", "/v1/status")["queues"]
    assert (waiting["joined"], waiting["waiting"]) == (3, waiting["queued"]["interactive"] + 3)
    for one in (ids[0], ids[2]):
        assert daemon.client.call("DELETE", f"/v1/submissions/{one}").status == 200
    go.touch()
    verdicts = [daemon.client.wait(one, LIMIT_S) for one in ids]
    assert [one["state"] for one in verdicts] == ["cancelled", "done", "cancelled", "done"]
    assert [one["cache"] for one in verdicts if one["state"] == "done"] == ["miss", "joined"]
    assert verdicts[3]["cached_from"] == ids[1]


def test_followers_of_one_that_crashes_are_judged_one_by_one(shared: service.Daemon) -> None:
    request = body("full=sleep:0.3,crash")
    before = entered(shared.client)
    ids = [shared.client.submit(request) for _ in range(3)]
    verdicts = [shared.client.wait(one, LIMIT_S) for one in ids]
    assert [(verdict["class"], verdict["cache"]) for verdict in verdicts] == [("crash", "miss")] * 3
    assert entered(shared.client) == before + 3


def test_everything_is_known_after_a_restart(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(cache_recheck_percent=0)
    daemon.client.add_task(TASK)
    request = body("timing=1.2")
    first = daemon.client.judge(request, LIMIT_S)
    daemon.kill()
    daemon.start()
    assert daemon.client.judge(request, LIMIT_S)["cached_from"] == first["id"]


def test_all_are_judged_again_where_the_sample_is_all(start_scripted: service.StartDaemon) -> None:
    """A difference is counted: the script's candidate does as it likes the second time."""
    daemon = start_scripted(cache_recheck_percent=100)
    daemon.client.add_task(TASK)
    same, other = body("timing=1.2"), body("full=turn timing=1.2")
    for request, class_ in ((same, "ok"), (other, "mismatch")):
        assert daemon.client.judge(request, LIMIT_S)["class"] == "ok"
        again = daemon.client.judge(request, LIMIT_S)
        assert (again["cache"], again["class"]) == ("rechecked", class_)
    found = figures(daemon.client)
    assert (found["rechecked"], found["differed"]) == (2, 1)
    assert "judged again, and not as before" in daemon.log.read_text()
    metrics = daemon.client.get("/metrics").body.decode()
    assert 'verifierd_cache_answers_total{result="rechecked"} 2' in metrics
    assert "verifierd_cache_differences_total 1" in metrics


def test_the_cache_can_be_turned_off(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(cache=False)
    daemon.client.add_task(TASK)
    request = body("ast=fail:syntax")
    assert [daemon.client.judge(request, LIMIT_S)["cache"] for _ in range(2)] == ["miss", "miss"]


def test_references_make_room_for_each_other(start_scripted: service.StartDaemon) -> None:
    """No more are loaded than may be; what became of them is counted, and the verdicts are as they were."""
    client = start_scripted(references_kept=1).client
    for name in ("one", "two"):
        client.add_task({"name": name, "reference": f"# script: describe=pass\n# {name}\n"})

    def references() -> Mapping[str, int]:
        (referee,) = (one for one in client.get("/v1/status").json()["workers"] if one["kind"] == "referee")
        found: dict[str, int] = referee["references"]
        return found

    assert references() == {"kept": 1, "most": 1, "hits": 0, "loads": 2, "evicted": 1, "recalled": 0}
    for name in ("one", "one", "two", "two"):
        assert client.judge(body("timing=1.2", task=name), LIMIT_S)["class"] == "ok"
        assert references()["kept"] == 1
    assert references() == {"kept": 1, "most": 1, "hits": 2, "loads": 4, "evicted": 3, "recalled": 0}
    metrics = client.get("/metrics").body.decode()
    assert 'verifierd_reference_evicted_total{device="cpu"} 3\n' in metrics
    assert "verifierd_known_tasks 2\n" in metrics


def test_known_verdicts_end_though_the_daemon_looks_for_work(shared: service.Daemon) -> None:
    """Each second it claims what waits in the store, which may be one whose known verdict is being written."""
    group = {"task": "scripted", "candidates": [{"candidate": f"# script: \n# known {i}\n"} for i in range(16)]}
    shared.client.wait(shared.client.expect("POST", "/v1/groups", group)["id"], LIMIT_S, "groups")
    until = time.monotonic() + 6
    posted = []
    while time.monotonic() < until:
        posted.append(shared.client.expect("POST", "/v1/groups", group)["id"])
    for one in posted:
        items = shared.client.wait(one, 10, "groups")["items"]
        assert {(item["state"], item["cache"]) for item in items} == {("done", "hit")}
