"""The configuration file of trainer run: what it may say, what is filled in, and which line is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pipeline import conf
from pipeline.common import Json, PipelineError

SHIPPED = Path(__file__).parents[2] / "client/deploy/qwen2.5-coder-7b-8gpu.conf"
TARGETS = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"


def read(directory: Path, text: str | bytes) -> Json:
    path = directory / "run.conf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return conf.read(path)


def test_what_a_file_does_not_say(tmp_path: Path) -> None:
    """Run's own defaults, and the presets of the methods, which issue 8 names."""
    found = read(tmp_path, "")
    assert (found["model"], found["gpus"]) == ("Qwen/Qwen2.5-Coder-7B-Instruct", 1)
    assert found["verifier"]["selftest"] is True and found["sync"] == {"remote": "", "every_s": 600, "engine": "rclone"}
    assert {"method": "bestofn", "level": 2, "samples": 10, "keep": 3, "max_tasks": 100}.items() <= found["rl"].items()
    assert (found["evaluate"]["level"], found["evaluate"]["max_tasks"]) == (2, 20)
    sft = {"lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.05, "epochs": 1, "learning_rate": 1e-5, "batch": 2,
           "accumulation": 4, "length": 8192, "save_steps": 50, "keep": 2}  # fmt: skip
    assert sft.items() <= found["sft"].items()
    assert {"epochs": 2, "batch": 4, "learning_rate": 5e-6}.items() <= found["train"].items()


@pytest.mark.parametrize("text", ["rl { method = reinforce }\ntrain { seed = 3 }", "train{seed=3}rl{method=reinforce}"])
def test_the_method_decides_what_train_begins_with(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text)
    presets = {"learning_rate": 1e-6, "epochs": 2, "tasks_per_step": 8, "gradient_norm": 1.0, "reward": "hierarchical",
               "baseline": "leave_one_out", "seed": 3}  # fmt: skip
    assert presets.items() <= found["train"].items() and found["sft"]["seed"] == 0


def test_a_section_named_by_a_method_goes_before_train(tmp_path: Path) -> None:
    text = "train { epochs = 9\n seed = 3 }\nreinforce { epochs = 4 }\nbestofn { batch = 7 }\n"
    found = read(tmp_path, text)["train"]
    assert (found["epochs"], found["batch"]) == (9, 7)
    other = read(tmp_path, text + "rl { method = reinforce }")
    assert {"epochs": 4, "seed": 3, "batch": 2, "learning_rate": 1e-6}.items() <= other["train"].items()
    assert "reinforce" not in other


def test_what_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_RUNCONF", "8123")
    found = read(
        tmp_path,
        '# a run\nmodel = "some/where" // a path\ngpu_price = 2.5\n'
        'endpoint {\n url = "http://h:${TEST_RUNCONF}/v1"\n keep = true\n temperature = 0\n}\n'
        "rl { rounds = 2\n rounds = 7 }\nsync{every_s=1}/* x */sync { remote = a/${TEST_RUNCONF}#b }",
    )
    assert (found["model"], found["gpu_price"]) == ("some/where", 2.5)
    assert found["endpoint"]["url"] == "http://h:8123/v1" and found["endpoint"]["keep"] is True
    assert found["rl"]["rounds"] == 7 and isinstance(found["rl"]["rounds"], int)  # the last one counts
    assert isinstance(found["endpoint"]["temperature"], float)
    assert found["sync"] == {"remote": "a/8123#b", "every_s": 1, "engine": "rclone"}


def test_variables_that_need_not_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_EMPTY", "")
    found = read(
        tmp_path,
        "# ${TEST_UNSET}\n// ${TEST_UNSET}\n/* ${TEST_UNSET} */\nmodel = 'a/${TEST_UNSET}'\n"
        'python = "${TEST_UNSET:-python3}"\nendpoint { url = "http://h/#${TEST_EMPTY}"\n'
        ' start = "serve \\${TEST_UNSET} $TEST_UNSET\\\n \\"x\\"" }\n',
    )
    assert (found["model"], found["python"]) == ("a/${TEST_UNSET}", "python3")
    assert found["endpoint"]["url"] == "http://h/#"
    assert found["endpoint"]["start"] == 'serve ${TEST_UNSET} $TEST_UNSET "x"'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpus = 0\n", ':1: gpus takes a whole number from 1 to 1024, not "0"'),
        ("\n\ngpus = 1.5\n", ":3: gpus takes a whole number"),
        ("gpus = nan\n", ":1: gpus takes"),
        ("gpus = \"\"\n", ":1: gpus takes"),
        ("gpus = 3x\n", ":1: gpus takes"),
        ("gpus = 1_0\n", ":1: gpus takes"),
        ("gpu_price = inf\n", ":1: gpu_price takes a number from 0 to 10000"),
        ("sft {\n epochs = 1\n learning_rate = fast\n}\n", ":3: sft.learning_rate takes a number"),
        ("train {\n learning_rate = -1\n}\n", ":2: train.learning_rate takes a number"),
        ('rl { method = "ppo" }\n', ':1: rl.method takes one of bestofn weighted reinforce grpo, not "ppo"'),
        ('rl {\n method = ""\n}\n', ":2: rl.method takes one of"),
        ("verifier {\n\n selftest = yes }\n", ':3: verifier.selftest takes true or false, not "yes"'),
        ("sft {\n lerning_rate = 1\n}\n", ":2: no such option 'lerning_rate'"),
        ("gpu = 8\n", ":1: no such option 'gpu'"),
        ("train {\n gpus = 8\n}\n", ":2: no such option 'gpus'"),
        ("rlhf { }\n", ":1: no such option 'rlhf'"),
        ("gpus = 8\nseed =", ":2: seed has no value"),
        ("gpus = 8\nrl {\nrounds = 2", ":3: "),
        ("gpus 8\n", ":1: gpus is followed by 8, not ="),
        ("rl = 8\n", ":1: rl is followed by =, not {"),
        ("gpus = 1\n}\n", ":2: } is not expected"),
        ('model = "a\n', ":1: what is '\"' here for?"),
        ("gpus = 0\nseed = -1\n", ":1: gpus"),  # the first one
        (b'model = "\xff"\n', ":1: model is not UTF-8"),
        ('gpus = 1\nendpoint {\n url = "h:${TEST_UNSET}/v1"\n}\n', ":3: ${TEST_UNSET} is not set in the environment"),
        ('/* one\n two */ gpus = 1 # "\nseed = ${TEST_UNSET}\n', ":3: ${TEST_UNSET} is not set"),
        ('model = "a\\"\nb ${TEST_UNSET}"\n', ":2: ${TEST_UNSET} is not set"),
    ],
)  # fmt: skip
def test_a_bad_file_is_named_with_line_and_key(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(f"{tmp_path / 'run.conf'}{says}")) as caught:
        read(tmp_path, text)
    assert caught.value.status == 3


def test_no_file() -> None:
    with pytest.raises(PipelineError, match=r"cannot read /nowhere/run.conf"):
        conf.read(Path("/nowhere/run.conf"))


def numbers_of(found: Json, text: str) -> Json:
    """ "sft.epochs gpus": of these keys the values."""
    keys = [key.rpartition(".") for key in text.split()]
    return {f"{section}.{key}": (found[section] if section else found)[key] for section, _, key in keys}


def test_the_shipped_file_has_the_numbers_of_issue_8(tmp_path: Path) -> None:
    found, text = conf.read(SHIPPED), SHIPPED.read_text()
    wanted = {
        ".gpus": 4, "sft.lora_r": 16, "sft.lora_alpha": 32, "sft.lora_dropout": 0.05, "sft.epochs": 1,
        "sft.learning_rate": 1e-5, "sft.batch": 2, "sft.accumulation": 8, "sft.length": 8192, "sft.save_steps": 50,
        "sft.keep": 2, "sft.least_loss": 0.01, "train.epochs": 2, "train.batch": 4, "train.learning_rate": 5e-6,
        "train.lora_r": 16, "train.lora_alpha": 32, "train.length": 8192, "train.save_steps": 50, "train.keep": 2,
        "train.least_loss": 0.01, "rl.level": 2, "evaluate.level": 2, "evaluate.max_tasks": 20, "sync.every_s": 600,
        "watch.every_s": 5,
    }  # fmt: skip
    assert numbers_of(found, " ".join(wanted)) == wanted
    assert found["gpus"] * found["sft"]["batch"] * found["sft"]["accumulation"] == 64
    assert found["model"] == "Qwen/Qwen2.5-Coder-7B-Instruct" and found["watch"]["clouds"] == "aws,gcp,azure"
    assert found["sft"]["lora_targets"] == found["train"]["lora_targets"] == TARGETS
    assert found["sft"]["precision"] == "auto" and found["verifier"]["selftest"] is True  # bf16, or fp16 without it
    # What the file says itself, without any default.
    said = {
        "sft": "lora_r = 16|lora_alpha = 32|lora_dropout = 0.05|epochs = 1|learning_rate = 1e-5|batch = 2|"
               "accumulation = 8|length = 8192|save_steps = 50",
        "bestofn": "epochs = 2|batch = 4|learning_rate = 5e-6",
        "reinforce": 'epochs = 2|learning_rate = 1e-6|tasks_per_step = 8|reward = "hierarchical"|'
                     'baseline = "leave_one_out"',
        "train": "gradient_norm = 1.0|save_steps = 50", "sync": "every_s = 600", "watch": "every_s = 5",
    }  # fmt: skip
    for section, lines in said.items():
        body = re.search(rf"^{section} {{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL)
        assert body, section
        for line in lines.split("|"):
            assert line in body[1], (section, line)
    # One word is changed, and it is REINFORCE.
    other = read(tmp_path, text.replace('method = "bestofn"', 'method = "reinforce"'))["train"]
    reinforce = {"learning_rate": 1e-6, "epochs": 2, "tasks_per_step": 8, "gradient_norm": 1.0, "lora_r": 16,
                 "lora_alpha": 32, "length": 8192, "save_steps": 50, "reward": "hierarchical",
                 "baseline": "leave_one_out"}  # fmt: skip
    assert reinforce.items() <= other.items()
