"""The documents name nothing that is not there: files, functions, targets, links and headings."""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from shared import operators

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
LINKING = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("client/**/*.md"), *ROOT.glob("proto/*.md")]
)
FOLDERS = r"(?:server|client|common|proto|tests|docs)/"
STORY_MOST = 12
QUESTIONS = 10


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def section(page: str, title: str) -> str:
    """Of a page, what stands under a heading."""
    return text_of(page).partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def functions(page: str) -> list[tuple[str, str]]:
    """(file, function) of each `file`: `function()`."""
    return re.findall(rf"`({FOLDERS}[\w./-]+)`: `(\w+)\(\)`", text_of(page))


def is_defined(path: str, name: str) -> bool:
    """In C a definition's name begins its line; in Python it stands after def or class."""
    return bool(re.search(rf"^(?:(?:def|class) )?{name}\b", (ROOT / path).read_text(), re.MULTILINE))


def anchors(text: str) -> set[str]:
    """The fragments that a page's headings have, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", prose, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def broken_links(page: str, text: str) -> list[str]:
    """Of a page's links to files and headings, those that lead nowhere."""
    wrong = []
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        there = text if not path else file.read_text() if file.suffix == ".md" and file.is_file() else ""
        if not file.exists() or (fragment and fragment not in anchors(there)):
            wrong.append(target)
    return wrong


def missing_files(text: str) -> list[str]:
    """Of the files that a page names in code marks, those that are not there; NAME and TASK stand for any."""
    named = re.findall(rf"`({FOLDERS}[\w./-]+)(?:[:, ][^`]*)?`", text)
    return [name for name in named if not (ROOT / name).exists() and not re.search(r"/(?:NAME|TASK)\b", name)]


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):(?!=)", text_of("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_each_file_that_a_page_names_is_there(page: str) -> None:
    text = text_of(page)
    named = re.findall(rf"`({FOLDERS}[\w./-]*)`", text) + re.findall(r"\]\((?!http)([^)#]+)\)", text)
    assert page == "CHANGELOG.md" or len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", LINKING)
def test_each_link_of_a_page_leads_somewhere(page: str) -> None:
    assert broken_links(page, text_of(page)) == []


@pytest.mark.parametrize("page", [page for page in LINKING if page != "CHANGELOG.md"])
def test_each_file_that_any_page_names_is_there(page: str) -> None:
    assert missing_files(text_of(page)) == []


def test_a_link_that_leads_nowhere_and_a_file_that_is_gone_are_found() -> None:
    text = "# A head\n[a](#a-head) [b](#b) [c](docs/http.md#waiting) [d](docs/http.md#dancing) [e](docs/gone.md)\n"
    assert broken_links("README.md", text) == ["#b", "docs/http.md#dancing", "docs/gone.md"]
    assert missing_files("`server/config.c` `server/gone.c` `server/gone.c: f()`") == ["server/gone.c"] * 2


@pytest.mark.parametrize("page", PAGES[:2])
def test_each_function_that_a_page_names_is_defined_in_that_file(page: str) -> None:
    named = functions(page)
    assert len(named) >= 5
    assert [(path, name) for path, name in named if not is_defined(path, name)] == []


def test_a_function_that_is_called_only_is_not_taken_for_defined() -> None:
    assert is_defined("server/http/submissions.c", "submission_add")
    assert not is_defined("server/http/submissions.c", "funnel_submit")


def test_the_story_of_a_submission_has_at_most_twelve_files() -> None:
    story = re.findall(
        rf"^\d+\. `({FOLDERS}[\w./-]+)`: `\w+\(\)`", section(PAGES[0], "The story of one submission"), re.M
    )
    assert 8 <= len(story) == len(set(story)) <= STORY_MOST


def test_each_question_has_a_file() -> None:
    rows = section(PAGES[1], "Questions, and the file that answers each").strip().splitlines()[2:]
    assert len(rows) >= QUESTIONS
    assert all(re.search(rf"\?\s*\| `{FOLDERS}[\w./-]+`", row) for row in rows)


@pytest.mark.parametrize("page", PAGES[:2])
def test_each_target_that_a_page_names_is_in_the_makefile(page: str) -> None:
    named = re.findall(r"^make ([a-z][a-z-]*)\b(?!/)", text_of(page), re.M) + re.findall(
        r"`make ([a-z][a-z-]*)`", text_of(page)
    )
    assert named and set(named) <= targets()


def test_make_help_tells_what_each_target_does() -> None:
    shown = subprocess.run(["make", "-C", str(ROOT), "--no-print-directory", "help"], capture_output=True, text=True)
    lines = dict(re.findall(r"^(\S+) +(\S.*)$", shown.stdout, re.M))
    assert shown.returncode == 0
    assert {"all", "test", "test-fast", "check", "help", "install", "fuzz"} <= lines.keys() & targets()


def test_the_archive_of_make_dist_has_each_file_that_make_reads(tmp_path: Path) -> None:
    make = ["make", "-C", str(ROOT), f"BUILD={tmp_path}"]
    assert "dist" in subprocess.run([*make, "help"], capture_output=True, text=True, check=True).stdout.split()
    subprocess.run([*make, "dist"], check=True)
    with tarfile.open(next(tmp_path.glob("verifierd-*.tar.gz"))) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    database = subprocess.run([*make, "-pnr", "help"], capture_output=True, text=True, check=True).stdout
    status = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=all"]
    new = {line[3:] for line in subprocess.run(status, capture_output=True, text=True, check=True).stdout.splitlines()}
    read = {word for word in re.findall(r"[\w./-]+", database) if "/" in word and (ROOT / word).is_file()} - new
    read = {word for word in read if word[0] not in "/." and not word.startswith("build/")}
    assert len(read) > 400 and read - there == set()


def test_each_glossary_word_is_explained_once() -> None:
    words = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", section(PAGES[0], "Words"), re.M)[2:]
    single = [word.strip() for row in words for word in row.split(",")]
    assert len(single) > 30 and len(single) == len(set(single))


def test_each_removed_setting_is_in_the_changelog() -> None:
    table = text_of("server/config.c").partition("} removed[] = {")[2].partition("};")[0]
    names = re.findall(r'^    \{ "(\w+)"', table, re.M)
    assert names
    assert [name for name in names if f"`{name}`" not in text_of("CHANGELOG.md")] == []


def test_each_reward_has_its_row_in_the_page_the_contract_and_the_values_by_hand() -> None:
    kinds = set(re.findall(r'\.name = "(\w+)",\s+\.version', text_of("common/reward.c")))
    contract = text_of("proto/openapi.yaml")
    short = re.search(r"    RewardChoice:\n(?:.*\n)+?.*\{ type: string, enum: \[(.*)\] \}", contract)
    whole = " ".join(re.findall(r"^        kind: \{ (?:const|enum): \[?([\w, ]+)", contract, re.M))
    page = re.findall(r"^\| `(\w+)` \|", section("docs/rewards.md", "Other kinds"), re.M)
    by_hand = re.findall(r'^    \{ "(\w+)"', text_of("tests/unit/test_reward.c").partition("} by_hand[] = {")[2], re.M)
    assert len(kinds) > 10 and short
    assert kinds == set(re.findall(r"\w+", short[1])) and kinds <= set(re.findall(r"\w+", whole))
    assert kinds - {"staged"} <= set(page) and kinds - {"staged"} <= set(by_hand)


def test_the_page_of_verdicts_has_each_class_as_the_code_has_it() -> None:
    rows = re.findall(r'ROW\(\w+, +"(\w+)", +FAULT_(\w+), +(\w+), +(\w+), +(\w+),', text_of("common/classes.h"))
    page = section("docs/verdicts.md", "Classes")
    assert len(rows) > 15 and re.findall(r"^\| `(\w+)` \| [^|]+ \|$", page, re.M)[: len(rows)] == [
        row[0] for row in rows
    ]
    told = {what: re.findall(r"`(\w+)`", names) for names, what in re.findall(r"^\| ([^|]+) \| (\w+ \w+)", page, re.M)}
    assert told["the service"] == [name for name, fault, *_ in rows if fault == "SERVICE"]
    assert [name for name, fault, *_ in rows if fault == "NOBODY"] == ["ok"]
    assert told["a cheat"] == [name for name, _, cheat, _, _ in rows if cheat == "true"]
    assert told["judged once"] == [name for name, _, _, retry, _ in rows if retry == "true"]
    assert told["not shared"] == [name for name, _, _, _, reuse in rows if reuse == "false"]


def test_the_page_of_operators_has_each_of_the_table() -> None:
    page = dict(re.findall(r"^\| (\w+) \| [^|]+ \| ((?:`\w+` ?)+) \|$", text_of("docs/operators.md"), re.M))
    overloads = {name.split(".")[1] for name in operators.MOVEMENT_OVERLOADS if name.startswith("aten.")}
    table = {"movement": operators.MOVEMENT | overloads, "library": operators.LIBRARY, "refused": operators.REFUSED}
    assert {kind: set(re.findall(r"\w+", names)) for kind, names in page.items() if kind in table} == table


def test_the_page_of_verdicts_has_each_field_of_the_contract() -> None:
    schema = text_of("proto/openapi.yaml").partition("\n    Submission:\n")[2]
    schema = re.split(r"^    \w+:$", schema, maxsplit=1, flags=re.MULTILINE)[0]
    wanted = re.findall(r"^        (\w+):", schema, re.MULTILINE)
    cells = re.findall(r"^\| (`[^|]+`) \| [^|]+ \|$", section("docs/verdicts.md", "Fields"), re.M)
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert len(wanted) > 30 and sorted(named) == sorted(wanted)
