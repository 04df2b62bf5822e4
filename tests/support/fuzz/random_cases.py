"""Random differential cases: query shape × data × disorder × morsel size × runtime.

A case is named ``shape:seed`` and made from that alone::

    python -m tests.support.fuzz.random_cases 17:4711     # shows it, runs it, shrinks a failing one
    python -m tests.support.fuzz.random_cases --shape 17  # the query of a shape

``check(case)`` runs it on the engine and compares it with the reference (``naive``): rows, late
pairs and bad rows. ``shrink(case, fails)`` makes a failing case small.
"""

from __future__ import annotations

import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

from cql.base.slack import parse_slack
from cql.errors import CqlError, RunError
from cql.executor.strings import compaction
from cql.planner.functions.aggregates import AGGREGATES
from cql.planner.nodes.catalog import Catalog, Relation, StreamSpec
from cql.planner.nodes.logical import Join, Logical
from cql.planner.optimize.rules import optimize
from cql.query.query import Query
from tests.reference.naive import evaluate
from tests.reference.naive_aggregates import QueryFailsError
from tests.reference.naive_compare import assert_same
from tests.reference.naive_order import Order
from tests.reference.naive_rows import Answer
from tests.reference.naive_tables import NaiveRelation
from tests.support.catalog_tools import blocks_of_eight
from tests.support.fuzz.random_data import (
    SCHEMAS,
    TABLES,
    TIMES,
    Stream,
    punctuated_by,
    random_stream,
    shown,
    to_table,
)
from tests.support.fuzz.random_shapes import Shape, shape
from tests.support.runtimes import ONE_THREAD

if TYPE_CHECKING:
    import pyarrow as pa

    import cql

#: Operators whose input and output are changelogs.
CHANGES = (
    "aggregate",
    "except",
    "intersect",
    "top",
    "rownumber",
    "istream",
    "dstream",
    "rstream",
    "subquery",
    "net",
    "relationjoin",
)
KEEPS_VALUES = re.compile(
    r"DISTINCT|median|percentile|mode\(|array_agg|collect_set|string_agg|listagg|time_weighted"
)
#: Matches texts whose sums are all over integers.
_SUMS = re.compile(r"^(?!.*\bsum\((?!q\)))", re.DOTALL).match
MORSELS = (1, 7, 64, None)
FLUSHES = ("at_once", "slow", "lazy", "in_order_slow")


@dataclass(frozen=True)
class Case:
    """All inputs that decide the outcome of a case; ``seed`` alone makes the case again."""

    seed: str
    shape: Shape
    streams: tuple[Stream, ...]
    params: Mapping[str, Any]
    keep_bad: bool
    settings: Mapping[str, Any] = field(default_factory=dict)
    functions: tuple[Any, ...] = ()  # the user's functions
    piecewise: bool = False  # the input comes in blocks of 8 rows, without statistics

    @property
    def text(self) -> str:
        return f"{self.shape.text} ON BAD ROW {'KEEP' if self.keep_bad else 'FAIL'}"

    def describe(self) -> str:
        """The case for a person: query, parameters, settings, and the first rows."""
        lines = [f"case {self.seed}", f"  {self.text}"]
        lines += [f"  :{name} = {value!r}" for name, value in self.params.items()]
        lines.append(f"  settings {dict(self.settings)}{' piecewise' * self.piecewise}")
        for stream in self.streams:
            schema = SCHEMAS[stream.name]
            lines.append(
                f"  {stream.name}: {len(stream.rows)} rows, slack {stream.slack}, "
                f"max advance {stream.max_advance}, {'marks, ' * stream.marked}"
                f"by {stream.by} within {stream.max_skew}, "
                f"cut at {list(stream.splits)}"
            )
            for row in stream.rows[:12]:
                pairs = zip(schema, row, strict=True)
                lines.append("    " + ", ".join(f"{f.name}={shown(v, f.type)}" for f, v in pairs))
        program = "count_cases" if "/" in self.seed else "random_cases"
        lines.append(f"  again: python -m tests.support.fuzz.{program} {self.seed}")
        return "\n".join(lines)


def make_case(shape_index: int, seed: int) -> Case:
    """The case ``shape_index:seed``; it does not depend on other cases."""
    return case_of(shape(shape_index), seed)


def case_of(made: Shape, seed: int) -> Case:
    """A case of the shape ``made``, whose index is part of the case's name."""
    rng = random.Random(f"case {made.index}:{seed}")
    streams = tuple(random_stream(rng, name) for name in made.streams)
    if made.by is not None:
        streams = tuple(
            punctuated_by(rng, stream, made.by) if n == 0 or rng.random() < 0.7 else stream
            for n, stream in enumerate(streams)
        )
    settings = runtime_settings(rng)
    morsel = rng.choice(MORSELS)
    if morsel is not None:
        settings["morsel_rows"] = morsel
    settings["fuse"] = rng.random() < 0.8
    params = made.draw(rng)
    keep = rng.random() < 0.85
    settings |= operator_settings(rng, made)
    settings |= order_settings(rng, made)
    piecewise = draw_piecewise(rng, made, streams)
    return Case(f"{made.index}:{seed}", made, streams, params, keep, settings, (), piecewise)


def runtime_settings(rng: random.Random) -> dict[str, Any]:
    """The runtime; for the ordered runtime also its workers, partitions, scheduler and queues."""
    settings: dict[str, Any] = {"runtime": rng.choice((*ONE_THREAD, *("ordered",) * 4))}
    if settings["runtime"] == "ordered":
        settings["workers"] = rng.choice((1, 2, 3))
        settings["partitions"] = rng.choice((0, 1, 3, 4, 100))
        settings["scheduler"] = rng.choice(("ct", "lp", "et", "qst", "ct_printed"))
        settings["worklist"] = rng.choice(("hybrid", "partitioned", "shared"))
        settings["reorder"] = rng.choice(("non_blocking", "lock_based"))
    return settings


def draw_piecewise(rng: random.Random, made: Shape, streams: Sequence[Stream]) -> bool:
    """Whether the input comes in blocks of 8 rows. Only a query with one input may: the blocks of
    several inputs alternate, so the block size would decide the order of rows."""
    inputs = re.findall(r"\b(?:FROM|UNION|ALL|EXCEPT|INTERSECT|JOIN|,) (\w+)\b", made.text)
    mentioned = sum(name in TIMES for name in inputs)
    return rng.random() < 0.4 and mentioned == len(streams) == 1 and bool(streams[0].rows)


def legal_operators(made: Shape) -> list[str]:
    """The legal values of ``SET window_operator``."""
    if made.by is not None:
        return ["auto", "wid"]
    operators = ["auto", "wid", "panes", "buffered"]
    if not KEEPS_VALUES.search(made.text):  # two-stacks and two-level keep no sets or value logs
        operators += ["two_stacks", "two_level"]
        calls = set(re.findall(r"\b(\w+)\(", made.text)) & set(AGGREGATES)
        if "own_" not in made.text and (
            calls <= {"count", "count_if"} or (calls <= {"count", "sum"} and _SUMS(made.text))
        ):
            operators += ["subtract"]
    return operators


def operator_settings(rng: random.Random, made: Shape) -> dict[str, Any]:
    operators = legal_operators(made)
    if made.by is not None:
        return {"window_operator": rng.choice(operators)}
    settings: dict[str, Any] = {"window_operator": rng.choice(operators)}
    if settings["window_operator"] == "two_level":
        settings["flush"] = rng.choice(FLUSHES)
        settings["flush_every"] = rng.choice((1, 3, 1000))
        settings["flush_windows"] = rng.choice((0, 1, 2, 50))
        settings["low_level_entries"] = rng.choice((1, 4, 64))
    elif rng.random() < 0.3:
        settings["adaptive_windows"] = True
    return settings


def order_settings(rng: random.Random, made: Shape) -> dict[str, Any]:
    """The settings that enforce order.

    Slack over a pass-through union depends on the order in which the replay alternates between the
    inputs, and the reference does not model the replay. So such a case has no slack."""
    united = len(made.streams) > 1
    settings: dict[str, Any] = {}
    if made.by is not None:
        return settings
    if united:
        settings["union_operator"] = rng.choice(("auto", "pass_through", "merge"))
    if rng.random() < 0.15:
        settings["order_enforcement"] = "sort"
    if rng.random() < 0.2 and not (united and settings["union_operator"] != "merge"):
        kinds = {TIMES[name] for name in made.streams}
        # slack in rows: half seconds fit no dates, durations fit no numbers as keys of DISTINCT
        if "CAST(t AS DATE)" in made.text or re.search(r"DISTINCT .*(unix_|year\(t)", made.text):
            kinds = {"date", "timestamp"}
        settings["slack"] = _own_slack(rng, kinds)
    return settings


def _own_slack(rng: random.Random, kinds: set[str]) -> str:
    if rng.random() < 0.5 or kinds == {"date", "timestamp"}:
        return f"{rng.choice((0, 1, 2, 7, 40))} rows"
    length = rng.choice((0, 1, 3, 10))
    if kinds == {"timestamp"}:
        return f"{length * 500} ms"
    return f"{length} days" if kinds == {"date"} else f"{length}"


def order_of(case: Case) -> Order:
    """The settings that enforce order, in the form of the reference."""
    given = case.settings
    slack = parse_slack(given.get("slack", "off"))
    units = None
    if slack is not None and slack.microseconds is not None:
        day = any(TIMES[s.name] == "date" for s in case.streams)
        units = slack.microseconds // (86_400_000_000 if day else 1)
    elif slack is not None:
        units = slack.units
    return Order(
        merge=given.get("union_operator") == "merge",
        sort=given.get("order_enforcement") == "sort",
        slack=units,
        slack_rows=slack.rows if slack is not None else None,
    )


def cases(count: int, seed: int, shapes: int) -> Iterator[Case]:
    """``count`` cases over the first ``shapes`` shapes, in turn."""
    for i in range(count):
        yield make_case(i % shapes, seed + i // shapes)


# The reference's side -----------------------------------------------------------------------------


class _Catalog:
    """The part of a catalog that ``bind`` needs."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._relations = {s.name: _relation(s) for s in streams}

    def find(self, name: tuple[str, ...]) -> Relation | None:
        return self._relations.get(name[-1])

    def names(self) -> list[tuple[str, ...]]:
        return [(name,) for name in self._relations]


def _relation(stream: Stream) -> NaiveRelation:
    spec = None if stream.name in TABLES else StreamSpec((stream.progress,), by=stream.by)
    return NaiveRelation((stream.name,), SCHEMAS[stream.name], spec)


def logical_plan(case: Case) -> Logical:
    from cql.dialect import parse_one
    from cql.planner.bind.context import Context
    from cql.planner.bind.statement import bind
    from cql.planner.nodes.statements import Query as Bound

    own = {function.name.lower(): function for function in case.functions}
    context = Context(parameters=case.params, functions=own)
    statement = bind(parse_one(case.text), cast(Catalog, _Catalog(case.streams)), context)
    assert isinstance(statement, Bound)
    return statement.plan


def reference(case: Case, plan: Logical) -> Answer:
    inputs = {s.name: s.rows for s in case.streams}
    return evaluate(plan, inputs, keep_bad=case.keep_bad, order=order_of(case))


# The engine's side --------------------------------------------------------------------------------


#: Settings of every session that do not change the outcome (``kernel_cache``).
EVERYWHERE: dict[str, Any] = {}


def open_session(case: Case) -> cql.Session:
    import cql

    session = cql.connect(**case.settings, **EVERYWHERE)
    for stream in case.streams:
        data = to_table(stream).to_batches if case.piecewise else to_table(stream)
        if stream.name in TABLES:
            session.create_stream(stream.name, data)
            continue
        most = stream.max_advance
        session.create_stream(
            stream.name,
            data,
            ordered_by="t",
            slack=_length(stream, stream.slack),
            max_advance=None if most is None else _length(stream, most),
            punctuated={"t": "b"} if stream.marked else None,
            punctuated_by=_by(stream),
        )
    session.register_functions(case.functions)
    return session


def _by(stream: Stream) -> Any:
    if stream.by is None or stream.max_skew is None:
        return stream.by
    return stream.by, _length(stream, stream.max_skew)


def _length(stream: Stream, units: int) -> Any:
    """A length in units of the stream's time: a duration for times, a bare number for integers."""
    import datetime

    match TIMES[stream.name]:
        case "timestamp":
            return datetime.timedelta(microseconds=units)
        case "date":
            return datetime.timedelta(days=units)
        case _:
            return units


def run_engine(case: Case) -> tuple[pa.Table, int, int, int]:
    """The rows, and the numbers of late pairs, bad rows and left-out late rows."""
    from cql.session.session import CqlWarning

    blocks = blocks_of_eight() if case.piecewise else nullcontext()
    forgetful = patch.object(compaction, "LEAST", 0)  # compaction as often as possible
    with blocks, forgetful, open_session(case) as session, warnings.catch_warnings():
        warnings.simplefilter("ignore", CqlWarning)  # SLIDE larger than RANGE is intended
        query = session.sql(case.text, **case.params)
        assert isinstance(query, Query)
        table = query.to_arrow()
        conserved(query.metrics())
        late = query.late()
        left_out = counted(late, "left out")
        return table, counted(late, "pairs"), query.progress().bad, left_out


def conserved(metrics: list[dict[str, Any]]) -> None:
    """Asserts the conservation laws (``executor.ledgers.metrics``) of a run that has ended."""
    from cql.executor.operators.stage.pair_counters import filtered

    for m in metrics:
        kind = m["operator"].split("#")[0]
        m = Counter({name: n for name, n in m.items() if isinstance(n, int)})
        if "groups_out" in m:
            lost = filtered(m, "after") + m["bad_results"] + m["over_limit"]
            assert m["groups_out"] == m["rows_out"] + lost, m
            assert "pairs" not in m or m["late_pairs"] <= m["pairs"], m
            assert m["groups_out"] >= m["windows_closed"], m
        elif "entered" in m:
            assert m["rows_in"] == m["entered"] + m["waiting"], m
            assert m["rows_out"] == m["entered"] + m["left"], m
            assert m["held"] == m["entered"] - m["left"], m
        elif kind == "join":
            held = m["held_left"] + m["held_right"]
            left_out = m["null_keys"] + m["too_late_l"] + m["too_late_r"]
            assert m["rows_in"] == held + m["purged"] + m["not_stored"] + left_out, m
        elif kind == "asofjoin":
            held = m["held_left"] + m["held_right"]
            left_out = m["null_keys"] + m["too_late_l"] + m["too_late_r"]
            assert m["rows_in"] == held + m["left_rows"] + m["purged"] + left_out, m
            assert m["rows_out"] >= m["left_rows"] - m["unmatched"], m
        elif kind == "tablejoin":
            assert m["unmatched"] <= m["rows_in"], m
            assert m["rows_out"] or m["unmatched"] in (0, m["rows_in"]), m
        elif kind == "unnest":
            padded = m["rows_out"] - m["elements"]
            assert padded in (0, m["unmatched"]), m
            assert m["elements"] >= m["rows_in"] - m["unmatched"], m
        elif kind == "dupelim":
            assert m["rows_in"] == m["rows_out"] + m["duplicates"], m
            assert m["rows_out"] == m["held"] + m["purged"], m
        elif kind == "keywindows":
            assert m["rows_in"] == m["held"] + m["purged"] + m["between_windows"], m
            assert m["rows_out"] >= m["purged"], m
        elif kind == "windowjoin":
            left_out = m["null_keys"] + sum(m[f"too_late_{port}"] for port in range(9))
            assert m["rows_in"] == m["held"] + m["queued"] + m["purged"] + left_out, m
            assert m["queued"] == m["held_results"] == 0, m
        elif kind in CHANGES:
            continue  # the size of their output depends on the values of the rows
        elif "pairs" in m:
            assert m["pairs"] == m["rows_out"] + filtered(m, "pairs") + m["bad_pairs"], m
        else:
            lost = filtered(m, "") + m["bad"] + m["marks"] + m["over_limit"] + m["held"]
            lost += m["late_rows"] + m["late_pairs"]
            assert m["rows_in"] == m["rows_out"] + lost, m
    names = [m["operator"].split("#")[0] for m in metrics]
    joins = {"join", "tablejoin", "relationjoin", "asofjoin", "windowjoin", "unnest"}
    if not (joins | {"union", "merge", "lookup"}) & set(names):
        for above, below in zip(metrics[1:], metrics, strict=False):
            assert above["rows_in"] == below["rows_out"], metrics


def counted(ledger: pa.Table, kind: str) -> int:
    """The sum of the counts of one kind in the ledger of late rows."""
    return sum(entry["count"] for entry in ledger.to_pylist() if entry["kind"] == kind)


#: The join operators that give their results in time order, and the columns of these times.
IN_ORDER = ("sync_filter", "filter_order", "adaptive")
TIMES_OF_MEMBERS = ("lt", "rt", "mt", "ot")

#: Kinds of failures, by the messages of engine and reference; other messages are kind "other".
FAILURES = {
    "division": "division by zero",
    "overflow": "overflow|does not fit|cannot hold",
    "event time": "event time .* is NULL|event time is NULL|the key that closes groups is NULL",
    "cast": "is not a valid|does not match|no (boolean|date|timestamp|number|int|bigint|double)",
    "two rows": "more than one row|two rows",
}


def kind_of(message: str) -> str:
    return next((kind for kind, said in FAILURES.items() if re.search(said, message)), "other")


def kinds_of_failure(case: Case, plan: Logical, first: QueryFailsError) -> set[str]:
    """The kinds of failure that a failing query may have: the plan decides which bad row comes
    first."""
    kinds = {kind_of(str(first))}
    try:
        kinds |= {kind_of(said) for said in reference(replace(case, keep_bad=True), plan).reasons}
    except QueryFailsError as fatal:
        kinds.add(kind_of(str(fatal)))
    return kinds


def check(case: Case) -> str:
    """Compares engine and reference; returns the outcome (same, fails).

    Raises AssertionError with the description of the case if they differ."""
    try:
        return _check(case)
    except Exception as error:  # the AssertionError describes the case
        raise AssertionError(f"{type(error).__name__}: {error}\n{case.describe()}") from error


def _check(case: Case) -> str:
    plan = plan_of(case)
    return held_against(case, plan, answer_of(case, plan))


def plan_of(case: Case) -> Logical:
    plan = logical_plan(case)
    if case.settings.get("union_operator") == "merge":
        return optimize(plan)  # the place of a filter decides whether it fails on a late row
    return plan


def answer_of(case: Case, plan: Logical) -> Answer | QueryFailsError:
    """The reference's answer, or the error of a query that must fail."""
    try:
        return reference(case, plan)
    except QueryFailsError as error:
        return error


def held_against(case: Case, plan: Logical, answer: Answer | QueryFailsError) -> str:
    """Runs the engine and compares it with the reference's answer."""
    match answer:
        case QueryFailsError():
            return _fails_alike(case, plan, answer)
    table, late, bad, left_out = run_engine(case)
    assert_same(answer, table, plan)
    if case.settings.get("join_operator") in IN_ORDER and "GROUP BY" not in case.text:
        assert_in_time_order(table)
    if _joins(plan) and (late, left_out) != (answer.late_pairs, answer.left_out):
        # the engine filters one side below the join: the removed rows do not count as late
        answer = reference(case, optimize(plan))
    assert late == answer.late_pairs, f"{late} late, not {answer.late_pairs}"
    assert bad == answer.bad_rows, f"{bad} bad rows, not {answer.bad_rows}"
    assert left_out == answer.left_out, f"{left_out} left out, not {answer.left_out}"
    return "same"


def _joins(node: Logical) -> bool:
    return isinstance(node, Join) or any(map(_joins, node.inputs))


def assert_in_time_order(table: pa.Table) -> None:
    """Asserts that the results of a join come in the order of their time, the latest of their
    members' times ``lt``, ``rt``, ``mt`` and ``ot``."""
    times = [table[name].to_pylist() for name in table.column_names if name in TIMES_OF_MEMBERS]
    latest = [max(found) for found in zip(*times, strict=True)]
    assert latest == sorted(latest), "not in the order of time"


def _fails_alike(case: Case, plan: Logical, error: QueryFailsError) -> str:
    try:
        table, *_ = run_engine(case)
    except RunError as failure:
        said = failure.message
    else:
        raise AssertionError(f"must fail ({error}), gave {table.num_rows} rows") from error
    kinds = kinds_of_failure(case, plan, error)
    assert kind_of(said) in kinds, f"must fail by {' or '.join(sorted(kinds))}: {said}"
    return "fails"


# Shrinking ----------------------------------------------------------------------------------------


def shrink(case: Case, fails: Callable[[Case], bool], *, tries: int = 400) -> Case:
    """A smaller case for which ``fails`` still holds.

    Removes rows of each stream in ever smaller steps, removes cuts and slack, replaces columns by
    NULL and makes the settings plain."""
    assert fails(case)
    left = [tries]

    def better(candidate: Case) -> bool:
        left[0] -= 1
        return left[0] >= 0 and fails(candidate)

    for simpler in _plainer(case):
        if better(simpler):
            case = simpler
    for i in range(len(case.streams)):
        case = _fewer_rows(case, i, better)
    for i in range(len(case.streams)):
        case = _fewer_values(case, i, better)
    return case


def _plainer(case: Case) -> Iterator[Case]:
    uncut = tuple(replace(s, splits=()) for s in case.streams)
    yield replace(case, streams=uncut)
    yield replace(case, streams=uncut, settings={})


def _with_rows(case: Case, index: int, rows: Sequence[tuple[Any, ...]]) -> Case:
    streams = list(case.streams)
    splits = tuple(min(cut, len(rows)) for cut in streams[index].splits)
    streams[index] = replace(streams[index], rows=tuple(rows), splits=splits)
    return replace(case, streams=tuple(streams))


def _fewer_rows(case: Case, index: int, fails: Callable[[Case], bool]) -> Case:
    size = len(case.streams[index].rows)
    while size:
        begin = 0
        while begin < len(case.streams[index].rows):
            rows = case.streams[index].rows
            candidate = _with_rows(case, index, rows[:begin] + rows[begin + size :])
            if fails(candidate):
                case = candidate
            else:
                begin += size
        size //= 2
    return case


def _fewer_values(case: Case, index: int, fails: Callable[[Case], bool]) -> Case:
    """Replaces whole columns by NULL."""
    width = len(SCHEMAS[case.streams[index].name])
    for column in range(1, width):
        rows = [(*r[:column], None, *r[column + 1 :]) for r in case.streams[index].rows]
        candidate = _with_rows(case, index, rows)
        if candidate != case and fails(candidate):
            case = candidate
    return case


def failing(case: Case) -> bool:
    """Whether ``check`` finds a difference; any other exception counts as a difference."""
    try:
        check(case)
    except (AssertionError, CqlError):
        return True
    return False


def main(args: list[str]) -> int:
    if args[:1] == ["--shape"]:
        print(shape(int(args[1])).text)
        return 0
    if len(args) != 1 or ":" not in args[0]:
        print(__doc__)
        return 2
    number, seed = (int(part) for part in args[0].split(":"))
    case = make_case(number, seed)
    print(case.describe())
    try:
        print(check(case))
    except AssertionError as error:
        print(error)
        print("\nshrunk:")
        small = shrink(case, failing)
        try:
            check(small)
        except AssertionError as last:
            print(last)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
