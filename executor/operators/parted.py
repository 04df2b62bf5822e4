"""An operator in partitions: an instance for each, with the state of its keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from cql.executor.expressions import ErrorSite
from cql.executor.operators.native import CodeColumn, Operator
from cql.executor.unit import Unit, Words


class PartedOperator:
    """``instances`` are as many as partitions; ``order`` columns at the end of their outputs say in
    which order these are merged. ``split``: their inputs list the rows of each (``split``);
    otherwise each instance looks for its own among all."""

    def __init__(self, instances: Sequence[Operator], order: int, *, split: bool = True) -> None:
        self.instances = instances
        self.order = order
        self.split = split
        self.why = ""  # it is split into so many
        self.name = instances[0].name
        self.descriptor: Words = instances[0].descriptor
        self.address = instances[0].address  # all have the same kernel

    def call(self, unit: Unit, out: Unit) -> int:
        raise AssertionError("a partition is called by its address")

    def provide(self, unit: Unit) -> None:
        raise AssertionError("a partition asks for itself")

    def error(self, unit: Unit) -> ErrorSite:
        return self.instances[0].error(unit)

    def is_fatal(self, unit: Unit) -> bool:
        return self.instances[0].is_fatal(unit)

    def counters(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for instance in self.instances:
            total.update(instance.counters())
        return dict(total)

    @property
    def state_bytes(self) -> int:
        return sum(getattr(i, "state_bytes", 0) for i in self.instances)

    def too_late(self) -> list[tuple[str, int]]:
        told: list[list[tuple[str, int]]] = [getattr(i, "too_late", list)() for i in self.instances]
        return [(ports[0][0], sum(n for _, n in ports)) for ports in zip(*told, strict=True)]

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        for instance in self.instances:
            instance.map_codes(change)
