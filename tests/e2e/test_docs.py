"""What the README, docs/quickstart.md, docs/http.md and docs/calls.sh show is run, as it stands.

Blocks marked `sh` are executed, all of one page in one bash; the quickstart starts its daemon itself, the other pages
meet a live one. `console` marks what sets up, builds or installs: of these the commands are looked up. A block without
a mark is output. Other marks are refused, so that nothing is left out by a slip.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import service

PAGES = ["README.md", "docs/http.md"]
CALLS = service.ROOT / "docs" / "calls.sh"
NO_COMMAND = {("POST", "/v1/canaries")}
QUICKSTART = "docs/quickstart.md"
ROLES = ["Researcher", "curl", "Operator", "Engineer"]
LINES_MOST = 10
README_WORDS_MOST = 700
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
    """The lines that make a call."""
    return CALLS.read_text().splitlines()


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
    return "POST" if re.search(r"\bpost /", line) else "GET"


def policy_keys() -> list[dict[str, Any]]:
    """common/policy.c's table, as the command prints it."""
    found = subprocess.run(
        [service.BINARY.with_name("verifier"), "policies", "--json"], capture_output=True, text=True, check=True
    )
    return list(json.loads(found.stdout))


def test_the_table_of_policy_keys_is_the_programs() -> None:
    def shown(value: object) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    def by_policy(values: dict[str, object]) -> str:
        """The value of strict, and of each policy that has another one."""
        others = [f"`{name}` {shown(value)}" for name, value in values.items() if value != values["strict"]]
        return "; ".join([shown(values["strict"]), *others])

    text = (service.ROOT / "docs" / "policies.md").read_text().partition("\n## Keys\n\n")[2].partition("\n\n")[0]
    assert text.splitlines()[2:] == [
        f"| `{key['key']}` | {key['values'].replace(',', ', ')} | {by_policy(key['policies'])} | {key['help']} |"
        for key in policy_keys()
    ]


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


@pytest.mark.parametrize("page", [*PAGES, QUICKSTART])
def test_every_block_is_marked(page: str) -> None:
    marks = {mark for mark, _ in blocks(page)}
    assert "sh" in marks and marks <= SHOWN | {"sh"}


def is_call(line: str, method: str, path: str) -> bool:
    """Whether a line of docs/calls.sh makes this call."""
    pattern = r"(?<=[ \"L0])" + re.sub(r"\\\{\w+\\\}", r"[^/ \"'?]+", re.escape(path)) + r"(?=[\"'? ]|$)"
    return method_of(line) == method and bool(re.search(pattern, line))


def test_every_route_is_shown() -> None:
    assert len(routes()) > 30
    for method, path in routes():
        assert any(is_call(line, method, path) for line in calls()), (method, path)


def test_every_route_has_its_command() -> None:
    """docs/calls.sh names the command of verifier that makes a call; what is only read has `get`."""
    told = {line: found[1] for line in calls() if (found := re.search(r"# verifier (task \w+|\w+)", line))}
    done = subprocess.run([service.BINARY.with_name("verifier"), "--help"], capture_output=True, text=True, check=True)
    commands = re.findall(r"^  (\w+(?: \w+)?)  ", done.stdout, re.M)
    assert len(told) > 20 and set(told.values()) <= set(commands)
    for method, path in routes():
        if path.startswith("/v1/") and method != "GET" and (method, path) not in NO_COMMAND:
            assert any(is_call(line, method, path) for line in told), (method, path)
    assert not any(is_call(line, *call) for line in told for call in NO_COMMAND)


def bash(script: str, environment: dict[str, str]) -> str:
    """What a script of the checkout printed; its commands and complaints are shown where one fails."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-v", "-c", script],
        cwd=service.ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n--- and said ---\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_the_page_does_what_it_says(start_daemon: service.StartDaemon, page: str) -> None:
    daemon = start_daemon()
    script = commands(page).replace(DEFAULT_URL, daemon.client.url)
    script = script.replace("build/bin/", f"{service.BINARY.parent}/")
    assert '"mismatch"' in bash(script, {"VERIFIERD_URL": daemon.client.url})


@pytest.mark.slow
def test_every_call_is_made(start_daemon: service.StartDaemon) -> None:
    printed = bash(CALLS.read_text(), {"VERIFIERD_URL": start_daemon().client.url})
    assert "Idempotency-Replayed: true" in printed and "HTTP/1.1 304" in printed
    assert '"binary"' in printed


def test_the_quickstart_runs_from_the_start_of_the_daemon_to_its_end(tmp_path: Path) -> None:
    build = service.BINARY.parent.parent
    script = commands(QUICKSTART)
    for shown, here in (
        ("127.0.0.1:8080", f"127.0.0.1:{service.free_port()}"),
        ("/tmp/", f"{tmp_path}/"),
        ("$PWD/build/venv/bin/python3", "build/venv/bin/python3"),
        ("build/venv/bin/python3", os.environ.get("PYTHON", sys.executable)),
        ("$PWD/build/bin", str(build / "bin")),
        ("build/plain", str(build / "plain")),
    ):
        assert shown in script or shown.startswith("$PWD/build/venv"), shown
        script = script.replace(shown, here)
    printed = bash("trap 'kill ${DAEMON:-} 2>/dev/null || true' EXIT\n" + script, {})
    assert re.search(r"\b(\d+) of \1 cases passed", printed)  # researcher: the honest candidate
    assert "mismatch 0.3 " in printed and "[0.3]" in printed  # researcher: in Python, and as TRL is told
    assert '"class":"mismatch"' in printed and '"name":"gelu"' in printed  # curl
    assert "the settings are fine" in printed and 'verifierd_verdicts_total{class="ok"}' in printed  # operator
    assert "1 passed" in printed and '"ok":true' in printed  # engineer


def test_the_quickstart_has_ten_lines_for_each_role() -> None:
    text = (service.ROOT / QUICKSTART).read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Build and start", *ROLES]
    for role in ROLES:
        part = text.partition(f"\n## {role}\n")[2].partition("\n## ")[0]
        block = re.search(r"^```sh\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
        assert block is not None and block[1].replace("\\\n", " ").count("\n") <= LINES_MOST, role


@pytest.mark.parametrize("page", ["README.md", QUICKSTART])
def test_what_is_only_shown_is_a_command_that_there_is(page: str) -> None:
    """Of `console` blocks, which install: each target of make, each script and each program is there."""
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):(?!=)", (service.ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [line.partition("#")[0] for mark, body in blocks(page) if mark == "console" for line in body.splitlines()]
    assert lines
    for words in (re.sub(r"^sudo ", "", part).split() for line in lines for part in re.split(r"&&|\bsudo\b", line)):
        match words:
            case [] | ["systemctl", *_]:
                pass
            case ["make", target]:
                assert target in targets, target
            case ["/usr/local/share/verifierd/setup", "venv", _]:
                assert (service.ROOT / "server/deploy/setup").exists()
            case _:
                pytest.fail(f"{page} shows {words}, and nothing here knows whether it works")


def test_the_readme_is_short() -> None:
    assert len((service.ROOT / "README.md").read_text().split()) <= README_WORDS_MOST


def test_the_pages_stay_half_of_what_they_were() -> None:
    """Issue 28, point 8: 25,000 words, a table's bars not counted, where there were 50,000."""
    pages = [page.read_text() for page in (service.ROOT / "docs").glob("*.md")]
    assert len(pages) > 20 and sum(bool(re.search(r"\w", word)) for page in pages for word in page.split()) <= 25000
