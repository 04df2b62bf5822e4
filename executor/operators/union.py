"""The running pass-through union: its descriptor is its whole state."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cql.errors import RunError
from cql.executor.expressions import ErrorSite
from cql.executor.kernels import union as kernel
from cql.executor.operators.native import CodeColumn
from cql.executor.unit import NEVER, Unit, Words


class UnionOperator:
    """``attributes``: output columns on which punctuation flows (the same index in every input)."""

    def __init__(self, name: str, columns: int, ports: int, attributes: tuple[int, ...]) -> None:
        self.name = name
        n = len(attributes)
        self.descriptor: Words = np.zeros(kernel.FIRST + 3 * n + ports * n + ports, np.int64)
        self.descriptor[:3] = columns, ports, n
        self.descriptor[kernel.FIRST : kernel.FIRST + n] = attributes
        first = kernel.FIRST + n
        self.descriptor[first : first + 2 * n + ports * n] = NEVER
        self.address = int(kernel.union.address)

    def call(self, unit: Unit, out: Unit) -> int:
        raise AssertionError("a compiled operator is called by address")

    def provide(self, unit: Unit) -> None:
        raise AssertionError("a union asks for nothing")

    def error(self, unit: Unit) -> ErrorSite:
        raise RunError("a union fails no row")

    def is_fatal(self, unit: Unit) -> bool:
        return True

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        """It keeps no codes."""

    def counters(self) -> dict[str, int]:
        rows = int(self.descriptor[kernel.ROWS_SEEN])
        return {"rows_in": rows, "rows_out": rows}
