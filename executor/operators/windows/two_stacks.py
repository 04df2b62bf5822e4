"""Two stacks: each pane is merged a constant number of times, however many panes a window has (the
queue of two stacks for aggregates that cannot be undone, as in Tangwongsan, Hirzel and Schneider,
"Low-Latency Sliding-Window Aggregation in Worst-Case Constant Time", DEBS 2017, section 2; here
over panes, per group).

The panes that the latest window shares with later windows lie in two stacks, oldest first::

        front          |    back            FRONT  each group over the panes of the front that the
    [p2] [p3] [p4]     | [p5] [p6]                 next window holds
                                            BACK   each group over the panes of the back

In a pane of the front, a group no longer holds the aggregate of its rows, but the aggregate of the
group over the later panes of the front. When a pane leaves, this aggregate replaces the group's in
FRONT. A pane that comes is merged into BACK. A window is the merge of FRONT, BACK and the window's
late rows. When the front has no pane of the next window left, all panes of that window are turned
into a new front, from the last to the first. This takes about five merges of a group per window,
and the memory of the panes and of two windows.

A pane is stacked when a window that holds it closes. No row can come to the pane afterwards: such a
row is late for the first window of the pane, and goes, as in panes, into each of the others itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from cql.executor.kernels.windows.region_table import FIRST_TABLE
from cql.executor.operators.windows.panes import PaneTerminal

#: The ids of the regions of FRONT and BACK, above those of all panes and windows.
FRONT, BACK = (1 << 63) - 2, (1 << 63) - 1
#: The stages of closing a window, in this order (it either turns the stacks or pushes panes).
_BEGIN, _TURN, _PUSH, _ADD_FRONT, _ADD_BACK, _LEAVE = range(6)


@dataclass(slots=True)
class TwoStacksTerminal(PaneTerminal):
    """Ends a stage with an aggregate over sliding windows of stacked panes."""

    def _group_columns(self) -> tuple[tuple[str, str], ...]:
        """Whether a group of FRONT has rows; in a pane of the front, whether the group has rows in
        later panes (no single group is ever taken out of a region)."""
        return (("live", "bool"),)

    def _init_lines(self) -> list[str]:
        return [*PaneTerminal._init_lines(self), "live[g] = 0"]

    def _next_window(self, closing: str, group: str) -> None:
        """Gives back regions whose last window has left, then finds the first window that has rows,
        and opens it if the watermark has reached its end. Only windows with rows turn the stacks,
        so that the order of merges does not depend on when punctuation comes."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        opened, following = kernel.word("open"), kernel.word("next_window")
        self._purge()
        with body.block(f"if {opened} == 0 or heap[0] >= {FRONT}:"):
            body.line("break")
        body.lines("pane = heap[0] >> 1", f"v = max({following}, {self._first_window('pane')})")
        with body.block(f"if heap[0] & 1 != 0 and v < {self._last_window('pane')}:"):
            # The first region is that of a window's late rows: an earlier window has rows only if
            # a pane that it shares with this window exists.
            find = f"call_operator({kernel.word('find_window')}, desc, 2 * q)"
            body.lines(f"last = pane + {self._range_panes}", "q = pane + 1")
            with body.block(f"while q < last and {find} < 0:"):
                body.line("q += 1")
            body.line(f"v = {self._last_window('pane')}")
            with body.block("if q < last:"):
                body.line(f"v = min(v, max({following}, {self._first_window('q')}))")
        with body.block(f"if {kernel.word('watermark')} < {self._end_of('v')}:"):
            body.line("break")
        body.line(f"w = 2 * v * {self._slide_panes} + 1")
        self._open_leaving(closing, group)
        body.line(f"{kernel.word('stage')} = {_BEGIN}")

    def _complete(self) -> None:
        """Merges the groups of the window in ``slot``, step by step: a step merges the groups of
        one region into another; the kernel may leave between two groups."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        stage, step, merged = (kernel.word(name) for name in ("stage", "merging", "merged"))
        body.lines(f"pane = w * {self._slide_panes}", f"last = pane + {self._range_panes} - 1")
        with body.block("while True:"):
            self._next_step()
            body.line(f"source = call_operator({kernel.word('find_window')}, desc, from_id)")
            with body.block("if source >= 0:"):
                body.line("w = into_id")
                self._open_window(leave="break")
                body.line("begin = bases[source]")
                with body.block(f"for i in range({merged}, counts[source]):"):
                    body.lines(f"{merged} = i", "m = uint64(begin + i)")
                    with body.block(f"if {stage} == {_ADD_FRONT} and live[m] == 0:"):
                        body.line("continue")
                    self._merge_group()
            with body.block("if status != 0:"):
                body.line("break")
            body.lines(f"{merged} = 0", f"{step} += 1")
        with body.block("if status != 0:"):
            body.line("break")
        body.line(f"slot = {kernel.word('closing')}")
        self._window_of_slot()

    def _next_step(self) -> None:
        """Sets ``from_id`` and ``into_id`` of the next step, or leaves the loop. Region ``from_id``
        need not exist."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        stage, step = kernel.word("stage"), kernel.word("merging")
        front, back = kernel.word("front"), kernel.word("back")
        with body.block(f"if {stage} == {_BEGIN}:"):
            with body.block(f"if pane > {front}:"):
                self._empty(FRONT)
                body.lines(f"{stage} = {_TURN}", f"{step} = 0")
            with body.block("else:"):
                body.lines(f"{stage} = {_PUSH}", f"{step} = {back} + 1")
        with body.block(f"if {stage} == {_TURN} and {step} == {self._range_panes}:"):
            self._empty(BACK)
            body.lines(f"{front} = last", f"{stage} = {_PUSH}", f"{step} = last + 1")
        with body.block(f"if {stage} == {_PUSH} and {step} > last:"):
            body.lines(f"{back} = last", f"{stage} = {_ADD_FRONT}", f"{step} = 0")
        with body.block(f"if {stage} in ({_ADD_FRONT}, {_ADD_BACK}) and {step} > 0:"):
            body.lines(f"{stage} += 1", f"{step} = pane if {stage} == {_LEAVE} else 0")
        with body.block(f"if {stage} == {_TURN}:"):
            body.lines(f"from_id = 2 * (last - {step})", f"into_id = {FRONT}")
        with body.block(f"elif {stage} == {_PUSH}:"):
            body.lines(f"from_id = 2 * {step}", f"into_id = {BACK}")
        with body.block(f"elif {stage} < {_LEAVE}:"):
            body.line(f"from_id = {FRONT} if {stage} == {_ADD_FRONT} else {BACK}")
            body.line("into_id = 2 * pane + 1")
        with body.block(f"elif {step} < pane + {self._slide_panes} and {step} <= {front}:"):
            body.lines(f"from_id = 2 * {step}", f"into_id = {FRONT}")
        with body.block("else:"):
            body.line("break")

    def _empty(self, region: int) -> None:
        body, kernel = self.writer.kernel.body, self.writer.kernel
        body.line(f"source = call_operator({kernel.word('find_window')}, desc, {region})")
        with body.block("if source >= 0:"):
            block, empty = f"desc + {8 * FIRST_TABLE}", kernel.word("empty_region")
            body.line(f"call_operator({empty}, {block}, source)")

    def _merge_states(self) -> None:
        """Merges group ``m`` into ``g`` as the stage requires."""
        body, stage = self.writer.kernel.body, self.writer.kernel.word("stage")
        columns = [name for code in self._codes for name, _ in code.columns]
        body.line("joins = True")
        with body.block(f"if {stage} == {_TURN}:"):
            # Swaps the two: the pane's group now holds the later panes, FRONT's the pane's rows.
            # Then FRONT's group merges the later panes.
            for c in columns:
                body.lines(f"swapped_{c} = {c}[m]", f"{c}[m] = {c}[g]", f"{c}[g] = swapped_{c}")
            body.lines("live[m] = live[g]", "live[g] = 1", "joins = live[m] != 0")
        with body.block(f"elif {stage} == {_LEAVE}:"):
            body.lines(*(f"{c}[g] = {c}[m]" for c in columns), "live[g] = live[m]", "joins = False")
        with body.block("if joins:"):
            PaneTerminal._merge_states(self)
