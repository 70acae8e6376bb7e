"""A PostgreSQL and a standby that has what it acknowledges; the standby takes over, and the other is made anew."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "deploy"))

from demo_cluster import ClusterError, Database

LIMIT_S = 60.0


def pg_program(name: str) -> str:
    return str(max(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")))


def follow(primary: Database, directory: Path) -> Database:
    """A standby of it, once it has the log."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    subprocess.run(
        [pg_program("pg_basebackup"), f"--pgdata={directory / 'data'}", f"--host={primary.directory}",
         "--username=verifierd", "--checkpoint=fast", "--no-sync", "--write-recovery-conf"],
        check=True, timeout=LIMIT_S,
    )  # fmt: skip
    owner = f"--reference={primary.directory / 'data'}"
    subprocess.run(["chown", "--recursive", owner, str(directory)], check=True, timeout=LIMIT_S)
    found = Database(directory)
    wait_for(primary, "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn IS NOT NULL", "1")
    return found


def wait_for(database: Database, sql: str, answer: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while (found := database.ask(sql)) != [answer]:
        if time.monotonic() > deadline:
            raise ClusterError(f"{sql}: {found}")
        time.sleep(0.05)


class Pair:
    """A primary, which commits nothing that its standby has not, and the standby."""

    def __init__(self, directory: Path) -> None:
        self.places = (directory / "one", directory / "two", directory / "three")
        self.primary = Database(self.places[0])
        self.primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")  # which the standby has a copy of
        self.standby = follow(self.primary, self.places[1])
        self.primary.ask("SELECT pg_reload_conf()")
        self.wait_synchronous()
        self._frozen: list[int] = []

    def wait_synchronous(self) -> None:
        wait_for(self.primary, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1")

    def crash(self) -> None:
        """As `pg_ctl stop -m immediate` does, and again from its log."""
        _crash(self.primary)
        self.primary = Database(self.primary.directory)

    def fail_over(self, both_s: float = 0.0, is_hung: bool = False) -> None:
        """both_s: how long the primary goes on, without a standby, after the other took over. is_hung: it stays."""
        dead = self.primary
        if is_hung:
            self._freeze(dead)
        elif both_s == 0:
            _crash(dead)
        self.standby.ask("SELECT pg_promote()")
        if both_s > 0:
            time.sleep(both_s)
            _crash(dead)
        self.primary = self.standby
        self.standby = follow(self.primary, self.places[2] if is_hung else dead.directory)
        self.wait_synchronous()

    def _freeze(self, database: Database) -> None:
        """Its processes keep their connections, and answer nothing any more."""
        server = database._process.pid
        os.kill(server, signal.SIGSTOP)
        children = subprocess.run(["pgrep", "-P", str(server)], capture_output=True, text=True, check=True).stdout
        self._frozen += [server, *map(int, children.split())]
        for pid in self._frozen[1:]:
            os.kill(pid, signal.SIGSTOP)

    def stop(self) -> None:
        for pid in self._frozen:
            os.kill(pid, signal.SIGKILL)
        self.primary.stop()
        self.standby.stop()


def _crash(database: Database) -> None:
    database._process.send_signal(signal.SIGQUIT)
    database._process.wait(LIMIT_S)
    database._log.close()
