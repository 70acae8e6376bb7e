"""make demo is the first thing that a stranger sees."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import service

LIMIT_S = 300

pytestmark = pytest.mark.slow


@contextmanager
def demo(**environment: str) -> Iterator[subprocess.Popen[str]]:
    python = os.environ.get("PYTHON", sys.executable)
    command = [sys.executable, "server/deploy/demo.py", "--programs", str(service.BINARY.parent), "--python", python]
    settings = {k: v for k, v in os.environ.items() if k != "DEMO_EXIT"} | environment
    running = subprocess.Popen(
        command,
        cwd=service.ROOT,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Whoever runs the tests in the background has it ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            running.terminate()
            running.wait(60)
        assert running.stdout is not None
        running.stdout.close()


def test_every_candidate_shown_gets_the_class_that_its_header_names() -> None:
    with demo(DEMO_EXIT="1") as running:
        said, _ = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 0, said
    assert re.search(r"^(\d+) candidates judged, \1 as expected", said, re.MULTILINE), said
    assert "; the first at [" in " ".join(said.split())


def test_it_serves_the_dashboard_until_it_is_interrupted() -> None:
    with demo() as running:
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line)
            if line.startswith("The dashboard: "):
                break
        address = lines[-1].split()[2]
        with urllib.request.urlopen(address, timeout=10) as page:
            assert page.status == 200 and b"<html" in page.read()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(address, timeout=10)


def test_a_scripted_model_is_trained_upon() -> None:
    python = os.environ.get("PYTHON", sys.executable)
    command = [sys.executable, "client/deploy/demo_train.py", "--programs", str(service.BINARY.parent)]
    done = subprocess.run(
        [*command, "--python", python],
        cwd=service.ROOT,
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^softmax +kept honest, honest_heuristics$", done.stdout, re.MULTILINE)
    assert re.search(r"^correct +0\.0% +100\.0% +-?", done.stdout, re.MULTILINE)
