"""Signals in FROM, whose samples come as segments: ``audio [ROWS 4096 SLIDE 2048]`` in windows,
``detections d, audio a WHERE a.time BETWEEN d.start AND d.stop`` in ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from cql.base.model import Field
from cql.dialect import to_sql
from cql.dialect.nodes import StreamWindow
from cql.errors import BindError
from cql.planner.bind.context import Binder
from cql.planner.bind.expressions.expression import ExprBinder
from cql.planner.bind.relations.join import Item
from cql.planner.bind.relations.window import amount
from cql.planner.bind.scope import Scope
from cql.planner.functions.signals import check_size
from cql.planner.nodes.catalog import SAMPLE_TIME
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.logical import (
    Concat,
    Fill,
    Logical,
    Rewindow,
    Samples,
    Scan,
    Sync,
    Zip,
    samples_of,
)
from cql.planner.nodes.show import quoted

#: Of a window, in microseconds: times are nanoseconds in 64 bits.
_LONGEST = 2**50
#: Signals whose samples are not computed one by one.
STORED = (Scan, Concat, Fill, Zip)


def is_signal(plan: Logical) -> bool:
    """Whether the rows of ``plan`` are the samples of a stream with RATE, and what is computed of
    each."""
    return samples_of(plan) is not None


def has_plain_times(samples: Samples) -> bool:
    """Whether the signal has timestamps in their order, which say where its gaps are."""
    progress = samples.spec.progress
    if samples.time is None or len(progress) != 1 or samples.spec.computed_progress is not None:
        return False
    at = samples.scan.schema.find(progress[0].column)
    plain = at is not None and samples.scan.schema[at].type.is_timestamp
    return plain and progress[0].by_rows and not progress[0].slack


def rewindowed(binder: Binder, plan: Logical, node: StreamWindow) -> Rewindow:
    """The windows of a signal. Raises BindError or NotSupportedError for other windows than those
    of ROWS or RANGE with SLIDE."""
    found = samples_of(plan)
    assert found is not None
    args, name = node.args, found.name
    if node.window_kind not in ("ROWS", "RANGE") or args.get("slide") is None:
        raise binder.unsupported(
            f"this window over the signal {name}",
            node,
            "[ROWS 4096 SLIDE 4096] or [RANGE 100 MILLISECONDS SLIDE 100 MILLISECONDS] cuts it into"
            " segments",
        )
    by_time = args.get("range") is not None
    both = by_time and args.get("rows") is not None
    for key in ("partition", "wa", "offset", "zone", "cumulate"):
        if args.get(key):
            both = True
    if both or isinstance(args.get("range") or args["rows"], exp.Var):
        raise binder.unsupported(
            f"more than a size and SLIDE in a window over the signal {name}", node
        )
    size_node = args["range"] if by_time else args["rows"]
    rate = found.rate
    size, slide = (_length(binder, n, rate, by_time=by_time) for n in (size_node, args["slide"]))
    _refuse_short(binder, size_node, size, rate, by_time)
    channels, time = parts(binder, plan, found, node)
    rests = args.get("rests") is not None
    return Rewindow(plan, channels, time, size, slide, by_time, rests, binder.pos(node))


def table_of(node: exp.Expr) -> exp.Table | None:
    """The item of FROM, without an alias, that the argument of a function names; None if it is no
    name."""
    if not isinstance(node, exp.Column) or len(node.parts) > 3:
        return None
    names = dict(zip(("this", "db", "catalog"), reversed(node.parts), strict=False))
    table = exp.Table(**{key: name.copy() for key, name in names.items()})
    table.meta.update(node.meta)
    return table


def parts(
    binder: Binder, plan: Logical, found: Samples, node: exp.Expr
) -> tuple[tuple[int, ...], int | None]:
    """The columns of a signal with its channels, and the one with its times, if it has one.

    Raises NotSupportedError for a column that is neither."""
    name, time = found.name, found.time
    _check_time(binder, found, node)
    if time is None and found.is_filtered:
        raise binder.unsupported(
            f"segments of the samples of {name} that WHERE chooses: their times follow from their"
            " numbers,",
            node,
            "ask for values of the windows, above them; or declare a column of times, ORDERED BY",
        )
    channels = tuple(k for k in range(len(plan.schema)) if k != time)
    for k in channels:
        f = plan.schema[k]
        if not f.type.is_sample:
            raise binder.unsupported(
                f"segments of the signal {name}, whose column {f.name} is a {f.type},",
                node,
                _hint(plan, name, f, time),
            )
        check_size(
            f.type, f"the signal {name}, whose column {f.name} is a struct", binder.pos(node)
        )
    if not channels:
        lost = () if isinstance(found.scan, Concat) else found.scan.relation.unsupported.items()
        hint = "; ".join(f"{column} cannot be used: {why}" for column, why in lost)
        raise binder.error(f"the signal {name} has no channel", node, hint or None)
    return channels, time


def _hint(plan: Logical, name: str, f: Field, time: int | None) -> str:
    if not isinstance(plan, Scan):
        own = [quoted(n) for n, of in f.type.fields if of.is_sample]
        if own:
            return "its fields are channels: " + ", ".join(f"{f.name}.{n} AS {n}" for n in own)
        return f"leave {f.name} out, or CAST({f.name} AS INT): the channels of a signal are numbers"
    if f.type.is_timestamp and time is None:
        return f"ORDERED BY {f.name} says that it is the time of the samples"
    numbers = [g.name for k, g in enumerate(plan.schema) if k == time or g.type.is_sample]
    fields = [
        f"{g.name}.{part} AS {part}"
        for g in plan.schema
        if not g.type.is_sample
        for part, kind in g.type.fields
        if kind.is_sample
    ]
    channels = ", ".join([*numbers, *fields])
    if len(numbers) + len(fields) == (time is not None):
        return f"the channels of a signal are numbers: {name} has none"
    return f"the channels of a signal are numbers: FROM (SELECT {channels} FROM {name}) AS s […]"


def _length(binder: Binder, node: exp.Expr, rate: Fraction, *, by_time: bool) -> int:
    """A number of samples, or of microseconds."""
    found = amount(binder, None, node)
    if found.timed != by_time:
        what = "a length of time" if by_time else "a number of samples"
        raise binder.error(f"{found.text} is not {what}", node)
    if found.value.denominator != 1 or found.value <= 0:
        what = "whole number of microseconds" if by_time else "whole number"
        raise binder.error(f"{found.text} is not a {what} above zero", node)
    time = found.value if by_time else 1_000_000 * found.value / rate
    if time > _LONGEST:
        raise binder.error(f"{found.text} is longer than 35 years", node)
    return int(found.value)


def _refuse_short(binder: Binder, node: exp.Expr, size: int, rate: Fraction, by_time: bool) -> None:
    """Refuses windows that may hold no sample, or that end in the microsecond in which they
    begin."""
    if by_time and size * rate < 1_000_000:
        period = f"{float(1_000_000 / rate):,.9g}"
        raise binder.error(
            f"a window of {to_sql(node)} may hold no sample",
            node,
            f"RANGE is at least the time from a sample to the next: {period} microseconds",
        )
    if not by_time and size * 1_000_000 < rate:
        raise binder.error(
            f"a window of {size:,} samples is shorter than a microsecond",
            node,
            f"ROWS {math.ceil(rate / 1_000_000):,} or more",
        )


def _check_time(binder: Binder, found: Samples, node: exp.Expr) -> None:
    """Raises NotSupportedError for a signal whose times do not say where its gaps are."""
    scan, spec = found.scan, found.spec
    if isinstance(scan, Concat) or (not spec.progress and spec.computed_progress is None):
        return
    name, progress = found.name, spec.progress
    if len(progress) != 1 or progress[0].slack or not progress[0].by_rows:
        raise binder.unsupported(
            f"segments of the signal {name}, whose time is not ORDERED BY one column without"
            " WITHIN,",
            node,
        )
    at = scan.schema.find(progress[0].column)
    assert at is not None
    if not scan.schema[at].type.is_timestamp:
        raise binder.unsupported(
            f"segments of the signal {name}, whose time {scan.schema[at].name} is a"
            f" {scan.schema[at].type},",
            node,
            "the times of samples are timestamps",
        )


# ------------------------------------------------------------------ ranges of a signal

_BOUNDS: dict[type[exp.Expr], tuple[str, bool]] = {
    exp.GTE: ("begin", False),
    exp.GT: ("begin", True),
    exp.LTE: ("end", False),
    exp.LT: ("end", True),
}
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GTE: exp.LTE,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.LT: exp.GT,
}
_HINT = "FROM detections AS d, audio AS a WHERE a.time BETWEEN d.start AND d.stop"


@dataclass(slots=True)
class _Range:
    """The bounds of a range: of each the expression, and whether the bound itself is outside."""

    begin: tuple[exp.Expr, bool] | None = None
    end: tuple[exp.Expr, bool] | None = None


def synced(
    binder: Binder,
    control: Logical,
    scope: Scope,
    item: Item,
    node: exp.Expr,
    wanted: list[exp.Expr],
) -> Sync:
    """The rows of ``control`` with the samples of the signal ``item``, written as ``node``, in the
    range that the conditions ``wanted`` give; these are taken out of the list.

    Raises BindError if they give none."""
    samples = samples_of(item.plan)
    assert samples is not None
    channels, time = parts(binder, item.plan, samples, node)
    called = SAMPLE_TIME if time is None else item.plan.schema[time].name
    found, rest = _Range(), list[exp.Expr]()
    for condition in wanted:
        if not _takes(condition, item, called, scope.has, found):
            rest.append(condition)
    if found.begin is None or found.end is None:
        raise _no_range(binder, item, called, node)
    wanted[:] = rest
    (low, after), (high, before) = found.begin, found.end
    begin, end = _moment(binder, scope, low), _moment(binder, scope, high)
    return Sync(control, item.plan, channels, time, begin, end, after, before, binder.pos(node))


def has_range(item: Item, beside: Sequence[Item], wanted: Sequence[exp.Expr]) -> bool:
    """Whether the conditions ``wanted`` bound the time of the signal ``item``, whose name without a
    source may also be that of a column of the items ``beside`` it. One bound says that the samples
    of a stream are wanted in ranges, but not those of a subquery, which may be joined as rows."""
    known = {name.lower() for other in beside for name in other.plan.schema.names}
    called, found = _called(item), _Range()
    any_ = False
    for each in wanted:
        any_ |= _takes(each, item, called, known.__contains__, found)
    return any_ and (
        isinstance(item.plan, STORED) or (found.begin is not None and found.end is not None)
    )


def _called(item: Item) -> str:
    """The name of the times of a signal."""
    samples = samples_of(item.plan)
    assert samples is not None
    return SAMPLE_TIME if samples.time is None else item.plan.schema[samples.time].name


def refuse_without_time(binder: Binder, given: Sequence[Item], written: Sequence[exp.Expr]) -> None:
    """Raises BindError for a signal beside other items of FROM, without a range, whose samples have
    no column with their times: nothing relates them to the rows of a stream."""
    for item in given:
        if isinstance(item.plan, STORED) and _called(item) == SAMPLE_TIME:
            raise _no_range(binder, item, SAMPLE_TIME, written[-1])


def _no_range(binder: Binder, item: Item, called: str, node: exp.Expr) -> BindError:
    samples = samples_of(item.plan)
    name = item.source or (samples and samples.name)
    return binder.error(
        f"the signal {name} beside other items of FROM needs a range of its {called}",
        node,
        hint=_HINT,
    )


def check_joins(binder: Binder, joins: Sequence[exp.Join]) -> None:
    """Raises NotSupportedError for an outer join with a range of a signal."""
    for join in joins:
        kind = join.text("side") or join.text("kind")
        if kind.upper() not in ("", "INNER", "CROSS") or join.args.get("using"):
            raise binder.unsupported(
                f"{'USING' if join.args.get('using') else kind.upper() + ' JOIN'} with a signal",
                join,
                _HINT,
            )


def parts_of(condition: exp.Expr) -> list[exp.Expr]:
    """The parts of a condition that AND connects."""
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.And):
        return [*parts_of(condition.this), *parts_of(condition.expression)]
    return [condition]


def _moment(binder: Binder, scope: Scope, node: exp.Expr) -> Expr:
    bound = ExprBinder(binder, scope, None, "a range of a signal").bind(node)
    if not bound.type.is_timestamp:
        raise binder.error(
            f"a range of a signal is between two timestamps, and this is a {bound.type}", node
        )
    return bound


def _takes(
    condition: exp.Expr, item: Item, called: str, is_known: Callable[[str], bool], found: _Range
) -> bool:
    """Whether a condition bounds the time of the signal ``item``, which is ``called`` so; notes the
    bound. ``is_known``: whether a column of another item has a name."""
    while isinstance(condition, exp.Paren):
        condition = condition.this

    def is_time(node: exp.Expr) -> bool:
        if not isinstance(node, exp.Column) or node.name.lower() != called.lower():
            return False
        if len(node.parts) == 1:
            return not is_known(node.name.lower())
        return str(item.source).lower() == ".".join(p.name for p in node.parts[:-1]).lower()

    if isinstance(condition, exp.Between) and is_time(condition.this):
        if found.begin is not None or found.end is not None:
            return False
        found.begin = condition.args["low"], False
        found.end = condition.args["high"], False
        return True
    kind = type(condition)
    if kind not in _BOUNDS:
        return False
    left, right = condition.this, condition.expression
    if is_time(right):
        kind, left, right = _MIRRORED[kind], right, left
    if not is_time(left):
        return False
    side, open_ = _BOUNDS[kind]
    if getattr(found, side) is not None:
        return False
    setattr(found, side, (right, open_))
    return True
