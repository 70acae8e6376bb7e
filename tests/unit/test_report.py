"""trainer report and trainer compare: what they read, what they compute, and what stands on their pages."""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path
from typing import Any

import pytest
from pipeline import compare, page
from pipeline.common import PipelineError
from pipeline.report import conclusion, main, page_of, read_run

Json = dict[str, Any]
WAYS = ("extracted", "valid", "compiled", "correct", "timed")


def put(directory: Path, name: str, *rows: object) -> None:
    """Rows as JSON Lines; a text stands as it is."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))


def answer(class_: str, reward: float | None, reached: int, **more: object) -> Json:
    """One that came so far in the funnel."""
    components = {name: int(i < reached) for i, name in enumerate(WAYS)}
    return {"verdict": {"class": class_, "reward": reward, "components": components, **more}}


def test_a_round_is_counted_by_its_distinct_answers(tmp_path: Path) -> None:
    """What infra left without a reward counts in the funnel alone; what is no answer is passed over."""
    put(
        tmp_path, "outputs/bestofn_round1/candidates.jsonl", answer("ok", 1.0, 5), answer("ok", 0.9, 4),
        answer("mismatch", 0.5, 3), answer("syntax", 0.0, 1), answer("hack", 0.0, 3), answer("infra", None, 1),
        answer("ok", 1.0, 5, duplicate_of="x"), {"verdict": None}, [1], "not JSON", "",
    )  # fmt: skip
    found = read_run(tmp_path)
    assert found["funnel"]["round1"] == dict(zip(("answers", *WAYS), (6, 6, 4, 4, 2, 1), strict=True))
    assert (found["classes"]["round1"]["ok"], found["classes"]["round1"]["infra"]) == (2, 1)
    assert found["cheats"]["round1"] == {"hack": 1, "policy": 0}
    rewards = found["rewards"]["round1"]
    assert (rewards["n"], rewards["mean"], rewards["least"], rewards["most"]) == (5, pytest.approx(0.48), 0, 1)
    assert rewards["bins"] == [2, 0, 0, 0, 0, 1, 0, 0, 0, 2]


def test_one_reward_has_no_spread_and_no_reward_no_mean(tmp_path: Path) -> None:
    put(tmp_path, "outputs/bestofn_round2/candidates.jsonl", answer("ok", 0.7, 1))
    put(tmp_path, "outputs/bestofn_round3/candidates.jsonl", answer("infra", None, 1))
    found = read_run(tmp_path)
    assert (found["rewards"]["round2"]["mean"], found["rewards"]["round2"]["bins"][0]) == (0.7, 1)
    assert found["rewards"]["round3"] == {"n": 0}
    assert "nan" not in page_of(found) and "inf<" not in page_of(found)


def test_losses_are_curves_with_axes(tmp_path: Path) -> None:
    points = [{"step": 1, "loss": 4.0, "secret": 1}, {"step": 2, "loss": 1.0}, {"step": 3}, {"step": 4, "loss": 2.0}]
    put(tmp_path, "outputs/train_sft/metrics.jsonl", *points)
    put(tmp_path, "outputs/train_one/metrics.jsonl", {"step": 1, "loss": 1.0, "seconds": 4, "wait_s": 1})
    found = read_run(tmp_path)
    assert [p.get("loss") for p in found["losses"]["sft"]] == [4.0, 1.0, None, 2.0] and "secret" not in str(found)
    text = page_of(found)
    assert "<h3>sft</h3><p>loss: first 4, last 2, least 1, most 4 (3 steps)</p>" in text
    # The greatest on top, the least at the bottom; the step without a loss has no place. One step is no curve.
    assert '<polyline points="60.0,8.0 253.3,146.0 640.0,100.0"/>' in text and text.count("<polyline") == 1
    for tick in (">4</text>", ">1</text>", ">step</text>"):
        assert tick in text
    assert "reward_mean:" not in text and "<th>one</th><td>1</td><td>4</td><td>25</td>" in text


def test_the_best_kernels_of_all_rounds_come_first(tmp_path: Path) -> None:
    """Of equals the one that came first."""
    put(tmp_path, "outputs/bestofn_round1/kept.jsonl", {"task": "a", "reward": 0.1}, {"task": "b", "reward": 0.8})
    put(tmp_path, "outputs/bestofn_round2/kept.jsonl",
        {"task": "c", "reward": 0.8}, {"task": "d", "reward": 1.5}, {"task": "e", "reward": 0.8})  # fmt: skip
    assert [kernel["task"] for kernel in read_run(tmp_path)["best"]] == ["d", "b", "c"]


def test_costs_are_by_step_and_phase_with_the_gpus_that_waited(tmp_path: Path) -> None:
    steps: Json = {
        "prepare": {"seconds": 10, "stage": "prepare", "argv": ["prepare"]},
        "round1": {"seconds": 20, "stage": "rl", "argv": ["bestofn"], "state": "failed"},
        "learned": {"seconds": 30, "stage": "rl", "argv": ["sft"], "trains": True},
        "publish": {"seconds": 1, "stage": "rl", "argv": ["@publish"]},
    }
    put(tmp_path, "run.json", {"configuration": {"gpus": 4, "gpu_price": 2.5}, "steps": steps})
    found = read_run(tmp_path)
    assert found["costs"]["gpu_seconds"] == 244 and found["costs"]["price"] == pytest.approx(244 / 3600 * 2.5)
    assert found["costs"]["phases"] == {
        "prepare": {"wall_s": 10, "gpu_s": 40, "idle_gpu_s": 40}, "rl": {"wall_s": 51, "gpu_s": 204, "idle_gpu_s": 4},
    }  # fmt: skip
    text = page_of(found)
    assert "<p>244 GPU seconds, price 0.17</p>" in text and "<th>rl</th><td>51</td><td>204</td><td>4</td>" in text
    assert "<th>round1</th><td>20</td><td>80</td><td>failed</td>" in text


def test_differences_to_others_stand_beside_each_evaluation(tmp_path: Path) -> None:
    def column(name: str, correct: float, first: Json | None, previous: Json | None, less: float) -> Json:
        figures = {"correct": correct, "correct_difference": first, "previous_difference": previous}
        return {"name": name, "levels": {"2": figures | {"less_published": {"Tri<ton": less}}}}

    columns = [column("sft_final", 10, None, None, 3), column("rl_final", 15, {"mean": 15}, {"mean": 5}, 8)]
    put(tmp_path, "outputs/comparison.json", columns)
    text = page_of(read_run(tmp_path))
    assert "<th>less Tri&lt;ton</th>" in text
    assert "<th>rl_final, level 2</th><td>15</td><td>15</td><td>5</td><td>8</td>" in text
    assert "<th>sft_final, level 2</th><td>10</td><td>-</td><td>-</td><td>3</td>" in text


def test_the_page_says_first_what_came_out(tmp_path: Path) -> None:
    """Title, conclusion, model; base, fine-tuned, reinforced, in this order; the configuration is folded."""
    put(tmp_path, "run.json", {"configuration": {"model": "tiny"}, "steps": {"sft": {"state": "done"}}})
    assert conclusion(read_run(tmp_path)) == "No model was evaluated."
    for name, rate in (("rl_final", 45.0), ("held_out_1", 5.0), ("base", 30.0), ("sft_final", 40.0)):
        put(tmp_path, f"outputs/eval_{name}.json", {"name": name, "metrics": {"num_tasks": 20, "correct_rate": rate}})
    for n in (10, 2):
        put(tmp_path, f"outputs/bestofn_round{n}/candidates.jsonl", answer("ok", 1.0, 5))
    found = read_run(tmp_path)
    assert list(found["evaluations"]) == ["base", "sft_final", "rl_final", "held_out_1"]
    assert list(found["funnel"]) == ["round2", "round10"]
    text = page_of(found)
    first = text.index("rl_final answers 45.0 % of 20 tasks correctly; base: 30.0 %.")
    assert text.index("<h1>Training report</h1>") < first < text.index("Model tiny") < text.index("<table")
    assert "<details><summary>Configuration</summary>" in text


def test_texts_of_others_are_escaped(tmp_path: Path) -> None:
    hostile = '</pre><script>alert("&")</script>'
    put(tmp_path, "outputs/bestofn_round9/kept.jsonl", {"task": "T" + hostile, "reward": 9, "code": "C" + hostile})
    put(tmp_path, "outputs/eval_base.json",
        {"name": "N" + hostile, "metrics": {"num_tasks": 3, "fast_p": {"1": 33.3}}})  # fmt: skip
    step = {"S" + hostile: {"state": "A" + hostile}}
    put(tmp_path, "run.json", {"configuration": {"model": "M" + hostile}, "steps": step})
    put(tmp_path, "checkpoints/curriculum.json", {"p": "U" + hostile})
    text = page_of(read_run(tmp_path))
    assert "<script" not in text
    for mark in "TCNSA":
        assert mark + "&lt;/pre&gt;&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;" in text
    assert "M&lt;/pre&gt;" in text and "U&lt;/pre&gt;" in text and "<td>33.3</td>" in text


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no run, no round and no evaluation"):
        main([f"--workdir={tmp_path}"])
    assert page_of(read_run(tmp_path)).endswith("</html>\n")


def test_the_interval_is_what_resampling_comes_to() -> None:
    """Against 20,000 resamples, and where it can be told: no difference, and 60 of 100 gained."""
    assert compare.interval([0] * 8) == (0.0, 0.0)
    assert compare.interval([1, 0, 0, 0])[0] == 0.0
    low, high = compare.interval([1] * 60 + [0] * 40)  # about 0.6 +- 1.96 sqrt(0.6 * 0.4 / 100)
    assert low == pytest.approx(0.504, abs=0.02) and high == pytest.approx(0.696, abs=0.02)
    draw = random.Random(7)
    pairs = [-1] * 5 + [0] * 20 + [1] * 11
    means = [statistics.fmean(draw.choices(pairs, k=len(pairs))) for _ in range(20_000)]
    ends = [statistics.quantiles(means, n=40)[i] for i in (0, -1)]
    assert compare.interval(pairs) == pytest.approx(ends, abs=1.5 / len(pairs))


def test_a_bar_for_each_figure_that_is_there() -> None:
    text = page.bars("t", {"level 1": [10.0, None], "all": [20.0, 30.0]}, ["a", "b"], [False, True])
    assert text.count("<rect") == 3 and text.count('fill-opacity="0.4"') == 1 and "b (published)" in text
