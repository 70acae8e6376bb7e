"""compute-sanitizer on request: it is asked when the verdict is clear, and whatever becomes of it, that stands."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import service
from scripted import SCRIPTED, TASK

LIMIT_S = 60.0
VERIFIER = service.BINARY.with_name("verifier")
LOST = "the device let go of it before"


@pytest.fixture(scope="module")
def shared() -> Iterator[service.Daemon]:
    with pytest.MonkeyPatch.context() as patch, service.directory() as directory:
        patch.setenv("SCRIPT_BLOCKS", "[]")  # its referee has a GPU
        with service.Daemon(directory, SCRIPTED | {"max_attempts": 3}) as daemon:
            daemon.client.add_task(TASK)
            yield daemon


def request(script: str, policy: object) -> dict[str, Any]:
    return {"task": "scripted", "candidate": f"# script: {script}\n# {time.monotonic_ns()}\n", "policy": policy}


def judge(daemon: service.Daemon, script: str, policy: object = "sanitize=true") -> service.Json:
    return daemon.client.judge(request(script, policy), LIMIT_S)


def test_who_did_not_ask_is_told_nothing(shared: service.Daemon) -> None:
    verdict = judge(shared, "sanitize=hang", "strict")
    assert verdict["sanitize"] is None and "sanitize" not in verdict["policy_on"]


@pytest.mark.parametrize(
    ("script", "class_", "why"),
    [
        ("timing=2.4", "ok", None),
        ("full=fail:mismatch", "mismatch", None),
        ("full=crash", "crash", None),
        ("timing=2.4 sanitize=crash", "ok", "as the script says"),
        ("timing=2.4 sanitize=kill_referee", "ok", LOST),
        ("full=fail:mismatch sanitize=kill_referee", "mismatch", LOST),
        ("full=fail:mismatch sanitize=kill_zygote", "mismatch", LOST),
    ],
)
def test_the_verdict_stands(shared: service.Daemon, script: str, class_: str, why: str | None) -> None:
    verdict = judge(shared, script)
    assert (verdict["class"], verdict["attempts"], verdict["sanitize"]["why"]) == (class_, 1, why)
    if class_ == "ok":
        assert verdict["components"]["speedup"] == pytest.approx(2.4, rel=1e-3)


def test_beside_the_compiled_reference(shared: service.Daemon) -> None:
    verdict = judge(shared, "timing=2.4", {"sanitize": True, "timing": {"compile_baseline": True}})
    assert verdict["sanitize"]["why"] is None and verdict["timing"]["baselines"]["compile"]["outcome"] == "measured"


def test_one_that_is_cancelled_meanwhile_ends_at_once(shared: service.Daemon, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    begun = tmp_path / "begun"
    id_ = shared.client.submit(request(f"sanitize=touch:{begun},hang", "sanitize=true"))
    service.wait_for(begun.exists)
    shared.client.expect("DELETE", f"/v1/submissions/{id_}")
    assert shared.client.wait(id_, 20.0)["state"] == "cancelled"
    assert judge(shared, "timing=2.4")["class"] == "ok"


PRINTED = """\
sanitize        memcheck: 2 errors
                  kernel, candidate.py:8: Invalid __global__ write, thread (8,0,0) of block (0,1,0): 1 bytes after the \
nearest allocation (2 times)
                  no kernel: Invalid __global__ write
                racecheck: it did not end within 90 s
"""


def test_it_is_asked_for_and_printed_by_the_command(shared: service.Daemon, tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.py"
    told: dict[str, str] = {}
    for name, options in (("plain", ["--sanitize"]), ("named", ["--sanitize", "--policy=hybrid,staged=false"])):
        candidate.write_text(f"# script: timing=2.4\n# {time.monotonic_ns()}\n")
        command = [str(VERIFIER), "submit", f"--url={shared.client.url}", "--task=scripted", "--wait", *options]
        told[name] = subprocess.run([*command, str(candidate)], capture_output=True, text=True, check=True).stdout
        assert PRINTED in told[name]
    policies = [shared.client.expect("GET", f"/v1/submissions/{told[name].split()[1]}") for name in told]
    assert [(one["policy"], one["policy_on"]["sanitize"], one["policy_on"]["staged"]) for one in policies] == [
        ("strict", True, True),
        ("hybrid", True, False),
    ]
