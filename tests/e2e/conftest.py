"""One daemon for all tests that only submit; a daemon of its own for each test that stops or kills one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import corpus
import endpoint as model_endpoint
import pytest
import service

LIMITS = {
    "stage_limit_ms": 40000,
    "tiny_limit_ms": 8000,
    # Small enough that a hoarder reaches it before the machine that runs the tests does.
    "memory_limit_bytes": 2 << 30,
}


@pytest.fixture(scope="session")
def tasks() -> dict[str, corpus.Task]:
    return corpus.load_tasks()


@pytest.fixture(scope="session")
def daemon() -> Iterator[service.Daemon]:
    """The daemon that tests share. They may fill it, and may not stop it."""
    with service.directory() as directory, service.Daemon(directory, LIMITS) as running:
        yield running


@pytest.fixture(scope="session")
def client(daemon: service.Daemon) -> service.Client:
    return daemon.client


@pytest.fixture(scope="session")
def gpu(client: service.Client) -> bool:
    return service.has_gpu(client)


class TaskIds(dict[str, str]):
    """By name; a task is registered with the shared daemon when it is first asked for."""

    def __init__(self, client: service.Client, tasks: dict[str, corpus.Task]) -> None:
        super().__init__()
        self._client, self._tasks = client, tasks

    def __missing__(self, name: str) -> str:
        self[name] = self._client.add_task(self._tasks[name].registration())
        return self[name]


@pytest.fixture(scope="session")
def task_ids(client: service.Client, tasks: dict[str, corpus.Task]) -> TaskIds:
    return TaskIds(client, tasks)


@pytest.fixture
def start_daemon() -> Iterator[service.StartDaemon]:
    """Start a daemon of one's own: start_daemon(paused=True). It is killed at the end if it still runs."""
    with ExitStack() as stack:

        def start(*, ready: bool = True, **options: object) -> service.Daemon:
            one = service.Daemon(stack.enter_context(service.directory()), LIMITS | options)
            stack.callback(one.kill)
            one.start(ready=ready)
            return one

        yield start


@pytest.fixture
def endpoint() -> Iterator[model_endpoint.Endpoint]:
    """A scripted model behind an OpenAI-compatible endpoint."""
    with model_endpoint.serving() as script:
        yield script
