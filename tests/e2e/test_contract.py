"""proto/openapi.yaml beside the daemon: what schemathesis makes of it, with every check on.

The workers are the scripted ones of tests/fault: what is looked at here is HTTP, and thousands of tasks and submissions
are made. The seed is fixed, so a run that fails fails again; another one is tried with CONTRACT_SEED=N.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import service

HERE = Path(__file__).resolve().parent
CONTRACT = service.ROOT / "proto" / "openapi.yaml"
SCRIPTED = service.ROOT / "tests" / "fault" / "harness"
LIMIT_S = 1800
EXAMPLES = int(os.environ.get("CONTRACT_EXAMPLES", "16"))
SEED = os.environ.get("CONTRACT_SEED", "1")


def make_token(store: Path) -> str:
    command = [str(service.BINARY), "token", "new", "--name=contract", "--scope=admin", f"--store={store}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@pytest.mark.slow
def test_the_daemon_keeps_its_contract(tmp_path: Path) -> None:
    with service.directory() as directory:
        secret = make_token(directory / "store.db")
        options: dict[str, object] = {"harness": SCRIPTED, "device": "cpu", "python": sys.executable}
        (directory / "key").write_text("a key of 16 characters")
        options |= {"notify_hosts": "127.0.0.1:1", "notify_key": directory / "key"}
        options |= {"cpu_jobs": 2, "queue_limit": 100_000, "wait_limit_s": 1}
        with service.Daemon(directory, options) as daemon:
            authorization = f"Authorization: Bearer {secret}"
            header = {"Authorization": f"Bearer {secret}"}
            task = {"name": "scripted", "reference": "# script: describe=pass\n"}
            added = daemon.client.call("POST", "/v1/tasks", task, header)
            assert added.status == 201, added.body
            report = tmp_path / "report.json"
            command = [sys.executable, "-m", "schemathesis.cli", f"--config-file={HERE / 'schemathesis.toml'}"]
            command += ["run", str(CONTRACT), f"--url={daemon.client.url}", f"--header={authorization}"]
            command += [f"--max-examples={EXAMPLES}", f"--seed={SEED}", "--request-timeout=60"]
            command += ["--report=json", f"--report-json-path={report}"]
            environment = os.environ | {"SCHEMATHESIS_HOOKS": "contract_hooks", "PYTHONPATH": str(HERE)}
            environment["CONTRACT_TASK"] = added.json()["id"]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            judged = daemon.client.call("GET", "/v1/status", None, header).json()["counts"]["finished"]
    assert report.exists(), done.stdout[-4000:] + done.stderr[-4000:]
    told = json.loads(report.read_text())
    cases = told["test_cases"]
    print(
        f"contract: {cases['generated']} cases of {told['operations']['tested']} operations, "
        f"{cases['unique_failures']} failures, {judged} submissions judged, {told['running_time']:.0f} s"
    )
    assert (done.returncode, cases["unique_failures"], cases["errored"]) == (0, 0, 0), done.stdout[-20000:]
    assert told["operations"]["tested"] == told["operations"]["total"]
    # It is no proof when hardly anything got through.
    assert cases["generated"] > 1000 and judged > 50
