"""The plain ending of a stage: output rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cql.base.model import Schema
from cql.base.window import MAX_EVENT_TIME
from cql.executor.codegen.kernel_builder import KernelText, RowScope
from cql.executor.codegen.morsel_io import morsel_columns, read_punctuation
from cql.executor.kernels.lib.views import VIEWS
from cql.executor.kernels.morsel_layout import (
    CURSOR,
    END_OF_INPUT,
    GROUP,
    HEADER,
    IDLE,
    INFINITY,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    NUMBERS,
    OUT,
    PHASE,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SUB,
    WIDTH,
    data_word,
    mask_word,
)
from cql.executor.morsel.morsel import value_bytes
from cql.executor.operators.stage.scope import StageScope
from cql.executor.operators.stage.spec import LateRowTest, Table, columns_at
from cql.executor.operators.stage.watermark_mapping import attribute_origins, origins
from cql.executor.operators.windows.bounds import Spans
from cql.planner.nodes.expr import Column, Expr
from cql.planner.nodes.physical import (
    ArrivalExec,
    BucketExec,
    FilterExec,
    NumberExec,
    OnTimeExec,
    ProjectExec,
)
from cql.planner.nodes.watermarks import value_origin

if TYPE_CHECKING:
    from cql.base.window import Window
    from cql.executor.operators.aggregates.value_log import Log
    from cql.executor.operators.stage.stage_kernel import StageWriter

#: Steps that test whether a row is late.
_TESTING = (OnTimeExec, ArrivalExec)


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
        """Whether every input row is one output row, so that columns can pass by reference."""
        return all(isinstance(s, ProjectExec | NumberExec) for s in self.writer.spec.steps)

    @property
    def in_chunks(self) -> bool:
        """Whether the kernel takes, at a time, as many rows as the output has room for: few of them
        may pass."""
        return not self.preserving and not self.resumes_inside

    @property
    def spare_column(self) -> int | None:
        """An output column with room for row numbers, for a first step that is a filter and the
        only step that drops rows: its loop notes there which rows pass. Such a filter counts by
        difference, so that it may test a row again after another row has failed."""
        spec = self.writer.spec
        if not self.in_chunks or not isinstance(spec.steps[0], FilterExec):
            return None
        if any(isinstance(s, FilterExec | OnTimeExec | ArrivalExec) for s in spec.steps[1:]):
            return None
        return next((k for k, f in enumerate(spec.output) if value_bytes(f.type) >= 4), None)

    @property
    def requests_late_rows(self) -> LateRowTest:
        spec = self.writer.spec
        tests = spec.carry_late_rows or any(isinstance(s, _TESTING) for s in spec.steps)
        return "each row" if tests else None

    @property
    def resumes_inside(self) -> bool:
        """Whether a row can have several windows, so that the kernel can leave between two of
        them."""
        return any(isinstance(s, BucketExec) for s in self.writer.spec.steps)

    @property
    def _bucket_window(self) -> Window | None:
        steps = self.writer.spec.steps
        return next((s.window for s in steps if isinstance(s, BucketExec)), None)

    def row_exprs(self) -> list[Expr]:
        return []

    def before_rows(self) -> None:
        body, spec = self.writer.kernel.body, self.writer.spec
        if self.preserving:
            columns = columns_at(spec)[-1]
            forwarded = ((k, e.index) for k, e in enumerate(columns) if isinstance(e, Column))
            self.by_ref = {k: source for k, source in forwarded if source >= 0}
        body.lines(f"j = o[{ROWS}]", "before = j", "begun = first")
        with body.block("if j == 0:"):
            body.line(f"o[{SEQUENCE}] = u[{SEQUENCE}] + first")
        filters = [k for k, step in enumerate(spec.steps) if isinstance(step, FilterExec)]
        drops = self.resumes_inside or any(isinstance(s, _TESTING) for s in spec.steps)
        if len(filters) == 1 and not drops:
            self.writer.by_difference = f"filtered_{filters[0]}"
        if not any(isinstance(s, BucketExec) for s in spec.steps):
            with body.block("if stop > first + capacity - j:"):
                body.line("stop = first + capacity - j")

    @property
    def passes(self) -> bool:
        """Whether a morsel without late rows passes on by reference: only the event time of a row
        can be bad (3 ns a row)."""
        steps = self.writer.spec.steps
        return bool(steps) and all(isinstance(s, OnTimeExec) and s.within is None for s in steps)

    def take_back(self) -> None:
        """Points the output to columns of its own again, before the kernel declares views of
        them."""
        kernel, width = self.writer.kernel, len(self.writer.spec.output)
        kernel.declare("own_columns", f"words(u[{OUT}] + 8 * o[{WIDTH}], {2 * width})")
        for word in range(HEADER, HEADER + 2 * width):
            # a call that resumes at the punctuation (PHASE 1) keeps the columns it has passed on
            again = f"own_columns[{word - HEADER}] if u[{PHASE}] == 0 else o[{word}]"
            kernel.head.line(f"o[{word}] = {again}")  # the last output may have shown others

    def each_row(self) -> None:
        if not self.passes:
            self.writer.each_row(self)
            return
        writer, body = self.writer, self.writer.kernel.body
        body.line("passed = first == 0 and j == 0 and late_rows == 0 and stop == n")
        with body.block("if passed:"), body.block("for i in range(n):"):
            body.line("r = uint64(i)")
            scope = RowScope(writer.kernel, "r")
            scope.columns = morsel_columns(writer.spec.input)
            for step in writer.spec.steps:
                assert isinstance(step, OnTimeExec)
                time = scope.load(step.wa)
                fine = f"abs(int64({time.value})) <= {MAX_EVENT_TIME}"
                body.line(f"passed &= {fine if time.valid is None else f'{time.valid} and {fine}'}")
        with body.block("if passed:"):
            for c in range(len(writer.spec.output)):
                for word in (data_word(c), mask_word(c)):
                    body.line(f"o[{word}] = u[{word}]")
            body.line("j = i = n")
        with body.block("else:"):
            body.line("i = first")
            writer.each_row(self)

    def row(self, scope: StageScope) -> None:
        body, spec = self.writer.kernel.body, self.writer.spec
        if any(isinstance(s, BucketExec) for s in spec.steps):
            with body.block("if j >= capacity:"):
                body.lines("status = 1", "break")
        store_row(self.writer.kernel, scope, spec.output, frozenset(self.by_ref))
        if spec.carry_late_rows:
            self._carry(scope)
        body.line("j += 1")

    def _carry(self, scope: StageScope) -> None:
        """Writes a late row's row watermark for each attribute of the output, so that the row stays
        late. For a column of a Bucket: only if the column's value lies below the bound of the first
        window that can still come at that watermark."""
        writer = self.writer
        body = writer.kernel.body
        live = origins(writer.spec.steps, attribute_origins(writer.spec))
        window = self._bucket_window
        with body.block("if late_at >= 0:"):
            out = writer.kernel.declare(
                "late_out", f"words(o[{LATE_ROW_ADDRESS}], {LATE_ROW_WORDS} * capacity)"
            )
            with body.block("for e in range(late_at, late_row):"):
                body.line(f"attribute = late[{LATE_ROW_WORDS} * e + 1]")
                body.line(f"value = late[{LATE_ROW_WORDS} * e + 2]")
                for column, origin in live.items():
                    with body.block(f"if attribute == {origin.attribute}:"):
                        body.line("punct = value")
                        below = "True"
                        if origin.base.startswith("punct_w") and window is not None:
                            body.lines("mine = w", *Spans(writer, window).punctuation(), "w = mine")
                            below = f"int64({scope.load(column).value}) < own"
                        body.line(f"own = int64({writer.mapped(origin)})")
                        with body.block(f"if {below}:"):
                            body.lines(
                                f"at = {LATE_ROW_WORDS} * o[{LATE_ROWS}]",
                                f"{out}[at] = j",
                                f"{out}[at + 1] = {column}",
                                f"{out}[at + 2] = own",
                                f"o[{LATE_ROWS}] += 1",
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
            size = value_bytes(kind)
            # an earlier call wrote the first ``before`` rows, and left to request a table
            start = f"(first - before) * {size}"
            body.line(f"o[{data_word(column)}] = u[{data_word(source)}] + {start}")
            if writer.spec.output[column].nullable:
                body.line(f"o[{mask_word(column)}] = u[{mask_word(source)}] + first - before")
        if self.preserving:
            with body.block("if status == 3 and j > 0:"):
                # The rows before the failing row leave first: columns by reference have no gap.
                body.lines("status = 1")
        end_of_rows(writer, phase)

    def after_rows(self) -> None:
        writer = self.writer
        body, spec = writer.kernel.body, writer.spec
        live = origins(spec.steps, attribute_origins(spec))
        window = self._bucket_window
        read_punctuation(writer.kernel)
        with body.block(f"for p in range(u[{PUNCTUATIONS}]):"):
            body.lines(
                f"attribute = arrived[{PUNCTUATION_WORDS} * p]",
                f"value = arrived[{PUNCTUATION_WORDS} * p + 1]",
            )
            with body.block(f"if attribute == {END_OF_INPUT} or attribute == {IDLE}:"):
                writer.append_punctuation("attribute", "value")
                body.line("continue")
            self._punctuate_values()
            joint = f"arrived[{PUNCTUATION_WORDS} * p + 2] >= 0"
            with body.block(f"if {joint} or value == {INFINITY}:"):
                body.line("continue")  # dropping a punctuation is always sound
            writer.send_punctuation(live, window)

    def _punctuate_values(self) -> None:
        """Passes per-key punctuation on, in the output's columns."""
        writer = self.writer
        body, spec = writer.kernel.body, writer.spec
        live, columns = origins(spec.steps, attribute_origins(spec)), columns_at(spec)[-1]
        for attribute, by in spec.keyed_watermarks:
            origin, column = live[attribute], value_origin(columns[by])
            about = f"arrived[{PUNCTUATION_WORDS} * p + 2] == {column}"
            with body.block(f"if attribute == {origin.attribute} and {about}:"):
                body.lines("previous = NEVER", f"punct = arrived[{PUNCTUATION_WORDS} * p + 3]")
                with body.block("if punct > NEVER:"):
                    body.line(f"previous = int64({writer.mapped(origin)})")
                body.line("punct = value")
                writer.append_punctuation(str(attribute), writer.mapped(origin))
                body.lines(f"sent[at + 2] = {by}", "sent[at + 3] = previous")
                keyed_value = f"arrived[{PUNCTUATION_WORDS} * p + {PUNCTUATION_WORDS + 1}]"
                writer.append_punctuation(str(GROUP), keyed_value)
                null = f"arrived[{PUNCTUATION_WORDS} * p + {PUNCTUATION_WORDS + 3}]"
                body.line(f"sent[at + 3] = {null}")


def end_of_rows(writer: StageWriter, phase: int) -> None:
    """Sets where the kernel resumes: at the row that it has not finished, or after the row that
    failed."""
    body = writer.kernel.body
    inner = any(isinstance(s, BucketExec) for s in writer.spec.steps)
    with body.block("if status == 0:"):
        body.line(f"u[{CURSOR}] = stop")
        with body.block("if stop < n:"):
            body.lines("status = 1", f"u[{SUB}] = 0")
        with body.block("else:"):
            body.lines(f"u[{PHASE}] = {phase + 1}", f"u[{SUB}] = 0", "rows_in += n")
            if any(isinstance(s, NumberExec) for s in writer.spec.steps):
                _punctuate_numbers(writer)
    with body.block("elif status == 3:"):
        body.line("detail_row = i")
        body.lines(f"u[{CURSOR}] = i + 1", f"u[{SUB}] = 0")
        if inner:  # a row that failed in one of its windows resumes at the next window
            with body.block("if sub >= 0:"):
                body.lines(f"u[{CURSOR}] = i", f"u[{SUB}] = sub + 1")
    with body.block("else:"):
        body.lines(f"u[{CURSOR}] = i", f"u[{SUB}] = sub if sub >= 0 else skip")


def _punctuate_numbers(writer: StageWriter) -> None:
    """Adds punctuation of row numbers to the morsel's own punctuation, once all its rows are
    numbered: no later row has a number below the next one."""
    body, kernel = writer.kernel.body, writer.kernel
    with body.block("if n > 0:"):
        body.line(f"numbers_at = {PUNCTUATION_WORDS} * u[{PUNCTUATIONS}]")
        body.line(f"given = words(u[{PUNCTUATION_ADDRESS}], numbers_at + {PUNCTUATION_WORDS})")
        values = (NUMBERS, "numbers + n", -1)
        body.lines(*(f"given[numbers_at + {k}] = {v}" for k, v in enumerate(values)))
        body.line(f"u[{PUNCTUATIONS}] += 1")
        body.line(f"{kernel.counter('numbered')} += n")


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
            if code.valid is None:  # a kernel rebuilt for NULLs begins with ``own_masks``
                kernel.declare(f"o[{mask_word(k)}]", kernel.word("ones"))
            else:
                body.line(f"{kernel.declare(f'om{k}', _mask(k))}[to] = {code.valid}")


def store_order(kernel: KernelText, schema: Schema, values: Sequence[str]) -> None:
    """Writes the order columns (``ORDER``) of output row ``j``, behind its other columns."""
    for k, value in enumerate(values):
        view = f"words(o[{data_word(len(schema) + k)}], capacity)"
        kernel.body.line(f"{kernel.declare(f'order{k}', view)}[to] = {value}")


def _mask(column: int) -> str:
    return f"as_u8(o[{mask_word(column)}], capacity)"
