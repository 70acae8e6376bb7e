"""The name under which verifiers finds the task set: `eval verifierd-taskset`."""

from verifierd_client.verifiers import KernelTaskset

__all__ = ["KernelTaskset"]
