"""trainer sft as people call it: flags to settings, a request written down, and the training's own exit status."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import service
import torch
from finetune import checkpoint, layout, tiny
from peft import PeftModel
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.slow

TRAINER = service.BINARY.with_name("trainer")
Json = dict[str, Any]
LIMIT_S = 300.0
# The training's interpreter, whose first save stands still in its middle until a signal came.
SLOW = """#!/bin/sh
shift 2
exec "$REAL_PYTHON" -c '
import os, pathlib, sys, time
from finetune import runs
from finetune.__main__ import main
came = []
inner = runs.Stop._set
def noted(self, number, frame):
    inner(self, number, frame)
    came.append(number)
runs.Stop._set = noted
def progress(now):
    if now == "digest":
        pathlib.Path(os.environ["MARK"]).touch()
        end = time.monotonic() + 200
        while not came and time.monotonic() < end:
            time.sleep(0.02)
runs.Run.progress = staticmethod(progress)
sys.exit(main())
' "$@"
"""


def trainer(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TRAINER_PYTHON": os.environ.get("PYTHON", "python3")}
    return subprocess.run(
        [str(TRAINER), *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def settings(*arguments: str) -> Json:
    done = trainer(*arguments, "--print-settings")
    assert done.returncode == 0, done.stderr
    printed: Json = json.loads(done.stdout)
    return printed


def test_every_method_has_its_numbers() -> None:
    sft, bestofn = settings("sft"), settings("sft", "--preset=bestofn", "--learning-rate=2e-6")
    assert (sft["model"], sft["epochs"], sft["batch"]) == ("Qwen/Qwen2.5-Coder-7B-Instruct", 1, 2)
    assert (bestofn["epochs"], bestofn["batch"], bestofn["learning_rate"]) == (2, 4, 2e-6)
    assert bestofn["final"] == "rl_final" and sft["final"] == "sft_final"
    assert settings("reinforce", "--baseline=none")["baseline"] == "none"
    assert settings("grpo", "--model=somewhere/else")["model"] == "somewhere/else"


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("sft", "--learning-rate=fast"), 2, "learning_rate takes a number"),
        (("sft", "--precision=fp8"), 2, "precision takes one of auto bf16"),
        (("sft", "--preset=grpo"), 2, "there are bestofn, of sft, and plain, of reinforce"),
        (("sft", "--baseline=none"), 2, "unrecognized option"),
        (("sft", "--seed=2147483648"), 2, "seed takes a whole number"),
        (("sft", "--run=../x"), 3, "no name for a directory"),
        (("reinforce",), 3, "which tasks?"),
        (("sft", "--python=/no/python"), 3, "cannot start /no/python"),
    ],
)
def test_bad_options(tmp_path: Path, arguments: tuple[str, ...], status: int, says: str) -> None:
    done = trainer(*arguments, f"--workdir={tmp_path}")
    assert (done.returncode, says in done.stderr) == (status, True), done.stderr


UNUSED = ("endpoint", "key", "completions", "top-p", "max-tokens", "plain", "logprobs", "timeout", "attempts",
          "concurrency")  # fmt: skip


@pytest.mark.parametrize(
    ("command", "used", "refused"),
    [
        ("sft", "workdir cacert model seed", "url temperature"),
        ("weighted", "workdir cacert model seed", "url temperature"),
        ("reinforce", "workdir cacert model seed url temperature", ""),
        ("grpo", "workdir cacert model seed url temperature", ""),
        ("watch", "workdir cacert", "url model seed temperature"),
        ("selftest", "quick", "workdir cacert url model seed temperature"),
    ],
)
def test_a_command_takes_the_options_that_it_uses_and_no_more(command: str, used: str, refused: str) -> None:
    shown = set(re.findall(r"--([a-z][a-z0-9-]*)", trainer(command, "--help").stdout))
    assert set(used.split()) <= shown and not shown & {*refused.split(), *UNUSED}
    for name in [*refused.split(), *UNUSED]:
        done = trainer(command, f"--{name}=1")
        assert (done.returncode, "unrecognized option" in done.stderr) == (2, True), (name, done.stderr)


def test_the_temperature_and_the_seed_of_a_line_are_those_of_training() -> None:
    found = settings("reinforce", "--preset=plain", "--temperature=0.3", "--seed=7")
    assert (found["temperature"], found["seed"], settings("grpo")["temperature"]) == (0.3, 7, 1.0)


def test_sft_by_flags(tmp_path: Path) -> None:
    rows = [{"instruction": f"Write kernel {i}.", "output": f"```python\nx = {i}\n```"} for i in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tiny.make(tmp_path / "tiny", [row["output"] for row in rows], vocabulary=300, hidden=16, layers=1)
    options = (f"--model={tmp_path / 'tiny'}", f"--workdir={tmp_path}", "--learning-rate=0.01")
    done = trainer("sft", *options, "--data=rows.jsonl")
    assert done.returncode == 0, done.stderr
    manifest = checkpoint.verify(tmp_path / "checkpoints/sft_final")
    assert (manifest["method"], manifest["step"]) == ("sft", 1)
    request = json.loads((tmp_path / "outputs/train_sft/request.json").read_text())
    assert request["settings"]["learning_rate"] == 0.01 and request["prompt"].startswith("sha256:")
    done = trainer("sft", *options, "--data=none.jsonl", "--run=other")
    assert done.returncode == 3 and "none.jsonl does not exist" in done.stderr


def test_a_program_that_ends_well_and_trains_nothing_is_told(tmp_path: Path) -> None:
    """Also where an adapter of an earlier run is there, and where accelerate's launcher would be in between."""
    (tmp_path / "checkpoints/sft_final").mkdir(parents=True)
    (tmp_path / "outputs/train_sft").mkdir(parents=True)
    (tmp_path / "outputs/train_sft/status").write_text("0\n")
    for more in ((), ("--gpus=2",)):
        done = trainer("sft", "--python=/bin/true", f"--workdir={tmp_path}", *more)
        assert done.returncode == 3 and "/bin/true ended with status 0 and trained nothing" in done.stderr, done.stderr
    liar = tmp_path / "python"
    told = 'echo "a launcher waits $TORCH_ELASTIC_SHUTDOWN_TIMEOUT s" >&2'
    liar.write_text(f"#!/bin/sh\n{told}\necho 0 >{tmp_path}/outputs/train_sft/status\n")
    liar.chmod(0o755)
    done = trainer("sft", f"--python={liar}", f"--workdir={tmp_path}")
    assert done.returncode == 3 and "sft_final is no checkpoint" in done.stderr, done.stderr
    assert "a launcher waits 3600 s" in done.stderr, "and not 30, for a checkpoint after SIGTERM"


def test_a_notice_in_the_middle_of_a_slow_save(tmp_path: Path) -> None:
    """SIGTERM to trainer while the training writes its first checkpoint: it is finished, and the status is 75."""
    rows = [{"instruction": f"Write kernel {i}.", "output": f"```python\nx = {i}\n```"} for i in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tiny.make(tmp_path / "tiny", [row["output"] for row in rows], vocabulary=300, hidden=16, layers=1)
    slow = tmp_path / "python"
    slow.write_text(SLOW)
    slow.chmod(0o755)
    options = (f"--model={tmp_path / 'tiny'}", f"--workdir={tmp_path}", "--data=rows.jsonl", "--save-steps=1")
    command = [str(TRAINER), "sft", *options, "--batch=1", "--accumulation=1", f"--python={slow}"]
    own = {"REAL_PYTHON": os.environ.get("PYTHON", "python3"), "MARK": str(tmp_path / "mark"), "OMP_NUM_THREADS": "1"}
    running = subprocess.Popen(command, env=os.environ | own, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + LIMIT_S
        while not (tmp_path / "mark").exists() and running.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        said = running.communicate(timeout=LIMIT_S)[1]
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 75 and "interrupted after step 1, checkpoint written" in said, said
    newest = checkpoint.newest(layout.steps(tmp_path, "sft"), pytest.fail)
    assert newest is not None and newest[1]["step"] == 1
    done = trainer("sft", *options, "--batch=1", "--accumulation=1")
    assert done.returncode == 0 and "goes on from" in done.stderr, done.stderr
    assert checkpoint.verify(tmp_path / "checkpoints/sft_final")["step"] == 4


# accelerate's launcher with two processes, as for two GPUs; gloo between them, on any port that is free.
TWO = """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
use_cpu: true
num_machines: 1
num_processes: 2
main_process_port: 0
mixed_precision: 'no'
"""


def test_two_processes_learn_what_one_does_and_are_interrupted_alike(tmp_path: Path) -> None:
    """By accelerate launch: the same losses but for rounding; after a signal the status is 75, and the run goes on."""
    rows = [{"instruction": f"Write kernel {i}.", "output": f"```python\nx = {i}\n```"} for i in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tiny.make(tmp_path / "tiny", [row["output"] for row in rows], vocabulary=300, hidden=16, layers=1)
    (tmp_path / "two.yaml").write_text(TWO)
    own = {"TRAINER_PYTHON": os.environ.get("PYTHON", "python3"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    def command(name: str, *more: str) -> list[str]:
        options = (f"--model={tmp_path / 'tiny'}", f"--workdir={tmp_path}", "--data=rows.jsonl", "--accumulation=1")
        own_name = (f"--run={name}", f"--final={name}_final", "--learning-rate=0.01", "--lora-dropout=0")
        return [str(TRAINER), "sft", *options, *own_name, *more]

    def figures(name: str) -> list[Json]:
        text = (tmp_path / f"outputs/train_{name}/metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    two = ("--batch=1", f"--accelerate-config={tmp_path / 'two.yaml'}")
    for name, more in (("one", ("--batch=2", "--epochs=3")), ("two", (*two, "--epochs=3"))):
        done = subprocess.run(
            command(name, *more), env=os.environ | own, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        assert checkpoint.verify(tmp_path / f"checkpoints/{name}_final")["step"] == 12
    assert [{row["processes"] for row in figures(name)} for name in ("one", "two")] == [{1}, {2}]
    losses = [[row["loss"] for row in figures(name)] for name in ("one", "two")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-2) and losses[0][-1] < losses[0][0]
    assert losses[1][0] == pytest.approx(losses[0][0], rel=1e-5)

    long = command("long", *two, "--epochs=10000", "--save-steps=1000000")
    log = tmp_path / "long.log"
    with log.open("w") as file:
        running = subprocess.Popen(long, env=os.environ | own, stderr=file)
    try:
        end = time.monotonic() + LIMIT_S
        while "step 10 of" not in log.read_text() and running.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        assert running.wait(LIMIT_S) == 75, log.read_text()
    finally:
        running.kill()
        running.wait()
    newest = checkpoint.newest(layout.steps(tmp_path, "long"), pytest.fail)
    assert newest is not None and newest[1]["step"] >= 10
    bad = subprocess.run(
        [*command("bad", *two), "--data=none.jsonl"],
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert bad.returncode == 3 and "none.jsonl does not exist" in bad.stderr


# The training's interpreter on a machine without GPUs: the launcher is told so, and FSDP is not passed over.
SHARDED = """#!/bin/sh
shift 2
exec "$REAL_PYTHON" -m accelerate.commands.launch --main_process_port 0 "$1" "$2" "$3" "$4" "$SHARDED" "$7" "$8"
"""


@pytest.mark.parametrize("rank", [0, 4])
def test_weights_in_shards_learn_what_whole_ones_do(tmp_path: Path, rank: int) -> None:
    """The shipped configuration: two processes end with the weights of one, again where they go on from a checkpoint.

    What is saved is read by transformers and peft.
    """
    rows = [{"instruction": f"Write kernel {i}.", "output": f"```python\nx = {i}\n```"} for i in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tiny.make(tmp_path / "tiny", [row["output"] for row in rows], vocabulary=300, hidden=16, layers=2)
    sharded = tmp_path / "python"
    sharded.write_text(SHARDED)
    sharded.chmod(0o755)
    own = {"REAL_PYTHON": os.environ.get("PYTHON", "python3"), "SHARDED": str(Path(__file__).with_name("sharded.py"))}
    own |= {"TRAINER_PYTHON": own["REAL_PYTHON"], "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    def sft(name: str, *more: str) -> subprocess.CompletedProcess[str]:
        options = (f"--model={tmp_path / 'tiny'}", f"--workdir={tmp_path}", "--data=rows.jsonl", "--accumulation=1")
        more = (f"--run={name}", f"--final={name}_final", "--learning-rate=0.01", "--lora-dropout=0", *more)
        command = [str(TRAINER), "sft", *options, f"--lora-r={rank}", "--epochs=2", *more]
        return subprocess.run(
            command, env=os.environ | own, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def weights(name: str) -> dict[str, torch.Tensor]:
        final = tmp_path / f"checkpoints/{name}_final"
        base = AutoModelForCausalLM.from_pretrained(tmp_path / "tiny" if rank else final)
        return dict((PeftModel.from_pretrained(base, final) if rank else base).state_dict())

    def config(path: Path, *more: str) -> tuple[str, ...]:
        return ("--batch=1", f"--accelerate-config={path}", "--gpus=2", *more)

    shipped = service.ROOT / "client/deploy/fsdp.yaml"
    for name, more in (("one", ("--batch=2",)), ("two", config(shipped, f"--python={sharded}"))):
        done = sft(name, *more)
        assert done.returncode == 0, done.stderr
    one, two = weights("one"), weights("two")
    assert one.keys() == two.keys()
    for name in one:
        assert torch.allclose(one[name], two[name], rtol=0, atol=1e-5), name
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "tiny").state_dict()
    assert rank or any((base[name] - one[name]).abs().max() > 1e-2 for name in one)

    shutil.rmtree(tmp_path / "checkpoints/two_final")
    checkpoint.discard(tmp_path / "checkpoints/two/step-00000008")
    done = sft("two", *config(shipped, f"--python={sharded}"))
    assert done.returncode == 0 and "goes on from" in done.stderr, done.stderr
    again = weights("two")
    assert all(torch.allclose(two[name], again[name], rtol=0, atol=1e-6) for name in two)
