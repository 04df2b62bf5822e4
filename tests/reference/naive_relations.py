"""The reference for relations: the rows of a plan without SLIDE at each instant, from scratch.

A relation is a bag of rows for every instant. ``at`` computes the bag by the definition, and the
changes are the differences between neighbouring instants. No state passes from one instant to the
next.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cmp_to_key, partial
from itertools import pairwise
from typing import Any

from cql.base.window import Window, WindowKind
from cql.planner.nodes.expr import Call, Column, Expr, columns_of
from cql.planner.nodes.logical import (
    Aggregate,
    Filter,
    Join,
    Limit,
    Logical,
    Project,
    RelationToStream,
    RowNumber,
    Scan,
    SetOperation,
    Sort,
    SortKey,
    SubqueryJoin,
    Union,
    Watermark,
    Windowed,
)
from tests.reference.naive_expr import evaluate as value_of
from tests.reference.naive_expr import is_true
from tests.reference.naive_order import progressing, windows_of
from tests.reference.naive_values import BadRowError, group_key

Bag = list[tuple[Any, ...]]

#: The instant before the instants of all streams. From this instant on, a relation holds the rows
#: of tables, and the row of an aggregate without keys over an input without rows.
BEGINNING = -(1 << 62)


def is_relation(node: Logical) -> bool:
    """Whether ``node`` is a bag that rows also leave: a window without SLIDE, a plan over such a
    window, EXCEPT or INTERSECT."""
    match node:
        case Windowed():
            streams = (WindowKind.SLIDING, WindowKind.CUMULATE, WindowKind.SESSION)
            return node.window.kind not in streams
        case Aggregate():
            return node.window is None and is_relation(node.input)
        case Filter() | Project() | Sort() | Limit() | Watermark():
            return is_relation(node.input)
        case Union():
            return any(map(is_relation, node.inputs))
        case Join():
            return join_changes(node)
        case RowNumber():
            return node.window is None
        case SubqueryJoin():
            return is_relation(node.input) or not is_constant(node.query)
        case _:
            return isinstance(node, SetOperation)


def is_constant(node: Logical) -> bool:
    """Whether ``node`` reads only tables: no input has a progressing time."""
    if isinstance(node, Scan):
        return node.relation.stream is None or not node.relation.stream.progress
    return all(map(is_constant, node.inputs))


def join_changes(node: Join) -> bool:
    """Whether rows leave the result of a join.

    Rows leave a join over a window. They also leave an outer join of streams whose condition does
    not bound the times of both sides: a row without a partner leaves when a partner comes."""
    if is_relation(node.left) or is_relation(node.right):
        return True
    if node.kind in ("inner", "cross") or is_constant(node.left) or is_constant(node.right):
        return False
    width = len(node.left.schema)
    for part in parts_of(node.condition):
        used = columns_of(part)
        left = {c for c in used if c < width and c in progressing(node.left)}
        if left and {c - width for c in used} & set(progressing(node.right)):
            return False
    return True


def is_append_only(node: Logical) -> bool:
    """Whether each row of ``node`` counts once.

    This holds if only selections, projections, ORDER BY, unions and joins are above the windows. It
    also holds for groups by the times of both sides of a join, because all pairs of such a group
    come at one instant."""
    match node:
        case Aggregate() if _of_one_instant(node):
            return is_append_only(node.input)
        case Filter() | Project() | Sort() | Limit() | Watermark() | Windowed():
            return is_append_only(node.input)
        case Union():
            return all(map(is_append_only, node.inputs))
        case Join():
            changes = node.kind not in ("inner", "cross") and is_relation(node)
            if node.kind != "full":  # the result of a lookup in a table does not change
                changes &= not is_constant(node.left if node.kind == "right" else node.right)
            return not changes and is_append_only(node.left) and is_append_only(node.right)
        case SubqueryJoin():
            return is_constant(node.query) and is_append_only(node.input)
        case _:
            return not is_relation(node)


def _of_one_instant(node: Aggregate) -> bool:
    """Whether all pairs of a group come at one instant, the later of the group's two times."""
    below = node.input
    while isinstance(below, Filter | Project):
        below = below.input
    inner = isinstance(below, Join) and below.kind in ("inner", "cross")
    if node.window is not None or not inner or _holds_rows(node.input):
        return False
    times = {column for column, _ in windows_of(node.input)}
    return len(times) == 2 and times <= {e.index for e in node.keys if isinstance(e, Column)}


def _holds_rows(node: Logical) -> bool:
    rows = isinstance(node, Windowed) and node.window.kind is WindowKind.ROWS
    return rows or any(map(_holds_rows, node.inputs))


@dataclass
class Relations:
    """Evaluates relations.

    ``rows_of`` evaluates a stream (with row watermarks); ``grouped`` evaluates an aggregate over
    rows; ``compare`` compares two rows by sort keys; ``late`` and ``fails`` count late rows and bad
    rows."""

    rows_of: Callable[[Logical], list[Any]]
    grouped: Callable[[Aggregate, Bag], Bag]
    compare: Callable[[Any, Any, Any], int]
    late: Callable[[int], None]
    fails: Callable[[BadRowError], None]
    scan: Callable[[Scan], list[tuple[Any, ...]]]
    undetermined: bool = False
    _asking: bool = False
    _firsts: dict[int, float] = field(default_factory=dict)
    _sides: dict[int, tuple[Join, tuple[Logical, Logical]]] = field(default_factory=dict)
    _held: dict[int, tuple[Expr, dict[tuple[Any, ...], bool]]] = field(default_factory=dict)
    _members: dict[int, list[tuple[int, tuple[Any, ...]]]] = field(default_factory=dict)

    # -- which instants there are --------------------------------------------------------------

    def windows(self, node: Logical) -> Iterator[Windowed]:
        """The windows that make ``node`` a relation."""
        if isinstance(node, Windowed):
            yield node
        elif isinstance(node, Join):
            for side in self.sides(node):
                yield from self.windows(side)
        elif not isinstance(node, RelationToStream) and (
            not isinstance(node, Aggregate) or node.window is None
        ):
            for child in node.inputs:
                yield from self.windows(child)

    def instants(self, node: Logical) -> list[int]:
        """The instants at which a row of some window enters or leaves.

        >>> from tests.reference.naive_tables import stream
        >>> from cql.base.window import Window
        >>> r = Windowed(stream("s", "t bigint"), Window(WindowKind.RANGE, 0, range=5))
        >>> from tests.reference.naive import relations
        >>> relations({"s": [(1,), (3,)]}).instants(r)
        [1, 3, 7, 9]
        """
        found: set[int] = set()
        for window in self.windows(node):
            for time, _ in self.members(window):
                found.add(time)
                if window.window.kind in (WindowKind.RANGE, WindowKind.NOW):
                    found.add(time + (window.window.range or 0) + 1)
        return sorted(found)

    def _first(self, node: Logical) -> float:
        """The instant from which an aggregate without keys has its row.

        This is the first instant of the windows. It is minus infinity in a subquery, without any
        instant, and for an input with rows from the beginning."""
        if self._asking:
            return -math.inf
        if id(node) not in self._firsts:
            first = min(self.instants(node), default=-math.inf)
            self._firsts[id(node)] = -math.inf if self.at(node, BEGINNING) else first
        return self._firsts[id(node)]

    def members(self, node: Windowed) -> list[tuple[int, tuple[Any, ...]]]:
        """The rows under a window with their event times, in the order (event time, arrival). Late
        rows are left out and counted; rows without an event time are bad."""
        if id(node) not in self._members:
            found = []
            wa = node.window.wa
            assert wa is not None
            for row in self.rows_of(node.input):
                time, mark = row.values[wa], row.marks[wa]
                if node.window.kind is WindowKind.EARLY:
                    # a late row enters on arrival, unless its window has ended by then
                    now = time if mark is None else max(time, mark)
                    if row.values[node.window.end] <= now:
                        self.late(1)
                    else:
                        found.append((now, row.values))
                elif time is None:
                    self.fails(BadRowError("event time is NULL"))
                elif mark is not None and time < mark:
                    self.late(1)
                else:
                    found.append((time, row.values))
            self._members[id(node)] = sorted(found, key=lambda pair: pair[0])
        return self._members[id(node)]

    def last(self, node: Logical) -> int | None:
        """The highest time of the windows' inputs; None without rows."""
        found = [self._furthest(w.input, w.window.wa) for w in self.windows(node)]
        return max((t for t in found if t is not None), default=None)

    def _furthest(self, node: Logical, column: int | None) -> int | None:
        assert column is not None
        match node:
            case Scan():
                at = node.columns[column]
                times = [row[at] for row in self.scan(node) if row[at] is not None]
                return max(times, default=None)
            case Project():
                expr = node.exprs[column]
                (below,) = columns_of(expr)
                time = self._furthest(node.input, below)
                if time is None:
                    return None
                row: list[Any] = [None] * len(node.input.schema)
                row[below] = time
                moved = value_of(expr, tuple(row))
                assert isinstance(moved, int)
                return moved
            case RelationToStream():
                return self.last(node.input)
            case Union():
                times = [self._furthest(i, column) for i in node.inputs]
                return max((t for t in times if t is not None), default=None)
            case _:
                return self._furthest(node.inputs[0], column)

    # -- what a relation holds -------------------------------------------------------------------

    def at(self, node: Logical, now: int) -> Bag:
        """The rows of ``node`` at an instant.

        >>> from tests.reference.naive import relations
        >>> from tests.reference.naive_tables import stream
        >>> from cql.base.window import Window
        >>> s = stream("s", "t bigint")
        >>> data = relations({"s": [(1,), (3,), (4,)]})
        >>> data.at(Windowed(s, Window(WindowKind.RANGE, 0, range=2)), 3)
        [(1,), (3,)]
        >>> data.at(Windowed(s, Window(WindowKind.ROWS, 0, rows=1)), 9)
        [(4,)]
        """
        match node:
            case Windowed():
                return self._window(node, now)
            case Filter():
                return [row for row in self.at(node.input, now) if is_true(node.condition, row)]
            case Project():
                rows = self.at(node.input, now)
                return [tuple(value_of(e, row) for e in node.exprs) for row in rows]
            case Union():
                return [row for part in node.inputs for row in self.at(part, now)]
            case Aggregate() if node.window is None:
                if not node.keys and now < self._first(node.input):
                    return []
                return self.grouped(node, self.at(node.input, now))
            case SetOperation():
                return self._set_operation(node, now)
            case SubqueryJoin():
                return [(*row, said) for row, said in self._asked(node, now)]
            case Sort():
                return self._top(node, node.keys, now)
            case Limit():
                return self._top(node, (), now)
            case RowNumber():
                return self._numbered(node, now)
            case Join():
                return self._joined(node, now)
            case _:
                return [row.values for row in self.rows_of(node)]

    def _window(self, node: Windowed, now: int) -> Bag:
        """The rows of a window at the instant ``now``.

        ``[RANGE r]`` holds the rows of [now - r, now]. ``[ROWS n]`` holds the last n rows so far,
        with PARTITION BY the last n rows of each key. The order is event time, then arrival."""
        window = node.window
        entered = [(t, row) for t, row in self.members(node) if t <= now]
        match window.kind:
            case WindowKind.RANGE | WindowKind.NOW:
                return [row for t, row in entered if now <= t + (window.range or 0)]
            case WindowKind.UNBOUNDED:
                return [row for _, row in entered]
            case WindowKind.EARLY:
                return sorted((row for _, row in entered), key=lambda row: row[window.wa])
        by: dict[Any, list[int]] = defaultdict(list)
        for place, (_, row) in enumerate(entered):
            by[tuple(group_key(row[c]) for c in window.partition_by)].append(place)
        assert window.rows is not None
        latest = [place for places in by.values() for place in places[-window.rows :]]
        return [entered[place][1] for place in sorted(latest)]

    def _set_operation(self, node: SetOperation, now: int) -> Bag:
        """EXCEPT and INTERSECT, of sets or (ALL) of bags; the result shows the left side's rows.

        >>> from tests.reference.naive import relations
        >>> from tests.reference.naive_tables import stream
        >>> a, b = stream("a", "t bigint"), stream("b", "t bigint")
        >>> data = relations({"a": [(1,), (1,), (2,)], "b": [(1,)]})
        >>> data.at(SetOperation(a, b, "except", False), 9)
        [(1,), (2,)]
        >>> data.at(SetOperation(a, b, "except", True), 9)
        [(2,)]
        """
        rows: dict[Any, tuple[Any, ...]] = {}
        left = _counted(self.at(node.left, now), rows)
        right = _counted(self.at(node.right, now), {})
        found = []
        for key, row in rows.items():
            a, b = left[key], right[key]
            if node.distinct:
                a, b = min(a, 1), min(b, 1)
            copies = max(a - b, 0) if node.kind == "except" else min(a, b)
            found += [row] * copies
        return found

    def _asked(self, node: SubqueryJoin, now: int) -> Iterator[tuple[Any, Any]]:
        rows = self.at(node.input, now)
        before, self._asking = self._asking, True
        query = self.at(node.query, now)
        self._asking = before
        return zip(rows, self.answers(node, rows, query), strict=True)

    def answers(self, node: SubqueryJoin, rows: Bag, query: Bag) -> list[Any]:
        """The answer of a subquery, whose rows are ``query``, for each of ``rows``.

        NULL equals nothing; IN is NULL if only a NULL could make it true.

        >>> from tests.reference.naive import relations
        >>> from tests.reference.naive_tables import column, stream
        >>> a, b = stream("a", "t bigint"), stream("b", "t bigint")
        >>> asked = SubqueryJoin(a, b, "in", (column(a, "t"),), "m")
        >>> say = relations({}).answers
        >>> [say(asked, [(1,), (2,), (None,)], q) for q in ([(1,)], [(1,), (None,)], [])]
        [[True, False, None], [True, None, None], [False, False, False]]
        """
        if node.kind == "scalar":
            if len(query) > 1:
                raise TwoRowsError
            return [query[0][0] if query else None] * len(rows)
        found = []
        for row in rows:
            keys = [value_of(key, row) for key in node.keys]
            same = [
                _equal(keys, list(other)[: len(keys)])
                for other in query
                if self._holds(node.condition, (*row, *other))
            ]
            unknown = node.kind == "in" and None in same
            found.append(True if True in same else None if unknown else False)
        return found

    def _top(self, node: Sort | Limit, keys: Sequence[SortKey], now: int) -> Bag:
        rows = self.at(node.input, now)
        if node.limit is None and not node.offset:
            return rows
        ordered = sorted(rows, key=cmp_to_key(partial(self.compare, keys)))
        stop = len(ordered) if node.limit is None else node.offset + node.limit
        for cut in (node.offset, stop):
            if 0 < cut < len(ordered):
                a, b = ordered[cut - 1], ordered[cut]
                tie = self.compare(keys, a, b) == 0
                self.undetermined |= tie and tuple(map(group_key, a)) != tuple(map(group_key, b))
        return ordered[node.offset : stop]

    def _numbered(self, node: RowNumber, now: int) -> Bag:
        """Each row with its number, from 1, in its partition; a tie of different rows makes the
        answer undetermined.

        >>> from tests.reference.naive import relations
        >>> from tests.reference.naive_tables import column, stream
        >>> from cql.planner.nodes.logical import SortKey
        >>> from cql.base.window import Window
        >>> s = stream("s", "t bigint, k bigint")
        >>> rows = Windowed(s, Window(WindowKind.UNBOUNDED, 0))
        >>> by = SortKey(column(s, "t"), True, False)
        >>> data = relations({"s": [(1, 7), (2, 7), (3, 8)]})
        >>> data.at(RowNumber(rows, (1,), (by,), None, "n"), 2)
        [(2, 7, 1), (1, 7, 2)]
        """
        parts: dict[Any, Bag] = defaultdict(list)
        for row in self.at(node.input, now):
            parts[tuple(group_key(row[c]) for c in node.partition)].append(row)
        found = []
        for part in parts.values():
            ordered = sorted(part, key=cmp_to_key(partial(self.compare, node.keys)))
            for a, b in pairwise(ordered):
                tie = self.compare(node.keys, a, b) == 0
                self.undetermined |= tie and tuple(map(group_key, a)) != tuple(map(group_key, b))
            found += [(*row, n) for n, row in enumerate(ordered, 1)]
        return found

    def sides(self, node: Join) -> tuple[Logical, Logical]:
        """The inputs of a join as relations; a stream becomes the relation of all its rows so
        far."""
        if id(node) not in self._sides:
            self._sides[id(node)] = node, (_so_far(node.left), _so_far(node.right))
        return self._sides[id(node)][1]

    def _joined(self, node: Join, now: int) -> Bag:
        """All pairs of present rows for which the condition holds.

        An outer join also shows the rows without a partner, with NULLs for the other side. A semi
        join shows the left rows with a partner; an anti join shows the left rows without one.

        >>> from tests.reference.naive import relations
        >>> from tests.reference.naive_tables import call, column, stream
        >>> from cql.base.window import Window
        >>> a, b = stream("a", "t bigint"), stream("b", "u bigint")
        >>> a, b = (Windowed(s, Window(WindowKind.RANGE, 0, range=5)) for s in (a, b))
        >>> less = call("lt", column(Join(a, b, "inner", None), "t"), 3)
        >>> data = relations({"a": [(1,), (3,)], "b": [(2,), (4,)]})
        >>> data.at(Join(a, b, "inner", less), 4)
        [(1, 2), (1, 4)]
        >>> data.at(Join(a, b, "left", less), 4)
        [(1, 2), (1, 4), (3, None)]
        >>> data.at(Join(a, b, "full", less), 7)
        [(3, None), (None, 2), (None, 4)]
        """
        left, right = (self.at(side, now) for side in self.sides(node))
        pairs = [
            (i, k)
            for i, one in enumerate(left)
            for k, other in enumerate(right)
            if self._holds(node.condition, (*one, *other))
        ]
        if node.kind in ("semi", "anti"):
            met = {i for i, _ in pairs}
            return [row for i, row in enumerate(left) if (i in met) == (node.kind == "semi")]
        found = [(*left[i], *right[k]) for i, k in pairs]
        if node.kind in ("left", "full"):
            met, nothing = {i for i, _ in pairs}, (None,) * len(node.right.schema)
            found += [(*row, *nothing) for i, row in enumerate(left) if i not in met]
        if node.kind in ("right", "full"):
            met, nothing = {k for _, k in pairs}, (None,) * len(node.left.schema)
            found += [(*nothing, *row) for k, row in enumerate(right) if k not in met]
        return found

    def _holds(self, condition: Expr | None, pair: tuple[Any, ...]) -> bool:
        """Whether the condition holds for ``pair``, evaluated once for equal pairs."""
        if condition is None:
            return True
        known = self._held.setdefault(id(condition), (condition, {}))[1]
        if pair not in known:
            known[pair] = is_true(condition, pair)
        return known[pair]

    # -- changes and streams ---------------------------------------------------------------------

    def changes(self, node: Logical) -> list[tuple[int, tuple[Any, ...], int]]:
        """The changelog: triples (instant, row, weight), the net difference between an instant and
        the previous one."""
        found = []
        before: Bag = []
        for now in [BEGINNING, *self.instants(node)]:
            rows = self.at(node, now)
            found += [(now, row, n) for row, n in _difference(before, rows)]
            before = rows
        return found

    def stream(self, node: RelationToStream) -> list[tuple[Any, ...]]:
        """The rows of a relation-to-stream operator.

        ISTREAM gives the rows that enter at an instant, net. DSTREAM gives the rows that leave,
        net. RSTREAM gives all rows at each instant at which a row enters or leaves.

        >>> from tests.reference.naive import relations
        >>> from tests.reference.naive_tables import stream
        >>> from cql.base.types import BIGINT
        >>> from cql.base.window import Window
        >>> s = Windowed(stream("s", "t bigint"), Window(WindowKind.RANGE, 0, range=2))
        >>> data = relations({"s": [(1,), (3,)]})
        >>> data.stream(RelationToStream(s, "DSTREAM", BIGINT))
        [(1, 4), (3, 6)]
        >>> data.stream(RelationToStream(s, "RSTREAM", BIGINT))
        [(1, 1), (1, 3), (3, 3), (3, 4)]
        """
        if node.kind == "RSTREAM":
            moments = sorted(self.touched(node.input))
            return [(*row, now) for now in moments for row in self.at(node.input, now)]
        sign = 1 if node.kind == "ISTREAM" else -1
        return [
            (*row, now)
            for now, row, weight in self.changes(node.input)
            for _ in range(max(sign * weight, 0))
        ]

    def touched(self, node: Logical) -> set[int]:
        """The instants at which some row of ``node`` enters or leaves, even in exchange for an
        equal row."""
        match node:
            case Windowed():
                return self._touched_by(node, lambda row: True)
            case Filter(input=Windowed() as window):
                return self._touched_by(window, lambda row: is_true(node.condition, row))
            case Project():
                return self.touched(node.input)
            case Union():
                return set().union(*(self.touched(i) for i in node.inputs))
            case _:
                return {now for now, _, _ in self.changes(node)}

    def _touched_by(self, node: Windowed, wanted: Callable[[tuple[Any, ...]], bool]) -> set[int]:
        found: set[int] = set()
        before: list[int] = []
        for now in self.instants(node):
            rows = self._window(node, now)
            ids = [id(row) for row in rows if wanted(row)]
            if Counter(ids) != Counter(before):
                found.add(now)
            entered = [row for t, row in self.members(node) if t == now and wanted(row)]
            if entered:  # even if the row left again at the same instant
                found.add(now)
            before = ids
        return found


def _so_far(node: Logical) -> Logical:
    match node:
        case Join():
            return node
        case Filter() | Project() if is_relation(node) or _is_join(node):
            return replace(node, input=_so_far(node.input))
        case _ if is_relation(node) or not progressing(node):
            return node
    return Windowed(node, Window(WindowKind.UNBOUNDED, min(progressing(node))))


def _is_join(node: Logical) -> bool:
    return isinstance(node, Join) or (isinstance(node, Filter | Project) and _is_join(node.input))


def parts_of(condition: Expr | None) -> Iterator[Expr]:
    """The operands of AND."""
    if isinstance(condition, Call) and condition.fn == "and":
        for arg in condition.args:
            yield from parts_of(arg)
    elif condition is not None:
        yield condition


class TwoRowsError(Exception):
    """A scalar subquery has two rows at an instant."""


def _equal(keys: list[Any], others: list[Any]) -> bool | None:
    if any(k is None or o is None for k, o in zip(keys, others, strict=True)):
        return None
    return [*map(group_key, keys)] == [*map(group_key, others)]


def _counted(rows: Bag, shown: dict[Any, tuple[Any, ...]]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in rows:
        key = tuple(map(group_key, row))
        shown.setdefault(key, row)
        found[key] += 1
    return found


def _difference(before: Bag, after: Bag) -> Iterator[tuple[tuple[Any, ...], int]]:
    rows: dict[Any, tuple[Any, ...]] = {}
    old, new = _counted(before, rows), _counted(after, rows)
    for key, row in rows.items():
        if old[key] != new[key]:
            yield row, new[key] - old[key]
