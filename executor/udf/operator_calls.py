"""Calls of an operator of the user: what the function gets of each row, and what it emits."""

from __future__ import annotations

import gc
import sys
from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cql.base.foreign import object_text
from cql.base.types import DataType, Kind
from cql.errors import RunError
from cql.executor.udf.emitted_arrays import entry_of, samples_of
from cql.planner.functions.user.functions import called
from cql.planner.functions.user.operators import UserOperator
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.python_values import from_python
from cql.planner.nodes.expr import Value

Array = npt.NDArray[Any]
#: Emitted rows of single values after whose memory the account is brought up to date.
_ACCOUNTED = 1 << 14
_NUMBERS = frozenset(
    (Kind.BOOLEAN, Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE)
)
#: Bytes of an emitted value in Python, about.
_VALUE_BYTES = 40


@dataclass(slots=True)
class OperatorCalls:
    """Calls an operator for one row after the other. ``names``: those of the row's columns.
    ``account``: takes the bytes that emitted rows grow from and to; raises RunError if these are
    too many."""

    operator: UserOperator
    names: tuple[str, ...]
    arguments: tuple[object, ...]
    account: Callable[[int, int], None]
    #: Of each column of the result; a segment is an array of its samples.
    values: list[list[Any]] = field(init=False)
    _row: Callable[..., tuple[Any, ...]] = field(init=False)
    _over: RunError | None = field(init=False, default=None)
    _bytes: int = field(init=False, default=0)  # of the emitted rows, about
    _accounted: int = field(init=False, default=0)
    _convert: tuple[Callable[[object, DataType, str], Any], ...] = field(init=False)
    _kinds: tuple[DataType, ...] = field(init=False)
    _columns: tuple[str, ...] = field(init=False)
    _places: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        class_of: Any = namedtuple
        self._row = class_of("Row", self.names, rename=True)._make
        self._columns = tuple(name for name, _ in self.operator.returns)
        self._kinds = tuple(kind for _, kind in self.operator.returns)
        self._convert = tuple(map(_conversion, self._kinds))
        self._places = {name: k for k, name in enumerate(self._columns)}
        self.values = [[] for _ in self._columns]

    def begin(self) -> None:
        """Forgets the emitted rows."""
        self._account(0)
        self._bytes = 0
        self.values = [[] for _ in self._columns]

    def call(self, state: object, row: Sequence[object], segments: Sequence[Array]) -> int:
        """Calls the function for a row; returns the number of all rows that are emitted.
        ``segments``: the arrays of the row that only live during the call.

        Raises EvaluationError for any exception of the function, TimeLimitError for a call above
        its limit, RunError if the emitted rows take too much memory."""
        own, before = self.operator, _references(segments)
        self._called(own.name, own.function, state, self._row(row))
        if _references(segments) != before:
            for generation in (0, 2):  # a frame that refers to itself keeps its arrays until then
                gc.collect(generation)
                if _references(segments) == before:
                    break
            else:
                raise EvaluationError(
                    "function",
                    f"{own.name} keeps the samples of a segment behind the call, where their memory"
                    " has other samples: keep a copy()",
                )
        return len(self.values[0])

    def finish(self, state: object) -> int:
        """Calls the function of the end of the input, for a key; see ``call``."""
        function = self.operator.finish
        assert function is not None
        self._called(f"{self.operator.name}.finish", function, state)
        return len(self.values[0])

    def _called(self, name: str, function: Callable[..., Any], *given: object) -> None:
        made = called(name, function, *given, self.emit, *self.arguments, limit=self.operator.limit)
        if self._over is not None:
            raise self._over
        if made is not None:
            raise EvaluationError(
                "function", f"{name} returned {object_text(made)}, and emit(…) gives its rows"
            )

    def emit(self, *values: object, **named: object) -> None:
        """What the function gets as ``emit``."""
        own, count = self.operator.name, len(self._columns)
        if len(values) > count:
            raise EvaluationError(
                "function",
                f"{own} emitted {len(values)} values, and it returns {', '.join(self._columns)}",
            )
        row: list[object] = [*values, *[None] * (count - len(values))]
        for name, value in named.items():
            place = self._places.get(name)
            if place is None or place < len(values):
                why = ", which it does not return" if place is None else " twice"
                raise EvaluationError("function", f"{own} emitted {name}{why}")
            row[place] = value
        made = [
            convert(value, kind, f"{own} emitted as {name}")
            for value, convert, kind, name in zip(
                row, self._convert, self._kinds, self._columns, strict=True
            )
        ]
        for column, stored in zip(self.values, made, strict=True):
            column.append(stored)
        size = _VALUE_BYTES * len(made)
        self._bytes += size + sum(len(v) for v in made if isinstance(v, bytes))
        self._bytes += sum(v.nbytes for v in made if isinstance(v, np.ndarray))
        if self._bytes >= self._accounted + _ACCOUNTED * size:
            try:
                self._account(self._bytes)
            except RunError as error:  # the function may catch it
                self._over = error
                raise

    def _account(self, size: int) -> None:
        self.account(self._accounted, size)
        self._accounted = size


def _conversion(kind: DataType) -> Callable[[object, DataType, str], Any]:
    if kind.kind is Kind.SIGNAL:
        return samples_of
    return entry_of if kind.is_nested else from_python


def _references(segments: Sequence[Array]) -> list[int]:
    return [sys.getrefcount(segment) for segment in segments]


def column_of(
    values: Array, valid: npt.NDArray[np.uint8] | None, kind: DataType
) -> tuple[list[Value], DataType | None]:
    """A column of single values that are no texts: as Python's numbers, None for NULL, and the type
    from which ``to_python`` has still to make other objects."""
    found: list[Any] = (values != 0 if kind.storage == "bool" else values).tolist()
    if valid is not None:
        found = [v if there else None for v, there in zip(found, valid.tolist(), strict=True)]
    return found, None if kind.kind in _NUMBERS else kind
