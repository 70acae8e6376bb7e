"""The common part of the adapters: a row that cannot be judged has no reward, and the run continues."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from .client import Client, Refused, Unavailable
from .types import Verdict

POOL = ThreadPoolExecutor(256, "verifierd")
"""For adapters that are coroutines. asyncio's own has 32 threads at most: so few samples would wait for a daemon."""
SETTINGS = ("reward", "policy", "client", "metadata", "until", "priority")


def is_of_run(error: Refused, label: object) -> bool:
    """Is every row refused for this: the token, or an argument of the adapter for all rows?"""
    setting = error.pointer.split("/")[1] if "/" in error.pointer else ""
    return error.status in (401, 403) or (setting in SETTINGS and f'"{setting}"' not in str(label).replace("'", '"'))


class NoReward(UserWarning):
    """Samples have no reward. Each is told: Python's own rule would tell an equal text once in a run of days."""


warnings.filterwarnings("always", category=NoReward, append=True)  # behind the filters that the user has set


def judge_row(client: Client, task: object, answer: str, **options: object) -> Verdict | None:
    """The verdict; None, with a warning, where there is none. Refused where every row would be (is_of_run)."""
    try:
        return client.judge(task, answer, **options)
    except Refused as error:
        if is_of_run(error, task):
            raise
        _warn(error, 1)
    except (Unavailable, ValueError) as error:
        _warn(error, 1)
    return None


def judge_rows(client: Client, task: object, answers: Sequence[str], **options: object) -> list[Verdict | None]:
    """The verdicts of a group. An answer that is refused is left out; a group that is too long is judged in halves."""
    found: list[Verdict | None] = [None] * len(answers)
    left = list(range(len(answers)))
    while left:
        try:
            verdicts = client.judge_group(task, [answers[row] for row in left], **options)
        except Refused as error:
            if is_of_run(error, task):
                raise
            at = re.match(r"/candidates/(\d+)(/|$)", error.pointer)
            # The body, and no part of it; or more candidates than a group, or the daemon's queue, has room for.
            is_long = (error.status, error.pointer) in ((413, ""), (400, "/candidates"))
            if is_long and len(left) > 1:
                for half in (left[: len(left) // 2], left[len(left) // 2 :]):
                    judged = judge_rows(client, task, [answers[row] for row in half], **options)
                    for row, each in zip(half, judged, strict=True):
                        found[row] = each
                break
            _warn(error, 1 if at else len(left))
            if not at:
                break
            del left[int(at[1])]
        except (Unavailable, ValueError) as error:
            _warn(error, len(left))
            break
        else:
            for row, verdict in zip(left, verdicts, strict=True):
                found[row] = verdict
            break
    return found


def _warn(error: Exception, rows: int) -> None:
    warnings.warn(f"{error}: {rows} {'sample has' if rows == 1 else 'samples have'} no reward", NoReward, stacklevel=4)
