"""The figures in the text of docs/measurements/timing.md, each made again from where it comes from.

A sentence of the page is found by a pattern whose groups are its figures; they have to be, as they are written
there, what a function makes of the source: the record of what an H200 showed (docs/measurements/clock.md), or what
tests/unit/test_statistics prints of its simulated clocks. A figure of the GPU that comes out of every run belongs
into the page's tables instead, which tests/bench/timing_report.py makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass


class ProseError(Exception):
    """A source does not hold what a figure is made from."""


def section(text: str, heading: str) -> str:
    """The part of a page under the heading that begins so."""
    found = re.search(rf"^## {re.escape(heading)}.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ProseError(f"it has no section {heading!r}")
    return found[0]


def numbers(text: str, pattern: str) -> list[tuple[float, ...]]:
    """The groups of every match, as numbers; at least one."""
    found = [tuple(map(float, match.groups())) for match in re.finditer(pattern, text)]
    if not found:
        raise ProseError(f"nothing in it is like {pattern!r}")
    return found


def copies(seen: str) -> list[str]:
    """How far copies were off, as the last figures of the section say."""
    found = re.findall(r"(?:relu|ln) \d+ (0\.\d+)", section(seen, "What makes a copy"))
    if len(found) < 3:
        raise ProseError("it does not end with the ratios of three tasks")
    return [min(found[-3:]), max(found[-3:])]


def near_and_far(seen: str) -> tuple[float, float]:
    """Microseconds of a call whose output begins behind 2 and behind 100 MiB."""
    times = {int(pad): us for pad, us in numbers(section(seen, "Where buffers lie"), r"pad (\d+) \('(\d+)'")}
    return times[2 << 20], times[100 << 20]


def places(seen: str) -> list[str]:
    near, far = near_and_far(seen)
    return [f"{near / 1000:.1f}", f"{far / 1000:.1f}"]


def places_share(seen: str) -> list[str]:
    near, far = near_and_far(seen)
    return [f"{100 * (far / near - 1):.0f}", *places(seen)]


def simulated(printed: str) -> list[str]:
    rows = numbers(printed, r"noise [\d.]+: ([\d.]+) % hold the truth, ([\d.]+) pairs each")
    if len(rows) != 6:
        raise ProseError(f"it tells of {len(rows)} simulations, and six are in the page")
    (fixed, all_pairs), *stopped = rows
    return [f"{fixed:.1f}", f"{all_pairs:.0f}", *[f"{x:.1f}" for row in stopped for x in row]]


@dataclass(frozen=True)
class Sentence:
    """Where figures stand in the page, and how they are made from a source's text."""

    source: str
    pattern: str
    make: Callable[[str], list[str]]


SEEN, SIMULATED = "clock.md", "test_statistics"
SENTENCES: Sequence[Sentence] = (
    Sentence(SEEN, r"three copies came out at (\S+) to (\S+) of their reference", copies),
    Sentence(SEEN, r"one transposed convolution took (\S+) or (\S+) ms in one process", places),
    Sentence(SEEN, r"up to (\S+) %, by the same kernel of the same library \((\S+) or (\S+) ms", places_share),
    Sentence(
        SIMULATED,
        r"held the truth in (\S+) % \(all (\S+) pairs\), (\S+) % \((\S+) pairs on \w+\) and (\S+) % \((\S+) pairs\);"
        r" from 6 on,.*? in (\S+) % \((\S+) pairs\) and (\S+) % \((\S+)\),.*? in (\S+) % \((\S+) pairs,",
        simulated,
    ),
)  # fmt: skip


def stale(page: str, sources: dict[str, str]) -> list[str]:
    """What the page says otherwise than its sources, by name; a sentence that is not found is stale, too."""
    text = " ".join(page.split())
    wrong = []
    for sentence in SENTENCES:
        if sentence.source not in sources:
            continue
        try:
            wanted = sentence.make(sources[sentence.source])
        except ProseError as error:
            wrong.append(f"{sentence.source}: {error}")
            continue
        found = re.search(sentence.pattern, text)
        if found is None:
            wrong.append(f"the page has no sentence like {sentence.pattern!r} any more")
        elif list(found.groups()) != wanted:
            wrong.append(f"{found[0]!r}: {sentence.source} gives {', '.join(wanted)}")
    return wrong
