"""The kernel of a join with a table, written for one query. A row looks up its key and is joined
with the table's rows of that key, which are adjacent."""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.base.types import DataType
from cql.executor.codegen.expressions.scope import Code
from cql.executor.codegen.kernel_builder import NEED_ROOM, Lazy, RowScope
from cql.executor.codegen.kernel_cache import Kernel, once
from cql.executor.codegen.key_packing import KeyPart, key_expression, pack_keys
from cql.executor.codegen.morsel_io import close_output, morsel_columns, open_output
from cql.executor.kernels.lib.views import VIEWS
from cql.executor.kernels.morsel_layout import PHASE, PORT
from cql.executor.operators.joins.key_index import look_up
from cql.executor.operators.joins.row_expansion import PassingWriter
from cql.planner.nodes.expr import Expr, columns_of
from cql.planner.nodes.physical import TableJoinExec

TABLE = 1  # the port of the table; the stream has port 0


@dataclass(frozen=True, slots=True)
class TableJoinCode:
    """``kept``: the columns of the table that the kernel reads. ``words``: the number of words of a
    key. ``parts``: the place of each key column in these words."""

    kernel: Kernel
    kept: tuple[int, ...]
    words: int
    parts: tuple[KeyPart, ...]


@once
def write(node: TableJoinExec) -> TableJoinCode:
    return _TableJoinWriter(node).write()


@dataclass(slots=True)
class _TableJoinWriter(PassingWriter):
    node: TableJoinExec
    kept: tuple[int, ...] = field(init=False)
    words: int = field(init=False)
    parts: list[KeyPart] = field(init=False)

    def __post_init__(self) -> None:
        node = self.node
        self.parts, self.words = pack_keys([node.input.schema[a].type for a, _ in node.keys])
        read = {*node.columns, *columns_of(*node.rest)}
        self.kept = tuple(c - node.width for c in sorted(read) if c >= node.width)

    @property
    def partners(self) -> list[DataType]:
        return [f.type for f in self.node.table.schema]

    @property
    def rest(self) -> tuple[Expr, ...]:
        return self.node.rest

    def write(self) -> TableJoinCode:
        kernel, body = self.kernel, self.kernel.body
        for name in ("rows", "entries", "index mask", "emitted"):
            kernel.layout.slot(name)
        with body.block():
            open_output(kernel)
            with body.block(f"if u[{PORT}] == {TABLE} and u[{PHASE}] == 0:"):
                body.lines("status = 2", f"detail = {NEED_ROOM}")
            with body.block(f"if u[{PORT}] != {TABLE} and u[{PHASE}] == 0:"):
                self.rows(phase=0)
            with body.block(f"if status == 0 and u[{PORT}] != {TABLE}:"):
                self.punctuation()
            close_output(kernel)
            body.line("return status")
        sides = (self.node.input, self.node.table, self.node)
        written = kernel.operator(max(len(side.schema) for side in sides))
        return TableJoinCode(written, self.kept, self.words, tuple(self.parts))

    def partner(self) -> list[Code | Lazy]:
        """The columns of the table's row ``at``. The kernel never reads a column not kept."""
        kernel = self.kernel
        found: list[Code | Lazy] = []
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

    def find(self) -> None:
        """Sets ``begin`` and ``end`` to the range of the key's rows in the table; the range of a
        NULL key is empty."""
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
        scope.columns = morsel_columns(node.input.schema)
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
