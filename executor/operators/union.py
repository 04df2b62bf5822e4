"""The running pass-through union: its descriptor is its whole state."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cql.errors import RunError
from cql.executor.expressions import ErrorSite
from cql.executor.kernels import union as kernel
from cql.executor.operators.native import CodeColumn
from cql.executor.unit import NEVER, STRAGGLER_WORDS, Unit, Words, value_bytes
from cql.model import Schema


class UnionOperator:
    """``attributes``: output columns on which punctuation flows (the same index in every input);
    ``names`` says for each port what comes there, in units of up to ``rows``."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        names: tuple[str, ...],
        attributes: tuple[int, ...],
        rows: int,
    ) -> None:
        self.name = name
        self.names = names
        n, ports = len(attributes), len(names)
        self._of_ports = kernel.FIRST + kernel.OF_ATTRIBUTE * n
        watermarks = self._of_ports + kernel.OF_PORT * ports
        self.descriptor: Words = np.zeros(watermarks + ports * n, np.int64)
        self.descriptor[:3] = len(schema), ports, n
        for k, column in enumerate(attributes):
            at = kernel.FIRST + kernel.OF_ATTRIBUTE * k
            size = value_bytes(schema[column].type)
            self.descriptor[at : at + kernel.OF_ATTRIBUTE] = column, size, NEVER, NEVER
        self.descriptor[watermarks:] = NEVER
        self._records = np.empty(STRAGGLER_WORDS * rows * max(1, n), np.int64)
        self.descriptor[kernel.RECORDS] = self._records.ctypes.data
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

    def too_late(self) -> list[tuple[str, int]]:
        """For each port, its rows that came below what was promised while it was idle."""
        first = self._of_ports + kernel.TOO_LATE
        counts = self.descriptor[first :: kernel.OF_PORT][: len(self.names)]
        return list(zip(self.names, counts.tolist(), strict=True))

    def counters(self) -> dict[str, int]:
        rows = int(self.descriptor[kernel.ROWS_SEEN])
        return {"rows_in": rows, "rows_out": rows}
