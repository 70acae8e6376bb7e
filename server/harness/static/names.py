"""The meaning of a source's names, from its imports."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field


def dotted(node: ast.AST) -> str | None:
    """ "a.b.c" for that expression, None for any other."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join((node.id, *reversed(parts)))


@dataclass
class Imports:
    """The full names of imported names: "t" -> "triton", "jit" -> "triton.jit"."""

    names: dict[str, str] = field(default_factory=dict)
    has_star: bool = False

    @staticmethod
    def of(tree: ast.Module) -> Imports:
        found = Imports()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    found.names[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                for alias in node.names:
                    found.has_star = found.has_star or alias.name == "*"
                    found.names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return found

    def meaning(self, node: ast.AST) -> str | None:
        """The dotted name with its first part as imported, None for another expression."""
        name = dotted(node)
        if name is None:
            return None
        first, _, rest = name.partition(".")
        first = self.names.get(first, first)
        return f"{first}.{rest}" if rest else first
