"""The formats of others, under /compat: requests as each client's own source makes them, against scripted workers."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import service
from scripted import SCRIPTED, TASK

REFERENCE = "# script: describe=pass\n# a reference of its own\nclass Model: ...\n"


@pytest.fixture(scope="module")
def shared() -> Iterator[service.Daemon]:
    with service.directory() as directory, service.Daemon(directory, SCRIPTED) as running:
        running.client.add_task(TASK)
        yield running


def code(script: str) -> str:
    return f"# script: {script}\n# {time.monotonic_ns()}\nclass ModelNew: ...\n"


def fenced(script: str) -> str:
    return f"<think>```python\nno\n```</think>Here it is.\n```python\n{code(script)}```"


# --- the requests ---

# What each client's own code posts, key by key. slime, KernelGYM and TritonForge are on no package index: they were
# read in their source, at the revision that stands with each. OpenRLHF and verl are run, too (test_trainers.py).
CHAT = "<|im_start|>user\nWrite a kernel like ```python\nclass ModelNew: pass\n```<|im_end|>\n<|im_start|>assistant\n"


def openrlhf(*scripts: str, label: object = "scripted", prompt: str = CHAT) -> dict[str, Any]:
    return {
        "query": [prompt + fenced(script) + "<|im_end|>\n<|endoftext|>" for script in scripts],
        "prompts": [prompt for _ in scripts],
        "labels": [label for _ in scripts],
    }


def slime(script: str, label: object = "scripted") -> dict[str, Any]:
    """THUDM/slime 0b420f1ef416, slime/rollout/rm_hub/__init__.py: remote_rm()."""
    return {"prompt": [{"role": "user", "content": "p"}], "response": fenced(script) + "<|im_end|>", "label": label}


def run_code(text: str, gate: str, **more: object) -> dict[str, Any]:
    return {
        "compile_timeout": 10,
        "run_timeout": 10,
        "code": text + "\n\n",
        "stdin": json.dumps({"task": "scripted", "gate": gate}),
        "memory_limit_MB": 1024,
        "language": "python",
        "files": {},
        "fetch_files": [],
        **more,
    }


def evaluate(script: str, task_id: str = "", **more: object) -> dict[str, Any]:
    """hkust-nlp/KernelGYM 2f08930e3975, drkernel/kernel/rewards/reward_client.py: compute_batch_rewards()."""
    return {
        "task_id": task_id or f"task_{time.monotonic_ns()}",
        "reference_code": REFERENCE,
        "kernel_code": code(script),
        "backend": "triton",
        "num_correct_trials": 5,
        "num_perf_trials": 100,
        "timeout": 300,
        "priority": "normal",
        "entry_point": "Model",
        "is_valid": None,
        "verbose_errors": True,
        "enable_profiling": True,
        "detect_decoy_kernel": True,
        "reference_backend": None,
        **more,
    }


def tritonforge(script: str, **more: object) -> dict[str, Any]:
    """RLsys-Foundation/TritonForge 0633298c0e30, slime_plugins/rollout_buffer/generator/kernel_generator.py:
    submit_kernel_eval_request()."""
    return {
        "original_model_src": REFERENCE,
        "custom_model_src": code(script),
        "num_correct_trials": 5,
        "num_perf_trials": 100,
        "measure_performance": True,
        "backend": "triton",
        "verbose": False,
        "seed": 42,
        **more,
    }


def count(client: service.Client) -> int:
    return len(client.expect("GET", "/v1/submissions?limit=200&view=brief")["items"])


def post(client: service.Client, path: str, body: object, status: int = 200) -> Any:
    answer = client.post("/compat/" + path, body)
    assert answer.status == status, answer
    return json.loads(answer.body)


# --- OpenRLHF ---


def test_openrlhf(shared: service.Daemon) -> None:
    reply = post(shared.client, "openrlhf", openrlhf("timing=1.3", "full=fail:mismatch", "ast=fail:syntax"))
    assert reply["rewards"] == pytest.approx([0.7 + 0.3 * 1.3 / 2, 0.5, 0], rel=1e-3)
    assert reply["scores"] == [1, 0, 0]
    assert reply["extra_logs"]["compiled"] == [1, 1, 0]
    assert reply["extra_logs"]["speedup"] == pytest.approx([1.3, 0, 0], rel=1e-3)
    assert reply["extra_logs"]["masked"] == [0, 0, 0]


def test_an_address_may_name_the_run(shared: service.Daemon) -> None:
    post(shared.client, "openrlhf?run=grpo-7", openrlhf("timing=1.7", "timing=1.8"))
    items = shared.client.expect("GET", "/v1/submissions?run=grpo-7")["items"]
    assert [item["metadata"] for item in items] == [{"run": "grpo-7", "compat": "openrlhf"}] * 2
    post(shared.client, "openrlhf?run=a%0Ab", openrlhf("timing=1.9"), status=400)


def test_each_verdict_of_a_batch_is_one_event(shared: service.Daemon) -> None:
    """The first ends last, so that the others have ended when they are waited for."""
    client = shared.client
    start = client.events("/v1/events?wait=0")[0].id
    scripts = ["compile=sleep:1,pass timing=1.3", *["full=fail:mismatch"] * 5]
    assert len(post(client, "openrlhf", openrlhf(*scripts))["scores"]) == len(scripts)
    told = client.events("/v1/events?wait=0", start)
    verdicts = [event.data["id"] for event in told if event.kind == "verdict"]
    items = client.expect("GET", f"/v1/submissions?limit={len(scripts)}&view=brief")["items"]
    assert sorted(verdicts) == sorted(item["id"] for item in items)


def test_openrlhf_with_nothing_to_do(shared: service.Daemon) -> None:
    """Where there are several addresses, the later ones get empty lists."""
    assert post(shared.client, "openrlhf", openrlhf()) == {"rewards": [], "scores": [], "extra_logs": {}}


@pytest.mark.parametrize("lost", [0, 40])
def test_openrlhf_finds_the_answer(shared: service.Daemon, lost: int) -> None:
    """A first token before the prompt, or a prompt cut at its left; the prompt's own fences are no answer."""
    body = openrlhf("timing=1.1")
    body["query"] = ["<s>" + body["query"][0][lost:]]
    assert post(shared.client, "openrlhf", body)["scores"] == [1]
    body["query"] = [body["query"][0].replace("```python\n#", "#").replace("```<|im_end|>", "<|im_end|>")]
    reply = post(shared.client, "openrlhf", body)
    assert (reply["scores"], reply["extra_logs"]["extracted"]) == ([1], [1])  # no fence: the text is the code


def test_a_label_may_be_the_reference_or_an_object(shared: service.Daemon) -> None:
    for label in (REFERENCE, {"reference": REFERENCE}, json.dumps({"task": "scripted", "reward": "binary"})):
        reply = post(shared.client, "openrlhf", openrlhf("timing=1.1", label=label))
        assert reply["scores"] == [1]
    assert reply["rewards"] == [1]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"query": "text"}, "/query"),
        ({"prompts": []}, "/prompts"),
        ({"labels": ["a", "b"]}, "/labels"),
        ({"labels": [None]}, "/labels/0"),
        ({"labels": [{"tsk": "scripted"}]}, "/labels/0/tsk"),
        ({"labels": ["{"]}, "/labels/0"),
        ({"query": [1]}, "/query/0"),
        ({"query": ["no heading"], "prompts": ["another"]}, "/query/0"),
        ({"labels": [{"task": "scripted", "policy": "lax"}]}, "/labels"),
        ({"labels": [{"task": "scripted", "reference": REFERENCE}]}, ""),
    ],
)
def test_openrlhf_bad_input(shared: service.Daemon, change: dict[str, object], pointer: str) -> None:
    reply = post(shared.client, "openrlhf", {**openrlhf("timing=1"), **change}, 400)
    assert (reply["code"], reply["pointer"]) == ("bad_body", pointer)
    assert reply["error"]


def test_openrlhf_unknown_task(shared: service.Daemon) -> None:
    assert post(shared.client, "openrlhf", openrlhf("timing=1", label="nobody"), 404)["code"] == "unknown_task"


# --- slime ---


def test_slime(shared: service.Daemon) -> None:
    assert post(shared.client, "slime", slime("timing=2")) == pytest.approx(1, rel=1e-3)
    assert post(shared.client, "slime?reward=binary", slime("timing=2")) == 1
    reply = post(shared.client, "slime?reply=object", slime("full=fail:mismatch"))
    assert (reply["score"], reply["correct"], reply["compiled"]) == (0.5, 0, 1)


def test_a_name_that_leads_to_another_task_is_judged_anew(shared: service.Daemon) -> None:
    client, body = shared.client, slime("timing=1.3", "moving")
    for count in (1, 2, 2):
        client.add_task({**TASK, "name": "moving", "reference": f"# script: describe=pass\n# of a name {count}\n"})
        post(client, "slime", body)
        task = client.expect("GET", "/v1/tasks?name=moving")["items"][0]["id"]
        assert len(client.expect("GET", f"/v1/submissions?task={task}")["items"]) == 1
        if count == 1:
            assert client.call("DELETE", "/v1/tasks/moving").status in (200, 204)


@pytest.mark.parametrize(
    ("query", "body", "status"),
    [
        ("", {"prompt": "p", "label": "scripted"}, 400),
        ("", {"prompt": "p", "response": "x"}, 400),
        ("?reward=nonsense", slime("timing=1"), 400),
        ("?reward=rank", slime("timing=1"), 400),
        ("?fill=much", slime("timing=1"), 400),
        ("?reply=xml", slime("timing=1"), 400),
        ("?unknown=1", slime("timing=1"), 400),
        ("", [], 400),
        ("", b"{", 400),
        ("", slime("timing=1", label="nobody"), 404),
        ("", slime("timing=1", label="# script: describe=fail:x\nclass Model: ...\n"), 422),
    ],
)
def test_slime_bad_input(shared: service.Daemon, query: str, body: object, status: int) -> None:
    assert set(post(shared.client, "slime" + query, body, status)) == {"error", "code", "pointer"}


@pytest.mark.parametrize(
    ("policy", "why"),
    [("zzz", 'policy: there is no policy "zzz"'), ('{"timing":{"trials":1}}', "policy: /timing/trials: must be from")],
)
def test_a_policy_that_cannot_be_is_told_as_a_parameter(shared: service.Daemon, policy: str, why: str) -> None:
    """And not as a row's, which is where its owner would look."""
    query = "?policy=" + quote(policy)
    for path, body in (("slime", slime("timing=1")), ("openrlhf", openrlhf("timing=1"))):
        reply = post(shared.client, path + query, body, 400)
        assert (reply["code"], reply["pointer"]) == ("bad_parameter", "")
        assert why in reply["error"]
    reply = post(shared.client, "sandboxfusion/run_code" + query, run_code(code("timing=1"), "correct"), 400)
    assert why in reply["detail"]


# --- SandboxFusion ---


def test_run_code(shared: service.Daemon) -> None:
    text = code("timing=1.3")
    gates = {
        "correct": "1",
        "speedup>=1.2": "1",
        "speedup >= 1.4": "0",
        "reward>=0.3": "1",
        "reward>=0.95": "0",
        "coverage": "0",
    }
    for gate, expected in gates.items():
        reply = post(shared.client, "sandboxfusion/run_code", run_code(text, gate))
        assert reply["status"] == "Success"
        assert (reply["run_result"]["status"], reply["run_result"]["return_code"]) == ("Finished", 0)
        assert reply["run_result"]["stdout"].rstrip("\n") == expected, gate
        assert reply["compile_result"]["return_code"] == 0
    reply = post(shared.client, "sandboxfusion/run_code", run_code(code("compile=fail:compile"), "compiled"))
    assert (reply["compile_result"]["return_code"], reply["run_result"]["stdout"]) == (0, "0\n")


def test_ten_equal_posts_are_judged_once(shared: service.Daemon) -> None:
    before, text = count(shared.client), code("full=sleep:0.3,pass timing=1.3")
    gates = [f"reward>={i / 10}" for i in range(10)]
    with ThreadPoolExecutor(10) as pool:
        bodies = [run_code(text + "\n" * i, gate) for i, gate in enumerate(gates)]
        replies = list(pool.map(lambda body: post(shared.client, "sandboxfusion/run_code", body), bodies))
    assert "".join(reply["run_result"]["stdout"][0] for reply in replies) == "1111111110"
    assert count(shared.client) == before + 1


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"code": None}, ["body", "code"]),
        ({"stdin": "text"}, ["body", "stdin"]),
        ({"stdin": json.dumps({"task": "scripted"})}, ["body", "stdin"]),
        ({"stdin": json.dumps({"task": "scripted", "gate": "nice>=1"})}, ["body", "stdin", "gate"]),
        ({"stdin": json.dumps({"task": "scripted", "gate": "reward>=x"})}, ["body", "stdin", "gate"]),
        ({"language": "cpp"}, ["body", "language"]),
    ],
)
def test_run_code_bad_input(shared: service.Daemon, change: dict[str, object], where: list[str]) -> None:
    reply = post(shared.client, "sandboxfusion/run_code", {**run_code(code("timing=1"), "correct"), **change}, 422)
    assert reply["detail"][0]["loc"] == where


# --- KernelGYM ---


def test_evaluate(shared: service.Daemon) -> None:
    body = evaluate("timing=1.3")
    reply = post(shared.client, "kernelgym/evaluate", body)
    assert (reply["task_id"], reply["status"]) == (body["task_id"], "completed")
    assert (reply["compiled"], reply["correctness"], reply["decoy_kernel"]) == (True, True, False)
    assert reply["speedup"] == pytest.approx(1.3, rel=1e-3)
    assert reply["reference_runtime"] == pytest.approx(1.3, rel=1e-3)
    assert reply["kernel_runtime"] == pytest.approx(1.0, rel=1e-3)
    assert (reply["error_message"], reply["error_code"]) == (None, None)
    status = json.loads(shared.client.get(f"/compat/kernelgym/status/{body['task_id']}").body)
    assert (status["task_id"], status["status"]) == (body["task_id"], "completed")
    assert json.loads(shared.client.get(f"/compat/kernelgym/results/{body['task_id']}").body) == reply
    stored = shared.client.get(f"/v1/submissions/{reply['metadata']['submission']}").json()
    assert stored["entry_point"] == "ModelNew"
    assert stored["metadata"] == {"compat": "kernelgym", "task_id": body["task_id"]}
    for what in ("status", "results"):
        assert shared.client.get(f"/compat/kernelgym/{what}/nobody").status == 404


def test_evaluate_tells_failures(shared: service.Daemon) -> None:
    rows = {
        "compile=fail:compile": (False, False, False, "COMPILATION_ERROR"),
        "full=fail:mismatch": (True, False, False, "CORRECTNESS_ERROR"),
        "full=fail:hack:idle_kernels": (False, False, True, "VALIDATION_ERROR"),
        "ast=fail:syntax": (False, False, False, "SYNTAX_ERROR"),
        "open=crash": (True, False, False, "RUNTIME_ERROR"),
    }
    for script, expected in rows.items():
        reply = post(shared.client, "kernelgym/evaluate", evaluate(script))
        told = tuple(reply[key] for key in ("compiled", "correctness", "decoy_kernel", "error_code"))
        assert (reply["status"], reply["speedup"], told) == ("completed", 0, expected), script
        assert reply["error_message"]


def test_evaluate_again_is_the_same_work_unless_it_is_forced(shared: service.Daemon) -> None:
    body = evaluate("timing=1.3")
    first = post(shared.client, "kernelgym/evaluate", body)["metadata"]["submission"]
    assert post(shared.client, "kernelgym/evaluate", body)["metadata"]["submission"] == first
    forced = {**body, "force_refresh": True}
    assert post(shared.client, "kernelgym/evaluate", forced)["metadata"]["submission"] != first


def test_what_was_asked_before_a_restart_is_the_same_work(start_scripted: service.StartDaemon) -> None:
    """Issue 25: the store's keys lead to it, and tell how often it was sent back."""
    daemon = start_scripted()
    daemon.client.add_task(TASK)
    ok, lost, named = slime("timing=2"), slime("full=reference"), evaluate("timing=1.3")
    first = post(daemon.client, "kernelgym/evaluate", named)["metadata"]["submission"]
    assert post(daemon.client, "slime", ok) == pytest.approx(1, rel=1e-3)
    assert daemon.client.post("/compat/slime", lost).status == 503
    before = count(daemon.client)
    assert daemon.stop() == 0
    daemon.start()
    assert post(daemon.client, "slime", ok) == pytest.approx(1, rel=1e-3)
    assert post(daemon.client, "kernelgym/evaluate", named)["metadata"]["submission"] == first
    status = daemon.client.get(f"/compat/kernelgym/status/{named['task_id']}")
    assert (status.status, json.loads(status.body)["status"]) == (200, "completed")
    assert count(daemon.client) == before
    assert daemon.client.post("/compat/slime", lost).status == 503
    assert post(daemon.client, "slime", lost) == 0
    assert count(daemon.client) == before + 2


def test_evaluate_answers_before_its_client_gives_up(start_scripted: service.StartDaemon) -> None:
    """Its client then asks for the status, once a second."""
    client = start_scripted(wait_limit_s=0).client
    body = evaluate("timing=1.3")
    assert post(client, "kernelgym/evaluate", body) == {"task_id": body["task_id"], "status": "processing"}
    deadline = time.monotonic() + 60
    path = f"/compat/kernelgym/status/{body['task_id']}"
    while (status := json.loads(client.get(path).body)["status"]) in ("pending", "processing"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert status == "completed"
    assert json.loads(client.get(f"/compat/kernelgym/results/{body['task_id']}").body)["correctness"]


def test_evaluate_without_timing(shared: service.Daemon) -> None:
    reply = post(shared.client, "kernelgym/evaluate", evaluate("timing=1.3", measure_performance=False))
    assert (reply["correctness"], reply["kernel_runtime"], reply["speedup"]) == (True, None, 0)


def test_batch(shared: service.Daemon) -> None:
    tasks = [evaluate("timing=1.3"), evaluate("full=fail:mismatch")]
    tasks.append({**evaluate("timing=1"), "reference_code": "# script: describe=fail:x\nclass Model: ...\n"})
    reply = post(shared.client, "kernelgym/evaluate/batch", {"batch_id": "b", "tasks": tasks})
    assert (reply["batch_id"], reply["total_tasks"], reply["completed_tasks"], reply["failed_tasks"]) == ("b", 3, 2, 1)
    assert [one["status"] for one in reply["results"]] == ["completed", "completed", "failed"]
    assert [one["correctness"] for one in reply["results"]] == [True, False, False]
    assert "reference" in reply["results"][2]["error_message"]


def test_two_samples_of_a_batch_under_one_name_are_told_apart(shared: service.Daemon) -> None:
    tasks = [{**evaluate(script), "task_id": "twice"} for script in ("timing=1.3", "full=fail:mismatch")]
    reply = post(shared.client, "kernelgym/evaluate/batch", {"batch_id": "b", "tasks": tasks})
    assert [one["status"] for one in reply["results"]] == ["completed", "failed"]
    assert "same name" in reply["results"][1]["error_message"]


@pytest.mark.parametrize(
    "change",
    [
        {"task_id": ""},
        {"task_id": "x" * 101},
        {"task_id": 7},
        {"reference_code": None},
        {"kernel_code": None},
        {"backend": "cuda"},
        {"toolkit": "kernel_simple"},
    ],
)
def test_evaluate_bad_input(shared: service.Daemon, change: dict[str, object]) -> None:
    answer = shared.client.post("/compat/kernelgym/evaluate", {**evaluate("timing=1"), **change})
    reply = answer.json()
    assert answer.status == 400
    assert (reply["error"], reply["error_code"]) == ("RequestValidationError", "VALIDATION_ERROR")
    assert next(iter(change)) in reply["message"] and reply["timestamp"]


# --- TritonForge ---


def test_tritonforge(shared: service.Daemon) -> None:
    before, body = count(shared.client), tritonforge("timing=1.3")
    for _ in range(3):  # its client asks three times, whatever comes
        reply = post(shared.client, "tritonforge/eval", body)
    assert (reply["compiled"], reply["correctness"]) == (True, True)
    assert reply["runtime"] == pytest.approx(1.0, rel=1e-3)
    assert reply["runtime_stats"]["speedup"] == pytest.approx(1.3, rel=1e-3)
    assert count(shared.client) == before + 1
    reply = post(shared.client, "tritonforge/eval", tritonforge("full=fail:mismatch"))
    assert (reply["compiled"], reply["correctness"], reply["runtime"], reply["runtime_stats"]) == (True, False, -1, {})
    reply = post(shared.client, "tritonforge/eval", {"custom_model_src": "x"}, 422)
    assert reply["detail"][0]["loc"] == ["body", "original_model_src"]
    reply = post(shared.client, "tritonforge/eval", tritonforge("timing=1", backend="cuda"), 422)
    assert reply["detail"][0]["loc"] == ["body", "backend"]


# --- no reward: come again, then the stated value ---

NULLS: list[tuple[str, dict[str, Any], int]] = [
    ("openrlhf?fill=0.25", openrlhf("timing=reference"), 503),
    ("slime?fill=0.25", slime("full=reference"), 503),
    ("sandboxfusion/run_code", run_code(code("full=reference"), "compiled"), 504),
    ("kernelgym/evaluate", evaluate("timing=reference"), 503),
    ("tritonforge/eval", tritonforge("timing=reference"), 503),
]


@pytest.mark.parametrize(("path", "body", "again"), NULLS, ids=lambda value: value if isinstance(value, str) else "")
def test_infra(shared: service.Daemon, path: str, body: dict[str, Any], again: int) -> None:
    """Two tries that the client repeats by itself, then the stated value, and that for every later try."""
    before = count(shared.client)
    for _ in range(2):
        answer = shared.client.post("/compat/" + path, body)
        assert (answer.status, answer.headers["Retry-After"]) == (again, "1"), answer
    stated = [json.loads(shared.client.post("/compat/" + path, body).body) for _ in range(2)]
    assert stated[0] == stated[1]
    assert count(shared.client) == before + 3
    reply = stated[0]
    if path.startswith("openrlhf"):
        assert (reply["rewards"], reply["scores"], reply["extra_logs"]["masked"]) == ([0.25], [0], [1])
    elif path.startswith("slime"):
        assert reply == 0.25
    elif path.startswith("sandboxfusion"):
        assert (reply["status"], reply["run_result"]) == ("SandboxError", None)
    elif path.startswith("kernelgym"):
        assert (reply["status"], reply["error_code"], reply["speedup"]) == ("failed", "SYSTEM_ERROR", 0)
        assert (reply["compiled"], reply["correctness"]) == (False, False)
    else:
        assert (reply["compiled"], reply["correctness"], reply["runtime"]) == (False, False, -1)
        assert reply["metadata"]["masked"] is True


def test_infra_that_passes(
    start_scripted: service.StartDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try is judged anew."""
    flag = tmp_path / "flag"
    flag.touch()
    monkeypatch.setenv("SCRIPT_REFERENCE_FAILS", str(flag))
    client = start_scripted().client
    client.add_task(TASK)
    body = slime("full=flaky timing=2")
    assert client.post("/compat/slime", body).status == 503
    flag.unlink()
    assert post(client, "slime", body) == pytest.approx(1, rel=1e-3)


def test_inconclusive(shared: service.Daemon) -> None:
    """One more try; then what passing the last stage is worth, and no speed."""
    body = slime("timing=inconclusive")
    assert shared.client.post("/compat/slime", body).status == 503
    assert post(shared.client, "slime", body) == pytest.approx(0.7)
    body = evaluate("timing=inconclusive")
    assert shared.client.post("/compat/kernelgym/evaluate", body).status == 503
    reply = post(shared.client, "kernelgym/evaluate", body)
    assert (reply["status"], reply["correctness"], reply["speedup"]) == ("completed", True, 0)
    assert reply["metadata"]["timing_outcome"] == "inconclusive"


def test_null_of_another_kind(shared: service.Daemon) -> None:
    """A reward that is not finite."""
    address = "slime?fill=-0.5&reward=" + "%7B%22kind%22:%22expr%22,%22expr%22:%22log(0*correct)%22%7D"
    body = slime("timing=2")
    assert [shared.client.post("/compat/" + address, body).status for _ in range(2)] == [503, 503]
    assert post(shared.client, address, body) == -0.5


def test_too_late_is_504_and_the_work_goes_on(start_scripted: service.StartDaemon) -> None:
    client = start_scripted(wait_limit_s=0).client
    client.add_task(TASK)
    for path, body in (
        ("slime", slime("timing=2")),
        ("openrlhf", openrlhf("timing=2")),
        ("sandboxfusion/run_code", run_code(code("timing=2"), "correct")),
        ("tritonforge/eval", tritonforge("timing=2")),
    ):
        deadline, before = time.monotonic() + 60, count(client)
        while (answer := client.post("/compat/" + path, body)).status == 504:
            assert answer.headers["Retry-After"] == "1"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert answer.status == 200
        assert count(client) == before + 1


def test_a_full_queue_is_told_so_that_the_client_comes_again(start_scripted: service.StartDaemon) -> None:
    client = start_scripted(queue_limit=1, cpu_jobs=1).client
    client.add_task(TASK)
    client.submit({"task": "scripted", "candidate": code("ast=hang")})
    service.wait_for(lambda: client.get("/v1/status").json()["queues"]["cpu_running"] == 1)
    client.submit({"task": "scripted", "candidate": code("ast=hang")})
    assert client.post("/compat/slime", slime("timing=1")).status == 429
    assert client.post("/compat/kernelgym/evaluate", evaluate("timing=1")).json()["error_code"] == "RESOURCE_ERROR"
    batch = {"batch_id": "b", "tasks": [evaluate("timing=1"), evaluate("timing=1")]}
    assert client.post("/compat/kernelgym/evaluate/batch", batch).status == 429
    answer = client.post("/compat/sandboxfusion/run_code", run_code(code("timing=1"), "correct"))
    assert (answer.status, set(answer.json())) == (504, {"detail"})


def test_a_stop_lets_those_go_who_wait(start_scripted: service.StartDaemon) -> None:
    daemon = start_scripted(drain_ms=0)
    client = daemon.client
    client.add_task(TASK)
    answers: list[service.Answer] = []
    waiting = threading.Thread(target=lambda: answers.append(client.post("/compat/slime", slime("ast=hang"))))
    waiting.start()
    service.wait_for(lambda: client.get("/v1/status").json()["http"]["held"] != 0, 30)
    assert daemon.stop() == 0
    waiting.join()
    assert answers[0].status == 503


# --- who may ---


def test_tokens(tmp_path: Path) -> None:
    """A client that takes no header has the token in its address; another client's work does not exist for it."""
    from test_access import Caller, token

    with service.directory() as directory:
        store = directory / "store.db"
        alice = token(store, "new", "--name=a", "--scope=submit", "--client=alice")
        bob = token(store, "new", "--name=b", "--scope=submit", "--client=bob")
        reader = token(store, "new", "--name=r", "--scope=read", "--client=alice")
        admin = token(store, "new", "--name=admin", "--scope=admin")
        with service.Daemon(directory, SCRIPTED) as running:
            url = running.client.url
            Caller(url, admin).add_task(TASK)
            basic = {
                name: {"Authorization": "Basic " + base64.b64encode(f"trainer:{secret}".encode()).decode()}
                for name, secret in {"alice": alice, "bob": bob, "reader": reader, "bad": "vd_" + "A" * 43}.items()
            }
            nobody = Caller(url, None)
            body = evaluate("full=fail:hack:idle_kernels")
            answer = nobody.call("POST", "/compat/kernelgym/evaluate", body, basic["alice"])
            assert (answer.status, answer.json()["decoy_kernel"]) == (200, True)
            assert answer.json()["error_message"] == "Rejected: not a genuine kernel."
            submission = Caller(url, alice).get(f"/v1/submissions/{answer.json()['metadata']['submission']}").json()
            assert (submission["client"], submission["metadata"]["compat"]) == ("alice", "kernelgym")
            path = f"/compat/kernelgym/results/{body['task_id']}"
            assert nobody.call("GET", path, None, basic["alice"]).status == 200
            assert nobody.call("GET", path, None, basic["bob"]).status == 404
            assert nobody.call("POST", "/compat/slime", slime("timing=1"), basic["reader"]).status == 403
            assert nobody.call("POST", "/compat/slime", slime("timing=1"), basic["bad"]).status == 401
            assert nobody.call("POST", "/compat/slime", slime("timing=1")).status == 401
            assert nobody.call("GET", "/v1/status", None, basic["alice"]).status == 401  # here alone


def test_what_a_cheat_is_told(shared: service.Daemon) -> None:
    """Even the operator's trainer shows it to the policy that it trains."""
    reply = post(shared.client, "tritonforge/eval", tritonforge("full=fail:hack:idle_kernels"))
    assert reply["metadata"]["feedback"] == "Rejected: not a genuine kernel."
    reply = post(shared.client, "slime?reply=object", slime("full=fail:hack:idle_kernels"))
    assert (reply["score"], reply["hack"], reply["compiled"]) == (0, 1, 0)
