"""A daemon of the schema's version before goes on beside a newer one, whose start changed the schema under it."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import service

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "deploy"))

import demo_cluster
from demo_cluster import BINARY, ROOT, TASK, ClusterError, Database, Node

SCHEMA = "server/store/pgsql/schema.c"
BUILD_S = 900


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True, timeout=60).stdout


def steps(commit: str) -> int:
    """The version of the schema there."""
    text = git("show", f"{commit}:{SCHEMA}").decode()
    files = re.findall(r"^STEP\((\d+)\);", text, re.M)  # one for each step, or none where they are in the text
    return int(files[-1]) if files else text.split("steps_known[] = {", 1)[1].split("};", 1)[0].count("{")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source before the last step was added, with its daemon built."""
    tmp_path = tmp_path_factory.mktemp("before")
    changes = git("log", "--format=%H", "--", SCHEMA).decode().split()
    newest = next(commit for commit in changes if steps(commit) != steps(f"{commit}^"))
    with tarfile.open(fileobj=io.BytesIO(git("archive", f"{newest}^"))) as archive:
        archive.extractall(tmp_path)
    subprocess.run(
        ["make", "-s", "-j2", "build/bin/verifierd"], cwd=tmp_path, check=True, timeout=BUILD_S, capture_output=True
    )
    return tmp_path


@pytest.fixture
def directory() -> Iterator[Path]:
    with service.directory() as made:
        yield made


def older(name: str, directory: Path, url: str, before: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    with monkeypatch.context() as patch:
        patch.setattr(demo_cluster, "BINARY", before / "build" / "bin" / "verifierd")
        return Node(name, directory, url, [f"--harness={before / 'tests' / 'fault' / 'harness'}"])


def post(node: Node, mark: str, **more: object) -> str:
    items = [{"candidate": f"# script: compile=sleep:0.3,pass timing=1.3\n# {mark} {i}\n"} for i in range(6)]
    status, document = node.call("POST", "/v1/groups", {"task": "scripted", "candidates": items, **more})
    assert status == 202, document
    return str(document["id"])


def check(node: Node, group: str) -> None:
    document = node.call("GET", f"/v1/groups/{group}?wait=60")[1]
    assert {item["class"] for item in document["items"]} == {"ok"}, document


@pytest.mark.slow
def test_the_version_before_works_beside_this_one(
    before: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answers for the other's, also where a group stays with one; a killed one's work is done by the other."""
    database = Database(directory / "database")
    nodes = []
    try:
        nodes.append(old := older("old", directory, database.url, before, monkeypatch))
        old.wait_ready()
        old.call("POST", "/v1/tasks", TASK)
        known = int(database.ask("SELECT version FROM verifierd.meta")[0])
        first = post(old, "first")
        nodes.append(new := Node("new", directory, database.url))
        new.wait_ready()
        assert int(database.ask("SELECT version FROM verifierd.meta")[0]) > known
        check(new, first)
        for at, other in ((old, new), (new, old)):
            check(other, post(at, f"free {at.name}"))
            check(other, post(at, f"chosen {at.name}", time_top_k=2))
        held = post(new, "killed", time_top_k=6)
        while not database.ask("SELECT id FROM verifierd.job WHERE state = 1 AND node = 'new'"):
            pass
        new.kill()
        check(old, held)
        stored = int(database.ask("SELECT count(*) FROM verifierd.submission WHERE state = 2")[0])
        assert stored == int(database.ask("SELECT sum(n) FROM verifierd.tally WHERE what = 2")[0]) == 36
        old.stop()
        oldest = int(database.ask("SELECT oldest FROM verifierd.meta")[0])
        if known < oldest:
            with pytest.raises(ClusterError, match="use a newer verifierd"):
                older("old", directory, database.url, before, monkeypatch)
        else:
            nodes.append(older("old", directory, database.url, before, monkeypatch))
    finally:
        for node in nodes:
            node.stop()
        database.stop()


def migrate(url: str, *flags: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(BINARY), "migrate", f"--store={url}", *flags], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_the_command_migrates_while_the_version_before_works(
    before: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(directory / "database")
    old = None
    try:
        old = older("old", directory, database.url, before, monkeypatch)
        old.wait_ready()
        old.call("POST", "/v1/tasks", TASK)
        known = int(database.ask("SELECT version FROM verifierd.meta")[0])
        group = post(old, "first")
        status, out, err = migrate(database.url, "--check")
        now = int(out.split()[-1])
        assert now > known and (status, out, err) == (1, f"schema version {known} -> {now}\n", "")
        assert database.ask("SELECT version FROM verifierd.meta") == [str(known)]
        assert migrate(database.url) == (0, out, "")
        assert database.ask("SELECT version FROM verifierd.meta") == [str(now)]
        assert migrate(database.url, "--check") == (0, f"schema version {now}: nothing to do\n", "")
        check(old, group)
        check(old, post(old, "second"))
        assert database.ask("SELECT count(*) FROM verifierd.submission WHERE state = 2") == ["12"]
    finally:
        if old:
            old.stop()
        database.stop()
