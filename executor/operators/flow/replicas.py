"""Several instances of one operator, run by several workers at once. Each instance takes one
partition of the keys or, where the operator has no state, its own morsels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cql.errors import RunError
from cql.executor.operators.contract import Operator, Parallelism
from cql.executor.operators.flow.ownership import HashOwners, Spread
from cql.executor.state.codes import Change
from cql.executor.state.repartition import is_divided, partitions_of, whole
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Snapshot
from cql.executor.strings.dictionary import Dictionary


class Instances(Operator):
    """Instances of one operator. All run the same kernel; each has a descriptor of its own."""

    def __init__(self, instances: Sequence[Operator]) -> None:
        self._instances = list(instances)
        self.name = instances[0].name

    @property
    def instances(self) -> Sequence[Operator]:
        return self._instances

    @property
    def any_instance(self) -> Operator:
        return self._instances[0]

    def counters(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for instance in self.instances:
            total.update(instance.counters())
        return dict(total)

    @property
    def parts(self) -> Sequence[Stateful]:
        return self.instances

    def too_late(self) -> list[tuple[str, int]]:
        reported = [instance.too_late() for instance in self.instances]
        return [(ports[0][0], sum(n for _, n in ports)) for ports in zip(*reported, strict=True)]

    def bind_constants(self) -> None:
        for instance in self.instances:
            instance.bind_constants()


class PartitionedOperator(Instances):
    """One instance per partition. ``order`` and ``split``: ``order_columns``, ``reads_lists``.
    ``spread``: how keys are spread over the instances."""

    def __init__(
        self,
        instances: Sequence[Operator],
        order: int,
        spread: Spread,
        *,
        split: bool = True,
    ) -> None:
        super().__init__(instances)
        self.spread = spread
        self._order = order
        self._split = split
        self.why = ""  # the reason for the number of partitions

    @property
    def parallelism(self) -> Parallelism:
        return Parallelism.KEYED

    @property
    def order_columns(self) -> int:
        return self._order

    @property
    def reads_lists(self) -> bool:
        return self._split

    def reported(self) -> dict[str, Any]:
        rows = [instance.counters()["rows_in"] for instance in self.instances]
        found = {"partitions": len(rows), "largest": max(rows) / max(sum(rows), 1)}
        return found | ({"why_partitions": self.why} if self.why else {})

    def snapshot(self) -> Snapshot:
        """The state of each partition."""
        return whole([one.snapshot() for one in self.instances])

    def fitting(
        self,
        saved: Snapshot,
        translate: Change,
        dictionary: Dictionary,
    ) -> Snapshot:
        parts = partitions_of(saved)
        if is_divided(saved) and len(parts) == len(self.instances):
            return saved
        if self.spread.ranged:
            raise RunError(
                f"the checkpoint has no ranges of the partitions of {self.name}",
                hint="continue with the runtime that the checkpoint was taken with",
            )
        owners = HashOwners(self.spread, translate, dictionary)
        return whole(self.any_instance.repartition(parts, owners))

    def with_steps(self, saved: Snapshot, below: Sequence[Snapshot]) -> Snapshot:
        return saved  # filters below are the work of the split operator

    def with_filters(self, own: Snapshot, saved: Snapshot, above: Snapshot) -> Snapshot:
        return self.any_instance.with_filters(own, saved, above)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of as many partitions."""
        for instance, part in zip(self.instances, partitions_of(saved), strict=True):
            instance.restore(part)


class ReplicatedOperator(Instances):
    """An operator whose rows do not depend on each other, and which requests Python work. Each
    worker has an instance with its own buffers (for arguments and results of functions, or for
    elements of arrays)."""

    @property
    def parallelism(self) -> Parallelism:
        return Parallelism.REPLICATED

    def snapshot(self) -> Snapshot:
        """The snapshot of the one operator, as another runtime has it: its counters are the sums of
        those of all instances."""
        first, *others = self._instances
        saved = first.snapshot()
        for instance in others:
            saved.words[first.added] += instance.descriptor[first.added]
        return saved

    def of_steps(self, saved: Snapshot, gone: Sequence[Snapshot]) -> Snapshot:
        return self.any_instance.of_steps(saved, gone)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the snapshot of the one operator. The first instance gets its counters,
        the others only its constants."""
        first, *others = self._instances
        first.restore(saved)
        words = saved.words.copy()
        words[first.added] = 0
        for instance in others:
            instance.restore(replace(saved, words=words))

    def replicate(self, workers: int) -> None:
        for _ in range(len(self._instances), workers):
            self._instances.append(self._instances[0].replica())

    def reassume(self, assume_valid: frozenset[int], like: Operator | None = None) -> None:
        first, *others = self._instances
        first.reassume(assume_valid)
        for instance in others:
            instance.reassume(assume_valid, first)
