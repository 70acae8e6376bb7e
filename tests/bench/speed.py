"""make bench-speed: as fast as the GPU allows? Five parts, of which each begins only if there is time left for it.

latency   from POST to verdict of honest candidates with early stop and with all trials, at first sight and again; of
          failing ones by stage; and how far that is from the bytes and operations of the calls that were made
load      verdicts a second of groups of ten with a realistic mix, how busy the GPU is, and what the time went to
funnel    the same mix with every stage attempted for every candidate
gpus      the load on all GPUs, where there are several
usual     the same candidates evaluated the usual way (tests/bench/baseline.py), a process for each; the daemon is gone
          by then, so that neither disturbs the other

Ends with a line for each target, met or missed; status 1 when one is missed (with --judge ratios, one that is a ratio:
what is measured beside it cancels the machine's own pace) or a part failed, 77 without a GPU. Every measurement is a
line of JSON in --out. docs/performance.md says what the figures are.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).resolve().parent)]

import corpus  # noqa: E402
import speed_load  # noqa: E402
from daemon import Daemon, DaemonError, first_gpu, running_daemon  # noqa: E402
from gpu_check import reachable_bundle  # noqa: E402
from speed_load import Caller, CallError, Window  # noqa: E402
from speed_mix import AST, BENCHES, COMPILE, EXPECTED, FULL, TINY, Mix, into_kernel  # noqa: E402
from target import Target  # noqa: E402

SKIPPED = 77
READY_LIMIT_S = 90.0
CORES = 16
"""For each GPU under load."""
LATENCY_S = 40.0
AROUND_S = 20.0
"""What a load takes beside its window: tasks registered, groups begun one after the other, the rest cancelled."""
PARTS = ("latency", "load", "funnel", "gpus", "usual")
CASES_OF_FULL = 5
TIMES = "times"
"""The unit of a target that is a ratio of two figures of one run."""
Json = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A candidate, the seconds in which it is to be judged, and how many times faster than the usual way."""

    label: str
    early_s: float | None
    fixed_s: float | None
    usual_s: float
    """How long the usual way may take."""
    times: float = 1.0

    @property
    def name(self) -> str:
        return self.label.partition("/")[0]


CASES = (
    Case("gemm_scale_leaky_relu/honest", 0.8, None, 20.0, 4.0),
    Case("relu_4096x393216/honest", 1.1, 1.7, 75.0, 20.0),
    Case("rms_norm_4096x393216/honest", 1.2, 1.7, 80.0, 20.0),
)
WITHOUT_GPU = (Case("relu/honest", None, None, 60.0), Case("softmax/honest", None, None, 60.0))


@dataclass
class Latency:
    """Seconds from POST to verdict of one candidate."""

    case: Case
    first_s: float
    new_s: list[float]
    fixed_s: list[float]
    again_s: list[float]
    verdict: Json
    """Of the last with early stop."""
    limit_s: float | None
    """What the bytes and operations of its calls take at least."""
    calls: int
    bound: str

    @property
    def early(self) -> float:
        return statistics.median(self.new_s)

    @property
    def fixed(self) -> float:
        return statistics.median(self.fixed_s)


@dataclass(frozen=True)
class Usual:
    """A process of its own for one candidate."""

    seconds: float
    ours_s: float
    """With 50 timed calls of each instead of 100."""
    speedup: float


@dataclass
class Run:
    """What was asked, and what was found so far."""

    python: str
    programs: Path
    out: Path
    deadline: float
    on_gpu: bool
    parts: list[str]
    window_s: float
    groups: int
    tag: str = field(default_factory=lambda: f"{time.time_ns():x}")
    targets: list[Target] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Targets that this machine cannot judge."""
    failed: list[str] = field(default_factory=list)
    """Parts that broke, or for which no time was left."""
    latencies: list[Latency] = field(default_factory=list)
    usual: dict[str, Usual] = field(default_factory=dict)
    windows: dict[str, Window] = field(default_factory=dict)

    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def keep(self, part: str, **what: object) -> None:
        with self.out.open("a") as file:
            file.write(json.dumps({"part": part, **what}) + "\n")

    def judge(self, name: str, value: float, limit: float, unit: str, is_least: bool) -> None:
        """A target; a figure without a GPU claims nothing."""
        if self.on_gpu:
            self.targets.append(Target(name, value, limit, unit, is_least))
        else:
            self.left_out.append(f"{name}: {value:.2f} {unit} by the interpreter")

    def part(self, name: str, needs_s: float, run: Callable[[], None]) -> None:
        """One part: what breaks in it, or has no time, leaves the others alone."""
        if name not in self.parts:
            return
        if self.left_s() < needs_s:
            print(f"\nSKIPPED {name}: {self.left_s():.0f} s are left, and it may take {needs_s:.0f}", flush=True)
            self.failed.append(f"{name}: no time was left")
            return
        started = time.monotonic()
        print(f"\n== {name}", flush=True)
        with self.contained(name):
            run()
        print(f"== {name} took {time.monotonic() - started:.1f} s", flush=True)

    @contextmanager
    def contained(self, name: str) -> Iterator[None]:
        """What breaks in here is noted, and the rest goes on."""
        try:
            yield
        except Exception as error:  # one broken part must not hide what the others found
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
            self.failed.append(f"{name}: {error}".splitlines()[0])


# --- latency ---


def find(case: Case) -> tuple[corpus.Task, corpus.Candidate]:
    return (
        corpus.load_task(corpus.HERE / "tasks" / f"{case.name}.py"),
        corpus.load_candidate(corpus.HERE / "candidates" / f"{case.label}.py"),
    )


def bound_of(spec: Json, peaks: Mapping[str, float]) -> tuple[float, str]:
    """Seconds that a call takes at least: its bytes through the memory, or its products at the peak, and which."""
    own = spec["cases"]["own"]
    size = own["input_bytes"] + own["output_bytes"] + own["state_bytes"]
    memory_s = size / (max(peaks["read_gbs"], peaks["write_gbs"]) * 1e9)
    products_s = own.get("flops", 0) / (peaks["tf32_tflops"] * 1e12)
    return max(memory_s, products_s), "products" if products_s > memory_s else "bytes"


def calls_of(verdict: Json) -> int:
    """What the policy had called at the task's size: the cases of `full`, warm-up and trials, of both sides."""
    timing = verdict.get("timing") or {}
    return 2 * (CASES_OF_FULL + int(timing.get("warmup") or 0) + int(timing.get("trials") or 0))


def show(case: Case, what: str, seconds: float, verdict: Json) -> None:
    stages = " ".join(f"{s['stage']} {s['wait_ms'] or 0:.0f}+{s['run_ms'] or 0:.0f}" for s in verdict["stages"])
    print(
        f"  {case.name:24}{what:7}{seconds * 1e3:9.1f} ms  {verdict['class']}, {verdict['cache']}: {stages}", flush=True
    )


def measure(run: Run, caller: Caller, case: Case, peaks: Mapping[str, float] | None, rounds: int) -> Latency:
    task, candidate = find(case)
    task_id = str(caller.call("POST", "/v1/tasks", task.registration())["id"])
    body = candidate.body(task_id)
    number = 0

    def once(what: str, source: str | None = None, **keys: object) -> tuple[float, Json]:
        nonlocal number
        number += 1
        source = source or into_kernel(candidate.text, f"# run {run.tag}.{number}")
        seconds, verdict = caller.judge({**body, "candidate": source, **keys})
        show(case, what, seconds, verdict)
        run.keep("latency", candidate=case.label, what=what, seconds=seconds, verdict=verdict)
        if verdict["class"] != "ok":
            raise CallError(f"{case.label}: {verdict['class']}: {verdict['feedback']['text']}")
        return seconds, verdict

    known = into_kernel(candidate.text, f"# run {run.tag}")
    first_s, _ = once("first", known)
    found = [once("new", cache=False) for _ in range(rounds)]
    policy = {"name": candidate.policy, "timing": {"fixed": True}}
    fixed = [once("fixed", cache=False, policy=policy)[0] for _ in range(max(1, rounds - 1))]
    again = [once("again", known)[0] for _ in range(rounds)]
    limit_s, calls, bound = None, calls_of(found[-1][1]), ""
    if peaks is not None:
        call_s, bound = bound_of(caller.call("GET", f"/v1/tasks/{task_id}")["spec"], peaks)
        limit_s = call_s * calls
    return Latency(case, first_s, [s for s, _ in found], fixed, again, found[-1][1], limit_s, calls, bound)


def failing(run: Run, caller: Caller) -> None:
    """How long the answer to a failing candidate takes, by the stage that refuses it."""
    mix = Mix(BENCHES[0], f"{run.tag}f", run.on_gpu)
    task_id = str(caller.call("POST", "/v1/tasks", mix.registration)["id"])
    limits = {AST: 0.01, COMPILE: 0.6}
    for fails_at in (AST, COMPILE, TINY, FULL):
        times = []
        for _ in range(6 if fails_at == AST else 4):
            answer = mix.answer(fails_at)
            body = {"task": task_id, "candidate": answer.source, "policy": mix.policy, "cache": False}
            seconds, verdict = caller.judge(body)
            run.keep("failing", stage=fails_at, seconds=seconds, verdict=verdict)
            if verdict["class"] not in EXPECTED[fails_at] or verdict["failed_at"] != fails_at:
                raise CallError(
                    f"to fail in {fails_at}: {verdict['class']} in {verdict['failed_at']}:"
                    f" {verdict['feedback']['text']}"
                )
            times.append(seconds)
        every = ", ".join(f"{1e3 * t:.1f}" for t in times)
        print(f"  fails in {fails_at:8}{1e3 * statistics.median(times):9.1f} ms (median; {every})", flush=True)
        if fails_at in limits:
            run.judge(
                f"failing in {fails_at}, the answer",
                1e3 * statistics.median(times),
                1e3 * limits[fails_at],
                "ms",
                False,
            )


def latency(run: Run, daemon: Daemon) -> None:
    with closing(Caller(daemon.url)) as caller:
        gpus = caller.call("GET", "/v1/status")["gpus"]
        peaks = gpus[0]["peaks"] if gpus else None
        run.keep("machine", gpus=gpus, cores=os.cpu_count(), kernel=platform.release())
        with run.contained("failing candidates"):
            failing(run, caller)
        for case in CASES if run.on_gpu else WITHOUT_GPU:
            with run.contained(case.name):
                found = measure(run, caller, case, peaks, 3 if run.on_gpu else 1)
                run.latencies.append(found)
                if case.early_s:
                    run.judge(f"{case.name}, cold, early stop", found.early, case.early_s, "s", False)
                if case.fixed_s:
                    run.judge(f"{case.name}, cold, fixed", found.fixed, case.fixed_s, "s", False)


# --- the usual way ---


def evaluate(run: Run, case: Case, task: corpus.Task, candidate: corpus.Candidate) -> Usual:
    command = [run.python, str(ROOT / "tests/bench/baseline.py"), str(task.path), str(candidate.path)]
    command += [] if run.on_gpu else ["--device", "cpu", "--trials", "55"]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=run.left_s(), check=False)
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise ValueError(f"the baseline failed: {done.stderr.strip()[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    run.keep("usual", candidate=case.label, process_s=seconds, **result)
    if not result["correct"]:
        raise ValueError("the baseline finds it wrong")
    print(f"  {case.label:36}{seconds:8.2f} s  {json.dumps(result['phases_s'])}", flush=True)
    return Usual(seconds, seconds - result["beyond_s"], float(result["speedup"]))


def usual(run: Run) -> None:
    """After the daemon, never beside it."""
    for case in CASES if run.on_gpu else WITHOUT_GPU[:1]:
        task, candidate = find(case)
        if run.left_s() < case.usual_s:
            print(
                f"  SKIPPED {case.label}: {run.left_s():.0f} s are left, and it may take {case.usual_s:.0f}", flush=True
            )
            run.failed.append(f"usual, {case.name}: no time was left")
            continue
        with run.contained(f"usual, {case.name}"):
            run.usual[case.label] = evaluate(run, case, task, candidate)


def compare_usual(run: Run) -> None:
    """How many times as long the usual way takes, as it is shipped."""
    for found in run.latencies:
        if usual := run.usual.get(found.case.label):
            name = f"{found.case.name}, of the usual way"
            run.judge(name, usual.seconds / found.early, found.case.times, TIMES, True)


# --- load ---


def load(run: Run, daemon: Daemon, name: str, staged: bool) -> None:
    benches = [bench for bench in BENCHES if run.on_gpu or not bench.needs_gpu]
    mixes = [Mix(bench, f"{run.tag}{name}", run.on_gpu) for bench in benches]
    warm_s = 6.0 if run.on_gpu else 2.0
    window = speed_load.saturate(daemon.url, mixes, staged, run.groups, warm_s, run.window_s)
    run.windows[name] = window
    run.keep(name, **window.record())
    classes = ", ".join(f"{name} {n}" for name, n in sorted(window.classes.items(), key=lambda one: -one[1]))
    print(
        f"{window.rate:.2f} verdicts/s of the mix: {window.finished} in {window.seconds:.1f} s ({classes}) on "
        f"{window.devices} device(s), {run.groups * window.devices} groups of ten under way\n{speed_load.table(window)}"
    )
    if window.pairs_ms:
        pairs = ", ".join(f"{name} {value:.2f}" for name, value in sorted(window.pairs_ms.items()))
        print(f"reference plus candidate, ms: {pairs}")
    for text in sorted(set(window.surprises))[:5]:
        print(f"  ! {text}")


def compare_funnel(run: Run) -> None:
    staged, every = run.windows.get("load"), run.windows.get("funnel")
    if staged and every and every.rate > 0:
        run.judge("the funnel, of every stage attempted", staged.rate / every.rate, 1.4, TIMES, True)


def on_one(run: Run) -> None:
    """All that one GPU is needed for, by one daemon."""
    flags = ["--device", first_gpu() if run.on_gpu else "cpu"]
    with running_daemon(
        run.programs, run.python, *flags, prefix=cores_for(1), log=run.out.with_suffix(".log")
    ) as daemon:
        daemon.wait_until_ready(READY_LIMIT_S)
        run.part("latency", LATENCY_S if run.on_gpu else 0, lambda: latency(run, daemon))
        run.part("load", run.window_s + AROUND_S, lambda: load(run, daemon, "load", True))
        run.part("funnel", run.window_s + AROUND_S, lambda: load(run, daemon, "funnel", False))
    if "load" in run.windows:
        window = run.windows["load"]
        run.judge("the mix on one GPU with 16 cores", window.rate, 5, "verdicts/s", True)
        if window.pairs_ms:
            run.judge("a call of reference and candidate, at most", max(window.pairs_ms.values()), 3, "ms", False)
    compare_funnel(run)


def on_all(run: Run, n: int) -> None:
    if n < 2:
        run.left_out.append(f"scaling over GPUs, 3.6 times on 4: {n} GPU here")
        return
    with running_daemon(
        run.programs,
        run.python,
        "--device",
        "cuda",
        prefix=cores_for(n),
        log=run.out.with_suffix(".all.log"),
    ) as daemon:
        daemon.wait_until_ready(READY_LIMIT_S)
        load(run, daemon, "gpus", True)
    one = run.windows.get("load")
    if one is None or one.rate == 0:
        return
    ratio = run.windows["gpus"].rate / one.rate
    if n == 4:
        run.judge("the mix on four GPUs, of one", ratio, 3.6, TIMES, True)
    else:
        run.left_out.append(f"scaling over GPUs, 3.6 times on 4: {ratio:.2f} times on {n}")


def cores_for(gpus: int) -> list[str]:
    """So that one GPU has the cores that the target says, also on a machine of several."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) <= CORES * gpus or shutil.which("taskset") is None:
        return []
    return ["taskset", "-c", ",".join(map(str, allowed[: CORES * gpus]))]


# --- what is printed ---


def times(value: float, base: float | None) -> str:
    return "-" if base is None else f"{base / value:.1f}"


def latency_table(run: Run) -> str:
    lines = [
        "| candidate | early stop, s (all) | fixed, s (all) | first of its task, s | again, ms | usual way 5+100, s |"
        " times faster (fixed) | at 5+50, s | times faster (fixed) | speed-up: usual way, daemon |",
        "|" + " --- |" * 10,
    ]
    for found in run.latencies:
        usual = run.usual.get(found.case.label)
        shipped, ours = (usual.seconds, usual.ours_s) if usual else (None, None)
        early = f"{found.early:.2f} ({', '.join(f'{t:.2f}' for t in found.new_s)})"
        fixed = f"{found.fixed:.2f} ({', '.join(f'{t:.2f}' for t in found.fixed_s)})"
        speedup = found.verdict["components"].get("speedup")
        lines.append(
            f"| {found.case.name} | {early} | {fixed} | {found.first_s:.2f} |"
            f" {1e3 * statistics.median(found.again_s):.1f} | "
            + (f"{shipped:.1f} | " if shipped else "- | ")
            + f"{times(found.early, shipped)} ({times(found.fixed, shipped)}) | "
            + (f"{ours:.1f} | " if ours else "- | ")
            + f"{times(found.early, ours)} ({times(found.fixed, ours)}) | "
            + (f"{usual.speedup:.2f}, " if usual else "-, ")
            + (f"{speedup:.2f} |" if speedup else "- |")
        )
    return "\n".join(lines)


def gap_table(run: Run) -> str:
    lines = [
        "| candidate, early stop | calls | bound by | they take at least, s | the verdict took, s | times |"
        " ast, compile, tiny, full, timing, rest, ms |",
        "|" + " --- |" * 7,
    ]
    for found in run.latencies:
        if found.limit_s is None:
            continue
        took = [float(stage["run_ms"] or 0) for stage in found.verdict["stages"]]
        parts = [*took, max(0.0, found.new_s[-1] * 1e3 - sum(took))]
        lines.append(
            f"| {found.case.name} | {found.calls} | {found.bound} | {found.limit_s:.3f} | {found.new_s[-1]:.2f} |"
            f" {found.new_s[-1] / found.limit_s:.1f} | {', '.join(f'{part:.0f}' for part in parts)} |"
        )
    return "\n".join(lines)


def load_table(run: Run) -> str:
    lines = ["| load | devices | verdicts/s | finished, s | devices given | a kernel runs |", "|" + " --- |" * 6]
    for name, window in run.windows.items():
        kernels = "-" if window.kernels is None else f"{window.kernels:.0%}"
        lines.append(
            f"| {name} | {window.devices} | {window.rate:.2f} | {window.finished}, {window.seconds:.1f} |"
            f" {window.busy:.0%} | {kernels} |"
        )
    return "\n".join(lines)


def summary(run: Run) -> None:
    if run.latencies:
        print(f"\n{latency_table(run)}\n\n{gap_table(run)}")
    if run.windows:
        print(f"\n{load_table(run)}")
    print()
    for target in run.targets:
        print(target.line())
    for text in run.left_out:
        print(f"left out: {text}")
    for text in run.failed:
        print(f"FAILED: {text}")
    missed = [target.name for target in run.targets if not target.is_met()]
    print(
        f"{len(run.targets) - len(missed)} met, {len(missed)} missed, {len(run.failed)} failed"
        + (f": {', '.join([*missed, *run.failed])}" if missed or run.failed else "")
    )


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}; default all")
    parser.add_argument("--limit-s", type=float, default=360.0, help="all parts together (default 360)")
    parser.add_argument(
        "--judge", choices=("all", "ratios"), default="all", help="which targets the status counts (default all)"
    )
    parser.add_argument("--window-s", type=float, default=16.0, help="how long a load is looked at (default 16)")
    parser.add_argument("--groups", type=int, default=4, help="groups under way for each GPU (default 4)")
    parser.add_argument(
        "--out", type=Path, help="lines of JSON (default speed.jsonl in $OUT, or in the build directory)"
    )
    parser.add_argument("--without-gpu", action="store_true", help="try it on a machine that has none; claims nothing")
    given = parser.parse_args()
    if unknown := sorted(set(given.parts.split(",")) - set(PARTS)):
        parser.error(f"--parts: unknown part {', '.join(unknown)}")
    return given


def count_gpus(python: str) -> int:
    code = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"speed: {python} cannot import torch: {done.stderr.strip()[-500:]}")
    return int(done.stdout)


def main() -> int:
    given = arguments_of()
    started = time.monotonic()
    python = os.environ.get("PYTHON", sys.executable)
    build = Path(os.environ.get("VERIFIERD_BUILD", ROOT / "build"))
    gpus = 0 if given.without_gpu else count_gpus(python)
    if not gpus and not given.without_gpu:
        print("SKIP speed: no GPU here; nothing was measured")
        return SKIPPED
    out = given.out or Path(os.environ.get("OUT") or build) / "speed.jsonl"
    out.unlink(missing_ok=True)
    # What was built here stays where it is; a bundle may lie where other uids, as which candidates run, cannot come.
    with nullcontext(build) if (build / "plain").exists() else reachable_bundle(build) as readable:
        return everything(given, started, python, readable / "bin", out, gpus)


def everything(given: argparse.Namespace, started: float, python: str, programs: Path, out: Path, gpus: int) -> int:
    run = Run(
        python=python,
        programs=programs,
        out=out,
        deadline=started + given.limit_s,
        on_gpu=gpus > 0,
        parts=given.parts.split(","),
        window_s=given.window_s,
        groups=given.groups,
    )
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {gpus} GPU(s), Linux {platform.release()}; raw lines in {out}"
    )
    try:
        if {"latency", "load", "funnel"} & set(run.parts):
            on_one(run)
    except DaemonError as error:
        run.failed.append(str(error).splitlines()[0])
        print(f"FAILED: {error}")
    run.part("gpus", run.window_s + 2 * AROUND_S if gpus > 1 else 0, lambda: on_all(run, gpus))
    run.part("usual", 0, lambda: usual(run))
    compare_usual(run)
    summary(run)
    counted = [target for target in run.targets if given.judge == "all" or target.unit == TIMES]
    return 1 if run.failed or not all(target.is_met() for target in counted) else 0


if __name__ == "__main__":
    sys.exit(main())
