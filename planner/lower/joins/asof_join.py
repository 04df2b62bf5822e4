"""ASOF joins: their condition and their operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cql.errors import NotSupportedError, PlanError, Position
from cql.planner.functions import registry
from cql.planner.lower.joins.hints import length, names_of
from cql.planner.lower.joins.pair_columns import with_columns, without_late_rows
from cql.planner.nodes.expr import Expr, Literal, children, conjunction, conjuncts
from cql.planner.nodes.logical import Join, Logical
from cql.planner.nodes.physical import (
    AsofJoinExec,
    FilterExec,
    Physical,
    read_ahead,
    sources,
)
from cql.planner.nodes.show import show, show_of
from cql.planner.nodes.watermarks import NO_BOUND
from cql.planner.optimize.join_condition import (
    Band,
    Sides,
    differences,
    equalities,
)
from cql.planner.placement.partitioning import of_join

Lower: TypeAlias = Callable[[Logical], Physical]
_EXAMPLE = "ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts"


@dataclass(frozen=True, slots=True)
class _Terms:
    """The parts of the condition. ``band`` combines the inequality and a tolerance; ``left`` and
    ``right`` are the conditions on one side."""

    keys: tuple[tuple[Expr, Expr], ...]
    band: Band
    backward: bool
    left: tuple[Expr, ...]
    right: tuple[Expr, ...]


def asof_join(node: Join, lower: Lower) -> Physical:
    """Pairs each left row with the nearest right row.

    Raises PlanError if the condition has not exactly one inequality of times, or if rows would wait
    for ever for an endless input; NotSupportedError for conditions of another form."""
    width = len(node.left.schema)
    terms = _split_condition(node, Sides(width, (), ()))
    left, right = lower(node.left), lower(node.right)
    if node.right.is_table:
        right = read_ahead(right)
    left, right = without_late_rows(left), without_late_rows(right)
    if terms.left:
        left = FilterExec(left, conjunction(terms.left))
    if terms.right:
        right = FilterExec(right, conjunction(terms.right))
    left, (a, *lefts) = with_columns(left, [terms.band.left, *(k for k, _ in terms.keys)])
    right, (b, *rights) = with_columns(right, [terms.band.right, *(k for _, k in terms.keys)])
    for side, column, expr in ((left, a, terms.band.left), (right, b, terms.band.right)):
        if column not in side.progressing and not side.bounded:
            raise PlanError(
                f"{show(expr)} has no watermark: no row of an ASOF JOIN over the endless input"
                f" {_names(side)} would ever be the nearest for certain",
                position=node.pos,
                hint="declare ORDERED BY or WATERMARK on it",
            )
    band, backward = terms.band, terms.backward
    closed = band.low > -NO_BOUND and band.high < NO_BOUND
    tolerance = band.high - band.low if closed else None
    if not backward and tolerance is None and not right.bounded:
        raise _waits(node, band, right)
    columns = (*range(width), *(len(left.schema) + k for k in range(len(node.right.schema))))
    why = f"the {'latest row before' if backward else 'earliest row after'} each one, by key"
    return AsofJoinExec(
        left,
        right,
        tuple(zip(lefts, rights, strict=True)),
        (a, b),
        backward,
        band.high if backward else band.low,
        tolerance,
        node.kind == "asof left",
        columns,
        why,
        pos=node.pos,
        partitioning=of_join(node, terms.keys),
    )


def _waits(node: Join, band: Band, right: Physical) -> PlanError:
    a = show_of(band.left, names_of(node.left.schema))
    b = show_of(band.right, names_of(node.right.schema))
    unit = next((info.unit for info in node.left.progressing.values()), None)
    return PlanError(
        f"rows would wait for ever for a later row of the endless input {_names(right)}",
        position=node.pos,
        hint=f"say how long: AND {b} - {a} <= {length(60, band.left.type, unit)}",
    )


def _names(side: Physical) -> str:
    return ", ".join(dict.fromkeys(s.name for s in sources(side)))


def _split_condition(node: Join, sides: Sides) -> _Terms:
    keys: list[tuple[Expr, Expr]] = []
    bands: list[tuple[Band, Expr]] = []
    single: tuple[list[Expr], list[Expr]] = ([], [])
    for part in [] if node.condition is None else conjuncts(node.condition):
        pairs = equalities(part, sides, ())
        side = sides.of(part)
        if pairs:
            keys += pairs
        elif found := list(differences(part, sides)):
            bands += [(band, part) for band in found]
        elif side is not None and not registry.can_fail(part) and (side or node.kind == "asof"):
            single[side].append(sides.own(part))
        else:
            raise _refused(part, node.pos)
    band, backward = _nearest(bands, node.pos)
    return _Terms(tuple(keys), band, backward, tuple(single[0]), tuple(single[1]))


def _refused(part: Expr, pos: Position | None) -> NotSupportedError:
    return NotSupportedError(
        f"this condition of ASOF JOIN is not supported by this version: {show(part)}",
        position=part.pos or pos,
        hint="equalities, one inequality between times (timestamps or integers), and how far apart"
        f" these may be: {_EXAMPLE} AND a.ts - b.ts <= INTERVAL 1 HOUR",
    )


def _nearest(bands: Sequence[tuple[Band, Expr]], pos: Position | None) -> tuple[Band, bool]:
    """The intersection of all ``bands``, and whether the join takes the latest row (else the
    earliest). The one inequality that compares the times themselves decides the direction."""
    open_ = [(band, part) for band, part in bands if not band.closed]
    plain = [(band, part) for band, part in open_ if _compares(band, part)] or open_
    if not plain:
        raise PlanError(
            "ASOF JOIN needs an inequality between a time of each side", position=pos, hint=_EXAMPLE
        )
    if len(plain) > 1:
        raise PlanError(
            "ASOF JOIN takes one inequality between times, and this is a second one",
            position=plain[1][1].pos or pos,
            hint="how far apart they may be, a difference says: a.ts - b.ts <= INTERVAL 1 HOUR",
        )
    chosen = whole = plain[0][0]
    for band, part in bands:
        if (band.left, band.right) != (chosen.left, chosen.right):
            raise _refused(part, pos)
        whole = whole.both(band)
    return whole, chosen.high < NO_BOUND


def _compares(band: Band, part: Expr) -> bool:
    """Whether ``part`` compares the times themselves, as ``a.ts >= b.ts`` does."""
    of_difference = any(isinstance(arg, Literal) for arg in children(part))
    return not of_difference and abs(band.high if band.high < NO_BOUND else band.low) <= 1
