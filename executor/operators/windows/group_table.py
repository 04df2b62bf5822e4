"""The groups of windows: where they are stored, and how a row finds and updates its group.

Instead of one table over (window id, group), each open window has a region of its own in shared
arrays. Closing a window gives its whole region back, and the order of the entries is the order of
first contribution. An index beside the entries maps the hash of a key to its entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from cql.executor.codegen.expressions.emit import Code, ErrorSite, emit
from cql.executor.codegen.expressions.scope import zero
from cql.executor.codegen.kernel_builder import NEED_ROOM, NEED_WINDOWS, are_many
from cql.executor.codegen.key_packing import WORD, KeyPart, key_expression, pack_keys
from cql.executor.codegen.morsel_io import row_at
from cql.executor.kernels.lib.views import FIELDS
from cql.executor.kernels.morsel_layout import SEQUENCE
from cql.executor.kernels.windows.region_table import (
    BLOCK,
    DIRECTORY,
    FIRST_TABLE,
    PLACES,
    SMALLEST_CLASS,
    TABLE,
)
from cql.executor.operators.aggregates.code import AggregateCode, argument
from cql.executor.operators.aggregates.functions import aggregate_code
from cql.executor.operators.aggregates.udaf import declare_own, own_lines
from cql.executor.operators.aggregates.value_log import Log, append, holistic_code, logs_of
from cql.executor.operators.stage.row_sink import RowTerminal
from cql.executor.operators.stage.scope import StageScope
from cql.executor.operators.stage.spec import Table, columns_at
from cql.planner.nodes.expr import Column, Expr, substitute
from cql.planner.nodes.logical import AggregateCall
from cql.planner.nodes.physical import ProjectExec, WidAggregateExec

#: The number of rows by which index places are prefetched, and the smallest index, in places, for
#: which this is done.
AHEAD_ROWS = 8
AHEAD_FROM = 1 << 13
#: Lines that set the current window's region and the parameters of a search in its index.
REGION = (
    "base = bases[slot]",
    f"root = {PLACES} * base",
    "shift = classes[slot] + 1",
    "size = 1 << classes[slot]",
    f"mask = {PLACES} * size - 1",
    "low_bits = 2 * size - 1",
    f"ahead_to = n - {AHEAD_ROWS} if mask >= {AHEAD_FROM} else 0",
)
#: What a row lacks that leaves the inner loop over rows (``wanted``).
WANTS_WINDOW, WANTS_GROUP = 1, 2
#: The number of entries of a region, out of ``count``, that may find their direct places taken
#: before keys are hashed: a quarter; few in large regions, where reading a wrong record waits for
#: memory.
_STRAYS = "8 + min(count >> 2, 1024)"


@dataclass(slots=True)
class GroupingTerminal(RowTerminal):
    """Ends a stage with the keys and states of groups of windows, for every kind of window."""

    node: WidAggregateExec = field(kw_only=True)
    distinct: tuple[int, ...] = ()  # the calls that keep a set of values
    _parts: list[KeyPart] = field(default_factory=list)
    _words: int = 1
    _codes: list[AggregateCode] = field(default_factory=list)
    _compares_nulls: bool = False  # whether a NULL key can come in this variant of the kernel
    _in_run: bool = False  # in the loop over rows of ``AggregateTerminal.each_row``
    #: When a new group begins, in an order over all partitions: the row's position in the stream.
    _birth: str = f"u[{SEQUENCE}] + int64(r)"

    def __post_init__(self) -> None:
        node, layout = self.node, self.writer.kernel.layout
        self._parts, self._words = pack_keys([k.type for k in node.keys])
        self.distinct = tuple(k for k, c in enumerate(node.calls) if c.distinct)
        self.distinct = tuple(k for k in self.distinct if not node.calls[k].holistic)
        self.logs = logs_of(node.calls)
        self._codes = [
            holistic_code(call, k) if call.holistic else aggregate_code(call, k, self._loose(call))
            for k, call in enumerate(node.calls)
        ]
        keys = [(f"key{w}", "int64") for w in range(self._words)]
        state = (column for code in self._codes for column in code.columns)
        born = (("born", "int64"),) if self.writer.spec.with_order_columns else ()
        columns = (*keys, *born, *self._group_columns(), *state)
        groups = Table("", columns, self._words, self._direct)
        kept = [*map(set_of_values, self.distinct), *(log.table for log in self.logs)]
        self.tables = (groups, *map(self._kept_beside, kept), *self._more_tables())
        self.codes = tuple(self._code_columns())
        # These slots come first: the library's functions expect them at fixed places.
        for name in DIRECTORY:
            layout.slot(name)
        for table in self.tables:
            for name in TABLE:
                layout.slot(name + table.suffix)

    @property
    def _direct(self) -> bool:
        """Whether the index may use the low bits of a key in place of a hash: adjacent numbers, as
        the codes of texts are, have adjacent places; random numbers spread as well as hashes (7.0
        -> 5.8 ns a row with 1,000 keys)."""
        return self._words == 1

    def _group_columns(self) -> tuple[tuple[str, str], ...]:
        """Columns of a group besides its key and the states of its calls."""
        return ()

    def _more_tables(self) -> tuple[Table, ...]:
        return ()

    def _kept_beside(self, table: Table) -> Table:
        """A table of values that are kept beside the groups, with this terminal's columns."""
        return table

    def _owner(self) -> str:
        """The number by which values that are kept beside group ``g`` refer to it."""
        return "int64(g) - base"

    def _note_kept(self, suffix: str, at: str) -> list[str]:
        """Lines that run after a value of group ``g`` has been added, at ``at``, to a table of
        values that are kept beside the groups, as the window's latest entry."""
        return []

    @property
    def _one_group(self) -> bool:
        """Whether all rows of a run go to one group, whose state then stays in registers (2.8 ->
        1.2 ns a row of a count: a written word can be read again after five cycles)."""
        beside = self.distinct or self.logs or any(code.own for code in self._codes)
        return not (self.node.keys or beside)

    @property
    def _states(self) -> list[str]:
        """The columns of the states of all calls."""
        return [name for code in self._codes for name, _ in code.columns]

    def _init_lines(self) -> list[str]:
        """Lines that initialise a new group."""
        return [line for code in self._codes for line in code.init]

    def _code_columns(self) -> Iterator[tuple[str, str, int]]:
        """The state columns that hold dictionary codes (``StageCode.codes``)."""
        for key, part in zip(self.node.keys, self._parts, strict=True):
            if key.type.is_coded:
                yield "", f"key{part.word}", part.shift
        for k, call in enumerate(self.node.calls):
            if k in self.distinct and call.args[0].type.is_coded:
                yield str(k), f"value{k}", 0
        for log in self.logs:
            for n, arg in enumerate(log.args):
                if arg.type.is_coded:
                    yield log.suffix, log.value(n), 0
        for code in self._codes:
            for name in code.codes:
                yield "", name, 0

    @property
    def _nullable_keys(self) -> list[int]:
        return [i for i, k in enumerate(self.node.keys) if k.nullable]

    def _null_bit(self, key: int) -> int:
        return self._nullable_keys.index(key)

    def _loose(self, call: AggregateCall) -> bool:
        """Whether a group can exist without any value for this call."""
        whole = self.node.window is None and not self.node.keys
        return whole or call.where is not None or any(a.nullable for a in call.args)

    def row_exprs(self) -> list[Expr]:
        calls = self.node.calls
        inner = [e for c in calls for e in (*c.args, *((c.where,) if c.where else ()))]
        return [*self.node.keys, *inner]

    # -- the key of a row --------------------------------------------------------------------------

    def _look_ahead(self) -> None:
        """Prefetches the index place of a later row, if the index is too large for the nearest
        cache and the keys are plain columns. (A core's window of instructions holds hardly more
        than five rows: too few to hide two successive misses. 8.0 -> 6.4 ns a row.)"""
        writer, body = self.writer, self.writer.kernel.body
        columns = columns_at(writer.spec)[-1]
        keys = [substitute(k, columns) for k in self.node.keys]
        whole = all(isinstance(s, ProjectExec) for s in writer.spec.steps)
        if not (whole and keys):
            return
        scope = StageScope(writer, level=0)
        scope.index = "ahead"
        if not all(isinstance(k, Column) and not scope.is_masked(k.index) for k in keys):
            return
        with body.block(f"if i < {self._look_ahead_to()}:"):
            later = row_at(writer.kernel, f"i + {AHEAD_ROWS}", partitioned=writer.spec.partitioned)
            body.line(f"ahead = {later}")
            self._set_words([emit(k, scope) for k in keys], "ahead_")
            hashed = f"hash_end({self._chain('ahead_')})"
            if self._direct:
                hashed = f"ahead_kw0 << 8 if direct != 0 else {hashed}"
            body.line(f"ahead_hashed = {hashed}")
            body.lines(*(f"prefetch({address})" for address in self._look_ahead_at()))

    def _look_ahead_to(self) -> str:
        return "ahead_to"

    def _look_ahead_at(self) -> list[str]:
        """The addresses that the row with hash ``ahead_hashed`` reads first."""
        index = self.writer.kernel.declare("index_at", self.writer.kernel.word("index"))
        return [f"{index} + 4 * (root + ((ahead_hashed >> 8) & mask))"]

    def _key_words(self, scope: StageScope) -> None:
        """Sets the key words ``kw<n>``, ``kn`` (NULL bits) if a key can be NULL, and ``hashed`` if
        the index is never direct."""
        nulls = self._set_words([emit(k, scope) for k in self.node.keys], "")
        if nulls:
            self.writer.kernel.body.line(f"kn = {' | '.join(nulls)}")
        self._compares_nulls = bool(nulls)
        self._hash_words()

    def _set_words(self, codes: list[Code], name: str) -> list[str]:
        """Sets the words of a key; returns the expressions of the bits of its NULL parts."""
        body = self.writer.kernel.body
        words: list[list[str]] = [[] for _ in range(self._words)]
        nulls: list[str] = []
        for i, (key, code, part) in enumerate(zip(self.node.keys, codes, self._parts, strict=True)):
            bits = key_expression(key.type, code.value, part)
            if code.valid is not None:
                local = self.writer.kernel.temp("kb")
                body.line(f"{local} = {bits} if {code.valid} else 0")
                nulls.append(f"(0 if {code.valid} else {1 << (self._null_bit(i))})")
                bits = local
            words[part.word].append(bits)
        for w, parts in enumerate(words):
            body.line(f"{name}kw{w} = {' | '.join(parts) if parts else '0'}")
        return nulls

    def _chain(self, name: str) -> str:
        """The hash of the key words, without the final ``hash_end``."""
        chain = f"hash_start({name}kw0)"
        for w in range(1, self._words):
            chain = f"hash_next({chain}, {name}kw{w})"
        return chain

    def _words_of(self, g: str, lead: str = "") -> None:
        """Sets the key words to those of entry ``g``; the names of its columns begin with
        ``lead``."""
        body = self.writer.kernel.body
        body.lines(*(f"kw{w} = {lead}key{w}[{g}]" for w in range(self._words)))
        if self._compares_nulls:
            body.line(f"kn = {lead}nulls[{g}]")
        self._hash_words()

    def _hash_words(self) -> None:
        """Sets ``hashed`` for the key words, unless the index may be direct."""
        if not self._direct:
            self._hash()

    def _hash(self) -> None:
        body, chain = self.writer.kernel.body, self._chain("")
        body.line(f"hashed = hash_end({chain})")
        if self._compares_nulls:
            with body.block("if kn != 0:"):
                body.line(f"hashed = hash_end(hash_next({chain}, kn))")

    def _first_place(self) -> None:
        """Sets ``p``, the first place of a search in the index, and ``tag``."""
        body = self.writer.kernel.body
        hashed = ("p = (hashed >> 8) & mask", "tag = tag_of(hashed, shift)")
        if not self._direct:
            body.lines(*hashed)
            return
        with body.block("if likely(direct != 0):"):
            body.lines("p = kw0 & mask", "tag = 0")
        with body.block("else:"):
            self._hash()
            body.lines(*hashed)

    # -- updating states ---------------------------------------------------------------------------

    def _arguments(self, scope: StageScope) -> list[str | None]:
        """Evaluates every argument and FILTER before any state changes, so that a failing row
        leaves no trace; returns the condition under which each call sees the row."""
        body = self.writer.kernel.body
        found: list[str | None] = []
        known = self._known_arguments(scope)
        for k, call in enumerate(self.node.calls):
            where: str | None = None
            if any(k in log.calls[1:] for log in self.logs):
                found.append(None)  # an earlier call fills the log that they share
                continue
            if call.where is not None:
                code, where = emit(call.where, scope), f"filter{k}"
                seen = code.value if code.valid is None else f"({code.valid} and {code.value})"
                body.line(f"{where} = {seen}")
            flags = [
                self._argument(k, n, where, scope, known.get((k, n))) for n in range(len(call.args))
            ]
            conditions = [flag for flag in flags if flag is not None]
            condition = " and ".join(conditions) if conditions else where
            ranked = self._codes[k].ranked
            if ranked is not None:
                rank, x = self.writer.kernel.rank(), argument(k, ranked)
                with body.block(f"if {condition or 'True'} and {x} >= {rank}.size:"):
                    body.line(scope.need_rank())
            found.append(condition)
        return found

    def _known_arguments(self, scope: StageScope) -> dict[tuple[int, int], Code]:
        """The arguments of all calls, emitted together, if there are many of them and no FILTER may
        guard one; else none."""
        calls = self.node.calls
        places = [(k, n) for k, call in enumerate(calls) for n in range(len(call.args))]
        exprs = [calls[k].args[n] for k, n in places]
        if self.logs or any(call.where is not None for call in calls) or not are_many(exprs):
            return {}
        return dict(zip(places, scope.emit_all(exprs), strict=True))

    def _argument(
        self, k: int, n: int, where: str | None, scope: StageScope, known: Code | None
    ) -> str | None:
        """Sets an argument (``known`` if it is emitted already) and its flag. FILTER guards the
        evaluation, as in Spark. Returns the flag if the call skips rows whose flag is false."""
        body, arg, x = self.writer.kernel.body, self.node.calls[k].args[n], argument(k, n)
        seen = n in self._codes[k].sees_null
        if where is None:
            value = emit(arg, scope) if known is None else known
            body.line(f"{x} = {value.value}")
            if seen:
                body.line(f"{x}_ok = {value.valid or 'True'}")
            return None if seen else value.valid
        # A scope of its own: columns that are loaded inside the block are not set after it.
        inner = scope.next(list(scope.columns))
        inner.level = scope.level
        body.lines(f"{x} = {zero(arg.type)}", f"{x}_ok = False")
        with body.block(f"if {where}:"):
            value = emit(arg, inner)
            body.lines(f"{x} = {value.value}", f"{x}_ok = {value.valid or 'True'}")
        return None if seen or value.valid is None else f"{x}_ok"

    def _update(self, arguments: list[str | None], leave: list[str]) -> None:
        body = self.writer.kernel.body
        if not (self._in_run and self._one_group):
            self._find_group(leave)
        # Lines that may request room come first, so that a row that is tried again changes no state
        # twice: logs only make room, a set updates the call's state when it inserts a value.
        for log in self.logs:
            self._make_room(log, arguments[log.calls[0]], leave)
        for k in self.distinct:
            with body.block(f"if {condition}:" if (condition := arguments[k]) else "if True:"):
                self._insert_distinct(k, leave)
        for log in self.logs:
            k = log.calls[0]
            values = [
                key_expression(arg.type, argument(k, n), WORD) for n, arg in enumerate(log.args)
            ]
            with body.block(f"if {arguments[k] or 'True'}:"):
                body.lines(*append(log, self._owner(), values))
                body.lines(*self._note_kept(log.suffix, "at"))
        for k, code in enumerate(self._codes):
            if k in self.distinct or self.node.calls[k].holistic:
                continue
            condition = arguments[k]
            if condition is None:
                self._emit(k, code.update, leave[0])
            else:
                with body.block(f"if {condition}:"):
                    self._emit(k, code.update, leave[0])

    def _emit(self, k: int, lines: tuple[str, ...], leave: str) -> None:
        """Writes lines of call ``k``; ``leave`` replaces their ``{leave}``, behind the error."""
        kernel, code, site = self.writer.kernel, self._codes[k], -1
        if code.fatal is not None:
            site = kernel.site(ErrorSite("overflow", code.fatal, self.node.calls[k].pos))
            self.writer.fatal.add(site)
        if code.ranked is not None:
            kernel.rank()
        if code.own is not None:
            call, fatal = self.node.calls[k], self.writer.fatal
            lines = tuple(own_lines(kernel, fatal, call, code.own, lines, leave))
        if self._in_run and self._one_group:
            states = "|".join(self._states)
            lines = tuple(re.sub(rf"\b({states})\[g\]", r"\1_", line) for line in lines)
        out = f"status = 3; detail = {site}; {leave}"
        kernel.body.lines(*(line.replace("{leave}", out) for line in lines))

    # -- regions and their entries -----------------------------------------------------------------

    def _declare_state(self) -> None:
        kernel = self.writer.kernel
        for name in ("watermark", "closing", "closing_group"):
            kernel.layout.slot(name)
        declare_own(kernel, self._codes)
        if self._direct:
            kernel.declare("direct", kernel.word("direct"))
        slots = kernel.declare("slots", kernel.word("slots"))
        kernel.declare("heap", f"words({kernel.word('heap')}, {slots})")
        kernel.declare("window_ids", f"words({kernel.word('window_ids')}, {slots})")
        for table in self.tables:
            suffix = table.suffix
            n = kernel.declare(f"entries{suffix}", kernel.word(f"entries{suffix}"))
            for name in (f"bases{suffix}", f"classes{suffix}", f"counts{suffix}"):
                kernel.declare(name, f"words({kernel.word(name)}, {slots})")
            if table.hashed:
                index = kernel.word(f"index{suffix}")
                kernel.declare(f"index{suffix}", f"as_i32({index}, {PLACES} * {n})")
            if self._nullable_keys and not suffix:
                kernel.declare("nulls", f"words({kernel.word('nulls')}, {n})")
            records = kernel.word(f"records{suffix}")
            for word, (name, dtype) in enumerate(table.columns):
                at = f"{records} + {8 * word}, {n}, {8 * len(table.columns)}"
                kernel.declare(name, f"{FIELDS[dtype]}({at})")

    def _open_window(self, leave: str) -> None:
        """Finds or opens window ``w``; sets ``slot``, ``count`` and the locals of REGION."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        body.line(f"slot = call_operator({kernel.word('open_window')}, desc, w)")
        with body.block("if slot < 0:"):
            body.lines("status = 2", f"detail_row = {1 << SMALLEST_CLASS}")
            body.line(f"detail = {NEED_WINDOWS} if slot == -1 else {NEED_ROOM} - 2 - slot")
            body.line(leave)
        body.lines(*REGION, "count = counts[slot]")

    def _find_group(self, leave: list[str]) -> None:
        """Finds or adds the group of the key words in the current window; sets ``g``. In a run, a
        row whose group is new leaves the loop."""
        body = self.writer.kernel.body
        same = " and ".join(f"key{w}[g] == kw{w}" for w in range(self._words))
        if self._compares_nulls:
            same += " and nulls[g] == kn"
        self._first_place()
        body.line("g = uint64(0)")
        with body.block("while True:"):
            body.lines("e = int64(index[uint64(root + p)])", "x = e ^ tag")
            with body.block("if likely(uint64(x - 1) < uint64(low_bits)):"):
                body.line("g = uint64(base + x - 1)")
                with body.block(f"if likely({same}):"):
                    body.line("break")
            with body.block("elif unlikely(e == 0):"):
                if self._in_run:
                    body.lines(f"wanted = {WANTS_GROUP}", "break")
                else:
                    self._add_group()
            body.line("p = (p + 1) & mask")
        with body.block(f"if unlikely({'wanted' if self._in_run else 'status'} != 0):"):
            body.line(leave[0])

    def _add_group(self) -> None:
        """Adds the group of the key words at ``p``, a free place of the index."""
        body = self.writer.kernel.body
        with body.block("if count >= size:"):
            body.line(f"grown = {self._grow(0)}")
            with body.block("if grown < 0:"):
                body.line(f"status = 2; detail = {NEED_ROOM}; detail_row = 4 * size; break")
            body.lines(*REGION)
            self._first_place()
            body.line("continue")
        if self._direct:
            self._note_stray()
        self._room_for_group()
        body.lines("g = uint64(base + count)", "count += 1", "counts[slot] = count")
        body.line("index[uint64(root + p)] = tag | count")
        body.lines(*(f"key{w}[g] = kw{w}" for w in range(self._words)))
        if self._nullable_keys:
            body.line(f"nulls[g] = {'kn' if self._compares_nulls else '0'}")
        if self.writer.spec.with_order_columns:
            body.line(f"born[g] = {self._birth}")
        body.lines(*self._init_lines(), "break")

    def _note_stray(self) -> None:
        """Counts a new group whose direct place is taken; changes the index to hashes if there are
        too many of them."""
        body, strays = self.writer.kernel.body, self.writer.kernel.word("strays")
        with body.block("if count == 0:"):
            body.line(f"{strays} = 0")
        with body.block("if direct != 0 and p != (kw0 & mask):"):
            body.line(f"{strays} += 1")
            with body.block(f"if {strays} > {_STRAYS}:"):
                body.line(f"call_operator({self.writer.kernel.word('hash_again')}, desc, 0)")
                body.line("direct = 0")
                self._first_place()
                body.line("continue")

    def _room_for_group(self) -> None:
        """Writes what precedes the making of a new group; code that requests room leaves."""

    def _make_room(self, log: Log, condition: str | None, leave: list[str]) -> None:
        """Makes room for one more entry in the current window's log."""
        body, s = self.writer.kernel.body, log.suffix
        table = [t.suffix for t in self.tables].index(s)
        with body.block(f"if {condition or 'True'} and counts{s}[slot] >= 1 << classes{s}[slot]:"):
            body.line(f"grown = {self._grow(table)}")
            with body.block("if grown < 0:"):
                body.lines("status = 2", f"detail = {NEED_ROOM + table}")
                body.lines(f"detail_row = 4 << classes{s}[slot]", leave[0])

    def _insert_distinct(self, k: int, leave: list[str]) -> None:
        """Adds the value of call ``k`` to the set of its group; a new value updates the state."""
        body = self.writer.kernel.body
        kind = self.node.calls[k].args[0].type
        body.line(f"bits = {key_expression(kind, argument(k, 0), WORD)}")
        body.line(f"owner = {self._owner()}")
        body.line("dh = hash_end(hash_next(hash_start(bits), owner))")
        body.lines(*_distinct_region(k))
        with body.block("while True:"):
            body.line(f"e = int64(index{k}[{PLACES} * db + p])")
            with body.block("if e == 0:"):
                table = 1 + self.distinct.index(k)
                with body.block(f"if counts{k}[slot] >= dsize:"):
                    body.line(f"grown = {self._grow(table)}")
                    with body.block("if grown < 0:"):
                        need = f"status = 2; detail = {NEED_ROOM + table}; detail_row = 4 * dsize"
                        body.line(f"{need}; break")
                    body.lines(*_distinct_region(k), "continue")
                body.lines(f"e = db + counts{k}[slot]", f"counts{k}[slot] += 1")
                body.line(f"index{k}[{PLACES} * db + p] = tag | counts{k}[slot]")
                body.lines(f"owner{k}[e] = owner", f"value{k}[e] = bits")
                body.lines(*self._note_kept(str(k), "e"))
                self._emit(k, self._codes[k].update, "break")
                body.line("break")
            with body.block("if (e ^ tag) <= dlow:"):
                body.line("e = db + (e & dlow) - 1")
                with body.block(f"if owner{k}[e] == owner and value{k}[e] == bits:"):
                    body.line("break")
            body.line("p = (p + 1) & dm")
        with body.block("if status != 0:"):
            body.line(leave[0])

    def _grow(self, table: int) -> str:
        """The call that gives the current window more room in a table, by number (0: groups)."""
        word = self.writer.kernel.word("grow_region")
        return f"call_operator({word}, desc + {8 * (FIRST_TABLE + table * BLOCK)}, slot)"


def _distinct_region(k: int) -> tuple[str, ...]:
    """Lines as REGION for the current window's set of values of call ``k``, with the first place of
    the search for hash ``dh``."""
    return (
        f"db = bases{k}[slot]",
        f"dsize = 1 << classes{k}[slot]",
        f"dm = {PLACES} * dsize - 1",
        "dlow = 2 * dsize - 1",
        "p = (dh >> 8) & dm",
        f"tag = tag_of(dh, classes{k}[slot] + 1)",
    )


def set_of_values(k: int) -> Table:
    """The table of the values that a DISTINCT call has had, each with the number of its group."""
    return Table(str(k), ((f"value{k}", "int64"), (f"owner{k}", "int64")), 2)
