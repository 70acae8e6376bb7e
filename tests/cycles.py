"""Say where files of server/ include or call each other in a ring. Part of `make lint`.

A node is a pair of files, `job.c` with `job.h`. It depends on another where it includes its header or names one of
its functions. Calls through a table of functions do not count: they are how a part reports to whom it does not know.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
INCLUDE = re.compile(r'^#include "(server/[^"]+)\.h"', re.MULTILINE)
DEFINITION = re.compile(r"^(?!static\b)[a-z][\w \t*]*\n([a-z_]\w*)\(", re.MULTILINE)
WORD = re.compile(r"(?<!struct )\b[a-z_]\w*\b")

Graph = dict[str, set[str]]


def node_of(path: Path) -> str:
    """`server/workers/job` of `server/workers/job.c`."""
    return path.with_suffix("").as_posix()


def read(root: Path) -> Graph:
    """What each pair of files of root/server/ depends on."""
    texts = {path.relative_to(root): path.read_text() for path in sorted((root / "server").rglob("*.[ch]"))}
    texts = {path: text for path, text in texts.items() if "harness" not in path.parts}
    bare = {path: COMMENT_OR_TEXT.sub(" ", text) for path, text in texts.items()}
    owners = {
        name: node_of(path) for path, text in bare.items() if path.suffix == ".c" for name in DEFINITION.findall(text)
    }
    graph: Graph = {node_of(path): set() for path in texts}
    for path, text in texts.items():
        graph[node_of(path)].update(found for found in INCLUDE.findall(text) if found in graph)
        if path.suffix == ".c":
            graph[node_of(path)].update(owners[word] for word in WORD.findall(bare[path]) if word in owners)
    for node, targets in graph.items():
        targets.discard(node)
    return graph


def rings(graph: Graph) -> list[set[str]]:
    """Nodes that can be reached from each other, two at least."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        due = [start]
        while due:
            for node in graph[due.pop()] - found:
                found.add(node)
                due.append(node)
        return found

    reach = {node: reached(node) for node in graph}
    whole = {node: frozenset(other for other in reach[node] if node in reach[other]) for node in graph}
    return sorted((set(ring) for ring in set(whole.values()) if len(ring) > 1), key=sorted)


def complaints(graph: Graph) -> Iterable[str]:
    return (describe(graph, ring) for ring in rings(graph))


def describe(graph: Graph, ring: set[str]) -> str:
    def shown(nodes: Iterable[str]) -> str:
        return ", ".join(node.removeprefix("server/") for node in sorted(nodes))

    arrows = [f"{shown([node])} -> {shown(graph[node] & ring)}" for node in sorted(ring)]
    return "files depend on each other in a ring: " + "; ".join(arrows)


def main() -> int:
    found = list(complaints(read(ROOT)))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
