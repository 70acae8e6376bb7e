"""trainer compare: evaluations side by side. No daemon is needed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import service

TRAINER = service.BINARY.with_name("trainer")
Json = dict[str, Any]


def metrics(correct: float) -> Json:
    return {
        "valid_rate": 90.0, "compiled_rate": 80.0, "correct_rate": correct, "fast_p": {"1": 5.0, "1.5": None},
        "pass_at": {"1": correct}, "speedup_geomean": None,
    }  # fmt: skip


def evaluation(directory: Path, name: str, correct: set[int], **other: object) -> Path:
    """Of ten tasks of level 1 and ten of level 2, those with these numbers are right."""
    rows = [
        {"id": f"t{i}", "level": 1 + i // 10, "sample": sample, "class": "ok" if i in correct else "mismatch",
         "components": {"correct": int(i in correct and sample == 0)}}
        for i in range(20) for sample in range(2)
    ]  # fmt: skip
    ones = len([i for i in correct if i < 10])
    document = {
        "name": name, "prompt": "sha256:a", "policy": "strict", "num_tasks": 20, "metrics": metrics(5.0 * len(correct)),
        "levels": {"1": metrics(10.0 * ones), "2": metrics(10.0 * (len(correct) - ones))}, "detailed_results": rows,
    }  # fmt: skip
    path = directory / "outputs" / f"eval_{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document | other))
    return path


def compare(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(TRAINER), "compare", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_evaluations_stand_side_by_side(tmp_path: Path) -> None:
    base = evaluation(tmp_path, "base", {0, 1, 10})
    evaluation(tmp_path, "tuned", {0, 1, 2, 3, 10, 11})
    page = tmp_path / "page.html"
    done = compare(base, "tuned", f"--workdir={tmp_path}", "--published=Tri<ton=63,7", f"--html={page}")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^level 1 +base +tuned +Tri<ton", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^correct +20\.0% +40\.0% +63\.0%", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^correct \+- +\+20\.0 \(\+0\.0 to \+\d+\.\d; n=10\) +published", done.stdout, re.MULTILINE)
    assert re.search(r"^all +base", done.stdout, re.MULTILINE) and done.stderr == ""
    text = page.read_text()
    assert "Tri&lt;ton (published)" in text and "<svg" in text and "Tri<ton" not in text
    assert text.count("<rect") == 2 * 3 + 2  # both levels, and all, of which nobody published anything


def test_every_figure_of_an_evaluation_has_its_row(tmp_path: Path) -> None:
    fast = {"0": 61.0, "0.5": 52.0, "0.8": 43.0, "1": 34.0, "1.5": 25.0, "2": 16.0}
    more = {"extracted_rate": 97.0, "fast_p": fast, "speedup_geomean": 1.21, "speedup_median": 1.32}
    rates = metrics(50.0) | more
    evaluation(tmp_path, "base", {0}, metrics=rates, levels={"1": rates})
    done = compare("base", f"--workdir={tmp_path}")
    assert done.returncode == 0, done.stderr
    want = {"extracted": "97.0%", "speed-up": "1.21", "median": "1.32"} | {
        f"fast_{p}": f"{x}%" for p, x in fast.items()
    }
    for name, value in want.items():
        assert len(re.findall(rf"^{re.escape(name)} +{re.escape(value)} *$", done.stdout, re.MULTILINE)) == 2, name


def test_the_same_for_programs(tmp_path: Path) -> None:
    evaluation(tmp_path, "base", {0, 1, 10})
    evaluation(tmp_path, "tuned", {1, 2})
    done = compare("base", "tuned", f"--workdir={tmp_path}", "--json")
    base, tuned = json.loads(done.stdout)
    assert base["levels"]["all"]["correct"] == 15.0 and base["levels"]["all"]["correct_difference"] is None
    apart = tuned["levels"]["all"]["correct_difference"]
    assert apart["mean"] == pytest.approx(-5.0) and apart["lo"] <= -5.0 <= apart["hi"] and apart["tasks"] == 20
    assert tuned["levels"]["2"]["correct_difference"]["mean"] == pytest.approx(-10.0)


def test_reinforcement_is_set_against_fine_tuning_and_published_figures(tmp_path: Path) -> None:
    """Issue 22, point 9: the difference from SFT to RL, and from a published figure to each."""
    evaluation(tmp_path, "base", {0})
    evaluation(tmp_path, "sft_final", {0, 1, 10})
    evaluation(tmp_path, "rl_final", {0, 1, 2, 10, 11})
    saved, page = tmp_path / "comparison.json", tmp_path / "page.html"
    done = compare("base", "sft_final", "rl_final", f"--workdir={tmp_path}", "--published=TritonRL=63,7",
                   f"--save={saved}", f"--html={page}")  # fmt: skip
    assert done.returncode == 0, done.stderr
    one, two = done.stdout.split("level 2")
    assert re.search(r"^\+- previous +\+10\.0 \(.*?\) +\+10\.0 \(.*?\) +published", one, re.MULTILINE), one
    assert re.search(r"^- TritonRL +-53\.0 +-43\.0 +-33\.0 *$", one, re.MULTILINE), one
    assert re.search(r"^- TritonRL +-7\.0 +\+3\.0 +\+13\.0 *$", two, re.MULTILINE), two
    assert (
        "correct, less TritonRL (published), in points</td><td>-7.0</td><td>+3.0</td><td>+13.0</td>" in page.read_text()
    )
    rl = json.loads(saved.read_text())[2]["levels"]["2"]
    assert (rl["previous_difference"]["mean"], rl["correct_difference"]["mean"]) == (
        pytest.approx(10),
        pytest.approx(20),
    )
    assert rl["less_published"] == {"TritonRL": pytest.approx(13)}


def test_only_tasks_of_both_are_paired(tmp_path: Path) -> None:
    evaluation(tmp_path, "base", {0, 1})
    path = evaluation(tmp_path, "other", {0, 1}, policy="hybrid")
    document = json.loads(path.read_text())
    for row in document["detailed_results"]:
        if row["id"] == "t0":
            row["class"] = "infra"  # our fault, and no answer
    path.write_text(json.dumps(document))
    done = compare("base", "other", f"--workdir={tmp_path}")
    assert done.returncode == 0 and "base and other differ in their policy" in done.stderr
    assert "n=9)" in done.stdout and "n=19)" in done.stdout


def test_of_several_turns_the_last_is_compared(tmp_path: Path) -> None:
    evaluation(tmp_path, "base", set())
    path = evaluation(tmp_path, "turns", {0, 1})
    document = json.loads(path.read_text())
    first = [row | {"turn": 0, "components": {"correct": 1}} for row in document["detailed_results"]]
    document["detailed_results"] = first + [row | {"turn": 1} for row in document["detailed_results"]]
    path.write_text(json.dumps(document))
    done = compare("base", "turns", f"--workdir={tmp_path}", "--json")
    apart = json.loads(done.stdout)[1]["levels"]["all"]["correct_difference"]
    assert apart["mean"] == pytest.approx(10.0) and apart["tasks"] == 20


def test_evaluations_with_different_prompts_are_not_compared(tmp_path: Path) -> None:
    one, other = "sha256:" + "a" * 64, "sha256:" + "b" * 64
    page = tmp_path / "page.html"
    paths = [evaluation(tmp_path, "base", {0}, prompt=one), evaluation(tmp_path, "other", {0}, prompt=other)]
    done = compare(*paths, f"--html={page}")
    assert done.returncode == 3 and done.stdout == "" and not page.exists()
    for text in (one, other, *map(str, paths), "--other-prompts"):
        assert text in done.stderr, done.stderr
    # A third one counts as well, whatever stands between.
    evaluation(tmp_path, "same", {0}, prompt=one)
    assert compare("base", "same", f"--workdir={tmp_path}").returncode == 0
    assert compare("base", "same", "other", f"--workdir={tmp_path}").returncode == 3
    # Asked for, it is done and said, in each form of the output.
    done = compare(*paths, "--other-prompts", f"--html={page}")
    said = f"the prompts differ: {one} in {paths[0]}, {other} in {paths[1]}"
    assert done.returncode == 0 and said in done.stdout and said in page.read_text()
    done = compare(*paths, "--other-prompts", "--json")
    assert [column["prompt"] for column in json.loads(done.stdout)] == [one, other]
    # Answers that others sampled have no prompt of ours: no mismatch, but not passed over.
    evaluation(tmp_path, "runs", {0}, prompt=None)
    done = compare("base", "runs", f"--workdir={tmp_path}")
    assert done.returncode == 0 and "no prompt is known of the answers in" in done.stdout
    assert compare("runs", "base", "other", f"--workdir={tmp_path}").returncode == 3


@pytest.mark.parametrize(
    ("text", "why"), [("{", "line"), ("[]", "not what"), ('{"metrics":{}}', "not what"), (None, "cannot read")]
)
def test_what_is_no_evaluation_is_named(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "bad.json"
    if text is not None:
        path.write_text(text)
    done = compare(path)
    assert done.returncode == 3 and why in done.stderr and "bad.json" in done.stderr, done.stderr
    assert compare().returncode == 2
    assert compare(path, "--published=x").returncode == 2
    assert compare(path, "--published=x=101").returncode == 2


def test_a_users_own_modules_are_not_taken_for_ours(tmp_path: Path) -> None:
    for name in ("pipeline", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)\n")
    done = subprocess.run([str(TRAINER), "compare"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "which evaluations?" in done.stderr, done.stderr


def test_the_curricula_draw_what_they_are_said_to_draw() -> None:
    done = subprocess.run(
        [str(TRAINER), "selftest", "--quick"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and done.stdout.count("PASS") == 5, done.stdout
    assert subprocess.run([str(TRAINER), "selftest", "--nothing"], capture_output=True, check=False).returncode == 2


def test_what_each_policy_says_stands_beside_it(tmp_path: Path) -> None:
    judged = {"strict": 10.0, "hybrid": 20.0, "kernelbench": 60.0}
    columns = {name: {"metrics": metrics(rate), "levels": {"1": metrics(rate)}} for name, rate in judged.items()}
    evaluation(tmp_path, "base", {0, 1}, columns=columns)
    evaluation(tmp_path, "tuned", {0, 1})
    done = compare("base", "tuned", f"--workdir={tmp_path}", "--published=TritonRL=63,7")
    assert done.returncode == 0, done.stderr
    for name, rate in judged.items():
        assert re.search(rf"^{name} +{rate}% +- +-", done.stdout, re.MULTILINE), done.stdout
