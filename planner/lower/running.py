"""Running functions, whose values become columns below the operator, and operators of the user."""

from __future__ import annotations

from cql.planner.lower.joins.pair_columns import with_columns
from cql.planner.lower.signals import signal_input
from cql.planner.nodes.logical import Process, Running, samples_of
from cql.planner.nodes.physical import Physical, ProcessExec, ProjectExec, RunningExec
from cql.planner.nodes.physical.columns import column_at
from cql.planner.nodes.rewrite import replace

_WHY = "rows pass in their order, one worker at a time; the state goes from row to row"


def running(node: Running, child: Physical) -> RunningExec:
    """The operator of running functions over ``child``."""
    width = len(child.schema)
    made, places = with_columns(child, [call.value for call in node.calls])
    if made is not child and isinstance(made, ProjectExec):
        made = replace(made, why="the values of running functions")
    calls = tuple(
        replace(call, value=column_at(made.schema, place))
        for call, place in zip(node.calls, places, strict=True)
    )
    samples = samples_of(node.input)
    if node.time is None or samples is None:
        return RunningExec(made, width, calls, node.names, _WHY)
    why = f"{_WHY}, and begins anew behind each gap"
    given = signal_input(samples, node.time, samples.spec.tolerance)
    return RunningExec(made, width, calls, node.names, why, given, samples.name)


def process(node: Process, child: Physical) -> ProcessExec:
    """The operator of the user over ``child``."""
    why = "Python, once per row in their order; its state goes from row to row"
    if node.partition:
        why += " of a key"
    if node.function.finish is not None:
        why += f"; {node.function.name}.finish is called at the end"
    return ProcessExec(
        child,
        node.function,
        node.arguments,
        node.given,
        node.names,
        node.columns,
        node.partition,
        why,
        node.pos,
    )
