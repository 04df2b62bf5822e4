"""The cost of a plan: nanoseconds on one thread for each row that the plan reads, and how much of
that work several workers can do at once.

The figures were measured (the design's section 4, and EXPLAIN ANALYZE of queries like them). They
decide between one core and several, where a factor of two either way changes little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, TypeAlias, assert_never

from cql.base.window import WindowKind
from cql.planner.nodes.catalog import Statistics
from cql.planner.nodes.expr import Call, Cast, Column, Expr, Literal, children, walk
from cql.planner.nodes.physical import (
    ArrivalExec,
    AsofJoinExec,
    BucketExec,
    ChangeAggregateExec,
    FilterExec,
    NumberExec,
    OnTimeExec,
    OopJoinExec,
    Physical,
    ProjectExec,
    SourceExec,
    ValuesExec,
    WidAggregateExec,
    sources,
)
from cql.planner.nodes.physical import walk as walk_plan
from cql.planner.nodes.physical.numbers import NodeNumbers


class Share(IntEnum):
    """How far workers can share an operator. In a kernel of several operators the least holds."""

    PYTHON = 0  # one at a time of all operators with this share: Python, and the reading of inputs
    ALONE = 1  # one worker at a time
    KEYS = 2  # each on partitions of its keys
    MORSELS = 3  # each on morsels of its own


@dataclass(frozen=True, slots=True)
class Keyed:
    """An operator that may be split into partitions. ``node`` is the number of its plan node
    (``NodeNumbers``), ``row`` the nanoseconds for each row of the plan while the operator is whole,
    ``more`` the additional ones if it is split (to split rows by key, and to put its outputs in
    order). The partitions of a join (``is_join``) each find their rows among all."""

    node: int
    row: float
    more: float
    is_join: bool


@dataclass(frozen=True, slots=True)
class Cost:
    """``rows`` is the number of rows that a plan reads, None if it is unknown or not looked up;
    ``estimated``: by a sample. The others are nanoseconds for each of these rows: ``row`` on one
    thread; ``python`` the part that holds the interpreter or reads inputs; ``alone`` the heaviest
    operator that one worker runs at a time; ``more`` to hand rows over between workers. ``keyed``
    are the operators that may be split. ``results`` is the number of rows of the output for each
    row."""

    rows: int | None
    row: float
    python: float
    alone: float
    more: float
    keyed: tuple[Keyed, ...] = ()
    estimated: bool = False
    results: float = 0.0

    @property
    def rows_text(self) -> str:
        """The number of rows, if it is known: ``1,234 rows``, ``about 1,200 rows``."""
        assert self.rows is not None
        about = f"about {rounded(self.rows):,}" if self.estimated else f"{self.rows:,}"
        return f"{about} row{'' if self.rows == 1 else 's'}"

    def among(self, workers: int) -> float:
        """Nanoseconds per row if ``workers`` share the plan."""
        return self._best(workers)[0] if workers > 1 else self.row

    def split(self, workers: int) -> tuple[Keyed, ...]:
        """The operators that are worth splitting. Others stay whole, at no extra cost: operators
        run at the same time, so that only one with more than one worker's share of the work delays
        the others."""
        return self._heaviest()[: self._best(workers)[1]]

    def _heaviest(self) -> tuple[Keyed, ...]:
        return tuple(sorted(self.keyed, key=lambda keyed: -keyed.row))

    def _best(self, workers: int) -> tuple[float, int]:
        """Nanoseconds per row, and how many of the heaviest operators to split for this time."""
        heaviest, more, found = self._heaviest(), self.more, list[tuple[float, int]]()
        for k in range(len(heaviest) + 1):
            whole = heaviest[k].row if k < len(heaviest) else 0.0
            time = max((self.row + more) / workers, self.python, self.alone, whole)
            found.append((time, k))
            more += heaviest[k].more if k < len(heaviest) else 0.0
        return min(found)


def rounded(number: float) -> int:
    """The number with two significant digits."""
    return int(float(f"{number:.2g}"))


#: Assumed rows of an input without statistics, among other inputs.
_ROWS = 1_000_000
#: The share of rows that a filter keeps, as for the order of joins; groups per row.
_KEPT, _GROUPS = 1 / 3, 0.1
#: Nanoseconds to cut a row off a block; to find the code of a text; to hand a row to Python.
_READ, _ENCODE, _GIVE = 1.0, 18.0, 1.0
_SIMPLE, _FUNCTION, _TEXT, _PATTERN, _PYTHON = 0.7, 5.0, 3.0, 250.0, 1000.0
_PATTERNS = frozenset(("rlike", "regexp_extract", "regexp_replace"))
_SLOW = frozenset(("acos", "asin", "atan", "atan2", "cbrt", "cos", "cosh", "exp", "ln", "log10"))
_SLOW |= {"log2", "pow", "sin", "sinh", "sqrt", "tan", "tanh", "date_format", "to_timestamp"}
#: Nanoseconds per (row, group) pair, by the largest number of groups; then for each aggregate call,
#: for an aggregate that keeps values beside its groups, and for a session window.
_GROUPED = ((10_000, 3.0), (300_000, 12.0), (1 << 62, 43.0))
_CALL, _VALUES, _SESSION = 0.8, 130.0, 60.0
#: Nanoseconds to hand a row over between workers; to split it by key (partitions have morsels of
#: few rows and find groups half as fast); to find the rows of each partition of a join.
_HAND_ON, _SPLIT, _JOIN_APART = 1.0, 6.0, 10.0
#: Nanoseconds to keep a row and look for its partners; nanoseconds per pair; pairs per row.
_JOIN, _PAIR, _MET = 25.0, 15.0, 0.5
#: Nanoseconds per row of an ASOF join, and of one with several rows of a key.
_ASOF, _ASOF_ROWS = 25.0, 70.0
#: Steps that run in the kernel of the operator below them or of the aggregate above them.
Step: TypeAlias = FilterExec | ProjectExec | BucketExec | OnTimeExec | ArrivalExec | NumberExec


def cost(plans: Sequence[Physical], *, read_statistics: bool) -> Cost:
    """The cost of plans that run as one; a part that several plans share counts once.
    ``read_statistics`` looks up the statistics of the inputs, which may have to be read from many
    files; without it all inputs count as equally large."""
    estimate = _Estimate(plans, read_statistics)
    for plan in plans:
        estimate.give(plan)
    found = sources(*plans)
    known = [s.relation.statistics if read_statistics else Statistics() for s in found]
    rows = [s.expected_rows for s in known]
    read = max(sum(estimate.rows_of(s) for s in found), 1.0)
    return Cost(
        None if None in rows else sum(n or 0 for n in rows),
        estimate.total / read,
        estimate.python / read,
        estimate.alone / read,
        estimate.more / read,
        tuple(replace(k, row=k.row / read, more=k.more / read) for k in estimate.keyed),
        any(s.rows is None for s in known),
        sum(estimate.rows_of(plan) for plan in plans) / read,
    )


def calls_python(plan: Physical) -> bool:
    """Whether Python has work to do for each morsel, however few rows the morsel has."""
    for node in walk_plan(plan):
        if node.runs_python:
            return True
        if isinstance(node, WidAggregateExec) and any(c.beside is not None for c in node.calls):
            return True
    return False


class _Estimate:
    """Adds up nanoseconds, node by node."""

    def __init__(self, plans: Sequence[Physical], read_statistics: bool) -> None:
        self._nodes = NodeNumbers(*plans)
        self._read_statistics = read_statistics
        self.total = self.python = self.alone = self.more = 0.0
        self.keyed: list[Keyed] = []
        self._known: dict[int, float] = {}

    def give(self, root: Physical) -> None:
        """Adds the cost of handing out the results of a plan."""
        self._add(self.rows_of(root), _GIVE, Share.PYTHON)

    def rows_of(self, node: Physical) -> float:
        """The number of rows that a node emits."""
        number = self._nodes[node]
        if number not in self._known:
            self._known[number] = self._visit(node)
        return self._known[number]

    def _add(self, rows: float, each: float, share: Share) -> None:
        self.total += rows * each
        if share is Share.PYTHON:
            self.python += rows * each
        elif share is Share.ALONE:
            self.alone = max(self.alone, rows * each)

    def _visit(self, node: Physical) -> float:
        if isinstance(node, SourceExec):
            known = node.relation.statistics.expected_rows if self._read_statistics else None
            rows = float(_ROWS if known is None else max(known, 1))
            texts = sum(f.type.is_coded for f in node.schema)
            self._add(rows, _READ + _ENCODE * texts, Share.PYTHON)
            return rows
        if isinstance(node, ValuesExec):
            return float(len(node.rows))
        if isinstance(node, OopJoinExec):
            return self._join(node)
        if isinstance(node, AsofJoinExec):
            rows = sum(self.rows_of(child) for child in node.inputs)
            self._add_join(node, rows, _ASOF if node.rows == 1 else _ASOF_ROWS)
            return rows
        if isinstance(node, Step | WidAggregateExec):
            return self._stage(node)
        if isinstance(node, ChangeAggregateExec):
            own = sum(call.function is not None for call in node.calls)
            self._add(self.rows_of(node.input), own * _PYTHON, Share.PYTHON)
        return self._other(node)

    def _other(self, node: Physical) -> float:
        """An operator with its own kernel or in Python."""
        rows, each = sum(self.rows_of(child) for child in node.inputs), node.row_cost
        share = Share.ALONE
        if node.runs_python:
            share = Share.PYTHON
        elif node.can_split:
            share, more = Share.KEYS, rows * (_SPLIT + _JOIN_APART)
            self.keyed.append(Keyed(self._nodes[node], rows * each, more, is_join=False))
        elif node.shares_morsels:
            share = Share.MORSELS
            self.more += rows * _HAND_ON
        self._add(rows, each, share)
        return rows * node.rows_per_row

    def _join(self, node: OopJoinExec) -> float:
        rows = sum(self.rows_of(child) for child in node.inputs)
        rest = _expressions(node.rest)
        each = rest.each + _JOIN + _PAIR * _MET
        self._add(rows, rest.held, Share.PYTHON)
        self._add_join(node, rows, each)
        return rows * _MET

    def _add_join(self, node: OopJoinExec | AsofJoinExec, rows: float, each: float) -> None:
        if node.can_split:
            more = rows * (_SPLIT + _JOIN_APART)
            self.keyed.append(Keyed(self._nodes[node], rows * each, more, is_join=True))
            self._add(rows, each, Share.KEYS)
        else:
            self._add(rows, each, Share.ALONE)

    def _stage(self, node: Physical) -> float:
        """Steps that share a kernel: those above an aggregate run in its kernel, and so do those
        below it, unless the aggregate is split."""
        above: list[Step] = []
        while isinstance(node, Step):
            above.insert(0, node)
            node = node.input
        if not isinstance(node, WidAggregateExec):
            return self._steps(above, self.rows_of(node), Share.MORSELS)
        aggregate, below = node, node.input
        steps: list[Step] = []
        while isinstance(below, FilterExec | ProjectExec | NumberExec):
            steps.insert(0, below)
            below = below.input
        rows, before = self.rows_of(below), self.total
        if aggregate.can_split:
            rows = self._aggregate(aggregate, self.rows_of(aggregate.input), before)
            return self._steps(above, rows, Share.KEYS)
        rows = self._aggregate(aggregate, self._steps(steps, rows, Share.ALONE))
        rows = self._steps(above, rows, Share.ALONE)
        self.alone = max(self.alone, self.total - before)
        return rows

    def _aggregate(self, node: WidAggregateExec, rows: float, before: float | None = None) -> float:
        """``before`` is the total cost of what lies below the kernel that the whole aggregate runs
        in; None if the aggregate cannot be split."""
        read = _expressions((*node.keys, *(e for call in node.calls for e in call.read)))
        each, held, needed = read.each, read.held, read.share
        find = next(ns for most, ns in _GROUPED if self._groups(node, rows) <= most)
        each += find
        for call in node.calls:
            held += _PYTHON if call.function is not None else 0.0
            each += _CALL
            if call.beside is not None:  # values are sorted when the window closes, by Python
                each, needed = each + _VALUES, Share.ALONE
        window = node.window
        if window is not None and window.kind is WindowKind.SESSION:
            each += _SESSION
        pairs = window is not None and window.kind is WindowKind.SLIDING and node.pane is None
        if pairs and window is not None:
            each, held = each * max(window.overlap, 1), held * max(window.overlap, 1)
        self._add(rows, held, Share.PYTHON)
        if before is None or needed is Share.ALONE:
            self._add(rows, each, Share.ALONE)
        else:
            self._add(rows, each, Share.KEYS)
            more = rows * (_SPLIT + find)
            self.keyed.append(Keyed(self._nodes[node], self.total - before, more, is_join=False))
        return rows * _GROUPS

    def _groups(self, node: WidAggregateExec, rows: float) -> float:
        """Expected number of groups at a time: by the statistics of plain key columns, else per key
        a tenth of the rows, at most 100,000."""
        groups = 1.0
        for key in node.keys:
            distinct = _distinct(node.input, key) if self._read_statistics else None
            groups *= min(rows * _GROUPS, 1e5) if distinct is None else distinct
        return min(groups, rows)

    def _steps(self, steps: Sequence[Step], rows: float, share: Share) -> float:
        """One kernel: workers can share its steps only as far as every single step allows."""
        costs: list[tuple[float, float]] = []
        for step in steps:
            match step:
                case FilterExec():
                    read = _expressions((step.condition,))
                    needed = read.share
                    self._add(rows, read.held, Share.PYTHON)
                    costs.append((rows, read.each + _SIMPLE))
                    rows *= _KEPT
                case ProjectExec():
                    read = _expressions(step.exprs)
                    needed = read.share
                    self._add(rows, read.held, Share.PYTHON)
                    costs.append((rows, read.each))
                case BucketExec():
                    needed, rows = share, rows * max(step.window.overlap, 1)
                    costs.append((rows, 3.0))
                case NumberExec():
                    needed = Share.ALONE
                    costs.append((rows, _SIMPLE))
                case OnTimeExec() | ArrivalExec():
                    needed = share
                    costs.append((rows, _SIMPLE))
                case _:
                    assert_never(step)
            share = min(share, needed)
        for taken, each in costs:
            self._add(taken, each, share)
            self.more += taken * _HAND_ON if share >= Share.KEYS else 0.0
        return rows


def _distinct(node: Physical, key: Expr) -> float | None:
    while isinstance(node, FilterExec) and isinstance(key, Column):
        node = node.input
    if not (isinstance(key, Column) and isinstance(node, SourceExec)):
        return None
    return node.relation.statistics.distinct.get(node.schema[key.index].name)


class _Read(NamedTuple):
    """Nanoseconds per row, and how far workers can share them. ``held`` are further nanoseconds, of
    Python, which runs one thread at a time. User functions that are not declared parallel count as
    Python, because the planner does not know whether they can be compiled."""

    each: float
    held: float
    share: Share


def _expressions(given: Iterable[Expr]) -> _Read:
    each, held, share = 0.0, 0.0, Share.MORSELS
    for part in given:
        for expr in walk(part):
            if isinstance(expr, Column | Literal):
                continue
            if isinstance(expr, Call) and (function := expr.function) is not None:
                each += _PYTHON if function.parallel else 0.0
                held += 0.0 if function.parallel else _PYTHON
                share = Share.ALONE if function.parallel is False else share
            elif not _reads_texts(expr):
                each += _FUNCTION if isinstance(expr, Call) and expr.fn in _SLOW else _SIMPLE
            elif _is_looked_up(expr):
                each += _PATTERN if isinstance(expr, Call) and expr.fn in _PATTERNS else _TEXT
            else:
                held += _TEXT
    return _Read(each, held, share)


def _reads_texts(expr: Expr) -> bool:
    """Whether ``expr`` needs more of texts than whether they are equal."""
    if isinstance(expr, Call) and expr.fn in ("eq", "ne", "is_null", "coalesce"):
        return False
    coded = any(part.type.is_coded for part in (expr, *children(expr)))
    return isinstance(expr, Call | Cast) and coded


def _is_looked_up(expr: Expr) -> bool:
    """Whether kernels look ``expr`` up in a table: a function of one text runs once per text."""
    return sum(not isinstance(part, Literal) for part in children(expr)) <= 1
