"""verifier doctor: a healthy daemon, sick ones, and none at all."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import service
import test_cli
from answering import answering

NOTHING = "http://127.0.0.1:1"
LEVELS = {"ok", "warn", "fail"}


def doctor(url: str, *arguments: str, **more: str) -> tuple[int, list[dict[str, Any]]]:
    """Its exit status and findings; every finding that is not fine says what mends it."""
    done = subprocess.run(
        [str(test_cli.VERIFIER), "doctor", "--url", url, "--json", *arguments],
        capture_output=True,
        timeout=120,
        check=False,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"} | more,
    )
    assert done.stderr == b""
    told = json.loads(done.stdout)
    assert told["exit"] == done.returncode
    findings: list[dict[str, Any]] = told["findings"]
    for finding in findings:
        assert finding["level"] in LEVELS
        assert (finding["level"] == "ok") == (finding["mend"] is None), finding
    assert told["ok"] == all(finding["level"] != "fail" for finding in findings)
    return done.returncode, findings


def of(findings: list[dict[str, Any]], check: str) -> list[tuple[str, str]]:
    return [(finding["level"], finding["text"]) for finding in findings if finding["check"] == check]


def now(offset_s: float = 0) -> str:
    when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=offset_s)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


QUARANTINED = {"name": "referee cuda:0", "state": "ready", "lane": "quarantined", "why": "Xid 79"}


def well() -> dict[str, Any]:
    """The status of a daemon with a GPU that lacks nothing."""
    worker = {"state": "ready", "starts": 1, "why": None}
    return {
        "ready": True,
        "why": None,
        "version": "0.1.0",
        "env": {"python": "3.11", "torch": "2", "triton": "3"},
        "time": now(),
        "access": "open",
        "workers": [{"name": "compile zygote"} | worker, {"name": "referee cuda:0", "lane": "idle"} | worker],
        "gpus": [{"device": "cuda:0", "name": "H200", "driver": "570"}],
        "sandbox": {"layers": {"seccomp": "on", "user_namespace": "absent: not needed"}, "require": "seccomp"},
        "disks": [{"what": "store", "free_bytes": 90e9, "total_bytes": 100e9}],
        "store": {"commit_ms_last": 1.5},
        "queues": {"waiting": 3, "limit": 20},
    }


@pytest.fixture
def script() -> Iterator[test_cli.Script]:
    script = test_cli.Script()
    script.on("GET /healthz", (200, {"status": "ok"}))
    script.on("GET /v1/calibrations", (200, {"items": [{}]}))
    with answering(script.answer) as script.url:
        yield script


def test_a_running_daemon_is_well(client: service.Client) -> None:
    code, findings = doctor(client.url)
    assert code == 0, findings
    assert of(findings, "ready") == [("ok", "it can judge now")]
    assert any("torch" in text for level, text in of(findings, "versions") if level == "ok")
    assert any("layers are on" in text for level, text in of(findings, "sandbox") if level == "ok")
    assert {text.split(":")[0] for _, text in of(findings, "disk")} >= {"store", "scratch"}  # and a slow commit
    assert ("ok", "verifierd's clock and this machine's agree within 2.0 s") in of(findings, "clock")
    assert of(findings, "gpu") and of(findings, "workers")


def test_people_get_a_line_for_each_finding(client: service.Client) -> None:
    done = subprocess.run(
        [str(test_cli.VERIFIER), "doctor", "--url", client.url], capture_output=True, text=True, timeout=60, check=False
    )
    lines = done.stdout.splitlines()
    assert lines[0] == f"ok    reach     verifierd answers at {client.url}"
    assert lines[-1].endswith(" 0 wrong")


@pytest.mark.parametrize(
    ("change", "check", "level", "words"),
    [
        ({"ready": False, "why": "paused: submissions are stored"}, "ready", "fail", "cannot judge now: paused"),
        ({"version": "0.0.9"}, "versions", "warn", "verifierd is 0.0.9"),
        ({"env": {}}, "versions", "fail", "torch and triton"),
        ({"seconds_off": -90}, "clock", "warn", "s behind this machine's"),
        ({"seconds_off": 90}, "clock", "warn", "s ahead of this machine's"),
        (
            {"workers": [QUARANTINED]},
            "gpu",
            "fail",
            "quarantined: Xid 79",
        ),
        (
            {"workers": [QUARANTINED | {"canary": {"failed": "it takes 12.0 % longer than this GPU's norm"}}]},
            "gpu",
            "fail",
            "quarantined: its canary fails, it takes 12.0 % longer",
        ),
        ({"workers": [{"name": "referee cpu", "state": "ready", "starts": 9}]}, "workers", "warn", "started 9 times"),
        ({"gpus": []}, "gpu", "warn", "no GPU"),
        (
            {"sandbox": {"layers": {"seccomp": "absent: no filters", "uid": "on"}, "require": "seccomp,uid"}},
            "sandbox",
            "fail",
            "layer seccomp is absent: no filters",
        ),
        (
            {"sandbox": {"layers": {"landlock_tcp": "absent: ABI 3", "uid": "on"}, "require": "landlock"}},
            "sandbox",
            "warn",
            "landlock_tcp",
        ),
        ({"disks": [{"what": "store", "free_bytes": 1e6, "total_bytes": 1e9}]}, "disk", "fail", "store: 0.0 of 1.0 GB"),
        ({"disks": [{"what": "scratch", "free_bytes": 1e9, "total_bytes": 9e9}]}, "disk", "warn", "scratch: 1.0"),
        ({"store": {"commit_ms_last": 900}}, "disk", "warn", "900 ms"),
        ({"queues": {"waiting": 20, "limit": 20}}, "load", "warn", "the queue is full"),
    ],
)
def test_what_is_wrong_is_found(
    script: test_cli.Script, change: dict[str, Any], check: str, level: str, words: str
) -> None:
    if "gpus" in change and Path("/dev/nvidiactl").exists():
        level, words = "fail", "judges without one"
    status = well() | change
    if "seconds_off" in change:  # from when it is asked on, not from when the tests were collected
        status["time"] = now(change["seconds_off"])
    script.on("GET /v1/status", (200, status))
    code, findings = doctor(script.url)
    assert [one for one in of(findings, check) if one[0] == level and words in one[1]], findings
    assert code == (1 if level == "fail" else 0)


def test_a_well_daemon_has_nothing_wrong(script: test_cli.Script) -> None:
    script.on("GET /v1/status", (200, well()))
    code, findings = doctor(script.url)
    # Whether anything keeps this machine's clock right is this machine's own affair.
    assert [one for one in findings if one["level"] != "ok" and one["check"] != "clock"] == []
    assert code == 0


def test_a_gpu_that_was_never_calibrated(script: test_cli.Script) -> None:
    script.on("GET /v1/status", (200, well()))
    script.on("GET /v1/calibrations", (200, {"items": []}))
    code, findings = doctor(script.url)
    assert code == 0 and [text for level, text in of(findings, "gpu") if level == "warn" and "how far" in text]


def test_nothing_from_elsewhere_reaches_the_terminal(script: test_cli.Script) -> None:
    script.on("GET /v1/status", (200, well() | {"ready": False, "why": "\x1b[2Jowned"}))
    done = test_cli.verifier(script, "doctor")
    assert done.returncode == 1
    assert b"\x1b" not in done.stdout and b"?[2Jowned" in done.stdout


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_is_missing_or_not_taken(script: test_cli.Script, status: int) -> None:
    script.on("GET /v1/status", (status, {"status": status}))
    code, findings = doctor(script.url)
    assert (code, of(findings, "access")) == (4, [("fail", "a token is needed")])
    assert of(doctor(script.url, VERIFIERD_TOKEN="vd_x")[1], "access") == [("fail", "the token is not taken")]


def test_something_else_at_the_address(script: test_cli.Script) -> None:
    script.on("GET /healthz", (200, b"<html>"))
    code, findings = doctor(script.url)
    assert code == 7 and "is not verifierd" in of(findings, "reach")[0][1]


def test_without_a_daemon_it_says_what_it_can() -> None:
    python = [f"--python={os.environ['PYTHON']}"] if "PYTHON" in os.environ else []
    code, findings = doctor(NOTHING, *python)
    assert code == 7
    assert of(findings, "reach")[0][0] == "fail"
    assert of(findings, "program")[0][0] == "ok", findings
    assert [text for _, text in of(findings, "disk") if text.startswith("store: ")]
    assert [text for _, text in of(findings, "sandbox") if "layers are on" in text]
    assert of(findings, "gpu")


def test_without_a_daemon_a_wrong_setting_is_named(tmp_path: Path) -> None:
    settings = tmp_path / "verifierd.conf"
    settings.write_text("pool = none\n")
    code, findings = doctor(NOTHING, f"--config={settings}")
    assert code == 7
    assert "verifierd.conf:1:8: pool is a whole number" in of(findings, "program")[0][1]


def test_far_away_nothing_of_this_machine_is_told() -> None:
    code, findings = doctor("http://verifierd.invalid:8080")
    assert code == 7 and {finding["check"] for finding in findings} == {"reach"}


def test_an_address_that_is_none() -> None:
    code, findings = doctor("ftp://x")
    assert code == 7 and "not an http://" in of(findings, "reach")[0][1]
