#!/usr/bin/env python3
"""Three daemons on one PostgreSQL are one service: one is killed while it works, nothing is lost. `make demo-cluster`.

The database and the daemons run in a directory that goes afterwards. The workers are scripted (tests/fault/harness), so
that it needs neither torch nor a GPU; all else is what a cluster runs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("VERIFIERD_BUILD", str(ROOT / "build"))) / "bin" / "verifierd"
LIMIT_S = 120.0
TASK = {"name": "scripted", "reference": "# script: describe=pass\n"}

Json = dict[str, Any]


class ClusterError(Exception):
    """It did not go as it should; the text says what."""


class Database:
    """A PostgreSQL of one's own, on a socket in its directory."""

    def __init__(self, directory: Path, settings: Sequence[str] = ()) -> None:
        self.directory = directory
        self.url = f"postgresql://verifierd@/postgres?host={directory}"
        self._log = (directory.parent / "postgres.log").open("wb")
        self._process = subprocess.Popen(
            [str(ROOT / "server" / "deploy" / "postgres"), str(directory), *settings],
            stdout=self._log,
            stderr=self._log,
        )
        deadline = time.monotonic() + LIMIT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ClusterError((directory.parent / "postgres.log").read_text(errors="replace")[-2000:])
            time.sleep(0.1)

    def _psql(self, sql: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["psql", "-qAtX", "-c", sql, self.url],
            capture_output=True,
            text=True,
            check=False,
        )

    def _answers(self) -> bool:
        return self._psql("SELECT 1").returncode == 0

    def ask(self, sql: str) -> list[str]:
        """The lines of the answer."""
        done = self._psql(sql)
        if done.returncode != 0:
            raise ClusterError(f"{sql}: {done.stderr}")
        return done.stdout.split()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)
        self._log.close()


class Node:
    """A daemon of the cluster."""

    def __init__(self, name: str, directory: Path, url: str, flags: Sequence[str] = ()) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        command = [str(BINARY), "--listen=127.0.0.1:0", f"--store={url}", f"--node={name}"]
        command += [f"--scratch={directory / name}", f"--harness={ROOT / 'tests' / 'fault' / 'harness'}"]
        command += ["--device=cpu", f"--python={sys.executable}", "--cpu-jobs=2", "--cache=false"]
        command += [f"--tokens={directory / 'tokens'}", *flags]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        _, found, url = line.strip().partition("listening on ")
        if not found:
            raise ClusterError(f"node {name} did not start:\n{self.log.read_text(errors='replace')[-2000:]}")
        self.url = url

    def call(self, method: str, path: str, body: object = None, limit_s: float = LIMIT_S) -> tuple[int, Json]:
        """Status and document; OSError if there is no answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=limit_s) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.loads(refused.read() or b"{}")

    def wait_ready(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.call("GET", "/readyz")[0] != 200:
            if time.monotonic() > deadline:
                raise ClusterError(f"node {self.name} is not ready")
            time.sleep(0.1)

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self._end()

    def _end(self) -> None:
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@dataclass
class History:
    """The responses that the clients received."""

    acknowledged: list[str] = field(default_factory=list)
    verdicts: dict[str, set[str]] = field(default_factory=dict)
    """The documents that the nodes gave for each."""
    takeover_s: float = 0.0
    held_by_the_dead: int = 0
    counted: int = 0
    """Verdicts by the store's own count."""
    wall_s: float = 0.0

    @property
    def lost(self) -> list[str]:
        return [one for one in self.acknowledged if one not in self.verdicts]

    @property
    def doubled(self) -> int:
        """Those of which two verdicts were seen, and those that were counted twice."""
        seen = sum(len(found) > 1 for found in self.verdicts.values())
        return seen + max(0, self.counted - len(self.verdicts))


class Cluster:
    """A database and nodes on it, all of them ended together."""

    def __init__(self, directory: Path, names: Sequence[str] = ("a", "b", "c")) -> None:
        self._stack = ExitStack()
        with ExitStack() as stack:
            self.database = Database(directory / "database")
            stack.callback(self.database.stop)
            self.nodes: dict[str, Node] = {}
            for name in names:
                node = self.nodes[name] = Node(name, directory, self.database.url)
                stack.callback(node.stop)
            for node in self.nodes.values():
                node.wait_ready()
            self._stack = stack.pop_all()
        self.nodes[names[0]].call("POST", "/v1/tasks", TASK)

    def close(self) -> None:
        self._stack.close()

    def living(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.process.poll() is None]

    def held_by(self, name: str) -> list[str]:
        """The submissions that run there, by the store."""
        return self.database.ask(f"SELECT id FROM verifierd.job WHERE state = 1 AND node = '{name}'")

    def wait_taken(self, ids: Sequence[str], dead: str) -> None:
        """Until each of them runs on another node, or has ended there."""
        listed = ",".join(f"'{one}'" for one in ids)
        left = f"SELECT id FROM verifierd.job WHERE id IN ({listed}) AND (state = 0 OR node = '{dead}')"
        deadline = time.monotonic() + LIMIT_S
        while self.database.ask(left):
            if time.monotonic() > deadline:
                raise ClusterError(f"what node {dead} held does not run elsewhere after {LIMIT_S:.0f} s")
            time.sleep(0.1)


def post_all(cluster: Cluster, history: History, each: int, seconds: float) -> None:
    """`each` candidates to each node, side by side."""

    def post(node: Node) -> None:
        for number in range(each):
            candidate = f"# script: compile=sleep:{seconds},pass timing=1.3\n# {node.name} {number}\n"
            status, document = node.call("POST", "/v1/submissions", {"task": "scripted", "candidate": candidate})
            if status == 202:
                history.acknowledged.append(str(document["id"]))

    threads = [threading.Thread(target=post, args=[node]) for node in cluster.living()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def collect(cluster: Cluster, history: History) -> None:
    """Each verdict from each living node: any node answers, whichever accepted the submission."""
    deadline = time.monotonic() + LIMIT_S
    for node in cluster.living():
        for one in history.acknowledged:
            left = max(1, int(deadline - time.monotonic()))
            status, document = node.call("GET", f"/v1/submissions/{one}?wait={min(60, left)}")
            if status == 200 and document.get("state") == "done":
                history.verdicts.setdefault(one, set()).add(json.dumps(document, sort_keys=True))


def rehearse(directory: Path, each: int, seconds: float, victim: str = "b") -> History:
    """Post to all nodes, kill one while it works, and ask the others for everything."""
    cluster = Cluster(directory)
    try:
        history = History()
        begun = time.monotonic()
        post_all(cluster, history, each, seconds)
        deadline = time.monotonic() + LIMIT_S
        while not (held := cluster.held_by(victim)):
            if time.monotonic() > deadline:
                raise ClusterError(f"node {victim} has nothing to do")
            time.sleep(0.02)
        cluster.nodes[victim].kill()
        killed = time.monotonic()
        held = cluster.held_by(victim) or held
        cluster.wait_taken(held, victim)
        history.takeover_s = time.monotonic() - killed
        history.held_by_the_dead = len(held)
        collect(cluster, history)
        history.wall_s = time.monotonic() - begun
        history.counted = int(cluster.database.ask("SELECT sum(n) FROM verifierd.tally WHERE what = 2")[0])
        return history
    finally:
        cluster.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=40, help="candidates posted to each of the three nodes")
    parser.add_argument("--seconds", type=float, default=0.5, help="that each takes in its compile stage")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="verifierd-cluster-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        directory.chmod(0o755)
        print("one PostgreSQL, nodes a, b and c; b is killed (-9) while it works", flush=True)
        try:
            history = rehearse(directory, options.each, options.seconds)
        except ClusterError as error:
            print(f"demo-cluster: {error}", file=sys.stderr)
            return 1
    rows = (
        ("acknowledged", str(len(history.acknowledged))),
        ("finished", str(len(history.verdicts))),
        ("lost", str(len(history.lost))),
        ("doubled", str(history.doubled)),
        ("held by b when it died", str(history.held_by_the_dead)),
        ("seconds until that ran elsewhere", f"{history.takeover_s:.1f}"),
        ("seconds in all", f"{history.wall_s:.1f}"),
    )
    for label, value in rows:
        print(f"{label:34}{value:>8}")
    return 0 if not history.lost and not history.doubled else 1


if __name__ == "__main__":
    sys.exit(main())
