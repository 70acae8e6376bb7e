"""trainer bestofn: what the daemon failed to judge (infra) is judged anew when the command is given again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import service
from answering import Reply
from endpoint import Endpoint, Json, lines, run, serving
from scripted import TASK

OUT = Path("outputs/bestofn_run")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as script:
        yield script


def answers(*scripts: str) -> Reply:
    texts = [f"```python\n# script: {script}\n```" for script in scripts]
    choices = [{"index": i, "message": {"content": text}} for i, text in enumerate(texts)]
    return 200, {}, json.dumps({"choices": choices}).encode()


def judged_as_infra(journal: Path, turn: int) -> None:
    """The first answer of this turn."""
    records = lines(journal)
    for record in records:
        if record["event"] == "judged" and record["turn"] == turn:
            record["verdicts"][0] |= {"class": "infra", "reward": None}
            record["verdicts"][0]["components"]["correct"] = 0
    journal.write_text("".join(json.dumps(record) + "\n" for record in records))


def events(journal: Path) -> list[tuple[str, int]]:
    return [(record["event"], record["turn"]) for record in lines(journal) if "turn" in record]


def rewards(rows: list[Json]) -> list[object]:
    return [row["reward"] for row in rows]


@pytest.mark.parametrize(("turns", "spoilt", "is_judged_anew"), [(1, 0, True), (2, 1, True), (2, 0, False)])
def test_infra_is_judged_anew_by_the_same_command(
    start_scripted: service.StartDaemon,
    endpoint: Endpoint,
    tmp_path: Path,
    turns: int,
    spoilt: int,
    is_judged_anew: bool,
) -> None:
    daemon = start_scripted()
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"name": "scripted", "pytorch_code": TASK["reference"], "level": 2}) + "\n")
    first = answers("timing=1.5", "compile=fail:compile")
    later = [lambda body: answers("timing=1.6"), lambda body: answers("timing=1.7")]
    endpoint.faults = [lambda body: first, *later]
    usual = ("bestofn", f"--tasks={tasks}", "--samples=2", f"--turns={turns}")
    assert run(daemon.client, endpoint, tmp_path, *usual).returncode == 0
    journal, asked = tmp_path / OUT / "journal.jsonl", len(endpoint.asked)
    once, kept = events(journal), lines(tmp_path / OUT / "kept.jsonl")

    judged_as_infra(journal, spoilt)
    assert run(daemon.client, endpoint, tmp_path, *usual).returncode == 0
    anew: list[tuple[str, int]] = [("posted", spoilt), ("judged", spoilt)] if is_judged_anew else []
    assert events(journal) == once + anew and len(endpoint.asked) == asked
    rows: list[Json] = lines(tmp_path / OUT / "candidates.jsonl")
    assert [row["verdict"]["class"] for row in rows].count("infra") == (0 if is_judged_anew else 1)
    if is_judged_anew:
        posted = [record["group"] for record in lines(journal) if record["event"] == "posted"]
        assert len(set(posted)) == turns + 1
        assert rewards(lines(tmp_path / OUT / "kept.jsonl")) == rewards(kept)

    # Killed between the post and the verdicts, it waits for the group that it posted; finished, nothing is done.
    if is_judged_anew:
        text = journal.read_text().splitlines(keepends=True)
        journal.write_text("".join(text[:-1]))
    for _ in range(2):
        assert run(daemon.client, endpoint, tmp_path, *usual).returncode == 0
        assert events(journal) == once + anew and len(endpoint.asked) == asked
