"""Windowed aggregates and windows over the rows of a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cql.base.model import Field, Schema
from cql.base.types import INT
from cql.base.window import Window, WindowKind, WindowOperator
from cql.planner.functions.folding import can_fail
from cql.planner.nodes.abstract import cached_property
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.logical import AggregateCall, KeyWindows, Partitioning
from cql.planner.nodes.physical.base import OneInput
from cql.planner.nodes.physical.columns import coded_in, window_fields
from cql.planner.nodes.watermarks import Wanted, add_wanted, window_ends

#: The column with the index of the query that a row belongs to, if queries share an operator.
QUERY = "_query"


class FlushPolicy(StrEnum):
    """When the groups of a closed window leave (out-of-order paper §6)."""

    AT_ONCE = "at_once"  # all groups at once
    SLOW = "slow"  # one group per ``Flush.every`` rows
    LAZY = "lazy"  # a group leaves when a group of a new window takes its place
    IN_ORDER_SLOW = "in_order_slow"  # figure 7


@dataclass(frozen=True, slots=True)
class Flush:
    """The flush of two-level aggregation (out-of-order paper §6): the low level has ``entries``
    entries. Slow flush emits one group per ``every`` rows (§6's i), and all remaining groups of a
    window when ``windows`` later windows have closed (§6's m)."""

    policy: FlushPolicy
    entries: int
    every: int
    windows: int


@dataclass(frozen=True, slots=True)
class WidAggregateExec(OneInput):
    """Windowed hash aggregation by window id; punctuation closes windows (out-of-order paper §4.1,
    appendix). ``window`` None is one window over the whole input, which closes at the end of the
    input. ``pane`` is the width of the panes that windows share, None if ``operator`` has no panes;
    ``flush`` is the flush of two-level aggregation. ``adaptive``: the operator begins with
    ``operator`` and may change between WID, panes and buffered rows. ``by``: the index of a key
    whose values have their own watermarks; the watermark of its value closes a group."""

    window: Window | None
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    names: tuple[str, ...]
    pane: int | None = None
    operator: WindowOperator = WindowOperator.WID
    flush: Flush | None = None
    adaptive: bool = False
    why: str = ""
    by: int | None = None
    partitioning: Partitioning | None = None

    @cached_property
    def schema(self) -> Schema:
        fields = self._aggregated()
        if self.window is not None:
            fields += window_fields(self.input.schema, self.window)
        return Schema(tuple(fields))

    def _aggregated(self) -> list[Field]:
        typed = [(e.type, e.nullable) for e in (*self.keys, *self.calls)]
        return [Field(n, t, o) for n, (t, o) in zip(self.names, typed, strict=True)]

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        if self.window is None or self.window.wa not in self.input.progressing:
            return ()
        first = len(self.keys) + len(self.calls)
        bounds = tuple(range(first, first + 3))
        # Sessions leave by their ends, however long ago they began.
        return bounds[1:] if self.window.kind is WindowKind.SESSION else bounds

    @cached_property
    def window_columns(self) -> tuple[int, ...]:
        return self.progressing

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        below: Wanted = {}
        if self.window is not None:
            add_wanted(below, self.window.wa, window_ends(self.window))
        return [below]

    def wanted_order(self, wanted: int | None) -> tuple[int | None, ...]:
        return (None if self.window is None else self.window.wa,)

    def needs_order(self, matters: bool) -> bool:
        exact = all(call.same_in_any_order for call in self.calls)
        read = (*self.keys, *(e for call in self.calls for e in call.read))
        free = exact and self.hides_order and not any(map(can_fail, read))
        return not free or (matters and bool(self.keys))

    @property
    def unique(self) -> list[set[int]] | None:
        if not self.hides_order:
            return None
        bounds = len(self.keys) + len(self.calls)  # of its window: the start and the end
        keys = [{k} for k in range(len(self.keys))]
        return keys if self.window is None else [*keys, {bounds, bounds + 1}]

    @property
    def hides_order(self) -> bool:
        """Whether its groups depend on the order of the input only through the calls."""
        if self.by is not None or self.adaptive:
            return False
        return self.window is None or self.window.kind is WindowKind.SLIDING

    @property
    def in_windows(self) -> bool:
        return True

    @property
    def leaves_out_late_rows(self) -> bool:
        return self.window is not None

    def values_from(self, column: int) -> Sequence[tuple[int, Expr]]:
        return ((0, self.keys[column]),) if column < len(self.keys) else ()

    def encodes(self, needed: frozenset[int]) -> Sequence[frozenset[int]]:
        read = (e for call in self.calls for e in call.read)
        return [coded_in((*self.keys, *read), self.input.schema)]

    @property
    def can_split(self) -> bool:
        # The watermark alone decides when the windows of groups leave, not the rows in them.
        if not self.keys or self.by is not None or self.adaptive:
            return False
        functions = [call.function for call in self.calls if call.function is not None]
        if any(function.parallel is False for function in functions):
            return False
        windows = (WindowKind.SLIDING, WindowKind.EARLY, WindowKind.SESSION)
        if self.window is not None and self.window.kind not in windows:
            return False
        return self.operator in (WindowOperator.WID, WindowOperator.PANES)


@dataclass(frozen=True, slots=True)
class SharedPanesExec(WidAggregateExec):
    """The same aggregates over several ``windows`` of several queries, from shared panes.
    ``window`` says where panes begin; the last output column is the index in ``windows`` of a row's
    window."""

    windows: tuple[Window, ...] = ()

    @cached_property
    def schema(self) -> Schema:
        bounds = window_fields(self.input.schema, self.windows[0])
        fields = self._aggregated()
        return Schema((*fields, *bounds, Field(QUERY, INT, False)))

    @property
    def hides_order(self) -> bool:
        return False

    @property
    def can_split(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class KeyWindowsExec(OneInput):
    """Windows over the row numbers within each key: WID's Bucket for a partitioned window, which
    has a state (out-of-order paper A.2.2). The rows of a window leave together, with the columns of
    ``KeyWindows.fields``, when its last row has arrived."""

    windows: KeyWindows
    why: str = ""

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, *self.windows.fields()))

    @cached_property
    def progressing(self) -> tuple[int, ...]:
        return (len(self.schema) - 1,)  # rows wait for their windows

    def wants(self, wanted: Wanted) -> Sequence[Wanted]:
        return [{}]  # the watermark is made from the rows alone

    def common_watermark(self, consumer: str | None) -> tuple[str | None, ...]:
        return (None,)  # counts rows

    @property
    def rows_per_row(self) -> float:
        return self.windows.rows / self.windows.slide
