"""The check that files of the daemon do not depend on each other in a ring (tests/cycles.py)."""

from __future__ import annotations

from pathlib import Path

import cycles


def written(root: Path, **files: str) -> cycles.Graph:
    """Of files of server/x; `a_c` is a.c."""
    folder = root / "server" / "x"
    folder.mkdir(parents=True)
    for name, text in files.items():
        stem, _, kind = name.rpartition("_")
        (folder / f"{stem}.{kind}").write_text(text)
    return cycles.read(root)


def found(graph: cycles.Graph) -> list[str]:
    return list(cycles.complaints(graph))


A = "int\na_do(void)\n{\n    return 0;\n}\n"
B = "int\nb_do(void)\n{\n    return a_do();\n}\n"


def test_calls_one_way_are_no_ring(tmp_path: Path) -> None:
    assert found(written(tmp_path, a_c=A, b_c=B)) == []


def test_calls_both_ways_are_a_ring(tmp_path: Path) -> None:
    (line,) = found(written(tmp_path, a_c=A.replace("return 0", "return b_do()"), b_c=B))
    assert line == "files depend on each other in a ring: x/a -> x/b; x/b -> x/a"


def test_a_ring_of_three_is_found_through_calls_and_headers(tmp_path: Path) -> None:
    graph = written(
        tmp_path, a_c=A, a_h='#include "server/x/c.h"\n', b_c=B, c_c="void\nc_do(void)\n{\n    b_do();\n}\n", c_h=""
    )
    (line,) = found(graph)
    assert line.endswith("x/a -> x/c; x/b -> x/a; x/c -> x/b")


def test_a_name_in_a_comment_or_text_and_a_static_function_are_no_call(tmp_path: Path) -> None:
    harmless = A + '/* see b_do() */\nstatic const char *const text = "b_do()";\n'
    own = B.replace("int\nb_do", "static int\nb_do")
    assert found(written(tmp_path / "text", a_c=harmless, b_c=B)) == []
    assert found(written(tmp_path / "own", a_c=A.replace("return 0", "return b_do()"), b_c=own)) == []


def test_a_struct_with_the_name_of_a_function_is_no_call(tmp_path: Path) -> None:
    assert found(written(tmp_path, a_c=A.replace("return 0", "return !(struct b_do *)0"), b_c=B)) == []


def test_a_ring_over_two_folders_is_found(tmp_path: Path) -> None:
    written(tmp_path, a_c=A.replace("return 0", "return b_do()"))
    (tmp_path / "server" / "y").mkdir()
    (tmp_path / "server" / "y" / "b.c").write_text(B)
    (line,) = found(cycles.read(tmp_path))
    assert line.endswith("x/a -> y/b; y/b -> x/a")


def test_the_files_of_the_daemon_are_read() -> None:
    graph = cycles.read(cycles.ROOT)
    assert "server/workers/process" in graph["server/workers/zygote"]
    assert "server/workers/device_worker" not in graph["server/workers/process"]
