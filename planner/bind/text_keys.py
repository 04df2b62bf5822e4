"""GROUP BY the text of a time, or its parts.

``date_format(ts, 'yyyy-MM-dd')``, the first ten characters of ``CAST(ts AS STRING)``, and year,
month and day together identify the same groups as ``date_trunc('day', ts)``. Only
``date_trunc('day', ts)`` is monotone in ``ts``, so that only it lets punctuation close groups.

If the groups of an aggregate never close, or close by the year alone, and the keys determine a
monotone time, this module adds this time as a further key. The added key divides no group,
punctuation on it closes groups (out-of-order paper §5.2), and a Project hides it from the nodes
above the aggregate.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import assert_never

from cql.base.types import DATE, STRING
from cql.planner.functions.registry import monotone
from cql.planner.interpret.datetime_patterns import unit_of
from cql.planner.interpret.time import DAY, days_from_civil
from cql.planner.nodes.expr import Call, Case, Cast, Column, Expr, Literal, columns_of, substitute
from cql.planner.nodes.logical import (
    Aggregate,
    Filter,
    Logical,
    Project,
)
from cql.planner.nodes.rewrite import replace

#: The name of the added key, and of the columns below the aggregate that carry it.
_NAME = "_closing"


def closed_by_text(node: Aggregate) -> Logical:
    """``node`` with the added key, under a Project that drops this key; or ``node`` itself if the
    aggregate needs no key or its keys determine no monotone time."""
    if node.window is not None or node.closing_pair is not None:
        return node
    closing = len([*node.closing_keys])
    texts = [(key,) for key in node.keys] if not closing else []
    # Among the parts of a time, only the year closes groups. If a second key closes groups, the
    # aggregate needs no added key.
    for keys in (*texts, node.keys) if closing < 2 else ():
        found = _beside(node.input, keys)
        if found is None:
            continue
        child, time = found
        # The time comes first, because the first key that can close groups does so.
        made = replace(node, input=child, keys=(time, *node.keys), names=(_NAME, *node.names))
        if made.closing_key is None:
            continue
        fields = [*enumerate(made.schema)][1:]
        exprs = [Column(k, f.name, f.type, f.nullable) for k, f in fields]
        return Project(made, tuple(exprs), node.names, node.pos)
    return node


def _beside(node: Logical, keys: Sequence[Expr]) -> tuple[Logical, Expr] | None:
    """A monotone time over ``node`` whose text or parts are ``keys`` (expressions over ``node``),
    or None. Returns ``node``, perhaps with the time as an additional last column, and the time."""
    time = _time_of(keys[0]) if len(keys) == 1 else _time_of_parts(keys)
    if time is not None and any(monotone(time, c) for c in node.progressing):
        return node, time
    match node:
        case Project():
            found = _beside(node.input, [substitute(key, node.exprs) for key in keys])
            if found is None:
                return None
            child, time = found
            exprs, names = (*node.exprs, time), (*node.names, _NAME)
            return replace(node, input=child, exprs=exprs, names=names), _last(node, time)
        case Filter():
            found = _beside(node.input, keys)
            if found is None:
                return None
            child, time = found
            return replace(node, input=child), time
    return None


def _last(node: Logical, time: Expr) -> Column:
    return Column(len(node.schema), _NAME, time.type, time.nullable)


def _time_of(key: Expr) -> Expr | None:
    """The time whose text is ``key``, cut so that each of its values has a different text; or
    None."""
    match key:
        case Cast(arg=arg) if key.type == STRING and arg.type.can_progress and columns_of(arg):
            return arg
        case Call(fn="date_format", args=(time, Literal(value=str(pattern)))):
            unit = unit_of(pattern)
            if unit is None:
                return None
            return _cut(unit, time)
        case Call(fn="left", args=(text, Literal(value=int(length)))):
            return _time_of_start(text, length)
        case Call(fn="substring", args=(text, Literal(value=0 | 1), Literal(value=int(length)))):
            return _time_of_start(text, length)
        case Column() | Literal() | Call() | Case() | Cast():
            return None
        case _:
            assert_never(key)


def _cut(unit: str, time: Expr) -> Expr:
    """``time`` truncated to ``unit``; a date is truncated to years, quarters and months only."""
    if time.type != DATE:
        return Call("date_trunc", (Literal(unit, STRING), time), time.type, time.nullable)
    if unit not in ("year", "quarter", "month"):
        return time
    return Call("trunc", (time, Literal(unit, STRING)), DATE, time.nullable)


#: The number of characters from the start of a time's text to the end of the unit.
_ENDS = {"year": 4, "month": 7, "day": 10, "hour": 13, "minute": 16, "second": 19}


def _time_of_start(text: Expr, length: int) -> Expr | None:
    """The time that the first ``length`` characters of a time's text determine, or None. The text
    of a year before 0 or after 9999 has more than four characters; the result therefore maps all
    times before year 0 to one value, and all times after year 9999 to another one."""
    units = [unit for unit, end in _ENDS.items() if end <= length]
    if not units or not isinstance(text, Cast) or text.type != STRING:
        return None
    time = text.arg
    if not (time.type.is_timestamp or time.type == DATE):
        return None
    day = 1 if time.type == DATE else DAY
    first, last = (Literal(days_from_civil(y, 1, 1) * day, time.type) for y in (0, 10_000))
    low = Call("greatest", (_cut(units[-1], time), first), time.type, False)
    return Call("least", (low, last), time.type, False)


def _time_of_parts(keys: Sequence[Expr]) -> Expr | None:
    """The finest time whose parts (year, month, …, second) the keys contain without a gap."""
    parts: dict[Expr, set[str]] = {}
    for key in keys:
        if isinstance(key, Call) and len(key.args) == 1:
            parts.setdefault(_whole(key.args[0]), set()).add(key.fn)
    found = [(unit, time) for time, of in parts.items() if (unit := _finest(of)) is not None]
    if not found:
        return None
    unit, time = found[0]
    return _cut(unit, time)


def _whole(time: Expr) -> Expr:
    """The timestamp under a cast to a date, else ``time``: parts of both are parts of one time."""
    days = isinstance(time, Cast) and time.type == DATE and time.arg.type.is_timestamp
    return time.arg if isinstance(time, Cast) and days else time


def _finest(parts: Collection[str]) -> str | None:
    """The finest unit, finer than the year, that the ``parts`` of a time determine; or None."""
    if "year" not in parts:
        return None
    unit = next((u for u in ("month", "quarter") if u in parts), None)
    if "dayofyear" in parts or ("day" in parts and unit == "month"):
        unit = "day"
        for finer in ("hour", "minute", "second"):
            if finer not in parts:
                break
            unit = finer
    return unit
