"""What is wrong with a node's database ends its start with one line, as `verifier doctor` has it; later it is 503."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import service
from standby import follow, pg_program, wait_for

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "deploy"))

from demo_cluster import BINARY, ROOT, TASK, Database, Node

LIMIT_S = 60.0
VERIFIER = BINARY.parent / "verifier"


@pytest.fixture
def directory() -> Iterator[Path]:
    with service.directory() as made:
        yield made


@contextmanager
def database(directory: Path) -> Iterator[Database]:
    found = Database(directory / "database")
    try:
        yield found
    finally:
        found.stop()


def settings(directory: Path, url: str, **more: str) -> Path:
    file = directory / "verifierd.conf"
    all_of_them = {
        "store": url,
        "listen": "127.0.0.1:0",
        "harness": ROOT / "tests" / "fault" / "harness",
        "python": sys.executable,
        "device": "cpu",
        "tokens": directory / "tokens",
        "scratch": directory / "scratch",
        **more,
    }
    file.write_text("".join(f"{key} = {value}\n" for key, value in all_of_them.items() if value))
    return file


def migrate(file: Path, *flags: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(BINARY), "migrate", f"--config={file}", *flags], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


def refusals(file: Path) -> list[str]:
    """The one line that a start, a look at the settings, and `verifier doctor` have for it."""
    started = subprocess.run([str(BINARY), f"--config={file}"], capture_output=True, text=True, timeout=60, check=False)
    assert started.returncode == 1, started
    errors = [json.loads(line) for line in started.stderr.splitlines() if '"level":"error"' in line]
    assert len(errors) == 1, started.stderr
    looked = subprocess.run(
        [str(BINARY), f"--config={file}", "--check-config"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (looked.returncode, looked.stderr.count("\n")) == (1, 1), looked
    for flags in ([], ["--check"]):
        assert migrate(file, *flags) == (2, "", looked.stderr)
    asked = subprocess.run(
        [str(VERIFIER), "doctor", "--url=http://127.0.0.1:1", f"--config={file}", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    findings = json.loads(asked.stdout)["findings"]
    program = next(finding for finding in findings if finding["check"] == "program")
    assert program["level"] == "fail"
    return [str(errors[0]["msg"]), looked.stderr, str(program["text"])]


def check_refused(file: Path, *words: str) -> None:
    for text in refusals(file):
        for word in words:
            assert word in text, text
        assert "secret" not in text


def test_a_database_that_is_away_or_does_not_know_the_password(directory: Path) -> None:
    check_refused(settings(directory, f"postgresql:///x?host={directory}"), "No such file or directory")
    with database(directory) as found:
        found.ask("ALTER USER verifierd PASSWORD 'right'")
        (found.directory / "data" / "pg_hba.conf").write_text("local all all scram-sha-256\n")
        found.ask("SELECT pg_reload_conf()")
        url = found.url.replace("verifierd@", "verifierd:secret@")
        deadline = time.monotonic() + LIMIT_S
        while subprocess.run(["psql", "-c", "SELECT 1", url], capture_output=True, check=False).returncode == 0:
            assert time.monotonic() < deadline  # until it has read that
            time.sleep(0.1)
        check_refused(settings(directory, url), "password authentication failed")


def test_a_role_that_may_not_write(directory: Path) -> None:
    with database(directory) as found:
        found.ask("CREATE ROLE reader LOGIN")
        file = settings(directory, found.url.replace("verifierd@", "reader@"), node="b")
        check_refused(file, "the role reader may not write there")
        assert migrate(settings(directory, found.url))[0] == 0
        file = settings(directory, found.url.replace("verifierd@", "reader@"), node="b")
        check_refused(file, "permission denied for schema verifierd")
        found.ask("GRANT USAGE ON SCHEMA verifierd TO reader")
        found.ask("GRANT SELECT ON ALL TABLES IN SCHEMA verifierd TO reader")
        check_refused(file, "the role reader may not write there")


def test_a_schema_of_another_version_and_what_is_no_store(directory: Path) -> None:
    with database(directory) as found:
        found.ask("CREATE SCHEMA verifierd")
        check_refused(settings(directory, found.url), "is not a verifierd store")
        found.ask("CREATE TABLE verifierd.meta AS SELECT 99 AS version")
        check_refused(settings(directory, found.url), "schema version 99", "use a newer verifierd")


def test_a_schema_is_made_without_a_start_and_what_will_do_is_left(directory: Path) -> None:
    """Also beside a node of the name that the settings give."""
    with database(directory) as found:
        file = settings(directory, found.url, node="a")
        status, out, _ = migrate(file, "--check")
        known = int(out.split()[-1])
        assert (status, out) == (1, f"schema version 0 -> {known}\n")
        assert found.ask("SELECT to_regnamespace('verifierd') IS NULL") == ["t"]
        assert migrate(file) == (0, out, "")
        assert found.ask("SELECT version FROM verifierd.meta") == [str(known)]
        assert found.ask("SELECT count(*) FROM verifierd.node") == ["0"]
        node = Node("a", directory, found.url)
        try:
            done = (0, f"schema version {known}: nothing to do\n", "")
            assert (migrate(file, "--check"), migrate(file)) == (done, done)
            found.ask(f"UPDATE verifierd.meta SET version = {known + 1}")
            assert migrate(file) == (0, f"schema version {known + 1}: nothing to do\n", "")
            node.wait_ready()
        finally:
            node.stop()


def test_a_standby_cannot_be_written(directory: Path) -> None:
    with database(directory) as found:
        (found.directory / "data" / "standby.signal").touch()
    with database(directory) as found:
        check_refused(settings(directory, found.url), "read-only")


def test_a_database_that_may_lose_what_was_acknowledged(directory: Path) -> None:
    """Not one whose log somebody takes for a backup, or that a backup is made of."""
    with database(directory) as found:
        file = settings(directory, found.url)
        found.ask("ALTER USER verifierd SET synchronous_commit = off")
        check_refused(file, "synchronous_commit is off", "durability = relaxed")
        found.ask("ALTER USER verifierd RESET synchronous_commit")
        log = directory / "log"
        log.mkdir()
        receiver = subprocess.Popen(
            [pg_program("pg_receivewal"), f"--directory={log}", f"--host={found.directory}", "--username=verifierd"],
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(found, "SELECT count(*) FROM pg_stat_replication", "1")
            assert subprocess.run([str(BINARY), f"--config={file}", "--check-config"], check=False).returncode == 0
        finally:
            receiver.terminate()
            receiver.wait(LIMIT_S)
        standby = follow(found, directory / "standby")
        try:
            check_refused(file, "its standby is asynchronous", "synchronous_standby_names", "durability = relaxed")
            relaxed = settings(directory, found.url, durability="relaxed")
            looked = subprocess.run([str(BINARY), f"--config={relaxed}", "--check-config"], check=False)
            assert looked.returncode == 0
        finally:
            standby.stop()


def test_a_running_node_does_not_write_to_what_a_start_refuses(directory: Path) -> None:
    """As after a failover to a server whose standby is asynchronous: looked at with each new connection."""
    with database(directory) as found:
        node = Node("a", directory, found.url)
        standby = follow(found, directory / "standby")
        try:
            node.wait_ready()
            node.call("POST", "/v1/tasks", TASK)
            found.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'verifierd'")
            body = {"task": "scripted", "candidate": "# script: timing=1.3\n"}
            service.wait_for(lambda: "its standby is asynchronous" in node.log.read_text())
            assert node.call("POST", "/v1/submissions", body)[0] == 503
            assert found.ask("SELECT count(*) FROM verifierd.submission") == ["0"]
            found.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
            found.ask("SELECT pg_reload_conf()")
            deadline = time.monotonic() + LIMIT_S
            while (answer := node.call("POST", "/v1/submissions", body))[0] != 202:
                assert time.monotonic() < deadline, answer
                time.sleep(0.2)
            assert node.call("GET", f"/v1/submissions/{answer[1]['id']}?wait=60")[1]["class"] == "ok"
        finally:
            node.stop()
            standby.stop()


def test_a_second_daemon_of_one_name_does_not_start(directory: Path) -> None:
    """With scratch directories of their own: else those refuse it. What has stopped well is not waited for."""
    with database(directory) as found:
        first = Node("a", directory, found.url)
        try:
            file = settings(directory, found.url, node="a")
            started = subprocess.run(
                [str(BINARY), f"--config={file}"], capture_output=True, text=True, timeout=60, check=False
            )
            assert started.returncode == 1
            assert "another daemon is its node a" in started.stderr
            asked = subprocess.run(
                [str(VERIFIER), "doctor", "--url=http://127.0.0.1:1", f"--config={file}", "--json"],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env={"PATH": os.environ["PATH"]},
            )
            told = [item["text"] for item in json.loads(asked.stdout)["findings"] if item["check"] == "database"]
            assert any("works there as node a" in text for text in told)
            first.wait_ready()  # it has its lease
        finally:
            first.stop()
        begun = time.monotonic()
        again = Node("a", directory, found.url)
        assert time.monotonic() - begun < 10
        again.kill()
        third = Node("a", directory, found.url)  # its lease is waited for
        third.stop()


def test_daemons_of_one_database_have_scratch_directories_of_their_own(directory: Path) -> None:
    with database(directory) as found:
        seen = set()
        for name in ("a", "b"):
            file = settings(directory, found.url, node=name, scratch="")
            looked = subprocess.run(
                [str(BINARY), f"--config={file}", "--check-config"], capture_output=True, text=True, check=True
            )
            seen |= {line for line in looked.stdout.splitlines() if line.startswith("scratch: ")}
        assert len(seen) == 2


def test_a_database_that_goes_away_later_is_503_with_a_time(directory: Path) -> None:
    with database(directory) as found:
        node = Node("a", directory, found.url)
        client = service.Client(node.url)
        try:
            node.wait_ready()
            node.call("POST", "/v1/tasks", TASK)
            found.stop()
            deadline = time.monotonic() + LIMIT_S
            body = {"task": "scripted", "candidate": "# script: timing=1\n"}
            while (answer := client.post("/v1/submissions", body)).status != 503:
                assert time.monotonic() < deadline, answer
                time.sleep(0.2)
            assert int(answer.headers["Retry-After"]) >= 1
            assert "the database is away" in answer.json()["detail"]
            service.wait_for(lambda: client.get("/readyz").status == 503)  # it renews its lease each five seconds
            read = client.get("/v1/submissions")
            assert (read.status, read.json()["detail"]) == (503, "the database is away")
            assert "it cannot judge now: the database is away" in doctor(node.url, settings(directory, found.url))
            log = node.log.read_text()
            assert (log.count("is away: connect"), log.count("it is not known")) == (1, 1), log
        finally:
            node.process.send_signal(signal.SIGKILL)
            node.stop()


def test_what_was_on_its_way_when_the_database_went_away_is_answered(directory: Path) -> None:
    """Also where it can still be read, and not written."""
    with database(directory) as found:
        node = Node("a", directory, found.url)
        client = service.Client(node.url)
        try:
            node.wait_ready()
            node.call("POST", "/v1/tasks", TASK)
            found.ask("ALTER SYSTEM SET default_transaction_read_only = on")
            found.ask("SELECT pg_reload_conf()")
            service.wait_for(lambda: found.ask("SHOW default_transaction_read_only") == ["on"])
            body = {"task": "scripted", "candidate": "# script: timing=1\n"}
            begun = time.monotonic()
            answer = client.call("POST", "/v1/submissions", body, {"Idempotency-Key": "one"})
            assert (answer.status, time.monotonic() - begun < 30) == (503, True)
            assert int(answer.headers["Retry-After"]) >= 1
            assert "the database is away" in answer.json()["detail"]
            assert client.get("/readyz").json()["detail"] == "the database is away"
            told = doctor(node.url, settings(directory, found.url, node="b"))
            assert "it cannot judge now: the database is away" in told, told
            found.url += "&options=-c%20default_transaction_read_only%3Doff"
            found.ask("ALTER SYSTEM RESET default_transaction_read_only")
            found.ask("SELECT pg_reload_conf()")
            deadline = time.monotonic() + LIMIT_S
            while (again := client.call("POST", "/v1/submissions", body, {"Idempotency-Key": "one"})).status != 202:
                assert time.monotonic() < deadline, again
                time.sleep(0.2)
            assert client.wait(str(again.json()["id"]), 60)["class"] == "ok"
            assert found.ask("SELECT count(*) FROM verifierd.submission") == ["1"]
            log = node.log.read_text()
            assert log.count("is away: connect") == 1 and "session is read-only" in log
        finally:
            node.stop()


FULL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
ssize_t pwrite64(int fd, const void *bytes, size_t n, off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    char link[64], name[4096] = "";
    struct stat file;
    if (!real)
        real = dlsym(RTLD_NEXT, "pwrite64");
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (access(getenv("FULL"), F_OK) == 0 && readlink(link, name, sizeof(name) - 1) > 0 && strstr(name, "/base/")
        && fstat(fd, &file) == 0 && at >= file.st_size) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, bytes, n, at);
}
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) { return pwrite64(fd, bytes, n, at); }
"""


def preload(directory: Path, source: str) -> Path:
    """A library of that C text, before all others of a program."""
    library = directory / "preloaded.so"
    subprocess.run(
        ["cc", "-w", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-ldl"],
        input=source, text=True, check=True,
    )  # fmt: skip
    return library


def doctor(url: str, file: Path) -> list[str]:
    """What it finds wrong, or worth a look."""
    asked = subprocess.run(
        [str(VERIFIER), "doctor", f"--url={url}", f"--config={file}", "--json"],
        capture_output=True, text=True, timeout=60, check=False, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    return [str(item["text"]) for item in json.loads(asked.stdout)["findings"] if item["level"] != "ok"]


def test_a_full_disk_of_the_database_is_503_and_over_once_there_is_room(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file of a table grows any more. It is said in a line, and what was acknowledged is judged."""
    full = directory / "full"
    directory.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(preload(directory, FULL)))
        patch.setenv("FULL", str(full))
        stack = database(directory)
        found = stack.__enter__()
    node = Node("a", directory, found.url)
    client = service.Client(node.url)
    try:
        node.wait_ready()
        node.call("POST", "/v1/tasks", TASK)
        full.touch()
        deadline = time.monotonic() + LIMIT_S
        taken = []
        while True:
            body = {"task": "scripted", "candidate": f"# script: timing=1.3\n# {os.urandom(20000).hex()}\n"}
            answer = client.post("/v1/submissions", body)
            if answer.status == 503:
                break
            taken.append(str(answer.json()["id"]))
            assert time.monotonic() < deadline
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.json()["detail"] == "a disk of the daemon is full"
        time.sleep(2.5)  # it looks for room again each second
        assert client.get("/readyz").json()["detail"] == "the disk of the store is full"
        assert client.get("/v1/status").json()["state"] == "failing"  # it said that it was starting
        assert any("the disk of the store is full" in text for text in doctor(node.url, settings(directory, found.url)))
        full.unlink()
        while client.post("/v1/submissions", body).status != 202:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        for one in taken:
            assert client.wait(one, 60)["class"] == "ok"
        told = node.log.read_text()
        assert told.count("nothing can be written to") == 1 and "No space left on device" in told
    finally:
        node.stop()
        stack.__exit__(None, None, None)


@pytest.mark.slow
def test_a_transaction_of_somebody_else_that_stays_open_is_named(directory: Path) -> None:
    """After a minute, by the daemon in one line and by `verifier doctor`."""
    with database(directory) as found:
        node = Node("a", directory, found.url)
        holder = subprocess.Popen(
            ["psql", "-qAtX", found.url], stdin=subprocess.PIPE, text=True, env={**os.environ, "PGAPPNAME": "report"}
        )
        assert holder.stdin is not None
        try:
            holder.stdin.write("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;\n")
            holder.stdin.flush()
            service.wait_for(lambda: "report of verifierd" in node.log.read_text(), 100)
            told = doctor(node.url, settings(directory, found.url, node="b"))
            assert any(text.startswith("report of verifierd") for text in told), told
            holder.stdin.close()
            holder.wait(LIMIT_S)
            service.wait_for(lambda: "no transaction is open for long" in node.log.read_text(), 120)
            assert node.log.read_text().count("report of verifierd") == 1
        finally:
            holder.kill()
            node.stop()


@pytest.mark.slow
@pytest.mark.parametrize("table", ["job", "writer"])
def test_a_table_that_somebody_holds_is_503_until_it_is_let_go(directory: Path, table: str) -> None:
    with database(directory) as found:
        node = Node("a", directory, found.url)
        client = service.Client(node.url)
        holder = subprocess.Popen(["psql", "-qAtX", found.url], stdin=subprocess.PIPE, text=True)
        assert holder.stdin is not None
        try:
            node.wait_ready()
            node.call("POST", "/v1/tasks", TASK)
            holder.stdin.write(f"BEGIN; LOCK TABLE verifierd.{table};\n")
            holder.stdin.flush()
            held = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted"
            service.wait_for(lambda: found.ask(held) != ["0"])
            body = {"task": "scripted", "candidate": "# script: timing=1.3\n"}
            begun = time.monotonic()
            answer = client.call("POST", "/v1/submissions", body, {"Idempotency-Key": "one"})
            assert (answer.status, time.monotonic() - begun < 40) == (503, True)
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.json()["detail"].startswith("the store ")
            holder.stdin.close()
            holder.wait(LIMIT_S)
            deadline = time.monotonic() + LIMIT_S
            while (again := client.call("POST", "/v1/submissions", body, {"Idempotency-Key": "one"})).status != 202:
                assert time.monotonic() < deadline, again
                time.sleep(0.2)
            assert client.wait(str(again.json()["id"]), 60)["class"] == "ok"
            assert found.ask("SELECT count(*) FROM verifierd.submission") == ["1"]
        finally:
            holder.kill()
            node.stop()


SHIFT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *t)
{
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(id, t);
    if (id == CLOCK_REALTIME)
        t->tv_sec += atol(getenv("SHIFT_S"));
    return rc;
}
int gettimeofday(struct timeval *t, void *zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


def test_nodes_whose_clocks_are_an_hour_apart_share_the_work(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases and the deadlines of groups are by the database's clock: neither takes the other's for lost, or late."""
    library = preload(directory, SHIFT)
    with database(directory) as found:
        nodes = []
        try:
            for name, shift_s in (("a", -3600), ("b", 3600)):
                with monkeypatch.context() as patch:
                    patch.setenv("LD_PRELOAD", str(library))
                    patch.setenv("SHIFT_S", str(shift_s))
                    nodes.append(Node(name, directory, found.url))
            a, b = nodes
            for node in nodes:
                node.wait_ready()
            hours = [node.call("GET", "/v1/status")[1]["time"][:13] for node in nodes]
            assert hours[0] < hours[1]
            a.call("POST", "/v1/tasks", TASK)
            items = [{"candidate": f"# script: compile=sleep:2,pass\n# {i}\n"} for i in range(8)]
            group = a.call("POST", "/v1/groups", {"task": "scripted", "candidates": items, "deadline_s": 120})[1]["id"]
            service.wait_for(lambda: "b" in found.ask("SELECT DISTINCT node FROM verifierd.job WHERE state = 1"))
            document = b.call("GET", f"/v1/groups/{group}?wait=60")[1]
            assert {(item["class"], item["attempts"]) for item in document["items"]} == {("ok", 1)}
            for node in nodes:
                told = node.log.read_text()
                assert "the lease of node" not in told, told
        finally:
            for node in nodes:
                node.stop()
