"""A run's curves in trackers: what each of the three libraries is called with, by stand-ins of them."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from verifierd_client import Client, Refused, tracking


def step(at: int | None, **figures: float | None) -> dict[str, Any]:
    return {"step": at, **dict.fromkeys(tracking.FIGURES), "n": 4, "infra": 0, **figures}


STEPS = [step(None, reward=0.1), step(0, reward=0.25, correct=0.5), step(3, reward=0.75, correct=1.0, speedup=1.5)]
LOGGED = [
    ({"verifierd/reward": 0.25, "verifierd/correct": 0.5, "verifierd/n": 4, "verifierd/infra": 0}, 0),
    (
        {"verifierd/reward": 0.75, "verifierd/correct": 1.0, "verifierd/speedup": 1.5}
        | {"verifierd/n": 4, "verifierd/infra": 0},
        3,
    ),
]


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, float], int]]:
    """A daemon that knows the run "r/1", libraries that keep what they get, and that list."""
    out: list[tuple[dict[str, float], int]] = []

    def known(self: Client, run: str) -> dict[str, Any]:
        if run != "r/1":
            raise Refused(404, "not_found", f"no verdict says the run {run}")
        return {"run": run, "steps": STEPS}

    @contextmanager
    def begin(**options: object) -> Any:
        if "id" in options:
            assert options == {"name": "r/1", "id": "r-1", "resume": "allow", "dir": "/d"}
        yield SimpleNamespace(log=lambda values, step: out.append((values, step)))

    class Writer:
        def __init__(self, directory: str) -> None:
            assert directory == "/d"

        def __enter__(self) -> Writer:
            return self

        def __exit__(self, *_: object) -> None: ...

        def add_scalar(self, name: str, value: float, at: int) -> None:
            if not out or out[-1][1] != at:
                out.append(({}, at))
            out[-1][0][name] = value

    def module(name: str, **members: object) -> None:
        made = ModuleType(name)
        vars(made).update(members)
        monkeypatch.setitem(sys.modules, name, made)

    monkeypatch.setattr(Client, "run", known)
    module("wandb", init=begin)
    module("tensorboardX", SummaryWriter=Writer)
    module(
        "mlflow",
        set_tracking_uri=lambda uri: None,
        start_run=begin,
        log_metrics=lambda values, step: out.append((values, step)),
    )
    return out


@pytest.mark.parametrize("to", ["wandb", "mlflow", "tensorboard"])
def test_each_step_is_logged_with_what_is_known_of_it(to: str, logged: list[Any]) -> None:
    """Issue 28: newcomer 22."""
    assert tracking.main(["r/1", "--to", to, "--directory=/d"]) == 0
    assert logged == LOGGED


def test_a_step_that_is_not_over_is_logged_at_the_end(logged: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def sleep(seconds: float) -> None:
        seen.append(len(logged))
        if len(seen) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    last = tracking.export(Client(), "r/1", lambda values, step: logged.append((values, step)), interval_s=1)
    assert (seen, last, logged) == ([1, 1], 3, LOGGED)


def test_what_is_missing_is_named(
    logged: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tracking.main(["other", "--to=wandb"]) == 1 and "the run other" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert tracking.main(["r/1", "--to=mlflow"]) == 3
    assert "pip install './client/python[mlflow]'" in capsys.readouterr().err and not logged
