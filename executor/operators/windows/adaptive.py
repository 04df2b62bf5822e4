"""Windows that change over between WID, panes and buffered rows while they run ("hybrid
implementations that monitor stream properties and adapt between approaches as appropriate",
out-of-order paper §9).

All three keep what they have in one directory: groups of a window, groups of a pane, rows of a
pane. A window that closes has its own groups, merges those of its panes and aggregates their rows,
whatever there is of each. So a change tells only where later rows go; what came before stays where
it is, and leaves with its windows.

When punctuation has closed windows, the rows per slide, ``r``, and the groups per window, ``g``,
since the last time tell what a slide costs. With ``n`` rows and ``p`` panes per window:

- panes: ``r + min(n, p * g)`` updates and merges;
- WID and buffered rows: ``n`` updates, ``n = r * RANGE / SLIDE``.

Where panes do not save any, the smaller state decides (§5.5): the rows of a window, or its groups,
as many times as windows are open at once. What has been better twice running is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.kernels.windows.region_table import PLACES
from cql.executor.operators.windows.buffered import BufferedTerminal
from cql.executor.operators.windows.group_table import REGION
from cql.executor.operators.windows.wid import AggregateTerminal
from cql.planner.nodes.physical import WindowOperator

#: What ``mode`` in the descriptor counts.
MODES = (WindowOperator.WID, WindowOperator.PANES, WindowOperator.BUFFERED)
_WID, _PANES, _BUFFERED = range(len(MODES))


@dataclass(slots=True)
class AdaptiveTerminal(BufferedTerminal):
    """Ends a stage with an aggregate over windows that changes over. ``mode`` says where rows go,
    ``proposed`` what was better the last time; ``fresh`` rows came since."""

    def _word(self, name: str) -> str:
        return self.writer.kernel.word(name)

    # -- one row ---------------------------------------------------------------------------------

    def before_rows(self) -> None:
        BufferedTerminal.before_rows(self)
        self.writer.kernel.body.line(f"mode = {self._word('mode')}")

    def _before_pane(self, arguments: list[str | None]) -> None:
        """WID: the row goes into each of its windows; no later row is known to go there too."""
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
        """The groups of the panes, then their rows; the kernel may leave between two."""
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
        """Compares the costs; changes over to what was better twice."""
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
