"""Submissions and groups over HTTP: posted once, whatever is lost on the way, and waited for.

A call that is not answered, or answered with 429, 502, 503 or 504, is made again under the same Idempotency-Key, after
the time that the daemon asks for.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Json = dict[str, Any]

GROUP_MAX = 256
POLL_S = 50.0
"""Longest single wait: below the idle limits of the proxies that people have."""
POLL_PAUSE_S = 0.2
CALL_LIMIT_S = 120.0
PAUSE_S = 1.0
PAUSE_MAX_S = 30.0
AGAIN = (429, 502, 503, 504)
FINISHED = ("done", "cancelled")


class VerifierdError(Exception):
    """The daemon gave no verdict; the text is for people."""


class Refused(VerifierdError):
    """The request is wrong, and will be wrong again. status, code and detail are those of the answer."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"verifierd: {status} {code}: {detail}")
        self.status, self.code, self.detail = status, code, detail


class Unavailable(VerifierdError):
    """No answer, or no verdict, within the time."""


def task_of(label: object) -> Json:
    """The part of a request that says the task, from what a data set's row has of it.

    A mapping, or the text of a JSON object: its own keys (task, reference, entry_point, policy, reward).
    A text of several lines: the reference's source. Any other text: a task's id or name.
    """
    if isinstance(label, Mapping):
        return dict(label)
    if not isinstance(label, str) or not label:
        raise ValueError(f"a task is an id, a name, a reference's source or an object, not {label!r:.80}")
    if label.lstrip().startswith("{"):
        told = json.loads(label)
        if not isinstance(told, dict):
            raise ValueError(f"no JSON object: {label:.80}")
        return told
    return {"reference": label} if "\n" in label else {"task": label}


class Client:
    """Calls to one daemon. May be used by several threads at once.

    url and token: or VERIFIERD_URL and VERIFIERD_TOKEN; the certificates to believe: CURL_CA_BUNDLE, else the system's.
    wait_s: seconds in which a verdict has to come, with all tries.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        wait_s: float = 900.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        told = url or os.environ.get("VERIFIERD_URL") or ""
        if not told.startswith(("http://", "https://")):
            raise ValueError(f"say where verifierd is: url= or VERIFIERD_URL, http://host:8080 (not {told!r})")
        self.url = told.rstrip("/")
        self.token = token or os.environ.get("VERIFIERD_TOKEN") or None
        self.wait_s = wait_s
        self._sleep = sleep
        self._opener = urllib.request.build_opener(*_https_of(self.url))

    def judge(self, task: object, completion: str, **options: object) -> Json:
        """The verdict on one answer of a model (Unavailable, Refused). options: policy, reward, metadata, ..."""
        body = {"completion": completion, **task_of(task), **_told(options)}
        return self._finish("submissions", body)

    def judge_group(self, task: object, completions: Sequence[str], **options: object) -> list[Json]:
        """The verdicts on the answers to one prompt, in their order. Rewards of a rank need this."""
        if not 1 <= len(completions) <= GROUP_MAX:
            raise ValueError(f"a group has 1 to {GROUP_MAX} answers, not {len(completions)}")
        items = [{"completion": text} for text in completions]
        document = self._finish("groups", {"candidates": items, **task_of(task), **_told(options)})
        return list(document["items"])

    def call(self, method: str, path: str, body: object = None, *, key: str = "", deadline: float) -> Json:
        """One call, made again until it is answered or the deadline (monotonic) is over."""
        headers = {"Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if key:
            headers["Idempotency-Key"] = key
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        pause_s, why = PAUSE_S, "no try was made"
        while (left_s := deadline - time.monotonic()) > 0:
            request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
            asked_s = 0.0
            try:
                with self._opener.open(request, timeout=min(left_s + 5, CALL_LIMIT_S)) as reply:
                    return _document(reply.read())
            except urllib.error.HTTPError as refusal:
                with refusal:
                    status, problem = refusal.code, _problem(refusal.read())
                # Another try of ours with the same key is still on its way in.
                if status not in AGAIN and problem["code"] != "key_in_flight":
                    raise Refused(status, problem["code"], problem["detail"]) from None
                why = f"{status} {problem['detail']}"
                asked_s = _seconds(refusal.headers.get("Retry-After"))
            except (OSError, ValueError) as error:
                why = str(error)
                if isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
                    break
            wait_s = max(asked_s, pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
            self._sleep(max(0.0, min(wait_s, deadline - time.monotonic())))
        raise Unavailable(f"verifierd at {self.url}: {why}")

    def _finish(self, kind: str, body: Json) -> Json:
        deadline = time.monotonic() + self.wait_s
        wait_s = min(POLL_S, self.wait_s)
        document = self.call("POST", f"/v1/{kind}?wait={wait_s:.0f}", body, key=str(uuid.uuid4()), deadline=deadline)
        while document["state"] not in FINISHED:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                self._give_up(kind, str(document["id"]))
                raise Unavailable(f"verifierd at {self.url}: no verdict within {self.wait_s:.0f} s")
            path = f"/v1/{kind}/{document['id']}?wait={min(POLL_S, left_s):.0f}"
            asked = time.monotonic()
            document = self.call("GET", path, deadline=deadline)
            # A daemon that holds nobody answers at once.
            if document["state"] not in FINISHED and time.monotonic() - asked < POLL_PAUSE_S:
                self._sleep(POLL_PAUSE_S)
        return document

    def _give_up(self, kind: str, ident: str) -> None:
        """Nobody will look at it: do not have it judged."""
        with contextlib.suppress(VerifierdError):
            self.call("DELETE", f"/v1/{kind}/{ident}", deadline=time.monotonic() + 5)


def _https_of(url: str) -> list[urllib.request.BaseHandler]:
    """Believes whom curl(1) believes; SSL_CERT_FILE and SSL_CERT_DIR are Python's own."""
    bundle = os.environ.get("CURL_CA_BUNDLE") or None
    if not url.startswith("https:"):
        return []
    try:
        return [urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=bundle))]
    except OSError as error:
        raise ValueError(f"CURL_CA_BUNDLE={bundle}: {error}") from error


def _told(options: Mapping[str, object]) -> Json:
    return {name: value for name, value in options.items() if value is not None}


def _document(data: bytes) -> Json:
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("the answer is no JSON object")
    return document


def _problem(data: bytes) -> dict[str, str]:
    try:
        document = _document(data)
    except ValueError:
        document = {"detail": data[:200].decode(errors="replace")}
    return {"code": str(document.get("code", "")), "detail": str(document.get("detail", ""))}


def _seconds(header: str | None) -> float:
    try:
        return min(max(float(header or 0), 0.0), PAUSE_MAX_S)
    except ValueError:
        return 0.0
