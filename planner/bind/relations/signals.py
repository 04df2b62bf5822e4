"""Windows over signals: ``FROM audio [ROWS 4096 SLIDE 2048]`` gives segments of samples."""

from __future__ import annotations

from fractions import Fraction

from sqlglot import exp

from cql.base.types import Kind
from cql.dialect.nodes import StreamWindow
from cql.planner.bind.context import Binder
from cql.planner.bind.relations.window import amount
from cql.planner.nodes.catalog import StreamSpec
from cql.planner.nodes.logical import Logical, Scan
from cql.planner.nodes.logical.signals import Rewindow

_SAMPLES = (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, Kind.FLOAT, Kind.DOUBLE)


def is_signal(plan: Logical) -> bool:
    """Whether ``plan`` reads a stream with RATE."""
    return isinstance(plan, Scan) and _rate_of(plan) is not None


def _rate_of(scan: Scan) -> float | None:
    return None if scan.relation.stream is None else scan.relation.stream.rate_hz


def rewindowed(binder: Binder, plan: Logical, node: StreamWindow) -> Rewindow:
    """The windows of a signal. Raises BindError or NotSupportedError for other windows than those
    of ROWS or RANGE with SLIDE."""
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
    size, slide = (_length(binder, n, by_time=by_time) for n in (size_node, args["slide"]))
    time = _time(binder, plan, spec, node)
    channels = [k for k in range(len(plan.schema)) if k != time]
    for k in channels:
        f = plan.schema[k]
        if f.type.kind not in _SAMPLES:
            raise binder.unsupported(
                f"a window over the signal {name}, whose column {f.name} is a {f.type},",
                node,
                f"leave it out of CREATE STREAM {name}: the channels of a signal are numbers",
            )
    if not channels:
        raise binder.error(f"the signal {name} has no channel", node)
    return Rewindow(plan, tuple(channels), time, size, slide, by_time, binder.pos(node))


def _length(binder: Binder, node: exp.Expr, *, by_time: bool) -> int:
    """A number of samples, or of microseconds."""
    found = amount(binder, None, node)
    if found.timed != by_time:
        what = "a length of time" if by_time else "a number of samples"
        raise binder.error(f"{found.text} is not {what}", node)
    if found.value.denominator != 1 or not 0 < found.value < 2**40:
        what = "whole number of microseconds" if by_time else "whole number"
        raise binder.error(f"{found.text} is not a {what} above zero", node)
    return int(Fraction(found.value))


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
