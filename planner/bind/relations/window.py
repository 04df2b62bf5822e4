"""Binds windows: every spelling becomes a ``Window`` with lengths in units of its attribute.

CQL's brackets, Flink's table and group functions and Spark's ``window(…)`` are equivalent::

    FROM s [RANGE 1 MINUTE, SLIDE 10 SECONDS, WA ts]
    FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE))
    GROUP BY window(ts, '1 minute', '10 seconds')
"""

from __future__ import annotations

import math
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from sqlglot import exp

from cql.base.model import Field
from cql.base.types import INTERVAL, STRING, DataType, Kind
from cql.base.window import Window, WindowKind
from cql.base.zones import DAY, days_of
from cql.dialect import to_sql
from cql.dialect.duration import to_duration
from cql.dialect.nodes import (
    MICROSECONDS,
    Duration,
    GroupWindow,
    StreamWindow,
    WindowTable,
)
from cql.errors import BindError, did_you_mean
from cql.planner.bind.context import Binder, Env
from cql.planner.bind.expressions.expression import parameter
from cql.planner.bind.scope import Scope
from cql.planner.nodes.catalog import TimeUnit
from cql.planner.nodes.expr import Column, Literal
from cql.planner.nodes.logical import (
    FIRST_ROW,
    WINDOW_COLUMNS,
    Aggregate,
    Filter,
    KeyWindows,
    Logical,
    Project,
    Scan,
    Union,
    Windowed,
)
from cql.planner.nodes.logical.progress import ProgressInfo

#: The length in microseconds of each unit of an integer event time.
UNIT_MICROSECONDS: dict[TimeUnit, Fraction] = {
    unit: Fraction(MICROSECONDS[unit.value.rstrip("s").upper()]) for unit in TimeUnit
}
_INT64 = 2**63
_LONGEST_GAP = 2**61  # with this limit the end of a session fits in 64 bits


@dataclass(frozen=True, slots=True)
class Amount:
    """A length in the query: ``value`` is in microseconds if ``timed``, else a number without
    unit."""

    value: Fraction
    timed: bool
    text: str


def amount(binder: Binder, scope: Scope | None, node: exp.Expr) -> Amount:
    """The length that ``node`` denotes (a duration, a number, a parameter or a constant)."""
    duration = to_duration(node)
    if duration is not None:
        return _timed(binder, duration, node)
    if isinstance(node, exp.Neg):
        inner = amount(binder, scope, node.this)
        return Amount(-inner.value, inner.timed, f"-{inner.text}")
    if isinstance(node, exp.Literal) and not node.is_string:
        return Amount(Fraction(node.name), False, node.name)
    literal = _named(binder, scope, node)
    match literal:
        case Literal(value=int() as value) if literal.type == INTERVAL:
            return Amount(Fraction(value), True, to_sql(node))
        case Literal(value=str() as text) if literal.type == STRING:
            named = to_duration(exp.Literal.string(text))
            if named is not None:
                return _timed(binder, named, node)
        case Literal(value=int() | float() as number) if literal.type.is_numeric and math.isfinite(
            number
        ):
            scale = 10**literal.type.scale
            return Amount(Fraction(number) / scale, False, to_sql(node))
    raise binder.error(
        f"{to_sql(node)} is not a length of time",
        node,
        hint="a number, an interval, a timedelta, or text such as '10 seconds'",
    )


def _named(binder: Binder, scope: Scope | None, node: exp.Expr) -> Literal | None:
    if isinstance(node, exp.Placeholder):
        return parameter(binder, node)
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        constants = scope or Scope(binder, (), (), Env())
        found = constants.constant(node, node.name)
        if found is None:
            context = binder.context
            known = [*context.constants, *context.parameters]
            raise binder.error(
                f"there is no constant {node.name}",
                node,
                did_you_mean(node.name, known, what="constants") or _how_to_name(node.name),
            )
        return found
    return None


def _how_to_name(name: str) -> str:
    if not name.isidentifier():  # "10 seconds"
        return f"double quotes are for names: write '{name}'"
    return f"CREATE CONSTANT {name} = …, or write :{name}"


def _timed(binder: Binder, duration: Duration, node: exp.Expr) -> Amount:
    value, unit = duration.this.name, duration.unit.lower()
    text = f"{value} {unit}" + ("" if value in ("1", "-1") else "s")
    if duration.unit not in MICROSECONDS:
        raise binder.unsupported(
            f"a window of {text}", node, f"the length of a {unit} varies: write it in days"
        )
    return Amount(Fraction(value) * Fraction(MICROSECONDS[duration.unit]), True, text)


# ------------------------------------------------------------------ the window attribute


@dataclass(frozen=True, slots=True)
class Attribute:
    """A window attribute: its column, and its unit (in ``info``)."""

    index: int
    name: str
    type: DataType
    info: ProgressInfo

    def shown(self, a: int, b: int) -> tuple[str, str, str]:
        """Two lengths as text, and their unit as text (" in seconds"). Lengths of a timestamp are
        in seconds if both are whole seconds, else in microseconds."""
        if self.type.is_integer:
            return f"{a:,}", f"{b:,}", ""
        if a % 1_000_000 or b % 1_000_000:
            return f"{a:,}", f"{b:,}", " in microseconds"
        return f"{a // 1_000_000:,}", f"{b // 1_000_000:,}", " in seconds"

    def units(self, binder: Binder, length: Amount, what: str, node: exp.Expr) -> int:
        """``length`` in units of the attribute. Raises BindError, with the remedy, if the length is
        no whole number of units."""
        value = length.value
        if length.timed:
            value = value / self._unit(binder, length, what, node)
        elif not self.type.is_integer:
            raise binder.error(
                f"{what} {length.text} has no unit, and {self.name} is a {self.type}",
                node,
                hint=f"write {what} {length.text} SECOND{'' if length.text == '1' else 'S'}"
                " (or another unit)",
            )
        if value.denominator != 1:
            unit = self._unit_name()
            raise binder.error(
                f"{what} {length.text} is not a whole number of {unit} of {self.name}", node
            )
        if abs(value.numerator) >= _INT64:
            raise binder.error(f"{what} {length.text} does not fit in 64 bits", node)
        return value.numerator

    def _unit(self, binder: Binder, length: Amount, what: str, node: exp.Expr) -> Fraction:
        if self.type.is_timestamp:
            return Fraction(1)
        if self.type.kind is Kind.DATE:
            return UNIT_MICROSECONDS[TimeUnit.DAYS]
        if self.info.unit is None:
            raise binder.error(
                f"{what} {length.text} over {self.name}, an integer whose unit is not declared",
                node,
                hint=f"declare ORDERED BY {self.name} IN SECONDS (or another unit), or write"
                f" {what} as a bare number of its units",
            )
        return UNIT_MICROSECONDS[self.info.unit]

    def _unit_name(self) -> str:
        if self.type.is_timestamp:
            return "microseconds"
        if self.type.kind is Kind.DATE:
            return "days"
        return self.info.unit.value if self.info.unit else "units"


def attribute(binder: Binder, plan: Logical, index: int, node: exp.Expr) -> Attribute:
    """Column ``index`` of ``plan`` as a window attribute. Raises BindError unless it progresses."""
    field = plan.schema[index]
    info = plan.progressing.get(index)
    if not field.type.can_progress:
        raise binder.error(
            f"{field.name} is a {field.type}; a window attribute is a timestamp, a date or an"
            " integer",
            node,
            hint=_others(plan),
        )
    if info is None:
        raise not_progressing(binder, plan, field, node)
    return Attribute(index, field.name, field.type, info)


def not_progressing(binder: Binder, plan: Logical, field: Field, node: exp.Expr) -> BindError:
    what = f"column {field.name} has no watermark: no window over it would ever close"
    return binder.error(what, node, hint=_others(plan) or _remedy(plan, field.name))


def _others(plan: Logical) -> str | None:
    names = [plan.schema[i].name for i in plan.progressing]
    return f"WA {' or WA '.join(dict.fromkeys(names))} has a watermark" if names else None


def _remedy(plan: Logical, column: str) -> str:
    name = ".".join(plan.relation.name) if isinstance(plan, Scan) else "the stream"
    return (
        f"declare {name} with ORDERED BY {column} [WITHIN 5 SECONDS],"
        f" or WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND"
    )


def default_attribute(binder: Binder, plan: Logical, node: exp.Expr) -> Attribute:
    """The attribute of a window without WA: ``window_time`` of a derived stream, or the only
    progressing column. Raises BindError if there is none, or if there are several."""
    found = plan.progressing
    schema = plan.schema
    derived = [i for i in found if schema[i].name.lower() == WINDOW_COLUMNS[2]]
    if len(found) == 1 or derived:
        return attribute(binder, plan, next(iter(derived or found)), node)
    if found:
        names = [schema[i].name for i in found]
        raise binder.error(
            "the window names no attribute, and several columns have a watermark",
            node,
            hint="add WA " + " or WA ".join(dict.fromkeys(names)),
        )
    hint = _lost(plan)
    if hint is None:
        candidates = [f.name for f in schema if f.type.is_timestamp] or ["ts"]
        hint = _remedy(plan, candidates[0])
    raise binder.error("no column of the window's input has a watermark", node, hint=hint)


def _lost(plan: Logical) -> str | None:
    """The hint for a progressing column below a subquery's select list that does not select it."""
    while isinstance(plan, Filter | Windowed | Project | Union):
        plan = plan.inputs[0] if isinstance(plan, Union) else plan.input
        if isinstance(plan, Aggregate) and FIRST_ROW in plan.schema.names:
            return "windows of the rows of each key end at no common time: take one of time inside"
        names = [plan.schema[i].name for i in plan.progressing]
        if names:
            return f"select {names[0]} in the subquery, too"
    return None


# ------------------------------------------------------------------ lengths


def sliding(
    binder: Binder,
    wa: Attribute,
    lengths: tuple[exp.Expr, exp.Expr, exp.Expr | None],
    scope: Scope | None,
    words: tuple[str, str] = ("RANGE", "SLIDE"),
    kind: WindowKind = WindowKind.SLIDING,
) -> Window:
    """The windows ``[k * slide + offset, k * slide + offset + range)``; ``lengths`` are range,
    slide and offset. Windows of CUMULATE begin one range apart; windows with the same begin end one
    slide apart."""
    range_node, slide_node, offset_node = lengths
    range_ = _positive(binder, wa, range_node, words[0], scope)
    slide = _positive(binder, wa, slide_node, words[1], scope)
    offset = 0
    if offset_node is not None:
        offset = wa.units(binder, amount(binder, scope, offset_node), "OFFSET", offset_node)
    text = wa.shown(range_, slide)
    if kind is WindowKind.CUMULATE and range_ % slide:
        raise binder.error(f"{words[0]} must be a multiple of {words[1]}", range_node)
    if slide > range_:
        binder.warn(
            f"{words[1]} {text[1]} is larger than {words[0]} {text[0]}{text[2]}: rows between two"
            " windows belong to none",
            slide_node,
        )
    overlap, most = -(-range_ // slide), binder.context.settings.max_overlap
    if overlap > most:
        raise binder.error(
            f"each row would fall into {words[0]} / {words[1]}{text[2]} = {text[0]} / {text[1]} ="
            f" {overlap:,} windows; at most {most:,} are allowed",
            range_node,
            hint=f"raise {words[1]}, or SET max_overlap = {overlap}",
        )
    if slide == range_:
        kind = WindowKind.SLIDING
    begins = range_ if kind is WindowKind.CUMULATE else slide
    return Window(kind, wa.index, range_, slide, offset % begins)


def _positive(binder: Binder, wa: Attribute, node: exp.Expr, what: str, scope: Scope | None) -> int:
    units = wa.units(binder, amount(binder, scope, node), what, node)
    if units <= 0:
        raise binder.error(
            f"{what} must be longer than zero, not {units:,}",
            node,
            hint="without SLIDE, [NOW] is the relation of the current instant"
            if what == "RANGE"
            else None,
        )
    return units


def session(binder: Binder, wa: Attribute, gap: exp.Expr, what: str, scope: Scope | None) -> Window:
    """Sessions ``[first, last + gap)``: consecutive rows of a session are at most ``gap`` apart."""
    units = _positive(binder, wa, gap, what, scope)
    if units > _LONGEST_GAP:
        raise binder.error(f"{what} must be at most 2^61, not {units:,}", gap)
    return Window(WindowKind.SESSION, wa.index, gap=units)


# ------------------------------------------------------------------ brackets


#: Finds the column index, in the window's input, of a name in the bracket.
Lookup = Callable[[exp.Expr], int]


def bracket(binder: Binder, node: StreamWindow, plan: Logical, find: Lookup) -> Window:
    """The window of ``[RANGE …]``, ``[ROWS …]``, ``[SESSION …]``, … over ``plan``."""
    kind, args = node.window_kind, node.args
    if args.get("rests") is not None:
        raise binder.unsupported(
            "WITH RESTS in a window over rows", args["rests"], "windows of signals have rests"
        )
    partition = tuple(find(column) for column in args.get("partition") or ())
    if kind == "UNBOUNDED" or isinstance(args.get("range"), exp.Var):
        named = args.get("wa")
        first = find(named) if named is not None else next(iter(plan.progressing), None)
        return Window(WindowKind.UNBOUNDED, first, partition_by=partition)
    if counts_rows(node):
        window = _rows_that_slide(binder, node, plan)
        # Windows of each key have a number each: a window covers exactly one number.
        return replace(window, range=1, slide=1) if partition else window
    if kind == "ROWS":
        return _rows_window(binder, node, plan, find, partition)
    wa = _wa(binder, node, plan, find)
    if kind == "SESSION":
        return session(binder, wa, args["gap"], "SESSION", None)
    if kind == "NOW":
        return Window(WindowKind.NOW, wa.index, 0)
    if args.get("cumulate") is not None:
        if partition:
            raise binder.error("PARTITION BY does not go with CUMULATE", node, hint="use GROUP BY")
        lengths = (args["range"], args["cumulate"], args.get("offset"))
        words = ("RANGE", "CUMULATE")
        made = sliding(binder, wa, lengths, None, words, WindowKind.CUMULATE)
        return _in_zone(binder, made, wa, node)
    if args.get("slide") is not None and not partition:
        made = sliding(binder, wa, (args["range"], args["slide"], args.get("offset")), None)
        return _in_zone(binder, made, wa, node)
    if args.get("offset") is not None:
        raise binder.error("OFFSET needs SLIDE", args["offset"])
    length = wa.units(binder, amount(binder, None, args["range"]), "RANGE", args["range"])
    if length < 0:
        raise binder.error(f"RANGE must not be negative, not {length:,}", args["range"])
    slide = args.get("slide")
    step = _positive(binder, wa, slide, "SLIDE", None) if slide is not None else None
    return Window(WindowKind.RANGE, wa.index, length, step, partition_by=partition)


def counts_rows(node: StreamWindow) -> bool:
    """Whether the bracket is ``[ROWS n SLIDE m]``: windows over row numbers, of all rows or of the
    rows of each key."""
    args = node.args
    alone = args.get("range") is None and args.get("rows") is not None
    return node.window_kind == "ROWS" and args.get("slide") is not None and alone


def key_windows(binder: Binder, node: StreamWindow, find: Lookup) -> KeyWindows | None:
    """The windows of ``[PARTITION BY k ROWS n SLIDE m]``; None without PARTITION BY."""
    by = tuple(find(column) for column in node.args.get("partition") or ())
    if not by or isinstance(node.args["rows"], exp.Var):
        return None
    rows, slide = (_count(binder, node.args[key], key.upper()) for key in ("rows", "slide"))
    return KeyWindows(by, rows, slide)


def _rows_that_slide(binder: Binder, node: StreamWindow, plan: Logical) -> Window:
    """The window of ``[ROWS n SLIDE m]`` over the last column of ``plan``, the row number."""
    named = node.args.get("wa")
    if named is not None:
        raise binder.error("a window of ROWS with SLIDE counts rows: it has no WA", named)
    if isinstance(node.args["rows"], exp.Var):
        raise binder.error("ROWS UNBOUNDED has no SLIDE", node.args["slide"])
    for key in ("rows", "slide"):
        _count(binder, node.args[key], key.upper())
    number = attribute(binder, plan, len(plan.schema) - 1, node)
    return sliding(
        binder, number, (node.args["rows"], node.args["slide"], None), None, ("ROWS", "SLIDE")
    )


def _in_zone(binder: Binder, window: Window, wa: Attribute, node: StreamWindow) -> Window:
    """``window`` with days of the bracket's time zone in place of 24 hours."""
    named = node.args.get("zone")
    if named is None:
        return window
    if wa.type.kind is not Kind.TIMESTAMP:
        raise binder.error(
            f"TIME ZONE over {wa.name}, a {wa.type}: only a timestamp tells when it was", named
        )
    for word in ("range", "slide", "cumulate"):
        length = node.args.get(word)
        if length is not None and wa.units(binder, amount(binder, None, length), "", length) % DAY:
            raise binder.error(
                f"{word.upper()} must be whole days with TIME ZONE",
                length,
                hint="leave TIME ZONE out, or shift windows by an OFFSET",
            )
    try:
        days_of(named.name, window.offset)
    except ValueError as error:
        names = zoneinfo.available_timezones()
        hint = did_you_mean(named.name, names) if names else "install tzdata: there are none here"
        raise binder.error(str(error), named, hint=hint) from error
    return replace(window, zone=named.name)


def _wa(binder: Binder, node: StreamWindow, plan: Logical, find: Lookup) -> Attribute:
    wa = node.args.get("wa")
    if wa is None:
        return default_attribute(binder, plan, node)
    return attribute(binder, plan, find(wa), wa)


def _rows_window(
    binder: Binder, node: StreamWindow, plan: Logical, find: Lookup, partition: tuple[int, ...]
) -> Window:
    args = node.args
    wa: Attribute | None = None
    if args.get("wa") is not None or args.get("range") is not None or len(plan.progressing) == 1:
        wa = _wa(binder, node, plan, find)
    rows = None
    if not isinstance(args["rows"], exp.Var):
        rows = _count(binder, args["rows"], "ROWS")
    slide = args.get("slide")
    range_ = args.get("range")
    units = None
    if range_ is not None and wa is not None:
        units = _positive(binder, wa, range_, "RANGE", None)
    step = None
    if slide is not None:
        step = (
            _positive(binder, wa, slide, "SLIDE", None)
            if units is not None and wa is not None
            else _count(binder, slide, "SLIDE")
        )
    index = wa.index if wa else None
    return Window(WindowKind.ROWS, index, units, step, rows=rows, partition_by=partition)


def _count(binder: Binder, node: exp.Expr, what: str) -> int:
    length = amount(binder, None, node)
    if length.timed:
        raise binder.error(f"{what} counts rows here, not {length.text}", node)
    if length.value.denominator != 1 or not 0 < length.value < _INT64:
        raise binder.error(f"{what} needs a whole number above zero, not {length.text}", node)
    return length.value.numerator


# ------------------------------------------------------------------ Flink's and Spark's functions


def table_window(binder: Binder, node: WindowTable, plan: Logical, find: Lookup) -> Window:
    """The window of TUMBLE, HOP, CUMULATE or SESSION; it keeps the PARTITION BY of SESSION."""
    args = node.args
    wa = attribute(binder, plan, find(args["time"]), args["time"])
    match node.window_kind:
        case "TUMBLE":
            lengths = (args["size"], args["size"], args.get("offset"))
        case "HOP":
            lengths = (args["size"], args["slide"], args.get("offset"))
        case "SESSION":
            partition = tuple(find(column) for column in args.get("partition") or ())
            return replace(session(binder, wa, args["gap"], "GAP", None), partition_by=partition)
        case _:
            lengths = (args["size"], args["step"], args.get("offset"))
            words = ("SIZE", "STEP")
            return sliding(binder, wa, lengths, None, words, WindowKind.CUMULATE)
    return sliding(binder, wa, lengths, None, ("SIZE", "SLIDE"))


_NEEDED = {"HOP": ("slide", "size"), "SESSION": ("gap",), "SESSION_WINDOW": ("gap",)}


def check_arguments(binder: Binder, node: GroupWindow) -> None:
    """Raises BindError for a missing argument. The parser checks only TUMBLE(…): it reads
    TUMBLE_START(…) as an ordinary call."""
    for key in _NEEDED.get(node.window_kind, ("size",)):
        if node.args.get(key) is None:
            raise binder.error(
                f"the {key} of the window is missing",
                node,
                hint="repeat the arguments of the window in GROUP BY",
            )


def group_window(
    binder: Binder, node: GroupWindow, plan: Logical, scope: Scope, wa: Column | None
) -> Window:
    """The window of ``GROUP BY TUMBLE(ts, …)`` or ``window(ts, …)``; ``wa`` is the bound time
    column, None if the call has no time argument."""
    args = node.args
    found = (
        default_attribute(binder, plan, node)
        if wa is None
        else attribute(binder, plan, wa.index, node.this or node)
    )
    if node.window_kind in ("SESSION", "SESSION_WINDOW"):
        return session(binder, found, args["gap"], "GAP", scope)
    slide = args.get("slide") or args["size"]
    return sliding(
        binder, found, (args["size"], slide, args.get("offset")), scope, ("SIZE", "SLIDE")
    )


def slack(binder: Binder, field: Field, unit: TimeUnit | None, node: exp.Expr, what: str) -> int:
    """The slack of a progressing column, in its units. Raises BindError for another type and for a
    negative slack."""
    if not field.type.can_progress:
        raise binder.error(
            f"{field.name} is a {field.type}; a column with a watermark is a timestamp, a date"
            " or an integer",
            node,
        )
    length = amount(binder, None, node)
    if not length.timed and length.value == 0:
        return 0
    units = Attribute(0, field.name, field.type, ProgressInfo(unit, what)).units(
        binder, length, what, node
    )
    if units < 0:
        raise binder.error(f"{what} must not be negative", node)
    return units
