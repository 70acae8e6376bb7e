"""trainer against a real daemon and a scripted OpenAI-compatible endpoint."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
import service
from answering import Reply
from endpoint import ANSWERS, LIMIT_S, TESTS, Endpoint, Json, code, command, fake_daemon, fenced, lines, run


@pytest.fixture
def tasks_file(tmp_path: Path) -> Path:
    rows = [
        {"name": "relu", "pytorch_code": (TESTS / "tasks" / "relu.py").read_text(), "level": 2},
        {"name": "softmax", "pytorch_code": (TESTS / "tasks" / "softmax.py").read_text(), "difficulty": 2},
        {"name": "elsewhere", "pytorch_code": "x = 1", "level": 1},
        {"name": "empty", "level": 2},
    ]
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "[1, 2]\n")
    return path


def test_bestofn_keeps_the_correct_ones(
    client: service.Client, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    done = run(
        client, endpoint, tmp_path, "bestofn", f"--tasks={tasks_file}", "--samples=6", "--keep=1", "--policy=strict"
    )
    assert done.returncode == 0, done.stderr
    out = tmp_path / "outputs" / "bestofn_run"
    kept = lines(out / "kept.jsonl")
    assert [row["task"] for row in kept] == ["relu", "softmax"]
    assert all(row["reward"] >= 0.7 and row["components"]["correct"] == 1 for row in kept)
    assert kept[0]["code"].strip() == code("relu/honest").strip()
    assert "relu" in kept[0]["instruction"].lower() and "ModelNew" in kept[0]["instruction"]
    assert kept[0]["prompt"].startswith("sha256:")
    candidates = lines(out / "candidates.jsonl")
    assert len(candidates) == 12
    classes = [row["verdict"]["class"] for row in candidates if row["task"] == "relu"]
    assert classes[:4] == ["ok", "mismatch", "extract", "form"] and classes[5] == "syntax"
    assert candidates[4]["verdict"]["duplicate_of"] == 0
    empty = next(row for row in candidates if row["text"] == "")
    assert (empty["task"], empty["verdict"]["class"], empty["verdict"]["reward"]) == ("softmax", "extract", 0)
    report = json.loads((out / "report.json").read_text())
    assert (report["kept"], report["answers"], report["distinct"], report["tasks"]) == (2, 12, 11, 2)
    asked_of = {"model": "scripted", "endpoint": endpoint.url, "temperature": 0.8, "top_p": 1, "max_tokens": 2048}
    assert report["sampling"] == asked_of | {"api": "chat", "plain": False}
    assert report["rows_skipped"] == 2 and "row 4" in done.stderr and "row 5" in done.stderr
    asked = endpoint.asked[0]
    assert (asked["n"], asked["temperature"], asked["max_tokens"], asked["stream"]) == (6, 0.8, 2048, False)
    assert client.expect("GET", "/v1/runs/bestofn_run")["n"] == 11  # what is the same text is judged once


def test_a_killed_run_samples_nothing_twice(
    client: service.Client, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    arguments = (
        "bestofn",
        f"--tasks={tasks_file}",
        "--samples=6",
        "--concurrency=1",
        "--until=compile",
        "--threshold=0.2",
    )
    journal = tmp_path / "outputs" / "bestofn_run" / "journal.jsonl"
    kills = 0
    for want in ("sampled", "posted", "judged", "sampled"):
        before = journal.read_text().count(f'"{want}"') if journal.exists() else 0
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(command(client, endpoint, tmp_path, *arguments), stdout=log, stderr=log)
        deadline = time.monotonic() + LIMIT_S
        while process.poll() is None and time.monotonic() < deadline:
            if journal.exists() and journal.read_text().count(f'"event":"{want}"') > before:
                break
            time.sleep(0.01)
        kills += process.poll() is None
        process.kill()
        process.wait()
    assert kills >= 2
    with journal.open("ab") as file:
        file.write(b'{"event":"sampled","task":"relu","tu')  # what a crash leaves
    done = run(client, endpoint, tmp_path, *arguments, "--allow-incorrect")
    assert done.returncode == 0, done.stderr
    # Killed while the endpoint was asked, a request is asked again; what was stored is not.
    stored = [record for record in lines(journal) if record["event"] == "sampled"]
    assert sorted(record["task"] for record in stored) == ["relu", "softmax"]
    assert len(lines(tmp_path / "outputs" / "bestofn_run" / "candidates.jsonl")) == 12
    asked = len(endpoint.asked)
    again = run(client, endpoint, tmp_path, *arguments, "--allow-incorrect")
    assert again.returncode == 0 and len(endpoint.asked) == asked
    # Killed between the post and the journal, it posts again under the same key, and nothing is judged twice.
    posted = {record["task"]: record["group"] for record in lines(journal) if record["event"] == "posted"}
    kept = [record for record in lines(journal) if record["event"] not in ("posted", "judged")]
    journal.write_text("".join(json.dumps(record) + "\n" for record in kept))
    again = run(client, endpoint, tmp_path, *arguments, "--allow-incorrect")
    assert again.returncode == 0 and len(endpoint.asked) == asked, again.stderr
    assert {record["task"]: record["group"] for record in lines(journal) if record["event"] == "posted"} == posted
    other = run(client, endpoint, tmp_path, *arguments, "--temperature=0.5")
    assert other.returncode == 3 and "sampling" in other.stderr, other.stderr


@pytest.mark.parametrize("kind", ["bestofn", "evaluate"])
def test_a_run_is_not_gone_on_with_under_another_prompt(endpoint: Endpoint, tmp_path: Path, kind: str) -> None:
    """As after an upgrade of the trainer: its prompt is carried in the program."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"name": "softmax", "code": (TESTS / "tasks/softmax.py").read_text(), "level": 2}))
    with fake_daemon() as judge:
        arguments = (kind, f"--tasks={tasks}", "--samples=2", "--name=x")
        assert run(judge, endpoint, tmp_path, *arguments).returncode == 0
        (journal,) = (tmp_path / "outputs").glob("**/*journal.jsonl")
        header, *rest = lines(journal)
        now, before = header["prompt"], "sha256:" + "0" * 64
        journal.write_text("".join(json.dumps(record) + "\n" for record in [header | {"prompt": before}, *rest]))
        asked = len(endpoint.asked), len(judge.asked)
        done = run(judge, endpoint, tmp_path, *arguments)
        assert done.returncode == 3 and before[:19] in done.stderr and now[:19] in done.stderr, done.stderr
        assert str(journal) in done.stderr and (len(endpoint.asked), len(judge.asked)) == asked


@pytest.mark.parametrize("policy", [None, "shapes=require,timing.trials=100", "strict,variations.count=1"])
def test_single_keys_of_a_policy_reach_the_daemon_and_other_sizes_the_prompt(
    endpoint: Endpoint, tmp_path: Path, policy: str | None
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"name": "softmax", "code": (TESTS / "tasks/softmax.py").read_text(), "level": 2}))
    given = [] if policy is None else [f"--policy={policy}"]
    with fake_daemon() as judge:
        done = run(judge, endpoint, tmp_path, "bestofn", f"--tasks={tasks}", "--samples=1", "--until=full", *given)
        assert done.returncode == 0, done.stderr
        posted = [body for _, path, body in judge.asked if path == "/v1/groups"]
    wanted = {
        None: "hybrid",
        "shapes=require,timing.trials=100": {"name": "hybrid", "shapes": "require", "timing": {"trials": 100}},
        "strict,variations.count=1": {"name": "strict", "variations": {"count": 1}},
    }
    assert [body["policy"] for body in posted] == [wanted[policy]]
    prompt = endpoint.asked[0]["messages"][0]["content"]
    assert ("other sizes" in prompt) == (policy is not None and "shapes" in policy)


def test_a_policy_of_a_file_is_what_the_file_says(endpoint: Endpoint, tmp_path: Path) -> None:
    tasks, policy = tmp_path / "tasks.jsonl", tmp_path / "policy.json"
    tasks.write_text(json.dumps({"name": "softmax", "code": (TESTS / "tasks/softmax.py").read_text(), "level": 2}))
    with fake_daemon() as judge:
        for text, status in (('{"name": "strict"}', 0), ('{"name":"strict"}', 0), ('{"name": "hybrid"}', 3)):
            policy.write_text(text)
            done = run(judge, endpoint, tmp_path, "bestofn", f"--tasks={tasks}", "--samples=1", f"--policy={policy}")
            assert done.returncode == status, done.stderr
        assert '"policy" differs' in done.stderr


def test_a_policy_that_cannot_be_read_ends_the_command_before_anything_is_asked(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    done = run(
        service.Client("http://127.0.0.1:9"), endpoint, tmp_path, "bestofn", "--tasks=none", "--policy=strict,shapes=no"
    )
    assert done.returncode == 2 and "/shapes: is one of report,require" in done.stderr, done.stderr


def refuse_many(body: Json) -> Reply | None:
    return (400, {}, b'{"error":{"message":"n is at most 1"}}') if body["n"] > 1 else None


def busy(body: Json) -> Reply | None:
    return 429, {"Retry-After": "1"}, b"slow down"


def broken(body: Json) -> Reply | None:
    return 503, {}, b"loading"


def test_an_endpoint_with_habits(client: service.Client, endpoint: Endpoint, tmp_path: Path, tasks_file: Path) -> None:
    endpoint.faults = [busy, broken, refuse_many]
    done = run(
        client, endpoint, tmp_path, "bestofn", f"--tasks={tasks_file}", "--samples=3", "--concurrency=1", "--until=ast",
        "--threshold=-1", "--allow-incorrect", "--max-tasks=1", "--seed=5",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [body["n"] for body in endpoint.asked] == [3, 3, 3, 1, 1, 1]
    assert "waiting: the endpoint answered 429: slow down (attempt 1 of 6, the next in 1.0 s)" in done.stderr
    seeds = [body["seed"] for body in endpoint.asked[3:]]
    assert len(set(seeds)) == 3, "the same seed would give the same answer"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ((200, {}, b"<html>"), "is not JSON"),
        ((200, {}, b"{}"), 'no "choices"'),
        ((200, {}, b'{"choices":[]}'), "without a choice"),
        ((200, {}, b'{"choices":[{"message":{"content":5}}]}'), "has no text"),
        ((200, {}, b'{"error":{"message":"no provider"}}'), 'no "choices": no provider'),  # OpenRouter's
        ((401, {}, b'{"error":{"message":"no such key"}}'), "401: no such key"),
        ((404, {}, b'{"error":"no such model","error_type":"x"}'), "404: no such model"),  # TGI's
        ((401, {}, b'{"detail":"no such key"}'), "401: no such key"),
        ((403, {}, b'{"detail":[{"loc":["body","top_k"],"msg":"extra fields"}]}'), "403: extra fields"),  # FastAPI's
        ((403, {}, b"proxy: not from here\nsecond line"), "403: proxy: not from here"),
        ((403, {}, b""), "403: no reason given"),
    ],
)
def test_a_task_that_cannot_be_sampled_is_told_and_left(
    client: service.Client, endpoint: Endpoint, tmp_path: Path, tasks_file: Path, reply: Reply, why: str
) -> None:
    endpoint.faults = [lambda body: reply]
    done = run(
        client, endpoint, tmp_path, "bestofn", f"--tasks={tasks_file}", "--samples=2", "--concurrency=1", "--until=ast"
    )
    assert done.returncode == 0, done.stderr
    assert "relu: failed" in done.stderr and why in done.stderr
    assert "1 of 2 tasks failed" in done.stderr.splitlines()[-1]
    assert json.loads((tmp_path / "outputs/bestofn_run/report.json").read_text())["tasks_failed"] == 1


def test_services_that_are_not_there(
    client: service.Client, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    away = Endpoint(url="http://127.0.0.1:9/v1")
    done = run(client, away, tmp_path, "bestofn", f"--tasks={tasks_file}", "--attempts=2")
    assert done.returncode == 7 and "127.0.0.1:9" in done.stderr, done.stderr
    nowhere = run(client, endpoint, tmp_path, "bestofn", "--tasks=/nowhere")
    assert nowhere.returncode == 3 and "/nowhere" in nowhere.stderr
    assert run(client, endpoint, tmp_path, "bestofn").returncode == 3
    columns = run(client, endpoint, tmp_path, "bestofn", "--tasks=train.parquet")
    assert columns.returncode == 3 and "trainer prepare --file" in columns.stderr
    wrong = run(client, endpoint, tmp_path, "bestofn", "--reward=bestest")
    assert wrong.returncode == 2 and "unknown reward" in wrong.stderr


@pytest.mark.parametrize("kind", ["bestofn", "evaluate"])
@pytest.mark.parametrize(("option", "value"), [("--policy", "stric"), ("--until", "fulll"), ("--policy", "")])
def test_what_the_daemon_would_refuse_is_not_sampled_first(
    endpoint: Endpoint, tmp_path: Path, tasks_file: Path, kind: str, option: str, value: str
) -> None:
    away = service.Client("http://127.0.0.1:9")
    done = run(away, endpoint, tmp_path, kind, f"--tasks={tasks_file}", f"{option}={value}")
    why = "there is no policy" if option == "--policy" else f"{option} takes one of"
    assert done.returncode == 2 and why in done.stderr and f'"{value}"' in done.stderr, done.stderr
    assert endpoint.asked == []


def test_interrupted_it_says_how_to_go_on(
    client: service.Client, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    endpoint.delay_s = 120.0  # nobody waits for an answer that will not be kept
    arguments = ("evaluate", f"--tasks={tasks_file}", "--samples=2", "--until=ast")
    process = subprocess.Popen(
        command(client, endpoint, tmp_path, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not endpoint.asked:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "run it again to go on" in said, said


@pytest.mark.parametrize("where", ["/v1/tasks", "/v1/groups", "/v1/groups/group-0"])
def test_interrupted_it_waits_for_no_verdict(endpoint: Endpoint, tmp_path: Path, tasks_file: Path, where: str) -> None:
    reached, gone = threading.Event(), threading.Event()

    def hold(method: str, path: str, body: Json) -> None:
        if path.partition("?")[0] == where:
            reached.set()
            gone.wait(120)

    with fake_daemon() as judge:
        judge.faults = [hold] * 3
        arguments = ("bestofn", f"--tasks={tasks_file}", "--concurrency=1")
        with subprocess.Popen(
            command(judge, endpoint, tmp_path, *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            assert reached.wait(60)
            process.terminate()
            _, said = process.communicate(timeout=60)
        gone.set()
        assert process.returncode == 130 and "run it again to go on" in said, said
        assert run(judge, endpoint, tmp_path, *arguments).returncode == 0


def test_evaluate_says_how_well_a_model_does(
    client: service.Client, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    done = run(
        client,
        endpoint,
        tmp_path,
        "evaluate",
        f"--tasks={tasks_file}",
        "--samples=6",
        "--policy=strict",
        "--name=first",
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "outputs" / "eval_first.json").read_text())
    assert report["model_path"] == "scripted" and report["num_tasks"] == 2
    assert (report["sampling"]["temperature"], report["sampling"]["endpoint"]) == (0.8, endpoint.url)
    metrics = report["metrics"]
    # By their first samples: relu's is honest, softmax's is wrong.
    assert (metrics["valid_rate"], metrics["compiled_rate"], metrics["correct_rate"]) == (100, 100, 50)
    assert metrics["fast_p"]["0"] == 50
    # Of six samples 2 (one a copy) and 2 are correct.
    assert metrics["pass_at"]["1"] == pytest.approx(100 * (2 / 6 + 2 / 6) / 2)
    assert metrics["pass_at"]["5"] == 100
    assert len(report["detailed_results"]) == 12
    assert {"id", "stage", "class", "reward", "submission"} <= set(report["detailed_results"][0])
    assert re.search(r"^all +2 +100\.0% +100\.0% +100\.0% +50\.0%", done.stdout, re.MULTILINE), done.stdout


def test_an_evaluation_without_any_code_says_so(
    client: service.Client, endpoint: Endpoint, tmp_path: Path, tasks_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 22, point 8: 0/0/0 by answers without code is not a figure of kernels, and has a status of its own."""
    for mark in ANSWERS:
        monkeypatch.setitem(ANSWERS, mark, ["I cannot do that."])
    done = run(client, endpoint, tmp_path, "evaluate", f"--tasks={tasks_file}", "--until=ast", "--name=mute")
    assert done.returncode == 9 and "no code was found in any answer" in done.stderr, done.stderr
    assert re.search(r"^level +tasks +extracted +valid", done.stdout, re.MULTILINE)
    assert re.search(r"^all +2 +0\.0% +0\.0%", done.stdout, re.MULTILINE), done.stdout
    assert json.loads((tmp_path / "outputs/eval_mute.json").read_text())["unextracted"] is True


def test_a_task_whose_name_stands_for_another_reference_is_judged_all_the_same(
    client: service.Client, endpoint: Endpoint, tmp_path: Path
) -> None:
    """Data sets share names, and references have several modules; the trainer asks by id."""
    source = (TESTS / "tasks" / "relu.py").read_text()
    first = client.add_task({"name": "shared", "reference": source + "\n# of one data set\n"})
    code = source + "\n\nclass Other(Model):\n    pass\n"
    for entry in ("Model", "Other"):
        tasks = tmp_path / f"{entry}.jsonl"
        tasks.write_text(json.dumps({"name": "shared", "pytorch_code": code, "entry_point": entry}) + "\n")
        done = run(
            client, endpoint, tmp_path, "evaluate", f"--tasks={tasks}", "--level=0", "--until=ast", f"--name={entry}"
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / f"outputs/eval_{entry}.json").read_text())["failed_tasks"] == 0
    assert client.expect("GET", "/v1/tasks/shared")["id"] == first


def test_feedback_is_answered_in_the_next_turn(
    client: service.Client, endpoint: Endpoint, tmp_path: Path, tasks_file: Path
) -> None:
    done = run(
        client, endpoint, tmp_path, "bestofn", f"--tasks={tasks_file}", "--samples=2", "--turns=2", "--until=ast",
        "--max-tasks=1", "--threshold=-1", "--allow-incorrect",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    second = [body for body in endpoint.asked if len(body["messages"]) == 3]
    assert len(second) == 2
    assert [message["role"] for message in second[0]["messages"]] == ["user", "assistant", "user"]
    assert "verifier has judged" in second[0]["messages"][2]["content"]
    assert len(lines(tmp_path / "outputs/bestofn_run/candidates.jsonl")) == 4


def test_a_task_of_kernelbook_is_answered_under_its_own_name(
    client: service.Client, endpoint: Endpoint, tmp_path: Path
) -> None:
    source = (TESTS / "tasks" / "kernelbook_contrastive.py").read_text()
    tasks = tmp_path / "book.jsonl"
    row = {"python_code": source, "entry_point": "ContrastiveMargin", "uuid": 7}
    tasks.write_text(json.dumps(row) + "\n")
    ANSWERS["ContrastiveMargin"] = [fenced(code("kernelbook_contrastive/honest"))]
    done = run(
        client, endpoint, tmp_path, "bestofn", f"--tasks={tasks}", "--level=0", "--samples=1", "--until=compile",
        "--threshold=0.2", "--allow-incorrect",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (kept,) = lines(tmp_path / "outputs/bestofn_run/kept.jsonl")
    assert (kept["task"], kept["components"]["compiled"]) == ("7", 1)
    assert "`ContrastiveMarginNew`" in kept["instruction"]


def course_file(tmp_path: Path) -> Path:
    """Three tasks of level 1 and three of level 2, of the two that the endpoint knows answers for."""
    rows = [
        {
            "name": f"{name}{i}",
            "pytorch_code": (TESTS / "tasks" / f"{name}.py").read_text() + f"\n# {i}\n",
            "level": level,
        }
        for level, name in ((1, "relu"), (2, "softmax"))
        for i in range(3)
    ]
    path = tmp_path / "course.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_curriculum_draws_and_its_state_is_kept(client: service.Client, endpoint: Endpoint, tmp_path: Path) -> None:
    tasks = course_file(tmp_path)
    state = tmp_path / "checkpoints" / "curriculum.json"

    def round_of(name: str, *more: str) -> subprocess.CompletedProcess[str]:
        return run(
            client, endpoint, tmp_path, "bestofn", f"--tasks={tasks}", "--samples=1", "--until=ast", "--max-tasks=2",
            "--threshold=-1", "--allow-incorrect", "--curriculum=frontier", f"--name={name}", *more,
        )  # fmt: skip

    done = round_of("one")
    assert done.returncode == 0, done.stderr
    first = json.loads(state.read_text())
    assert first["round"]["is_learned"] and len(first["round"]["tasks"]) == 2
    assert sorted(first["curriculum"]["tried"]) == first["round"]["tasks"]
    # The same round again has the same tasks, asks nothing and teaches nothing.
    asked = len(endpoint.asked)
    assert round_of("one").returncode == 0
    assert json.loads(state.read_text()) == first and len(endpoint.asked) == asked
    assert round_of("two").returncode == 0
    second = json.loads(state.read_text())
    assert second["rounds"] == 2 and sum(n for n, _ in second["curriculum"]["tried"].values()) == 4
    other = round_of("three", "--curriculum=stepped")
    assert other.returncode == 3 and "frontier" in other.stderr and "curriculum.json" in other.stderr
    assert json.loads(state.read_text()) == second
    assert round_of("four", "--curriculum=steeped").returncode == 2
    # Without a kind it is stepped, and a kind may stand apart.
    state.unlink()
    for number, kind in enumerate((["--curriculum"], ["--curriculum", "stepped"], ["--curriculum", "--mix=0.5"])):
        plain = round_of(f"plain{number}", *kind)
        assert plain.returncode == 0, plain.stderr
        assert json.loads(state.read_text())["curriculum"]["kind"] == "stepped"
    unknown = round_of("six", "--curriculum", "steeped")
    assert unknown.returncode == 2 and "not one of fixed, stepped, seed, adarft, frontier" in unknown.stderr
    # What only a curriculum uses is not passed over where there is none.
    for option in ("--mix=0.3", f"--held-out={state}"):
        alone = run(client, endpoint, tmp_path, "bestofn", f"--tasks={tasks}", option)
        assert alone.returncode == 2 and "give --curriculum, too" in alone.stderr


def test_the_seeds_curriculum_moves_after_one_round_of_training(
    client: service.Client, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 22, point 4: no held-out figure is needed, and the log says which figure it went by."""
    monkeypatch.setitem(ANSWERS, "Rectified linear unit", [fenced(code("relu/honest"))])
    tasks = course_file(tmp_path)
    state = tmp_path / "checkpoints" / "curriculum.json"
    arguments = ["bestofn", f"--tasks={tasks}", "--samples=1", "--until=full", "--max-tasks=2", "--curriculum=seed"]
    done = run(client, endpoint, tmp_path, *arguments, "--name=one")
    assert done.returncode == 0, done.stderr
    assert "no --held-out; by the round's own answers, 100 % of those at level 1 correct" in done.stderr
    now = json.loads(state.read_text())
    assert (now["curriculum"]["level_2_percent"], now["moved_by"]) == (15, "training")
    report = tmp_path / "held_out.json"
    report.write_text(json.dumps({"levels": {"1": {"correct_rate": 50.0}}, "detailed_results": [{"id": "elsewhere"}]}))
    done = run(client, endpoint, tmp_path, *arguments, "--name=two", f"--held-out={report}")
    assert done.returncode == 0 and "by --held-out the share of level 2 is 20 %" in done.stderr, done.stderr
    assert json.loads(state.read_text())["moved_by"] == "held_out"


def test_held_out_tasks_move_the_curriculum(client: service.Client, endpoint: Endpoint, tmp_path: Path) -> None:
    tasks = course_file(tmp_path)
    report = tmp_path / "held_out.json"
    state = tmp_path / "checkpoints" / "curriculum.json"
    for number in range(6):
        row = {"id": "elsewhere"}
        report.write_text(json.dumps({"n": number, "levels": {"1": {"correct_rate": 50.0}}, "detailed_results": [row]}))
        done = run(
            client, endpoint, tmp_path, "bestofn", f"--tasks={tasks}", "--samples=1", "--until=ast", "--max-tasks=3",
            "--threshold=-1", "--allow-incorrect", "--curriculum=stepped", f"--held-out={report}", f"--name=r{number}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert json.loads(state.read_text())["curriculum"]["level_2_percent"] == [10, 10, 10, 10, 15, 20][number]
    stale = run(
        client, endpoint, tmp_path, "bestofn", f"--tasks={tasks}", "--curriculum=stepped", f"--held-out={report}",
        "--name=next",
    )  # fmt: skip
    assert stale.returncode == 3 and "was counted" in stale.stderr
    report.write_text(json.dumps({"levels": {"1": {"correct_rate": 50.0}}, "detailed_results": [{"id": "relu1"}]}))
    mixed = run(
        client, endpoint, tmp_path, "bestofn", f"--tasks={tasks}", "--curriculum=stepped", f"--held-out={report}",
        "--name=next",
    )  # fmt: skip
    assert mixed.returncode == 3 and "not held out" in mixed.stderr
    report.write_text(json.dumps({"levels": {"1": {"correct_rate": 5.0}}, "prompt": "sha256:other"}))
    prompted = run(
        client, endpoint, tmp_path, "bestofn", f"--tasks={tasks}", "--curriculum=stepped", f"--held-out={report}",
        "--name=next",
    )  # fmt: skip
    assert prompted.returncode == 3 and "another prompt" in prompted.stderr
