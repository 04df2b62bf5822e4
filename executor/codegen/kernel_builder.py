"""The kernel under construction, with what expressions use while they are emitted: columns,
constants, tables, and statements that leave the kernel.

One ``KernelText`` collects the text of one stage's kernel; a ``RowScope`` is one row loop in it.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from cql.base.types import DataType, Kind
from cql.executor.codegen.expressions.emit import Code, DictionaryTable, ErrorSite, HostSite, emit
from cql.executor.codegen.expressions.parts import divide, size
from cql.executor.codegen.expressions.scope import Called, of_word, word
from cql.executor.codegen.expressions.text import is_text_node
from cql.executor.codegen.kernel_cache import Kernel
from cql.executor.codegen.module import OPERATOR, Layout, Text, module_text
from cql.executor.kernels.lib.views import VIEWS
from cql.executor.kernels.morsel_layout import CAPACITY, HEADER, OUT, ROWS, SERIAL
from cql.planner.nodes.expr import Column, Expr, Literal, columns_of, walk

# What an operator requests (DETAIL of NEED); the low bits are its number.
NEED_HOST = 1 << 20
NEED_TABLE = 2 << 20
NEED_ROOM = 3 << 20  # in the slab of a table: 0 is the groups, then the sets and logs of values
NEED_WINDOWS = 4 << 20
NEED_RANK = 6 << 20
NEED_RESULTS = 7 << 20  # holistic results of the window in slot DETAIL_ROW
NEED_KIND = ~((1 << 20) - 1)

#: Compile time grows with the square of a function's size: expressions of more than MANY nodes
#: together are computed by functions of their own, of about GROUP nodes each.
MANY = 600
GROUP = 200


@dataclass(slots=True)
class KernelText:
    """A kernel under construction."""

    layout: Layout = field(default_factory=Layout)
    head: Text = field(default_factory=Text)  # declarations, once per call
    body: Text = field(default_factory=Text)
    constants: list[tuple[int, Literal | int]] = field(default_factory=list)
    tables: list[DictionaryTable] = field(default_factory=list)
    hosts: list[HostSite] = field(default_factory=list)
    sites: list[ErrorSite] = field(default_factory=list)
    counters: list[str] = field(default_factory=list)
    window_constants: dict[int, int] = field(default_factory=dict)
    zones: list[tuple[str, int]] = field(default_factory=list)  # see cql.base.zones.days_of
    functions: list[Called] = field(default_factory=list)
    sorted: list[tuple[int, tuple[Literal, ...]]] = field(default_factory=list)
    parts: list[tuple[Text, Text]] = field(default_factory=list)  # head and body of each
    own_words: dict[str, int] = field(default_factory=dict)  # users' aggregates: their first slots
    uses_rank: bool = False
    _declared: set[str] = field(default_factory=set)
    _temps: int = 0
    _words: int = 0

    def declare(self, name: str, text: str) -> str:
        """Declares a local that is set once, before the loops; returns its name."""
        if name not in self._declared:
            self._declared.add(name)
            self.head.line(f"{name} = {text}")
        return name

    def word(self, slot: str) -> str:
        return f"d[{self.layout.slot(slot)}]"

    def temp(self, prefix: str = "x") -> str:
        self._temps += 1
        return f"{prefix}{self._temps}"

    def counter(self, name: str) -> str:
        """Declares a local counter, which the kernel adds to the descriptor when it returns."""
        if name not in self.counters:
            self.counters.append(name)
            self.layout.slot(name)
            self.declare(name, "0")
        return name

    def constant(self, literal: Literal) -> str:
        slot = self._constant_slot(literal)
        kind, dtype = literal.type.kind, literal.type.storage
        if literal.type.is_fraction:
            convert = f"f64_of_bits(d[{slot}])"
            if kind is Kind.FLOAT:
                convert = f"float32({convert})"
        elif dtype == "bool":
            convert = f"d[{slot}] != 0"
        elif dtype == "int64":
            convert = f"d[{slot}]"
        else:
            convert = f"{dtype}(d[{slot}])"
        return self.declare(f"k{slot}", convert)

    def extra_constant(self, value: int) -> str:
        slot = self._constant_slot(value)
        return self.declare(f"k{slot}", f"d[{slot}]")

    def _constant_slot(self, value: Literal | int) -> int:
        slot = self.layout.slot(f"constant {len(self.constants)}")
        self.constants.append((slot, value))
        return slot

    def constants_at(self, values: Sequence[Literal | int]) -> int:
        """The first of the successive slots that hold these values."""
        first, *_ = [self._constant_slot(value) for value in values]
        return first

    def sorted_at(self, keys: Sequence[Literal]) -> int:
        """The first of the slots of sorted keys; the slots of their numbers follow
        (``Kernel.sorted``)."""
        k = len(self.sorted)
        slots = [self.layout.slot(f"sorted {k} {n}") for n in range(2 * len(keys))]
        self.sorted.append((slots[0], tuple(keys)))
        return slots[0]

    @contextlib.contextmanager
    def part(self) -> Iterator[int]:
        """Makes the text that is written inside ``with`` a function of its own; gives its
        number."""
        outside = self.head, self.body, self._declared
        self.head, self.body, self._declared = Text(), Text(), set()
        number = len(self.parts)
        self.parts.append((self.head, self.body))
        try:
            with self.body.block():
                yield number
        finally:
            self.head, self.body, self._declared = outside

    def table(self, table: DictionaryTable) -> int:
        if table not in self.tables:
            self.tables.append(table)
        k = self.tables.index(table)
        n = self.declare(f"tn{k}", self.word(f"table {k} length"))
        view = VIEWS[table.type.storage]
        self.declare(f"tv{k}", f"{view}({self.word(f'table {k} values')}, {n})")
        self.declare(f"ts{k}", f"as_u8({self.word(f'table {k} status')}, {n})")
        return k

    def zone(self, name: str, shift: int) -> str:
        """The days of a zone as text: the last arguments of library functions that read them."""
        if (name, shift) not in self.zones:
            self.zones.append((name, shift))
        k = self.zones.index((name, shift))
        n = self.declare(f"zone{k}_n", self.word(f"zone {k} length"))
        table = f"words({self.word(f'zone {k}')}, 3 * {n})"
        return f"{self.declare(f'zone{k}', table)}, {n}"

    def rank(self) -> str:
        self.uses_rank = True
        length = self.declare("rank_n", self.word("rank length"))
        return self.declare("rank", f"as_i32({self.word('rank')}, {length})")

    def host(self, site: HostSite) -> int:
        k = self.hosts.index(site)
        rows = self.declare("host_rows", self.word("host rows"))
        view = VIEWS[site.type.storage]
        self.declare(f"hv{k}", f"{view}({self.word(f'host {k} values')}, {rows})")
        self.declare(f"hs{k}", f"as_u8({self.word(f'host {k} status')}, {rows})")
        return k

    def add_host(self, site: HostSite) -> None:
        if site not in self.hosts:
            self.hosts.append(site)
            self.host(site)

    def host_arguments(self, k: int) -> list[tuple[str, str]]:
        """The arrays of each argument of host column ``k``: values and statuses."""
        rows = self.declare("host_rows", self.word("host rows"))
        names = []
        for a, arg in enumerate(self.hosts[k].args):
            view = VIEWS[arg.type.storage]
            values = f"{view}({self.word(f'host {k} argument {a}')}, {rows})"
            status = f"as_u8({self.word(f'host {k} mask {a}')}, {rows})"
            names.append((self.declare(f"ha{k}_{a}", values), self.declare(f"hm{k}_{a}", status)))
        return names

    def function(self, function: Called) -> tuple[str, str]:
        """The locals that ``call_function`` takes: a function's address, and its word ``own``."""
        if function not in self.functions:
            self.functions.append(function)
        k = self.functions.index(function)
        address = self.declare(f"fn{k}", self.word(f"function {k}"))
        return address, self.declare(f"fo{k}", self.word(f"function {k} own"))

    def words(self, count: int) -> int:
        """The slot of the first of ``count`` successive words that only this place in the text
        uses."""
        slots = [self.layout.slot(f"own word {self._words + k}") for k in range(max(count, 1))]
        self._words += len(slots)
        return slots[0]

    def operator(self, columns: int) -> Kernel:
        """The kernel of a whole operator, whose morsels have at most ``columns`` columns."""
        width = HEADER + 2 * columns
        self.layout.slot("end")  # a descriptor is never empty
        return self.finish(
            f"u = words(morsel, {width})",
            f"o = words(u[{OUT}], {width})",
            f"n = u[{ROWS}]",
            f"capacity = o[{CAPACITY}]",
            "status = 0",
            "detail = 0",
            "detail_row = 0",
        )

    def finish(self, *opening: str) -> Kernel:
        """The kernel whose operator function begins with the lines ``opening``."""
        functions = [
            self._function(f"part{k}", (), head, body) for k, (head, body) in enumerate(self.parts)
        ]
        functions.append(self._function("op", opening, self.head, self.body))
        return Kernel(
            module_text("\n\n".join(functions)),
            self.layout.slots,
            tuple(self.constants),
            tuple(self.window_constants.items()),
            tuple(self.tables),
            tuple(self.hosts),
            tuple(self.sites),
            tuple(self.counters),
            tuple(self.zones),
            tuple(self.functions),
            tuple(self.sorted),
            len(self.parts),
            self.uses_rank,
        )

    def _function(self, name: str, opening: Sequence[str], head: Text, body: Text) -> str:
        words = f"d = words(desc, {len(self.layout)})"
        lines = (words, *opening, *str(head).splitlines())
        text = "".join(f"    {line}\n" for line in lines)
        return f"{OPERATOR}\ndef {name}(desc, morsel):\n{text}{body}"

    def site(self, site: ErrorSite) -> int:
        self.sites.append(site)
        return len(self.sites) - 1


class RowScope:
    """One row loop. ``columns`` are the columns that expressions refer to: as code, or as ``Lazy``
    until their first use. A failing expression leaves the loop with the status set; with ``skip``,
    it runs that statement instead."""

    def __init__(self, kernel: KernelText, index: str, *, skip: str | None = None) -> None:
        self.kernel = kernel
        self.index = index
        self.place = index  # index of the row in host columns
        self.columns: list[Code | Lazy] = []
        self._skip = skip
        self._parts: dict[int, Part] = {}  # by the id of their expression
        self._frame: Frame | None = None  # set inside a part

    def load(self, column: int) -> Code:
        entry = self.columns[column]
        if isinstance(entry, Code):
            return entry
        code = entry.emit(self)
        self.columns[column] = code
        return code

    def constant(self, literal: Literal) -> str:
        return self.kernel.constant(literal)

    def extra_constant(self, value: int) -> str:
        return self.kernel.extra_constant(value)

    def table(self, table: DictionaryTable) -> tuple[str, str]:
        k = self.kernel.table(table)
        return f"tv{k}", f"ts{k}"

    def rank(self) -> str:
        return self.kernel.rank()

    def host(self, site: HostSite) -> tuple[str, str]:
        k = self.kernel.host(site)
        value = f"hv{k}[{self.place}]"
        if site.type.storage == "bool":
            value = f"({value} != 0)"
        return value, f"hs{k}[{self.place}]"

    def host_arguments(self, site: HostSite) -> list[tuple[str, str]]:
        arrays = self.kernel.host_arguments(self.kernel.host(site))
        return [(f"{v}[{self.place}]", f"{s}[{self.place}]") for v, s in arrays]

    def keep(self, words: Sequence[str], room: int = 0) -> int:
        first = self.kernel.words(len(words) + room)
        for k, text in enumerate(words):
            self.line(f"d[{first + k}] = {text}")
        return first

    def word(self, number: int) -> str:
        return f"d[{number}]"

    def serial(self) -> str:
        return self.kernel.declare("serial", f"words(morsel, {HEADER})[{SERIAL}]")

    def call(self, function: Called, arguments: int, results: int) -> str:
        address, own = self.kernel.function(function)
        return f"call_function({address}, {own}, desc + {8 * arguments}, desc + {8 * results})"

    def need_table(self, table: DictionaryTable, code: str) -> str:
        return self._need(f"{NEED_TABLE + self.kernel.table(table)}", f"int64({code})")

    def need_rank(self) -> str:
        return self._need(str(NEED_RANK))

    def fail(self, site: ErrorSite) -> str:
        if self._frame is None:
            return self._failed(str(self.kernel.site(site)))
        return f"{self._frame.detail} = {self.kernel.site(site)}; return 3"

    def _need(self, detail: str, row: str | None = None) -> str:
        if self._frame is not None:
            with_row = "" if row is None else f"{self._frame.row} = {row}; "
            return f"{self._frame.detail} = {detail}; {with_row}return 2"
        with_row = "" if row is None else f"detail_row = {row}; "
        return f"status = 2; detail = {detail}; {with_row}break"

    def _failed(self, detail: str) -> str:
        return self._skip or f"status = 3; detail = {detail}; break"

    # -- constants in rows, and parts ---------------------------------------------------------

    def words(self, values: Sequence[Literal | int]) -> Callable[[str], str]:
        return _words_from(self.kernel.constants_at(values))

    def sorted_words(
        self, keys: Sequence[Literal]
    ) -> tuple[Callable[[str], str], Callable[[str], str]]:
        first = self.kernel.sorted_at(keys)
        return _words_from(first), _words_from(first + len(keys))

    def divide(self, expr: Expr) -> Expr:
        """Divides a large expression into parts, and writes the columns that they read, and the
        row, into words of the kernel's own (``Frame``)."""
        whole, parts = divide(expr)
        if not parts:
            return expr
        nodes = [node for part in parts.values() for node in walk(part)]
        frame = self._give(nodes)
        self._parts |= {key: Part(part, frame) for key, part in parts.items()}
        return whole

    def _give(self, nodes: Sequence[Expr]) -> Frame:
        """Writes the columns that nodes read into a new frame, from which parts read them."""
        types = {node.index: node.type for node in nodes if isinstance(node, Column)}
        first = self.kernel.words(5 + 2 * len(types))
        frame = Frame(first, {c: first + 5 + 2 * k for k, c in enumerate(sorted(types))}, types)
        if any(map(is_text_node, nodes)):
            self.line(f"{frame.place} = int64({self.place})")
        for column, slot in frame.columns.items():
            code = self.load(column)
            self.line(f"d[{slot}] = {word(code.value, types[column])}")
            if code.valid is not None:
                self.line(f"d[{slot + 1}] = int64({code.valid})")
        return frame

    def emit_all(self, exprs: Sequence[Expr]) -> list[Code]:
        """Emits expressions in their order; if they ``are_many``, several as one function."""
        if not are_many(exprs):
            return [emit(expr, self) for expr in exprs]
        codes: dict[int, Code] = {}
        group: list[int] = []
        nodes = 0

        def end_group() -> None:
            nonlocal nodes
            found = self._together([exprs[k] for k in group]) if group else []
            codes.update(zip(group, found, strict=True))
            group.clear()
            nodes = 0

        for k, expr in enumerate(exprs):
            if isinstance(expr, Column | Literal):
                codes[k] = emit(expr, self)
            elif divide(expr).parts:  # it becomes functions of its own
                end_group()
                codes[k] = emit(expr, self)
            else:
                if nodes + size(expr) > GROUP:
                    end_group()
                group.append(k)
                nodes += size(expr)
        end_group()
        return [codes[k] for k in range(len(exprs))]

    def _together(self, exprs: Sequence[Expr]) -> list[Code]:
        """Emits expressions, in their order, as one function, which leaves each value, and behind
        it its flag, in words of the kernel's own."""
        frame = self._give([node for expr in exprs for node in walk(expr)])
        first = self.kernel.words(2 * len(exprs))
        nullable = []
        with self.kernel.part() as number:
            inner = self._inside(frozenset(frame.columns), frame)
            for k, expr in enumerate(exprs):
                code = emit(expr, inner)
                inner.line(f"d[{first + 2 * k}] = {word(code.value, expr.type)}")
                if code.valid is not None:
                    inner.line(f"d[{first + 2 * k + 1}] = int64({code.valid})")
                nullable.append(code.valid is not None)
            inner.line("return 0")
        self._call(number, frame)
        codes = []
        for k, expr in enumerate(exprs):
            value, valid = self.temp("x"), self.temp("v") if nullable[k] else None
            self.line(f"{value} = {of_word(f'd[{first + 2 * k}]', expr.type)}")
            if valid is not None:
                self.line(f"{valid} = d[{first + 2 * k + 1}] != 0")
            codes.append(Code(value, valid))
        return codes

    def _call(self, number: int, frame: Frame) -> None:
        """Calls a part; a row for which the part fails or requests something leaves the loop."""
        status = self.temp("p")
        address = self.kernel.word(f"part {number}")
        self.line(f"{status} = call_operator({address}, desc, morsel)")
        if self._frame is not None:
            self._block(f"if {status} != 0:", f"return {status}")
        else:
            self._block(f"if {status} == 3:", self._failed(frame.detail))
            self._block(f"if {status} == 2:", self._need(frame.detail, frame.row))

    def part(self, expr: Expr, emit: Callable[[Expr, RowScope], Code]) -> Code | None:
        part = self._parts.get(id(expr))
        if part is None:
            return None
        frame = part.frame
        if part.number < 0:
            with self.kernel.part() as part.number:
                inner = self._inside(columns_of(expr), frame)
                inner._parts = {key: p for key, p in self._parts.items() if p is not part}
                code = emit(expr, inner)
                inner.line(f"{frame.value} = {word(code.value, expr.type)}")
                inner.line(
                    f"{frame.valid} = {'1' if code.valid is None else f'int64({code.valid})'}"
                )
                inner.line("return 0")
            part.nullable = code.valid is not None
        self._call(part.number, frame)
        value = self.temp("x")
        self.line(f"{value} = {of_word(frame.value, expr.type)}")
        if not part.nullable:
            return Code(value, None)
        valid = self.temp("v")
        self.line(f"{valid} = {frame.valid} != 0")
        return Code(value, valid)

    def _inside(self, columns: Collection[int], frame: Frame) -> RowScope:
        """The scope of a part's function, which reads ``columns`` from its frame in the
        descriptor."""
        inner = copy.copy(self)
        inner._frame = frame
        inner.place = f"uint64({frame.place})"
        inner.columns = [*self.columns]
        for column in columns:
            slot, given = frame.columns[column], self.columns[column]
            assert isinstance(given, Code)
            value = self.kernel.declare(f"a{column}", of_word(f"d[{slot}]", frame.types[column]))
            valid = None
            if given.valid is not None:
                valid = self.kernel.declare(f"a{column}_ok", f"d[{slot + 1}] != 0")
            inner.columns[column] = Code(value, valid)
        return inner

    def _block(self, opening: str, statement: str) -> None:
        self.line(opening)
        with self.block():
            self.line(statement)

    def temp(self, prefix: str = "x") -> str:
        return self.kernel.temp(prefix)

    def line(self, text: str) -> None:
        self.kernel.body.line(text)

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        with self.kernel.body.block():
            yield


@dataclass(frozen=True, slots=True)
class Frame:
    """The words, from slot ``first`` on, from which the parts of one expression read their
    arguments, and in which they leave their results. ``columns``: the slot of each column's value;
    its flag is in the next slot."""

    first: int
    columns: dict[int, int]
    types: dict[int, DataType]

    @property
    def detail(self) -> str:
        return f"d[{self.first}]"

    @property
    def row(self) -> str:
        return f"d[{self.first + 1}]"

    @property
    def value(self) -> str:
        return f"d[{self.first + 2}]"

    @property
    def valid(self) -> str:
        return f"d[{self.first + 3}]"

    @property
    def place(self) -> str:
        return f"d[{self.first + 4}]"


@dataclass(slots=True)
class Part:
    """An expression with a function of its own; ``number`` is -1 until the function is written."""

    expr: Expr
    frame: Frame
    number: int = -1
    nullable: bool = True


def are_many(exprs: Sequence[Expr]) -> bool:
    """Whether expressions are too large for one function."""
    return sum(map(size, exprs)) > MANY


def _words_from(first: int) -> Callable[[str], str]:
    return lambda number: f"d[uint64({first} + {number})]"


@dataclass(frozen=True, slots=True)
class Lazy:
    """A column that is loaded at its first use: at the scope's row, or at index ``at``."""

    data: str  # name of the array
    data_view: str  # text that declares the array
    mask: str | None
    mask_view: str
    type: DataType
    at: str | None = None

    def emit(self, scope: RowScope) -> Code:
        data = scope.kernel.declare(self.data, self.data_view)
        local, index = scope.temp("c"), self.at or scope.index
        boolean = " != 0" if self.type.storage == "bool" else ""
        scope.line(f"{local} = {data}[{index}]{boolean}")
        if self.mask is None:
            return Code(local, None)
        mask = scope.kernel.declare(self.mask, self.mask_view)
        scope.line(f"{local}_ok = {mask}[{index}] != 0")
        return Code(local, f"{local}_ok")


def passes(condition: Code) -> str:
    """The condition of a filter as text; NULL does not pass."""
    if condition.valid is None:
        return condition.value
    return f"({condition.valid} and {condition.value})"
