"""The kernel of an operator that joins each row of its first input at once with its partners: rows
of a table, or elements of an array. Late rows stay late, and the punctuation of the input holds for
the output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from cql.base.types import DataType
from cql.executor.codegen.expressions.emit import emit
from cql.executor.codegen.expressions.scope import Code, zero
from cql.executor.codegen.kernel_builder import NEED_ROOM, KernelText, Lazy, RowScope
from cql.executor.codegen.kernel_cache import Kernel
from cql.executor.codegen.morsel_io import (
    close_output,
    morsel_columns,
    open_output,
    read_punctuation,
    send_punctuation,
)
from cql.executor.kernels.morsel_layout import (
    CURSOR,
    END_OF_INPUT,
    IDLE,
    INFINITY,
    LATE_ROW_ADDRESS,
    LATE_ROW_WORDS,
    LATE_ROWS,
    PHASE,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    SUB,
)
from cql.executor.operators.stage.row_sink import store_row
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.physical import ProcessExec, TableJoinExec, UnnestExec


@dataclass(slots=True)
class PassingWriter(ABC):
    """Writes the kernel. ``partners``: the types of a partner's columns, which stand behind the
    row's columns. ``rest``: conditions on a row and a partner together."""

    node: TableJoinExec | UnnestExec | ProcessExec
    kernel: KernelText = field(default_factory=KernelText)

    @abstractmethod
    def find(self) -> None:
        """Sets ``begin`` and ``end`` to the range of partner numbers of row ``r``."""

    @abstractmethod
    def partner(self) -> list[Code | Lazy]:
        """Returns the columns of partner ``at``."""

    def count_row(self) -> None:
        """Updates further counters behind each row."""
        return

    def behind_rows(self) -> None:
        """Does what is left to do between the rows of a morsel and its punctuation."""
        return

    @property
    @abstractmethod
    def partners(self) -> list[DataType]: ...

    @property
    @abstractmethod
    def rest(self) -> tuple[Expr, ...]: ...

    def write_provided(self) -> Kernel:
        """The kernel of an operator without state of its own: it requests the partners of a
        morsel's rows before the rows."""
        kernel, body = self.kernel, self.kernel.body
        kernel.layout.slot("emitted")
        with body.block():
            open_output(kernel)
            with body.block(f"if u[{PHASE}] == 0 and n > 0:"):
                body.lines("status = 2", f"detail = {NEED_ROOM}")
            with body.block(f"if u[{PHASE}] == 1:"):
                self.rows(phase=1)
            self.behind_rows()
            with body.block("if status == 0:"):
                self.punctuation()
            close_output(kernel)
            body.line("return status")
        return kernel.operator(max(len(self.node.input.schema), len(self.node.schema)))

    # -- rows --------------------------------------------------------------------------------------

    def rows(self, phase: int) -> None:
        """The loop over the rows of a morsel, which runs in phase ``phase``. If the output is full,
        ``sub`` keeps the place in the row: 2 + 2 * (next partner) + (1 if a partner matched)."""
        kernel, body, kind = self.kernel, self.kernel.body, self.node.kind
        body.lines(f"first = u[{CURSOR}]", f"sub = u[{SUB}]", "i = first")
        body.lines("late_row = 0", f"late_rows = u[{LATE_ROWS}]")
        body.line(f"late = words(u[{LATE_ROW_ADDRESS}], {LATE_ROW_WORDS} * late_rows)")
        self._pass_late_rows("< first")
        with body.block("for i in range(first, n):"):
            body.lines("r = uint64(i)", "late_from = late_row")
            self._pass_late_rows("== i")
            self.find()
            with body.block("if sub == 0:"):
                body.lines("x = begin", "met = 0")
            with body.block("else:"):
                body.lines("x = (sub - 2) >> 1", "met = (sub - 2) & 1", "sub = 0")
            self._partners()
            with body.block("if status != 0:"):
                body.line("break")
            if kind != "inner":
                self._itself("met == 1" if kind == "semi" else "met == 0")
            body.line(f"{kernel.counter('unmatched')} += 1 - met")
            self.count_row()
        with body.block("if status == 0:"):
            body.lines(f"u[{PHASE}] = {phase + 1}", f"u[{CURSOR}] = n", f"u[{SUB}] = 0")
            body.line(f"{kernel.counter('rows_in')} += n")
        with body.block("else:"):
            body.lines(f"u[{CURSOR}] = i", f"u[{SUB}] = sub")

    def _pass_late_rows(self, condition: str) -> None:
        record = f"late[{LATE_ROW_WORDS} * late_row]"
        with self.kernel.body.block(f"while late_row < late_rows and {record} {condition}:"):
            self.kernel.body.line("late_row += 1")

    def _partners(self) -> None:
        """Outputs the pairs of the row or, in semi and anti joins, sets ``met`` to whether there is
        a pair."""
        kernel, body, node = self.kernel, self.kernel.body, self.node
        with body.block("while x < end:"):
            body.lines("at = x", "x += 1")
            pair = RowScope(kernel, "r")
            pair.columns = [*morsel_columns(node.input.schema), *self.partner()]
            for condition in self.rest:
                code = emit(condition, pair)
                holds = code.value if code.valid is None else f"({code.valid} and {code.value})"
                with body.block(f"if not {holds}:"):
                    body.line("continue")
            if node.kind in ("semi", "anti"):
                body.lines("met = 1", "break")
                return
            with body.block("if j >= capacity:"):
                body.lines("status = 1", "sub = 2 + 2 * at + met", "break")
            body.line("met = 1")
            if node.kind == "left":
                for c in {c for c in node.columns if c >= node.width}:
                    code = pair.load(c)
                    pair.columns[c] = Code(code.value, code.valid or "True")
            self._store(pair)

    def _itself(self, condition: str) -> None:
        """Outputs the row alone, with NULLs in the columns of the partner."""
        body, node = self.kernel.body, self.node
        with body.block(f"if {condition}:"):
            with body.block("if j >= capacity:"):
                body.lines("status = 1", "sub = 2 + 2 * end + met", "break")
            scope = RowScope(self.kernel, "r")
            scope.columns = morsel_columns(node.input.schema)
            scope.columns += [Code(zero(kind), "False") for kind in self.partners]
            self._store(scope)

    def _store(self, scope: RowScope) -> None:
        """Writes output row ``j`` with the output columns; the row is late if its input row is."""
        kernel, body, node = self.kernel, self.kernel.body, self.node
        out = RowScope(kernel, "r")
        out.columns = [scope.load(c) for c in node.columns]
        store_row(kernel, out, node.schema, frozenset())
        live = node.forwarded(node.input.progressing)
        if live:
            kernel.declare("late_out", f"words(o[{LATE_ROW_ADDRESS}], {LATE_ROW_WORDS} * capacity)")
            with body.block("for l in range(late_from, late_row):"):
                for column, origin in live.items():
                    with body.block(f"if late[{LATE_ROW_WORDS} * l + 1] == {origin}:"):
                        body.lines(
                            f"to = {LATE_ROW_WORDS} * o[{LATE_ROWS}]",
                            "late_out[to] = j",
                            f"late_out[to + 1] = {column}",
                            f"late_out[to + 2] = late[{LATE_ROW_WORDS} * l + 2]",
                            f"o[{LATE_ROWS}] += 1",
                        )
        body.line("j += 1")

    # -- punctuation -------------------------------------------------------------------------------

    def punctuation(self) -> None:
        """Passes the input's punctuation on, for the columns that the output has."""
        kernel, body = self.kernel, self.kernel.body
        read_punctuation(kernel)
        live = self.node.forwarded(self.node.input.progressing)
        with body.block(f"for p in range(u[{PUNCTUATIONS}]):"):
            body.lines(
                f"attribute = arrived[{PUNCTUATION_WORDS} * p]",
                f"value = arrived[{PUNCTUATION_WORDS} * p + 1]",
            )
            with body.block(f"if attribute == {END_OF_INPUT} or attribute == {IDLE}:"):
                send_punctuation(kernel, "attribute", "value")
                body.line("continue")
            partial = f"arrived[{PUNCTUATION_WORDS} * p + 2] >= 0"
            with body.block(f"if {partial} or value == {INFINITY}:"):
                body.line("continue")  # dropping punctuation is always sound
            for column, origin in live.items():
                with body.block(f"if attribute == {origin}:"):
                    send_punctuation(kernel, str(column), "value")
