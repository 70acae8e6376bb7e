"""What a run zygote does once, so that no child has to: seen in a process of its own, as it changes the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import prime

DESCRIBE = """
import os, sys
from pathlib import Path
import prime

library = os.environ.get("VERIFIERD_LIBHARNESS", "")
prime.set_environment("run", "cpu", Path(sys.argv[1]))
if library:
    os.environ["VERIFIERD_LIBHARNESS"] = library
import torch

ask_driver = torch._C._ensureCUDADeviceGuardSet
torch._C._ensureCUDADeviceGuardSet = lambda: sys.exit("the driver was asked for a GPU")
prime.prime("run", "cpu", "cuda:90")
torch._C._ensureCUDADeviceGuardSet = ask_driver
prime.guard(None)
from live import cases

before = set(sys.modules)
source = Path(sys.argv[2]).read_text()
cases.describe(source, None, torch.device("cpu"), dynamic_shapes=False, declared=None, element_limit=1 << 22)
print("\\n".join(sorted(set(sys.modules) - before)))
"""


def test_a_reference_that_is_registered_imports_nothing(tmp_path: Path) -> None:
    """Fake tensors import some 800 modules when they are used first, which took each registration seconds."""
    task = Path(__file__).parents[1] / "tasks" / "softmax.py"
    environment = os.environ | {"PYTHONPATH": str(Path(prime.__file__).parent)}
    command = [sys.executable, "-c", DESCRIBE, str(tmp_path), str(task)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


MODES = """
import os, sys
from pathlib import Path
import prime

library = os.environ.get("VERIFIERD_LIBHARNESS", "")
prime.set_environment("run", "cuda:0", Path(sys.argv[1]))
if library:
    os.environ["VERIFIERD_LIBHARNESS"] = library
import torch

prime._prime_cuda = lambda capability: None
prime.prime("run", "cuda:0", "cuda:90")
assert not torch.cuda.is_initialized()
from live.rounding import Rounding

before = set(sys.modules)
with Rounding(1):
    torch.softmax(torch.ones(2, 2, dtype=torch.float64), 1)
print("\\n".join(sorted(set(sys.modules) - before)))
"""


def test_the_first_answer_in_fp64_that_is_rounded_imports_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(prime.__file__).parent)}
    command = [sys.executable, "-c", MODES, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


NAME = """
import getpass, os, sys
from pathlib import Path
import prime

prime.set_environment("run", "cuda:0", Path(sys.argv[1]))
if os.getuid() == 0:
    os.setuid(54321)
print(getpass.getuser())
"""


def test_a_child_whose_uid_nobody_has_can_say_who_it_is(tmp_path: Path) -> None:
    """Inductor names its cache after the user, and could not make a single kernel in a child of a daemon of root's."""
    environment = os.environ | {"PYTHONPATH": str(Path(prime.__file__).parent)}
    command = [sys.executable, "-c", NAME, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert (done.stdout.strip(), done.stderr) == (prime.USER, ""), done


HUGE = """
import re
from pathlib import Path
import prime

held = bytearray(b"x") * (64 << 20)
prime.freeze()
print(re.search(r"AnonHugePages: *(\\d+) kB", Path("/proc/self/smaps_rollup").read_text())[1])
"""


def test_what_a_zygote_holds_lies_in_huge_pages() -> None:
    """A fork copied one entry of the page tables for each 4 KiB: half of what it cost."""
    environment = os.environ | {"PYTHONPATH": str(Path(prime.__file__).parent)}
    done = subprocess.run([sys.executable, "-c", HUGE], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    knows_how = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 1)
    assert int(done.stdout) >= (32 << 10 if knows_how else 0)
