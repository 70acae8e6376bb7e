"""REINFORCE and GRPO on a tiny model, judged by a scripted daemon; the small endpoint; the check on meta tensors."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from finetune import check, checkpoint, grpo, judge, layout, losses, reinforce, serve, tiny
from finetune.data import Example
from finetune.errors import FAILED, RESUME, SERVICE, TrainError
from finetune.judge import Judge, Task, Verdict, code_begins, code_token
from finetune.loop import Loop, Metrics, said_of_memory
from finetune.model import tokenizer_of
from finetune.reinforce import Answer
from finetune.settings import Settings, settings_of
from transformers import AutoModelForCausalLM, StoppingCriteriaList, Trainer

torch.set_num_threads(1)  # a tiny model gains nothing from more, and waits for them where processors are shared

Json = dict[str, Any]
TEXT = "Write relu in Triton.\n```python\nimport triton\nx = 1\n```\nscaled add"
Score = Callable[[str], Json]


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class Daemon:
    """What a training asks of verifierd, with a reward of the test's own."""

    def __init__(self, score: Score) -> None:
        self.groups: list[Json] = []
        self.refusals: list[tuple[int, Json]] = []
        self.lost = 0  # how many POSTs are taken and never answered
        self.by_key: dict[str, int] = {}
        self.signals_at = -1  # the group that is not done when it is asked for: a signal comes instead
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _send(self, status: int, document: Json) -> None:
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Retry-After", "0.01")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if outer.refusals:
                    self._send(*outer.refusals.pop(0))
                    return
                number = len(outer.groups)
                if key := self.headers.get("Idempotency-Key"):
                    number = outer.by_key.setdefault(key, number)
                if number == len(outer.groups):
                    outer.groups.append(body)
                if outer.lost > 0:
                    outer.lost -= 1
                    return
                self._send(202, {"id": str(number)})

            def do_GET(self) -> None:
                number = int(self.path.split("/")[-1].split("?")[0])
                if number == outer.signals_at:
                    os.kill(os.getpid(), signal.SIGTERM)
                    self._send(200, {"state": "running", "items": []})
                    return
                body = outer.groups[number]
                items = [{"class": "ok"} | score(c["completion"]) for c in body["candidates"]]
                self._send(200, {"state": "done", "items": items})

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.handler = Handler


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "tiny"
    tiny.make(directory, [TEXT], vocabulary=280, hidden=32, layers=1)
    return directory


def settings(model: Path, method: str = "reinforce", **more: object) -> Settings:
    given: Json = {
        "model": str(model),
        "tasks_per_step": 2,
        "samples": 4,
        "answer_tokens": 8,
        "batch": 4,
        "learning_rate": 0.02,
        "checkpointing": False,
        "truncated": "keep",
        "epochs": 1,
    }
    return settings_of(method, given | more)


def request(url: str, tasks: int = 2) -> Json:
    return {
        "daemon": url,
        "tasks": [
            {
                "name": f"t{i}",
                "id": f"sha256:{i}",
                "prompt": f"Write relu {i}.",
                "policy": "strict",
                "entry_point": "ReluNew",
            }
            for i in range(tasks)
        ],
    }


def figures(workdir: Path, run: str) -> list[Json]:
    return [json.loads(line) for line in (layout.outputs(workdir, run) / "metrics.jsonl").read_text().splitlines()]


def share_of_a(text: str) -> Json:
    """A reward that can be learned in a few steps: how much of the answer is below 'n'."""
    return {"reward": sum("a" <= c < "n" for c in text) / max(1, len(text))}


def test_reinforce_raises_the_reward_and_goes_on(model: Path, tmp_path: Path) -> None:
    daemon = Daemon(share_of_a)
    with served(daemon.handler) as url:
        options: Json = {"epochs": 12, "samples": 16, "learning_rate": 0.05}
        assert reinforce.train(settings(model, max_steps=2, **options), tmp_path, request(url)) == 0
        assert reinforce.train(settings(model, run="b", final="b_final", **options), tmp_path, request(url)) == 0
    means = [row["reward_mean"] for row in figures(tmp_path, "b")]
    assert len(means) == 12 and sum(means[-3:]) / 3 > sum(means[:3]) / 3 + 0.05, means
    first = daemon.groups[0]
    assert first["reward"] == {"kind": "hierarchical"} and first["policy"] == "strict"
    assert first["entry_point"] == "ReluNew", "the class that the prompt asks for is the one that is judged"
    assert len(first["candidates"]) == 16 and first["task"] == "sha256:0"
    checkpoint.verify(tmp_path / "checkpoints/rl_final")


class Killed(BaseException):
    """The process ends here, as far as its files can tell."""


def signal_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, step: int) -> None:
    """SIGTERM comes when this function is called in this step, just before it does its work."""
    inner = getattr(owner, name)

    def signalled(loop: Loop, *arguments: Any, **more: Any) -> Any:
        if loop.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return inner(loop, *arguments, **more)

    monkeypatch.setattr(owner, name, signalled)


def killed_at_rename(step: str) -> None:
    if step == "rename":
        raise Killed


def test_reinforce_is_exactly_resumed(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while it samples, while it waits for verdicts and after a step, and killed in a save.

    The same answers are sampled, the same rewards seen, and the weights at the end are the same to the bit.
    """
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    options: Json = {"epochs": 3, "lora_dropout": 0.1}
    asked: list[list[Json]] = []
    for workdir in (whole, broken):
        daemon = Daemon(share_of_a)
        with served(daemon.handler) as url:
            if workdir == broken:
                for owner, name, step in ((reinforce, "sample", 1), (Loop, "take_step", 2)):
                    signal_at(monkeypatch, owner, name, step)
                    assert reinforce.train(settings(model, **options), broken, request(url, 4)) == RESUME
                    monkeypatch.undo()
                daemon.signals_at = len(daemon.groups)
                assert reinforce.train(settings(model, **options), broken, request(url, 4)) == RESUME
                steps = [row["step"] for row in figures(broken, "reinforce")]
                assert steps == [1, 2, 3], "the step that was under way is not counted"
                monkeypatch.setattr(Loop, "progress", staticmethod(killed_at_rename))
                with pytest.raises(Killed):
                    reinforce.train(settings(model, **options), broken, request(url, 4))
                monkeypatch.undo()
            assert reinforce.train(settings(model, **options), workdir, request(url, 4)) == 0
        asked.append(daemon.groups)
    kept = ("step", "loss", "rewards", "tokens", "gradient_norm", "learning_rate")
    rows = [[{name: row[name] for name in kept} for row in figures(at, "reinforce")] for at in (whole, broken)]
    assert rows[0] == rows[1] and len(rows[0]) == 6
    assert len({row["loss"] for row in rows[0]}) == 6, "every step learned something of its own"
    final = [at / "checkpoints/rl_final" / "adapter_model.safetensors" for at in (whole, broken)]
    assert checkpoint.digest_of(final[0]) == checkpoint.digest_of(final[1])
    texts = [[json.dumps(group, sort_keys=True) for group in groups] for groups in asked]
    assert len(texts[0]) == 12 and list(dict.fromkeys(texts[1])) == texts[0], "asked again at most, nothing else asked"
    assert len(texts[1]) > len(texts[0])


def test_a_constant_reward_is_counted_over_an_interruption(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(lambda text: {"reward": 0.0})
    options: Json = {"epochs": 6, "constant_steps": 3}
    with served(daemon.handler) as url:
        for step in (1, 2):
            signal_at(monkeypatch, reinforce, "sample", step)
            assert reinforce.train(settings(model, **options), tmp_path, request(url)) == RESUME
            monkeypatch.undo()
        with pytest.raises(TrainError, match="the reward was constant over every group of 3 steps"):
            reinforce.train(settings(model, **options), tmp_path, request(url))


def test_log_probabilities_are_of_the_ids_that_were_sampled(model: Path, tmp_path: Path) -> None:
    """The coefficients' loss is -A log p / N under the sampling distribution itself."""
    loop = Loop("reinforce", settings(model), tmp_path, {})
    prompt = loop.tokenizer("Write relu.")["input_ids"]
    ((ids, _),) = reinforce.sample(loop, [prompt], settings(model, temperature=0.7))
    with torch.no_grad():
        logits = loop.bare(input_ids=torch.tensor([prompt + ids])).logits
    labels = torch.tensor([[-100] * len(prompt) + ids])
    nll = losses.token_nll(logits, labels, 0.7)[0, len(prompt) :]
    expected = -torch.log_softmax(logits[0, len(prompt) - 1 : -1].float() / 0.7, -1)
    torch.testing.assert_close(nll, expected.gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1))


def test_answers_of_a_batch_are_those_of_their_prompts_alone(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding changes nothing but a rounding: without luck, prompts of all lengths get the answers they get alone."""
    loop = Loop("reinforce", settings(model), tmp_path, {})
    inner = loop.bare.generate
    monkeypatch.setattr(loop.bare, "generate", lambda **given: inner(**given | {"do_sample": False}))
    prompts = [loop.tokenizer(text)["input_ids"] for text in ("Write relu.", "x", TEXT, "scaled add\nWrite relu.")]
    assert len({len(prompt) for prompt in prompts}) == 4
    together = reinforce.sample(loop, prompts, settings(model))
    alone = [reinforce.sample(loop, [prompt], settings(model))[0] for prompt in prompts]
    assert together == alone and len({tuple(ids) for ids, _ in alone}) > 1


@pytest.mark.parametrize(("batch", "sizes"), [(64, [12]), (5, [5, 5, 2]), (1, [1] * 12)])
def test_a_step_is_sampled_in_batches_and_a_task_posted_when_it_is_complete(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, sizes: list[int]
) -> None:
    daemon = Daemon(share_of_a)
    seen: list[tuple[int, int]] = []
    inner = reinforce.sample

    def watched(loop: Loop, prompts: Sequence[list[int]], s: Settings) -> Any:
        seen.append((len(prompts), len(daemon.groups)))
        return inner(loop, prompts, s)

    monkeypatch.setattr(reinforce, "sample", watched)
    s = settings(model, tasks_per_step=3, sampling_batch=batch)
    with served(daemon.handler) as url:
        assert reinforce.train(s, tmp_path, request(url, 3)) == 0
    assert [n for n, _ in seen] == sizes
    assert [posted for _, posted in seen] == [sum(sizes[:i]) // 4 for i in range(len(sizes))]
    assert sorted(group["task"] for group in daemon.groups) == ["sha256:0", "sha256:1", "sha256:2"]
    assert figures(tmp_path, "reinforce")[0]["groups"] == 3


def test_memory_that_runs_out_in_the_sampling_names_its_knob(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**given: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    loop = Loop("reinforce", settings(model), tmp_path, {})
    monkeypatch.setattr(loop.bare, "generate", full)
    with pytest.raises(TrainError, match=r"samples 2 answers at once.*sampling_batch"):
        reinforce.sample(loop, [[1, 2], [3]], settings(model))


def test_another_methods_settings_do_not_make_another_run(model: Path, tmp_path: Path) -> None:
    """A checkpoint that knows no such setting, or has another, is gone on with; one of the method's own is not."""
    Loop("sft", settings(model, "sft", run="x", final="x_final"), tmp_path, {}).save_step()
    Loop("sft", settings(model, "sft", run="x", final="x_final", sampling_batch=3), tmp_path, {})
    manifest = tmp_path / "checkpoints" / "x" / "step-00000000" / "manifest.json"
    document = json.loads(manifest.read_text())
    document["identity"]["settings"]["sampling_batch"] = 7  # as it was written once
    manifest.write_text(json.dumps(document))
    Loop("sft", settings(model, "sft", run="x", final="x_final"), tmp_path, {})
    with pytest.raises(TrainError, match=r"another run.*length"):
        Loop("sft", settings(model, "sft", run="x", final="x_final", length=64), tmp_path, {})
    Loop("reinforce", settings(model, run="y", final="y_final"), tmp_path, {}).save_step()
    with pytest.raises(TrainError, match=r"another run.*sampling_batch: 64, now 3"):
        Loop("reinforce", settings(model, run="y", final="y_final", sampling_batch=3), tmp_path, {})


def test_a_policy_gradient_may_have_a_loss_of_either_sign(model: Path, tmp_path: Path) -> None:
    loop = Loop("reinforce", settings(model), tmp_path, {})
    loop.total = 2
    prompt = loop.tokenizer("Write relu.")["input_ids"]
    row = Example([*prompt, 5, 6], len(prompt))
    losses_seen = [loop.take_step([(row, [0.0] * len(prompt) + [sign] * 2)])["loss"] for sign in (1.0, -1.0)]
    assert losses_seen[0] > 0 > losses_seen[1], losses_seen


def answer(reward: float | None, code: int = 2, cut: bool = False, **parts: float) -> Answer:
    return Answer([1, 2, 3, 4], 2, code, cut, Verdict(reward, dict(parts), "ok"))


def test_coefficients_by_hand(model: Path) -> None:
    s = settings(model, truncated="mask")
    rows = reinforce.coefficients([[answer(1.0), answer(0.0), answer(None)]], s, None)
    assert [c for _, c in rows] == [[0, 0, 0.25, 0.25], [0, 0, -0.25, -0.25]]
    # What was cut off is no row, and still counts in the baseline.
    rows = reinforce.coefficients([[answer(1.0), answer(0.0, cut=True)]], s, None)
    assert [c for _, c in rows] == [[0, 0, 0.5, 0.5]]
    plain = reinforce.coefficients([[answer(1.0), answer(0.0)]], settings(model, baseline="none"), None)
    assert [c for _, c in plain] == [[0, 0, 0.25, 0.25]]


def test_the_training_log_has_the_gpus_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Issue 22, point 9: in each row of figures and each line of training.log; a CPU has none."""
    table = Metrics(tmp_path / "metrics.jsonl", True, 0)
    table.add({"step": 1})
    assert said_of_memory() == ""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 << 29)
    table.add({"step": 2})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows == [{"step": 1}, {"step": 2, "gpu_peak_gib": 1.5}]
    assert said_of_memory() == ", 1.5 GiB of the GPU at most"


def test_plain_reinforce_learns_from_one_answer_to_each_task(model: Path, tmp_path: Path) -> None:
    """Issue 22, point 6: no baseline, and a group of one is not taken for a constant reward."""
    rows = reinforce.coefficients([[answer(1.0)], [answer(0.5)]], settings(model, samples=1, baseline="none"), None)
    assert [c for _, c in rows] == [[0, 0, 0.25, 0.25], [0, 0, 0.125, 0.125]]
    rewards = itertools.cycle((0.2, 0.8))
    daemon = Daemon(lambda text: {"reward": next(rewards)})
    with served(daemon.handler) as url:
        plain = settings(model, samples=1, baseline="none", epochs=5, constant_steps=2)
        assert reinforce.train(plain, tmp_path, request(url, 4)) == 0
    assert len(daemon.groups) == 20 and all(len(group["candidates"]) == 1 for group in daemon.groups)
    for method in ("reinforce", "grpo"):
        with pytest.raises(TrainError, match="samples = 1 leaves nothing to compare"):
            settings(model, method, samples=1)


def test_plan_and_code_are_rewarded_apart(model: Path) -> None:
    group = [answer(0.0, code=3, plan=2.0, code_=1.0), answer(0.0, code=3, plan=0.0, code_=0.0)]
    for one in group:
        one.verdict.parts["code"] = one.verdict.parts.pop("code_")
    rows = reinforce.coefficients([group], settings(model), 0.1)
    assert rows[0][1] == pytest.approx([0, 0, 0.1 * 2.0 / 4, 1.0 / 4])
    assert rows[1][1] == pytest.approx([0, 0, -0.1 * 2.0 / 4, -1.0 / 4])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("plan\n```python\nx\n```\n", "x\n```\n"),
        ("```\na\n```\n```python\nb\n```\n```\nc\n```", "b\n```\n```\nc\n```"),
        ("<think>```python\nno\n```</think>go\n```\nyes", "yes"),
        ("x = 1", "x = 1"),
        ("```python\nclass ModelNew:\n    a\n```\n```python\nModelNew()\n", None),
        ("- so\n  ```python\n  class ModelNew(M):\n      a\n  ```\n  ```py\n  ModelNew == 1\n  ```\n", None),
    ],
)
def test_where_the_code_begins(model: Path, text: str, code: str | None) -> None:
    code = code or text[text.index("python\n") + len("python\n") :]
    assert text[code_begins(text, "ModelNew") :] == code
    tokenizer = tokenizer_of(str(model))
    ids = tokenizer(text)["input_ids"]
    at = code_token(tokenizer, ids, text, "ModelNew")
    assert tokenizer.decode(ids[at:]) in code or code in tokenizer.decode(ids[max(0, at - 1) :])


def test_a_reward_that_is_constant_ends_the_run(model: Path, tmp_path: Path) -> None:
    daemon = Daemon(lambda text: {"reward": 0.3})
    with (
        served(daemon.handler) as url,
        pytest.raises(TrainError, match=r"constant over every group of 2 steps \(0\.3") as caught,
    ):
        reinforce.train(settings(model, epochs=5, constant_steps=2), tmp_path, request(url))
    assert caught.value.status == FAILED and len(daemon.groups) == 4


def test_a_daemon_that_is_full_is_asked_again_and_one_that_refuses_is_told() -> None:
    daemon = Daemon(lambda text: {"reward": 1.0, "class": "ok"})
    task = Task("t", "sha256:0", "p", "strict", "ModelNew")
    with served(daemon.handler) as url:
        daemon.refusals = [(429, {}), (503, {})]
        assert Judge(url, "binary", "full", "r").judge([(task, ["a", ""])], 1) == [[Verdict(1.0, {}, "ok")] * 2]
        assert daemon.groups[0]["until"] == "full"
        assert daemon.groups[0]["metadata"] == {"run": "r", "step": 1, "policy_version": "step-00000000"}
        daemon.refusals = [(401, {"detail": "no token"})]
        with pytest.raises(TrainError, match=r"401.*no token") as caught:
            Judge(url, "binary", "", "r").judge([(task, ["a"])], 1)
        assert caught.value.status == SERVICE


def test_a_post_whose_answer_is_lost_is_judged_once() -> None:
    daemon = Daemon(lambda text: {"reward": 1.0, "class": "ok"})
    task = Task("t", "sha256:0", "p", "strict", "ModelNew")
    with served(daemon.handler) as url:
        daemon.lost = 2
        judging = Judge(url, "binary", "", "r")
        assert judging.judge([(task, ["a"])], 1) == [[Verdict(1.0, {}, "ok")]]
        assert len(daemon.groups) == 1
        daemon.refusals = [(409, {"code": "key_in_flight", "detail": "d" * 400})]
        judging.judge([(task, ["a"])], 1)
        assert len(daemon.groups) == 2  # a later step's is judged anew
        daemon.refusals = [(409, {"code": "ambiguous_name"})]
        with pytest.raises(TrainError, match="ambiguous_name"):
            judging.judge([(task, ["a"])], 1)


def test_a_daemon_that_is_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "AWAY_LIMIT_S", 0.0)
    with pytest.raises(TrainError, match=r"127.0.0.1:9 cannot be reached"):
        Judge("http://127.0.0.1:9", "binary", "", "r").judge([(Task("t", "i", "p", "strict", "ModelNew"), ["a"])], 1)


def test_a_prompt_that_leaves_no_room(model: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=r"the prompt of t0 has .* more than length = 16"):
        reinforce.train(settings(model, length=16), tmp_path, request("http://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("rollouts", "has_vllm", "has_gpu", "wanted"),
    [
        ("auto", False, True, {"use_vllm": False}),
        ("auto", True, False, {"use_vllm": False}),
        ("auto", True, True, {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.4}),
        ("generate", True, True, {"use_vllm": False}),
        ("vllm_server", True, False, {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": "http://m:1"}),
        ("vllm_server", False, True, None),
        ("vllm_colocate", False, True, None),
    ],
)
def test_grpo_samples_with_vllm_where_it_is_there(
    rollouts: str, has_vllm: bool, has_gpu: bool, wanted: Json | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 27, point 2: by TRL, on the training GPUs or on a server; what is asked for and is missing is said."""
    from finetune import grpo_trl
    from trl import GRPOConfig

    found: Any = lambda name: object() if name == "vllm" and has_vllm else None  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", found)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    s = settings(tmp_path, "grpo", rollouts=rollouts, vllm_url="http://m:1", vllm_memory=0.4)
    if wanted is None:
        with pytest.raises(TrainError, match=f"{rollouts} needs vLLM"):
            grpo_trl.rollouts_of(s)
        return
    given = grpo_trl.rollouts_of(s)
    assert given == given | wanted
    known = {field.name for field in dataclasses.fields(GRPOConfig)}
    assert set(given) <= known


@pytest.mark.parametrize("reward", ["hierarchical", '{"kind": "tritonrl", "params": {"alpha": 0.5}}'])
def test_grpo_through_trl(model: Path, tmp_path: Path, reward: str) -> None:
    daemon = Daemon(
        lambda text: share_of_a(text) | {"reward_parts": {"plan": len(text) / 8, "code": float("a" in text)}}
    )
    s = settings(model, "grpo", epochs=2, save_steps=1, reward=reward)
    with served(daemon.handler) as url:
        assert grpo.train(s, tmp_path, request(url)) == 0
        rows = figures(tmp_path, "grpo")
        assert [row["step"] for row in rows] == [1, 2] and all(row["reward_mean"] is not None for row in rows)
        manifest = checkpoint.verify(tmp_path / "checkpoints/rl_final")
        assert (manifest["method"], manifest["step"]) == ("grpo", 2)
        assert len(checkpoint.step_directories(layout.steps(tmp_path, "grpo"))) == 2
        asked = len(daemon.groups)
        told = [(group["metadata"]["run"], group["metadata"]["step"]) for group in daemon.groups]
        assert sorted(set(told)) == [("grpo", 1), ("grpo", 2)]
        assert grpo.train(s, tmp_path, request(url)) == 0
        with pytest.raises(TrainError, match="another run"):
            grpo.train(s, tmp_path, request(url) | {"prompt": "sha256:another"})
    assert len(daemon.groups) == asked


def signal_in(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, at: int) -> list[int]:
    """SIGTERM comes at this call of a function, just before it does its work; a number for each call."""
    inner = getattr(owner, name)
    calls: list[int] = []

    def signalled(*given: Any, **more: Any) -> Any:
        calls.append(len(calls) + 1)
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return inner(*given, **more)

    monkeypatch.setattr(owner, name, signalled)
    return calls


@pytest.mark.parametrize("where", ["sampling", "waiting", "passes", "after"])
def test_grpo_stops_at_once_and_goes_on(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A signal in the second of three steps: nothing of it is learned, and it is drawn again.

    The same answers are sampled, the same rewards seen, and the weights at the end are the same to the bit.
    """
    s = settings(model, "grpo", save_steps=50, batch=2, lora_dropout=0.1)
    asked, rows = [], []
    for workdir in (tmp_path / "whole", tmp_path / "broken"):
        daemon = Daemon(share_of_a)
        with served(daemon.handler) as url:
            if workdir.name == "broken":
                owner, name = {
                    "sampling": (StoppingCriteriaList, "__call__"),
                    "waiting": (Judge, "_wait"),
                    "passes": (Trainer, "training_step"),
                    "after": (torch.optim.AdamW, "step"),
                }[where]
                # Of 16 answer tokens, four waits, eight passes and two steps that are before the signal's and in it.
                at = {"sampling": 12, "waiting": 3, "passes": 6, "after": 2}[where]
                calls = signal_in(monkeypatch, owner, name, at)
                assert grpo.train(s, workdir, request(url, 6)) == RESUME
                monkeypatch.undo()
                step = 2 if where == "after" else 1
                newest = checkpoint.newest(layout.steps(workdir, "grpo"), pytest.fail)
                assert newest is not None and newest[1]["step"] == step
                assert [row["step"] for row in figures(workdir, "grpo")] == list(range(1, step + 1))
                assert len(calls) < {"sampling": 17, "waiting": 5, "passes": 8, "after": 3}[where], "it stopped at once"
            assert grpo.train(s, workdir, request(url, 6)) == 0
        kept = ("step", "loss", "rewards", "gradient_norm")
        rows.append([{name: row[name] for name in kept} for row in figures(workdir, "grpo")])
        asked.append([json.dumps(group, sort_keys=True) for group in daemon.groups])
    assert rows[0] == rows[1] and len(rows[0]) == 3
    assert list(dict.fromkeys(asked[1])) == asked[0], "asked again at most, nothing else asked"
    final = [tmp_path / at / "checkpoints/rl_final" / "adapter_model.safetensors" for at in ("whole", "broken")]
    assert checkpoint.digest_of(final[0]) == checkpoint.digest_of(final[1])


def test_advantages_of_grpo_by_hand() -> None:
    assert grpo.normalised([1.0, 0.0]) == pytest.approx([0.5 / (0.5**0.5 + 1e-4), -0.5 / (0.5**0.5 + 1e-4)])


class Letters:
    """A tokenizer of one token for each letter."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, ids))


def test_plan_and_code_are_advanced_apart() -> None:
    """The second group's two answers; what has no fence is code from its first token on."""
    plan, code, bare = "ab\n```python\n", "x\n```", "abc"
    asked = {"entry_point": "ModelNew"}
    parts: list[Json] = [asked, asked, asked | {"plan": 1.0, "code": 0.0}, asked | {"plan": 0.0, "code": 1.0}]
    rows = grpo.by_token([[ord(c) for c in text] for text in (plan + code, bare)], parts, 2, 2, Letters(), 0.5)
    up = 0.5 / (0.5**0.5 + 1e-4)
    assert rows[0] == pytest.approx([0.5 * up] * len(plan) + [-up] * len(code))
    assert rows[1] == pytest.approx([up] * len(bare))


def post(url: str, body: Json) -> tuple[int, Json]:
    data = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(data, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


def test_the_endpoint_answers_and_takes_adapters(model: Path, tmp_path: Path) -> None:
    loop = Loop("sft", settings(model, "sft", run="x", final="x_final"), tmp_path, {})
    loop.save_final()
    engine = serve.Engine(str(model), "base")
    chat = {
        "model": "base",
        "messages": [{"role": "user", "content": "Write relu."}],
        "n": 3,
        "max_tokens": 5,
        "seed": 1,
    }
    with served(serve.handler_of(engine)) as url:
        status, first = post(f"{url}/v1/chat/completions", chat)
        assert status == 200 and [c["index"] for c in first["choices"]] == [0, 1, 2]
        assert post(f"{url}/v1/chat/completions", chat)[1]["choices"] == first["choices"]
        assert post(f"{url}/v1/chat/completions", chat | {"seed": 2})[1]["choices"] != first["choices"]
        adapter = {"lora_name": "r1", "lora_path": str(tmp_path / "checkpoints/x_final")}
        assert post(f"{url}/v1/load_lora_adapter", adapter)[0] == 200
        assert post(f"{url}/v1/load_lora_adapter", adapter)[0] == 400
        # A new adapter does nothing yet, and the base answers as before.
        assert post(f"{url}/v1/chat/completions", chat | {"model": "r1"})[1]["choices"] == first["choices"]
        assert post(f"{url}/v1/chat/completions", chat)[1]["choices"] == first["choices"]
        assert (
            post(f"{url}/v1/completions", {"model": "r1", "prompt": "x", "max_tokens": 2, "temperature": 0})[0] == 200
        )
        assert post(f"{url}/v1/chat/completions", chat | {"model": "none"})[0] == 404
        assert post(f"{url}/v1/chat/completions", {"model": "base"})[0] == 400
        assert post(f"{url}/v1/load_lora_adapter", {"lora_name": "y", "lora_path": str(tmp_path)})[0] == 400
        assert post(f"{url}/v1/unload_lora_adapter", {"lora_name": "r1"})[0] == 200


def test_the_check_counts_on_meta_tensors(model: Path) -> None:
    s = settings(model, "sft", lora_r=4)
    found = check.estimate(s, check.configuration(s, None), "sft")
    real = sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(model).parameters())
    assert found["parameters"] == real
    # q and o: 32x32; k and v: 32x16; gate and up: 32x64; down: 64x32. r (in + out) each.
    assert found["trained"] == 4 * (2 * 64 + 2 * 48 + 3 * 96)
    assert found["total_gib"] == pytest.approx(sum(found["gib"].values()))
    with pytest.raises(TrainError, match="more than the model's 8192 positions"):
        check.estimate(settings(model, "sft", length=9000), check.configuration(s, None), "sft")
    with pytest.raises(TrainError, match="no configuration of"):
        check.configuration(s, "/nowhere.json")


def test_the_check_counts_what_is_sampled_at_once(model: Path) -> None:
    """A GPU samples or learns. 2 x 1 layer x 2 heads of 8 numbers of 2 bytes, for each token of each answer."""
    step: Json = {"length": 8192, "batch": 1, "tasks_per_step": 64, "samples": 256}
    s = settings(model, sampling_batch=65536, **step)
    for method in ("reinforce", "grpo"):
        found = check.estimate(s, check.configuration(s, None), method)["gib"]
        assert found["keys and values"] == 8.0 and "logits" not in found
    s = settings(model, **step)
    found = check.estimate(s, check.configuration(s, None), "reinforce")["gib"]
    assert "logits" in found and "keys and values" not in found
