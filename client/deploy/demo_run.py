"""make demo-run: `trainer run` whole, from rows to a report, with a verifierd and a tiny model of its own.

ARGS="--conf FILE" runs another file than tests/e2e/tiny.conf, from the same rows and model: docs/measurements/trainer
has one for two GPUs. The daemon has the GPUs of the file's verifier.devices, else what it finds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/e2e"), str(ROOT / "client/python")]

import tiny_data  # noqa: E402
from daemon import DaemonError, running_daemon  # noqa: E402
from pipeline import conf  # noqa: E402
from pipeline.common import PipelineError  # noqa: E402


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run(programs: Path, python: str, file: Path, directory: Path) -> int:
    """The status of trainer."""
    os.environ |= {"TRAINER_PYTHON": python, "TINY_PORT": str(free_port())}
    devices = conf.read(file)["verifier"]["devices"]
    tiny_data.main(directory)
    with running_daemon(programs, python, f"--device={f'cuda:{devices}' if devices else 'auto'}") as daemon:
        daemon.wait_until_ready()
        command = [str(programs / "trainer"), "run", str(file), f"--workdir={directory}", f"--url={daemon.url}"]
        process = subprocess.Popen(command)
        try:
            return process.wait()
        finally:  # it stops what it started
            process.send_signal(signal.SIGTERM)
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description="From rows to a report with a tiny model.")
    parser.add_argument("--programs", type=Path, required=True, help="directory of verifierd and trainer")
    parser.add_argument("--python", required=True, help="interpreter that make setup-train filled")
    parser.add_argument("--conf", type=Path, default=ROOT / "tests/e2e/tiny.conf")
    parser.add_argument("--workdir", type=Path, help="default: BUILD/demo_run, which is emptied first")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if given.workdir is None:
        given.workdir = given.programs.parent / "demo_run"
        shutil.rmtree(given.workdir, ignore_errors=True)
    try:
        return run(given.programs, given.python, given.conf.resolve(), given.workdir)
    except (DaemonError, PipelineError) as error:
        print(f"demo-run: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
