"""No statement of a daemon reads a large table from end to end: the database tells each plan that it used."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import service

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "deploy"))

from demo_cluster import TASK, Database, Node

LARGE = (
    "job", "submission", "submission_group", "blob", "idempotency", "trend", "failure", "task_sum", "task", "leader",
)  # fmt: skip
EXPLAIN = [
    "session_preload_libraries=auto_explain",
    "auto_explain.log_min_duration=0",
    "auto_explain.log_nested_statements=on",
    "auto_explain.log_analyze=on",
    "auto_explain.log_timing=off",
    "log_min_messages=log",
]
FILL = """
SET search_path = verifierd;
SET auto_explain.log_min_duration = -1;
INSERT INTO task SELECT 'sha256:t' || i, 't' || i, 'Model', 1, false, 1, 'sha256:' || i
  FROM generate_series(1, 20000) i;
INSERT INTO blob SELECT 'sha256:' || i, 1, 'x' FROM generate_series(1, 20000) i;
INSERT INTO submission_group SELECT 'g' || i, 'sha256:t' || i, 4, 1, 'c' || i % 100, '{}'
  FROM generate_series(1, 20000) i;
INSERT INTO submission (id, group_id, group_index, task_id, source_hash, state, priority, attempts, created_ms,
  finished_ms, client, class, cache_key, verdict)
  SELECT '0' || i, 'g' || 1 + i / 4, i % 4, 'sha256:t' || 1 + i % 20000, 'sha256:' || i, 2, 0, 1, 1, 4102444800000 + i,
  'c' || i % 100, 'ok', 'k' || i, '{}' FROM generate_series(1, 60000) i;
INSERT INTO submission_group SELECT 'old' || i, 't', 2, 1, 'c', '{}' FROM generate_series(1, 2000) i;
INSERT INTO submission (id, group_id, group_index, task_id, source_hash, log_hash, state, priority, attempts,
  created_ms, finished_ms, class, verdict)
  SELECT 'o' || i, CASE i % 2 WHEN 0 THEN 'old' || (1 + i / 4) END, i % 4, 't', 'sha256:old' || i, 'sha256:log' || i,
  2, 0, 1, 1, CASE WHEN i < 4000 THEN i ELSE now_ms() - 3 * 86400000 END, 'ok', '{}'
  FROM generate_series(1, 7999) i;
INSERT INTO blob SELECT 'sha256:' || what || i, 1, 'x'
  FROM generate_series(1, 7999) i, unnest(ARRAY['old', 'log']) what;
INSERT INTO leader (id, task_id, finished_ms) SELECT 'o' || i, 't', i FROM generate_series(1, 20000) i;
INSERT INTO job SELECT 'j' || i, 1, 0, 1, 1, 'n' || i % 200 FROM generate_series(1, 20000) i;
INSERT INTO job (id, state, priority, attempts, claim, gpu, client)
  SELECT 'w' || i, 0, 0, 0, 0, 'H100', 'c' || i % 100 FROM generate_series(1, 20000) i;
INSERT INTO node SELECT 'n' || i, 1, 9e15 FROM generate_series(0, 199) i;
INSERT INTO idempotency SELECT 'c' || i, 'k', 'h', 'g' || i, 4102444800000 FROM generate_series(1, 20000) i;
INSERT INTO trend SELECT 60, 'client:c' || i % 100, 4102444800 + i * 60, 'ok', '', '', 1, 'n', 1, 1
  FROM generate_series(1, 20000) i;
INSERT INTO failure SELECT 'client:c' || i % 100, 4102444800 + i * 900, 'n', 'x', 'ast', 'm' || i, 1, 1, 1, '1'
  FROM generate_series(1, 20000) i;
INSERT INTO task_sum SELECT 'client:c' || i % 100, 'sha256:t' || i, 'n', 1, 1, 0, 1, 1, i
  FROM generate_series(1, 20000) i;
ANALYZE;
"""
ROWS_MOST = 2000
COUNTS = "SELECT what, sum(n) FROM tally"
"""The one that counts what is not finished, for the status."""
RUNNING = (COUNTS, "SELECT name, epoch, lease_until_ms", "WITH RECURSIVE kind AS")
"""These count what runs of a node or a client, of which FILL has far more than there are slots."""
READS = (
    "/v1/submissions?limit=5", "/v1/submissions?state=done&class=ok&limit=5", "/v1/submissions?client=c1&limit=5",
    "/v1/submissions?view=brief&limit=8", "/v1/tasks?limit=5", "/v1/groups?limit=5", "/v1/trends?window=1h",
    "/v1/failures?window=24h", "/v1/leaderboard?limit=5", "/v1/status", "/v1/nodes", "/metrics", "/v1/stats",
    "/v1/tasks?name=scripted",
)  # fmt: skip


def plans(log: Path) -> list[tuple[str, str]]:
    """Each statement that was run, and its plan."""
    text = log.read_text(errors="replace")
    found = re.findall(r"plan:\s*\n\tQuery Text: (.*?)\n\t(.*?)(?=\n[^\t]|\Z)", text, re.DOTALL)
    return [(" ".join(query.split()), plan) for query, plan in found if "FROM generate_series" not in query]


def rows_read(plan: str) -> dict[str, int]:
    """By table: the rows that the scan of it that read most has looked at, with those that a filter took out.

    The daemon's sessions are told to prefer indices, so that a whole table would be read through one of them.
    """
    most: dict[str, int] = {}
    for part in re.split(r"\n(?=\s*(?:->|CTE|InitPlan|SubPlan))", plan):
        scan = re.search(r"Scan (?:Backward )?(?:using \w+ )?on (\w+).*\(actual rows=([\d.]+) loops=(\d+)\)", part)
        if scan:
            removed = sum(int(n) for n in re.findall(r"Rows Removed by \w+(?: \w+)*: (\d+)", part))
            read = int((float(scan[2]) + removed) * int(scan[3]))
            most[scan[1]] = max(most.get(scan[1], 0), read)
    return most


def sweep(client: service.Client) -> None:
    """What FILL made old goes; of what is not so old, the captured output."""
    assert client.post("/v1/retention", {}).status == 202
    deadline = time.monotonic() + 60
    while (state := client.get("/v1/retention").json())["running"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (state["last"]["submissions"], state["last"]["groups"], state["last"]["logs"]) == (3999, 1000, 4000), state


def use(node: Node) -> None:
    """All that a daemon does of itself, and what clients and pages ask of it."""
    client = service.Client(node.url)
    items = [{"candidate": f"# script: timing=1.3\n# {i}\n"} for i in range(4)]
    body = {"task": "scripted", "candidates": items, "time_top_k": 2}
    group = str(client.call("POST", "/v1/groups", body, {"Idempotency-Key": "one"}).json()["id"])
    document = client.wait(group, 60, "groups")
    client.wait(client.submit({"task": "scripted", "candidate": "# script: ast=fail:syntax\n", "client": "c1"}), 60)
    hangs = client.submit({"task": "scripted", "candidate": "# script: compile=hang\n"})
    assert client.call("DELETE", f"/v1/submissions/{hangs}").status == 200
    one = document["items"][0]["id"]
    labelled = {"task": "scripted", "completion": "```python\n# script: ast=fail:syntax\n```", "metadata": {"run": "r"}}
    answered = client.submit(labelled)
    client.wait(answered, 60)
    for path in (*READS, f"/v1/submissions/{one}", f"/v1/submissions/{answered}/answer",
                 "/v1/submissions?run=r&policy_version=v&limit=5", f"/v1/submissions/{one}/source",
                 f"/v1/submissions/{one}/log",
                 f"/v1/tasks/{document['task']}/leaders", f"/v1/export?group={group}"):  # fmt: skip
        assert client.get(path).status in (200, 404), path
    sweep(client)
    time.sleep(6)  # a renewal, a reaping, and looks for what waits


def test_no_statement_reads_a_large_table_from_end_to_end() -> None:
    with service.directory() as directory:
        database = Database(directory / "database", EXPLAIN)
        try:
            first = Node("first", directory, database.url, ["--paused=true"])
            first.call("POST", "/v1/tasks", TASK)
            waiting = first.call("POST", "/v1/submissions", {"task": "scripted", "candidate": "# script: timing=1\n"})
            assert waiting[0] == 202, waiting
            first.stop()
            database.ask(FILL)
            flags = ["--retention-days=7", "--retention-log-days=1", "--quotas=c1:queued=9999"]
            node = Node("a", directory, database.url, flags)
            try:
                assert node.call("GET", f"/v1/submissions/{waiting[1]['id']}?wait=60")[1]["class"] == "ok"
                use(node)
            finally:
                node.stop()
            compiler = Node("c", directory, database.url, ["--role=compile"])
            body = {"task": "scripted", "candidate": "# script: timing=1\n# carried\n"}
            assert compiler.call("POST", "/v1/submissions", body)[0] == 202
            time.sleep(3)
            compiler.stop()
        finally:
            database.stop()
        found = plans(directory / "postgres.log")
        ours = dict(found)
        claims = [plan for query, plan in ours.items() if "chosen AS MATERIALIZED" in query]
        assert len(claims) in (2, 3), sorted(ours)  # the third claims what a node has a copy of, which it seldom has to
        for plan in claims:
            assert "CTE chosen" in plan and "LockRows" in plan and "Index Scan using job_" in plan, plan
        named = [plan for query, plan in ours.items() if query.startswith("WITH RECURSIVE kind")]
        assert len(named) == 2, sorted(ours)
        for plan in named:
            assert plan.count("using job_flow") >= 3, plan
        assert any("using job_client" in plan for plan in named), named
        assert any("FROM job WHERE client = $1" in query and "using job_client" in ours[query] for query in ours)
        for text, index in (("NOT handed_on", "job_new"), ("AND handed_on", "job_handed")):
            found_by = [plan for query, plan in ours.items() if text in query and query.startswith("SELECT")]
            assert len(found_by) == 1 and f"using {index}" in found_by[0], found_by
        scans = {
            f"{table}: {query}"
            for query, plan in ours.items()
            for table in re.findall(r"Seq Scan on (\w+)", plan)
            if table in LARGE and not query.startswith(COUNTS)
        }
        large = {
            f"{rows} of {table}: {query}"
            for query, plan in found
            for table, rows in rows_read(plan).items()
            if table in LARGE and rows > ROWS_MOST and not query.startswith(RUNNING)
        }
        assert len(ours) > 40 and any(rows_read(plan) for plan in ours.values())
        assert not scans, "\n".join(sorted(scans))
        assert not large, "\n".join(sorted(large))
