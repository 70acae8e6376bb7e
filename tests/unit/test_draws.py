"""What get_inputs() draws where it is wanted has the numbers that it has elsewhere; who cannot be served so is not."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import torch
from shared import values
from shared.arena import Arena, Heap
from shared.draws import Draws

from live import child  # isort: skip

SCRIPT = """
import json, sys
import torch
from live import child
from shared import native
torch.cuda.init()
child._SEEDERS.extend(generator.manual_seed for generator in torch.cuda.default_generators)
native.gpu_init(0)
from shared.arena import Arena, align, PAGE
from shared.draws import Draws
from shared.values import TensorNote, notes

DEVICE = torch.device("cuda", 0)
KEPT = []

def temporary():
    return [torch.rand(4096, 4096) * 2 - 1]

def keeping():
    if not KEPT:
        KEPT.append(torch.rand(4096, 4096))
    return list(KEPT)

def keeping_later():
    x = torch.rand(4096, 4096)
    CALLS.append(1)
    if len(CALLS) > 1:
        KEPT.append(x.view(-1)[:5])
    return [x]

def twice():
    x = torch.rand(4096, 4096)
    return [x, x]

CALLS = []
TASKS = {
    "odd": lambda: [torch.rand(5000, 1234)],
    "one": lambda: [torch.rand(4096, 4096)],
    "two": lambda: [torch.randn(2048, 2048), 3, torch.randint(0, 9, (4096, 1024))],
    "turned": lambda: [torch.rand(4096, 4096).t()],
    "small beside": lambda: [torch.rand(7), torch.rand(4096, 4096)],
    "small": lambda: [torch.rand(64, 64)],
    "conjugate": lambda: [torch.randn(2048, 2048, dtype=torch.cfloat).mH],
    "twice": twice,
    "temporary": temporary,
    "kept": keeping,
    "kept later": keeping_later,
}

def run(name):
    task = TASKS[name]
    KEPT.clear()
    CALLS.clear()
    def seeded(seed, by=child._seed):
        by(seed)
        return task()
    with DEVICE:
        wanted = {}
        if "kept" not in name:
            for seed in range(6):
                wanted[seed] = [x.clone() for x in seeded(seed, torch.manual_seed) if torch.is_tensor(x)]
        torch.cuda.synchronize()
        room = align(160 << 20, PAGE)
        arena = Arena.make(DEVICE, 3 * room)
        draws = Draws(arena)
        trees, was_in_place, found = set(), [], []
        for seed, set_ in enumerate((0, 0, 1, 0, 1, 2)):
            try:
                tree, end = draws.put([lambda: seeded(seed)], set_ * room, room, is_own=True)
            except RuntimeError as error:
                found.append(str(error))
                continue
            torch.cuda.synchronize()
            was_in_place.append(draws._is_in_place)
            got = [arena.view(note) for note in notes(tree)]
            first = [note.offset - set_ * room for note in notes(tree)]
            trees.add(json.dumps([first, [list(x.stride()) for x in got]]))
            if wanted:
                found.append(all(torch.equal(a, b) for a, b in zip(got, wanted[seed], strict=True)))
            else:
                found.append(got[0].double().sum().item())
        return {"in_place": was_in_place, "right": found, "trees": len(trees)}

print(json.dumps({name: run(name) for name in TASKS}))
"""


def put(draws: list[Any], distance: int = 1 << 10) -> list[list[torch.Tensor]]:
    """Of each draw what lies in its set of an arena, one set left out before the first."""
    arena = Arena.make(torch.device("cpu"), (len(draws) + 1) * distance)
    tree, end = Draws(arena).put(draws, distance, distance, is_own=True)
    found = values.notes(tree)
    assert end <= arena.size and found[0].offset == distance
    return [
        [arena.view(note.moved((note.offset or 0) + set_ * distance)).clone() for note in found]
        for set_ in range(len(draws))
    ]


def test_each_set_has_its_own_draw() -> None:
    drawn = [
        [torch.rand(5, 7), 3.5, {"a": torch.rand(4, 3).t(), "b": torch.arange(index, index + 9)}] for index in range(4)
    ]
    for wanted, got in zip(drawn, put([partial(list, one) for one in drawn]), strict=True):
        assert all(torch.equal(*pair) for pair in zip([wanted[0], wanted[2]["a"], wanted[2]["b"]], got, strict=True))


X = torch.rand(5, 7)


@pytest.mark.parametrize("other", [[torch.rand(5, 6), 1], [X.half(), 1], [X, 2], [X], [1, X]])
def test_draws_of_another_form_are_refused(other: list[Any]) -> None:
    with pytest.raises(ValueError, match="other shapes"):
        put([lambda: [X, 1], lambda: other])


def test_sets_end_with_the_arena() -> None:
    arena = Arena.make(torch.device("cpu"), 1 << 16)
    with pytest.raises(values.ValueRefused):
        Draws(arena).put([lambda: [torch.rand(8)]] * 3, 0, arena.size // 2, is_own=True)


def test_a_tensor_that_is_placed_twice_has_one_place() -> None:
    """Twelve calls that answered in one buffer outside of the arena had a copy each, all of the last one's answer."""
    arena = Arena.make(torch.device("cpu"), 1 << 16)
    placer = child.Placer(arena, Heap(0, 1 << 16, 0))
    kept, other = torch.rand(4, 4), torch.rand(4, 4)
    first, again, third = placer.place(kept), placer.place(kept[:]), placer.place(other)
    assert first.offset == again.offset != third.offset
    assert placer.place(kept.t()).offset not in (first.offset, third.offset)
    placer.restart()
    kept.fill_(1.0)
    assert torch.equal(arena.view(placer.place(kept)), kept), "a copy of what it is now"


def test_seeds_are_those_of_torch() -> None:
    drawn = []
    for seed in (torch.manual_seed, child._seed):
        seed(1 << 61)
        drawn.append(torch.randn(100))
    assert torch.equal(*drawn)


@pytest.mark.gpu
def test_draws_in_place_have_the_same_numbers() -> None:
    if not torch.cuda.is_available():
        pytest.skip("gpu: no GPU on this machine")
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name in ("one", "two", "odd", "turned"):
        assert found[name]["in_place"] == [True] * 6, name
    for name in ("small", "temporary", "kept"):
        assert found[name]["in_place"] == [False] * 6, name
    for name in ("small beside", "twice", "conjugate"):
        assert found[name]["in_place"][1:] == [False] * 5, name
    for name in ("one", "two", "odd", "turned", "small beside", "small", "twice", "temporary", "conjugate"):
        assert found[name]["right"] == [True] * 6 and found[name]["trees"] == 1, name
    assert len(set(found["kept"]["right"])) == 1
    first, *others = found["kept later"]["right"]
    assert isinstance(first, float) and all("keeps tensors" in str(text) for text in others)
