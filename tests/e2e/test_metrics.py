"""/metrics as Prometheus reads it, and that the dashboard and the alert rules for it name what is there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import corpus
import pytest
import service
from service import Client

DEPLOY = service.ROOT / "server" / "deploy"
NAME = r"[a-zA-Z_][a-zA-Z0-9_]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{((?:{NAME}="(?:[^"\\\n]|\\.)*",?)*)\}})? (-?[0-9.e+-]+|\+Inf|NaN)')
SUFFIXES = {"counter": [""], "gauge": [""], "summary": ["_sum", "_count"], "histogram": ["_bucket", "_sum", "_count"]}
MOST_SERIES = 2000


class Families:
    """The text, read strictly: HELP, TYPE, then the family's own samples, each family once."""

    def __init__(self, text: str) -> None:
        self.types: dict[str, str] = {}
        self.samples: dict[str, dict[str, float]] = {}
        current = ""
        assert text.endswith("\n")
        for line in text.splitlines():
            if line.startswith("# HELP "):
                current = line.split(" ", 3)[2]
                assert current not in self.types, f"{current} stands twice"
                assert len(line.split(" ", 3)[3]) > 5
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name == current and kind in SUFFIXES
                self.types[name] = kind
            else:
                found = SAMPLE.fullmatch(line)
                assert found, line
                name, labels, value = found.groups()
                assert name in [current + suffix for suffix in SUFFIXES[self.types[current]]], line
                series = self.samples.setdefault(name, {})
                assert (labels or "") not in series, f"{line} stands twice"
                series[labels or ""] = float(value)


@pytest.fixture(scope="module")
def families(client: Client, tasks: dict[str, corpus.Task]) -> Families:
    candidate = next(one.text for one in corpus.load_candidates() if one.label == "relu/honest")
    task = client.add_task(tasks["relu"].registration())
    client.judge({"task": task, "candidate": candidate + "# metrics\n"})
    client.judge({"task": task, "candidate": "def ("})
    client.get("/metrics")
    answer = client.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return Families(answer.body.decode())


def test_the_text_is_as_prometheus_wants_it(client: Client, families: Families) -> None:
    for name, kind in families.types.items():
        assert (kind == "counter") == name.endswith("_total"), name
        assert name.startswith(("verifierd_", "process_")), name
        assert not name.endswith(("_ms", "_milliseconds", "_kb", "_mb")), "base units"
    assert sum(map(len, families.samples.values())) < MOST_SERIES
    if promtool := shutil.which("promtool"):
        text = client.get("/metrics").body
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_histograms_add_up(families: Families) -> None:
    histograms = [name for name, kind in families.types.items() if kind == "histogram"]
    assert len(histograms) >= 5
    for name in histograms:
        series: dict[str, list[tuple[float, float]]] = {}
        for labels, value in families.samples.get(name + "_bucket", {}).items():
            le = re.search(r'le="([^"]+)"', labels)
            assert le
            series.setdefault(labels[: le.start()].rstrip(","), []).append((float(le[1]), value))
        assert series, name
        for labels, buckets in series.items():
            bounds, counts = [b for b, _ in buckets], [n for _, n in buckets]
            assert bounds == sorted(bounds) and bounds[-1] == float("inf")
            assert counts == sorted(counts)
            assert counts[-1] == families.samples[name + "_count"][labels]


def test_what_was_judged_is_counted(families: Families) -> None:
    count = families.samples["verifierd_reward_count"][""]
    assert count >= 2
    assert families.samples["verifierd_stage_duration_seconds_count"]['stage="ast"'] >= 2
    assert families.samples["verifierd_store_commit_duration_seconds_count"][""] > 0
    route = 'method="POST",route="/v1/submissions"'
    assert families.samples["verifierd_http_request_duration_seconds_count"][route] >= 2
    assert families.samples["process_resident_memory_bytes"][""] > 1e6
    assert families.samples["process_cpu_seconds_total"][""] > 0
    assert families.samples["verifierd_disk_free_bytes"]['what="store"'] > 0
    assert families.samples["verifierd_store_bytes"][""] > 0


def names_in(expression: str) -> set[str]:
    """The metrics that an expression of PromQL names, functions and labels left out."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\b(?:by|on|without|group_left) *\([^)]*\)', " ", expression)
    return {word for word in re.findall(rf"\b{NAME}\b", bare) if word.startswith(("verifierd_", "process_"))}


def known(families: Families) -> set[str]:
    return {name + suffix for name, kind in families.types.items() for suffix in SUFFIXES[kind]}


def test_the_dashboard_names_what_is_there(families: Families) -> None:
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) > 20
    for expression in expressions:
        assert names_in(expression), expression
        assert names_in(expression) <= known(families), expression
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_alerts_name_what_is_there(families: Families) -> None:
    text = (DEPLOY / "alerts.yml").read_text()
    expressions = re.findall(r"^ +expr: (.+)$", text, re.MULTILINE)
    assert len(expressions) == text.count("- alert: ") >= 8
    for expression in expressions:
        assert names_in(expression) or expression.startswith("up{"), expression
        assert names_in(expression) <= known(families), expression
    assert text.count("mend: ") == len(expressions)
    if promtool := shutil.which("promtool"):
        done = subprocess.run(
            [promtool, "check", "rules", str(DEPLOY / "alerts.yml")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_has_a_row_for_each_family_with_its_type(families: Families) -> None:
    text = (service.ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)(?:\{([\w,]+)\})?` \| (?:(histogram|summary): )?[^|]+ \|$", text, re.MULTILINE)
    told = {name: kind or ("counter" if name.endswith("_total") else "gauge") for name, _, kind in rows}
    assert told == families.types and len(rows) == len(families.types)
    for name, labels, _ in rows:
        shown = set(labels.split(",")) - {""}
        for suffix in SUFFIXES[families.types[name]]:
            for series in families.samples.get(name + suffix, {}):
                assert set(re.findall(r'(\w+)="', series)) - {"le"} == shown, (name, series)
