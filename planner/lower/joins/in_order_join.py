"""Window joins in time order as physical operators (in-order paper, 2005): one operator for all
inputs, or a pipeline of operators with two inputs each (§7.2.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cql.errors import PlanError
from cql.planner.lower.joins.in_order_join_choice import Choice, choice_of
from cql.planner.lower.joins.in_order_join_condition import (
    JoinRequest,
    Lower,
    NotInOrderError,
    join_request_of,
    joins_streams,
)
from cql.planner.lower.joins.oop_join import band_text, join_of
from cql.planner.lower.joins.pair_columns import (
    behind,
    runs_inside,
    with_columns,
    without_late_rows,
)
from cql.planner.nodes.expr import Column, Expr, columns_of, conjunction, rebuild
from cql.planner.nodes.logical import (
    Filter,
    Join,
    Logical,
    Project,
)
from cql.planner.nodes.physical import (
    BandExec,
    Distance,
    FilterExec,
    Physical,
    ProjectExec,
    PunctuatedSortExec,
    WindowJoinExec,
)
from cql.planner.nodes.show import labels
from cql.planner.nodes.watermarks import NO_BOUND
from cql.planner.optimize.join_condition import Band


def window_join_of(node: Join, lower: Lower, settings: Mapping[str, Any]) -> Physical:
    """The join by the in-order operator that the settings force.

    Raises PlanError where its inputs cannot be joined in order."""
    try:
        return _made(join_request_of(node, lower), node, settings, time=False)
    except NotInOrderError as error:
        join_of(node, lower, settings)  # raises first where no join operator supports ``node``
        raise PlanError(
            f"{settings['join_operator']} {error}",
            position=node.pos,
            hint="SET join_operator = 'oop_join' joins them in any order",
        ) from error


@dataclass(frozen=True, slots=True)
class InTimeOrder:
    """A plan whose rows come from a join in time order. ``order`` is the column of that time;
    ``request`` is the join's condition, as long as the plan has the join's columns unchanged."""

    plan: Physical
    order: int | None
    request: JoinRequest | None

    def place(self, expr: Expr) -> Expr:
        """``expr`` over the columns of the plan; the latest time of a pair is its time column."""
        if self.request is not None and self.order is not None and self.request.latest(expr):
            found = self.plan.schema[self.order]
            if found.type == expr.type:
                return Column(self.order, found.name, found.type, found.nullable)
        return expr


def in_time_order(node: Logical, lower: Lower, settings: Mapping[str, Any]) -> InTimeOrder | None:
    """Filters and projections over a join that runs in time order. None if ``node`` has no such
    join, or if the join's inputs do not come in order."""
    match node:
        case Join() if joins_streams(node):
            try:
                request = join_request_of(node, lower)
                made = _made(request, node, settings, time=True)
            except NotInOrderError:
                return None
            return InTimeOrder(made, _join_of(made).order, request)
        case Filter():
            below = in_time_order(node.input, lower, settings)
            if below is None:
                return None
            return replace(below, plan=FilterExec(below.plan, node.condition))
        case Project():
            below = in_time_order(node.input, lower, settings)
            if below is None:
                return None
            exprs = tuple(below.place(e) for e in node.exprs)
            return InTimeOrder(ProjectExec(below.plan, exprs, node.names), None, None)
    return None


def _join_of(node: Physical) -> WindowJoinExec:
    while isinstance(node, FilterExec):
        node = node.input
    assert isinstance(node, WindowJoinExec)
    return node


def _made(request: JoinRequest, node: Join, settings: Mapping[str, Any], *, time: bool) -> Physical:
    """The operator or the pipeline, below a filter with the conditions that it cannot evaluate."""
    _refuse_endless(request)
    parts = _Parts(request, choice_of(request, settings), node)
    if str(settings["join_operator"]) == "auto" and not all(parts.declared):
        raise NotInOrderError("takes inputs in order")
    single = settings["multiway_join"] == "single" or len(request.inputs) == 2
    made = parts.single(time=time) if single else parts.pipeline(time=time)
    late = [e for e in request.rest if not runs_inside(e)]
    return FilterExec(made, conjunction(late)) if late else made


def _refuse_endless(request: JoinRequest) -> None:
    endless = [i for i, child in enumerate(request.inputs) if not child.bounded]
    for i in endless:
        for j in endless:
            if request.reaches[i][j] >= NO_BOUND:
                raise NotInOrderError("needs a bound for the distance of each two inputs' times")


class _Parts:
    """The inputs in time order with their key columns, and the condition over these columns."""

    def __init__(self, request: JoinRequest, choice: Choice, node: Join) -> None:
        self.request, self.choice, self.node = request, choice, node
        self.inputs: list[Physical] = []
        self.times: list[int] = []
        self.declared: list[bool] = []
        sets: list[list[tuple[int, int]]] = [[] for _ in request.keys]
        for i, child in enumerate(request.inputs):
            own = [(s, e) for s, terms in enumerate(request.keys) for k, e in terms if k == i]
            exprs = [request.times[i], *(e for _, e in own)]
            made, places = with_columns(without_late_rows(child), exprs)
            for (s, _), place in zip(own, places[1:], strict=True):
                sets[s].append((i, place))
            self.times.append(places[0])
            self.declared.append(made.comes_in_order(places[0], guarded=True))
            self.inputs.append(_in_order(made, places[0]))
        self.keys = tuple(tuple(columns) for columns in sets)
        widths = [len(child.schema) for child in self.inputs]
        self.firsts = [sum(widths[:i]) for i in range(len(widths))]
        self.rest = [self._shifted(e) for e in request.rest if runs_inside(e)]

    def _column(self, column: int) -> int:
        i, at = self.request.place(column)
        return self.firsts[i] + at

    def _shifted(self, expr: Expr) -> Expr:
        if isinstance(expr, Column):
            return replace(expr, index=self._column(expr.index))
        return rebuild(expr, self._shifted)

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(self._column(c) for c in range(self.request.width))

    def single(self, *, time: bool) -> WindowJoinExec:
        numbers = range(len(self.inputs))
        bands = tuple(self._distance(i, j) for j in numbers for i in range(j))
        made = WindowJoinExec(
            tuple(self.inputs),
            tuple(self.times),
            self.keys,
            bands,
            (),
            tuple(self.rest),
            self.columns,
            False,
            self.choice.operator,
            self.choice.alpha,
            self.choice.cost,
            self.request.second,
            self._why,
            self.node.pos,
        )
        return _timed(made, time=time)

    def pipeline(self, *, time: bool) -> Physical:
        """Joins the first two inputs, then their results with the third input, and so on. The time
        of a result is the latest time of its members."""
        made, at, rest = self.inputs[0], self.times[0], self.rest
        for k in range(1, len(self.inputs)):
            first, last = self.firsts[k], k == len(self.inputs) - 1
            width = first + len(self.inputs[k].schema)
            more = len(made.schema) - first  # columns of ``made`` behind those of the inputs
            there = [e for e in rest if all(c < width for c in columns_of(e))]
            rest = [e for e in rest if e not in there]
            columns = self.columns if last else tuple(range(width))
            step = WindowJoinExec(
                (made, self.inputs[k]),
                (at, self.times[k]),
                self._keys_between(k),
                (self._distance_of_latest(k),),
                tuple(self._distances_of_members(k, more)) if k > 1 else (),
                tuple(behind(e, first, more) for e in there),
                tuple(c + more if c >= first else c for c in columns),
                False,
                self.choice.operator,
                self.choice.alpha,
                self.choice.cost,
                self.request.second,
                self._why if last else "a pipeline of joins (§7.2.3)",
                self.node.pos,
            )
            step = _timed(step, time=time or not last)
            assert step.order is not None or last
            at = step.order or 0
            made = step
        return made

    def _distance(self, i: int, j: int) -> Distance:
        return Distance(i, j, -self.request.reaches[j][i], self.request.reaches[i][j])

    def _distance_of_latest(self, k: int) -> Distance:
        """The distance of input ``k`` from the latest of the inputs before it."""
        before = [self._distance(i, k) for i in range(k)]
        return Distance(0, 1, min(d.low for d in before), min(d.high for d in before))

    def _distances_of_members(self, k: int, more: int) -> Iterator[BandExec]:
        """The distances of input ``k`` from the inputs before it. The left side has ``more``
        columns behind those of its inputs."""
        for i in range(k):
            if (i, k) in self.request.explicit:
                one = self._distance(i, k)
                left, right = (self.firsts[n] + self.times[n] for n in (i, k))
                yield BandExec(left, right + more, one.low, one.high)

    def _keys_between(self, k: int) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The equalities of input ``k`` with any input before it."""
        found = []
        for columns in self.keys:
            before = [self.firsts[i] + c for i, c in columns if i < k]
            own = [c for i, c in columns if i == k]
            if before and own:
                found.append(((0, before[0]), (1, own[0])))
        return tuple(found)

    @property
    def _why(self) -> str:
        parts = []
        for i, j in sorted(self.request.explicit):
            one = self._distance(i, j)
            band = Band(self.request.times[i], self.request.times[j], one.low, one.high)
            names = labels(*(self.inputs[k].schema for k in (i, j)))
            parts.append(band_text(band, self.request.times[i].type, *names))
        parts += [self.node.order] if self.node.order else []
        return "; ".join([self.choice.why, *parts])


def _timed(made: WindowJoinExec, *, time: bool) -> WindowJoinExec:
    """``made`` with the time of its results as a column, if ``time`` asks for one."""
    return replace(made, time=True) if time and made.order is None else made


def _in_order(child: Physical, column: int) -> Physical:
    if child.comes_in_order(column):
        return child
    name = child.schema[column].name
    why = f"rows wait until {name} has passed them: the join takes them in order"
    return PunctuatedSortExec(child, column, why=why)
