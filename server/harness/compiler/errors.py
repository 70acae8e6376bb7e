"""Why and where a kernel does not compile: Triton's own words and the candidate's line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared import wire
from triton.compiler.errors import CompilationError
from triton.runtime.jit import JITFunction


def _jit_functions(function: Any, seen: dict[int, Any]) -> dict[int, Any]:
    """The function and all jit functions that its module or closure can name, by identity."""
    if id(function) in seen or not isinstance(function, JITFunction):
        return seen
    seen[id(function)] = function
    for item in function.get_capture_scope().values():
        _jit_functions(getattr(item, "fn", None) if not isinstance(item, JITFunction) else item, seen)
    return seen


def _first_line(function: Any) -> int:
    """The line of `def` in the file: the text that triton counts from begins there, its decorators before."""
    for index, line in enumerate(function.raw_src):
        if line.lstrip().startswith("def "):
            return int(function.starting_line_number) + index
    return int(function.starting_line_number)


def kernel_line(error: BaseException, kernel: Any) -> int | None:
    """The candidate's line that triton's compile error means: the innermost one in the candidate's file."""
    starts = {
        function.src: _first_line(function)
        for function in _jit_functions(kernel, {}).values()
        if Path(function.fn.__code__.co_filename).name == wire.CANDIDATE_FILE
    }
    line = None
    link: BaseException | None = error
    while link is not None:
        node: Any = getattr(link, "node", None)
        start = starts.get(getattr(link, "src", None) or "")
        if isinstance(link, CompilationError) and start is not None and hasattr(node, "lineno"):
            line = start + int(node.lineno) - 1
        link = link.__cause__
    return line


def _own_text(error: BaseException) -> str:
    """Triton's own words, outermost first: for nested calls each level says where it called the next."""
    parts: list[str] = []
    link: BaseException | None = error
    while link is not None and len(parts) < 8:
        parts.append(f"{type(link).__name__}: {link}")
        link = link.__cause__
    return "\n\n".join(parts)


def kernel_error(error: BaseException, kernel: Any) -> wire.Json:
    line = kernel_line(error, kernel)
    name = getattr(kernel, "__name__", "?")
    where = f"{wire.CANDIDATE_FILE}, line {line}" if line is not None else wire.CANDIDATE_FILE
    if line is None and isinstance(kernel, JITFunction):
        line = _first_line(kernel)
    text = f"{where}: kernel {name} does not compile\n{_own_text(error)}"
    return {"type": type(error).__name__, "text": wire.clean_text(text), "line": line}
