"""Subtract-on-evict: one running aggregate, RUN, of the window at hand. A pane is added to RUN when
the first window that holds it closes, and subtracted when the next window no longer holds it
(Hirzel, Schneider and Tangwongsan, "Sliding-Window Aggregation Algorithms", DEBS 2017, section 2;
here over panes, per group).

    panes     [p2] [p3] [p4] [p5] [p6]        next window: p4 to p8
    RUN        p2 + … + p6                    - p2 - p3 + p7 + p8

A window costs two merges of a group for each pane of its slide, however many panes it has, and its
groups leave from RUN directly. This needs states that can be subtracted exactly: counts, sums of
integers and decimals (``AggregateCode.subtract``).

As with two stacks, no row can come to a pane that has been added. The region of a window's late
rows is added before the window leaves and subtracted afterwards. A *dead* group of RUN, to which no
region contributes any more, stays until half of the groups are dead; then RUN is rebuilt from all
panes of the window.
"""

from __future__ import annotations

from dataclasses import dataclass

from cql.executor.kernels.windows.region_table import FIRST_TABLE
from cql.executor.operators.windows.panes import PaneTerminal

#: The id of RUN's region, above those of all panes and windows.
RUN = (1 << 63) - 1
#: A number of dead groups for which RUN is never rebuilt.
_FEW = 64
#: The stages of closing a window, in this order.
_BEGIN, _LEAVE, _ENTER, _LATE, _READY = range(5)


@dataclass(slots=True)
class SubtractTerminal(PaneTerminal):
    """Ends a stage with a running aggregate over sliding windows."""

    def _group_columns(self) -> tuple[tuple[str, str], ...]:
        """The number of regions that contribute to a group of RUN."""
        return (("held", "int64"),)

    def _init_lines(self) -> list[str]:
        return [*PaneTerminal._init_lines(self), "held[g] = 0"]

    def _next_window(self, closing: str, group: str) -> None:
        body, kernel = self.writer.kernel.body, self.writer.kernel
        self._purge()
        with body.block(f"if {kernel.word('open')} == 0 or heap[0] == {RUN}:"):
            body.line("break")
        first = self._first_window("(heap[0] >> 1)")
        body.line(f"v = max({kernel.word('next_window')}, {first})")
        with body.block(f"if {kernel.word('watermark')} < {self._end_of('v')}:"):
            body.line("break")
        body.line(f"w = {RUN}")
        self._open_leaving(closing, group)
        body.lines(f"{kernel.word('next_window')} = v", f"{kernel.word('stage')} = {_BEGIN}")

    def _purge(self) -> None:
        """Gives back the panes that have left RUN, and the regions of the late rows of windows that
        began with these panes."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        with body.block(f"while {kernel.word('open')} > 0:"):
            with body.block(f"if (heap[0] >> 1) >= {kernel.word('front')}:"):
                body.line("break")
            self._give_back()

    def _window_of_slot(self) -> None:
        """Sets ``w`` to ``next_window``: the leaving window, until it has left."""
        self.writer.kernel.body.line(f"w = {self.writer.kernel.word('next_window')}")

    def _complete(self) -> None:
        """Makes RUN the window's aggregate, step by step: a step adds or subtracts the groups of
        one region; the kernel may leave between two groups."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        stage, step, merged = (kernel.word(name) for name in ("stage", "merging", "merged"))
        front, back, live = (kernel.word(name) for name in ("front", "back", "live"))
        body.lines(f"pane = w * {self._slide_panes}", f"last = pane + {self._range_panes} - 1")
        with body.block(f"if {stage} == {_BEGIN}:"):
            with body.block(f"if pane > {back} or 2 * {live} + {_FEW} < counts[slot]:"):
                block, empty = f"desc + {8 * FIRST_TABLE}", kernel.word("empty_region")
                body.line(f"call_operator({empty}, {block}, slot)")
                body.lines(f"{live} = 0", f"{front} = pane", f"{back} = pane - 1")
            body.lines(f"{stage} = {_LEAVE}", f"{step} = {front}")
        with body.block("while True:"):
            with body.block(f"if {stage} == {_LEAVE} and {step} >= pane:"):
                body.lines(f"{front} = pane", f"{stage} = {_ENTER}", f"{step} = {back} + 1")
            with body.block(f"if {stage} == {_ENTER} and {step} > last:"):
                body.lines(f"{back} = last", f"{stage} = {_LATE}", f"{step} = 0")
            with body.block(f"if {stage} == {_LATE} and {step} > 0:"):
                body.line(f"{stage} = {_READY}")
            with body.block(f"if {stage} == {_READY}:"):
                body.line("break")
            body.line(f"from_id = 2 * pane + 1 if {stage} == {_LATE} else 2 * {step}")
            self._from_region(f"{stage} == {_LEAVE}", merged)
            with body.block("if status != 0:"):
                body.line("break")
            body.lines(f"{merged} = 0", f"{step} += 1")
        with body.block("if status != 0:"):
            body.line("break")
        body.line(f"slot = {kernel.word('closing')}")
        self._window_of_slot()

    def _from_region(self, leaves: str, merged: str) -> None:
        """Adds the groups of the region ``from_id``, if there is one, to those of RUN, or subtracts
        them where ``leaves`` holds."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        live = kernel.word("live")
        body.line(f"source = call_operator({kernel.word('find_window')}, desc, from_id)")
        with body.block("if source >= 0:"):
            body.line(f"w = {RUN}")
            self._open_window(leave="break")
            body.line("begin = bases[source]")
            with body.block(f"for i in range({merged}, counts[source]):"):
                body.lines(f"{merged} = i", "m = uint64(begin + i)")
                self._words_of("m")
                self._find_group(["break"])
                with body.block(f"if {leaves}:"):
                    body.lines(*(line for code in self._codes for line in code.subtract))
                    body.lines("held[g] -= 1", f"{live} -= held[g] == 0")
                with body.block("else:"):
                    body.lines(f"{live} += held[g] == 0", "held[g] += 1")
                    self._merge_states()

    def _before_group(self) -> None:
        with self.writer.kernel.body.block("if held[g] == 0:"):
            self.writer.kernel.body.line("continue")

    def _end_of_window(self, closing: str, group: str) -> None:
        """Counts the window, and subtracts the region of its late rows."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        self._pause(group)
        live, merged = kernel.word("live"), kernel.word("merged")
        closed, groups = kernel.counter("windows_closed"), kernel.counter("groups_out")
        with body.block(f"if {live} > 0:"):
            body.lines(f"{closed} += 1", f"{groups} += {live}")
        body.lines(f"v = {kernel.word('next_window')}", f"{merged} = 0")
        body.line(f"from_id = 2 * v * {self._slide_panes} + 1")
        self._from_region("True", merged)
        body.lines(f"{kernel.word('next_window')} = v + 1", f"{closing} = -1")
