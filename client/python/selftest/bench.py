"""The daemon under test, and what both kinds of selftest print."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Sequence

from verifierd_client import Client, Refused, Unavailable, VerifierdError

from .corpus import Candidate, Task
from .score import Json

READY_LIMIT_S = 180.0
"""Workers import torch."""
CALL_LIMIT_S = 600.0
"""Registering a task runs its reference, maybe behind others."""
POLL_S = 20.0
POLL_PAUSE_S = 0.2
# Characters that control a terminal, or change the direction of a text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def say(text: str) -> None:
    """A line for people. What a progress line left on the terminal is wiped out."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    print(_CONTROLS.sub("?", text), flush=True)


def say_json(document: Json) -> None:
    print(json.dumps(document, separators=(",", ":")), flush=True)


def complain(error: object) -> None:
    print(f"verifier: {error}", file=sys.stderr, flush=True)


def table(titles: Sequence[str], rows: Sequence[Sequence[object]], marks: Sequence[bool] = (), marked: int = 0) -> None:
    """The first column to the left, the others to the right; on a terminal one of them is green or red by `marks`."""
    lines = [[str(cell) for cell in row] for row in (titles, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    may_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for i, line in enumerate(lines):
        cells = [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
        if may_colour and marks and i:
            cells[marked] = f"\033[{32 if marks[i - 1] else 31}m{cells[marked]}\033[0m"
        print(" ".join(cells))


class Bench:
    """The daemon. Every method raises what Client does."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.client.call("GET", "/readyz", deadline=time.monotonic() + READY_LIMIT_S)
        self.status = self.client.call("GET", "/v1/status", deadline=time.monotonic() + CALL_LIMIT_S)
        self.has_gpu = bool(member(self.status, "gpus"))
        self._run = f"selftest {time.time_ns() // 1_000_000:x}.{os.getpid()}"
        self._nonces = itertools.count()

    def nonce(self) -> str:
        """A text that occurs in no earlier candidate."""
        return f"{self._run}.{next(self._nonces)}"

    def add_task(self, task: Task) -> str:
        """Its id. A name is one task's: users have names like ours, and other versions of this program other tasks."""
        body = task.registration()
        tag = hashlib.sha256(json.dumps(body).encode()).hexdigest()
        answer = self.client.add_task(**{**body, "name": f"{task.name} {tag[:12]}"})  # type: ignore[arg-type]
        return str(member(answer, "id"))

    def submit(self, candidate: Candidate, task_id: str, policy: str | None = None, until: str | None = None) -> str:
        """Submit it with fresh bytes, under this policy or its own, through all stages or until one: its id."""
        answer = self.client.submit(
            task_id,
            **{"completion" if candidate.is_completion else "candidate": candidate.fresh(self.nonce())},
            entry_point=candidate.entry_point,
            client="selftest",
            cache=False,  # the same again has to be judged again
            policy=policy or candidate.policy,
            until=until,
        )
        return str(member(answer, "id"))

    def verdict(self, ident: str, limit_s: float) -> Json | None:
        """Of a submission; None: it took longer, and was cancelled."""
        deadline = time.monotonic() + limit_s
        while (left_s := deadline - time.monotonic()) > 0:
            found = self.client.submission(ident, wait_s=min(left_s, POLL_S))
            if member(found, "state") in ("done", "cancelled"):
                return dict(found)
            time.sleep(POLL_PAUSE_S)
        self.client.cancel(ident)
        return None


def member(document: object, key: str) -> object:
    if not isinstance(document, dict) or document.get(key) is None:
        raise VerifierdError(f"the answer has no {key}: is this verifierd?")
    return document[key]


def is_refused(error: VerifierdError) -> bool:
    """It is this request that verifierd does not take."""
    return isinstance(error, Refused) and error.status < 500 and status_of(error) == 6


def status_of(error: VerifierdError) -> int:
    """The exit status of verifier(1)."""
    status = error.status if isinstance(error, Refused | Unavailable) else 0
    return {0: 7, 401: 4, 403: 4, 404: 5, 410: 5, 408: 8, 504: 8}.get(status, 6)
