"""How watermarks go through a stage: from which input column's punctuation the punctuation of an
output column follows."""

from __future__ import annotations

from dataclasses import dataclass

from cql.base.types import BIGINT
from cql.executor.kernels.morsel_layout import NUMBERS
from cql.executor.operators.stage.spec import StageSpec, Step
from cql.planner.nodes.expr import Column, Expr, substitute
from cql.planner.nodes.logical import SEQUENCE as NUMBER
from cql.planner.nodes.physical import (
    ArrivalExec,
    BucketExec,
    FilterExec,
    NumberExec,
    OnTimeExec,
    ProjectExec,
)
from cql.planner.nodes.watermarks import progress_origin


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a progressing column comes from. ``base``: the kernel's local that holds the value of a
    punctuation. ``attribute``: the input column of that punctuation. ``expr``: the column's
    watermark as a function of ``base``, which is Column(0)."""

    base: str
    attribute: int
    expr: Expr


def attribute_origins(spec: StageSpec) -> dict[int, Origin]:
    return {
        c: Origin("punct", c, Column(0, spec.input[c].name, spec.input[c].type, False))
        for c in spec.live
    }


def origins(steps: tuple[Step, ...], start: dict[int, Origin]) -> dict[int, Origin]:
    """Follows progressing columns through the steps."""
    live = start
    for step in steps:
        match step:
            case FilterExec() | OnTimeExec():
                pass
            case ProjectExec():
                found: dict[int, Origin] = {}
                for k, expr in enumerate(step.exprs):
                    column = progress_origin(expr, tuple(live))
                    if column is not None:
                        found[k] = _through(expr, column, live[column])
                live = found
            case ArrivalExec():
                at = len(step.input.schema)
                live = {at: live[step.wa]} if step.wa in live else {}
            case NumberExec():
                width = len(step.input.schema)
                own = Origin("punct", NUMBERS, Column(0, NUMBER, BIGINT, False))
                live = {**live, width: own}
            case BucketExec():
                live = _bucket_origins(step, live)
    return live


def _bucket_origins(step: BucketExec, live: dict[int, Origin]) -> dict[int, Origin]:
    wa = step.window.wa
    origin = live.get(wa) if wa is not None else None
    if origin is None or not isinstance(origin.expr, Column):
        return live
    width = len(step.input.schema)
    kind = step.schema[width].type
    window = {
        width + k: Origin(f"punct_w{k}", origin.attribute, Column(0, "", kind, False))
        for k in range(3)
    }
    return {**live, **window}


def _through(expr: Expr, column: int, origin: Origin) -> Origin:
    """``expr`` over ``column``, rewritten over the origin's base."""
    slots: list[Expr] = [origin.expr] * (column + 1)
    return Origin(origin.base, origin.attribute, substitute(expr, tuple(slots)))
