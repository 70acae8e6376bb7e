"""Who may do what, and who is told what: every route with every kind of caller, against scripted workers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import service
from scripted import SCRIPTED, TASK

FORM_RULES = ("entry_class", "kernel_required")
LIMIT_S = 60.0
REFUSED = "Rejected: not a genuine kernel."
NOBODY = "0199f2c4-0000-7000-8000-000000000000"


class Caller(service.Client):
    """A client that shows a token with every call."""

    def __init__(self, url: str, token: str | None) -> None:
        super().__init__(url)
        self.token = token

    def call(
        self, method: str, path: str, body: object | bytes = None, headers: Mapping[str, str] | None = None
    ) -> service.Answer:
        shown = {"Authorization": f"Bearer {self.token}"} if self.token is not None else {}
        return super().call(method, path, body, {**shown, **(headers or {})})


def token(store: Path, *arguments: str) -> str:
    """Run `verifierd token`; what it prints."""
    command = [str(service.BINARY), "token", *arguments, f"--store={store}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def body(script: str, **more: object) -> dict[str, object]:
    return {"task": "scripted", "candidate": f"# script: {script}\n# {time.monotonic_ns()}\n", **more}


@dataclass(frozen=True)
class Shared:
    """A daemon with a token of each kind, and what the client `alice` has there."""

    daemon: service.Daemon
    callers: dict[str, Caller]
    submission: str
    group: str

    def __getitem__(self, name: str) -> Caller:
        return self.callers[name]


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    with service.directory() as directory:
        store = directory / "store.db"
        secrets = {
            "submit": token(store, "new", "--name=submit", "--scope=submit", "--client=alice"),
            "read": token(store, "new", "--name=read", "--scope=read", "--client=alice"),
            "both": token(store, "new", "--name=both", "--scope=submit,read", "--client=alice"),
            "other": token(store, "new", "--name=other", "--scope=submit,read", "--client=bob"),
            "admin": token(store, "new", "--name=admin", "--scope=admin"),
            "revoked": token(store, "new", "--name=revoked", "--scope=admin"),
        }
        token(store, "revoke", "--name=revoked")
        expired = token(store, "new", "--name=expired", "--scope=admin", "--days=1")
        stored = json.loads((directory / "store.db.tokens").read_text())
        stored["tokens"][-1]["expires_ms"] = 1000
        (directory / "store.db.tokens").write_text(json.dumps(stored))
        with service.Daemon(directory, SCRIPTED) as running:
            url = running.client.url
            callers = {name: Caller(url, secret) for name, secret in secrets.items()}
            callers |= {"none": Caller(url, None), "expired": Caller(url, expired)}
            callers["bad"] = Caller(url, "vd_" + "A" * 43)
            callers["admin"].add_task(TASK)
            candidates = [{"candidate": "# script: timing=1.1\n# in a group\n"}]
            group = {"task": "scripted", "candidates": candidates, "metadata": {"run": "scripted"}}
            answer = callers["both"].expect("POST", "/v1/groups?wait=60", group)
            submission = callers["both"].judge(body("full=fail:hack:idle_kernels"), LIMIT_S)["id"]
            named = {"task_id": "named", "reference_code": TASK["reference"], "kernel_code": "# script: timing=1.1\n"}
            assert callers["both"].post("/compat/kernelgym/evaluate", named).status == 200
            yield Shared(running, callers, submission, answer["id"])


ROUTES = [
    ("POST", "/v1/tasks", "submit"),
    ("GET", "/v1/tasks", "look"),
    ("GET", "/v1/tasks/scripted", "look"),
    ("PATCH", "/v1/tasks/scripted", "submit"),
    ("DELETE", "/v1/tasks/{missing}", "submit"),
    ("GET", "/v1/tasks/scripted/leaders", "read"),
    ("POST", "/v1/submissions", "submit"),
    ("GET", "/v1/submissions", "look"),
    ("GET", "/v1/submissions/{submission}", "own"),
    ("DELETE", "/v1/submissions/{submission}", "own submit"),
    ("GET", "/v1/submissions/{submission}/source", "own"),
    ("GET", "/v1/submissions/{submission}/answer", "own"),
    ("GET", "/v1/submissions/{submission}/log", "own"),
    ("GET", "/v1/submissions/{submission}/timing", "own"),
    ("GET", "/v1/submissions/{submission}/plan", "own"),
    ("GET", "/v1/submissions/{submission}/bundle", "own read"),
    ("GET", "/v1/submissions/{submission}/events?wait=0", "own"),
    ("POST", "/v1/groups", "submit"),
    ("GET", "/v1/groups", "look"),
    ("GET", "/v1/groups/{group}", "own"),
    ("DELETE", "/v1/groups/{group}", "own submit"),
    ("GET", "/v1/groups/{group}/events?wait=0", "own"),
    ("GET", "/v1/events?wait=0", "look"),
    ("GET", "/v1/trends", "read"),
    ("GET", "/v1/runs", "read"),
    ("GET", "/v1/runs/scripted", "own read"),
    ("GET", "/v1/runs/scripted/tasks", "own read"),
    ("GET", "/v1/nodes", "read"),
    ("GET", "/v1/failures", "read"),
    ("GET", "/v1/leaderboard", "read"),
    ("GET", "/v1/export?what=rewards", "read"),
    ("POST", "/v1/rescore", "look"),
    ("POST", "/compat/openrlhf", "submit"),
    ("POST", "/compat/slime", "submit"),
    ("POST", "/compat/sandboxfusion/run_code", "submit"),
    ("POST", "/compat/kernelgym/evaluate", "submit"),
    ("POST", "/compat/kernelgym/evaluate/batch", "submit"),
    ("GET", "/compat/kernelgym/status/{named}", "named"),
    ("GET", "/compat/kernelgym/results/{named}", "named"),
    ("POST", "/compat/tritonforge/eval", "submit"),
    ("POST", "/v1/replays", "admin"),
    ("GET", "/v1/audit", "admin"),
    ("GET", "/v1/retention", "read"),
    ("POST", "/v1/retention", "admin"),
    ("POST", "/v1/calibrations", "admin"),
    ("GET", "/v1/calibrations", "look"),
    ("POST", "/v1/canaries", "admin"),
    ("GET", "/v1/canaries", "look"),
    ("GET", "/v1/status", "look"),
    ("GET", "/metrics", "read"),
    ("GET", "/v1/stats", "read"),
    ("GET", "/healthz", "open"),
    ("GET", "/readyz", "open"),
    ("GET", "/", "open"),
    ("GET", "/openapi.yaml", "open"),
    ("GET", "/openapi.json", "open"),
    ("GET", "/docs", "open"),
]


FILES = {("GET", path) for path in ("/", "/docs", "/openapi.yaml", "/openapi.json")}


def routes_of_the_daemon() -> set[tuple[str, str]]:
    """The table that the daemon itself goes by."""
    text = (service.ROOT / "server" / "http" / "routes.c").read_text()
    table = text.partition("static const struct route routes[] = {")[2].partition("\n};")[0]
    found = re.findall(r'\{ "([A-Z]+)", "([^"]*)",', table)
    assert len(found) == len(re.findall(r"^    \{ ", table, re.MULTILINE)) > 20
    return {(method, f"/{path}") for method, path in found}


def test_no_route_is_left_out() -> None:
    """A new one has to say here who may call it; one that shows a verdict belongs into ways_to_look() too."""
    contract: set[tuple[str, str]] = set()
    path = ""
    for line in (service.ROOT / "proto" / "openapi.yaml").read_text().partition("\ncomponents:")[0].splitlines():
        if found := re.fullmatch(r"  (/\S*):", line):
            path = re.sub(r"\{\w+\}", "{}", found[1])
        elif found := re.fullmatch(r"    (get|post|delete|put|patch):", line):
            contract.add((found[1].upper(), path))
    known = {(method, re.sub(r"\{\w+\}|scripted", "{}", path.partition("?")[0])) for method, path, _ in ROUTES}
    assert routes_of_the_daemon() == known - FILES
    assert contract == known


def test_a_task_is_changed_by_those_who_have_a_name_for_it(shared: Shared) -> None:
    """Who registers the same has a name of its own; the task goes with the last of them."""
    wanted = {"name": "tanh", "reference": "# script: describe=pass\n# tanh\n"}
    task = shared["submit"].add_task(wanted)
    for method, document in (("PATCH", {"name": "x"}), ("DELETE", None)):
        answer = shared["other"].call(method, f"/v1/tasks/{task}", document)
        assert (answer.status, answer.json()["code"]) == (403, "forbidden")
    assert shared["other"].add_task({**wanted, "name": "mine"}) == task
    assert shared["other"].call("PATCH", f"/v1/tasks/{task}", {"name": "tanh"}).status == 200
    assert shared["submit"].call("PATCH", "/v1/tasks/tanh", {"name": "tanh2"}).json()["name"] == "tanh"
    assert shared["other"].get("/v1/tasks/tanh").json()["id"] == task
    assert shared["submit"].call("DELETE", "/v1/tasks/tanh2").json() == {"id": task, "deleted": False}
    assert shared["submit"].call("DELETE", f"/v1/tasks/{task}").status == 403
    assert shared["admin"].call("DELETE", "/v1/tasks/tanh").json() == {"id": task, "deleted": True}
    assert shared["other"].get(f"/v1/tasks/{task}").status == 404


def missing_scope(needs: str, name: str) -> str:
    """The scope that this caller's token lacks for such a route; "": none."""
    if needs == "admin" and name != "admin":
        return "admin"
    if "submit" in needs and name == "read":
        return "submit"
    return "read" if "read" in needs and name == "submit" else ""


@pytest.mark.parametrize(("method", "path", "needs"), ROUTES, ids=lambda value: str(value))
def test_every_route_asks_for_its_scope(shared: Shared, method: str, path: str, needs: str) -> None:
    path = path.format(submission=shared.submission, group=shared.group, named="named", missing="missing")
    for name, caller in shared.callers.items():
        answer = caller.call(method, path, [] if method in ("POST", "PATCH") else None)
        if needs == "open":
            assert answer.status == 200, (name, answer)
        elif name in ("none", "bad", "revoked", "expired"):
            assert (answer.status, answer.json()["code"]) == (401, "unauthorized"), name
            challenge = answer.headers["WWW-Authenticate"]
            assert challenge.startswith('Bearer realm="verifierd"')
            assert ("invalid_token" in challenge) == (name != "none")
        elif missing := missing_scope(needs, name):
            assert (answer.status, answer.json()["code"]) == (403, "forbidden")
            assert f'error="insufficient_scope", scope="{missing}"' in answer.headers["WWW-Authenticate"]
            assert f"the scope {missing}" in answer.json()["detail"]
        elif "own" in needs and name == "other":
            assert (answer.status, answer.json()["code"]) == (404, "not_found")
        elif needs == "named" and name in ("other", "admin"):
            assert answer.status == 404, name  # a name is its client's alone
        elif path.endswith("missing"):
            assert (answer.status, answer.json()["code"]) == (404, "unknown_task")
        elif method in ("POST", "PATCH"):
            assert answer.status in (400, 422), (name, answer)  # let in, and a body that is no object refused
        elif method == "DELETE":
            assert (answer.status, answer.json()["code"]) == (409, "finished")
        else:
            assert answer.status == 200, (name, answer)


def test_what_is_not_there_and_what_is_anothers_look_the_same(shared: Shared) -> None:
    for kind, known in (("submissions", shared.submission), ("groups", shared.group)):
        theirs = shared["other"].get(f"/v1/{kind}/{known}").json()
        nobodys = shared["other"].get(f"/v1/{kind}/{NOBODY}").json()
        for document in (theirs, nobodys):
            del document["instance"], document["request_id"]
        assert theirs == nobodys


@pytest.mark.parametrize("header", ["", "vd_", "Basic dXNlcjpwYXNz", "Bearer", "Bearer ", "bearer \t", "Token x"])
def test_other_credentials_are_none(shared: Shared, header: str) -> None:
    answer = shared["none"].call("GET", "/v1/status", None, {"Authorization": header})
    assert answer.status == 401
    assert "Authorization: Bearer vd_" in answer.json()["detail"]  # it said that a token was unknown


def test_the_scheme_may_be_written_in_any_case(shared: Shared) -> None:
    header = {"authorization": f"BEARER {shared['read'].token}"}
    assert shared["none"].call("GET", "/v1/status", None, header).status == 200


def test_a_token_says_who_the_client_is(shared: Shared) -> None:
    verdict = shared["both"].judge(body("ast=fail:syntax", client="bob"), LIMIT_S)
    assert verdict["client"] == "alice"
    assert shared["other"].get(f"/v1/submissions/{verdict['id']}").status == 404
    answer = shared["both"].post("/v1/submissions", body("ast=fail:syntax", client=7))
    assert (answer.status, answer.json()["code"]) == (400, "bad_body")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/submissions/{submission}",
        "/v1/submissions/{submission}/source",
        "/v1/submissions/{submission}/answer",
        "/v1/submissions/{submission}/log",
        "/v1/submissions/{submission}/timing",
        "/v1/submissions/{submission}/plan",
        "/v1/groups/{group}",
        "/v1/tasks/scripted",
    ],
)
def test_what_one_has_is_not_sent_again(shared: Shared, path: str) -> None:
    where = path.format(submission=shared.submission, group=shared.group)
    first = shared["read"].get(where)
    tag = first.headers["ETag"]
    assert re.fullmatch('"[0-9a-f]{32}"', tag) and first.headers["Vary"] == "Authorization"
    assert first.headers["Cache-Control"] == "private, no-cache"
    for known in (tag, f'"other", W/{tag}', "*"):
        again = shared["read"].call("GET", where, None, {"If-None-Match": known})
        assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
    stale = shared["read"].call("GET", where, None, {"If-None-Match": '"other"'})
    assert (stale.status, stale.body) == (200, first.body)
    # A tag opens no door.
    kept = {"If-None-Match": tag}
    assert shared["none"].call("GET", where, None, kept).status == 401
    if path != "/v1/tasks/scripted":
        assert shared["other"].call("GET", where, None, kept).status == 404


def test_a_tag_is_of_what_the_caller_is_told(shared: Shared) -> None:
    where = f"/v1/submissions/{shared.submission}"
    told, full = (shared[name].get(where) for name in ("submit", "read"))
    assert told.headers["ETag"] != full.headers["ETag"]
    assert shared["submit"].call("GET", where, None, {"If-None-Match": full.headers["ETag"]}).status == 200


def test_lists_hold_ones_own(shared: Shared) -> None:
    mine = shared["other"].submit(body("ast=fail:syntax"))
    shared["other"].expect("GET", f"/v1/submissions/{mine}?wait=30")
    own = shared["other"].expect("GET", "/v1/submissions")["items"]
    assert {item["client"] for item in own} == {"bob"} and mine in {item["id"] for item in own}
    assert shared["other"].expect("GET", "/v1/submissions?client=alice")["items"] == []
    assert shared["other"].expect("GET", "/v1/submissions?client=bob")["items"] == own
    assert shared["other"].expect("GET", f"/v1/submissions?group={shared.group}")["items"] == []
    every = shared["admin"].expect("GET", "/v1/submissions?limit=200")["items"]
    assert {item["client"] for item in every} >= {"alice", "bob"}
    theirs = shared["admin"].expect("GET", "/v1/submissions?client=alice&limit=200")["items"]
    assert {item["client"] for item in theirs} == {"alice"}


def test_tokens_change_while_the_daemon_runs(shared: Shared) -> None:
    store = shared.daemon.directory / "store.db"
    late = Caller(shared.daemon.client.url, token(store, "new", "--name=late", "--scope=submit", "--client=alice"))
    assert late.get(f"/v1/submissions/{shared.submission}").status == 200
    renewed = Caller(late.url, token(store, "new", "--name=late-2", "--scope=submit", "--client=alice"))
    assert (late.get("/v1/status").status, renewed.get("/v1/status").status) == (200, 200)
    token(store, "revoke", "--name=late")
    assert (late.get("/v1/status").status, renewed.get("/v1/status").status) == (401, 200)


def test_a_file_that_goes_or_breaks_does_not_open_the_door(shared: Shared) -> None:
    path = shared.daemon.directory / "store.db.tokens"
    kept = path.read_bytes()
    try:
        path.unlink()
        assert (shared["none"].get("/v1/status").status, shared["read"].get("/v1/status").status) == (401, 200)
        path.write_text("{")
        assert (shared["none"].get("/v1/status").status, shared["read"].get("/v1/status").status) == (401, 200)
    finally:
        path.write_bytes(kept)
        path.chmod(0o600)
    assert shared["read"].get("/v1/status").status == 200


def test_only_hashes_are_kept_and_no_secret_is_logged(shared: Shared) -> None:
    listed = token(shared.daemon.directory / "store.db", "list")
    seen = [(shared.daemon.directory / "store.db.tokens").read_text(), shared.daemon.log.read_text(), listed]
    for caller in shared.callers.values():
        assert caller.token is None or not any(caller.token[3:] in text for text in seen)
    assert "both" in listed and "submit,read" in listed and "alice" in listed


# --- what is told to whom ---

CHEATS = [
    "ast=fail:policy:import_ctypes",
    "tiny=fail:hack:outside_heap",
    "full=print:40,fail:hack:idle_kernels",
    "timing=fail:hack:impossible_time",
]


def ways_to_look(caller: Caller, one: str, group: str | None = None) -> list[service.Json]:
    """The submission's document by every call that gives it."""
    found = [caller.expect("GET", f"/v1/submissions/{one}{query}") for query in ("", "?wait=1")]
    streams = [f"/v1/submissions/{one}/events?wait=0&view="]
    for view in ("full", "brief"):
        items = caller.expect("GET", f"/v1/submissions?limit=200&view={view}")["items"]
        found += [item for item in items if item["id"] == one]
    if group is not None:
        found += [item for item in caller.expect("GET", f"/v1/groups/{group}")["items"] if item["id"] == one]
        streams.append(f"/v1/groups/{group}/events?wait=0&view=")
    for path in streams:
        for view in ("full", "brief"):
            told = caller.events(path + view)
            found += [event.data for event in told if event.kind == "verdict" and event.data["id"] == one]
    return found


def check_refused(document: service.Json, class_: str) -> None:
    """The class, the sentence, the reward, and what the submitter knew before."""
    known = {"id", "group", "group_index", "task", "task_name", "state", "class", "reward", "reward_spec", "policy"}
    known |= {"policy_on", "until", "entry_point", "source", "client", "priority", "metadata"}
    known |= {"cache", "cached_from", "created"}
    assert (document["state"], document["class"], document["reward"]) == ("done", class_, 0)
    if "feedback" in document:  # a brief one has none
        assert document["feedback"] == {"class": class_, "text": REFUSED}
    told = {key for key, value in document.items() if value is not None}
    assert told <= known | {"finished", "feedback"}


@pytest.mark.parametrize("script", CHEATS)
def test_a_cheat_learns_that_it_was_refused_and_no_more(shared: Shared, script: str) -> None:
    class_, rule = script.rpartition("fail:")[2].split(":")
    submit, read = shared["submit"], shared["read"]
    answer = submit.post("/v1/submissions?wait=60", body(script))
    assert answer.status == 200
    check_refused(answer.json(), class_)
    one = answer.json()["id"]
    for document in ways_to_look(submit, one):
        check_refused(document, class_)
    timing = submit.expect("GET", f"/v1/submissions/{one}/timing")
    assert {key for key, value in timing.items() if value is not None} <= {"id", "task", "task_name", "state", "class"}
    assert submit.get(f"/v1/submissions/{one}/log").body == b""
    assert script.encode() in submit.get(f"/v1/submissions/{one}/source").body
    for caller in (read, shared["admin"]):
        full = caller.expect("GET", f"/v1/submissions/{one}")
        assert (full["class"], full["rule"], full["reward"]) == (class_, rule, 0)
        assert full["stages"] and full["error"] and full["failed_at"]
        assert "as the script says" in full["feedback"]["text"]
    printed = read.get(f"/v1/submissions/{one}/log").body
    assert bool(printed) == ("print" in script)
    log = shared.daemon.log.read_text()
    assert any(one in line and rule in line for line in log.splitlines())


def test_in_a_group_too(shared: Shared) -> None:
    candidates = [{"candidate": f"# script: {script}\n# {time.monotonic_ns()}\n"} for script in [*CHEATS, "timing=2"]]
    request = {"task": "scripted", "candidates": candidates}
    group = shared["submit"].expect("POST", "/v1/groups?wait=60", request)
    assert group["state"] == "done"
    assert group["ranking"] == [4, 0, 1, 2, 3]  # ties by their place, whatever speed a cheat claimed
    for item, script in zip(group["items"], CHEATS, strict=False):
        class_ = script.rpartition("fail:")[2].split(":")[0]
        check_refused(item, class_)
        for document in ways_to_look(shared["submit"], item["id"], group["id"]):
            check_refused(document, class_)
    honest = group["items"][4]
    assert honest["class"] == "ok" and honest["components"]["speedup"] > 1 and honest["stages"]
    assert shared["read"].expect("GET", f"/v1/groups/{group['id']}")["items"][2]["rule"] == "idle_kernels"


def test_another_reward_tells_no_more(shared: Shared) -> None:
    """An expression over the components would read them one by one."""
    request = {"submissions": [shared.submission]}
    for formula in ("1", "compiled", "correct", "timed", "cases_passed"):
        spec = {"kind": "expr", "expr": formula}
        answer = shared["submit"].expect("POST", "/v1/rescore", {**request, "reward": spec})
        assert [item["reward"] for item in answer["items"]] == [0], formula
    for name in ({"submissions": [shared.submission]}, {"group": shared.group}):
        theirs = shared["other"].post("/v1/rescore", {**name, "reward": {"kind": "staged"}})
        assert (theirs.status, theirs.json()["code"]) == (404, "not_found")
        assert shared["admin"].post("/v1/rescore", {**name, "reward": {"kind": "staged"}}).status == 200


def test_an_honest_failure_is_told(shared: Shared) -> None:
    for script, class_ in (("full=fail:mismatch", "mismatch"), ("ast=fail:form:kernel_required", "form")):
        verdict = shared["submit"].judge(body(script), LIMIT_S)
        assert verdict["class"] == class_ and verdict["failed_at"] and verdict["stages"]
        assert verdict["feedback"]["text"] != REFUSED
        assert verdict == shared["read"].expect("GET", f"/v1/submissions/{verdict['id']}")


def test_while_it_runs_its_stage_is_not_told(shared: Shared) -> None:
    with service.directory() as place:
        watch_it_run(shared, place / "go")
    told = shared["submit"].expect("GET", "/v1/status")
    assert set(told) == {"state", "ready", "why", "version", "uptime_s", "env", "time"}
    assert "counts" in shared["read"].expect("GET", "/v1/status")


def watch_it_run(shared: Shared, go: Path) -> None:
    """It is in `full` until that has been seen."""
    one = shared["submit"].submit(body(f"full=until:{go},pass"))
    deadline = time.monotonic() + LIMIT_S
    seen: set[str] = set()
    while (document := shared["read"].expect("GET", f"/v1/submissions/{one}"))["state"] != "done":
        seen.add(str(document["stage"]))
        told = shared["submit"].expect("GET", f"/v1/submissions/{one}")
        if told["state"] != "done":
            assert [told[key] for key in ("stage", "passed_stage", "stages", "env", "attempts")] == [None] * 5
        if "full" in seen:
            go.touch()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "full" in seen


def test_metrics_count_by_rule(start_scripted: service.StartDaemon) -> None:
    client = start_scripted().client
    client.add_task(TASK)
    for script in (*CHEATS, CHEATS[2], "full=fail:mismatch", "timing=1.5"):
        client.judge(body(script), LIMIT_S)
    answer = client.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.body.decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert all(re.fullmatch(r"[a-z_]+(\{[a-z]+=\"[^\"]*\"(,[a-z]+=\"[^\"]*\")*\})?", name) for name in found)
    expected = {
        'verifierd_rejections_total{class="hack",rule="idle_kernels"}': 2,
        'verifierd_rejections_total{class="hack",rule="outside_heap"}': 1,
        'verifierd_rejections_total{class="hack",rule="impossible_time"}': 1,
        'verifierd_rejections_total{class="policy",rule="import_ctypes"}': 1,
        'verifierd_verdicts_total{class="hack"}': 4,
        'verifierd_verdicts_total{class="mismatch"}': 1,
        'verifierd_verdicts_total{class="ok"}': 1,
        'verifierd_stage_outcomes_total{stage="full",outcome="fail"}': 3,
        'verifierd_stage_spared_total{stage="full"}': 2,
        'verifierd_stage_spared_total{stage="timing"}': 5,
        "verifierd_submission_seconds_count": 7,
    }
    assert {name: float(found[name]) for name in expected} == expected
    assert 0 < float(found["verifierd_submission_seconds_sum"]) < LIMIT_S
    assert float(found['verifierd_http_requests_total{code="202"}']) == 7


def test_a_slip_of_form_counts_as_a_cheat_nowhere(start_scripted: service.StartDaemon) -> None:
    client = start_scripted().client
    client.add_task(TASK)
    reward = {"kind": "staged", "hack_value": -1}
    found = {rule: client.judge(body(f"ast=fail:form:{rule}", reward=reward), LIMIT_S) for rule in FORM_RULES}
    assert {(one["class"], one["reward"], one["components"]["hack"]) for one in found.values()} == {("form", 0, 0)}
    assert {rule: one["rule"] for rule, one in found.items()} == {rule: rule for rule in FORM_RULES}
    cheat = client.judge(body("ast=fail:policy:import_ctypes", reward=reward), LIMIT_S)
    assert (cheat["class"], cheat["reward"], cheat["components"]["hack"]) == ("policy", -1, 1)
    trends = client.expect("GET", "/v1/trends?window=1h")
    assert trends["classes"] == {"form": 2, "policy": 1}
    assert sum(step["policy"] + step["hack"] for step in trends["steps"]) == 1
    (row,) = client.expect("GET", "/v1/leaderboard")["items"]
    assert (row["n"], row["cheats"]) == (3, 1)
    lines = client.get("/metrics").body.decode().splitlines()
    rejections = [line for line in lines if line.startswith("verifierd_rejections_total{")]
    assert rejections == ['verifierd_rejections_total{class="policy",rule="import_ctypes"} 1']
    again = {"submissions": [one["id"] for one in found.values()], "reward": {"kind": "binary", "hack_value": -0.5}}
    assert [item["reward"] for item in client.expect("POST", "/v1/rescore", again)["items"]] == [0, 0]


def verifier(*arguments: str, url: str, token: str | None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "VERIFIERD_TOKEN"}
    if token is not None:
        environment["VERIFIERD_TOKEN"] = token
    command = [str(service.BINARY.parent / "verifier"), *arguments, f"--url={url}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_the_command_line_shows_a_token(shared: Shared) -> None:
    url = shared.daemon.client.url
    refused = verifier("status", url=url, token=None)
    assert refused.returncode == 4 and "--token or VERIFIERD_TOKEN" in refused.stderr
    assert verifier("status", url=url, token="vd_wrong").returncode == 4
    assert verifier("cancel", shared.submission, url=url, token=shared["read"].token).returncode == 4
    assert verifier("status", url=url, token=shared["read"].token).returncode == 0
    assert verifier("list", f"--token={shared['other'].token}", url=url, token=None).returncode == 0
    told = verifier("show", shared.submission, url=url, token=shared["submit"].token)
    assert told.returncode in (0, 1) and REFUSED in told.stdout and "idle_kernels" not in told.stdout
    full = verifier("show", shared.submission, url=url, token=shared["read"].token)
    assert REFUSED not in full.stdout and "as the script says" in full.stdout
    assert verifier("show", shared.submission, url=url, token=shared["other"].token).returncode == 5


# --- where it listens ---


def test_beyond_loopback_only_with_tokens() -> None:
    options = SCRIPTED | {"listen": "0.0.0.0:0", "allow_remote": True}
    with service.directory() as directory:
        daemon = service.Daemon(directory, options)
        with pytest.raises(service.ServiceError, match="ended at start"):
            daemon.start(ready=False)
        daemon.kill()
        assert "verifierd token new" in daemon.log.read_text()
        secret = token(directory / "store.db", "new", "--name=a", "--scope=read")
        with service.Daemon(directory, options) as running:
            local = running.client.url.replace("0.0.0.0", "127.0.0.1")
            assert service.Client(local).get("/v1/status").status == 401
            assert Caller(local, secret).get("/v1/status").status == 200
            assert service.Client(local).get("/healthz").status == 200


def test_without_tokens_loopback_is_the_operator(start_scripted: service.StartDaemon) -> None:
    client = start_scripted().client
    client.add_task(TASK)
    verdict = client.judge(body("full=fail:hack:idle_kernels", client="anybody"), LIMIT_S)
    assert (verdict["rule"], verdict["client"], verdict["reward"]) == ("idle_kernels", "anybody", 0)
    assert client.expect("GET", "/v1/status")["counts"]
