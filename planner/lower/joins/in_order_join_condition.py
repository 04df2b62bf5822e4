"""The condition of a join of several inputs: equal columns, bounds of time distances, and the rest.

Nested joins count as one: with the columns of all inputs, left to right, and one condition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from cql.base.types import Kind
from cql.planner.bind.scope import column_of
from cql.planner.functions import registry
from cql.planner.lower.joins.oop_join import bare, stays_of
from cql.planner.lower.joins.relation_join import holds_rows
from cql.planner.lower.ordering import MICROSECONDS
from cql.planner.nodes.catalog import TimeUnit
from cql.planner.nodes.expr import Call, Column, Expr, columns_of, conjuncts, rebuild
from cql.planner.nodes.logical import (
    Join,
    Logical,
    Scan,
    is_inner,
)
from cql.planner.nodes.physical import Physical
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.watermarks import NO_BOUND
from cql.planner.optimize.join_condition import (
    Band,
    Sides,
    condition_of,
    differences,
    equalities,
    is_timed,
    narrowest,
)

Lower: TypeAlias = Callable[[Logical], Physical]
#: (input, an expression over its columns).
Term: TypeAlias = tuple[int, Expr]
#: ``reaches[i][j]``: by how much a row of input j may be later than its partner of input i.
Reaches: TypeAlias = tuple[tuple[int, ...], ...]


class NotInOrderError(Exception):
    """The reason why inputs cannot be joined in order; its text continues the operator's name."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A join as the in-order operators take it.

    ``firsts`` are the places of each input's first column among all ``width`` columns. The terms of
    each of ``keys`` are equal. Each input is ordered by its entry of ``times``; ``reaches`` bounds
    the distances of these, and ``second`` is the number of their steps in a second. ``explicit``
    are the pairs of inputs whose distance the query states; other distances follow from these.
    ``rest`` are the other conditions."""

    inputs: tuple[Physical, ...]
    firsts: tuple[int, ...]
    width: int
    keys: tuple[tuple[Term, ...], ...]
    times: tuple[Expr, ...]
    reaches: Reaches
    explicit: frozenset[tuple[int, int]]
    rest: tuple[Expr, ...]
    second: float

    def place(self, column: int) -> tuple[int, int]:
        """The input of a column, and its place there."""
        number = max(i for i, first in enumerate(self.firsts) if first <= column)
        return number, column - self.firsts[number]

    def latest(self, expr: Expr) -> bool:
        """Whether ``expr`` is the latest of all times: their greatest, or a time that no other time
        exceeds."""
        given = expr.args if isinstance(expr, Call) and expr.fn == "greatest" else (expr,)
        found = {self._input(arg) for arg in given}
        if None in found:
            return False
        return all(
            j in found or any(i is not None and self.reaches[i][j] <= 0 for i in found)
            for j in range(len(self.inputs))
        )

    def _input(self, expr: Expr) -> int | None:
        """The input whose time is ``expr``; None if no input has it as its time."""
        if not isinstance(expr, Column):
            return None
        i, at = self.place(expr.index)
        time = self.times[i]
        return i if isinstance(time, Column) and time.index == at else None


def join_request_of(node: Join, lower: Lower) -> JoinRequest:
    """The inputs of ``node``, lowered, and its condition.

    Raises NotInOrderError for an outer join and for an input without a time."""
    if not is_inner(node):
        raise NotInOrderError(f"gives pairs of rows only, no {node.kind.upper()} JOIN")
    taken = _Taken()
    taken.add(node)
    taken.inputs = [lower(bare(leaf)) for leaf in taken.leaves]
    for part in taken.conditions:
        taken.note(part)
    taken.note_windows()
    times, reaches, explicit = taken.distances()
    taken.note_equal_columns_of_one_input()
    return JoinRequest(
        tuple(taken.inputs),
        tuple(taken.firsts),
        taken.width,
        tuple(tuple(terms) for terms in taken.keys),
        times,
        reaches,
        explicit,
        tuple(sorted(taken.rest, key=registry.can_fail)),
        taken.second(times),
    )


@dataclass(slots=True)
class _Band:
    """``part`` is the condition that states the band, None if windows or equal times imply it."""

    left: int
    right: int
    band: Band
    part: Expr | None


@dataclass(slots=True)
class _Taken:
    leaves: list[Logical] = field(default_factory=list)
    inputs: list[Physical] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    width: int = 0
    conditions: list[Expr] = field(default_factory=list)
    keys: list[list[Term]] = field(default_factory=list)
    bands: list[_Band] = field(default_factory=list)
    rest: list[Expr] = field(default_factory=list)

    def add(self, node: Join) -> None:
        """Collects the inputs and conditions of ``node`` and of the joins below it. A join whose
        condition can fail stays an input, so that the condition sees the pairs of that join only.
        """
        begins = self.width
        for side in (node.left, node.right):
            if isinstance(side, Join) and _joins_alike(side):
                self.add(side)
                continue
            self.leaves.append(side)
            self.firsts.append(self.width)
            self.width += len(side.schema)
        if node.condition is not None:
            self.conditions += [moved(part, begins) for part in conjuncts(node.condition)]

    def note(self, part: Expr) -> None:
        places = sorted({self._input_of(c) for c in columns_of(part)})
        if len(places) != 2:
            self.rest.append(part)
            return
        left, right = places
        sides = self._sides(left, right)
        pair = self._over_two(part, left, right)
        found_equal = equalities(pair, sides)
        for one, other in found_equal:
            self._note_equal((left, one), (right, other))
            if sides.progresses(one, 0) and sides.progresses(other, 1):
                self.bands.append(_Band(left, right, Band(one, other, 0, 0), None))
        if found_equal:
            return
        found = [band for band in differences(pair, sides) if is_timed(band, sides)]
        self.bands += [_Band(left, right, band, part) for band in found]
        if not found:
            self.rest.append(part)

    def note_windows(self) -> None:
        """Adds the bands of windows: rows join while both are in their windows (ends included)."""
        for j, right in enumerate(self.leaves):
            for i, left in enumerate(self.leaves[:j]):
                for a, stays in stays_of(left):
                    for b, waits in stays_of(right):
                        if min(stays, waits) < NO_BOUND:
                            band = Band(column_of(left, a), column_of(right, b), -waits, stays)
                            self.bands.append(_Band(i, j, band, None))

    def note_equal_columns_of_one_input(self) -> None:
        """Keeps one column per input in each key set; others become conditions of the input."""
        for terms in self.keys:
            kept: dict[int, Expr] = {}
            for number, expr in list(terms):
                if number in kept:
                    both = registry.resolve("eq", [kept[number], expr], None)
                    self.rest.append(moved(both, self.firsts[number]))
                    terms.remove((number, expr))
                kept.setdefault(number, expr)

    def _note_equal(self, one: Term, other: Term) -> None:
        found = [terms for terms in self.keys if one in terms or other in terms]
        self.keys = [terms for terms in self.keys if terms not in found]
        together = dict.fromkeys([one, other, *(term for terms in found for term in terms)])
        self.keys.append(sorted(together, key=lambda term: term[0]))

    # -- distances ---------------------------------------------------------------------------------

    def distances(self) -> tuple[tuple[Expr, ...], Reaches, frozenset[tuple[int, int]]]:
        """The time that orders each input, the reaches between these times, and the pairs with an
        explicit distance. Bands between other times become conditions in ``rest``."""
        times = self._times()
        count = len(self.inputs)
        reach = [[0 if i == j else NO_BOUND for j in range(count)] for i in range(count)]
        explicit = set()
        for one in self.bands:
            i, j, band = one.left, one.right, one.band
            if (band.left, band.right) == (times[i], times[j]):
                reach[i][j] = min(reach[i][j], band.high)
                reach[j][i] = min(reach[j][i], -band.low)
                explicit.add((i, j))
            elif one.part is not None:
                self.rest.append(one.part)
            else:
                self.rest.append(self._condition(one))
        self.rest = list(dict.fromkeys(self.rest))
        for k in range(count):
            for i in range(count):
                for j in range(count):
                    through = min(reach[i][k] + reach[k][j], NO_BOUND)
                    reach[i][j] = min(reach[i][j], through) if i != j else 0
        return times, tuple(tuple(row) for row in reach), frozenset(explicit)

    def _times(self) -> tuple[Expr, ...]:
        """For two inputs the times of the narrowest band, else per input the time in most bands."""
        if len(self.inputs) == 2 and self.bands:
            chosen = narrowest([one.band for one in self.bands])
            assert chosen is not None
            return chosen.left, chosen.right
        return tuple(self._time(number) for number in range(len(self.inputs)))

    def _time(self, number: int) -> Expr:
        child, uses = self.inputs[number], dict[Expr, int]()
        for one in self.bands:
            ends = ((one.left, one.band.left), (one.right, one.band.right))
            for at, expr in ends:
                if at == number:
                    uses[expr] = uses.get(expr, 0) + 1 + one.band.closed
        if uses:
            return max(uses, key=lambda expr: uses[expr])
        live = child.progressing
        if not live:
            name = _name_of(self.leaves[number])
            raise NotInOrderError(f"takes inputs in order, and no column of {name} has a watermark")
        field_ = child.schema[live[0]]
        return Column(live[0], field_.name, field_.type, field_.nullable)

    def _condition(self, one: _Band) -> Expr:
        """The band as a condition over the columns of all inputs."""
        sides = self._sides(one.left, one.right)
        width, firsts = sides.width, (self.firsts[one.left], self.firsts[one.right])

        def place(expr: Expr) -> Expr:
            if isinstance(expr, Column):
                at = expr.index
                wide = firsts[0] + at if at < width else firsts[1] + at - width
                return replace(expr, index=wide)
            return rebuild(expr, place)

        return place(condition_of(one.band, sides))

    def second(self, times: Sequence[Expr]) -> float:
        """Steps of event time in a second; an integer without a unit counts seconds."""
        for leaf, time in zip(self.leaves, times, strict=True):
            if time.type.is_timestamp:
                return 1e6
            if time.type.kind is Kind.DATE:
                return float(1_000_000 / MICROSECONDS[TimeUnit.DAYS])
            live = bare(leaf).progressing
            unit = (
                live[time.index].unit if isinstance(time, Column) and time.index in live else None
            )
            if unit is not None:
                return float(1_000_000 / MICROSECONDS[unit])
        return 1.0

    # -- columns -----------------------------------------------------------------------------------

    def _input_of(self, column: int) -> int:
        return max(i for i, first in enumerate(self.firsts) if first <= column)

    def _sides(self, left: int, right: int) -> Sides:
        one, other = self.inputs[left], self.inputs[right]
        return Sides(len(self.leaves[left].schema), one.progressing, other.progressing)

    def _over_two(self, expr: Expr, left: int, right: int) -> Expr:
        """``expr`` over the columns of inputs ``left`` and ``right`` alone."""
        if isinstance(expr, Column):
            at = self._input_of(expr.index)
            own = expr.index - self.firsts[at]
            return replace(expr, index=own + (at == right) * len(self.leaves[left].schema))
        return rebuild(expr, lambda e: self._over_two(e, left, right))


def joins_streams(node: Join) -> bool:
    """Whether ``node`` emits each pair of rows of two streams once."""
    return is_inner(node) and not node.looks_up and not holds_rows(node)


def _joins_alike(node: Join) -> bool:
    """Whether the join above can take in ``node``: it joins streams, and none of its conditions can
    fail. A condition that bounds the distance of two times counts as safe: it becomes a band."""
    parts: Sequence[Expr] = () if node.condition is None else conjuncts(node.condition)
    times = (tuple(side.progressing) for side in (node.left, node.right))
    sides = Sides(len(node.left.schema), *times)

    def fails(part: Expr) -> bool:
        bands = (band for band in differences(part, sides) if is_timed(band, sides))
        return registry.can_fail(part) and not any(True for _ in bands)

    return joins_streams(node) and not any(fails(e) for e in parts)


def _name_of(node: Logical) -> str:
    names = list(_names(node))
    return names[0] if names else "an input"


def _names(node: Logical) -> Iterator[str]:
    if isinstance(node, Scan):
        yield ".".join(node.relation.name)
    for child in node.inputs:
        yield from _names(child)


def moved(expr: Expr, by: int) -> Expr:
    """``expr`` with its columns moved by ``by`` places."""
    if isinstance(expr, Column):
        return replace(expr, index=expr.index + by)
    return rebuild(expr, lambda e: moved(e, by))
