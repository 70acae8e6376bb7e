"""Rewards for trainers from verifierd. The submodules trl, verl, skyrl and verifiers have one adapter each."""

from .client import Client, Refused, Unavailable, VerifierdError, task_of
from .numbers import numbers_of, reward_of

__all__ = ["Client", "Refused", "Unavailable", "VerifierdError", "numbers_of", "reward_of", "task_of"]
