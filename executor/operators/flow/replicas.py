"""Several instances of one operator, run by several workers at once. Each instance takes one
partition of the keys or, where the operator has no state, its own morsels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from cql.errors import RunError
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.codegen.expressions.scope import Called
from cql.executor.codegen.kernel_cache import Kernel
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.flow.hash_split import SplitOperator
from cql.executor.operators.stage.operator import (
    CodeColumn,
    Operator,
    PythonOperator,
    StageOperator,
)
from cql.executor.state.store import Snapshot, saves
from cql.planner.nodes.expr import Call, walk
from cql.planner.nodes.physical import NumberExec


class Instances:
    """Instances of one operator. All run the same kernel."""

    def __init__(self, instances: Sequence[Operator]) -> None:
        self.instances = instances
        self.name = instances[0].name

    @property
    def descriptor(self) -> Words:
        return self.instances[0].descriptor

    @property
    def address(self) -> int:
        return self.instances[0].address

    def call(self, morsel: Morsel, out: Morsel) -> int:
        raise AssertionError("an instance is called by its address")

    def provide(self, morsel: Morsel) -> None:
        raise AssertionError("an instance asks for itself")

    def error(self, morsel: Morsel) -> ErrorSite:
        raise AssertionError("an instance knows its errors")

    def is_fatal(self, morsel: Morsel) -> bool:
        return self.instances[0].is_fatal(morsel)

    def counters(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for instance in self.instances:
            total.update(instance.counters())
        return dict(total)

    @property
    def state_bytes(self) -> int:
        return sum(getattr(i, "state_bytes", 0) for i in self.instances)

    def too_late(self) -> list[tuple[str, int]]:
        reported: list[list[tuple[str, int]]] = [
            getattr(i, "too_late", list)() for i in self.instances
        ]
        return [(ports[0][0], sum(n for _, n in ports)) for ports in zip(*reported, strict=True)]

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        for instance in self.instances:
            instance.map_codes(change)


class PartitionedOperator(Instances):
    """One instance per partition. The last ``order`` columns of the outputs give the order in which
    the runtime merges them (0: no order). ``split``: the inputs list the rows of each partition
    (``operators.flow.hash_split``); otherwise each instance searches all rows for its own."""

    def __init__(
        self,
        instances: Sequence[Operator],
        order: int,
        *,
        split: bool = True,
    ) -> None:
        super().__init__(instances)
        self.order = order
        self.split = split
        self.why = ""  # the reason for the number of partitions

    def snapshot(self) -> Snapshot:
        """The state of each partition."""
        parts = {f"part {k}": saves(one).snapshot() for k, one in enumerate(self.instances)}
        return Snapshot({}, np.zeros(0, np.int64), parts)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of as many partitions.

        Raises RunError if the snapshot has another number of partitions."""
        if len(saved.parts) != len(self.instances):
            raise RunError(
                f"the checkpoint has {len(saved.parts) or 'no'} partitions of {self.name}, and this"
                f" run has {len(self.instances)}",
                hint=f"SET partitions = {len(saved.parts)}",
            )
        for instance, part in zip(self.instances, saved.parts.values(), strict=True):
            saves(instance).restore(part)


class ReplicatedOperator(Instances):
    """A stage without state that requests Python work. Each worker has an instance with its own
    buffers for arguments and results of functions. The instances share the tables of values by
    text, so that each text is computed once."""

    instances: list[StageOperator]

    def __init__(self, stage: StageOperator) -> None:
        super().__init__([stage])
        stage.shares_tables = True

    def snapshot(self) -> Snapshot:
        """The snapshot of the one stage, as another runtime has it: its counters are the sums of
        those of all instances."""
        first, *others = self.instances
        saved = first.snapshot()
        for instance in others:
            saved.words[self._counters] += instance.descriptor[self._counters]
        return saved

    def restore(self, saved: Snapshot) -> None:
        """Continues with the snapshot of the stage. The first instance gets its counters, the
        others only its constants."""
        first, *others = self.instances
        first.restore(saved)
        words = saved.words.copy()
        words[self._counters] = 0
        for instance in others:
            instance.restore(replace(saved, words=words))

    @property
    def _counters(self) -> list[int]:
        kernel = self.instances[0].code.kernel
        return [kernel.slots[name] for name in kernel.counters]

    def grow(self, workers: int) -> None:
        """Adds instances until each of ``workers`` has one. Instances of workers that have left
        stay, with their counters."""
        first = self.instances[0]
        for _ in range(len(self.instances), workers):
            self.instances.append(first.replica())

    def reassume(self, assume_valid: frozenset[int]) -> None:
        """See ``StageOperator.reassume``."""
        first, *others = self.instances
        first.reassume(assume_valid)
        for instance in others:
            instance.reassume(assume_valid, first)


def first_of(operator: Operator) -> Operator:
    """The operator itself, or its first instance, to read a property that all instances share."""
    return operator.instances[0] if isinstance(operator, Instances) else operator


def is_stateless(operator: Operator) -> bool:
    """Whether each output row depends on one input row only."""
    if isinstance(operator, SplitOperator):
        return True
    if not isinstance(operator, StageOperator) or operator.spec.aggregate is not None:
        return False
    return not any(isinstance(step, NumberExec) for step in operator.spec.steps)


def is_shared(operator: Operator) -> bool:
    """Whether several threads may run the operator at once without replicas: its kernel has no
    state and requests no Python work."""
    return is_stateless(operator) and not _needs_python(operator)


def can_replicate(operator: Operator) -> bool:
    """Whether several threads may run instances of the operator at once: its functions allow it,
    and no function called per row holds the interpreter lock. (Threads that pass the lock to each
    other at every row take twice the time of one thread.)"""
    if not (is_stateless(operator) and _needs_python(operator)):
        return False
    assert isinstance(operator, StageOperator)
    if any(function.parallel is False for function in _functions_of(operator.code.kernel)):
        return False
    return all(function.parallel for function in operator.python_functions)


def calls_users(operator: Operator) -> bool:
    """Whether the operator's requests to Python may call user functions. Two threads must not serve
    such requests at once."""
    if isinstance(operator, PythonOperator):
        return operator.calls_users
    if not isinstance(operator, StageOperator):
        return False
    kernel, aggregate = operator.code.kernel, operator.spec.aggregate
    own = aggregate is not None and any(call.function is not None for call in aggregate.calls)
    return own or next(_functions_of(kernel), None) is not None


def _needs_python(operator: Operator) -> bool:
    if not isinstance(operator, StageOperator):
        return False
    kernel = operator.code.kernel
    # Part functions take their arguments from words of the descriptor, which threads cannot share.
    own = kernel.functions or kernel.parts
    return bool(own or kernel.hosts or kernel.tables or kernel.uses_rank)


def _functions_of(kernel: Kernel) -> Iterator[Called]:
    """The user functions that a kernel calls, directly or through Python."""
    yield from kernel.functions
    for expr in (*(t.expr for t in kernel.tables), *(h.call for h in kernel.hosts)):
        calls = (part for part in walk(expr) if isinstance(part, Call))
        yield from (call.function for call in calls if call.function is not None)
