"""Cumulating windows (Flink's CUMULATE): they begin together and end a step after one another, so
that each is the one before it and a step more.

Every row goes into one pane, which is as long as a step; when punctuation closes a window, its last
pane is merged into what the windows of the same beginning have gathered, and that leaves. A
late row goes into the pane of its first window that has not ended by its row watermark: the
windows from there on are just those for which it is not late.

Panes and gathered groups are regions of one directory: pane p has the id 2p, what windows gather
has 2q + 1, where q is the last pane of theirs. A pane is given back when it has been merged, or, if
it has a log of values, which is read where it lies, with its last window; the gathered groups are
with theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

from cql.executor.operators.stage.scope import StageScope
from cql.executor.operators.windows.bounds import Spans
from cql.executor.operators.windows.group_table import REGION
from cql.executor.operators.windows.panes import PaneTerminal
from cql.executor.operators.windows.wid import WITHIN_BOUNDS


@dataclass(slots=True)
class CumulateTerminal(PaneTerminal):
    """Ends a stage with an aggregate over cumulating windows."""

    @property
    def _spans(self) -> Spans:
        assert self.node.window is not None
        return Spans(self.writer, self.node.window)

    def before_rows(self) -> None:
        PaneTerminal.before_rows(self)
        self.writer.kernel.body.line("missed = 0")

    def _enter_window(self, scope: StageScope, t: str, arguments: list[str | None]) -> None:
        """The row's pane. What a late row missed holds for it alone."""
        writer, spans = self.writer, self._spans
        body, late = writer.kernel.body, writer.kernel.counter("late_pairs")
        writer.mark_late_row()
        writer.check_event_time(scope, t)
        body.line(f"w0 = {spans.first(t)}")
        body.line(f"low = {spans.at(f'w0 * {spans.slide}')}")
        body.line(f"high = {spans.at(f'(w0 + 1) * {spans.slide}')}")
        body.lines(WITHIN_BOUNDS, "v = w0")
        with body.block("if late_at >= 0:"):
            self._row_watermark(spans.window.wa or 0)
            with body.block(f"if {spans.end('w0')} <= own:"):
                body.lines(f"v = {spans.first('own')}", f"w1 = {spans.last_with('w0')}")
                with body.block("if v > w1:"):
                    body.lines(f"{late} += w1 + 1 - w0", "continue")
        body.line("w = 2 * v")
        self._open_window(leave="break")
        body.lines("missed = v - w0", "alone = missed", "span = high - low")

    def _update(self, arguments: list[str | None], leave: list[str]) -> None:
        """A row that the kernel must leave for, and tries again, counts once."""
        PaneTerminal._update(self, arguments, leave)
        self.writer.kernel.body.line(f"{self.writer.kernel.counter('late_pairs')} += missed")

    # -- closing ---------------------------------------------------------------------------------

    def _next_window(self, closing: str, group: str) -> None:
        """Finds the next window of those that gather, or else the one that ends with the first
        pane, if punctuation has passed its end."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        opened, following = kernel.word("open"), kernel.word("next_window")
        find = kernel.word("find_window")
        last = self._spans.last_with("heap[0] >> 1") if self.logs else "heap[0] >> 1"
        with body.block(f"while {opened} > 0 and ({last}) < {following}:"):
            self._give_back()
        with body.block(f"if {opened} == 0:"):
            body.line("break")
        body.lines("v = heap[0] >> 1", "gathered = -1")
        with body.block(f"if {following} > NEVER:"):
            body.line(f"gathered = 2 * ({self._spans.last_with(following)}) + 1")
            body.line(f"gathered = call_operator({find}, desc, gathered)")
        with body.block("if gathered >= 0:"):
            body.line(f"v = {following}")
        with body.block(f"if {kernel.word('watermark')} < {self._spans.end('v')}:"):
            body.line("break")
        body.line(f"w = 2 * ({self._spans.last_with('v')}) + 1")
        self._open_leaving(closing, group)
        body.line(f"{following} = v")

    def _window_of_slot(self) -> None:
        self.writer.kernel.body.line(f"w = {self.writer.kernel.word('next_window')}")

    def _complete(self) -> None:
        """Merges the last pane of the window into the region in ``slot``; the kernel may leave
        between two groups."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        merging, find = kernel.word("merging"), kernel.word("find_window")
        body.lines(*REGION, "count = counts[slot]")
        with body.block(f"if {merging} == 0:"):
            body.line(f"source = call_operator({find}, desc, 2 * w)")
            with body.block("if source >= 0:"):
                self._merge_region()
            with body.block("if status == 0:"):
                body.line(f"{merging} = 1")
        with body.block("if status != 0:"):
            body.line("break")

    def _end_of_window(self, closing: str, group: str) -> None:
        body, kernel = self.writer.kernel.body, self.writer.kernel
        self._pause(group)
        closed, groups = kernel.counter("windows_closed"), kernel.counter("groups_out")
        body.lines(f"{closed} += 1", f"{groups} += counts[slot]")
        body.lines(f"{kernel.word('next_window')} = w + 1", f"{closing} = -1")
