"""Segment stores for tests."""

from __future__ import annotations


class Unlimited:
    """No ``max_state``; knows the bytes of the state."""

    def __init__(self) -> None:
        self.nbytes = 0

    def resize(self, before: int, after: int, what: str) -> None:
        self.nbytes += after - before
