"""Operators that tests write in Python."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.contract import Operator
from cql.executor.state.store import Snapshot


class PythonOperator(Operator):
    """An operator without state and counters that a runtime calls through ``call``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = 0
        self.descriptor = np.zeros(1, np.int64)

    @abstractmethod
    def call(self, morsel: Morsel, out: Morsel) -> int: ...

    def snapshot(self) -> Snapshot:
        return Snapshot({}, np.zeros(0, np.int64))

    def restore(self, saved: Snapshot) -> None:
        return

    def counters(self) -> dict[str, int]:
        return {}
