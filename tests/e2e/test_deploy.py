"""What is put elsewhere: the bundle, the installed tree, the build of a checkout that only root can enter."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import service
import yaml

ROOT = service.ROOT
BUILD = service.BINARY.parents[1]
OF_THE_SYSTEM = re.compile(r"(linux-vdso|ld-linux|libc|libm|libdl|libpthread|librt|libresolv)[-.]")


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def bundle() -> Iterator[Path]:
    """A bundle in another place than it was made in."""
    with service.directory() as directory:
        run("server/deploy/bundle", BUILD, directory / "made")
        yield (directory / "made").rename(directory / "moved")


def test_a_moved_bundle_needs_nothing_but_the_c_library(bundle: Path) -> None:
    files = [*bundle.glob("bin/*"), *bundle.glob("lib/*.so*"), *bundle.glob("lib/verifierd/*.so")]
    assert len(files) > 10
    for file in files:
        said = run("ldd", file)
        for line in said.splitlines():
            name, _, where = line.strip().partition(" => ")
            if not OF_THE_SYSTEM.match(Path(name).name):
                assert where and Path(where.split()[0]).resolve().is_relative_to(bundle), f"{file.name}: {said}"


def test_a_moved_bundle_judges(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "BINARY", bundle / "bin/verifierd")
    with service.directory() as directory, service.Daemon(directory) as daemon:
        status = run(bundle / "bin/verifier", "--url", daemon.client.url, "status", "--json")
        assert '"state"' in status
        # It has its corpus with it.
        found = run(bundle / "bin/verifier", "--url", daemon.client.url, "selftest", "--only", "relu/syntax_error")
        assert '"ok":true' in found.splitlines()[-1]


def test_a_bundle_is_small_enough_to_carry(bundle: Path) -> None:
    assert sum(f.stat().st_size for f in bundle.rglob("*")) < 60e6


def test_install_writes_only_below_destdir(tmp_path: Path) -> None:
    there = tmp_path / "root"
    make = ["make", f"BUILD={BUILD}", f"DESTDIR={there}", "PREFIX=/opt/v"]
    run(*make, "install")
    files = {str(p.relative_to(there)) for p in there.rglob("*") if p.is_file()}
    assert {"opt/v/bin/verifierd", "opt/v/bin/verifier", "opt/v/lib/verifierd/libharness.so"} <= files
    assert "opt/v/lib/verifierd/harness/zygote.py" in files
    corpus = "opt/v/share/verifierd/corpus"
    assert {f"{corpus}/tasks/relu.py", f"{corpus}/candidates/relu/honest.py", f"{corpus}/quick/sandbox.py"} <= files
    assert all(name.startswith("opt/v/") for name in files)
    assert {"opt/v/etc/verifierd.conf", "opt/v/share/verifierd/setup"} <= files
    shells = {
        "bash-completion/completions/verifier",
        "fish/vendor_completions.d/verifier.fish",
        "zsh/site-functions/_verifier",
    }
    assert {f"opt/v/share/{name}" for name in shells} <= files
    unit = (there / "opt/v/lib/systemd/system/verifierd.service").read_text()
    assert "ExecStart=/opt/v/bin/verifierd --config /opt/v/etc/verifierd.conf" in unit
    assert not re.search(r"@[A-Z]", unit + (there / "opt/v/etc/verifierd.conf").read_text())
    profile = (there / "opt/v/share/verifierd/apparmor").read_text()
    assert "profile verifierd /opt/v/bin/verifierd" in profile and "@PREFIX@" not in profile
    run(*make, "uninstall")
    assert not [p for p in there.rglob("*") if p.is_file()]


def test_a_configuration_of_ones_own_outlives_install_and_uninstall(tmp_path: Path) -> None:
    make = ["make", f"BUILD={BUILD}", f"DESTDIR={tmp_path}", "PREFIX=/usr/local"]
    run(*make, "install")
    conf = tmp_path / "etc/verifierd.conf"
    assert "/usr/local/share/verifierd/setup venv /opt/verifierd/venv" in conf.read_text()
    conf.write_text("cpu_jobs = 1\n")
    run(*make, "install")
    run(*make, "uninstall")
    assert conf.read_text() == "cpu_jobs = 1\n"


def test_the_configuration_that_is_installed_is_one_that_the_daemon_starts_with(tmp_path: Path) -> None:
    run("make", f"BUILD={BUILD}", f"DESTDIR={tmp_path}", "PREFIX=/opt/v", "install")
    conf = tmp_path / "opt/v/etc/verifierd.conf"
    text = conf.read_text()
    assert 'python = "/opt/verifierd/venv/bin/python3"' in text and 'store = "/var/lib/verifierd/verifierd.db"' in text
    # The two places that only a real installation has.
    own = {"/opt/verifierd/venv/bin/python3": sys.executable, "/var/lib/verifierd/": f"{tmp_path}/"}
    for old, new in own.items():
        text = text.replace(old, new)
    conf.write_text(text)
    said = run(tmp_path / "opt/v/bin/verifierd", "--config", conf, "--check-config")
    assert said.startswith("verifierd: the settings are fine")


def test_installcheck_judges_one_kernel_by_what_is_installed() -> None:
    with service.directory() as directory:
        make = ["make", f"BUILD={BUILD}", f"DESTDIR={directory}", "PREFIX=/opt/v", f"PYTHON={sys.executable}"]
        run(*make, "install")
        said = run(*make, "installcheck")
        assert "ok" in said and "5 of 5 cases" in said
        candidate = directory / "opt/v/share/verifierd/corpus/candidates/relu/honest.py"
        candidate.write_text(candidate.read_text().replace("class ModelNew", "class Mine"))
        broken = subprocess.run([*make, "installcheck"], cwd=ROOT, capture_output=True, timeout=300, check=False)
        assert broken.returncode != 0


def test_a_container_has_the_capabilities_of_the_unit() -> None:
    unit = (ROOT / "server/deploy/verifierd.service").read_text()
    wanted = re.findall(r"CAP_(\w+)", unit.partition("\nCapabilityBoundingSet=")[2].partition("\n")[0])
    for name in ("compose.yaml", "cluster/kubernetes.yaml"):
        given = re.search(r"\b(?:cap_add|add): \[([A-Z_, ]+)\]", (ROOT / "server/deploy" / name).read_text())
        assert given and given[1].split(", ") == wanted, name


def test_a_container_with_tokens_is_healthy_while_its_daemon_answers() -> None:
    deploy = ROOT / "server/deploy"
    services = yaml.safe_load((deploy / "compose.yaml").read_text())["services"]
    kind, python, *arguments = services["verifierd"]["healthcheck"]["test"]
    assert kind == "CMD" and f"setup venv {Path(python).parents[1]}\n" in (deploy / "Containerfile").read_text()

    def status(url: str) -> int:
        words = [word.replace("http://127.0.0.1:8080", url) for word in arguments]
        return subprocess.run([sys.executable, *words], capture_output=True, timeout=60, check=False).returncode

    with service.directory() as directory:
        run(service.BINARY, "token", "new", "--name=a", "--scope=submit", f"--store={directory / 'store.db'}")
        with service.Daemon(directory) as daemon:
            url = daemon.client.url
            assert status(url) == 0
        assert status(url) != 0


def test_the_debian_package_is_built_with_the_libraries_that_set_up_installs() -> None:
    setup = (ROOT / "server/deploy/setup").read_text()
    libraries = re.search(r"^LIBRARIES='([^']*)'", setup, re.MULTILINE)
    control = (ROOT / "server/deploy/debian/control").read_text()
    depends = re.search(r"^Build-Depends: (.*(?:\n .*)*)", control, re.MULTILINE)
    assert libraries and depends
    # ca-certificates is for pip, cmocka for the tests, which the package's build leaves out.
    missing = set(libraries[1].split()) - {"ca-certificates", "libcmocka-dev"} - set(re.split(r",\s*", depends[1]))
    assert not missing


def security(unit: Path) -> tuple[float, set[str]]:
    """What systemd-analyze thinks of it: the figure (10 is worst), and the settings that it finds open."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        env={**os.environ, "SYSTEMD_COLORS": "0", "SYSTEMD_EMOJI": "0"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    figure = re.search(r"exposure level for verifierd\.service: ([0-9.]+)", done.stdout)
    assert figure, done.stdout + done.stderr
    rows = re.findall(r"^[✗x-] (\w+(?:/\w+)*)=", done.stdout, re.MULTILINE)
    return float(figure[1]), {name for row in rows for name in row.split("/")}


def test_each_hardening_line_that_the_unit_lacks_is_named_in_it_with_its_reason(tmp_path: Path) -> None:
    text = (ROOT / "server/deploy/verifierd.service").read_text()
    unit = tmp_path / "verifierd.service"
    unit.write_text(text.replace("@PREFIX@", "/usr/local").replace("@SYSCONFDIR@", "/etc"))
    figure, open_ones = security(unit)
    assert {"User", "PrivateDevices", "ProtectControlGroups", "PrivateNetwork"} <= open_ones  # the table was read
    _, _, reasons = text.partition("# What is not here, and why:")
    lines = [line.partition("=")[0] for line in text.splitlines() if not line.startswith("#")]
    unnamed = {name for name in open_ones if name not in reasons and name not in lines}
    assert not unnamed, "say in the unit why it does without"
    assert f"{figure} of 10" in (ROOT / "docs/operations.md").read_text()


def test_flags_of_the_harness_library_do_not_compile_everything_again(tmp_path: Path) -> None:
    # Whichever object is made first makes build/plain/flags: a flag of its own there has all others made again.
    out = tmp_path / "plain"
    said = run("make", "-n", f"BUILD={tmp_path}", out / "server/harness/native/timer.o", out / "common/buffer.o")
    noted = [line for line in said.splitlines() if line.startswith("printf") and line.endswith("/flags.$PPID")]
    assert len(noted) == 1 and "-fPIC" not in noted[0]
    compiled = {line.split()[-1]: line for line in said.splitlines() if " -c -o " in line}
    assert "-fPIC" in compiled["server/harness/native/timer.c"]
    assert "-fPIC" not in compiled["common/buffer.c"]


def test_the_build_of_a_private_checkout_lies_where_others_can_read_it(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    build = private / "build"
    settings = {"BUILD": str(build), "PYTHON": os.environ.get("PYTHON", sys.executable)}
    said = run("server/deploy/setup", "run", **settings)
    where = build.resolve()
    try:
        if os.geteuid() == 0:
            assert build.is_symlink() and "becomes a link" in said
            assert all(p.stat().st_mode & 0o001 for p in (where, *where.parents))
        else:
            # Candidates have our own uid then, and can go where we can.
            assert not build.is_symlink()
    finally:
        run("server/deploy/setup", "undo", **settings)
    assert not build.exists() and not build.is_symlink() and not where.exists()


def test_a_python_for_an_installed_verifierd_is_not_made_twice_nor_where_candidates_cannot_go(tmp_path: Path) -> None:
    made = tmp_path / "venv"
    (made / "bin").mkdir(parents=True)
    (made / "bin/python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (made / "bin/python3").chmod(0o755)
    assert f"{made} has torch and triton already" in run("server/deploy/setup", "venv", made)
    if os.geteuid() == 0:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o700)
        done = subprocess.run(
            ["server/deploy/setup", "venv", str(closed / "venv")],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 1 and "other uids cannot enter it" in done.stderr


def test_set_up_refuses_a_python_without_torch(tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    done = subprocess.run(
        ["server/deploy/setup", "run"],
        cwd=ROOT,
        env={**os.environ, "BUILD": str(tmp_path / "build"), "PYTHON": str(bare)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert f"PYTHON={bare} cannot import torch" in done.stderr


def test_a_copy_of_the_store_made_beside_the_daemon_is_one_to_go_on_with() -> None:
    """docs/operations.md, «Backup»."""
    relu = json.loads((ROOT / "docs/example.json").read_text())["reference"]
    with service.directory() as directory, service.directory() as there:
        with service.Daemon(directory) as daemon:
            task = daemon.client.add_task({"name": "relu", "reference": relu})
            before = daemon.client.judge({"task": task, "candidate": "x = ("})
            with sqlite3.connect(directory / "store.db") as store, sqlite3.connect(there / "store.db") as copy:
                store.backup(copy)
            daemon.client.judge({"task": task, "candidate": "y = ("})
        with service.Daemon(there) as restored:
            assert restored.client.expect("GET", f"/v1/submissions/{before['id']}") == before
            assert len(restored.client.expect("GET", "/v1/submissions")["items"]) == 1
            assert restored.client.judge({"task": task, "candidate": "z = ("})["class"] == "syntax"
