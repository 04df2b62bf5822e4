"""The error of evaluating one value, without the row and the position in the query."""

from __future__ import annotations


class EvaluationError(Exception):
    """Evaluating a value failed. ``kind`` is overflow, division by zero, cast, value or function;
    ``message`` is one sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
