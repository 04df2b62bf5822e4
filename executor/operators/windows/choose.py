"""Chooses the ending of a stage: output rows, or a kind of windowed aggregate."""

from __future__ import annotations

from cql.base.window import WindowKind, WindowOperator
from cql.executor.codegen.kernel_cache import once
from cql.executor.operators.stage.row_sink import RowTerminal
from cql.executor.operators.stage.spec import StageCode, StageSpec
from cql.executor.operators.stage.stage_kernel import StageWriter
from cql.executor.operators.windows.adaptive import AdaptiveTerminal
from cql.executor.operators.windows.buffered import BufferedTerminal
from cql.executor.operators.windows.cumulate import CumulateTerminal
from cql.executor.operators.windows.panes import PaneTerminal
from cql.executor.operators.windows.shared_panes import SharedPaneTerminal
from cql.executor.operators.windows.subtract_on_evict import SubtractTerminal
from cql.executor.operators.windows.two_level import TwoLevelTerminal
from cql.executor.operators.windows.two_stacks import TwoStacksTerminal
from cql.executor.operators.windows.wid import AggregateTerminal
from cql.planner.nodes.physical import SharedPanesExec, WidAggregateExec


@once
def write_stage(spec: StageSpec) -> StageCode:
    """The kernel of a stage."""
    writer, node = StageWriter(spec), spec.aggregate
    return writer.write(
        RowTerminal(writer) if node is None else _terminal_of(node)(writer, node=node)
    )


def _terminal_of(node: WidAggregateExec) -> type[AggregateTerminal]:
    if isinstance(node, SharedPanesExec):
        return SharedPaneTerminal
    kind = None if node.window is None else node.window.kind
    # Terminals with library kernels of their own are imported, and these compiled, on demand.
    if kind is WindowKind.SESSION:
        from cql.executor.operators.windows.sessions import SessionTerminal

        return SessionTerminal
    if kind is WindowKind.CUMULATE and node.pane:
        return CumulateTerminal
    if node.adaptive:
        return AdaptiveTerminal
    if node.by is not None:
        from cql.executor.operators.windows.partitioned_watermark import (
            PartitionedWatermarkTerminal,
        )

        return PartitionedWatermarkTerminal
    terminals: dict[WindowOperator, type[AggregateTerminal]] = {
        WindowOperator.WID: AggregateTerminal,
        WindowOperator.PANES: PaneTerminal,
        WindowOperator.TWO_STACKS: TwoStacksTerminal,
        WindowOperator.SUBTRACT: SubtractTerminal,
        WindowOperator.TWO_LEVEL: TwoLevelTerminal,
        WindowOperator.BUFFERED: BufferedTerminal,
    }
    return terminals[node.operator]
