"""Cumulating windows (Flink's CUMULATE): windows that begin together and end one step apart: each
window is the one before it plus one step.

A row goes into one pane, which is as long as a step. When punctuation closes a window, its last
pane is merged into the *gathered* groups of the windows that begin together, and these groups
leave. A late row goes into the last pane of its first window that has not ended by the row
watermark: the row is on time for exactly the windows from there on.

Panes and gathered groups are regions of one directory: pane p has the id 2p, the gathered groups
have 2q + 1, where q is the last pane of their last window. A pane is given back when it has been
merged; a pane with a value log, which is read in place, with its last window. Gathered groups are
given back with their last window.
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
        """Opens the row's pane. ``missed``, the number of windows that a late row is late for,
        holds for that row alone."""
        writer, spans = self.writer, self._spans
        body, late = writer.kernel.body, writer.kernel.counter("late_pairs")
        writer.mark_late_row()
        writer.check_event_time(scope, t)
        body.line(f"w0 = {spans.first(t)}")
        body.line(f"low = {spans.at(f'w0 * {spans.slide}')}")
        body.line(f"high = {spans.at(f'(w0 + 1) * {spans.slide}')}")
        gone = "0"
        if spans.since is not None:
            gone = "gone"
            self._elsewhere(spans, t)
        body.lines(WITHIN_BOUNDS, "v = w0")
        with body.block("if late_at >= 0:"):
            self._row_watermark(spans.window.wa or 0)
            with body.block(f"if {spans.end('w0')} <= own:"):
                body.lines(f"v = {spans.first('own')}", f"w1 = {spans.last_with('w0')}")
                with body.block("if v > w1:"):
                    body.lines(f"{late} += w1 + 1 - w0 + {gone}", "continue")
        body.line("w = 2 * v")
        self._open_window(leave="break")
        body.lines(f"missed = v - w0 + {gone}", "alone = missed", "span = high - low")

    def _elsewhere(self, spans: Spans, t: str) -> None:
        """Sets ``gone`` to the number of windows that a late row is late for and that end up to
        ``Window.since``. Passes a row all of whose windows end there."""
        body, late = self.writer.kernel.body, self.writer.kernel.counter("late_pairs")
        with body.block(f"if w0 == {spans.first(spans.since or '')}:"):
            # Its pane also has the rows before: no window of theirs ends here.
            body.line(f"low = {spans.start('w0')}")
        body.line("gone = 0")
        with body.block("if late_at >= 0:"):
            self._row_watermark(spans.window.wa or 0)
            with body.block(f"if own >= {spans.since}:"):
                body.line(f"gone = {spans.elsewhere(t)}")
        with body.block(f"if {spans.last(t)} < w0:"):
            body.lines(f"{late} += gone", "span = 0", "continue")

    def _update(self, arguments: list[str | None], leave: list[str]) -> None:
        """Counts late pairs after the update, so that a row that is tried again counts once."""
        PaneTerminal._update(self, arguments, leave)
        self.writer.kernel.body.line(f"{self.writer.kernel.counter('late_pairs')} += missed")

    # -- closing ---------------------------------------------------------------------------------

    def _next_window(self, closing: str, group: str) -> None:
        """Finds the next window of the gathered groups, or else the window that ends with the first
        pane, and opens it if the watermark has reached its end."""
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
