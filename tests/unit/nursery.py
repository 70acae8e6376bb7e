"""Imports what a run child needs once, and forks one for each request: a zygote without a sandbox, for tests.

Run as a program by rig.py; its last argument is Python that each child runs first. A request {"op": "fork", "scratch":
DIRECTORY} brings the child's channel; the answer {"ev": "forked"} brings its pidfd. When the requests' channel
closes, every child is killed.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

sys.path[0] = sys.argv[1]  # the harness, and not the tests

import prime  # noqa: E402
from shared import native, wire  # noqa: E402, F401  (native finds its library before set_environment replaces it)


def become(channel: wire.Channel, device: str, scratch: Path, base: Path, prelude: str) -> NoReturn:
    """In the child: serve until it is told to end."""
    status = 1
    try:
        prime.child_environment(scratch, base)
        prime.reseed()
        exec(prelude)
        from live import child

        child.main(channel, device)
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def serve(requests: wire.Channel, device: str, base: Path, prelude: str) -> NoReturn:
    libcuda = prime.load_libcuda()
    children: set[int] = set()
    while True:
        try:
            message = requests.receive()
        except wire.ChannelClosed:
            for pid in children:
                os.kill(pid, signal.SIGKILL)  # not reaped, so the number is still its own
                os.waitpid(pid, 0)
            sys.exit(0)
        scratch, fd = Path(message.text("scratch")), message.take_fd("channel")
        prime.guard(libcuda)
        pid = os.fork()
        if pid == 0:
            requests.close()
            become(wire.Channel(fd), device, scratch, base, prelude)
        children.add(pid)
        os.close(fd)
        pidfd = os.pidfd_open(pid)
        requests.send({"ev": "forked"}, {"pidfd": pidfd})
        os.close(pidfd)


def main() -> None:
    device, base = sys.argv[3], Path(sys.argv[4])
    prime.set_environment("run", device, base)
    prime.prime("run", device, "cuda:90")
    prime.freeze()
    serve(wire.Channel(int(sys.argv[2])), device, base, sys.argv[5])


if __name__ == "__main__":
    main()
