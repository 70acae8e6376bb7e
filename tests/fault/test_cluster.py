"""Several daemons on one PostgreSQL are one service: any of them answers, and a dead one's work is done elsewhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import service

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "deploy"))

from demo_cluster import TASK, Cluster, Database, History, Node, collect, post_all

TAKEOVER_S = 60.0  # the lease is of 15 s, and a loaded machine adds its own; the demo tells the figure


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with service.directory() as directory:
        found = Cluster(directory)
        try:
            yield found
        finally:
            found.close()


def post(node: Node, path: str, **body: object) -> service.Json:
    status, document = node.call("POST", path, {"task": "scripted", **body})
    assert status == 202, document
    return document


def candidate(mark: str, script: str = "compile=sleep:0.3,pass timing=1.3") -> str:
    return f"# script: {script}\n# {mark}\n"


def test_any_node_answers_for_what_another_accepted(cluster: Cluster) -> None:
    """A submission and a group, waited for where nobody had heard of them, and taken up by whoever is free."""
    a, b, c = cluster.nodes.values()
    one = str(post(a, "/v1/submissions", candidate=candidate("one"))["id"])
    assert c.call("GET", f"/v1/submissions/{one}?wait=60")[1]["class"] == "ok"
    items = [{"candidate": candidate(str(number))} for number in range(12)]
    group = str(post(a, "/v1/groups", candidates=items)["id"])
    events = service.Client(b.url).events(f"/v1/groups/{group}/events")
    document = c.call("GET", f"/v1/groups/{group}?wait=60")[1]
    assert (document["state"], {item["class"] for item in document["items"]}) == ("done", {"ok"})
    ids = sorted(str(item["id"]) for item in document["items"])
    assert sorted(str(event.data["id"]) for event in events if event.kind == "verdict") == ids
    shared = [json.loads(line) for node in (b, c) for line in node.log.read_text().splitlines() if line[:1] == "{"]
    assert any("taken up from the store" in str(line.get("message", line)) for line in shared)


def test_what_one_node_stored_counts_on_all_of_them(cluster: Cluster) -> None:
    """A key that has made something, a verdict for identical candidates, an export, another reward."""
    a, b, c = cluster.nodes.values()
    body = {"task": "scripted", "candidate": candidate("one")}
    key = {"Idempotency-Key": "k"}
    keyed = [service.Client(node.url).call("POST", "/v1/submissions", body, key) for node in (a, b)]
    one = keyed[0].json()["id"]
    assert (keyed[1].json()["id"], keyed[1].headers["Idempotency-Replayed"]) == (one, "true")
    verdict = c.call("GET", f"/v1/submissions/{one}?wait=60")[1]
    status, again = c.call("POST", "/v1/rescore", {"submissions": [one], "reward": {"kind": "staged"}})
    assert (status, again["items"][0]["id"]) == (200, one), again
    exported = service.Client(b.url).get(f"/v1/export?task={verdict['task']}")
    assert [json.loads(line)["id"] for line in exported.body.splitlines()] == [one]
    for node in (a, b, c):  # they keep no verdicts, and would take what waits while the two start
        node.stop()
    caches = [Node(name, a.log.parent, cluster.database.url, ["--cache=true"]) for name in ("d", "e")]
    try:
        body["candidate"] = candidate("two")
        posted = [service.Client(node.url) for node in caches]
        first = posted[0].wait(posted[0].submit(body), 60)
        assert posted[1].wait(posted[1].submit(body), 60)["cached_from"] == first["id"]
    finally:
        for node in caches:
            node.stop()


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[tuple[Node, Node]]:
    """Two nodes in place of the three, with quotas and stored verdicts."""
    for node in cluster.nodes.values():
        node.stop()
    quotas = "--quotas=two:running=2 slow:rate=4 *:running=64"
    directory = next(iter(cluster.nodes.values())).log.parent
    found = (
        Node("d", directory, cluster.database.url, ["--cache=true", quotas, "--cpu-jobs=4"]),
        Node("e", directory, cluster.database.url, ["--cache=true", quotas, "--cpu-jobs=4"]),
    )
    try:
        for node in found:
            node.wait_ready()
        yield found
    finally:
        for node in found:
            node.stop()


def test_identical_candidates_at_two_nodes_are_judged_once(pair: tuple[Node, Node]) -> None:
    """Both are posted before either has ended; the later one waits, and gets the verdict of the other."""
    body = {"candidate": candidate("same", "compile=sleep:2,pass timing=1.3")}
    ids = [str(post(node, "/v1/submissions", **body)["id"]) for node in pair]
    verdicts = [node.call("GET", f"/v1/submissions/{one}?wait=60")[1] for node, one in zip(pair, ids, strict=True)]
    assert [verdict["class"] for verdict in verdicts] == ["ok", "ok"]
    assert sorted(str(verdict["cached_from"]) for verdict in verdicts) in ([ids[0], "None"], [ids[1], "None"])


def running(pair: tuple[Node, Node]) -> int:
    return sum(int(item["claimed"]) for item in pair[0].call("GET", "/v1/nodes")[1]["items"])


def test_quotas_hold_for_all_nodes_together(pair: tuple[Node, Node]) -> None:
    """Of a client two run, however many it posts to either; another is not kept waiting; a rate is of both."""
    gate = Path(pair[0].log.parent, "go")
    held = [
        str(
            post(node, "/v1/submissions", client="two", candidate=candidate(str(i), f"compile=until:{gate},pass"))["id"]
        )
        for i in range(4)
        for node in pair
    ]
    service.wait_for(lambda: running(pair) == 2)
    other = post(pair[1], "/v1/submissions", client="other", candidate=candidate("other"))["id"]
    assert pair[1].call("GET", f"/v1/submissions/{other}?wait=60")[1]["class"] == "ok"
    for _ in range(10):
        assert running(pair) <= 2
        time.sleep(0.1)
    gate.touch()
    for one in held:
        assert pair[0].call("GET", f"/v1/submissions/{one}?wait=60")[1]["class"] == "ok"
    for i in range(4):
        post(pair[i % 2], "/v1/submissions", client="slow", candidate=candidate(f"slow {i}"))
    for node in pair:
        status, refused = node.call(
            "POST", "/v1/submissions", {"task": "scripted", "client": "slow", "candidate": candidate("fifth")}
        )
        assert (status, refused["code"]) == (429, "quota_rate")


def test_a_group_that_waits_for_its_top_ends_though_fewer_may_run(pair: tuple[Node, Node]) -> None:
    """Two of five members may run, and those that wait to be timed do not count. Another submission is judged, too."""
    items = [{"candidate": candidate(f"top {i}", f"timing=1.{i}")} for i in range(5)]
    group = str(post(pair[0], "/v1/groups", client="two", candidates=items, time_top_k=1)["id"])
    after = str(post(pair[1], "/v1/submissions", client="two", candidate=candidate("after"))["id"])
    document = pair[1].call("GET", f"/v1/groups/{group}?wait=60")[1]
    assert (document["state"], {item["class"] for item in document["items"]}) == ("done", {"ok"}), document
    assert [item["timing"]["outcome"] for item in document["items"]].count("measured") == 1
    assert pair[1].call("GET", f"/v1/submissions/{after}?wait=60")[1]["class"] == "ok"


def test_what_a_dead_node_left_does_not_wait_for_the_queue_of_another(pair: tuple[Node, Node]) -> None:
    """The other has work for longer than it takes, all of it accepted later."""
    dead, busy = pair
    script = "compile=sleep:1,pass timing=1.3"

    def posted(node: Node, name: str, count: int) -> list[str]:
        made = [candidate(f"{name} {i}", script) for i in range(count)]
        return [str(post(node, "/v1/submissions", candidate=text)["id"]) for text in made]

    posted(busy, "before", 8)
    left = posted(dead, "left", 12)
    after = posted(busy, "after", 80)
    dead.kill()
    for one in left[-4:]:  # none of these had begun
        assert busy.call("GET", f"/v1/submissions/{one}?wait=60")[1]["class"] == "ok"
    assert busy.call("GET", f"/v1/submissions/{after[-1]}")[1]["state"] == "queued"


def seen(asked: Node, name: str) -> service.Json:
    page = asked.call("GET", "/v1/nodes")[1]
    assert page["self"] == asked.name
    return next(dict(item) for item in page["items"] if item["name"] == name)


def wait_state(asked: Node, name: str, state: str) -> service.Json:
    deadline = time.monotonic() + 60
    while (item := seen(asked, name))["state"] != state:
        assert time.monotonic() < deadline, item
        time.sleep(0.1)
    return item


def test_each_node_shows_what_all_of_them_are_doing(cluster: Cluster) -> None:
    """One works, one drains and stops, and one is killed: any node tells."""
    a, b, c = cluster.nodes.values()
    gate = Path(a.log.parent, "go")
    for name in cluster.nodes:
        item = seen(a, name)
        assert (item["state"], item["gpus"][0]["device"], item["slots"]) == ("alive", "cpu", 2), item
        assert 0 < item["lease_s"] <= 15
    held = {"a": 0, "b": 0, "c": 0}
    posted = [post(b, "/v1/submissions", candidate=candidate(str(i), f"compile=until:{gate},pass")) for i in range(4)]
    deadline = time.monotonic() + 60
    while sum(held.values()) < len(posted):
        assert time.monotonic() < deadline, held
        held = {name: int(seen(c, name)["claimed"]) for name in held}
    assert held["b"] > 0
    b.process.send_signal(signal.SIGTERM)
    wait_state(a, "b", "draining")
    gate.touch()
    item = wait_state(a, "b", "stopped")
    assert item["lease_s"] <= 0
    c.kill()
    wait_state(a, "c", "lost")


def test_a_killed_and_a_paused_node_lose_nothing_and_double_nothing(cluster: Cluster) -> None:
    """b is killed and c stopped while they work; c goes on once others have what it had, and joins again."""
    history = History()
    post_all(cluster, history, each=8, seconds=1)
    service.wait_for(lambda: cluster.held_by("b") and cluster.held_by("c"))
    b, c = cluster.nodes["b"], cluster.nodes["c"]
    b.kill()
    c.process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    held = {"b": cluster.held_by("b"), "c": cluster.held_by("c")}
    assert held["b"] and held["c"]
    for name, ids in held.items():
        cluster.wait_taken(ids, name)
    assert time.monotonic() - begun < TAKEOVER_S
    c.process.send_signal(signal.SIGCONT)
    while b"has joined again" not in c.log.read_bytes():
        assert time.monotonic() < begun + 60
        time.sleep(0.1)
    collect(cluster, history)
    history.counted = int(cluster.database.ask("SELECT sum(n) FROM verifierd.tally WHERE what = 2")[0])
    assert (len(history.acknowledged), history.lost, history.doubled) == (24, [], 0)


def test_a_paused_node_answers_and_others_judge(cluster: Cluster) -> None:
    """It takes in what it is sent, tells of it, and never claims."""
    front = Node("front", next(iter(cluster.nodes.values())).log.parent, cluster.database.url, ["--paused=true"])
    try:
        items = [{"candidate": candidate(str(number))} for number in range(12)]
        group = str(post(front, "/v1/groups", candidates=items)["id"])
        document = front.call("GET", f"/v1/groups/{group}?wait=60")[1]
        assert (document["state"], {item["class"] for item in document["items"]}) == ("done", {"ok"})
        assert b"taken up from the store" not in front.log.read_bytes()
    finally:
        front.stop()


def test_a_quota_counts_what_a_client_has_on_all_nodes() -> None:
    """What waits, and seconds of devices, on a node that neither accepted nor judged any of it."""
    with service.directory() as directory:
        database = Database(directory / "database")
        nodes: dict[str, Node] = {}

        def start(name: str, paused: str) -> Node:
            flags = [f"--paused={paused}", "--quotas=waits:queued=3 uses:gpu_s=1"]
            nodes[name] = Node(name, directory, database.url, flags)
            return nodes[name]

        def refused(node: Node, client: str) -> object:
            body = {"task": "scripted", "candidate": candidate(client), "client": client}
            return node.call("POST", "/v1/submissions", body)[1].get("code")

        try:
            judge, front = start("judge", "false"), start("front", "true")
            judge.call("POST", "/v1/tasks", TASK)
            one = post(judge, "/v1/submissions", candidate=candidate("one", "full=sleep:1.1,pass"), client="uses")
            assert judge.call("GET", f"/v1/submissions/{one['id']}?wait=60")[1]["class"] == "ok"
            assert refused(front, "uses") == "quota_gpu_seconds"
            judge.stop()
            items = [{"candidate": candidate(str(number))} for number in range(3)]
            post(front, "/v1/groups", candidates=items, client="waits")
            other = start("other", "true")
            assert (refused(other, "waits"), refused(other, "else")) == ("quota_queued", None)
        finally:
            for node in nodes.values():
                node.stop()
            database.stop()


def test_what_a_node_cannot_write_is_judged_by_another(cluster: Cluster) -> None:
    """Its one connection that writes waits and waits, and the one that renews the lease does not."""
    a, b, c = cluster.nodes.values()
    for other in (b, c):
        other.stop()
    gate = Path(a.log.parent, "go")
    one = str(post(a, "/v1/submissions", candidate=candidate("one", f"compile=until:{gate},pass"))["id"])
    service.wait_for(lambda: cluster.held_by("a"), 120)
    holder = subprocess.Popen(["psql", "-qAtX", cluster.database.url], stdin=subprocess.PIPE, text=True)
    try:
        assert holder.stdin is not None
        holder.stdin.write("BEGIN; SELECT FROM verifierd.writer FOR UPDATE;\n")
        holder.stdin.flush()
        service.wait_for(lambda: b"one write has waited" in a.log.read_bytes(), 120)
        gate.touch()
        other = Node("d", a.log.parent, cluster.database.url)
        try:
            assert other.call("GET", f"/v1/submissions/{one}?wait=60")[1]["class"] == "ok"
        finally:
            other.stop()
    finally:
        holder.kill()
        holder.wait()
    service.wait_for(lambda: b"has joined again" in a.log.read_bytes(), 120)


@pytest.mark.slow
def test_what_runs_while_the_database_hangs_is_judged_afterwards(cluster: Cluster) -> None:
    """For longer than the lease, where no other node is there to take it up."""
    a, b, c = cluster.nodes.values()
    for other in (b, c):
        other.stop()
    gate = Path(a.log.parent, "go")
    posted = [
        str(post(a, "/v1/submissions", candidate=candidate(str(number), f"compile=until:{gate},pass"))["id"])
        for number in range(3)
    ]
    service.wait_for(lambda: len(cluster.held_by("a")) >= 2, 120)
    asked = "SELECT pid FROM pg_stat_activity WHERE usename = 'verifierd' AND pid <> pg_backend_pid()"
    backends = [int(pid) for pid in cluster.database.ask(asked)]
    for pid in backends:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(20)
    finally:
        for pid in backends:
            os.kill(pid, signal.SIGCONT)
    gate.touch()
    for one in posted:
        assert a.call("GET", f"/v1/submissions/{one}?wait=60")[1]["class"] == "ok"
    assert b"has joined again" in a.log.read_bytes()
    assert b"hangs: the connection is given up" not in a.log.read_bytes()  # new ones are taken up
    assert cluster.database.ask("SELECT sum(n) FROM verifierd.tally WHERE what = 2") == [str(len(posted))]
