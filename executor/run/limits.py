"""Effects of LIMIT on the rest of a running query. Inputs that lead only to exhausted LIMITs are
read no further, and a failing row fails the query only if it comes before their last rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import ClassVar

import numpy as np

from cql.errors import CqlError
from cql.executor.graph.graph import SINK, Edge, Graph
from cql.executor.kernels.ingest import cutter
from cql.executor.kernels.morsel_layout import (
    CHOSEN,
    DETAIL_ROW,
    HEADER,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    OUT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    data_word,
    mask_word,
)
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.ingest import Feed, Loaded
from cql.executor.morsel.morsel import Morsel, Words, stored_dtype
from cql.executor.operators.contract import Parallelism, RowLimit
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.runtimes.protocol import Failure
from cql.executor.state.declared import Declared

_WORD, _BYTE = np.dtype(np.int64), np.dtype(np.uint8)


class Limits(Declared):
    """The LIMITs of a graph with inputs ``feeds``; False if it has none.

    A failure that an exhausted LIMIT would hide is postponed. The morsel ends before the failed
    row, nothing behind the row passes the LIMITs, and no more morsels are cut. When all admitted
    morsels are through, ``judge`` decides: either the LIMITs are exhausted or the query fails.

    A checkpoint is taken behind ``judge``, when no failure is postponed."""

    saved_numbers: ClassVar[tuple[str, ...]] = ("_over",)

    def __init__(self, graph: Graph, feeds: Sequence[Feed], scheduler: InputScheduler) -> None:
        self._graph, self._feeds, self._scheduler = graph, feeds, scheduler
        self._limits = graph.limits()
        self._over = 0  # number of exhausted LIMITs at the last ``leave``
        #: Each failure with its place, and the LIMITs that hide it if they are exhausted.
        self._failures: list[tuple[tuple[int, ...], CqlError, list[RowLimit]]] = []
        self._unread: dict[int, CqlError] = {}  # by input: error behind the rows of its open block
        self._guards: dict[int, list[RowLimit]] = {}
        for limit in self._limits:
            limit.stops(scheduler.stopped)

    def __bool__(self) -> bool:
        return bool(self._limits)

    @property
    def wait(self) -> bool:
        """Whether ``judge`` or ``leave`` is due."""
        return bool(self._failures) or self._is_over() > self._over

    @property
    def reached(self) -> bool:
        """Whether another LIMIT has been exhausted since the last ``leave``."""
        return self._is_over() > self._over

    def _is_over(self) -> int:
        return sum(limit.is_over for limit in self._limits)

    def leave(self, alive: Collection[int]) -> list[int]:
        """The inputs that lead only to exhausted LIMITs. Call it when all admitted morsels are
        through."""
        self._over = self._is_over()
        return sorted(set(alive) - self._graph.needed_feeds())

    @property
    def have_ended(self) -> bool:
        """Whether every exhausted LIMIT has sent its end of input; LIMIT 0 may have received no
        morsel yet."""
        return all(limit.has_ended for limit in self._limits if limit.is_over)

    # -- failures ----------------------------------------------------------------------------------

    def hides(self, failure: Failure) -> bool:
        """Whether the failed row comes after the last row of every LIMIT that it leads to."""
        if not self._limits:
            return False
        guards = self._guards_of(self._index(failure.operator))
        return bool(guards) and all(limit.is_over for limit in guards)

    def postpones(self, failure: Failure, error: CqlError) -> bool:
        """Whether the failure is postponed: ``judge`` then raises ``error`` or drops it."""
        operator = self._index(failure.operator) if self._limits else SINK
        guards = self._guards_of(operator)
        if not guards or not self._is_alone(operator):
            return False
        last = self._end_before(failure, operator)
        for limit in guards:
            limit.close_behind(*last)
        self._failures.append((failure.place, error, guards))
        self._scheduler.stop()
        return True

    def judge(self, quiesce: Callable[[], None]) -> None:
        """Raises the first postponed failure that comes before the last row of a LIMIT. ``quiesce``
        returns when all admitted morsels are through."""
        if not self._failures:
            return
        quiesce()
        for _, error, guards in sorted(self._failures, key=itemgetter(0)):
            if not all(limit.is_over for limit in guards):
                raise error
        self._failures.clear()

    def _index(self, name: str) -> int:
        names = (operator.name for operator in self._graph.operators)
        return next((k for k, known in enumerate(names) if known == name), SINK)

    def _guards_of(self, operator: int) -> list[RowLimit]:
        if operator not in self._guards:
            self._guards[operator] = _guards(self._graph, operator)
        return self._guards[operator]

    def _is_alone(self, operator: int) -> bool:
        """Whether the morsels of ``operator``'s input may be cut short: all their other readers
        lead to LIMITs, too."""
        for edges in self._graph.edges:
            targets = {edge.target for edge in edges}
            if operator in targets and not all(self._guards_of(k) for k in targets):
                return False
        return True

    def _end_before(self, failure: Failure, operator: int) -> tuple[int, ...]:
        """Ends the morsel before the failed row, if possible. Returns the arguments for
        ``RowLimit.close_behind``: they let pass the whole morsel, its results up to a sequence
        number, or only earlier morsels."""
        morsel, serial = failure.morsel, int(failure.morsel.words[SERIAL])
        failed = self._graph.operators[operator]
        one = failed.any_instance
        if failed.parallelism is Parallelism.KEYED or morsel.words[CHOSEN] or not one.fails_by_row:
            return (serial - 1,)
        if one.refused_kind(morsel) != "bad_results":
            self._cut_off(failure, operator, int(morsel.words[DETAIL_ROW]))
            return (serial,)
        if all(e.target != SINK and self._is_limit(e) for e in self._graph.edges[operator]):
            out = view_address(int(morsel.words[OUT]), _WORD, HEADER)
            return serial, int(out[SEQUENCE] + out[ROWS])
        return (serial - 1,)

    def _is_limit(self, edge: Edge) -> bool:
        return self._graph.operators[edge.target].limit is not None

    def _cut_off(self, failure: Failure, operator: int, row: int) -> None:
        """Cuts the morsel to the rows before ``row``, with the punctuation that these rows make."""
        words = failure.morsel.words
        words[ROWS] = row
        count = LATE_ROW_WORDS * int(words[LATE_ROWS])
        if count:
            late = view_address(int(words[LATE_ROW_ADDRESS]), _WORD, count)[::LATE_ROW_WORDS]
            words[LATE_ROWS] = int(np.searchsorted(late, row))
        count = PUNCTUATION_WORDS * int(words[PUNCTUATIONS])
        words[PUNCTUATIONS] = 0
        k = self._scheduler.current if failure.feed is None else failure.feed[0]
        entry = None if k is None or k >= len(self._feeds) else self._graph.entries[k]
        if count and k is not None and entry is not None and entry.target == operator:
            given = view_address(int(words[PUNCTUATION_ADDRESS]), _WORD, count)
            made = _punctuations(self._feeds[k], failure.morsel, row, given.copy())
            for n, record in enumerate(made):
                given[PUNCTUATION_WORDS * n : PUNCTUATION_WORDS * n + 3] = *record, -1
            words[PUNCTUATIONS] = len(made)

    # -- inputs ------------------------------------------------------------------------------------

    def cuts_off(self, k: int, loaded: Loaded, error: CqlError) -> bool:
        """Whether the rows before the first unreadable row of a block are cut first; ``check``
        then raises ``error``."""
        if (
            not self._guards_of_feed(k)
            or loaded.separated.count
            or loaded.separated.dropped is not None
        ):
            return False
        self._feeds[k].cutter[cutter.BLOCK] = min(bad.row for bad in loaded.block.bad)
        self._unread[k] = error
        return True

    def has_error(self, k: int) -> bool:
        """Whether an error waits behind the rows of input ``k``."""
        return k in self._unread

    def check(self, k: int) -> None:
        """Raises the error behind the rows of input ``k``, once these rows have been cut."""
        if k in self._unread and not self._scheduler.is_open(k):
            raise self._unread[k]

    def hides_rest_of(self, k: int) -> bool:
        """Whether no result needs the rest of input ``k``. Call it when all admitted morsels are
        through."""
        guards = self._guards_of_feed(k)
        return bool(guards) and all(limit.is_over for limit in guards)

    def _guards_of_feed(self, k: int) -> list[RowLimit]:
        entry = self._graph.entries[k]
        return [] if entry is None or not self._limits else self._guards_of(entry.target)


def fails_in_parts(graph: Graph) -> bool:
    """Whether an expression or a sum below a LIMIT can fail in an operator that is split into
    partitions. The other partitions are then ahead of the failed row in the morsel."""
    for k, operator in enumerate(graph.operators):
        fails = operator.parallelism is Parallelism.KEYED and operator.any_instance.can_fail
        if fails and _guards(graph, k):
            return True
    return False


def _guards(graph: Graph, operator: int) -> list[RowLimit]:
    """The first LIMITs behind an operator; empty if some of its results reach a sink without
    one."""
    found: list[RowLimit] = []
    seen, waiting = {operator}, [operator]
    while waiting:
        k = waiting.pop()
        if k == SINK:
            return []
        at = graph.operators[k]
        if at.limit is not None:
            found.append(at.limit)
            continue
        waiting += {edge.target for edge in graph.edges[k]} - seen
        seen |= set(waiting)
    return found


def _punctuations(feed: Feed, morsel: Morsel, row: int, given: Words) -> list[tuple[int, int]]:
    """The punctuation that the rows before ``row`` of a feed's morsel make, as (attribute, value),
    bounded by the morsel's own punctuation ``given``. A lower watermark is always correct."""
    found = []
    records = given.reshape(-1, PUNCTUATION_WORDS)
    for attribute in feed.attributes:
        words, column = attribute.words, attribute.column
        mine = records[(records[:, 0] == column) & (records[:, 2] < 0)]
        if not len(mine) or not words[cutter.BY_ROWS] or words[cutter.FAR] or row == 0:
            continue
        dtype = stored_dtype(attribute.field.type.storage)
        times = view_address(int(morsel.words[data_word(column)]), dtype, row).astype(np.int64)
        valid = view_address(int(morsel.words[mask_word(column)]), _BYTE, row) != 0
        if valid.any():
            value = int(times[valid].max()) - int(words[cutter.SLACK])
            found.append((column, min(value, int(mine[-1, 1]))))
    return found
