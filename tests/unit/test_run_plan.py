"""trainer run: the steps that a configuration amounts to, what is finished of them, what they take, and what serves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from finetune import checkpoint
from pipeline import conf, estimate
from pipeline.along import pause_s
from pipeline.common import PipelineError
from pipeline.plan import Plan, Services, Step
from pipeline.serving import Serving, adapter_name
from pipeline.state import State

ALL = """evaluate { source = kernelbench }
prepare { source = kernelbook }
rl { rounds = 2
 curriculum = linear
 held_out = h.jsonl }
"""


def plan(directory: Path, text: str, stage: str = "all", max_samples: int | None = None) -> dict[str, Step]:
    """The steps of a configuration's text, by name."""
    path = directory / "run.conf"
    path.write_text(text)
    services = Services("http://judge", "http://model/v1", "python3")
    return {step.name: step for step in Plan(conf.read(path), services, max_samples).steps(stage)}


@pytest.mark.parametrize(
    ("stage", "names"),
    [
        ("prepare", "selftest evaluation_tasks prepare extraction"),
        ("sft", "sft"),
        ("rl", "held_out_1 round1 rl_round1 held_out_2 round2 rl_round2 publish"),
        ("evaluate", "evaluate_base evaluate_sft evaluate_rl compare report"),
    ],
)
def test_each_stage_has_its_steps(tmp_path: Path, stage: str, names: str) -> None:
    assert " ".join(plan(tmp_path, ALL, stage)) == names
    assert names in " ".join(plan(tmp_path, ALL))


@pytest.mark.parametrize(
    ("text", "names", "step", "has"),
    [
        ("rl { rounds = 1 }", "round1 rl_round1 publish", "rl_round1", "--preset=bestofn"),
        ("rl { rounds = 1\n method = weighted }", "round1 rl_round1 publish", "rl_round1",
         "--data=outputs/bestofn_round1/candidates.jsonl"),
        ("rl { rounds = 1 }", "round1 rl_round1 publish", "rl_round1", "--data=outputs/bestofn_round1/kept.jsonl"),
        ("rl { method = reinforce }", "reinforce", "reinforce", "--baseline=leave_one_out"),
        ("rl { method = reinforce }", "reinforce", "reinforce", "--final=rl_final"),
        ("rl { method = grpo }", "grpo", "grpo", "--url=http://judge"),
    ],
)  # fmt: skip
def test_each_method_has_its_steps(tmp_path: Path, text: str, names: str, step: str, has: str) -> None:
    found = plan(tmp_path, text, "rl")
    assert " ".join(found) == names
    assert has in found[step].argv and "--adapter={adapter}" in found[step].argv and found[step].is_training


def test_settings_of_another_method_are_not_handed_on(tmp_path: Path) -> None:
    """Its command would refuse them."""
    found = plan(tmp_path, "sft { epochs = 3\n checkpointing = false\n samples = 5\n learning_rate = 1e-5 }")
    wanted = {"sft", "--epochs=3", "--checkpointing=false", "--lora-r=16", "--model=Qwen/Qwen2.5-Coder-7B-Instruct",
              "--learning-rate=1e-05"}  # fmt: skip
    assert wanted <= set(found["sft"].argv)
    assert not [word for word in found["sft"].argv if word.startswith(("--samples", "--gpus"))]
    assert "--epochs=2" in found["rl_round1"].argv
    found = plan(tmp_path, "gpus = 8\nseed = 7\n")
    assert {"--gpus=8", "--seed=7"} <= set(found["sft"].argv) and "--gpus=8" in found["rl_round3"].argv
    assert "--seed=7" in found["round1"].argv and "--seed=9" in found["round3"].argv  # other tasks each round


@pytest.mark.parametrize("method", ["bestofn", "weighted", "reinforce", "grpo"])
def test_everything_read_is_left_by_an_earlier_step_or_is_the_users(tmp_path: Path, method: str) -> None:
    found = plan(tmp_path, f"{ALL} rl {{ method = {method} }}\n")
    state = State(Path("/data/run"), [*found.values()], 2, ("m", "m"))
    made: set[str] = set()
    read = 0
    for step in found.values():
        for path in step.inputs:
            assert state.is_made(path) != (path == "h.jsonl") and (path in made or path == "h.jsonl"), (step.name, path)
            read += 1
        made |= set(step.outputs)
    assert read > 10
    assert state.is_made("/data/run/checkpoints/rl_final") and not state.is_made("checkpoints/rl_round3")


def test_what_the_endpoint_has_to_serve(tmp_path: Path) -> None:
    found = plan(tmp_path, ALL)
    wanted = {"round1": "{adapter}", "held_out_2": "{adapter}", "evaluate_base": "", "evaluate_sft": "sft_final",
              "evaluate_rl": "rl_final", "sft": None, "prepare": None}  # fmt: skip
    for name, served in wanted.items():
        assert found[name].serve == served and ("--model={served}" in found[name].argv) == (served is not None)
    assert not found["round1"].is_training


@pytest.mark.parametrize(
    ("text", "has", "has_not"),
    [
        ("", "--verify", "--static"),
        ("prepare { static = true }", "--static", "--verify"),
        ("prepare { verify = false }", "--max-samples=1000", "--verify"),
        ("prepare { source = kernelbook\n max_samples = 5 }", "--max-samples=5", "--overlap"),
        ("evaluate { source = kernelbench }", "--overlap=evaluation/data/processed/tasks.jsonl", "--source"),
        ("evaluate { source = kernelbench }\nprepare { overlap = own.jsonl }", "--overlap=own.jsonl", "--overlap=eval"),
    ],
)
def test_what_is_prepared(tmp_path: Path, text: str, has: str, has_not: str) -> None:
    argv = plan(tmp_path, text)["prepare"].argv
    assert has in argv and not [word for word in argv if word.startswith(has_not)]


def test_without_an_evaluation_the_report_is_made_all_the_same(tmp_path: Path) -> None:
    found = plan(tmp_path, "verifier { selftest = false }\nrl { rounds = 1 }")
    assert " ".join(found) == "prepare extraction sft round1 rl_round1 publish report"
    assert "--max-samples=12" not in found["sft"].argv
    assert "--max-samples=12" in plan(tmp_path, "", "sft", 12)["sft"].argv


def test_fused_tasks_and_a_teacher(tmp_path: Path) -> None:
    """Issue 22, point 6: reinforcement draws from the new tasks, and a teacher's answers reach the fine-tuning."""
    found = plan(tmp_path, "verifier { selftest = false }\nrl { rounds = 1\n fused = 50 }\n")
    assert {"--number=50", "--mined", "--with=data/processed/tasks.jsonl"} <= set(found["fuse"].argv)
    assert {"--tasks=data/processed/rl_tasks.jsonl", "--level=2"} <= set(found["round1"].argv)
    assert "--data=data/processed/sft_train.jsonl" in found["sft"].argv
    found = plan(tmp_path, "verifier { selftest = false }\nrl { rounds = 1\n fused = 50\n method = reinforce }\n"
                 'teacher { url = "http://teacher/v1"\n model = large }\n')  # fmt: skip
    assert " ".join(found) == "prepare extraction fuse teach join sft reinforce report"
    assert {"--as=sft", "--endpoint=http://teacher/v1", "--model=large"} <= set(found["teach"].argv)
    assert "--endpoint=http://model/v1" not in found["teach"].argv
    assert found["join"].inputs == ["data/processed/sft_train.jsonl", "outputs/bestofn_teacher/sft_train.jsonl"]
    assert "--data=data/processed/sft_taught.jsonl" in found["sft"].argv
    assert "--tasks=data/processed/rl_tasks.jsonl" in found["reinforce"].argv


SPEEDS = """estimate { train_tokens_per_s = 1000
 sample_tokens_per_s = 100
 verdicts_per_s = 2
 row_tokens = 500 }
"""
ANSWERS = "endpoint { max_tokens = 400 }\n"  # 200 on average: 2 s, and half a second of judging


@pytest.mark.parametrize(
    ("text", "step", "seconds"),
    [
        ("prepare { max_samples = 360 }", "prepare", 180),
        ("prepare { max_samples = 360\n verify = false }", "prepare", 0),
        ("prepare { max_samples = 360\n static = true }", "prepare", 0),
        ("prepare { max_samples = 0 }", "prepare", 9000),  # KernelBook's 18,000
        ("prepare { max_samples = 360 }\nsft { epochs = 3 }", "sft", 540),
        (ANSWERS + "rl { max_tasks = 6\n samples = 10 }", "round1", 150),
        ("rl { max_tasks = 6\n samples = 10\n keep = 3 }\ntrain { epochs = 4 }", "rl_round1", 36),
        ("rl { max_tasks = 6\n samples = 10\n method = weighted }\ntrain { epochs = 4 }", "rl_round1", 120),
        # 60 answers: 2 s sampled, half judged, half learned
        ("rl { max_tasks = 6\n method = reinforce }\ntrain { epochs = 2\n samples = 5\n answer_tokens = 400 }",
         "reinforce", 180),
        (ANSWERS + "evaluate { tasks = t.jsonl\n max_tasks = 8\n samples = 2 }", "evaluate_base", 40),
        (ANSWERS + "evaluate { tasks = t.jsonl\n max_tasks = 0 }", "evaluate_rl", 675),  # KernelBench's 270
        (ANSWERS + "rl { held_out = h.jsonl\n curriculum = fixed\n held_out_tasks = 4 }\nevaluate { max_tasks = 9 }",
         "held_out_2", 10),
        ("", "publish", 0),
        ("", "report", 0),
    ],
)  # fmt: skip
def test_hours_of_one_gpu_by_hand(tmp_path: Path, text: str, step: str, seconds: float) -> None:
    found = plan(tmp_path, SPEEDS + text)
    assert 3600 * estimate.hours(conf.read(tmp_path / "run.conf"), found[step]) == pytest.approx(seconds)


# --- what is finished ---


class Rig:
    """A working directory and its state; steps of one argument, one input ("" for none) and one output."""

    def __init__(self, workdir: Path) -> None:
        self.workdir, self.steps = workdir, list[Step]()
        self.again()

    def again(self, model: str = "tiny") -> State:
        """As another process of the same run would find it."""
        self.state = State(self.workdir, self.steps, 3, (model, "base"))
        self.state.open({"gpus": 3}, Path("/some/run.conf"))
        return self.state

    def step(self, name: str, argument: str, input_: str = "", output: str = "made") -> Step:
        self.steps.append(Step(name, "sft", ["sft", argument], [input_] * bool(input_), [output]))
        return self.steps[-1]

    def put(self, name: str, text: str) -> None:
        (self.workdir / name).write_text(text)

    def put_adapter(self, name: str, text: str) -> None:
        def write(directory: Path) -> None:
            (directory / "adapter_model.safetensors").write_text(text)

        checkpoint.save(self.workdir / "checkpoints", name, write, {})


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_step_is_finished_once_it_is_done_and_what_it_left_is_there(rig: Rig) -> None:
    one = rig.step("a", "--epochs=1")
    assert not rig.state.is_finished(one)
    rig.put("made", "x")
    assert not rig.state.is_finished(one)  # by whom?
    for state in ("running", "interrupted", "failed"):
        rig.state.set(one, state, 1)
        assert not rig.again().is_finished(one)
    rig.state.set(one, "done", 1)
    assert rig.again().is_finished(one)
    (rig.workdir / "made").unlink()
    assert not rig.state.is_finished(one)
    rig.state.set(one, "skipped")  # it had nothing to leave
    assert rig.state.is_finished(one)


def test_other_arguments_are_other_work_and_where_services_are_is_not(rig: Rig) -> None:
    rig.put("made", "x")
    rig.state.set(rig.step("a", "--epochs=1"), "done", 1)
    assert not rig.state.is_finished(rig.step("a", "--epochs=2"))
    assert rig.state.is_other_work(rig.steps[-1]) and not rig.state.is_other_work(rig.step("b", "--epochs=1"))
    assert not rig.state.is_finished(rig.steps[-1]) and rig.state.is_finished(rig.step("a", "--epochs=1"))
    for flag in ("--url", "--endpoint", "--concurrency", "--python"):
        rig.state.set(rig.step("a", f"{flag}=one"), "done", 1)
        assert rig.state.is_finished(rig.step("a", f"{flag}=other"))


def test_what_a_step_has_read_is_other_now_by_content(rig: Rig) -> None:
    """What is gone, or stood in an older release's record, says nothing."""
    one = rig.step("a", "--x", "rows")
    rig.put("rows", "1")
    rig.put("made", "x")
    rig.state.set(one, "running")
    rig.put("rows", "2")  # meanwhile: what was read first counts
    rig.state.set(one, "done", 1)
    assert not rig.again().is_finished(one)
    rig.put("rows", "1")
    assert rig.state.is_finished(one)
    (rig.workdir / "rows").unlink()
    assert rig.state.is_finished(one)
    rig.put("rows", "2")
    del rig.state.document["steps"]["a"]["from"]
    assert rig.state.is_finished(one)
    rig.state.set(one, "skipped")
    rig.put("rows", "3")
    assert not rig.state.is_finished(one)  # there may be something to learn now


def test_the_adapter_that_a_step_begins_at_is_an_input(rig: Rig) -> None:
    """It is of a round of this plan that learned something."""
    for name, text in (("sft_final", "0"), ("rl_round1", "1"), ("rl_round2", "2"), ("rl_round3", "3")):
        rig.put_adapter(name, text)
    rig.put("made", "x")
    assert rig.state.adapter(0) == "checkpoints/sft_final"  # the rounds are of another plan
    rig.step("rl_round1", "--x", output="checkpoints/rl_round1")
    second = rig.step("rl_round2", "--x", output="checkpoints/rl_round2")
    publish = rig.step("publish", "--from={adapter}")
    assert (rig.state.adapter(0), rig.state.adapter(2)) == ("checkpoints/rl_round2", "checkpoints/rl_round1")
    rig.state.set(publish, "done", 1)
    assert rig.state.is_finished(publish)
    rig.state.set(second, "skipped")  # what lies there is left over
    assert rig.state.adapter(0) == "checkpoints/rl_round1" and not rig.state.is_finished(publish)


def test_evaluations_of_another_base_model_are_other_ones(rig: Rig) -> None:
    rig.put("made", "x")
    one = rig.step("evaluate_base", "--model={served}")
    one.serve = ""
    rig.state.set(one, "done", 1)
    assert rig.again().is_finished(one) and not rig.again("other").is_finished(one)


def test_time_is_added_up_over_the_attempts_at_the_same_work(rig: Rig) -> None:
    one = rig.step("a", "--epochs=1")
    rig.state.set(one, "interrupted", 30)
    rig.again().set(one, "running")
    rig.state.set(one, "done", 12)
    document = rig.again().document
    assert document["steps"]["a"]["seconds"] == 42
    rig.state.set(rig.step("a", "--epochs=2"), "done", 5)
    assert document["steps"]["a"] | {"seconds": 5, "stage": "sft", "trains": False} == document["steps"]["a"]
    assert (document["configuration"], document["pid"]) == ({"gpus": 3}, os.getpid())


@pytest.mark.parametrize("text", ["", '{"steps":', '"steps"', "{}", '{"steps":[]}'])
def test_a_state_that_cannot_be_read_is_not_taken_for_none(rig: Rig, text: str) -> None:
    rig.put("run.json", text)
    with pytest.raises(PipelineError, match=r"run\.json cannot be read: remove it to begin again"):
        rig.again()


def test_a_checkpoint_has_to_be_what_its_manifest_says(rig: Rig) -> None:
    assert "file is not there" in rig.state.fault("file")
    rig.put("file", "")
    assert rig.state.fault("file") == "" == rig.state.fault(str(rig.workdir / "file"))
    path = rig.workdir / "checkpoints/sft_final"
    path.mkdir(parents=True)
    assert "manifest.json" in rig.state.fault("checkpoints/sft_final")
    path.rmdir()
    rig.put_adapter("sft_final", "hello")
    assert rig.state.fault("checkpoints/sft_final") == ""
    (path / "adapter_model.safetensors").write_text("hellO")
    assert "is not what was written" in rig.state.fault("checkpoints/sft_final")
    assert rig.state.fault("checkpoints/sft_final/manifest.json") == ""


# --- what serves ---


def serving(command: str = "") -> Serving:
    return Serving("http://127.0.0.1:9/v1", command, "Qwen/Qwen2.5", "base", Path("/nowhere"), 1)


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("vllm serve {model} --port 8000", "vllm serve Qwen/Qwen2.5 --port 8000"),
        ("a --model={model} --name={model}", "a --model=Qwen/Qwen2.5 --name=Qwen/Qwen2.5"),
        ("a {mode} {model", "a {mode} {model"),
        ("$PYTHON -m x", "$PYTHON -m x"),  # the shell's to expand
    ],
)
def test_the_model_is_put_into_the_command(command: str, out: str) -> None:
    assert serving(command).command == out


def test_other_weights_have_another_name_wherever_they_are() -> None:
    one = adapter_name(Path("/w/checkpoints/rl_round1"), "sha256:5891b5b522d5df086d0ff0b110fbd9d2")
    assert one == "rl_round1-5891b5b522d5" == adapter_name(Path("rl_round1"), "sha256:5891b5b522d5df086d0ff")
    assert one != adapter_name(Path("rl_round1"), "sha256:e3b0c44298fc1c149afbf4c8996fb924")


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ((200, b'{"data":[{"id":"base"},{"id":"a-1"}]}'), ["base", "a-1"]),
        ((200, b'{"data":[{"name":"a-1"},3,null]}'), []),
        ((200, b'{"data":{}}'), None),
        ((200, b"[]"), None),
        ((200, b"not JSON"), None),
        ((503, b'{"data":[]}'), None),
    ],
)
def test_the_models_of_an_endpoint(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes], names: list[str] | None
) -> None:
    monkeypatch.setattr("pipeline.serving.ask", lambda *_: answer)
    assert serving().models() == names


def test_an_adapter_is_loaded_once_and_only_if_it_verifies(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base itself is asked for by the endpoint's own name."""
    asked: list[tuple[str, object]] = []
    loaded = [{"id": "base"}]

    def ask(url: str, limit_s: float, body: object = None) -> tuple[int, bytes]:
        if url.endswith("/models"):
            return 200, json.dumps({"data": loaded}).encode()
        asked.append((url, body))
        return (200, b"") if len(asked) == 1 else (404, b"no such route")

    monkeypatch.setattr("pipeline.serving.ask", ask)
    assert serving().adapt(None) == "base"
    with pytest.raises(PipelineError, match="no manifest"):
        serving().adapt(rig.workdir / "checkpoints/none")
    rig.put_adapter("one", "weights")
    path = rig.workdir / "checkpoints/one"
    name = serving().adapt(path)
    assert asked == [("http://127.0.0.1:9/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})]
    loaded.append({"id": name})
    assert serving().adapt(path) == name and len(asked) == 1
    rig.put_adapter("one", "others")
    with pytest.raises(PipelineError, match=r"refuses the adapter .*404.*no such route.*--enable-lora"):
        serving().adapt(path)


def test_who_dies_at_once_is_waited_for_longer_and_longer() -> None:
    assert [pause_s(n) for n in (*range(1, 9), 10**9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
