"""make bench-gpus: is a daemon on several GPUs as good as several daemons?

one     the load of speed.py on one GPU with 16 cores, and with fewer
all     the same on every GPU, with 16 cores for each; the speed-up of one candidate on each of them
gone    what holds the last GPU is killed again and again while groups are under way: each candidate still gets its
        verdict, and none is blamed

Prints a line of JSON for each figure and a table last. Status 77 where there is one GPU or none.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).resolve().parent)]

import speed_load  # noqa: E402
from daemon import Daemon, first_gpu, running_daemon  # noqa: E402
from speed import READY_LIMIT_S, SKIPPED, cores_for, count_gpus  # noqa: E402
from speed_load import Caller  # noqa: E402
from speed_mix import BENCHES, EXPECTED, Mix  # noqa: E402

WARM_S = 12.0
"""After which each GPU holds the references of the load's tasks."""
GONE_S = 8.0
"""How long the last GPU is away."""
KILL_EVERY_S = 0.5
GROUPS = 4
LIMIT_S = 120.0
JUDGEMENTS = 6
"""Of one candidate, for each GPU."""
Json = dict[str, Any]


def tell(out: Path, what: str, **figures: Any) -> Json:
    line = {"what": what, **figures}
    print(json.dumps(line), flush=True)
    with (out / "gpus.jsonl").open("a") as lines:
        lines.write(json.dumps(line) + "\n")
    return line


def mixes(tag: str) -> list[Mix]:
    return [Mix(bench, tag, True) for bench in BENCHES]


def loaded(daemon: Daemon, options: argparse.Namespace, what: str, cores: int) -> Json:
    """Verdicts a second while groups of ten wait all the time."""
    window = speed_load.saturate(daemon.url, mixes(what), True, GROUPS, WARM_S, options.window_s)
    return tell(
        options.out, what, devices=window.devices, cores=cores, per_s=round(window.rate, 3), busy=round(window.busy, 3),
        classes=window.classes, surprises=sorted(set(window.surprises))[:5],
    )  # fmt: skip


def spread(daemon: Daemon, options: argparse.Namespace, gpus: int) -> Json:
    """One candidate's speed-up by the GPU that timed it."""
    mix = Mix(BENCHES[1], "spread", True)
    task = daemon.post("/v1/tasks", mix.registration, LIMIT_S)["id"]
    body = {"task": task, "policy": {"name": mix.policy}, "cache": False}
    caller = Caller(daemon.url)
    candidates = [{"candidate": f"{mix.honest}\n# {turn}\n"} for turn in range(JUDGEMENTS * gpus)]
    group = caller.call("POST", "/v1/groups", {**body, "candidates": candidates})
    group = caller.call("GET", f"/v1/groups/{group['id']}?wait={int(LIMIT_S)}")
    caller.close()
    by_gpu: dict[str, list[float]] = {}
    for verdict in group["items"]:
        speedup = (verdict.get("components") or {}).get("speedup")
        if speedup:
            by_gpu.setdefault(str((verdict.get("env") or {}).get("device")), []).append(speedup)
    medians = {name: round(statistics.median(found), 4) for name, found in sorted(by_gpu.items())}
    ratio = max(medians.values()) / min(medians.values()) if medians else None
    return tell(
        options.out, "spread", task=mix.bench.task, medians=medians, between=ratio,
        counts={name: len(found) for name, found in by_gpu.items()},
        outcomes=dict(Counter((verdict.get("timing") or {}).get("outcome") for verdict in group["items"])),
    )  # fmt: skip


def holder(daemon: Daemon, device: str) -> int | None:
    """The process that holds this GPU now."""
    for worker in daemon.get("/v1/status")["workers"]:
        if worker["kind"] == "referee" and worker["device"] == device:
            return worker["pid"] or None
    return None


def gone(daemon: Daemon, options: argparse.Namespace, device: str) -> Json:
    """Groups are under way while what holds one GPU is killed as often as it comes back."""
    caller, found = Caller(daemon.url), mixes("gone")
    groups = []
    for mix in found:
        task = caller.call("POST", "/v1/tasks", mix.registration)["id"]
        answers = next(mix.groups())
        body = {"task": task, "policy": {"name": mix.policy}, "cache": False}
        candidates = [{"candidate": answer.source} for answer in answers]
        groups.append((caller.call("POST", "/v1/groups", {**body, "candidates": candidates})["id"], answers))
    kills, end = 0, time.monotonic() + GONE_S
    time.sleep(1.0)
    while time.monotonic() < end:
        pid = holder(daemon, device)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                kills += 1
        time.sleep(KILL_EVERY_S)
    classes: Counter[str] = Counter()
    wrong, devices, began = [], Counter[str](), time.monotonic()
    for id_, answers in groups:
        group = caller.call("GET", f"/v1/groups/{id_}?wait={int(LIMIT_S)}")
        for answer, verdict in zip(answers, group["items"], strict=True):
            classes[str(verdict.get("class"))] += 1
            devices[str((verdict.get("env") or {}).get("device"))] += 1
            if verdict.get("state") != "done" or verdict.get("class") not in EXPECTED[answer.fails_at]:
                wrong.append(f"to fail in {answer.fails_at}: {verdict.get('state')} {verdict.get('class')}")
    caller.close()
    return tell(
        options.out, "gone", device=device, kills=kills, submissions=sum(classes.values()), classes=dict(classes),
        wrong=wrong, devices=dict(devices), after_s=round(time.monotonic() - began, 1),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "build/gpus"))
    parser.add_argument("--flags", default="", help="more of the daemon's")
    parser.add_argument("--window-s", type=float, default=20.0)
    parser.add_argument("--parts", default="spread,gone", help="besides the load")
    parser.add_argument("--fewer", default="8,4", help="cores that one GPU is tried with besides")
    options = parser.parse_args()
    gpus = count_gpus(sys.executable)
    if gpus < 2:
        print(f"SKIPPED: {gpus} GPU here, several are needed", file=sys.stderr)
        return SKIPPED
    options.out.mkdir(parents=True, exist_ok=True)
    flags, rows = options.flags.split(), []
    allowed = sorted(os.sched_getaffinity(0))
    for cores in (None, *filter(None, options.fewer.split(","))):
        prefix = cores_for(1) if cores is None else ["taskset", "-c", ",".join(map(str, allowed[: int(cores)]))]
        log = options.out / f"one-{cores or 'all'}.log"
        with running_daemon(
            options.programs, sys.executable, "--device", first_gpu(), *flags, prefix=prefix, log=log
        ) as daemon:
            daemon.wait_until_ready(READY_LIMIT_S)
            rows.append(loaded(daemon, options, "one", int(cores or min(16, len(allowed)))))
    with running_daemon(
        options.programs,
        sys.executable,
        "--device",
        "cuda",
        *flags,
        prefix=cores_for(gpus),
        log=options.out / "all.log",
    ) as daemon:
        daemon.wait_until_ready(READY_LIMIT_S)
        rows.append(loaded(daemon, options, "all", min(16 * gpus, len(allowed))))
        between = spread(daemon, options, gpus) if "spread" in options.parts else None
        away = gone(daemon, options, f"cuda:{gpus - 1}") if "gone" in options.parts else None
    print("| GPUs | cores | verdicts/s | of so many single ones |\n| --- | --- | --- | --- |")
    for row in rows:
        share = row["per_s"] / (row["devices"] * rows[0]["per_s"]) if rows[0]["per_s"] else 0.0
        print(f"| {row['devices']} | {row['cores']} | {row['per_s']:.2f} | {share:.2f} |")
    if between:
        print(f"speed-up of {between['task']} by GPU: {between['medians']}, between them {between['between']}")
    if away:
        print(f"a GPU gone: {away['kills']} kills, {len(away['wrong'])} of {away['submissions']} not as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
