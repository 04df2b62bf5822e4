"""The kernel of a join with a table, written for one query: a row looks its key up, and meets the
rows of it, which lie side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cql.executor.expression_scope import Code, zero
from cql.executor.expressions import emit
from cql.executor.kernels.views import VIEWS
from cql.executor.operators.join_keys import look_up
from cql.executor.operators.packing import KeyPart, key_expression, pack_keys
from cql.executor.operators.row_terminal import store_row
from cql.executor.operators.rowscope import NEED_ROOM, KernelText, Lazy, RowScope
from cql.executor.operators.unit_text import (
    close_output,
    open_output,
    read_punctuation,
    send_punctuation,
    unit_columns,
)
from cql.executor.unit import (
    CURSOR,
    END_OF_INPUT,
    IDLE,
    INFINITY,
    PHASE,
    PORT,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    STRAGGLER_ADDRESS,
    STRAGGLER_WORDS,
    STRAGGLERS,
    SUB,
)
from cql.executor.written import Kernel, once
from cql.planner.expr import columns_of
from cql.planner.physical_joins import TableJoinExec
from cql.planner.physical_progress import progressing

TABLE = 1  # the port; 0 is the stream


@dataclass(frozen=True, slots=True)
class TableJoinCode:
    """``kept`` are the columns of the table that the kernel reads, ``words`` those of a key,
    ``parts`` where its columns lie in them."""

    kernel: Kernel
    kept: tuple[int, ...]
    words: int
    parts: tuple[KeyPart, ...]


@once
def write(node: TableJoinExec) -> TableJoinCode:
    return _TableJoinWriter(node).write()


@dataclass(slots=True)
class _TableJoinWriter:
    node: TableJoinExec
    kernel: KernelText = field(default_factory=KernelText)
    kept: tuple[int, ...] = field(init=False)
    words: int = field(init=False)
    parts: list[KeyPart] = field(init=False)

    def __post_init__(self) -> None:
        node = self.node
        self.parts, self.words = pack_keys([node.input.schema[a].type for a, _ in node.keys])
        read = {*node.columns, *columns_of(*node.rest)}
        self.kept = tuple(c - node.width for c in sorted(read) if c >= node.width)

    def write(self) -> TableJoinCode:
        kernel, body = self.kernel, self.kernel.body
        for name in ("rows", "entries", "index mask", "emitted"):
            kernel.layout.slot(name)
        with body.block():
            open_output(kernel)
            with body.block(f"if u[{PORT}] == {TABLE} and u[{PHASE}] == 0:"):
                body.lines("status = 2", f"detail = {NEED_ROOM}")
            with body.block(f"if u[{PORT}] != {TABLE} and u[{PHASE}] == 0:"):
                self._rows()
            with body.block(f"if status == 0 and u[{PORT}] != {TABLE}:"):
                self._punctuation()
            close_output(kernel)
            body.line("return status")
        sides = (self.node.input, self.node.table, self.node)
        written = kernel.operator(max(len(side.schema) for side in sides))
        return TableJoinCode(written, self.kept, self.words, tuple(self.parts))

    # -- rows --------------------------------------------------------------------------------------

    def _rows(self) -> None:
        """``sub`` is where a row goes on after its output was full: 2 + twice the partner, + 1 if
        there was one before."""
        kernel, body, kind = self.kernel, self.kernel.body, self.node.kind
        body.lines(f"first = u[{CURSOR}]", f"sub = u[{SUB}]", "i = first")
        body.lines("straggler = 0", f"stragglers = u[{STRAGGLERS}]")
        body.line(f"late = words(u[{STRAGGLER_ADDRESS}], {STRAGGLER_WORDS} * stragglers)")
        self._pass_stragglers("< first")
        with body.block("for i in range(first, n):"):
            body.lines("r = uint64(i)", "late_from = straggler")
            self._pass_stragglers("== i")
            self._find()
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
        with body.block("if status == 0:"):
            body.lines(f"u[{PHASE}] = 1", f"u[{CURSOR}] = n", f"u[{SUB}] = 0")
            body.line(f"{kernel.counter('rows_in')} += n")
        with body.block("else:"):
            body.lines(f"u[{CURSOR}] = i", f"u[{SUB}] = sub")

    def _pass_stragglers(self, condition: str) -> None:
        record = f"late[{STRAGGLER_WORDS} * straggler]"
        with self.kernel.body.block(f"while straggler < stragglers and {record} {condition}:"):
            self.kernel.body.line("straggler += 1")

    def _of_table(self) -> list[Lazy]:
        """The columns of the table's row ``at``; those that are not kept, nobody reads."""
        kernel, found = self.kernel, []
        for c, f in enumerate(self.node.table.schema):
            data, mask = f"tc{c}", f"tm{c}" if f.nullable else None
            if c not in self.kept:
                found.append(Lazy(data, "", mask, "", f.type))
                continue
            rows = kernel.declare("rows", kernel.word("rows"))
            data_view = f"{VIEWS[f.type.storage]}({kernel.word(data)}, {rows})"
            mask_view = f"as_u8({kernel.word(f'tm{c}')}, {rows})" if f.nullable else ""
            found.append(Lazy(data, data_view, mask, mask_view, f.type, "uint64(at)"))
        return found

    def _find(self) -> None:
        """Sets ``begin`` and ``end`` to where the rows of the key lie; a row with a NULL key has
        none."""
        kernel, body, node = self.kernel, self.kernel.body, self.node
        rows = kernel.declare("rows", kernel.word("rows"))
        if not node.keys:
            body.lines("begin = 0", f"end = {rows}")
            return
        entries = kernel.declare("entries", kernel.word("entries"))
        mask = kernel.declare("imask", kernel.word("index mask"))
        kernel.declare("index", f"words({kernel.word('index')}, {mask} + 1)")
        kernel.declare("starts", f"words({kernel.word('starts')}, {entries} + 1)")
        scope = RowScope(kernel, "r")
        scope.columns = unit_columns(node.input.schema)
        codes = [scope.load(a) for a, _ in node.keys]
        body.lines("begin = 0", "end = 0")
        valid = " and ".join(code.valid for code in codes if code.valid is not None)
        with body.block(f"if {valid or 'True'}:"):
            words: list[list[str]] = [[] for _ in range(self.words)]
            for (a, _), code, part in zip(node.keys, codes, self.parts, strict=True):
                kind = node.input.schema[a].type
                words[part.word].append(key_expression(kind, code.value, part))
            for w, texts in enumerate(words):
                body.line(f"kw{w} = {' | '.join(texts)}")
                kernel.declare(f"key{w}", f"words({kernel.word(f'key{w}')}, {entries})")
            same = " and ".join(f"key{w}[e] == kw{w}" for w in range(self.words))
            named = [f"kw{w}" for w in range(self.words)]
            look_up(body, named, "index", mask, "e = uint64(number)", same)
            with body.block("if known:"):
                body.lines("begin = starts[e]", "end = starts[e + uint64(1)]")

    def _partners(self) -> None:
        """Gives the pairs of the row, or (semi and anti joins) looks whether there is one."""
        kernel, body, node = self.kernel, self.kernel.body, self.node
        pads = node.kind == "left"
        with body.block("while x < end:"):
            body.lines("at = x", "x += 1")
            pair = RowScope(kernel, "r")
            pair.columns = [*unit_columns(node.input.schema), *self._of_table()]
            for condition in node.rest:
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
            if pads:
                for c in self._shown_of_table():
                    code = pair.load(c)
                    pair.columns[c] = Code(code.value, code.valid or "True")
            self._store(pair)

    def _itself(self, condition: str) -> None:
        """Gives the row without a partner, or without showing one."""
        body, node = self.kernel.body, self.node
        with body.block(f"if {condition}:"):
            with body.block("if j >= capacity:"):
                body.lines("status = 1", "sub = 2 + 2 * end + met", "break")
            scope = RowScope(self.kernel, "r")
            scope.columns = unit_columns(node.input.schema)
            scope.columns += [Code(zero(f.type), "False") for f in node.table.schema]
            self._store(scope)

    def _shown_of_table(self) -> Iterable[int]:
        return {c for c in self.node.columns if c >= self.node.width}

    def _store(self, scope: RowScope) -> None:
        """Output row ``j``: the columns that go on, late if the stream's row is."""
        kernel, body, node = self.kernel, self.kernel.body, self.node
        out = RowScope(kernel, "r")
        out.columns = [scope.load(c) for c in node.columns]
        store_row(kernel, out, node.schema, frozenset())
        live = node.passed(progressing(node.input))
        if live:
            kernel.declare(
                "late_out", f"words(o[{STRAGGLER_ADDRESS}], {STRAGGLER_WORDS} * capacity)"
            )
            with body.block("for l in range(late_from, straggler):"):
                for column, origin in live.items():
                    with body.block(f"if late[{STRAGGLER_WORDS} * l + 1] == {origin}:"):
                        body.lines(
                            f"to = {STRAGGLER_WORDS} * o[{STRAGGLERS}]",
                            "late_out[to] = j",
                            f"late_out[to + 1] = {column}",
                            f"late_out[to + 2] = late[{STRAGGLER_WORDS} * l + 2]",
                            f"o[{STRAGGLERS}] += 1",
                        )
        body.line("j += 1")

    # -- progress ----------------------------------------------------------------------------------

    def _punctuation(self) -> None:
        """What the stream promises holds for the pairs of its rows."""
        kernel, body = self.kernel, self.kernel.body
        read_punctuation(kernel)
        live = self.node.passed(progressing(self.node.input))
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
                body.line("continue")  # dropping a promise is always sound
            for column, origin in live.items():
                with body.block(f"if attribute == {origin}:"):
                    send_punctuation(kernel, str(column), "value")
