"""Buffered windows: rows are kept until a window that holds them closes, then aggregated, window
after window ("the buffered implementation that processes windows sequentially", out-of-order paper
§4 and §5.5).

Only one window at a time has groups, however many windows are open. Where windows hold few rows and
states are large, this takes less memory than WID's groups of every open window. A row is aggregated
once per window that holds it, as in WID, but when the window closes.

Rows lie in panes (``cql.executor.operators.windows.panes``), in arrival order; a pane is given back
with the last window that holds it. The expressions of a row are evaluated when it comes, so that a
failing row fails once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cql.base.types import DataType, Kind
from cql.executor.codegen.kernel_builder import NEED_ROOM
from cql.executor.operators.aggregates.code import argument
from cql.executor.operators.stage.spec import Table
from cql.executor.operators.windows.group_table import REGION
from cql.executor.operators.windows.panes import PaneTerminal
from cql.planner.nodes.logical import AggregateCall

#: Suffix of the table of rows.
BUFFER = "_rows"


@dataclass(slots=True)
class BufferedTerminal(PaneTerminal):
    """Ends a stage with an aggregate over windows of buffered rows."""

    def _more_tables(self) -> tuple[Table, ...]:
        """The table of the rows of a pane, without an index."""
        keys = [(f"row_key{w}", "int64") for w in range(self._words)]
        nulls = [("row_nulls", "int64")] if self._nullable_keys else []
        kept = [(f"row_{name}", kind.storage) for name, kind in self._values()]
        flags = [(f"row_{name}", "bool") for name in self._flags()]
        order = [("row_T", "int64"), ("row_Q", "int64")] if self._ordered else []
        return (Table(BUFFER, (*keys, *nulls, *kept, *flags, *order), 0),)

    def _code_columns(self) -> Iterator[tuple[str, str, int]]:
        yield from PaneTerminal._code_columns(self)
        for key, part in zip(self.node.keys, self._parts, strict=True):
            if key.type.is_coded:
                yield BUFFER, f"row_key{part.word}", part.shift
        for name, kind in self._values():
            if kind.is_coded:
                yield BUFFER, f"row_{name}", 0

    @property
    def _ordered(self) -> bool:
        return any(code.ordered for code in self._codes)

    def _evaluated(self) -> list[tuple[int, AggregateCall]]:
        """The calls whose arguments are evaluated for a row: the first of the calls that share a
        log, and every other call."""
        shared = {k for log in self.logs for k in log.calls[1:]}
        return [(k, call) for k, call in enumerate(self.node.calls) if k not in shared]

    def _values(self) -> list[tuple[str, DataType]]:
        """The arguments that are kept of a row: (name, type)."""
        return [
            (argument(k, n), arg.type)
            for k, call in self._evaluated()
            for n, arg in enumerate(call.args)
        ]

    def _flags(self) -> list[str]:
        """The flags that are kept of a row: ``seen<k>``, whether call ``k`` sees the row; and, for
        arguments whose NULL is a value, ``<argument>_ok``, whether the argument is not NULL."""
        found = []
        for k, call in self._evaluated():
            if call.where is not None or any(a.nullable for a in call.args):
                found.append(f"seen{k}")
            found += [f"{argument(k, n)}_ok" for n in sorted(self._codes[k].sees_null)]
        return found

    # -- one row ---------------------------------------------------------------------------------

    @property
    def _one_group(self) -> bool:
        return False  # rows go to groups only when a window closes

    def _take_row(self, arguments: list[str | None], leave: list[str]) -> None:
        """Appends the row to its pane."""
        body, table = self.writer.kernel.body, len(self.tables) - 1
        with body.block(f"if counts{BUFFER}[slot] >= 1 << classes{BUFFER}[slot]:"):
            body.line(f"grown = {self._grow(table)}")
            with body.block("if grown < 0:"):
                body.lines("status = 2", f"detail = {NEED_ROOM + table}")
                body.lines(f"detail_row = 4 << classes{BUFFER}[slot]", leave[0])
        body.lines(f"e = bases{BUFFER}[slot] + counts{BUFFER}[slot]", f"counts{BUFFER}[slot] += 1")
        body.lines("m = uint64(e)", *(f"row_key{w}[m] = kw{w}" for w in range(self._words)))
        if self._nullable_keys:
            body.line(f"row_nulls[m] = {'kn' if self._compares_nulls else '0'}")
        body.lines(*(f"row_{name}[m] = {name}" for name, _ in self._values()))
        for name in self._flags():
            seen = arguments[int(name[4:])] or "True" if name.startswith("seen") else name
            body.line(f"row_{name}[m] = {seen}")
        if self._ordered:
            body.lines("row_T[m] = T", "row_Q[m] = Q")

    # -- closing ---------------------------------------------------------------------------------

    def _complete(self) -> None:
        """Aggregates the rows of the window in ``slot``; the kernel may leave between two rows."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        merging, merged = kernel.word("merging"), kernel.word("merged")
        body.lines(*REGION, "count = counts[slot]")
        with body.block(f"while {merging} < {self._range_panes}:"):
            at = f"2 * (w * {self._slide_panes} + {merging})"
            body.line(f"source = call_operator({kernel.word('find_window')}, desc, {at})")
            with body.block("if source >= 0:"):
                self._replay(merged)
            with body.block("if status != 0:"):
                body.line("break")
            body.lines(f"{merged} = 0", f"{merging} += 1")
        with body.block("if status != 0:"):
            body.line("break")

    def _replay(self, merged: str) -> None:
        """Aggregates the rows of pane ``source``, from row ``merged`` on, into the window."""
        body = self.writer.kernel.body
        body.lines(f"begin = bases{BUFFER}[source]", f"end = counts{BUFFER}[source]")
        with body.block(f"for i in range({merged}, end):"):
            body.lines(f"{merged} = i", "m = uint64(begin + i)")
            self._words_of("m", "row_")
            for name, kind in self._values():
                nonzero = " != 0" if kind.kind is Kind.BOOLEAN else ""
                body.line(f"{name} = row_{name}[m]{nonzero}")
            body.lines(*(f"{name} = row_{name}[m] != 0" for name in self._flags()))
            if self._ordered:
                body.lines("T = row_T[m]", "Q = row_Q[m]")
            flags = self._flags()
            calls = range(len(self.node.calls))
            self._update([f"seen{k}" if f"seen{k}" in flags else None for k in calls], ["break"])
