"""Functions over segments of signals. Those with the name of an aggregate compute one value for
each segment, as the aggregate would for the rows of a window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from cql.base.types import (
    BIGINT,
    BOOLEAN,
    COMPLEX,
    DOUBLE,
    INT,
    NULL,
    TIMEBASE,
    TIMESTAMP,
    DataType,
    Kind,
    array,
    signal,
    struct,
)
from cql.errors import BindError, NotSupportedError, Position
from cql.planner.functions.aggregates import canonical
from cql.planner.functions.coercion import cast
from cql.planner.functions.folding import can_fail, fold
from cql.planner.functions.signature import (
    Builder,
    Signature,
    argument,
    literal_int,
    strict,
    wrong,
)
from cql.planner.interpret.entries import read_array, write_array
from cql.planner.nodes.expr import Call, Case, Expr, Literal
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.show import INFIX, quoted, show

#: The greatest lag of a correlation, factor of a rate, and level of a wavelet transform.
_MOST_LAG, _MOST_FACTOR, _MOST_LEVEL = 1_000_000, 10_000, 30
#: Of a sample that is a struct: its kind is a number of 16 bits (``kernels.signals.layout``).
_MOST_VALUES = 10_000
#: Of the fraction that is a rate (``kernels.signals.timebase``).
_MOST_TERM = 9_000_000_000

#: Aggregates that are functions of a segment, with the type of the result (None: of its samples).
_AGGREGATES: dict[str, DataType | None] = {
    "count": BIGINT,
    "avg": DOUBLE,
    "min": None,
    "max": None,
    **dict.fromkeys(("stddev_samp", "stddev_pop", "var_samp", "var_pop"), DOUBLE),
}


def is_over_segments(name: str) -> bool:
    """Whether the aggregate ``name`` is a function of segments, too."""
    return canonical(name) in (*_AGGREGATES, "sum")


def over_segment(name: str, segment: Expr, pos: Position | None) -> Expr:
    """The aggregate ``name`` of the samples of a segment."""
    fn, sample = canonical(name), segment.type.element
    assert sample is not None
    if fn == "count":
        return strict(fn, (segment,), BIGINT, pos)
    _check_numbers((segment,), name, pos)
    if fn == "sum":
        to = BIGINT if sample.is_integer else DOUBLE
    else:
        to = _AGGREGATES[fn] or sample
    return strict(fn, (segment,), to, pos, nullable=True)


def is_segment(expr: Expr) -> bool:
    return expr.type.kind is Kind.SIGNAL


def _check_numbers(args: Sequence[Expr], name: str, pos: Position | None) -> None:
    """Raises BindError if the samples of a segment are no numbers."""
    for a in args:
        if not is_segment(a) or a.type.element is None or a.type.element.is_numeric:
            continue
        sample: DataType = a.type.element
        hint: str | None = "timestamp_ns(x, i) is the time of a sample of the signal"
        what = f"{sample} samples"
        if sample == COMPLEX:
            what = "complex samples"
            hint = "magnitude(x), phase(x), real(x) and imag(x) are segments of numbers"
        elif sample.kind is Kind.STRUCT:
            own = [quoted(n) for n, of in sample.fields if of.is_numeric]
            what = "structs"
            hint = "a field is a segment of numbers: " + ", ".join(f"{show(a)}.{n}" for n in own)
        raise BindError(
            f"{name} does not take segments of {what}", position=a.pos or pos, hint=hint
        )


def _segments(
    usage: str, args: Sequence[Expr], count: int, pos: Position | None
) -> tuple[Expr, ...]:
    """The first ``count`` arguments: segments of numbers, of which a constant list may take the
    place of one beside another. Raises BindError for other arguments."""
    name = usage.split("(", 1)[0]
    given = tuple(args[:count])
    if any(map(is_segment, given)):
        given = tuple(_listed(a, name, pos) for a in given)
    if not all(map(is_segment, given)):
        raise wrong(usage, args, pos)
    _check_numbers(given, name, pos)
    return given


def _listed(expr: Expr, name: str, pos: Position | None) -> Expr:
    """A constant list of numbers, an operand of ``name``, as a segment; other operands as they are.
    Raises BindError for another list."""
    if expr.type.kind is not Kind.ARRAY:
        return expr
    at = expr.pos or pos
    element = expr.type.element
    if element is None or not element.is_numeric:
        raise BindError(f"{name} takes a list of numbers, not {expr.type}", position=at)
    doubles = fold(cast(expr, array(DOUBLE), at))
    if not isinstance(doubles, Literal) or not isinstance(doubles.value, bytes):
        raise BindError(
            f"the list beside a segment in {name} is not constant",
            position=at,
            hint="array(0.25, 0.75) of constants",
        )
    values = read_array(doubles.value, DOUBLE)
    if None in values:
        raise BindError(f"the list beside a segment in {name} has a NULL", position=at)
    return Literal(doubles.value, signal(DOUBLE, len(values)), at)


def _check_lengths(args: Sequence[Expr], name: str, pos: Position | None) -> int:
    """The number of samples that all segments among ``args`` have, as far as it is known (0:
    unknown). Raises BindError if two are known to differ."""
    known = [a for a in args if is_segment(a) and (a.type.samples or isinstance(a, Literal))]
    for a in known[1:]:
        one, other = known[0].type.samples, a.type.samples
        if one != other:
            lists = [x for x in (known[0], a) if isinstance(x, Literal)]
            raise BindError(
                f"{name} takes as many samples on both sides, and these are {one:,} and {other:,}",
                position=lists[0].pos if lists else pos,
                hint="subseg(x, start, length) is a part of a segment",
            )
    return known[0].type.samples if known else 0


def _whole(
    expr: Expr, usage: str, number: int, ends: tuple[int, int], pos: Position | None
) -> Literal:
    """A constant argument between ``ends``."""
    name = usage.split("(", 1)[0]
    value = literal_int(expr, f"argument {number} of {name}", pos)
    if not ends[0] <= value <= ends[1]:
        raise BindError(
            f"argument {number} of {name} is between {ends[0]} and {ends[1]:,}, not {value:,}",
            position=expr.pos or pos,
            hint=f"usage: {usage}",
        )
    return Literal(value, BIGINT, expr.pos)


# -- operators -------------------------------------------------------------------------------------


def of_samples(fn: str, args: tuple[Expr, ...], pos: Position | None) -> Expr:
    """Arithmetic of segments with numbers and with segments, in doubles."""
    symbol = INFIX[fn]
    if f"samples_{fn}" not in INFIX:
        raise BindError(
            f"{symbol} does not take segments of a signal",
            position=pos,
            hint="samples take + - * and / with a number or with another segment",
        )
    given = [_listed(a, symbol, pos) for a in args]
    spectra = [a for a in given if a.type == signal(COMPLEX)]
    _check_numbers([a for a in given if a not in spectra], symbol, pos)
    usage = f"{symbol}(segment, number)"
    typed = [
        a if is_segment(a) else argument(a, DOUBLE, usage, k, pos) for k, a in enumerate(given, 1)
    ]
    rates = {a.type.rate for a in typed if is_segment(a) and not isinstance(a, Literal)}
    rate = rates.pop() if len(rates) == 1 else None
    sample = COMPLEX if spectra else DOUBLE
    made = signal(sample, _check_lengths(typed, symbol, pos), rate)
    return strict(f"samples_{fn}", typed, made, pos)


def sample(segment: Expr, number: Expr, pos: Position | None) -> Expr:
    """``segment[number]``, counted from 0: of structs the struct of that sample of each field."""
    kind = segment.type.element
    assert kind is not None
    if kind.kind is Kind.STRUCT:
        values = tuple(sample(field(segment, k, pos), number, pos) for k in range(len(kind.fields)))
        return _struct_of((segment, number), kind, values, pos)
    if not number.type.is_integer and number.type != NULL:
        raise BindError(
            f"the number of a sample is a whole number, not a value of type {number.type}",
            position=number.pos or pos,
        )
    at = cast(number, BIGINT, number.pos or pos)
    return strict("sample", (segment, at), kind, pos)


def _struct_of(
    args: tuple[Expr, ...], kind: DataType, values: tuple[Expr, ...], pos: Position | None
) -> Expr:
    """The struct of values of ``args``; NULL if one of these is."""
    made: Expr = Call("named_struct", values, kind, False, pos)
    for a in args:
        if a.nullable:
            there = Call("is_not_null", (a,), BOOLEAN, False, pos)
            made = Case(((there, made),), None, kind, True, pos)
    return made


def field(segment: Expr, number: int, pos: Position | None) -> Expr:
    """The field with this number of a segment of structs, which shares their samples."""
    kind = segment.type
    assert kind.element is not None
    made = signal(kind.element.fields[number][1], kind.samples, kind.rate)
    if kind.element == COMPLEX:
        return strict(("real", "imag")[number], (segment,), made, pos)
    if isinstance(segment, Call) and segment.fn == "samples_struct":
        as_long = all(a.type.samples for a in segment.args)
        if as_long and not segment.nullable and not any(map(can_fail, segment.args)):
            return segment.args[number]
    return strict("samples_field", (segment, Literal(number, INT)), made, pos)


def of_structs(names: Sequence[str], segments: Sequence[Expr], pos: Position | None) -> Expr:
    """The segment of the structs with a sample of each of the ``segments``, which is a copy; NULL
    if one of them is. Raises BindError for values that are no segments."""
    for value in segments:
        if not is_segment(value):
            raise BindError(
                f"a struct of segments has a segment in each field, and this is a {value.type}",
                position=value.pos or pos,
                hint="select values beside segments as columns of their own",
            )
    samples = _check_lengths(segments, "struct", pos)
    kinds = [value.type.element for value in segments]
    rates = {value.type.rate for value in segments}
    kind = struct(tuple((n, k) for n, k in zip(names, kinds, strict=True) if k is not None))
    check_size(kind, "a struct of segments", pos)
    made = signal(kind, samples, rates.pop() if len(rates) == 1 else None)
    return strict("samples_struct", tuple(segments), made, pos)


def check_size(kind: DataType, what: str, pos: Position | None) -> None:
    """Raises NotSupportedError for a type of samples with too many values."""
    values = _values(kind)
    if values > _MOST_VALUES:
        raise NotSupportedError(
            f"{what} with {values:,} values in each sample is not supported: {_MOST_VALUES:,} are"
            " the most",
            position=pos,
        )


def _values(kind: DataType) -> int:
    return sum(_values(of) for _, of in kind.fields) if kind.fields else 1


# -- functions -------------------------------------------------------------------------------------


def _of(fn: str, usage: str, to: DataType, *, count: int = 1, nullable: bool = False) -> Builder:
    """A function of ``count`` segments of numbers; ``nullable``: NULL without samples."""

    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        given = _segments(usage, args, count, pos)
        if fn == "dot":
            _check_lengths(given, fn, pos)
        return strict(fn, given, _made(fn, given, to), pos, nullable=nullable)

    return build


def _made(fn: str, args: Sequence[Expr], to: DataType) -> DataType:
    """The type ``to``, with what is known of segments that ``fn`` makes."""
    given = args[0].type
    n = given.samples
    if fn in ("hann", "hamming", "blackman"):
        return signal(DOUBLE, n, given.rate)
    if fn in ("fft", "power_spectrum"):
        return replace(to, samples=n // 2 + 1 if n else 0)
    if fn in ("haarwavelet", "real", "imag", "magnitude", "phase", "conj"):
        return replace(to, samples=n, rate=None if fn == "haarwavelet" else given.rate)
    if fn == "ifft" and len(args) == 1:
        return replace(to, samples=2 * (n - 1) if n > 1 else 0)
    if fn == "xcorr" and isinstance(args[2], Literal) and isinstance(args[2].value, int):
        return replace(to, samples=2 * args[2].value + 1)
    return to


def _with_constants(
    fn: str,
    usage: str,
    to: DataType,
    *ends: tuple[int, int],
    count: int = 1,
    nullable: bool = False,
) -> Builder:
    """The same, with constants between ``ends`` behind the segments."""

    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        given = _segments(usage, args, count, pos)
        constants = [
            _whole(a, usage, k, of, pos)
            for k, (a, of) in enumerate(zip(args[count:], ends, strict=True), count + 1)
        ]
        if fn in ("haarwavelet", "band_energy"):
            _check_halves(fn, given[0], constants[0], pos)
        typed = (*given, *constants)
        return strict(fn, typed, _made(fn, typed, to), pos, nullable=nullable)

    return build


def _check_halves(fn: str, segment: Expr, level: Literal, pos: Position | None) -> None:
    """Raises BindError if the samples are known not to be halved so often."""
    assert isinstance(level.value, int)
    samples, parts = segment.type.samples, 2**level.value
    if samples % parts:
        raise BindError(
            f"{fn} with level {level.value} takes a multiple of {parts:,} samples, and these are"
            f" {samples:,}",
            position=pos,
            hint="subseg(x, start, length) is a part of a segment",
        )


def filtered(
    fn: str, segment: Expr, numbers: Sequence[Sequence[float]], pos: Position | None
) -> Expr:
    """The samples of a segment through a filter ("fir", "iir") with the coefficients b, and a of
    which the first is 1."""
    _check_numbers((segment,), fn, pos)
    kind = segment.type
    lists = [
        Literal(write_array(tuple(n), DOUBLE), signal(DOUBLE, len(n)), segment.pos) for n in numbers
    ]
    return strict(fn, (segment, *lists), signal(DOUBLE, kind.samples, kind.rate), pos)


def _of_complex(fn: str, usage: str) -> Builder:
    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        if args[0].type != signal(COMPLEX):
            raise wrong(usage, args, pos)
        counts = [argument(a, BIGINT, usage, k, pos) for k, a in enumerate(args[1:], 2)]
        made = signal(COMPLEX if fn == "conj" else DOUBLE)
        return strict(fn, (args[0], *counts), _made(fn, args, made), pos)

    return build


def _subseg(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage = "subseg(segment, start, length)"
    if not is_segment(args[0]):
        raise wrong(usage, args, pos)
    counts = [argument(a, BIGINT, usage, k, pos) for k, a in enumerate(args[1:], 2)]
    samples, (start, length) = args[0].type.samples, map(_constant, counts)
    if samples and start is not None and length is not None:
        samples = len(range(samples)[max(start, 0) : max(start + length, 0)])
    else:
        samples = 0
    made = replace(args[0].type, samples=samples)
    return strict("subseg", (args[0], *counts), made, pos)


def _append(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage = "append(segment, next)"
    if not all(map(is_segment, args)):
        raise wrong(usage, args, pos)
    one, other = (a.type for a in args)
    if one.element != other.element:
        raise BindError(
            f"append takes two segments of one type, not {one} and {other}",
            position=pos,
            hint=None if one.is_of_structs else "arithmetic makes segments of doubles: x * 1",
        )
    for a in args:
        _check_times(a, "append", None, a.pos or pos)
    samples = one.samples + other.samples if one.samples and other.samples else 0
    return strict("append", args, replace(one, samples=samples), pos)


def _constant(expr: Expr) -> int | None:
    """The value of a constant whole number; None for other expressions."""
    folded = fold(expr)
    if isinstance(folded, Literal) and isinstance(folded.value, int):
        return folded.value
    return None


def _timestamp_ns(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage = "timestamp_ns(segment [, number])"
    if not is_segment(args[0]):
        raise wrong(usage, args, pos)
    if len(args) > 1:
        hint = "timestamp_ns(x) is where the segment begins that they were computed from"
        _check_times(args[0], "timestamp_ns with the number of a sample", hint, args[1].pos or pos)
    number = args[1] if len(args) > 1 else Literal(0, BIGINT, pos)
    return strict("timestamp_ns", (args[0], argument(number, BIGINT, usage, 2, pos)), BIGINT, pos)


def _check_times(segment: Expr, name: str, hint: str | None, at: Position | None) -> None:
    """Raises BindError at a place for a segment whose samples are not at the times of a signal."""
    if segment.type.rate is None:
        raise BindError(
            f"{name} takes segments of samples at the times of the signal, and these are of a"
            " transform",
            position=at,
            hint=hint,
        )


def _timebase(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    """The words of a timebase, as a struct."""
    (segment,) = args
    if not is_segment(segment):
        raise wrong("timebase(segment)", args, pos)
    hint = "timebase(x) is for the segment they were computed from"
    _check_times(segment, "timebase", hint, segment.pos or pos)
    words = tuple(
        strict("timebase_word", (segment, Literal(k, BIGINT)), BIGINT, pos)
        for k in range(len(TIMEBASE.fields))
    )
    return _struct_of(args, TIMEBASE, words, pos)


def _first_sample(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    if not is_segment(args[0]):
        raise wrong("first_sample(segment)", args, pos)
    hint = "first_sample(x) is for the segment they were computed from"
    _check_times(args[0], "first_sample", hint, args[0].pos or pos)
    return strict("first_sample", args, BIGINT, pos)


def _sample_at(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage = "sample_at(segment, time)"
    if not is_segment(args[0]):
        raise wrong(usage, args, pos)
    hint = "sample_at(x, time) is for the segment they were computed from"
    _check_times(args[0], "sample_at", hint, args[0].pos or pos)
    given = (args[0], argument(args[1], TIMESTAMP, usage, 2, pos))
    return strict("sample_at", given, BIGINT, pos, nullable=True)


def _resample(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage, ends = "resample(segment, up, down)", (1, _MOST_FACTOR)
    given = _segments(usage, args, 1, pos)
    up, down = (_whole(a, usage, k, ends, pos) for k, a in enumerate(args[1:], 2))
    assert isinstance(up.value, int)
    assert isinstance(down.value, int)
    common = math.gcd(up.value, down.value)
    least = (Literal(n.value // common, BIGINT, n.pos) for n in (up, down) if type(n.value) is int)
    samples, rate = -(-given[0].type.samples * up.value // down.value), given[0].type.rate
    if rate is not None:
        made = Fraction(*rate) * up.value / down.value
        if max(made.as_integer_ratio()) > _MOST_TERM:
            raise BindError(
                f"the rate of resample, {float(made):,.15g} Hz, has times that 64 bits do not hold:"
                f" as a fraction it is {made}",
                position=pos,
                hint="choose numbers with smaller prime factors",
            )
        rate = made.as_integer_ratio()
    return strict("resample", (*given, *least), signal(DOUBLE, samples, rate), pos)


def _function(usage: str, help: str, arity: tuple[int, int], build: Builder) -> Signature:
    return Signature(usage.split("(", 1)[0], "signal", usage, help, arity, build)


def _simple(
    usage: str, help: str, to: DataType, count: int = 1, *, nullable: bool = False
) -> Signature:
    built = _of(usage.split("(", 1)[0], usage, to, count=count, nullable=nullable)
    return _function(usage, help, (count, count), built)


_SPECTRUM = (
    ("real(spectrum)", "The real parts of complex samples."),
    ("imag(spectrum)", "The imaginary parts of complex samples."),
    ("magnitude(spectrum)", "The magnitudes of complex samples."),
    ("conj(spectrum)", "The complex conjugates of complex samples."),
    ("phase(spectrum)", "The phases of complex samples, in radians."),
)
_LAG, _LEVEL = (0, _MOST_LAG), (1, _MOST_LEVEL)
_XCORR, _DELAY = "xcorr(segment, other, most)", "delay(segment, other, most)"
_HAAR, _ENERGY = "haarwavelet(segment, levels)", "band_energy(segment, level)"

SIGNALS = (
    _simple("rms(segment)", "Root of the mean square of the samples.", DOUBLE,
            nullable=True),
    _simple("zero_crossings(segment)", "How often the sign of the samples changes.", BIGINT),
    _simple("peak(segment)", "The number, from 0 on, of the first greatest sample.", BIGINT,
            nullable=True),
    _simple("trough(segment)", "The number, from 0 on, of the first least sample.", BIGINT,
            nullable=True),
    _simple("dot(segment, other)", "The sum of the products of as many samples (or of a list).",
            DOUBLE, 2),
    _simple("hann(segment)", "The samples times a Hann window.", signal(DOUBLE)),
    _simple("hamming(segment)", "The samples times a Hamming window.", signal(DOUBLE)),
    _simple("blackman(segment)", "The samples times a Blackman window.", signal(DOUBLE)),
    _simple("power_spectrum(segment)", "Squared magnitudes of the Fourier transform.",
            signal(DOUBLE)),
    _simple("fft(segment)", "Fourier transform, up to half of the rate: complex samples.",
            signal(COMPLEX)),
    _function("ifft(spectrum [, samples])", "The samples of a Fourier transform (an even number).",
              (1, 2), _of_complex("ifft", "ifft(spectrum [, samples])")),
    *(
        _function(usage, help, (1, 1), _of_complex(usage.split("(", 1)[0], usage))
        for usage, help in _SPECTRUM
    ),
    _function("subseg(segment, start, length)",
              "The samples from number start (from 0) on, length at most.", (3, 3), _subseg),
    _function("append(segment, next)",
              "The samples of both, of which next begins where segment ends.", (2, 2), _append),
    _function("timestamp_ns(segment [, number])",
              "The time of a sample, by default of the first, in nanoseconds since 1970.",
              (1, 2), _timestamp_ns),
    _function("sample_at(segment, time)",
              "The number, from 0 on, of the sample nearest to a time; NULL if it has none there.",
              (2, 2), _sample_at),
    _function("timebase(segment)",
              "Its rate, per, origin, phase: sample i is at origin + (i * per + phase) / rate s.",
              (1, 1), _timebase),
    _function("first_sample(segment)", "The number of the first sample in its timebase.", (1, 1),
              _first_sample),
    _function("resample(segment, up, down)",
              "The samples at up / down times the rate, through a low pass.", (3, 3), _resample),
    _function(_XCORR, "Sums of products with the samples of other that come -most … most later.",
              (3, 3), _with_constants("xcorr", _XCORR, signal(DOUBLE), _LAG, count=2)),
    _function(_DELAY, "How many samples later other comes: the lag of the greatest xcorr.",
              (3, 3), _with_constants("delay", _DELAY, BIGINT, _LAG, count=2, nullable=True)),
    _function(_HAAR, "Haar transform: the approximation, and the details from coarse to fine.",
              (2, 2), _with_constants("haarwavelet", _HAAR, signal(DOUBLE), _LEVEL)),
    _function(_ENERGY, "Energy of the details of a level of the Haar transform (1: the finest).",
              (2, 2), _with_constants("band_energy", _ENERGY, DOUBLE, _LEVEL)),
)  # fmt: skip
