"""The model's endpoint during trainer run: one that runs already, or one that is started by a configured command.

Adapters are loaded over vLLM's /v1/load_lora_adapter under a name that is fresh for each content.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from finetune import checkpoint
from finetune.errors import TrainError
from verifierd_client.client import handlers_of

from .common import CONFIG, INTERRUPTED, SERVICE, PipelineError
from .process import Stop, spawn, status_of

STOP_LIMIT_S, ASK_LIMIT_S, LOAD_LIMIT_S = 30.0, 10.0, 600.0
WEIGHTS = "adapter_model.safetensors"


def is_local(url: str) -> bool:
    return bool(re.match(r"https?://(127\.|localhost\b|\[::1\])", url))


def ask(url: str, limit_s: float, body: object = None) -> tuple[int, bytes]:
    """Status and body of an answer; OSError: there was none."""
    key = os.environ.get("OPENAI_API_KEY")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else json.dumps(body).encode()
    try:
        opener = urllib.request.build_opener(*handlers_of(url))
    except ValueError as error:  # certificates that are none
        raise PipelineError(str(error)) from None
    try:
        try:
            answer: Any = opener.open(urllib.request.Request(url, data, headers), timeout=limit_s)
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            return int(answer.status), answer.read()
    except HTTPException as error:  # cut off, or no HTTP
        raise OSError(repr(error)) from None


def adapter_name(adapter: Path, digest: str) -> str:
    """Other weights have another name, wherever they are."""
    return f"{adapter.name[:80]}-{digest.removeprefix('sha256:')[:12]}"


class Serving:
    def __init__(self, url: str, command: str, model: str, name: str, log: Path, wait_s: float) -> None:
        self.url, self.model, self.name, self.log, self.wait_s = url, model, name, log, wait_s
        self.command = command.replace("{model}", model)  # "": it is not ours to start
        self.process: subprocess.Popen[bytes] | None = None

    def models(self) -> list[str] | None:
        """The names of its models; None: it does not answer."""
        try:
            status, body = ask(f"{self.url}/models", ASK_LIMIT_S)
            found: Any = json.loads(body) if status == 200 else None
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict) or not isinstance(found.get("data"), list):
            return None
        return [one["id"] for one in found["data"] if isinstance(one, dict) and "id" in one]

    def start(self, stop: Stop, tend: Callable[[], None]) -> None:
        """If it is ours and does not run; and wait until it answers."""
        if self.command and self.process is None:
            with self.log.open("ab") as log:
                argv = ["/bin/sh", "-c", f"exec env {self.command}"]  # env: VARIABLE=value may come first
                self.process = spawn(argv, stdout=log, stderr=log, start_new_session=True)
        limit = time.monotonic() + self.wait_s
        while self.models() is None:
            if self.process is not None and self.process.poll() is not None:
                status = status_of(self.process)
                self.process = None
                raise PipelineError(f"the endpoint's command ended (status {status}): see {self.log}", SERVICE)
            if stop:
                raise PipelineError("interrupted", INTERRUPTED)
            if time.monotonic() > limit:
                raise PipelineError(f"the endpoint {self.url} does not answer after {self.wait_s:g} s", SERVICE)
            tend()
            time.sleep(0.2)

    def stop(self) -> None:
        """End what start() started, and all that it started."""
        if self.process is None:
            return
        for number, limit_s in ((signal.SIGTERM, STOP_LIMIT_S), (signal.SIGKILL, None)):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            try:
                self.process.wait(limit_s)
                break
            except subprocess.TimeoutExpired:
                continue
        self.process = None

    def adapt(self, adapter: Path | None) -> str:
        """Have an adapter served (None: the base itself); what to ask for."""
        if adapter is None:
            return self.name
        try:
            checkpoint.verify(adapter)
        except TrainError as error:
            raise PipelineError(str(error)) from None
        name = adapter_name(adapter, checkpoint.digest_of(adapter / WEIGHTS))
        if name in (self.models() or []):
            return name
        try:
            body = {"lora_name": name, "lora_path": str(adapter.resolve())}
            status, said = ask(f"{self.url}/load_lora_adapter", LOAD_LIMIT_S, body)
        except OSError as error:
            raise PipelineError(f"the endpoint {self.url} does not answer: {error}", SERVICE) from None
        if status != 200:
            raise PipelineError(f"the endpoint refuses the adapter {adapter} ({status}): {said[:120]!r} (vLLM: "
                                "--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True)", CONFIG)  # fmt: skip
        return name
