"""ROW_NUMBER(), LIMIT and RSTREAM over changelogs with weights, against a model that sorts the
whole relation at each instant: the same changes in the same order."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

import cql
from cql.executor.operators.relations.grouped import GroupChangesOperator
from cql.executor.operators.relations.ranking import RankingOperator
from cql.planner.nodes.expr import Column
from cql.planner.nodes.logical import SortKey
from cql.planner.nodes.physical import Physical, RowNumberExec, StreamExec, TopExec
from tests.support.operator_tools import (
    Admissions,
    Recorder,
    admit_all,
    graph_of,
    plan_of,
    refresh,
    runtime_of,
    session_over,
    workspace_of,
)

Row: TypeAlias = tuple[Any, ...]
#: A row of the relation, an instant, a weight.
Change: TypeAlias = tuple[Row, int, int]

COLUMNS = ("k", "s", "x")
STREAM = pa.schema(
    [
        pa.field("k", pa.int32()),
        pa.field("s", pa.string()),
        pa.field("x", pa.float64()),
        pa.field("ts", pa.int64(), nullable=False),
        pa.field("w", pa.int64(), nullable=False),
    ]
)
SLACK = 4
DOUBLES = (float("nan"), float("inf"), -1.5, 0.0, 2.25)


def bits(value: float | None) -> int | None:
    """A double in storage form."""
    return None if value is None else int(struct.unpack("<q", struct.pack("<d", value))[0])


def random_changes(rng: random.Random, n: int, *, grows: bool = False) -> list[Change]:
    """Changes in the order of time, no row leaving before it came; at the end, all rows leave. Some
    instants have many changes. ``grows``: no row leaves."""
    held: Counter[Row] = Counter()
    changes, time = [], 0
    for i in range(n):
        time += rng.choice((0, 0, 0, 1, 2)) if i % 100 < 60 else 0
        if held and not grows and rng.random() < 0.45:
            row = rng.choice(list(held))
            weight = -rng.randint(1, held[row])
        else:
            text = rng.choice((None, f"t{rng.randrange(9)}", f"new {i}"))
            row = (rng.choice((None, 1, 2, 3)), text, bits(rng.choice((None, *DOUBLES))))
            weight = 1 if grows else rng.choice((1, 1, 2, 3))
        held[row] += weight
        if held[row] == 0:
            del held[row]
        changes.append((row, time, weight))
    if not grows:
        changes += [(row, time + 1 + i // 7, -many) for i, (row, many) in enumerate(held.items())]
    return changes


# -- the model -------------------------------------------------------------------------------------


def sort_words(row: Row, keys: Iterable[SortKey]) -> list[Any]:
    return [_sort_word(row[key.expr.index], key) for key in keys if isinstance(key.expr, Column)]


class _Down:
    """Sorts in the descending order of a value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Down) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Down) and self.value == other.value


def _sort_word(value: Any, key: SortKey) -> tuple[int, Any]:
    if value is None:
        return (-1 if key.nulls_first else 1), 0
    if key.expr.type.is_fraction:
        number = struct.unpack("<d", struct.pack("<q", value))[0]
        value = (1, 0.0) if number != number else (0, number)
    return 0, _Down(value) if key.descending else value


class Sorted:
    """The rows of one partition with their copies, by sort keys and arrival."""

    def __init__(self, first: int, stop: int | None) -> None:
        self.held: dict[Row, tuple[list[Any], int, int]] = {}
        self.shown: dict[Row, range] = {}
        self.first = first
        self.stop = stop

    def places(self) -> dict[Row, range]:
        """Of each row, the places that the output shows."""
        found, place = {}, 0
        by_key = sorted(self.held.items(), key=lambda item: item[1][:2])
        for row, (_, _, many) in by_key:
            stop = place + many if self.stop is None else min(place + many, self.stop)
            if stop > max(place, self.first):
                found[row] = range(max(place, self.first), stop)
            place += many
        return found


def ranked(changes: list[Change], node: RowNumberExec | TopExec) -> Iterator[Row]:
    numbered = isinstance(node, RowNumberExec)
    partition = node.partition if isinstance(node, RowNumberExec) else ()
    first = node.offset if isinstance(node, TopExec) else 0
    stop = None if node.limit is None else first + node.limit
    parts: dict[Row, Sorted] = {}
    for time, instant in groupby(changes, lambda change: change[1]):
        touched: dict[Row, Sorted] = {}
        for row, _, weight in instant:
            by = tuple(row[c] for c in partition)
            part = touched[by] = parts.setdefault(by, Sorted(first, stop))
            words, arrival, many = part.held.get(row, (sort_words(row, node.keys), next(COME), 0))
            part.held[row] = words, arrival, many + weight
            if many + weight == 0:
                del part.held[row]
        for part in touched.values():
            was, part.shown = part.shown, part.places()
            for sign, rows, others in ((-1, was, part.shown), (1, part.shown, was)):
                for row, places in rows.items():
                    other = others.get(row, range(0))
                    if numbered:
                        gone = (place for place in places if place not in other)
                        yield from ((*row, place + 1, time, sign) for place in gone)
                    elif len(places) > len(other):
                        yield *row, time, sign * (len(places) - len(other))


COME = iter(range(1 << 60))


def whole(changes: list[Change], _: Physical) -> Iterator[Row]:
    held: dict[Row, int] = {}
    for time, instant in groupby(changes, lambda change: change[1]):
        for row, _, weight in instant:
            held[row] = held.get(row, 0) + weight
            if held[row] == 0:
                del held[row]
        for row, many in held.items():
            yield from ((*row, time) for _ in range(many))


# -- running ---------------------------------------------------------------------------------------


def stream_of(changes: list[Change], rng: random.Random) -> pa.Table:
    """The changes, a few instants out of order."""
    late = {time: rng.randint(0, SLACK) for _, time, _ in changes}
    arrived = sorted(changes, key=lambda change: change[1] + late[change[1]])
    rows = [row for row, _, _ in arrived]
    doubles = [
        None if x is None else struct.unpack("<d", struct.pack("<q", x))[0] for *_, x in rows
    ]
    columns = [
        [k for k, _, _ in rows],
        [s for _, s, _ in rows],
        doubles,
        [time for _, time, _ in arrived],
        [weight for _, _, weight in arrived],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, STREAM, strict=True)]
    return pa.Table.from_arrays(arrays, schema=STREAM)


def key(node: Physical, name: str, *, down: bool = False, nulls_first: bool = True) -> SortKey:
    c = COLUMNS.index(name)
    field = node.schema[c]
    return SortKey(Column(c, name, field.type, field.nullable), down, nulls_first)


def number(
    *keys: tuple[str, bool, bool], by: tuple[int, ...] = (0,), limit: int | None = None,
    forgets: bool = False,
) -> Callable[[Physical], Physical]:  # fmt: skip
    def made(node: Physical) -> Physical:
        sort = tuple(key(node, n, down=d, nulls_first=f) for n, d, f in keys)
        return RowNumberExec(node, by, sort, limit, forgets, "n")

    return made


def top(
    *keys: tuple[str, bool, bool], limit: int | None = None, offset: int = 0
) -> Callable[[Physical], Physical]:
    def made(node: Physical) -> Physical:
        sort = tuple(key(node, n, down=d, nulls_first=f) for n, d, f in keys)
        return TopExec(node, sort, limit, offset)

    return made


def run(
    make: Callable[[Physical], Physical], table: pa.Table, morsel_rows: int, runtime: str
) -> tuple[Physical, list[Row], Any]:
    session = session_over({"a": table}, slack=SLACK)
    below = plan_of(session, "SELECT k, s, x, ts, w FROM a").root
    root, workspace = make(below), workspace_of(morsel_rows)
    graph = graph_of(root, workspace)
    recorder = Recorder(root.schema, workspace.dictionary)
    morsels = Admissions.of(root, workspace, 3)
    refresh(graph)
    admit_all(runtime_of(runtime, graph, recorder, workspace), graph, morsels.morsels)
    (operator,) = (o for o in graph.running() if isinstance(o, GroupChangesOperator))
    return root, recorder.rows, operator


def expected(changes: list[Change], root: Physical) -> list[Row]:
    made = whole if isinstance(root, StreamExec) else ranked
    rows = list(made(changes, root))
    return [tuple(v.encode() if isinstance(v, str) else v for v in row) for row in rows]


DOWN, UP = ("x", True, True), ("x", False, False)
TEXT_UP, TEXT_DOWN = ("s", False, True), ("s", True, False)
CASES: dict[str, Callable[[Physical], Physical]] = {
    "all numbers": number(DOWN),
    "first numbers": number(UP, limit=3),
    "no number": number(UP, limit=0),
    "by text": number(TEXT_UP, DOWN, limit=5),
    "by text, descending": number(TEXT_DOWN, by=()),
    "of two columns": number(DOWN, by=(1, 2), limit=1),
    "of texts": number(UP, TEXT_DOWN, by=(1,)),
    "without a key": number(by=(0,)),
    "limit": top(DOWN, TEXT_UP, limit=4),
    "limit and offset": top(TEXT_DOWN, limit=6, offset=5),
    "offset": top(UP, offset=3),
    "limit 0": top(UP, limit=0, offset=2),
    "rstream": lambda node: StreamExec(node, "rstream"),
}


@pytest.mark.parametrize("morsel_rows", [8, 64])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_model(case: str, morsel_rows: int) -> None:
    for seed in range(3):
        rng = random.Random(f"{case} {seed}")
        changes = random_changes(rng, rng.choice((40, 400)))
        runtime = rng.choice(("depth_first", "fifo"))
        root, rows, operator = run(CASES[case], stream_of(changes, rng), morsel_rows, runtime)
        assert rows == expected(changes, root)
        assert operator._index.live.size == 0
        if isinstance(operator, RankingOperator):
            assert operator.counters()["held_rows"] == 0
            if operator._by.size:
                assert operator._partitions.live.size == 0


@pytest.mark.parametrize("limit", [1, 3])
def test_rows_behind_the_limit_are_dropped(limit: int) -> None:
    for seed in range(4):
        rng = random.Random(f"{limit} {seed}")
        changes = random_changes(rng, 500, grows=True)
        make = number(DOWN, TEXT_UP, limit=limit, forgets=True)
        root, rows, operator = run(make, stream_of(changes, rng), 16, "depth_first")
        assert rows == expected(changes, root)
        held: Counter[Row] = Counter()
        for *row, _, _, weight in rows:
            held[tuple(row)] += weight
        shown = {row for row, many in held.items() if many}
        assert operator.counters()["held_rows"] == operator._index.live.size == len(shown)


def test_room_follows_the_rows_at_a_time() -> None:
    """Partitions come and go, each with new texts: what they leave is used again."""
    changes: list[Change] = []
    for time in range(2_000):
        changes += [((time % 5, f"part {time // 4}", bits(1.0)), time, 1)]
        if time >= 20:
            old = time - 20
            changes += [((old % 5, f"part {old // 4}", bits(1.0)), time, -1)]
    for make in (number(UP, by=(1,)), top(TEXT_UP, limit=3), CASES["rstream"]):
        root, rows, operator = run(make, stream_of(changes, random.Random(1)), 16, "depth_first")
        assert rows == expected(changes, root)
        assert operator._index.capacity <= 128
        if isinstance(operator, RankingOperator):
            assert operator._partitions.capacity <= 128


QUERIES = (
    "SELECT k, s, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC, s) AS n FROM a [RANGE 9]"
    " EMIT CHANGES",
    "SELECT * FROM (SELECT k, s, ROW_NUMBER() OVER (PARTITION BY s ORDER BY k NULLS LAST) AS n"
    " FROM a [ROWS 50]) WHERE n <= 2 EMIT CHANGES",
    "SELECT s, x FROM a [RANGE 9] ORDER BY x, s DESC LIMIT 5 OFFSET 2 EMIT CHANGES",
    "SELECT RSTREAM(k, s) FROM a [RANGE 3]",
)


@pytest.mark.sampled
@pytest.mark.parametrize("text", QUERIES)
def test_runtimes_agree(text: str) -> None:
    rng = random.Random(text)
    table = stream_of(random_changes(rng, 800, grows=True), rng)
    found = []
    for settings in (
        {"runtime": "depth_first"},
        {"runtime": "fifo"},
        {"runtime": "ordered", "workers": 3, "partitions": 4},
        {"runtime": "ordered", "workers": 2, "slice_us": 1},
    ):
        with cql.connect(False, morsel_rows=32, **settings) as session:
            session.create_stream("a", table, ordered_by="ts", slack=SLACK)
            batches = list(session.sql(text).batches())
        found.append([repr(tuple(row.values())) for b in batches for row in b.to_pylist()])
    assert found[0]
    assert all(rows == found[0] for rows in found[1:])
