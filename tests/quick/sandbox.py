"""What `verifier selftest --quick` registers as a task: code that tries what no child of the daemon may do.

It is refused, with the list of what was possible, where the sandbox lets anything of it through, and is an
ordinary task where everything is denied. It changes nothing if it succeeds.
"""

import ctypes
import errno
import os
import socket
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

NEW_USER_NAMESPACE = 0x10000000
MANY = 16  # processes that a child may see: itself, its init, helpers that it started


def read_passwords() -> bool:
    """The file that only root may read; a machine without one has nothing to show."""
    with Path("/etc/shadow").open("rb") as file:
        return len(file.read(1)) == 1


def write_elsewhere() -> bool:
    """A file outside the scratch directory."""
    for directory in ("/", "/etc", "/usr", "/var/tmp"):
        path = Path(directory) / f".verifierd-selftest-{os.getpid()}"
        try:
            path.touch(exist_ok=False)
        except OSError:
            continue
        path.unlink()
        return True
    return False


def reach_the_network() -> bool:
    """A connection that is refused by the other side has got there."""
    with socket.socket() as one:
        one.settimeout(2.0)
        return one.connect_ex(("127.0.0.1", 9)) in (0, errno.ECONNREFUSED)


def become_root() -> bool:
    """Root already, or again."""
    if os.getuid() != 0:
        os.setuid(0)
    with Path("/proc/self/uid_map").open() as file:
        inside, outside, _ = file.readline().split()
    return os.getuid() == 0 and int(inside) == int(outside) == 0


def see_other_processes() -> bool:
    return sum(name.isdigit() for name in os.listdir("/proc")) > MANY


def make_a_namespace() -> bool:
    """Where a process would be root over a kernel's less tested parts."""
    return ctypes.CDLL(None, use_errno=True).unshare(NEW_USER_NAMESPACE) == 0


def gain_privileges() -> bool:
    with Path("/proc/self/status").open() as file:
        status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    return int(status["NoNewPrivs"]) != 1 or int(status["CapEff"], 16) != 0


ATTEMPTS = (
    read_passwords,
    write_elsewhere,
    reach_the_network,
    become_root,
    see_other_processes,
    make_a_namespace,
    gain_privileges,
)


def permitted() -> list[str]:
    """The attempts that went through."""
    found = []
    for attempt in ATTEMPTS:
        try:
            if attempt():
                found.append(attempt.__name__)
        except OSError:
            continue
    return found


FOUND = permitted()
if FOUND:
    raise RuntimeError("the sandbox permits: " + ", ".join(FOUND))
with tempfile.TemporaryFile() as own:
    own.write(b"what is its own it may write")


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 16)]


def get_init_inputs() -> list[object]:
    return []
