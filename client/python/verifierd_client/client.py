"""Tasks, submissions, groups and events over HTTP: posted once, also after lost connections, and waited for.

A call without a response, or whose answer is marked as retryable, is repeated under the same Idempotency-Key, after
the time that the daemon asks for. `Client` blocks; `verifierd_client.aio.AsyncClient` has the same methods for asyncio.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

from .types import Event, Filters, Group, Rescored, Task, Verdict

Json = dict[str, Any]
Answer = str | Mapping[str, str]

DEFAULT_URL = "http://127.0.0.1:8080"
GROUP_MAX = 256
PAGE = 200
POLL_S = 50.0
"""Longest single wait: below the idle limits of the proxies that people have."""
POLL_PAUSE_S = 0.2
CALL_LIMIT_S = 120.0
PAUSE_S = 1.0
PAUSE_MAX_S = 30.0
FAULTS_MOST = 3
"""Answers of 500 to one call before it is given up: what fails so often fails again."""
AGAIN = (429, 502, 503, 504)
"""Statuses to try again after, where the answer does not say whether it is retryable: a proxy's."""
FINISHED = ("done", "cancelled")


class VerifierdError(Exception):
    """The daemon gave no verdict; the text is for people."""


class Refused(VerifierdError):
    """The request is wrong, and will be wrong again. pointer: the part of the body, where the answer has it."""

    def __init__(self, status: int, code: str, detail: str, pointer: str = "") -> None:
        super().__init__(f"verifierd: {status} {code}: {detail}")
        self.status, self.code, self.detail, self.pointer = status, code, detail, pointer


class Unavailable(VerifierdError):
    """No answer, or no verdict, within the time. status: of the last answer, 0 where none came."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


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
        try:
            return dict(json.loads(label))
        except ValueError as error:
            raise ValueError(f"a task looks like a JSON object, and is none ({error}): {label:.80}") from error
    return {"reference": label} if "\n" in label else {"task": label}


def labels(
    run: str | None = None,
    step: int | None = None,
    policy_version: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Json | None:
    """The metadata of a submission or group: metadata, and the labels by which the dashboard filters and draws.

    run is VERIFIERD_RUN where it is not given. None: there is nothing to send.
    """
    told = {"run": run or os.environ.get("VERIFIERD_RUN") or None, "step": step, "policy_version": policy_version}
    return {**(metadata or {}), **_told(told)} or None


@dataclass
class Ticket:
    """A wait that another thread may give up: is_dropped is set there; path is the submission's or group's.

    hold_s: for how long the daemon may hold the call that posts, in which path is not known yet.
    """

    hold_s: float = POLL_S
    path: str = ""
    is_dropped: bool = False


class Client:
    """Calls to one daemon. May be used by several threads at once.

    url and token: or VERIFIERD_URL (else http://127.0.0.1:8080) and VERIFIERD_TOKEN. The certificates to believe are
    those of CURL_CA_BUNDLE, else the system's. wait_s: seconds in which a verdict has to come, with all tries.
    reconnect: a call that breaks off is made again, as one that is not answered in time is. Every method raises Refused
    or Unavailable.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        wait_s: float = 900.0,
        sleep: Callable[[float], None] = time.sleep,
        reconnect: bool = True,
    ) -> None:
        told = url or os.environ.get("VERIFIERD_URL") or DEFAULT_URL
        if not told.startswith(("http://", "https://")):
            raise ValueError(f"say where verifierd is: url= or VERIFIERD_URL, http://host:8080 (not {told!r})")
        self.url = told.rstrip("/")
        self.token = token or os.environ.get("VERIFIERD_TOKEN") or None
        self.wait_s = wait_s
        self._sleep = sleep
        self._reconnect = reconnect
        self._opener = urllib.request.build_opener(*handlers_of(self.url))

    # --- verdicts ---

    def judge(self, task: object, completion: str, **options: object) -> Verdict:
        """The verdict on one answer of a model. options: policy, reward, metadata, ... of a submission."""
        return self.judge_within(Ticket(), task, completion, **options)

    def judge_group(self, task: object, completions: Sequence[Answer], **options: object) -> list[Verdict]:
        """The verdicts on the answers to one prompt, in their order. Rewards of a rank need this.

        An answer is a model's text, or bare code as {"candidate": code}.
        """
        return self.judge_group_within(Ticket(), task, completions, **options)

    def judge_within(self, ticket: Ticket, task: object, completion: str, **options: object) -> Verdict:
        """judge(), which another thread may end by the ticket."""
        body = _submission(task, {"completion": completion}, options)
        return cast(Verdict, self._finish("submissions", body, ticket))

    def judge_group_within(
        self, ticket: Ticket, task: object, completions: Sequence[Answer], **options: object
    ) -> list[Verdict]:
        """judge_group(), which another thread may end by the ticket."""
        return list(self._finish("groups", _group(task, completions, options), ticket)["items"])

    def submit(
        self, task: object, completion: str | None = None, *, candidate: str | None = None, **options: object
    ) -> Verdict:
        """Post one answer, or bare code as candidate, and do not wait: its id and its state."""
        if (completion is None) == (candidate is None):
            raise ValueError("give a completion (a model's answer) or a candidate (code), one of them")
        body = _submission(task, _told({"completion": completion, "candidate": candidate}), options)
        return cast(Verdict, self._post("submissions", body))

    def submit_group(self, task: object, completions: Sequence[Answer], **options: object) -> Group:
        """Post the answers to one prompt and do not wait: the group's id and its items' ids."""
        return cast(Group, self._post("groups", _group(task, completions, options)))

    def submission(self, ident: str, wait_s: float = 0.0) -> Verdict:
        """Its state, or its verdict once it is done; wait_s: at most so long for that."""
        return cast(Verdict, self._wait_for(f"/v1/submissions/{quote(ident)}", wait_s))

    def submissions(self, filters: Filters | None = None) -> Iterator[Verdict]:
        """Those that all filters fit, newest first; a page is asked for when the one before is used up."""
        return cast(Iterator[Verdict], self._pages("submissions", filters or {}))

    def plan(self, ident: str) -> Json:
        """A document with its plan, under plan: null if it is not judged by a plan, or not yet traced."""
        return self._get(f"/v1/submissions/{quote(ident)}/plan")

    def group(self, ident: str, wait_s: float = 0.0) -> Group:
        """The group with its items and their ranking; wait_s: at most so long until all are done."""
        return cast(Group, self._wait_for(f"/v1/groups/{quote(ident)}", wait_s))

    def cancel(self, ident: str, *, kind: str = "submissions") -> None:
        """Have it judged no more. kind: submissions or groups."""
        self.call("DELETE", f"/v1/{kind}/{quote(ident)}", deadline=self._deadline())

    def rescore(
        self, reward: object, *, group: str | None = None, submissions: Sequence[str] | None = None
    ) -> list[Rescored]:
        """The rewards of another kind for stored verdicts; nothing is judged."""
        if (group is None) == (submissions is None):
            raise ValueError("give a group or submissions, one of them")
        told = {"kind": reward} if isinstance(reward, str) else reward
        ids = None if submissions is None else list(submissions)
        body = _told({"reward": told, "group": group, "submissions": ids})
        return list(self.call("POST", "/v1/rescore", body, deadline=self._deadline())["items"])

    # --- tasks ---

    def add_task(self, name: str, reference: str, **options: object) -> Task:
        """Register a task; the daemon runs the reference before it answers. options: entry_point, level, cases, ..."""
        return cast(Task, self._post("tasks", {"name": name, "reference": reference, **_told(options)}))

    def task(self, task: str) -> Task:
        """One task, by id or by name."""
        return cast(Task, self._get(f"/v1/tasks/{quote(task, safe='')}"))

    def tasks(self) -> Iterator[Task]:
        """All tasks, in brief; a page is asked for when the one before is used up."""
        return cast(Iterator[Task], self._pages("tasks", {}))

    def leaders(self, task: str) -> Json:
        """A task's fastest right candidates, under items, and how often it was tried."""
        return self._get(f"/v1/tasks/{quote(task, safe='')}/leaders")

    def leaderboard(self) -> list[Json]:
        """The tasks that were tried, the most recently active first, each with its best figures."""
        return list(self._get(f"/v1/leaderboard?limit={PAGE}")["items"])

    def run(self, run: str) -> Json:
        """The results of a training run (metadata.run), and of each of its steps, oldest first, under steps."""
        return self._get(f"/v1/runs/{quote(run, safe='')}")

    # --- events ---

    def events(self, *, submission: str | None = None, group: str | None = None, view: str = "full") -> Iterator[Event]:
        """The events of one submission or group, until it is finished; without either, all that the token may see.

        A stream that is interrupted, or whose daemon stops, is continued after the last event. Unavailable if that
        takes longer than wait_s.
        """
        return self.events_within(Ticket(), submission, group, view)

    def events_within(self, ticket: Ticket, submission: str | None, group: str | None, view: str) -> Iterator[Event]:
        """The same, until the ticket is dropped."""
        if submission and group:
            raise ValueError("give a submission or a group, not both")
        of = f"/submissions/{quote(submission)}" if submission else f"/groups/{quote(group)}" if group else ""
        path, last = f"/v1{of}/events?view={quote(view)}", ""
        while not ticket.is_dropped:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
            with self._open("GET", path, None, headers, self._deadline()) as reply:
                if reply.status == 204:
                    return
                for event in _stream(reply, ticket):
                    last = event.id or last
                    is_pause = event.name == "end" and event.data.get("reason") == "draining"
                    if not is_pause:
                        yield event
                    if event.name == "end" and not is_pause:
                        return
            self._sleep(PAUSE_S)

    # --- calls ---

    def call(self, method: str, path: str, body: object = None, *, key: str = "", deadline: float) -> Json:
        """One call, made again until it is answered or the deadline (monotonic) is over."""
        headers = {"Accept": "application/json", **({"Idempotency-Key": key} if key else {})}
        return self._open(method, path, body, headers, deadline, _document)

    def _open(
        self,
        method: str,
        path: str,
        body: object,
        headers: Json,
        deadline: float,
        read: Callable[[bytes], Any] | None = None,
    ) -> Any:
        """The result of read(response), or without read the open response, which the caller closes."""
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None
        if body is not None:
            # As UTF-8: escaped, an answer in Chinese is twice as long, and a body has at most 8 MiB. Half a character,
            # of which a tokenizer left the other out, becomes "?".
            data = json.dumps(body, default=_plain, ensure_ascii=False).encode(errors="replace")
            headers["Content-Type"] = "application/json"
        pause_s, status, why, faults = PAUSE_S, 0, "no try was made", 0
        while (left_s := deadline - time.monotonic()) > 0:
            request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
            asked_s = 0.0
            try:
                reply = self._opener.open(request, timeout=min(left_s + 5, CALL_LIMIT_S))
                if read is None:
                    return reply
                with reply:
                    return read(reply.read())
            except urllib.error.HTTPError as refusal:
                with refusal:
                    status, problem = refusal.code, _problem(refusal.read())
                faults += status == 500
                if faults == FAULTS_MOST or not problem.get("retryable", status in AGAIN):
                    raise Refused(status, problem["code"], problem["detail"], problem["pointer"]) from None
                why = f"{status} {problem['detail']}"
                asked_s = _seconds(refusal.headers.get("Retry-After"))
            except (OSError, ValueError, HTTPException) as error:
                status, why = 0, str(error)
                is_passing = self._reconnect or isinstance(error, TimeoutError)
                if not is_passing or isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
                    break
            wait_s = max(asked_s, pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
            self._sleep(max(0.0, min(wait_s, deadline - time.monotonic())))
        raise Unavailable(f"verifierd at {self.url}: {why}", status)

    def _deadline(self) -> float:
        return time.monotonic() + self.wait_s

    def _post(self, kind: str, body: Json, wait_s: float = 0.0, deadline: float | None = None) -> Json:
        path = f"/v1/{kind}" if kind == "tasks" else f"/v1/{kind}?wait={wait_s:.0f}"
        return self.call("POST", path, body, key=str(uuid.uuid4()), deadline=deadline or self._deadline())

    def _get(self, path: str) -> Json:
        return self.call("GET", path, deadline=self._deadline())

    def _pages(self, kind: str, filters: Mapping[str, object]) -> Iterator[Json]:
        cursor: str | None = None
        while True:
            page = self._get(f"/v1/{kind}?" + urlencode(_told({**filters, "limit": PAGE, "cursor": cursor})))
            yield from page["items"]
            cursor = page.get("next")
            if not cursor:
                return

    def _finish(self, kind: str, body: Json, ticket: Ticket) -> Json:
        deadline = self._deadline()
        document = self._post(kind, body, min(ticket.hold_s, self.wait_s), deadline)
        ticket.path = f"/v1/{kind}/{document['id']}"
        document = self._follow(document, ticket, deadline, deadline)
        if document["state"] not in FINISHED:
            self.give_up(ticket)
            raise Unavailable(f"verifierd at {self.url}: no verdict within {self.wait_s:.0f} s")
        return document

    def _wait_for(self, path: str, wait_s: float) -> Json:
        end = time.monotonic() + wait_s
        deadline = max(end, self._deadline())
        document = self.call("GET", f"{path}?wait={min(POLL_S, wait_s):.0f}", deadline=deadline)
        return self._follow(document, Ticket(path=path), end, deadline)

    def _follow(self, document: Json, ticket: Ticket, end: float, deadline: float) -> Json:
        """The document once it is finished, or as it is at the end. deadline: of the calls."""
        while document["state"] not in FINISHED and not ticket.is_dropped:
            asked = time.monotonic()
            if asked >= end:
                break
            document = self.call("GET", f"{ticket.path}?wait={min(POLL_S, end - asked):.0f}", deadline=deadline)
            # A daemon that does not hold requests answers at once.
            if document["state"] not in FINISHED and time.monotonic() - asked < POLL_PAUSE_S:
                self._sleep(POLL_PAUSE_S)
        return document

    def give_up(self, ticket: Ticket) -> None:
        """The result is not needed any more: cancel it."""
        with contextlib.suppress(VerifierdError):
            self.call("DELETE", ticket.path, deadline=time.monotonic() + 5)


def _submission(task: object, code: Json, options: Mapping[str, object]) -> Json:
    return {**_of_row(task, options), **{name: _clean(text) for name, text in code.items()}}


def _of_row(task: object, options: Mapping[str, object]) -> Json:
    """A row's own policy and reward come before those that are given for all rows, as under /compat."""
    return {**_told(options), **_told(task_of(task))}


def _group(task: object, completions: Sequence[Answer], options: Mapping[str, object]) -> Json:
    if not 1 <= len(completions) <= GROUP_MAX:
        raise ValueError(f"a group has 1 to {GROUP_MAX} answers, not {len(completions)}")
    items = [
        {"completion": _clean(one)} if isinstance(one, str) else {key: _clean(text) for key, text in one.items()}
        for one in completions
    ]
    return {**_of_row(task, options), "candidates": items}


def _clean(text: str) -> str:
    """Halves of surrogate pairs, which a tokenizer's text may have, are not UTF-8: each becomes a question mark."""
    return text.encode(errors="replace").decode()


def _stream(reply: HTTPResponse, ticket: Ticket) -> Iterator[Event]:
    """The events of an answer, until it ends or breaks off, or the ticket is dropped."""
    name = ident = data = ""
    try:
        for raw in reply:
            if ticket.is_dropped:
                return
            line = raw.decode(errors="replace").rstrip("\r\n")
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line and (name or data):
                yield Event(name or "message", json.loads(data or "{}"), ident)
                name = ident = data = ""
            elif field == "event":
                name = value
            elif field == "id":
                ident = value
            elif field == "data":
                data += value
    except (OSError, HTTPException):
        return


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def handlers_of(url: str) -> list[urllib.request.BaseHandler]:
    """Believes whom curl(1) believes; SSL_CERT_FILE and SSL_CERT_DIR are Python's own. A proxy's loopback is another
    machine, so a daemon on ours is asked without one. A redirect is not followed (HTTPError): the token is for url."""
    bundle = os.environ.get("CURL_CA_BUNDLE") or None
    host = urlsplit(url).hostname or ""
    is_local = host in ("localhost", "::1") or host.startswith("127.")
    found: list[urllib.request.BaseHandler] = [_NoRedirect(), *([urllib.request.ProxyHandler({})] if is_local else [])]
    if not url.startswith("https:"):
        return found
    try:
        return [*found, urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=bundle))]
    except OSError as error:
        raise ValueError(f"CURL_CA_BUNDLE={bundle}: {error}") from error


def _plain(value: object) -> object:
    """Of a trainer's configuration, whose mappings and lists may be none of Python's own."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"{value!r:.80} cannot be sent as JSON")


def _told(options: Mapping[str, object]) -> Json:
    return {name: value for name, value in options.items() if value is not None}


def _document(data: bytes) -> Json:
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("the answer is no JSON object")
    return document


def _problem(data: bytes) -> Json:
    try:
        document = _document(data)
    except ValueError:
        document = {"detail": data[:200].decode(errors="replace")}
    told: Json = {"code": str(document.get("code", "")), "detail": str(document.get("detail", "")), "pointer": ""}
    if isinstance(document.get("retryable"), bool):
        told["retryable"] = document["retryable"]
    match document.get("errors"):
        case [{"pointer": pointer}, *_]:
            told["pointer"] = str(pointer)
    return told


def _seconds(header: str | None) -> float:
    try:
        return min(max(float(header or 0), 0.0), PAUSE_MAX_S)
    except ValueError:
        return 0.0
