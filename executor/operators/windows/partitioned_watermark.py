"""WID over a stream with a per-key watermark (group-wise punctuation, out-of-order paper A.1.1).
The groups of a key value leave, and make room, as soon as the value's watermark passes their
windows. The watermark over all values closes whole windows."""

from __future__ import annotations

from dataclasses import dataclass

from cql.executor.codegen.kernel_builder import NEED_RESULTS, NEED_ROOM
from cql.executor.codegen.key_packing import key_value
from cql.executor.codegen.morsel_io import read_punctuation
from cql.executor.kernels.morsel_layout import (
    NEVER,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
)
from cql.executor.kernels.windows.partitioned_watermark import REQUEST
from cql.executor.operators.stage.spec import Table, columns_at
from cql.executor.operators.windows.bounds import Spans
from cql.executor.operators.windows.wid import AggregateTerminal
from cql.planner.nodes.expr import substitute
from cql.planner.nodes.watermarks import value_origin

VALUES = "v"
#: For each window and each table that is kept beside the groups: the number of entries of groups
#: that have left.
MARKED = "marked"


@dataclass(slots=True)
class PartitionedWatermarkTerminal(AggregateTerminal):
    """Ends a stage with windows whose groups leave by the per-key watermark."""

    def __post_init__(self) -> None:
        AggregateTerminal.__post_init__(self)
        marked = (MARKED + table.suffix for table in self._kept)
        for name in (*REQUEST, *marked):  # right behind the tables
            self.writer.kernel.layout.slot(name)
        if self.node.keys[self._by].type.is_coded:
            of_value = (("", "of_value", 0), (VALUES, "value", 0))
            self.codes = (*self.codes, *of_value)

    @property
    def _by(self) -> int:
        """The number of the key whose values have watermarks of their own."""
        assert self.node.by is not None
        return self.node.by

    @property
    def _column(self) -> int:
        """The stage's input column that is this key."""
        key = substitute(self.node.keys[self._by], columns_at(self.writer.spec)[-1])
        column = value_origin(key)
        assert column is not None
        return column

    @property
    def _direct(self) -> bool:
        return False  # the library looks up groups that leave, by their hash

    def _group_columns(self) -> tuple[tuple[str, str], ...]:
        names = ["after", "before", "of_value", "of_null"]
        kept = [*map(str, self.distinct), *(log.suffix for log in self.logs)]
        if kept:
            names += ["number", *(f"latest{suffix}" for suffix in kept)]
        names += ["done"] * bool(self.logs)
        return tuple((name, "int64") for name in names)

    def _more_tables(self) -> tuple[Table, ...]:
        columns = tuple((name, "int64") for name in ("value", "null", "first"))
        return (Table(VALUES, columns, 2),)

    # -- values beside the groups ------------------------------------------------------------------

    @property
    def _kept(self) -> tuple[Table, ...]:
        return self.tables[1:-1]

    def _kept_beside(self, table: Table) -> Table:
        """The table with the owner as second column, and the owner's earlier entry as third."""
        owner = next(c for c in table.columns if c[0].startswith("owner"))
        first, *others = (c for c in table.columns if c != owner)
        columns = (first, owner, (f"earlier{table.suffix}", "int64"), *others)
        return Table(table.suffix, columns, table.hashed)

    def _owner(self) -> str:
        return "number[g]"

    def _note_kept(self, suffix: str, at: str) -> list[str]:
        latest = f"latest{suffix}[g]"
        return [f"earlier{suffix}[{at}] = {latest}", f"{latest} = counts{suffix}[slot]"]

    def _end_of_window(self, closing: str, group: str) -> None:
        AggregateTerminal._end_of_window(self, closing, group)
        kernel = self.writer.kernel
        for table in self._kept:
            name = MARKED + table.suffix
            kernel.declare(name, f"words({kernel.word(name)}, {kernel.word('slots')})")
            kernel.body.line(f"{name}[slot] = 0")

    # -- a new group -------------------------------------------------------------------------------

    def _room_for_group(self) -> None:
        """Makes sure that the group's key value has an entry."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        key, part = self.node.keys[self._by], self._parts[self._by]
        null = "0"
        if self._compares_nulls and key.nullable:
            null = f"(kn >> {self._null_bit(self._by)}) & 1"
        value = f"int64({key_value(key.type, f'kw{part.word}', part)})"
        body.lines(
            f"{kernel.word('requested_value')} = {value}",
            f"{kernel.word('requested_null')} = {null}",
        )
        with body.block(f"if call_operator({kernel.word('value_entry')}, desc, slot) < 0:"):
            table = len(self.tables) - 1
            body.line(f"grown = {self._grow(table)}")
            with body.block("if grown < 0:"):
                body.lines("status = 2", f"detail = {NEED_ROOM + table}")
                body.lines(f"detail_row = 4 << classes{VALUES}[slot]", "break")
            body.line("continue")

    def _init_lines(self) -> list[str]:
        kernel = self.writer.kernel
        lines = AggregateTerminal._init_lines(self)
        if self._kept:
            number = kernel.word("numbers_given")
            lines += [f"number[g] = {number}", f"{number} += 1"]
            lines += [f"latest{table.suffix}[g] = 0" for table in self._kept]
        if self.logs:
            lines.append("done[g] = 0")
        return [*lines, f"call_operator({kernel.word('link_group')}, desc, slot)"]

    # -- groups that leave -------------------------------------------------------------------------

    def _on_punctuation(self) -> None:
        kernel = self.writer.kernel
        kernel.body.lines(f"{kernel.word('group_at')} = 0", f"{kernel.word('group_begun')} = 0")

    def _flush(self) -> None:
        """Gives the groups that per-key punctuation closes, then whole windows."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        at, begun = kernel.word("group_at"), kernel.word("group_begun")
        read_punctuation(kernel)
        kernel.counter("rows_out")
        closed, groups = kernel.counter("windows_closed"), kernel.counter("groups_out")
        body.lines(f"j = o[{ROWS}]", "before = j")
        with body.block("if j == 0:"):
            body.line(f"o[{SEQUENCE}] = {kernel.word('emitted')}")
        with body.block(f"while status == 0 and {at} < u[{PUNCTUATIONS}]:"):
            self._request_groups()
            body.line(f"i = call_operator({kernel.word('next_group')}, desc, 0)")
            with body.block("if i < 0:"):
                body.lines(f"{at} += 2", f"{begun} = 0", "continue")
            with body.block("if j >= capacity:"):
                body.lines("status = 1", "break")
            body.line(f"slot = {kernel.word('requested_slot')}")
            self._window_of_slot()
            self._window_bounds()
            body.line("g = uint64(bases[slot] + i)")
            if self.logs:
                with body.block("if done[g] == 0:"):
                    body.lines("status = 2", f"detail = {NEED_RESULTS}")
                    body.lines("detail_row = ~slot", "break")
            # a loop of one round, which a row that fails or is filtered leaves
            with body.block("for once in range(1):"):
                self._result_row()
            with body.block("if status == 2:"):
                body.line("break")
            with body.block("if status == 3:"):
                body.line("detail_row = i")
            body.line(f"{groups} += 1")
            body.line(f"{closed} += call_operator({kernel.word('drop_group')}, desc, i)")
        body.lines(f"o[{ROWS}] = j", "rows_out += j - before")
        body.line(f"{kernel.word('emitted')} += j - before")
        AggregateTerminal._flush(self)

    def _request_groups(self) -> None:
        """Goes on to the next per-key punctuation; requests the groups of its value in the windows
        that it closes."""
        body, kernel, window = self.writer.kernel.body, self.writer.kernel, self.node.window
        assert window is not None
        at, spans = kernel.word("group_at"), Spans(self.writer, window)
        attribute = self._attribute_of(window.wa or 0).attribute
        body.line(f"p = {PUNCTUATION_WORDS} * {at}")
        with body.block(f"if arrived[p] != {attribute} or arrived[p + 2] != {self._column}:"):
            body.lines(f"{at} += 1", "continue")
        with body.block(f"if {kernel.word('group_begun')} == 0:"):
            body.lines("value = arrived[p + 1]", "w = arrived[p + 3]")
            body.lines(
                f"{kernel.word('requested_from')} = {spans.first('w')} if w > NEVER else {NEVER}",
                f"{kernel.word('requested_to')} = {spans.first('value')} - 1",
                f"{kernel.word('requested_value')} = arrived[p + {PUNCTUATION_WORDS + 1}]",
                f"{kernel.word('requested_null')} = arrived[p + {PUNCTUATION_WORDS + 3}]",
                f"{kernel.word('requested_slot')} = -1",
                f"{kernel.word('group_begun')} = 1",
            )
