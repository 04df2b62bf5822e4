"""Rows that cannot be read or computed with. Under ON BAD ROW, a query fails at the first bad row
or counts bad rows and continues. Either way it reports each row's source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
import pyarrow as pa

from cql.base.call_timeout import SETTING
from cql.errors import CatalogError, RunError
from cql.executor.graph.graph import SINK, Graph
from cql.executor.kernels.morsel_layout import SEQUENCE, SERIAL
from cql.executor.morsel.ingest import Feed, Loaded
from cql.executor.operators.contract import Operator
from cql.executor.run.input_scheduler import InputScheduler
from cql.executor.runtimes.protocol import Failure
from cql.executor.state.store import Snapshot, State
from cql.executor.state.texts import saved_texts, texts_of
from cql.executor.udf.errors import OPERATOR, OPERATOR_END, TIME_LIMIT
from cql.planner.nodes.physical import PhysicalPlan, SourceExec, sources

#: All bad rows are counted; this many keep their details.
LEDGER_ROWS = 10_000
#: The columns of the ledger (``BadRow``).
SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("offset", pa.int64()),
        ("operator", pa.string()),
        ("reason", pa.string()),
        ("text", pa.string()),
    ]
)
_LEAVE_OUT = "leave such rows out: ON BAD ROW KEEP"


@dataclass(frozen=True, slots=True)
class BadRow:
    """``offset`` counts the rows of ``source`` from 0. Both are None if the row cannot be traced
    back: a result of an aggregate, or a row behind an operator that drops or repeats rows. ``text``
    is the raw text of a row that could not be read."""

    source: str | None
    offset: int | None
    operator: str
    reason: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class _Running:
    """The run through which rows are traced back. ``users``: the queries of each operator."""

    graph: Graph
    users: Sequence[set[int]]
    feeds: Sequence[Feed]
    scheduler: InputScheduler


class BadRows:
    """The bad rows of the queries with ``plans``: ``counts`` per query; ``refused`` by operator and
    kind (``metrics.kind_of``)."""

    def __init__(self, plans: Sequence[PhysicalPlan]) -> None:
        self.counts = [0 for _ in plans]
        #: Each row with its place (``Failure.place``) and the queries that it concerns.
        self._kept: list[tuple[tuple[int, ...], set[int], BadRow]] = []
        self.refused: dict[str, Counter[str]] = {}
        self._plans = plans
        self._running: _Running | None = None

    def begin(
        self,
        graph: Graph,
        users: Sequence[set[int]],
        feeds: Sequence[Feed],
        scheduler: InputScheduler,
    ) -> None:
        """Starts the ledger; called before the first morsel is admitted."""
        self._running = _Running(graph, users, feeds, scheduler)

    def end(self) -> None:
        """Keeps the ledger's entries and drops the references to the run."""
        self._running = None

    def failed(self, failure: Failure) -> None:
        """Handles a row that an operator refuses: raises RunError, or counts the row."""
        users = self._users_of(failure.operator)
        if failure.fatal or not self._keeps(users):
            again = failure.site.again
            nobody = failure.fatal and (again is None or not again.of_row)  # e.g. overflow of a sum
            source, offset = (None, None) if nobody else self._origin(failure)
            where = f", in the row at offset {offset} of {source.name}" if source else ""
            if failure.site.kind in ("function", OPERATOR, OPERATOR_END, TIME_LIMIT):
                where = f", in {failure.operator}{where}"
            raise RunError(
                f"{failure.site.message}{where}",
                position=failure.site.pos or (source.pos if source else None),
                hint=_remedy(failure, kept=self._keeps(users)),
            )
        self._count(users, 1)
        self.refused.setdefault(failure.operator, Counter())[self._kind(failure)] += 1
        if len(self._kept) < LEDGER_ROWS:
            source, offset = self._origin(failure)
            name = source.name if source else None
            row = BadRow(name, offset, failure.operator, failure.site.message)
            self._kept.append((failure.place, users, row))

    def unread(self, feed: Feed, loaded: Loaded, quiesce: Callable[[], None]) -> None:
        """Handles the rows of a block that the source could not read: counts them, or raises
        CatalogError. Before it raises, ``quiesce`` lets the admitted morsels through, because an
        earlier row may fail."""
        name, bad = feed.source.name, loaded.block.bad
        users = self._readers_of(feed.source)
        if not self._keeps(users):
            quiesce()
            remedies = [h for h in (bad[0].hint, _LEAVE_OUT) if h]
            raise CatalogError(bad[0].reason, position=feed.source.pos, hint="; or ".join(remedies))
        self._count(users, len(bad))
        assert self._running is not None
        place = (self._running.scheduler.serial,)  # before all failures of operators in the block
        for b in bad[: LEDGER_ROWS - len(self._kept)]:
            row = BadRow(name, loaded.offset + b.row, "source", b.reason, b.text)
            self._kept.append((place, users, row))

    def of_query(self, query: int) -> list[BadRow]:
        """The bad rows of a query in depth-first order, whichever worker met them first."""
        kept = sorted(self._kept, key=itemgetter(0))
        return [row for _, users, row in kept if query in users]

    # -- checkpoints -----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The counts and the kept rows."""
        kept = range(len(self.counts))
        places = [place for place, _, _ in self._kept]
        rows = [row for _, _, row in self._kept]
        refused = [
            (name, kind, n) for name, kinds in self.refused.items() for kind, n in kinds.items()
        ]
        arrays: State = {
            "counts": np.array(self.counts, np.int64),
            "places": np.array([n for place in places for n in place], np.int64),
            "lengths": np.array([len(place) for place in places], np.int64),
            "users": np.array([q in users for _, users, _ in self._kept for q in kept], np.uint8),
            "offsets": np.array([-1 if r.offset is None else r.offset for r in rows], np.int64),
            "refused": np.array([n for _, _, n in refused], np.int64),
        }
        texts: dict[str, list[str | None]] = {
            "source": [row.source for row in rows],
            "operator": [row.operator for row in rows],
            "reason": [row.reason for row in rows],
            "text": [row.text for row in rows],
            "refusing": [name for name, _, _ in refused],
            "kind": [kind for _, kind, _ in refused],
        }
        parts = {name: saved_texts(column) for name, column in texts.items()}
        return Snapshot(arrays, np.zeros(0, np.int64), parts)

    def restore(self, saved: Snapshot) -> None:
        """Continues with the ledger of a run of the same queries."""
        arrays = {name: array.tolist() for name, array in saved.arrays.items()}
        texts = {name: texts_of(part) for name, part in saved.parts.items()}
        self.counts = arrays["counts"]
        ends = np.cumsum(saved.arrays["lengths"]).tolist()
        users = saved.arrays["users"].reshape(-1, len(self.counts))
        columns = ("source", "operator", "reason", "text")
        rows = zip(arrays["offsets"], *(texts[name] for name in columns), strict=True)
        self._kept = []
        for k, (offset, source, operator, reason, text) in enumerate(rows):
            place = tuple(arrays["places"][ends[k] - arrays["lengths"][k] : ends[k]])
            row = BadRow(source, None if offset < 0 else offset, operator or "", reason or "", text)
            self._kept.append((place, set(np.flatnonzero(users[k]).tolist()), row))
        self.refused = {}
        for name, kind, n in zip(texts["refusing"], texts["kind"], arrays["refused"], strict=True):
            self.refused.setdefault(name or "", Counter())[kind or ""] = n

    def rename(self, names: Mapping[str, str]) -> None:
        """Replaces the names of operators by those that they have in this run."""
        before, self.refused = self.refused, {}
        for name, kinds in before.items():
            self.refused.setdefault(names.get(name, name), Counter()).update(kinds)
        self._kept = [
            (place, users, replace(row, operator=names.get(row.operator, row.operator)))
            for place, users, row in self._kept
        ]

    # -- which queries a row concerns ------------------------------------------------------------

    def _count(self, queries: Iterable[int], rows: int) -> None:
        for q in queries:
            self.counts[q] += rows

    def _keeps(self, queries: Iterable[int]) -> bool:
        """Whether all these queries keep bad rows instead of failing."""
        return all(self._plans[q].keep_bad_rows for q in queries)

    def _users_of(self, operator: str) -> set[int]:
        """The queries whose results come through an operator."""
        assert self._running is not None
        named = zip(self._running.graph.operators, self._running.users, strict=True)
        return next((users for op, users in named if op.name == operator), set())

    def _readers_of(self, source: SourceExec) -> set[int]:
        """The queries that read a source."""
        plans = enumerate(self._plans)
        return {q for q, plan in plans if any(s is source for s in sources(plan.root))}

    def _kind(self, failure: Failure) -> str:
        assert self._running is not None
        named = (op for op in self._running.graph.running() if op.name == failure.operator)
        operator = next(named, None)
        return "bad" if operator is None else operator.refused_kind(failure.morsel)

    def _origin(self, failure: Failure) -> tuple[SourceExec | None, int | None]:
        """The source of a failed row and its offset there; (None, None) unless rows reach the
        operator as they left the source."""
        assert self._running is not None
        words, scheduler = failure.morsel.words, self._running.scheduler
        if failure.feed is None and words[SERIAL] < scheduler.began:
            return None, None
        feed = None if failure.feed is None else failure.feed[0]
        k, loaded = scheduler.block_of(feed, int(words[SERIAL]))
        if loaded is None:
            return None, None
        first = scheduler.first if failure.feed is None else failure.feed[1]
        operator = _reached(self._running.graph, k, failure.operator)
        if operator is None or operator.refused_kind(failure.morsel) == "bad_results":
            return None, None
        row = int(words[SEQUENCE]) - first + failure.row
        return self._running.feeds[k].source, loaded.place(row)


def _reached(graph: Graph, k: int, name: str) -> Operator | None:
    """The operator called ``name``, if only operators that pass every row lie between it and feed
    ``k``."""
    waiting = [graph.entries[k]]
    while waiting:
        edge = waiting.pop()
        if edge is None or edge.target == SINK:
            continue
        operator = graph.operators[edge.target].any_instance
        if operator.name == name and operator.fails_by_row:
            return operator
        if operator.passes_rows:
            waiting += graph.edges[edge.target]
    return None


def _remedy(failure: Failure, *, kept: bool) -> str:
    """The hint for a failure. ``kept``: ON BAD ROW KEEP is set but does not cover this failure."""
    if failure.site.kind == TIME_LIMIT:
        return f"SET {SETTING} = '<longer>', or 'off'; calls of it can be guarded (CASE WHEN …)"
    if failure.site.kind == OPERATOR:
        why = "ON BAD ROW KEEP does not help, as its state may have changed; " if kept else ""
        return f"{why}leave such rows out in its table: (TABLE (SELECT … WHERE …))"
    if failure.site.kind == OPERATOR_END:
        return "let the finish function look at what its state has before it computes"
    if failure.site.kind == "rows":
        return "aggregate in the subquery (max, first), or ORDER BY … LIMIT 1"
    if failure.fatal and failure.site.again is not None:
        return "leave such rows out: FILTER (WHERE …) behind the aggregate, or WHERE"
    if failure.fatal:
        why = "ON BAD ROW KEEP does not help, as no single row of a sum is bad; " if kept else ""
        wider = "CAST its argument to a wider type (DOUBLE holds any size), or use shorter windows"
        return why + wider
    if failure.site.kind in ("null event time", "event time"):
        return f"{_LEAVE_OUT} counts them"
    if failure.site.kind == "cast":
        return f"TRY_CAST gives NULL instead; or {_LEAVE_OUT}"
    return f"guard the expression (CASE WHEN …), or {_LEAVE_OUT}"
