"""Joins of streams: random joins against the reference, bands, and how long rows are kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import NotSupportedError, PlanError
from cql.executor.operators.joins import oop_join
from cql.executor.operators.joins.oop_join import OopJoinOperator
from cql.executor.run import input_scheduler, make_runtime
from tests.support.catalog_tools import blocks_of_eight
from tests.support.fuzz.random_cases import check
from tests.support.fuzz.random_joins import SHAPES, join_case, rooms
from tests.support.seconds import SECOND, rows

pytestmark = pytest.mark.usefixtures("shared_kernels")

#: Without --full, one shape in PART runs: each shape takes seconds to compile.
PART = 12


@pytest.mark.sampled
@pytest.mark.parametrize("first", range(0, SHAPES, PART))
def test_random_joins_equal_the_reference(first: int, full: bool) -> None:
    for index in range(first, min(first + PART, SHAPES)) if full else (first,):
        for seed in range(60 if full else 3):
            with rooms(seed):
                check(join_case(index, seed))


@pytest.fixture
def session() -> Iterator[cql.Session]:
    with cql.connect(spark=False) as made:
        made.create_stream("a", rows(ts=[0, 1, 2, 3], k=[1, 2, 1, 2], v=[10, 20, 30, 40]), "ts")
        made.create_stream("b", rows(at=[0.5, 1.5, 2.5, 9], k=[1, 2, 1, 2], w=[1, 2, 3, 4]), "at")
        yield made


def plan(session: cql.Session, text: str) -> str:
    return str(session.sql(f"EXPLAIN {text}"))


@pytest.mark.parametrize(
    ("condition", "band"),
    [
        ("b.at BETWEEN a.ts - INTERVAL 2 SECONDS AND a.ts + INTERVAL 1 SECOND",
         "at - ts from -2 seconds to 1 second"),
        ("a.ts <= b.at + INTERVAL 2 SECONDS AND a.ts + INTERVAL 1 SECOND >= b.at",
         "at - ts from -2 seconds to 1 second"),
        ("b.at - a.ts <= INTERVAL 1 SECOND AND a.ts - b.at <= INTERVAL 2 SECONDS",
         "at - ts from -2 seconds to 1 second"),
        ("abs(a.ts - b.at) <= INTERVAL 2 SECONDS", "at - ts from -2 seconds to 2 seconds"),
        ("abs(b.at - a.ts) < INTERVAL 2 SECONDS AND b.at >= a.ts",
         "at - ts from 0 seconds to 1999999 microseconds"),
        ("a.ts = b.at", "at - ts from 0 seconds to 0 seconds"),
        ("date_trunc('minute', a.ts) = date_trunc('minute', b.at)",
         "date_trunc('minute', at) - date_trunc('minute', ts) from 0 seconds to 0 seconds"),
        ("a.ts < b.at", "at - ts from 1 microsecond"),
    ],
)  # fmt: skip
def test_bands(session: cql.Session, condition: str, band: str) -> None:
    assert band in plan(session, f"SELECT a.v, b.w FROM a, b WHERE a.k = b.k AND {condition}")


@pytest.mark.parametrize(
    ("source", "band"),
    [
        ("a [RANGE 3 SECONDS], b [RANGE 2 SECONDS]", "at - ts from -2 seconds to 3 seconds"),
        ("a [NOW], b [RANGE UNBOUNDED]", "at - ts to 0 seconds"),
        ("a [RANGE 3 SECONDS], b", "at - ts to 3 seconds"),
    ],
)
def test_bands_of_windows(session: cql.Session, source: str, band: str) -> None:
    assert band in plan(session, f"SELECT v, w FROM {source} WHERE a.k = b.k")


def test_window_of_a_join(session: cql.Session) -> None:
    text = "SELECT v, w FROM a, b WHERE a.k = b.k WINDOW 1 SECOND"
    assert "at - ts from -1 seconds to 1 second" in plan(session, text)
    found = session.sql(text).to_arrow().to_pylist()
    assert sorted((row["v"], row["w"]) for row in found) == [(10, 1), (20, 2), (30, 3)]


def test_windows_over_either_time(session: cql.Session) -> None:
    for time in ("a.ts", "b.at"):
        found = session.sql(
            f"SELECT count(*) AS n, window_end [RANGE 2 SECONDS, SLIDE 2 SECONDS, WA {time}]"
            " FROM a JOIN b ON a.k = b.k AND abs(a.ts - b.at) <= INTERVAL 1 SECOND"
        ).to_arrow()
        assert [(r["n"], r["window_end"].second) for r in found.to_pylist()] == [(2, 2), (1, 4)]


@pytest.mark.auto_runtime
@pytest.mark.parametrize("band", [10, 80])
def test_joint_punctuation_does_not_wait_for_the_band(
    session: cql.Session, band: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out-of-order paper §7: the number of rows, one per second, that arrive before a group
    leaves."""
    n = 400
    monkeypatch.setattr(input_scheduler, "SHORT", 8)
    monkeypatch.setattr(make_runtime, "gathered", lambda *_, **__: {})
    for name in ("p", "q"):
        session.create_stream(name, rows(ts=list(range(n)), k=[s % 7 for s in range(n)]), "ts")
    query = (
        f"SELECT p.ts AS x, q.ts AS y, count(*) AS n FROM p [RANGE {band} SECONDS],"
        f" q [RANGE {band} SECONDS] WHERE p.k = q.k AND p.ts < q.ts GROUP BY p.ts, q.ts"
    )
    waited = {}
    for how in ("joint", "individual"):
        session.set("join_punctuation", how)
        found = most = 0
        run = session.sql(query)
        for batch in run.batches():
            come = max(m["rows_in"] for m in run.metrics() if m["operator"] in ("p", "q"))
            found += sum(batch["n"].to_pylist())
            if come < n:
                first = batch["y"].cast("int64").to_pylist()[0] // SECOND
                most = max(most, come - first)
        waited[how] = most
        assert found == sum(1 for a in range(n) for b in range(a + 7, min(n, a + band + 1), 7))
    assert waited["joint"] <= 16
    assert band <= waited["individual"] <= band + 16


@pytest.mark.parametrize("flush", ["slow", "at_once"])
def test_rows_that_are_left_alone_leave_a_few_at_a_time(
    session: cql.Session, flush: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out-of-order paper §6: none of 400 rows at one time finds a partner."""
    n = 400
    monkeypatch.setattr(input_scheduler, "SHORT", 8)
    monkeypatch.setattr(oop_join, "_PADS", 8)
    monkeypatch.setattr(make_runtime, "gathered", lambda *_, **__: {})
    session.create_stream("p", rows(ts=[0] * n + [200] * n, k=[1] * 2 * n), "ts")
    session.create_stream("q", rows(ts=list(range(2 * n)), k=[2] * 2 * n), "ts")
    session.set("join_flush", flush)
    run = session.sql("SELECT p.ts AS x FROM p LEFT JOIN q ON p.k = q.k"
                      " AND q.ts BETWEEN p.ts AND p.ts + INTERVAL 50 SECONDS")  # fmt: skip
    left = [(batch.num_rows, batch["x"].cast("int64").to_pylist()) for batch in run.batches()]
    assert sorted(x for _, times in left for x in times) == [0] * n + [200 * SECOND] * n
    most = max(size for size, times in left if times[0] == 0)
    assert most == (16 if flush == "slow" else n)


def test_ends_of_pairs_are_window_attributes(session: cql.Session) -> None:
    """The pairs are at 0 and 0.5, 1 and 1.5, 2 and 2.5 seconds."""
    for end, times in (("greatest", (0.5, 1.5, 2.5)), ("least", (0, 1, 2))):
        found = session.sql(
            f"SELECT count(*) AS n, window_start FROM (SELECT {end}(a.ts, b.at) AS m FROM a JOIN b"
            " ON a.k = b.k AND abs(a.ts - b.at) <= INTERVAL 1 SECOND) AS j"
            " [RANGE 1500 MILLISECONDS, SLIDE 500 MILLISECONDS, WA m]"
        ).to_arrow()
        starts = [s / 2 for s in range(-3, 6)]
        counts = [sum(s <= t < s + 1.5 for t in times) for s in starts]
        assert found["n"].to_pylist() == [n for n in counts if n]


def test_rows_without_a_partner_leave_when_none_can_come(session: cql.Session) -> None:
    """A row far ahead in time waits longer; the rows that arrive after it do not wait for it."""
    session.set("morsel_rows", 1)
    ts = [0, 1, 100, 2, 3, 110]
    session.create_stream("p", rows(ts=ts, k=list(range(6))), "ts", slack="200 seconds")
    session.create_stream("q", rows(ts=[1.5, 60, 70, 120], k=[1, 9, 9, 5]), "ts")
    text = "FROM p {} JOIN q ON p.k = q.k AND q.ts BETWEEN p.ts AND p.ts + INTERVAL 10 SECONDS"
    query = session.sql(f"SELECT p.k, q.ts IS NULL AS alone {text.format('LEFT')}")
    found = [(row["k"], row["alone"]) for row in query.to_arrow().to_pylist()]
    assert sorted(found) == [(0, True), (1, False), (2, True), (3, True), (4, True), (5, False)]
    assert found.index((3, True)) < found.index((2, True))
    for kind, keys in (("SEMI", [1, 5]), ("ANTI", [0, 2, 3, 4])):
        found = session.sql(f"SELECT p.k {text.format(kind)}").to_arrow()["k"].to_pylist()
        assert sorted(found) == keys


def test_three_streams(session: cql.Session) -> None:
    session.create_stream("c", rows(ts=[0.9, 2.9], k=[1, 1], x=["p", "q"]), "ts")
    found = session.sql(
        "SELECT v, w, x FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND], c [RANGE 1 SECOND]"
        " WHERE a.k = b.k AND b.k = c.k"
    ).to_arrow()
    assert found.to_pylist() == [{"v": 10, "w": 1, "x": "p"}, {"v": 30, "w": 3, "x": "q"}]


def test_equal_rows_keep_their_number(session: cql.Session) -> None:
    session.create_stream("d", rows(ts=[5, 5, 5], k=[1, 1, None]), "ts")
    found = session.sql("SELECT x.k FROM d x JOIN d y ON x.k = y.k AND x.ts = y.ts").to_arrow()
    assert found.num_rows == 4


def test_nan_joins_nan_and_null_nothing(session: cql.Session) -> None:
    values = [float("nan"), 0.0, -0.0, None]
    session.create_stream("d", rows(ts=[0, 0, 0, 0], x=values), "ts")
    found = session.sql("SELECT p.x FROM d p JOIN d q ON p.x = q.x AND p.ts = q.ts").to_arrow()
    assert found.num_rows == 1 + 4


def endless(session: cql.Session, name: str, start: datetime) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        for n in count():
            yield {"ts": start + timedelta(seconds=n), "k": n % 3}

    session.create_stream(name, rows, "ts", bounded=False)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT p.k FROM p JOIN q ON p.k = q.k", "q.ts BETWEEN p.ts - INTERVAL 1 MINUTE"),
        (
            "SELECT p.k FROM p JOIN q ON p.k = q.k AND q.ts > p.ts",
            "the distance of q.ts from p.ts has no bound above: AND q.ts <= p.ts + INTERVAL",
        ),
        ("SELECT p.k FROM p JOIN q ON p.k = q.k AND q.ts < p.ts", "no bound below"),
        ("SELECT p.k FROM p JOIN r ON p.k = r.k", "ORDERED BY or WATERMARK on r"),
    ],
)
def test_endless_rows_must_leave(session: cql.Session, text: str, hint: str) -> None:
    start = datetime(2024, 1, 1)
    endless(session, "p", start)
    endless(session, "q", start)
    session.create_stream("r", lambda: iter([{"k": 1}]), bounded=False)
    with pytest.raises(PlanError, match="would keep their rows for ever") as caught:
        session.sql(text).to_arrow()
    assert hint in (caught.value.hint or "")
    assert caught.value.position is not None


def endless_times(
    session: cql.Session, name: str, kind: pa.DataType, unit: str | None, step: int
) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        for n in count():
            times = pa.array(range(8 * n * step, (8 * n + 8) * step, step), pa.int64()).cast(kind)
            yield pa.record_batch({"t": times, "k": pa.array([0, 1] * 4)})

    session.create_stream(name, rows, "t", unit=unit, bounded=False)


STAMPS = (pa.timestamp("us"), None, 20 * SECOND, "INTERVAL 1 MINUTE", "[RANGE 10 MINUTES]")
NUMBERS = (pa.int64(), None, 20, "60", "[RANGE 600]")
MILLISECONDS = (pa.int64(), "milliseconds", 20_000, "60000", "[RANGE 10 MINUTES]")


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "x", "y", "kind", "unit", "step", "apart", "window"),
    [
        ("p x, p y WHERE x.k = y.k", "x.t", "y.t", *NUMBERS),
        ("p JOIN q ON p.k = q.k", "p.t", "q.t", *STAMPS),
        ("p x JOIN q AS y ON x.k = y.k AND y.t > x.t", "x.t", "y.t", *MILLISECONDS),
        ("p JOIN q AS y ON y.t < p.t", "p.t", "y.t", *STAMPS),
    ],
)
def test_the_hint_says_what_the_query_can_say(
    source: str, x: str, y: str, kind: pa.DataType, unit: str | None, step: int, apart: str,
    window: str,
) -> None:  # fmt: skip
    with cql.connect(spark=False) as session:
        for name in ("p", "q"):
            endless_times(session, name, kind, unit, step)
        text = f"SELECT {x}, {y} AS u FROM {source}"
        with pytest.raises(PlanError) as caught:
            session.sql(text).to_arrow()
        hint = caught.value.hint or ""
        assert apart in hint
        assert window in hint
        said = hint[hint.index(" AND ") : hint.index("; or")]
        assert next(iter(session.sql(text + said))).num_rows > 0


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("SELECT v FROM a LEFT JOIN b ON a.ts = b.at AND 10 / a.v < b.w", "can fail"),
        (
            "SELECT v FROM a LEFT JOIN b ON a.ts = b.at AND upper(a.k::string) < b.k::string",
            "both sides",
        ),
        ("SELECT v FROM a [RANGE 3 SECONDS SLIDE 1 SECOND], b WHERE a.k = b.k", "with SLIDE"),
        ("SELECT v FROM a [NOW], b [NOW] WHERE a.k = b.k LATE OUTPUT INTO l", "INTO of a join"),
    ],
)
def test_what_is_refused_is_named(session: cql.Session, text: str, clause: str) -> None:
    with pytest.raises(NotSupportedError, match=clause):
        session.sql(text).to_arrow()


@pytest.mark.parametrize("runtime", ["depth_first", "fifo"])
def test_what_is_kept_depends_on_the_band(session: cql.Session, runtime: str) -> None:
    """Of 10,000 rows per side, about 20 lie within the band at any time."""
    n = 10_000
    session.set("runtime", runtime)
    with blocks_of_eight():  # the inputs alternate after each block
        for name in ("p", "q"):
            table = rows(ts=[t / 10 for t in range(n)], k=[t % 7 for t in range(n)])
            session.create_stream(name, table.to_batches, "ts")
        query = session.sql(
            "SELECT p.k FROM p JOIN q ON p.k = q.k AND abs(p.ts - q.ts) <= INTERVAL 1 SECOND"
        )
        assert query.to_arrow().num_rows == 3 * n - 2 * 7
    (join,) = (m for m in query.metrics() if m["operator"].startswith("join"))
    held = join["held_left"] + join["held_right"]
    assert held <= 2 * 1024
    assert join["state_bytes"] < 150_000
    assert held + join["purged"] + join["not_stored"] == join["rows_in"] == 2 * n


CROWDS = {
    "streams": "a.v, b.v AS w FROM a JOIN b ON a.k = b.k AND a.ts <= b.ts + INTERVAL 1 DAY",
    "outer": "a.v, b.v AS w FROM a FULL JOIN b ON a.k = b.k AND a.ts <= b.ts + INTERVAL 1 DAY",
    "table": "a.v, t.v AS w FROM a JOIN t ON a.k = t.k",
    "relations": """a.v, b.v AS w FROM a [RANGE 1 DAY] JOIN b [RANGE 1 DAY] ON a.k = b.k
        EMIT CHANGES""",
    "count": "count(*) AS n FROM a [RANGE 1 DAY] LEFT JOIN b [RANGE 1 DAY] ON a.k = b.k",
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("what", CROWDS)
def test_pairs_pass_though_they_are_many(what: str) -> None:
    """Each of 1,200 rows matches all 1,200 rows of the other side; few pairs wait for the
    reader."""
    n, morsel = 1_200, 256
    crowd = rows(ts=[s / 1000 for s in range(n)], k=[7] * n, v=list(range(n)))
    with cql.connect(spark=False, morsel_rows=morsel) as session:
        for name in ("a", "b"):
            session.create_stream(name, crowd, "ts")
        session.register_table("t", crowd)
        run = session.sql(f"SELECT {CROWDS[what]}")
        read = most = 0
        for batch in run.batches():
            most = max(most, run.progress().rows_out - read)
            read += batch.num_rows
        state = {m["operator"]: m.get("peak_bytes") or 0 for m in run.metrics()}
    assert most <= 20 * morsel
    assert max(state.values()) < 4_000_000, state  # all pairs take 26 MB
    assert what == "count" or read in (n * n, 2 * n * n)


@pytest.mark.auto_runtime
def test_the_second_links_of_rows_lead_no_further_than_the_ring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second link of a purged row would lead outside the ring's memory."""
    made: list[OopJoinOperator] = []
    real = OopJoinOperator.__init__

    def seen(self: OopJoinOperator, *args: Any, **more: Any) -> None:
        real(self, *args, **more)
        made.append(self)

    monkeypatch.setattr(OopJoinOperator, "__init__", seen)
    rows, random = 20_000, np.random.default_rng(0)
    session = cql.connect(spark=False)
    for name in "ab":
        keys = random.integers(0, 200, rows)
        session.create_stream(name, pa.table({"ts": np.arange(rows), "k": keys}), ordered_by="ts")
    session.sql(
        "SELECT count(*) FROM a JOIN b ON a.k = b.k AND a.ts - b.ts BETWEEN -700 AND 700"
    ).to_arrow()
    (operator,) = made
    for side in ("lrows", "rrows"):
        held = operator.state[side]
        assert 0 < held["skip"].max() < held.size


def test_buckets_hold_the_lower_half_of_the_numbers_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results stay the same when these 32 bits wrap around."""
    real, begin = OopJoinOperator.__init__, [0]

    def numbered(self: OopJoinOperator, *args: Any, **more: Any) -> None:
        real(self, *args, **more)
        for word in ("head", "top", "base"):
            self.set(f"l{word}", begin[0])
            self.set(f"r{word}", begin[0] // 2)
        self._take_buckets(len(self.state["buckets"]))

    monkeypatch.setattr(OopJoinOperator, "__init__", numbered)
    session, found = cql.connect(spark=False), []
    for k, name in enumerate("ab"):
        random = np.random.default_rng(k)
        ts = np.arange(9_000) // 3 + random.integers(0, 5, 9_000)
        table = pa.table({"ts": ts, "k": random.integers(0, 50, ts.size)})
        session.create_stream(name, table, ordered_by="ts", slack=5)
    for number in (0, (1 << 32) - 3_000, (1 << 33) - 3_000):
        begin[0] = number
        found.append(
            session.sql(
                "SELECT a.ts, b.ts AS other, a.k FROM a JOIN b"
                " ON a.k = b.k AND a.ts - b.ts BETWEEN -30 AND 30"
            ).to_arrow()
        )
    assert found[0].num_rows > 10_000
    assert found[1].equals(found[0])
    assert found[2].equals(found[0])
