"""Makes the runtime that drives a run, as the plan and the settings say."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cql.base.model import Schema
from cql.base.uninterruptible import load_module
from cql.executor.graph.graph import Graph
from cql.executor.morsel.morsel_size import gathered
from cql.executor.operators.workspace import Workspace
from cql.executor.runtimes.depth_first import DepthFirst
from cql.executor.runtimes.protocol import Handler, Runtime

if TYPE_CHECKING:
    from cql.executor.runtimes.ordered import Observer


def make_runtime(
    driver: str,
    graph: Graph,
    handler: Handler,
    settings: Mapping[str, Any],
    workspace: Workspace,
    *,
    inputs: Sequence[Schema],
    carrying: Collection[int],
    morsel_rows: int,
    morsel_us: int,
    workers: int,
    live: bool,
    timed: bool,
    observer: Observer | None,
) -> Runtime:
    """The runtime called ``driver``. ``inputs``: the schemas of the feeds. ``carrying``: the sinks
    whose results show columns of the sources. ``live``: a consumer waits for each result.
    ``timed``: it measures the times of operators."""
    ones = int(workspace.ones.ctypes.data)
    if driver not in ("depth_first", "ordered"):
        load_module("cql.executor.runtimes.queued")
        from cql.executor.runtimes.queued import Queued

        return Queued(
            graph,
            handler,
            graph.inputs,
            driver,
            ones=ones,
            morsel_rows=morsel_rows,
            slice_us=int(settings["slice_us"]),
            burst=int(settings["tuple_burst"]),
            resize=workspace.resize,
            timed=timed,
        )
    gather = gathered(graph, carrying, settings, driver, live=live)
    if driver == "depth_first":
        return DepthFirst(graph, handler, ones=ones, gather=gather, timed=timed)
    load_module("cql.executor.runtimes.ordered")
    from cql.executor.runtimes.ordered import Ordered

    return Ordered(
        graph,
        handler,
        inputs,
        ones=ones,
        morsel_rows=morsel_rows,
        workers=workers,
        policy=str(settings["scheduler"]),
        locked=settings["reorder"] == "lock_based",
        worklist=str(settings["worklist"]),
        gather=gather,
        live=live,
        slice_us=int(settings["slice_us"]),
        least=int(settings["lp_threshold"]),
        capacity=int(settings["qst_capacity"]),
        window_us=int(settings["ct_window_us"]),
        slots=int(settings["reorder_buffer"]),
        morsel_us=morsel_us,
        resize=workspace.resize,
        timed=timed,
        observer=observer,
    )
