"""The client for asyncio: the methods of Client as coroutines, on threads of its own.

    async with AsyncClient() as client:
        verdicts = await asyncio.gather(*(client.judge("softmax", text) for text in answers))

A coroutine that is cancelled has its submission or group cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from .client import Answer, Client, Json, Ticket
from .types import Event, Filters, Group, Rescored, Task, Verdict

T = TypeVar("T")


class AsyncClient:
    """url, token, wait_s and reconnect as Client has them; most: calls at once, each a thread that waits."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        wait_s: float = 900.0,
        *,
        most: int = 256,
        reconnect: bool = True,
    ) -> None:
        self.client = Client(url, token, wait_s, reconnect=reconnect)
        self._pool = ThreadPoolExecutor(most, "verifierd")

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more calls; those under way go on."""
        self._pool.shutdown(wait=False)

    async def judge(self, task: object, completion: str, **options: object) -> Verdict:
        return await self._wait(self.client.judge_within, task, completion, **options)

    async def judge_group(self, task: object, completions: Sequence[Answer], **options: object) -> list[Verdict]:
        return await self._wait(self.client.judge_group_within, task, completions, **options)

    async def submit(
        self, task: object, completion: str | None = None, *, candidate: str | None = None, **options: object
    ) -> Verdict:
        return await self._do(self.client.submit, task, completion, candidate=candidate, **options)

    async def submit_group(self, task: object, completions: Sequence[Answer], **options: object) -> Group:
        return await self._do(self.client.submit_group, task, completions, **options)

    async def submission(self, ident: str, wait_s: float = 0.0) -> Verdict:
        return await self._do(self.client.submission, ident, wait_s)

    async def submissions(self, filters: Filters | None = None) -> AsyncIterator[Verdict]:
        submissions = self.client.submissions(filters)
        while (one := await self._do(next, submissions, None)) is not None:
            yield one

    async def plan(self, ident: str) -> Json:
        return await self._do(self.client.plan, ident)

    async def group(self, ident: str, wait_s: float = 0.0) -> Group:
        return await self._do(self.client.group, ident, wait_s)

    async def cancel(self, ident: str, *, kind: str = "submissions") -> None:
        await self._do(self.client.cancel, ident, kind=kind)

    async def rescore(
        self, reward: object, *, group: str | None = None, submissions: Sequence[str] | None = None
    ) -> list[Rescored]:
        return await self._do(self.client.rescore, reward, group=group, submissions=submissions)

    async def add_task(self, name: str, reference: str, **options: object) -> Task:
        return await self._do(self.client.add_task, name, reference, **options)

    async def task(self, task: str) -> Task:
        return await self._do(self.client.task, task)

    async def tasks(self) -> list[Task]:
        return await self._do(lambda: list(self.client.tasks()))

    async def leaders(self, task: str) -> Json:
        return await self._do(self.client.leaders, task)

    async def leaderboard(self) -> list[Json]:
        return await self._do(self.client.leaderboard)

    async def run(self, run: str) -> Json:
        return await self._do(self.client.run, run)

    async def events(
        self, *, submission: str | None = None, group: str | None = None, view: str = "full"
    ) -> AsyncIterator[Event]:
        ticket = Ticket()
        events = self.client.events_within(ticket, submission, group, view)
        try:
            while (event := await self._do(next, events, None)) is not None:
                yield event
        finally:
            ticket.is_dropped = True  # the thread that reads ends with the daemon's next heartbeat

    async def _do(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(function, *arguments, **options))

    async def _wait(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        ticket = Ticket(hold_s=0)
        try:
            return await self._do(function, ticket, *arguments, **options)
        except asyncio.CancelledError:
            ticket.is_dropped = True
            if ticket.path:
                with contextlib.suppress(RuntimeError):  # closed: the thread that waits gives up by itself
                    self._pool.submit(self.client.give_up, ticket)
            raise
