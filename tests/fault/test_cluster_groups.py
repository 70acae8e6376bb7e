"""What is asked of a group, or of a submission, holds on all nodes of a cluster, whoever has it."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import service

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "deploy"))

from demo_cluster import Cluster, Node

LIMIT_S = 60.0
marks = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with service.directory() as directory:
        found = Cluster(directory)
        try:
            yield found
        finally:
            found.close()


def candidate(script: str) -> str:
    return f"# script: {script}\n# {next(marks)}\n"


def post_group(node: Node, scripts: Sequence[str], **more: object) -> str:
    items = [{"candidate": candidate(script)} for script in scripts]
    status, document = node.call("POST", "/v1/groups", {"task": "scripted", "candidates": items, **more})
    assert status == 202, document
    return str(document["id"])


def wait_group(node: Node, group: str) -> service.Json:
    document = node.call("GET", f"/v1/groups/{group}?wait=60")[1]
    assert document["state"] in ("done", "cancelled"), document
    return document


def holders(cluster: Cluster, ids: Sequence[str]) -> dict[str, str]:
    """Those that run, and where."""
    listed = ",".join(f"'{one}'" for one in ids)
    lines = cluster.database.ask(f"SELECT id, node FROM verifierd.job WHERE state = 1 AND id IN ({listed})")
    return {one: node for one, _, node in (line.partition("|") for line in lines)}


def wait_spread(cluster: Cluster, ids: Sequence[str]) -> dict[str, str]:
    """Until all nodes have some of them."""
    deadline = time.monotonic() + LIMIT_S
    while set((found := holders(cluster, ids)).values()) != set(cluster.nodes):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def test_what_another_node_has_is_cancelled_through_the_store(cluster: Cluster) -> None:
    """Of what runs on all three, and of what waits at the one that accepted it, each is asked for elsewhere."""
    a, b, c = cluster.nodes.values()
    ids = []
    for _ in range(9):
        status, document = a.call(
            "POST", "/v1/submissions", {"task": "scripted", "candidate": candidate("compile=hang")}
        )
        assert status == 202, document
        ids.append(str(document["id"]))
    held = wait_spread(cluster, ids)
    for one in ids:
        asked = c if held.get(one) == "b" else b
        assert asked.call("DELETE", f"/v1/submissions/{one}")[0] == 200
    for one in ids:
        document = a.call("GET", f"/v1/submissions/{one}?wait=60")[1]
        assert (document["state"], document["cancel_reason"]) == ("cancelled", "asked"), document
        assert b.call("DELETE", f"/v1/submissions/{one}")[0] == 409


def test_a_group_is_cancelled_from_a_node_that_never_heard_of_it(cluster: Cluster) -> None:
    a, _, c = cluster.nodes.values()
    group = post_group(a, ["compile=hang"] * 9)
    document = a.call("GET", f"/v1/groups/{group}")[1]
    wait_spread(cluster, [str(item["id"]) for item in document["items"]])
    assert c.call("DELETE", f"/v1/groups/{group}")[0] == 200
    assert {item["state"] for item in wait_group(a, group)["items"]} == {"cancelled"}
    assert c.call("DELETE", f"/v1/groups/{group}")[0] == 409


def test_no_more_are_timed_than_the_group_says_whoever_takes_it(cluster: Cluster) -> None:
    """The fastest of all of them, though each node would have room for some."""
    scripts = [f"compile=sleep:0.3,pass full=rough:{1 + (number * 7) % 12}" for number in range(12)]
    for node in cluster.nodes.values():
        group = post_group(node, scripts, time_top_k=3)
        items = wait_group(cluster.nodes["c"], group)["items"]
        timed = [number for number, item in enumerate(items) if item["timing"]["outcome"] == "measured"]
        assert sorted(1 + (number * 7) % 12 for number in timed) == [1, 2, 3]


def test_a_group_that_stops_early_stops_everywhere(cluster: Cluster) -> None:
    """Those that hang would hang for ever."""
    a, b, _ = cluster.nodes.values()
    group = post_group(a, ["timing=1.5", "timing=1.5", *["compile=sleep:0.2,hang"] * 10], stop={"correct": 2})
    items = wait_group(b, group)["items"]
    assert sorted(item["state"] for item in items) == ["cancelled"] * 10 + ["done"] * 2
    assert {item.get("cancel_reason") for item in items if item["state"] == "cancelled"} == {"group_decided"}


def test_a_deadline_ends_what_other_nodes_took(cluster: Cluster) -> None:
    a, b, _ = cluster.nodes.values()
    group = post_group(a, ["compile=hang"] * 9, deadline_s=3)
    ids = [str(item["id"]) for item in a.call("GET", f"/v1/groups/{group}")[1]["items"]]
    wait_spread(cluster, ids)
    items = wait_group(b, group)["items"]
    assert {item.get("cancel_reason") for item in items} == {"deadline"}
