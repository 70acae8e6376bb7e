"""The command line against a scripted service: what it sends, what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import service
import yaml
from answering import Call, Reply, answering, document

VERIFIER = service.BINARY.with_name("verifier")
LIMIT_S = 60.0
ID = "0199f2c4-0000-7000-8000-000000000001"
GROUP = "0199f2c4-0000-7000-8000-00000000000a"
Json = dict[str, Any]

OK: Json = {
    "id": ID,
    "task": "sha256:ab",
    "task_name": "softmax",
    "state": "done",
    "stage": "timing",
    "failed_at": None,
    "class": "ok",
    "reward": 0.8965,
    "reward_spec": {"kind": "staged", "version": 2},
    "flags": ["truncated"],
    "components": {"speedup": 1.31, "speedup_lo": 1.27, "speedup_hi": 1.35},
    "correctness": {"cases": 5, "passed": 5, "first_mismatch": None, "max_abs": 1e-7},
    "timing": {"outcome": "measured", "reference_ms": 1.31, "candidate_ms": 1.0},
    "stages": [{"stage": "ast", "outcome": "pass", "wait_ms": 0.25, "run_ms": 12.5}],
    "feedback": {"class": "ok", "text": "first line\nsecond \x1b[31mline"},
    "created": "2026-11-21T11:36:17.123Z",
}
MISMATCH: Json = OK | {
    "class": "mismatch",
    "failed_at": "full",
    "stage": "full",
    "reward": 0.58,
    "timing": None,
    "components": {},
    "correctness": {
        "cases": 5,
        "passed": 2,
        "max_abs": 3.5,
        "first_mismatch": {
            "case": "original",
            "output": "0",
            "index": [3, 7],
            "expected": 1.5,
            "got": "nan",
            "differing": 12,
            "of": 4096,
        },
    },
}
RUNNING: Json = OK | {"state": "running", "class": None, "reward": None}
INFRA: Json = OK | {"class": "infra", "reward": None}


@dataclass
class Script:
    """What the service answers: for each "METHOD path" its (status, document), the last for ever."""

    answers: dict[str, list[tuple[int, object]]] = field(default_factory=dict)
    calls: list[tuple[str, str, Any, str | None]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    url: str = ""

    def on(self, call: str, *answers: tuple[int, object]) -> None:
        self.answers[call] = list(answers)

    def answer(self, call: Call) -> Reply:
        self.calls.append((call.method, call.path, call.body, call.headers.get("Authorization")))
        key = f"{call.method} {call.path.partition('?')[0]}"
        missing = [(404, {"title": "There is nothing here", "status": 404, "detail": f"no {key}"})]
        rows = self.answers.get(key) or missing
        return document(*(rows.pop(0) if len(rows) > 1 else rows[0]), self.headers)

    def sent(self, call: str) -> Any:
        """The body of the one call of this kind."""
        (body,) = (body for method, target, body, _ in self.calls if f"{method} {target}" == call)
        return body


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    script.on("GET /v1/tasks/softmax", (200, {"id": "sha256:ab", "name": "softmax", "reference": "x = 1\n"}))
    script.on("POST /v1/submissions", (202, {"id": ID, "state": "queued"}))
    script.on("GET /v1/submissions/" + ID, (200, OK))
    with answering(script.answer) as script.url:
        yield script


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text("x = 'é'\n")
    return str(path)


def environment(script: Script, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "VERIFIERD_URL": script.url} | more


def verifier(script: Script, *arguments: str, text: bytes = b"", **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(VERIFIER), *arguments],
        input=text,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        env=environment(script, **more),
    )


def test_submit_prints_the_id(script: Script, source: str) -> None:
    done = verifier(script, "submit", source, "--task", "softmax")
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, ID + "\n", b"")
    assert script.sent("POST /v1/submissions") == {"task": "sha256:ab", "candidate": "x = 'é'\n"}


def test_submit_sends_what_was_asked(script: Script, source: str) -> None:
    arguments = ["--entry-point=Mine", "--policy", "hybrid", "--until=tiny", "--metadata", "a=b=c"]
    arguments += ["--metadata", "d=", "--metadata", "step=12", "--client", "me", "--completion", "--task", "sha256:cd"]
    arguments += ["--reward", "staged", "--priority=batch", "--no-cache"]
    done = verifier(script, "submit", "-", *arguments, text=b"answer", VERIFIERD_TOKEN="secret")
    assert done.returncode == 0, done.stderr
    assert script.sent("POST /v1/submissions") == {
        "task": "sha256:cd",
        "completion": "answer",
        "entry_point": "Mine",
        "policy": "hybrid",
        "until": "tiny",
        "client": "me",
        "metadata": {"a": "b=c", "d": "", "step": 12},
        "reward": "staged",
        "priority": "batch",
        "cache": False,
    }
    assert script.calls[0][3] == "Bearer secret"


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("classic", "classic"),
        ("hybrid,shapes=require", {"name": "hybrid", "shapes": "require"}),
        (
            "classic,timing.trials=100,variations.count=1",
            {"name": "classic", "timing": {"trials": 100}, "variations": {"count": 1}},
        ),
        ("FILE", {"name": "kernelbench", "tiny_first": True}),
    ],
)
def test_a_policy_is_a_name_a_file_or_a_name_with_keys(
    script: Script, source: str, said: str, sent: Any, tmp_path: Path
) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"name": "kernelbench", "tiny_first": true}')
    done = verifier(script, "submit", source, "--task", "softmax", "--policy", str(file) if said == "FILE" else said)
    assert done.returncode == 0, done.stderr
    assert script.sent("POST /v1/submissions")["policy"] == sent


def test_a_policy_that_cannot_be_read_is_refused_before_anything_is_sent(script: Script, source: str) -> None:
    for said, why in (
        ("strcit", "there is no policy"),
        ("strict,stagd=1", "/stagd"),
        ("timing.trials=0", "/timing/trials"),
    ):
        done = verifier(script, "submit", source, "--task", "softmax", "--policy", said)
        assert done.returncode == 2 and why in done.stderr.decode(), done.stderr
    assert not script.calls


def test_submit_takes_a_reference_instead_of_a_task(script: Script, source: str, tmp_path: Path) -> None:
    reference = tmp_path / "reference.py"
    reference.write_text("r = 1\n")
    assert verifier(script, "submit", source, "--reference", str(reference)).returncode == 0
    assert script.sent("POST /v1/submissions") == {"reference": "r = 1\n", "candidate": "x = 'é'\n"}


def test_sources_keep_their_nuls(script: Script) -> None:
    assert verifier(script, "submit", "-", "--task", "sha256:ab", text=b"a\0b").returncode == 0
    assert script.sent("POST /v1/submissions")["candidate"] == "a\0b"


def test_wait_shows_the_verdict(script: Script, source: str) -> None:
    script.on("GET /v1/submissions/" + ID, (200, RUNNING), (200, OK))
    done = verifier(script, "submit", source, "--task", "softmax", "--wait")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0
    assert "reward          0.8965  (staged, version 2)" in lines
    assert "speedup         1.310  (95% interval 1.270 to 1.350)" in lines
    assert lines[lines.index("feedback        first line") + 1] == " " * 16 + "second ?[31mline"
    assert lines[-2:] == ["STAGE OUTCOME WAIT ms RUN ms", "ast   pass        0.2   12.5"]
    assert ID in done.stderr.decode()


def test_wait_names_the_first_mismatch_and_fails(script: Script, source: str) -> None:
    script.on("GET /v1/submissions/" + ID, (200, MISMATCH))
    done = verifier(script, "submit", source, "--task", "softmax", "--wait=30")
    expected = "case original, output 0, index [3, 7]: expected 1.5, got nan; 12 of 4096 differ"
    assert done.returncode == 1
    assert f"first mismatch  {expected}" in done.stdout.decode()
    assert "correctness     2 of 5 cases passed, largest error 3.5\n" in done.stdout.decode()


def test_a_shared_verdict_and_an_error_that_is_undefined_are_shown_as_such(script: Script) -> None:
    all_nan = MISMATCH["correctness"] | {"max_abs": 0.0}
    script.on("GET /v1/submissions/" + ID, (200, MISMATCH | {"cached_from": "earlier", "correctness": all_nan}))
    lines = verifier(script, "show", ID).stdout.decode().splitlines()
    assert "verdict of      earlier" in lines and "correctness     2 of 5 cases passed" in lines


def test_json_is_the_service_s_document(script: Script, source: str) -> None:
    script.on("GET /v1/submissions/" + ID, (200, MISMATCH))
    done = verifier(script, "--json", "submit", source, "--task", "softmax", "--wait")
    assert done.returncode == 1
    assert json.loads(done.stdout) == MISMATCH
    assert done.stderr == b""


def test_json_has_no_more_digits_than_came(script: Script) -> None:
    script.on("GET /v1/submissions/" + ID, (200, b'{"id": "x", "reward": 0.1, "components": {"a": 5.002, "b": 1e-6}}'))
    text = verifier(script, "show", ID, "--json").stdout.decode()
    assert '"reward": 0.1,' in text and '"a": 5.002,' in text and "1e-6" in text


def test_infra_has_no_reward(script: Script) -> None:
    script.on("GET /v1/submissions/" + ID, (200, INFRA))
    done = verifier(script, "show", ID)
    assert done.returncode == 0
    assert "reward          none" in done.stdout.decode()


def test_wait_ends_after_its_time(script: Script, source: str) -> None:
    script.on("GET /v1/submissions/" + ID, (200, RUNNING))
    started = time.monotonic()
    done = verifier(script, "submit", source, "--task", "softmax", "--wait=1", "--json")
    assert done.returncode == 8
    assert json.loads(done.stdout) == RUNNING
    assert 0.9 <= time.monotonic() - started < 20
    assert len(script.calls) < 20, "a service that does not hold polls is asked without a pause"


def test_wait_tells_each_stage_once(script: Script, source: str) -> None:
    seen = [
        RUNNING | told
        for told in ({"state": "queued", "stage": None}, {"stage": "ast"}, {"stage": "ast"}, {"stage": "tiny"})
    ]
    script.on("GET /v1/submissions/" + ID, *((200, one) for one in seen), (200, OK))
    done = verifier(script, "submit", source, "--task", "softmax", "--wait")
    assert done.returncode == 0
    told = done.stderr.decode().splitlines()
    assert told == [
        f"verifier: submitted {ID}",
        "verifier: queued",
        "verifier: running: ast",
        "verifier: running: tiny",
    ]
    assert all("wait=1" in target for method, target, _, _ in script.calls if target.startswith("/v1/submissions/"))


def test_wait_survives_a_restart(script: Script, source: str) -> None:
    away = [(status, {"title": "Not now", "status": status}) for status in (503, 502, 504)]
    script.on("GET /v1/submissions/" + ID, (200, RUNNING), *away, (200, OK))
    done = verifier(script, "submit", source, "--task", "softmax", "--wait")
    assert done.returncode == 0
    assert done.stderr.decode().count("away") == 1


def test_interrupt_says_how_to_go_on(script: Script, source: str) -> None:
    script.on("GET /v1/submissions/" + ID, (200, RUNNING))
    process = subprocess.Popen(
        [str(VERIFIER), "submit", source, "--task", "softmax", "--wait"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(script),
    )
    assert process.stderr is not None
    assert b"submitted" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert f"verifier show {ID}" in said.decode()


def test_group_waits_for_all(script: Script, source: str) -> None:
    script.on("POST /v1/groups", (202, {"id": GROUP, "state": "queued"}))
    items = [OK, MISMATCH]
    document = {"id": GROUP, "state": "done", "items": items, "ranking": [0, 1]}
    script.on("GET /v1/groups/" + GROUP, (200, document))
    done = verifier(script, "group", "--task", "softmax", source, source, "--wait")
    assert done.returncode == 1
    assert script.sent("POST /v1/groups")["candidates"] == [{"candidate": "x = 'é'\n"}] * 2
    rows = [line.split() for line in done.stdout.decode().splitlines()]
    assert ["1", source, "done", "mismatch", "full", "0.5800", "-"] in rows
    asked = ["--reward", '{"kind": "staged", "hack_value": -1}', "--metadata=run=r", "--until=full", "--entry-point=M"]
    assert verifier(script, "group", f"--reference={source}", *asked, source).returncode == 0
    sent = script.calls[-1][2]
    assert sent == {
        "candidates": [{"candidate": "x = 'é'\n"}],
        "reference": "x = 'é'\n",
        "reward": {"kind": "staged", "hack_value": -1},
        "metadata": {"run": "r"},
        "until": "full",
        "entry_point": "M",
    }
    assert verifier(script, "group", "--task=t", "--reward={", source).returncode == 2
    items[1] = OK
    assert verifier(script, "group", "--task", "softmax", source, source, "--wait").returncode == 0


def test_task_add(script: Script, source: str) -> None:
    script.on("POST /v1/tasks", (201, {"id": "sha256:ab"}))
    done = verifier(script, "task", "add", source, "--level", "2", "--dynamic-shapes", "--entry-point", "M")
    assert (done.returncode, done.stdout) == (0, b"sha256:ab\n")
    assert script.sent("POST /v1/tasks") == {
        "name": "mine",
        "reference": "x = 'é'\n",
        "level": 2,
        "dynamic_shapes": True,
        "entry_point": "M",
    }


def test_a_task_that_is_there_says_what_it_keeps(script: Script, source: str) -> None:
    """It is found by the name that was asked for, and not shown by it."""
    script.on("POST /v1/tasks", (200, {"id": "sha256:ab", "name": "Model", "level": None}))
    done = verifier(script, "task", "add", source, "--level", "2")
    assert (done.returncode, done.stdout) == (0, b"sha256:ab\n")
    assert done.stderr.decode().splitlines() == [
        'verifier: the task is there already; it has this name, too, and is shown as "Model"',
        "verifier: the task is there already and keeps its level, none",
    ]
    script.on("POST /v1/tasks", (200, {"id": "sha256:ab", "name": "mine", "level": 2}))
    assert verifier(script, "task", "add", source, "--level", "2").stderr == b""


def test_a_server_is_found_by_its_name(script: Script, tmp_path: Path) -> None:
    script.on("GET /v1/tasks", (200, {"items": [], "next": None}))
    file = tmp_path / "verifier.conf"
    file.write_text(f'server lab {{ url = "{script.url}" token = "t1" }}\nserver bare {{ token = "t2" }}\n')
    file.chmod(0o600)

    def listed(*options: str, server: str = "") -> subprocess.CompletedProcess[bytes]:
        line = (*options, "task", "list")
        where = "http://127.0.0.1:9"
        return verifier(script, *line, XDG_CONFIG_HOME=str(tmp_path), VERIFIERD_URL=where, VERIFIERD_SERVER=server)

    assert listed("--server=lab").returncode == listed(server="lab").returncode == 0
    assert [call[3] for call in script.calls] == ["Bearer t1"] * 2
    assert listed("--server=lab", f"--url={script.url}").returncode == 0
    assert script.calls[-1][3] is None, "a token goes to the server that it is for"
    for order in (["-t", "mine", "-s", "lab"], ["-s", "lab", "-t", "mine"]):
        assert listed(*order).returncode == 0
        assert script.calls[-1][3] == "Bearer mine"
    for options, words in (
        (["--server=none"], 'has no server "none"'),
        (["--server=bare"], 'server "bare" has no url'),
    ):
        done = listed(*options)
        assert done.returncode == 3 and words in done.stderr.decode()
    file.chmod(0o644)
    done = listed("--server=lab")
    assert done.returncode == 3 and f"chmod 600 {file}" in done.stderr.decode()
    file.write_text("server lab { address = 1 }\n")
    done = listed("--server=lab")
    assert done.returncode == 3 and f"{file}:1: " in done.stderr.decode()
    file.unlink()
    assert listed("--server=lab").returncode == 3


def test_task_add_of_a_directory(script: Script, tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "c.py", ".hidden.py", "notes.md"):
        (tmp_path / name).write_text(f"x = '{name}'\n")
    refused = {"title": "The reference does not run", "status": 422}
    script.on("POST /v1/tasks", (201, {"id": "sha256:a"}), (422, refused), (201, {"id": "sha256:c"}))
    done = verifier(script, "task", "add", str(tmp_path), "--level", "1")
    assert (done.returncode, done.stdout) == (6, b"sha256:a\nsha256:c\n")
    bodies = [body for method, _, body, _ in script.calls if method == "POST"]
    assert bodies == [{"name": name, "reference": f"x = '{name}.py'\n", "level": 1} for name in "abc"]
    told = done.stderr.decode()
    assert f"{tmp_path}/b.py is not registered" in told and "1 of 3 are not registered" in told
    assert verifier(script, "task", "add", str(tmp_path), "--name=x").returncode == 2
    (tmp_path / "empty").mkdir()
    done = verifier(script, "task", "add", str(tmp_path / "empty"))
    assert done.returncode == 2 and b"has no *.py" in done.stderr


def test_task_rename_and_rm(script: Script) -> None:
    script.on("PATCH /v1/tasks/relu", (200, {"id": "sha256:ab", "name": "relu2"}))
    done = verifier(script, "task", "rename", "relu", "relu2")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"sha256:ab\n", b"")
    assert script.sent("PATCH /v1/tasks/relu") == {"name": "relu2"}
    script.on("DELETE /v1/tasks/relu2", (200, {"id": "sha256:ab", "deleted": False}))
    done = verifier(script, "task", "rm", "relu2")
    assert done.returncode == 0 and b"other clients have names" in done.stderr
    script.on("DELETE /v1/tasks/relu2", (200, {"id": "sha256:ab", "deleted": True}))
    assert verifier(script, "task", "rm", "relu2").stderr == b""
    problem = {"title": "The name is another task's", "status": 409, "code": "name_taken", "detail": "taken"}
    script.on("PATCH /v1/tasks/relu", (409, problem))
    assert verifier(script, "task", "rename", "relu", "gelu").returncode != 0
    assert verifier(script, "task", "rename", "relu").returncode == 2


def test_task_show_lists_the_cases(script: Script) -> None:
    tensor = {"tensor": {"dtype": "float32", "shape": [50, 300], "stride": [300, 1]}}
    inputs = {"list": [tensor, {"float": "0x1.8p+1"}, None]}
    own = {"name": "own", "overrides": {}, "inputs": inputs, "outputs": tensor, "elements": 15000}
    tiny = own | {"name": "tiny", "overrides": {"ROWS": 4}}
    spec = {"knobs": {"ROWS": 50, "COLUMNS": 300}, "cases": {"own": own, "tiny": tiny, "shapes": []}}
    task = {"id": "sha256:ab", "name": "softmax", "level": None, "reference": "x = 1\n", "spec": spec}
    script.on("GET /v1/tasks/softmax", (200, task))
    lines = verifier(script, "task", "show", "softmax").stdout.decode().splitlines()
    assert "sizes           ROWS = 50, COLUMNS = 300" in lines
    row = ["(float32[50,", "300],", "3,", "-)", "float32[50,", "300]", "15000"]
    assert [line.split() for line in lines[-2:]] == [["own", "-", *row], ["tiny", "ROWS", "=", "4", *row]]
    assert verifier(script, "task", "show", "softmax", "--reference").stdout == b"x = 1\n"


def test_a_refused_reference_shows_its_traceback(script: Script, source: str) -> None:
    problem = {"title": "The reference does not run", "status": 422, "traceback": "ValueError: \x1bboom"}
    script.on("POST /v1/tasks", (422, problem))
    done = verifier(script, "task", "add", source)
    assert done.returncode == 6
    assert "The reference does not run" in done.stderr.decode()
    assert "ValueError: ?boom" in done.stderr.decode()


def test_lists(script: Script) -> None:
    brief = {key: OK[key] for key in ("id", "task_name", "state", "class", "stage", "reward", "created")}
    script.on("GET /v1/submissions", (200, {"items": [brief | {"speedup": 1.31}], "next": "n&1"}))
    script.on("GET /v1/tasks", (200, {"items": [{"id": "sha256:ab", "name": "softmax"}], "next": None}))
    done = verifier(script, "list", "--state", "done", "--class", "ok", "--task", "softmax", "--limit", "3", "--run=r")
    row = [ID, "softmax", "done", "ok", "timing", "0.8965", "1.310", OK["created"]]
    assert [line.split() for line in done.stdout.decode().splitlines()][1:] == [row]
    assert script.calls[-1][1] == "/v1/submissions?limit=3&state=done&class=ok&task=sha256%3Aab&run=r"
    assert "--cursor 'n&1'" in done.stderr.decode()
    assert verifier(script, "list", f"--group={ID}", "--step=3").returncode == 0
    assert script.calls[-1][1] == f"/v1/submissions?limit=50&group={ID}&step=3"
    done = verifier(script, "task", "list", "--name", "a b")
    assert "softmax" in done.stdout.decode()
    assert script.calls[-1][1] == "/v1/tasks?limit=200&name=a%20b"
    assert verifier(script, "task", "list", "--limit=3").returncode == 0
    assert script.calls[-1][1] == "/v1/tasks?limit=3"


def test_show_waits_for_the_end(script: Script) -> None:
    script.on("GET /v1/submissions/" + ID, (200, RUNNING), (200, RUNNING), (200, OK))
    done = verifier(script, "show", ID, "--wait", "--json")
    assert done.returncode == 0 and json.loads(done.stdout) == OK
    script.on("GET /v1/submissions/" + ID, (200, RUNNING))
    done = verifier(script, "show", ID, "--wait=0.1")
    assert done.returncode == 8 and b"not finished after 0.1 s" in done.stderr
    assert verifier(script, "show", ID, "--wait=0").returncode == 8
    script.on("GET /v1/submissions/" + ID, (200, OK))
    assert verifier(script, "show", ID, "--wait=0").returncode == 0


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("list", "/v1/submissions"),
        ("show", "/v1/submissions/{id}"),
        ("show", "/v1/groups/{id}"),
        ("task list", "/v1/tasks"),
        ("failures", "/v1/failures"),
        ("leaderboard", "/v1/leaderboard"),
        ("events", "/v1/events"),
        ("export", "/v1/export"),
    ],
)
def test_a_command_has_an_option_for_each_parameter_of_its_route(command: str, path: str) -> None:
    contract = yaml.safe_load((service.ROOT / "proto" / "openapi.yaml").read_text())
    parameters = []
    for one in contract["paths"][path]["get"]["parameters"]:
        name = one.get("$ref", "").rpartition("/")[2]
        parameters.append(contract["components"]["parameters"][name] if name else one)
    wanted = {one["name"] for one in parameters if one["in"] == "query"} - {"view"}  # of the answer, not what is in it
    assert wanted and {"--" + name.replace("_", "-") for name in wanted} <= options_of_help(command)


@pytest.mark.parametrize(("command", "schema"), [("submit", "NewSubmission"), ("group", "NewGroup")])
def test_a_command_has_an_option_for_each_member_of_its_request(command: str, schema: str) -> None:
    contract = yaml.safe_load((service.ROOT / "proto" / "openapi.yaml").read_text())
    other = {"cache": "no-cache", "time_top_k": "time-top", "stop": "stop-correct", "deadline_s": "deadline"}
    members = set(contract["components"]["schemas"][schema]["properties"]) - {"candidate", "candidates"}  # the FILEs
    wanted = {"--" + other.get(name, name.replace("_", "-")) for name in members}
    assert len(wanted) > 10 and wanted <= options_of_help(command)


def test_failures_and_the_leaderboard_are_tables(script: Script) -> None:
    row = {"class": "compile", "failed_at": "compile", "message": "no 'tanhh'", "n": 7, "example": ID}
    script.on("GET /v1/failures", (200, {"n": 9, "kinds": 3, "items": [row]}))
    script.on("GET /v1/leaderboard", (200, {"items": [{"task": "sha256:ab", "task_name": "softmax", "n": 4}]}))
    done = verifier(script, "failures", "--window=7d", "--task=softmax", "--run=r/1", "--class=compile", "--limit=1")
    assert script.calls[-1][1] == "/v1/failures?limit=1&window=7d&task=sha256%3Aab&run=r%2F1&class=compile"
    assert done.stdout.decode().splitlines()[1].split() == ["7", "compile", "compile", ID, "no", "'tanhh'"]
    assert "1 of 3 kinds" in done.stderr.decode()
    done = verifier(script, "leaderboard", "--cursor=c&1")
    assert script.calls[-1][1] == "/v1/leaderboard?limit=50&cursor=c%261"
    assert done.returncode == 0 and done.stdout.decode().splitlines()[1].split()[0] == "softmax"


def stream(*events: tuple[str, Json]) -> bytes:
    told = (f"event: {kind}\nid: {i}\ndata: {json.dumps(data)}\n\n" for i, (kind, data) in enumerate(events))
    return ": a heartbeat\n\n".join(told).encode()


def test_events_are_lines(script: Script) -> None:
    """Of one submission, of all, of a run; for programs an object a line."""
    state = {"id": ID, "state": "running", "stage": "tiny", "group": None}
    mine = MISMATCH | {"metadata": {"run": "r/1"}}
    told = [("open", {}), ("state", state), ("verdict", mine), ("verdict", OK), ("end", {"reason": "wait"})]
    script.on(f"GET /v1/submissions/{ID}/events", (200, stream(*told)))
    script.on("GET /v1/events", (200, stream(*told)))
    done = verifier(script, "events", ID)
    verdict = f"verdict  {ID}  softmax  full  mismatch  0.58"
    last = f"verdict  {ID}  softmax  timing  ok  0.8965"
    assert done.stdout.decode().splitlines() == [f"state  {ID}  tiny", verdict, last, "end  wait"], done.stderr
    done = verifier(script, "events", "--run=r/1", "--wait=2")
    assert (done.returncode, done.stdout.decode().splitlines()) == (0, [verdict, "end  wait"])
    assert script.calls[-1][1] == "/v1/events?view=full&wait=2"
    done = verifier(script, "events", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"event": k, "data": d} for k, d in told]
    done = verifier(script, "events", GROUP)
    assert (done.returncode, "no submission or group has the id" in done.stderr.decode()) == (5, True)


def test_gaps_are_told_of_a_run_too(script: Script) -> None:
    script.on("GET /v1/events", (200, stream(("gap", {"reason": "lost"}), ("end", {"reason": "wait"}))))
    assert verifier(script, "events", "--run=r").stdout.decode().splitlines() == ["gap  lost", "end  wait"]


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (stream(("end", {"reason": "finished"})), 0, ""),
        (stream(("end", {"reason": "draining"})), 7, "stopping"),
        (stream(("end", {"reason": "token"})), 4, "token"),
        (stream(("open", {})), 7, "broke off"),
        (b"event: verdict\ndata: {nonsense\n\n" + stream(("end", {"reason": "wait"})), 7, "not JSON at byte"),
    ],
)
def test_only_the_end_of_what_is_followed_is_success(script: Script, sent: bytes, code: int, said: str) -> None:
    script.on("GET /v1/events", (200, sent))
    done = verifier(script, "events")
    assert (done.returncode, said in done.stderr.decode()) == (code, True), done.stderr
    assert bool(done.stderr) == bool(code)


def test_events_keep_their_nuls(script: Script) -> None:
    verdict = OK | {"task_name": "a\0b"}
    script.on("GET /v1/events", (200, stream(("verdict", verdict), ("end", {"reason": "wait"}))))
    assert verifier(script, "events").stdout.decode().startswith(f"verdict  {ID}  a?b  timing")
    assert json.loads(verifier(script, "events", "--json").stdout.splitlines()[0])["data"] == verdict


@pytest.mark.parametrize("command", ["events", "open", "cancel", "show"])
def test_an_answer_without_an_id_is_another_server_s(script: Script, command: str) -> None:
    script.on("GET /v1/submissions/" + ID, (200, {"state": "done"}))
    done = verifier(script, command, ID)
    assert (done.returncode, "is this verifierd?" in done.stderr.decode()) == (7, True), done.stderr


def test_open_prints_the_address_of_a_page(script: Script) -> None:
    script.on("GET /v1/groups/" + GROUP, (200, {"id": GROUP, "state": "done", "items": []}))
    for arguments, page in (
        ((), ""),
        ((ID,), "submissions/" + ID),
        ((GROUP,), "groups/" + GROUP),
        (("--run=a b/1",), "runs/a%20b%2F1"),
    ):
        done = verifier(script, "open", *arguments)
        assert (done.returncode, done.stdout.decode()) == (0, f"{script.url}/#/{page}\n"), done.stderr
    assert verifier(script, "open", ID, "--run=r").returncode == 2
    assert verifier(script, "open", ID[:-1] + "9").returncode == 5


def test_get_prints_whatever_can_be_read(script: Script) -> None:
    script.on("GET /v1/trends", (200, {"window": "1h", "n": 3}))
    script.on("GET /metrics", (200, b"verifierd_up 1\n"))
    done = verifier(script, "get", "/v1/trends?window=1h")
    assert done.stdout.decode().splitlines() == ["window: 1h", "n: 3"]
    assert script.calls[-1][1] == "/v1/trends?window=1h"
    assert json.loads(verifier(script, "get", "/v1/trends", "--json").stdout) == {"window": "1h", "n": 3}
    assert verifier(script, "get", "/metrics").stdout == b"verifierd_up 1\n"
    assert verifier(script, "get", "v1/trends").returncode == 2
    assert verifier(script, "get", "/none").returncode == 5


def test_nuls_in_an_answer_cut_nothing_off(script: Script) -> None:
    document = OK | {"feedback": {"text": "null bytes: \0 here"}}
    script.on("GET /v1/submissions/" + ID, (200, document))
    assert json.loads(verifier(script, "show", ID, "--json").stdout) == document
    for command in (["show", ID], ["get", f"/v1/submissions/{ID}"]):
        assert "null bytes: ? here" in verifier(script, *command).stdout.decode()


def test_show_source_is_exact(script: Script) -> None:
    script.on(f"GET /v1/submissions/{ID}/source", (200, b"x\0\x1b[1m\xff"))
    done = verifier(script, "show", ID, "--source")
    assert (done.returncode, done.stdout) == (0, b"x\0\x1b[1m\xff")


TIMING: Json = {
    "id": ID,
    "task_name": "softmax",
    "timing": {
        "outcome": "measured",
        "why": None,
        "estimator": "paired",
        "speedup": 1.5,
        "speedup_lo": 1.4,
        "speedup_hi": 1.6,
        "reference_ns": [3e6, 3.1e6, 2.9e6],
        "candidate_ns": [2e6, 2e6, 2e6],
        "gpu": {"throttled": 0, "blocks": 1, "void": 1, "background": 0, "temp_c": [40, 41]},
        "clocks": {"blocks": [{"bells": 5, "void": "hot \x1b[31m"}]},
    },
}


def test_timing_is_drawn(script: Script) -> None:
    script.on(f"GET /v1/submissions/{ID}/timing", (200, TIMING))
    text = verifier(script, "timing", ID).stdout.decode()
    assert "1.5000  (95% interval 1.4000 to 1.6000)  <- rewarded" in text
    assert "3 pairs" in text and "▅█▁" in text and "40 to 41 degrees" in text
    assert "\x1b" not in text and "hot ?[31m" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert json.loads(verifier(script, "timing", ID, "--json").stdout) == TIMING


def test_calibrate_measures_and_keeps(script: Script) -> None:
    script.on("GET /v1/status", (200, {"env": {"gpu": "H200"}}))
    script.on("POST /v1/tasks", (201, {"id": "sha256:ab"}))
    script.on("POST /v1/calibrations", (201, {"id": GROUP}))
    timing = {"outcome": "measured", "speedup": 1.002, "speedup_lo": 0.99, "speedup_hi": 1.01, "reference_ms": 2.5}
    script.on("GET /v1/submissions/" + ID, (200, OK | {"timing": timing}))
    done = verifier(script, "calibrate", "--rounds=2")
    text, said = done.stdout.decode(), done.stderr.decode()
    # Everything here takes the same time: the product made twice and the call that does nothing are what is wrong.
    assert (done.returncode, "took 0.998 times as long" in said, "does nothing was measured" in said) == (1, True, True)
    assert "H200: bias +0.200 %, spread 0.000 %, over 6 runs" in text
    posted = {path: [body for _, p, body, _ in script.calls if p == path and body] for _, path, _, _ in script.calls}
    (kept,) = posted["/v1/calibrations"]
    assert (kept["gpu"], len(kept["runs"])) == ("H200", 10)
    assert abs(kept["bias"] - 0.002) < 1e-9
    submitted = posted["/v1/submissions"]
    assert len({body["candidate"] for body in submitted}) == len(submitted) == 10
    assert all(body["policy"] == {"name": "kernelbench", "timing": {"fixed": True}} for body in submitted)
    script.calls.clear()
    assert verifier(script, "calibrate", "--rounds=2", "--dry-run").returncode == 1
    assert "/v1/calibrations" not in [path for _, path, _, _ in script.calls]


def test_calibrate_without_a_gpu_is_a_skip(script: Script) -> None:
    script.on("GET /v1/status", (200, {"env": {"gpu": None}}))
    done = verifier(script, "calibrate")
    assert (done.returncode, done.stdout) == (77, b"")
    assert b"SKIP calibrate: verifierd has no GPU" in done.stderr
    assert len(script.calls) == 1


def test_show_finds_groups_too(script: Script) -> None:
    script.on("GET /v1/groups/" + GROUP, (200, {"id": GROUP, "state": "done", "items": [MISMATCH]}))
    assert b"mismatch" in verifier(script, "show", GROUP).stdout
    assert verifier(script, "show", GROUP, "--fail-on-verdict").returncode == 1
    assert verifier(script, "show", ID, "--fail-on-verdict").returncode == 0


def test_cancel(script: Script) -> None:
    script.on("DELETE /v1/submissions/" + ID, (200, OK))
    assert verifier(script, "cancel", ID).returncode == 0
    for status, state, words in ((200, "cancelled", "cancelled"), (202, "running", "will be"), (200, "done", "first")):
        script.on("DELETE /v1/submissions/" + ID, (status, OK | {"state": state}))
        assert words in verifier(script, "cancel", ID).stderr.decode()
    script.on("DELETE /v1/submissions/" + ID, (409, {"title": "It is finished", "status": 409}))
    assert verifier(script, "cancel", ID).returncode == 6


STATUS: Json = {
    "version": "0.1.0",
    "state": "ready",
    "why": None,
    "uptime_s": 11520.5,
    "access": "tokens",
    "queues": {
        "queued": {"interactive": 1, "batch": 2},
        "ready": {"interactive": 0, "batch": 4},
        "oldest_s": {"queued": 3.2, "ready": 75.0},
        "limit": 20000,
        "cpu_running": 2,
        "cpu_slots": 2,
        "gpu_running": 1,
    },
    "workers": [{"name": "z1", "state": "ready"}, {"name": "referee cuda:0", "state": "failed", "why": "\x1bno GPU"}],
    "gpus": [
        {"device": "cuda:0", "name": "H100", "state": "busy", "seen": {"sm_mhz": 1980, "temp_c": 54, "power_w": 610}}
    ],
    "counts": {"finished": 3, "classes": {"ok": 2, "mismatch": 1}, "done": 9, "cancelled": 1, "tasks": 5},
    "disks": [{"what": "store", "free_bytes": 7e10, "total_bytes": 27e10, "used_bytes": 3e5}],
}


def test_status_says_in_words_what_runs_and_what_waits(script: Script) -> None:
    script.on("GET /v1/status", (200, STATUS))
    script.on("GET /v1/submissions", (200, {"items": [{"id": ID, "task_name": "softmax", "stage": "full"}]}))
    done = verifier(script, "status")
    assert done.returncode == 0 and script.calls[-1][1] == "/v1/submissions?state=running&view=brief&limit=8"
    assert done.stdout.decode().splitlines() == [
        f"verifierd       0.1.0 at {script.url}: ready, up 3 h 12 min, calls need a token",
        "waiting         3 for a CPU slot, 4 for a device; the oldest for 1 min 15 s (room for 20000)",
        "running         2 of 2 CPU slots, 1 on devices",
        f"                {ID}  softmax  in full",
        "cuda:0          H100, busy; 1980 MHz, 54 degrees, 610 W when it last timed",
        "worker          referee cuda:0: failed, ?no GPU",
        "since start     3 verdicts: ok 2, mismatch 1",
        "stored          9 done, 1 cancelled; tasks: 5",
        "store           70.0 of 270.0 GB free, 0.3 MB used",
    ]
    assert json.loads(verifier(script, "status", "--json").stdout) == STATUS


def test_status_shows_a_submitter_what_it_is_told(script: Script) -> None:
    script.on("GET /v1/status", (200, {"state": "starting", "why": "starting workers", "uptime_s": 2, "version": "1"}))
    script.on("GET /v1/submissions", (200, {"items": [], "next": None}))
    text = verifier(script, "status").stdout.decode()
    assert text == f"verifierd       1 at {script.url}: starting (starting workers), up 2 s\n"


# --- short ids ---

OTHER = ID[:-1] + "2"


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        (["show"], f"/v1/submissions/{ID}"),
        (["show", "--source"], f"/v1/submissions/{ID}/source"),
        (["timing"], f"/v1/submissions/{ID}/timing"),
        (["bundle"], f"/v1/submissions/{ID}/bundle"),
        (["cancel"], f"/v1/submissions/{ID}"),
    ],
)
def test_the_beginning_of_an_id_is_enough(script: Script, arguments: list[str], called: str) -> None:
    script.on("GET /v1/submissions", (200, {"items": [{"id": ID}, {"id": "0199f2c3-0000-7000-8000-000000000001"}]}))
    script.on("GET /v1/groups", (200, {"items": []}))
    script.on(f"GET /v1/submissions/{ID}/timing", (200, TIMING))
    script.on("DELETE /v1/submissions/" + ID, (200, OK))
    verifier(script, *arguments, ID[:10])
    assert script.calls[0][1] == f"/v1/submissions?limit=9&cursor={ID[:10]}fff-7fff-bfff-ffffffffffff"
    assert script.calls[-1][1] == called


def test_a_beginning_of_several_ids_is_an_error_that_lists_them(script: Script) -> None:
    script.on("GET /v1/submissions", (200, {"items": [{"id": OTHER}, {"id": ID}]}))
    script.on("GET /v1/groups", (200, {"items": [{"id": GROUP}]}))
    done = verifier(script, "show", ID[:6])
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().splitlines() == [
        f'verifier: more than one id begins with "{ID[:6]}":',
        f"  submission  {OTHER}",
        f"  submission  {ID}",
        f"  group  {GROUP}",
    ]
    script.on("GET /v1/submissions", (200, {"items": []}))
    script.on("GET /v1/groups", (200, {"items": []}))
    done = verifier(script, "cancel", ID[:6])
    assert done.returncode == 5 and b"no id begins with" in done.stderr
    assert verifier(script, "show", ID[:5]).returncode == 5 and script.calls[-1][1] == "/v1/groups/" + ID[:5]


def test_rescore_and_export_take_beginnings_too(script: Script) -> None:
    script.on("GET /v1/submissions", (200, {"items": [{"id": ID}]}))
    script.on("GET /v1/groups", (200, {"items": [{"id": GROUP}]}))
    script.on("POST /v1/rescore", (200, {"items": []}))
    script.on("GET /v1/export", (200, b""))
    assert verifier(script, "rescore", ID[:9], OTHER).returncode == 0
    assert script.calls[-1][2]["submissions"] == [ID, OTHER]
    assert verifier(script, "rescore", "--group", GROUP[:9]).returncode == 0
    assert script.calls[-1][2]["group"] == GROUP
    assert verifier(script, "export", "--group", GROUP[:9]).returncode == 0
    assert script.calls[-1][1] == f"/v1/export?source=false&group={GROUP}"


def test_a_dash_is_the_newest(script: Script) -> None:
    """Issue 28: newcomer 27, `-` for the last."""
    script.on("GET /v1/submissions", (200, {"items": [{"id": ID}]}))
    script.on("GET /v1/groups", (200, {"items": [{"id": GROUP}]}))
    script.on("POST /v1/rescore", (200, {"items": []}))
    script.on(f"GET /v1/submissions/{ID}/answer", (200, b"an answer"))
    assert verifier(script, "show", "--answer", "-").stdout == b"an answer"
    assert [call[1] for call in script.calls] == ["/v1/submissions?limit=1", f"/v1/submissions/{ID}/answer"]
    assert verifier(script, "rescore", "--group", "-").returncode == 0
    assert script.calls[-1][2]["group"] == GROUP
    calls = len(script.calls)
    refused = verifier(script, "cancel", "-")
    assert refused.returncode == 2 and b"takes an id" in refused.stderr and len(script.calls) == calls
    script.on("GET /v1/submissions", (200, {"items": []}))
    none = verifier(script, "show", "-")
    assert none.returncode == 5 and b"there is none" in none.stderr


def test_a_task_is_found_by_the_beginning_of_its_hash(script: Script, source: str) -> None:
    task = "sha256:" + "ab" * 32
    script.on("GET /v1/tasks", (200, {"items": [{"id": task}, {"id": "sha256:" + "ac" * 32}]}))
    assert verifier(script, "submit", source, "--task", task[:13]).returncode == 0
    assert script.calls[0][1] == "/v1/tasks?limit=9&cursor=sha256%3Aababab" + "0" * 58
    assert script.sent("POST /v1/submissions")["task"] == task
    script.on("GET /v1/tasks/" + task.replace(":", "%3A"), (200, {"id": task, "name": "softmax"}))
    assert verifier(script, "task", "show", task[:13]).returncode == 0


def test_the_daemon_takes_the_cursors_that_short_ids_are_looked_up_by(start_daemon: service.StartDaemon) -> None:
    real = Script(url=start_daemon(ready=False).client.url)
    assert verifier(real, "show", "0199f2c4-00").returncode == 5
    assert verifier(real, "task", "show", "sha256:ababab").returncode == 5


# --- judge ---


def judge(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """With a verifierd of its own: what is not loopback, and any other daemon, is out of reach."""
    return verifier(Script(url="http://192.0.2.1:9"), "judge", *arguments, f"--python={os.environ['PYTHON']}")


def judged_stores() -> set[Path]:
    return set(Path("/tmp").glob("verifierd-judge-*"))


def test_judge_needs_no_daemon_and_leaves_nothing() -> None:
    """Issue 28, point 4."""
    before = judged_stores()
    relu = service.ROOT / "tests" / "candidates" / "relu"
    reference = str(service.ROOT / "tests" / "tasks" / "relu.py")
    good = judge(str(relu / "honest.py"), "--task", reference, "--until", "tiny", "--json")
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["class"] == "ok" and good.stderr == b""
    bad = judge(str(relu / "syntax_error.py"), "--task", reference)
    assert bad.returncode == 1 and b"SyntaxError" in bad.stdout, bad.stderr
    assert judged_stores() == before


def test_judge_takes_neither_the_tokens_nor_the_scratch_of_its_config(tmp_path: Path) -> None:
    scratch, config, store = tmp_path / "scratch", tmp_path / "conf", tmp_path / "store.db"
    new = [str(service.BINARY), "token", "new", "--name=a", "--client=a", "--scope=submit", f"--store={store}"]
    subprocess.run(new, check=True, capture_output=True)
    config.write_text(f"tokens = {store}.tokens\nscratch = {scratch}\n")
    tests = service.ROOT / "tests"
    done = judge(
        str(tests / "candidates/relu/honest.py"),
        f"--task={tests / 'tasks/relu.py'}",
        "--until=ast",
        f"--config={config}",
    )
    assert done.returncode == 0, done.stderr
    assert not scratch.exists()


def test_judge_says_why_its_daemon_does_not_start(tmp_path: Path, source: str) -> None:
    before = judged_stores()
    done = verifier(Script(), "judge", source, "--task", source, "--python=/nowhere/python3")
    assert done.returncode == 3 and b"/nowhere/python3" in done.stderr
    config = tmp_path / "bad.conf"
    config.write_text("nonsense = 1\n")
    done = verifier(Script(), "judge", source, "--task", source, f"--config={config}")
    assert done.returncode == 3 and b"bad.conf:1" in done.stderr
    assert judged_stores() == before


# --- help, version, completions ---


def test_help_and_version_are_what_hands_know(script: Script) -> None:
    usage = verifier(script, "--help").stdout
    for words in (["-h"], ["help"], ["help", "--json"]):
        assert verifier(script, *words).stdout == usage, words
    submit = verifier(script, "submit", "--help").stdout
    for words in (["submit", "-h"], ["help", "submit"]):
        assert verifier(script, *words).stdout == submit, words
    assert verifier(script, "help", "task", "add").stdout == verifier(script, "task", "add", "--help").stdout
    assert verifier(script, "help", "task").stdout.startswith(b"Usage: verifier task add")
    assert verifier(script, "version").stdout == verifier(script, "--version").stdout
    assert verifier(script, "help", "paint").returncode == 2
    assert not script.calls


@pytest.mark.parametrize("program", ["verifierd", "trainer"])
def test_the_other_programs_know_the_same_words(program: str) -> None:
    def said(word: str) -> bytes:
        done = subprocess.run([VERIFIER.with_name(program), word], capture_output=True, timeout=20, check=True)
        assert done.stderr == b"", word
        return done.stdout

    usage, version = said("--help"), said("--version")
    assert usage.startswith(f"Usage: {program} ".encode()) and version.startswith(program.encode())
    assert {said("-h"), said("help")} == {usage}
    if program == "verifierd":
        asked = [str(VERIFIER.with_name(program)), "token", "-h"]
        done = subprocess.run(asked, capture_output=True, timeout=20, check=True)
        assert done.stdout.startswith(b"Usage: verifierd token")
    assert said("version") == version


def test_a_trainer_command_knows_h() -> None:
    for word in ("-h", "--help"):
        command = [str(VERIFIER.with_name("trainer")), "bestofn", word]
        done = subprocess.run(command, capture_output=True, timeout=20, check=True)
        assert done.stdout.startswith(b"Usage: trainer bestofn"), word


def test_each_command_of_the_help_has_one_line(script: Script) -> None:
    text = verifier(script, "help").stdout.decode().partition("own --help:\n")[2].partition("\n\n")[0]
    assert [line for line in text.splitlines() if not line.startswith("  ")] == []


def test_a_daemon_that_is_not_there_is_said_with_what_to_do(script: Script) -> None:
    done = verifier(script, "--url=http://127.0.0.1:1", "status")
    assert b"cannot talk to http://127.0.0.1:1" in done.stderr and b"VERIFIERD_URL" in done.stderr


def commands_of_help() -> list[str]:
    text = verifier(Script(), "help").stdout.decode().partition("Commands,")[2].partition("\n\n")[0]
    return [line[2:14].strip() for line in text.splitlines() if re.match(r"  [a-z]", line)]


def options_of_help(command: str) -> set[str]:
    text = verifier(Script(), *command.split(), "--help").stdout.decode()
    return set(re.findall(r"^  (?:-.,|   ) (--[a-z-]+)", text, re.MULTILINE))


def complete(shell: str, words: list[str]) -> set[str]:
    """What the shell offers for the last of the words."""
    script = verifier(Script(), "completion", shell).stdout.decode()
    if shell == "bash":
        script += 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _verifier; printf "%s\\n" "${COMPREPLY[@]}"\n'
    elif shell == "zsh":
        # What is offered goes to _describe, as the name of an array of "word:what it is".
        stub = "compdef() { }; _files() { }; _describe() { print -l -- ${(P)argv[-1]}; }\n"
        script = stub + script + 'words=("$@"); CURRENT=$#; _verifier\n'
    else:
        script += 'complete -C (string join " " -- $argv)\n'
    call = [shell, "-c", script, *words] if shell == "fish" else [shell, "-c", script, shell, *words]
    done = subprocess.run(call, capture_output=True, timeout=LIMIT_S, check=True, text=True)
    assert done.stderr == "", done.stderr
    found = {re.split(r"[:\t=]", line)[0] for line in done.stdout.splitlines() if line}
    return {word for word in found if word.startswith(words[-1])}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_every_command_and_every_option(shell: str) -> None:
    commands = commands_of_help()
    assert len(commands) > 20
    assert complete(shell, ["verifier", ""]) >= {name.split()[0] for name in commands}
    assert complete(shell, ["verifier", "--json", "--token", "list", "task", ""]) >= {
        "add",
        "list",
        "show",
        "rename",
        "rm",
    }
    for command in commands:
        assert complete(shell, ["verifier", *command.split(), "--"]) == options_of_help(command), command


def problem(status: int, **more: object) -> tuple[int, object]:
    return status, {"title": "T", "status": status, "detail": "D"} | more


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (problem(400, errors=[{"pointer": "/policy", "detail": "no such policy"}]), 6, "/policy: no such"),
        (problem(400, errors=[{"parameter": "wait", "detail": "too long"}]), 6, "wait: too long"),
        (problem(401), 4, "VERIFIERD_TOKEN"),
        (problem(403), 4, "T: D"),
        (problem(404), 5, "T: D"),
        (problem(413), 6, "413"),
        (problem(429), 6, "try again in 7 s"),
        (problem(500), 6, "500"),
        (problem(503), 6, "503"),
        ((502, b"<html>\x1b bad gateway"), 6, "502"),
        ((200, b"<html>"), 7, "is this verifierd?"),
        ((200, {"state": "queued"}), 7, "is this verifierd?"),
    ],
)
def test_refusals(script: Script, source: str, answer: tuple[int, object], code: int, said: str) -> None:
    script.headers["Retry-After"] = "7"
    script.on("POST /v1/submissions", answer)
    done = verifier(script, "submit", source, "--task", "sha256:ab")
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr.decode()
    assert b"\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["nonsense"], 2),
        (["--nonsense"], 2),
        (["submit"], 2),
        (["submit", "-"], 2),
        (["submit", "-", "--task=a", "--reference=b"], 2),
        (["submit", "-", "-", "--task=a"], 2),
        (["submit", "/nowhere.py", "--task=a"], 2),
        (["submit", "/", "--task=a"], 2),
        (["submit", "-", "--task=softmax", "--wait=soon"], 2),
        (["submit", "-", "--task=softmax", "--wait=-1"], 2),
        (["submit", "-", "--task=softmax", "--metadata=x"], 2),
        (["submit", "-", "--task=unknown"], 5),
        (["group", "--task=softmax"], 2),
        (["group", "-"], 2),
        (["group", "-", "--task=softmax", "--deadline=0"], 2),
        (["rescore", ID, "--hack-value=nan"], 2),
        (["rescore", ID, "--hack-value=0.5"], 2),
        (["rescore", ID, "--param=cap=inf"], 2),
        (["rescore", ID, "--param=cap=4x"], 2),
        (["rescore", ID, "--version=0"], 2),
        (["judge"], 2),
        (["judge", "-"], 2),
        (["judge", "-", "--task=a", "--policy=strcit"], 2),
        (["task"], 2),
        (["task", "paint"], 2),
        (["task", "add"], 2),
        (["task", "add", "-"], 2),
        (["task", "add", "-", "--name=x", "--level=0"], 2),
        (["task", "list", "x"], 2),
        (["task", "show", "unknown"], 5),
        (["show"], 2),
        (["show", "a", "b"], 2),
        (["show", "../../x"], 5),
        (["show", ID, "--log", "--source"], 2),
        (["calibrate", "x"], 2),
        (["calibrate", "--rounds=1"], 2),
        (["calibrate", "--rounds=2.5"], 2),
        (["timing"], 2),
        (["timing", "a", "b"], 2),
        (["timing", "unknown"], 5),
        (["cancel", "unknown"], 5),
        (["list", "x"], 2),
        (["status", "x"], 2),
        (["doctor", "x"], 2),
        (["export", "x"], 2),
        (["bundle"], 2),
        (["bundle", "unknown"], 5),
        (["replay"], 2),
        (["replay", "/nowhere"], 2),
        (["--url=ftp://x", "status"], 3),
        (["--url=http://127.0.0.1:1", "status"], 7),
        (["status", "--url", "http://127.0.0.1:1"], 7),
        (["--help"], 0),
        (["--version"], 0),
        (["completion"], 2),
        (["completion", "tcsh"], 2),
        (["completion", "bash", "zsh"], 2),
        (["version", "x"], 2),
        (["task", "--help"], 0),
    ],
)
def test_exit_codes(script: Script, arguments: list[str], code: int) -> None:
    done = verifier(script, *arguments)
    assert done.returncode == code, done.stderr
    if code:
        assert done.stdout == b""
        assert done.stderr.startswith(b"verifier") or done.stderr.startswith(b"Usage: verifier")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit", "a.py", "b.py", "--task=softmax"], "one FILE at a time; `verifier group` takes several"),
        (["completion", "bash", "zsh"], 'unexpected argument "zsh"'),
        (["submit", "-", "--task=softmax", "--wait=x"], '--wait takes a number of seconds from 0 to 10000000, not "x"'),
        (["group", "--task=softmax"], "which FILEs?"),
        (["judge", "-"], "which --task?"),
        (["rescore"], "name submissions, or a --group"),
        (["rescore", ID, "--version=x"], '--version takes a whole number from 1 to 1000, not "x"'),
        (["open", ID, "--run=r"], "ID and --run are a page each"),
        (["selftest", "--quick", "--only=x"], "--quick goes with neither --policy nor --only"),
    ],
)
def test_a_wrong_line_is_told_with_where_to_read_on(script: Script, arguments: list[str], said: str) -> None:
    done = verifier(script, *arguments)
    first, second, *_ = done.stderr.decode().splitlines()
    assert (done.returncode, first) == (2, f"verifier {arguments[0]}: {said}")
    assert second.startswith(f"Try `verifier {arguments[0]} --help'") and script.calls == []


def test_a_sweep_that_ends_early_says_why(script: Script) -> None:
    script.on("POST /v1/retention", (202, {"running": False, "last": {"error": "the disk is full"}}))
    done = verifier(script, "retention", "--run")
    assert done.returncode == 6 and b"it ended early: the disk is full" in done.stderr


def test_bytes_that_are_no_text_are_refused(script: Script) -> None:
    done = verifier(script, "submit", "-", "--task", "softmax", text=b"\xff")
    assert done.returncode == 2
    assert b"not UTF-8" in done.stderr


def test_a_full_disk_is_an_error(script: Script) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [str(VERIFIER), "show", ID],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            check=False,
            env=environment(script),
        )
    assert done.returncode == 3
    assert b"cannot write" in done.stderr


def on_a_terminal(script: Script, *arguments: str, **more: str) -> bytes:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(VERIFIER), *arguments], stdout=theirs, env=environment(script, TERM="xterm", **more)
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:
        pass  # the other end is closed: all was read
    os.close(ours)
    assert process.wait(LIMIT_S) == 0
    return shown


def test_colour_is_for_terminals_that_want_it(script: Script) -> None:
    assert b"\x1b[32m" in on_a_terminal(script, "show", ID)
    assert b"\x1b" not in on_a_terminal(script, "show", ID, NO_COLOR="1")


def test_candidates_cannot_reach_the_terminal(script: Script) -> None:
    script.on(f"GET /v1/submissions/{ID}/log", (200, b"\x1b]0;owned\x07 \xc2\x9b31m \xff ok\n"))
    assert on_a_terminal(script, "show", ID, "--log") == b"?]0;owned? ?31m ? ok\r\n"
    document = OK | {"feedback": {"text": "\x7f \x9b31m \u202e \u2066 é"}}
    script.on("GET /v1/submissions/" + ID, (200, document))
    shown = on_a_terminal(script, "show", ID, "--json")
    assert shown.isascii() and b"\x7f" not in shown and json.loads(shown) == document


def test_the_manual_knows_every_command_and_every_option(script: Script) -> None:
    manual = (service.ROOT / "docs" / "verifier.1").read_text().replace("\\-", "-")
    for command in commands_of_help():
        assert re.search(rf"^\\fBverifier {command}\\fR", manual, re.MULTILINE), command
        assert f".SS verifier {command}\n" in manual, command
        options = options_of_help(command)
        assert "--url" in options
        for option in options:
            assert option in manual, f"{command} {option} is not in docs/verifier.1"
