"""Functions over segments of signals: calls of the kernel library."""

from __future__ import annotations

from collections.abc import Sequence

from cql.base.types import Kind
from cql.executor.codegen.expressions.scope import Code, Scope, let, stored, when, zero
from cql.planner.nodes.expr import Call

#: Text with {0}, {1}, … for the arguments, and {serial} for the serial number of the morsel, to
#: which a segment that is made belongs.
_VALUES = {
    "count": "segment_count({0})",
    "avg": "segment_mean({0})",
    "var_samp": "segment_variance({0}, int64(1))",
    "var_pop": "segment_variance({0}, int64(0))",
    "stddev_samp": "math.sqrt(segment_variance({0}, int64(1)))",
    "stddev_pop": "math.sqrt(segment_variance({0}, int64(0)))",
    "rms": "segment_rms({0})",
    "zero_crossings": "segment_crossings({0})",
    "subseg": "segment_part({0}, {1}, {2}, {serial})",
    "hann": "segment_hann({0}, {serial})",
    "power_spectrum": "segment_power({0}, {serial})",
}
#: The same, by whether the result is a fraction.
_OF_KIND = {
    "sum": ("segment_sum({0})", "segment_real_sum({0})"),
    "min": ("segment_min({0})", "segment_real_min({0})"),
    "max": ("segment_max({0})", "segment_real_max({0})"),
}

SEGMENTS = frozenset((*_VALUES, *_OF_KIND))


def over_segments(call: Call) -> bool:
    return call.fn in SEGMENTS and any(a.type.kind is Kind.SIGNAL for a in call.args)


def emit_segments(call: Call, args: Sequence[Code], valid: str | None, scope: Scope) -> Code:
    """A call over segments. No segment is read where an argument is NULL."""
    fn, to = call.fn, call.type
    text = _OF_KIND[fn][to.is_fraction] if fn in _OF_KIND else _VALUES[fn]
    serial = scope.serial() if "{serial}" in text else ""
    text = stored(text.format(*(a.value for a in args), serial=serial), to)
    if valid is None:
        return Code(let(scope, text), None)
    value = let(scope, zero(to))
    with when(scope, valid):
        scope.line(f"{value} = {text}")
    return Code(value, valid)
