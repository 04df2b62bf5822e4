"""Whole runs that stop between two morsels, and continue from a checkpoint in a new run."""

from __future__ import annotations

import ast
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from cql.errors import CqlError, NotSupportedError
from cql.executor.run import execution
from cql.executor.run.execution import Execution
from cql.executor.state.checkpoint import Checkpoint, from_ipc, to_ipc
from cql.executor.strings.dictionary import Dictionary
from cql.planner.nodes.physical import (
    LimitExec,
    Physical,
    PhysicalPlan,
    QuerySetPlan,
    SourceExec,
    WidAggregateExec,
    walk,
)
from cql.session.session import Session
from tests.support import checkpoints, growing_streams
from tests.support.operator_tools import session_over

Plan = PhysicalPlan | QuerySetPlan
#: Counters of two-level aggregation, whose places follow from the codes of texts.
_OF_PLACES = ("forced_flushes", "evictions", "old_evictions", "most_at_once")
#: What measures memory or time, and which runtime made it.
MEASURED = ("state_bytes", "peak_bytes", "why_partitions", "partitions", "largest")


@dataclass
class Ran:
    """What a run gave. ``rows``: by query, the rows in order, as texts that tell apart all floats.
    ``late_output``: by query, the rows of LATE OUTPUT. ``ledgers``: the counters, the late rows and
    the bad rows of each query. ``morsels``: the number of morsels that were admitted."""

    rows: list[list[str]]
    late_output: list[list[str]]
    error: str | None = None
    notices: list[str] = field(default_factory=list)
    ledgers: list[dict[str, Any]] = field(default_factory=list)
    morsels: int = 0
    saved: Checkpoint | None = None

    def behind(self, before: Ran) -> Ran:
        """This run as if it had begun with the rows that ``before`` gave."""
        rows = [[*a, *b] for a, b in zip(before.rows, self.rows, strict=True)]
        late = [[*a, *b] for a, b in zip(before.late_output, self.late_output, strict=True)]
        given = [*before.notices, *self.notices]
        how = dict.fromkeys(n for n in given if n.startswith("this query runs "))
        notices = [*how, *(n for n in given if n not in how)]  # each part says how it runs
        return Ran(rows, late, self.error, notices, self.ledgers, self.morsels, self.saved)


class _Execution(Execution):
    morsels = 0

    def _close(self) -> None:
        if self._scheduler is not None:
            self.morsels = self._scheduler.serial
        super()._close()


def run(
    plan: Plan,
    settings: Mapping[str, Any],
    resume: Checkpoint | None = None,
    stop: int | None = None,
) -> Ran:
    """Runs a plan. ``stop``: the number of morsels after which the run takes a checkpoint and
    ends."""
    made = _Execution(plan, settings, resume=resume)
    ran = Ran([[] for _ in made.plans], [[] for _ in made.plans])

    def then(saved: Checkpoint) -> None:
        ran.saved = saved
        made.request_stop()

    if stop is not None:
        made.request_checkpoint(then, stop)
    for query, late in zip(made.queries, ran.late_output, strict=True):
        query.on_late = partial(_append, late)
        query.on_notice = ran.notices.append
    results = made.results()
    try:
        for query, batch in results:
            _append(ran.rows[query], batch)
    except NotSupportedError:
        raise
    except CqlError as error:
        ran.error = str(error)
    finally:
        results.close()
    dropped = {*MEASURED, *(_OF_PLACES if _groups_texts(plan) else ())}
    ran.ledgers = [_ledger(query, dropped) for query in made.queries]
    ran.morsels = made.morsels
    return ran


def _append(rows: list[str], batch: pa.RecordBatch) -> None:
    """Appends the rows as texts. Times are numbers, since Python cannot hold all of them."""
    columns = [column.cast(_in_numbers(column.type)) for column in batch.columns]
    named = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    rows += map(repr, named.to_pylist() if columns else [{}] * batch.num_rows)


def _in_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_in_numbers(kind.value_type))
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_temporal(kind) else kind


def _ledger(query: Any, dropped: Collection[str]) -> dict[str, Any]:
    """The counters of the operators but those ``dropped``, the ledgers of late and bad rows, and
    the progress."""
    progress = query.progress()
    found = {
        "late": repr(query.late().to_pylist()),
        "bad": repr(query.bad_rows().to_pylist()),
        "progress": (progress.rows_in, progress.rows_out, progress.late, progress.bad),
        "event time": progress.event_time,
    }
    for number, entry in enumerate(query.metrics()):
        kept = {name: count for name, count in entry.items() if name not in dropped}
        found[f"{number} {entry['operator']}"] = kept
    return found


@contextmanager
def other_codes(texts: Sequence[str]) -> Iterator[None]:
    """Runs begin with a dictionary that knows ``texts``, so that they number those of rows
    otherwise."""

    def made() -> Dictionary:
        dictionary = Dictionary()
        dictionary.encode(pa.array(texts, pa.string()), np.zeros(len(texts), np.int32))
        return dictionary

    with patch.object(execution, "Dictionary", made):
        yield


def stop_and_continue(
    plan: Plan,
    settings: Mapping[str, Any],
    choice: random.Random,
    *,
    stops: int = 1,
    others: Sequence[tuple[Plan, Mapping[str, Any]]] = (),
    partitions_differ: bool = False,
) -> int:
    """Asserts that a run with ``stops`` stops gives the rows and the ledgers of a run without;
    returns the number of stops that it made. ``others``: the plans and settings with which it
    continues, one of them each time. ``partitions_differ``: these have other numbers of partitions,
    or none; the run without stops is under the last of them."""
    whole, places = run(plan, settings), list[int]()
    ran, at, made = Ran([[] for _ in whole.rows], [[] for _ in whole.rows]), 0, 0
    saved: Checkpoint | None = None
    now = plan, settings
    while True:
        at = choice.randrange(at, max(whole.morsels, at) + 1)
        with other_codes([f"n{choice.randrange(10_000)}" for _ in range(choice.randrange(300))]):
            ran = run(*now, saved, at if made < stops else None).behind(ran)
        if ran.saved is None:
            break
        made += 1
        places.append(at)
        saved = from_ipc(to_ipc(ran.saved))
        ran.saved = None
        now = choice.choice(others) if others else now
    in_turn = all(one["runtime"] == "depth_first" for _, one in ((plan, settings), *others))
    if partitions_differ:  # which operators there are depends on the partitions
        whole = run(*now)
        known = (ledger["bad"] for one in (ran, whole) for ledger in one.ledgers)
        traced = not any("'offset': None" in bad for bad in known)
        for one in (ran, whole):
            one.ledgers = [_of_all_partitions(ledger, traced) for ledger in one.ledgers]
    counts = in_turn or not _limited(plan)
    if not counts and _queued(plan):  # bad rows, too, are read behind the LIMIT
        for ledger in (*ran.ledgers, *whole.ledgers):
            ledger["bad"] = ""
    notices = not partitions_differ
    found = list(_differences(ran, whole, counts=counts, in_turn=in_turn, notices=notices))
    assert not found, f"stopped at {places} of {whole.morsels}: {found}"
    return made


#: Counters of each partition on its own, and those that depend on how inputs are cut into morsels.
_OF_PARTITIONS = (
    *("windows_closed", "peak_left", "peak_right", "searched_ahead"),
    *("evictions", "old_evictions", "most_at_once"),
)
#: Counters of the operators before and behind the one at which a bad row failed.
_WITH_BAD_ROWS = ("rows_in", "rows_out", "pairs", "bad")


def _of_all_partitions(ledger: dict[str, Any], traced: bool) -> dict[str, Any]:
    """A ledger without what depends on the number of partitions: the operators that split rows, the
    numbers of operators, some counters, and at which operator a bad row failed. ``traced``: all bad
    rows are traced to their source."""
    found: dict[str, Any] = {}
    dropped = (*_OF_PARTITIONS, *(_WITH_BAD_ROWS if ledger["bad"] != "[]" else ()))
    for name, entry in ledger.items():
        kind = name.partition("#")[0].split(" ")[-1]
        if name == "bad":
            found[name] = _in_any_order(entry, traced)
        elif isinstance(entry, str):
            found[name] = re.sub(r"#\d+", "", entry)
        elif not isinstance(entry, dict):
            found[name] = entry
        elif kind != "split":
            counts = {name: n for name, n in entry.items() if name not in dropped}
            found[f"{len(found)} {kind}"] = counts | {"operator": kind}
    return found


def _in_any_order(bad: str, traced: bool) -> list[str]:
    kept = ("offset", "reason") if traced else ("reason",)
    return sorted(repr([row[name] for name in kept]) for row in ast.literal_eval(bad))


def _differences(
    ran: Ran, whole: Ran, *, counts: bool, in_turn: bool, notices: bool
) -> Iterator[Any]:
    """Where two runs differ. ``counts``: in the numbers of rows that were read, too. ``in_turn``:
    also in the rows that came before a failure, none of which was in a queue. ``notices``: also in
    the notices, which tell of partitions."""
    if ran.error != whole.error:
        yield ran.error, whole.error
    for name in ("rows", "late_output"):
        for given, wanted in zip(getattr(ran, name), getattr(whole, name), strict=True):
            if given != wanted and (in_turn or whole.error is None):
                pairs = enumerate(zip_longest(given, wanted))
                yield name, next((n, *pair) for n, pair in pairs if pair[0] != pair[1])
    for given, wanted in zip(ran.ledgers, whole.ledgers, strict=True):
        names = given if counts and whole.error is None else ("bad",)
        for name in names:
            if given[name] != wanted[name]:
                yield name, given[name], wanted[name]
    if whole.error is None and notices and ran.notices != whole.notices:
        yield ran.notices, whole.notices


def _limited(plan: Plan) -> bool:
    """Whether a LIMIT decides how much is read: queues hold rows that are read behind it."""
    return any(isinstance(node, LimitExec) for node in _nodes(plan))


def _queued(plan: Plan) -> bool:
    """Whether rows wait in an update queue."""
    return any(isinstance(n, SourceExec) and n.updates is not None for n in _nodes(plan))


def _groups_texts(plan: Plan) -> bool:
    """Whether an aggregate of windows has texts in its keys or its state."""
    found = (node for node in _nodes(plan) if isinstance(node, WidAggregateExec))
    exprs = (e for node in found for e in (*node.keys, *(a for c in node.calls for a in c.args)))
    return any(expr.type.is_coded for expr in exprs)


def _nodes(plan: Plan) -> Iterator[Physical]:
    for one in plan.plans if isinstance(plan, QuerySetPlan) else (plan,):
        yield from walk(one.root)


def until_checkpoint(
    made: Execution, stop: int | None, is_through: Callable[[], bool]
) -> tuple[list[dict[str, Any]], Checkpoint]:
    """The rows of an endless run up to its checkpoint, and the checkpoint: behind ``stop`` morsels;
    None: once ``is_through``, which is asked every few milliseconds for at most a minute, since no
    event tells how far a run has read."""
    saved: list[Checkpoint] = []

    def then(checkpoint: Checkpoint) -> None:
        saved.append(from_ipc(to_ipc(checkpoint)))
        made.request_stop()

    def behind_all() -> None:
        end = time.monotonic() + 60
        while not is_through() and time.monotonic() < end:
            time.sleep(0.005)
        made.request_checkpoint(then)

    if stop is None:
        threading.Thread(target=behind_all, daemon=True).start()
    else:
        made.request_checkpoint(then, stop)
    rows = [row for _, batch in made.results() for row in batch.to_pylist()]
    return rows, saved[-1]


# -- cases -----------------------------------------------------------------------------------------

RUNTIMES = ("depth_first", "fifo", "fifo_slice", "run_to_completion", "ordered")


def session_of_case(case: str, **settings: Any) -> Session:
    """A session over the streams of one of ``checkpoints.CASES``."""
    name, _, kind = case.partition(", ")
    own = checkpoints.VARIANTS[name, kind] if kind else growing_streams.SETTINGS.get(name, {})
    streams = {"a": growing_streams.stream(1), "b": growing_streams.stream(2)}
    given = {"on_bad_row": "keep", **own, **settings}
    key = checkpoints.UPDATE_KEYS.get(name)
    return session_over(streams, slack=5, settings=given, update_key=key)


def query_of_case(case: str) -> str:
    return checkpoints.QUERIES[case.partition(", ")[0]]


def plan_of(session: Session, text: str, **params: Any) -> PhysicalPlan:
    plan: PhysicalPlan = session.sql(text, **params)._plan
    return plan


def continue_elsewhere(case: str, folder: str) -> None:
    """Reads ``run.arrow``, continues, and writes what came of it."""
    with session_of_case(case, morsel_rows=16) as session:
        plan = plan_of(session, query_of_case(case))
        saved = from_ipc(Path(folder, "run.arrow").read_bytes())
        with other_codes([f"other {k}" for k in range(100)]):
            ran = run(plan, session.settings, saved)
    Path(folder, "rest").write_text(repr((ran.rows, ran.ledgers)), "utf-8")


if __name__ == "__main__":
    continue_elsewhere(*sys.argv[1:])
