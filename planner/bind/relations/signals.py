"""Windows over signals: ``FROM audio [ROWS 4096 SLIDE 2048]`` gives segments of samples."""

from __future__ import annotations

import math
from fractions import Fraction

from sqlglot import exp

from cql.base.types import Kind
from cql.dialect import to_sql
from cql.dialect.nodes import StreamWindow
from cql.planner.bind.context import Binder
from cql.planner.bind.relations.window import amount
from cql.planner.nodes.catalog import StreamSpec
from cql.planner.nodes.logical import Logical, Project, Scan
from cql.planner.nodes.logical.signals import Rewindow

#: Of a window, in microseconds: times are nanoseconds in 64 bits.
_LONGEST = 2**50
_SAMPLES = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE)


def is_signal(plan: Logical) -> bool:
    """Whether ``plan`` reads a stream with RATE, and perhaps its computed columns."""
    if isinstance(plan, Project) and isinstance(plan.input, Scan):
        spec = plan.input.relation.stream
        return spec is not None and bool(spec.computed) and spec.rate_hz is not None
    return isinstance(plan, Scan) and _rate_of(plan) is not None


def _rate_of(scan: Scan) -> float | None:
    return None if scan.relation.stream is None else scan.relation.stream.rate_hz


def rewindowed(binder: Binder, plan: Logical, node: StreamWindow) -> Rewindow:
    """The windows of a signal. Raises BindError or NotSupportedError for other windows than those
    of ROWS or RANGE with SLIDE."""
    if isinstance(plan, Project):
        assert isinstance(plan.input, Scan)
        name = ".".join(plan.input.relation.name)
        raise binder.unsupported(
            f"a window over the signal {name}, which has computed columns,", node
        )
    assert isinstance(plan, Scan)
    spec = plan.relation.stream
    assert spec is not None
    args, name = node.args, ".".join(plan.relation.name)
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
    rate = spec.rate
    assert rate is not None
    size, slide = (_length(binder, n, rate, by_time=by_time) for n in (size_node, args["slide"]))
    _refuse_short(binder, size_node, size, rate, by_time)
    time = _time(binder, plan, spec, node)
    channels = [k for k in range(len(plan.schema)) if k != time]
    for k in channels:
        f = plan.schema[k]
        if f.type.kind not in _SAMPLES:
            raise binder.unsupported(
                f"a window over the signal {name}, whose column {f.name} is a {f.type},",
                node,
                f"ORDERED BY {f.name} says that it is the time of the samples"
                if f.type.is_timestamp and time is None
                else f"leave it out of CREATE STREAM {name}: the channels of a signal are numbers",
            )
    if not channels:
        raise binder.error(f"the signal {name} has no channel", node)
    return Rewindow(plan, tuple(channels), time, size, slide, by_time, binder.pos(node))


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


def _time(binder: Binder, scan: Scan, spec: StreamSpec, node: exp.Expr) -> int | None:
    """The column with the times of the samples, if the signal has one."""
    if not spec.progress and spec.computed_progress is None:
        return None
    name, progress = ".".join(scan.relation.name), spec.progress
    if len(progress) != 1 or progress[0].slack or not progress[0].by_rows:
        raise binder.unsupported(
            f"a window over the signal {name}, whose time is not ORDERED BY one column without"
            " WITHIN,",
            node,
        )
    at = scan.schema.find(progress[0].column)
    assert at is not None
    if not scan.schema[at].type.is_timestamp:
        raise binder.unsupported(
            f"a window over the signal {name}, whose time {scan.schema[at].name} is a"
            f" {scan.schema[at].type},",
            node,
            "the times of samples are timestamps",
        )
    return at


def refuse_rows(binder: Binder, plan: Logical, node: exp.Expr) -> None:
    """Raises NotSupportedError if rows of ``plan``, which are written to a table, hold segments."""
    for f in plan.schema:
        if f.type.kind is Kind.SIGNAL:
            raise binder.unsupported(
                f"writing the segments of a signal ({f.name}) to a table",
                node,
                f"write functions of them, such as stddev({f.name})",
            )
