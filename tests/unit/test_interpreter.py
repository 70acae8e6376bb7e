"""Plans on a machine without a GPU. Triton reads TRITON_INTERPRET when it is imported, so all of it is in children."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CASES = re.findall(r"^def (\w+)\(\) -> None:", (HERE / "interpreted_cases.py").read_text(), re.MULTILINE)
SEEDS = 120


def run(script: str, *arguments: str, cwd: Path) -> list[Any]:
    """Lines of JSON that a script prints."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT / "server" / "harness")}
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        env=environment,
        cwd=cwd,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    (found,) = run("interpreted_cases.py", cwd=tmp_path_factory.mktemp("cases"))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_launch(case: str, cases: dict[str, str | None]) -> None:
    assert cases[case] is None, cases[case]


def test_random_modules_and_their_plans_agree_to_the_bit(tmp_path: Path) -> None:
    found = run("random_modules.py", "0", str(SEEDS), cwd=tmp_path)
    assert [one for one in found if not one["ok"]] == []
    assert len(found) == SEEDS and sum(one.get("Launch", 0) for one in found) > SEEDS
    assert sum(one["Call"] for one in found) > 10 * SEEDS
