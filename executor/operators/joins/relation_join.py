"""Joins of changing relations: inner, outer, and mark (whether each left row has a partner)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from cql.executor.kernels.joins import pair_rows
from cql.executor.kernels.joins import relation_join as kernel
from cql.executor.kernels.joins import relation_pairs as pairs
from cql.executor.kernels.joins import relation_sides as sides
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, NEVER
from cql.executor.kernels.order import row_slab
from cql.executor.kernels.relations import frontier
from cql.executor.morsel.morsel import Morsel, Words, value_bytes
from cql.executor.operators.contract import Operator
from cql.executor.operators.joins import relation_join_condition as writing
from cql.executor.operators.order.row_slab import SLOT, output_words
from cql.executor.operators.relations.grouped import GROUP, GroupedOperator, piece_rows
from cql.executor.operators.relations.key_finder import KeyFinder
from cql.executor.operators.stage.operator import bind_constants, constants, sort_constants
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes
from cql.executor.state.repartition import (
    Owners,
    Values,
    each,
    shared_words,
)
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Snapshot, plain_words, take_plain_words
from cql.planner.nodes.physical import Physical, RelationJoinExec
from cql.planner.nodes.physical import sources as sources_of

_SHOWS = ("inner", "left", "right", "full")
_OF_LEFT = {"left": pairs.WITHOUT, "full": pairs.WITHOUT, "mark": pairs.ANSWER}
_OF_RIGHT = {"right": pairs.WITHOUT, "full": pairs.WITHOUT}
#: Spaces (``state.repartition``): the keys, and by side its distinct rows.
_KEY, _ROWS = "key", ("left row", "right row")
_COUNTERS = (kernel.ROWS_IN, kernel.ROWS_OUT, sides.NULL_KEYS)
#: The addresses in the descriptor.
_BOUND = (
    *(pair_rows.LEFT, pair_rows.RIGHT, sides.KEYS_OF, sides.KEYS_OF + 1, sides.HEADS),
    *(pairs.CONDITION, pairs.CONDITION_WORDS, kernel.RANKED),
)


class _Side(GroupedOperator):
    """An input: the rows that wait, and its distinct rows."""

    addresses: ClassVar = {
        **GroupedOperator.addresses,
        "states": sides.STATES,
        "slot": sides.SLOT,
        "concerned": sides.CONCERNED,
        "dead": sides.DEAD,
        "weights": sides.WEIGHTS,
        "new": sides.NEW,
        "new_ids": sides.NEW_IDS,
        "cause": sides.CAUSE,
    }

    sums: ClassVar = (*GroupedOperator.sums, sides.TOO_LATE)
    scratch = GroupedOperator.scratch | {"concerned", "dead", "weights", "new", "new_ids", "cause"}

    def __init__(self, name: str, node: Physical, workspace: Workspace, *, numbered: bool) -> None:
        self.numbered = numbered
        self.names = ", ".join(s.name for s in sources_of(node))
        time = len(node.schema) - 2
        super().__init__(name, node.schema, range(time), time, time, sides.END, workspace)
        self.open()

    def room_for_piece(self, rows: int) -> None:
        self.resize("weights", rows, np.int64)
        self.resize("new", rows, np.int32)
        self.resize("new_ids", rows, np.int64)
        super().room_for_piece(rows)

    def grow_groups(self, known: int, size: int) -> None:
        self.resize("states", size * sides.FIELDS, np.int64)
        self.resize("slot", size, np.int32)
        self.resize("concerned", size, np.int64)
        self.resize("dead", size, np.int64)
        if self.numbered:
            self.resize("cause", size, np.int64)

    @property
    def layout(self) -> dict[str, Values]:
        refers = {sides.KEY: _KEY, sides.AFTER: GROUP, sides.BEFORE: GROUP}
        return super().layout | {
            "states": Values(GROUP, sides.FIELDS, refers),
            "slot": Values(GROUP, refers={0: SLOT}),
        }

    @property
    def rows(self) -> int:
        """The number of distinct rows."""
        return self._index.capacity - self._index.free

    @property
    def waiting(self) -> int:
        return int(self.descriptor[frontier.TAIL] - self.descriptor[frontier.HEAD])


class _Keys(KeyFinder):
    """The index of the keys of both sides, with the lists of their rows."""

    def __init__(self, owner: str, node: RelationJoinExec, workspace: Workspace) -> None:
        inputs = [
            (child.schema, [key[side] for key in node.keys])
            for side, child in enumerate((node.left, node.right))
        ]
        super().__init__(owner, inputs, workspace, piece_rows(workspace), finds_nulls=False)

    def grow(self, size: int) -> None:
        self.store.resize("heads", size * sides.OF_KEY, np.int64)

    @property
    def layout(self) -> Mapping[str, Values]:
        return {"heads": Values(_KEY, sides.OF_KEY, dict(enumerate(_ROWS)), empty=-1)}


class RelationJoinOperator(Operator):
    """State: the distinct rows of both sides, in lists by key. Per row: its multiplicity, its
    number of partners, and the number of its copies output without a partner (mark joins: with the
    answer). ``numbered``: the output of this partition has the order columns
    (``stage.spec.ORDER``): the instant, and what caused the change (``relation_pairs``)."""

    def __init__(
        self, name: str, node: RelationJoinExec, workspace: Workspace, *, numbered: bool = False
    ) -> None:
        self.name = name
        self.node = node
        self.workspace = workspace
        left, right = node.left, node.right
        self.sides = tuple(
            _Side(name, side, workspace, numbered=numbered) for side in (left, right)
        )
        self._keys = _Keys(name, node, workspace)
        outputs = output_words(node.columns, node.schema, len(node.left.schema) - 2)
        self.descriptor: Words = np.zeros(kernel.FIRST + outputs.size, np.int64)
        d = self.descriptor
        d[kernel.FIRST :] = outputs
        d[[kernel.OUTPUTS, kernel.MARKS]] = len(node.columns), node.kind == "mark"
        d[pairs.WEIGHT_OUT] = len(node.schema) - 1
        d[kernel.TIME_BYTES] = value_bytes(node.schema[len(node.schema) - 2].type)
        d[pairs.SHOWS] = node.kind in _SHOWS
        d[pairs.OWN] = _OF_LEFT.get(node.kind, pairs.NOTHING)
        d[pairs.OWN + 1] = _OF_RIGHT.get(node.kind, pairs.NOTHING)
        d[pairs.CURSOR] = pairs.FIRST_OF_LIST
        d[[sides.WATERMARK, kernel.SENT]] = NEVER
        self._condition = writing.write(node) if node.rest else None
        self._words: Words = np.zeros(2, np.int64)
        if self._condition is not None:
            written = self._condition.kernel
            self._module = workspace.load(written.text)
            d[pairs.CONDITION] = int(self._module.op.address)
            self._words = np.zeros(len(written.slots), np.int64)
            bind_constants(written, self._module, self._words, workspace)
        d[kernel.RANKED] = 0 if self.needs_refresh else 2
        self.address = int(kernel.relation_join.address)
        self._bind()

    def _bind(self) -> None:
        """Writes the addresses of the state into the descriptors."""
        d = self.descriptor
        d[:2] = [side.descriptor.ctypes.data for side in self.sides]
        d[sides.KEYS_OF : sides.KEYS_OF + 2] = [k.ctypes.data for k in self._keys.descriptors]
        d[sides.HEADS] = self._keys.store.arrays["heads"].ctypes.data
        d[pairs.CONDITION_WORDS] = self._words.ctypes.data
        if self._condition is None:
            return
        slots, places = self._condition.kernel.slots, self._condition.places
        for k, side in enumerate(self.sides):
            if f"rows {k}" in slots:
                self._words[slots[f"rows {k}"]] = side.descriptor[row_slab.SLOTS]
        for name, (k, column) in places.items():
            self._words[slots[name]] = self.sides[k].state[column].ctypes.data

    # -- texts -------------------------------------------------------------------------------------

    @property
    def needs_refresh(self) -> bool:
        """Whether the condition compares texts by rank."""
        return self._condition is not None and self._condition.kernel.uses_rank

    def refresh(self) -> None:
        """Gives the condition the current order of texts."""
        if self._condition is not None and self._condition.kernel.uses_rank:
            slots = self._condition.kernel.slots
            self._rank = self.workspace.dictionary.rank()
            self._words[slots["rank"]] = self._rank.ctypes.data
            self._words[slots["rank length"]] = self._rank.size

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        if self._condition is not None:
            yield from constants(self._condition.kernel, self._words)

    def recoded(self) -> None:
        super().recoded()
        if self._condition is not None:
            sort_constants(self._condition.kernel, self._words)

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state; the runtime has no morsel inside. The condition's constants are codes of the
        snapshot, too."""
        left, right = self.sides
        parts = {
            "left": left.snapshot(),
            "right": right.snapshot(),
            "keys": self._keys.snapshot(),
            "condition": Snapshot({}, plain_words(self._words, self._bound_of_condition)),
        }
        return Snapshot({}, plain_words(self.descriptor, _BOUND), parts)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan. The codes are those of the
        snapshot: ``map_codes`` follows."""
        take_plain_words(saved.words, self.descriptor, _BOUND, self.name)
        for side, name in zip(self.sides, ("left", "right"), strict=True):
            side.restore(saved.parts[name])
        self._keys.restore(saved.parts["keys"])
        condition = saved.parts["condition"].words
        take_plain_words(condition, self._words, self._bound_of_condition, self.name)
        self._bind()

    def repartition(self, saved: Sequence[Snapshot], owners: Owners) -> list[Snapshot]:
        names, keys = ("left", "right"), each(saved, "keys")
        takes = self._keys.take(keys, owners, _KEY)
        found = []
        for port, (side, name) in enumerate(zip(self.sides, names, strict=True)):
            columns = [key[port] for key in self.node.keys]
            taking, of_side = side.take(each(saved, name), owners, columns)
            for taken, own in zip(takes, of_side, strict=True):
                own.also(taken, {_KEY: _KEY})
                taken.also(own, {GROUP: _ROWS[port]})
            found.append((side, taking, of_side))
        made = []
        for number, taken in enumerate(takes):
            parts = {
                name: side.part(taking, of_side[number], number)
                for name, (side, taking, of_side) in zip(names, found, strict=True)
            }
            parts |= {
                "keys": self._keys.part(keys, taken, _KEY),
                "condition": saved[0].parts["condition"],
            }
            words = shared_words(saved, number, _COUNTERS)
            made.append(Snapshot({}, words, parts))
        return made

    @property
    def _bound_of_condition(self) -> list[int]:
        """The words of the condition that ``_bind`` or the loader sets."""
        if self._condition is None:
            return []
        kernel = self._condition.kernel
        names = ["rank", "rank length", "rows 0", "rows 1", *self._condition.places]
        names += [f"part {k}" for k in range(kernel.parts)]
        return [kernel.slots[name] for name in names if name in kernel.slots]

    # -- called by the runtime ---------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        port, request = divmod(int(morsel.words[DETAIL]), sides.OF_SIDE)
        if request == kernel.NEED_RANK:
            self.refresh()
            self.descriptor[kernel.RANKED] = 1
        elif request == sides.NEED_KEYS:
            self._keys.make_room(int(morsel.words[DETAIL_ROW]))
        else:
            self.sides[port].answer(request, int(morsel.words[DETAIL_ROW]))
        self._bind()

    @property
    def parts(self) -> Sequence[Stateful]:
        return (*self.sides, self._keys)

    def counters(self) -> dict[str, int]:
        d, (left, right) = self.descriptor, self.sides
        return {
            "rows_in": int(d[kernel.ROWS_IN]),
            "rows_out": int(d[kernel.ROWS_OUT]),
            "held_left": left.rows,
            "held_right": right.rows,
            "groups": self._keys.used,
            "waiting": left.waiting + right.waiting,
            "null_keys": int(d[sides.NULL_KEYS]),
        }

    def too_late(self) -> list[tuple[str, int]]:
        """For each port, the number of its rows that arrived below the watermark because the port
        had been idle."""
        return [(side.names, int(side.descriptor[sides.TOO_LATE])) for side in self.sides]
