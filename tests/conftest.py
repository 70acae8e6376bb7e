"""What holds for every suite: a folder of its own for each run, and what CI says of a skipped test."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

OWN_FOLDER = pytest.StashKey[Path]()
# In CI a test that is skipped has failed, unless it is marked gpu and there is no GPU to run it on.
IS_STRICT = bool(os.environ.get("CI_STRICT"))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The folder that pytest shares between runs is closed to other users each time that one begins, and children that
    run as another user lose their files in the middle of a test of the run beside it."""
    if config.option.basetemp is None and not hasattr(config, "workerinput"):
        config.stash[OWN_FOLDER] = Path(tempfile.mkdtemp(prefix="verifierd-pytest-"))
        config.option.basetemp = config.stash[OWN_FOLDER]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """What failed may be looked at."""
    folder = session.config.stash.get(OWN_FOLDER, None)
    if folder and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    is_allowed = hasattr(report, "wasxfail") or item.get_closest_marker("gpu") is not None
    if IS_STRICT and report.skipped and not is_allowed:
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not accept: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A whole module that skips itself."""
    report = yield
    if IS_STRICT and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not accept: {report.longrepr}"
    return report
