"""trainer prepare: which rows become tasks, which do not, and why. Most of it needs no daemon."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import service
from answering import Reply, document
from endpoint import fake_daemon

TRAINER = service.BINARY.with_name("trainer")
TESTS = Path(__file__).parents[1]
Json = dict[str, Any]

FORM = """import torch
import torch.nn as nn

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, x):
        {body}

def get_inputs():
    return [torch.rand([{size}, 4])]

def get_init_inputs():
    return [[], {{}}]
"""


def source(name: str = "Net", body: str = "return torch.relu(self.layer(x))", size: int = 4) -> str:
    return FORM.format(name=name, body=body, size=size)


def answer(name: str = "Net") -> str:
    return f"class {name}New:\n    pass\n"


def prepare(tmp_path: Path, rows: object, *arguments: str, suffix: str = ".json") -> subprocess.CompletedProcess[str]:
    """rows: a list (as a JSON array), or the file's text."""
    file = tmp_path / f"rows{suffix}"
    file.write_text(rows if isinstance(rows, str) else json.dumps(rows))
    return call(tmp_path, f"--file={file}", *arguments)


def call(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(TRAINER), "prepare", f"--workdir={tmp_path}", f"--python={sys.executable}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def lines(tmp_path: Path, name: str) -> list[Json]:
    return [json.loads(line) for line in (tmp_path / "data/processed" / name).read_text().splitlines()]


def dropped(tmp_path: Path) -> dict[int, str]:
    return {row["row"]: row["reason"] for row in lines(tmp_path, "dropped.jsonl")}


def test_each_row_that_is_no_task_says_why(tmp_path: Path) -> None:
    good = {"python_code": source(), "entry_point": "Net", "triton_code": answer(), "uuid": 5, "licenses": ["MIT"]}
    renamed = source("Mine", "return torch.relu(self.thing(y))  # so", 32).replace("self.layer", "self.thing")
    renamed = renamed.replace("forward(self, x)", 'forward(self, y: torch.Tensor) -> object:\n        """So."""')
    renamed = renamed.replace('"""So.""":', '"""So."""')
    rows: list[tuple[object, str | None]] = [
        (good, None),
        (17, "not_an_object"),
        ({}, "no_reference"),
        ({"python_code": 5}, "no_reference"),
        (good | {"entry_point": 5}, "column_type"),
        (good | {"triton_code": ["x"]}, "column_type"),
        (good | {"python_code": source(body="return x +")}, "syntax"),
        (good | {"entry_point": "Other"}, "no_entry_class"),
        (good | {"python_code": "class Net: pass"}, "no_inputs"),
        (good | {"python_code": source().replace("forward", "backward")}, "no_forward"),
        (good | {"python_code": source() + "# a comment\n" * 201}, "too_long"),
        (good | {"python_code": "(" * 5000}, "syntax"),
        (good | {"python_code": "x" * (1 << 20) + "x"}, "too_long"),
        (good | {"licenses": ["GPL-3.0"]}, "license"),
        (good, "duplicate"),
        # Other names, sizes, comments and annotations: the same module.
        (good | {"python_code": renamed, "entry_point": "Mine"}, "duplicate"),
        # A step of its own is not the same text, and not taken for it.
        (good | {"python_code": source(body="y = self.layer(x)\n        return torch.relu(y)")}, None),
        (good | {"python_code": source(body="return torch.tanh(self.layer(x))")}, None),
    ]  # fmt: skip
    done = prepare(tmp_path, [row for row, _ in rows], "--static")
    assert done.returncode == 0, done.stderr
    want = {i: reason for i, (_, reason) in enumerate(rows, 1) if reason}
    assert dropped(tmp_path) == want
    summary = json.loads((tmp_path / "data/processed/prepare.json").read_text())
    assert summary["dropped"] == dict(Counter(want.values()))
    assert (summary["rows"], summary["kept"], summary["checked"]) == (len(rows), 3, "static")
    names = [row["name"] for row in lines(tmp_path, "tasks.jsonl")]
    assert len(set(names)) == 3 and names[0] == "rows.json/5"


def test_rows_for_fine_tuning_and_labels(tmp_path: Path) -> None:
    chain = "return " + "torch.sin(" * 9 + "x" + ")" * 9
    rows = [
        {
            "pytorch_code": source(body="return torch.relu(x.view(4, -1))"),
            "entry_point": "Net",
            "triton_code": answer(),
        },
        {"pytorch_code": source(), "entry_point": "Net", "triton_code": "class Wrong: pass", "name": "two"},
        {"pytorch_code": source(body=chain), "entry_point": "Net", "triton_code": "def ("},
        {"pytorch_code": source("Model", "return torch.exp(x) @ x"), "level": 4, "name": "given"},
    ]
    done = prepare(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "--static", suffix=".jsonl")
    assert done.returncode == 0, done.stderr
    labels = lines(tmp_path, "difficulty_labels.jsonl")
    assert [(row["difficulty"], row["operations"]) for row in labels] == [(1, 1), (2, 2), (3, 9), (3, 2)]
    assert [row["method"] for row in labels] == ["syntax_tree"] * 3 + ["given"]
    # Issue 22, point 5: the labels are a list of tasks by themselves.
    tasks = lines(tmp_path, "tasks.jsonl")
    assert [row["pytorch_code"] for row in labels] == [row["pytorch_code"] for row in tasks]
    assert [row["entry_point"] for row in labels] == ["Net", "Net", "Net", "Model"]
    assert all(row["pytorch_code"] in row["instruction"] and "New`" in row["instruction"] for row in labels)
    again = call(tmp_path, f"--file={tmp_path / 'rows.jsonl'}", "--static", f"--workdir={tmp_path / 'again'}",
                 f"--overlap={tmp_path / 'data/processed/difficulty_labels.jsonl'}")  # fmt: skip
    assert again.returncode == 1 and set(dropped(tmp_path / "again").values()) == {"overlap"}, again.stderr
    (row,) = lines(tmp_path, "sft_train.jsonl")
    assert row["output"] == f"```python\n{answer()}```\n" and "`NetNew`" in row["instruction"]
    assert row["prompt"].startswith("sha256:") and row["verified"] == "no"
    assert dropped(tmp_path) == {2: "answer_class", 3: "answer_syntax"}  # of the answer alone: the tasks are there
    assert len(lines(tmp_path, "tasks.jsonl")) == 4
    assert "50.0%" in done.stdout or "25.0%" in done.stdout


@pytest.mark.parametrize("is_array", [False, True])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, is_array: bool) -> None:
    """Of a file, or of a module: Python runs one that begins so."""
    rows = [{"code": source("Model")}, {"code": "\ufeff" + source("Model", "return x + 2")}]
    text = json.dumps(rows) if is_array else "".join(json.dumps(row) + "\n" for row in rows)
    done = prepare(tmp_path, "\ufeff" + text, "--static", suffix=".jsonl")
    assert done.returncode == 0 and dropped(tmp_path) == {}, done.stderr
    assert [row["pytorch_code"][0] for row in lines(tmp_path, "tasks.jsonl")] == [source("Model")[0]] * 2


def test_a_level_may_be_real_or_text(tmp_path: Path) -> None:
    """As pandas writes a column of which some are missing."""
    levels: list[object] = [3.0, "3", 2.5, True, None]
    rows = [
        {"code": source("Model", f"return x + {i}"), "level": level, "problem_id": level}
        for i, level in enumerate(levels)
    ]
    done = prepare(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "--static", suffix=".jsonl")
    assert done.returncode == 0, done.stderr
    assert [row["level"] for row in lines(tmp_path, "tasks.jsonl")] == [3, 3, 1, 1, 1]
    assert [row.get("problem_id") for row in lines(tmp_path, "tasks.jsonl")] == [3, 3, None, None, None]


def test_a_problem_keeps_its_number(tmp_path: Path) -> None:
    """Whether KernelBench comes from the hub, by column, or as the files of its repository, by name."""
    rows = [
        {"code": source("Model"), "level": 2, "name": "12_Net", "problem_id": 12},
        {"code": source("Model", "return x + 1"), "level": 2, "name": "none"},
        {"code": source("Model", "return x + 2"), "level": 2, "name": "0_zero", "problem_id": "x"},
    ]
    assert prepare(tmp_path, rows, "--static").returncode == 0
    assert [row.get("problem_id") for row in lines(tmp_path, "tasks.jsonl")] == [12, None, None]
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "7_Seventh.py").write_text(source("Model"))
    assert call(tmp_path, f"--file={level.parent}", "--static").returncode == 0
    assert [(row["name"], row["problem_id"]) for row in lines(tmp_path, "tasks.jsonl")] == [("level1/7_Seventh", 7)]


def test_schemas_name_the_columns_that_are_written(tmp_path: Path) -> None:
    rows = [{"python_code": source(), "entry_point": "Net", "triton_code": answer(), "licenses": ["MIT"]}]
    assert prepare(tmp_path, rows, "--static").returncode == 0
    for name in ("sft_train", "difficulty_labels"):
        schema = json.loads((TESTS.parent / "proto" / f"{name}.schema.json").read_text())
        for row in lines(tmp_path, f"{name}.jsonl"):
            assert set(row) == set(schema["required"]) == set(schema["properties"])


def test_tasks_of_the_evaluation_are_left_out(tmp_path: Path) -> None:
    checkout = tmp_path / "KernelBench"
    (checkout / "level1").mkdir(parents=True)
    (checkout / "level1" / "1_relu.py").write_text(source("Model", size=4096))
    rows = [
        {"python_code": source(), "entry_point": "Net"},
        {"python_code": source(body="return x"), "entry_point": "Net"},
    ]
    done = prepare(tmp_path, rows, "--static", f"--overlap={checkout}")
    assert done.returncode == 0, done.stderr
    (row,) = lines(tmp_path, "dropped.jsonl")
    assert (row["row"], row["reason"], row["detail"]) == (1, "overlap", "level1/1_relu")
    # The checkout itself as the data set.
    assert call(tmp_path, f"--file={checkout}", "--static").returncode == 0
    (task,) = lines(tmp_path, "tasks.jsonl")
    assert (task["name"], task["level"]) == ("level1/1_relu", 1)


def test_it_stops_when_enough_are_kept(tmp_path: Path) -> None:
    rows = [{"python_code": source(body=f"return x + {i}"), "entry_point": "Net"} for i in range(20)]
    assert prepare(tmp_path, rows, "--static", "--max-samples=7").returncode == 0
    assert len(lines(tmp_path, "tasks.jsonl")) == 7
    assert json.loads((tmp_path / "data/processed/prepare.json").read_text())["rows"] == 7
    assert prepare(tmp_path, rows, "--static", "--max-samples=0").returncode == 0
    assert len(lines(tmp_path, "tasks.jsonl")) == 20


@pytest.mark.parametrize(
    ("rows", "arguments", "status", "why"),
    [
        ("[{}", ["--static"], 3, "ends inside its array"),
        ("[]", ["--static", "--python=/nowhere/python"], 3, "/nowhere/python"),
        ("[]", ["--static", "--overlap=/nowhere"], 3, "/nowhere"),
        ("[]", ["--static", "--verify"], 2, "--verify"),
        ("[]", ["--verify", "--policy=kernelbnch"], 2, "--policy"),
        ("[]", ["--policy=strict"], 2, "--verify, too"),
        ("[]", ["--static", "--revision=v1"], 2, "--revision"),
        ("[]", ["--file=/nowhere.json", "--static"], 3, "/nowhere.json"),
        ('["no row"]', ["--static"], 1, "no row is kept"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, rows: str, arguments: list[str], status: int, why: str) -> None:
    done = prepare(tmp_path, rows, *arguments)
    assert done.returncode == status and why in done.stderr, done.stderr
    assert not list((tmp_path / "data").glob("**/*.jsonl*")) or status == 1
    assert call(tmp_path).returncode == 2


def bare(tmp_path: Path) -> Path:
    """A Python without packages."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return program


def test_a_parquet_file_without_its_reader_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = prepare(tmp_path, "PAR1", "--static", f"--python={bare(tmp_path)}", suffix=".parquet")
    assert done.returncode == 3 and "pyarrow" in done.stderr
    # Without --python it is the one that trains.
    monkeypatch.setenv("TRAINER_PYTHON", str(bare(tmp_path)))
    command = [str(TRAINER), "prepare", f"--workdir={tmp_path}", f"--file={tmp_path / 'rows.parquet'}", "--static"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3 and "pyarrow" in done.stderr


def test_a_parquet_file_is_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import Table, parquet

    rows = [{"python_code": source(), "entry_point": "Net", "triton_code": answer(), "uuid": 1, "licenses": ["MIT"]}]
    parquet.write_table(Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert call(tmp_path, f"--file={tmp_path / 'rows.parquet'}", "--static").returncode == 0
    assert len(lines(tmp_path, "sft_train.jsonl")) == 1
    (tmp_path / "broken.parquet").write_bytes((tmp_path / "rows.parquet").read_bytes()[:-8])
    done = call(tmp_path, f"--file={tmp_path / 'broken.parquet'}", "--static")
    assert done.returncode == 3 and "broken.parquet" in done.stderr


def test_a_saved_data_set_is_read(tmp_path: Path) -> None:
    """As datasets.Dataset.save_to_disk() leaves it."""
    datasets = pytest.importorskip("datasets")
    rows = [{"python_code": source(), "entry_point": "Net", "triton_code": answer(), "uuid": 1, "licenses": ["MIT"]}]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    done = call(tmp_path, f"--file={tmp_path / 'saved'}", "--static")
    assert done.returncode == 0, done.stderr
    assert [row["name"] for row in lines(tmp_path, "tasks.jsonl")] == ["saved/1"]


def test_a_source_that_ends_its_parser_is_one_row_less(tmp_path: Path) -> None:
    """Each source is parsed in a process that may end: the rows around it are kept."""
    rows = [{"python_code": source(body=f"return x + {i}"), "entry_point": "Net"} for i in range(3)]
    rows[1]["python_code"] += "# ends its parser\n"
    (tmp_path / "sitecustomize.py").write_text(
        "import ast, os\nwhole = ast.parse\n"
        "ast.parse = lambda text, *a, **k: os._exit(1) if '# ends its' in str(text) else whole(text, *a, **k)\n"
    )
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    done = prepare(tmp_path, rows, "--static", f"--python={program}")
    assert done.returncode == 0, done.stderr
    (row,) = lines(tmp_path, "dropped.jsonl")
    assert (row["row"], row["reason"]) == (2, "syntax") and "ended the interpreter" in row["detail"]
    assert len(lines(tmp_path, "tasks.jsonl")) == 2


def corpus_row(task: str, label: str | None, entry: str = "Model") -> Json:
    row = {"name": f"{task}-{label}", "python_code": (TESTS / "tasks" / f"{task}.py").read_text(), "entry_point": entry}
    if label:
        row["triton_code"] = (TESTS / "candidates" / task / f"{label}.py").read_text()
    return row


def test_references_are_run_and_answers_judged(client: service.Client, tmp_path: Path) -> None:
    draws = source(body="return torch.rand_like(self.layer(x))")
    loop = "for _ in range(9): x = torch.sin(x)\n        return x"
    rows = [
        corpus_row("kernelbook_contrastive", "honest", "ContrastiveMargin"),
        corpus_row("softmax", "unnormalised"),
        {"python_code": source(body="return x @ x[:2]"), "entry_point": "Net", "name": "shapes"},
        {"python_code": draws, "entry_point": "Net", "name": "draws"},
        {"python_code": source(body="return torch.zeros(4) * self.layer(x).sum() * 0"), "entry_point": "Net"},
        {"python_code": source(body=loop), "entry_point": "Net", "name": "loop"},
    ]
    arguments = (f"--url={client.url}", "--verify")
    done = prepare(tmp_path, rows, *arguments)
    assert done.returncode == 0, done.stderr
    assert dropped(tmp_path) == {2: "answer_fails", 3: "does_not_run", 4: "random", 5: "constant"}
    assert [row["id"] for row in lines(tmp_path, "sft_train.jsonl")] == ["kernelbook_contrastive-honest"]
    assert [row["name"] for row in lines(tmp_path, "tasks.jsonl")] == [
        "kernelbook_contrastive-honest",
        "softmax-unnormalised",
        "loop",
    ]
    labels = {row["id"]: row for row in lines(tmp_path, "difficulty_labels.jsonl")}
    assert {row["method"] for row in labels.values()} == {"traced_graph"}
    assert (labels["loop"]["operations"], labels["loop"]["difficulty"]) == (9, 3)
    assert labels["softmax-unnormalised"]["difficulty"] == 1
    # Begun again it asks nothing of a daemon that it has heard before: there is none there.
    first = {name: lines(tmp_path, f"{name}.jsonl") for name in ("tasks", "sft_train", "dropped", "difficulty_labels")}
    again = prepare(tmp_path, rows, "--url=http://127.0.0.1:9", "--verify")
    assert again.returncode == 0, again.stderr
    assert {name: lines(tmp_path, f"{name}.jsonl") for name in first} == first


def fuse(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(TRAINER), "fuse", f"--workdir={tmp_path}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_composed_tasks_are_tasks(tmp_path: Path) -> None:
    assert fuse(tmp_path, "--static", "--number=300", "--seed=3").returncode == 0
    rows = lines(tmp_path, "fused.jsonl")
    assert len({row["name"] for row in rows}) == 300 and {row["level"] for row in rows} == {2}
    assert fuse(tmp_path, "--static", "--number=300", "--seed=3", "--output=again.jsonl").returncode == 0
    assert lines(tmp_path, "again.jsonl") == rows
    assert fuse(tmp_path, "--static", "--number=300", "--seed=4", "--output=other.jsonl").returncode == 0
    assert lines(tmp_path, "other.jsonl") != rows
    # No two are the same module, and what each says of its operations is what is counted.
    done = call(tmp_path, f"--file={tmp_path / 'data/processed/fused.jsonl'}", "--static")
    assert done.returncode == 0, done.stderr
    assert lines(tmp_path, "dropped.jsonl") == []
    said = {row["name"]: row["operations"] for row in rows}
    assert {row["id"]: row["operations"] for row in lines(tmp_path, "difficulty_labels.jsonl")} == said


@pytest.mark.slow
def test_patterns_are_mined_from_real_modules(tmp_path: Path) -> None:
    """Issue 22, point 6: by torch.fx, before the grammar's own; and joined with the tasks that are there."""
    there = tmp_path / "tasks.jsonl"
    there.write_text(json.dumps({"name": "old", "pytorch_code": source(), "level": 2}))  # without a newline
    done = fuse(tmp_path, "--static", "--number=20", "--mined", f"--with={there}", f"--python={sys.executable}")
    assert done.returncode == 0, done.stderr
    rows = lines(tmp_path, "fused.jsonl")
    mined = {row["name"]: row for row in rows if row["source"] == "mined"}
    assert len(rows) == 20 and [row["source"] for row in rows] == ["mined"] * len(mined) + ["fuse"] * (20 - len(mined))
    for kind in ("conv2d3x3_batchnorm2d_relu", "linear_gelu", "layernorm_transpose_gelu"):
        assert f"mined/{kind}" in mined, sorted(mined)
    for row in mined.values():
        space: Json = {}
        exec(row["pytorch_code"], space)  # ours, of the line above
        assert space["Model"]()(*space["get_inputs"]()).numel() > 1
        assert row["operations"] >= 2 and row["level"] == 2
    assert [row["name"] for row in lines(tmp_path, "rl_tasks.jsonl")] == ["old", *(row["name"] for row in rows)]
    done = fuse(tmp_path, "--static", "--mined", f"--python={bare(tmp_path)}")
    assert done.returncode == 3 and "the patterns of --mined were not found" in done.stderr


def test_composed_tasks_run(client: service.Client, tmp_path: Path) -> None:
    done = fuse(tmp_path, f"--url={client.url}", "--number=6", "--seed=1")
    assert done.returncode == 0, done.stderr
    assert [row["checked"] for row in lines(tmp_path, "fused.jsonl")] == ["ran"] * 6


TRITONBENCH = '''import torch
import torch.nn.functional as F

def add_gelu(input, other, alpha=1, approximate='none'):
    """Adds and activates."""
    return F.gelu(input + alpha * other, approximate=approximate)

''' + "#" * 146 + """


import torch

SIZE = 8

def test_add_gelu():
    results = {}
    # Test case 1
    x = torch.randn(SIZE, 4)
    y = torch.randn(SIZE, 4)
    results["test_case_1"] = add_gelu(x, y, alpha=2)
    results["test_case_2"] = add_gelu(x, 0.5)
    return results

test_results = test_add_gelu()
"""  # fmt: skip


def test_tritonbench_is_read(client: service.Client, tmp_path: Path) -> None:
    there = tmp_path / "TritonBench_T_v1"
    there.mkdir()
    (there / "add_gelu.py").write_text(TRITONBENCH)
    (there / "loop.py").write_text(TRITONBENCH.replace("    results[", "    for i in range(2): results["))
    (there / "untested.py").write_text(TRITONBENCH.replace("= add_gelu(", "= other("))
    (there / "stars.py").write_text(TRITONBENCH.replace("add_gelu(x, y, alpha=2)", "add_gelu(*[x, y])"))
    done = call(tmp_path, f"--file={there}", "--source=tritonbench", f"--url={client.url}")
    assert done.returncode == 0, done.stderr
    (task,) = lines(tmp_path, "tasks.jsonl")
    assert (task["name"], task["entry_point"], task["checked"]) == ("add_gelu", "Model", "ran")
    assert "return add_gelu(x0, x1, alpha=x2)" in task["pytorch_code"] and "test_" not in task["pytorch_code"]
    assert {row["id"]: row["reason"] for row in lines(tmp_path, "dropped.jsonl")} == dict.fromkeys(
        ("loop", "untested", "stars"), "no_inputs"
    )


@pytest.mark.parametrize(
    ("body", "level"),
    [
        ("return torch.relu(x)", 1),
        ("return self.layer(x)", 1),
        ("return torch.relu(self.layer(x))", 2),
        ("return x.exp().sum()", 2),
        ("return torch.relu(x)  # fused", 2),
        ("return torch.relu(x)  # a Fusion of two", 2),
        ("return torch.relu(x)  # what is combined here", 2),
        ("return torch.relu(x)  # level 3: a whole model", 3),
        ("return (x + y) * z", 2),
        ("return x @ y + z", 2),
        ("return x + y", 1),
        ("return x - 2 * 3", 1),
        ("return x" + " + x" * 30, 2),
    ],
)
def test_the_plain_heuristic(tmp_path: Path, body: str, level: int) -> None:
    rows = [{"python_code": source(body=body), "entry_point": "Net"}]
    assert prepare(tmp_path, rows, "--static", "--labels=heuristic").returncode == 0
    (row,) = lines(tmp_path, "difficulty_labels.jsonl")
    assert (row["difficulty"], row["method"]) == (level, "heuristic")
    assert prepare(tmp_path, rows, "--static", "--labels=guess").returncode == 2


def timed(reference: str) -> Json:
    """A machine on which time grows with the first input's elements: 65,536 of them take 10 us."""
    found = re.search(r"torch\.rand\w*\(\[?(\d+), (\d+)", reference)
    assert found, reference
    ms = int(found[1]) * int(found[2]) / 65536 * 0.01
    return {"outcome": "too_small", "reference_ms": None} if ms < 0.001 else {"outcome": "measured", "reference_ms": ms}


def too_large(method: str, path: str, body: Json) -> Reply | None:
    refused = path == "/v1/tasks" and "torch.sin" in body["reference"] and "torch.rand([4," not in body["reference"]
    return document(422, {"detail": "the reference raised: no such size"}) if refused else None


def test_shapes_are_enlarged_until_the_reference_can_be_timed(tmp_path: Path) -> None:
    rows = [
        {"python_code": source(), "entry_point": "Net", "name": "small", "triton_code": answer()},
        {"python_code": source(body="return x.cos()", size=262144), "entry_point": "Net", "name": "enough"},
        {"python_code": source(body="return torch.sin(x)"), "entry_point": "Net", "name": "fixed"},
        {"python_code": source(body="return x.exp()", size=1 << 28), "entry_point": "Net", "name": "long"},
    ]
    rows[2]["triton_code"] = answer()
    with fake_daemon() as judge:
        judge.gpus, judge.timing, judge.faults = [{"name": "a GPU"}], timed, [too_large] * 1000
        done = prepare(tmp_path, rows, f"--url={judge.url}", "--enlarge")
        assert done.returncode == 0, done.stderr
        tasks = {row["name"]: row for row in lines(tmp_path, "tasks.jsonl")}
        assert list(tasks) == ["small", "enough"] and {row["timing"] for row in tasks.values()} == {"window"}
        assert all(0.05 <= row["reference_ms"] <= 20 for row in tasks.values())
        small = tasks["small"]
        assert small["pytorch_code_own"] == rows[0]["python_code"] and small["enlarged"]["how"] == "batch"
        factor = small["enlarged"]["factor"]
        assert f"torch.rand([{4 * factor}, 4])" in small["pytorch_code"] and "nn.Linear(4, 8)" in small["pytorch_code"]
        assert "enlarged" not in tasks["enough"]
        assert dropped(tmp_path) == {3: "run_time", 4: "run_time"}
        # Fine-tuning needs no time: the row whose shape cannot be changed is there.
        sft = {row["id"]: row for row in lines(tmp_path, "sft_train.jsonl")}
        assert list(sft) == ["small", "fixed"] and sft["small"]["pytorch_code"] == rows[0]["python_code"]
        asked = len(judge.asked)
        again = prepare(tmp_path, rows, f"--url={judge.url}", "--enlarge")
        assert again.returncode == 0 and len(judge.asked) == asked + 1  # has it a GPU?
        assert {row["name"]: row for row in lines(tmp_path, "tasks.jsonl")} == tasks
        # And without one.
        judge.gpus = []
        none = prepare(tmp_path, rows, f"--url={judge.url}", "--enlarge")
        assert none.returncode == 0 and "no GPU" in none.stderr
        assert {row["timing"] for row in lines(tmp_path, "tasks.jsonl")} == {"untimed"}
    assert prepare(tmp_path, rows, "--static", "--enlarge").returncode == 2


def test_constants_grow_and_structure_does_not(tmp_path: Path) -> None:
    text = """import torch

N = 4
heads = 2


class Model(torch.nn.Module):
    def forward(self, x, y):
        return x + y


def get_inputs():
    return [torch.rand(N, 4 * 3), torch.rand(N, 12)]


def get_init_inputs():
    return []
"""
    with fake_daemon() as judge:
        judge.gpus, judge.timing = [{}], lambda reference: timed(reference.replace("(N", f"({number(reference)}"))
        rows = [{"code": text, "name": "constants"}]
        assert prepare(tmp_path, rows, f"--url={judge.url}", "--enlarge").returncode == 0
    (task,) = lines(tmp_path, "tasks.jsonl")
    assert f"N = {4 * task['enlarged']['factor']}\n" in task["pytorch_code"] and "heads = 2" in task["pytorch_code"]
    assert "torch.rand(N, 4 * 3), torch.rand(N, 12)" in task["pytorch_code"]


def number(reference: str) -> int:
    return int(next(line for line in reference.splitlines() if line.startswith("N = ")).removeprefix("N = "))


@pytest.mark.gpu
def test_enlarged_on_a_gpu(client: service.Client, gpu: bool, tmp_path: Path) -> None:
    if not gpu:
        pytest.skip("needs a GPU: shapes are enlarged until the reference runs 50 us to 20 ms")
    rows = [corpus_row("kernelbook_contrastive", None, "ContrastiveMargin"), corpus_row("softmax", None)]
    assert prepare(tmp_path, rows, f"--url={client.url}", "--enlarge").returncode == 0
    for row in lines(tmp_path, "tasks.jsonl"):
        assert row["timing"] == "window" and 0.05 <= row["reference_ms"] <= 20


COLUMNS = (
    "python_code", "pytorch_code", "reference", "code", "triton_code", "output", "original_triton_code", "entry_point",
    "name", "id", "uuid", "licenses", "license", "level", "difficulty", "problem_id", "instruction", "repo_name",
    "module_name", "synthetic", "stars", "sha", "repo_link",
)  # fmt: skip
BROKEN = (
    "null", "true", "5", "-1", "1e300", '""', '" "', "[]", "[null, 5]", "{}", '{"a": [1]}', '"\\u0000"', '"\\ud800"',
    '"\\udc80x"', '"' + "x" * 70000 + '"', "[[[[[[1]]]]]]", "NaN", "1e999",
)  # fmt: skip


def test_a_row_broken_in_each_of_its_columns(tmp_path: Path) -> None:
    good = {"python_code": source(), "entry_point": "Net", "triton_code": answer(), "uuid": 1, "licenses": ["MIT"]}
    rows: list[str] = []
    broken: dict[int, tuple[str, str]] = {}
    for column in COLUMNS:
        for value in BROKEN:
            row = good | {"python_code": source(body=f"return self.layer(x) * {len(rows) + 2}.5")}
            row.pop(column, None)
            rows.append(json.dumps(row)[:-1] + f', "{column}": {value}}}')
            broken[len(rows)] = (column, value)
    rows.append(json.dumps(good | {"name": "the last"}))
    done = prepare(tmp_path, "\n".join(rows) + "\n", "--static", "--max-samples=0", suffix=".jsonl")
    assert done.returncode == 0, done.stderr
    tasks = lines(tmp_path, "tasks.jsonl")
    reasons = dropped(tmp_path)
    assert tasks[-1]["name"] == "the last"
    # Each row is a task, or says why not; an answer that is left out may say so beside its task.
    assert len(tasks) + len([n for n, why in reasons.items() if not why.startswith("answer_")]) == len(rows)
    assert len({row["name"] for row in tasks}) == len(tasks)
    said = {broken[n]: why for n, why in reasons.items()}
    for value in BROKEN:
        assert ("python_code", value) in said  # there is no task without one
    for value in ("NaN", "1e999", '"\\ud800"', '"\\udc80x"'):
        assert said["repo_link", value] == "not_json"
    assert said["python_code", '"\\u0000"'] == "not_json" and said["entry_point", "5"] == "column_type"
    assert said["entry_point", '""'] == "no_entry_class" and said["licenses", "[null, 5]"] == "license"
    # Columns that mean nothing here may hold anything that is JSON.
    for column in ("repo_name", "module_name", "synthetic", "stars", "sha", "repo_link", "instruction"):
        assert {why for (name, _), why in said.items() if name == column} <= {"not_json"}


FILES = ("tasks", "sft_train", "difficulty_labels", "dropped")


def numbered(n: int) -> list[Json]:
    return [
        {
            "python_code": source(body=f"return self.layer(x) * {i}.5"),
            "entry_point": "Net",
            "name": f"row{i}",
            "triton_code": answer(),
        }
        for i in range(n)
    ]


class Crowd:
    """A daemon's answers to registrations, of which some wait for others: who was asked of, and how many at once."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.here: list[str] = []
        self.now = self.most = 0
        self.is_open = False

    def hold(self, many: int, name: str) -> None:
        """Return once `many` wait here, or the doors are open."""
        with self.changed:
            self.here.append(name)
            self.now += 1
            self.most = max(self.most, self.now)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.now >= many or self.is_open, 60)
            self.is_open = self.is_open or self.now >= many
            self.changed.notify_all()

    def leave(self) -> None:
        with self.changed:
            self.now -= 1


def test_several_rows_are_asked_of_at_once_and_written_in_their_order(tmp_path: Path) -> None:
    """A daemon that answers nothing before four are there; and of those, the last first."""
    rows = numbered(12)
    rows.insert(3, rows[1])  # a duplicate of a row that is still being asked of
    rows.insert(5, {"python_code": 5})
    rows.insert(7, rows[6] | {"python_code": source(body="return torch.sin(x)"), "name": "row2"})  # a name once more
    crowd, turn = Crowd(), threading.Condition()
    served: list[str] = []

    def slowly(method: str, path: str, body: Json) -> Reply | None:
        if path != "/v1/tasks":
            return None
        crowd.hold(4, body["name"])
        with turn:  # of the first four, the first one last
            if body["name"] == "row0":
                turn.wait_for(lambda: len(served) >= 3, 60)
            served.append(body["name"])
            turn.notify_all()
        crowd.leave()
        bad = body["name"] in ("row4", "row9")
        return document(422, {"detail": "the reference raised: no"}) if bad else None

    written: dict[str, list[list[Json]]] = {}
    with fake_daemon() as judge:
        for concurrency in ("4", "1"):
            crowd.is_open = concurrency == "1"
            judge.faults, crowd.most = [slowly] * 1000, 0
            there = tmp_path / concurrency
            there.mkdir()
            done = prepare(there, rows, f"--url={judge.url}", f"--concurrency={concurrency}", "--verify")
            assert done.returncode == 0, done.stderr
            written[concurrency] = [lines(there, f"{name}.jsonl") for name in FILES]
            assert crowd.most == int(concurrency)
    assert served.index("row0") >= 3
    assert written["4"] == written["1"]
    names = [row["name"] for row in written["4"][0]]
    assert names == [*(f"row{i}" for i in (0, 1, 2, 3)), "row2-row8", "row5", "row6", "row7", "row8", "row10", "row11"]
    assert dropped(tmp_path / "4") == {4: "duplicate", 6: "no_reference", 7: "does_not_run", 13: "does_not_run"}


def test_no_row_is_asked_of_that_is_not_needed(tmp_path: Path) -> None:
    with fake_daemon() as judge:
        assert prepare(tmp_path, numbered(30), f"--url={judge.url}", "--max-samples=5").returncode == 0
        asked = [body["name"] for _, path, body in judge.asked if path == "/v1/tasks"]
    assert sorted(asked) == [f"row{i}" for i in range(5)]
    assert json.loads((tmp_path / "data/processed/prepare.json").read_text())["rows"] == 5


def test_a_killed_prepare_asks_for_nothing_twice(tmp_path: Path) -> None:
    """Killed again and again, with rows answered behind others that are not: sixteen are in flight, by four."""
    file, journal = tmp_path / "rows.json", tmp_path / "data/processed/prepare.journal.jsonl"
    file.write_text(json.dumps(numbered(40)))
    # Which are stuck, and how many are answered when all that is in flight behind the first of them is.
    kills = [({"row1", "row3"}, 15), ({"row1"}, 16), ({"row20", "row30"}, 34)]
    held: set[str] = set()
    stuck: set[str] = set()

    def answered() -> int:
        text = journal.read_text() if journal.exists() else ""
        records = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return len({record["key"] for record in records if "key" in record})

    gone = threading.Event()

    def hold(method: str, path: str, body: Json) -> Reply | None:
        if body.get("name") in held:
            stuck.add(body["name"])
            gone.wait(60)
        return None

    with fake_daemon() as judge:
        judge.faults = [hold] * 1000
        arguments = (f"--workdir={tmp_path}", f"--python={sys.executable}", f"--file={file}", f"--url={judge.url}")
        command = [str(TRAINER), "prepare", *arguments, "--concurrency=4", "--verify"]
        for held, many in kills:
            stuck.clear()
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            deadline = time.monotonic() + 60
            while (answered() < many or stuck < held) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert answered() == many and stuck == held
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            assert children, "it has parsers"
            process.kill()
            process.wait()
            while any(Path(f"/proc/{child}/exe").exists() for child in children) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert not any(Path(f"/proc/{child}/exe").exists() for child in children)
            assert not (tmp_path / "data/processed/tasks.jsonl").exists()
            with journal.open("ab") as out:
                out.write(b'{"key":"sha256:0')  # what a crash leaves
        held = set()
        gone.set()
        assert call(tmp_path, *arguments[2:], "--verify").returncode == 0
        counts = Counter(body["name"] for _, path, body in judge.asked if path == "/v1/tasks")
        asked = len(judge.asked)
        assert call(tmp_path, *arguments[2:], "--verify").returncode == 0 and len(judge.asked) == asked
    assert counts == dict.fromkeys((f"row{i}" for i in range(40)), 1) | {"row1": 3, "row3": 2, "row20": 2, "row30": 2}
    for name in ("tasks", "sft_train"):
        rows = lines(tmp_path, f"{name}.jsonl")
        assert [row.get("name", row.get("id")) for row in rows] == [f"row{i}" for i in range(40)]
