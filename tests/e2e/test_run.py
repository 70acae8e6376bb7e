"""trainer run: its configuration, its checks, and a whole run with a tiny model that survives a kill in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import service
import tiny_data
from finetune import checkpoint

pytestmark = pytest.mark.slow

TRAINER = service.BINARY.with_name("trainer")
TESTS = Path(__file__).parents[1]
DEPLOY = TESTS.parent / "client" / "deploy"
LIMIT_S = 1500.0
Json = dict[str, Any]


def environment(**more: str) -> dict[str, str]:
    own = {"TRAINER_PYTHON": os.environ.get("PYTHON", "python3"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return os.environ | own | more


def trainer(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TRAINER), *arguments],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sft {\n epochs = 1\n lerning_rate = 1\n}\n", "conf:3: no such option 'lerning_rate'"),
        ("sft { learning_rate = fast }\n", "sft.learning_rate takes a number"),
        ('rl { method = "ppo" }\n', "rl.method takes one of bestofn"),
        ("gpus = 0\n", "gpus takes a whole number"),
        ('prepare { file = "rows.jsonl" }\n', "rows.jsonl is not there"),
        ('prepare { source = "kernelbook" }\nmodel_config = "none.json"\n', "none.json"),
    ],
)
def test_a_bad_configuration_is_told(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "conf").write_text(text)
    done = trainer("run", "--check", str(tmp_path / "conf"), f"--workdir={tmp_path}")
    assert done.returncode == 3 and says in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["conf"]


MODEL_CONFIG = f'model_config = "{DEPLOY / "qwen2.5-coder-7b-instruct.json"}"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('rl { policy = "strcit" }\n', '--policy'),
        ('rl { policy = "conf" }\n', 'conf'),
        ('watch { clouds = "aws,azur" }\n', 'watch.clouds takes some of aws,gcp,azure, not "azur"'),
        ('evaluate { policy = "nonsense"\n tasks = "conf" }\n', '--policy'),
        ('rl { reward = "nosuch" }\n', '--reward/kind'),
        ('rl { method = "reinforce" }\nreinforce { reward = "nosuch" }\n', '--reward/kind'),
        ('rl { method = "grpo" }\ngrpo { until = "never" }\n', '--until takes one of'),
        ('rl { curriculum = "nokind" }\n', 'is not one of fixed, stepped, seed'),
        ('rl { until = "never" }\n', '--until takes one of ast,compile'),
        ('endpoint { start = "env A=1 no-such-server {model}" }\n', 'there is no program "no-such-server" in PATH'),
        ('endpoint { start = "exec sh" }\n', 'there is no program "exec" in PATH'),
        ('endpoint { start = "$NO_SUCH_PYTHON -m finetune serve {model}" }\n', '$NO_SUCH_PYTHON, which is not set'),
        ('endpoint { start = "sh --tensor-parallel-size 4 --data-parallel-size=2" }\ngpus = 7\n', 'asks for 8 GPUs'),
        ('verifier { devices = "7" }\ndevices = "6,7"\ngpus = 2\n', 'GPU 7 is used twice: verifier.devices and'),
        ('verifier { devices = "1" }\nendpoint { start = "CUDA_VISIBLE_DEVICES=0,1 sh" }\n', 'GPU 1 is used twice'),
        ('devices = "0"\nendpoint { start = "sh"\n keep = true }\n', 'GPU 0 is used twice: an endpoint that is kept'),
        ('devices = "0,1"\n', 'devices names 2 GPUs; gpus = 1'),
        ('gpus = 8\ngpu_memory_gb = 80\n', 'verifier.devices does not say which GPUs of this machine verifierd has'),
        ('gpus = 8\ngpu_memory_gb = 80\nverifier { devices = "7" }\n', 'GPU 7 is used twice: verifier.devices and'),
        ('teacher { url = "http://127.0.0.1:9/v1" }\n', 'teacher.model, too'),
        ('rl { method = "grpo" }\ngrpo { samples = 1 }\n', '--samples=1 leaves nothing to compare'),
        ('devices = "0,0"\n', 'devices takes numbers of GPUs'),
        ('sft { lora_r = 0 }\n', 'sft.lora_r = 0 leaves no adapter'),
        ('rl { method = "grpo" }\ngrpo { lora_r = 0 }\n', 'train.lora_r = 0 leaves no adapter'),
        ('sft { base_bits = 8 }\npython = "/bin/false"\n', 'sft.base_bits = 8 needs bitsandbytes'),
    ],
)  # fmt: skip
def test_what_would_end_a_run_hours_later_is_found_at_once(tmp_path: Path, text: str, says: str) -> None:
    """Issue 22, point 7: by --check, and by the run itself before its first step."""
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (tmp_path / "conf").write_text(f'prepare {{ file = "rows.jsonl" }}\n{MODEL_CONFIG}{text}')
    for arguments in (["--check"], []):
        done = trainer("run", *arguments, str(tmp_path / "conf"), f"--workdir={tmp_path}")
        assert done.returncode == 3 and says in done.stderr, done.stderr
    assert not (tmp_path / "data").exists() and "selftest" not in done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('curriculum = "stepped"', "cannot move in 3 rounds: it is moved by rl.held_out alone"),
        ('curriculum = "stepped"\n held_out = "rows.jsonl"', "it wants five held-out evaluations first"),
        ('curriculum = "seed"\n rounds = 1', "cannot move in 1 rounds"),
        ('curriculum = "seed"\n max_tasks = 4', "of 4 tasks a round 0 are of level 2 at 10 % and at 20 %"),
        ('curriculum = "seed"\n method = "reinforce"', "reinforce has no rounds"),
        ('curriculum = "seed"', ""),
        ('curriculum = "stepped"\n held_out = "rows.jsonl"\n rounds = 5', ""),
        ('curriculum = "fixed"', ""),
    ],
)
def test_a_curriculum_that_cannot_move_is_said(tmp_path: Path, text: str, says: str) -> None:
    """Issue 22, point 4. It may be meant, and ends nothing; /bin/false ends the check that follows."""
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (tmp_path / "conf").write_text(f'prepare {{ file = "rows.jsonl" }}\npython = "/bin/false"\nrl {{ {text} }}\n')
    done = trainer("run", "--check", str(tmp_path / "conf"), f"--workdir={tmp_path}")
    assert ("cannot move" in done.stderr) == bool(says) and says in done.stderr, done.stderr


def test_no_such_file(tmp_path: Path) -> None:
    done = trainer("run", str(tmp_path / "none.conf"))
    assert (done.returncode, "none.conf" in done.stderr) == (3, True)


def test_the_shipped_configuration_passes_anywhere(tmp_path: Path) -> None:
    """No model, no GPU and no network: shapes on meta tensors. The endpoint's program has to be there."""
    conf = DEPLOY / "qwen2.5-coder-7b-8gpu.conf"
    done = trainer("run", "--check", str(conf), f"--workdir={tmp_path}", PATH="/usr/bin:/bin")
    assert done.returncode == 3 and 'there is no program "vllm" in PATH' in done.stderr
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "vllm").symlink_to("/bin/true")
    path = f"{programs}:{os.environ['PATH']}"
    done = trainer("run", "--check", str(conf), f"--workdir={tmp_path}", PATH=path)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [one["method"] for one in found] == ["sft", "bestofn"]
    assert found[0]["parameters"] == 7_615_616_512
    assert found[0]["trained"] == 40_370_176  # 28 layers, seven projections, rank 16
    assert all(20 < one["total_gib"] < 80 for one in found)
    small = tmp_path / "small.conf"
    config = DEPLOY / "qwen2.5-coder-7b-instruct.json"
    small.write_text(
        conf.read_text().replace("= 80", "= 24").replace('"qwen2.5-coder-7b-instruct.json"', f'"{config}"')
    )
    done = trainer("run", "--check", str(small), f"--workdir={tmp_path}", PATH=path)
    assert done.returncode == 3 and "has 24: lower batch or length" in done.stderr
    small.write_text(conf.read_text().replace('"qwen2.5-coder-7b-instruct.json"', f'"{config}"\npython = "/bin/true"'))
    done = trainer("run", "--check", str(small), f"--workdir={tmp_path}", PATH=path)
    assert done.returncode == 3 and "/bin/true ended with status 0 and checked nothing" in done.stderr


def test_the_python_that_is_named_is_started(tmp_path: Path) -> None:
    done = trainer("status", f"--workdir={tmp_path}", TRAINER_PYTHON="/bin/echo")
    assert done.returncode == 0 and done.stdout.startswith("-c import sys"), done.stderr


def test_an_estimate_is_by_step(tmp_path: Path) -> None:
    done = trainer("run", "--estimate", str(DEPLOY / "qwen2.5-coder-7b-8gpu.conf"), f"--workdir={tmp_path}")
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    # 18,000 rows of 2,500 tokens at 4,000 tokens a second.
    assert float(rows["sft"][0]) == pytest.approx(18000 * 2500 / 4000 / 3600, abs=0.01)
    busy, wall, idle, price = map(float, rows["all"])
    assert price == pytest.approx(2.5 * (busy + idle), abs=0.05) and wall == pytest.approx((busy + idle) / 8, abs=0.02)
    assert float(rows["sft"][1]) == pytest.approx(float(rows["sft"][0]) / 4, abs=0.01)
    conf = (DEPLOY / "qwen2.5-coder-7b-8gpu.conf").read_text().replace("gpus = 4", "gpus = 7")
    conf = conf.replace('"0,1,2,3"', '"0,1,2,3,4,5,6"')
    (tmp_path / "seven.conf").write_text(conf.replace('"4,5,6,7"', '"7"'))
    done = trainer("run", "--estimate", str(tmp_path / "seven.conf"), f"--workdir={tmp_path}")
    (tmp_path / "seven.conf").unlink()
    rows = {line[:20].strip(): line[20:].split() for line in done.stdout.splitlines()}
    # 18,000 verdicts on verifierd's GPU, for which seven others wait; while seven train, its own does.
    assert [float(x) for x in rows["phase prepare"][:3]] == pytest.approx([5.0, 5.0, 35.0], abs=0.01)
    assert float(rows["sft"][2]) == pytest.approx(float(rows["sft"][0]) / 7, abs=0.01)
    assert [path.name for path in tmp_path.iterdir()] == []


def test_status_and_stages_of_nothing(tmp_path: Path) -> None:
    done = trainer("status", f"--workdir={tmp_path}")
    assert done.returncode == 3 and "neither a run nor a checkpoint nor a round" in done.stderr
    (tmp_path / "conf").write_text('prepare { source = "kernelbook" }\n')
    done = trainer("run", str(tmp_path / "conf"), "--stage=sft", f"--workdir={tmp_path}")
    assert done.returncode == 3 and "sft: what it needs is missing" in done.stderr
    assert "sft_train.jsonl is not there" in done.stderr
    # A stage that asks for no answers needs no endpoint.
    (tmp_path / "conf").write_text('prepare { source = "kernelbook" }\nendpoint { start = "no-such-server" }\n')
    for stage, is_asked in (("sft", False), ("rl", True)):
        done = trainer("run", "--check", str(tmp_path / "conf"), f"--stage={stage}", f"--workdir={tmp_path}")
        assert ('no program "no-such-server"' in done.stderr) == is_asked, done.stderr


def test_a_directory_without_a_run_has_no_report(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(TRAINER), "report", f"--workdir={tmp_path}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3 and f"{tmp_path} has no run" in done.stderr
    assert not list(tmp_path.iterdir())


def said(workdir: Path) -> str:
    log = workdir / "training.log"
    return log.read_text() if log.exists() else ""


def killed_at(command: list[str], workdir: Path, mark: str, port: str) -> None:
    """Run until training.log says mark, then end the whole process group."""
    with (workdir / "killed.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=environment(TINY_PORT=port), stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + LIMIT_S
    while mark not in said(workdir) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None, (workdir / "killed.log").read_text()[-3000:]
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_from_data_to_report_with_a_kill_in_the_middle(client: service.Client, tmp_path: Path) -> None:
    tiny_data.main(tmp_path)
    command = [str(TRAINER), "run", str(TESTS / "e2e/tiny.conf"), f"--workdir={tmp_path}", f"--url={client.url}"]
    killed_at(command, tmp_path, "sft: step 40 of", str(service.free_port()))
    status = json.loads(trainer("status", "--json", f"--workdir={tmp_path}").stdout)
    assert not status["is_running"] and status["steps"]["sft"]["state"] == "interrupted"
    assert status["checkpoints"]["sft"]["step"] >= 36
    killed_at(command, tmp_path, "run: round1", str(service.free_port()))

    done = trainer(*command[1:], TINY_PORT=str(service.free_port()))
    assert done.returncode == 0, done.stderr[-3000:]
    log = said(tmp_path)
    assert "goes on from" in log and "prepare was done already" in log and "sft was done already" in log
    for final in ("sft_final", "rl_final"):
        manifest = checkpoint.verify(tmp_path / "checkpoints" / final)
        assert manifest["base_model"] == "tiny"
    report = json.loads((tmp_path / "outputs/report.json").read_text())
    assert set(report["evaluations"]) == {"base", "sft_final", "rl_final"}
    losses = [point["loss"] for point in report["losses"]["sft"]]
    assert len(losses) == 80 and losses[-1] < losses[0] / 4
    assert [point["step"] for point in report["losses"]["sft"]] == list(range(1, 81))
    assert report["funnel"]["round1"]["answers"] > 0 and report["rewards"]["round1"]["n"] > 0
    assert {"hack", "policy"} == set(report["cheats"]["round1"]) and report["curriculum"]["rounds"] == 2
    assert report["configuration"]["sft"]["epochs"] == 20 and report["costs"]["gpu_seconds"] > 0
    page = (tmp_path / "outputs/report.html").read_text()
    assert "Funnel by round" in page and "<polyline" in page and page.rstrip().endswith("</html>")

    done = trainer(*command[1:], TINY_PORT="1")
    assert done.returncode == 0 and "report was done already" in done.stderr


def test_a_model_in_the_working_directory_is_checked_there(tmp_path: Path) -> None:
    tiny_data.main(tmp_path)
    command = ("run", "--check", str(TESTS / "e2e/tiny.conf"), f"--workdir={tmp_path}")
    done = trainer(*command, TINY_PORT="1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("text", "status"), [("", 3), ("no_such_option = 1\n", 1)])
def test_the_demo_ends_as_its_run_does(tmp_path: Path, text: str, status: int) -> None:
    """Without rows the run ends before its first step, beside a daemon of the demo's own."""
    (tmp_path / "conf").write_text(text + 'prepare { file = "none.jsonl" }\n')
    python = os.environ.get("PYTHON", sys.executable)
    command = [python, str(DEPLOY / "demo_run.py"), f"--programs={TRAINER.parent}", f"--python={python}"]
    command += [f"--conf={tmp_path / 'conf'}", f"--workdir={tmp_path / 'work'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == status, done.stderr
    assert ("no_such_option" if text else "none.jsonl is not there") in done.stderr


def small_conf(directory: Path) -> Path:
    """The tiny run, with next to nothing to learn and to say."""
    text = (TESTS / "e2e/tiny.conf").read_text()
    for old, new in (
        ("epochs = 20", "epochs = 1"),
        ("rounds = 2", "rounds = 4"),
        ("samples = 3", "samples = 2"),
        ("max_tasks = 3", "max_tasks = 9"),
        ("max_tasks = 4", "max_tasks = 0"),
        ("max_tokens = 400", "max_tokens = 16"),
        ("    max_tasks = 9", "    fused = 14\n    max_tasks = 9"),
    ):
        assert old in text
        text = text.replace(old, new)
    conf = directory / "small.conf"
    conf.write_text(text)
    return conf


def steps(workdir: Path) -> Json:
    return {name: step["state"] for name, step in json.loads((workdir / "run.json").read_text())["steps"].items()}


def rows(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_a_dry_run_goes_through_everything_in_a_directory_of_its_own(client: service.Client, tmp_path: Path) -> None:
    tiny_data.main(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    conf = small_conf(tmp_path)
    done = trainer(
        "run",
        "--dry-run",
        str(conf),
        f"--workdir={tmp_path}",
        f"--url={client.url}",
        TINY_PORT=str(service.free_port()),
    )
    # Sixteen tokens are no answer, which the run says by its status once everything is done.
    assert done.returncode == 9 and "no code was found in any answer of rl_final" in done.stderr, done.stderr[-3000:]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, conf.name, "dry_run"])
    dry = tmp_path / "dry_run"
    state = steps(dry)
    assert state.pop("rl_round1") in (
        "done",
        "skipped",
    )  # what a model says that has learned nothing may be worth nothing
    assert list(state) == [
        "selftest", "prepare", "extraction", "fuse", "sft", "round1", "publish",
        "evaluate_base", "evaluate_sft", "evaluate_rl", "compare", "report",
    ]  # fmt: skip
    assert set(state.values()) == {"done"}
    used = json.loads((dry / "run.json").read_text())["configuration"]
    assert (used["prepare"]["max_samples"], used["rl"]["max_tasks"], used["rl"]["rounds"]) == (100, 5, 1)
    assert used["evaluate"]["max_tasks"] == 5 and used["rl"]["fused"] == 5
    assert rows(dry / "data/processed/rl_tasks.jsonl") == rows(dry / "data/processed/tasks.jsonl") + 5
    report = json.loads((dry / "outputs/report.json").read_text())
    assert {one["metrics"]["num_tasks"] for one in report["evaluations"].values()} == {5}
    assert checkpoint.verify(dry / "checkpoints/rl_final")["method"]


def test_a_stage_and_so_many_samples(client: service.Client, tmp_path: Path) -> None:
    """Each stage does its own steps, and the next one goes on from what they left."""
    tiny_data.main(tmp_path)
    conf = small_conf(tmp_path)
    command = ["run", str(conf), f"--workdir={tmp_path}", f"--url={client.url}", "--max-samples=3"]
    done = trainer(*command, "--stage=rl", TINY_PORT=str(service.free_port()))
    assert done.returncode == 3 and "round1: what it needs is missing" in done.stderr, done.stderr
    assert "sft_final is not there" in done.stderr and not (tmp_path / "outputs/endpoint.log").exists()
    done = trainer(*command, "--stage=prepare", TINY_PORT=str(service.free_port()))
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(steps(tmp_path)) == ["selftest", "prepare", "extraction", "fuse"]
    assert rows(tmp_path / "data/processed/sft_train.jsonl") == 3
    done = trainer(*command, "--stage=sft", TINY_PORT=str(service.free_port()))
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(steps(tmp_path)) == ["selftest", "prepare", "extraction", "fuse", "sft"]
    manifest = checkpoint.verify(tmp_path / "checkpoints/sft_final")
    assert manifest["step"] == 2  # three rows, two in a step
    estimate = trainer("run", "--estimate", str(conf), "--stage=sft", f"--workdir={tmp_path}", TINY_PORT="1").stdout
    assert [line[:20].strip() for line in estimate.splitlines()][1:4] == ["sft", "phase sft", "all"]


def test_a_run_copies_to_its_remote(client: service.Client, tmp_path: Path) -> None:
    """sync and watch go along; a remote that cannot be used is found before anything is begun."""
    work, remote = tmp_path / "work", tmp_path / "remote"
    work.mkdir()
    tiny_data.main(work)
    conf = small_conf(tmp_path)
    text = conf.read_text()
    command = ["run", str(conf), "--stage=prepare", f"--workdir={work}", f"--url={client.url}"]
    conf.write_text(text + 'sync {\n remote = "nosuch:bucket/run"\n}\n')
    done = trainer(*command, TINY_PORT="1")
    assert done.returncode == 7 and "nosuch:bucket/run cannot be used: nothing was begun" in done.stderr
    assert steps(work) == {}
    conf.write_text(text + f'sync {{\n remote = "{remote}"\n}}\nwatch {{\n clouds = "azure"\n every_s = 60\n}}\n')
    done = trainer(*command, TINY_PORT="1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert steps(remote) == steps(work) and rows(remote / "data/processed/sft_train.jsonl") == 8
    status = json.loads(trainer("status", "--json", f"--workdir={work}").stdout)
    assert status["sync"]["remote"] == str(remote) and status["sync"]["good_at"] > 0
