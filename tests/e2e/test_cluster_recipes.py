"""The recipes that put a cluster on hosts, on Slurm and on Kubernetes, each by what would read it there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import kubernetes_validate
import service
import yaml

ROOT = service.ROOT
RECIPES = ROOT / "server/deploy/cluster"
BUILD = Path(os.environ.get("VERIFIERD_BUILD", str(ROOT / "build")))


def test_kubernetes_takes_each_of_the_manifests(tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((RECIPES / "kubernetes.yaml").read_text()))
    assert [one["kind"] for one in documents] == ["ConfigMap", "Service", "Service", "StatefulSet"]
    for one in documents:
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
    settings = tmp_path / "verifierd.conf"
    text = str(documents[0]["data"]["verifierd.conf"])
    for old, new in {
        "postgresql://verifierd@db-rw.verifierd/verifierd?target_session_attrs=read-write": str(tmp_path / "store.db"),
        "/etc/verifierd-tokens/tokens": str(tmp_path / "tokens"),
        "/scratch/verifierd": str(tmp_path / "scratch"),
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    settings.write_text(text)
    program, *flags = documents[3]["spec"]["template"]["spec"]["containers"][0]["command"]
    flags = [flag.replace("/etc/verifierd/verifierd.conf", str(settings)) for flag in flags]
    own = ["--check-config", f"--python={sys.executable}", "--device=cpu"]
    done = subprocess.run([BUILD / "bin" / program, *flags, *own], capture_output=True, text=True, check=False)
    assert done.returncode == 1  # the secret that its first lines have people make is not there
    assert "there are no tokens" in done.stderr
    token = ["token", "new", "--name=trainer-1", "--scope=submit", "--client=trainer", f"--config={settings}"]
    subprocess.run([BUILD / "bin" / program, *token], capture_output=True, check=True)
    done = subprocess.run([BUILD / "bin" / program, *flags, *own], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_systemd_takes_what_makes_a_host_a_node(tmp_path: Path) -> None:
    unit = (ROOT / "server/deploy/verifierd.service").read_text()
    file = tmp_path / "verifierd.service"
    file.write_text(unit.replace("@PREFIX@", str(BUILD)).replace("@SYSCONFDIR@", "/etc"))
    more = tmp_path / "verifierd.service.d"
    more.mkdir()
    (more / "cluster.conf").write_text((RECIPES / "systemd.conf").read_text())
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    complaints = [line for line in done.stderr.splitlines() if "verifierd.service" in line and "modprobe" not in line]
    assert not complaints, done.stderr
    (more / "cluster.conf").write_text("[Service]\nRestartSecs=5\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "RestartSecs" in done.stderr  # it reads the drop-in


def test_slurm_starts_a_node_of_the_hosts_name_and_ends_it_well(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text('#!/bin/sh\nshift\nSLURMD_NODENAME=gpu-07 exec "$@"\n')
    (tmp_path / "verifierd").write_text(
        '#!/bin/sh\necho "$@" >"$(dirname "$0")/flags"\ntrap \'echo drained >>"$(dirname "$0")/flags"; exit 0\' TERM\n'
        "while :; do sleep 0.05; done\n"
    )
    for name in ("srun", "verifierd"):
        (tmp_path / name).chmod(0o755)
    told = tmp_path / "flags"
    job = subprocess.Popen(
        ["sh", RECIPES / "slurm.sbatch"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "12", "TMPDIR": "/tmp/x",
             "VERIFIERD": str(tmp_path / "verifierd")},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not (told.exists() and told.read_text()):
            assert time.monotonic() < deadline and job.poll() is None
            time.sleep(0.05)
        job.send_signal(signal.SIGTERM)
        assert job.wait(30) == 0
    finally:
        job.kill()
    flags, drained = told.read_text().splitlines()
    assert flags == "--config=/etc/verifierd.conf --node=gpu-07 --scratch=/tmp/x/verifierd-12"
    assert drained == "drained"


def test_nginx_takes_the_nodes_for_its_upstream(tmp_path: Path) -> None:
    site = (ROOT / "server/deploy/nginx.conf").read_text()
    upstream = site[site.index("upstream verifierd {") : site.index("\n}\n") + 3]
    nodes = (RECIPES / "nginx-upstream.conf").read_text()
    for number in (1, 2):
        assert f"gpu-0{number}:8080" in nodes
        nodes = nodes.replace(f"gpu-0{number}:8080", f"127.0.0.1:808{number}")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost",
         "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    text = site.replace(upstream, nodes).replace("/var/log/nginx/verifierd.log", str(tmp_path / "log"))
    text = text.replace("/etc/ssl/certs/verifierd.pem", str(tmp_path / "cert"))
    text = text.replace("/etc/ssl/private/verifierd.key", str(tmp_path / "key"))
    conf = tmp_path / "nginx.conf"
    conf.write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\n{text}\n}}\n")
    program = "/usr/sbin/nginx"
    done = subprocess.run(
        [program, "-t", "-c", conf, "-e", tmp_path / "err"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
