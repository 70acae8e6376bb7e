"""REINFORCE and GRPO on a tiny model, judged by a scripted daemon; the small endpoint; the check on meta tensors."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from answering import Call, Reply, answering, document, listening
from finetune import check, checkpoint, judge, layout, policy, serve, supervised, tiny
from finetune.errors import FAILED, RESUME, SERVICE, TrainError
from finetune.judge import Judge, Task, Verdict, code_begins, code_token
from finetune.model import tokenizer_of
from finetune.runs import Metrics, Run, said_of_memory
from finetune.settings import Settings, settings_of
from transformers import AutoModelForCausalLM, StoppingCriteriaList, Trainer
from trl import GRPOTrainer

torch.set_num_threads(1)  # a tiny model gains nothing from more, and waits for them where processors are shared

Json = dict[str, Any]
TEXT = "Write relu in Triton.\n```python\nimport triton\nx = 1\n```\nscaled add"
Score = Callable[[str], Json]


class Daemon:
    """What a training asks of verifierd, with a reward of the test's own."""

    def __init__(self, score: Score) -> None:
        self.groups: list[Json] = []
        self.refusals: list[tuple[int, Json]] = []
        self.lost = 0  # how many POSTs are taken and never answered
        self.by_key: dict[str, int] = {}
        self.signals_at = -1  # the group that is not done when it is asked for: a signal comes instead
        self.score = score

    def answer(self, call: Call) -> Reply | None:
        found = self._posted(call) if call.method == "POST" else self._state(call.path)
        return document(*found, {"Retry-After": "0.01"}) if found else None

    def _posted(self, call: Call) -> tuple[int, Json] | None:
        if self.refusals:
            return self.refusals.pop(0)
        number = len(self.groups)
        if key := call.headers.get("Idempotency-Key"):
            number = self.by_key.setdefault(key, number)
        if number == len(self.groups):
            self.groups.append(call.body)
        if self.lost > 0:
            self.lost -= 1
            return None
        return 202, {"id": str(number)}

    def _state(self, path: str) -> tuple[int, Json]:
        number = int(path.split("/")[-1].split("?")[0])
        if number == self.signals_at:
            os.kill(os.getpid(), signal.SIGTERM)
            return 200, {"state": "running", "items": []}
        items = [{"class": "ok"} | self.score(c["completion"]) for c in self.groups[number]["candidates"]]
        return 200, {"state": "done", "items": items}


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


def train(s: Settings, workdir: Path, asked: Json, method: str = "reinforce") -> int:
    return policy.train(method, s, workdir, asked)


def figures(workdir: Path, run: str) -> list[Json]:
    return [json.loads(line) for line in (layout.outputs(workdir, run) / "metrics.jsonl").read_text().splitlines()]


def share_of_a(text: str) -> Json:
    """A reward that can be learned in a few steps: how much of the answer is below 'n'."""
    return {"reward": sum("a" <= c < "n" for c in text) / max(1, len(text))}


def test_reinforce_raises_the_reward_and_goes_on(model: Path, tmp_path: Path) -> None:
    daemon = Daemon(share_of_a)
    with answering(daemon.answer) as url:
        options: Json = {"epochs": 12, "samples": 16, "learning_rate": 0.05}
        assert train(settings(model, max_steps=2, **options), tmp_path, request(url)) == 0
        assert train(settings(model, run="b", final="b_final", **options), tmp_path, request(url)) == 0
    means = [row["reward_mean"] for row in figures(tmp_path, "b")]
    assert len(means) == 12 and sum(means[-3:]) / 3 > sum(means[:3]) / 3 + 0.05, means
    first = daemon.groups[0]
    assert first["reward"] == {"kind": "hierarchical"} and first["policy"] == "strict"
    assert first["entry_point"] == "ReluNew", "the class that the prompt asks for is the one that is judged"
    assert len(first["candidates"]) == 16 and first["task"] == "sha256:0"
    checkpoint.verify(tmp_path / "checkpoints/rl_final")


class Killed(BaseException):
    """The process ends here, as far as its files can tell."""


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


def killed_at_rename(step: str) -> None:
    if step == "rename":
        raise Killed


WHERE: dict[str, tuple[Any, str, int, int]] = {  # owner and function, the call that a signal comes at, calls in all
    "sampling": (StoppingCriteriaList, "__call__", 12, 17),
    "waiting": (Judge, "_wait", 3, 5),
    "passes": (Trainer, "training_step", 6, 8),
    "after": (torch.optim.AdamW, "step", 2, 3),
}


@pytest.mark.parametrize("method", ["reinforce", "grpo"])
def test_a_run_stops_at_once_and_is_exactly_resumed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A signal in the second of three steps, over two epochs: nothing of it is learned, and it is drawn again.

    Stopped while it samples, while it waits for verdicts, between two passes and after them, and killed in a save: the
    same answers are sampled, the same rewards seen, and the weights at the end are the same to the bit.
    """
    s = settings(model, method, epochs=2, batch=2, lora_dropout=0.1)
    kept = ("step", "loss", "rewards", "tokens", "gradient_norm", "learning_rate")
    asked, rows, final = [], [], []
    for where in ("whole", *WHERE, "save"):
        workdir, daemon = tmp_path / where, Daemon(share_of_a)
        with answering(daemon.answer) as url:
            if where == "save":
                monkeypatch.setattr(Run, "progress", staticmethod(killed_at_rename))
                with pytest.raises(Killed):
                    train(dataclasses.replace(s, save_steps=1), workdir, request(url, 3), method)
                monkeypatch.undo()
            elif where in WHERE:
                owner, name, at, most = WHERE[where]
                calls = signal_in(monkeypatch, owner, name, at)
                assert train(s, workdir, request(url, 3), method) == RESUME
                monkeypatch.undo()
                step = 2 if where == "after" else 1
                newest = checkpoint.newest(layout.steps(workdir, method), pytest.fail)
                assert newest is not None and newest[1]["step"] == step
                assert [row["step"] for row in figures(workdir, method)] == list(range(1, step + 1))
                assert len(calls) < most, "it stopped at once"
            assert train(s, workdir, request(url, 3), method) == 0
        rows.append([{name: row[name] for name in kept} for row in figures(workdir, method)])
        groups = [json.dumps(group, sort_keys=True) for group in daemon.groups]
        asked.append(list(dict.fromkeys(groups)))
        final.append(checkpoint.digest_of(workdir / "checkpoints/rl_final" / "adapter_model.safetensors"))
    assert all(one == rows[0] for one in rows) and len({row["gradient_norm"] for row in rows[0]}) == 3
    assert all(one == asked[0] for one in asked) and len(asked[0]) == 6, "asked again at most, nothing else asked"
    assert len(set(final)) == 1


def test_a_daemon_that_stays_away_costs_the_step_under_way(model: Path, tmp_path: Path) -> None:
    def score(text: str) -> Json:
        if len(daemon.groups) == 2:
            daemon.refusals = [(401, {})]
        return share_of_a(text)

    daemon = Daemon(score)
    s = settings(model)
    with answering(daemon.answer) as url:
        with pytest.raises(TrainError, match="answered 401") as caught:
            train(s, tmp_path, request(url, 4))
        assert caught.value.status == SERVICE
        newest = checkpoint.newest(layout.steps(tmp_path, "reinforce"), pytest.fail)
        assert newest is not None and newest[1]["step"] == 1
        assert train(s, tmp_path, request(url, 4)) == 0
    assert [row["step"] for row in figures(tmp_path, "reinforce")] == [1, 2]


def test_a_constant_reward_is_counted_over_an_interruption(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(lambda text: {"reward": 0.0})
    options: Json = {"epochs": 6, "constant_steps": 3}
    with answering(daemon.answer) as url:
        for _ in range(2):  # in the first wait of the second step
            signal_in(monkeypatch, Judge, "_wait", 3)
            assert train(settings(model, **options), tmp_path, request(url)) == RESUME
            monkeypatch.undo()
        with pytest.raises(TrainError, match="the reward was constant over every group of 3 steps"):
            train(settings(model, **options), tmp_path, request(url))


def test_answers_of_a_batch_are_those_of_their_prompts_alone(model: Path, tmp_path: Path) -> None:
    """Padding changes nothing but a rounding: without luck, prompts of all lengths get the answers they get alone."""
    run = Run("reinforce", settings(model), tmp_path, {})
    url = "http://127.0.0.1:9"
    trainer = policy.trainer_of(run, Judge(url, "binary", "", "r"), judge.tasks_of(request(url)))
    trainer.generation_config.do_sample = False
    prompts = [run.tokenizer(text)["input_ids"] for text in ("Write relu.", "x", TEXT, "scaled add\nWrite.")]
    assert len({len(prompt) for prompt in prompts}) == 4
    together = trainer._generate_single_turn(prompts, None, {}, 4)[0]
    alone = [trainer._generate_single_turn([prompt], None, {}, 4)[0][0] for prompt in prompts]
    assert together == alone and len({tuple(ids) for ids in alone}) > 1


@pytest.mark.parametrize(("batch", "sizes"), [(64, [12]), (5, [5, 5, 2]), (1, [1] * 12)])
def test_a_step_is_sampled_in_batches_and_a_task_posted_when_it_is_complete(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, sizes: list[int]
) -> None:
    daemon = Daemon(share_of_a)
    seen: list[tuple[int, int]] = []
    inner = GRPOTrainer._generate_single_turn

    def watched(self: Any, prompts: Sequence[list[int]], *given: Any) -> Any:
        assert not self.model.training, "answers are sampled without dropout"
        seen.append((len(prompts), len(daemon.groups)))
        return inner(self, prompts, *given)

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", watched)
    s = settings(model, tasks_per_step=3, sampling_batch=batch)
    with answering(daemon.answer) as url:
        assert train(s, tmp_path, request(url, 3)) == 0
    assert [n for n, _ in seen] == sizes
    assert [posted for _, posted in seen] == [sum(sizes[:i]) // 4 for i in range(len(sizes))]
    assert sorted(group["task"] for group in daemon.groups) == ["sha256:0", "sha256:1", "sha256:2"]
    assert figures(tmp_path, "reinforce")[0]["groups"] == 3


def test_groups_are_not_divided_between_processes(model: Path, tmp_path: Path) -> None:
    run = Run("grpo", settings(model, "grpo", tasks_per_step=3), tmp_path, {})
    run.world = 2
    with pytest.raises(TrainError, match="tasks_per_step = 3: 2 processes need a multiple of 2"):
        policy.arguments(run, 6)
    assert policy.arguments(run, 2).gradient_accumulation_steps == 1


def test_memory_that_runs_out_in_the_sampling_names_its_knob(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", full)
    with pytest.raises(TrainError, match=r"samples 2 answers at once.*sampling_batch"):
        train(settings(model, sampling_batch=2), tmp_path, request("http://127.0.0.1:9"))


def test_another_methods_settings_do_not_make_another_run(model: Path, tmp_path: Path) -> None:
    """A checkpoint that knows no such setting, or has another, is gone on with; one of the method's own is not."""

    def run(method: str, name: str, **more: object) -> Run:
        return Run(method, settings(model, method, run=name, final=f"{name}_final", **more), tmp_path, {})

    def save(run: Run) -> None:
        run._save(run.root, layout.step_name(0), lambda d: (d / "weights").touch(), 0, 1)

    save(run("sft", "x"))
    run("sft", "x", sampling_batch=3)
    manifest = tmp_path / "checkpoints" / "x" / "step-00000000" / "manifest.json"
    document = json.loads(manifest.read_text())
    document["identity"]["settings"]["sampling_batch"] = 7  # as it was written once
    manifest.write_text(json.dumps(document))
    run("sft", "x")
    with pytest.raises(TrainError, match=r"another run.*length"):
        run("sft", "x", length=64)
    del document["identity"]["loop"]
    manifest.write_text(json.dumps(document))
    with pytest.raises(TrainError, match=r"another run.*loop: None, now 'trl'"):
        run("sft", "x")
    save(run("reinforce", "y"))
    with pytest.raises(TrainError, match=r"another run.*sampling_batch: 64, now 3"):
        run("reinforce", "y", sampling_batch=3)


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
    rewards = itertools.cycle((0.2, 0.8))
    daemon = Daemon(lambda text: {"reward": next(rewards)})
    with answering(daemon.answer) as url:
        plain = settings(model, samples=1, baseline="none", epochs=5, constant_steps=2)
        assert train(plain, tmp_path, request(url, 4)) == 0
    assert len(daemon.groups) == 20 and all(len(group["candidates"]) == 1 for group in daemon.groups)
    for method in ("reinforce", "grpo"):
        with pytest.raises(TrainError, match="samples = 1 leaves nothing to compare"):
            settings(model, method, samples=1)


def test_plan_and_code_are_rewarded_apart(model: Path) -> None:
    """The second group's two answers; the plan is before the code, which the second has from its first token on."""
    parts: list[Json] = [{}, {}, {"plan": 2.0, "code": 1.0}, {"plan": 0.0, "code": 0.0}]
    verdicts = [Verdict(0.0, one, "ok") for one in parts]
    ids = [[1, 2, 3], [1, 2, 3]]
    s = settings(model, samples=2)
    rows = policy.by_token(ids, verdicts, [2, 0], 2, s, "leave_one_out", 0.1)
    assert rows == [pytest.approx([0.2, 0.2, 1.0]), pytest.approx([-1.0, -1.0, -1.0])]
    up = 0.5 / (0.5**0.5 + 1e-4)
    rows = policy.by_token(ids, verdicts, [2, 0], 2, s, "group", 0.5)
    assert rows == [pytest.approx([0.5 * up, 0.5 * up, up], rel=1e-3), pytest.approx([-up] * 3)]
    assert policy.by_token(ids, verdicts, [2, 0], 0, s, "leave_one_out", 0.1) == [None, None], "no verdict, no row"


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
        answering(daemon.answer) as url,
        pytest.raises(TrainError, match=r"constant over every group of 2 steps \(0\.3") as caught,
    ):
        train(settings(model, epochs=5, constant_steps=2), tmp_path, request(url))
    assert caught.value.status == FAILED and len(daemon.groups) == 4


def test_a_daemon_that_is_full_is_asked_again_and_one_that_refuses_is_told() -> None:
    daemon = Daemon(lambda text: {"reward": 1.0, "class": "ok"})
    task = Task("t", "sha256:0", "p", "strict", "ModelNew")
    with answering(daemon.answer) as url:
        daemon.refusals = [(429, {}), (503, {})]
        assert Judge(url, "binary", "full", "r").judge([(task, ["a", ""])], 1) == [[Verdict(1.0, {}, "ok")] * 2]
        assert daemon.groups[0]["until"] == "full"
        assert daemon.groups[0]["metadata"] == {"run": "r", "step": 1, "policy_version": "step-00000000"}
        daemon.refusals = [(401, {"detail": "no token"})]
        with pytest.raises(TrainError, match=r"401.*no token") as caught:
            Judge(url, "binary", "", "r").judge([(task, ["a"])], 1)
        assert caught.value.status == SERVICE


@pytest.mark.parametrize(
    ("reward", "alpha"),
    [
        ("tritonrl", 0.1),
        ('{"kind": "tritonrl", "params": {"alpha": 0.5}}', 0.5),
        ('{"hack_value": -0.5}', None),  # of the default kind, as trainer(1) and the daemon take it
    ],
)
def test_the_plan_has_a_weight_of_its_own_under_tritonrl(reward: str, alpha: float | None) -> None:
    assert Judge("http://127.0.0.1:9", reward, "", "r").alpha == alpha


def test_a_post_whose_answer_is_lost_is_judged_once() -> None:
    daemon = Daemon(lambda text: {"reward": 1.0, "class": "ok"})
    task = Task("t", "sha256:0", "p", "strict", "ModelNew")
    with answering(daemon.answer) as url:
        daemon.lost = 2
        judging = Judge(url, "binary", "", "r")
        assert judging.judge([(task, ["a"])], 1) == [[Verdict(1.0, {}, "ok")]]
        assert len(daemon.groups) == 1
        daemon.refusals = [(409, {"code": "key_in_flight", "detail": "d" * 400, "retryable": True})]
        judging.judge([(task, ["a"])], 1)
        assert len(daemon.groups) == 2  # a later step's is judged anew
        daemon.refusals = [(409, {"code": "ambiguous_name"})]
        with pytest.raises(TrainError, match="ambiguous_name"):
            judging.judge([(task, ["a"])], 1)


def test_a_daemon_that_is_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "AWAY_LIMIT_S", 0.1)
    with pytest.raises(TrainError, match=r"127.0.0.1:9 cannot be reached"):
        Judge("http://127.0.0.1:9", "binary", "", "r").judge([(Task("t", "i", "p", "strict", "ModelNew"), ["a"])], 1)


def test_a_prompt_that_leaves_no_room(model: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=r"the prompt of t0 has .* more than length = 16"):
        train(settings(model, length=16), tmp_path, request("http://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("rollouts", "has_vllm", "wanted"),
    [
        ("auto", True, {"use_vllm": False}),
        ("generate", True, {"use_vllm": False}),
        ("vllm_colocate", True, {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.4}),
        ("vllm_server", True, {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": "http://m:1"}),
        ("vllm_server", False, None),
        ("vllm_colocate", False, None),
    ],
)
def test_grpo_samples_with_vllm_where_it_is_asked_for(
    rollouts: str, has_vllm: bool, wanted: Json | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 27, point 2: by TRL, on the training GPUs or on a server; what is asked for and is missing is said."""
    from trl import GRPOConfig

    found: Any = lambda name: object() if name == "vllm" and has_vllm else None  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", found)
    s = settings(tmp_path, "grpo", rollouts=rollouts, vllm_url="http://m:1", vllm_memory=0.4)
    if wanted is None:
        with pytest.raises(TrainError, match=f"{rollouts} needs vLLM"):
            policy.rollouts_of(s)
        return
    if rollouts.startswith("vllm"):
        with pytest.raises(TrainError, match="a base in 8 bits cannot be handed to vLLM"):
            settings(tmp_path, "grpo", rollouts=rollouts, base_bits=8)
    given = policy.rollouts_of(s)
    assert given == given | wanted
    known = {field.name for field in dataclasses.fields(GRPOConfig)}
    assert set(given) <= known


@pytest.mark.parametrize("reward", ["hierarchical", '{"kind": "tritonrl", "params": {"alpha": 0.5}}'])
def test_grpo_through_trl(model: Path, tmp_path: Path, reward: str) -> None:
    daemon = Daemon(
        lambda text: share_of_a(text) | {"reward_parts": {"plan": len(text) / 8, "code": float("a" in text)}}
    )
    s = settings(model, "grpo", epochs=2, reward=reward)  # an epoch is a step, and leaves a checkpoint
    with answering(daemon.answer) as url:
        assert train(s, tmp_path, request(url), "grpo") == 0
        rows = figures(tmp_path, "grpo")
        assert [row["step"] for row in rows] == [1, 2] and all(row["reward_mean"] is not None for row in rows)
        manifest = checkpoint.verify(tmp_path / "checkpoints/rl_final")
        assert (manifest["method"], manifest["step"]) == ("grpo", 2)
        assert len(checkpoint.step_directories(layout.steps(tmp_path, "grpo"))) == 2
        asked = len(daemon.groups)
        told = [(group["metadata"]["run"], group["metadata"]["step"]) for group in daemon.groups]
        assert sorted(set(told)) == [("grpo", 1), ("grpo", 2)]
        assert train(s, tmp_path, request(url), "grpo") == 0
        with pytest.raises(TrainError, match="another run"):
            train(s, tmp_path, request(url) | {"prompt": "sha256:another"}, "grpo")
    assert len(daemon.groups) == asked


def post(url: str, body: Json) -> tuple[int, Json]:
    data = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(data, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


def test_the_endpoint_answers_and_takes_adapters(model: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"instruction": "Write relu.", "output": "x"}) + "\n")
    s = settings(model, "sft", run="x", final="x_final", data="rows.jsonl", learning_rate=0.0)
    assert supervised.train("sft", s, tmp_path, {}) == 0
    engine = serve.Engine(str(model), "base")
    chat = {
        "model": "base",
        "messages": [{"role": "user", "content": "Write relu."}],
        "n": 3,
        "max_tokens": 5,
        "seed": 1,
    }
    with listening(serve.handler_of(engine)) as url:
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
    found = check.estimate(s, check.configuration(s, None), "sft", 0)
    real = sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(model).parameters())
    assert found["parameters"] == real
    # q and o: 32x32; k and v: 32x16; gate and up: 32x64; down: 64x32. r (in + out) each.
    assert found["trained"] == 4 * (2 * 64 + 2 * 48 + 3 * 96)
    assert found["total_gib"] == pytest.approx(sum(found["gib"].values()))
    with pytest.raises(TrainError, match="more than the model's 8192 positions"):
        check.estimate(settings(model, "sft", length=9000), check.configuration(s, None), "sft", 0)
    with pytest.raises(TrainError, match="no configuration of"):
        check.configuration(s, "/nowhere.json")


def test_the_check_counts_what_is_sampled_at_once(model: Path) -> None:
    """A GPU samples or learns. 2 x 1 layer x 2 heads of 8 numbers of 2 bytes, for each token of each answer."""
    step: Json = {"length": 8192, "batch": 1, "tasks_per_step": 64, "samples": 256}
    s = settings(model, sampling_batch=65536, **step)
    for method in ("reinforce", "grpo"):
        found = check.estimate(s, check.configuration(s, None), method, 80.0)["gib"]
        assert found["keys and values"] == 8.0 and "logits" not in found
    s = settings(model, sampling_batch=1, **step)
    found = check.estimate(s, check.configuration(s, None), "reinforce", 80.0)["gib"]
    assert "logits" in found and "keys and values" not in found and "vLLM" not in found
    s = settings(model, sampling_batch=65536, rollouts="vllm_colocate", vllm_memory=0.25, **step)
    found = check.estimate(s, check.configuration(s, None), "reinforce", 80.0)["gib"]
    assert found["vLLM"] == 20.0 and "keys and values" not in found, "vLLM has its own, in its share of the card"
