"""The reference's aggregate functions: each over the whole list of a group's values.

``AGGREGATES[name](values, call)``: ``values`` are the argument tuples of the rows that passed the
FILTER clause, in (WA, arrival) order, after DISTINCT. ``values`` has no rows with a NULL argument,
except for ``first``, ``last``, ``max_by`` and ``min_by``, whose first argument may be NULL.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from cql.base.types import DataType, Kind
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.logical import AggregateCall
from tests.reference.naive_values import BadRowError, group_key, number, order_key, stored

Values = Sequence[tuple[Any, ...]]
NULL_AWARE = frozenset({"first", "last", "max_by", "min_by"})


class QueryFailsError(Exception):
    """The query as a whole fails (overflow in an aggregate, or a bad row under FAIL)."""


def aggregate(call: AggregateCall, values: Values) -> object:
    """One aggregate of one group.

    >>> from cql.planner.nodes.expr import Column
    >>> from cql.base.types import BIGINT
    >>> total = AggregateCall("sum", (Column(0, "v", BIGINT),), BIGINT, True)
    >>> aggregate(total, [(1,), (None,), (2,)]), aggregate(total, [(None,)])
    (3, None)
    """
    if call.function is not None and call.function.sees_null:
        pass
    elif call.fn in NULL_AWARE:
        values = [v for v in values if None not in v[1:]]
    elif call.fn in ("array_agg", "string_agg"):  # the further arguments only order the rows
        values = [v for v in values if v[0] is not None]
    else:
        values = [v for v in values if None not in v]
    if call.distinct:
        first: dict[object, tuple[Any, ...]] = {}
        for v in values:
            first.setdefault(group_key(v[0]), v)
        values = list(first.values())
    if call.function is not None:
        return _own(values, call)
    return AGGREGATES[call.fn](values, call)


def _own(values: Values, call: AggregateCall) -> object:
    """A user's aggregate of numbers and booleans: updates the state with each row in turn.

    >>> import cql
    >>> class times:
    ...     def init(): return (1,)
    ...     def update(state, x: int): return (state[0] * x,)
    ...     def final(state) -> int: return state[0]
    >>> own = cql.aggregate(times)
    >>> call = AggregateCall("times", (), own.returns, True, function=own)
    >>> aggregate(call, [(2,), (None,), (5,)])
    10
    """
    assert call.function is not None
    own: Any = call.function.definition
    state = own.init()
    for value in values:
        state = own.update(state, *value)
    made = own.final(state)
    return float(made) if made is not None and call.type.is_fraction else made


def _count(values: Values, call: AggregateCall) -> int:
    return len(values)


def _count_if(values: Values, call: AggregateCall) -> int:
    return sum(1 for (v,) in values if v)


def _exact(values: Values, kind: DataType) -> list[Any]:
    return [number(v, kind) for (v,) in values]


def _plain(values: list[Any]) -> bool:
    """Whether exact arithmetic applies (no NaN, no infinity)."""
    return all(not isinstance(v, float) or math.isfinite(v) for v in values)


def _float_sum(values: list[Any]) -> float:
    """The exact sum of finite values; NaN and infinities follow the rules of floats."""
    if _plain(values):
        return float(sum(Fraction(v) for v in values))
    return float(sum(v for v in values if not math.isfinite(v)))


def _sum(values: Values, call: AggregateCall) -> object:
    if not values:
        return None
    numbers = _exact(values, call.args[0].type)
    if call.type.is_fraction:
        return stored(_float_sum(numbers), call.type)
    try:
        return stored(sum(numbers), call.type)
    except BadRowError as error:
        raise QueryFailsError("overflow in sum") from error


def _avg(values: Values, call: AggregateCall) -> object:
    if not values:
        return None
    numbers = _exact(values, call.args[0].type)
    if not _plain(numbers):
        return _float_sum(numbers) / len(numbers)
    mean = Fraction(sum(Fraction(n) for n in numbers), len(numbers))
    try:
        return stored(mean, call.type)
    except BadRowError as error:
        raise QueryFailsError("overflow in avg") from error


def _variance(values: Values, call: AggregateCall, taken: int) -> float | None:
    """The variance; ``taken`` is 1 for a sample (NULL for a single value), 0 for the
    population."""
    count = len(values)
    if count == 0 or count - taken == 0:
        return None
    numbers = _exact(values, call.args[0].type)
    if not _plain(numbers):
        return math.nan
    mean = Fraction(sum(Fraction(n) for n in numbers), count)
    return float(sum((Fraction(n) - mean) ** 2 for n in numbers) / (count - taken))


def _deviation(values: Values, call: AggregateCall, taken: int) -> float | None:
    variance = _variance(values, call, taken)
    return None if variance is None else math.sqrt(variance)


def _min(values: Values, call: AggregateCall) -> object:
    """The minimum: NaN is larger than any number; strings compare by their UTF-8 bytes."""
    return min((v for (v,) in values), key=order_key, default=None)


def _max(values: Values, call: AggregateCall) -> object:
    return max((v for (v,) in values), key=order_key, default=None)


def _first(values: Values, call: AggregateCall) -> object:
    """The first value in the order (WA, arrival), NULL or not."""
    return values[0][0] if values else None


def _last(values: Values, call: AggregateCall) -> object:
    return values[-1][0] if values else None


def _picked(values: Values, call: AggregateCall) -> object:
    """The value, NULL or not, of the first row with the extreme value of the other argument.

    >>> from cql.base.types import BIGINT
    >>> call = AggregateCall("max_by", (), BIGINT, True)
    >>> aggregate(call, [(1, 5), (None, 7), (3, 7), (4, None)]), aggregate(call, [(1, None)])
    (None, None)
    """
    extreme = max if call.fn == "max_by" else min
    return extreme(values, key=lambda v: order_key(v[1]), default=(None,))[0]


def _bool_and(values: Values, call: AggregateCall) -> object:
    return all(v for (v,) in values) if values else None


def _bool_or(values: Values, call: AggregateCall) -> object:
    return any(v for (v,) in values) if values else None


def _by(values: Values, call: AggregateCall) -> Values:
    """ORDER BY the last arguments; ties keep their order."""
    for n in reversed(range(len(call.order))):
        descending, nulls_first = call.order[n]
        at = len(call.args) - len(call.order) + n
        some = [v for v in values if v[at] is not None]
        some.sort(key=lambda v: order_key(v[at]), reverse=descending)  # keeps the order of ties
        none = [v for v in values if v[at] is None]
        values = [*none, *some] if nulls_first else [*some, *none]
    return values


def _share(p: Literal) -> Fraction:
    if p.type.kind is Kind.DECIMAL:
        return Fraction(number(p.value, p.type))
    return Fraction(str(p.value))


def _percentiles(
    values: Values, call: AggregateCall, one: Callable[[list[Any], Fraction], object]
) -> object:
    """The percentiles: an array if the call gives several shares, else one value."""
    if not values:
        return None
    ordered = [v for (v,) in _by(values, call)]
    found = [one(ordered, _share(p)) for p in call.constants]
    return found if call.type.kind is Kind.ARRAY else found[0]


def _percentile(ordered: list[Any], p: Fraction) -> object:
    """Spark's percentile: interpolates between the neighbours of the index p * (n - 1).

    >>> _percentile([10.0, 20.0, 40.0], Fraction(3, 4))
    30.0
    """
    place = p * (len(ordered) - 1)
    low, share = math.floor(place), float(place - math.floor(place))
    a = ordered[low]
    b = ordered[low + 1] if share else a
    return a if a == b or not share else (1 - share) * a + share * b


def _element(ordered: list[Any], p: Fraction) -> object:
    """The first value such that at least the share ``p`` of all values lies at or before its place.

    >>> [_element([10, 20, 40], Fraction(p, 3)) for p in range(4)]
    [10, 10, 20, 40]
    """
    return ordered[max(0, math.ceil(p * len(ordered)) - 1)]


def _mode(values: Values, call: AggregateCall) -> object:
    """The most frequent value; of several equally frequent values, the first in the call's
    order."""
    ordered = [v for (v,) in _by(values, call)]
    counts = Counter(order_key(v) for v in ordered)
    return max(ordered, key=lambda v: counts[order_key(v)], default=None)


def _array_agg(values: Values, call: AggregateCall) -> list[Any]:
    """The array of the values without NULLs; an empty array for no values (Spark's
    collect_list)."""
    return [v[0] for v in _by(values, call)]


def _string_agg(values: Values, call: AggregateCall) -> str | None:
    separator = str(call.constants[0].value)
    return separator.join(_array_agg(values, call)) if values else None


def _time_weighted_avg(values: Values, call: AggregateCall) -> float | None:
    """The mean over time: a value holds until the next one, or changes evenly up to it.

    >>> from dataclasses import replace
    >>> from cql.base.types import BIGINT, DOUBLE, STRING
    >>> from cql.planner.nodes.expr import Column
    >>> args = (Column(0, "x", DOUBLE), Column(1, "t", BIGINT))
    >>> call = AggregateCall("time_weighted_avg", args, DOUBLE, True)
    >>> rows = [(5.0, 3), (1.0, 0), (6.0, 3), (7.0, 4)]
    >>> held, even = (replace(call, constants=(Literal(m, STRING),)) for m in ("locf", "linear"))
    >>> aggregate(held, rows), aggregate(even, rows), aggregate(held, [(2.0, 1), (None, 2)])
    (2.25, 4.25, 2.0)
    """
    held = {time: x for x, time in values}  # the last one of each time
    if len(held) < 2:
        return next(iter(held.values()), None)
    times = sorted(held)
    areas = []
    for begin, end in pairwise(times):
        height = held[begin]
        if call.constants[0].value == "linear":
            height = height / 2 + held[end] / 2
        areas.append(height * (end - begin))
    return _float_sum(areas) / (times[-1] - times[0])


AGGREGATES: dict[str, Callable[[Values, AggregateCall], object]] = {
    "count": _count,
    "count_if": _count_if,
    "sum": _sum,
    "avg": _avg,
    "min": _min,
    "max": _max,
    "var_samp": lambda values, call: _variance(values, call, 1),
    "var_pop": lambda values, call: _variance(values, call, 0),
    "stddev_samp": lambda values, call: _deviation(values, call, 1),
    "stddev_pop": lambda values, call: _deviation(values, call, 0),
    "first": _first,
    "last": _last,
    "max_by": _picked,
    "min_by": _picked,
    "percentile": lambda values, call: _percentiles(values, call, _percentile),
    "percentile_disc": lambda values, call: _percentiles(values, call, _element),
    "mode": _mode,
    "array_agg": _array_agg,
    "string_agg": _string_agg,
    "time_weighted_avg": _time_weighted_avg,
    "bool_and": _bool_and,
    "bool_or": _bool_or,
}
