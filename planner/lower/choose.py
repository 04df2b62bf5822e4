"""One pure function per physical decision. Each returns its reason, worded in the query's names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cql.base.types import INTERVAL, DataType, Kind
from cql.base.window import Window, WindowKind, WindowOperator
from cql.errors import NotSupportedError, PlanError
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.logical import AggregateCall, DerivedStream, Scan
from cql.planner.nodes.physical import (
    Flush,
    FlushPolicy,
    Physical,
    UnionExec,
    WidAggregateExec,
    live,
    sources,
)
from cql.planner.nodes.progress import max_advance
from cql.planner.nodes.show import show

#: Fewest windows per row for which panes are chosen: below, merging panes may cost more than they
#: save.
FEWEST = 3
#: Panes per window, as a multiple of the panes per slide, from which on two stacks are chosen: two
#: stacks merge a group about five times per window.
MANY = 12


def keep_bad_rows(root: Physical, settings: Mapping[str, Any], clause: bool | None) -> bool:
    """Whether the query keeps bad rows instead of failing. The query's clause decides, then the
    setting, then the clauses of its streams (one FAIL is enough). By default a bounded query fails
    and a continuous query keeps them."""
    if clause is not None:
        return clause
    setting = str(settings["on_bad_row"])
    if setting != "auto":
        return setting == "keep"
    declared = {s.relation.stream.keep_bad_rows for s in sources(root) if s.relation.stream}
    if False in declared or True in declared:
        return False not in declared
    return live(root)


def why_source(scan: Scan) -> str:
    spec = scan.relation.stream
    if isinstance(scan.relation, DerivedStream) and spec is not None:
        times = ", ".join(p.column for p in spec.progress)
        return "its query runs by itself" + (f" and punctuates {times}" if times else "")
    if spec is None or not spec.progress:
        return "a table: no watermark before its end"
    parts = []
    for p in spec.progress:
        column = scan.relation.schema.find(p.column)
        kind = scan.relation.schema[column or 0].type
        slack = f", slack {duration(p.slack, kind)}" if p.slack else ""
        parts.append(f"punctuation on {p.column} from {p.declared}{slack}")
        most = max_advance(scan.relation, p)
        waits = p.max_advance is not None or not scan.relation.bounded
        if most is not None and waits:
            parts.append(f"an advance of more than {duration(most, kind)} must be confirmed")
    if spec.by is not None:
        parts.append(f"each {spec.by} for itself (PUNCTUATE BY)")
    return "; ".join(parts)


def why_union(union: UnionExec) -> str:
    live = union.progressing
    if not live:
        return "pass-through: no tuple state; no column has a watermark in every input"
    names = ", ".join(union.schema[c].name for c in live)
    return f"pass-through: no tuple state; watermark on {names} is the minimum of the inputs"


def aggregate(node: WidAggregateExec, settings: Mapping[str, Any]) -> WidAggregateExec:
    """``node`` with its window operator and the reason for the choice."""
    chosen, wanted = _operator(node, settings), str(settings["window_operator"])
    if _obeys(chosen, wanted):
        chosen = replace(chosen, why=f"{chosen.why} (SET window_operator = '{wanted}')")
    if not _adapts(chosen, settings):
        return chosen
    why = "; changes over between wid, panes and buffered as rows and groups per window change"
    why += " (SET adaptive_windows = on)"
    return replace(chosen, adaptive=True, pane=_pane(chosen.window), why=chosen.why + why)


def _obeys(node: WidAggregateExec, wanted: str) -> bool:
    """Whether the setting forced the operator. ``two_level`` names the setting in its own reason,
    with its flush."""
    has_choice = node.window is not None and node.window.kind is not WindowKind.SESSION
    return has_choice and str(node.operator) == wanted and node.flush is None


def _adapts(node: WidAggregateExec, settings: Mapping[str, Any]) -> bool:
    kinds = (WindowOperator.WID, WindowOperator.PANES, WindowOperator.BUFFERED)
    if any(c.function and c.function.merge is None for c in node.calls):
        return False  # without merge, groups cannot move and panes cannot merge
    return bool(settings["adaptive_windows"]) and _without_gaps(node) and node.operator in kinds


def _without_gaps(node: WidAggregateExec) -> bool:
    """Whether ``node`` has sliding windows without gaps between them (slide <= range)."""
    window = node.window
    if window is None or window.kind is not WindowKind.SLIDING:
        return False
    return (window.slide or 0) <= (window.range or 0)


def _pane(window: Window | None) -> int:
    assert window is not None
    return math.gcd(window.range or 0, window.slide or 0)


def _operator(node: WidAggregateExec, settings: Mapping[str, Any]) -> WidAggregateExec:
    """``node`` with the cheapest window operator, or the one that ``window_operator`` forces.

    WID updates one group per row and window. Panes update one group per row and then merge the
    panes of each window, at most as many updates as WID makes (every row in a group of its own).
    Two stacks merge a group about five times per window, whatever the number of panes.
    Subtract-on-evict merges a group twice. Buffered rows cost as much as WID, but keep the groups
    of only one window (out-of-order paper §5.5).

    Raises PlanError where the forced operator needs a merge that an aggregate does not have, and
    NotSupportedError where an aggregate cannot be subtracted or keeps values beside its groups."""
    window = node.window
    wanted = str(settings["window_operator"])
    whole = next((c for c in node.calls if c.function and c.function.merge is None), None)
    if window is None:
        why = "one set of groups over the whole input, which is bounded"
        return replace(node, why=why)
    wa = node.input.schema[window.wa or 0]
    if window.kind is WindowKind.SESSION:
        if whole is not None:
            raise _needs_merge(whole, "session windows")
        gap = duration(window.gap or 0, wa.type)
        why = (
            f"rows of a group at most {gap} apart are one session, in whatever order they come;"
            f" punctuation on {wa.name} more than {gap} after its last row closes it"
        )
        return replace(node, why=why)
    closes = f"punctuation on {wa.name} closes them"
    if wanted == "two_level":
        if whole is not None:
            raise _needs_merge(whole, "two levels")
        return _two_level(node, settings, closes)
    if wanted == "buffered" and _without_gaps(node):
        why = f"rows are kept, and aggregated window by window as {closes}"
        operator = WindowOperator.BUFFERED
        return replace(node, pane=_pane(window), operator=operator, why=why)
    if window.overlap == 1:
        why = f"tumbling: each row in one window; groups by window id need no order, {closes}"
        return replace(node, why=why)
    length = duration(window.range or 0, wa.type)
    many = f"each row in up to {window.overlap} windows of {length}"
    if whole is not None and wanted in ("panes", "two_stacks", "subtract"):
        raise _needs_merge(whole, "panes")
    if window.kind is WindowKind.CUMULATE and wanted != "wid" and whole is None:
        step = duration(window.slide or 0, wa.type)
        why = (
            f"{many} that begin together: rows are aggregated once, in panes of {step}, which each"
            f" window adds to what the one before it had when {closes[:-5]} it"
        )
        operator = WindowOperator.PANES
        return replace(node, pane=window.slide, operator=operator, why=why)
    if wanted == "wid" or whole is not None or (wanted == "auto" and window.overlap < FEWEST):
        why = f"{many}; groups by window id need no order, {closes}"
        if whole is not None and wanted == "auto" and window.overlap >= FEWEST:
            why += f"; {whole.fn} has no merge, which panes need"
        return replace(node, why=why)
    pane = _pane(window)
    panes = (window.range or 0) // pane
    why = f"{many}: rows are aggregated once, in panes of {duration(pane, wa.type)}, and"
    if wanted == "two_stacks":
        _refuse_beside(node, "stacks", "only whole panes of them can be merged", "panes")
    many_panes = panes >= MANY * (window.slide or 0) // pane
    beside = any(c.beside for c in node.calls)
    stacked = many_panes and not beside and not settings["adaptive_windows"]
    rows = _most_rows(node)
    if wanted == "auto" and many_panes and beside and rows is not None and rows < panes:
        why = (
            f"{many} of {panes:,} panes, and there are {rows:,} rows: these are kept, and"
            f" aggregated window by window as {closes}"
        )
        return replace(node, pane=pane, operator=WindowOperator.BUFFERED, why=why)
    kept = next((c for c in node.calls if not c.can_subtract), None)
    if wanted == "subtract" and kept is not None:
        raise NotSupportedError(
            f"{kept.fn} in window_operator = 'subtract' is not supported: a part of it cannot be"
            " subtracted exactly",
            position=kept.pos,
            hint="SET window_operator = 'two_stacks'",
        )
    if wanted == "subtract" or (wanted == "auto" and stacked and kept is None):
        operator = WindowOperator.SUBTRACT
        why += " are added to one aggregate per group as they come, and subtracted as they go"
    elif wanted == "two_stacks" or (wanted == "auto" and stacked):
        operator = WindowOperator.TWO_STACKS
        why += f" the {panes} of a window are merged as they come and go, when {closes[:-5]} it"
    else:
        operator = WindowOperator.PANES
        why += f" {panes} of these are merged into a window when {closes[:-5]} it"
    return replace(node, pane=pane, operator=operator, why=why)


def _most_rows(node: WidAggregateExec) -> int | None:
    """Upper bound of the number of input rows by the statistics; None if a source has none."""
    rows = [source.relation.statistics.rows for source in sources(node)]
    return sum(r for r in rows if r is not None) if rows and None not in rows else None


def _two_level(
    node: WidAggregateExec, settings: Mapping[str, Any], closes: str
) -> WidAggregateExec:
    """The two-level operator, only if forced: WID finds a group in about the time of a miss in the
    low level, and no row is dropped while groups leave, as long as the source can wait."""
    _refuse_beside(node, "levels", "the low level has no room for them", "wid")
    flush = Flush(
        FlushPolicy(settings["flush"]),
        int(settings["low_level_entries"]),
        int(settings["flush_every"]),
        int(settings["flush_windows"]),
    )
    later = f"{flush.windows} later window{'' if flush.windows == 1 else 's'}"
    at_most = f", and the last of a window when {later} have closed" if flush.windows else ""
    leave = {
        FlushPolicy.AT_ONCE: "groups leave at once",
        FlushPolicy.SLOW: f"a group leaves for every {flush.every:,} rows" + at_most,
        FlushPolicy.LAZY: "two groups leave for each that a newer one pushes out" + at_most,
        FlushPolicy.IN_ORDER_SLOW: "a group leaves for every row, and all that are left where two"
        " of a newer window want one place (figure 7)",
    }[flush.policy]
    why = (
        f"a low level takes the rows, the groups by window id what it gives up; {closes}, and"
        f" {leave} (SET window_operator = 'two_level', flush = '{flush.policy}')"
    )
    return replace(node, operator=WindowOperator.TWO_LEVEL, flush=flush, why=why)


def _refuse_beside(node: WidAggregateExec, what: str, reason: str, instead: str) -> None:
    beside = next((c for c in node.calls if c.beside), None)
    if beside is not None:
        raise NotSupportedError(
            f"{beside.beside} in two {what} is not supported: values are kept beside the"
            f" groups, and {reason}",
            position=beside.pos,
            hint=f"SET window_operator = '{instead}'",
        )


def _needs_merge(call: AggregateCall, what: str) -> PlanError:
    return PlanError(
        f"{call.fn} has no merge, which {what} need",
        position=call.pos,
        hint="declare merge(a, b): the state of two parts of a group together",
    )


def duration(units: int, kind: DataType) -> str:
    """A window length in words: ``10 minutes``, ``3 days``, ``10000`` of an integer."""
    if kind.is_timestamp:
        return show(Literal(units, INTERVAL)).removeprefix("INTERVAL ").lower()
    if kind.kind is Kind.DATE:
        return f"{units} day{'' if units == 1 else 's'}"
    return str(units)
