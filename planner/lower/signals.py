"""Signals: streams of samples at regular times, and windows of them."""

from __future__ import annotations

from cql.errors import NotSupportedError
from cql.planner.lower.choose import duration, why_source
from cql.planner.nodes.logical import Rewindow, Scan
from cql.planner.nodes.physical import Physical, RewindowExec, SignalInput, SourceExec


def rewindow(node: Rewindow) -> Physical:
    """The windows of a signal, as segments."""
    scan = node.input
    assert isinstance(scan, Scan)
    spec = scan.relation.stream
    assert spec is not None
    assert spec.rate is not None
    if spec.is_queued:
        raise NotSupportedError(
            f"a window over the signal {'.'.join(scan.relation.name)} with UPDATE KEY or QUEUE is"
            " not supported: a signal has a sample for each of its times",
            position=node.pos,
        )
    given = SignalInput(spec.rate.numerator, spec.rate.denominator, node.time)
    source = SourceExec(
        scan.relation, scan.columns, why_source(scan), scan.pos, alias=scan.alias, signal=given
    )
    if node.by_time:
        size, slide = (duration(n, node.schema.fields[-1].type) for n in (node.size, node.slide))
    else:
        size, slide = f"{node.size:,} samples", f"{node.slide:,}"
    why = f"segments of {size} every {slide}, which share the samples (XStream paper §III)"
    return RewindowExec(source, node.size, node.slide, node.by_time, False, why)
