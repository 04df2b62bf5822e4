"""The kernel of a stage: a fused run of filters, projections and buckets that ends in output rows
or in a windowed aggregate (whose results may go on through further filters and projections).

``write_stage`` turns a ``StageSpec`` into text; ``cql.executor.operators.native`` runs it. One call
handles one unit in phases: host columns, rows, punctuation; it can leave anywhere and resume.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Literal, TypeAlias

from cql.executor import codegen
from cql.executor.expressions import Code, ErrorSite, HostSite, emit, host_sites
from cql.executor.kernels.views import VIEWS
from cql.executor.operators.rowscope import NEED_HOST, KernelText, Lazy, RowScope
from cql.executor.operators.spans import Spans
from cql.executor.unit import (
    CAPACITY,
    CURSOR,
    DETAIL,
    DETAIL_ROW,
    END_OF_INPUT,
    EPOCH,
    HEADER,
    IDLE,
    INFINITY,
    NUMBERS,
    OUT,
    PHASE,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    STRAGGLER_ADDRESS,
    STRAGGLER_WORDS,
    STRAGGLERS,
    SUB,
    data_word,
    mask_word,
)
from cql.model import Schema
from cql.planner.expr import Column, Expr, substitute
from cql.planner.logical import SEQUENCE as NUMBER
from cql.planner.physical import (
    ArrivalExec,
    BucketExec,
    FilterExec,
    NumberExec,
    OnTimeExec,
    ProjectExec,
    WidAggregateExec,
    WindowOperator,
    progress_origin,
)
from cql.types import BIGINT, DataType
from cql.window import MAX_EVENT_TIME, Window, WindowKind

if TYPE_CHECKING:
    from cql.executor.operators.logs import Log

#: Where a terminal looks whether a row is a straggler: before each, in its own time, or nowhere.
Asks: TypeAlias = Literal["each row", "itself"] | None
Step: TypeAlias = FilterExec | ProjectExec | BucketExec | OnTimeExec | ArrivalExec | NumberExec

#: Steps that look whether a row is a straggler.
_ASKING = (OnTimeExec, ArrivalExec)
_NEXT_LATE = f"next_late = late[{STRAGGLER_WORDS} * straggler] if straggler < stragglers else n"


@dataclass(frozen=True, slots=True)
class StageSpec:
    """What one kernel does. ``live``: input columns on which punctuation arrives. ``assume_valid``:
    nullable input columns in which no NULL has been seen (the kernel is rebuilt at the first one).
    ``carry_stragglers``: whether some later operator still asks which rows were late."""

    input: Schema
    steps: tuple[Step, ...]
    aggregate: WidAggregateExec | None
    post: tuple[Step, ...]
    output: Schema
    live: tuple[int, ...]
    assume_valid: frozenset[int] = frozenset()
    carry_stragglers: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """What each window keeps of one kind: its groups, or values beside them. The names of its words
    in the descriptor end in ``suffix``; entries are records of ``columns``, (name, dtype), of which
    the first ``hashed`` are looked up (0: it has no index)."""

    suffix: str
    columns: tuple[tuple[str, str], ...]
    hashed: int


@dataclass(frozen=True, slots=True)
class StageCode:
    """A written stage. ``by_ref`` maps output columns to the input columns that they pass on;
    ``tables`` are those of its windows, ``logs`` among them; ``codes`` the state columns that hold
    codes of the dictionary, as (suffix of their table, name, bit at which the code starts);
    ``fatal`` the error sites that no policy leaves out."""

    text: str
    kernel: KernelText
    by_ref: dict[int, int]
    tables: tuple[Table, ...] = ()
    logs: tuple[Log, ...] = ()
    codes: tuple[tuple[str, str, int], ...] = ()
    fatal: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a progressing column comes from: ``base`` is a local's name once punctuation is being
    mapped, ``attribute`` the input column that it belongs to, ``expr`` a function of Column(0),
    which is the base."""

    base: str
    attribute: int
    expr: Expr


def write_stage(spec: StageSpec) -> StageCode:
    """The text of a stage's kernel."""
    from cql.executor.operators.adaptive import AdaptiveTerminal
    from cql.executor.operators.buffered import BufferedTerminal
    from cql.executor.operators.panes import PaneTerminal
    from cql.executor.operators.two_level import TwoLevelTerminal
    from cql.executor.operators.two_stacks import TwoStacksTerminal
    from cql.executor.operators.wid import AggregateTerminal

    writer = StageWriter(spec)
    if spec.aggregate is None:
        return writer.write(RowTerminal(writer))
    window = spec.aggregate.window
    if window is not None and window.kind is WindowKind.SESSION:
        from cql.executor.operators.sessions import SessionTerminal

        return writer.write(SessionTerminal(writer, node=spec.aggregate))
    if window is not None and window.kind is WindowKind.CUMULATE and spec.aggregate.pane:
        from cql.executor.operators.cumulate import CumulateTerminal

        return writer.write(CumulateTerminal(writer, node=spec.aggregate))
    terminals: dict[WindowOperator, type[AggregateTerminal]] = {
        WindowOperator.WID: AggregateTerminal,
        WindowOperator.PANES: PaneTerminal,
        WindowOperator.TWO_STACKS: TwoStacksTerminal,
        WindowOperator.TWO_LEVEL: TwoLevelTerminal,
        WindowOperator.BUFFERED: BufferedTerminal,
    }
    terminal = terminals[spec.aggregate.operator]
    if spec.aggregate.adaptive:
        terminal = AdaptiveTerminal
    return writer.write(terminal(writer, node=spec.aggregate))


@dataclass(slots=True)
class StageWriter:
    """Shared by the two endings of a stage: the loop over rows with its steps."""

    spec: StageSpec
    kernel: KernelText = field(default_factory=KernelText)
    fatal: set[int] = field(default_factory=set)
    #: The counter of a filter that need not count: rows come out, or it dropped them.
    by_difference: str | None = None
    _hosts: dict[tuple[int, HostSite], HostSite] = field(default_factory=dict)

    def write(self, terminal: RowTerminal) -> StageCode:
        body = self.kernel.body
        levels = columns_at(self.spec)
        with body.block():
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
            self._assemble(),
            self.kernel,
            terminal.by_ref,
            terminal.tables,
            terminal.logs,
            terminal.codes,
            frozenset(self.fatal),
        )

    def _assemble(self) -> str:
        width = HEADER + 2 * max(len(self.spec.input), len(self.spec.output))
        layout = self.kernel.layout
        layout.slot("end")  # a descriptor is never empty
        opening = (
            f"d = words(desc, {len(layout)})",
            f"u = words(unit, {width})",
            f"o = words(u[{OUT}], {width})",
            f"n = u[{ROWS}]",
            f"capacity = o[{CAPACITY}]",
            "status = 0",
            "detail = 0",
            "detail_row = 0",
        )
        head = "".join(f"    {line}\n" for line in (*opening, *str(self.kernel.head).splitlines()))
        return codegen.module_text(
            f"{codegen.OPERATOR}\ndef op(desc, unit):\n{head}{self.kernel.body}"
        )

    # -- columns computed on the host ------------------------------------------------------------

    def _register_hosts(self, level: int, exprs: list[Expr], columns: tuple[Expr, ...]) -> None:
        """Host columns are computed for whole units before the row loop, so their arguments are
        written over the stage's input."""
        for expr in exprs:
            for site in host_sites(expr):
                self._register_host(level, site, columns)

    def _register_host(self, level: int, site: HostSite, columns: tuple[Expr, ...]) -> None:
        if (level, site) in self._hosts:
            return
        lowered = site.with_args(tuple(substitute(a, columns) for a in site.args))
        identity = _identity(self.spec.input)
        for arg in lowered.args:
            for inner in host_sites(arg):
                self._register_host(0, inner, identity)
        self._hosts[level, site] = lowered
        self.kernel.add_host(lowered)

    def host(self, level: int, site: HostSite) -> int:
        return self.kernel.hosts.index(self._hosts[level, site])

    def _host_phase(self, k: int) -> None:
        """Writes the arguments of host column ``k`` for all rows, then asks for the column."""
        body, site = self.kernel.body, self.kernel.hosts[k]
        for a, arg in enumerate(site.args):
            view = VIEWS[arg.type.storage]
            self.kernel.declare(
                f"ha{k}_{a}", f"{view}({self.kernel.word(f'host {k} argument {a}')}, host_rows)"
            )
            word = self.kernel.word(f"host {k} mask {a}")
            self.kernel.declare(f"hm{k}_{a}", f"as_u8({word}, host_rows)")
        with body.block(f"if status == 0 and u[{PHASE}] == {k}:"):
            with body.block("for i in range(n):"):
                body.line("r = uint64(i)")
                # A failing argument fails the row only if the row's own code gets there.
                for a in range(len(site.args)):
                    body.line(f"hm{k}_{a}[i] = 2")
                scope = StageScope(self, level=0, skip="continue")
                for a, arg in enumerate(site.args):
                    code = emit(arg, scope)
                    body.line(f"ha{k}_{a}[i] = {code.value}")
                    valid = "1" if code.valid is None else f"1 if {code.valid} else 0"
                    body.line(f"hm{k}_{a}[i] = {valid}")
            # need_table above leaves the loop with a status of its own
            with body.block("if status == 0:"):
                body.lines("status = 2", f"detail = {NEED_HOST + k}", "detail_row = n")

    # -- rows ------------------------------------------------------------------------------------

    def _row_phase(self, phase: int, terminal: RowTerminal) -> None:
        body = self.kernel.body
        with body.block(f"if status == 0 and u[{PHASE}] == {phase}:"):
            body.lines(f"first = u[{CURSOR}]", f"skip = u[{SUB}]", "i = first", "sub = -1")
            body.line("stop = n")
            if terminal.asks_stragglers:
                self._first_straggler()
            terminal.before_rows()
            if terminal.in_chunks:
                with body.block("while True:"):
                    self._row_loop(terminal)
                    with body.block("if status != 0 or stop == n or j == capacity:"):
                        body.line("break")
                    body.lines("first = stop", "stop = min(n, first + capacity - j)")
            else:
                self._row_loop(terminal)
            terminal.end_rows(phase)

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
            # numba wraps a signed index that may be negative: rows are unsigned inside
            body.line("r = uint64(i)")
            if terminal.resumes_inside:
                body.line("sub = -1")
                with body.block("if i > first:"):
                    body.line("skip = 0")
            if terminal.asks_stragglers == "each row":
                self.mark_straggler()
            self._steps(steps, scope, terminal.row)
        if spare is not None:
            with body.block("if status == 0:"):
                body.line("status, detail, detail_row, i = refused")

    def _choose(self, filter_: FilterExec, spare: int) -> None:
        """A loop that only notes which rows pass, where output column ``spare`` will have their
        values. It has no branch that could be mispredicted (4 ns a row where half of them pass),
        and what the rows that pass need is read in a loop of its own, where a core waits for many
        of them at once (50 ns for each where few do). Rows before one that fails here still go on:
        it is told when they are done."""
        body, scope = self.kernel.body, StageScope(self, level=0)
        view = "words" if _size(self.spec.output[spare].type) == 8 else "as_i32"
        self.kernel.declare("picks", f"{view}(o[{data_word(spare)}], capacity)")
        body.line("end = j")
        with body.block("for i in range(first, stop):"):
            body.line("r = uint64(i)")
            passes = _passes(emit(filter_.condition, scope))
            body.lines("picks[uint64(end)] = i", f"end += int64({passes})")
        body.lines("refused = status, detail, detail_row, i", "status = 0")

    def _first_straggler(self) -> None:
        body = self.kernel.body
        body.lines("straggler = 0", f"stragglers = u[{STRAGGLERS}]")
        body.line(f"late = words(u[{STRAGGLER_ADDRESS}], {STRAGGLER_WORDS} * stragglers)")
        self._pass_stragglers("< first")
        body.line(_NEXT_LATE)

    def mark_straggler(self) -> None:
        """Sets ``late_at`` to the first record of a row that is a straggler, else to -1. Rows that
        a filter dropped may lie between."""
        body = self.kernel.body
        body.line("late_at = -1")
        with body.block("if i >= next_late:"):
            self._pass_stragglers("< i")
            body.line("late_at = straggler")
            self._pass_stragglers("== i")
            body.lines("late_at = late_at if straggler > late_at else -1", _NEXT_LATE)

    def _pass_stragglers(self, condition: str) -> None:
        record = f"late[{STRAGGLER_WORDS} * straggler]"
        with self.kernel.body.block(f"while straggler < stragglers and {record} {condition}:"):
            self.kernel.body.line("straggler += 1")

    def _steps(
        self, steps: tuple[Step, ...], scope: StageScope, last: Callable[[StageScope], None]
    ) -> None:
        """The steps of one row, then the terminal; a bucket opens a loop around what follows."""
        body = self.kernel.body
        for k, step in enumerate(steps):
            match step:
                case FilterExec():
                    condition = emit(step.condition, scope)
                    dropped = self.kernel.counter(f"filtered_{scope.name}{scope.level}")
                    with body.block(f"if not {_passes(condition)}:"):
                        if dropped != self.by_difference:
                            body.line(f"{dropped} += 1")
                        body.line("continue")
                    scope = scope.next(scope.columns)
                case ProjectExec():
                    scope = scope.next([emit(e, scope) for e in step.exprs])
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
        """A straggler is left out: its own watermark has passed its event time."""
        t = self.event_time(scope, step.wa, step.input.schema)
        before = self.spec.steps[: self.spec.steps.index(step)]
        origin = self.origins(before, attribute_origins(self.spec)).get(step.wa)
        late = self.kernel.counter("late_pairs")
        if origin is None:
            return
        with self.kernel.body.block("if late_at >= 0:"):
            self.own_watermark(origin)
            with self.kernel.body.block(f"if {t} < own:"):
                self.kernel.body.lines(f"{late} += 1", "continue")

    def _arrival(self, step: ArrivalExec, scope: StageScope) -> list[Code]:
        """The instant and the weight of a row that enters."""
        body = self.kernel.body
        t = self.event_time(scope, step.wa, step.input.schema)
        before = self.spec.steps[: self.spec.steps.index(step)]
        origin = self.origins(before, attribute_origins(self.spec)).get(step.wa)
        late = self.kernel.counter("late_pairs")
        now = self.kernel.temp("now")
        body.line(f"{now} = {t}")
        if origin is not None:
            with body.block("if late_at >= 0:"):
                self.own_watermark(origin)
                body.line(f"{now} = max({now}, own)")
        with body.block(f"if int64({scope.load(step.end).value}) <= {now}:"):
            body.lines(f"{late} += 1", "continue")
        storage = step.schema[-2].type.storage
        return [Code(f"{storage}({now})", None), Code("int64(1)", None)]

    def own_watermark(self, origin: Origin) -> None:
        """Of a straggler; sets ``own``."""
        body = self.kernel.body
        body.line("own = NEVER")
        with (
            body.block("for e in range(late_at, straggler):"),
            body.block(f"if late[{STRAGGLER_WORDS} * e + 1] == {origin.attribute}:"),
        ):
            body.line(f"punct = late[{STRAGGLER_WORDS} * e + 2]")
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
            inner.name = "pairs_"  # what is filtered from here on are pairs, not rows
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
        """A parameter of a window; windows of one stage (a bucket, an aggregate) may differ."""
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

    def origins(self, steps: tuple[Step, ...], start: dict[int, Origin]) -> dict[int, Origin]:
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
                    live = self._bucket_origins(step, live)
        return live

    def _bucket_origins(self, step: BucketExec, live: dict[int, Origin]) -> dict[int, Origin]:
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

    def send_punctuation(self, live: dict[int, Origin], window: Window | None) -> None:
        """Inside the loop over the unit's punctuations: ``attribute`` and ``value`` are set."""
        body = self.kernel.body
        for column, origin in live.items():
            with body.block(f"if attribute == {origin.attribute}:"):
                body.line("punct = value")
                if origin.base.startswith("punct_w") and window is not None:
                    body.lines(*Spans(self, window).promise())
                mapped = self.mapped(origin)
                self.append_punctuation(str(column), mapped)

    def mapped(self, origin: Origin) -> str:
        if isinstance(origin.expr, Column):
            return origin.base
        scope = StageScope(self, level=-1, skip="continue")
        column = next(c for c in _walk_columns(origin.expr))
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


class StageScope(RowScope):
    """The columns as they stand after ``level`` steps."""

    def __init__(self, writer: StageWriter, level: int, *, skip: str | None = None) -> None:
        super().__init__(writer.kernel, "r", skip=skip)
        self.writer = writer
        self.level = level
        self.name = ""
        if level == 0:
            self.columns = list(_inputs(writer))

    def is_masked(self, column: int) -> bool:
        """Whether an input column that is not loaded yet can hold NULL."""
        entry = self.columns[column]
        return isinstance(entry, Lazy) and entry.mask is not None

    def next(self, columns: list[Code | Lazy]) -> StageScope:
        after = StageScope(self.writer, -1, skip=self._skip)
        after.level, after.columns, after.name = self.level + 1, columns, self.name
        after.index = self.index
        return after

    def host(self, site: HostSite) -> tuple[str, str]:
        return super().host(self.writer._hosts[self.level, site])

    def host_arguments(self, site: HostSite) -> list[tuple[str, str]]:
        return super().host_arguments(self.writer._hosts[self.level, site])

    @staticmethod
    def schema_type(step: BucketExec) -> str:
        return window_column_type(step.input.schema, step.window).storage


@dataclass(slots=True)
class RowTerminal:
    """Ends a stage with output rows."""

    writer: StageWriter
    by_ref: dict[int, int] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    logs: tuple[Log, ...] = ()
    codes: tuple[tuple[str, str, int], ...] = ()

    @property
    def preserving(self) -> bool:
        """Every input row is one output row, so that columns can pass by reference."""
        return all(isinstance(s, ProjectExec | NumberExec) for s in self.writer.spec.steps)

    @property
    def in_chunks(self) -> bool:
        """Whether rows are taken as many at a time as the output has room for: few may pass."""
        return not self.preserving and not self.resumes_inside

    @property
    def spare_column(self) -> int | None:
        """An output column with room for row numbers, where the first step chooses the rows before
        any other code sees them: a filter that counts by difference, so that it may look at a row
        again after one that failed."""
        spec = self.writer.spec
        if not self.in_chunks or not isinstance(spec.steps[0], FilterExec):
            return None
        if any(isinstance(s, FilterExec | OnTimeExec | ArrivalExec) for s in spec.steps[1:]):
            return None
        return next((k for k, f in enumerate(spec.output) if _size(f.type) >= 4), None)

    @property
    def asks_stragglers(self) -> Asks:
        spec = self.writer.spec
        asks = spec.carry_stragglers or any(isinstance(s, _ASKING) for s in spec.steps)
        return "each row" if asks else None

    @property
    def resumes_inside(self) -> bool:
        """Whether a row has several windows, so that a kernel can leave between two of them."""
        return any(isinstance(s, BucketExec) for s in self.writer.spec.steps)

    def row_exprs(self) -> list[Expr]:
        return []

    def before_rows(self) -> None:
        body, spec = self.writer.kernel.body, self.writer.spec
        if self.preserving:
            columns = columns_at(spec)[-1]
            passed = ((k, e.index) for k, e in enumerate(columns) if isinstance(e, Column))
            self.by_ref = {k: source for k, source in passed if source >= 0}
        body.lines(f"j = o[{ROWS}]", "before = j", "begun = first")
        with body.block("if j == 0:"):
            body.line(f"o[{SEQUENCE}] = u[{SEQUENCE}] + first")
        filters = [k for k, step in enumerate(spec.steps) if isinstance(step, FilterExec)]
        drops = self.resumes_inside or any(isinstance(s, _ASKING) for s in spec.steps)
        if len(filters) == 1 and not drops:
            self.writer.by_difference = f"filtered_{filters[0]}"
        if not any(isinstance(s, BucketExec) for s in spec.steps):
            with body.block("if stop > first + capacity - j:"):
                body.line("stop = first + capacity - j")

    def row(self, scope: StageScope) -> None:
        body, spec = self.writer.kernel.body, self.writer.spec
        if any(isinstance(s, BucketExec) for s in spec.steps):
            with body.block("if j >= capacity:"):
                body.lines("status = 1", "break")
        store_row(self.writer.kernel, scope, spec.output, frozenset(self.by_ref))
        if spec.carry_stragglers:
            self._carry()
        body.line("j += 1")

    def _carry(self) -> None:
        """A straggler stays one: its own watermark goes along, in the output's attributes."""
        writer = self.writer
        body = writer.kernel.body
        live = writer.origins(writer.spec.steps, attribute_origins(writer.spec))
        with body.block("if late_at >= 0:"):
            out = writer.kernel.declare(
                "late_out", f"words(o[{STRAGGLER_ADDRESS}], {STRAGGLER_WORDS} * capacity)"
            )
            with body.block("for e in range(late_at, straggler):"):
                body.line(f"attribute = late[{STRAGGLER_WORDS} * e + 1]")
                body.line(f"value = late[{STRAGGLER_WORDS} * e + 2]")
                for column, origin in live.items():
                    if origin.base.startswith("punct_w"):
                        continue  # the window columns of a bucket: judged by the attribute itself
                    with body.block(f"if attribute == {origin.attribute}:"):
                        body.line("punct = value")
                        body.lines(
                            f"at = {STRAGGLER_WORDS} * o[{STRAGGLERS}]",
                            f"{out}[at] = j",
                            f"{out}[at + 1] = {column}",
                            f"{out}[at + 2] = int64({writer.mapped(origin)})",
                            f"o[{STRAGGLERS}] += 1",
                        )

    def end_rows(self, phase: int) -> None:
        writer = self.writer
        body, kernel = writer.kernel.body, writer.kernel
        body.line(f"o[{ROWS}] = j")
        kernel.counter("rows_out")
        kernel.counter("rows_in")
        body.line("rows_out += j - before")
        if writer.by_difference is not None:
            body.line("ended = stop if status == 0 else i")
            body.line(f"{kernel.counter(writer.by_difference)} += ended - begun - (j - before)")
        for column, source in self.by_ref.items():
            kind = writer.spec.output[column].type
            size = _size(kind)
            # ``before`` rows of this chunk were there before the call (it had to ask for a table)
            start = f"(first - before) * {size}"
            body.line(f"o[{data_word(column)}] = u[{data_word(source)}] + {start}")
            if writer.spec.output[column].nullable:
                body.line(f"o[{mask_word(column)}] = u[{mask_word(source)}] + first - before")
        if self.preserving:
            with body.block("if status == 3 and j > 0:"):
                # Rows before the failing one go first: columns pass by reference, without a gap.
                body.lines("status = 1")
        end_of_rows(writer, phase)

    def after_rows(self) -> None:
        writer = self.writer
        body, spec = writer.kernel.body, writer.spec
        live = writer.origins(spec.steps, attribute_origins(spec))
        window = next((s.window for s in spec.steps if isinstance(s, BucketExec)), None)
        read_punctuation(writer.kernel)
        with body.block(f"for p in range(u[{PUNCTUATIONS}]):"):
            body.lines(
                f"attribute = arrived[{PUNCTUATION_WORDS} * p]",
                f"value = arrived[{PUNCTUATION_WORDS} * p + 1]",
            )
            with body.block(f"if attribute == {END_OF_INPUT} or attribute == {IDLE}:"):
                writer.append_punctuation("attribute", "value")
                body.line("continue")
            joint = f"arrived[{PUNCTUATION_WORDS} * p + 2] >= 0"
            with body.block(f"if {joint} or value == {INFINITY}:"):
                body.line("continue")  # dropping a promise is always sound
            writer.send_punctuation(live, window)


def end_of_rows(writer: StageWriter, phase: int) -> None:
    """Where to resume: at the row that was not finished, after the one that failed."""
    body = writer.kernel.body
    inner = any(isinstance(s, BucketExec) for s in writer.spec.steps)
    with body.block("if status == 0:"):
        body.line(f"u[{CURSOR}] = stop")
        with body.block("if stop < n:"):
            body.lines("status = 1", f"u[{SUB}] = 0")
        with body.block("else:"):
            body.lines(f"u[{PHASE}] = {phase + 1}", f"u[{SUB}] = 0", "rows_in += n")
            if any(isinstance(s, NumberExec) for s in writer.spec.steps):
                _promise_number(writer)
    with body.block("elif status == 3:"):
        body.line("detail_row = i")
        body.lines(f"u[{CURSOR}] = i + 1", f"u[{SUB}] = 0")
        if inner:  # only the window at hand is left out, if the row had come to its windows
            with body.block("if sub >= 0:"):
                body.lines(f"u[{CURSOR}] = i", f"u[{SUB}] = sub + 1")
    with body.block("else:"):
        body.lines(f"u[{CURSOR}] = i", f"u[{SUB}] = sub if sub >= 0 else skip")


def _promise_number(writer: StageWriter) -> None:
    """Once all rows of a unit have their numbers: none below the next one follows. It arrives with
    the unit's own punctuation."""
    body, kernel = writer.kernel.body, writer.kernel
    with body.block("if n > 0:"):
        body.line(f"numbers_at = {PUNCTUATION_WORDS} * u[{PUNCTUATIONS}]")
        body.line(f"given = words(u[{PUNCTUATION_ADDRESS}], numbers_at + {PUNCTUATION_WORDS})")
        values = (NUMBERS, "numbers + n", -1)
        body.lines(*(f"given[numbers_at + {k}] = {v}" for k, v in enumerate(values)))
        body.line(f"u[{PUNCTUATIONS}] += 1")
        body.line(f"{kernel.counter('numbered')} += n")


def _passes(condition: Code) -> str:
    """NULL does not pass a filter."""
    if condition.valid is None:
        return condition.value
    return f"({condition.valid} and {condition.value})"


def store_row(kernel: KernelText, scope: RowScope, schema: Schema, skipped: frozenset[int]) -> None:
    """Writes the scope's columns as output row ``j``."""
    body = kernel.body
    body.line("to = uint64(j)")
    for k, f in enumerate(schema):
        if k in skipped:
            continue
        view = kernel.declare(f"out{k}", f"{VIEWS[f.type.storage]}(o[{data_word(k)}], capacity)")
        code = scope.load(k)
        body.line(f"{view}[to] = {code.value}")
        if f.nullable:
            if code.valid is None:  # in this kernel: one for NULLs would begin with ``own_masks``
                kernel.declare(f"o[{mask_word(k)}]", kernel.word("ones"))
            else:
                body.line(f"{kernel.declare(f'om{k}', _mask(k))}[to] = {code.valid}")


def _mask(column: int) -> str:
    return f"as_u8(o[{mask_word(column)}], capacity)"


def read_punctuation(kernel: KernelText) -> str:
    return kernel.declare(
        "arrived", f"words(u[{PUNCTUATION_ADDRESS}], {PUNCTUATION_WORDS} * u[{PUNCTUATIONS}])"
    )


def attribute_origins(spec: StageSpec) -> dict[int, Origin]:
    return {
        c: Origin("punct", c, Column(0, spec.input[c].name, spec.input[c].type, False))
        for c in spec.live
    }


def window_column_type(schema: Schema, window: Window) -> DataType:
    assert window.wa is not None
    wa = schema[window.wa].type
    return BIGINT if wa.is_integer else wa


def _through(expr: Expr, column: int, origin: Origin) -> Origin:
    """``expr`` over ``column``, rewritten over the origin's base."""
    slots: list[Expr] = [origin.expr] * (column + 1)
    return Origin(origin.base, origin.attribute, substitute(expr, tuple(slots)))


def columns_at(spec: StageSpec) -> list[tuple[Expr, ...]]:
    """The columns before each step, and after the last, written over the stage's input."""
    columns = _identity(spec.input)
    levels = [columns]
    for step in spec.steps:
        if isinstance(step, ProjectExec):
            columns = tuple(substitute(e, columns) for e in step.exprs)
        elif isinstance(step, ArrivalExec):
            change = (Column(-1, f.name, f.type, False) for f in step.schema.fields[-2:])
            columns = (*columns, *change)
        elif isinstance(step, NumberExec):
            columns = (*columns, Column(-1, NUMBER, BIGINT, False))
        elif isinstance(step, BucketExec):
            kind = window_column_type(step.input.schema, step.window)
            columns = (*columns, *(Column(-1, "window", kind, False) for _ in range(3)))
        levels.append(columns)
    return levels


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


def _identity(schema: Schema) -> tuple[Expr, ...]:
    return tuple(Column(i, f.name, f.type, f.nullable) for i, f in enumerate(schema))


def _inputs(writer: StageWriter) -> list[Lazy]:
    kernel, spec = writer.kernel, writer.spec
    columns: list[Lazy] = []
    for i, f in enumerate(spec.input):
        masked = f.nullable and i not in spec.assume_valid
        columns.append(
            Lazy(
                f"in{i}",
                f"{VIEWS[f.type.storage]}(u[{data_word(i)}], n)",
                f"im{i}" if masked else None,
                f"as_u8(u[{mask_word(i)}], n)",
                f.type,
            )
        )
    del kernel
    return columns


def _walk_columns(expr: Expr) -> list[Column]:
    from cql.planner.expr import walk

    return [e for e in walk(expr) if isinstance(e, Column)]


_SIZES = {"int64": 8, "float64": 8, "int32": 4, "float32": 4, "int16": 2, "int8": 1, "bool": 1}


def _size(kind: DataType) -> int:
    return _SIZES[kind.storage]
