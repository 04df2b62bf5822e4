"""The ledger of lateness: late rows of each input, and rows that each operator left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cql.executor.kernels.ingest.advance import CONFIRMING
from cql.executor.morsel.ingest import Feed
from cql.executor.morsel.morsel import Words
from cql.executor.morsel.watermark import Attribute, slack_for
from cql.executor.operators.contract import Disorder, Operator

#: The share of all rows that the suggested slack leaves late.
ACCEPTED = 0.001


@dataclass(frozen=True, slots=True)
class Late:
    """``suggested`` is a slack with which at most ACCEPTED of the input's rows would have been
    late. It is None if no row was late, if rows make no punctuation, or if a single ``jump`` of
    event time (its length) made most of the rows late."""

    place: str
    kind: str
    count: int
    max_lateness: int | None = None
    suggested: int | None = None
    jump: int | None = None


def entries(
    feeds: Sequence[Feed], operators: Sequence[Operator], windows: Mapping[str, Collection[int]]
) -> list[Late]:
    """The ledger of one query. ``windows``: for an operator with the windows of several queries,
    the numbers of this query's windows.

    Kinds: "rows": late rows of an input. "beyond MAX ADVANCE": unconfirmed rows far ahead, if the
    watermark would have made other rows late by following them. "jump within MAX ADVANCE": rows
    made late by one confirmed row far ahead. "idle": rows of an input below the punctuation that
    was sent while the input was idle. "pairs": (row, window) pairs that an aggregate left out.
    "left out": late rows that a sort or a merging union left out. "behind slack": rows later than
    the slack of a slack operator."""
    found = [
        Late(f.source.name, "rows", a.late_rows, a.max_lateness, _suggested(f, a))
        for f in feeds
        for a in f.attributes
    ]
    found += [late for f in feeds for a in f.attributes for late in _jumps(f.source.name, a)]
    for operator in operators:
        counters = operator.counters()
        # Of an operator with several inputs: the rows of each input below the punctuation that was
        # sent while the input was idle.
        found += [Late(name, "idle", n) for name, n in operator.too_late() if n]
        if "late_pairs" in counters:
            found.append(Late(operator.name, "pairs", counters["late_pairs"]))
        if operator.name in windows:
            lost = sum(counters[f"late_pairs_{n}"] for n in windows[operator.name])
            found.append(Late(operator.name, "pairs", lost))
        if "late_rows" in counters:
            found.append(Late(operator.name, "left out", counters["late_rows"]))
        if (disorder := operator.disorder()) is not None:
            slack = _suggested_behind(disorder)
            late = Late(operator.name, "behind slack", disorder.late, disorder.most, slack)
            found.append(late)
    return found


def _jumps(name: str, attribute: Attribute) -> Iterator[Late]:
    """Entries for unconfirmed rows far ahead of the others, and for rows that one jump made
    late."""
    kept, by = attribute.kept
    if kept:
        yield Late(name, "beyond MAX ADVANCE", attribute.unbelieved, jump=by)
    if _one_jump(attribute):
        late, jump = attribute.jumped
        yield Late(name, "jump within MAX ADVANCE", late, jump=jump)


def _one_jump(attribute: Attribute) -> bool:
    """Whether one advance of event time made most of the late rows late, and more rows than the
    confirmation of an advance takes."""
    late, _ = attribute.jumped
    return late > CONFIRMING and 2 * late > attribute.late_rows


def _suggested(feed: Feed, attribute: Attribute) -> int | None:
    if not attribute.late_rows or not attribute.progress.by_rows or _one_jump(attribute):
        return None
    slack = attribute.progress.slack
    return suggested_slack(attribute.behind, feed.rows, slack, attribute.max_lateness)


def _suggested_behind(found: Disorder) -> int | None:
    if found.units is None or not found.late:
        return None
    return suggested_slack(found.histogram, found.rows, found.units, found.most)


def suggested_slack(behind: Words, rows: int, declared: int, most: int) -> int | None:
    """``Late.suggested``: a slack longer than ``declared``, if most of the late rows need one.
    ``behind`` counts ``rows`` by distance below the highest time, ``most`` is their greatest
    lateness: it bounds the result, since ``slack_for`` rounds up."""
    slack = min(slack_for(behind, rows, ACCEPTED), declared + most)
    return slack if slack > declared else None


def table(found: Sequence[Late], *, timed: bool) -> pa.Table:
    """The ledger as a table; lengths are durations if ``timed``, else numbers of event-time
    units."""
    length = pa.duration("us") if timed else pa.int64()
    return pa.table(
        {
            "place": pa.array([e.place for e in found], pa.string()),
            "kind": pa.array([e.kind for e in found], pa.string()),
            "count": pa.array([e.count for e in found], pa.int64()),
            "max_lateness": pa.array([e.max_lateness for e in found], length),
            "suggested_slack": pa.array([e.suggested for e in found], length),
            "jump": pa.array([e.jump for e in found], length),
        }
    )
