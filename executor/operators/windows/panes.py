"""Panes: sliding windows that share partial aggregates (Li et al., "No Pane, No Gain", SIGMOD
Record 34(1), 2005: reference [15] of the out-of-order paper, for its sliding windows).

The time line is cut into panes as long as the greatest common divisor of RANGE and SLIDE, so that a
window is a run of whole panes. A row goes into one pane, however many windows hold it. When
punctuation closes a window, its panes are merged into it; the panes that no later window holds are
given back.

Panes and windows are regions of one directory: pane p has the id 2p, the window that begins with
pane p has 2p + 1. Before it closes, a window has a region only for late rows: a late row that some
window of its pane must leave out goes, as in WID, into each of the pane's other windows.
"""

from __future__ import annotations

from dataclasses import dataclass

from cql.executor.codegen.key_packing import WORD, key_value
from cql.executor.operators.aggregates.code import argument
from cql.executor.operators.stage.scope import StageScope
from cql.executor.operators.windows.bounds import Spans
from cql.executor.operators.windows.group_table import REGION
from cql.executor.operators.windows.wid import WITHIN_BOUNDS, AggregateTerminal

#: Bits of a group's birth that hold a stream position; the number of the pane in its window stands
#: above them.
_PANE_BITS = 48


@dataclass(slots=True)
class PaneTerminal(AggregateTerminal):
    """Ends a stage with an aggregate over sliding windows of ``node.pane``-wide panes."""

    @property
    def _single_window(self) -> bool:
        """True: a row falls into one pane."""
        return True

    @property
    def _pane(self) -> str:
        assert self.node.pane is not None
        assert self.node.window is not None
        return Spans(self.writer, self.node.window).length("pane", self.node.pane)

    @property
    def _slide_panes(self) -> str:
        window, pane = self.node.window, self.node.pane
        assert window is not None
        assert pane is not None
        return self.writer.window_constant("slide_panes", (window.slide or 0) // pane)

    @property
    def _range_panes(self) -> str:
        window, pane = self.node.window, self.node.pane
        assert window is not None
        assert pane is not None
        return self.writer.window_constant("range_panes", (window.range or 0) // pane)

    @property
    def _ids(self) -> int:
        """The number of region ids for each pane."""
        return 2

    def _group_columns(self) -> tuple[tuple[str, str], ...]:
        """The number of the window's group that a pane's group was merged into, for the values that
        are kept beside the pane's groups."""
        return (("into", "int64"),) if self.distinct or self.logs else ()

    # -- one row ---------------------------------------------------------------------------------

    def _enter_window(self, scope: StageScope, t: str, arguments: list[str | None]) -> None:
        """Opens the row's pane; a late row may go into single windows instead."""
        writer, window = self.writer, self.node.window
        assert window is not None
        body, spans = writer.kernel.body, Spans(writer, window)
        writer.mark_late_row()
        writer.check_event_time(scope, t)
        body.line(f"pane = {spans.unit(t)} // {self._pane}")
        with body.block("if late_at >= 0:"):
            self._row_watermark(window.wa or 0)
            with body.block(f"if {self._first_end('pane')} <= own:"):
                self._each_window(arguments)
        self._before_pane(arguments)
        body.line(f"w = {self._ids} * pane")
        self._open_window(leave="break")
        body.line(f"low = {spans.at(f'pane * {self._pane}')}")
        body.line(f"high = {spans.at(f'(pane + 1) * {self._pane}')}")
        body.lines(WITHIN_BOUNDS, "span = high - low")

    def _before_pane(self, arguments: list[str | None]) -> None:
        """Writes code for rows that go elsewhere; it continues with the next row."""

    def _first_end(self, pane: str) -> str:
        """The end of the first window that holds a pane."""
        return self._end_of(f"({self._first_window(pane)})")

    def _each_window(self, arguments: list[str | None]) -> None:
        """Puts the row into each window of its pane for which the row is not late. The kernel may
        leave between two windows."""
        body = self.writer.kernel.body
        late = self.writer.kernel.counter("late_pairs")
        first = self._first_window("pane")
        assert self.node.window is not None
        since = Spans(self.writer, self.node.window).since
        with body.block(f"for v in range({first} + skip, {self._last_window('pane')} + 1):"):
            with body.block(f"if {self._end_of('v')} <= own:"):
                counted = "1" if since is None else f"int64(own >= {since})"
                body.lines(f"{late} += {counted}", "continue")
            body.line(f"sub = v - ({first})")
            body.line(f"w = 2 * v * {self._slide_panes} + 1")
            self._open_window(leave="break")
            self._update(arguments, ["break"])
        with body.block("if status != 0:"):
            body.line("break")
        body.lines("sub = -1", "skip = 0", "continue")

    def _first_window(self, pane: str) -> str:
        """The first window that holds a pane: the ceiling of (its end - RANGE) / SLIDE."""
        return f"-(({self._range_panes} - {pane} - 1) // {self._slide_panes})"

    def _last_window(self, pane: str) -> str:
        return f"{pane} // {self._slide_panes}"

    def _end_of(self, w: str) -> str:
        assert self.node.window is not None
        return Spans(self.writer, self.node.window).end(w)

    # -- closing ---------------------------------------------------------------------------------

    def _next_window(self, closing: str, group: str) -> None:
        """Gives back the panes whose last window has left, then finds the first window that still
        has panes, and opens it if the watermark has reached its end."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        opened, following = kernel.word("open"), kernel.word("next_window")
        self._purge()
        with body.block(f"if {opened} == 0:"):
            body.line("break")
        body.line(f"v = max({following}, {self._first_window('(heap[0] >> 1)')})")
        with body.block(f"if {kernel.word('watermark')} < {self._end_of('v')}:"):
            body.line("break")
        body.line(f"w = 2 * v * {self._slide_panes} + 1")
        self._open_leaving(closing, group)

    def _open_leaving(self, closing: str, group: str) -> None:
        """Opens region ``w`` for the window that leaves; nothing has been merged into it yet."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        self._open_window(leave="break")
        body.lines(f"{closing} = slot", f"{group} = 0")
        body.lines(f"{kernel.word('merging')} = 0", f"{kernel.word('merged')} = 0")

    def _purge(self) -> None:
        """Gives back the regions whose last window has left."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        with body.block(f"while {kernel.word('open')} > 0:"):
            last = self._last_window("(heap[0] >> 1)")
            with body.block(f"if {last} >= {kernel.word('next_window')}:"):
                body.line("break")
            self._give_back()

    def _give_back(self) -> None:
        """Gives back the first region of the heap."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        find, close = kernel.word("find_window"), kernel.word("close_window")
        body.line(f"call_operator({close}, desc, call_operator({find}, desc, heap[0]))")

    def _window_of_slot(self) -> None:
        self.writer.kernel.body.line(f"w = (window_ids[slot] >> 1) // {self._slide_panes}")

    def _complete(self) -> None:
        """Merges the panes of the window in ``slot`` into it; the kernel may leave between two
        groups."""
        merging = self.writer.kernel.word("merging")
        at = f"2 * (w * {self._slide_panes} + {merging})"
        self._merge_regions(self._range_panes, f"source = {at}")

    def _merge_regions(self, count: str, *source: str) -> None:
        """Merges ``count`` regions, as far as they exist, into the region in ``slot``; the lines
        ``source`` set the id of the next region."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        merging, merged = kernel.word("merging"), kernel.word("merged")
        body.lines(*REGION, "count = counts[slot]")
        with body.block(f"while {merging} < {count}:"):
            body.lines(*source)
            body.line(f"source = call_operator({kernel.word('find_window')}, desc, source)")
            with body.block("if source >= 0:"):
                self._merge_region()
            with body.block("if status != 0:"):
                body.line("break")
            body.lines(f"{merged} = 0", f"{merging} += 1")
        with body.block("if status != 0:"):
            body.line("break")

    def _merge_region(self) -> None:
        """Merges region ``source``, from its group ``merged`` on, into the region in ``slot``."""
        body, merged = self.writer.kernel.body, self.writer.kernel.word("merged")
        body.line("begin = bases[source]")
        with body.block(f"for i in range({merged}, counts[source]):"):
            body.lines(f"{merged} = i", "m = uint64(begin + i)")
            self._merge_group()
        for k in self.distinct:
            self._merge_set(k)

    def _merge_group(self) -> None:
        self._words_of("m")
        before = self._birth
        # Groups of late rows come first, then the groups of each pane.
        self._birth = f"({self.writer.kernel.word('merging')} + 1) << {_PANE_BITS} | born[m]"
        self._find_group(["break"])
        self._birth = before
        if self.distinct or self.logs:
            self.writer.kernel.body.line("into[m] = int64(g) - base")
        self._merge_states()

    def _merge_states(self) -> None:
        for k, code in enumerate(self._codes):
            if k not in self.distinct and code.merge:
                self._emit(k, code.merge, "break")

    def _merge_set(self, k: int) -> None:
        """Adds a pane's values of call ``k`` to those of the window. If the kernel had to leave, it
        adds all of them again: a value that is there already changes nothing."""
        body, kind = self.writer.kernel.body, self.node.calls[k].args[0].type
        with body.block("if status == 0:"):
            body.lines(f"{self.writer.kernel.word('merged')} = counts[source]")
            body.line(f"first_of = bases{k}[source]")
            with body.block(f"for v in range(first_of, first_of + counts{k}[source]):"):
                body.line(f"g = uint64(base + into[uint64(begin + owner{k}[v])])")
                body.line(f"{argument(k, 0)} = {key_value(kind, f'value{k}[v]', WORD)}")
                self._insert_distinct(k, ["break"])

    def _end_of_window(self, closing: str, group: str) -> None:
        """Counts the window. Its own region is given back with the first of its panes."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        self._pause(group)
        closed, groups = kernel.counter("windows_closed"), kernel.counter("groups_out")
        with body.block("if counts[slot] > 0:"):
            body.lines(f"{closed} += 1", f"{groups} += counts[slot]")
        body.lines(f"{kernel.word('next_window')} = w + 1", f"{closing} = -1")
