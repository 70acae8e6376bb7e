"""The scripted model of make bench-round: its answers are what they are called."""

from __future__ import annotations

import ast
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

import round_answers

REFERENCE = "BATCH = 4\nCHANNELS = 8\nOUT_CHANNELS = 16\nSIDE = 8\nROWS = 4\nFEATURES = 256\nOUT_FEATURES = 512\n"
TASKS = [f"fuse/{head}_leaky_relu_scale_relu" for head in (*round_answers.LIBRARY, *round_answers.NORMS)]


def code(text: str) -> str:
    return text.partition("```python\n")[2].partition("```")[0]


def test_a_name_says_head_and_steps() -> None:
    assert round_answers.parts("fuse/residual_norm_leaky_relu_relu") == ("residual_norm", ["leaky_relu", "relu"])
    assert round_answers.parts("fuse/conv_tanh") == ("conv", ["tanh"])
    assert round_answers.parts("fuse/conv_bn_tanh") is None  # its statistics are not a kernel of ours
    assert round_answers.parts("fuse/conv_unheard_of") is None and round_answers.parts("softmax") is None


@pytest.mark.parametrize("task", TASKS)
def test_each_kind_is_what_it_is_called(task: str) -> None:
    draw = random.Random(1)
    texts = {kind: code(round_answers.answer(kind, task, REFERENCE, draw)) for kind in round_answers.MIX}
    assert texts["prose"] == ""
    with pytest.raises(SyntaxError):
        ast.parse(texts["syntax"])
    for kind in ("right", "wrong", "cheat", "no_compile"):
        names = [node.name for node in ast.parse(texts[kind]).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        assert names == ["fused", "ModelNew"]
    steps = ["tl.where(v > 0.0, v, 0.1 * v)", "v * 0.5", "tl.maximum(v, 0.0)"]
    applied = [line.strip() for line in texts["right"].splitlines() if line.strip().removeprefix("v = ") in steps]
    assert applied == [f"v = {step}" for step in steps]
    assert "v * 1.25 + 0.125" in texts["wrong"] and "tl.no_such_thing" in texts["no_compile"]
    assert "self.kept" in texts["cheat"] or "F.relu" in texts["cheat"]


def test_the_mix_is_drawn_by_its_shares_and_again_the_same() -> None:
    drawn = round_answers.kinds(10000, random.Random(3))
    assert drawn == round_answers.kinds(10000, random.Random(3))
    for kind, n in Counter(drawn).items():
        assert n / 10000 == pytest.approx(round_answers.MIX[kind][0], abs=0.02)
