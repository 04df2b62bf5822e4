"""An operator of the user as a running operator: Python calls its function for each row that the
kernel (``process_kernel``) requests, and puts what it emits where the kernel reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.types import COMPLEX, DataType, Kind
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.codegen.expressions.scope import Again
from cql.executor.kernels.morsel_layout import (
    CURSOR,
    NEVER,
    PHASE,
    ROWS,
    SERIAL,
    data_word,
    mask_word,
)
from cql.executor.kernels.signals.segments import note_young
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel, Words, stored_dtype
from cql.executor.morsel.sample_types import sample_dtype
from cql.executor.operators.flow.process_kernel import (
    FINISH,
    FINISHING,
    passed_times,
    slots,
    write,
)
from cql.executor.operators.relations.group_index import GroupIndex, columns_of, key_words
from cql.executor.operators.stage.kernel_operator import GeneratedOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes
from cql.executor.state.repartition import KeyColumns
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import BUFFERS, Role, Snapshot
from cql.executor.strings.columns import to_arrow
from cql.executor.strings.dictionary import ARRAYS, RESULTS
from cql.executor.udf.errors import OPERATOR, OPERATOR_END
from cql.executor.udf.operator_calls import Array, OperatorCalls, column_of
from cql.executor.udf.operator_state import state_class
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.python_values import to_python
from cql.planner.nodes.expr import Value
from cql.planner.nodes.logical.running import first_segment
from cql.planner.nodes.physical import ProcessExec

#: Rows for which the function is called before what it emits leaves.
_ROWS = 1024
#: Bytes that the states of these rows may have: each row may have a key of its own.
_STATE_BYTES = 1 << 22


def _saved(name: str) -> str:
    """The name of an array of the user's state in the store; no word of the kernel has it."""
    return f"state {name}"


class ProcessOperator(GeneratedOperator):
    """State: an index of the keys, and for each key the numbers and arrays that the user has
    declared; without PARTITION BY, all rows have one key. Array ``born`` has the place of a key in
    the order in which keys came, 0 for one without a state; ``births`` counts them. Emitted rows
    leave before the morsel is through."""

    def __init__(self, name: str, node: ProcessExec, workspace: Workspace) -> None:
        super().__init__(name, workspace, write(node))
        self.node, self._fields = node, node.function.state
        arguments = tuple(to_python(a.value, a.type) for a in node.arguments)
        account = partial(workspace.resize, what=BUFFERS)
        self._calls = OperatorCalls(node.function, node.names, arguments, account)
        self._failure = ""
        for word in ("base", "through", "failed"):
            self.bind(word, 0)
        schema = node.input.schema
        self._index = GroupIndex([schema[c].type for c in node.partition], name, workspace)
        size = sum(f.size * np.dtype(f.dtype).itemsize for f in self._fields)
        self._batch = max(1, min(_ROWS, _STATE_BYTES // max(size, 1))) if node.partition else _ROWS
        self.resize("births", 1, np.int64)
        self._anchor = first_segment(schema, node.given)
        self._segments = [
            k for k, (_, kind) in enumerate(node.function.returns) if kind.kind is Kind.SIGNAL
        ]
        self._times = passed_times(node)
        self.resize("latest", max(len(self._times), 1), np.int64)
        self.state["latest"][:] = NEVER
        self._ending: Words | None = None
        self._grow(1)
        self._emitted([0])

    def _grow(self, keys: int) -> None:
        """Makes room for the state of so many keys."""
        for f in self._fields:
            self.resize(_saved(f.name), keys * f.size, f.dtype)
        self.resize("born", keys, np.int64)
        self.rebuild()

    def rebuild(self) -> None:
        """Makes the class of the objects that the function gets, over the arrays as they now
        are."""
        arrays = [self.state[_saved(f.name)] for f in self._fields]
        self._state_of = state_class(self._fields, arrays, self.state["born"])

    @property
    def calls_users(self) -> bool:
        return True

    @property
    def numbers_rows(self) -> bool:
        return True

    # -- the calls ---------------------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        """Calls the function for the next rows. Raises RunError if what they emit takes too much
        memory, or TimeLimitError."""
        if morsel.words[PHASE] == FINISH:
            self._finish()
            morsel.words[PHASE] = FINISHING
            return
        first = int(morsel.words[CURSOR])
        last = min(first + self._batch, int(morsel.words[ROWS]))
        calls, firsts, failed = self._calls, [0], -1
        calls.begin()
        columns = [self._column(morsel, c, first, last) for c in self.node.given]
        places = self._places(morsel, first, last)
        for k, place in enumerate(places.tolist()):
            try:
                given = [(values[k], kind) for values, kind in columns]
                firsts.append(self._call(place, given))
                self._place(morsel, firsts[-2], firsts[-1], first + k)
            except EvaluationError as error:
                self._failure, failed, last = error.message, first + k, first + k
                break
        self._forget(places)
        self._note_times(morsel, first, last)
        self.bind("base", first)
        self.bind("through", last)
        self.bind("failed", failed)
        self._emitted(firsts)
        morsel.words[PHASE] = 1

    def _call(self, place: int, given: list[tuple[Value, DataType | None]]) -> int:
        """Calls the function for a row, with the state at ``place``; see ``OperatorCalls.call``."""
        born, births = self.state["born"], self.state["births"]
        if born[place] == 0:
            births[0] += 1
            born[place] = births[0]
        row, segments = list[object](), list[Array]()
        for value, kind in given:
            if kind is None or value is None:
                row.append(value)
            elif kind.kind is Kind.SIGNAL:
                segments.append(self.workspace.signals.view(int(value)))
                assert kind.element is not None
                if kind.is_of_structs and kind.element != COMPLEX:
                    segments.append(segments[-1].view(sample_dtype(kind.element)))
                row.append(segments[-1])
            else:
                row.append(to_python(value, kind))
        return self._calls.call(self._state_of(place), row, segments)

    def _place(self, morsel: Morsel, begin: int, end: int, row: int) -> None:
        """Makes segments of the samples that were emitted for a row, at the times of its first
        segment. Raises RunError if there is no room."""
        if not self._segments or begin == end:
            return
        assert self._anchor is not None
        address = int(morsel.words[data_word(self._anchor)])
        anchor = int(view_address(address, np.dtype(np.int64), row + 1)[row])
        for k in self._segments:
            values = self._calls.values[k]
            for at in range(begin, end):
                made = self.workspace.signals.make_at(anchor, values[at])
                note_young(made, int(morsel.words[SERIAL]))
                values[at] = made

    def _column(
        self, morsel: Morsel, c: int, first: int, last: int
    ) -> tuple[list[Value], DataType | None]:
        """The values of a column of some rows; see ``udf.operator_calls.column_of``."""
        f = self.node.input.schema[c]
        if f.type.kind is Kind.NULL:
            return [None] * (last - first), None
        values, valid = self._stored(morsel, c, first, last)
        if f.type.is_coded:
            return to_arrow(values, valid, f, self.workspace.dictionary).to_pylist(), None
        return column_of(values, valid, f.type)

    def _stored(
        self, morsel: Morsel, c: int, first: int, last: int
    ) -> tuple[Array, npt.NDArray[np.uint8] | None]:
        """A column of some rows as it is stored, and 0 for its NULLs (None: it has none)."""
        f = self.node.input.schema[c]
        address = int(morsel.words[data_word(c)])
        values = view_address(address, stored_dtype(f.type.storage), last)[first:]
        if not f.nullable:
            return values, None
        mask = int(morsel.words[mask_word(c)])
        return values, view_address(mask, np.dtype(np.uint8), last)[first:]

    # -- keys --------------------------------------------------------------------------------------

    def _places(self, morsel: Morsel, first: int, last: int) -> Words:
        """The place of each row's key. Raises RunError if the states take too much memory."""
        rows, by = last - first, self.node.partition
        if not by:
            return np.zeros(rows, np.int64)
        columns = dict[str, Array]()
        for c in by:
            values, valid = self._stored(morsel, c, first, last)
            columns[f"c{c}"] = values
            columns[f"m{c}"] = np.ones(rows, np.uint8) if valid is None else valid
        places, _ = self._index.ids(key_words(columns, by, self._index.types, rows))
        room = len(self.state["born"])
        needed = int(places.max(initial=0)) + 1
        if needed > room:
            self._grow(max(needed, 2 * room))
        return places

    def _forget(self, places: Words) -> None:
        """Gives back those of the ``places`` whose keys have no state."""
        if self.node.partition:
            found = np.unique(places)
            self._index.give_back(found[self.state["born"][found] == 0])

    @property
    def parts(self) -> Sequence[Stateful]:
        return (*super().parts, self._index)

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), parts={"keys": self._index.snapshot()})

    def restore(self, saved: Snapshot) -> None:
        self._index.restore(saved.parts["keys"])
        super().restore(saved)

    # -- the end of the input ----------------------------------------------------------------------

    def _note_times(self, morsel: Morsel, first: int, last: int) -> None:
        """Keeps the greatest value of each column with a watermark."""
        if self.node.function.finish is None:
            return
        latest = self.state["latest"]
        for k, c in enumerate(self._times):
            values, valid = self._stored(morsel, c, first, last)
            there = values if valid is None else values[valid != 0]
            latest[k] = max(latest[k], there.max(initial=NEVER))

    def _finish(self) -> None:
        """Calls the function of the end for the next keys, in the order in which they came. Raises
        RunError if what is emitted takes too much memory, or TimeLimitError."""
        born = self.state["born"]
        if self._ending is None:
            live = np.flatnonzero(born)
            self._ending = live[np.argsort(born[live])]
        places, self._ending = self._ending[:_ROWS], self._ending[_ROWS:]
        calls, firsts, failed = self._calls, [0], -1
        calls.begin()
        for k, place in enumerate(places.tolist()):
            try:
                firsts.append(calls.finish(self._state_of(place)))
            except EvaluationError as error:
                self._failure, failed = f"{error.message} at the end of its input", k
                places, self._ending = places[:k], self._ending[:0]
                break
            born[place] = 0
        self.bind("base", 0)
        self.bind("through", len(places))
        self.bind("failed", failed)
        self.bind("more", int(self._ending.size > 0))
        self.set("finished", 1)
        self._emitted(firsts)
        self._pass_on(np.repeat(places, np.diff(firsts)))

    def _pass_on(self, places: Words) -> None:
        """Puts the input's columns of the last rows, which are of the keys ``places``, where the
        kernel reads them."""
        schema, by = self.node.input.schema, self.node.partition
        found: KeyColumns = [
            (np.full(places.size, value), np.full(places.size, value != NEVER))
            for _, value in zip(self._times, self.state["latest"], strict=False)
        ]
        if by:
            _, words, _, _ = self._index.arrays
            found = [*found, *columns_of(words[places], self._index.types)]
        for c, (values, valid) in zip((*self._times, *by), found, strict=True):
            dtype = stored_dtype(schema[c].type.storage)
            if dtype.kind == "i":
                limits = np.iinfo(dtype)
                values = np.clip(values, limits.min, limits.max)
            name, there = slots(f"passed {c}")
            self._keep(name, values, dtype)
            self._keep(there, np.ones(places.size) if valid is None else valid, np.uint8)

    # -- what is emitted ---------------------------------------------------------------------------

    def _emitted(self, firsts: list[int]) -> None:
        """Puts what the function has emitted where the kernel reads it."""
        count = firsts[-1]
        kinds = (kind for _, kind in self.node.function.returns)
        for k, (kind, given) in enumerate(zip(kinds, self._calls.values, strict=True)):
            values, there = slots(f"made {k}")
            found = given[:count]  # a function that fails has emitted more
            mask = np.array([v is not None for v in found], np.uint8)
            self._keep(there, mask)
            if kind.is_coded:
                texts = [v.encode() if isinstance(v, str) else v for v in found]
                binary = pa.array(texts, pa.binary())
                codes = self.workspace.dictionary.encode_results(
                    binary, ARRAYS if kind.is_nested else RESULTS
                )
                self._keep(values, codes)
            else:
                zeros = [0 if v is None else v for v in found]
                self._keep(values, np.array(zeros, stored_dtype(kind.storage)))
        self._keep("firsts", np.array(firsts, np.int64))

    def _keep(self, name: str, values: Array, dtype: npt.DTypeLike | None = None) -> None:
        self.fresh(name, values.size, dtype or values.dtype, Role.SCRATCH)
        self.state[name][:] = values

    # -- rows that fail ----------------------------------------------------------------------------

    def error(self, morsel: Morsel) -> ErrorSite:
        again = Again(lambda _: None, (), 0)
        kind = OPERATOR if self.refused_kind(morsel) == "bad" else OPERATOR_END
        return ErrorSite(kind, self._failure, self.node.pos, again)

    def refused_kind(self, morsel: Morsel) -> str:
        return "bad_results" if morsel.words[PHASE] >= FINISH else "bad"

    @property
    def fails_by_row(self) -> bool:
        return True

    @property
    def can_fail(self) -> bool:
        return True

    # -- reports and codes -------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        return self.counted()

    def codes(self) -> Iterator[Codes]:
        self._calls.begin()
        self._emitted([0])
        return super().codes()
