"""Nodes by role: one only compiles, for those that have a device, and one only answers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import service

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "deploy"))

from demo_cluster import BINARY, TASK, Database, Node

LIMIT_S = 90.0


class Roles:
    """A database, and nodes that a test starts by their roles."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self._stack = stack
        self.database = Database(directory / "database")
        stack.callback(self.database.stop)

    def start(self, name: str, role: str, *flags: str) -> Node:
        node = Node(name, self.directory, self.database.url, [f"--role={role}", *flags])
        self._stack.callback(node.stop)
        node.wait_ready()
        return node

    def wait(self, sql: str, answer: list[str]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while (found := self.database.ask(sql)) != answer:
            assert time.monotonic() < deadline, (sql, found)
            time.sleep(0.05)

    def verdicts(self) -> int:
        """By the sums, which a doubled one would be in twice."""
        return int(self.database.ask("SELECT coalesce(sum(n), 0) FROM verifierd.tally WHERE what = 2")[0])


@pytest.fixture
def roles() -> Iterator[Roles]:
    with service.directory() as directory, ExitStack() as stack:
        yield Roles(directory, stack)


Post = Callable[..., str]


def poster(node: Node) -> Post:
    assert node.call("POST", "/v1/tasks", TASK)[0] in (200, 201)

    def post(script: str, **more: object) -> str:
        body = {"task": "scripted", "candidate": f"# script: {script}\n# {time.monotonic_ns()}\n", **more}
        status, document = node.call("POST", "/v1/submissions", body)
        assert status == 202, document
        return str(document["id"])

    return post


def verdict(node: Node, one: str) -> service.Json:
    document = node.call("GET", f"/v1/submissions/{one}?wait=60")[1]
    assert document["state"] == "done", document
    return document


def counted(node: Node, name: str) -> float:
    text = service.Client(node.url).get("/metrics").body.decode()
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"verifierd_{name}"))


def test_a_compiler_ends_what_it_refuses_and_hands_on_the_rest(roles: Roles) -> None:
    front, compiler = roles.start("front", "http"), roles.start("c", "compile")
    post = poster(front)
    refused = {"syntax": post("ast=fail:syntax"), "compile": post("compile=fail:compile")}
    for class_, one in refused.items():
        assert verdict(front, one)["class"] == class_
    once = roles.directory / "anybody" / "once"
    once.parent.mkdir()
    once.parent.chmod(0o777)
    one, live = post(f"compile=touch:{once},pass timing=1.3"), post("timing=1.3", policy="kernelbench")
    roles.wait("SELECT count(*) FROM verifierd.job WHERE state = 0 AND handed_on", ["2"])
    assert roles.database.ask("SELECT id FROM verifierd.carried") == [one]
    once.unlink()
    gpu = roles.start("gpu", "all")
    document = verdict(front, one)
    assert (document["class"], document["attempts"], document["stages"][1]["outcome"]) == ("ok", 1, "pass")
    assert not once.exists(), "it was compiled again"
    assert verdict(front, live)["class"] == "ok"
    assert (counted(compiler, "handed_on_total"), counted(gpu, "carried_total")) == (2, 1)
    assert roles.database.ask("SELECT count(*) FROM verifierd.carried") == ["0"]
    assert roles.verdicts() == 4
    page = front.call("GET", "/v1/nodes")[1]["items"]
    assert {item["name"]: item["role"] for item in page} == {"front": "http", "c": "compile", "gpu": "all"}
    assert 'node="c",role="compile"' in service.Client(compiler.url).get("/metrics").body.decode()
    assert b"taken up from the store" not in front.log.read_bytes()


def test_what_was_compiled_for_something_else_is_compiled_again(roles: Roles) -> None:
    compiler = roles.start("c", "compile", "--target=cuda:80")
    one = poster(compiler)("timing=1.3")
    roles.wait("SELECT count(*) FROM verifierd.carried", ["1"])
    gpu = roles.start("gpu", "all")
    assert verdict(compiler, one)["class"] == "ok"
    assert b"it is compiled again" in gpu.log.read_bytes()
    assert counted(gpu, "carried_total") == 0


def test_a_compiler_that_is_killed_while_it_works_loses_nothing(roles: Roles) -> None:
    """Another one has what it had, and so has a node with a device what that had handed on when its own was killed."""
    front, compiler = roles.start("front", "http"), roles.start("c", "compile")
    post = poster(front)
    compile_gate, full_gate = roles.directory / "compile", roles.directory / "full"
    ids = [post(f"compile=until:{compile_gate},pass full=until:{full_gate},pass timing=1.3") for _ in range(2)]
    roles.wait("SELECT count(*) FROM verifierd.job WHERE state = 1 AND node = 'c'", ["2"])
    compiler.kill()
    other = roles.start("d", "compile")
    roles.wait("SELECT count(*) FROM verifierd.job WHERE state = 1 AND node = 'd'", ["2"])
    compile_gate.touch()
    roles.wait("SELECT count(*) FROM verifierd.job WHERE state = 0 AND handed_on", ["2"])
    gpu = roles.start("gpu", "all")
    roles.wait("SELECT count(*) FROM verifierd.job WHERE state = 1 AND node = 'gpu'", ["2"])
    gpu.kill()
    next_gpu = roles.start("next", "all")
    full_gate.touch()
    assert [verdict(front, one)["class"] for one in ids] == ["ok", "ok"]
    assert (counted(next_gpu, "carried_total"), counted(other, "fenced_total"), roles.verdicts()) == (2, 0, 2)


def test_a_compiler_leaves_alone_a_group_that_chooses(roles: Roles) -> None:
    compiler = roles.start("c", "compile")
    poster(compiler)
    items = [{"candidate": f"# script: timing=1.3\n# {i}\n"} for i in range(3)]
    body = {"task": "scripted", "candidates": items, "time_top_k": 1}
    group = str(compiler.call("POST", "/v1/groups", body)[1]["id"])
    roles.start("gpu", "all")
    document = compiler.call("GET", f"/v1/groups/{group}?wait=60")[1]
    assert document["state"] == "done"
    assert sum(item["components"]["timed"] for item in document["items"]) == 1
    assert counted(compiler, "handed_on_total") == 0


def test_what_ends_elsewhere_is_noticed_behind_hundreds_that_wait(roles: Roles) -> None:
    front = roles.start("front", "http")
    post = poster(front)
    items = [{"candidate": f"# script: timing=1.3\n# {i}\n"} for i in range(256)]
    for _ in range(2):
        status, document = front.call("POST", "/v1/groups", {"task": "scripted", "candidates": items, "gpu": "H100"})
        assert status == 202, document
    one = post("ast=fail:syntax")
    roles.start("c", "compile")
    assert verdict(front, one)["class"] == "syntax"


def test_who_asks_for_a_gpu_waits_for_it(roles: Roles) -> None:
    """Nobody here has one: neither the node that took it in nor the compiler touches it, and it can be cancelled."""
    node, compiler = roles.start("a", "all"), roles.start("c", "compile")
    post = poster(node)
    one = post("timing=1.3", gpu="H100")
    assert verdict(compiler, post("timing=1.3"))["class"] == "ok"
    assert roles.database.ask(f"SELECT state, claim, gpu FROM verifierd.job WHERE id = '{one}'") == ["0|0|H100"]
    assert compiler.call("DELETE", f"/v1/submissions/{one}")[0] in (200, 202)
    assert node.call("GET", f"/v1/submissions/{one}?wait=60")[1]["state"] == "cancelled"


def left_to_others(client: service.Client, n: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        queues = client.get("/v1/status").json()["queues"]
        if (queues["waiting"], queues["queued"]["interactive"], queues["cpu_running"]) == (n, 0, 0):
            return
        assert time.monotonic() < deadline, queues
        time.sleep(0.05)


def test_what_is_left_to_others_counts_until_it_ends(roles: Roles) -> None:
    """For the limit of the queue and for its client's quota, though nobody has it."""
    node = roles.start("a", "all", "--queue-limit=3", "--quotas=c:queued=2")
    poster(node)
    client = service.Client(node.url)

    def post(**more: object) -> service.Answer:
        candidate = f"# script: timing=1.3\n# {time.monotonic_ns()}\n"
        return client.post("/v1/submissions", {"task": "scripted", "candidate": candidate, "gpu": "H100", **more})

    held = [post(client="c").json() for _ in range(2)]
    assert {one["warning"] for one in held} == {"no node has such a GPU now: it waits for one"}
    assert post().status == 202
    left_to_others(client, 3)
    full = post()
    assert (full.status, full.json()["code"]) == (429, "queue_full")
    assert full.json()["detail"] == (
        "3 submissions wait already, 3 of them for other nodes, of queue_limit 3; try later or raise it"
    )
    assert int(full.headers["Retry-After"]) >= 1
    assert client.call("DELETE", f"/v1/submissions/{held[0]['id']}").status == 200
    client.wait(str(held[0]["id"]), LIMIT_S)
    assert post(client="c").status == 202
    assert client.call("DELETE", f"/v1/submissions/{held[1]['id']}").status == 200
    client.wait(str(held[1]["id"]), LIMIT_S)
    left_to_others(client, 2)
    group = {"task": "scripted", "candidates": [{"candidate": "# a\n"}, {"candidate": "# b\n"}], "client": "c"}
    refused = client.post("/v1/groups", {**group, "gpu": "H100"})
    assert (refused.status, refused.json()["code"]) == (429, "queue_full")
    assert client.post("/v1/groups", {**group, "candidates": group["candidates"][:1]}).json().get("warning") is None


def test_what_a_compiler_handed_on_counts_until_it_ends(roles: Roles) -> None:
    compiler = roles.start("c", "compile", "--queue-limit=2")
    post = poster(compiler)
    ids = [post("timing=1.3") for _ in range(2)]
    roles.wait("SELECT count(*) FROM verifierd.job WHERE state = 0 AND handed_on", ["2"])
    body = {"task": "scripted", "candidate": "# script: timing=1.3\n"}
    status, document = compiler.call("POST", "/v1/submissions", body)
    assert (status, document["code"]) == (429, "queue_full"), document
    roles.start("gpu", "all")
    assert [verdict(compiler, one)["class"] for one in ids] == ["ok", "ok"]
    left_to_others(service.Client(compiler.url), 0)  # verdicts of others are noticed a moment later
    assert compiler.call("POST", "/v1/submissions", body)[0] == 202


@pytest.mark.parametrize(("jobs", "size"), [(2048, 0), (1, 256 << 20)])
def test_a_compiler_does_not_compile_ahead_without_end(roles: Roles, jobs: int, size: int) -> None:
    front, compiler = roles.start("front", "http"), roles.start("c", "compile")
    roles.database.ask(
        "INSERT INTO verifierd.job (id, state, priority, attempts, claim, handed_on)"
        f" SELECT 'x' || i, 0, 1, 0, 0, true FROM generate_series(1, {jobs}) i;"
        f"INSERT INTO verifierd.carried SELECT 'x1', '{{}}', {size}, ''"
    )
    service.wait_for(lambda: b"nothing more is begun" in compiler.log.read_bytes(), LIMIT_S)
    poster(front)("timing=1.3"), poster(compiler)("timing=1.3")
    time.sleep(1)  # four looks
    untouched = "SELECT count(*) FROM verifierd.job WHERE id NOT LIKE 'x%' AND state = 0 AND claim = 0"
    assert roles.database.ask(untouched) == ["2"]
    roles.database.ask("DELETE FROM verifierd.job WHERE id LIKE 'x%'")
    roles.wait("SELECT count(*) FROM verifierd.job WHERE state = 0 AND handed_on", ["2"])


def test_what_waits_for_nobody_is_cancelled_at_once(roles: Roles) -> None:
    """The node that took it in is gone, and no other one takes anything."""
    front, other = roles.start("front", "http"), roles.start("b", "http")
    poster(front)
    items = [{"candidate": f"# script: timing=1.3\n# {i}\n"} for i in range(64)]
    group = str(front.call("POST", "/v1/groups", {"task": "scripted", "candidates": items})[1]["id"])
    front.kill()
    assert other.call("DELETE", f"/v1/groups/{group}")[0] == 200
    document = other.call("GET", f"/v1/groups/{group}?wait=60")[1]
    assert document["state"] == "cancelled", document
    assert {(item["state"], item["cancel_reason"]) for item in document["items"]} == {("cancelled", "asked")}
    assert roles.database.ask("SELECT count(*) FROM verifierd.job") == ["0"]


def test_a_daemon_by_itself_refuses_who_asks_for_a_gpu_that_it_lacks() -> None:
    with service.directory() as directory:
        node = Node("alone", directory, str(directory / "store.db"))
        try:
            node.wait_ready()
            assert node.call("POST", "/v1/tasks", TASK)[0] == 201
            body = {"task": "scripted", "candidate": "# script: timing=1.3\n", "gpu": "H100"}
            status, document = node.call("POST", "/v1/submissions", body)
            assert (status, document["errors"][0]["pointer"]) == (400, "/gpu"), document
            assert document["errors"][0]["detail"].startswith('no GPU here has "H100" in its name'), document
        finally:
            node.stop()


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--role=cook"], 'one of "all compile http"'),
        (["--role=compile"], "is for daemons that share a database"),
        (["--role=http", "--device=cuda:0", "--store=postgresql://nobody@/none"], "uses no GPU"),
    ],
)
def test_a_role_that_cannot_be_is_refused_in_one_line(flags: list[str], line: str) -> None:
    command = [str(BINARY), "--check-config", *flags]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode != 0
    assert len(ran.stderr.strip().splitlines()) == 1 and line in ran.stderr, ran.stderr
