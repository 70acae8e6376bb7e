"""make bench-trainer: what the trainer itself costs, with an endpoint and a daemon that answer at once; and prepare.

Its tables stand in docs/measurements/trainer.md. ARGS="--only prepare --rows 2000 --running 20" for a short run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "e2e")]

from answering import Call, Reply, answering, document  # noqa: E402
from daemon import running_daemon  # noqa: E402
from endpoint import TRAINER, code, fake_daemon, fenced  # noqa: E402

PROGRAMS = TRAINER.parent
# Steps of a module, so that no two rows are the same and each runs: an element-wise step keeps the shape.
STEPS = [
    *(f"torch.{name}({{}})" for name in ("relu", "sigmoid", "tanh", "cos", "sin", "abs", "square")),
    *(f"torch.nn.functional.{name}({{}})" for name in ("gelu", "softplus", "silu", "elu", "hardtanh")),
    "torch.exp(-{}.abs())",
    "({} * 0.5)",
    "({} + 1.0)",
    "torch.clamp({}, -1.0, 1.0)",
    "torch.softmax({}, -1)",
    "self.layer({})",
]
ROW = """import torch
import torch.nn as nn


class Net{number}(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return {body}


def get_inputs():
    return [torch.randn([4, 8])]


def get_init_inputs():
    return [[], {{}}]
"""
# Runs one program and prints what it took. The peaks are read from /proc while it runs, every 10 ms: what wait4() says
# of a child's memory counts the interpreter that started it.
MEASURE = """
import json, os, resource, sys, time
limit = int(sys.argv[1])
start = time.monotonic()
child = os.fork()
if child == 0:
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.execv(sys.argv[2], sys.argv[2:])

def peak_mb(pid):
    try:
        with open(f"/proc/{pid}/status") as file:
            rows = dict(line.split(":", 1) for line in file)
        return int(rows["VmHWM"].split()[0]) / 1024 if rows["Name"].strip() != "exe" else 0
    except (OSError, KeyError):
        return 0

own = helper = 0
while True:
    done, status, used = os.wait4(child, os.WNOHANG)
    if done:
        break
    with open(f"/proc/{child}/cmdline", "rb") as file:
        is_it = b"\\0-c\\0" not in file.read()  # it has become another program
    if is_it:
        own = max(own, peak_mb(child))
        with open(f"/proc/{child}/task/{child}/children") as file:
            helper = max([helper, *map(peak_mb, file.read().split())])
    time.sleep(0.01)
seconds = time.monotonic() - start
cpu_s = used.ru_utime + used.ru_stime
print(json.dumps({"status": os.waitstatus_to_exitcode(status), "seconds": seconds, "cpu_s": cpu_s,
    "peak_mb": own, "helper_mb": helper}))
"""


class BenchError(Exception):
    """Something that ends the run; the text is for people."""


@dataclass(frozen=True)
class Cost:
    """Of one program: its processor time has its helper's in it. Seconds and MiB."""

    status: int
    seconds: float
    cpu_s: float
    peak_mb: float
    helper_mb: float


def measure(*arguments: str, memory_bytes: int = 0) -> Cost:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(memory_bytes), str(TRAINER), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        cost = Cost(**json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        raise BenchError(f"{arguments[0]}: {done.stderr[-1000:]}") from None
    if cost.status != 0:
        raise BenchError(f"trainer {arguments[0]} ended with {cost.status}: {done.stderr[-1000:]}")
    return cost


# --- bestofn: the client's own cost ---


def task_rows(n: int) -> Iterator[str]:
    source = (ROOT / "tests" / "tasks" / "softmax.py").read_text()
    for i in range(n):
        yield json.dumps({"name": f"task{i}", "pytorch_code": source, "level": 2}) + "\n"


def bestofn(workdir: Path, tasks: int, samples: int) -> Cost:
    """Each answer another one of 4 KB; nothing waits for a model or a judge."""
    answer = fenced(code("softmax/honest")) + " " * 2000
    asked = 0

    def reply(call: Call) -> Reply:
        nonlocal asked
        asked += 1
        texts = [answer.replace("```python\n", f"```python\n# {asked}.{i}\n") for i in range(call.body["n"])]
        choices = [{"index": i, "finish_reason": "stop", "message": {"content": text}} for i, text in enumerate(texts)]
        return document(200, {"choices": choices})

    file = workdir / "tasks.jsonl"
    file.write_text("".join(task_rows(tasks)))
    with fake_daemon() as judge, answering(reply) as url:
        return measure(
            "bestofn", f"--url={judge.url}", f"--endpoint={url}/v1", "--model=none", f"--workdir={workdir}",
            f"--tasks={file}", "--max-tasks=0", f"--samples={samples}",
        )  # fmt: skip


def print_bestofn(sizes: list[tuple[int, int]]) -> None:
    print(
        "| tasks x answers | wall s | CPU s | CPU ms for each candidate | peak MiB |\n| --- | --- | --- | --- | --- |"
    )
    for tasks, samples in sizes:
        with tempfile.TemporaryDirectory() as name:
            cost = bestofn(Path(name), tasks, samples)
        each = 1000 * cost.cpu_s / (tasks * samples)
        print(f"| {tasks} x {samples} | {cost.seconds:.1f} | {cost.cpu_s:.2f} | {each:.2f} | {cost.peak_mb:.1f} |")


# --- prepare ---


def data_rows(n: int, padding: int = 0) -> Iterator[str]:
    """Rows like KernelBook's, each another module, with an answer of 4 KB."""
    draw = random.Random(1)
    answer = "import triton\n" + "# a generated kernel's line\n" * 140
    for i in range(n):
        body = "x"
        for _ in range(draw.randint(4, 9)):
            body = draw.choice(STEPS).format(body)
        source = ROW.format(number=i, body=body) + "#" * padding
        row = {
            "entry_point": f"Net{i}",
            "python_code": source,
            "triton_code": f"{answer}\nclass Net{i}New:\n    pass\n",
            "uuid": i,
            "licenses": ["MIT"],
            "repo_name": "bench/rows",
        }
        yield json.dumps(row) + "\n"


def prepare(workdir: Path, rows: int, *more: str, padding: int = 0, memory_bytes: int = 0) -> tuple[Cost, int, int]:
    """Its cost, the rows kept and the file's size."""
    file = workdir / "rows.jsonl"
    with file.open("w") as out:
        out.writelines(data_rows(rows, padding))
    cost = measure(
        "prepare", f"--file={file}", f"--workdir={workdir}", f"--python={sys.executable}", "--max-samples=0", *more,
        memory_bytes=memory_bytes,
    )  # fmt: skip
    summary = json.loads((workdir / "data" / "processed" / "prepare.json").read_text())
    return cost, int(summary["kept"]), file.stat().st_size


def print_prepare(rows: int, running: int) -> None:
    print(
        "| prepare | rows | file MB | kept | wall s | rows a second | CPU s, all | peak MiB, trainer | … its parser |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )

    def show(what: str, n: int, *more: str, padding: int = 0, memory_bytes: int = 0) -> float:
        with tempfile.TemporaryDirectory() as name:
            cost, kept, size = prepare(Path(name), n, *more, padding=padding, memory_bytes=memory_bytes)
        print(
            f"| {what} | {n} | {size / 1e6:.0f} | {kept} | {cost.seconds:.1f} | {n / cost.seconds:.3g} "
            f"| {cost.cpu_s:.1f} | {cost.peak_mb:.1f} | {cost.helper_mb:.1f} |",
            flush=True,
        )
        return cost.seconds

    show("static", max(1, rows // 10), "--static")
    show("static", rows, "--static")
    show("static, 96 MiB of data allowed", max(1, rows // 4), "--static", padding=60000, memory_bytes=96 << 20)
    if not running:
        return
    seconds = []
    for what, more in (("running, one row at a time", "--concurrency=1"), ("running, eight", "--concurrency=8")):
        with running_daemon(PROGRAMS, sys.executable) as daemon:  # each its own: a task that is known is not run again
            daemon.wait_until_ready()
            seconds.append(show(what, running, f"--url={daemon.url}", more))
    print(f"\none row at a time took {seconds[0] / seconds[1]:.2f} times as long as eight")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("bestofn", "prepare"))
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--running", type=int, default=200)
    parser.add_argument("--tasks", type=int, nargs="*", default=[100, 1000])
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores\n")
    try:
        if given.only != "prepare":
            print_bestofn([(tasks, 10) for tasks in given.tasks])
            print()
        if given.only != "bestofn":
            print_prepare(given.rows, given.running)
    except BenchError as error:
        print(f"bench-trainer: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
