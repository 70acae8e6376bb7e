"""Start the built daemon in a directory of its own, talk to it, end it: for the demo and the measurements.

VERIFIERD_FLAGS has flags for each, and these win: with --device=cuda:1 in it one bench has that GPU to itself.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_LIMIT_S = 60.0
READY_LIMIT_S = 300.0
END_LIMIT_S = 60.0
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # a proxy's loopback is another machine


class DaemonError(Exception):
    """The daemon did not do what was asked; the text is for people."""


def first_gpu() -> str:
    """Of those that are visible, numbered as nvidia-smi does, and verifierd with it."""
    number = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
    return f"cuda:{number}" if number.isdigit() else "cuda:0"


@dataclass(frozen=True)
class Daemon:
    """A running verifierd."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    def request(self, method: str, path: str, body: Mapping[str, Any] | None, limit_s: float) -> Any:
        """The answer's JSON; DaemonError with the daemon's own words when it refuses."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            with _open(request, timeout=limit_s) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            raise DaemonError(f"{method} {path}: {error.code}: {said}") from None
        except (OSError, ValueError) as error:
            raise DaemonError(f"{method} {path}: {error}") from error

    def get(self, path: str, limit_s: float = 30.0) -> Any:
        return self.request("GET", path, None, limit_s)

    def post(self, path: str, body: Mapping[str, Any], limit_s: float = 60.0) -> Any:
        return self.request("POST", path, body, limit_s)

    def judge(self, submission: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Submit and poll until it is done; when that takes longer than limit_s it is cancelled: DaemonError."""
        deadline = time.monotonic() + limit_s
        verdict: dict[str, Any] = self.post("/v1/submissions", submission)
        while verdict.get("state") not in ("done", "cancelled"):
            left = deadline - time.monotonic()
            if left <= 0:
                self.request("DELETE", f"/v1/submissions/{verdict['id']}", None, 30)
                raise DaemonError(f"submission {verdict.get('id')}: no verdict within {limit_s:.0f} s")
            wait = max(1, min(30, int(left)))
            verdict = self.get(f"/v1/submissions/{verdict['id']}?wait={wait}", wait + 30)
        return verdict

    def wait_until_ready(self, limit_s: float = READY_LIMIT_S) -> None:
        """The workers import torch and triton once; until then /readyz says what it is waiting for."""
        deadline = time.monotonic() + limit_s
        why = "it was never asked"
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise DaemonError(f"verifierd ended while starting; its log:\n{self.log_tail()}")
            try:
                with _open(f"{self.url}/readyz", timeout=5):
                    return
            except urllib.error.HTTPError as error:
                why = error.read().decode(errors="replace")
            except OSError as error:
                why = str(error)
            time.sleep(0.1)
        raise DaemonError(f"verifierd was not ready within {limit_s:.0f} s: {why}\n{self.log_tail()}")

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def running_daemon(
    programs: Path, python: str, *flags: str, log: Path | None = None, prefix: Sequence[str] = ()
) -> Iterator[Daemon]:
    """verifierd on a free port with a new store; on the way out it drains and its directory goes."""
    with tempfile.TemporaryDirectory(prefix="verifierd-") as name:
        directory = Path(name)
        # Candidates run under uids of their own and must come to their directories below.
        directory.chmod(0o711)
        where = log or directory / "log"
        command = [*prefix, str(programs / "verifierd"), "--listen", "127.0.0.1:0", "--python", python]
        command += ["--store", str(directory / "store.db"), "--scratch", str(directory / "scratch")]
        command += [*flags, *shlex.split(os.environ.get("VERIFIERD_FLAGS", ""))]
        # A session of its own: Ctrl-C is for the caller, who then asks the daemon to end.
        with where.open("wb") as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        try:
            yield Daemon(_read_address(process, where), process, where)
        finally:
            _end(process)


def _read_address(process: subprocess.Popen[str], log: Path) -> str:
    """The address from the line that the daemon prints when it listens."""
    watchdog = threading.Timer(START_LIMIT_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
    finally:
        watchdog.cancel()
    _, found, url = line.strip().partition("listening on ")
    if not found:
        raise DaemonError(f"verifierd did not start; its log:\n{log.read_text(errors='replace')[-4000:]}")
    return url


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
