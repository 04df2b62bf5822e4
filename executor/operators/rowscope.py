"""What an expression sees while its code is written: columns, constants, tables, and ways out.

One ``KernelText`` collects the text of one stage's kernel; a ``RowScope`` is one row loop in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cql.executor.codegen import OPERATOR, Layout, Text, module_text
from cql.executor.expression_scope import Called
from cql.executor.expressions import Code, DictionaryTable, ErrorSite, HostSite
from cql.executor.kernels.views import VIEWS
from cql.executor.unit import CAPACITY, HEADER, OUT, ROWS
from cql.executor.written import Kernel
from cql.planner.expr import Literal
from cql.types import DataType, Kind

# Which buffer an operator asks for (DETAIL of NEED); the low bits number it.
NEED_HOST = 1 << 20
NEED_TABLE = 2 << 20
NEED_ROOM = 3 << 20  # in the slab of a table: 0 is the groups, then the sets of values
NEED_WINDOWS = 4 << 20
NEED_RANK = 6 << 20
NEED_RESULTS = 7 << 20  # of the holistic calls, for the window in slot DETAIL_ROW
NEED_KIND = ~((1 << 20) - 1)


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
    zones: list[tuple[str, int]] = field(default_factory=list)  # see cql.zones.days_of
    functions: list[Called] = field(default_factory=list)
    own_words: dict[str, int] = field(default_factory=dict)  # of an aggregate: slot of the first
    uses_rank: bool = False
    _declared: set[str] = field(default_factory=set)
    _temps: int = 0
    _words: int = 0

    def declare(self, name: str, text: str) -> str:
        """A local that is set once, before the loops."""
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
        """A local count that is added to the descriptor when the kernel returns."""
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
        """The days of a zone, as the last arguments of the functions that read them."""
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
        return self.hosts.index(site)

    def add_host(self, site: HostSite) -> None:
        if site in self.hosts:
            return
        k = len(self.hosts)
        self.hosts.append(site)
        rows = self.declare("host_rows", self.word("host rows"))
        view = VIEWS[site.type.storage]
        self.declare(f"hv{k}", f"{view}({self.word(f'host {k} values')}, {rows})")
        self.declare(f"hs{k}", f"as_u8({self.word(f'host {k} status')}, {rows})")

    def function(self, function: Called) -> tuple[str, str]:
        """The locals that hold what ``call_function`` calls: a function's address and its own."""
        if function not in self.functions:
            self.functions.append(function)
        k = self.functions.index(function)
        address = self.declare(f"fn{k}", self.word(f"function {k}"))
        return address, self.declare(f"fo{k}", self.word(f"function {k} own"))

    def words(self, count: int) -> int:
        """The slot of the first of ``count`` words for this place in the text alone."""
        slots = [self.layout.slot(f"own word {self._words + k}") for k in range(max(count, 1))]
        self._words += len(slots)
        return slots[0]

    def operator(self, columns: int) -> Kernel:
        """A whole operator; its units have so many columns at the most."""
        width = HEADER + 2 * columns
        self.layout.slot("end")  # a descriptor is never empty
        return self.finish(
            f"u = words(unit, {width})",
            f"o = words(u[{OUT}], {width})",
            f"n = u[{ROWS}]",
            f"capacity = o[{CAPACITY}]",
            "status = 0",
            "detail = 0",
            "detail_row = 0",
        )

    def finish(self, *opening: str) -> Kernel:
        """The kernel that begins with these lines."""
        words = f"d = words(desc, {len(self.layout)})"
        lines = (words, *opening, *str(self.head).splitlines())
        head = "".join(f"    {line}\n" for line in lines)
        return Kernel(
            module_text(f"{OPERATOR}\ndef op(desc, unit):\n{head}{self.body}"),
            self.layout.slots,
            tuple(self.constants),
            tuple(self.window_constants.items()),
            tuple(self.tables),
            tuple(self.hosts),
            tuple(self.sites),
            tuple(self.counters),
            tuple(self.zones),
            tuple(self.functions),
            self.uses_rank,
        )

    def site(self, site: ErrorSite) -> int:
        self.sites.append(site)
        return len(self.sites) - 1


class RowScope:
    """One row loop. ``columns`` are the columns that expressions refer to, as code or (until first
    used) as a place to load from. A failing expression leaves the loop with the status set; with
    ``skip`` it runs that statement instead."""

    def __init__(self, kernel: KernelText, index: str, *, skip: str | None = None) -> None:
        self.kernel = kernel
        self.index = index
        self.place = index  # of the row in host columns
        self.columns: list[Code | Lazy] = []
        self._skip = skip

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
        k = self.kernel.host(site)
        return [
            (f"ha{k}_{a}[{self.place}]", f"hm{k}_{a}[{self.place}]") for a in range(len(site.args))
        ]

    def keep(self, words: Sequence[str], room: int = 0) -> int:
        first = self.kernel.words(len(words) + room)
        for k, text in enumerate(words):
            self.line(f"d[{first + k}] = {text}")
        return first

    def word(self, number: int) -> str:
        return f"d[{number}]"

    def call(self, function: Called, arguments: int, results: int) -> str:
        address, own = self.kernel.function(function)
        return f"call_function({address}, {own}, desc + {8 * arguments}, desc + {8 * results})"

    def need_table(self, table: DictionaryTable, code: str) -> str:
        k = self.kernel.table(table)
        return f"status = 2; detail = {NEED_TABLE + k}; detail_row = int64({code}); break"

    def need_rank(self) -> str:
        return f"status = 2; detail = {NEED_RANK}; break"

    def fail(self, site: ErrorSite) -> str:
        if self._skip is not None:
            return self._skip
        return f"status = 3; detail = {self.kernel.site(site)}; break"

    def temp(self, prefix: str = "x") -> str:
        return self.kernel.temp(prefix)

    def line(self, text: str) -> None:
        self.kernel.body.line(text)

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        with self.kernel.body.block():
            yield


@dataclass(frozen=True, slots=True)
class Lazy:
    """A column that is loaded where it is first used: of the input at the scope's row, or of what
    stands at ``at``."""

    data: str  # name of the array
    data_view: str  # how it is declared
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
    """NULL does not pass a filter."""
    if condition.valid is None:
        return condition.value
    return f"({condition.valid} and {condition.value})"
