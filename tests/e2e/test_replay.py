"""Bundles: all that a verdict came from in one file, which another daemon judges to the same verdict."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import pytest
import service
from service import Client, Daemon, Json

VERIFIER = service.BINARY.with_name("verifier")
CANDIDATES = {one.label: one for one in corpus.load_candidates()}


def run(url: str, *arguments: object, **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(VERIFIER), "--url", url, *map(str, arguments)],
        capture_output=True,
        timeout=300,
        check=False,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"} | more,
    )


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Daemon]:
    """Another daemon, which knows nothing of what the shared one does."""
    with service.directory() as directory, Daemon(directory) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def bundles(client: Client) -> dict[str, Json]:
    """By what became of them; of tasks that were registered with more than a reference."""
    tasks = corpus.load_tasks()
    relu = client.add_task(tasks["relu"].registration() | {"name": "mine", "metadata": {"from": "x"}, "level": 2})
    cases = [{"name": "tiny", "overrides": {}}]
    declared = tasks["softmax"].registration() | {"name": "declared", "entry_point": "Model", "cases": cases}
    softmax = client.add_task(declared)
    made = {
        "ok": client.judge({"task": relu, "candidate": CANDIDATES["relu/honest"].text + "# bundle\n"}),
        "declared": client.judge({"task": softmax, "candidate": CANDIDATES["softmax/honest"].text, "until": "tiny"}),
        "syntax": client.judge({"task": relu, "candidate": "def ("}),
        "extract": client.judge({"task": relu, "completion": "I do not know."}),
    }
    group = {
        "task": softmax,
        "candidates": [{"candidate": CANDIDATES["softmax/unnormalised"].text}],
        "reward": "binary",
    }
    made["wrong"] = client.wait(str(client.expect("POST", "/v1/groups", group)["id"]), kind="groups")["items"][0]
    assert [made[name]["class"] for name in made] == ["ok", "ok", "syntax", "extract", "mismatch"]
    return {name: client.expect("GET", f"/v1/submissions/{one['id']}/bundle") for name, one in made.items()}


def test_a_bundle_has_what_judging_needs(client: Client, bundles: dict[str, Json]) -> None:
    bundle = bundles["ok"]
    verdict = client.expect("GET", f"/v1/submissions/{bundle['verdict']['id']}")
    assert (bundle["format"], bundle["version"]) == ("verifierd bundle", 1)
    assert bundle["verdict"] == verdict
    assert bundle["request"]["seed"] == verdict["seed"]
    assert bundle["request"]["reward"] == verdict["reward_spec"]
    assert {key: bundle["request"]["policy"][key] for key in verdict["policy_on"]} == verdict["policy_on"]
    assert bundle["candidate"].encode() == client.get(f"/v1/submissions/{verdict['id']}/source").body
    task = client.expect("GET", f"/v1/tasks/{verdict['task']}")
    assert bundle["task_id"] == task["id"]
    for key in ("name", "reference", "level", "dynamic_shapes", "metadata"):
        assert bundle["task"][key] == task[key]


@pytest.mark.parametrize("name", ["ok", "declared", "syntax", "extract", "wrong"])
def test_another_daemon_comes_to_the_same_verdict(
    bundles: dict[str, Json], elsewhere: Daemon, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "bundle.json"
    file.write_text(json.dumps(bundles[name]))
    done = run(elsewhere.client.url, "replay", file, "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["differ"]) == (0, [])
    assert result["same"] and result["machines"] == "alike" and result["fields"] > 30
    assert {"id", "created"} <= {row["field"] for row in result["may_differ"]}
    replayed = elsewhere.client.expect("GET", f"/v1/submissions/{result['id']}")
    assert replayed["seed"] == bundles[name]["verdict"]["seed"]
    assert "replay" in replayed["flags"] and replayed["cache"] == "miss"
    assert replayed["metadata"] == {"replay_of": bundles[name]["verdict"]["id"]}
    # Its task is the same one there, by the name that it had.
    assert (
        elsewhere.client.expect("GET", f"/v1/tasks/{bundles[name]['task_id']}")["name"] == bundles[name]["task"]["name"]
    )


def test_a_verdict_that_is_not_what_comes_out_is_found(
    bundles: dict[str, Json], elsewhere: Daemon, tmp_path: Path
) -> None:
    bundle = json.loads(json.dumps(bundles["ok"]))
    bundle["verdict"]["class"] = "mismatch"
    bundle["verdict"]["correctness"]["passed"] = 4
    bundle["verdict"]["task_name"] = "\x1b[31mred"
    file = tmp_path / "bundle.json"
    file.write_text(json.dumps(bundle))
    done = run(elsewhere.client.url, "replay", "--all", file)
    assert done.returncode == 1
    rows = {line.split()[0]: line for line in done.stdout.decode().splitlines() if line}
    assert "mismatch" in rows["class"] and "differs" in rows["class"]
    assert "differs" in rows["correctness/passed"]
    assert "may differ" in rows["created"]
    assert b"ANOTHER VERDICT" in done.stdout and b"\x1b" not in done.stdout
    # The seed is what the inputs come from: with another one the figures differ.
    bundle = json.loads(json.dumps(bundles["wrong"]))
    bundle["request"]["seed"] = "0123456789abcdef"
    file.write_text(json.dumps(bundle))
    done = run(elsewhere.client.url, "replay", file, "--json")
    fields = {row["field"] for row in json.loads(done.stdout)["differ"]}
    assert done.returncode == 1 and "seed" in fields and any(field.startswith("correctness/") for field in fields)


def test_bundle_writes_the_file(client: Client, bundles: dict[str, Json], tmp_path: Path) -> None:
    one = bundles["ok"]["verdict"]["id"]
    done = subprocess.run(
        [str(VERIFIER), "--url", client.url, "bundle", one], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.decode()) == (0, f"{one}.bundle.json\n")
    written = json.loads((tmp_path / f"{one}.bundle.json").read_text())
    assert {**written, "made": ""} == {**bundles["ok"], "made": ""}
    assert json.loads(run(client.url, "bundle", one, "-o", "-").stdout)["verdict"] == bundles["ok"]["verdict"]
    assert run(client.url, "bundle", "0199f2c4-0000-7000-8000-000000000000").returncode == 5


def test_what_is_not_done_has_no_bundle(start_daemon: service.StartDaemon, bundles: dict[str, Json]) -> None:
    client = start_daemon(ready=False, paused=True).client
    assert client.get("/v1/submissions/0199f2c4-0000-7000-8000-000000000000/bundle").status == 404
    assert client.get("/v1/submissions/x/bundle").status == 404
    # Workers are there though nothing is judged: the task is registered, the candidate waits.
    submission = client.expect("POST", "/v1/replays", bundles["ok"])["id"]
    answer = client.get(f"/v1/submissions/{submission}/bundle")
    assert (answer.status, answer.json()["code"]) == (409, "unfinished")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"format": "x"}, "/format"),
    ({"version": 2}, "/version"),
    ({"task_id": "sha256:0"}, "/task_id"),
    ({"candidate": 1}, "/candidate"),
    ({"candidate": "x" * (1 << 20) + "x"}, "/candidate"),
    ({"extra": 1}, "/extra"),
    ({"request/seed": "0"}, "/request/seed"),
    ({"request/seed": "0123456789ABCDEF"}, "/request/seed"),
    ({"request/policy": {"name": "none"}}, "/request/policy"),
    ({"request/reward": {"kind": "none"}}, "/request/reward"),
    ({"request/until": "never"}, "/request/until"),
    ({"request/flags": [1]}, "/request/flags"),
    ({"request/extra": 1}, "/request/extra"),
    ({"task/reference": "x = 1"}, "/task_id"),
    ({"task/level": "x"}, "/task/level"),
]


@pytest.mark.parametrize(("change", "pointer"), BAD, ids=[f"{next(iter(c))}-{i}" for i, (c, _) in enumerate(BAD)])
def test_bad_bundles(client: Client, bundles: dict[str, Json], change: dict[str, Any], pointer: str) -> None:
    bundle = json.loads(json.dumps(bundles["syntax"]))
    for path, value in change.items():
        *above, key = path.split("/")
        (bundle[above[0]] if above else bundle)[key] = value
    answer = client.post("/v1/replays", bundle)
    assert answer.status in (400, 413)
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "verifierd bundle"}', '{"verdict": 1}', "x" * 9_000_000])
def test_files_that_are_no_bundle(client: Client, tmp_path: Path, text: str) -> None:
    says = b"has more than 8388608 bytes" if len(text) > 8388608 else b"is no bundle"
    file = tmp_path / "bundle.json"
    file.write_text(text)
    done = run(client.url, "replay", file)
    assert done.returncode == 2 and says in done.stderr
    assert run(client.url, "replay", tmp_path / "none").returncode == 2


def test_only_an_admin_replays(bundles: dict[str, Json], tmp_path: Path) -> None:
    with service.directory() as directory:
        daemon = Daemon(directory)
        tokens = {}
        for scope in ("submit", "read", "admin"):
            made = subprocess.run(
                [str(service.BINARY), "token", "new", f"--name={scope}", f"--scope={scope}",
                 f"--store={directory / 'store.db'}"],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            tokens[scope] = {"Authorization": f"Bearer {made.stdout.strip()}"}
        client = daemon.start(ready=False)
        try:
            for scope, status in (("submit", 403), ("read", 403)):
                assert client.call("POST", "/v1/replays", bundles["ok"], tokens[scope]).status == status
            # Refused for what it is, and not for who sends it.
            assert client.call("POST", "/v1/replays", {}, tokens["admin"]).status == 400
            path = "/v1/submissions/0199f2c4-0000-7000-8000-000000000000/bundle"
            assert [client.call("GET", path, None, tokens[scope]).status for scope in tokens] == [403, 404, 404]
        finally:
            daemon.stop()
