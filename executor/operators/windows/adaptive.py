"""Windows that change between WID, panes and buffered rows while they run ("hybrid implementations
that monitor stream properties and adapt between approaches as appropriate", out-of-order paper §9).

All three keep their state in one directory: groups of a window, groups of a pane, rows of a pane. A
window that closes starts with its own groups, merges those of its panes and aggregates the panes'
rows. So a change only decides where later rows go; earlier rows stay where they are, and leave with
their windows.

When punctuation has closed windows, the cost of a slide follows from the rows per slide, ``r``, and
the groups per window, ``g``, since the last decision. With ``n`` rows and ``p`` panes per window:

- panes: ``r + min(n, p * g)`` updates and merges;
- WID and buffered rows: ``n`` updates, ``n = r * RANGE / SLIDE``.

Where panes do not cost less, the smaller state decides (§5.5): the rows of one window, or the
groups of all windows that are open at once. The operator changes to an implementation that was
better in two successive decisions.
"""

from __future__ import annotations

from dataclasses import dataclass

from cql.base.window import WindowOperator
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.kernels.windows.region_table import PLACES
from cql.executor.operators.windows.buffered import BufferedTerminal
from cql.executor.operators.windows.group_table import REGION
from cql.executor.operators.windows.wid import AggregateTerminal

#: The values of ``mode`` in the descriptor are indexes of this tuple.
MODES = (WindowOperator.WID, WindowOperator.PANES, WindowOperator.BUFFERED)
_WID, _PANES, _BUFFERED = range(len(MODES))


@dataclass(slots=True)
class AdaptiveTerminal(BufferedTerminal):
    """Ends a stage with an adaptive windowed aggregate. Words of the descriptor: ``mode``, where
    rows go; ``proposed``, the better mode of the last decision; ``fresh``, the rows since then."""

    def _word(self, name: str) -> str:
        return self.writer.kernel.word(name)

    # -- one row ---------------------------------------------------------------------------------

    def before_rows(self) -> None:
        BufferedTerminal.before_rows(self)
        self.writer.kernel.body.line(f"mode = {self._word('mode')}")

    def _before_pane(self, arguments: list[str | None]) -> None:
        """In mode WID, puts the row into each of its windows. ``span`` stays 0, so that the next
        row comes here, too."""
        body = self.writer.kernel.body
        with body.block(f"if mode == {_WID}:"):
            body.lines("own = NEVER", f"{self._word('fresh')} += skip == 0")
            self._each_window(arguments)

    def _take_row(self, arguments: list[str | None], leave: list[str]) -> None:
        body = self.writer.kernel.body
        with body.block(f"if mode == {_BUFFERED}:"):
            BufferedTerminal._take_row(self, arguments, leave)
        with body.block("else:"):
            self._update(arguments, leave)
        body.line(f"{self._word('fresh')} += 1")

    # -- closing ---------------------------------------------------------------------------------

    def _complete(self) -> None:
        """Merges the groups of the window's panes, then aggregates the panes' rows; the kernel may
        leave between two groups or rows."""
        body = self.writer.kernel.body
        merging, merged = self._word("merging"), self._word("merged")
        body.lines(*REGION, "count = counts[slot]")
        with body.block(f"while {merging} < 2 * {self._range_panes}:"):
            at = f"2 * (w * {self._slide_panes} + {merging} % {self._range_panes})"
            body.line(f"source = call_operator({self._word('find_window')}, desc, {at})")
            with body.block("if source >= 0:"):
                with body.block(f"if {merging} < {self._range_panes}:"):
                    self._merge_region()
                with body.block("else:"):
                    self._replay(merged)
            with body.block("if status != 0:"):
                body.line("break")
            body.lines(f"{merged} = 0", f"{merging} += 1")
        with body.block("if status != 0:"):
            body.line("break")

    def _end_of_window(self, closing: str, group: str) -> None:
        body = self.writer.kernel.body
        self._pause(group)
        with body.block("if counts[slot] > 0:"):
            body.line(f"{self._word('judged_windows')} += 1")
            body.line(f"{self._word('judged_groups')} += counts[slot]")
        BufferedTerminal._end_of_window(self, closing, group)

    def _flush(self) -> None:
        AggregateTerminal._flush(self)
        body, judged = self.writer.kernel.body, self._word("judged_windows")
        enough = f"status == 0 and {judged} > 0 and {self._word('watermark')} < {INFINITY}"
        with body.block(f"if {enough}:"):
            self._judge()

    def _judge(self) -> None:
        """Compares the costs, and changes to a mode that was better in two successive decisions."""
        window, kernel = self.node.window, self.writer.kernel
        assert window is not None
        body, mode, proposed = kernel.body, self._word("mode"), self._word("proposed")
        overlap = self.writer.window_constant("overlap", window.overlap)
        groups, rows = self.tables[0], self.tables[-1]
        row_bytes, group_bytes = 8 * len(rows.columns), 8 * len(groups.columns) + 4 * PLACES
        judged, fresh = self._word("judged_windows"), self._word("fresh")
        body.lines(
            f"per_slide = {fresh} // {judged}",
            f"per_window = per_slide * {overlap}",
            f"groups = {self._word('judged_groups')} // {judged}",
            f"best = {_WID}",
        )
        with body.block(f"if per_slide + {self._range_panes} * groups < per_window:"):
            body.line(f"best = {_PANES}")
        with body.block(f"elif {row_bytes} * per_window < {group_bytes} * groups * {overlap}:"):
            body.line(f"best = {_BUFFERED}")
        with body.block(f"if best != {mode} and best == {proposed}:"):
            body.line(f"{mode} = best")
            for number, name in enumerate(MODES):
                counter = kernel.counter(f"to_{name}")
                body.line(f"{counter} += 1 if best == {number} else 0")
        body.line(f"{proposed} = best")
        body.lines(*(f"{self._word(n)} = 0" for n in ("fresh", "judged_windows", "judged_groups")))
