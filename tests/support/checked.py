"""Wrappers that check the contract of operators: they verify the output after each call.

``check_graph`` wraps every operator of a graph that was built without fusion. The wrapped operators
run under any runtime, as operators that run in Python. A breach of the contract raises
``ContractError``; ``conserve`` balances the counters after the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cql.base.model import Schema
from cql.base.window import Window, WindowKind, WindowOperator
from cql.base.zones import DAY, days_of
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.graph.graph import Graph
from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import call_operator
from cql.executor.kernels.morsel_layout import (
    CAPACITY,
    DETAIL_ROW,
    DONE,
    ERROR,
    IDLE,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    NEED,
    NEVER,
    OUTPUT_FULL,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SERIAL,
)
from cql.executor.kernels.windows.region_table import find_slot
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.contract import Operator
from cql.executor.operators.stage.operator import StageOperator
from cql.executor.operators.stage.session_windows import SessionOperator
from cql.executor.operators.windows.buffered import BUFFER
from cql.executor.operators.windows.subtract_on_evict import RUN
from cql.executor.operators.windows.two_stacks import FRONT
from cql.planner.nodes.expr import Column
from cql.planner.nodes.physical import (
    BucketExec,
    DupelimExec,
    FilterExec,
    LateRowsExec,
    LimitExec,
    MergeUnionExec,
    NewestExec,
    NumberExec,
    OnTimeExec,
    Physical,
    ProjectExec,
    PunctuatedSortExec,
    RelationExec,
    SlackExec,
    SortExec,
    SourceExec,
    UnionExec,
    ValuesExec,
    WidAggregateExec,
)
from tests.support.operator_tools import column_data, column_mask, records
from tests.support.python_operators import PythonOperator

END = -1
MOST_NEEDS = 10_000


class ContractError(AssertionError):
    """An operator has broken its contract."""


@njit("int64(int64, int64, int64)")
def call_native(address: int, descriptor: int, morsel: int) -> int:
    return call_operator(address, descriptor, morsel)


# -- one stream of morsels -------------------------------------------------------------------------


@dataclass(slots=True)
class StreamCheck:
    """Checks the output morsels of one operator or source, which may punctuate ``attributes``."""

    what: str
    schema: Schema
    attributes: tuple[int, ...]
    serial: int = -1
    ended: bool = False
    punctuated: dict[int, int] = field(default_factory=dict)

    def see(self, morsel: Morsel) -> None:
        n = int(morsel.words[ROWS])
        late = records(morsel, LATE_ROW_ADDRESS, LATE_ROWS, LATE_ROW_WORDS)
        punctuations = records(morsel, PUNCTUATION_ADDRESS, PUNCTUATIONS, PUNCTUATION_WORDS)
        self._need(not (self.ended and (n or len(punctuations))), "something comes after the end")
        self._need(n <= morsel.words[CAPACITY], f"{n} rows in a morsel of {morsel.words[CAPACITY]}")
        serial = int(morsel.words[SERIAL])
        self._need(serial >= self.serial, f"serial {serial} goes back")
        self.serial = serial
        self._masks(morsel)
        self._late_rows(morsel, late, n)
        self._rows(morsel, {int(r[0]) for r in late})
        for attribute, value, second, *_ in punctuations.tolist():
            self._take_punctuation(attribute, value, second)

    def _need(self, holds: bool, message: str) -> None:
        if not holds:
            raise ContractError(f"{self.what}: {message}")

    def _masks(self, morsel: Morsel) -> None:
        for i, f in enumerate(self.schema):
            if f.nullable:
                self._need(
                    bool((column_mask(morsel, i) <= 1).all()), f"mask of {f.name} is not 0/1"
                )
            if f.type.storage == "bool":
                self._need(
                    bool((column_data(morsel, i, self.schema) <= 1).all()), f"{f.name} is not 0/1"
                )

    def _late_rows(self, morsel: Morsel, late: Any, n: int) -> None:
        rows = late[:, 0]
        self._need(bool((np.diff(rows) >= 0).all()), "late rows are not in order")
        for row, attribute, own in late.tolist():
            self._need(0 <= row < n, f"late row {row} of {n} rows")
            self._need(attribute in self.attributes, f"a late row on column {attribute}")
            value = int(column_data(morsel, attribute, self.schema)[row])
            self._need(value <= own, f"late row {value} is not below its row watermark {own}")

    def _rows(self, morsel: Morsel, late: set[int]) -> None:
        """Checks that only late rows lie below a punctuation."""
        for attribute, punctuation in self.punctuated.items():
            values = column_data(morsel, attribute, self.schema)
            below = values < punctuation
            if self.schema[attribute].nullable:
                below &= column_mask(morsel, attribute) != 0
            wrong = [int(r) for r in np.flatnonzero(below) if int(r) not in late]
            name = self.schema[attribute].name
            self._need(not wrong, f"{name} {values[wrong]} after the promise of {punctuation}")

    def _take_punctuation(self, attribute: int, value: int, second: int) -> None:
        self._need(not self.ended, "a promise comes after the end")
        self._need(second == -1, "no operator makes promises of two attributes yet")
        if attribute == END:
            self.ended = True
            return
        if attribute == IDLE:
            self._need(value in (0, 1), f"idle {value}")
            return
        self._need(attribute in self.attributes, f"a promise on column {attribute}")
        before = self.punctuated.get(attribute, NEVER)
        self._need(value >= before, f"the promise of {before} falls to {value}")
        self.punctuated[attribute] = value


# -- operators -------------------------------------------------------------------------------------


class Checked(PythonOperator):
    """An operator whose calls are verified. ``pairs`` counts the (row, window) pairs that enter a
    windowed operator; ``bad`` counts the rows that fail."""

    def __init__(self, inner: Operator, node: Physical) -> None:
        super().__init__(inner.name)
        self.inner = inner
        self.node = node
        self.given = StreamCheck(inner.name, node.schema, node.progressing)
        self.bad = 0
        self.pairs = 0
        self.emitted_pairs = 0
        self._needs = 0
        self._failed: set[int] = set()

    def call(self, morsel: Morsel, out: Morsel) -> int:
        code = self._run(morsel, out)
        if code in (DONE, OUTPUT_FULL):
            self._needs = 0
            if code == OUTPUT_FULL and not out.words[ROWS]:
                raise ContractError(f"{self.name}: OUTPUT_FULL without output")
            self.given.see(out)
            self._count(morsel, out, done=code == DONE)
        elif code == NEED:
            self._needs += 1
            if self._needs > MOST_NEEDS:
                raise ContractError(f"{self.name} asks for ever")
        elif code == ERROR:
            self._failed.add(int(morsel.words[DETAIL_ROW]))
            self.bad += 1
        else:
            raise ContractError(f"{self.name} returned {code}")
        return code

    def _run(self, morsel: Morsel, out: Morsel) -> int:
        if self.inner.address == 0:
            return self.inner.call(morsel, out)
        descriptor = int(self.inner.descriptor.ctypes.data)
        return int(call_native(self.inner.address, descriptor, morsel.address))

    def provide(self, morsel: Morsel) -> None:
        self.inner.provide(morsel)

    def error(self, morsel: Morsel) -> ErrorSite:
        return self.inner.error(morsel)

    def is_fatal(self, morsel: Morsel) -> bool:
        return self.inner.is_fatal(morsel)

    def counters(self) -> dict[str, int]:
        return self.inner.counters()

    # -- conservation ----------------------------------------------------------------------------

    def _count(self, morsel: Morsel, out: Morsel, *, done: bool) -> None:
        match self.node:
            case WidAggregateExec():
                self._count_emitted(out)
            case BucketExec():
                pass
            case _:
                return
        if done and self.node.window is not None:
            self.pairs += self._pairs_in(morsel, self.node.window)
            self._failed.clear()

    def _count_emitted(self, out: Morsel) -> None:
        at = counting_column(self.node)
        if at is not None:
            self.emitted_pairs += int(column_data(out, at, self.node.schema).sum())

    def _pairs_in(self, morsel: Morsel, window: Window) -> int:
        """The number of (row, window) pairs of a morsel; the failed rows of an aggregate are in no
        window."""
        assert window.wa is not None
        if window.kind is WindowKind.SESSION:
            return int(morsel.words[ROWS]) - len(self._failed)
        (child,) = self.node.inputs
        times = column_data(morsel, window.wa, child.schema).tolist()
        valid = column_mask(morsel, window.wa).tolist()
        skipped = self._failed if isinstance(self.node, WidAggregateExec) else set()
        return sum(
            len(_windows_holding(window, t))
            for row, t in enumerate(times)
            if row not in skipped and (valid[row] or not child.schema[window.wa].nullable)
        )

    def conserve(self) -> None:
        """Checks that every input row was output, left out or is still held."""
        counted = self.inner.counters()
        filtered = sum(n for name, n in counted.items() if name.startswith("filtered"))
        match self.node:
            case FilterExec() | ProjectExec():
                gone = counted["rows_out"] + filtered + self.bad
                self._equal("rows_in", counted["rows_in"], gone)
            case BucketExec():
                self._equal("pairs", self.pairs, counted["rows_out"] + self.bad)
            case OnTimeExec():
                gone = counted["rows_out"] + counted.get("late_pairs", 0) + self.bad
                self._equal("rows_in", counted["rows_in"], gone)
            case DupelimExec():
                gone = counted["rows_out"] + counted["duplicates"]
                self._equal("rows_in", counted["rows_in"], gone)
                self._equal("rows_out", counted["rows_out"], counted["held"] + counted["purged"])
            case NewestExec():
                names = ("rows_out", "superseded", "late_rows")
                self._equal("rows_in", counted["rows_in"], sum(counted[name] for name in names))
            case RelationExec():
                self._equal("rows_in", counted["rows_in"], counted["entered"] + counted["waiting"])
                self._equal("entered", counted["entered"], counted["left"] + counted["held"])
                self._equal("changes", counted["entered"] + counted["left"], counted["rows_out"])
            case UnionExec() | SlackExec() | LateRowsExec() | NumberExec():
                self._equal("rows_in", counted["rows_in"], counted["rows_out"])
            case MergeUnionExec() | PunctuatedSortExec():
                names = ("rows_out", "held", "late_rows")
                gone = sum(counted[name] for name in names) + self.bad
                self._equal("rows_in", counted["rows_in"], gone)
            case LimitExec():
                gone = counted["rows_out"] + counted["over_limit"]
                self._equal("rows_in", counted["rows_in"], gone)
            case SortExec():
                waiting = counted["held"] + counted["over_limit"]
                self._equal("rows_in", counted["rows_in"], counted["rows_out"] + waiting)
            case WidAggregateExec() if counting_column(self.node) is not None:
                late = counted.get("late_pairs", 0)
                held = self.emitted_pairs + late + held_pairs(self.inner, self.node)
                left_out = counted.get("over_limit", 0)  # groups, each of some pairs
                if left_out and held + left_out <= self.pairs:
                    held = self.pairs
                self._equal("pairs", self.pairs, held)
            case _:
                pass

    def _equal(self, what: str, came: int, went: int) -> None:
        if came != went:
            raise ContractError(f"{self.name}: {what} {came}, but {went} are accounted for")


def counting_column(node: Physical) -> int | None:
    """The output column of a plain ``count(*)`` over windows; its sum is the number of pairs."""
    if not isinstance(node, WidAggregateExec) or node.window is None:
        return None
    for k, call in enumerate(node.calls):
        if call.fn == "count" and not call.args and call.where is None:
            return len(node.keys) + k
    return None


def held_pairs(operator: Operator, node: WidAggregateExec) -> int:
    """The sum of ``count(*)`` over the groups of open windows."""
    assert isinstance(operator, StageOperator)
    column = counting_column(node)
    assert column is not None
    state = operator.state
    if isinstance(operator, SessionOperator):
        held_counts = operator.column(f"a{column - len(node.keys)}n")
        return int(held_counts[operator.open_records()].sum())
    counts = operator.column(f"a{column - len(node.keys)}n")
    opened = operator.scalars()["open"]
    mask = state["places"].size - 1
    held = 0
    for id_ in state["heap"][:opened].tolist():
        slot = find_slot(state["places"], state["window_ids"], mask, id_)
        base, size = int(state["bases"][slot]), int(state["counts"][slot])
        if slot == operator.scalars()["closing"]:  # some groups have left
            gone = operator.scalars()["closing_group"]
            base, size = base + gone, size - gone
        times = 1 if node.pane is None else _windows_to_come(node, id_, operator)
        if node.operator is WindowOperator.SUBTRACT and id_ == RUN:
            times = 0  # the panes of the running window count themselves
        if node.operator is WindowOperator.TWO_STACKS:
            front = operator.scalars()["front"]
            if id_ >= FRONT or (id_ % 2 == 0 and id_ >> 1 <= front):
                times = 0  # the panes of BACK count themselves; the front is counted below
        held += times * int(counts[base : base + size].sum())
        if "counts" + BUFFER in state:
            held += times * int(state["counts" + BUFFER][slot])
    if node.operator is WindowOperator.TWO_STACKS:
        held += _held_in_front(operator, node, counts)
    if node.operator is WindowOperator.TWO_LEVEL:
        held += int(counts[: state["low"].size // 2][state["low"][::2] != NEVER].sum())
    return held


def _held_in_front(operator: StageOperator, node: WidAggregateExec, counts: Any) -> int:
    """The sum of ``count(*)`` over the groups in the front stack of two-stacks.

    FRONT holds the groups of the next window. The region of a pane in the front stack holds the
    aggregates of its groups after the pane leaves the window."""
    window, pane, state = node.window, node.pane, operator.state
    assert window is not None
    assert window.slide
    assert pane
    words = [name for name, _ in operator.code.tables[0].columns if name.startswith("key")]
    keys = np.stack([operator.column(name) for name in words])
    nulls, live = state.get("nulls"), operator.column("live")

    def groups(id_: int) -> dict[tuple[int, ...], int]:
        slot = find_slot(state["places"], state["window_ids"], state["places"].size - 1, id_)
        if slot < 0:
            return {}
        base, size = int(state["bases"][slot]), int(state["counts"][slot])
        return {
            (*keys[:, e].tolist(), 0 if nulls is None else int(nulls[e])): int(counts[e] * live[e])
            for e in range(base, base + size)
        }

    scalars, slide = operator.scalars(), window.slide // pane
    if scalars["front"] == NEVER:
        return 0
    now, held = groups(FRONT), 0
    for place in range(scalars["next_window"] * slide, scalars["front"] + 1):
        held += sum(now.values()) if place % slide == 0 else 0
        now |= groups(2 * place)
    return held


def _windows_to_come(node: WidAggregateExec, id_: int, operator: StageOperator) -> int:
    """The number of open windows that contain the region ``id_`` of an operator with panes.

    The region belongs to one window or is a pane (in two-stacks, a pane after the front)."""
    window, pane = node.window, node.pane
    assert window is not None
    assert window.range
    assert window.slide
    assert pane
    following, place = operator.scalars()["next_window"], id_ >> 1
    last = place * pane // window.slide
    if window.kind is WindowKind.CUMULATE:  # a pane is a step; a merged region has its last step
        steps = window.range // window.slide
        if not id_ % 2 and place < following:
            return 0  # a merged pane, kept only for its log
        return place // steps * steps + steps - (following if id_ % 2 else place)
    if id_ % 2:
        return int(last >= following)
    first = -((window.range - (place + 1) * pane) // window.slide)
    return max(0, last - max(first, following) + 1)


def built_nodes(root: Physical) -> list[Physical]:
    """The nodes of a plan in the order in which ``build`` makes their operators without fusion."""
    below = [n for child in root.inputs for n in built_nodes(child)]
    return below if isinstance(root, SourceExec | ValuesExec) else [*below, root]


def check_graph(graph: Graph, root: Physical) -> list[Checked]:
    """Replaces each operator of the graph by its ``Checked`` wrapper; returns the wrappers. The
    graph must be built without fusion."""
    nodes = built_nodes(root)
    if isinstance(
        root, UnionExec | SlackExec | SourceExec | LimitExec
    ):  # ``build`` adds a projection above these nodes
        columns = (Column(i, f.name, f.type, f.nullable) for i, f in enumerate(root.schema))
        nodes.append(ProjectExec(root, tuple(columns), root.schema.names))
    assert len(nodes) == len(graph.operators), "a fused graph cannot be checked"
    wrapped = [Checked(op, node) for op, node in zip(graph.operators, nodes, strict=True)]
    graph.operators[:] = wrapped
    return wrapped


def _windows_holding(window: Window, t: int) -> range:
    """The numbers of the windows that hold ``t``. Window *k* of CUMULATE ends with step *k*."""
    assert window.range is not None
    assert window.slide is not None
    if window.zone is not None:  # ``t`` becomes the middle of its day, with days of 24 hours
        t = days_of(window.zone, window.offset).day(t) * DAY + DAY // 2 + window.offset
    last = (t - window.offset) // window.slide
    if window.kind is WindowKind.CUMULATE:
        steps = window.range // window.slide
        return range(last, last // steps * steps + steps)
    return range((t - window.offset - window.range) // window.slide + 1, last + 1)
