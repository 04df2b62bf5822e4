"""Functions over segments of signals. Those with the name of an aggregate compute one value for
each segment, as the aggregate would for the rows of a window."""

from __future__ import annotations

from cql.base.types import BIGINT, DOUBLE, DataType, Kind, signal
from cql.errors import Position
from cql.planner.functions.aggregates import canonical
from cql.planner.functions.signature import Builder, Signature, argument, strict, wrong
from cql.planner.nodes.expr import Expr

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
    if fn == "sum":
        return strict(fn, (segment,), BIGINT if sample.is_integer else DOUBLE, pos)
    return strict(fn, (segment,), _AGGREGATES[fn] or sample, pos)


def _segment(fn: str, usage: str, to: DataType) -> Builder:
    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        if args[0].type.kind is not Kind.SIGNAL:
            raise wrong(usage, args, pos)
        return strict(fn, args, to, pos)

    return build


def _subseg(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage = "subseg(segment, start, length)"
    if args[0].type.kind is not Kind.SIGNAL:
        raise wrong(usage, args, pos)
    counts = [argument(a, BIGINT, usage, k, pos) for k, a in enumerate(args[1:], 2)]
    return strict("subseg", (args[0], *counts), args[0].type, pos)


SIGNALS = (
    *(
        Signature(
            name, "signal", f"{name}(segment)", help, (1, 1), _segment(name, f"{name}(segment)", to)
        )
        for name, help, to in (
            ("rms", "Root of the mean square of the samples.", DOUBLE),
            ("zero_crossings", "How often the sign of the samples changes.", BIGINT),
            ("hann", "The samples times a Hann window.", signal(DOUBLE)),
            (
                "power_spectrum",
                "Squared magnitudes of the Fourier transform, padded to a power of two.",
                signal(DOUBLE),
            ),
        )
    ),
    Signature(
        "subseg",
        "signal",
        "subseg(segment, start, length)",
        "The samples from number start (from 0) on, length at most.",
        (3, 3),
        _subseg,
    ),
)
