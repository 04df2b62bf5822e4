"""A join with a table as a running operator. The operator reads the table to its end, then stores
the rows by key: the rows of one key are adjacent and keep the table's order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cql.base.types import DataType, Kind
from cql.errors import RunError
from cql.executor.codegen.key_packing import KeyPart
from cql.executor.kernels.joins.oop_join import index_keys
from cql.executor.kernels.morsel_layout import (
    END_OF_INPUT,
    PHASE,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
)
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.contract import Parallelism
from cql.executor.operators.joins import lookup_join_kernel
from cql.executor.operators.joins.row_batch import append_part, joined, nbytes, rows_of, take
from cql.executor.operators.relations.group_index import canonical
from cql.executor.operators.stage import sharing
from cql.executor.operators.stage.kernel_operator import GeneratedOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes, not_null
from cql.executor.state.store import Role, Snapshot, State
from cql.planner.nodes.physical import TableJoinExec, sources

#: Places of the hash index per key.
_PLACES = 2


class TableJoinOperator(GeneratedOperator):
    """State: the table's columns that the kernel reads, ``tc<i>`` and ``tm<i>``; the words of the
    distinct keys, the first row of each key (``starts``), and the hash index over the keys.
    ``_parts``: the rows received so far of a table that is being read."""

    def __init__(self, name: str, node: TableJoinExec, workspace: Workspace) -> None:
        code = lookup_join_kernel.write(node)
        super().__init__(name, workspace, code.kernel)
        self.node = node
        self._parts: list[State] = []
        self.store.roles["index"] = Role.DERIVED
        self._kept, self._words, self._key_parts = code.kept, code.words, code.parts
        self._place({}, 0)
        self._versions = 0

    # -- the table ---------------------------------------------------------------------------------

    def _take_in(self, morsel: Morsel) -> None:
        """Takes rows of the table; drops rows with a NULL in their key, which have no partners."""
        if not morsel.words[ROWS]:
            return
        rows = rows_of(morsel, self.node.table.schema)
        keys = [b for _, b in self.node.keys]
        valid = np.ones(int(morsel.words[ROWS]), bool)
        for b in keys:
            valid &= rows[f"m{b}"] != 0
        wanted = {*self._kept, *keys}
        rows = {name: a for name, a in rows.items() if int(name[1:]) in wanted or name == "c0"}
        rows = rows if valid.all() else take(rows, valid)
        before = nbytes(self._parts)
        self._account(before, before + nbytes([rows]))
        append_part(self._parts, rows)

    def _complete(self) -> None:
        """Called at the end of the table: sorts the rows by key and replaces the old version."""
        self._versions += 1
        parts, self._parts = self._parts, []
        rows = joined(parts) if parts else {}
        parts.clear()
        read = nbytes([rows])
        count = int(rows["c0"].size) if rows else 0
        order, firsts = np.arange(count), np.zeros(0, np.int64)
        keys: list[Words] = []
        if self.node.keys:
            words = self._key_words(rows, count)
            order = np.argsort(words[0], kind="stable") if len(words) == 1 else np.lexsort(words)
            words = [w[order] for w in words]
            new = np.ones(count, bool)
            if count:
                new[1:] = np.logical_or.reduce([w[1:] != w[:-1] for w in words])
            firsts = np.flatnonzero(new)
            keys = [w[firsts] for w in words]
        state: State = {}
        for c in self._kept:
            state[f"tc{c}"] = rows[f"c{c}"][order] if rows else np.zeros(0, np.int64)
            if self.node.table.schema[c].nullable:
                state[f"tm{c}"] = rows[f"m{c}"][order] if rows else np.zeros(0, np.uint8)
        if self.node.keys:
            state |= {f"key{w}": words for w, words in enumerate(keys)}
            state["starts"] = np.append(firsts, count)
            places = _PLACES * max(1, firsts.size)
            state["index"] = np.zeros(1 << (places - 1).bit_length(), np.int64)
        self._place(state, count)
        self.workspace.resize(read, 0, self.name)

    def _account(self, before: int, after: int) -> None:
        try:
            self.workspace.resize(before, after, self.name)
        except RunError as error:
            names = ", ".join(s.name for s in sources(self.node.table))
            raise RunError(
                f"the table {names} does not fit: its rows take {after:,} bytes or more, over"
                f" max_state = {self.workspace.limit:,}, which the whole query has",
                position=self.node.pos,
                hint="SET max_state = '<size>', or read less of it: WHERE, fewer columns",
            ) from error

    def _key_words(self, rows: State, count: int) -> list[Words]:
        words = [np.zeros(count, np.int64) for _ in range(self._words)]
        for (_, b), part in zip(self.node.keys, self._key_parts, strict=True):
            if count:
                words[part.word] |= _key_bits(rows[f"c{b}"], self.node.table.schema[b].type, part)
        return words

    def _place(self, state: State, rows: int) -> None:
        """Replaces the stored table by ``state``; ``rows``: its number of rows."""
        if self.node.keys and not state:
            state = {f"key{w}": np.zeros(0, np.int64) for w in range(self._words)}
            state |= {"starts": np.zeros(1, np.int64), "index": np.zeros(2, np.int64)}
        self._account(nbytes([self.state]), nbytes([state]))
        self.store.put(state)
        self.set("rows", rows)
        if self.node.keys:
            self.set("entries", state["starts"].size - 1)
            self.set("index mask", state["index"].size - 1)
            self._index()
        for name, array in state.items():
            self.bind(name, array.ctypes.data)

    def snapshot(self) -> Snapshot:
        """The stored version of the table, and the received rows of the next one."""
        parts = joined(self._parts) if self._parts else {}
        received = {name: array.copy() for name, array in parts.items()}
        table = Snapshot(received, np.array([self._versions], np.int64))
        return replace(super().snapshot(), parts={"table": table})

    def restore(self, saved: Snapshot) -> None:
        """Continues with the version of the table that the snapshot has, even if the table has
        changed since: a refresh replaces it when it is due."""
        if self.node.keys:
            mask = int(saved.words[self.slot("index mask")])
            self.fresh("index", mask + 1, np.int64, Role.DERIVED)
        super().restore(saved)
        table = saved.parts["table"]
        self._versions = int(table.words[0])
        self._parts = [{n: a.copy() for n, a in table.arrays.items()}] if table.arrays else []
        self._account(0, nbytes(self._parts))

    def rebuild(self) -> None:
        if self.node.keys:
            self._index()

    def _index(self) -> None:
        self.state["index"][:] = 0
        keys = np.ascontiguousarray([self.state[f"key{w}"] for w in range(self._words)])
        index_keys(keys, self.state["starts"].size - 1, self.state["index"])

    # -- called by the runtime ---------------------------------------------------------------------

    @property
    def parallelism(self) -> Parallelism:
        """Rows of the stream only read the table."""
        own = sharing.needs_python(self._kernel)
        return Parallelism.SERIAL if own else Parallelism.STATELESS

    @property
    def port_alone(self) -> int | None:
        return lookup_join_kernel.TABLE

    @property
    def numbers_rows(self) -> bool:
        return True

    def provide(self, morsel: Morsel) -> None:
        """Takes in a morsel of the table."""
        self._take_in(morsel)
        ends = morsel.punctuations[: PUNCTUATION_WORDS * int(morsel.words[PUNCTUATIONS])]
        if END_OF_INPUT in ends[::PUNCTUATION_WORDS]:
            self._complete()
        morsel.words[PHASE] = 1

    def counters(self) -> dict[str, int]:
        reported = {"table_rows": self.get("rows"), "table_versions": self._versions}
        return self.counted() | reported

    @property
    def nbytes(self) -> int:
        return super().nbytes + nbytes(self._parts)

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        schema = self.node.table.schema
        for c in (c for c, f in enumerate(schema) if f.type.is_coded):
            for rows, of in ((self.state, "t"), *((part, "") for part in self._parts)):
                if (column := rows.get(f"{of}c{c}")) is not None:
                    yield not_null(column, rows.get(f"{of}m{c}"), np.arange(column.size))
        for (_, b), place in zip(self.node.keys, self._key_parts, strict=True):
            if schema[b].type.is_coded:
                yield Codes(self.state[f"key{place.word}"], shift=place.shift)

    def recoded(self) -> None:
        super().recoded()
        self.rebuild()


def _key_bits(values: npt.NDArray[np.generic], kind: DataType, part: KeyPart) -> Words:
    """The bits of key values at their place in the word (``key_packing.key_expression``)."""
    if kind.is_fraction:
        bits = canonical(values)
    elif kind.kind is Kind.BOOLEAN:
        bits = (values != 0).astype(np.int64)
    else:
        bits = values.astype(np.int64)
    if part.bits < 64:
        bits = bits & ((1 << part.bits) - 1)
    return bits << part.shift
