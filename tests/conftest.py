"""In CI a test that is skipped has failed, unless it is marked gpu and there is no GPU to run it on."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

IS_STRICT = bool(os.environ.get("CI_STRICT"))


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
