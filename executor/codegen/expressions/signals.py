"""Functions over segments of signals: calls of the kernel library."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from cql.base.types import BIGINT, DataType, Kind
from cql.executor.codegen.expressions.scope import (
    Again,
    Code,
    ErrorSite,
    Scope,
    let,
    stored,
    when,
    zero,
)
from cql.executor.kernels.signals.of_segments import pairs, times
from cql.executor.morsel.sample_types import fields_of, number_of_kind, sample_dtype
from cql.planner.interpret.error import EvaluationError
from cql.planner.nodes.expr import Call, Literal
from cql.planner.nodes.show import show

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
    "peak": "segment_peak({0})",
    "trough": "segment_trough({0})",
    "dot": "segment_dot({0}, {1})",
    "delay": "segment_delay({0}, {1}, {2})",
    "band_energy": "segment_band_energy({0}, {1})",
    "subseg": "segment_part({0}, {1}, {2}, {serial})",
    "append": "segment_appended({0}, {1}, {serial})",
    "hann": "segment_window({0}, int64(0), {serial})",
    "hamming": "segment_window({0}, int64(1), {serial})",
    "blackman": "segment_window({0}, int64(2), {serial})",
    "power_spectrum": "segment_power({0}, {serial})",
    "fft": "segment_fft({0}, {serial})",
    "real": "segment_of_complex({0}, int64(0), {serial})",
    "imag": "segment_of_complex({0}, int64(1), {serial})",
    "magnitude": "segment_of_complex({0}, int64(2), {serial})",
    "conj": "segment_conjugate({0}, {serial})",
    "phase": "segment_of_complex({0}, int64(3), {serial})",
    "resample": "segment_resampled({0}, {1}, {2}, {serial})",
    "xcorr": "segment_correlation({0}, {1}, {2}, {serial})",
    "haarwavelet": "segment_haar({0}, {1}, {serial})",
    "timestamp_ns": "segment_time({0}, {1})",
    "sample_at": "segment_sample_at({0}, {1})",
    "first_sample": "segment_first({0})",
    "fir": "segment_filtered({0}, {1}, {1}, int64(0), {serial})",
    "iir": "segment_filtered({0}, {1}, {2}, int64(1), {serial})",
    "timebase_word": "segment_timebase({0}, {1})",
}
#: Functions whose result may stand for NULL: that value.
_NONE = {"delay": pairs.NO_LAG, "sample_at": times.NO_SAMPLE}
#: Functions as in _VALUES, by whether the result is a fraction.
_OF_KIND = {
    "sum": ("segment_sum({0})", "segment_real_sum({0})"),
    "min": ("segment_min({0})", "segment_real_min({0})"),
    "max": ("segment_max({0})", "segment_real_max({0})"),
    "sample": ("segment_sample({0}, {1})", "segment_real_sample({0}, {1})"),
}
#: Arithmetic: the operation, and the one with the operands in exchange.
_ARITHMETIC = {
    "samples_add": (pairs.ADD, pairs.ADD),
    "samples_sub": (pairs.SUBTRACT, pairs.SUBTRACT_FROM),
    "samples_mul": (pairs.MULTIPLY, pairs.MULTIPLY),
    "samples_div": (pairs.DIVIDE, pairs.DIVIDE_INTO),
}


class _Needed(NamedTuple):
    """What must hold, and the error if it does not, which names two ``numbers``."""

    condition: str
    numbers: tuple[str, str]
    message: str


_AS_LONG = _Needed(
    "segment_as_long({0}, {1})",
    ("segment_count({0})", "segment_count({1})"),
    "the segments have {:,} and {:,} samples",
)
_HALVES = _Needed(
    "segment_halves({0}, {1})",
    ("segment_count({0})", "{1}"),
    "the number of samples, {:,}, is no multiple of 2 to the power {}",
)
_NEEDED = {
    "dot": _AS_LONG,
    "append": _Needed(
        "are_adjacent({0}, {1})",
        ("segment_time({0}, segment_count({0}))", "segment_time({1}, int64(0))"),
        "the first segment ends at {:,} and the other does not go on there, but begins at {:,}"
        " (nanoseconds since 1970)",
    ),
    "sample": _Needed(
        "segment_has({0}, {1})",
        ("segment_count({0})", "{1}"),
        "of the {:,} samples, numbered from 0 on, none has the number {:,}",
    ),
    "timestamp_ns": _Needed(
        "(segment_has({0}, {1}) or {1} == segment_count({0}))",
        ("segment_count({0})", "{1}"),
        "of the {:,} samples, numbered from 0 on, none has the number {:,}",
    ),
    "band_energy": _HALVES,
    "haarwavelet": _HALVES,
    "ifft": _Needed(
        "segment_is_spectrum({0}, {1})",
        ("segment_count({0})", "{1}"),
        "the spectrum has {:,} values, which are not those of {:,} samples",
    ),
}
_FITS = _Needed(
    "segment_sum_fits({0})",
    ("segment_count({0})", "int64(64)"),
    "the sum of the {:,} samples has more than {} bits",
)
#: The least number of samples that give a value: the function is NULL of fewer.
_LEAST = {
    **dict.fromkeys(("sum", "avg", "min", "max", "rms", "var_pop", "stddev_pop"), 1),
    **dict.fromkeys(("var_samp", "stddev_samp"), 2),
    **dict.fromkeys(("peak", "trough"), 1),
}

SEGMENTS = frozenset((*_VALUES, *_OF_KIND, *_ARITHMETIC, "ifft", "samples_field", "samples_struct"))


def over_segments(call: Call) -> bool:
    return call.fn in SEGMENTS and any(a.type.kind is Kind.SIGNAL for a in call.args)


def emit_segments(call: Call, args: Sequence[Code], valid: str | None, scope: Scope) -> Code:
    """A call over segments. No segment is read where an argument is NULL."""
    value = None if valid is None else let(scope, zero(call.type))
    enough = None if valid is None or call.fn not in _LEAST else let(scope, "False", "v")
    with when(scope, valid):
        needed, text = _texts(call)
        names = [a.value for a in args]
        for each in needed:
            with when(scope, f"not {each.condition.format(*names)}"):
                scope.line(scope.fail(_failure(call, each, names, scope)))
        serial = scope.serial() if "{serial}" in text else ""
        made = _put_together(call, names, scope) if call.fn == "samples_struct" else ""
        text = stored(text.format(*names, serial=serial, made=made), call.type)
        if value is None:
            value = let(scope, text)
        else:
            scope.line(f"{value} = {text}")
        if call.fn in _LEAST:
            there = f"segment_count({names[0]}) >= int64({_LEAST[call.fn]})"
            if enough is None:
                valid = let(scope, there, "v")
            else:
                scope.line(f"{enough} = {there}")
                valid = enough
        for name, arg in zip(names, call.args, strict=True):
            if isinstance(arg, Call) and arg.type.kind is Kind.SIGNAL and arg.fn in SEGMENTS:
                scope.line(f"drop_samples({name})")  # the call was its only reader
    if call.fn in _NONE:
        there = f"{value} != int64({_NONE[call.fn]})"
        valid = let(scope, there if valid is None else f"{valid} & ({there})", "v")
    return Code(value, valid)


def _failure(call: Call, needed: _Needed, names: Sequence[str], scope: Scope) -> ErrorSite:
    first = scope.keep([f"int64({text.format(*names)})" for text in needed.numbers])
    message = f"{needed.message}: {show(call).replace('{', '{{').replace('}', '}}')}"
    again = Again(partial(_fail, message), (BIGINT, BIGINT), first)
    return ErrorSite("value", f"{show(call)} failed on this row", call.pos, again)


def _fail(message: str, numbers: Sequence[object]) -> object:
    raise EvaluationError("value", message.format(*numbers))


def _texts(call: Call) -> tuple[Sequence[_Needed], str]:
    """What a call needs, and its text."""
    fn = call.fn
    if fn in _ARITHMETIC:
        return _arithmetic(call)
    if fn in ("samples_field", "samples_struct"):
        return _of_structs(call)
    if fn == "ifft":
        if len(call.args) == 1:
            return (), "segment_inverse({0}, segment_even({0}), {serial})"
        return (_NEEDED[fn],), "segment_inverse({0}, {1}, {serial})"
    if fn == "sum" and call.args[0].type.element == BIGINT:
        return (_FITS,), _OF_KIND[fn][0]
    text = _OF_KIND[fn][call.type.is_fraction] if fn in _OF_KIND else _VALUES[fn]
    return (_NEEDED[fn],) if fn in _NEEDED else (), text


def _arithmetic(call: Call) -> tuple[Sequence[_Needed], str]:
    """``_texts`` of an operation of a segment and a number or another segment."""
    one, other = (a.type.kind is Kind.SIGNAL for a in call.args)
    forward, exchanged = _ARITHMETIC[call.fn]
    kind = "spectrum" if call.type.is_of_structs else "segment"
    first = call.args[0]
    # the result begins where a segment does that is no list, and is complex if one is
    leads = one and not (other and isinstance(first, Literal))
    if leads and other and call.type.is_of_structs and not first.type.is_of_structs:
        leads = False
    places, operation = ("{0}, {1}", forward) if leads else ("{1}, {0}", exchanged)
    name = f"{kind}_combined" if one and other else f"{kind}_with"
    needed = (_AS_LONG,) if one and other else ()
    return needed, f"{name}({places}, int64({operation}), {{serial}})"


def _of_structs(call: Call) -> tuple[Sequence[_Needed], str]:
    """``_texts`` of a field of structs, and of the structs of several segments, which a variable
    has already (``_put_together``)."""
    if call.fn == "samples_field":
        of, number = call.args
        assert isinstance(number, Literal)
        assert isinstance(number.value, int)
        (offset, kind) = _fields(of.type)[number.value]
        return (), f"segment_field({{0}}, int64({offset}), int64({kind}), {{serial}})"
    needed = []
    for k in range(1, len(call.args)):
        numbers = ("segment_count({0})", f"segment_count({{{k}}})")
        needed.append(_Needed(f"segment_as_long({{0}}, {{{k}}})", numbers, _AS_LONG.message))
    return needed, "segment_given({0}, {made}, {serial})"


def _put_together(call: Call, names: Sequence[str], scope: Scope) -> str:
    """A variable with a new segment of the structs of others, which have as many samples."""
    assert call.type.element is not None
    kind = number_of_kind(sample_dtype(call.type.element))
    made = let(scope, f"segment_of_structs({names[0]}, int64({kind}))")
    for name, (offset, _) in zip(names, _fields(call.type), strict=True):
        scope.line(f"with_field({made}, {name}, int64({offset}))")
    return made


def _fields(kind: DataType) -> list[tuple[int, int]]:
    """The offset of each field of structs, in bytes, and the number of the kind of its samples."""
    assert kind.element is not None
    samples = np.zeros(1, sample_dtype(kind.element))
    fields = fields_of(samples)
    return [(f.ctypes.data - samples.ctypes.data, number_of_kind(f.dtype)) for f in fields]
