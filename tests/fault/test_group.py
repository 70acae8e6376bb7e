"""Groups that have only their best timed, and groups that end at a time."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
import service
from scripted import SCRIPTED, TASK

LIMIT_S = 60.0
WHY = "it is not among the best of its group"


@pytest.fixture(scope="module")
def shared() -> Iterator[service.Daemon]:
    with service.directory() as directory, service.Daemon(directory, SCRIPTED) as daemon:
        daemon.client.add_task(TASK)
        yield daemon


def post(client: service.Client, scripts: Sequence[str], **more: object) -> str:
    mark = time.monotonic_ns()
    items = [{"candidate": f"# script: {script}\n# {mark}\n"} for script in scripts]
    return str(client.expect("POST", "/v1/groups", {"task": "scripted", "candidates": items, **more})["id"])


def outcomes(group: service.Json) -> list[str]:
    """How the timing went, for each that is right; the class of the others."""
    return [
        item["timing"]["outcome"] if item["class"] == "ok" else str(item["class"] or item["state"])
        for item in group["items"]
    ]


def test_the_shortest_calls_are_timed(shared: service.Daemon) -> None:
    scripts = ["full=rough:3", "full=rough:1", "ast=fail:syntax", "full=rough:2", "full=fail:mismatch", "full=rough:9"]
    group = shared.client.wait(post(shared.client, scripts, time_top_k=2), LIMIT_S, "groups")
    assert outcomes(group) == ["skipped", "measured", "syntax", "measured", "mismatch", "skipped"]
    assert group["time_top_k"] == 2
    left = group["items"][0]
    assert (left["timing"]["why"], left["passed_stage"], left["failed_at"]) == (WHY, "full", None)
    assert left["stages"][-1]["why"] == WHY
    assert WHY in left["feedback"]["text"]
    assert left["reward"] == pytest.approx(0.7)
    assert left["attempts"] == 1
    assert len(group["ranking"]) == len(scripts)


def test_another_reward_knows_no_rank_before_the_group_is_finished(start_scripted: service.StartDaemon) -> None:
    client = start_scripted(cpu_jobs=1).client
    client.add_task(TASK)
    group = post(client, ["timing=1.5", "timing=3", "ast=hang"])
    for item in client.expect("GET", f"/v1/groups/{group}")["items"][:2]:
        client.wait(item["id"], LIMIT_S)

    def scored() -> list[object]:
        items = client.expect("POST", "/v1/rescore", {"reward": {"kind": "rank"}, "group": group})["items"]
        return [item[key] for item in items[:2] for key in ("reward", "rank")]

    assert scored() == [None] * 4
    assert client.call("DELETE", f"/v1/groups/{group}").status in (200, 202)
    client.wait(group, LIMIT_S, "groups")
    assert None not in scored()


def test_a_rank_is_in_no_sum_of_rewards(start_scripted: service.StartDaemon) -> None:
    """Only a cheat has its reward before the group is finished: its own value would be the mean of them all."""
    client = start_scripted(cpu_jobs=1).client
    client.add_task(TASK)
    cheat = "full=fail:hack:idle_kernels"
    scripts = [cheat, cheat, "timing=1.5", "timing=3"]  # of the two that are identical one is judged
    told = {"reward": {"kind": "rank", "hack_value": -1}, "metadata": {"run": "ranked", "step": 1}}
    group = client.wait(post(client, scripts, **told), LIMIT_S, "groups")
    assert [item["class"] for item in group["items"]] == ["hack", "hack", "ok", "ok"]
    assert [item["reward"] for item in group["items"]][:2] == [-1, -1] and group["items"][3]["reward"] > 0
    summed = client.expect("GET", "/v1/runs/ranked")
    assert (summed["n"], summed["hack"], summed["reward"]) == (4, 0.5, None)
    assert [step["reward"] for step in summed["steps"]] == [None]
    (listed,) = client.expect("GET", "/v1/groups")["items"]
    assert (listed["id"], listed["reward"]) == (group["id"], None)
    (leader,) = client.expect("GET", "/v1/leaderboard")["items"]
    assert leader["reward"] is None and leader["speedup"] == pytest.approx(3, rel=1e-3)
    trends = client.expect("GET", "/v1/trends")["steps"]
    assert sum(step["n"] for step in trends) == 4 and {step["reward"] for step in trends} <= {None}


def test_who_is_not_timed_is_counted_as_skipped(start_scripted: service.StartDaemon) -> None:
    """By /v1/status and by /v1/stats alike."""
    client = start_scripted().client
    client.add_task(TASK)
    client.wait(post(client, ["timing=1", "timing=2", "timing=3"], time_top_k=1), LIMIT_S, "groups")
    since_start = client.expect("GET", "/v1/status")["counts"]["stages"]["timing"]
    summed = client.expect("GET", "/v1/stats")["stages"][-1]
    for told in (since_start, summed):
        assert (told["pass"], told["skip"]) == (1, 2)


def test_without_a_clock_the_order_decides(shared: service.Daemon) -> None:
    group = shared.client.wait(
        post(shared.client, ["timing=1.5"] * 0 + ["full=sleep:0.2,pass", "timing=2", "timing=3"], time_top_k=1),
        LIMIT_S,
        "groups",
    )
    assert outcomes(group) == ["measured", "skipped", "skipped"]


def test_fewer_than_asked_for_are_all_timed(shared: service.Daemon) -> None:
    group = shared.client.wait(post(shared.client, ["timing=2", "ast=fail:syntax"], time_top_k=5), LIMIT_S, "groups")
    assert outcomes(group) == ["measured", "syntax"]


def test_identical_ones_share_what_was_chosen(shared: service.Daemon) -> None:
    """Those that follow another of the group are not waited for, and get what that one gets, timed or not."""
    scripts = ["full=rough:2", "full=rough:2", "full=rough:1", "full=rough:1"]
    group = shared.client.wait(post(shared.client, scripts, time_top_k=1), LIMIT_S, "groups")
    assert outcomes(group) == ["skipped", "skipped", "measured", "measured"]
    assert [item["cache"] for item in group["items"]] == ["miss", "joined", "miss", "joined"]


def test_who_was_passed_over_is_no_answer_for_others(shared: service.Daemon) -> None:
    group = shared.client.wait(post(shared.client, ["full=rough:2", "full=rough:1"], time_top_k=1), LIMIT_S, "groups")
    for item, cache in zip(group["items"], ("miss", "hit"), strict=True):
        text = shared.client.get(f"/v1/submissions/{item['id']}/source").body.decode()
        again = shared.client.judge({"task": "scripted", "candidate": text}, LIMIT_S)
        assert (again["timing"]["outcome"], again["cache"]) == ("measured", cache)


def test_the_next_is_chosen_when_one_crashes(shared: service.Daemon) -> None:
    """Two groups of the same candidates, at the same time, do not wait for each other."""
    scripts = ["full=rough:1", "timing=crash", "full=rough:3"]
    ids = [post(shared.client, scripts, time_top_k=2) for _ in range(2)]
    for one in ids:
        assert outcomes(shared.client.wait(one, LIMIT_S, "groups")) == ["measured", "skipped", "measured"]


def wait_until_parked(client: service.Client, group: str) -> str:
    """Its first is through with `full`; its id."""
    first = str(client.expect("GET", f"/v1/groups/{group}")["items"][0]["id"])
    deadline = time.monotonic() + LIMIT_S
    while not any(stage["stage"] == "full" for stage in client.expect("GET", f"/v1/submissions/{first}")["stages"]):
        assert time.monotonic() < deadline
    return first


def test_one_that_waits_for_the_choice_can_be_cancelled(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(cpu_jobs=1)
    daemon.client.add_task(TASK)
    one = post(daemon.client, ["full=rough:1", "full=hang"], time_top_k=1)
    first = wait_until_parked(daemon.client, one)
    assert daemon.client.call("DELETE", f"/v1/submissions/{first}").status == 200
    assert daemon.client.wait(first, LIMIT_S)["state"] == "cancelled"
    assert daemon.client.call("DELETE", f"/v1/groups/{one}").status == 200
    assert outcomes(daemon.client.wait(one, LIMIT_S, "groups")) == ["cancelled", "cancelled"]


def test_a_deadline_ends_the_group(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(cpu_jobs=1)
    daemon.client.add_task(TASK)
    one = post(daemon.client, ["ast=fail:syntax", "compile=hang", "timing=1", "timing=2"], deadline_s=6)
    group = daemon.client.wait(one, LIMIT_S, "groups")
    assert (group["state"], group["deadline_s"]) == ("done", 6)
    assert outcomes(group) == ["syntax", "cancelled", "cancelled", "cancelled"]
    assert group["items"][1]["feedback"]["text"] == "Cancelled: its group's deadline had passed."
    assert daemon.client.judge({"task": "scripted", "candidate": "# script: timing=1.2\n"}, LIMIT_S)["class"] == "ok"


def test_a_deadline_holds_over_a_restart(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(paused=True, ready=False)
    task = daemon.client.submit({"reference": TASK["reference"], "candidate": "# script: ast=fail:syntax\n"})
    task = daemon.client.get(f"/v1/submissions/{task}").json()["task"]
    items = [{"candidate": f"# script: timing={n}\n"} for n in (1, 2)]
    body = {"task": task, "candidates": items, "deadline_s": 2, "time_top_k": 1}
    one = str(daemon.client.expect("POST", "/v1/groups", body)["id"])
    daemon.kill()
    daemon.start(ready=False)
    group = daemon.client.wait(one, LIMIT_S, "groups")
    assert (group["state"], outcomes(group)) == ("cancelled", ["cancelled", "cancelled"])


def reasons(group: service.Json) -> list[object]:
    return [item["cancel_reason"] for item in group["items"]]


def test_a_group_that_is_decided_cancels_the_rest(start_scripted: service.StartDaemon) -> None:
    """Wherever it is: hanging in a stage, or in the queue. It has no verdict, and no reward: null, not 0."""
    daemon = start_scripted(cpu_jobs=1)
    daemon.client.add_task(TASK)
    one = post(daemon.client, ["ast=fail:syntax", "timing=1.5", "compile=hang", "timing=3"], stop={"correct": 1})
    group = daemon.client.wait(one, LIMIT_S, "groups")
    assert (group["state"], group["stop"]) == ("done", {"correct": 1})
    assert outcomes(group) == ["syntax", "measured", "cancelled", "cancelled"]
    assert reasons(group) == [None, None, "group_decided", "group_decided"]
    for item in group["items"][2:]:
        assert (item["state"], item["class"], item["reward"]) == ("cancelled", None, None)
        assert item["feedback"] == {"class": None, "text": "Cancelled: its group was decided without it."}
    assert group["ranking"] == [1, 0]
    assert daemon.client.judge({"task": "scripted", "candidate": "# script: timing=1.2\n"}, LIMIT_S)["class"] == "ok"


def test_enough_that_are_right_are_enough_to_choose_from(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(cpu_jobs=1)
    daemon.client.add_task(TASK)
    scripts = ["full=rough:2", "full=fail:mismatch", "full=rough:1", "compile=hang", "timing=3"]
    one = post(daemon.client, scripts, stop={"correct": 2}, time_top_k=1)
    group = daemon.client.wait(one, LIMIT_S, "groups")
    assert outcomes(group) == ["skipped", "mismatch", "measured", "cancelled", "cancelled"]
    assert reasons(group) == [None, None, None, "group_decided", "group_decided"]


def test_a_stored_verdict_decides_too(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(cpu_jobs=1)
    daemon.client.add_task(TASK)
    known = {"candidate": "# script: timing=1.5\n"}
    assert daemon.client.judge({"task": "scripted", "priority": "batch", **known}, LIMIT_S)["class"] == "ok"
    items = [{"candidate": "# script: compile=hang\n"}, {"candidate": "# script: timing=2\n"}, known]
    body = {"task": "scripted", "candidates": items, "stop": {"correct": 1}}
    group = daemon.client.wait(str(daemon.client.expect("POST", "/v1/groups", body)["id"]), LIMIT_S, "groups")
    assert group["items"][2]["cache"] == "hit"
    assert reasons(group) == ["group_decided", "group_decided", None]


def forget_the_end(daemon: service.Daemon, group: str) -> None:
    """The store as the kill would have left it a moment earlier: of the cancelled only the first is."""
    with closing(sqlite3.connect(daemon.directory / "store.db")) as db, db:
        db.execute(
            "UPDATE submission SET state = 1, verdict = NULL, stage = NULL, finished_ms = 0"
            " WHERE group_id = ? AND group_index > 1",
            (group,),
        )


def test_a_decision_survives_a_kill(start_scripted: service.StartDaemon) -> None:
    """What decides is durable, and the rest would hang for ever: whatever of its end was stored by then, it ends."""
    daemon = start_scripted(cpu_jobs=2)
    daemon.client.add_task(TASK)
    for n in range(4):
        one = post(daemon.client, ["timing=1.5", *["compile=hang"] * (4 + n)], stop={"correct": 1})
        first = str(daemon.client.expect("GET", f"/v1/groups/{one}")["items"][0]["id"])
        verdict = daemon.client.wait(first, LIMIT_S)
        daemon.kill()
        if n > 1:
            forget_the_end(daemon, one)
        daemon.start()
        group = daemon.client.wait(one, LIMIT_S, "groups")
        assert [group["items"][0][key] for key in ("id", "finished")] == [verdict[key] for key in ("id", "finished")]
        assert group["items"][0]["reward"] == pytest.approx(verdict["reward"])
        assert outcomes(group) == ["measured", *["cancelled"] * (4 + n)]
        assert reasons(group) == [None, *["group_decided"] * (4 + n)]
    daemon.kill()
    daemon.start()
    assert daemon.client.expect("GET", f"/v1/groups/{one}") == group


def test_who_cancels_is_told(shared: service.Daemon) -> None:
    one = post(shared.client, ["tiny=hang", "timing=2"])
    items = shared.client.expect("GET", f"/v1/groups/{one}")["items"]
    assert shared.client.call("DELETE", f"/v1/submissions/{items[0]['id']}").status == 200
    assert reasons(shared.client.wait(one, LIMIT_S, "groups")) == ["asked", None]


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"stop": {}}, "/stop/correct"),
        ({"stop": {"correct": 0}}, "/stop/correct"),
        ({"stop": {"correct": 257}}, "/stop/correct"),
        ({"stop": {"correct": 1, "best": 2}}, "/stop/best"),
        ({"stop": {"correct": 1}, "until": "tiny"}, "/stop"),
    ],
    ids=str,
)
def test_a_stop_that_cannot_be(shared: service.Daemon, more: dict[str, object], pointer: str) -> None:
    answer = shared.client.post("/v1/groups", {"task": "scripted", "candidates": [{"candidate": "# x\n"}], **more})
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (400, pointer)


def test_a_choice_survives_a_stop(start_scripted: service.StartDaemon) -> None:
    """Those that wait for the choice go back to the queue when the daemon stops, at no cost of an attempt."""
    daemon = start_scripted(drain_ms=0, cpu_jobs=1)
    daemon.client.add_task(TASK)
    one = post(daemon.client, ["full=rough:1", "tiny=sleep:3,pass full=rough:2"], time_top_k=1)
    wait_until_parked(daemon.client, one)
    assert daemon.stop() == 0
    daemon.start()
    group = daemon.client.wait(one, LIMIT_S, "groups")
    assert outcomes(group) == ["measured", "skipped"]
    assert [item["attempts"] for item in group["items"]] == [1, 1]


@pytest.mark.parametrize(
    "more", [{"time_top_k": 0}, {"time_top_k": 257}, {"deadline_s": 0}, {"deadline_s": 1e9}], ids=str
)
def test_out_of_range(shared: service.Daemon, more: dict[str, object]) -> None:
    items = [{"candidate": "# x\n"}]
    answer = shared.client.post("/v1/groups", {"task": "scripted", "candidates": items, **more})
    assert answer.status == 400
    assert answer.json()["errors"][0]["pointer"] == f"/{next(iter(more))}"


def test_what_another_process_runs_is_told_as_the_store_has_it(start_scripted: service.StartDaemon) -> None:
    """One that is not in memory and has no verdict is what its row says, alone and in its group."""
    daemon = start_scripted(cpu_jobs=1)
    client = daemon.client
    client.add_task(TASK)
    held = client.submit({"task": "scripted", "candidate": "# script: ast=hang\n"})
    service.wait_for(lambda: client.expect("GET", f"/v1/submissions/{held}")["stage"] == "ast")
    group = client.expect("POST", "/v1/groups", {"task": "scripted", "candidates": [{"candidate": "# one\n"}]})
    (item,) = group["items"]
    copy = str(item["id"])[:-4] + "0000"
    with closing(sqlite3.connect(daemon.directory / "store.db")) as db, db:
        columns = [name for _, name, *_ in db.execute("PRAGMA table_info(submission)") if name not in ("id", "state")]
        kept = ", ".join("9" if name == "group_index" else name for name in columns)
        made = (
            f"INSERT INTO submission (id, state, {', '.join(columns)}) SELECT ?, 1, {kept} FROM submission WHERE id = ?"
        )
        db.execute(made, (copy, item["id"]))
        db.execute("UPDATE submission_group SET size = 2")
    assert client.expect("GET", f"/v1/submissions/{copy}")["state"] == "running"
    shown = client.expect("GET", f"/v1/groups/{group['id']}")
    assert [one["state"] for one in shown["items"]] == ["queued", "running"]
