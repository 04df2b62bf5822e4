"""The kernel of OOP-Join (out-of-order paper §5.3, figure 4), written for one query.

Each side keeps its rows in a ring, in the order of arrival. The rows whose keys have the same
bucket form a list, linked from the latest row back. When the watermark of the other side advances,
rows leave at the beginning of the ring. No link refers to them: a search ends at the beginning of
the ring. A row that could leave, but stands behind a row that stays, is removed when the kernel
requests room (``oop_join``).

Each step along a list waits for the step before. So, where lists are long and their rows far apart
in memory, the kernel first walks the lists of several rows together (``search_lists``).

A search skips the rows that are too late to be partners: each row has a second link to a row
further back, chosen so that a search reaches any row in logarithmically many steps (Myers: An
Applicative Random-Access Stack, 1983). The rows of a list are in the order of time up to
``disorder``. Where the disorder may be large, each bucket is for a key and a slice of time; a slice
is as long as the band is wide.

Rows that have found no partner (of outer and anti joins) leave in passes over the ring. A pass
begins when the watermark of the other side has advanced. A pass may be spread over the morsels that
follow (slow flush, §6), with up to ``pads`` rows per morsel. Punctuation that these rows hold back
is sent once they have left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from cql.executor.codegen.expressions.emit import emit
from cql.executor.codegen.expressions.scope import Code, zero
from cql.executor.codegen.kernel_builder import NEED_ROOM, KernelText, Lazy, RowScope
from cql.executor.codegen.kernel_cache import Kernel, once
from cql.executor.codegen.morsel_io import (
    close_output,
    morsel_columns,
    open_output,
    read_punctuation,
    row_at,
    send_punctuation,
)
from cql.executor.kernels.joins.oop_join import ABOUT, NONE, SEARCH
from cql.executor.kernels.morsel_layout import (
    CURSOR,
    END_OF_INPUT,
    IDLE,
    INFINITY,
    LATE_ROWS,
    PHASE,
    PORT,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    SUB,
)
from cql.executor.operators.joins.key_index import KeyLayout, KeyLists, key_layout
from cql.executor.operators.joins.oop_join_side import LINKS, SIDES, WORDS, Side, side_of
from cql.executor.operators.stage.row_sink import store_order, store_row
from cql.executor.operators.windows.group_table import AHEAD_ROWS
from cql.planner.nodes.physical import OopJoinExec
from cql.planner.nodes.watermarks import NO_BOUND

#: The number of rows whose lists are walked together; the distance in bytes from which on the
#: hardware does not prefetch the next row of a list; and the number of steps over such distances
#: per row from which on walking ahead pays.
_TOGETHER, _FAR, _HOPS = 16, 4096, 2
#: The maximum number of steps ahead per row: for partners (the rows touched must fit into a core's
#: own caches), and for the rows that determine the second link of a new row.
_STEPS, _LINK_STEPS = 64, 2
#: The phases of a morsel.
_ROWS, _LEAVING, _DONE = range(3)


@dataclass(frozen=True, slots=True)
class JoinCode:
    """``sides`` and ``keys``: the layout of the state that the operator must store."""

    kernel: Kernel
    sides: tuple[Side, Side]
    keys: KeyLayout


class Rows(Enum):
    """The rows of a morsel that a kernel joins: all rows, the rows listed as CHOSEN, or the rows
    whose keys belong to its partition, which the kernel lists itself."""

    ALL = auto()
    LISTED = auto()
    OWN = auto()


@once
def write(part: tuple[OopJoinExec, Rows, bool]) -> JoinCode:
    """Writes the kernel of a node for these rows. A ``with_order_column`` kernel adds an order
    column behind the others: the place of each pair among the pairs of all partitions."""
    return _JoinWriter(*part).write()


@dataclass(slots=True)
class _JoinWriter:
    node: OopJoinExec
    rows: Rows
    with_order_column: bool
    kernel: KernelText = field(default_factory=KernelText)
    sides: tuple[Side, Side] = field(init=False)
    keys: KeyLists = field(init=False)
    _searches: dict[str, int] = field(default_factory=dict)  # per side: the slot of its searches

    def __post_init__(self) -> None:
        node = self.node
        types = [node.left.schema[a].type for a, _ in node.keys]
        layout = key_layout(types, sliced=node.sliced)
        self.keys = KeyLists(self.kernel, layout, picks=self.rows is Rows.OWN)
        self.sides = (side_of(node, 0, layout.words), side_of(node, 1, layout.words))
        for side in SIDES:
            slices = 2 if node.sliced else 1
            self._searches[side] = self.kernel.words(ABOUT + SEARCH * slices * _TOGETHER)

    # -- the whole ---------------------------------------------------------------------------------

    def write(self) -> JoinCode:
        kernel, body = self.kernel, self.kernel.body
        for name in (f"{side}{n}" for side in SIDES for n in WORDS):
            kernel.layout.slot(name)
        with body.block():
            open_output(kernel)
            body.line(f"o[{LATE_ROWS}] = 0")
            self._declare()
            if self.rows is Rows.OWN:
                self._pick()
            for side in self.sides:
                with body.block(f"if u[{PHASE}] == {_ROWS} and u[{PORT}] == {side.port}:"):
                    self._rows(side)
            with body.block(f"if status == 0 and u[{PHASE}] == {_LEAVING}:"):
                self._punctuation()
                for side in self.sides:
                    self._leave(side)
                with body.block("if status == 0:"):
                    self._punctuate()
            self._give_back()
            close_output(kernel)
            body.line("return status")
        sides = (len(side.schema) for side in self.sides)
        written = kernel.operator(max(*sides, len(self.node.schema) + self.with_order_column))
        return JoinCode(written, self.sides, self.keys.layout)

    def _declare(self) -> None:
        """Declares views of the state, and locals for the words that change."""
        kernel = self.kernel
        self.keys.declare()
        for side in self.sides:
            s = side.name
            kernel.declare(f"{s}room", kernel.word(f"{s}room"))
            for part in ("t", *LINKS, "met"):
                if part in side.record.places:
                    kernel.declare(f"{s}{part}", side.view(kernel, part))
            for word in side.changing:
                kernel.declare(f"{s}{word}", kernel.word(f"{s}{word}"))
            if side.time is not None:
                kernel.declare(f"{s}reach", kernel.word(f"{s}reach"))

    def _give_back(self) -> None:
        kernel, body = self.kernel, self.kernel.body
        for side in self.sides:
            for word in side.changing:
                body.line(f"{kernel.word(side.name + word)} = {side.name}{word}")

    # -- rows --------------------------------------------------------------------------------------

    def _pick(self) -> None:
        """Lists the rows of this partition when a morsel arrives; the list stays until the morsel
        is done."""
        kernel, body = self.kernel, self.kernel.body
        for side in self.sides:
            first = f"u[{PHASE}] == {_ROWS} and u[{CURSOR}] == 0"
            with body.block(f"if {first} and u[{PORT}] == {side.port}:"):
                scope = RowScope(kernel, "r")
                scope.columns = morsel_columns(side.schema, side.name)
                self.keys.pick(side.schema, side.keys, scope)
                body.line(f"{kernel.word('chosen_rows')} = chosen_rows")
        body.line(f"n = {kernel.word('chosen_rows')}")

    @property
    def _smooth(self) -> bool:
        """Whether rows without a partner leave a few at a time, with later morsels."""
        node = self.node
        return node.smooth and node.band is not None and any(side.pads for side in self.sides)

    def _rows(self, side: Side) -> None:
        kernel, body, s, o = self.kernel, self.kernel.body, side.name, side.other
        body.lines(f"first = u[{CURSOR}]", f"sub = u[{SUB}]", "i = first", "hops = 0")
        if side.time is not None:
            # all held rows arrived after the first, and are at most ``disorder`` older than it
            oldest = f"{o}t[ring({o}head - {o}base, {o}room)] - {o}disorder"
            body.line(f"oldest = {oldest} if {o}head < {o}top else {INFINITY}")
        with body.block("for i in range(first, n):"):
            if self.keys.layout.words:
                self._fetch_lists(side)
            body.line(f"r = {row_at(kernel, 'i', partitioned=self.rows is not Rows.ALL)}")
            if self.keys.layout.words:
                self._look_ahead(side)
            if side.pads:
                body.line("void = False")
            scope = RowScope(kernel, "r")
            scope.columns = morsel_columns(side.schema, side.name)
            lost = None if not side.pads else "void = True"
            self.keys.words_of(side.schema, side.keys, scope, lost)
            self._reach(side, scope, lost)
            with body.block(f"if sub == 0 and {s}top - {s}head >= {s}room:"):
                room = NEED_ROOM + side.port
                body.line(f"status = 2; detail = {room}; detail_row = n - i; break")
            if self.node.sliced:
                self._of_slices(side)
            else:
                self.keys.find()
                latest = self.keys.latest(o)
                none = "" if side.time is None else " if most >= oldest else -1"
                self._begin(side, f"x = {latest}{none}")
                self._partners(side)
            if side.marks:
                self._alone(side)
            with body.block("if status != 0:"):
                body.line("break")
            with body.block("if keep:"):
                if self.node.sliced:
                    self.keys.find("t >> shift")
                self._insert(side)
            with body.block("else:"):
                body.line(f"{kernel.counter('not_stored')} += 1")
        if self.keys.layout.words:
            with body.block("if i > first:"):  # a morsel without rows measures no lists
                body.line(f"{kernel.word(o + 'far')} = int64(hops > {_HOPS} * (i - first))")
        with body.block("if status == 0:"):
            body.lines(f"u[{PHASE}] = {_LEAVING}", f"u[{CURSOR}] = n", f"u[{SUB}] = 0")
            if self._smooth:
                # no limit if no row came: more may never come; two per row, so that a backlog ends
                most = kernel.word("pads a morsel")
                body.line(f"{kernel.word('pads')} = 2 * max(n, {most}) if n > 0 else {NO_BOUND}")
            body.line(f"{kernel.counter('rows_in')} += n")
        with body.block("else:"):
            body.lines(f"u[{CURSOR}] = i", f"u[{SUB}] = sub")

    def _look_ahead(self, side: Side) -> None:
        body = self.kernel.body
        with body.block(f"if i + {AHEAD_ROWS} < n:"):
            partitioned = self.rows is not Rows.ALL
            later = row_at(self.kernel, f"i + {AHEAD_ROWS}", partitioned=partitioned)
            body.line(f"ahead = {later}")
            scope = RowScope(self.kernel, "ahead")
            scope.columns = morsel_columns(side.schema, side.name)
            part = None
            if self.node.sliced and side.time is not None:
                shift = self.kernel.declare("shift", self.kernel.word("shift"))
                part = f"int64({scope.load(side.time).value}) >> {shift}"
            self.keys.look_ahead(side.schema, side.keys, scope, part)

    def _fetch_lists(self, side: Side) -> None:
        """If searches take many steps through uncached memory, walks the lists of the next rows
        together and ahead of time: the lists of partners, and the lists of the row's own side for
        its links."""
        kernel, body, s, o = self.kernel, self.kernel.body, side.name, side.other
        links = side.time is not None and not self.node.sliced
        far = kernel.declare(f"{o}far", kernel.word(f"{o}far"))
        with body.block(f"if {far} and (i - first) & {_TOGETHER - 1} == 0:"):
            self._begin_searches(self.sides[1 - side.port], _STEPS)
            if links:
                self._begin_searches(side, _LINK_STEPS)
            with body.block(f"for g in range(i, min(i + {_TOGETHER}, n)):"):
                body.line(f"ahead = {row_at(kernel, 'g', partitioned=self.rows is not Rows.ALL)}")
                scope = RowScope(kernel, "ahead")
                scope.columns = morsel_columns(side.schema, s)
                body.lines("least = 0", "most = 0")
                if side.time is not None:
                    body.line(f"t = int64({scope.load(side.time).value})")
                    body.lines(f"least = t - {o}reach", f"most = t + {s}reach")
                part, slices = None, "range(1)"
                if self.node.sliced:
                    shift = kernel.declare("shift", kernel.word("shift"))
                    part, slices = "part", f"range(least >> {shift}, (most >> {shift}) + 1)"
                with body.block(f"for part in {slices}:"):
                    self.keys.seek(side.schema, side.keys, scope, part)
                    self._add_search(o, "least", "most")
                    if links:
                        self._add_search(s, "NEVER", "NEVER")
            for name in (o, s) if links else (o,):
                body.line(f"search_lists({name}search, {name}count)")
            body.line(f"{kernel.counter('searched_ahead')} += {o}count")

    def _begin_searches(self, side: Side, steps: int) -> None:
        kernel, s, places = self.kernel, side.name, side.record.places
        search = kernel.declare(f"{s}search", f"desc + {8 * self._searches[s]}")
        about = kernel.declare(f"{s}about", f"words({search}, {ABOUT})")
        values = [kernel.word(f"{s}rows"), side.record.size]
        values += [places[k][0] if k in places else NONE for k in ("t", *LINKS[:2])]
        values += [f"{s}{word}" for word in ("room", "base", "head")]
        values += ["0" if side.time is None else f"{s}disorder", steps]
        kernel.body.lines(*(f"{about}[{k}] = {value}" for k, value in enumerate(values)))
        kernel.declare(f"{s}searches", f"words({search} + {8 * ABOUT}, 1)")
        kernel.body.line(f"{s}count = 0")

    def _add_search(self, s: str, least: str, most: str) -> None:
        """Adds a search from the latest row of a side's list ``b`` on."""
        body = self.kernel.body
        body.line(f"x = {self.keys.latest(s)}")
        with body.block(f"if x >= {s}head:"):
            for k, value in enumerate(("x", NONE, least, most)):
                body.line(f"{s}searches[{SEARCH} * {s}count + {k}] = {value}")
            body.line(f"{s}count += 1")

    def _begin(self, side: Side, first: str) -> None:
        """Sets ``x``: the row at which the search for partners begins, or continues after the
        output was full."""
        body = self.kernel.body
        with body.block("if sub == 0:"):
            body.line(first)
            if side.marks:
                body.line("met = False")
        with body.block("else:"):
            if side.marks:
                body.lines("x = (sub >> 1) - 2", "met = sub & 1 != 0", "sub = 0")
            else:
                body.lines("x = sub - 2", "sub = 0")
        if side.pads:
            with body.block("if void:"):
                body.line("x = -1")

    def _of_slices(self, side: Side) -> None:
        """Searches for partners in each slice of time that may hold partners: at most two, as a
        slice is as long as the band is wide."""
        kernel, body, o = self.kernel, self.kernel.body, side.other
        kernel.declare("shift", kernel.word("shift"))
        body.lines("again = sub != 0", "part = least >> shift", "last = most >> shift")
        self._begin(side, "x = -1")
        with body.block("if again:"):
            body.line(f"part = {o}t[ring(x - {o}base, {o}room)] >> shift if x >= 0 else last + 1")
        if side.pads:
            with body.block("if void:"):
                body.line("part = last + 1")
        with body.block("while part <= last and status == 0:"):
            with body.block("if not again:"):
                self.keys.find("part")
                body.line(f"x = {self.keys.latest(o)}")
            body.line("again = False")
            self._partners(side)
            body.line("part += 1")

    def _alone(self, side: Side) -> None:
        """Outputs the row alone after the search for partners: in a semi join if it has a partner,
        in other joins if it has none and can get none any more."""
        body, kind = self.kernel.body, self.node.kind
        if kind in ("semi", "anti"):
            with body.block("if met:"):
                body.line("keep = False")
        with body.block(
            "if status == 0 and met:" if kind == "semi" else
            "if status == 0 and not (keep or met):"
        ):  # fmt: skip
            with body.block("if j >= capacity:"):
                body.lines("status = 1", "sub = 2 | int64(met)")
            with body.block("else:"):
                self._give(side, morsel_columns(side.schema, side.name), None)

    def _reach(self, side: Side, scope: RowScope, lost: str | None) -> None:
        """Sets ``least`` and ``most``, the range of partner times, and ``keep``: whether partners
        can still come."""
        kernel, body, o = self.kernel, self.kernel.body, side.other
        if side.time is None:
            body.line(f"keep = {o}ended == 0{' and not void' if lost else ''}")
            return
        code = scope.load(side.time)
        if code.valid is not None:
            with body.block(f"if not {code.valid}:"):
                body.lines(*self.keys.lost(lost))
        body.line(f"t = int64({code.value})")
        # The row is below the bound that the side got while it was idle.
        with body.block(f"if t < {side.name}watermark{' and not void' if lost else ''}:"):
            body.lines(f"{kernel.counter('too_late_' + side.name)} += 1", "continue")
        body.lines(
            f"least = t - {o}reach",
            f"most = t + {side.name}reach",
            f"keep = most >= {o}watermark{' and not void' if lost else ''}",
        )

    def _partners(self, side: Side) -> None:
        kernel, body, o = self.kernel, self.kernel.body, side.other
        other = self.sides[1 - side.port]
        with body.block(f"while x >= {o}head:"):
            body.lines(f"at = ring(x - {o}base, {o}room)", "here = x", f"back = int64({o}back[at])")
            body.line("x = x - back if back > 0 else -1")
            body.line(f"hops += int64(back > {_FAR // other.record.size})")
            if side.time is not None:
                body.line(f"y = {o}t[at]")
                if self.node.sliced:
                    with body.block("if y > most or y < least or y >> shift != part:"):
                        body.line("continue")
            if side.time is not None and not self.node.sliced:
                with body.block("if y > most:"):
                    body.line(f"far = here - int64({o}skip[at])")
                    # rows that arrived after row ``far`` are at most ``disorder`` older than it
                    late = f"{o}t[ring(far - {o}base, {o}room)] - {o}disorder > most"
                    with body.block(f"if far < here and far >= {o}head and {late}:"):
                        body.line("x = far")
                    body.line("continue")
                with body.block("if y < least:"):
                    with body.block(f"if y + {o}disorder < least:"):
                        body.line("break")
                    body.line("continue")
            for w in range(self.keys.layout.words):
                word = kernel.declare(f"{o}k{w}", other.view(kernel, f"k{w}"))
                with body.block(f"if {word}[at] != kw{w}:"):
                    body.line("continue")
            mine, theirs = morsel_columns(side.schema, side.name), other.stored(self.kernel)
            pair = RowScope(kernel, "r")
            pair.columns = [*mine, *theirs] if side.port == 0 else [*theirs, *mine]
            for condition in self.node.rest:
                code = emit(condition, pair)
                holds = code.value if code.valid is None else f"({code.valid} and {code.value})"
                with body.block(f"if not {holds}:"):
                    body.line("continue")
            self._met(side, other, pair)

    def _met(self, side: Side, other: Side, pair: RowScope) -> None:
        """Handles a match of the row with the row at ``at`` of the other side."""
        body, kind = self.kernel.body, self.node.kind
        if side.marks and kind in ("semi", "anti"):
            body.lines("met = True", "break")
            return
        if kind == "anti":
            body.line(f"{other.name}met[at] = 1")
            return
        if kind == "semi":
            with body.block(f"if {other.name}met[at] != 0:"):
                body.line("continue")
        with body.block("if j >= capacity:"):
            again = "(here + 2) << 1 | int64(met)" if side.marks else "here + 2"
            body.lines("status = 1", f"sub = {again}", "break")
        if side.marks:
            body.line("met = True")
        if other.marks:
            body.line(f"{other.name}met[at] = 1")
        self._give(side, pair.columns[: len(side.schema) + len(other.schema)], pair)

    def _give(self, side: Side, columns: Sequence[Code | Lazy], pair: RowScope | None) -> None:
        """Writes output row ``j``: a pair (``columns`` of both sides), or a row of ``side``
        alone."""
        kernel, body, node = self.kernel, self.kernel.body, self.node
        out = pair or RowScope(kernel, "r")
        if pair is None:
            nothing = [Code(zero(f.type), "False") for f in self.sides[1 - side.port].schema]
            columns = [*columns, *nothing] if side.port == 0 else [*nothing, *columns]
        wanted = [*columns]
        if side.time is not None:
            wanted += [Code("max(t, y)", None), Code("min(t, y)", None)]
        out.columns = [wanted[c] for c in node.columns]
        if node.kind not in ("inner", "semi", "anti"):
            for k, f in enumerate(node.schema):
                code = out.load(k)
                if f.nullable and code.valid is None:  # other output rows have NULL here
                    out.columns[k] = Code(code.value, "True")
        store_row(kernel, out, node.schema, frozenset())
        if self.with_order_column:
            store_order(kernel, node.schema, ("int64(r)",))
        body.line("j += 1")

    def _insert(self, side: Side) -> None:
        kernel, body, s = self.kernel, self.kernel.body, side.name
        body.line(f"q = ring({s}top - {s}base, {s}room)")
        scope = RowScope(kernel, "r")
        scope.columns = morsel_columns(side.schema, side.name)
        stored = side.stored(self.kernel)
        for c in range(len(side.schema)):
            part, place = side.holds(c), stored[c]
            if part is None or part == "t":
                continue
            code = scope.load(c)
            body.line(f"{kernel.declare(place.data, place.data_view)}[q] = {code.value}")
            if place.mask is not None:
                mask = kernel.declare(place.mask, place.mask_view)
                body.line(f"{mask}[q] = 1 if {code.valid} else 0")
        for w in range(self.keys.layout.words):
            word = kernel.declare(f"{s}k{w}", side.view(kernel, f"k{w}"))
            body.line(f"{word}[q] = kw{w}")
        body.lines(f"p = {self.keys.latest(s)}", f"back = {s}top - p if p >= {s}head else 0")
        body.line(f"{s}back[q] = back")
        if side.marks:
            body.line(f"{s}met[q] = 1 if met else 0")
        if side.time is not None:
            body.line(f"{s}t[q] = t")
            if not self.node.sliced:
                self._link(side)
            for g in ("", "2"):
                with body.block(f"if t >= {s}latest{g}:"):
                    body.line(f"{s}latest{g} = t")
                with body.block(f"elif {s}latest{g} - t > {s}disorder{g}:"):
                    body.line(f"{s}disorder{g} = min({s}latest{g} - t, {NO_BOUND})")
        body.lines(self.keys.enter(s), f"{s}top += 1")

    def _link(self, side: Side) -> None:
        """Sets the second link of the new row at ``q``; its first link leads to row ``p`` if
        ``back`` is not 0. If all rows before it have left, the list begins anew, which is as
        good."""
        body, s = self.kernel.body, side.name
        body.lines(f"{s}skip[q] = back", f"{s}depth[q] = 0")
        with body.block("if back > 0:"):
            body.lines(f"below = ring(p - {s}base, {s}room)", f"{s}depth[q] = {s}depth[below] + 1")
            body.line(f"p -= int64({s}skip[below])")
            with body.block(f"if p >= {s}head:"):
                body.line(f"lower = ring(p - {s}base, {s}room)")
                body.line(f"lowest = p - int64({s}skip[lower])")
                # a row that has left has no place in the ring any more
                with body.block(f"if lowest >= {s}head:"):
                    body.line(f"middle = int64({s}depth[lower])")
                    depth = f"int64({s}depth[ring(lowest - {s}base, {s}room)])"
                    with body.block(f"if int64({s}depth[below]) - middle == middle - {depth}:"):
                        body.line(f"{s}skip[q] = {s}top - lowest")

    # -- watermarks --------------------------------------------------------------------------------

    def _punctuation(self) -> None:
        """Raises the bounds (the watermarks of both inputs) by the punctuation of the morsel. An
        idle input takes the bound of the other."""
        kernel, body = self.kernel, self.kernel.body
        read_punctuation(kernel)
        with body.block(f"for p in range(u[{PUNCTUATIONS}]):"):
            body.lines(
                f"attribute = arrived[{PUNCTUATION_WORDS} * p]",
                f"value = arrived[{PUNCTUATION_WORDS} * p + 1]",
            )
            with body.block(f"if arrived[{PUNCTUATION_WORDS} * p + 2] >= 0:"):
                body.line("continue")
            for side in self.sides:
                s = side.name
                with body.block(f"if u[{PORT}] == {side.port}:"):
                    if side.time is not None:
                        with body.block(f"if attribute == {side.time}:"):
                            body.line(f"{s}watermark = max({s}watermark, value)")
                    with body.block(f"if attribute == {IDLE}:"):
                        body.line(f"{s}idle = value")
                    with body.block(f"if attribute == {END_OF_INPUT}:"):
                        body.lines(f"{s}ended = 1", f"{s}watermark = {INFINITY}")
        for side in self.sides:
            if side.time is not None:
                s, o = side.name, side.other
                with body.block(f"if {s}idle and not ({s}ended or {o}ended or {o}idle):"):
                    body.line(f"{s}watermark = max({s}watermark, {o}watermark)")

    def _expired_below(self, side: Side) -> str:
        """The time below which no row of this side joins a row of the other side still to come."""
        s, o = side.name, side.other
        return f"({INFINITY} if {o}ended else max({o}watermark, -{NO_BOUND}) - {s}reach)"

    def _left_below(self, side: Side) -> str:
        """The time below which all rows of this side have left, with or without a partner."""
        return f"{side.name}padded" if side.pads else self._expired_below(side)

    def _leave(self, side: Side) -> None:
        """Removes the rows of a side that no later row of the other side can join, up to the first
        row that stays."""
        body, s, o = self.kernel.body, side.name, side.other
        stays = f"{o}ended == 0"
        if side.pads:
            self._pad(side)
        if side.time is not None:
            body.line(f"left = {self._left_below(side)}")
            stays = f"{s}t[q] >= left"
        body.lines(f"{s}peak = max({s}peak, {s}top - {s}head)", f"before_{s} = {s}head")
        body.line(f"q = ring({s}head - {s}base, {s}room)")
        with body.block(f"while status == 0 and {s}head < {s}top:"):
            with body.block(f"if {stays}:"):
                body.line("break")
            body.lines(f"{s}head += 1", "q += uint64(1)")
            with body.block(f"if int64(q) == {s}room:"):
                body.line("q = uint64(0)")
        with body.block(f"if {s}head - {s}base >= {s}room:"):
            body.line(f"{s}base += {s}room")
        body.line(f"{self.kernel.counter('purged')} += {s}head - before_{s}")
        if side.time is not None:
            self._renew(side)

    def _pad(self, side: Side) -> None:
        """Outputs the rows that have no partner and can get none any more, also those behind a row
        that stays. With a band, a pass ends at the first row ``disorder`` or more above ``due``: no
        row behind it is below ``due``. Without a band, the pass at the end of the other side
        outputs all rows without a partner. ``pass``: the row that the pass has reached (-1: there
        is no pass). ``due``: the time below which the pass outputs rows. ``padded``: the time below
        which these rows have left."""
        body, s, o = self.kernel.body, side.name, side.other
        timed, pads = side.time is not None, self.kernel.word("pads")
        body.line(f"left = {self._expired_below(side)}" if timed else f"left = {o}ended")
        with body.block("while status == 0:"):
            with body.block(f"if {s}pass < 0:"):
                with body.block(f"if {s}padded >= left:"):
                    body.line("break")
                body.lines(f"{s}pass = {s}head", f"{s}due = left")
            body.lines(f"x = {s}pass", f"{s}pass = -1")
            with body.block(f"while x < {s}top:"):
                body.line(f"at = ring(x - {s}base, {s}room)")
                alone = f"{s}met[at] == 0"
                if timed:
                    body.line(f"t = {s}t[at]")
                    with body.block(f"if t - {s}disorder >= {s}due:"):
                        body.line("break")
                    alone = f"t < {s}due and {alone}"
                with body.block(f"if {alone}:"):
                    with body.block("if j >= capacity:"):
                        body.lines("status = 1", f"{s}pass = x", "break")
                    if self._smooth:
                        busy = f"not ({o}ended or lidle and ridle)"
                        with body.block(f"if {pads} <= 0 and {busy}:"):
                            body.lines(f"{s}pass = x", "break")
                        body.line(f"{pads} -= 1")
                    body.line(f"{s}met[at] = 1")
                    self._give(side, side.stored(self.kernel), None)
                body.line("x += 1")
            with body.block(f"if {s}pass >= 0:"):
                body.line("break")
            body.line(f"{s}padded = {s}due")

    def _renew(self, side: Side) -> None:
        """``disorder`` is measured over the rows since a place at or before the first held row. A
        second measure begins at a later row, and replaces the first when all rows before that row
        have left."""
        body, s = self.kernel.body, side.name
        with body.block(f"if {s}head >= {s}since:"):
            body.lines(
                f"{s}latest = {s}latest2",
                f"{s}disorder = {s}disorder2",
                f"{s}latest2 = NEVER",
                f"{s}disorder2 = 0",
                f"{s}since = {s}top",
            )

    def _punctuate(self) -> None:
        """Sends the punctuation that the bounds imply for later pairs. Rows of the other side that
        are still to come hold individual punctuation (``ProducePunctuation`` of figure 4) back by
        the band. They do not hold joint punctuation (paper §7) back: one row of a new pair is new,
        so the later time of the pair is at least the lower of the two bounds."""
        kernel, body, live = self.kernel, self.kernel.body, self.node.progressing
        for name, watermark, column in self._output_watermarks():
            places = [k for k in live if self.node.columns[k] == column]
            punctuated = kernel.word(f"{name} punctuated")
            if places:
                body.line(f"value = {watermark}")
                with body.block(f"if value > {punctuated} and value > -{NO_BOUND // 2}:"):
                    body.line(f"{punctuated} = value")
                    with body.block("if not (lended and rended):"):
                        for k in places:
                            send_punctuation(kernel, str(k), "value")
        finished = kernel.word("finished")
        with body.block(f"if lended and rended and {finished} == 0:"):
            body.line(f"{finished} = 1")
            send_punctuation(kernel, str(END_OF_INPUT), str(INFINITY))
        silent = " and ".join(f"({s}idle or {s}ended)" for s in SIDES)
        body.line(f"idle = int64({silent} and not (lended and rended))")
        with body.block(f"if idle != {kernel.word('idling')}:"):
            body.line(f"{kernel.word('idling')} = idle")
            send_punctuation(kernel, str(IDLE), "idle")
        body.line(f"u[{PHASE}] = {_DONE}")

    def _output_watermarks(self) -> Iterator[tuple[str, str, int]]:
        """For each time of a pair: its name, the expression of a bound that no later pair is below,
        and the time's column in the pair."""
        node = self.node
        if node.band is None:
            return
        left, right = (
            f"min({side.name}watermark, {self._left_below(side)})" for side in self.sides
        )
        yield "left", left, node.band.left
        yield "right", right, len(node.left.schema) + node.band.right
        yield "later", "min(lwatermark, rwatermark)", node.later
        yield "earlier", f"min({left}, {right})", node.later + 1
        for column, port, far in node.follows:
            yield f"follower {column}", f"{(left, right)[port]} - {far}", column
