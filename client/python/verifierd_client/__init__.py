"""A client of verifierd, and rewards for trainers from it: the submodules trl, verl, openrlhf, slime, skyrl and
verifiers have one adapter each; aio has the client for asyncio."""

from .aio import AsyncClient
from .client import Client, Refused, Unavailable, VerifierdError, labels, task_of
from .numbers import numbers_of, reward_of
from .types import Event, Filters, Group, Rescored, Task, Verdict

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "Event",
    "Filters",
    "Group",
    "Refused",
    "Rescored",
    "Task",
    "Unavailable",
    "Verdict",
    "VerifierdError",
    "labels",
    "numbers_of",
    "reward_of",
    "task_of",
]
