"""WID: windowed hash aggregation by window id (out-of-order paper §4.1 and appendix).

Each row updates its group in every window that holds the row. Punctuation closes windows, whose
groups leave in the order of their first rows. The window id is looked up once per run of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.base.window import MAX_EVENT_TIME
from cql.executor.codegen.expressions.emit import Code
from cql.executor.codegen.kernel_builder import NEED_RESULTS
from cql.executor.codegen.key_packing import key_value
from cql.executor.codegen.morsel_io import read_punctuation
from cql.executor.kernels.morsel_layout import (
    CURSOR,
    END_OF_INPUT,
    IDLE,
    INFINITY,
    NOWHERE,
    OUT,
    PHASE,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
)
from cql.executor.operators.stage.row_sink import end_of_rows, store_order, store_row
from cql.executor.operators.stage.scope import StageScope
from cql.executor.operators.stage.spec import LateRowTest, window_column_type
from cql.executor.operators.stage.watermark_mapping import (
    Origin,
    attribute_origins,
    origins,
)
from cql.executor.operators.windows.bounds import Spans
from cql.executor.operators.windows.group_table import WANTS_WINDOW, GroupingTerminal
from cql.planner.nodes.expr import Column

#: Cuts the bounds of a run of rows, so that an event time out of range ends the run.
WITHIN_BOUNDS = f"low, high = max(low, {-MAX_EVENT_TIME}), min(high, {MAX_EVENT_TIME + 1})"


@dataclass(slots=True)
class AggregateTerminal(GroupingTerminal):
    """Ends a stage with a windowed aggregate; its results run through ``spec.post``."""

    _at_hand: tuple[StageScope, str, list[str | None]] = field(init=False)  # set by ``row``

    @property
    def _single_window(self) -> bool:
        """A row falls into at most one window."""
        w = self.node.window
        return w is None or (w.slide or 0) >= (w.range or 0)

    @property
    def in_chunks(self) -> bool:
        return False

    @property
    def requests_late_rows(self) -> LateRowTest:
        if self.node.window is None:  # the window ends at infinity: no row is late
            return None
        return "itself" if self._single_window else "each row"

    @property
    def resumes_inside(self) -> bool:
        return not self._single_window

    # -- one row -----------------------------------------------------------------------------------

    def before_rows(self) -> None:
        body = self.writer.kernel.body
        self._declare_state()
        body.lines("low = 0", "high = 0", "span = 0", "slot = -1")
        body.lines("base = 0", "root = 0", "mask = 0", "count = 0", "size = 0")
        body.lines("shift = 0", "low_bits = 0", "ahead_to = 0")
        if self.node.window is None and not self.node.keys:
            self._whole_input()

    def _whole_input(self) -> None:
        """Opens, with the first morsel, the group that has a result even without rows."""
        body = self.writer.kernel.body
        with body.block(f"if {self.writer.kernel.word('begun')} == 0:"):
            with body.block("while True:"):
                body.lines("w = 0", "slot = -1")
                self._open_window(leave="break")
                body.lines(*(f"kw{word} = 0" for word in range(self._words)))
                self._hash_words()
                self._find_group(["break"])
                body.line(f"{self.writer.kernel.word('begun')} = 1")
                body.line("break")
            with body.block("if status != 0:"):
                body.line("stop = first")

    def row(self, scope: StageScope) -> None:
        writer, node = self.writer, self.node
        body = writer.kernel.body
        t = "0"
        if node.window is not None:
            assert node.window.wa is not None
            t = writer.event_time(scope, node.window.wa, node.input.schema, check=False)
        if self._single_window:
            self._look_ahead()
        self._key_words(scope)
        arguments = self._arguments(scope)
        if any(code.ordered for code in self._codes):
            body.lines(f"T = {t}", f"Q = u[{SEQUENCE}] + int64(r)")
        if self._single_window:
            with body.block(f"if unlikely(uint64({t} - low) >= uint64(span)):"):
                body.lines(f"wanted = {WANTS_WINDOW}", "break")
            self._in_run = True
            self._take_row(arguments, ["break"])
            self._in_run = False
            self._at_hand = scope, t, arguments
        else:
            self._many_windows(scope, t, arguments)

    def _row_watermark(self, wa: int) -> None:
        """Sets ``own`` to a late row's row watermark on attribute ``wa``."""
        self.writer.row_watermark(self._attribute_of(wa))

    def _attribute_of(self, wa: int) -> Origin:
        live = origins(self.writer.spec.steps, attribute_origins(self.writer.spec))
        none = Origin("punct", NOWHERE, Column(0, "", self.node.input.schema[wa].type, False))
        return live.get(wa, none)

    def each_row(self) -> None:
        """Writes the loop over runs of rows. The rows of a run share a window; their event times
        lie in ``[low, low + span)``. A row outside them, a late row or a row of a new group leaves
        the inner loop, and enters it again when its window is open or its group exists. So the
        inner loop has no calls, and keeps its values in registers (7.4 -> 7.0 ns a row for a count
        and a sum by 1,000 keys)."""
        writer = self.writer
        if not self._single_window:
            writer.each_row(self)
            return
        body = writer.kernel.body
        body.lines("begin = first", "wanted = 0", "alone = 0")
        with body.block("while True:"):
            body.line("end = stop")
            if self.requests_late_rows:
                with body.block("if begin > next_late:"):
                    writer.pass_late_rows()
                with body.block("if begin == next_late:"):
                    body.line("span = 0")
                one = "begin == next_late or alone != 0"
                body.line(f"end = min(stop, begin + 1 if {one} else next_late)")
            if self._one_group:
                body.line("kw0 = 0")
                with body.block("if span != 0 and count == 0:"):
                    self._find_group(["break"])
                with body.block("if span != 0:"):
                    body.line("g = uint64(base)")
                    body.lines(*(f"{name}_ = {name}[g]" for name in self._states))
            body.line("i = begin - 1")
            with body.block("while i < end - 1:"):  # a ``range`` would need a second counter
                body.line("i += 1")
                writer.row(self)
            if self._one_group:
                with body.block("if span != 0:"):
                    body.lines(*(f"{name}[g] = {name}_" for name in self._states))
            with body.block("if wanted == 0:"):
                with body.block("if status != 0 or end == stop:"):
                    body.line("break")
                body.lines("begin = end", "span = 0 if alone != 0 else span", "alone = 0")
                body.line("continue")
            body.lines("begin = i + 1", f"wants_window = wanted == {WANTS_WINDOW}", "wanted = 0")
            with body.block("if wants_window:"):
                body.line("span = 0")
                self._enter_window(*self._at_hand)
            with body.block("else:"):
                self._find_group(["break"])
            body.line("begin = i")

    def _enter_window(self, scope: StageScope, t: str, arguments: list[str | None]) -> None:
        """Opens the window of a row, and sets the event times, ``low`` and ``span``, that share it;
        ``continue`` goes on to the next row."""
        writer, window = self.writer, self.node.window
        body = writer.kernel.body
        if window is None:
            body.line("w = 0")
            self._open_window(leave="break")
            body.line("span = 1")
            return
        spans = Spans(writer, window)
        writer.mark_late_row()
        writer.check_event_time(scope, t)
        body.lines(f"w = {spans.last(t)}", f"low = {spans.start('w')}")
        body.line(f"we = {spans.end('w')}")
        if window.slide != window.range:
            between = writer.kernel.counter("between_windows")
            with body.block(f"if {t} >= we:"):
                body.lines(f"{between} += 1", "continue")
        late = writer.kernel.counter("late_pairs")
        with body.block("if late_at >= 0:"):
            self._row_watermark(window.wa or 0)
            with body.block("if we <= own:"):
                body.lines(f"{late} += 1", "continue")
        self._open_window(leave="break")
        body.lines("high = we", WITHIN_BOUNDS, "span = high - low")

    def _many_windows(self, scope: StageScope, t: str, arguments: list[str | None]) -> None:
        writer, window = self.writer, self.node.window
        assert window is not None
        body = writer.kernel.body
        late = writer.kernel.counter("late_pairs")
        spans = Spans(writer, window)
        body.line("own = NEVER")
        with body.block("if late_at >= 0:"):
            self._row_watermark(window.wa or 0)
        with body.block(f"if {t} < low or {t} >= high:"):
            writer.check_event_time(scope, t)
            body.line(f"w1 = {spans.last(t)}")
            if (window.range or 0) % (window.slide or 1) == 0:
                body.line(f"w0 = {spans.first(t)}")
            body.line(f"v = {spans.unit(t)} // {spans.slide}")
            body.line(f"low = {spans.at(f'v * {spans.slide}')}")
            body.lines(f"high = {spans.at(f'(v + 1) * {spans.slide}')}", WITHIN_BOUNDS)
        if (window.range or 0) % (window.slide or 1):
            body.line(f"w0 = {spans.first(t)}")
        with body.block("for w in range(w0 + skip, w1 + 1):"):
            body.line(f"we = {spans.end('w')}")
            with body.block("if we <= own:"):
                body.lines(f"{late} += 1", "continue")
            body.line("sub = w - w0")
            self._open_window(leave="break")
            self._update(arguments, ["break"])
        with body.block("if status != 0:"):
            body.line("break")
        if spans.since is not None:  # these windows ended before the row
            with body.block(f"if own >= {spans.since}:"):
                body.line(f"{late} += {spans.elsewhere(t)}")

    def _take_row(self, arguments: list[str | None], leave: list[str]) -> None:
        """Puts the row into the window, or the pane, at hand."""
        self._update(arguments, leave)

    # -- closing -----------------------------------------------------------------------------------

    def end_rows(self, phase: int) -> None:
        self.writer.kernel.counter("rows_in")
        end_of_rows(self.writer, phase)

    def after_rows(self) -> None:
        """Advances the watermark, gives the windows that it closes, then sends the punctuation of
        the windows that can still come."""
        writer = self.writer
        body, kernel = writer.kernel.body, writer.kernel
        after = f"u[{PHASE}]"
        row_phase = len(kernel.hosts)
        watermark = kernel.word("watermark")
        read_punctuation(kernel)
        with body.block(f"if {after} == {row_phase + 1}:"):
            with body.block(f"for p in range(u[{PUNCTUATIONS}]):"):
                body.lines(
                    f"attribute = arrived[{PUNCTUATION_WORDS} * p]",
                    f"value = arrived[{PUNCTUATION_WORDS} * p + 1]",
                )
                with body.block(f"if attribute == {END_OF_INPUT}:"):
                    body.lines(f"{watermark} = {INFINITY}", "continue")
                with body.block(f"if attribute == {IDLE}:"):
                    writer.append_punctuation(str(IDLE), "value")
                    body.line("continue")
                with body.block(f"if arrived[{PUNCTUATION_WORDS} * p + 2] >= 0:"):
                    body.line("continue")
                self._advance_watermark()
            self._on_punctuation()
            body.line(f"{after} = {row_phase + 2}")
        self._flush()
        with body.block(f"if status == 0 and {after} == {row_phase + 2}:"):
            self._punctuate()
            body.line(f"{after} = {row_phase + 3}")

    def _on_punctuation(self) -> None:
        """Writes what is done once per morsel, after its punctuation has been read."""

    def _advance_watermark(self) -> None:
        window = self.node.window
        body, watermark = self.writer.kernel.body, self.writer.kernel.word("watermark")
        if window is None or window.wa is None:
            return
        origin = self._attribute_of(window.wa)
        with body.block(f"if attribute == {origin.attribute}:"):
            with body.block(f"if value == {INFINITY}:"):
                body.lines(f"{watermark} = {INFINITY}", "continue")
            body.line("punct = value")
            mapped = self.writer.mapped(origin)
            with body.block(f"if int64({mapped}) > {watermark}:"):
                body.line(f"{watermark} = int64({mapped})")

    def _flush(self) -> None:
        body, kernel = self.writer.kernel.body, self.writer.kernel
        closing, group = kernel.word("closing"), kernel.word("closing_group")
        kernel.counter("rows_out")
        body.lines(f"j = o[{ROWS}]", "before = j")
        with body.block("if j == 0:"):
            body.line(f"o[{SEQUENCE}] = {kernel.word('emitted')}")
        with body.block("while status == 0:"):
            with body.block(f"if {closing} < 0:"):
                self._next_window(closing, group)
            body.line(f"slot = {closing}")
            self._window_of_slot()
            self._complete()
            if self.logs:
                self._results_of_logs()
            body.line("base = bases[slot]")
            self._window_bounds()
            body.lines(f"start = {group}", "i = start")
            if self.writer.spec.top_n:
                body.line("began = j")
            with body.block("for i in range(start, counts[slot]):"):
                with body.block("if j >= capacity:"):
                    self._keep_top_n()
                    with body.block("if j >= capacity:"):
                        body.lines("status = 1", "break")
                body.line("g = uint64(base + i)")
                self._before_group()
                self._result_row()
            self._keep_top_n()
            self._end_of_window(closing, group)
        body.lines(f"o[{ROWS}] = j", "rows_out += j - before")
        body.line(f"{kernel.word('emitted')} += j - before")

    def _keep_top_n(self) -> None:
        """Drops the results of the window that cannot be among its first ones."""
        if not self.writer.spec.top_n:
            return
        body, kernel = self.writer.kernel.body, self.writer.kernel
        most = kernel.declare("most", kernel.word("most"))
        with body.block(f"if j - began > {most}:"):
            dropped, function = kernel.counter("over_limit"), kernel.word("first_rows")
            body.lines(f"o[{ROWS}], o[{CURSOR}] = j, began", f"{dropped} += j")
            body.line(f"j = call_operator({function}, {kernel.word('row_order')}, u[{OUT}])")
            body.line(f"{dropped} -= j")

    def _next_window(self, closing: str, group: str) -> None:
        """Finds the window to close, or leaves the loop."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        with body.block(f"if {kernel.word('open')} == 0:"):
            body.line("break")
        body.line("w = heap[0]")
        self._window_bounds()
        last = INFINITY if self.node.window is None else "we"
        with body.block(f"if {kernel.word('watermark')} < {last}:"):
            body.line("break")
        body.line(f"{closing} = call_operator({kernel.word('find_window')}, desc, w)")
        body.line(f"{group} = 0")

    def _window_of_slot(self) -> None:
        self.writer.kernel.body.line("w = window_ids[slot]")

    def _complete(self) -> None:
        """Writes what completes a window before its groups leave."""

    def _results_of_logs(self) -> None:
        """Requests the holistic results, once for each window, before its first group leaves."""
        body, finished = self.writer.kernel.body, self.writer.kernel.word("finished")
        with body.block(f"if {finished} == 0:"):
            body.lines("status = 2", f"detail = {NEED_RESULTS}", "detail_row = slot", "break")

    def _before_group(self) -> None:
        """Writes what precedes the leaving of group ``g``, entry ``i`` of its window."""

    def _window_bounds(self) -> None:
        window = self.node.window
        body = self.writer.kernel.body
        if window is not None:
            body.lines(*Spans(self.writer, window).bounds())

    def _result_row(self) -> None:
        """Writes the result row of group ``g``: keys, aggregates and window bounds, through the
        steps after the aggregate."""
        writer, node = self.writer, self.node
        body = writer.kernel.body
        scope = StageScope(writer, level=-1)
        scope.level, scope.name = 0, "after_"
        columns: list[Code] = []
        for i, (key, part) in enumerate(zip(node.keys, self._parts, strict=True)):
            valid = None
            if key.nullable:
                valid = writer.kernel.temp("kv")
                body.line(f"{valid} = (nulls[g] & {1 << self._null_bit(i)}) == 0")
            value = writer.kernel.temp("key_")
            body.line(f"{value} = {key_value(key.type, f'key{part.word}[g]', part)}")
            columns.append(Code(value, valid))
        for k, code in enumerate(self._codes):
            self._emit(k, code.final_lines, "break")
            columns.append(code.result)
        if node.window is not None:
            kind = window_column_type(node.input.schema, node.window).storage
            columns += [Code(f"{kind}({v})", None) for v in ("ws", "we", "(we - 1)")]
        columns += self._more_columns()
        scope.columns = list(columns)
        writer._steps(writer.spec.post, scope, self._store)

    def _more_columns(self) -> list[Code]:
        """The columns of a result behind the bounds of its window."""
        return []

    def _store(self, scope: StageScope) -> None:
        kernel, spec = self.writer.kernel, self.writer.spec
        store_row(kernel, scope, spec.output, frozenset())
        if spec.with_order_columns:
            store_order(kernel, spec.output, self._order)
        kernel.body.line("j += 1")

    @property
    def _order(self) -> tuple[str, str]:
        """The values of a result's order columns (``spec.ORDER``)."""
        return "w", "born[g]"

    def _end_of_window(self, closing: str, group: str) -> None:
        """Gives the window's regions back (the purge), or notes where to resume."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        self._pause(group)
        close = kernel.word("close_window")
        closed, groups = kernel.counter("windows_closed"), kernel.counter("groups_out")
        body.lines(f"{closed} += 1", f"{groups} += counts[slot]")
        body.lines(f"call_operator({close}, desc, slot)", f"{closing} = -1")

    def _pause(self, group: str) -> None:
        """Notes where to resume if the kernel leaves within a window."""
        body = self.writer.kernel.body
        with body.block("if status != 0:"):
            body.line(f"{group} = i + 1 if status == 3 else i")
            body.line("detail_row = i if status == 3 else detail_row")
            body.line("break")
        if self.logs:
            body.line(f"{self.writer.kernel.word('finished')} = 0")

    def _punctuate(self) -> None:
        """Sends punctuation on the window columns: the next window that can come is the first whose
        end lies above the watermark."""
        writer, node = self.writer, self.node
        body, kernel = writer.kernel.body, writer.kernel
        watermark, sent = kernel.word("watermark"), kernel.word("punctuated")
        with body.block(f"if {watermark} == {INFINITY} and {sent} < {INFINITY}:"):
            body.line(f"{sent} = {INFINITY}")
            writer.append_punctuation(str(END_OF_INPUT), str(INFINITY))
        if node.window is None or not (live := self._window_origins()):
            return
        with body.block(f"if {watermark} < {INFINITY} and {watermark} > NEVER:"):
            body.lines(f"value = {self._output_watermark()}", "attribute = 0")
            self._first_to_come()
            with body.block(f"if punct_w1 > {sent}:"):
                body.line(f"{sent} = punct_w1")
                # a loop of one round, which a failing expression can leave
                with body.block("for once in range(1):"):
                    writer.send_punctuation(live, None)

    def _first_to_come(self) -> None:
        """Sets ``punct_w0`` to ``punct_w2`` to the bounds of the first window that can still come
        at watermark ``value``."""
        assert self.node.window is not None
        self.writer.kernel.body.lines(*Spans(self.writer, self.node.window).punctuation())

    def _output_watermark(self) -> str:
        """The time up to which all windows have left."""
        return self.writer.kernel.word("watermark")

    def _window_origins(self) -> dict[int, Origin]:
        node = self.node
        assert node.window is not None
        kind = window_column_type(node.input.schema, node.window)
        first = len(node.keys) + len(node.calls)
        start = {first + k: Origin(f"punct_w{k}", 0, Column(0, "", kind, False)) for k in range(3)}
        return origins(self.writer.spec.post, start)
