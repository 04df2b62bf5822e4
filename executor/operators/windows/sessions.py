"""Session windows: rows of a group that follow each other by at most the gap.

Rows come in any order, so that one row can extend a session or join two. A late row must not extend
a session that may have left already, whatever the other inputs do. With the row watermark W of a
row (design §2: the watermark of its source just before it) and its time t:

- a row is left out as late iff ``t + gap <= W``;
- two rows of a group are *linked* iff their times differ by at most the gap, and neither lies more
  than the gap behind the other's row watermark; sessions are the connected components;
- a session leaves when the operator's watermark lies beyond its last row by more than the gap.

Two linked rows meet: when the second row comes, the first lies at most the gap behind it and behind
its row watermark, hence also behind the operator's watermark, which is at most the row watermark.
The sessions of a group do not overlap: a row between two linked rows is linked to one of them. A
row with time t and ``low = max(t, W) - gap`` is linked to a session iff ``s_reach <= t`` and
``low <= s_last``, where ``s_reach`` is the least ``low`` of the session's rows. At most one such
session begins after the row.

Out-of-order paper §4.1 (windows whose extent is a function of the row) leaves sessions out. Their
definition is that of session windows in Flink and Spark; the results are equal wherever no row is
late there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from cql.executor.codegen.kernel_builder import NEED_ROOM
from cql.executor.codegen.key_packing import pack_keys
from cql.executor.kernels.lib.views import FIELDS
from cql.executor.kernels.morsel_layout import END_OF_INPUT, INFINITY, ROWS, SEQUENCE
from cql.executor.kernels.windows import sessions
from cql.executor.operators.aggregates import session_values
from cql.executor.operators.aggregates.functions import aggregate_code
from cql.executor.operators.aggregates.udaf import declare_own
from cql.executor.operators.aggregates.value_log import holistic_code, logs_of
from cql.executor.operators.stage.scope import StageScope
from cql.executor.operators.stage.spec import LateRowTest, Table, window_column_type
from cql.executor.operators.stage.watermark_mapping import Origin, origins
from cql.executor.operators.windows.wid import AggregateTerminal
from cql.planner.nodes.expr import Column


@dataclass(slots=True)
class SessionTerminal(AggregateTerminal):
    """Ends a stage with an aggregate over session windows."""

    def __post_init__(self) -> None:
        node, layout = self.node, self.writer.kernel.layout
        self._parts, self._words = pack_keys([k.type for k in node.keys])
        self._codes = [
            holistic_code(call, k) if call.holistic else aggregate_code(call, k, self._loose(call))
            for k, call in enumerate(node.calls)
        ]
        keys = [(f"key{w}", "int64") for w in range(self._words)]
        if self._nullable_keys:
            keys.append(("nulls", "int64"))
        own = [(name, "int64") for name in sessions.SESSION]
        state = (column for code in self._codes for column in code.columns)
        self.codes = tuple(self._code_columns())
        self.logs = logs_of(node.calls, distinct=True)
        ends = session_values.columns(self.logs)
        self.tables = (Table("", (*own, *keys, *state, *ends), self._words),)
        for name in sessions.DIRECTORY:  # the library's functions expect them at fixed places
            layout.slot(name)
        for log in self.logs:
            session_values.lay_out(self.writer.kernel, log, node.calls)
        assert node.window is not None
        self.writer.kernel.window_constants[layout.slot("gap")] = node.window.gap or 0

    @property
    def _direct(self) -> bool:
        return False

    @property
    def requests_late_rows(self) -> LateRowTest:
        return "each row"

    @property
    def resumes_inside(self) -> bool:
        return False

    @property
    def _gap(self) -> str:
        return self.writer.kernel.declare("gap", self.writer.kernel.word("gap"))

    # -- one row ---------------------------------------------------------------------------------

    def before_rows(self) -> None:
        self._declare_state()

    def _declare_state(self) -> None:
        kernel = self.writer.kernel
        for name in ("watermark", "closing", *session_values.scalars(self.logs)):
            kernel.layout.slot(name)
        declare_own(kernel, self._codes)
        session_values.declare(kernel, self.logs, self.node.calls)
        n = kernel.declare("entries", kernel.word("entries"))
        kernel.declare("mask", f"{sessions.PLACES} * {n} - 1")
        kernel.declare("index", f"as_i32({kernel.word('index')}, mask + 1)")
        records = kernel.word("records")
        (table,) = self.tables
        for word, (name, dtype) in enumerate(table.columns):
            at = f"{records} + {8 * word}, {n}, {8 * len(table.columns)}"
            kernel.declare(name, f"{FIELDS[dtype]}({at})")

    def each_row(self) -> None:
        self.writer.each_row(self)

    def row(self, scope: StageScope) -> None:
        writer, node = self.writer, self.node
        body = writer.kernel.body
        assert node.window is not None
        assert node.window.wa is not None
        t = writer.event_time(scope, node.window.wa, node.input.schema)
        self._key_words(scope)
        arguments = self._arguments(scope)
        body.line(f"T = {t}")
        if any(code.ordered for code in self._codes):
            body.line(f"Q = u[{SEQUENCE}] + int64(r)")
        body.line(f"low = T - {self._gap}")
        late = writer.kernel.counter("late_pairs")
        with body.block("if late_at >= 0:"):
            self._row_watermark(node.window.wa)
            with body.block(f"if T + {self._gap} <= own:"):
                body.lines(f"{late} += 1", "continue")
            body.line(f"low = max(low, own - {self._gap}) if own > NEVER else low")
        self._update(arguments, ["break"])

    def _update(self, arguments: list[str | None], leave: list[str]) -> None:
        body, kernel = self.writer.kernel.body, self.writer.kernel
        for number, log in enumerate(self.logs):
            session_values.make_room(kernel, number, log, arguments[log.calls[0]], leave)
        self._find_group(leave)
        for log in self.logs:
            session_values.append(kernel, log, arguments[log.calls[0]])
        for k, code in enumerate(self._codes):
            if not self.node.calls[k].beside:
                with body.block(f"if {arguments[k] or 'True'}:"):
                    self._emit(k, code.update, leave[0])

    def _find_group(self, leave: list[str]) -> None:
        """Finds or opens the session of the row at hand; sets ``g``. A row that is linked to
        several sessions joins them."""
        body = self.writer.kernel.body
        same = " and ".join(f"key{w}[g] == kw{w}" for w in range(self._words))
        if self._compares_nulls:
            same += " and nulls[g] == kn"
        body.lines("p = (hashed >> 8) & mask", "g = uint64(0)")
        with body.block("while True:"):
            body.line("session = int64(index[uint64(p)]) - 1")
            with body.block("if session < 0:"):
                body.line("break")
            body.line("g = uint64(session)")
            with body.block(f"if {same}:"):
                body.line("break")
            body.line("p = (p + 1) & mask")
        body.line("after = -1")
        with body.block("while session >= 0 and s_reach[uint64(session)] > T:"):
            body.lines("after = session", "session = s_older[uint64(session)]")
        with body.block("if session >= 0 and s_last[uint64(session)] >= low:"):
            with body.block("while True:"):
                body.line("before = s_older[uint64(session)]")
                with body.block("if before < 0 or s_last[uint64(before)] < low:"):
                    body.line("break")
                self._join()
            with body.block("if status != 0:"):
                body.line(leave[0])
            body.line("g = uint64(session)")
            body.lines("s_first[g] = min(s_first[g], T)", "s_last[g] = max(s_last[g], T)")
            body.line("s_reach[g] = min(s_reach[g], low)")
        with body.block("else:"):
            self._open(leave)

    def _join(self) -> None:
        """Joins ``session`` and ``before``, the earlier session; the record that was born first
        stays."""
        body = self.writer.kernel.body
        body.lines("kept, gone = uint64(session), uint64(before)")
        body.lines("newer, older = s_newer[kept], s_older[gone]")
        with body.block("if s_born[gone] < s_born[kept]:"):
            body.line("kept, gone = gone, kept")
        for column, least in (("s_first", "min"), ("s_last", "max"), ("s_reach", "min")):
            body.line(f"{column}[kept] = {least}({column}[kept], {column}[gone])")
        body.lines("s_newer[kept] = newer", "s_older[kept] = older")
        body.line(f"s_older[gone] = {sessions.JOINED}")
        body.line("session = int64(kept)")
        with body.block("if older >= 0:"):
            body.line("s_newer[uint64(older)] = session")
        with body.block("if newer >= 0:"):
            body.line("s_older[uint64(newer)] = session")
        with body.block("else:"):
            body.line("index[uint64(p)] = session + 1")
        session_values.join(self.writer.kernel, self.logs)
        body.lines("g, m = kept, gone")
        for k, code in enumerate(self._codes):
            if not self.node.calls[k].beside:
                self._emit(k, code.merge, "break")

    def _open(self, leave: list[str]) -> None:
        """Opens a session of the row alone, between ``session`` and ``after``."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        # births are ordered over the sessions of all partitions
        if self.writer.spec.with_order_columns:
            body.line(f"{kernel.word('born')} = u[{SEQUENCE}] + int64(r)")
        body.line(f"opened = call_operator({kernel.word('open_session')}, desc, T)")
        with body.block("if opened < 0:"):
            body.lines(f"status = 2; detail = {NEED_ROOM}", leave[0])
        body.line("g = uint64(opened)")
        body.lines("s_first[g] = T", "s_last[g] = T", "s_reach[g] = low", "s_hash[g] = hashed")
        body.lines("s_older[g] = session", "s_newer[g] = after")
        with body.block("if session >= 0:"):
            body.line("s_newer[uint64(session)] = opened")
        with body.block("if after >= 0:"):
            body.line("s_older[uint64(after)] = opened")
        with body.block("else:"):
            body.line("index[uint64(p)] = opened + 1")
        body.lines(*(f"key{w}[g] = kw{w}" for w in range(self._words)))
        if self._nullable_keys:
            body.line(f"nulls[g] = {'kn' if self._compares_nulls else '0'}")
        for code in self._codes:
            body.lines(*code.init)
        body.lines(*session_values.begin(self.logs))

    # -- closing ---------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Gives the sessions that the watermark closes, by end and first contribution. A session is
        purged after its result row, even if that row failed or was filtered."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        closing, watermark = kernel.word("closing"), kernel.word("watermark")
        closed, groups = kernel.counter("windows_closed"), kernel.counter("groups_out")
        calls, requested = self.node.calls, session_values.in_numpy(self.logs, self.node.calls)
        kernel.counter("rows_out")
        body.lines(f"j = o[{ROWS}]", "before = j")
        with body.block("if j == 0:"):
            body.line(f"o[{SEQUENCE}] = {kernel.word('emitted')}")
        with body.block("while status == 0:"):
            with body.block(f"if {closing} >= 0:"):
                for log in self.logs:
                    if log not in requested:
                        session_values.forget(kernel, log)
                body.line(f"call_operator({kernel.word('close_session')}, desc, {closing})")
                body.lines(f"{closing} = -1", f"{closed} += 1", f"{groups} += 1")
            body.line(f"session = call_operator({kernel.word('next_session')}, desc, {watermark})")
            with body.block("if session < 0:"):
                body.line("break")
            if requested:
                session_values.request_results(kernel)
            with body.block("if j >= capacity:"):
                body.lines("status = 1", "break")
            body.lines(f"{closing} = session", "g = uint64(session)")
            for number, log in enumerate(self.logs):
                if session_values.is_listed(log, calls):
                    session_values.add_lists(kernel, number, log, calls)
                elif session_values.is_distinct(log, calls):
                    emit = partial(self._emit, leave="break")
                    session_values.add_different(kernel, log, calls, self._codes, emit)
            body.lines("ws = s_first[g]", f"we = s_last[g] + {self._gap}")
            self._result_row()
        with body.block("if status == 2:"):
            body.line(f"{closing} = -1")
        with body.block("if status == 3:"):
            body.line("detail_row = 0")
        body.lines(f"o[{ROWS}] = j", "rows_out += j - before")
        body.line(f"{kernel.word('emitted')} += j - before")

    @property
    def _order(self) -> tuple[str, str]:
        return "we", "s_born[g]"

    def _punctuate(self) -> None:
        """Sends punctuation: a session that has not left ends at the watermark or later."""
        writer, kernel = self.writer, self.writer.kernel
        body, watermark, sent = kernel.body, kernel.word("watermark"), kernel.word("punctuated")
        with body.block(f"if {watermark} == {INFINITY} and {sent} < {INFINITY}:"):
            body.line(f"{sent} = {INFINITY}")
            writer.append_punctuation(str(END_OF_INPUT), str(INFINITY))
        if not (live := self._window_origins()):
            return
        with body.block(f"if {watermark} < {INFINITY} and {watermark} > {sent}:"):
            body.lines(f"{sent} = {watermark}", f"value = {watermark}", "attribute = 0")
            body.lines("punct_w1 = value", "punct_w2 = value - 1")
            # a loop of one round, which a failing expression can leave
            with body.block("for once in range(1):"):
                writer.send_punctuation(live, None)

    def _window_origins(self) -> dict[int, Origin]:
        """The ends of sessions progress, their starts do not."""
        node = self.node
        assert node.window is not None
        kind = window_column_type(node.input.schema, node.window)
        first = len(node.keys) + len(node.calls)
        bounds = (1, 2)
        start = {first + k: Origin(f"punct_w{k}", 0, Column(0, "", kind, False)) for k in bounds}
        return origins(self.writer.spec.post, start)
