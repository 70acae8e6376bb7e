"""trainer compare: evaluations side by side, by level, with paired differences."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from finetune import checkpoint

from . import page
from .common import CONFIG, OK, USAGE, Json, PipelineError, parser

LEVELS = (1, 2, 3, 4, 0)  # 0: all, which comes last
WIDTH = 34  # of a column on the terminal

# The name of a row, the place of its figure in an evaluation's metrics, its unit, and the policy under which
# `evaluate --columns` judged it again.
Row = tuple[str, str, str | None, str, str | None]
ROWS: list[Row] = [
    *((name, f"{name}_rate", None, "%", None) for name in ("extracted", "valid", "compiled", "correct")),
    *((f"fast_{p}", "fast_p", p, "%", None) for p in ("0", "0.5", "0.8", "1", "1.5", "2")),
    *((f"pass@{k}", "pass_at", k, "%", None) for k in ("1", "10")),
    ("speed-up", "speedup_geomean", None, "", None),
    ("median", "speedup_median", None, "", None),
    *((name, "correct_rate", None, "%", name) for name in ("strict", "hybrid", "kernelbench")),
]
CORRECT = ROWS[3]


@dataclass
class Column:
    """One evaluation, or published figures (without a report)."""

    name: str
    path: str = ""
    report: Json | None = None
    published: dict[int, float] = field(default_factory=dict)  # correct answers in percent, by level
    correct: dict[str, bool] = field(default_factory=dict)  # by task, of the first sample that was judged
    level_of: dict[str, int] = field(default_factory=dict)

    def figure(self, level: int, row: Row = CORRECT) -> float | None:
        _, name, below, _, policy = row
        if self.report is None:
            return self.published.get(level) if row is CORRECT else None
        judged: Json = self.report.get("columns", {}).get(policy, {}) if policy else self.report
        metrics = judged.get("levels", {}).get(str(level), {}) if level else judged.get("metrics", {})
        value = metrics.get(name)
        value = value.get(below) if below and isinstance(value, dict) else value
        return float(value) if isinstance(value, int | float) else None


def published(text: str) -> Column:
    """NAME=L1[,L2...]."""
    name, equals, figures = text.rpartition("=")
    try:
        rates = [float(figure) for figure in figures.split(",")]
    except ValueError:
        rates = []
    if not equals or not name or not 1 <= len(rates) <= 4 or not all(0 <= rate <= 100 for rate in rates):
        raise argparse.ArgumentTypeError(f"takes NAME=L1[,L2...] in percent, not {text!r}")
    return Column(name, published=dict(enumerate(rates, 1)))


def read_column(workdir: Path, name: str) -> Column:
    """From a file, or by the evaluation's name."""
    path = Path(name)
    if not path.exists() and "/" not in name:
        path = workdir / "outputs" / f"eval_{name}.json"
    try:
        report = json.loads(path.read_text())
    except OSError as error:
        raise PipelineError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise PipelineError(f"{path}: {error}") from None
    rows = report.get("detailed_results") if isinstance(report, dict) else None
    if not isinstance(rows, list) or not isinstance(report.get("metrics"), dict):
        raise PipelineError(f'{path} is not what `trainer evaluate` writes: no "metrics" and "detailed_results"')
    column = Column(report.get("name") or name, str(path), report)
    rows = [row for row in rows if isinstance(row, dict) and row.get("id")]
    turns: dict[str, int] = {}  # its last one, where feedback was answered
    for row in rows:
        turns[row["id"]] = max(turns.get(row["id"], 0), row.get("turn") or 0)
    for row in rows:
        is_judged = row.get("class") and row["class"] != "infra" and (row.get("turn") or 0) == turns[row["id"]]
        if is_judged and row["id"] not in column.correct:
            column.correct[row["id"]] = (row.get("components") or {}).get("correct") == 1
            column.level_of[row["id"]] = row.get("level") or 0
    return column


def prompts(columns: Sequence[Column]) -> tuple[list[str], bool]:
    """Notes on the prompts, and whether all are the same: answers to different prompts do not compare the models.

    An evaluation without a prompt is of answers sampled elsewhere (`evaluate --runs`): noted, and not a mismatch.
    """
    measured = [column for column in columns if column.report is not None]
    known = [column for column in measured if column.report and column.report.get("prompt")]
    notes = [f"no prompt is known of the answers in {column.path}" for column in measured if column not in known]
    others = []
    for column in known:
        first, own = known[0].report or {}, column.report or {}
        if own["prompt"] != first["prompt"]:
            others.append(f"the prompts differ: {first['prompt']} in {known[0].path}, {own['prompt']} in {column.path}")
    return notes + others, not others


def interval(differences: Sequence[int]) -> tuple[float, float]:
    """The 95 % percentile-bootstrap interval of the mean of differences of -1, 0 and 1.

    Exact: what resampling would draw from is computed, the sum of as many independent draws as there are differences.
    """
    n, count = len(differences), Counter(differences)
    less, same, more = (count[d] / n for d in (-1, 0, 1))
    chances = [1.0]  # of a sum, from the least possible one up
    for _ in range(n):
        padded = [0.0, 0.0, *chances, 0.0, 0.0]
        chances = [less * padded[i + 2] + same * padded[i + 1] + more * padded[i] for i in range(len(chances) + 2)]
    ends: list[float] = []
    below = 0.0
    for i, chance in enumerate(chances):
        below += chance
        while len(ends) < 2 and below >= (0.025, 0.975)[len(ends)] - 1e-12:
            ends.append((i - n) / n)
    return ends[0], ends[1]


def difference(a: Column, b: Column, level: int) -> Json | None:
    """Correct answers of b beyond a's, in points, over the tasks that both were judged on; None: there is none."""
    pairs = [
        int(b.correct[task]) - int(is_correct)
        for task, is_correct in a.correct.items()
        if task in b.correct and level in (0, a.level_of[task])
    ]
    if not pairs:
        return None
    lo, hi = interval(pairs)
    return {"mean": 100 * sum(pairs) / len(pairs), "lo": 100 * lo, "hi": 100 * hi, "tasks": len(pairs)}


class Comparison:
    """The columns, measured ones first, and what the outputs say of them."""

    def __init__(self, columns: list[Column], notes: list[str]) -> None:
        self.columns, self.notes = columns, notes
        self.levels = [level for level in LEVELS if any(self.has(level, row) for row in ROWS)]

    def has(self, level: int, row: Row) -> bool:
        return any(column.figure(level, row) is not None for column in self.columns)

    def beyond(self, level: int, of: int, k: int) -> Json | None:
        if k == 0 or self.columns[of].report is None or self.columns[k].report is None:
            return None
        return difference(self.columns[of], self.columns[k], level)

    def less_published(self, level: int, k: int) -> dict[str, float]:
        """A measured rate of correct answers less each published one, in points."""
        rate = self.columns[k].figure(level) if self.columns[k].report is not None else None
        others = [column for column in self.columns if column.report is None and level in column.published]
        return {} if rate is None else {column.name: rate - column.published[level] for column in others}

    def lines(self, level: int) -> list[tuple[str, str, list[str]]]:
        """Of a level: what a line is called on the terminal and on the page, and its cells."""
        out = []
        for row in ROWS:
            if self.has(level, row):
                cells = [figure_text(column.figure(level, row), row[3]) for column in self.columns]
                out.append((row[0], row[0], cells))
        kinds = [("correct +-", "the first", 1)]
        if len(self.columns) > 2 and self.columns[2].report is not None:  # before that it says the same
            kinds.append(("+- previous", "the one before", 0))
        for short, what, is_first in kinds:
            cells = []
            for k, column in enumerate(self.columns):
                d = self.beyond(level, 0 if is_first else k - 1, k)
                said = f"{d['mean']:+.1f} ({d['lo']:+.1f} to {d['hi']:+.1f}; n={d['tasks']})" if d else "-" * (k > 0)
                cells.append("published" if column.report is None else said)
            out.append((short, f"correct, beyond {what}, in points", cells))
        for name in (column.name for column in self.columns if column.report is None and level in column.published):
            less = [self.less_published(level, k).get(name) for k in range(len(self.columns))]
            cells = ["" if value is None else f"{value:+.1f}" for value in less]
            out.append((f"- {name[:9]}", f"correct, less {name} (published), in points", cells))
        return out

    def print(self) -> None:
        if self.notes:
            print("\n".join([*self.notes, ""]))
        for level in self.levels:
            print(f"{level_name(level):<11}" + "".join(f"  {c.name[:WIDTH]:<{WIDTH}}" for c in self.columns))
            for short, _, cells in self.lines(level):
                print(f"{short:<11}" + "".join(f"  {cell:<{WIDTH}}" for cell in cells))
            print()

    def page(self) -> str:
        names, faint = [c.name for c in self.columns], [c.report is None for c in self.columns]
        rates = {level_name(level): [c.figure(level) for c in self.columns] for level in LEVELS}
        plotted = {name: values for name, values in rates.items() if any(rate is not None for rate in values)}
        parts = [f"<p><strong>{page.text(' '.join(self.notes))}</strong></p>"] if self.notes else []
        parts.append(page.bars("Correct answers by level, in percent", plotted, names, faint))
        heads = "".join(
            f"<th>{page.text(n)}{' (published)' * is_faint}</th>" for n, is_faint in zip(names, faint, strict=True)
        )
        for level in self.levels:
            body = "".join(
                f"<tr><td>{page.text(title)}</td>"
                + "".join(f"<td>{page.text(cell)}</td>" for cell in cells)
                + "</tr>\n"
                for _, title, cells in self.lines(level)
            )
            head = f"<tr><th>{level_name(level)}</th>{heads}</tr>\n"
            parts.append(f'<div class="wide"><table>{head}{body}</table></div>')
        parts.append(
            "<p>Rates in percent of all tasks. Differences are over the tasks that both were judged on, with a 95 % "
            "bootstrap interval over tasks. What is marked as published was not measured here.</p>"
        )
        return page.document("Evaluations", parts)

    def json(self) -> list[Json]:
        out = []
        for k, column in enumerate(self.columns):
            levels = {}
            for level in sorted(self.levels):
                figures: Json = {row[0]: column.figure(level, row) for row in ROWS}
                figures["correct_difference"] = self.beyond(level, 0, k)
                figures["previous_difference"] = self.beyond(level, k - 1, k)
                figures["less_published"] = self.less_published(level, k)
                levels[str(level or "all")] = figures
            prompt = column.report.get("prompt") if column.report else None
            is_published = column.report is None
            out.append({"name": column.name, "published": is_published, "prompt": prompt, "levels": levels})
        return out


def figure_text(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.1f}{unit}" if unit else f"{value:.2f}"


def level_name(level: int) -> str:
    return f"level {level}" if level else "all"


def options() -> argparse.ArgumentParser:
    about = "Evaluations side by side, by level, with what each differs from the first. An EVALUATION is a file that "
    p = parser("compare", about + "`trainer evaluate` wrote, or its NAME (outputs/eval_NAME.json).")
    a = p.add_argument
    a("evaluations", nargs="*", metavar="EVALUATION")
    a("--published", type=published, action="append", default=[], metavar="NAME=L1[,L2...]",
      help='a column of published rates of correct answers by level, in percent: "TritonRL=63,7"')  # fmt: skip
    a("--html", type=Path, metavar="FILE", help="write the table and a plot as a page")
    a("--json", "-j", action="store_true", help="print JSON")
    a("--save", type=Path, metavar="FILE", help="write what --json prints to a file, too")
    a("--other-prompts", action="store_true", help="compare evaluations that were made with different prompts, and say "
      "so in the output")  # fmt: skip
    return p


def main(arguments: list[str]) -> int:
    given: Any = options().parse_args(arguments)
    if not given.evaluations:
        raise PipelineError("which evaluations? Files, or names", USAGE)
    if given.check_arguments:
        return OK
    columns = [read_column(given.workdir, name) for name in given.evaluations] + given.published
    notes, is_one_prompt = prompts(columns)
    if not is_one_prompt and not given.other_prompts:
        raise PipelineError("\n".join([*notes, "--other-prompts compares them all the same"]), CONFIG)
    measured = [column for column in columns if column.report is not None]
    for column in measured[1:]:
        if (column.report or {}).get("policy") != (measured[0].report or {}).get("policy"):
            print(f"trainer: {measured[0].name} and {column.name} differ in their policy", file=sys.stderr)
    comparison = Comparison(columns, notes)
    text = json.dumps(comparison.json(), indent=2) + "\n"
    if given.json:
        print(text, end="")
    else:
        comparison.print()
    if given.html:
        checkpoint.replace(given.html, comparison.page())
    if given.save:
        checkpoint.replace(given.save, text)
    return OK
