"""Functions over segments of signals. Those with the name of an aggregate compute one value for
each segment, as the aggregate would for the rows of a window."""

from __future__ import annotations

from cql.base.types import BIGINT, DOUBLE, DataType, Kind
from cql.errors import Position
from cql.planner.functions.aggregates import canonical
from cql.planner.functions.signature import Builder, Signature, strict, wrong
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
        if any(a.type.kind is not Kind.SIGNAL for a in args):
            raise wrong(usage, args, pos)
        return strict(fn, args, to, pos)

    return build


SIGNALS = tuple(
    Signature(name, "signal", usage, help, (1, 1), _segment(name, usage, to))
    for name, usage, help, to in (
        ("rms", "rms(segment)", "Root of the mean square of the samples.", DOUBLE),
        (
            "zero_crossings",
            "zero_crossings(segment)",
            "How often the sign of the samples changes.",
            BIGINT,
        ),
    )
)
