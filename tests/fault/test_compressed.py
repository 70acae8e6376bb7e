"""Bodies that come compressed: taken, bounded by what they become, and refused where they are none."""

from __future__ import annotations

import gzip
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import service
from scripted import SCRIPTED, TASK

LIMIT = 8 * 1024 * 1024


@pytest.fixture(scope="module")
def shared() -> Iterator[service.Daemon]:
    with service.directory() as directory, service.Daemon(directory, SCRIPTED) as running:
        running.client.add_task(TASK)
        yield running


def packed(name: str, text: bytes) -> bytes:
    return gzip.compress(text) if name == "gzip" else zstd_raw(text)


def zstd_raw(text: bytes) -> bytes:
    """A zstd frame of raw and repeated blocks (RFC 8878), by hand: no library for it is everywhere."""
    out = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x38"  # no content size, a window of 128 KiB
    parts = [text[i : i + 65536] for i in range(0, len(text), 65536)] or [b""]
    for i, part in enumerate(parts):
        is_run = len(part) > 1 and part == part[:1] * len(part)
        head = (len(part) << 3) | (2 if is_run else 0) | (i == len(parts) - 1)
        out += head.to_bytes(3, "little") + (part[:1] if is_run else part)
    return out


def body(size: int = 0) -> bytes:
    document = {"task": "scripted", "candidate": f"# script: ast=fail:syntax\n# {time.monotonic_ns()}\n"}
    return json.dumps(document).encode() + b" " * size


def post(client: service.Client, data: bytes, encoding: str) -> service.Answer:
    return client.call("POST", "/v1/submissions", data, {"Content-Encoding": encoding})


@pytest.mark.parametrize("name", ["gzip", "zstd"])
@pytest.mark.parametrize("size", [0, 300_000, 4_000_000])
def test_a_compressed_body_is_taken(shared: service.Daemon, name: str, size: int) -> None:
    assert post(shared.client, packed(name, body(size)), name.upper()).status == 202


def test_one_stream_after_another_is_one_body(shared: service.Daemon) -> None:
    text = body()
    assert post(shared.client, gzip.compress(text[:20]) + gzip.compress(text[20:]), "gzip").status == 202


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_the_bound_is_of_what_it_becomes(shared: service.Daemon, name: str) -> None:
    text = body()
    fits = text + b" " * (LIMIT - len(text))
    assert post(shared.client, packed(name, fits), name).status == 202
    answer = post(shared.client, packed(name, fits + b" "), name)
    assert (answer.status, answer.json()["code"]) == (413, "too_large")


def peak_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_a_bomb_costs_no_more_than_its_bound(shared: service.Daemon, name: str) -> None:
    bomb = packed(name, b" " * (1 << 28 if name == "zstd" else 1 << 26))
    assert len(bomb) < 300_000
    before = peak_kib(shared.pid)
    for _ in range(4):
        answer = post(shared.client, bomb, name)
        assert (answer.status, answer.json()["code"]) == (413, "too_large")
    # The bound, twice while a buffer grows, and what the allocator keeps.
    assert peak_kib(shared.pid) - before < 64 * 1024


@pytest.mark.parametrize("name", ["gzip", "zstd"])
@pytest.mark.parametrize("damage", ["plain", "cut", "empty", "trailing", "changed"])
def test_what_is_no_stream(shared: service.Daemon, name: str, damage: str) -> None:
    whole = packed(name, body(1000))
    data = {
        "plain": body(),
        "cut": whole[:-5],
        "empty": b"",
        "trailing": whole + b"trailing",
        "changed": b"\x00" + whole[1:],
    }[damage]
    answer = post(shared.client, data, name)
    assert (answer.status, answer.json()["code"]) == (400, "bad_body")


def test_a_window_that_is_too_large(shared: service.Daemon) -> None:
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\xa8" + (0x15).to_bytes(3, "little") + b"{}"  # 2 GiB
    answer = post(shared.client, frame, "zstd")
    assert (answer.status, answer.json()["code"]) == (400, "bad_body")


@pytest.mark.parametrize("encoding", ["br", "gzip, zstd", "deflate", "gzip;q=1"])
def test_another_encoding_is_told_the_known_ones(shared: service.Daemon, encoding: str) -> None:
    answer = post(shared.client, body(), encoding)
    assert (answer.status, answer.json()["code"]) == (415, "unsupported_type")
    assert answer.headers["Accept-Encoding"] == "gzip, zstd"


def test_curl_and_gzip_as_people_have_them(shared: service.Daemon, tmp_path: Path) -> None:
    (tmp_path / "body.json").write_bytes(body())
    subprocess.run(["gzip", str(tmp_path / "body.json")], check=True)
    command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", f"{shared.client.url}/v1/submissions"]
    command += ["-H", "Content-Type: application/json", "-H", "Content-Encoding: gzip"]
    command += ["--data-binary", f"@{tmp_path / 'body.json.gz'}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "202"
