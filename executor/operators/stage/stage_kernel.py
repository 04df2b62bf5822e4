"""The kernel of a stage: a fused run of filters, projections and buckets that ends in output rows
or in a windowed aggregate (whose results may go on through further filters and projections).

``windows.choose.write_stage`` turns a ``StageSpec`` into text, which ``operator.StageOperator``
runs. One call handles one morsel in phases: host columns, rows, punctuation. A call can leave
inside a phase; the next call resumes there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from cql.base.model import Schema
from cql.base.window import MAX_EVENT_TIME, Window
from cql.executor.codegen.expressions.emit import Code, ErrorSite, HostSite, emit, host_sites
from cql.executor.codegen.kernel_builder import NEED_HOST, KernelText, RowScope, passes
from cql.executor.codegen.morsel_io import row_at
from cql.executor.kernels.morsel_layout import (
    CURSOR,
    DETAIL,
    DETAIL_ROW,
    EPOCH,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    PHASE,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    SERIAL,
    SUB,
    data_word,
)
from cql.executor.morsel.morsel import value_bytes
from cql.executor.operators.stage.scope import StageScope
from cql.executor.operators.stage.spec import (
    ORDER,
    StageCode,
    StageSpec,
    Step,
    columns_at,
    input_columns,
)
from cql.executor.operators.stage.watermark_mapping import Origin, attribute_origins, origins
from cql.executor.operators.windows.bounds import Spans
from cql.planner.nodes.expr import Column, Expr, substitute, walk
from cql.planner.nodes.physical import (
    ArrivalExec,
    BucketExec,
    FilterExec,
    NumberExec,
    OnTimeExec,
    ProjectExec,
)

if TYPE_CHECKING:
    from cql.executor.operators.stage.row_sink import RowTerminal

_NEXT_LATE = f"next_late = late[{LATE_ROW_WORDS} * late_row] if late_row < late_rows else n"


@dataclass(slots=True)
class StageWriter:
    """Writes what both endings of a stage share: the loop over rows with its steps."""

    spec: StageSpec
    kernel: KernelText = field(default_factory=KernelText)
    fatal: set[int] = field(default_factory=set)
    #: The counter of the only step that drops rows: the difference of rows in and rows out.
    by_difference: str | None = None
    _hosts: dict[tuple[int, HostSite], HostSite] = field(default_factory=dict)

    def write(self, terminal: RowTerminal) -> StageCode:
        body = self.kernel.body
        levels = columns_at(self.spec)
        with body.block():
            if terminal.passes:
                terminal.take_back()
            body.lines(f"o[{SERIAL}] = u[{SERIAL}]", f"o[{EPOCH}] = u[{EPOCH}]")
            for level, exprs in enumerate([*_step_exprs(self.spec.steps), terminal.row_exprs()]):
                self._register_hosts(level, exprs, levels[level])
            hosts = len(self.kernel.hosts)
            for k in range(hosts):
                self._host_phase(k)
            self._row_phase(hosts, terminal)
            with body.block(f"if status == 0 and u[{PHASE}] > {hosts}:"):
                terminal.after_rows()
            for name in self.kernel.counters:
                slot = self.kernel.layout.slot(name)
                body.line(f"fetch_add_relaxed(desc + {8 * slot}, {name})")
            body.lines(f"u[{DETAIL}] = detail", f"u[{DETAIL_ROW}] = detail_row", "return status")
        return StageCode(
            self.kernel.operator(
                max(
                    len(self.spec.input),
                    len(self.spec.output) + len(ORDER) * self.spec.with_order_columns,
                )
            ),
            terminal.by_ref,
            terminal.tables,
            terminal.logs,
            terminal.codes,
            frozenset(self.fatal),
            terminal.passes,
        )

    # -- columns computed on the host ------------------------------------------------------------

    def _register_hosts(self, level: int, exprs: list[Expr], columns: tuple[Expr, ...]) -> None:
        """Registers the host columns of expressions. They are computed for whole morsels before the
        row loop, so their arguments are expressions over the stage's input."""
        for expr in exprs:
            for site in host_sites(expr):
                self._register_host(level, site, columns)

    def _register_host(self, level: int, site: HostSite, columns: tuple[Expr, ...]) -> None:
        if (level, site) in self._hosts:
            return
        lowered = site.with_args(tuple(substitute(a, columns) for a in site.args))
        identity = input_columns(self.spec.input)
        for arg in lowered.args:
            for inner in host_sites(arg):
                self._register_host(0, inner, identity)
        self._hosts[level, site] = lowered
        self.kernel.add_host(lowered)

    def host(self, level: int, site: HostSite) -> int:
        return self.kernel.hosts.index(self._hosts[level, site])

    def _host_phase(self, k: int) -> None:
        """Writes the arguments of host column ``k`` for all rows (of the partition), then requests
        the column."""
        body, site = self.kernel.body, self.kernel.hosts[k]
        self.kernel.host_arguments(k)
        with body.block(f"if status == 0 and u[{PHASE}] == {k}:"):
            with body.block("for i in range(n):"):
                body.line(self._row_is("i"))
                # A failing argument (2) fails its row only if the row's own code reads it.
                for a in range(len(site.args)):
                    body.line(f"hm{k}_{a}[i] = 2")
                scope = StageScope(self, level=0, skip="continue")
                for a, arg in enumerate(site.args):
                    code = emit(arg, scope)
                    body.line(f"ha{k}_{a}[i] = {code.value}")
                    valid = "1" if code.valid is None else f"1 if {code.valid} else 0"
                    body.line(f"hm{k}_{a}[i] = {valid}")
            # an argument that needs a table entry has left the loop with status 2
            with body.block("if status == 0:"):
                body.lines("status = 2", f"detail = {NEED_HOST + k}", "detail_row = n")

    # -- rows ------------------------------------------------------------------------------------

    def _row_phase(self, phase: int, terminal: RowTerminal) -> None:
        body = self.kernel.body
        with body.block(f"if status == 0 and u[{PHASE}] == {phase}:"):
            body.lines(f"first = u[{CURSOR}]", f"skip = u[{SUB}]", "i = first", "sub = -1")
            body.line("stop = n")
            if terminal.requests_late_rows:
                self._first_late_row()
            terminal.before_rows()
            terminal.each_row()
            terminal.end_rows(phase)

    def each_row(self, terminal: RowTerminal) -> None:
        """Writes the loop over rows, in chunks of the output's room if ``in_chunks``."""
        if not terminal.in_chunks:
            self._row_loop(terminal)
            return
        body = self.kernel.body
        with body.block("while True:"):
            self._row_loop(terminal)
            with body.block("if status != 0 or stop == n or j == capacity:"):
                body.line("break")
            body.lines("first = stop", "stop = min(n, first + capacity - j)")

    def _row_loop(self, terminal: RowTerminal) -> None:
        body, scope, steps = self.kernel.body, StageScope(self, level=0), self.spec.steps
        spare = terminal.spare_column
        if spare is None:
            loop = "for i in range(first, stop):"
        else:
            assert isinstance(steps[0], FilterExec)
            self._choose(steps[0], spare)
            loop, scope, steps = "for c in range(j, end):", scope.next(scope.columns), steps[1:]
        with body.block(loop):
            if spare is not None:
                body.line("i = int64(picks[uint64(c)])")
            # rows are unsigned inside: numba tests a signed index for being negative
            body.line(self._row_is("i"))
            if terminal.resumes_inside:
                body.line("sub = -1")
                with body.block("if i > first:"):
                    body.line("skip = 0")
            if terminal.requests_late_rows == "each row":
                self.mark_late_row()
            self._steps(steps, scope, terminal.row)
        if spare is not None:
            with body.block("if status == 0:"):
                body.line("status, detail, detail_row, i = refused")

    def row(self, terminal: RowTerminal) -> None:
        """The steps of row ``i``."""
        self.kernel.body.line(self._row_is("i"))
        self._steps(self.spec.steps, StageScope(self, level=0), terminal.row)

    def _row_is(self, place: str) -> str:
        """Sets ``r``, the morsel's row at a place among the rows that the kernel takes."""
        return f"r = {row_at(self.kernel, place, partitioned=self.spec.partitioned)}"

    def _choose(self, filter_: FilterExec, spare: int) -> None:
        """Writes a loop that only notes the numbers of the rows that pass, in output column
        ``spare``, whose values come later. The loop has no branch to mispredict (4 ns a row where
        half of the rows pass). A second loop reads the other columns of the rows that pass, so that
        a core waits for many cache misses at once (50 ns a row where few rows pass). The rows
        before a row that fails here still leave: the kernel reports the failure after them."""
        body, scope = self.kernel.body, StageScope(self, level=0)
        view = "words" if value_bytes(self.spec.output[spare].type) == 8 else "as_i32"
        self.kernel.declare("picks", f"{view}(o[{data_word(spare)}], capacity)")
        body.line("end = j")
        with body.block("for i in range(first, stop):"):
            body.line("r = uint64(i)")
            passing = passes(emit(filter_.condition, scope))
            body.lines("picks[uint64(end)] = i", f"end += int64({passing})")
        body.lines("refused = status, detail, detail_row, i", "status = 0")

    def _first_late_row(self) -> None:
        body = self.kernel.body
        body.lines("late_row = 0", f"late_rows = u[{LATE_ROWS}]")
        body.line(f"late = words(u[{LATE_ROW_ADDRESS}], {LATE_ROW_WORDS} * late_rows)")
        self._pass_late_rows("< first")
        body.line(_NEXT_LATE)

    def pass_late_rows(self) -> None:
        """Skips the records of late rows before row ``begin``, which a filter has dropped."""
        self._pass_late_rows("< begin")
        self.kernel.body.line(_NEXT_LATE)

    def mark_late_row(self) -> None:
        """Sets ``late_at`` to the first record of row ``i`` if the row is late, else to -1. Skips
        the records of earlier rows, which a filter may have dropped."""
        body = self.kernel.body
        body.line("late_at = -1")
        with body.block("if i >= next_late:"):
            self._pass_late_rows("< i")
            body.line("late_at = late_row")
            self._pass_late_rows("== i")
            body.lines("late_at = late_at if late_row > late_at else -1", _NEXT_LATE)

    def _pass_late_rows(self, condition: str) -> None:
        record = f"late[{LATE_ROW_WORDS} * late_row]"
        with self.kernel.body.block(f"while late_row < late_rows and {record} {condition}:"):
            self.kernel.body.line("late_row += 1")

    def _steps(
        self, steps: tuple[Step, ...], scope: StageScope, last: Callable[[StageScope], None]
    ) -> None:
        """Writes the steps of one row, then the terminal; a bucket opens a loop around the later
        steps."""
        body = self.kernel.body
        for k, step in enumerate(steps):
            match step:
                case FilterExec():
                    condition = emit(step.condition, scope)
                    dropped = self.kernel.counter(f"filtered_{scope.name}{scope.level}")
                    with body.block(f"if not {passes(condition)}:"):
                        if dropped != self.by_difference:
                            body.line(f"{dropped} += 1")
                        body.line("continue")
                    scope = scope.next(scope.columns)
                case ProjectExec():
                    scope = scope.next([*scope.emit_all(step.exprs)])
                case NumberExec():
                    counted = f"d[{self.kernel.layout.slot(self.kernel.counter('numbered'))}]"
                    base = self.kernel.declare("numbers", counted)
                    scope = scope.next([*scope.columns, Code(f"({base} + i)", None)])
                case OnTimeExec():
                    self._on_time(step, scope)
                    scope = scope.next(scope.columns)
                case ArrivalExec():
                    scope = scope.next([*scope.columns, *self._arrival(step, scope)])
                case BucketExec():
                    self._bucket(step, steps[k + 1 :], scope, last)
                    return
        last(scope)

    def _on_time(self, step: OnTimeExec, scope: StageScope) -> None:
        """Leaves out a late row: its row watermark lies above its event time."""
        t = self.event_time(scope, step.wa, step.input.schema)
        before = self.spec.steps[: self.spec.steps.index(step)]
        origin = origins(before, attribute_origins(self.spec)).get(step.wa)
        body, late = self.kernel.body, self.kernel.counter("late_pairs")
        if origin is not None:
            with body.block("if late_at >= 0:"):
                self.row_watermark(origin)
                with body.block(f"if {t} < own:"):
                    body.lines(f"{late} += 1", "continue")
        if step.within is not None:
            column, low, high = step.within
            x = self.event_time(scope, column, step.input.schema)
            for op, name, bound in (("<", "low", low), (">=", "high", high)):
                if bound is not None:
                    limit = self.window_constant(f"within_{name}", bound)
                    with body.block(f"if {x} {op} {limit}:"):
                        body.line("continue")

    def _arrival(self, step: ArrivalExec, scope: StageScope) -> list[Code]:
        """The instant and the weight of a row that enters. A late row enters at its row watermark;
        a row that has ended by its instant is left out as late."""
        body = self.kernel.body
        t = self.event_time(scope, step.wa, step.input.schema)
        before = self.spec.steps[: self.spec.steps.index(step)]
        origin = origins(before, attribute_origins(self.spec)).get(step.wa)
        late = self.kernel.counter("late_pairs")
        now = self.kernel.temp("now")
        body.line(f"{now} = {t}")
        if origin is not None:
            with body.block("if late_at >= 0:"):
                self.row_watermark(origin)
                body.line(f"{now} = max({now}, own)")
        with body.block(f"if int64({scope.load(step.end).value}) <= {now}:"):
            body.lines(f"{late} += 1", "continue")
        storage = step.schema[-2].type.storage
        return [Code(f"{storage}({now})", None), Code("int64(1)", None)]

    def row_watermark(self, origin: Origin) -> None:
        """Sets ``own`` to a late row's row watermark on an attribute, NEVER if there is none."""
        body = self.kernel.body
        body.line("own = NEVER")
        with (
            body.block("for e in range(late_at, late_row):"),
            body.block(f"if late[{LATE_ROW_WORDS} * e + 1] == {origin.attribute}:"),
        ):
            body.line(f"punct = late[{LATE_ROW_WORDS} * e + 2]")
            body.line(f"own = int64({self.mapped(origin)})")

    def _bucket(
        self,
        step: BucketExec,
        rest: tuple[Step, ...],
        scope: StageScope,
        last: Callable[[StageScope], None],
    ) -> None:
        body = self.kernel.body
        assert step.window.wa is not None
        t = self.event_time(scope, step.window.wa, step.input.schema)
        spans = Spans(self, step.window)
        body.lines(f"w0 = {spans.first(t)}", f"w1 = {spans.last(t)}")
        schema = scope.schema_type(step)
        with body.block("for w in range(w0 + skip, w1 + 1):"):
            body.line("sub = w - w0")
            body.lines(*spans.bounds())
            window = [Code(f"{schema}({v})", None) for v in ("ws", "we", "(we - 1)")]
            inner = scope.next([*scope.columns, *window])
            inner.name = "pairs_"  # later filters drop (row, window) pairs, not rows
            self._steps(rest, inner, last)
        with body.block("if status != 0:"):
            body.line("break")

    def event_time(self, scope: RowScope, wa: int, schema: Schema, *, check: bool = True) -> str:
        """Loads the window attribute; a NULL or (``check``) a value that has no windows is a bad
        row."""
        body = self.kernel.body
        code = scope.load(wa)
        if code.valid is not None:
            with body.block(f"if not {code.valid}:"):
                what = f"the event time {schema[wa].name} is NULL"
                body.line(scope.fail(ErrorSite("null event time", what, None)))
        t = self.kernel.temp("t")
        body.line(f"{t} = int64({code.value})")
        if check:
            self.check_event_time(scope, t)
        return t

    def check_event_time(self, scope: RowScope, t: str) -> None:
        with self.kernel.body.block(f"if {t} > {MAX_EVENT_TIME} or {t} < {-MAX_EVENT_TIME}:"):
            site = ErrorSite("event time", "the event time is out of range", None)
            self.kernel.body.line(scope.fail(site))

    def window_constant(self, name: str, value: int) -> str:
        """The local of a window's parameter; the windows of one stage (a bucket, an aggregate) may
        have different values of one name."""
        for n in count():
            text = f"{name}{n or ''}"
            slot = self.kernel.layout.slots.get(f"window {text}")
            if slot is None:
                slot = self.kernel.layout.slot(f"window {text}")
                self.kernel.window_constants[slot] = value
            if self.kernel.window_constants[slot] == value:
                break
        return self.kernel.declare(f"window_{text}", f"d[{slot}]")

    # -- punctuation -----------------------------------------------------------------------------

    def send_punctuation(self, live: dict[int, Origin], window: Window | None) -> None:
        """Writes, inside the loop over the morsel's punctuations, which sets ``attribute`` and
        ``value``, the punctuation of the output's columns."""
        body = self.kernel.body
        for column, origin in live.items():
            with body.block(f"if attribute == {origin.attribute}:"):
                body.line("punct = value")
                if origin.base.startswith("punct_w") and window is not None:
                    body.lines(*Spans(self, window).punctuation())
                mapped = self.mapped(origin)
                self.append_punctuation(str(column), mapped)

    def mapped(self, origin: Origin) -> str:
        if isinstance(origin.expr, Column):
            return origin.base
        scope = StageScope(self, level=-1, skip="continue")
        column = next(e for e in walk(origin.expr) if isinstance(e, Column))
        scope.columns = [Code(f"{column.type.storage}({origin.base})", None)]
        return emit(origin.expr, scope).value

    def append_punctuation(self, attribute: str, value: str) -> None:
        body = self.kernel.body
        self.kernel.declare("sent", f"words(o[{PUNCTUATION_ADDRESS}], 256)")
        body.lines(
            f"at = {PUNCTUATION_WORDS} * o[{PUNCTUATIONS}]",
            f"sent[at] = {attribute}",
            f"sent[at + 1] = int64({value})",
            "sent[at + 2] = -1",
            f"o[{PUNCTUATIONS}] += 1",
        )


def _step_exprs(steps: tuple[Step, ...]) -> list[list[Expr]]:
    found: list[list[Expr]] = []
    for step in steps:
        match step:
            case FilterExec():
                found.append([step.condition])
            case ProjectExec():
                found.append(list(step.exprs))
            case BucketExec() | OnTimeExec() | ArrivalExec() | NumberExec():
                found.append([])
    return found
