"""Functions in FROM of signals: ``CONCAT(rows)``, ``SIGNAL(rows)``,
``FILL(signal, method, longest)`` and ``ZIP(signal, other, …)`` make a signal, of which each may
stand inside another; ``GAPS(signal [, tolerance])`` is a stream of rows."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from sqlglot import exp

from cql.base.types import INTERVAL, Kind
from cql.planner.bind.context import Binder, Env
from cql.planner.bind.expressions.expression import ExprBinder
from cql.planner.bind.relations import running, signals
from cql.planner.bind.scope import Scope
from cql.planner.functions.folding import fold
from cql.planner.nodes.catalog import SAMPLE_TIME
from cql.planner.nodes.expr import Expr, Literal
from cql.planner.nodes.logical import Concat, Fill, Gaps, Logical, Zip, samples_of

#: The plan of a name in FROM.
Named = Callable[[exp.Table], Logical]

_USAGE = {
    "CONCAT": "FROM CONCAT(sounds) AS s [ROWS 4096 SLIDE 4096]",
    "SIGNAL": "FROM SIGNAL(filtered) AS s [ROWS 4096 SLIDE 4096]",
    "FILL": "FROM FILL(audio, 'linear', INTERVAL 1 SECOND) AS s [ROWS 4096 SLIDE 4096]",
    "ZIP": "FROM ZIP(left_audio, right_audio) AS s [ROWS 4096 SLIDE 4096]",
    "GAPS": "FROM GAPS(audio) AS g",
}
#: How many arguments there are, and what they are.
_ARGUMENTS = {
    "CONCAT": (1, 1, "the name of a view with segments"),
    "SIGNAL": (1, 1, "the name of a view with segments"),
    "FILL": (3, 3, "the name of a signal, a method, and the longest gap"),
    "ZIP": (2, 100, "the names of two signals or more"),
    "GAPS": (1, 2, "the name of a signal, and perhaps a tolerance"),
}
_METHODS = ("prev", "linear")
#: Of a filled gap: an operator gives its output on when it has so many.
_MOST_SAMPLES = 1 << 22


def is_of_signals(node: exp.Expr | None) -> bool:
    """Whether what an item of FROM names is one of these functions."""
    return isinstance(node, exp.Anonymous) and node.name.upper() in _USAGE


def source_name(call: exp.Expr) -> str | None:
    """What columns of the rows answer to without an alias: of ``GAPS(audio)`` to ``audio``."""
    return call.expressions[0].name if call.name.upper() == "GAPS" else None


def bound(binder: Binder, call: exp.Expr, named: Named) -> Logical:
    """What the function ``call`` gives. Raises BindError or NotSupportedError for arguments that it
    does not take."""
    function, given = call.name.upper(), list(call.expressions)
    least, most, what = _ARGUMENTS[function]
    count = len(given) if function == "ZIP" else 1
    plans = [p for each in given[:count] if (p := _operand(binder, each, named)) is not None]
    if not least <= len(given) <= most or len(plans) < count:
        raise binder.error(f"{function} takes {what}", call, _USAGE[function])
    if function in ("CONCAT", "SIGNAL"):
        return _concat(binder, function, plans[0], given[0])
    for plan, at in zip(plans, given, strict=False):
        if not signals.is_signal(plan):
            raise binder.error(
                f"{function} takes a signal", at, "CREATE STREAM … RATE 100 HZ declares a signal"
            )
    if function == "FILL":
        return _fill(binder, plans[0], given)
    if function == "GAPS":
        return _gaps(binder, plans[0], call)
    made = plans[0]
    for plan, node in zip(plans[1:], given[1:], strict=True):
        made = _zip(binder, [made, plan], [given[0], node])
    return made


def _operand(binder: Binder, node: exp.Expr, named: Named) -> Logical | None:
    """The plan that an argument names, or that another function makes; None for others."""
    if is_of_signals(node):
        return bound(binder, node, named)
    table = signals.table_of(node)
    return None if table is None else named(table)


def _gaps(binder: Binder, plan: Logical, call: exp.Expr) -> Gaps:
    """The gaps of a signal, where times are further than a tolerance from the rate."""
    samples = samples_of(plan)
    assert samples is not None
    channels, time = signals.parts(binder, plan, samples, call)
    if len(call.expressions) == 1:
        return Gaps(plan, channels, time, pos=binder.pos(call))
    given = call.expressions[1]
    tolerance = _interval(binder, given, "the tolerance of GAPS is an interval", "GAPS")
    if isinstance(plan, Concat | Fill | Zip) or time is None:
        raise binder.unsupported(
            f"a tolerance in GAPS of {samples.name}, whose samples have no column with their times,"
            if time is None
            else f"a tolerance in GAPS of a signal that {type(plan).__name__.upper()} makes",
            given,
            "GAPS(signal) has the gaps that are there",
        )
    half = 500_000 / samples.rate
    if not 0 < tolerance <= half:
        raise binder.error(
            "the tolerance of GAPS is above zero, and at most half the time from a sample to the"
            f" next, {float(half):,.9g} microseconds",
            given,
        )
    return Gaps(plan, channels, time, tolerance, binder.pos(call))


def _concat(binder: Binder, function: str, plan: Logical, node: exp.Expr) -> Concat:
    reason = running.unordered(plan)
    if reason is not None:
        raise binder.unsupported(f"{function} over {reason}", node)
    channels = tuple(k for k, f in enumerate(plan.schema) if f.type.kind is Kind.SIGNAL)
    if not channels:
        raise binder.error(
            f"{function} takes rows with segments, and {node.name} has none",
            node,
            "CREATE VIEW sounds AS SELECT a.ch0 FROM detections AS d, audio AS a WHERE a.time …",
        )
    in_time = function == "SIGNAL"
    rates = [plan.schema[c].type.rate for c in channels]
    for c, rate in zip(channels, rates, strict=True):
        f = plan.schema[c]
        if rate is None:
            raise binder.unsupported(
                f"{function} of {f.name}, whose samples are those of a transform,", node
            )
        if f.nullable:
            raise binder.unsupported(
                f"{function} of {f.name}, which may be NULL,", node, "WHERE leaves rows out"
            )
        if in_time and f.name.lower() == SAMPLE_TIME:
            raise binder.error(
                f"SIGNAL has a column {SAMPLE_TIME} with the times of its samples, and {node.name}"
                " has segments of that name",
                node,
                "a view gives them another name",
            )
        if rate != rates[0]:
            raise binder.unsupported(
                f"{function} of {plan.schema[channels[0]].name} and {f.name}, which have different"
                " rates,",
                node,
            )
    assert rates[0] is not None
    return Concat(plan, channels, Fraction(*rates[0]), node.name, in_time, binder.pos(node))


def _fill(binder: Binder, plan: Logical, given: list[exp.Expr]) -> Fill:
    samples = samples_of(plan)
    assert samples is not None
    channels, time = signals.parts(binder, plan, samples, given[0])
    if time is None:
        raise binder.error(
            f"FILL takes a signal with a column of times, and {samples.name} has none", given[0]
        )
    method = _constant(binder, given[1])
    text = method.value if isinstance(method, Literal) else None
    if not isinstance(text, str) or text.lower() not in _METHODS:
        raise binder.error("FILL fills with 'prev' or 'linear'", given[1], _USAGE["FILL"])
    longest = _interval(binder, given[2], "the longest gap that FILL fills is an interval", "FILL")
    count = int(longest * samples.rate / 1_000_000)
    if not 1 <= count <= _MOST_SAMPLES:
        raise binder.error(
            f"the longest gap that FILL fills has from 1 to {_MOST_SAMPLES:,} samples, and here"
            f" {count:,}",
            given[2],
        )
    linear = text.lower() == "linear"
    return Fill(plan, channels, time, linear, count, binder.pos(given[0]))


def _constant(binder: Binder, node: exp.Expr, clause: str = "FILL") -> Expr:
    return fold(ExprBinder(binder, Scope(binder, (), (), Env()), None, clause).bind(node))


def _interval(binder: Binder, node: exp.Expr, what: str, function: str) -> int:
    """The microseconds of a constant interval. Raises BindError for another argument."""
    found = _constant(binder, node, function)
    if not isinstance(found, Literal) or found.type != INTERVAL:
        raise binder.error(what, node, _USAGE[function])
    assert isinstance(found.value, int)
    return found.value


def _zip(binder: Binder, plans: list[Logical], given: list[exp.Expr]) -> Zip:
    one, other = (samples_of(plan) for plan in plans)
    assert one is not None
    assert other is not None
    (channels, time), (beside, time_beside) = (
        signals.parts(binder, plan, samples, node)
        for plan, samples, node in zip(plans, (one, other), given, strict=True)
    )
    if one.rate != other.rate:
        raise binder.error(
            f"ZIP takes signals of one rate: {one.name} has {float(one.rate):,.15g} Hz,"
            f" {other.name} {float(other.rate):,.15g} Hz",
            given[1],
            "resample(x, up, down) gives segments another rate",
        )
    if (time is None) != (time_beside is None):
        with_, without = (one, other) if time_beside is None else (other, one)
        raise binder.error(
            f"ZIP takes two signals with times or two without: {with_.name} has times,"
            f" {without.name} has none",
            given[1],
        )
    left, right = (plan.schema for plan in plans)
    names = {left[c].name.lower() for c in (*channels, *(() if time is None else (time,)))}
    for c in beside:
        if right[c].name.lower() in names:
            raise binder.error(
                f"both signals of ZIP have a column {right[c].name}",
                given[1],
                f"CREATE VIEW v AS SELECT …, {right[c].name} AS other FROM {other.name}",
            )
    return Zip(plans[0], plans[1], channels, time, beside, time_beside, binder.pos(given[0]))
