"""What the README and docs/http.md show is run, as it stands, against a live daemon.

Blocks marked `sh` are executed, all of one page in one bash; `console` marks what sets up, builds or serves, and a
block without a mark is output. Other marks are refused, so that nothing is left out by a slip.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import service

PAGES = ["README.md", "docs/http.md"]
SHOWN = {"console", "", "json", "http"}
LIMIT_S = 600
DEFAULT_URL = "http://127.0.0.1:8080"


def blocks(page: str) -> list[tuple[str, str]]:
    """(mark, text) of each fenced block."""
    text = (service.ROOT / page).read_text()
    return [(mark, body) for mark, body in re.findall(r"^```([^\n`]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def commands(page: str) -> str:
    return "".join(body for mark, body in blocks(page) if mark == "sh")


def calls() -> list[str]:
    """Lines of all executed blocks, continued ones joined."""
    return [line for page in PAGES for line in commands(page).replace("\\\n", " ").splitlines()]


def routes() -> list[tuple[str, str]]:
    """(method, path) of each route in the contract."""
    found: list[tuple[str, str]] = []
    path = ""
    for line in (service.ROOT / "proto" / "openapi.yaml").read_text().partition("\ncomponents:")[0].splitlines():
        if start := re.fullmatch(r"  (/\S*):", line):
            path = start[1]
        elif method := re.fullmatch(r"    (get|post|delete|put|patch):", line):
            found.append((method[1].upper(), path))
    return found


def method_of(line: str) -> str:
    if found := re.search(r"-X (DELETE|PATCH)\b", line):
        return found[1]
    return "POST" if re.search(r"\bpost /| -d ", line) else "GET"


def policy_keys() -> list[dict[str, Any]]:
    """common/policy.c's table, as the command prints it."""
    found = subprocess.run(
        [service.BINARY.with_name("verifier"), "policies", "--json"], capture_output=True, text=True, check=True
    )
    return list(json.loads(found.stdout))


def test_the_table_of_policy_keys_is_the_programs() -> None:
    def shown(value: object) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    text = (service.ROOT / "docs" / "policies.md").read_text().partition("\n## Keys\n")[2].partition("\n\n")[0]
    lines = text.splitlines()
    wanted = [
        " | ".join(
            [f"| `{key['key']}`", key["values"].replace(",", ", "), *map(shown, key["policies"].values()), key["help"]]
        )
        + " |"
        for key in policy_keys()
    ]
    assert lines[0] == f"| key | values | {' | '.join(policy_keys()[0]['policies'])} | what it does |"
    assert lines[2:] == wanted


def test_the_contract_has_each_policy_and_each_of_its_keys() -> None:
    schema = (service.ROOT / "proto" / "openapi.yaml").read_text().partition("\n    Policy:\n")[2]
    schema = schema.partition("\n    Cases:\n")[0]
    sections: dict[str, set[str]] = {}
    section = ""
    for line in schema.splitlines():
        if name := re.fullmatch(r"            (\w+):", line):  # variations, timing
            section = f"{name[1]}."
        if name := re.match(r"( {12}| {16})(\w+): {", line):
            sections.setdefault(section if len(name[1]) == 16 else "", set()).add(name[2])
    found = {section + key for section, keys in sections.items() for key in keys}
    assert found - {"name", "version"} == {key["key"] for key in policy_keys()}
    names = ", ".join(policy_keys()[0]["policies"])
    assert f"enum: [{names}, null]" in schema


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_marked(page: str) -> None:
    marks = {mark for mark, _ in blocks(page)}
    assert "sh" in marks and marks <= SHOWN | {"sh"}


def test_every_route_is_shown() -> None:
    assert len(routes()) > 30
    lines = [(method_of(line), line) for line in calls()]
    for method, path in routes():
        pattern = r"(?<=[ \"L0])" + re.sub(r"\\\{\w+\\\}", r"[^/ \"'?]+", re.escape(path)) + r"(?=[\"'? ]|$)"
        assert any(used == method and re.search(pattern, line) for used, line in lines), (method, path)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_page_does_what_it_says(start_daemon: service.StartDaemon, page: str, tmp_path: Path) -> None:
    daemon = start_daemon()
    script = commands(page).replace(DEFAULT_URL, daemon.client.url)
    script = script.replace("build/bin/", f"{service.BINARY.parent}/").replace("/tmp/bundle", f"{tmp_path}/bundle")
    environment = os.environ | {"VERIFIERD_URL": daemon.client.url}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-v", "-c", script],
        cwd=service.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n--- and said ---\n{done.stderr[-3000:]}"
    if page == "docs/http.md":
        assert "Idempotency-Replayed: true" in done.stdout and "HTTP/1.1 304" in done.stdout
        assert '"binary"' in done.stdout
