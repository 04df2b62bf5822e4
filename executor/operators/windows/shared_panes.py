"""Shared panes: one state for several queries that differ only in their sliding windows
(Krishnamurthy et al., "On-the-Fly Sharing for Streamed Aggregation", SIGMOD 2006, share time slices
in this way).

Panes are as long as the greatest common divisor of every RANGE, SLIDE and difference of offsets, so
that each query's windows are runs of whole panes. A row goes into its pane once, however many
queries read it. The windows of all queries leave in the order of their ends, each row with the
number of its query. A pane is given back when the last window over it, of any query, has left.

Regions: with n queries, pane p has the id (n + 1)p; the late rows of the window of query q that
begins with pane p have (n + 1)p + 1 + q. A window that leaves is merged in a region whose id is
below all others and which is given back at once: only panes and late rows stay longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from cql.base.window import Window
from cql.executor.codegen.expressions.emit import Code
from cql.executor.kernels.morsel_layout import INFINITY, NEVER
from cql.executor.operators.windows.bounds import Spans
from cql.executor.operators.windows.panes import PaneTerminal
from cql.planner.nodes.physical import SharedPanesExec

#: The region id of the window that leaves, below that of every pane.
_LEAVING = NEVER + 1


@dataclass(slots=True)
class SharedPaneTerminal(PaneTerminal):
    """Ends a stage with an aggregate over the windows of several queries."""

    @property
    def _windows(self) -> tuple[Window, ...]:
        assert isinstance(self.node, SharedPanesExec)
        return self.node.windows

    @property
    def _ids(self) -> int:
        return len(self._windows) + 1

    def _panes(self, name: str, q: int) -> str:
        """A constant of query ``q`` in panes: the range or the slide of its windows, or the first
        pane of its window 0."""
        window, pane, hull = self._windows[q], self.node.pane, self.node.window
        assert pane is not None
        assert hull is not None
        lengths = {
            "range": window.range or 0,
            "slide": window.slide or 0,
            "first": window.offset - hull.offset,
        }
        return self.writer.window_constant(f"{name}_of{q}_", lengths[name] // pane)

    def _first_of(self, q: int, pane: str) -> str:
        """The first window of query ``q`` that holds a pane: the ceiling of (its end - RANGE) /
        SLIDE."""
        reach = f"{self._panes('range', q)} - ({pane} - {self._panes('first', q)}) - 1"
        return f"-(({reach}) // {self._panes('slide', q)})"

    def _last_of(self, q: int, pane: str) -> str:
        return f"({pane} - {self._panes('first', q)}) // {self._panes('slide', q)}"

    def _begin_of(self, q: int, w: str) -> str:
        """The pane with which a window begins."""
        return f"({w} * {self._panes('slide', q)} + {self._panes('first', q)})"

    def _time_of(self, pane: str) -> str:
        """The time at which a pane begins."""
        assert self.node.window is not None
        return Spans(self.writer, self.node.window).at(f"({pane}) * {self._pane}")

    def _end_in(self, q: int, w: str) -> str:
        return self._time_of(f"{self._begin_of(q, w)} + {self._panes('range', q)}")

    def _following(self, q: int) -> str:
        """The descriptor's word for the next window of query ``q`` that leaves."""
        return self.writer.kernel.word(f"next_window{q}")

    # -- one row ---------------------------------------------------------------------------------

    def _first_end(self, pane: str) -> str:
        ends = (self._end_in(q, f"({self._first_of(q, pane)})") for q in range(self._ids - 1))
        return f"min({', '.join(ends)})"

    def _each_window(self, arguments: list[str | None]) -> None:
        """Puts the row into each window of its pane for which the row is not late, query by query;
        ``skip`` counts the windows of all queries."""
        body = self.writer.kernel.body
        body.line("passed = 0")
        for q in range(self._ids - 1):
            late = self.writer.kernel.counter(f"late_pairs_{q}")
            first = self._first_of(q, "pane")
            with body.block(f"for v in range({first}, {self._last_of(q, 'pane')} + 1):"):
                with body.block("if passed < skip:"):
                    body.lines("passed += 1", "continue")
                with body.block(f"if {self._end_in(q, 'v')} <= own:"):
                    body.lines(f"{late} += 1", "passed += 1", "continue")
                body.line("sub = passed")
                body.line(f"w = {self._ids} * {self._begin_of(q, 'v')} + {1 + q}")
                self._open_window(leave="break")
                self._update(arguments, ["break"])
                body.line("passed += 1")
            with body.block("if status != 0:"):
                body.line("break")
        body.lines("sub = -1", "skip = 0", "continue")

    # -- closing ---------------------------------------------------------------------------------

    def _next_window(self, closing: str, group: str) -> None:
        """Gives back the panes that no window needs any more, then finds the window that ends
        first, and opens it if the watermark has reached its end."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        self._purge()
        with body.block(f"if {kernel.word('open')} == 0:"):
            body.line("break")
        body.lines(f"pane = heap[0] // {self._ids}", f"we = {INFINITY}", "leaving = 0")
        for q in range(self._ids - 1):
            body.line(f"v = max({self._following(q)}, {self._first_of(q, 'pane')})")
            body.line(f"end = {self._end_in(q, 'v')}")
            with body.block("if end < we:"):
                body.lines("we = end", f"leaving = {q}", f"w = {self._begin_of(q, 'v')}")
        with body.block(f"if {kernel.word('watermark')} < we:"):
            body.line("break")
        body.lines(f"{kernel.word('query')} = leaving", f"{kernel.word('first_pane')} = w")
        body.line(f"w = {_LEAVING}")
        self._open_leaving(closing, group)

    def _purge(self) -> None:
        body, kernel = self.writer.kernel.body, self.writer.kernel
        with body.block(f"while {kernel.word('open')} > 0:"):
            body.line(f"pane = heap[0] // {self._ids}")
            for q in range(self._ids - 1):
                with body.block(f"if {self._last_of(q, 'pane')} >= {self._following(q)}:"):
                    body.line("break")
            self._give_back()

    def _window_of_slot(self) -> None:
        """Sets ``leaving``, the query; ``w``, the first pane of its window; ``panes``, their
        number."""
        body, kernel = self.writer.kernel.body, self.writer.kernel
        body.lines(f"leaving = {kernel.word('query')}", f"w = {kernel.word('first_pane')}")
        body.line(f"panes = {self._panes('range', 0)}")
        for q in range(1, self._ids - 1):
            with body.block(f"if leaving == {q}:"):
                body.line(f"panes = {self._panes('range', q)}")

    def _complete(self) -> None:
        """Merges the window's panes, then the region of its late rows; the kernel may leave between
        two groups."""
        merging = self.writer.kernel.word("merging")
        pane, late = f"{self._ids} * (w + {merging})", f"{self._ids} * w + 1 + leaving"
        self._merge_regions("panes + 1", f"source = {pane} if {merging} < panes else {late}")

    def _window_bounds(self) -> None:
        body = self.writer.kernel.body
        body.lines(f"ws = {self._time_of('w')}", f"we = {self._time_of('w + panes')}")

    def _more_columns(self) -> list[Code]:
        return [Code("int32(leaving)", None)]

    def _end_of_window(self, closing: str, group: str) -> None:
        body, kernel = self.writer.kernel.body, self.writer.kernel
        self._pause(group)
        closed, groups = kernel.counter("windows_closed"), kernel.counter("groups_out")
        with body.block("if counts[slot] > 0:"):
            body.lines(f"{closed} += 1", f"{groups} += counts[slot]")
        for q in range(self._ids - 1):
            with body.block(f"if leaving == {q}:"):
                body.line(f"{self._following(q)} = {self._last_of(q, 'w')} + 1")
        body.line(f"call_operator({kernel.word('close_window')}, desc, slot)")
        body.line(f"{closing} = -1")

    def _first_to_come(self) -> None:
        """Sets ``punct_w0`` to ``punct_w2`` to the least bounds over the queries' windows."""
        body = self.writer.kernel.body
        assert self.node.window is not None
        unit = Spans(self.writer, self.node.window).unit("value")
        body.lines(f"pane = {unit} // {self._pane}", f"punct_w0 = {INFINITY}")
        body.line(f"punct_w1 = {INFINITY}")
        for q in range(self._ids - 1):
            body.line(f"v = {self._first_of(q, 'pane')}")
            body.line(f"punct_w0 = min(punct_w0, {self._time_of(self._begin_of(q, 'v'))})")
            body.line(f"punct_w1 = min(punct_w1, {self._end_in(q, 'v')})")
        body.line("punct_w2 = punct_w1 - 1")
