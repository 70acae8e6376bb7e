"""Where work and time go: /v1/stats, /metrics and `verifier top` say the same."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest
import service
from scripted import SCRIPTED, TASK

LIMIT_S = 60.0
VERIFIER = service.BINARY.with_name("verifier")
SCRIPTS = ("timing=1.2", "full=sleep:0.2,pass", "ast=fail:syntax", "compile=fail:compile", "full=fail:mismatch")


@pytest.fixture(scope="module")
def shared() -> Iterator[service.Daemon]:
    """A daemon in which five were judged, and one of them is known again."""
    with service.directory() as directory, service.Daemon(directory, SCRIPTED | {"cache_recheck_percent": 0}) as daemon:
        daemon.client.add_task(TASK)
        for script in (*SCRIPTS, SCRIPTS[1]):
            body = {"task": "scripted", "candidate": f"# script: {script}\n"}
            daemon.client.judge(body, LIMIT_S)
        yield daemon


def test_stages(shared: service.Daemon) -> None:
    stats = shared.client.expect("GET", "/v1/stats")
    assert (stats["finished"], stats["shared"]) == (6, 1)
    uptime_s = shared.client.expect("GET", "/v1/status")["uptime_s"]
    assert 0 < stats["covered_s"] <= uptime_s + 1
    stages = {stage["stage"]: stage for stage in stats["stages"]}
    assert list(stages) == ["ast", "compile", "tiny", "full", "timing"]
    counts = {name: [stage[key] for key in ("pass", "fail", "skip", "spared")] for name, stage in stages.items()}
    assert counts == {
        "ast": [4, 1, 0, 0],
        "compile": [3, 1, 0, 1],
        "tiny": [3, 0, 0, 2],
        "full": [2, 1, 0, 2],
        "timing": [2, 0, 0, 3],
    }
    assert stages["ast"]["wait_ms"]["n"] == 5
    assert stages["tiny"]["wait_ms"]["n"] == 3
    assert stages["timing"]["wait_ms"] is None
    service = stages["full"]["service_ms"]
    assert service["sum"] == pytest.approx(service["n"] * service["mean"]) and service["sum"] >= 200
    assert stages["ast"]["device_s"] == 0


def test_devices(shared: service.Daemon) -> None:
    stats = shared.client.expect("GET", "/v1/stats")
    used = stats["device_s"]
    by_stage = sum(stage["device_s"] for stage in stats["stages"])
    assert 0.2 <= by_stage <= used["used"]
    # The one that is known again took at least its sleep the first time.
    assert used["saved_by_cache"] >= 0.2
    assert used["saved_by_rejection"] > 0
    assert stats["devices"] == 1
    assert stats["device_busy"] == pytest.approx(used["used"] / stats["covered_s"])


def test_metrics_say_the_same(shared: service.Daemon) -> None:
    lines = shared.client.get("/metrics").body.decode().splitlines()
    found = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}
    stats = shared.client.expect("GET", "/v1/stats")
    for stage in stats["stages"]:
        label = f'{{stage="{stage["stage"]}"}}'
        waited = stage["wait_ms"] or {"n": 0, "mean": 0.0}
        assert found[f"verifierd_stage_wait_seconds_count{label}"] == waited["n"]
        assert found[f"verifierd_stage_wait_seconds_sum{label}"] == pytest.approx(waited["n"] * waited["mean"] / 1000)
        assert found[f"verifierd_stage_spared_total{label}"] == stage["spared"]
        assert found[f"verifierd_stage_device_seconds_total{label}"] == pytest.approx(stage["device_s"])
    device = stats["device_s"]
    assert found["verifierd_device_seconds_total"] == pytest.approx(device["used"])
    for by in ("rejection", "cache"):
        name = f'verifierd_device_seconds_saved_total{{by="{by}"}}'
        assert found[name] == pytest.approx(device[f"saved_by_{by}"])


def test_a_window_is_refused_with_what_to_do_instead(shared: service.Daemon) -> None:
    answer = shared.client.get("/v1/stats?window=10m")
    assert (answer.status, answer.json()["code"]) == (400, "bad_parameter")
    assert "ask twice and subtract" in answer.json()["detail"]


def top(daemon: service.Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(VERIFIER), "top", "--url", daemon.client.url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_top_once(shared: service.Daemon) -> None:
    done = top(shared, "--once", "--window", "1h")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip()}
    assert rows["verdicts"][1] == "6"
    assert rows["full"][1:5] == ["2", "1", "0", "2"]
    assert rows["timing"][5] == "-"
    assert rows["worker"][4:] == ["ready", "of", "waited", "s"]
    assert all(float(figure) >= 0 for figure in rows["referee"][-3:]) and len(rows["referee"]) == 8, rows["referee"]
    assert "\x1b" not in done.stdout


def test_top_for_programs(shared: service.Daemon) -> None:
    both = json.loads(top(shared, "--json").stdout)
    assert both["stats"]["finished"] == 6
    assert both["status"]["version"]


def test_top_refusals(shared: service.Daemon) -> None:
    assert top(shared, "--window", "soon").returncode == 2
    assert top(shared, "--window", "25h").returncode == 2
    assert top(shared, "--every", "0").returncode == 2


def test_top_on_a_terminal(shared: service.Daemon) -> None:
    """It draws again and again, fits the window, ends at q, and leaves the terminal as it was."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 60, 0, 0))
    before = termios.tcgetattr(slave)
    command = [str(VERIFIER), "top", "--url", shared.client.url, "--every", "0.1", "--window", "1h"]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave) as process:
        text = b""
        deadline = time.monotonic() + LIMIT_S
        while text.count(b"q quits") < 3 and time.monotonic() < deadline:
            if select.select([master], [], [], 1)[0]:
                text += os.read(master, 65536)
        os.write(master, b"q")
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([master], [], [], 0.1)[0]:
                text += os.read(master, 65536)
        process.kill()
    assert process.returncode == 0
    while select.select([master], [], [], 0)[0]:
        text += os.read(master, 65536)
    after = termios.tcgetattr(slave)
    os.close(master)
    os.close(slave)
    assert after == before
    assert text.count(b"q quits") >= 3
    assert text.startswith(b"\x1b[?1049h") and text.rstrip().endswith(b"\x1b[?1049l")
    frame = text.split(b"\x1b[H")[2].split(b"\x1b[J")[0]
    lines = frame.replace(b"\x1b[K", b"").decode().splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 60
    assert any(line.startswith("timing") for line in lines)
    assert any(line.startswith("verdicts  6 in ") for line in _first_frame(text)), "since the daemon started"
    assert any(line.startswith("verdicts  0 in 0 s ") for line in lines), "since the frame before"


def _first_frame(text: bytes) -> list[str]:
    return text.split(b"\x1b[H")[1].split(b"\x1b[J")[0].replace(b"\x1b[K", b"").decode().splitlines()
