"""The kernel of an operator of the user: it requests calls of the function, and writes the rows
that they emit, with their times."""

from __future__ import annotations

from dataclasses import dataclass

from cql.base.types import DataType, Kind
from cql.executor.codegen.expressions.scope import Code, zero
from cql.executor.codegen.kernel_builder import NEED_ROOM, Lazy, RowScope
from cql.executor.codegen.kernel_cache import Kernel, once
from cql.executor.codegen.morsel_io import read_punctuation
from cql.executor.kernels.lib.views import VIEWS
from cql.executor.kernels.morsel_layout import (
    CURSOR,
    END_OF_INPUT,
    INFINITY,
    LATE_ROW_ADDRESS,
    PHASE,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    SUB,
)
from cql.executor.operators.joins.row_expansion import PassingWriter
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.physical import ProcessExec

#: Phases of a morsel behind those of its rows: the function of the end is to be called, its rows
#: are to be written, they are written.
FINISH, FINISHING, FINISHED = 3, 4, 5


@once
def write(node: ProcessExec) -> Kernel:
    return _ProcessWriter(node).write_provided()


@dataclass(slots=True)
class _ProcessWriter(PassingWriter):
    """The kernel requests what is emitted for the rows from the cursor on: up to row ``through``,
    ``firsts`` has the number of the first one of each row behind ``base``, and of row ``failed``
    the function has raised."""

    node: ProcessExec

    @property
    def partners(self) -> list[DataType]:
        return [kind for _, kind in self.node.function.returns]

    @property
    def rest(self) -> tuple[Expr, ...]:
        return ()

    def behind_rows(self) -> None:
        kernel, body = self.kernel, self.kernel.body
        with body.block("if status == 3:"):
            body.line(f"u[{CURSOR}] = detail_row + 1")
        if self.node.function.finish is None:
            return
        with body.block(f"if status == 0 and u[{PHASE}] < {FINISH}:"):
            self._look_for_the_end()
        with body.block(f"elif u[{PHASE}] == {FINISHING}:"):
            body.lines("r = uint64(0)", "late_from = 0", "late_row = 0", f"x = u[{SUB}]")
            body.line(f"late = words(u[{LATE_ROW_ADDRESS}], 0)")
            behind = self.partner  # reads ``at``
            with body.block(f"while x < {self._rows_made()}:"):
                with body.block("if j >= capacity:"):
                    body.lines("status = 1", f"u[{SUB}] = x", "break")
                body.lines("at = x", "x += 1")
                scope = RowScope(kernel, "r")
                scope.columns = [*self._passed(), *behind()]
                self._store(scope)
            with body.block("if status == 0:"):
                body.line(f"u[{SUB}] = 0")
                with body.block(f"if {kernel.word('more')} != 0:"):
                    body.lines(f"u[{PHASE}] = {FINISH}", "status = 2", f"detail = {NEED_ROOM}")
                with body.block("else:"):
                    body.line(f"u[{PHASE}] = {FINISHED}")
                    with body.block(f"if {kernel.word('failed')} >= 0:"):
                        body.lines("status = 3", "detail_row = 0")

    def _look_for_the_end(self) -> None:
        """Keeps the greatest punctuation of each column, and requests the last rows at the end of
        the input, once."""
        kernel, body = self.kernel, self.kernel.body
        passed = passed_times(self.node)
        latest = kernel.declare("latest", f"words({kernel.word('latest')}, {max(len(passed), 1)})")
        read_punctuation(kernel)
        with body.block(f"for p in range(u[{PUNCTUATIONS}]):"):
            body.lines(
                f"attribute = arrived[{PUNCTUATION_WORDS} * p]",
                f"value = arrived[{PUNCTUATION_WORDS} * p + 1]",
            )
            with body.block(f"if attribute == {END_OF_INPUT}:"):
                with body.block(f"if {kernel.word('finished')} == 0:"):
                    body.lines(f"u[{PHASE}] = {FINISH}", "status = 2", f"detail = {NEED_ROOM}")
                body.line("continue")
            partial = f"arrived[{PUNCTUATION_WORDS} * p + 2] >= 0"
            with body.block(f"if {partial} or value == {INFINITY}:"):
                body.line("continue")
            for k, c in enumerate(passed):
                with body.block(f"if attribute == {c}:"):
                    body.line(f"{latest}[{k}] = max({latest}[{k}], value)")

    def _passed(self) -> list[Code | Lazy]:
        """The columns of the input for the row ``at`` of the end: zeros for those that the output
        does not have."""
        kernel, rows, found = self.kernel, self._rows_made(), list[Code | Lazy]()
        for c, f in enumerate(self.node.input.schema):
            if c not in self.node.columns:
                found.append(Code(zero(f.type), None))
                continue
            values, there = slots(f"passed {c}")
            view = VIEWS[f.type.storage]
            of = kernel.declare(f"passed{c}", f"{view}({kernel.word(values)}, {rows})")
            truth = " != 0" if f.type.storage == "bool" else ""
            kernel.body.line(f"last{c} = {of}[uint64(at)]{truth}")
            if not f.nullable:
                found.append(Code(f"last{c}", None))
                continue
            mask = kernel.declare(f"passed_there{c}", f"as_u8({kernel.word(there)}, {rows})")
            kernel.body.line(f"last_there{c} = {mask}[uint64(at)] != 0")
            found.append(Code(f"last{c}", f"last_there{c}"))
        return found

    def _rows_made(self) -> str:
        """The number of rows that are emitted for the rows behind ``base``."""
        kernel = self.kernel
        base, through = (kernel.declare(name, kernel.word(name)) for name in ("base", "through"))
        kernel.declare("firsts", f"words({kernel.word('firsts')}, {through} - {base} + 1)")
        return kernel.declare("rows_made", f"firsts[uint64({through} - {base})]")

    def find(self) -> None:
        kernel, body = self.kernel, self.kernel.body
        self._rows_made()
        failed = kernel.declare("failed", kernel.word("failed"))
        with body.block(f"if i == {failed}:"):
            body.lines("status = 3", "detail_row = i", "break")
        with body.block("if i >= through:"):
            body.lines("status = 2", f"detail = {NEED_ROOM}", "break")
        body.line("place = uint64(i - base)")
        body.lines("begin = firsts[place]", "end = firsts[place + uint64(1)]")

    def partner(self) -> list[Code | Lazy]:
        kernel, rows = self.kernel, self._rows_made()
        made = list[Code | Lazy]()
        for k, kind in enumerate(self.partners):
            values, there = slots(f"made {k}")
            of = kernel.declare(f"made{k}", f"{VIEWS[kind.storage]}({kernel.word(values)}, {rows})")
            mask = kernel.declare(f"there{k}", f"as_u8({kernel.word(there)}, {rows})")
            truth = " != 0" if kind.storage == "bool" else ""
            kernel.body.lines(f"value{k} = {of}[uint64(at)]{truth}")
            kernel.body.lines(f"known{k} = {mask}[uint64(at)] != 0")
            made.append(Code(f"value{k}", None if kind.kind is Kind.SIGNAL else f"known{k}"))
        return made


def slots(column: str) -> tuple[str, str]:
    """The names of the arrays with the values of a column of the result, and with 0 for its
    NULLs."""
    return column, f"{column} there"


def passed_times(node: ProcessExec) -> list[int]:
    """The columns of the input with a watermark that are in the output and are no key."""
    found = set(node.forwarded(node.input.progressing).values())
    return sorted(found - set(node.partition))
