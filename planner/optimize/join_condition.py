"""The condition of a join, taken apart: equal columns, a band between two times, the rest.

``a <=> b`` is an equality in which NULL is a value. Where both sides can be NULL it becomes two
equalities whose sides are never NULL, so that every operator that looks rows up by key supports it:
``a IS NULL = b IS NULL`` and ``coalesce(a, zero) = coalesce(b, zero)``.

A band bounds the distance of two progressing attributes: ``low <= right - left <= high``
(out-of-order paper §5.3). The band bounds the state of a join.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cql.base.types import BIGINT, BOOLEAN, INTERVAL, DataType, Kind
from cql.planner.functions import registry
from cql.planner.interpret.entries import empty_entry
from cql.planner.nodes.expr import Call, Cast, Column, Expr, Literal, columns_of, rebuild
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.watermarks import NO_BOUND, progress_origin

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
#: Two expressions that have to be equal, with NULL equal to nothing.
Pair: TypeAlias = tuple[Expr, Expr]
#: A base expression and the constant that is added to it.
Shifted: TypeAlias = tuple[Expr, int]


@dataclass(frozen=True, slots=True)
class Band:
    """``low <= right - left <= high`` in the unit of both times; ``NO_BOUND`` stands for no limit.
    ``left`` and ``right`` are expressions over the columns of their side."""

    left: Expr
    right: Expr
    low: int = -NO_BOUND
    high: int = NO_BOUND

    @property
    def closed(self) -> bool:
        """Whether the band bounds the state of both sides."""
        return self.low > -NO_BOUND and self.high < NO_BOUND

    def both(self, other: Band) -> Band:
        """The intersection of this band and ``other``, which has the same attributes."""
        return replace(self, low=max(self.low, other.low), high=min(self.high, other.high))


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a condition. ``keys`` are pairs of equal expressions over the left and over the
    right, with NULL equal to nothing; ``rest`` reads the columns of both, those of the left first.
    """

    keys: tuple[Pair, ...]
    band: Band | None
    rest: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Sides:
    """The columns of both sides of a join: the first ``width`` are the left's. ``left`` and
    ``right`` are the columns that progress, counted per side."""

    width: int
    left: tuple[int, ...]
    right: tuple[int, ...]

    def of(self, expr: Expr) -> int | None:
        """0 if ``expr`` reads the left alone, 1 the right alone, None otherwise."""
        sides = {int(c >= self.width) for c in columns_of(expr)}
        return sides.pop() if len(sides) == 1 else None

    def own(self, expr: Expr) -> Expr:
        """``expr``, which reads one side, over the columns of that side."""
        if isinstance(expr, Column):
            at = expr.index
            return replace(expr, index=at if at < self.width else at - self.width)
        return rebuild(expr, self.own)

    def progresses(self, expr: Expr, side: int) -> bool:
        live = self.right if side else self.left
        return progress_origin(expr, live) is not None


def split_condition(parts: Sequence[Expr], windows: Sequence[Band], sides: Sides) -> Terms:
    """The terms of a conjunction. ``windows`` are the bands that the inputs' windows imply. All
    bands hold: those that are not chosen as the band of the join become part of the rest."""
    keys: list[Pair] = []
    bands: list[tuple[Band, Expr | None]] = [(band, None) for band in windows]
    rest: list[Expr] = []
    guarded: set[int] = set()
    for part in parts:
        pairs = equalities(part, sides, guarded)
        if (alone := sides.of(part)) is not None:
            guarded.add(alone)
        if pairs:
            keys += pairs
            at_once = [Band(*pair, 0, 0) for pair in pairs]
            bands += [(band, None) for band in at_once if is_timed(band, sides)]
            continue
        found = [band for band in differences(part, sides) if is_timed(band, sides)]
        if found:
            bands.extend((band, part) for band in found)
        else:
            rest += by_one_side(part, sides)
    band = narrowest([band for band, _ in bands])
    chosen = None if band is None else (band.left, band.right)
    left_over = [p for b, p in bands if p is not None and (b.left, b.right) != chosen]
    rest += [e for part in dict.fromkeys(left_over) for e in by_one_side(part, sides)]
    rest += [condition_of(b, sides) for b in windows if (b.left, b.right) != chosen]
    # Conditions that cannot fail come first: AND guards left to right.
    rest.sort(key=registry.can_fail)
    if band is not None and len(keys) > 1 and (band.low, band.high) == (0, 0):
        # the band implies this key; rows of one key are in time order, and the table is smaller
        keys = [pair for pair in keys if pair != (band.left, band.right)]
    return Terms(tuple(keys), band, tuple(rest))


def equalities(part: Expr, sides: Sides, guarded: Collection[int] = (0, 1)) -> list[Pair]:
    """Pairs of expressions over the left and over the right that have to be equal for ``part`` to
    hold. Empty if ``part`` is no equality that can be looked up: the join computes each side for
    every row of its input, so a side must not fail, or only by overflow where no condition before
    ``part`` can guard it."""
    compared = compares_equal(part)
    if compared is None:
        return []
    a, b, null_safe = compared
    found = (sides.of(a), sides.of(b))
    for arg, side in zip((a, b), found, strict=True):
        if registry.can_fail(arg) and (side in guarded or not registry.only_overflows(arg)):
            return []
    if found == (1, 0):
        a, b = b, a
    elif found != (0, 1):
        return []
    pair = sides.own(a), sides.own(b)
    # the time of a row that joins is never NULL
    timed = any(sides.progresses(e, side) for side, e in enumerate(pair))
    return null_safe_pairs(pair) if null_safe and not timed else [pair]


def compares_equal(part: Expr) -> tuple[Expr, Expr, bool] | None:
    """The two sides of an equality, and whether it takes two NULLs as equal: ``a = b``, ``a <=>
    b``, ``NOT a IS DISTINCT FROM b``, ``a = b OR (a IS NULL AND b IS NULL)``."""
    match part:
        case Call(fn="eq", args=(a, b)):
            return a, b, False
        case Call(fn="null_safe_eq", args=(a, b)):
            return a, b, True
        case Call(fn="not", args=(Call(fn="is_distinct_from", args=(a, b)),)):
            return a, b, True
        case Call(fn="or", args=(one, other)):
            for equal, nulls in ((one, other), (other, one)):
                if isinstance(equal, Call) and equal.fn == "eq" and _both_null(nulls, equal.args):
                    return equal.args[0], equal.args[1], True
    return None


def _both_null(part: Expr, compared: Sequence[Expr]) -> bool:
    """Whether ``part`` is ``a IS NULL AND b IS NULL`` of the ``compared`` expressions, with or
    without the cast of a side."""
    if not (isinstance(part, Call) and part.fn == "and" and len(part.args) == 2):
        return False
    tested = [e.args[0] for e in part.args if isinstance(e, Call) and e.fn == "is_null"]
    bare = [e.arg if isinstance(e, Cast) and not e.safe else e for e in compared]
    either = [(full, plain) for full, plain in zip(compared, bare, strict=True)]
    return len(tested) == 2 and (
        all(e in either[k] for k, e in enumerate(tested))
        or all(e in either[1 - k] for k, e in enumerate(tested))
    )


def null_safe_pairs(pair: Pair) -> list[Pair]:
    """``left <=> right`` as equalities in which NULL is equal to nothing."""
    left, right = pair
    if not (left.nullable and right.nullable):
        return [pair]
    nulls = tuple(Call("is_null", (e,), BOOLEAN, False, e.pos) for e in pair)
    known = (nulls[0], nulls[1])
    if left.type.kind is Kind.NULL:
        return [known]
    zero = Literal(zero_of(left.type), left.type)
    values = [Call("coalesce", (e, zero), e.type, False, e.pos) for e in pair]
    return [(values[0], values[1]), known]


def zero_of(kind: DataType) -> bool | int | float | str | bytes:
    """A value of a type, as literals hold it: zero, or an empty one."""
    if kind.is_fraction:
        return 0.0
    if kind.is_nested:
        return empty_entry(kind)
    match kind.kind:
        case Kind.BOOLEAN:
            return False
        case Kind.STRING:
            return ""
        case Kind.BINARY:
            return b""
        case _:
            return 0


def key_column(key: Expr) -> Expr:
    """The expression whose value a side of a key holds: also ``a`` of ``coalesce(a, zero)``."""
    if isinstance(key, Call) and key.fn == "coalesce" and isinstance(key.args[1], Literal):
        return key.args[0]
    return key


def by_one_side(part: Expr, sides: Sides) -> list[Expr]:
    """``part``; or, if it compares the distance of two times with a length and can overflow,
    comparisons of one time with the sum of the other and the length, which one side computes."""
    found = list(differences(part, sides)) if registry.can_fail(part) else []
    if len(found) != 1 or not (found[0].left.type.is_timestamp or is_timed(found[0], sides)):
        return [part]
    (band,) = found
    made = []
    for fn, length in (("ge", band.low), ("le", band.high)):
        if abs(length) < NO_BOUND:
            by = Literal(length, INTERVAL if band.left.type.is_timestamp else BIGINT)
            left = registry.resolve("add", [band.left, by], part.pos)
            right = _outward(band.right, sides.width)
            made.append(registry.resolve(fn, [right, left if length else band.left], part.pos))
    return made


def _outward(expr: Expr, width: int) -> Expr:
    """An expression over the columns of the right, as one over the columns of both sides."""
    if isinstance(expr, Column):
        return replace(expr, index=expr.index + width)
    return rebuild(expr, lambda e: _outward(e, width))


def is_timed(band: Band, sides: Sides) -> bool:
    return sides.progresses(band.left, 0) and sides.progresses(band.right, 1)


def narrowest(bands: Iterable[Band]) -> Band | None:
    """The narrowest of the bands that bound both sides, else of the others. Bands between the same
    two attributes count as one, their intersection."""
    merged: dict[tuple[Expr, Expr], Band] = {}
    for band in bands:
        at = band.left, band.right
        merged[at] = merged[at].both(band) if at in merged else band
    ranked = sorted(merged.values(), key=lambda b: (not b.closed, b.high - b.low))
    return ranked[0] if ranked else None


def differences(part: Expr, sides: Sides) -> Iterator[Band]:
    """The band that a comparison states: ``a.ts <= b.ts + INTERVAL 5 SECONDS``, ``b.ts - a.ts <
    5``, ``abs(a.ts - b.ts) <= 5``."""
    if not isinstance(part, Call) or part.fn not in _MIRRORED:
        return
    fn, (a, b) = part.fn, part.args
    if isinstance(a, Literal):
        fn, a, b = _MIRRORED[fn], b, a
    if isinstance(b, Literal) and isinstance(b.value, int) and not isinstance(b.value, bool):
        yield from _of_difference(fn, a, b.value, sides)
        return
    if sides.of(a) == 1:
        fn, a, b = _MIRRORED[fn], b, a
    if (sides.of(a), sides.of(b)) == (0, 1) and _counts(a) and _counts(b):
        (left, s), (right, t) = shifted(a), shifted(b)
        # left + s fn right + t: compares right - left with s - t
        yield _bounded(sides.own(left), sides.own(right), _MIRRORED[fn], s - t)


def _of_difference(fn: str, a: Expr, value: int, sides: Sides) -> Iterator[Band]:
    """The band of ``a fn value``, where ``a`` is a difference of two times."""
    if isinstance(a, Call) and a.fn == "abs" and fn in ("lt", "le"):
        reach = value - (fn == "lt")
        below = _of_difference("le", a.args[0], reach, sides)
        above = _of_difference("ge", a.args[0], -reach, sides)
        yield from (one.both(other) for one, other in zip(below, above, strict=True))
        return
    if not (isinstance(a, Call) and a.fn == "sub"):
        return
    x, y = a.args
    if sides.of(x) == 0:  # left - right
        fn, x, y, value = _MIRRORED[fn], y, x, -value
    if (sides.of(x), sides.of(y)) == (1, 0) and _counts(x) and _counts(y):
        (right, s), (left, t) = shifted(x), shifted(y)
        yield _bounded(sides.own(left), sides.own(right), fn, value - s + t)


def _bounded(left: Expr, right: Expr, fn: str, value: int) -> Band:
    """The band ``right - left fn value``, of whole numbers."""
    match fn:
        case "le":
            return Band(left, right, high=value)
        case "lt":
            return Band(left, right, high=value - 1)
        case "ge":
            return Band(left, right, low=value)
        case "gt":
            return Band(left, right, low=value + 1)
        case _:
            return Band(left, right, value, value)


def _counts(expr: Expr) -> bool:
    """Whether the values of ``expr`` are whole numbers of one unit."""
    return expr.type.is_integer or expr.type.is_timestamp


def shifted(expr: Expr) -> Shifted:
    """``ts + INTERVAL 5 SECONDS - INTERVAL 1 SECOND`` as ``ts`` and 4,000,000."""
    match expr:
        case Call(fn="add" | "sub", args=(inner, Literal(value=int() as by) as step)) if _steps(
            inner, step
        ):
            base, so_far = shifted(inner)
            return base, so_far + (by if expr.fn == "add" else -by)
        case Call(fn="add", args=(Literal(value=int() as by) as step, inner)) if _steps(
            inner, step
        ):
            base, so_far = shifted(inner)
            return base, so_far + by
        case Cast(arg=inner) if (
            expr.type.is_integer and inner.type.is_integer and not (registry.can_fail(expr))
        ):
            return shifted(inner)
    return expr, 0


def _steps(inner: Expr, by: Literal) -> bool:
    if inner.type.is_integer:
        return by.type.is_integer
    return inner.type.is_timestamp and by.type == INTERVAL


def condition_of(band: Band, sides: Sides) -> Expr:
    """A window's band, whose attributes are columns, as a condition over both sides."""
    assert isinstance(band.left, Column)
    assert isinstance(band.right, Column)
    left = band.left
    right = replace(band.right, index=band.right.index + sides.width)
    kind = INTERVAL if left.type.is_timestamp else left.type
    difference = registry.resolve("sub", [right, left], None)
    parts = []
    if band.high < NO_BOUND:
        parts.append(registry.resolve("le", [difference, Literal(band.high, kind)], None))
    if band.low > -NO_BOUND:
        parts.append(registry.resolve("ge", [difference, Literal(band.low, kind)], None))
    return parts[0] if len(parts) == 1 else registry.resolve("and", parts, None)
