"""The calls that answer questions about many submissions, on verdicts of the real funnel."""

from __future__ import annotations

import subprocess
from pathlib import Path

import corpus
import pytest
import service

BROKEN = "import triton\nclass ModelNew(:\n    pass\n"
HONEST = next(one.text for one in corpus.load_candidates() if one.label == "relu/honest")
CHEAT = HONEST.replace("return y", "return torch.relu(y)")


def counted(client: service.Client, path: str, key: str = "n") -> int:
    return int(client.expect("GET", path)[key])


def skips(client: service.Client) -> dict[str, int]:
    stages = client.expect("GET", "/v1/trends?window=1h")["stages"]
    return {stage: int(of["skip"]) for stage, of in stages.items()}


def test_a_verdict_is_counted_once_everywhere(client: service.Client, task_ids: dict[str, str]) -> None:
    task = task_ids["relu"]
    before = counted(client, "/v1/trends?window=1h")
    tried = counted(client, f"/v1/tasks/{task}/leaders")
    skipped = skips(client)
    for candidate in (BROKEN, BROKEN, CHEAT):
        client.judge({"task": task, "candidate": candidate})
    honest = client.judge({"task": task, "candidate": HONEST, "until": "full"})
    assert (honest["class"], honest["timing"]["outcome"]) == ("ok", "skipped")
    trends = client.expect("GET", "/v1/trends?window=1h")
    assert trends["n"] == before + 4
    assert sum(trends["classes"].values()) == trends["n"] == sum(step["n"] for step in trends["steps"])
    stages = trends["stages"]
    assert stages["ast"]["fail"] >= 2 and stages["ast"]["entered"] == stages["ast"]["pass"] + stages["ast"]["fail"]
    assert skips(client) == {**skipped, "timing": skipped["timing"] + 1}
    assert trends["step_s"] == 60 and 60 <= len(trends["steps"]) <= 62
    leaders = client.expect("GET", f"/v1/tasks/{task}/leaders")
    assert (leaders["n"], leaders["task_name"]) == (tried + 4, "relu") and leaders["cheats"] >= 1
    board = client.expect("GET", "/v1/leaderboard?limit=1")
    assert board["items"][0]["task"] == task  # the one that was active last


def test_failures_are_told_by_message_with_an_example(client: service.Client, task_ids: dict[str, str]) -> None:
    submission = client.judge({"task": task_ids["relu"], "candidate": BROKEN})
    found = client.expect("GET", "/v1/failures?window=24h&limit=200")["items"]
    mine = [item for item in found if item["class"] == "syntax" and item["example"] == submission["id"]]
    assert len(mine) == 1 and mine[0]["failed_at"] == "ast"
    assert mine[0]["message"].startswith("SyntaxError: ")
    of_task = client.expect("GET", f"/v1/failures?task={task_ids['relu']}&class=syntax&limit=1")
    assert of_task["kinds"] >= 1 and of_task["n"] >= 1 and of_task["items"][0]["class"] == "syntax"
    assert client.expect("GET", "/v1/failures?run=nobody")["items"] == []
    assert client.get("/v1/failures?task=nobody").status == 404
    assert [item["n"] for item in found] == sorted((item["n"] for item in found), reverse=True)


def test_groups_are_listed_with_how_far_they_are(client: service.Client, task_ids: dict[str, str]) -> None:
    body = {"task": task_ids["relu"], "candidates": [{"candidate": BROKEN}, {"candidate": CHEAT}]}
    group = str(client.expect("POST", "/v1/groups", body)["id"])
    client.wait(group, kind="groups")
    page = client.expect("GET", "/v1/groups?limit=1")
    (item,) = page["items"]
    assert (item["id"], item["size"], item["states"]["done"], item["ok"]) == (group, 2, 2, 0)
    assert item["task_name"] == "relu"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/trends?window=2h",
        "/v1/failures?window=1h",
        "/v1/failures?limit=0",
        "/v1/failures?class=wrong",
        "/v1/leaderboard?cursor=x",
        "/v1/leaderboard?cursor=1.md5:",
        "/v1/groups?limit=51",
        "/v1/groups?cursor=sha256:",
        "/v1/trends?task=relu",
    ],
)
def test_a_bad_parameter_is_named(client: service.Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status, answer.json()["code"]) == (400, "bad_parameter")
    assert answer.json()["errors"][0]["parameter"] == path.split("?")[1].split("=")[0]


def test_the_leaders_of_an_unknown_task_are_not_found(client: service.Client) -> None:
    assert client.get("/v1/tasks/nobody/leaders").status == 404
    assert client.get("/v1/tasks/sha256:0/leaders").status == 404


def token(directory: Path, client: str, scopes: str) -> str:
    command = [str(service.BINARY), "token", "new", f"--name={client}-{scopes}", f"--scope={scopes}"]
    command += [f"--client={client}", f"--tokens={directory / 'tokens'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()[-1]


def test_a_reader_is_told_of_its_own_client_alone(
    start_daemon: service.StartDaemon, tasks: dict[str, corpus.Task]
) -> None:
    with service.directory() as directory:
        ann, reader, other, admin = (
            token(directory, "ann", "submit"),
            token(directory, "ann", "read"),
            token(directory, "bob", "read"),
            token(directory, "root", "admin"),
        )
        daemon = start_daemon(tokens=directory / "tokens")
        client = daemon.client

        def ask(who: str, path: str, body: object = None) -> service.Answer:
            return client.call("POST" if body else "GET", path, body, {"Authorization": f"Bearer {who}"})

        added = ask(ann, "/v1/tasks", tasks["relu"].registration()).json()["id"]
        group = {"task": added, "candidates": [{"candidate": BROKEN}]}
        assert ask(ann, "/v1/groups?wait=60", group).status == 200
        for who, n in ((reader, 1), (other, 0), (admin, 1)):
            assert ask(who, "/v1/trends").json()["n"] == n
            assert len(ask(who, "/v1/failures").json()["items"]) == n
            assert len(ask(who, "/v1/leaderboard").json()["items"]) == n
            assert ask(who, f"/v1/tasks/{added}/leaders").json()["n"] == n
            assert len(ask(who, "/v1/groups").json()["items"]) == n
        for path in ("/v1/trends", "/v1/failures", "/v1/leaderboard", f"/v1/tasks/{added}/leaders"):
            assert ask(ann, path).status == 403
        assert len(ask(ann, "/v1/groups").json()["items"]) == 1
