"""Decides which settings apply to a plan: one rule for each setting.

EXPLAIN reports a setting that differs from its default and does not apply to the plan (``not
applied here: …``). A hint that does not apply is refused at its place. The rules read the finished
plan, so that the report describes the planner's choices, not the request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

from cql.base.recursion import deep_stack
from cql.base.settings import SETTINGS, Settings, find_setting
from cql.base.window import WindowKind
from cql.errors import PlanError
from cql.functions import notes
from cql.planner.lower.lower import JOINT
from cql.planner.nodes import logical as lg
from cql.planner.nodes import physical as ph
from cql.planner.nodes import statements as st
from cql.planner.nodes.physical import (
    AsofJoinExec,
    OopJoinExec,
    RelationJoinExec,
    TableJoinExec,
    WindowJoinExec,
)
from cql.planner.nodes.physical.numbers import NodeNumbers
from cql.planner.optimize.join_order import joins_several
from cql.planner.placement.choose_runtime import QUEUED, splits


@dataclass(frozen=True)
class Planned:
    """The plans, logical and physical, of one query or of a query set, and their settings.

    ``reports_bad_rows``: the query has its own ON BAD ROW clause. ``publishes``: rows of an
    unbounded input go into a table."""

    logicals: Sequence[lg.Logical]
    plans: Sequence[ph.PhysicalPlan]
    settings: Settings
    reports_bad_rows: bool = False
    publishes: bool = False

    @cached_property
    def whole(self) -> tuple[ph.PhysicalPlan, ...]:
        """The physical plans, with those of streams that are queries."""
        return tuple(found for plan in self.plans for found in ph.with_queries(plan))

    @cached_property
    def nodes(self) -> tuple[ph.Physical, ...]:
        return tuple(node for plan in self.whole for node in ph.walk(plan.root))

    def of(self, kind: Any) -> list[Any]:
        """The physical operators of class ``kind``."""
        return [node for node in self.nodes if isinstance(node, kind)]

    def logical_nodes(self, kind: Any) -> list[Any]:
        """The nodes of class ``kind`` in the logical plans."""
        return [node for plan in self.logicals for node in _walk(plan) if isinstance(node, kind)]

    @property
    def runtime(self) -> ph.RuntimeChoice:
        return self.plans[0].runtime

    @cached_property
    def windows(self) -> list[ph.WidAggregateExec]:
        """Aggregates over windows that end."""
        return [n for n in self.of(ph.WidAggregateExec) if n.window is not None]

    @cached_property
    def splittable(self) -> list[ph.Physical]:
        """Operators that can run in partitions."""
        return [n for n in self.nodes if n.can_split]

    @property
    def is_split(self) -> bool:
        """Whether some operator runs in partitions."""
        own = NodeNumbers(*(plan.root for plan in self.plans))
        runs = [(self.runtime, own)]
        known = set(map(id, self.plans))
        runs += [(p.runtime, NodeNumbers(p.root)) for p in self.whole if id(p) not in known]
        return any(
            splits(node, numbers[node], chosen.partitions, chosen.split)
            for chosen, numbers in runs
            for node in numbers
        )


def _walk(node: lg.Logical) -> Iterator[lg.Logical]:
    yield node
    for stream in (node.relation,) if isinstance(node, lg.Scan) else ():
        if isinstance(stream, lg.DerivedStream):
            yield from _walk(stream.query)
    for child in node.inputs:
        yield from _walk(child)


#: Gives the reason why the plan does not obey the value of a setting; None: the plan obeys it.
Rule: TypeAlias = Callable[[Planned, Any], str | None]


def _always(planned: Planned, value: Any) -> str | None:
    """For settings that apply to every plan: morsels, kernels, limits, the session's display."""
    return None


# -- windows ---------------------------------------------------------------------------------------


def _no_window(planned: Planned) -> str | None:
    """The reason why the plan has no windowed aggregate with a choice of operators."""
    if planned.windows:
        return None
    if planned.of(ph.ChangeAggregateExec):
        return "a relation's aggregates follow its changes: there is no window with SLIDE"
    if planned.of(ph.WidAggregateExec):
        return "an aggregate without a window keeps one set of groups"
    return "there is no windowed aggregate"


def _window_operator(planned: Planned, value: Any) -> str | None:
    if missing := _no_window(planned):
        return missing
    choices = [n for n in planned.windows if not _of_kind(n, WindowKind.SESSION)]
    if not choices:
        return "sessions have one operator"
    if any(str(n.operator) == value for n in choices):
        return None
    names = ", ".join(dict.fromkeys(str(n.operator) for n in choices))
    if all(n.window is not None and n.window.overlap == 1 for n in choices):
        return f"windows that do not overlap are kept by {names}"
    return f"the windows of this plan are kept by {names}"


def _of_kind(node: ph.WidAggregateExec, kind: WindowKind) -> bool:
    return node.window is not None and node.window.kind is kind


def _adaptive_windows(planned: Planned, value: Any) -> str | None:
    if any(n.adaptive == value for n in planned.windows):
        return None
    return _no_window(planned) or (
        "only windows with SLIDE and without gaps, by wid, panes or buffered, change over"
    )


def _flush(planned: Planned, value: Any) -> str | None:
    if any(n.flush is not None for n in planned.windows):
        return None
    return _no_window(planned) or "no aggregate has two levels (window_operator = two_level)"


def _flush_every(planned: Planned, value: Any) -> str | None:
    policy = str(planned.settings.flush)
    return _flush(planned, value) or (None if policy == "slow" else f"flush = {policy} decides")


def _flush_windows(planned: Planned, value: Any) -> str | None:
    policy = str(planned.settings.flush)
    return _flush(planned, value) or (None if policy != "at_once" else f"flush = {policy} decides")


def _shared_windows(planned: Planned, value: Any) -> str | None:
    return None if len(planned.plans) > 1 else "this query runs alone"


def _order_enforcement(planned: Planned, value: Any) -> str | None:
    if any(_sorted(n.input) for n in [*planned.windows, *planned.of(ph.DupelimExec)]):
        return None
    return _no_window(planned) or "the windows of this plan do not take rows by their time"


def _sorted(node: ph.Physical) -> bool:
    """Whether the input was sorted or merged into order, above any lower window."""
    if isinstance(node, ph.PunctuatedSortExec | ph.MergeUnionExec | WindowJoinExec):
        return True
    below = node.inputs
    return len(below) == 1 and not isinstance(node, ph.WidAggregateExec) and _sorted(below[0])


def _slack(planned: Planned, value: Any) -> str | None:
    if planned.of(ph.SlackExec):
        return None
    return (
        "there is no windowed aggregate or DISTINCT over rows with a time, and no ORDER BY such a"
        " time"
    )


# -- unions and joins ------------------------------------------------------------------------------


def _union_operator(planned: Planned, value: Any) -> str | None:
    if not planned.logical_nodes(lg.Union):
        return "there is no union"
    wanted = ph.MergeUnionExec if value == "merge" else ph.UnionExec
    if planned.of(wanted):
        return None
    return "no column has a watermark in all inputs of the union, or it unites what changes"


def _no_join(planned: Planned) -> str:
    """The reason why the plan has no join of streams with a choice of operators."""
    if planned.of(RelationJoinExec):
        return "a join of relations follows the changes of both"
    if planned.of(TableJoinExec):
        return "a join with a table looks its rows up"
    if planned.of(AsofJoinExec):
        return "an ASOF join has one operator"
    return "there is no join of streams"


def _join_operator(planned: Planned, value: Any) -> str | None:
    if value == "oop_join":
        found = bool(planned.of(OopJoinExec))
    else:
        found = any(str(n.operator) == value for n in planned.of(WindowJoinExec))
    return None if found else _no_join(planned)


def _join_order(planned: Planned, value: Any) -> str | None:
    if any(joins_several(plan) for plan in planned.logicals):
        return None
    return "no inner join is of more than two inputs"


def _multiway_join(planned: Planned, value: Any) -> str | None:
    joins = planned.of(WindowJoinExec)
    if value == "single":
        found = any(len(n.inputs) > 2 for n in joins)
    else:
        found = any(isinstance(m, WindowJoinExec) for n in joins for m in list(ph.walk(n))[1:])
    return None if found else "no join in the order of time is of more than two streams"


def _join_load(planned: Planned, value: Any) -> str | None:
    if not planned.of(WindowJoinExec):
        return "no join gives its rows in the order of time"
    forced = str(planned.settings.join_operator)
    return None if forced in ("auto", "adaptive") else f"join_operator = {forced} decides"


def _join_punctuation(planned: Planned, value: Any) -> str | None:
    pairs = [n for n in planned.logical_nodes(lg.Aggregate) if n.closing_pair is not None]
    closed = [n for n in pairs if not n.distinct]
    if not closed or not planned.windows:
        return "there are no groups of both times of a join"
    joint = any(n.why.startswith(JOINT) for n in planned.windows)
    if value == "joint" and not joint:
        return "the join of these groups has no joint punctuation: individual closes them"
    return None


def _join_flush(planned: Planned, value: Any) -> str | None:
    if any(n.leaves_alone for n in planned.of(OopJoinExec)):
        return None
    return "there is no outer or anti join of streams whose times lie near each other"


def _union_truth(planned: Planned, value: Any) -> str | None:
    return None if planned.of(ph.NewestExec) else "there is no UNION ALL of update streams"


def _table_refresh(planned: Planned, value: Any) -> str | None:
    if any(n.refresh is not None for n in planned.of(ph.SourceExec)):
        return None
    return "no stream without an end is joined with a table"


# -- runtimes --------------------------------------------------------------------------------------


def _ordered(planned: Planned, value: Any) -> str | None:
    if any(plan.runtime.name == "ordered" for plan in planned.whole):
        return None
    return f"the runtime is {planned.runtime.name}, and not ordered"


def _of_scheduler(policies: tuple[str, ...], planned: Planned, value: Any) -> str | None:
    policy = str(planned.settings.scheduler)
    away = None if policy in policies else f"scheduler = {policy} has none"
    return _ordered(planned, value) or away


def _workers(planned: Planned, value: Any) -> str | None:
    alone = value == 1 and str(planned.settings.runtime) == "auto"
    return None if alone else _ordered(planned, value)


def _tuple_burst(planned: Planned, value: Any) -> str | None:
    name = planned.runtime.name
    return None if name in QUEUED else f"the runtime is {name}, and not {', '.join(QUEUED)}"


def _slice_us(planned: Planned, value: Any) -> str | None:
    if planned.runtime.name in ("fifo_slice", "ordered"):
        return None
    return f"the runtime is {planned.runtime.name}, and not fifo_slice or ordered"


def _partitions(planned: Planned, value: Any) -> str | None:
    if planned.runtime.name == "spark":
        return None
    if away := _ordered(planned, value):
        return away
    if any(node.partitioning is None for node in planned.splittable):
        return None
    if planned.splittable:
        return "PARTITION BY says it"
    return "no operator can be split by keys"


def _tasks_by(planned: Planned, value: Any) -> str | None:
    if planned.runtime.name != "spark":
        return f"the runtime is {planned.runtime.name}, and not spark"
    if "tasks by rows" in planned.runtime.why:
        return "no operator keeps a state"
    return None


def _worklist(planned: Planned, value: Any) -> str | None:
    return _ordered(planned, value) or (
        None if planned.is_split else "no operator is split into partitions"
    )


def _segments(planned: Planned, value: Any) -> str | None:
    if planned.of(ph.RewindowExec) or planned.of(ph.SyncExec):
        return None
    return "no operator makes segments of a signal"


def _sample_order(planned: Planned, value: Any) -> str | None:
    signals = [s for s in planned.of(ph.SourceExec) if s.signal is not None]
    if any(len(s.schema) > 1 for s in signals):
        return None
    return "no source is a signal with several channels"


# -- rows ------------------------------------------------------------------------------------------


def _on_bad_row(planned: Planned, value: Any) -> str | None:
    return "ON BAD ROW of the query says it" if planned.reports_bad_rows else None


def _epoch_ms(planned: Planned, value: Any) -> str | None:
    if planned.publishes:
        return None
    return "no rows of input without an end go into a table"


def _function_timeout(planned: Planned, value: Any) -> str | None:
    if any(notes.calls_users(plan.root) for plan in planned.whole):
        return None
    return "no function of yours is called"


#: The rule of each setting.
RULES: Mapping[str, Rule] = {
    "runtime": _always,
    "workers": _workers,
    "morsel_rows": _always,
    "fuse": _always,
    "window_operator": _window_operator,
    "adaptive_windows": _adaptive_windows,
    "union_operator": _union_operator,
    "union_truth": _union_truth,
    "slack": _slack,
    "join_operator": _join_operator,
    "join_order": _join_order,
    "table_refresh": _table_refresh,
    "partitions": _partitions,
    "tasks_by": _tasks_by,
    "function_timeout": _function_timeout,
    "max_state": _always,
    "max_overlap": _always,
    "on_bad_row": _on_bad_row,
    "epoch_ms": _epoch_ms,
    "kernel_cache": _always,
    "progress": _always,
    "shared_windows": _shared_windows,
    "order_enforcement": _order_enforcement,
    "flush": _flush,
    "flush_every": _flush_every,
    "flush_windows": _flush_windows,
    "low_level_entries": _flush,
    "multiway_join": _multiway_join,
    "join_alpha": _join_load,
    "join_cost": _join_load,
    "join_punctuation": _join_punctuation,
    "join_flush": _join_flush,
    "queue": _always,
    "slice_us": _slice_us,
    "tuple_burst": _tuple_burst,
    "scheduler": _ordered,
    "lp_threshold": partial(_of_scheduler, ("lp",)),
    "qst_capacity": partial(_of_scheduler, ("qst",)),
    "ct_window_us": partial(_of_scheduler, ("ct", "ct_printed")),
    "worklist": _worklist,
    "reorder": _ordered,
    "reorder_buffer": _ordered,
    "segments": _segments,
    "sample_order": _sample_order,
}
#: The settings that a run has once, for all of its queries.
OF_RUN = frozenset(
    (
        *("runtime", "workers", "morsel_rows", "slice_us", "fuse", "partitions", "worklist"),
        *("tasks_by", "tuple_burst"),
        *("scheduler", "lp_threshold", "qst_capacity", "ct_window_us"),
        *("reorder", "reorder_buffer", "segments", "sample_order", "max_state", "kernel_cache"),
    )
)
#: The settings that a query set has once.
OF_ALL = OF_RUN | {"shared_windows"}
#: The settings that no hint can set, and the remedy for each.
_OF_SESSION = {
    "shared_windows": "it is for queries that start together: SET shared_windows before them",
    "progress": "it is for what a session shows: SET progress",
}
#: Default values that request no mechanism.
_NOTHING = ("auto", "off", "none", 0, False)


def _requests_mechanism(name: str, value: Any) -> bool:
    default = SETTINGS[name].default
    return value != default or default not in _NOTHING


def reason(name: str, planned: Planned) -> str | None:
    """The reason why the plan does not obey the setting; None: the plan obeys it, or the value
    requests no mechanism."""
    value = planned.settings[name]
    return RULES[name](planned, value) if _requests_mechanism(name, value) else None


@deep_stack()
def not_applied(
    planned: Planned, names: Collection[str] = RULES, hints: Sequence[st.Hint] = ()
) -> tuple[str, ...]:
    """EXPLAIN's lines about those of the settings ``names`` that were changed and do not apply.

    Raises PlanError for a hint that the plan cannot obey."""
    hinted = {find_setting(hint.name, hint.pos).name: hint for hint in hints}
    for name, remedy in _OF_SESSION.items():
        if name in hinted:
            raise _cannot_obey(hinted[name], "a query by itself has no part in it", remedy)
    lines = []
    said = planned.settings.changed() | hinted.keys()
    for name in (n for n in RULES if n in said and n in names):
        why = reason(name, planned)
        if why is not None and name in hinted:
            remedy = "leave the hint out; EXPLAIN shows what was planned"
            raise _cannot_obey(hinted[name], why, remedy)
        if why is not None:
            value = SETTINGS[name].format(planned.settings[name])
            lines.append(f"not applied here: {name} = {value}: {why}")
    return tuple(lines)


def _cannot_obey(hint: st.Hint, why: str, remedy: str) -> PlanError:
    shown = f"{hint.name}({', '.join(hint.args)})"
    return PlanError(f"the hint {shown} cannot be obeyed: {why}", position=hint.pos, hint=remedy)
