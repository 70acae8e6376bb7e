"""Run what docs/requirements.md says shows each requirement, and print a line for each.

The page's table is the only list. A row that is `met` (or has no state) or `differs` is run; of the others the state is
printed. In the last column a word that begins with "tests/" is a test of pytest's, anything else a command for bash in
the repository's root, with the built programs and the C units in PATH and a verifierd of its own at VERIFIERD_URL.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from daemon import running_daemon

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "requirements.md"
RUN = ("met", "differs")
LEFT = ("needs a GPU", "needs weights", "open")
SOURCES = ("client", "common", "proto", "server", "tests")
COMMAND_LIMIT_S = 120
TESTS_LIMIT_S = 1800
SAID_LINES = 40


class PageError(Exception):
    """The page cannot be used; the text says where and why."""


@dataclass(frozen=True)
class Row:
    """One requirement: state is one of RUN and LEFT, note what stands behind it."""

    number: int
    text: str
    state: str
    note: str
    shown: tuple[str, ...]


@dataclass
class Outcome:
    """How one command or test went; said: what it printed, where it failed."""

    is_ok: bool
    seconds: float = 0.0
    said: str = ""


@dataclass
class Results:
    """Of all commands and tests that were run, by what the page calls them."""

    of: dict[str, Outcome] = field(default_factory=dict)

    def of_row(self, row: Row) -> list[tuple[str, Outcome]]:
        return [(shown, self.of[shown]) for shown in row.shown]


def is_test(shown: str) -> bool:
    return shown.startswith("tests/")


def read(page: Path = PAGE) -> list[Row]:
    """The rows of the table, in order; PageError where one is missing or says what nothing can be made of."""
    rows: list[Row] = []
    for line, text in enumerate(page.read_text().splitlines(), 1):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", text)[1:-1]]
        if not cells or not cells[0].isdigit():
            continue
        where = f"{page.name}:{line}"
        if len(cells) != 4 or int(cells[0]) != len(rows) + 1:
            raise PageError(f"{where}: row {len(rows) + 1} with four cells is wanted here")
        rows.append(_row(where, cells))
    return rows


def _row(where: str, cells: Sequence[str]) -> Row:
    state, _, note = (cells[2] or "met").partition(":")
    shown = tuple(word.replace(r"\|", "|") for word in re.findall(r"`([^`]+)`", cells[3]))
    if state not in (*RUN, *LEFT):
        raise PageError(f"{where}: the state is none of {', '.join((*RUN, *LEFT))}: {state}")
    if state in RUN and not shown:
        raise PageError(f"{where}: nothing shows it")
    for name in filter(is_test, shown):
        file, _, function = name.partition("::")
        path = ROOT / file
        if not path.is_file() or f"def {function}(" not in path.read_text():
            raise PageError(f"{where}: there is no test {name}")
    return Row(int(cells[0]), cells[1], state, note.strip(), shown)


def wanted(rows: Iterable[Row]) -> tuple[list[str], list[str]]:
    """(tests, commands) of these rows, each once; tests in the order in which pytest would run all, which may matter
    to the daemon that they share."""
    shown = dict.fromkeys(one for row in rows if row.state in RUN for one in row.shown)
    return sorted(filter(is_test, shown), key=_place), [one for one in shown if not is_test(one)]


def _place(test: str) -> tuple[str, int]:
    file, _, function = test.partition("::")
    return file, (ROOT / file).read_text().index(f"def {function}(")


def run_command(command: str, environment: Mapping[str, str]) -> Outcome:
    begun = time.monotonic()
    try:
        done = subprocess.run(
            ["bash", "-eu", "-c", command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(False, time.monotonic() - begun, f"not done within {COMMAND_LIMIT_S} s")
    said = done.stdout.decode(errors="replace") + f"status {done.returncode}"
    return Outcome(done.returncode == 0, time.monotonic() - begun, said)


def run_commands(commands: Sequence[str], environment: Mapping[str, str]) -> dict[str, Outcome]:
    if not commands:
        return {}
    with running_daemon(programs(), environment["PYTHON"]) as daemon:
        daemon.wait_until_ready()
        there = {**environment, "VERIFIERD_URL": daemon.url}
        return {command: run_command(command, there) for command in commands}


def run_tests(
    tests: Sequence[str], environment: Mapping[str, str], limit_s: float = TESTS_LIMIT_S
) -> dict[str, Outcome]:
    """All in one process of pytest; a test of several parameters is right when it is with each of them."""
    if not tests:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [environment["PYTHON"], "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        process = subprocess.Popen(
            [*command, *tests],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            said = process.communicate(timeout=limit_s)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # it ends its daemons, and tells what was done until then
            said = process.communicate()[0].decode(errors="replace")
            said += f"the tests were not done within {limit_s} s"
        found = outcomes_of(report) if report.exists() else {}
    return {test: found.get(test, Outcome(False, 0, said)) for test in tests}


def outcomes_of(report: Path) -> dict[str, Outcome]:
    """By test, what one run of pytest wrote into its JUnit report."""
    found: dict[str, Outcome] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        found[name] = _with_case(found.get(name, Outcome(True)), case)
    return found


def known(results: Path, tests: Iterable[str]) -> dict[str, Outcome]:
    """Those of these tests that the reports in this folder, none older than any source, say are right."""
    sources = [file for name in SOURCES for file in (ROOT / name).rglob("*") if "__pycache__" not in file.parts]
    newest = max(file.stat().st_mtime for file in sources if file.is_file())
    reports = [outcomes_of(report) for report in results.glob("*.xml") if report.stat().st_mtime > newest]
    found: dict[str, Outcome] = {}
    for test in tests:
        of = [report[test] for report in reports if test in report]
        if of and all(one.is_ok for one in of):
            found[test] = Outcome(True, sum(one.seconds for one in of))
    return found


def _with_case(before: Outcome, case: ET.Element) -> Outcome:
    """A case that was skipped has shown nothing."""
    bad = [part for part in case if part.tag in ("failure", "error", "skipped")]
    said = "\n".join(f"{case.get('name')}: {part.get('message')}\n{part.text or ''}" for part in bad)
    return Outcome(before.is_ok and not bad, before.seconds + float(case.get("time", 0)), before.said + said)


def programs() -> Path:
    return Path(os.environ.get("VERIFIERD_BUILD", str(ROOT / "build"))) / "bin"


def environment_of() -> dict[str, str]:
    """What commands and tests find the programs and the interpreter by."""
    environment = {"PYTHON": sys.executable, **os.environ, "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{programs()}:{programs().parent / 'plain' / 'unit'}:{os.environ['PATH']}"
    environment["TRAINER_PYTHON"] = environment["PYTHON"]
    return environment


def run(rows: Sequence[Row], before: Path | None = None) -> Results:
    """The tests of tests/unit compute where the others wait: these two and the commands go side by side.

    before: reports of the same sources' tests; what they show is not run again.
    """
    environment = environment_of()
    tests, commands = wanted(rows)
    results = Results(known(before, tests) if before else {})
    tests = [test for test in tests if test not in results.of]
    unit = [test for test in tests if test.startswith("tests/unit/")]
    other = [test for test in tests if test not in unit]
    parts: list[Callable[[], dict[str, Outcome]]] = [
        lambda: run_tests(unit, environment),
        lambda: run_tests(other, environment),
        lambda: run_commands(commands, environment),
    ]
    with ThreadPoolExecutor(len(parts)) as pool:
        for found in pool.map(lambda part: part(), parts):
            results.of.update(found)
    return results


def report(rows: Iterable[Row], results: Results) -> bool:
    """A line for each row, what failed of it below, with what it said the first time; whether nothing did."""
    counts: Counter[str] = Counter()
    told: set[str] = set()
    for row in rows:
        note = f" ({row.note})" if row.note else ""
        if row.state in LEFT:
            counts[row.state] += 1
            print(f"-     {row.number:3}  {row.text}: {row.state}{note}")
            continue
        outcomes = results.of_row(row)
        is_ok = all(outcome.is_ok for _, outcome in outcomes)
        counts[row.state if is_ok else "FAILED"] += 1
        seconds = sum(outcome.seconds for _, outcome in outcomes)
        print(f"{'PASS' if is_ok else 'FAIL'}  {row.number:3}  {row.text}: {row.state}{note}, {seconds:.1f} s")
        for shown, outcome in outcomes:
            if not outcome.is_ok:
                print(f"      {shown}")
                said = [] if shown in told else outcome.said.splitlines()[-SAID_LINES:]
                print("".join(f"      | {line}\n" for line in said), end="")
                told.add(shown)
    print(", ".join(f"{count} {state}" for state, count in counts.items()))
    return not counts["FAILED"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run what docs/requirements.md says shows each requirement.")
    parser.add_argument("rows", nargs="*", type=int, metavar="ROW", help="only these rows")
    parser.add_argument("--page", type=Path, default=PAGE, help=argparse.SUPPRESS)
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="pytest's reports of what ran before, not run again"
    )
    asked = parser.parse_args(arguments)
    try:
        rows = read(asked.page)
    except (OSError, PageError) as error:
        print(f"requirements: {error}", file=sys.stderr)
        return 3
    if unknown := set(asked.rows) - {row.number for row in rows}:
        parser.error(f"no such row: {', '.join(map(str, sorted(unknown)))}")
    chosen = [row for row in rows if not asked.rows or row.number in asked.rows]
    begun = time.monotonic()
    is_ok = report(chosen, run(chosen, asked.results))
    print(f"in {time.monotonic() - begun:.0f} s")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
