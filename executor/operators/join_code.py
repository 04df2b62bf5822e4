"""The kernel of OOP-Join (out-of-order paper §5.3, figure 4), written for one query.

Each side keeps its rows in the order of arrival, those of a key linked from the oldest on; one
table of keys leads to the lists of both sides, so that a row finds its partners and its own place
in one look. A row whose last possible partner has passed is dropped where a list begins, by whoever
comes by; the rest of the memory comes back when room is asked for (``oop_join``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.executor.expressions import emit
from cql.executor.kernels.views import VIEWS
from cql.executor.operators.packing import KeyPart, key_expression, pack_keys
from cql.executor.operators.row_terminal import store_row
from cql.executor.operators.rowscope import NEED_ROOM, KernelText, Lazy, RowScope
from cql.executor.unit import (
    CURSOR,
    DETAIL,
    DETAIL_ROW,
    END_OF_INPUT,
    EPOCH,
    IDLE,
    INFINITY,
    PHASE,
    PORT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    STRAGGLERS,
    SUB,
    data_word,
    mask_word,
)
from cql.model import Schema
from cql.planner.expr import columns_of
from cql.planner.join_condition import NO_BOUND
from cql.planner.physical_joins import OopJoinExec
from cql.planner.physical_progress import progressing

SIDES = ("l", "r")


@dataclass(frozen=True, slots=True)
class Side:
    """What the kernel knows of an input: ``kept`` are its columns that are stored, ``time`` is its
    column in the band."""

    name: str
    other: str
    port: int
    schema: Schema
    keys: tuple[int, ...]
    time: int | None
    kept: tuple[int, ...]
    promise: int | None  # the output column that its time is


@dataclass(slots=True)
class JoinWriter:
    """Writes the kernel; ``sides`` and ``words`` (of a key) are what the operator must store."""

    node: OopJoinExec
    kernel: KernelText = field(default_factory=KernelText)
    sides: tuple[Side, Side] = field(init=False)
    words: int = field(init=False)
    parts: list[KeyPart] = field(init=False)

    def __post_init__(self) -> None:
        node = self.node
        types = [node.left.schema[a].type for a, _ in node.keys]
        self.parts, self.words = pack_keys(types)
        self.sides = (self._side(0), self._side(1))

    def _side(self, port: int) -> Side:
        node = self.node
        schema = (node.left, node.right)[port].schema
        first = len(node.left.schema) if port else 0
        pair = {*node.columns, *columns_of(*node.rest)}
        own = tuple(c for c in range(len(schema)) if first + c in pair)
        time = None if node.band is None else (node.band.left, node.band.right)[port]
        promise = None
        if time is not None and time in progressing((node.left, node.right)[port]):
            promise = next((k for k, c in enumerate(node.columns) if c == first + time), None)
        keys = tuple(key[port] for key in node.keys)
        name, other = SIDES[port], SIDES[1 - port]
        return Side(name, other, port, schema, keys, time, own, promise)

    # -- the whole ---------------------------------------------------------------------------------

    def write(self) -> str:
        kernel, body = self.kernel, self.kernel.body
        for name in ("count", "room", "index mask", *(f"{s}{n}" for s in SIDES for n in _WORDS)):
            kernel.layout.slot(name)
        with body.block():
            body.lines(
                f"o[{SERIAL}] = u[{SERIAL}]",
                f"o[{EPOCH}] = u[{EPOCH}]",
                f"o[{STRAGGLERS}] = 0",
                f"j = o[{ROWS}]",
                "before = j",
            )
            self._declare()
            with body.block("if j == 0:"):
                body.line(f"o[{SEQUENCE}] = {kernel.word('emitted')}")
            for side in self.sides:
                with body.block(f"if u[{PHASE}] == 0 and u[{PORT}] == {side.port}:"):
                    self._rows(side)
            body.lines(f"o[{ROWS}] = j", f"{kernel.counter('rows_out')} += j - before")
            body.line(f"{kernel.word('emitted')} += j - before")
            with body.block(f"if status == 0 and u[{PHASE}] == 1:"):
                self._punctuation()
            self._give_back()
            body.lines(f"u[{DETAIL}] = detail", f"u[{DETAIL_ROW}] = detail_row", "return status")
        sides = (len(side.schema) for side in self.sides)
        return kernel.module(max(*sides, len(self.node.schema)))

    def _declare(self) -> None:
        """Views of the state, and the words that change, as locals."""
        kernel = self.kernel
        room = kernel.declare("room", kernel.word("room"))
        kernel.declare("count", kernel.word("count"))
        mask = kernel.declare("imask", kernel.word("index mask"))
        if self.node.keys:
            kernel.declare("index", f"as_i32({kernel.word('index')}, {mask} + 1)")
        for w in range(self.words):
            kernel.declare(f"key{w}", f"words({kernel.word(f'key{w}')}, {room})")
        for side in self.sides:
            s = side.name
            size = kernel.declare(f"{s}room", kernel.word(f"{s}room"))
            for end in ("head", "tail"):
                kernel.declare(f"{s}{end}", f"as_i32({kernel.word(s + end)}, {room})")
            kernel.declare(f"{s}next", f"as_i32({kernel.word(s + 'next')}, {size})")
            for word in _CHANGING:
                kernel.declare(f"{s}{word}", kernel.word(f"{s}{word}"))
            if side.time is not None:
                kernel.declare(f"{s}t", f"words({kernel.word(s + 't')}, {size})")
                kernel.declare(f"{s}reach", kernel.word(f"{s}reach"))

    def _give_back(self) -> None:
        kernel, body = self.kernel, self.kernel.body
        body.line(f"{kernel.word('count')} = count")
        for side in self.sides:
            for word in _CHANGING:
                body.line(f"{kernel.word(side.name + word)} = {side.name}{word}")
        for name in kernel.counters:
            slot = kernel.layout.slot(name)
            body.line(f"fetch_add_relaxed(desc + {8 * slot}, {name})")

    # -- rows --------------------------------------------------------------------------------------

    def _rows(self, side: Side) -> None:
        kernel, body, s = self.kernel, self.kernel.body, side.name
        body.lines(f"first = u[{CURSOR}]", f"sub = u[{SUB}]", "i = first")
        if side.time is not None:
            body.line(f"left = max({s}bound, -{NO_BOUND}) - {side.other}reach")
        with body.block("for i in range(first, n):"):
            body.line("r = uint64(i)")
            scope = RowScope(kernel, "r")
            scope.columns = list(self._of_unit(side))
            self._key_words(side, scope)
            self._reach(side, scope)
            with body.block("if sub == 0:"):
                need = f"status = 2; detail = {NEED_ROOM + side.port}; detail_row = n - i; break"
                with body.block(f"if {s}top >= {s}room:"):
                    body.line(need)
                with body.block("if count >= room:"):
                    body.line(f"status = 2; detail = {NEED_ROOM + 2}; detail_row = n - i; break")
            self._find(side)
            with body.block("if sub == 0:"):
                self._first_partner(side)
            with body.block("else:"):
                body.lines("x = sub - 2", "sub = 0")
            self._partners(side)
            with body.block("if status != 0:"):
                body.line("break")
            with body.block("if keep:"):
                self._insert(side)
            with body.block("else:"):
                body.line(f"{kernel.counter('not_stored')} += 1")
        with body.block("if status == 0:"):
            body.lines(f"u[{PHASE}] = 1", f"u[{CURSOR}] = n", f"u[{SUB}] = 0")
            body.line(f"{kernel.counter('rows_in')} += n")
        with body.block("else:"):
            body.lines(f"u[{CURSOR}] = i", f"u[{SUB}] = sub")

    def _of_unit(self, side: Side) -> list[Lazy]:
        found = []
        for c, f in enumerate(side.schema):
            data, view = f"{side.name}in{c}", VIEWS[f.type.storage]
            mask = f"{side.name}im{c}" if f.nullable else None
            found.append(
                Lazy(
                    data,
                    f"{view}(u[{data_word(c)}], n)",
                    mask,
                    f"as_u8(u[{mask_word(c)}], n)",
                    f.type,
                )
            )
        return found

    def _stored(self, side: Side) -> list[Lazy]:
        """The columns of row ``at`` of a side; those that are not kept, nobody reads."""
        kernel, s, found = self.kernel, side.name, []
        for c, f in enumerate(side.schema):
            view, room = VIEWS[f.type.storage], f"{s}room"
            data, mask = f"{s}c{c}", f"{s}m{c}" if f.nullable else None
            if c not in side.kept:
                found.append(Lazy(data, "", mask, "", f.type, "at"))
                continue
            mask_view = f"as_u8({kernel.word(f'{s}m{c}')}, {room})" if f.nullable else ""
            data_view = f"{view}({kernel.word(data)}, {room})"
            found.append(Lazy(data, data_view, mask, mask_view, f.type, "uint64(at)"))
        return found

    def _key_words(self, side: Side, scope: RowScope) -> None:
        """Sets ``kw<n>``; a row with a NULL key has no partners."""
        kernel, body = self.kernel, self.kernel.body
        words: list[list[str]] = [[] for _ in range(self.words)]
        for c, part in zip(side.keys, self.parts, strict=True):
            code = scope.load(c)
            if code.valid is not None:
                with body.block(f"if not {code.valid}:"):
                    body.lines(f"{kernel.counter('null_keys')} += 1", "continue")
            words[part.word].append(key_expression(side.schema[c].type, code.value, part))
        if self.node.keys:
            body.lines(*(f"kw{w} = {' | '.join(texts)}" for w, texts in enumerate(words)))

    def _reach(self, side: Side, scope: RowScope) -> None:
        """Sets the times of partners, ``least`` to ``most``, and whether later ones can come."""
        kernel, body, o = self.kernel, self.kernel.body, side.other
        if side.time is None:
            body.line(f"keep = {o}ended == 0")
            return
        code = scope.load(side.time)
        if code.valid is not None:
            with body.block(f"if not {code.valid}:"):
                body.lines(f"{kernel.counter('null_keys')} += 1", "continue")
        body.line(f"t = int64({code.value})")
        # Below what it had been taken to have come to while it was idle.
        with body.block(f"if t < {side.name}bound:"):
            body.lines(f"{kernel.counter('too_late_' + side.name)} += 1", "continue")
        body.lines(
            f"least = t - {o}reach",
            f"most = t + {side.name}reach",
            f"keep = most >= {o}bound",
        )

    def _find(self, side: Side) -> None:
        """Sets ``e`` to the entry of the key, which is made if the row stays; else to -1."""
        body = self.kernel.body
        if not self.node.keys:
            body.line("e = uint64(0)")
            return
        chain = "hash_start(kw0)"
        for w in range(1, self.words):
            chain = f"hash_next({chain}, kw{w})"
        same = " and ".join(f"key{w}[e] == kw{w}" for w in range(self.words))
        body.lines(f"p = hash_end({chain}) & imask", "known = True")
        with body.block("while True:"):
            body.line("found = int64(index[uint64(p)])")
            with body.block("if found == 0:"):
                body.lines("known = False", "e = uint64(count)")
                with body.block("if keep:"):
                    body.lines("count += 1", "index[uint64(p)] = count")
                    body.lines(*(f"key{w}[e] = kw{w}" for w in range(self.words)))
                    ends = (f"{s}{end}[e] = -1" for s in SIDES for end in ("head", "tail"))
                    body.lines(*ends)
                body.line("break")
            body.line("e = uint64(found - 1)")
            with body.block(f"if likely({same}):"):
                body.line("break")
            body.line("p = (p + 1) & imask")

    def _first_partner(self, side: Side) -> None:
        """Sets ``x`` to the oldest row of the other side with that key, without those that no row
        of this side can join any more."""
        body, o = self.kernel.body, side.other
        head = f"int64({o}head[e])"
        body.line(f"x = {head} if known else -1" if self.node.keys else f"x = {head}")
        if side.time is None:
            return
        with body.block(f"if x >= 0 and {o}t[uint64(x)] < left:"):
            with body.block(f"while x >= 0 and {o}t[uint64(x)] < left:"):
                body.line(f"x = int64({o}next[uint64(x)])")
            body.line(f"{o}head[e] = x")
            with body.block("if x < 0:"):
                body.line(f"{o}tail[e] = -1")

    def _partners(self, side: Side) -> None:
        kernel, body, o = self.kernel, self.kernel.body, side.other
        other = self.sides[1 - side.port]
        with body.block("while x >= 0:"):
            body.line("at = x")
            body.line(f"x = int64({o}next[uint64(at)])")
            if side.time is not None:
                body.line(f"y = {o}t[uint64(at)]")
                with body.block("if y < least:"):
                    body.line("continue")
                with body.block("if y > most:"):
                    # later rows of the list are older than this one by no more than any was
                    with body.block(f"if y - {o}disorder > most:"):
                        body.line("break")
                    body.line("continue")
            mine, theirs = self._of_unit(side), self._stored(other)
            pair = RowScope(kernel, "r")
            pair.columns = [*mine, *theirs] if side.port == 0 else [*theirs, *mine]
            for condition in self.node.rest:
                code = emit(condition, pair)
                holds = code.value if code.valid is None else f"({code.valid} and {code.value})"
                with body.block(f"if not {holds}:"):
                    body.line("continue")
            with body.block("if j >= capacity:"):
                body.lines("status = 1", "sub = at + 2", "break")
            out = RowScope(kernel, "r")
            out.columns = [pair.columns[c] for c in self.node.columns]
            store_row(kernel, out, self.node.schema, frozenset())
            body.line("j += 1")

    def _insert(self, side: Side) -> None:
        kernel, body, s = self.kernel, self.kernel.body, side.name
        body.lines(f"q = uint64({s}top)", f"{s}next[q] = -1")
        scope = RowScope(kernel, "r")
        scope.columns = list(self._of_unit(side))
        stored = self._stored(side)
        for c in side.kept:
            code, place = scope.load(c), stored[c]
            view = kernel.declare(place.data, place.data_view)
            body.line(f"{view}[q] = {code.value}")
            if place.mask is not None:
                mask = kernel.declare(place.mask, place.mask_view)
                body.line(f"{mask}[q] = 1 if {code.valid} else 0")
        if side.time is not None:
            body.line(f"{s}t[q] = t")
            with body.block(f"if t >= {s}latest:"):
                body.line(f"{s}latest = t")
            with body.block(f"elif {s}latest - t > {s}disorder:"):
                body.line(f"{s}disorder = min({s}latest - t, {NO_BOUND})")
        body.line(f"last = {s}tail[e]")
        with body.block("if last >= 0:"):
            body.line(f"{s}next[uint64(last)] = {s}top")
        with body.block("else:"):
            body.line(f"{s}head[e] = {s}top")
        body.lines(f"{s}tail[e] = {s}top", f"{s}top += 1")

    # -- progress ----------------------------------------------------------------------------------

    def _punctuation(self) -> None:
        """Bounds rise; what follows for the pairs that can still come goes on (individual
        punctuation: ``ProducePunctuation`` of figure 4)."""
        kernel, body = self.kernel, self.kernel.body
        read = f"words(u[{PUNCTUATION_ADDRESS}], {PUNCTUATION_WORDS} * u[{PUNCTUATIONS}])"
        kernel.declare("arrived", read)
        kernel.declare("sent", f"words(o[{PUNCTUATION_ADDRESS}], 256)")
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
                            body.line(f"{s}bound = max({s}bound, value)")
                    with body.block(f"if attribute == {IDLE}:"):
                        body.line(f"{s}idle = value")
                    with body.block(f"if attribute == {END_OF_INPUT}:"):
                        body.lines(f"{s}ended = 1", f"{s}bound = {INFINITY}")
        for side in self.sides:
            if side.time is not None:
                s, o = side.name, side.other
                with body.block(f"if {s}idle and not ({s}ended or {o}ended or {o}idle):"):
                    body.line(f"{s}bound = max({s}bound, {o}bound)")
        self._promise()

    def _promise(self) -> None:
        kernel, body = self.kernel, self.kernel.body
        for side in self.sides:
            if side.promise is not None:
                s, o = side.name, side.other
                body.line(f"value = min({s}bound, max({o}bound, -{NO_BOUND}) - {s}reach)")
                with body.block(f"if value > {s}promised and value > -{NO_BOUND // 2}:"):
                    body.line(f"{s}promised = value")
                    with body.block("if not (lended and rended):"):
                        self._send(str(side.promise), "value")
        finished = kernel.word("finished")
        with body.block(f"if lended and rended and {finished} == 0:"):
            body.line(f"{finished} = 1")
            self._send(str(END_OF_INPUT), str(INFINITY))
        silent = " and ".join(f"({s}idle or {s}ended)" for s in SIDES)
        body.line(f"idle = int64({silent} and not (lended and rended))")
        with body.block(f"if idle != {kernel.word('idling')}:"):
            body.line(f"{kernel.word('idling')} = idle")
            self._send(str(IDLE), "idle")

    def _send(self, attribute: str, value: str) -> None:
        self.kernel.body.lines(
            f"at = {PUNCTUATION_WORDS} * o[{PUNCTUATIONS}]",
            f"sent[at] = {attribute}",
            f"sent[at + 1] = {value}",
            "sent[at + 2] = -1",
            f"o[{PUNCTUATIONS}] += 1",
        )


#: Words of a side that a kernel changes, and all others.
_CHANGING = ("top", "bound", "ended", "idle", "promised", "latest", "disorder")
_WORDS = (*_CHANGING, "room", "reach")
