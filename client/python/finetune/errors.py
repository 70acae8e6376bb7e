"""How a run ends other than well. The exit statuses are those of trainer(1)."""

from __future__ import annotations

FAILED = 1  # it ran, and what was asked for cannot be reached like this
CONFIG = 3  # a file, a setting, the disk
SERVICE = 7  # verifierd or the endpoint
RESUME = 75  # interrupted with a checkpoint written: run it again


class TrainError(Exception):
    """Ends the run with a status; the text is for people and names the cause and what to change."""

    def __init__(self, text: str, status: int = CONFIG) -> None:
        super().__init__(text)
        self.status = status


class StopRequested(Exception):
    """SIGTERM or SIGINT came; a checkpoint of the last finished step was written."""
