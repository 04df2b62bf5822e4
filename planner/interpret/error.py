"""How evaluating one value fails, before anyone knows the row and the place in the query."""

from __future__ import annotations


class EvaluationError(Exception):
    """``kind`` is overflow, division by zero, cast or value; ``message`` is one sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
