"""trainer prepare from the hub: a local server that speaks its calls, breaks off, lies and refuses as told."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from answering import listening
from endpoint import TESTS, TRAINER, Json, lines

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BOOK = "/datasets/GPUMODE/KernelBook/resolve/" + COMMIT


def book(rows: int = 40) -> bytes:
    source = (TESTS / "tasks" / "relu.py").read_text()
    return json.dumps(
        [
            {
                "python_code": source.replace("torch.relu(x)", f"torch.relu(x) + {i}"),
                "entry_point": "Model",
                "uuid": i,
            }
            for i in range(rows)
        ],
        indent=1,
    ).encode()


@dataclass
class Hub:
    """Files of one data set at one commit. `cut`: bytes after which an answer breaks off, once each."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut: list[int] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    has_ranges: bool = True
    lies: bool = False
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    stuck: threading.Event | None = None
    release: threading.Event = field(default_factory=threading.Event)

    def listing(self, page: int) -> list[Json]:
        """One file a page, as a large data set has several."""
        names = sorted(self.files)
        return [
            {
                "type": "file",
                "path": name,
                "size": 130,
                "oid": "f" * 40,
                "lfs": {
                    "oid": hashlib.sha256(self.files[name]).hexdigest(),
                    "size": len(self.files[name]),
                    "pointerSize": 130,
                },
            }
            for name in names[page : page + 1]
        ] + [{"type": "directory", "path": "data", "size": 0, "oid": "d" * 40}]


@pytest.fixture
def hub() -> Iterator[Hub]:
    script = Hub(files={"dataset_permissive.json": book(), "README.md": b"# hello", "other.parquet": b"PAR1"})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(content))} | (headers or {})).items():
                self.send_header(name, value)
            self.end_headers()
            cut = script.cut.pop(0) if script.cut and self.path.startswith("/store/") else len(content)
            self.wfile.write(content[:cut])
            self.wfile.flush()
            if cut < len(content):
                if script.stuck is not None:
                    script.stuck.set()
                    script.release.wait(60)
                self.close_connection = True

        def do_HEAD(self) -> None:
            """Of a file, as huggingface_hub asks before it downloads."""
            name = self.path.removeprefix(BOOK + "/")
            content = script.files.get(name, b"")
            sha = hashlib.sha256(content).hexdigest()
            self.send_response(200 if content else 404)
            for header, value in {
                "X-Repo-Commit": COMMIT,
                "ETag": f'"{sha}"',
                "Content-Length": str(len(content)),
            }.items():
                self.send_header(header, value)
            self.end_headers()

        def do_GET(self) -> None:
            script.asked.append((self.path, self.headers["Range"]))
            if script.refusals:
                return self.answer(script.refusals.pop(0), b"no", {"Retry-After": "0"})
            path, _, query = self.path.partition("?")
            if path == "/api/datasets/GPUMODE/KernelBook/revision/main":
                known = {"id": "GPUMODE/KernelBook", "sha": COMMIT, "private": False, "tags": [], "downloads": 0}
                return self.answer(200, json.dumps(known).encode())
            if path == f"/api/datasets/GPUMODE/KernelBook/tree/{COMMIT}":
                page = int(query.partition("cursor=")[2] or 0)
                link = f'<{script.url}{path}?recursive=true&cursor={page + 1}>; rel="next"'
                more = {"Link": link} if page + 1 < len(script.files) else {}
                return self.answer(200, json.dumps(script.listing(page)).encode(), more)
            if path.startswith(BOOK):
                return self.answer(302, b"moved", {"Location": "/store" + path.removeprefix(BOOK)})
            content = script.files.get(path.removeprefix("/store/"))
            if content is None:
                return self.answer(404, b'{"error":"Repository not found"}')
            if script.lies:
                content = content.replace(b"relu", b"gelu")
            if script.has_ranges and self.headers["Range"]:
                start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
                where = f"bytes {start}-{len(content) - 1}/{len(content)}"
                return self.answer(206, content[start:], {"Content-Range": where})
            return self.answer(200, content, {"ETag": '"x"', "Accept-Ranges": "bytes"})

        def log_message(self, format: str, *args: object) -> None:
            pass

    with listening(Handler) as script.url:
        yield script
        script.release.set()


def command(tmp_path: Path, *arguments: str) -> list[str]:
    source = () if any(one.startswith("--source") for one in arguments) else ("--source=kernelbook",)
    return [
        str(TRAINER), "prepare", "--static", f"--workdir={tmp_path}", f"--python={sys.executable}", *source, *arguments
    ]  # fmt: skip


def prepare(hub: Hub, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(tmp_path, *arguments), env=os.environ | {"HF_ENDPOINT": hub.url}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


def store_calls(hub: Hub) -> list[str | None]:
    return [asked for path, asked in hub.asked if path.startswith("/store/")]


def test_a_data_set_is_fetched_by_id_revision_and_digest(hub: Hub, tmp_path: Path) -> None:
    content = hub.files["dataset_permissive.json"]
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    done = prepare(hub, tmp_path, f"--digest={digest}")
    assert done.returncode == 0, done.stderr
    assert len(lines(tmp_path / "data/processed/tasks.jsonl")) == 40
    fetched = json.loads((tmp_path / "data/processed/prepare.json").read_text())["fetched"]
    assert (fetched["id"], fetched["revision"], fetched["commit"]) == ("GPUMODE/KernelBook", "main", COMMIT)
    (file,) = fetched["files"]
    assert (file["path"], file["size"], file["digest"]) == ("dataset_permissive.json", len(content), digest)
    assert Path(file["file"]).read_bytes() == content and COMMIT in file["file"]
    # Nothing that is there is asked for again.
    assert prepare(hub, tmp_path).returncode == 0
    assert store_calls(hub) == [None]


MIB = 1 << 20


def test_a_connection_that_breaks_off_is_gone_on_with(hub: Hub, tmp_path: Path) -> None:
    """What came in whole pieces of 10 MiB is kept."""
    hub.files["dataset_permissive.json"] += b" " * 32 * MIB
    hub.cut, hub.refusals = [11 * MIB, 12 * MIB], [503, 429]
    done = prepare(hub, tmp_path)
    assert done.returncode == 0, done.stderr
    assert store_calls(hub) == [None, f"bytes={10 * MIB}-", f"bytes={20 * MIB}-"]
    assert len(lines(tmp_path / "data/processed/tasks.jsonl")) == 40


def test_a_server_without_ranges_is_asked_from_the_start(hub: Hub, tmp_path: Path) -> None:
    hub.files["dataset_permissive.json"] += b" " * 16 * MIB
    hub.cut, hub.has_ranges = [11 * MIB], False
    done = prepare(hub, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(store_calls(hub)) >= 2
    assert len(lines(tmp_path / "data/processed/tasks.jsonl")) == 40


def test_a_download_that_was_killed_begins_again(hub: Hub, tmp_path: Path) -> None:
    hub.files["dataset_permissive.json"] += b" " * 16 * MIB
    hub.cut, hub.stuck = [11 * MIB], threading.Event()
    process = subprocess.Popen(command(tmp_path), env=os.environ | {"HF_ENDPOINT": hub.url}, stderr=subprocess.DEVNULL)
    assert hub.stuck.wait(60)
    process.kill()
    process.wait()
    hub.release.set()
    done = prepare(hub, tmp_path)
    assert done.returncode == 0, done.stderr
    assert store_calls(hub) == [None, None]
    assert len(lines(tmp_path / "data/processed/tasks.jsonl")) == 40


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (["--id=GPUMODE/Nothing"], 3, "answered 404"),
        (["--revision=v9"], 3, "answered 404"),
        (["--files=*.txt"], 3, "*.txt"),
        (["--digest=sha256:" + "0" * 64], 3, "has the digest"),
        (["--files=*", "--digest=sha256:" + "0" * 64], 3, "a digest is one file's"),
        (["--digest=5"], 2, "sha256:"),
        (["--id=../secret"], 3, "no id of a data set"),
        (["--source=elsewhere"], 2, "which data set?"),
        (["--file=x.json", "--id=a/b"], 2, "--file"),
    ],
)
def test_what_cannot_be_fetched_is_said(hub: Hub, tmp_path: Path, arguments: list[str], status: int, why: str) -> None:
    done = prepare(hub, tmp_path, *arguments)
    assert done.returncode == status and why in done.stderr, done.stderr
    assert not (tmp_path / "data/processed/tasks.jsonl").exists()


def test_a_file_that_is_not_what_is_listed_is_removed(hub: Hub, tmp_path: Path) -> None:
    hub.lies = True
    done = prepare(hub, tmp_path)
    assert done.returncode == 3 and "not what the hub lists" in done.stderr
    assert list((tmp_path / "data/raw").rglob("dataset_permissive.json")) == []
    hub.lies = False
    assert prepare(hub, tmp_path).returncode == 0


def test_a_hub_that_is_away_or_refuses_is_named(hub: Hub, tmp_path: Path) -> None:
    hub.refusals = [401]
    refused = prepare(hub, tmp_path)
    assert refused.returncode == 3 and "answered 401" in refused.stderr and "HF_TOKEN" in refused.stderr
    hub.refusals = [503, 503]
    busy = prepare(hub, tmp_path, "--attempts=2")
    assert busy.returncode == 7 and "answered 503" in busy.stderr
    away = prepare(Hub(url="http://127.0.0.1:9"), tmp_path, "--attempts=1")
    assert away.returncode == 7 and "127.0.0.1:9" in away.stderr


def test_a_listing_does_not_lead_out_of_its_directory(hub: Hub, tmp_path: Path) -> None:
    hub.files["../../escaped.json"] = b"[]"
    done = prepare(hub, tmp_path, "--files=*escaped.json")
    assert done.returncode == 3 and "no file of" in done.stderr
    assert not list(tmp_path.rglob("escaped.json*"))
