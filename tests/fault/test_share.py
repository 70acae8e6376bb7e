"""Several submissions on one device: side by side in tiny and full, alone while one is timed, as far as memory goes."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import service
from scripted import TASK

LIMIT_S = 120.0
GPU_BYTES = 100 << 30
WAITED_S = 0.3
ALONE = ("timing", "canary", "register")

Span = tuple[str, str, int, int]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], list[Span]]:
    """What the referees did: (which of them and for which job, what, from, to), by when it began."""
    log = tmp_path / "turns"
    log.touch()
    monkeypatch.setenv("SCRIPT_TURNS", str(log))
    monkeypatch.setenv("SCRIPT_GPU_BYTES", str(GPU_BYTES))

    def read() -> list[Span]:
        found = [json.loads(line) for line in log.read_text().splitlines()]
        return sorted(((x["who"], x["what"], x["began_ns"], x["ended_ns"]) for x in found), key=lambda span: span[2])

    return read


@dataclass
class Gate:
    """Where some candidates wait for each other, however late each of them comes there."""

    place: Path
    comers: int = 0

    def steps(self) -> str:
        """Of one who comes: it is here, and waits until the gate is open."""
        self.comers += 1
        return f"touch:{self.place}/{self.comers},until:{self.place}/open"

    def open(self) -> None:
        """As soon as all are there."""
        deadline = time.monotonic() + LIMIT_S
        while sum(1 for _ in self.place.iterdir()) < self.comers:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        (self.place / "open").touch()


@pytest.fixture
def gate() -> Iterator[Gate]:
    with service.directory() as place:
        place.chmod(0o777)  # the children are other users
        yield Gate(place)


def meet(a: Span, b: Span) -> bool:
    return a[2] < b[3] and b[2] < a[3]


def meetings(spans: list[Span], what: str, other: str) -> int:
    return sum(
        meet(a, b) for a, b in itertools.combinations(spans, 2) if (a[1], b[1]) in ((what, other), (other, what))
    )


def assert_alone(spans: list[Span]) -> None:
    for a, b in itertools.combinations(spans, 2):
        if a[1] in ALONE or b[1] in ALONE:
            assert not meet(a, b), (a, b)


def post(client: service.Client, script: str, n: int = 1, **more: object) -> list[str]:
    return [
        client.submit({"task": "scripted", "candidate": f"# script: {script}\n# {at}\n", "cache": False, **more})
        for at in range(n)
    ]


def wait_for_stage(client: service.Client, one: str, stage: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while client.get(f"/v1/submissions/{one}").json()["stage"] != stage:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start_shared(start: service.StartDaemon, lanes: int, reference: str = "", **options: object) -> service.Client:
    """With all lanes at rest, and the task registered."""
    client = start(device_jobs=lanes, **options).client
    client.add_task({**TASK, "reference": f"# script: describe=pass {reference}\n"})
    deadline = time.monotonic() + LIMIT_S
    while {worker["lane"] for worker in referees(client)} != {"idle"}:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return client


def referees(client: service.Client) -> list[service.Json]:
    return [worker for worker in client.get("/v1/status").json()["workers"] if worker["kind"] == "referee"]


def test_tiny_is_shared_and_timing_is_not(
    start_scripted: service.StartDaemon, turns: Callable[[], list[Span]], gate: Gate
) -> None:
    client = start_shared(start_scripted, 3)
    timed = post(client, f"full={gate.steps()},pass timing=sleep:0.1,1.5")
    timed += post(client, f"tiny={gate.steps()},pass timing=sleep:0.1,1.5")
    wrong = post(client, f"tiny={gate.steps()},fail:mismatch")
    timed += post(client, "tiny=sleep:0.2,pass full=sleep:0.1,pass timing=sleep:0.1,1.5", 4)
    wrong += post(client, "tiny=sleep:0.2,fail:mismatch", 5)
    gate.open()
    for one in timed:
        verdict = client.wait(one, LIMIT_S)
        assert (verdict["class"], verdict["timing"]["outcome"]) == ("ok", "measured")
    for one in wrong:
        assert client.wait(one, LIMIT_S)["class"] == "mismatch"
    spans = turns()
    assert_alone(spans)
    assert meetings(spans, "tiny", "tiny") >= 1 and meetings(spans, "tiny", "full") >= 2
    assert len({who.split()[0] for who, what, _, _ in spans if what == "tiny"}) == 3
    metrics = client.get("/metrics").body.decode()
    assert [f'verifierd_references{{device="{name}"}}' in metrics for name in ("cpu", "cpu/2", "cpu/3")] == [True] * 3
    status = client.get("/v1/status").json()
    assert len(status["gpus"]) == 1, "lanes of one device are one GPU"
    stats = client.get("/v1/stats").json()
    assert (stats["devices"], stats["lanes"]) == (1, 3)
    assert len({worker["name"] for worker in status["workers"]}) == len(status["workers"])


def test_time_waited_for_a_turn_is_no_work(
    start_scripted: service.StartDaemon, turns: Callable[[], list[Span]]
) -> None:
    """What a stage waited for its turn is told as such, and is no time that the device was used."""
    client = start_shared(start_scripted, 2)
    (holder,) = post(client, "timing=hang")
    wait_for_stage(client, holder, "timing")
    begun = time.monotonic()
    (waits,) = post(client, "tiny=fail:mismatch")
    wait_for_stage(client, waits, "tiny")
    time.sleep(WAITED_S)
    client.call("DELETE", f"/v1/submissions/{holder}")
    tiny = client.wait(waits, LIMIT_S)["stages"][2]
    took_ms = 1000 * (time.monotonic() - begun)
    assert tiny["wait_ms"] >= 1000 * WAITED_S
    assert tiny["run_ms"] <= took_ms - 1000 * WAITED_S
    assert_alone(turns())


def lives(spans: list[Span]) -> list[Span]:
    """Of each job: from the beginning of its first stage to the end of its last."""
    found: dict[str, Span] = {}
    for who, what, began_ns, ended_ns in spans:
        if what in ("open", "tiny", "full", "timing"):
            found[who] = (who, "life", found[who][2] if who in found else began_ns, ended_ns)
    return list(found.values())


def test_memory_is_never_promised_twice(start_scripted: service.StartDaemon, turns: Callable[[], list[Span]]) -> None:
    """Jobs that have no room beside each other come one after the other, whether or not they would fit alone."""
    client = start_shared(start_scripted, 3, pool=2)
    client.add_task({"name": "large", "reference": f"# script: describe=pass size={40 << 30}\n"})
    client.add_task({"name": "huge", "reference": f"# script: describe=pass size={200 << 30}\n"})
    ids = [
        client.submit(
            {
                "task": name,
                "candidate": f"# script: open=sleep:0.1,pass tiny=sleep:0.1,pass timing=1.5\n# {name} {at}\n",
            }
        )
        for at in range(3)
        for name in ("large", "huge")
    ]
    for one in ids:
        assert client.wait(one, LIMIT_S)["class"] == "ok"
    spans = turns()
    assert len(lives(spans)) == len(ids)
    assert meetings(lives(spans), "life", "life") == 0
    assert_alone(spans)
    evicted = sum(worker["references"]["evicted"] for worker in referees(client))
    assert evicted >= 1, "references give way to what has no room beside them"


def test_small_jobs_go_side_by_side(
    start_scripted: service.StartDaemon, turns: Callable[[], list[Span]], gate: Gate
) -> None:
    client = start_shared(start_scripted, 3, f"size={10 << 30}", pool=2)
    ids = [one for _ in range(3) for one in post(client, f"tiny={gate.steps()},pass full=pass timing=1.5")]
    gate.open()
    for one in ids:
        assert client.wait(one, LIMIT_S)["class"] == "ok"
    assert meetings(lives(turns()), "life", "life") == 3
    assert_alone(turns())


def test_one_that_is_cancelled_gives_way(start_scripted: service.StartDaemon, turns: Callable[[], list[Span]]) -> None:
    """Cancelled at work, or while it waits to be alone, it leaves its turn and its place to others."""
    client = start_shared(start_scripted, 2, f"size={10 << 30}")
    (busy,) = post(client, "full=hang")
    wait_for_stage(client, busy, "full")  # first: two that compile side by side may change places
    (waits,) = post(client, "timing=1.5")
    wait_for_stage(client, waits, "timing")
    for one in (waits, busy):
        client.call("DELETE", f"/v1/submissions/{one}")
        verdict = client.wait(one, LIMIT_S)
        assert verdict["state"] == "cancelled", verdict
    assert "timing" not in {what for _, what, _, _ in turns()}
    for one in post(client, "tiny=pass full=pass timing=1.2", 4):
        assert client.wait(one, LIMIT_S)["class"] == "ok"
    assert_alone(turns())


def test_a_lane_that_goes_down_leaves_the_others_at_work(
    start_scripted: service.StartDaemon, turns: Callable[[], list[Span]]
) -> None:
    client = start_shared(start_scripted, 3, max_attempts=2)
    bad = post(client, "tiny=kill_referee", 1)
    good = post(client, "tiny=sleep:0.1,pass full=pass timing=1.5", 6)
    for one in good:
        assert client.wait(one, LIMIT_S)["class"] == "ok"
    assert client.wait(bad[0], LIMIT_S)["class"] in ("crash", "infra")
    assert_alone(turns())


def test_a_sick_device_is_quarantined_whole(
    start_scripted: service.StartDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The lane that finds it has the others look, too."""
    flag = tmp_path / "sick"
    monkeypatch.setenv("SCRIPT_CANARY_FAILS", str(flag))
    client = start_shared(start_scripted, 2)
    flag.touch()
    post(client, "tiny=crash")
    deadline = time.monotonic() + LIMIT_S
    while {worker["lane"] for worker in referees(client)} != {"quarantined"}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert client.get("/readyz").status == 503


def test_a_timeout_beside_others_is_judged_again_alone(
    start_scripted: service.StartDaemon, turns: Callable[[], list[Span]]
) -> None:
    """Neighbours are not known to be at fault, and are not known not to be: only what it does alone counts."""
    client = start_shared(start_scripted, 2, tiny_limit_ms=1000)
    (beside,) = post(client, "full=hang")
    wait_for_stage(client, beside, "full")
    (late,) = post(client, "tiny=hang")
    wait_for_stage(client, late, "tiny")
    deadline = time.monotonic() + LIMIT_S
    while client.get(f"/v1/submissions/{late}").json()["state"] != "queued":  # then it waits for the other to end
        assert time.monotonic() < deadline
        time.sleep(0.02)
    client.call("DELETE", f"/v1/submissions/{beside}")
    found = client.wait(late, LIMIT_S)
    assert found["class"] == "timeout"
    assert found["rerun"]["class"] == "timeout" and found["rerun"]["alone"] is True
    assert "at the same time" in found["rerun"]["why"]
    assert_alone(turns())


def test_background_work_is_pinned_on_nobody_who_was_not_alone(
    start_scripted: service.StartDaemon, turns: Callable[[], list[Span]]
) -> None:
    """GPU work while no call is due may be that of a neighbour who is frozen meanwhile."""
    client = start_shared(start_scripted, 2)
    with service.directory() as place:
        place.chmod(0o755)  # the children are other users
        flag = place / "go"
        (other,) = post(client, f"full=until:{flag},pass timing=1.5")
        wait_for_stage(client, other, "full")
        (hack,) = post(client, "timing=fail:hack:background_work")
        wait_for_stage(client, hack, "timing")  # it waits to be alone; then the other does, and has its place
        flag.touch()
        found, beside = client.wait(hack, LIMIT_S), client.wait(other, LIMIT_S)
    assert (found["class"], found["rule"], beside["class"]) == ("hack", "background_work", "ok")
    assert found["rerun"]["class"] == "hack" and found["rerun"]["alone"] is True
    assert beside["rerun"] is None
    assert_alone(turns())


def test_work_that_a_neighbour_did_is_nobodys_hack_where_one_lane_is(start_scripted: service.StartDaemon) -> None:
    """It is found again when the submission is alone, or it does not count."""
    client = start_shared(start_scripted, 1)
    (honest,) = post(client, "timing=background")
    found = client.wait(honest, LIMIT_S)
    assert (found["class"], found["timing"]["outcome"]) == ("ok", "measured")
    assert (found["rerun"]["class"], found["rerun"]["alone"]) == ("hack", True)


def test_background_work_that_is_not_looked_for_again_is_infra(
    start_scripted: service.StartDaemon, turns: Callable[[], list[Span]]
) -> None:
    """There is a share of the time for looking again, enough for six at once; the others are not convicted."""
    client = start_shared(start_scripted, 8)
    with service.directory() as place:
        place.chmod(0o755)
        ids = post(client, f"full=until:{place}/go timing=fail:hack:background_work", 8)
        for one in ids:
            wait_for_stage(client, one, "full")
        (place / "go").touch()
        verdicts = [client.wait(one, LIMIT_S) for one in ids]
    assert_alone(turns())
    alone = [one for one in verdicts if one["rerun"]["alone"]]
    assert {(one["class"], one["rule"]) for one in alone} == {("hack", "background_work")}
    others = [one for one in verdicts if not one["rerun"]["alone"]]
    assert others, "all were looked for again"
    assert {(one["class"], one["rule"], one["reward"]) for one in others} == {("infra", None, None)}


def test_a_submission_goes_where_its_reference_is(start_scripted: service.StartDaemon) -> None:
    """Two tasks, two lanes that keep one reference each, and a queue in pairs: each lane stays with its task."""
    client = start_shared(start_scripted, 2, references_kept=1)
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
    deadline = time.monotonic() + LIMIT_S
    while sum(client.get("/v1/status").json()["queues"]["ready"].values()) < len(queued):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for one in held:
        client.call("DELETE", f"/v1/submissions/{one}")
    for one in queued:
        assert client.wait(one, LIMIT_S)["class"] == "ok"
    assert loads(client) - before <= len(queued) // 2


def loads(client: service.Client) -> int:
    return sum(worker["references"]["loads"] for worker in referees(client))
