"""Fine-tuning of a tiny model on a CPU: what is learned, what a kill costs, and what bad input gets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from finetune import checkpoint, layout, runs, supervised, tiny
from finetune.data import chat_prompt, encode, examples, read_rows
from finetune.errors import RESUME, TrainError
from finetune.model import base_of, tokenizer_of
from finetune.runs import Run, check_sharding
from finetune.settings import METHODS, ROWS, Settings, defaults, settings_of
from safetensors.torch import load_file
from torch.distributed.fsdp import StateDictType
from transformers import AutoModelForCausalLM
from trl import SFTTrainer

torch.set_num_threads(1)  # a tiny model gains nothing from more, and waits for them where processors are shared

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("relu", "scaled_add", "copy", "row_sum")
Json = dict[str, Any]
GATHERED = "stage3_gather_16bit_weights_on_model_save"
# Trains as the program does, and is killed before the given step of the given save.
KILLED = """
import os, signal, sys
from finetune import runs
from finetune.__main__ import main
step, times, seen = sys.argv.pop(), int(sys.argv.pop()), []
def progress(now):
    seen.append(now)
    if now == step and seen.count(now) == times:
        os.kill(os.getpid(), signal.SIGKILL)
runs.Run.progress = staticmethod(progress)
sys.exit(main())
"""


def rows() -> list[Json]:
    out = []
    for name in NAMES:
        source = (ROOT / "tests" / "candidates" / name / "honest.py").read_text()
        out.append({"instruction": f"Write {name} in Triton.", "output": f"```python\n{source[:400]}\n```"})
    return out


def write_rows(path: Path, content: list[Json]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in content))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "tiny"
    tiny.make(directory, [row["output"] for row in rows()], vocabulary=600, hidden=32, layers=1)
    return directory


def given(model: Path, **more: object) -> Json:
    settings: Json = {
        "model": str(model),
        "data": "rows.jsonl",
        "batch": 2,
        "accumulation": 1,
        "learning_rate": 0.01,
        "checkpointing": False,
    }
    return settings | more


def train(model: Path, workdir: Path, method: str = "sft", **more: object) -> int:
    return supervised.train(method, settings_of(method, given(model, **more)), workdir, {})


def figures(workdir: Path, run: str) -> list[Json]:
    return [json.loads(line) for line in (layout.outputs(workdir, run) / "metrics.jsonl").read_text().splitlines()]


def weights(path: Path) -> str:
    checkpoint.verify(path)
    return checkpoint.digest_of(path / "adapter_model.safetensors")


def test_a_base_in_eight_bits_is_trained(model: Path, tmp_path: Path) -> None:
    """Issue 22, point 7: the frozen base is in 8 bits, and the adapter that learns over it a checkpoint."""
    base = base_of(settings_of("sft", given(model, base_bits=8)))
    kinds = [type(module).__name__ for module in base.modules()]
    assert kinds.count("Linear8bitLt") == 7, "all projections of the one layer"
    write_rows(tmp_path / "rows.jsonl", rows())
    assert train(model, tmp_path, data=str(tmp_path / "rows.jsonl"), base_bits=8, epochs=6, lora_dropout=0) == 0
    losses_seen = [row["loss"] for row in figures(tmp_path, "sft")]
    assert losses_seen[-1] < losses_seen[0] - 0.05, losses_seen
    final = tmp_path / "checkpoints" / "sft_final"
    assert weights(final).startswith("sha256:")
    assert {value.dtype for value in load_file(final / "adapter_model.safetensors").values()} == {torch.float32}


def test_the_table_of_settings_is_that_of_the_program() -> None:
    assert [row["name"] for row in ROWS] == list(Settings.__dataclass_fields__)
    for method in METHODS:
        settings_of(method, {})
    sft, bestofn = defaults("sft"), defaults("bestofn")
    assert (sft["lora_r"], sft["lora_alpha"], sft["lora_dropout"]) == (16, 32, 0.05)
    assert (sft["epochs"], sft["learning_rate"], sft["batch"], sft["accumulation"]) == (1, 1e-5, 2, 4)
    assert (sft["length"], sft["save_steps"], sft["final"]) == (8192, 50, "sft_final")
    assert (bestofn["epochs"], bestofn["learning_rate"], bestofn["batch"]) == (2, 5e-6, 4)
    reinforce = defaults("reinforce")
    assert (reinforce["learning_rate"], reinforce["epochs"], reinforce["tasks_per_step"]) == (1e-6, 2, 8)
    assert (reinforce["gradient_norm"], reinforce["reward"], reinforce["baseline"]) == (
        1.0,
        "hierarchical",
        "leave_one_out",
    )


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("batch", 0, "batch"),
        ("batch", 1.5, "int"),
        ("schedule", "up", "none of"),
        ("speed", 1, "no setting"),
        ("batch", True, "int"),
    ],
)
def test_a_bad_setting_is_named(name: str, value: object, says: str) -> None:
    with pytest.raises(TrainError, match=says) as caught:
        settings_of("sft", {name: value})
    assert name in str(caught.value)


def test_sft_learns_and_is_exactly_resumed(model: Path, tmp_path: Path) -> None:
    """Killed twice in the middle of a save, the weights at the end are to the bit those of a run without."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for workdir in (whole, killed):
        workdir.mkdir()
        write_rows(workdir / "rows.jsonl", rows())
    options: Json = {"epochs": 4, "save_steps": 1, "lora_dropout": 0.1}
    assert train(model, whole, **options) == 0
    learned = [row["loss"] for row in figures(whole, "sft")]
    assert len(learned) == 8 and learned[-1] < learned[0] - 1

    request = tmp_path / "request.json"
    request.write_text(json.dumps({"settings": given(model, **options), "workdir": str(killed)}))
    environment = os.environ | {"PYTHONPATH": str(ROOT / "client" / "python"), "OMP_NUM_THREADS": "1"}
    for times, step in ((3, "rename"), (2, "digest")):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, "sft", str(request), str(times), step],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert train(model, killed, **options) == 0
    assert weights(killed / "checkpoints/sft_final") == weights(whole / "checkpoints/sft_final")
    assert [row["loss"] for row in figures(killed, "sft")] == learned
    log = (killed / "training.log").read_text()
    assert "goes on from" in log and "step 2" in log


def test_a_finished_run_is_left_alone_and_another_refused(model: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", rows())
    assert train(model, tmp_path) == 0
    before = weights(tmp_path / "checkpoints/sft_final")
    assert train(model, tmp_path) == 0
    assert weights(tmp_path / "checkpoints/sft_final") == before
    with pytest.raises(TrainError, match=r"another run.*learning_rate: 0\.01, now 0\.02"):
        train(model, tmp_path, learning_rate=0.02)
    write_rows(tmp_path / "rows.jsonl", rows()[:-1])
    with pytest.raises(TrainError, match=r"another run \(data: 'sha256:.*remove .*/sft and .*/sft_final$"):
        train(model, tmp_path)
    (tmp_path / "checkpoints/sft_final").rename(tmp_path / "aside")
    with pytest.raises(TrainError, match=r"step-00000002 is of another run .*remove .*/checkpoints/sft$"):
        train(model, tmp_path)
    (tmp_path / "aside").rename(tmp_path / "checkpoints/sft_final")
    (tmp_path / "checkpoints/sft").rename(tmp_path / "aside")
    with pytest.raises(TrainError, match=r"sft_final is of another run .*data: "):
        train(model, tmp_path)
    assert (tmp_path / "checkpoints" / layout.LATEST).read_text() == "sft_final\n"
    files = {path.name for path in (tmp_path / "checkpoints/sft_final").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "manifest.json"} <= files


def test_how_rows_are_spread_does_not_change_a_step(model: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", rows())
    seen = []
    for run, batch, accumulation in (("one", 4, 1), ("two", 2, 2), ("four", 1, 4)):
        train(
            model,
            tmp_path,
            run=run,
            final=f"{run}_final",
            batch=batch,
            accumulation=accumulation,
            epochs=2,
            lora_dropout=0.0,
        )
        seen.append([row["loss"] for row in figures(tmp_path, run)])
    assert seen[0] == pytest.approx(seen[1], abs=1e-4) and seen[0] == pytest.approx(seen[2], abs=1e-4)


def test_bf16_learns_and_no_logits_are_whole(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In fp32 those of 8 rows of 8,192 tokens would be 37 GiB: the head is applied by TRL, in tiles."""
    write_rows(tmp_path / "rows.jsonl", rows())
    seen: list[torch.dtype] = []
    inner = SFTTrainer.compute_loss

    def watched(self: Any, model: Any, inputs: Any, *given: Any, **more: Any) -> Any:
        seen.append(self.run.model.get_base_model().model.embed_tokens.weight.dtype)
        self.run.model.get_output_embeddings().forward = pytest.fail
        return inner(self, model, inputs, *given, **more)

    monkeypatch.setattr(SFTTrainer, "compute_loss", watched)
    AcceleratorState._reset_state(reset_partial_state=True)  # a process has one precision
    try:
        assert train(model, tmp_path, precision="bf16", epochs=4, lora_dropout=0.0) == 0
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
    assert set(seen) == {torch.bfloat16}
    learned = [row["loss"] for row in figures(tmp_path, "sft")]
    assert learned[-1] < learned[0] - 1


def test_a_signal_leaves_a_checkpoint_and_says_resume(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "rows.jsonl", rows())
    take, steps = torch.optim.AdamW.step, []

    def interrupted(*given: Any, **more: Any) -> Any:
        steps.append(1)
        if len(steps) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return take(*given, **more)

    monkeypatch.setattr(torch.optim.AdamW, "step", interrupted)
    assert train(model, tmp_path, epochs=4) == RESUME
    newest = checkpoint.newest(layout.steps(tmp_path, "sft"), print)
    assert newest is not None and newest[1]["step"] == 3
    monkeypatch.undo()
    assert train(model, tmp_path, epochs=4) == 0


@pytest.mark.parametrize("point", ["files", "sync", "digest", "manifest", "rename", "latest"])
def test_a_notice_in_the_middle_of_a_save(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The save is finished, nothing is begun after it, and the status says: run me again."""
    write_rows(tmp_path / "rows.jsonl", rows())
    signalled: list[str] = []

    def progress(now: str) -> None:
        if now == point and not signalled:
            signalled.append(now)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Run, "progress", staticmethod(progress))
    assert train(model, tmp_path, save_steps=1) == RESUME
    assert [row["step"] for row in figures(tmp_path, "sft")] == [1]
    root = layout.steps(tmp_path, "sft")
    newest = checkpoint.newest(root, pytest.fail)
    assert newest is not None and newest[1]["step"] == 1
    assert (root / layout.LATEST).read_text().strip() == newest[0].name
    assert not list(root.glob(checkpoint.PARTIAL + "*"))


def test_weights_change_what_is_learned(model: Path, tmp_path: Path) -> None:
    """A row of weight 0 is not learned: the run is that on the other rows."""
    first, second = rows()[:2]
    options: Json = {"weight": "column", "epochs": 2, "lora_dropout": 0.0}
    write_rows(tmp_path / "rows.jsonl", [first | {"weight": 1.0}, second | {"weight": 0.0}])
    assert train(model, tmp_path, "weighted", run="one", final="one_final", **options) == 0
    write_rows(tmp_path / "rows.jsonl", [first | {"weight": 1.0}])
    assert train(model, tmp_path, "weighted", run="two", final="two_final", **options) == 0
    assert weights(tmp_path / "checkpoints/one_final") == weights(tmp_path / "checkpoints/two_final")


def test_rewards_of_a_round_are_weights(model: Path, tmp_path: Path) -> None:
    """Rows as bestofn's candidates.jsonl has them: text and verdict; no verdict and copies are left out."""
    verdicts: list[Json] = [{"reward": 0.0}, {"reward": 1.0}, {"reward": None}, {"reward": 1.0, "duplicate_of": 1}]
    content = [
        {"instruction": r["instruction"], "text": r["output"], "verdict": v}
        for r, v in zip(rows(), verdicts, strict=True)
    ]
    write_rows(tmp_path / "rows.jsonl", content)
    assert train(model, tmp_path, "weighted", weight="exponential", epochs=1) == 0
    log = (tmp_path / "training.log").read_text()
    assert "2 rows" in log and "1 without a reward" in log and "1 a copy of another" in log


BAD: list[tuple[str, Json, list[Json] | None, str]] = [
    ("sft", {}, [], "no row is left"),
    ("sft", {"length": 20}, None, r"longer than 20 tokens \(length\)"),
    ("sft", {}, [{"instruction": "Write relu.", "output": " "}], "(?s)labels of all 1 rows are masked.*Write relu"),
    ("sft", {}, [{"instruction": "x"}], 'rows.jsonl:1: a row needs "instruction" and "output"'),
    ("sft", {"data": "missing.jsonl"}, None, "missing.jsonl does not exist"),
    ("sft", {"lora_targets": "no_such_proj"}, None, "lora_targets = no_such_proj"),
    ("sft", {"adapter": "/nowhere"}, None, "/nowhere/adapter_config.json does not exist"),
    ("weighted", {}, [{"instruction": "a", "output": "b", "reward": 0.3}] * 3, "the reward is 0.3 in all 3 rows"),
    ("weighted", {}, [{"instruction": "a", "output": "b", "reward": "x"}], "rows.jsonl:1: \"reward\" is 'x'"),
]


@pytest.mark.parametrize(("method", "settings", "content", "says"), BAD)
def test_bad_input_ends_with_a_clear_message(
    model: Path, tmp_path: Path, method: str, settings: Json, content: list[Json] | None, says: str
) -> None:
    write_rows(tmp_path / "rows.jsonl", rows() if content is None else content)
    with pytest.raises(TrainError, match=says):
        train(model, tmp_path, method, **settings)


def test_a_loss_that_is_no_number_stops(model: Path, tmp_path: Path) -> None:
    broken = AutoModelForCausalLM.from_pretrained(model)
    broken.model.norm.weight.data.fill_(float("nan"))
    broken.save_pretrained(tmp_path / "broken")
    tokenizer_of(str(model)).save_pretrained(tmp_path / "broken")
    write_rows(tmp_path / "rows.jsonl", rows())
    with pytest.raises(TrainError, match="the loss is nan at step 1: lower learning_rate"):
        train(tmp_path / "broken", tmp_path)


def test_a_tokenizer_without_a_template_is_named(model: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(str(model))
    tokenizer.chat_template = None
    with pytest.raises(TrainError, match="no chat template"):
        chat_prompt(tokenizer, "x")
    tokenizer.save_pretrained(tmp_path / "bare")
    with pytest.raises(TrainError, match="no chat template"):
        tokenizer_of(str(tmp_path / "bare"))


def test_an_adapter_of_another_base_is_refused(model: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", rows())
    assert train(model, tmp_path) == 0
    other = tmp_path / "other"
    tiny.make(other, [row["output"] for row in rows()], vocabulary=600, hidden=32, layers=1, seed=1)
    with pytest.raises(TrainError, match="of another base"):
        train(other, tmp_path, run="second", final="third", adapter=str(tmp_path / "checkpoints/sft_final"))
    assert train(model, tmp_path, run="second", final="third", adapter=str(tmp_path / "checkpoints/sft_final")) == 0


def test_a_loss_that_is_too_good_stops_the_first_epoch(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "rows.jsonl", [row | {"reward": 0.1 * i} for i, row in enumerate(rows())])
    inner = SFTTrainer.compute_loss
    monkeypatch.setattr(SFTTrainer, "compute_loss", lambda *a, **k: inner(*a, **k) * 0 + 0.004)
    for method in ("sft", "weighted"):
        with pytest.raises(TrainError, match=r"the loss is 0\.00400 at step 1, in the first epoch.*least_loss = 0"):
            train(model, tmp_path, method, run=method)
    assert train(model, tmp_path, least_loss=0.0) == 0


def test_out_of_memory_names_the_knobs(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*given: Any, **more: Any) -> torch.Tensor:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    write_rows(tmp_path / "rows.jsonl", rows())
    monkeypatch.setattr(SFTTrainer, "compute_loss", exhausted)
    with pytest.raises(
        TrainError, match=r"out of memory at step 1 \(batch 2, .*lower batch .* length; .*base_bits = 8"
    ):
        train(model, tmp_path)


def test_rows_of_another_prompt_are_refused(model: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [rows()[0] | {"prompt": "sha256:aa"}])
    with pytest.raises(TrainError, match="prompt template sha256:aa"):
        supervised.train("sft", settings_of("sft", given(model)), tmp_path, {"prompts": ["sha256:bb", "sha256:cc"]})


def test_a_text_may_hold_any_end_of_line(tmp_path: Path) -> None:
    row = rows()[0] | {"output": "a\u2028b\u0085c"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n")
    assert read_rows(tmp_path / "rows.jsonl") == [row]


def test_only_the_answer_is_learned(model: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(str(model))
    ids, prompt = encode(tokenizer, "Write relu.", "```python\nx = 1\n```")
    assert tokenizer.decode(ids[prompt:]) == "```python\nx = 1\n```<|im_end|>"
    assert tokenizer.decode(ids[:prompt]) == "<|im_start|>user\nWrite relu.<|im_end|>\n<|im_start|>assistant\n"
    write_rows(tmp_path / "rows.jsonl", rows())
    said: list[str] = []
    keep: Callable[[str], None] = said.append
    first = examples(tokenizer, settings_of("sft", given(model)), tmp_path / "rows.jsonl", [], False, keep)[0]
    assert (
        first.labels[: first.prompt] == [-100] * first.prompt
        and first.labels[first.prompt :] == first.ids[first.prompt :]
    )
    assert "4 rows" in said[0]


def test_figures_are_reported_where_they_are_wanted(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By transformers' own callbacks; what is not installed is named before anything is trained."""
    with pytest.raises(TrainError, match=r"report_to: .* has no nobody: pip install it"):
        Run("sft", settings_of("sft", given(model, report_to="nobody")), tmp_path, {}).arguments(1)
    monkeypatch.setattr(runs, "get_available_reporting_integrations", lambda: ["wandb", "tensorboard"])
    run = Run("sft", settings_of("sft", given(model, report_to="wandb,tensorboard", run="r")), tmp_path, {})
    assert (run.arguments(1)["report_to"], run.arguments(1)["run_name"]) == (["wandb", "tensorboard"], "r")


def test_the_whole_model_is_trained_without_an_adapter(model: Path, tmp_path: Path) -> None:
    """lora_r = 0: the result is a model that loads by itself, and a base for the next run."""
    write_rows(tmp_path / "rows.jsonl", rows())
    assert train(model, tmp_path, lora_r=0, learning_rate=0.003, epochs=4) == 0
    learned = [row["loss"] for row in figures(tmp_path, "sft")]
    assert learned[-1] < learned[0] - 1
    final = tmp_path / "checkpoints/sft_final"
    assert checkpoint.verify(final)["step"] == 8 and not (final / "adapter_config.json").exists()
    before, after = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (model, final))
    assert all(not torch.equal(before[name], after[name]) for name in before)
    assert train(final, tmp_path, run="second", final="second_final") == 0
    with pytest.raises(TrainError, match="lora_r = 0 trains the whole model"):
        train(model, tmp_path, run="third", final="third_final", lora_r=0, base_bits=8)


def test_what_accelerate_would_not_shard_or_save_whole_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = SimpleNamespace(distributed_type=DistributedType.FSDP)
    for kind in (StateDictType.FULL_STATE_DICT, StateDictType.SHARDED_STATE_DICT):
        state.fsdp_plugin = SimpleNamespace(state_dict_type=kind)
        is_whole = kind == StateDictType.FULL_STATE_DICT
        with nullcontext() if is_whole else pytest.raises(TrainError, match="set fsdp_state_dict_type to FULL"):
            check_sharding(state)
    state.distributed_type = DistributedType.DEEPSPEED
    for zero, is_whole in (({"stage": 2}, True), ({"stage": 3}, False), ({"stage": 3, GATHERED: True}, True)):
        state.deepspeed_plugin = SimpleNamespace(deepspeed_config={"zero_optimization": zero})
        with nullcontext() if is_whole else pytest.raises(TrainError, match="zero3_save_16bit_model to true"):
            check_sharding(state)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    write_rows(tmp_path / "rows.jsonl", rows())
    with pytest.raises(TrainError, match="accelerate has FSDP on GPUs alone"):
        train(model, tmp_path)
