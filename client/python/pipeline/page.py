"""The parts of a page: tables, curves and bars. Every text is escaped: names and kernels are others' texts."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

STYLE = """
:root{color-scheme:light dark;--line:#8886;--mark:#2563eb}
body{font:15px/1.5 system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1em}
h2{margin-top:2em}.wide{overflow-x:auto}table{border-collapse:collapse}
td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}
svg{width:100%;max-width:640px;font-size:11px;fill:currentColor}line{stroke:var(--line)}
polyline{fill:none;stroke:var(--mark);stroke-width:2}rect{fill:var(--mark)}
pre{overflow:auto;max-height:30em;padding:1em;border:1px solid var(--line)}summary{cursor:pointer}
"""
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 180, 60, 8, 34  # of a chart, and the margins for its axes


def text(value: object) -> str:
    """As a cell shows it."""
    if isinstance(value, bool | int | float):
        return f"{value:.4g}" if math.isfinite(value) else "-"
    return html.escape(value) if isinstance(value, str) else "-"


def document(title: str, parts: Iterable[str]) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{text(title)}</title><style>{STYLE}</style>'
        f"<h1>{text(title)}</h1>\n" + "\n".join(part for part in parts if part) + "\n</html>\n"
    )


def folded(title: str, content: str) -> str:
    return f"<details><summary>{text(title)}</summary><pre>{text(content)}</pre></details>"


def table(title: str, rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Rows by name; nothing where there is none."""
    if not rows:
        return ""
    head = "".join(f"<th>{text(column)}</th>" for column in columns)
    body = "".join(
        f"<tr><th>{text(name)}</th>" + "".join(f"<td>{text(row.get(column))}</td>" for column in columns) + "</tr>\n"
        for name, row in rows.items()
    )
    return f'<h2>{text(title)}</h2>\n<div class="wide"><table><tr><th></th>{head}</tr>\n{body}</table></div>'


def axes(low: float, high: float, first: object, last: object, below: str) -> str:
    """The frame of a chart: the least and the greatest value on the left, the ends and what they count below."""
    floor = HEIGHT - BOTTOM
    return (
        f'<line x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{floor}"/>'
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{floor}" y2="{floor}"/>'
        f'<text x="{LEFT - 6}" y="{TOP + 8}" text-anchor="end">{text(high)}</text>'
        f'<text x="{LEFT - 6}" y="{floor}" text-anchor="end">{text(low)}</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 18}">{text(first)}</text>'
        f'<text x="{WIDTH}" y="{HEIGHT - 18}" text-anchor="end">{text(last)}</text>'
        f'<text x="{(LEFT + WIDTH) // 2}" y="{HEIGHT - 4}" text-anchor="middle">{text(below)}</text>'
    )


def curve(points: Sequence[Mapping[str, Any]], key: str) -> str:
    """Of key over the steps: in words, and as a line where there are two values or more."""
    found = [(i, p) for i, p in enumerate(points) if isinstance(p.get(key), int | float) and math.isfinite(p[key])]
    if not found:
        return ""
    values = [point[key] for _, point in found]
    low, high = min(values), max(values)
    words = f"<p>{text(key)}: first {values[0]:.4g}, last {values[-1]:.4g}, least {low:.4g}, most {high:.4g}"
    words += f" ({len(found)} steps)</p>"
    if len(found) == 1:
        return words
    floor, across = HEIGHT - BOTTOM, (WIDTH - LEFT) / (len(points) - 1)
    line = " ".join(
        f"{LEFT + i * across:.1f},{floor - (floor - TOP) * ((p[key] - low) / (high - low) if high > low else 0.5):.1f}"
        for i, p in found
    )
    frame = axes(low, high, found[0][1].get("step", 1), found[-1][1].get("step", len(points)), "step")
    title = f"<title>{text(key)} by step</title>"
    return f'{words}<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}">{title}{frame}<polyline points="{line}"/></svg>'


def histogram(name: str, bins: Sequence[float], low: float, high: float, below: str) -> str:
    """How many in each of some bins of equal width from low to high."""
    floor, across, most = HEIGHT - BOTTOM, (WIDTH - LEFT) / max(1, len(bins)), max([1, *bins])
    marks = "".join(
        f'<rect x="{LEFT + i * across + 2:.1f}" y="{floor - (floor - TOP) * n / most:.1f}" width="{across - 4:.1f}" '
        f'height="{(floor - TOP) * n / most:.1f}"><title>{text(n)}</title></rect>'
        for i, n in enumerate(bins)
    )
    return f'<p>{text(name)}</p><svg viewBox="0 0 {WIDTH} {HEIGHT}">{axes(0, most, low, high, below)}{marks}</svg>'


def bars(title: str, groups: Mapping[str, Sequence[float | None]], names: Sequence[str], faint: Sequence[bool]) -> str:
    """Percentages: a bar for each name in each group; None has no bar. faint: of what was not measured here."""
    x, marks = 40, ""
    for group, rates in groups.items():
        marks += f'<text x="{x}" y="230">{text(group)}</text>'
        for k, rate in enumerate(rates):
            if rate is not None:
                opacity = ' fill-opacity="0.4"' if faint[k] else ""
                marks += (
                    f'<rect x="{x}" y="{210 - 2 * rate:.1f}" width="22" height="{2 * rate:.1f}" '
                    f'style="fill:{COLOURS[k % len(COLOURS)]}"{opacity}>'
                    f"<title>{text(names[k])}: {rate:.1f}%</title></rect>"
                )
            x += 26
        x += 30
    lines = "".join(
        f'<text x="2" y="{214 - 2 * y}">{y}</text><line x1="30" x2="{x}" y1="{210 - 2 * y}" y2="{210 - 2 * y}"/>'
        for y in range(0, 101, 25)
    )
    legend = " ".join(
        f'<span style="color:{COLOURS[k % len(COLOURS)]}">&#9632;</span> {text(name)}{" (published)" * faint[k]}'
        for k, name in enumerate(names)
    )
    head = f'<svg role="img" viewBox="0 0 {max(x, WIDTH)} 240"><title>{text(title)}</title>'
    return f"{head}{lines}{marks}</svg><p>{legend}</p>"
