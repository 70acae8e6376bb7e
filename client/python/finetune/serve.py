"""An OpenAI-compatible endpoint over transformers, for machines without vLLM: one answer at a time, on one device.

    python -m finetune serve MODEL [--port N] [--adapter NAME=PATH]

Serves /v1/models, /v1/chat/completions, /v1/completions and vLLM's /v1/load_lora_adapter and /v1/unload_lora_adapter.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from .errors import TrainError
from .model import DTYPES, base_digest, check_adapter, tokenizer_of

MOST_BYTES = 8 << 20
Json = dict[str, Any]


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Engine:
    """A base model and the adapters that were loaded over it, each under a name."""

    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, name
        self.tokenizer = tokenizer_of(path)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = DTYPES["bf16" if self.device == "cuda" else "fp32"]
        self._model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).to(self.device).eval()
        self._digest = base_digest(self._model)
        self._lock = threading.Lock()
        self.adapters: list[str] = []

    def load(self, name: str, path: str) -> None:
        with self._lock:
            if name in self.adapters:
                raise Refused(400, f"there is an adapter {name} already: give each a fresh name")
            try:
                check_adapter(Path(path), self.path, self._digest)
                if isinstance(self._model, PeftModel):
                    self._model.load_adapter(path, adapter_name=name)
                else:
                    self._model = PeftModel.from_pretrained(self._model, path, adapter_name=name).eval()
            except (TrainError, OSError, ValueError, RuntimeError) as error:
                raise Refused(400, f"{path}: {error}") from error
            self.adapters.append(name)

    def unload(self, name: str) -> None:
        with self._lock:
            if name not in self.adapters:
                raise Refused(404, f"there is no adapter {name}")
            self._model.delete_adapter(name)
            self.adapters.remove(name)

    def generate(self, model: str, prompt: list[int], body: Json) -> list[tuple[str, str, list[int]]]:
        """Text, finish_reason and ids of each of n answers."""
        n = int(body.get("n") or 1)
        temperature = float(1.0 if body.get("temperature") is None else body["temperature"])
        if not 1 <= n <= 256 or not 0 <= temperature <= 10:
            raise Refused(400, "n is from 1 to 256, temperature from 0 to 10")
        options: Json = {"max_new_tokens": int(body.get("max_tokens") or 256)}
        if temperature > 0:
            options |= {
                "do_sample": True,
                "temperature": temperature,
                "top_p": float(body.get("top_p") or 1),
                "top_k": 0,
            }
        else:
            options["do_sample"] = False
        with self._lock, torch.no_grad():
            torch.manual_seed(int(body.get("seed") or 0))
            given = torch.tensor([prompt] * n, device=self.device)
            options |= {"input_ids": given, "attention_mask": torch.ones_like(given)}
            options["pad_token_id"] = self.tokenizer.pad_token_id
            options["eos_token_id"] = self.tokenizer.eos_token_id
            if model in self.adapters:
                self._model.set_adapter(model)
                out = self._model.generate(**options)
            elif isinstance(self._model, PeftModel):
                with self._model.disable_adapter():
                    out = self._model.generate(**options)
            else:
                out = self._model.generate(**options)
        answers = []
        for row in out[:, len(prompt) :].tolist():
            has_end = self.tokenizer.eos_token_id in row
            ids = row[: row.index(self.tokenizer.eos_token_id)] if has_end else row
            answers.append((self.tokenizer.decode(ids, skip_special_tokens=True), "stop" if has_end else "length", ids))
        return answers


def answer(engine: Engine, path: str, body: Json) -> Json:
    if path == "/v1/load_lora_adapter":
        engine.load(str(body["lora_name"]), str(body["lora_path"]))
        return {"status": "loaded"}
    if path == "/v1/unload_lora_adapter":
        engine.unload(str(body["lora_name"]))
        return {"status": "unloaded"}
    is_chat = path == "/v1/chat/completions"
    if not is_chat and path != "/v1/completions":
        raise Refused(404, f"there is no {path}")
    model = str(body.get("model") or engine.name)
    if model != engine.name and model not in engine.adapters:
        raise Refused(404, f"there is no model {model}")
    if is_chat:
        text = engine.tokenizer.apply_chat_template(body["messages"], tokenize=False, add_generation_prompt=True)
    else:
        text = str(body["prompt"])
    prompt = list(engine.tokenizer(text, add_special_tokens=False)["input_ids"])
    if not prompt:
        raise Refused(400, "the prompt is empty")
    choices = []
    total = 0
    for index, (said, reason, ids) in enumerate(engine.generate(model, prompt, body)):
        total += len(ids)
        content: Json = {"message": {"role": "assistant", "content": said}} if is_chat else {"text": said}
        choices.append({"index": index, "finish_reason": reason, **content})
    usage = {"prompt_tokens": len(prompt), "completion_tokens": total, "total_tokens": len(prompt) + total}
    kind = "chat.completion" if is_chat else "text_completion"
    made = {"id": f"cmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}
    return {**made, "choices": choices, "usage": usage}


def handler_of(engine: Engine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self, status: int, document: Json) -> None:
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            if self.path == "/health":
                self._reply(200, {"status": "ok"})
            elif self.path == "/v1/models":
                names = [engine.name, *engine.adapters]
                self._reply(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]})
            else:
                self._reply(404, {"error": {"message": f"there is no {self.path}"}})

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            if size > MOST_BYTES:
                self.close_connection = True
                self._reply(413, {"error": {"message": f"more than {MOST_BYTES} bytes"}})
                return
            try:
                self._reply(200, answer(engine, self.path, json.loads(self.rfile.read(size))))
            except Refused as refusal:
                self._reply(refusal.status, {"error": {"message": str(refusal)}})
            except (KeyError, TypeError, ValueError) as error:
                self._reply(400, {"error": {"message": f"{type(error).__name__}: {error}"}})

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="finetune serve", description="An OpenAI-compatible endpoint.")
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--name", help="what the base model is called (default: MODEL)")
    parser.add_argument("--adapter", action="append", default=[], metavar="NAME=PATH")
    given = parser.parse_args(arguments)
    try:
        engine = Engine(given.model, given.name or given.model)
        for one in given.adapter:
            name, _, path = one.partition("=")
            engine.load(name, path)
    except TrainError:
        raise
    except Exception as error:  # the exceptions for a broken file depend on the library that reads it
        text = str(error) if isinstance(error, Refused) else f"{given.model}: {error}"
        raise TrainError(text.splitlines()[0][:500]) from error
    server = ThreadingHTTPServer((given.host, given.port), handler_of(engine))
    print(f"serves {engine.name} on http://{given.host}:{server.server_port}/v1", flush=True)
    server.serve_forever()
    return 0
