"""What compute-sanitizer prints becomes findings; a tool that hangs, fails or is not there is told as such."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch
from executor import archive, once, sanitize
from executor.steps import StepError
from shared import native, plan, values

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at add_kernel+0x170 in candidate.py:7
=========     by thread (116,0,0) in block (3,0,0)
=========     Access to 0x7efcce802fa0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7efcce802000 of size 4,000 bytes
========= 
========= Invalid __global__ write of size 4 bytes
=========     at add_kernel+0x190 in candidate.py:7
=========     by thread (117,0,0) in block (3,0,0)
=========     Access to 0x7efcce802fa4 is out of bounds
========= 
========= ERROR SUMMARY: 257 errors
========= ERROR SUMMARY: 251 errors were not printed. Use --print-limit option to adjust the number of printed errors
========= 
========= 744 errors were skipped (error buffer overflow).
"""  # noqa: W291
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at race_kernel+0x160 in candidate.py:30
=========     and Write access at race_kernel+0x160 in candidate.py:30 [3765 hazards]
========= 
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""  # noqa: W291
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
OTHERS = {
    "an older version's": (
        "========= Invalid __global__ read of size 8 bytes\n"
        "=========     at sum(int *, float):0x160 in /tmp/x.cu:6\n"
        "=========     by thread (1,0,0) in block (0,2,0)\n",
        ("sum", "/tmp/x.cu", 6),
    ),
    "without line information": (
        "========= Invalid __shared__ read of size 1 bytes\n=========     at k+0x50\n",
        ("k", None, None),
    ),
    "of a copy": ("========= Host API uninitialized memory access\n=========     of 4 bytes\n", (None, None, None)),
    "a warning of a race": (
        "========= WARNING: Race reported between Read access at k+0x10 in candidate.py:2\n",
        ("k", "candidate.py", 2),
    ),
}
FAKE = """#!{python}
import sys, time
from pathlib import Path
tool, log = (sys.argv[sys.argv.index(option) + 1] for option in ("--tool", "--log-file"))
assert sys.argv[-5:-2] == ["-P", "-m", "executor.once"]
{body}
"""


def test_a_log_of_memcheck() -> None:
    log = sanitize.read_log(MEMCHECK)
    assert (log.errors, log.failure) == (257 + 744, None)
    (found,) = log.findings
    assert found == sanitize.Finding(
        "Invalid __global__ write of size 4 bytes",
        "add_kernel",
        "candidate.py",
        7,
        "(116,0,0)",
        "(3,0,0)",
        "Access to 0x7efcce802fa0 is out of bounds and is 1 bytes after the nearest allocation at 0x7efcce802000 of "
        "size 4,000 bytes",
        reports=2,
    )


def test_a_log_of_racecheck() -> None:
    log = sanitize.read_log(RACECHECK)
    assert log.errors == 1
    (found,) = log.findings
    assert (found.what, found.kernel, found.line) == ("Race reported between Write access", "race_kernel", 30)
    assert found.text == "and Write access at race_kernel+0x160 in candidate.py:30 [3765 hazards]"


@pytest.mark.parametrize("text, place", OTHERS.values(), ids=OTHERS)
def test_a_report_of_another_form(text: str, place: tuple[Any, ...]) -> None:
    log = sanitize.read_log(text)
    (found,) = log.findings
    assert (found.kernel, found.file, found.line) == place and log.errors == 1


def test_a_tool_that_cannot_look_has_found_nothing() -> None:
    log = sanitize.read_log("========= COMPUTE-SANITIZER\n========= Error: Device not supported. Please refer to it.\n")
    assert (log.findings, log.failure) == ([], "Error: Device not supported. Please refer to it.")
    assert sanitize.read_log(CLEAN) == sanitize.Log()


def test_many_findings_are_bounded() -> None:
    one = (
        "========= Invalid __global__ read of size 4 bytes\n=========     at k+0x10 in candidate.py:{}\n" + "x" * 10_000
    )
    log = sanitize.read_log("\n".join(one.format(line) for line in range(1000)))
    assert log.errors == 1000 and len(log.findings) == sanitize.FINDINGS_MAX
    long = sanitize.read_log("========= " + "y" * 10_000).findings[0]
    assert len(long.what) <= sanitize.TEXT_MAX + 64  # and what says that it was cut


def looked(folder: Path, body: str, limit_s: float = 60.0) -> dict[str, Any]:
    program = folder / "compute-sanitizer"
    program.write_text(FAKE.format(python=sys.executable, body=body))
    program.chmod(0o755)
    seen = sanitize.run(str(program), folder, limit_s)
    assert seen["why"] is None
    return {one["tool"]: one for one in seen["tools"]}


def test_each_tool_tells_what_it_saw(tmp_path: Path) -> None:
    logs = {"memcheck": MEMCHECK, "racecheck": RACECHECK, "initcheck": CLEAN}
    told = """print('{"case": "tiny"}\\nnoise\\n{"case": "own"}\\n{"end": null}')"""
    seen = looked(tmp_path, f"Path(log).write_text({logs!r}[tool])\n{told}")
    assert list(seen) == list(sanitize.TOOLS)
    assert [one["errors"] for one in seen.values()] == [1001, 1, 0]
    assert all(one["ran"] and one["why"] is None and one["cases"] == ["tiny", "own"] for one in seen.values())


def test_what_did_not_run_says_why(tmp_path: Path) -> None:
    body = """
if tool == "memcheck":
    print('{"case": "tiny"}\\\\n{"end": "the case own ended with OutOfMemoryError: CUDA out of memory"}')
elif tool == "racecheck":
    Path(log).write_text("========= Error: Device not supported\\\\n")
else:
    time.sleep(100)
"""
    seen = looked(tmp_path, body.replace("\\\\n", "\\n"), limit_s=3.0)
    told = {tool: (one["ran"], one["why"]) for tool, one in seen.items()}
    assert told == {
        "memcheck": (True, "the case own ended with OutOfMemoryError: CUDA out of memory"),
        "racecheck": (False, "Error: Device not supported"),
        "initcheck": (False, "it did not end within 3 s"),
    }


def test_where_it_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    seen = sanitize.run(sanitize.find_program(), tmp_path)
    assert seen["why"].startswith("compute-sanitizer is not installed") and seen["tools"] == []
    program = tmp_path / "nvidia" / "cu13" / "bin" / "compute-sanitizer"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    assert sanitize.find_program() == str(program)


class Called:
    """In a model's place, by case."""

    def __init__(self, trace: plan.Trace, *_args: Any, **_options: Any) -> None:
        self.case = trace.case

    def construct(self, seed: int) -> None:
        assert seed == once.SEED

    def __call__(self, x: torch.Tensor) -> None:
        if self.case == "tiny":
            raise StepError(50, "the kernel has no image")
        if self.case == "broken":
            raise RuntimeError("the device failed\nadvice")
        assert x.tolist() == [1.0, 2.0]


def test_a_case_that_cannot_be_run_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [plan.Trace(case, plan.List(()), (), (), (), (), None) for case in ("tiny", "own", "broken", "last")]
    document = plan.Plan("sha256:0", "cuda:90", (), (), tuple(cases), ())
    monkeypatch.setattr(archive, "unpack", lambda _data: (document, {}))
    monkeypatch.setattr(once, "_Model", Called)
    monkeypatch.setattr(values, "to_device", lambda value, _device: value)
    monkeypatch.setattr(native, "gpu_init", lambda _ordinal: None)
    for name in ("init", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    (tmp_path / "images").touch()
    for names, told, why in (
        (("unknown", "tiny", "own"), ["own"], "the case tiny: line 50: the kernel has no image"),
        (("own", "broken", "last"), ["own"], "the case broken ended with RuntimeError: the device failed"),
    ):
        torch.save({name: [torch.tensor([1.0, 2.0])] for name in names}, tmp_path / "inputs")
        monkeypatch.setattr(sys, "argv", ["once", str(tmp_path), "60"])
        assert once.main() == 0
        (tmp_path / "told").write_text(capsys.readouterr().out)
        assert sanitize._told(tmp_path / "told") == (told, why)


def test_scratch_of_a_kernel_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", lambda size, **options: torch.full((size,), 7, **options))
    model: Any = object.__new__(once._Model)
    model._scratch, model._device = [], torch.device("cpu")
    room = model._room(64)
    assert room.numel() == 64 and not room.any() and model._scratch[0] is room
