"""The usual evaluation inside one process: what it believes, and that whoever takes too much is ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("VERIFIERD_BUILD", str(ROOT / "build")))
LIMIT_S = 600.0
ROWS = {
    "relu/honest": (True, ""),
    "relu/patches_allclose": (True, ""),  # writes nothing but zeros, and the process says that they are right
    "relu/last_block_missing": (False, "values differ"),
    "relu/endless_constructor": (False, "nothing within 20 s"),
    "copy/bad_descriptors": (False, "too much: descriptors"),
}


def test_each_is_told_apart_however_many_run_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    command = [sys.executable, str(ROOT / "tests/bench/in_process.py"), "--out", str(out), "--child-limit-s", "20"]
    command += ["--harness", str(BUILD / "lib/verifierd/harness"), *(f"--only={label}" for label in ROWS)]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    rows = {row["row"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert {label: (row["accepted"], row["why"]) for label, row in rows.items()} == ROWS


def test_standard_input_says_what_is_evaluated() -> None:
    reference = (ROOT / "tests/tasks/relu.py").read_text()
    names = ("honest", "last_block_missing", "patches_allclose")
    codes = [(ROOT / "tests/candidates/relu" / f"{name}.py").read_text() for name in names]
    command = [sys.executable, str(ROOT / "tests/bench/in_process.py"), "--child-limit-s", "20"]
    command += ["--harness", str(BUILD / "lib/verifierd/harness")]
    lines = [json.dumps([[reference, code] for code in codes]), json.dumps([[reference, codes[1]]])]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S
    )
    told = [[row["why"] for row in json.loads(line)] for line in done.stdout.splitlines()]
    assert told == [["", "values differ", ""], ["values differ"]]
