"""The daemon's results for a row: does its reference run, is its answer correct, which shapes can be timed.

All results are kept in a journal by the row's content, so that a command that is repeated asks for nothing twice.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from verifierd_client import Client, Refused, Unavailable

from .entry import Entry
from .errors import CONFIG, SERVICE, PrepareError
from .tree import Fault, grown

Json = dict[str, Any]

AWAY_LIMIT_S = 600.0
POLL_S = 20
FLAGS = {"random_reference": "random", "output_constant": "constant", "output_insensitive": "insensitive"}
MIN_MS, MAX_MS = 0.05, 20.0
EXPONENT_MAX, TRIES_MAX = 24, 12


class Stopped(Exception):
    """A signal came."""


class Daemon:
    """Calls that are made again for as long as a daemon may be away; one that is refused for all ends the command."""

    def __init__(self, url: str | None) -> None:
        try:
            self.client = Client(url, wait_s=AWAY_LIMIT_S, sleep=self._pause)
        except ValueError as error:
            raise PrepareError(str(error), CONFIG) from error
        self.is_stopping = threading.Event()

    def _pause(self, seconds: float) -> None:
        if self.is_stopping.wait(seconds):
            raise Stopped

    def call(self, method: str, path: str, body: Json | None = None, key: str = "") -> Json:
        """Refused where it is this call's fault."""
        try:
            return self.client.call(method, path, body, key=key, deadline=time.monotonic() + AWAY_LIMIT_S)
        except Refused as error:
            if error.status in (401, 403) or error.status >= 500:
                raise PrepareError(f"verifierd answered {error.status}: {error.detail}", SERVICE) from error
            raise
        except Unavailable as error:
            raise PrepareError(str(error), SERVICE) from error

    def register(self, name: str, source: str, entry_point: str, level: int) -> Json:
        """Names are for people, and data sets share some: one that stands for another task gets a tag behind it."""
        body: Json = {
            "name": name,
            "reference": source,
            "entry_point": entry_point,
            **({"level": level} if level else {}),
        }
        try:
            return self.call("POST", "/v1/tasks", body)
        except Refused as error:
            if error.status != 409:
                raise
        tag = hashlib.sha256(json.dumps(body).encode()).hexdigest()[:12]
        return self.call("POST", "/v1/tasks", body | {"name": f"{name} {tag}"})

    def judge(self, run: str, body: Json) -> Json:
        """The verdict on a group of one. A group that was posted before a kill is found again by run and body."""
        key = "sha256:" + hashlib.sha256(f"{run}\n{json.dumps(body)}".encode()).hexdigest()
        group = self.call("POST", "/v1/groups", body, key)
        while True:
            self._pause(0)  # which ends it where the run is being stopped
            asked = time.monotonic()
            try:
                document = self.call("GET", f"/v1/groups/{group['id']}?wait={POLL_S}")
            except Refused as error:
                if error.status != 404:
                    raise
                return {"class": "infra"}  # the daemon has another store now
            if document["state"] in ("done", "cancelled"):
                return dict(document["items"][0])
            if time.monotonic() - asked < 0.2:
                self._pause(0.2)

    def has_gpu(self) -> bool:
        return bool(self.call("GET", "/v1/status").get("gpus"))


class Journal:
    """Records by key, on disk before add() returns. One process at a time."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PrepareError(f"another run is writing {path}") from None
        self._mutex = threading.Lock()
        self.records: dict[str, Json] = {}
        self.run = ""
        self._read(path)
        if not self.run:
            self.begin_afresh()

    def _read(self, path: Path) -> None:
        self._file.seek(0)
        end = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):  # cut short by a crash: it was never acknowledged
                break
            try:
                record = json.loads(line)
                end += len(line)
                self.run = record.get("run", self.run)
                if "key" in record:
                    self.records[record["key"]] = record
            except (ValueError, AttributeError):
                raise PrepareError(f"{path}, line {number} is not a JSON object") from None
        self._file.truncate(end)

    def add(self, record: Json) -> None:
        with self._mutex:
            self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
            self._file.flush()
            os.fdatasync(self._file.fileno())
            if "key" in record:
                self.records[record["key"]] = record

    def begin_afresh(self) -> None:
        """Groups posted from now on are new ones."""
        self.run = str(uuid.uuid4())
        self.add({"run": self.run})


class Inquiry:
    """Asks of rows. policies: what answers are judged under, by level; None: they are not."""

    def __init__(self, daemon: Daemon, journal: Journal, policies: Json | None, policy: str, enlarges: bool) -> None:
        self.daemon, self.journal = daemon, journal
        self.policies, self.policy, self.enlarges = policies, policy, enlarges

    def _judges(self, e: Entry) -> bool:
        return self.policies is not None and e.has_answer

    def key(self, e: Entry) -> str:
        """Of all that the answer depends on."""
        policy = json.dumps(self.policies) if Path(self.policy).is_file() else self.policy
        judged = (e.answer, policy) if self._judges(e) else ("", "")
        text = f"{e.entry_point}\0{e.source}\0{judged[0]}\0{judged[1]}{'enlarged' if self.enlarges else ''}"
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def before(self, e: Entry) -> Json | None:
        return self.journal.records.get(self.key(e))

    def ask(self, e: Entry) -> Json:
        """The record of what the daemon says, which is in the journal then."""
        record: Json = {"key": self.key(e)}
        try:
            task = self.daemon.register(e.name, e.source, e.entry_point, e.level)
        except Refused as error:
            record |= {"reason": "does_not_run", "detail": f"verifierd answered {error.status}: {error.detail}"[:250]}
            self.journal.add(record)
            return record
        own = ((task.get("spec") or {}).get("cases") or {}).get("own") or {}
        if "operations" in own:
            record["operations"] = own["operations"]
        flags = [FLAGS[flag] for flag in task.get("flags") or () if flag in FLAGS]
        if flags:
            record["reason"] = flags[0]
        elif self._judges(e):
            record["answer"] = self._class_of_answer(e, task["id"])
        if self.enlarges and not flags:
            record |= enlarged(self.daemon, self.journal.run, e, task["id"])
        if record.get("answer") == "infra":  # ours to mend: asked again when the command is, as a new group
            self.journal.begin_afresh()
        else:
            self.journal.add(record)
        return record

    def _class_of_answer(self, e: Entry, task: str) -> str:
        assert self.policies is not None
        body = {
            "task": task,
            "candidates": [{"candidate": e.answer}],
            "policy": self.policies["2" if e.level >= 2 else "1"],
            "until": "full",
            "client": "trainer",
            "entry_point": e.wanted[:153],
        }
        verdict = self.daemon.judge(self.journal.run, body)
        if (verdict.get("components") or {}).get("correct") == 1:
            return "ok"
        found = verdict.get("class")
        return str(found) if found and found != "ok" else "skipped"


# --- larger shapes ---


def enlarged(daemon: Daemon, run: str, e: Entry, task: str) -> Json:
    """{ms} where the reference runs MIN_MS to MAX_MS, with {enlarged} where it does so with larger shapes; else {}."""
    ms = _time_of(daemon, run, e, e.source, task)
    if MIN_MS <= ms <= MAX_MS:
        return {"ms": ms}
    for how in ("batch", "all") if ms < MIN_MS else ():
        found = _search(daemon, run, e, how, ms)
        if found:
            return {"ms": found["ms"], "enlarged": found}
    return {}


def _time_of(daemon: Daemon, run: str, e: Entry, source: str, task: str) -> float:
    """The reference's time in ms as its own candidate; 0: too short to be reported; NaN: it was not timed."""
    body = {
        "task": task,
        "candidates": [{"candidate": source}],
        "policy": "kernelbench",
        "client": "trainer",
        "entry_point": e.entry_point,
    }
    timing = daemon.judge(run, body).get("timing") or {}
    if isinstance(timing.get("reference_ms"), (int, float)):
        return float(timing["reference_ms"])
    return 0.0 if timing.get("outcome") == "too_small" else math.nan


def _try_size(daemon: Daemon, run: str, e: Entry, source: str) -> float:
    """NaN where the daemon refuses it, which is taken for too large."""
    try:
        task = daemon.register(e.name, source, e.entry_point, e.level)
    except Refused:
        return math.nan
    return _time_of(daemon, run, e, source, task["id"])


def _search(daemon: Daemon, run: str, e: Entry, how: str, ms: float) -> Json | None:
    """The smallest power of two that brings it into the window, by few tries."""
    low, high = 0, EXPONENT_MAX + 1  # too short at low, too long or refused at high
    for _ in range(TRIES_MAX):
        if high - low <= 1:
            return None
        steps = math.log2(2 * MIN_MS / ms) if ms > 0 else 8  # as if time grew with size
        guess = (low + high) // 2 if high <= EXPONENT_MAX else low + max(1, min(8, int(steps)))
        exponent = min(guess, high - 1)
        try:
            source = str(grown({"source": e.source, "how": how, "factor": 1 << exponent})["source"])
        except Fault:
            return None
        seen = _try_size(daemon, run, e, source)
        if MIN_MS <= seen <= MAX_MS:
            return {"how": how, "factor": 1 << exponent, "source": source, "ms": seen}
        if seen < MIN_MS:
            low, ms = exponent, seen
        else:
            high = exponent
    return None


def need_gpu(daemon: Daemon) -> bool:
    """Without a GPU nothing can be enlarged: rows say that they are untimed."""
    if daemon.has_gpu():
        return True
    print("trainer: the daemon has no GPU: nothing is enlarged, and rows are untimed", file=sys.stderr)
    return False
