"""How the commands end."""

from __future__ import annotations

FAILED, USAGE, CONFIG, SERVICE, INTERRUPTED = 1, 2, 3, 7, 130


class PrepareError(Exception):
    """Ends the command: a text for people, and its exit status."""

    def __init__(self, text: str, status: int = CONFIG) -> None:
        super().__init__(text)
        self.status = status
