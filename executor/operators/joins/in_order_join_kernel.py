"""The kernel of the in-order window joins (Sync-Filter, Filter-Order and Adaptive; in-order paper
§4-§6), written for one query. All three have the same text; the descriptor chooses one of them.

The rows of an input stand in a ring in the order of arrival, which is the order of their times.
Rows are numbered from 0; five numbers divide them::

    keep <= head, gone <= done <= tail

Rows below ``head`` have no later partner and are in no list of their key. Rows from ``done`` on
have not been joined yet (the input queue). All results of rows below ``gone`` have left. Rows from
``keep`` on are still stored, as waiting results refer to them.

All rows are in one *order*: by time, then by input, then by number. A row is joined with the rows
joined before it. Sync-Filter joins rows in that order, as soon as no input can bring an earlier
row, and so outputs results as it finds them. Filter-Order joins rows as they come. The place of a
result in the order is that of its last member. So the result is attached to that row, and leaves
when all rows of all inputs up to that row have come: the inputs, each in order, are merged, and no
result is ever compared with another. Adaptive switches between the two. When it switches back to
Sync-Filter, rows wait again until no result waits (§6, E to L).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cql.executor.codegen.expressions.emit import Code, emit
from cql.executor.codegen.kernel_builder import NEED_ROOM, KernelText, Lazy, RowScope
from cql.executor.codegen.kernel_cache import Kernel, once
from cql.executor.codegen.key_packing import key_expression
from cql.executor.codegen.morsel_io import close_output, morsel_columns, open_output
from cql.executor.kernels.joins.in_order_join import NEED_RESULTS, OF_INPUT, SHARED
from cql.executor.kernels.lib.views import VIEWS
from cql.executor.kernels.morsel_layout import CURSOR, LATE_ROWS, PHASE, PORT
from cql.executor.operators.joins.in_order_join_layout import Directory, Input, JoinLayout
from cql.executor.operators.joins.key_index import entered, look_up
from cql.executor.operators.stage.row_sink import store_row
from cql.planner.nodes.expr import Expr, columns_of
from cql.planner.nodes.physical import WindowJoinExec

#: The request for room for keys: this number + the number of the directory.
NEED_KEYS = 128
# Modes: what the kernel does with a row while another input may still bring an earlier row.
SYNCHRONOUS = 0  # the row waits
AHEAD = 1  # the row is joined
RETURNING = 2  # the row waits; results of rows joined before wait, too

#: Words that joining changes: per input, and of the whole join.
_CHANGING = ("head", "gone", "done")
_SHARED = ("held", "free", "top", "mode", "resuming", "peak_join_windows", "peak_hold_buffer")


@dataclass(frozen=True, slots=True)
class WindowJoinCode:
    """``inputs`` and ``directories``: the layout of the state that the operator must store."""

    kernel: Kernel
    inputs: tuple[Input, ...]
    directories: tuple[Directory, ...]


@once
def write(node: WindowJoinExec) -> WindowJoinCode:
    return _WindowJoinWriter(node).write()


@dataclass(slots=True)
class _WindowJoinWriter:
    node: WindowJoinExec
    layout: JoinLayout = field(init=False)
    kernel: KernelText = field(default_factory=KernelText)

    def __post_init__(self) -> None:
        self.layout = JoinLayout(self.node)

    @property
    def inputs(self) -> list[Input]:
        return self.layout.inputs

    @property
    def directories(self) -> list[Directory]:
        return self.layout.directories

    # -- the whole ---------------------------------------------------------------------------------

    def write(self) -> WindowJoinCode:
        kernel, body = self.kernel, self.kernel.body
        numbers = range(len(self.inputs))
        for name in (*SHARED, *(f"{word}{p}" for p in numbers for word in OF_INPUT)):
            kernel.layout.slot(name)
        for name in (f"reach{p}_{q}" for p in numbers for q in numbers):
            kernel.layout.slot(name)
        with body.block():
            open_output(kernel)
            body.line(f"o[{LATE_ROWS}] = 0")
            self._declare()
            for one in self.inputs:
                with body.block(f"if u[{PHASE}] == 0 and u[{PORT}] == {one.port}:"):
                    self._append(one)
            with body.block(f"if status == 0 and u[{PHASE}] == 1:"):
                body.lines("note_progress(desc, morsel)", f"u[{PHASE}] = 2")
            with body.block("if status == 0:"):
                self._run()
            close_output(kernel)
            body.line("return finish_morsel(desc, morsel, status)")
        widths = (len(one.schema) for one in self.inputs)
        written = kernel.operator(max(*widths, len(self.node.schema)))
        return WindowJoinCode(written, tuple(self.inputs), tuple(self.directories))

    def _declare(self) -> None:
        """Declares views of the state, and locals for the words that do not change."""
        kernel = self.kernel
        pool = kernel.declare("pool", kernel.word("pool"))
        kernel.declare("following", f"as_i32({kernel.word('following')}, {pool})")
        for one in self.inputs:
            p = one.port
            room = kernel.declare(f"room{p}", kernel.word(f"room{p}"))
            kernel.declare(f"mask{p}", f"{room} - 1")
            kernel.declare(f"t{p}", f"words({kernel.word(f't{p}')}, {room})")
            kernel.declare(f"oldest{p}", f"as_i32({kernel.word(f'oldest{p}')}, {room})")
            kernel.declare(f"newest{p}", f"as_i32({kernel.word(f'newest{p}')}, {room})")
            kernel.declare(f"member{p}", f"words({kernel.word(f'member{p}')}, {pool})")
            for other in self.inputs:
                if other is not one:
                    name = f"reach{p}_{other.port}"
                    kernel.declare(name, kernel.word(name))
        for made in self.directories:
            k = made.number
            room = kernel.declare(f"keys{k}", kernel.word(f"keys{k}"))
            mask = kernel.declare(f"imask{k}", kernel.word(f"imask{k}"))
            kernel.declare(f"index{k}", f"words({kernel.word(f'index{k}')}, {mask} + 1)")
            for w in range(made.words):
                kernel.declare(f"key{k}_{w}", f"words({kernel.word(f'key{k}_{w}')}, {room})")
            for p in made.members:
                for end in ("first", "last"):
                    name = f"{end}{k}_{p}"
                    kernel.declare(name, f"words({kernel.word(name)}, {room})")
                kernel.declare(f"next{k}_{p}", f"words({kernel.word(f'next{k}_{p}')}, room{p})")
                kernel.declare(f"entry{k}_{p}", f"as_i32({kernel.word(f'entry{k}_{p}')}, room{p})")

    @property
    def _changing(self) -> list[str]:
        """The words that joining changes; the kernel keeps them in locals meanwhile."""
        cursors = (f"s{k}" for k in range(len(self.inputs) - 1))
        counts = (f"count{made.number}" for made in self.directories)
        own = (f"{word}{one.port}" for one in self.inputs for word in _CHANGING)
        return [*_SHARED, *cursors, *counts, *own]

    # -- arrival of rows ---------------------------------------------------------------------------

    def _append(self, one: Input) -> None:
        """Appends the rows of the morsel to the input queue; leaves out rows with a NULL key or
        time, and rows below the bound of the input."""
        kernel, body, p = self.kernel, self.kernel.body, one.port
        tail, watermark = kernel.word(f"tail{p}"), kernel.word(f"watermark{p}")
        body.lines(
            f"tail, watermark, begun = {tail}, {watermark}, {tail}",
            f"used = tail - {kernel.word(f'keep{p}')}",
        )
        with body.block(f"if used + n - u[{CURSOR}] > room{p}:"):
            body.line(f"status = 2; detail = {NEED_ROOM + p}; detail_row = n - u[{CURSOR}]")
        with body.block("else:"):
            with body.block(f"for i in range(u[{CURSOR}], n):"):
                body.line("r = uint64(i)")
                scope = RowScope(kernel, "r")
                scope.columns = morsel_columns(one.schema, f"_{one.port}")
                keys = (self.layout.column(s, p) for s in range(len(self.node.keys)))
                for c in (*(k for k in keys if k is not None), one.time):
                    code = scope.load(c)
                    if code.valid is not None:
                        with body.block(f"if not {code.valid}:"):
                            body.lines(f"{kernel.counter('null_keys')} += 1", "continue")
                body.line(f"t = int64({scope.load(one.time).value})")
                # The row is below the bound that the input got while it was idle.
                with body.block("if t < watermark:"):
                    body.lines(f"{kernel.counter(f'too_late_{p}')} += 1", "continue")
                self._store(one, scope)
            body.lines(f"u[{PHASE}] = 1", f"u[{CURSOR}] = n")
            body.line(f"{kernel.counter('rows_in')} += n")
            body.lines(f"{tail} = tail", f"{watermark} = watermark")
            body.line(
                f"{kernel.word(f'most{p}')} = max({kernel.word(f'most{p}')}, used + tail - begun)"
            )
            with body.block(f"if {kernel.word('adaptive')} != 0:"):
                body.line(f"note_arrivals(desc, {p}, begun)")

    def _store(self, one: Input, scope: RowScope) -> None:
        kernel, body, p = self.kernel, self.kernel.body, one.port
        body.lines(f"q = uint64(tail & mask{p})", f"t{p}[q] = t", f"oldest{p}[q] = -1")
        stored = self._stored(one)
        for c in one.kept:
            if c == one.time and not one.separate_times:
                continue
            code, place = scope.load(c), stored[c]
            body.line(f"{kernel.declare(place.data, place.data_view)}[q] = {code.value}")
            if place.mask is not None:
                mask = kernel.declare(place.mask, place.mask_view)
                body.line(f"{mask}[q] = 1 if {code.valid} else 0")
        body.lines("tail += 1", "watermark = t")

    def _stored(self, one: Input) -> list[Lazy]:
        """The columns of row ``r<port>`` of the ring. The kernel never reads a column not kept."""
        kernel, p, found = self.kernel, one.port, []
        for c, f in enumerate(one.schema):
            data, room, at = f"c{p}_{c}", f"room{p}", f"r{p}"
            if c == one.time and not one.separate_times:  # a row without a time is not stored
                found.append(Lazy(f"t{p}", "", None, "", f.type, at))
                continue
            if c not in one.kept:
                found.append(Lazy(data, "", None, "", f.type, at))
                continue
            mask = f"m{p}_{c}" if f.nullable else None
            mask_view = f"as_u8({kernel.word(mask)}, {room})" if mask is not None else ""
            data_view = f"{VIEWS[f.type.storage]}({kernel.word(data)}, {room})"
            found.append(Lazy(data, data_view, mask, mask_view, f.type, at))
        return found

    def _front(self, p: int) -> str:
        """The time of the input's next row to join; if its queue is empty, the lowest time that a
        later row can have."""
        return f"(t{p}[uint64(done{p} & mask{p})] if done{p} < tail{p} else watermark{p})"

    # -- joining rows, sending results -------------------------------------------------------------

    def _run(self) -> None:
        kernel, body = self.kernel, self.kernel.body
        for name in self._changing:
            body.line(f"{name} = {kernel.word(name)}")
        for one in self.inputs:
            p = one.port
            body.lines(
                f"tail{p} = {kernel.word(f'tail{p}')}",
                f"watermark{p} = {kernel.word(f'watermark{p}')}",
            )
            body.line(f"front{p} = {self._front(p)}")
        adaptive = kernel.word("adaptive")
        body.lines(f"quantum = {kernel.word('quantum')}", "work = 0", "began = look_at_clock(desc)")
        body.line(f"load = load_of(desc) if {adaptive} != 0 else 0.0")
        with body.block("while True:"):
            with body.block(f"if {adaptive} != 0:"):
                self._choose_mode()
            with body.block("while True:"):
                self._leave()
            with body.block("if status != 0:"):
                body.line("break")
            for one in self.inputs:
                self._purge(one)
            self._choose_row()
            for one in self.inputs:
                with body.block(f"{'if' if one.port == 0 else 'elif'} best == {one.port}:"):
                    self._join(one)
            with body.block("if status != 0:"):
                body.line("break")
            windows = " + ".join(f"done{i.port} - head{i.port}" for i in self.inputs)
            body.line(f"peak_join_windows = max(peak_join_windows, {windows})")
            self._count_turn()
        body.line("note_cost(desc, began, work)")
        for name in self._changing:
            body.line(f"{kernel.word(name)} = {name}")

    def _choose_mode(self) -> None:
        """Chooses the mode of Adaptive (in-order paper §6, steps B, D, K and L)."""
        body, alpha = self.kernel.body, f"f64_of_bits({self.kernel.word('alpha')})"
        with body.block(f"if mode == {RETURNING} and held == 0:"):
            body.line(f"mode = {SYNCHRONOUS}")
        with body.block(f"if mode == {SYNCHRONOUS} and load >= {alpha}:"):
            body.lines(f"mode = {AHEAD}", f"{self.kernel.counter('to_filter_order')} += 1")
        with body.block(f"elif mode == {AHEAD} and load < {alpha}:"):
            body.lines(f"mode = {RETURNING}", f"{self.kernel.counter('to_sync_filter')} += 1")

    def _leave(self) -> None:
        """Outputs the results of the first joined row (in the order of all rows) whose results have
        not left, once no earlier row can come. ``best`` is the row's input."""
        body = self.kernel.body
        body.lines("best = -1", "first = 0")
        for one in self.inputs:
            p = one.port
            with body.block(f"if gone{p} < done{p}:"):
                body.line(f"x = t{p}[uint64(gone{p} & mask{p})]")
                with body.block("if best < 0 or x < first:"):
                    body.lines(f"best = {p}", "first = x")
        with body.block(f"if best < 0 or not ({self._is_complete()}):"):
            body.line("break")
        for one in self.inputs:
            p = one.port
            with body.block(f"{'if' if p == 0 else 'elif'} best == {p}:"):
                body.lines(f"row = uint64(gone{p} & mask{p})", f"h = int64(oldest{p}[row])")
        with body.block("while h >= 0:"):
            with body.block("if j >= capacity:"):
                body.lines("status = 1", "break")
            body.line("at = uint64(h)")
            for one in self.inputs:
                body.line(f"r{one.port} = uint64(member{one.port}[at] & mask{one.port})")
            scope = RowScope(self.kernel, "r")
            scope.columns = [place for one in self.inputs for place in self._stored(one)]
            self._give(scope, "first")
            body.lines("h = int64(following[at])", "following[at] = free", "free = int64(at)")
            body.line("held -= 1")
        for one in self.inputs:
            p = one.port
            with body.block(f"{'if' if p == 0 else 'elif'} best == {p}:"):
                body.line(f"oldest{p}[row] = h")
                with body.block("if h < 0:"):
                    body.line(f"gone{p} += 1")
        with body.block("if status != 0:"):
            body.line("break")
        self._count_turn()

    def _count_turn(self) -> None:
        self.kernel.body.line("quantum -= 1")
        with self.kernel.body.block("if quantum == 0:"):
            self.kernel.body.lines("status = 1", "break")

    def _is_complete(self) -> str:
        """Whether no input can bring a row before the row of input ``best`` at time ``first``."""
        found = (
            f"(front{i.port} > first or (front{i.port} == first and {i.port} >= best))"
            for i in self.inputs
        )
        return " and ".join(found)

    def _give(self, scope: RowScope, time: str) -> None:
        """Writes a result."""
        out = RowScope(self.kernel, "r")
        out.columns = [scope.columns[c] for c in self.node.columns]
        if self.node.time:
            storage = self.node.schema.fields[-1].type.storage
            out.columns.append(Code(time if storage == "int64" else f"{storage}({time})", None))
        store_row(self.kernel, out, self.node.schema, frozenset())
        self.kernel.body.line("j += 1")

    def _purge(self, one: Input) -> None:
        """Removes the oldest rows from the lists of their keys, in which they stand first, once no
        later row of the other inputs can join them."""
        body, p = self.kernel.body, one.port
        expired = " and ".join(
            f"front{o.port} > t{p}[uint64(head{p} & mask{p})] + reach{p}_{o.port}"
            for o in self.inputs
            if o is not one
        )
        with body.block(f"while head{p} < done{p} and {expired}:"):
            body.line(f"row = uint64(head{p} & mask{p})")
            for made in self.directories:
                if p in made.members:
                    lists = f"{made.number}_{p}"
                    body.lines(f"e = uint64(entry{lists}[row])", f"x = next{lists}[row]")
                    body.line(f"first{lists}[e] = x")
                    with body.block("if x < 0:"):
                        body.line(f"last{lists}[e] = -1")
            body.line(f"head{p} += 1")

    def _choose_row(self) -> None:
        """Sets ``best`` to the input whose row is joined next, ``first`` to the time of that row,
        and ``direct`` to whether the results of all rows before it have left: then the results of
        this row leave at once."""
        body = self.kernel.body
        body.lines("best = -1", "first = 0")
        for one in self.inputs:
            p = one.port
            with body.block(f"if done{p} < tail{p} and (best < 0 or front{p} < first):"):
                body.lines(f"best = {p}", f"first = front{p}")
        with body.block("if best < 0:"):
            body.line("break")
        body.line(f"complete = {self._is_complete()}")
        with body.block(f"if mode != {AHEAD} and not complete:"):
            body.line("break")
        all_gone = " and ".join(f"gone{i.port} == done{i.port}" for i in self.inputs)
        body.line(f"direct = complete and {all_gone}")

    # -- a row and its partners --------------------------------------------------------------------

    def _join(self, one: Input) -> None:
        kernel, body, p = self.kernel, self.kernel.body, one.port
        body.lines(f"y{p} = first", f"a{p} = done{p}", f"r{p} = uint64(done{p} & mask{p})")
        mine = [d for d in self.directories if p in d.members]
        for made in mine:
            k = made.number
            with body.block(f"if resuming == 0 and count{k} >= keys{k}:"):
                body.lines(f"status = 2; detail = {NEED_ROOM + NEED_KEYS + k}", "break")
        live = " + ".join(f"done{o.port} - head{o.port}" for o in self.inputs if o is not one)
        with body.block("if resuming == 0:"):
            body.lines(f"live = {live}", "work += live")
            body.line(f"{kernel.counter('probed')} += live")
        scope = RowScope(kernel, "r")
        scope.columns = [place for i in self.inputs for place in self._stored(i)]
        used = {probe.directory for probe in self.layout.probes[p]}
        for made in self.directories:
            if made in mine or (made.number in used and self.layout.owns(p, made.sets)):
                self._find(made, [p], scope, makes=made in mine)
        self._partners(one, 0, [p], scope, list(self.node.rest))
        with body.block("if status == 0:"):
            body.line("resuming = 0")
            for made in mine:
                self._link(made, p)
            body.lines(f"done{p} += 1", f"front{p} = {self._front(p)}")
            with body.block("if direct:"):
                body.line(f"gone{p} += 1")

    def _find(self, made: Directory, bound: Sequence[int], scope: RowScope, *, makes: bool) -> None:
        """Sets ``e<directory>`` to the entry of a key, computed from the current rows of the inputs
        ``bound``. A missing entry is created if ``makes``, otherwise ``e<directory>`` is -1."""
        body, k = self.kernel.body, made.number
        words: list[list[str]] = [[] for _ in range(made.words)]
        for s, part in zip(made.sets, made.parts, strict=True):
            port, column = next(
                (b, c) for b in bound if (c := self.layout.column(s, b)) is not None
            )
            kind = self.inputs[port].schema[column].type
            code = scope.load(self.inputs[port].first + column)
            words[part.word].append(key_expression(kind, code.value, part))
        body.lines(*(f"w{k}_{w} = {' | '.join(texts)}" for w, texts in enumerate(words)))
        named = [f"w{k}_{w}" for w in range(made.words)]
        same = " and ".join(f"key{k}_{w}[uint64(e{k})] == w{k}_{w}" for w in range(made.words))
        look_up(body, named, f"index{k}", f"imask{k}", f"e{k} = number", same)
        with body.block("if not known:"):
            if not makes:
                body.line(f"e{k} = -1")
                return
            body.lines(f"e{k} = count{k}", f"count{k} += 1")
            body.line(f"index{k}[uint64(p)] = {entered(f'count{k}')}")
            for w in range(made.words):
                body.line(f"key{k}_{w}[uint64(e{k})] = w{k}_{w}")
            for p in made.members:
                body.lines(f"first{k}_{p}[uint64(e{k})] = -1", f"last{k}_{p}[uint64(e{k})] = -1")

    def _partners(
        self, one: Input, depth: int, bound: list[int], scope: RowScope, rest: list[Expr]
    ) -> None:
        """Writes the loop over the rows of the next input that join the current rows, oldest
        first."""
        body = self.kernel.body
        probe = self.layout.probes[one.port][depth]
        q, made = probe.port, None
        if probe.directory is not None:
            made = self.directories[probe.directory]
        if made is not None and not self.layout.owns(one.port, made.sets):
            scope = _deeper(scope)
            self._find(made, bound, scope, makes=False)
        lows = [f"y{b} - reach{q}_{b}" for b in bound]
        highs = [f"y{b} + reach{b}_{q}" for b in bound]
        body.line(f"low{depth} = {_of_all('max', lows)}")
        body.line(f"high{depth} = {_of_all('min', highs)}")
        x = f"x{depth}"
        if made is None:
            body.line(f"{x} = head{q}")
        else:
            entry = f"e{made.number}"
            body.line(f"{x} = -1 if {entry} < 0 else first{made.number}_{q}[uint64({entry})]")
        with body.block("if resuming != 0:"):
            body.line(f"{x} = s{depth}")
        with body.block(f"while {x} {f'< done{q}' if made is None else '>= 0'}:"):
            body.lines(f"a{q} = {x}", f"r{q} = uint64(a{q} & mask{q})", f"y{q} = t{q}[r{q}]")
            body.line(f"{x} = {x} + 1" if made is None else f"{x} = next{made.number}_{q}[r{q}]")
            with body.block(f"if y{q} < low{depth}:"):
                body.line("continue")
            with body.block(f"if y{q} > high{depth}:"):
                body.line("break")
            inner, now = _deeper(scope), [*bound, q]
            self._check_distances(now, inner)
            later = self._check_conditions(rest, now, inner)
            if len(now) == len(self.inputs):
                self._result(one, depth, inner)
            else:
                self._partners(one, depth + 1, now, inner, later)
                with body.block("if status != 0:"):
                    body.lines(f"s{depth} = a{q}", "break")

    def _check_conditions(
        self, rest: list[Expr], bound: Sequence[int], scope: RowScope
    ) -> list[Expr]:
        """Writes the conditions that read only the current rows; the kernel goes on with the next
        partner if one does not hold. Returns the other conditions."""
        there = {self.inputs[b].first + c for b in bound for c in range(len(self.inputs[b].schema))}
        later = []
        for condition in rest:
            if not columns_of(condition) <= there:
                later.append(condition)
                continue
            code = emit(condition, scope)
            holds = code.value if code.valid is None else f"({code.valid} and {code.value})"
            with self.kernel.body.block(f"if not {holds}:"):
                self.kernel.body.line("continue")
        return later

    def _check_distances(self, bound: Sequence[int], scope: RowScope) -> None:
        """Writes the conditions of ``node.column_bands`` between the last of the current rows and
        the others."""
        ends = [i.first + len(i.schema) for i in self.inputs]
        for band in self.node.column_bands:
            ports = {
                next(p for p, end in enumerate(ends) if c < end) for c in (band.left, band.right)
            }
            if bound[-1] not in ports or not ports <= set(bound):
                continue
            left, right = (scope.load(c).value for c in (band.left, band.right))
            low, high = (self.kernel.extra_constant(v) for v in (band.low, band.high))
            difference = f"int64({right}) - int64({left})"
            with self.kernel.body.block(f"if not ({low} <= {difference} <= {high}):"):
                self.kernel.body.line("continue")

    def _result(self, one: Input, depth: int, scope: RowScope) -> None:
        """Outputs a result, or attaches it to its last member in the order of all rows."""
        body = self.kernel.body
        q = self.layout.probes[one.port][depth].port
        body.line("resuming = 0")
        with body.block("if direct:"):
            with body.block("if j >= capacity:"):
                body.lines("status = 1", "resuming = 1", f"s{depth} = a{q}", "break")
            self._give(_deeper(scope), "first")
            body.line("continue")
        with body.block("if free < 0 and top >= pool:"):
            body.line(f"status = 2; detail = {NEED_ROOM + NEED_RESULTS}")
            body.lines("resuming = 1", f"s{depth} = a{q}", "break")
        with body.block("if free >= 0:"):
            body.lines("h = free", "free = int64(following[uint64(h)])")
        with body.block("else:"):
            body.lines("h = top", "top += 1")
        body.lines("following[uint64(h)] = -1", f"last = {one.port}", "time = first")
        for i in self.inputs:
            body.line(f"member{i.port}[uint64(h)] = a{i.port}")
            if i is not one:
                p = i.port
                with body.block(f"if y{p} > time or (y{p} == time and {p} > last):"):
                    body.lines(f"last = {p}", f"time = y{p}")
        for i in self.inputs:
            p = i.port
            with body.block(f"{'if' if p == 0 else 'elif'} last == {p}:"):
                with body.block(f"if oldest{p}[r{p}] < 0:"):
                    body.line(f"oldest{p}[r{p}] = h")
                with body.block("else:"):
                    body.line(f"following[uint64(newest{p}[r{p}])] = h")
                body.line(f"newest{p}[r{p}] = h")
        body.line("held += 1")
        body.line("peak_hold_buffer = max(peak_hold_buffer, held)")

    def _link(self, made: Directory, p: int) -> None:
        """Appends the row to the list of its key."""
        body, lists = self.kernel.body, f"{made.number}_{p}"
        entry = f"uint64(e{made.number})"
        body.lines(f"entry{lists}[r{p}] = e{made.number}", f"next{lists}[r{p}] = -1")
        body.line(f"x = last{lists}[{entry}]")
        with body.block("if x >= 0:"):
            body.line(f"next{lists}[uint64(x & mask{p})] = done{p}")
        with body.block("else:"):
            body.line(f"first{lists}[{entry}] = done{p}")
        body.line(f"last{lists}[{entry}] = done{p}")


def _deeper(scope: RowScope) -> RowScope:
    """A copy of ``scope`` for an inner block: columns loaded there are not defined outside."""
    inner = RowScope(scope.kernel, scope.index)
    inner.columns = list(scope.columns)
    return inner


def _of_all(function: str, values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{function}({', '.join(values)})"
