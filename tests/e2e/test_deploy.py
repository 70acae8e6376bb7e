"""What is put elsewhere: the bundle, the installed tree, the build of a checkout that only root can enter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import service

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
    unit = (there / "opt/v/lib/systemd/system/verifierd.service").read_text()
    assert "ExecStart=/opt/v/bin/verifierd" in unit and "@" not in unit
    profile = (there / "opt/v/share/verifierd/apparmor").read_text()
    assert "profile verifierd /opt/v/bin/verifierd" in profile and "@PREFIX@" not in profile
    run(*make, "uninstall")
    assert not [p for p in there.rglob("*") if p.is_file()]


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
