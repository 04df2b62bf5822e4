"""The condition of a join as its kernel evaluates it on a pair of rows. A part of one side that the
kernel cannot compute becomes a column of that side."""

from __future__ import annotations

from cql.errors import NotSupportedError
from cql.planner.functions import registry
from cql.planner.lower.joins.pair_columns import EQUALITIES, runs_inside, with_columns
from cql.planner.nodes.expr import Call, Cast, Column, Expr, columns_of, rebuild, walk
from cql.planner.nodes.physical import Physical
from cql.planner.nodes.rewrite import replace
from cql.planner.nodes.show import show
from cql.planner.optimize.join_condition import Sides, shifted

#: Kinds of joins in words.
NAMES = {
    "left": "LEFT OUTER JOIN",
    "right": "RIGHT OUTER JOIN",
    "full": "FULL OUTER JOIN",
    "semi": "SEMI JOIN",
    "anti": "ANTI JOIN",
    "mark": "EXISTS",
}

#: Index of columns that are computed below a join, while it is built: 1 × for the left side, 2 ×
#: for the right side.
_FAR = 1 << 30


class Below:
    """The inputs of a join with the columns that its condition needs. ``kind`` is the kind of the
    join, ``sides`` its columns. The ``last`` columns of each input stay at the end. ``of_texts``
    are the functions that the join evaluates on texts."""

    def __init__(
        self,
        left: Physical,
        right: Physical,
        sides: Sides,
        kind: str,
        *,
        last: int = 0,
        of_texts: frozenset[str] = EQUALITIES,
    ) -> None:
        self.left, self.right = left, right
        self._width = sides.width
        self._sides = sides
        self._kind = kind
        self._last = last
        self._of_texts = of_texts

    def on_pair(self, expr: Expr) -> Expr | None:
        """``expr`` as the join evaluates it on a pair; ``behind`` gives its columns their final
        places. None if a filter above an inner join has to evaluate it.

        Raises NotSupportedError if another kind of join cannot evaluate it."""
        if self._can_evaluate(expr):
            return expr
        if self._kind == "inner":
            return None
        if registry.can_fail(expr) and not self._of_times(expr):
            raise _refusal(expr, self._kind, "can fail")
        return self._inside(expr)

    def _of_times(self, expr: Expr) -> bool:
        """Whether only sums of times and lengths can fail in ``expr``: no other condition guards
        rows from these."""
        sums = {e for e in walk(expr) if isinstance(e, Call) and e.fn in ("add", "sub")}
        return registry.only_overflows(expr) and all(
            self._is_time(e) for e in walk(expr) if e in sums or isinstance(e, Cast)
        )

    def _is_time(self, expr: Expr) -> bool:
        """Whether ``expr`` is a timestamp, or a progressing integer plus a length."""
        if expr.type.is_timestamp:
            return True
        side = self._sides.of(expr)
        progresses = side is not None and self._sides.progresses(self._sides.own(expr), side)
        return progresses and not registry.can_fail(shifted(expr)[0])

    def _can_evaluate(self, expr: Expr) -> bool:
        return runs_inside(expr, self._of_texts)

    def _inside(self, expr: Expr) -> Expr:
        if self._can_evaluate(expr):
            return expr
        side = self._sides.of(expr)
        if side is not None:
            own = self._sides.own(expr)
            if side:
                self.right, (at,) = with_columns(self.right, [own], self._last)
            else:
                self.left, (at,) = with_columns(self.left, [own], self._last)
            return Column(_FAR * (1 + side) + at, show(expr), expr.type, expr.nullable, expr.pos)
        made = rebuild(expr, self._inside)
        if made is expr or not self._can_evaluate(made):
            raise _refusal(expr, self._kind, "computes with both sides")
        return made

    @property
    def more(self) -> int:
        """Number of columns that the left input has gained."""
        return len(self.left.schema) - self._last - self._width

    def behind(self, expr: Expr) -> Expr:
        """``expr`` with its columns at their final places among those of both inputs."""
        if not isinstance(expr, Column):
            return rebuild(expr, self.behind)
        at = expr.index
        if at >= 2 * _FAR:
            at = self._width + self.more + at - 2 * _FAR
        elif at >= _FAR:
            at -= _FAR
        elif at >= self._width:
            at += self.more
        return replace(expr, index=at)


def _refusal(expr: Expr, kind: str, what: str) -> NotSupportedError:
    name = NAMES[kind]
    used = columns_of(expr)
    hint = None
    if "fail" in what:
        hint = "compute what can fail in a subquery of the side that it reads; or TRY_CAST"
    elif used:
        hint = "compute each side's part in a subquery, and compare the two"
    return NotSupportedError(
        f"{show(expr)} in the condition of {name}, which {what}, is not supported by this version",
        position=expr.pos,
        hint=hint,
    )
