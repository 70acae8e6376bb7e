"""docs/requirements.md and the script that runs what it says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import requirements

ASKED_FOR = 113


def page_of(directory: Path, *rows: str) -> Path:
    page = directory / "page.md"
    page.write_text("| # | requirement | state | shown by |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n")
    return page


def test_the_page_has_every_requirement_with_tests_that_are_there() -> None:
    rows = requirements.read()
    assert [row.number for row in rows] == list(range(1, ASKED_FOR + 1))
    assert len({row.text for row in rows}) == ASKED_FOR
    for row in rows:
        assert row.note or row.state == "met", f"row {row.number} does not say how it differs or what is missing"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["| 2 | one | met | `true` |"], "page.md:3: row 1 with four cells is wanted here"),
        (["| 1 | one | met | `true` |", "| 3 | three | met | `true` |"], "page.md:4: row 2"),
        (["| 1 | one | met | `true` | more |"], "row 1 with four cells"),
        (["| 1 | one | done | `true` |"], "the state is none of met, differs, needs a GPU"),
        (["| 1 | one | met | the code |"], "page.md:3: nothing shows it"),
        (["| 1 | one | met | `tests/unit/test_requirements.py::test_none` |"], "there is no test tests/unit"),
        (["| 1 | one | met | `tests/unit/test_none.py::test_none` |"], "there is no test tests/unit/test_none.py"),
    ],
)
def test_a_page_that_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: Sequence[str], says: str
) -> None:
    assert requirements.main([f"--page={page_of(tmp_path, *rows)}"]) == 3
    assert says in capsys.readouterr().err


def test_a_pipe_of_a_command_is_written_as_a_table_wants_it(tmp_path: Path) -> None:
    (row,) = requirements.read(page_of(tmp_path, r"| 1 | one | differs: so | `a \| b`, `c` |"))
    assert (row.state, row.note, row.shown) == ("differs", "so", ("a | b", "c"))


def test_each_row_has_its_line_and_one_that_fails_the_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With commands and tests as they are run; only the daemon is left out."""
    monkeypatch.setattr(requirements, "run_commands", lambda commands, environment: {
        command: requirements.run_command(command, environment) for command in commands
    })  # fmt: skip
    here = "tests/unit/test_requirements.py::test_a_pipe_of_a_command_is_written_as_a_table_wants_it"
    page = page_of(
        tmp_path,
        f"| 1 | right by both | | `true`, `{here}` |",
        "| 2 | wrong at once | differs: so | `true`, `echo why; exit 7`, `false` |",
        "| 3 | elsewhere | needs a GPU: fast | `false` |",
    )
    assert requirements.main([f"--page={page}"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("PASS    1  right by both: met, ")
    assert said[1].startswith("FAIL    2  wrong at once: differs (so), ")
    assert said[2:5] == ["      echo why; exit 7", "      | why", "      | status 7"]
    assert "-       3  elsewhere: needs a GPU (fast)" in said
    assert "1 met, 1 FAILED, 1 needs a GPU" in said
    assert requirements.main([f"--page={page}", "1", "3"]) == 0


def test_a_test_that_fails_or_is_skipped_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "ROOT", tmp_path)
    file = tmp_path / "tests" / "test_of_page.py"
    file.parent.mkdir()
    file.write_text(
        "import pytest\n\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_half(n: int) -> None:\n    assert n == 1\n\n"
        "def test_skipped() -> None:\n    pytest.skip('not here')\n\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_right(n: int) -> None:\n    pass\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    tests = [f"tests/test_of_page.py::{name}" for name in ("test_half", "test_skipped", "test_right")]
    environment = requirements.environment_of()
    environment.pop("CI_STRICT", None)
    found = requirements.run_tests(tests, environment)
    assert [found[test].is_ok for test in tests] == [False, False, True]
    assert "assert 2 == 1" in found[tests[0]].said and "not here" in found[tests[1]].said
    none = requirements.run_tests(["tests/test_of_page.py::test_none"], environment)
    assert [(one.is_ok, "not found" in one.said) for one in none.values()] == [(False, True)]


def test_what_was_done_before_the_time_was_over_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "ROOT", tmp_path)
    file = tmp_path / "tests" / "test_of_page.py"
    file.parent.mkdir()
    file.write_text(
        "import pathlib, pytest, time\n\n"
        "@pytest.fixture\ndef daemon():\n    yield\n    pathlib.Path('ended').touch()\n\n"
        "def test_right() -> None:\n    pass\n\n"
        "def test_endless(daemon: None) -> None:\n    time.sleep(3600)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    right, endless = (f"tests/test_of_page.py::{name}" for name in ("test_right", "test_endless"))
    found = requirements.run_tests([right, endless], requirements.environment_of(), limit_s=20)
    assert (found[right].is_ok, found[endless].is_ok) == (True, False)
    assert "not done within 20 s" in found[endless].said and (tmp_path / "ended").exists()


def test_what_a_report_shows_is_not_run_again_while_no_source_is_newer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong = (f"tests/unit/test_requirements.py::{name}" for name in (
        "test_a_page_that_cannot_be_used_is_refused_with_its_line", "test_what_was_done_before_the_time_was_over_counts"
    ))  # fmt: skip
    case = '<testcase classname="tests.unit.test_requirements" name="NAME" time="7">BODY</testcase>'
    name = right.partition("::")[2]
    cases = case.replace("NAME", f"{name}[a]").replace("BODY", "") + case.replace("NAME", f"{name}[b]").replace(
        "BODY", ""
    )
    cases += case.replace("NAME", wrong.partition("::")[2]).replace("BODY", '<failure message="so"/>')
    report = tmp_path / "unit.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert requirements.known(tmp_path, [right, wrong]) == {right: requirements.Outcome(True, 14.0)}
    page = page_of(tmp_path, f"| 1 | right | met | `{right}` |")
    assert requirements.main([f"--page={page}", f"--results={tmp_path}"]) == 0
    assert capsys.readouterr().out.startswith("PASS    1  right: met, 14.0 s")
    os.utime(report, (1, 1))
    assert requirements.known(tmp_path, [right, wrong]) == {}
