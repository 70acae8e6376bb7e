"""make timing-report: the figures of docs/measurements/timing.md, made again from the raw samples of make bench-timing.

Reads the newest file in docs/measurements/timing/ (they are named by date). Fails where a target is missed,
where something that a target needs was not measured, and where the page says anything else than what comes
out; `--write` puts it into the page. The speed-ups are made from the samples by the daemon's own code.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "server/harness"))
sys.path.insert(0, str(ROOT / "tests/bench"))

from shared import native  # noqa: E402

BEGIN = "<!-- figures: made by make timing-report, do not edit -->"
END = "<!-- end of figures -->"
LEAST_TASKS = 20
LEAST_HELD = 17
LEAST_REPEATS = 20
CLASSES = (("above 1 ms", 1.0, 1e9, 0.005), ("100 µs to 1 ms", 0.1, 1.0, 0.01), ("10 µs to 100 µs", 0.01, 0.1, 0.03))
CV_LONG_MS = 1.0
CV_WANTED = {"above 1 ms": 0.005, "at 100 µs": 0.02}
AGREEMENT_ABOVE_MS = 1.0
AGREEMENT = 0.01


class ReportError(Exception):
    """The data or the page cannot be used; the text says which and why."""


Line = dict[str, Any]


@dataclass(frozen=True)
class Timed:
    """One submission that was timed, its figures made from its samples."""

    name: str
    reference_ms: float
    candidate_ms: float
    speedup: float
    lo: float
    hi: float
    line: Line

    @property
    def holds_one(self) -> bool:
        return self.lo <= 1.0 <= self.hi

    @property
    def bias(self) -> float:
        return abs(self.speedup - 1.0)

    @property
    def scatter(self) -> float:
        """Standard deviation of the pairs' log-ratios: how far a single pair is off."""
        pairs = zip(self.line["reference_ns"], self.line["candidate_ns"], strict=True)
        return statistics.stdev(math.log(reference / candidate) for reference, candidate in pairs)


class Speedup(ctypes.Structure):
    """struct stats_speedup (common/statistics.h): of medians in pairs, then of trimmed means."""

    _fields_ = tuple((name, ctypes.c_double) for name in ("speedup", "lo", "hi", "trimmed", "trimmed_lo", "trimmed_hi"))


def timed(line: Line) -> Timed | None:
    """None where the timing was not `measured`."""
    if line.get("outcome") != "measured" or line.get("error"):
        return None
    reference, candidate = line["reference_ns"], line["candidate_ns"]
    times = [(ctypes.c_double * len(samples))(*samples) for samples in (reference, candidate)]
    s = Speedup()
    if ctypes.CDLL(str(native.LIBRARY)).stats_told_speedup(*times, ctypes.c_size_t(len(candidate)), ctypes.byref(s)):
        raise ReportError(f"{line['name']}: its samples are not all times")
    medians = statistics.median(reference) / 1e6, statistics.median(candidate) / 1e6
    return Timed(str(line["name"]), *medians, s.speedup, s.lo, s.hi, line)


def read(path: Path) -> list[Line]:
    lines = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            line = json.loads(text)
            if not isinstance(line["kind"], str):
                raise TypeError("its kind is no string")
        except (ValueError, KeyError, TypeError) as error:
            raise ReportError(f"{path}:{number}: not a line of bench-timing: {error!r}") from None
        lines.append(line)
    return lines


@dataclass(frozen=True)
class Row:
    """One figure and its target."""

    what: str
    measured: str
    wanted: str
    is_met: bool | None
    """None: a figure without a target"""
    events: str = "-"


def percent(x: float, digits: int = 2) -> str:
    return f"{100 * x:.{digits}f} %"


def variation(values: Sequence[float]) -> float:
    return statistics.stdev(values) / statistics.fmean(values)


class Report:
    """The figures of one run."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self.aa = self._timed("aa")
        self.kernels = self._timed("kernel")
        self.repeats = self._timed("repeat")
        machines = self.of("machine")
        if len(machines) != 1:
            raise ReportError(f"{len(machines)} lines tell of the machine, and one should")
        self.machine = machines[0]

    def of(self, kind: str) -> list[Line]:
        return [line for line in self._lines if line["kind"] == kind]

    def _timed(self, kind: str) -> list[Timed]:
        return [t for t in map(timed, self.of(kind)) if t is not None]

    def plain(self, kind: str, key: str) -> dict[str, list[float]]:
        """A figure of tests/bench/plain.py, by the program's name."""
        found: dict[str, list[float]] = {}
        for line in self.of(kind):
            if isinstance(line.get(key), int | float):
                found.setdefault(str(line["name"]), []).append(float(line[key]))
        return found

    # --- the table of targets ---

    def rows(self) -> list[Row]:
        targets = [self._held(), *map(self._bias, CLASSES), *self._variations(), self._load(), self._agreement()]
        return [
            *targets,
            self._usual_way(),
            *self._cost(),
            self._empty(),
            *map(self._scatter, CLASSES),
            self._slopes(),
            self._stopped(),
        ]

    def _held(self) -> Row:
        asked, held = len(self.of("aa")), sum(t.holds_one for t in self.aa)
        is_met = asked >= LEAST_TASKS and held * LEAST_TASKS >= LEAST_HELD * asked
        wanted = f"{LEAST_HELD} of {LEAST_TASKS}"
        return Row("A/A: the interval holds 1.00", f"{held} of {asked} tasks", wanted, is_met)

    def _bias(self, of: tuple[str, float, float, float]) -> Row:
        name, lo, hi, wanted = of
        here = [t for t in self.aa if lo <= t.reference_ms < hi]
        what = f"A/A: mean distance from 1.00, {name}"
        if not here:
            return Row(what, "not measured", f"under {percent(wanted, 1)}", False)
        mean, worst = statistics.fmean(t.bias for t in here), max(t.bias for t in here)
        events = self.plain("aa-events", "speedup")
        beside = [abs(events[t.name][0] - 1) for t in here if t.name in events]
        shown = f"{percent(statistics.fmean(beside))} (worst {percent(max(beside))})" if beside else "-"
        measured = f"{percent(mean)} (worst {percent(worst)}, {len(here)} tasks)"
        return Row(what, measured, f"under {percent(wanted, 1)}", mean < wanted, shown)

    def _variations(self) -> list[Row]:
        rows = []
        for length, is_long in (("above 1 ms", True), ("at 100 µs", False)):
            here = [t for t in self.repeats if (t.candidate_ms >= CV_LONG_MS) == is_long]
            what, wanted = f"spread (CV) over fresh processes beside compiles, {length}", CV_WANTED[length]
            if len(here) < 2:
                rows.append(Row(what, "not measured", f"at most {percent(wanted, 1)}", False))
                continue
            cv = variation([t.speedup for t in here])
            events = self.plain("repeat-events", "speedup").get(here[0].name, [])
            shown = percent(variation(events)) if len(events) > 1 else "-"
            measured = f"{percent(cv)} ({len(here)} times, {statistics.median(t.candidate_ms for t in here):.3g} ms)"
            is_met = cv <= wanted and len(here) >= LEAST_REPEATS
            rows.append(Row(what, measured, f"at most {percent(wanted, 1)}", is_met, shown))
        return rows

    def _load(self) -> Row:
        """What went on beside the repeated judgements: without it their spread says nothing."""
        what = "beside them: candidates compiled, judged on other GPUs"
        wanted = "some; on each other GPU, too"
        loads = self.of("load")
        if not loads:
            return Row(what, "not measured", wanted, False)
        compiled, judged = (sum(int(load.get(key) or 0) for load in loads) for key in ("compiled", "judged"))
        others = max(int(load.get("other_gpus") or 0) for load in loads)
        shown = f"{compiled}; {f'{judged} on {others} others' if others else 'there is no other'}"
        return Row(what, shown, wanted, compiled > 0 and (judged > 0 or not others))

    def _usual_way(self) -> Row:
        """The second column: each program that was timed by our clock has it."""
        figures = {"aa": ("aa-events", "speedup"), "kernel": ("kernel-events", "candidate_ms")}
        figures["repeat"] = ("repeat-events", "speedup")
        of = found = 0
        for kind, (beside, key) in figures.items():
            known = {name: len(values) for name, values in self.plain(beside, key).items()}
            for name in {str(line["name"]) for line in self.of(kind)}:
                wanted = sum(line["name"] == name for line in self.of(kind))
                of, found = of + wanted, found + min(wanted, known.get(name, 0))
        what = "the mean of 100 events on the same programs"
        return Row(what, f"{found} of {of} timings", "all", of > 0 and found == of)

    def _differences(self, key: Callable[[Timed], float | None]) -> list[tuple[Timed, float]]:
        """Relative difference of some time from the profiler's, for each kernel that has both."""
        kernel_ms = self.plain("kernel-profile", "kernel_ms")
        found = []
        for t in self.kernels:
            time_ms = key(t)
            if t.name in kernel_ms and kernel_ms[t.name][0] > 0 and time_ms is not None:
                found.append((t, time_ms / kernel_ms[t.name][0] - 1))
        return found

    def _events_of(self, t: Timed) -> float | None:
        found = self.plain("kernel-events", "candidate_ms").get(t.name)
        return found[0] if found else None

    def _agreement(self) -> Row:
        what = "time beside the profiler's kernel time, above 1 ms"
        ours = [x for t, x in self._differences(lambda t: t.candidate_ms) if t.candidate_ms >= AGREEMENT_ABOVE_MS]
        events = [x for t, x in self._differences(self._events_of) if t.candidate_ms >= AGREEMENT_ABOVE_MS]
        wanted = f"within {percent(AGREEMENT, 0)}"
        if not ours:
            return Row(what, "not measured", wanted, False)
        worst = max(ours, key=abs)
        shown = f"{percent(max(events, key=abs))}" if events else "-"
        return Row(what, f"at most {percent(worst)} off ({len(ours)} kernels)", wanted, abs(worst) <= AGREEMENT, shown)

    def _cost(self) -> list[Row]:
        stages = [t.line.get("stage_ms") or {} for t in (*self.aa, *self.kernels, *self.repeats)]
        timing_s = [s["timing"] / 1000 for s in stages if "timing" in s]
        gpu_s = [sum(s.get(name, 0) for name in ("tiny", "full", "timing")) / 1000 for s in stages]
        kinds = ("aa-events", "repeat-events", "kernel-events")
        events = [x for kind in kinds for values in self.plain(kind, "gpu_s").values() for x in values]
        walls = [x for kind in kinds for values in self.plain(kind, "wall_s").values() for x in values]
        if not timing_s or not events:
            missing = "not measured" if not timing_s else "ours alone"
            return [Row("seconds of the GPU for a timed submission, by both", missing, "both", False)]

        def median(values: Sequence[float]) -> str:
            return f"{statistics.median(values):.2f} s" if values else "-"

        return [
            Row("GPU held for the timing alone, median", median(timing_s), "-", None, median(events)),
            Row("GPU held from the first call to the verdict, median", median(gpu_s), "-", None, median(walls)),
        ]

    def _empty(self) -> Row:
        """What the protocol costs once for a bell: the waking, the switches between contexts, the gather."""
        what = "c, the round trip of an empty call: median (least to greatest)"
        times = [t.line["empty_ms"] * 1000 for t in (*self.aa, *self.kernels) if t.line.get("empty_ms")]
        if not times:
            return Row(what, "not measured", "-", None)
        return Row(what, f"{statistics.median(times):.0f} µs ({min(times):.0f} to {max(times):.0f} µs)", "-", None)

    def _scatter(self, of: tuple[str, float, float, float]) -> Row:
        name, lo, hi, _ = of
        here = [t.scatter for t in self.aa if lo <= t.reference_ms < hi]
        shown = f"{percent(statistics.median(here))} (worst {percent(max(here))})" if here else "not measured"
        return Row(f"A/A: how far a single pair is off, {name}", shown, "-", None)

    def _slopes(self) -> Row:
        """Round trips of one call and of n: c does not occur in their slope, so a wrong c shows."""
        what = "slope of 1 and n calls beside what is credited"
        known = [t for t in (*self.aa, *self.kernels) if t.line.get("candidate_slope_ms")]
        if not known:
            return Row(what, "not measured", "-", None)
        off = [t.line["candidate_slope_ms"] / t.candidate_ms - 1 for t in known]
        shown = f"{percent(statistics.median(off), 1)} median, {percent(max(off, key=abs), 1)} at most"
        return Row(what, f"{shown} ({len(off)} programs)", "-", None)

    def _stopped(self) -> Row:
        every = [t.line for t in (*self.aa, *self.kernels, *self.repeats)]
        early = sum(bool(line.get("stopped")) for line in every)
        pairs = [len(line["reference_ns"]) for line in every]
        what = "timings that ended before all trials"
        if not every:
            return Row(what, "not measured", "-", None)
        return Row(what, f"{early} of {len(every)}, {statistics.median(pairs):g} pairs at the median", "-", None)

    # --- the page ---

    def text(self) -> str:
        return "\n".join([self._machine(), "", *self._targets(), "", *self._aa_table(), "", *self._kernel_table()])

    def _machine(self) -> str:
        gpus = ", ".join(f"{g.get('name')} (driver {g.get('driver')})" for g in self.machine.get("gpus") or [])
        env, loads = self.machine.get("env") or {}, self.of("load")
        text = f"{self.machine.get('date')}: {gpus}, {self.machine.get('cores')} cores,"
        text += f" torch {env.get('torch')}, triton {env.get('triton')}."
        if loads:
            text += f" Beside the repeated judgements {loads[0]['compiled']} candidates were compiled in"
            text += f" {loads[0]['seconds']:.0f} s"
            others, judged = int(loads[0].get("other_gpus") or 0), loads[0].get("judged")
            text += f" and {judged} judged on {others} other GPUs." if others else "; no other GPU worked."
        return textwrap.fill(text, 115)

    def _targets(self) -> list[str]:
        lines = ["| what | measured | wanted | met | mean of 100 events |", "| --- | --- | --- | --- | --- |"]
        met = {True: "yes", False: "**no**", None: "-"}
        return lines + [f"| {r.what} | {r.measured} | {r.wanted} | {met[r.is_met]} | {r.events} |" for r in self.rows()]

    def _aa_table(self) -> list[str]:
        events = self.plain("aa-events", "speedup")
        found = {t.name: t for t in self.aa}
        lines = ["| A/A: task | ms | speed-up | 95 % interval | pairs | mean of 100 events |", "|" + " --- |" * 6]
        for line in sorted(self.of("aa"), key=lambda line: float(line.get("about_us") or 0)):
            name = str(line["name"])
            t, beside = found.get(name), f"{events[name][0]:.4f}" if name in events else "-"
            if t is None:
                lines.append(f"| {name} | - | {line.get('error') or line.get('outcome')} | - | - | {beside} |")
                continue
            mark = "" if t.holds_one else " *"
            interval = f"{t.lo:.4f} to {t.hi:.4f}{mark}"
            pairs = len(line["reference_ns"])
            lines.append(f"| {name} | {t.reference_ms:.4f} | {t.speedup:.4f} | {interval} | {pairs} | {beside} |")
        return lines

    def _kernel_table(self) -> list[str]:
        kernel_ms = self.plain("kernel-profile", "kernel_ms")
        head = "| kernel | ms | profiler, ms | difference | the same, µs | CUDA events, ms | host, ms |"
        lines = [head, "|" + " --- |" * 7]
        for t in sorted(self.kernels, key=lambda t: t.candidate_ms):
            known, events, host = kernel_ms.get(t.name), self._events_of(t), t.line.get("host_candidate_ms")
            is_known = known is not None and known[0] > 0
            difference = percent(t.candidate_ms / known[0] - 1) if known and is_known else "-"
            more = f"{1000 * (t.candidate_ms - known[0]):.1f}" if known and is_known else "-"
            cells = [f"{x:.4f}" if x is not None else "-" for x in (known[0] if known else None, events, host)]
            beside = f"{difference} | {more} | {cells[1]} | {cells[2]}"
            lines.append(f"| {t.name} | {t.candidate_ms:.4f} | {cells[0]} | {beside} |")
        return lines


def newest(directory: Path) -> Path:
    files = sorted(directory.glob("*.jsonl"), key=lambda path: path.stem)  # a second of one day: DATE-2
    if not files:
        raise ReportError(f"{directory}: nothing was measured yet: make bench-timing on a machine with a GPU")
    return files[-1]


def page_with(page: str, text: str) -> str:
    """The page with the figures put in."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ReportError(f"the page lacks the line {BEGIN if not found else END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def first_pairs(line: Line, most: int) -> Line:
    """A line as if the first pairs of bells of several calls were all; others are as they were."""
    if line.get("calls", 1) == 1:
        return line
    return {**line, **{key: line[key][:most] for key in ("reference_ns", "candidate_ns") if line.get(key)}}


def run(data: Path, page: Path, *, is_writing: bool, first: int | None = None) -> list[str]:
    """What is wrong; empty: every target is met and the page says so. first: nothing is held against the page."""
    path = data if data.is_file() else newest(data)
    if first is not None:
        print(Report([first_pairs(line, first) for line in read(path)]).text())
        return []
    report = Report(read(path))
    text = f"From `{path.name}`.\n{report.text()}"
    print(text)
    wrong = [f"missed: {r.what}: {r.measured}, wanted {r.wanted}" for r in report.rows() if r.is_met is False]
    old = page.read_text()
    new = page_with(old, text)
    if new != old and is_writing:
        page.write_text(new)
    elif new != old:
        wrong.append(f"stale: {page} says something else; make timing-report ARGS=--write puts these figures in")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the figures of docs/measurements/timing.md from the raw data.")
    parser.add_argument("--data", type=Path, default=ROOT / "docs/measurements/timing", help="a file or a directory")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/measurements/timing.md")
    parser.add_argument("--write", action="store_true", help="put the figures into the page")
    parser.add_argument(
        "--first",
        type=int,
        metavar="N",
        help="only print what the first N pairs of bells of several calls give, narrow or not",
    )
    arguments = parser.parse_args()
    try:
        wrong = run(arguments.data, arguments.page, is_writing=arguments.write, first=arguments.first)
    except ReportError as error:
        wrong = [str(error)]
    for text in wrong:
        print(f"timing-report: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
