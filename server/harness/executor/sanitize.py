"""compute-sanitizer over a plan that is run once for each case: in a child of its own, all tools at once.

The child is confined as an executor is, but may connect, since the tool and the process that it checks communicate over
a socket. It runs only trusted code and the machine code of the plan's kernels (executor/once.py). Findings are
reported, and decide nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from shared.wire import Channel, Json, clean_text, error_json

from executor import archive

PROGRAM: Final = "compute-sanitizer"
TOOLS: Final = ("memcheck", "racecheck", "initcheck")
OPTIONS: Final = (
    "--target-processes", "application-only",
    "--show-backtrace", "no",
    "--report-api-errors", "no",  # torch asks for what may not be there
    "--destroy-on-device-error", "kernel",  # the next kernel is run, too
    "--padding", "4096",
    "--launch-timeout", "60",
    "--print-limit", "100",
)  # fmt: skip
LIMIT_S: Final = 90.0
"""For all tools together. The daemon's own limit is longer (server/submission/device_stages.c)."""
INPUTS_MAX: Final = 128 << 20
"""Bytes of the inputs of all cases; less than a file may have (file_limit_bytes)."""
LOG_MAX: Final = 1 << 20
FINDINGS_MAX: Final = 16
"""Of one tool, by place and kind."""
TEXT_MAX: Final = 400

_AT: Final = re.compile(
    r"\bat (?P<kernel>[^\s(+:]+)(?:\([^)]*\))?[+:]0x[0-9a-f]+(?: in (?P<file>\S+):(?P<line>\d+))?", re.ASCII
)
_BY: Final = re.compile(r"\bby thread (\(\d+,\d+,\d+\)) in block (\(\d+,\d+,\d+\))", re.ASCII)
_SUMMARY: Final = re.compile(
    r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?$|hazards? displayed)|(\d+) errors were skipped"
)
_RACE: Final = re.compile(r"(?:Error|Warning|ERROR|WARNING): (?=Race|Potential)|Potential ")
_OTHER: Final = re.compile(r"COMPUTE-SANITIZER|\w+ SUMMARY|Warning: |\d+ errors were ")
_FAILURE: Final = re.compile(r"Error: |Internal Sanitizer Error|Target application ")


@dataclass
class Finding:
    """One kind of fault at one place of a kernel."""

    what: str
    kernel: str | None
    file: str | None
    line: int | None
    thread: str | None
    """Of the first report, as "(0,0,0)"."""
    block: str | None
    text: str
    reports: int = 1


@dataclass
class Log:
    """The output of one tool, as it was read."""

    errors: int = 0
    findings: list[Finding] = field(default_factory=list)
    failure: str | None = None
    """Why the tool itself could not do its work."""


def find_program() -> str | None:
    """That of PATH, of the toolkit, or of NVIDIA's package next to torch."""
    packages = Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin")
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which(
        PROGRAM, path=os.pathsep.join([os.environ.get("PATH", ""), f"{toolkit}/bin", *map(str, packages)])
    )


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each report's first line, and those that are indented below it."""
    title, rest = "", list[str]()
    for line in text.splitlines():
        if not line.startswith("========="):
            continue
        content = line[9:]
        if content.startswith("     ") and title:
            rest.append(content.strip())
            continue
        if title:
            yield title, rest
        title, rest = content.strip(), []
    if title:
        yield title, rest


def _finding(title: str, rest: list[str]) -> Finding:
    at = next((found for line in (title, *rest) if (found := _AT.search(line))), None)
    by = next((found for line in rest if (found := _BY.search(line))), None)
    what = _RACE.sub("", title, count=1) if at is None or at.string != title else _RACE.sub("", title[: at.start()])
    told = [line for line in rest if not (_BY.search(line) or (at is not None and line is at.string))]
    return Finding(
        clean_text(what.strip(), TEXT_MAX),
        at and clean_text(at["kernel"], TEXT_MAX),
        at and at["file"] and clean_text(at["file"], TEXT_MAX),
        int(at["line"]) if at and at["line"] else None,
        by and by[1],
        by and by[2],
        clean_text(" ".join(told), TEXT_MAX),
    )


def read_log(text: str) -> Log:
    log = Log()
    seen: dict[Any, Finding] = {}
    reports = 0
    for title, rest in _blocks(text):
        counted = _SUMMARY.match(title)
        if counted:
            log.errors += int(counted[1] or counted[2])
        elif _RACE.match(title) or not (_OTHER.match(title) or _FAILURE.match(title)):
            found = _finding(title, rest)
            first = seen.setdefault((found.what, found.kernel, found.file, found.line), found)
            first.reports += first is not found
            reports += 1
        elif _FAILURE.match(title):
            log.failure = log.failure or clean_text(" ".join([title, *rest]), TEXT_MAX)
    log.errors = max(log.errors, reports)
    log.findings = list(seen.values())[:FINDINGS_MAX]
    return log


def _start(program: str, tool: str, folder: Path, limit_s: float) -> subprocess.Popen[bytes]:
    """Each tensor has an allocation of its own: between those of torch's usual allocator the tool sees no bounds."""
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    once = [sys.executable, "-P", "-m", "executor.once", str(folder), str(limit_s)]
    with (folder / f"{tool}.told").open("wb") as told:
        return subprocess.Popen(
            [program, "--tool", tool, *OPTIONS, "--log-file", str(folder / f"{tool}.log"), *once],
            stdin=subprocess.DEVNULL,
            stdout=told,
            env=environment,
            cwd=folder,
        )


def _told(path: Path) -> tuple[list[str], str | None]:
    """The cases that a run went through, and why not all of them."""
    cases, why = list[str](), "it ended before it was through"
    for line in path.read_text(errors="replace").splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and "case" in said:
            cases.append(clean_text(str(said["case"]), TEXT_MAX))
        elif isinstance(said, dict) and "end" in said:
            return cases, said["end"] and clean_text(str(said["end"]), TEXT_MAX)
    return cases, why


def _result(tool: str, process: subprocess.Popen[bytes], folder: Path, end: float, limit_s: float) -> Json:
    late = None
    try:
        process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:  # what it has started ends with this child, which has no more to do
        process.kill()
        late = f"it did not end within {limit_s:g} s"
    log = folder / f"{tool}.log"
    read = Log()
    if log.exists():
        with log.open("rb") as file:
            read = read_log(file.read(LOG_MAX).decode("utf-8", "replace"))
    cases, why = _told(folder / f"{tool}.told")
    return {
        "tool": tool,
        "ran": bool(cases or read.findings),
        "why": late or (why and (read.failure or why)),
        "cases": cases,
        "errors": read.errors,
        "findings": [asdict(finding) for finding in read.findings],
    }


def run(program: str | None, folder: Path, limit_s: float = LIMIT_S) -> Json:
    """The reports of all tools on the plan in folder/images with the inputs in folder/inputs."""
    if program is None:
        return {"why": f"{PROGRAM} is not installed where the daemon's workers look (PATH, CUDA_HOME)", "tools": []}
    end = time.monotonic() + limit_s
    started = [(tool, _start(program, tool, folder, limit_s / 2)) for tool in TOOLS]
    return {"why": None, "tools": [_result(tool, process, folder, end, limit_s) for tool, process in started]}


def main(channel: Channel, scratch: Path) -> None:
    """One request, one answer."""
    message = channel.receive()
    try:
        for name, most in (("images", archive.BYTES_MAX), ("inputs", 2 * INPUTS_MAX)):
            (scratch / name).write_bytes(message.take(name, most))
        channel.send({"ev": "sanitized"}, contents={"found": json.dumps(run(find_program(), scratch)).encode()})
    except OSError as error:
        channel.send({"ev": "failed", "phase": "sanitize", "error": error_json(error)})
