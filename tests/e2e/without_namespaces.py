"""Run a program where unshare() is refused: without_namespaces.py PROGRAM ARGUMENT..."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | errno.EPERM


def refuse(call: str) -> None:
    """To this process and all that it starts."""
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.seccomp_init(ctypes.c_uint32(ALLOW)))
    number = lib.seccomp_syscall_resolve_name(call.encode())
    if lib.seccomp_rule_add(context, ctypes.c_uint32(REFUSE), number, 0) != 0 or lib.seccomp_load(context) != 0:
        raise SystemExit(f"cannot refuse {call}")


if __name__ == "__main__":
    refuse("unshare")
    os.execv(sys.argv[1], sys.argv[1:])
