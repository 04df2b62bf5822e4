"""Operators of the user with PARTITION BY: against a dictionary of states under all runtimes, with
checkpoints, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import cql
from cql.errors import BindError, CqlError, NotSupportedError, ParseError, RunError
from cql.session.session import Session
from tests.support.run_checkpoints import plan_of, stop_and_continue
from tests.support.runtimes import RUNTIMES, apply, named
from tests.support.user_operators import RECENT, Emit, operator_session, rows_of


def _rows(session: Session, text: str) -> list[tuple[Any, ...]]:
    query: Any = session.sql(text)
    return [tuple(row.values()) for row in query.to_arrow().to_pylist()]


def _recent(seed: int, count: int, most: int) -> list[tuple[Any, ...]]:
    """What ``recent`` emits for the rows of a seed; without the times."""
    states, made = dict[Any, list[float]](), list[tuple[Any, ...]]()
    for _, k, name, v in rows_of(seed, count):
        values = states.setdefault((name, k), [])
        values.append(v or 0.0)
        made.append((name, k, len(values), sum(values[-3:])))
        if len(values) == most:
            del states[name, k]
    for (name, k), values in states.items():
        if len(values) > 1:
            made += [(name, k, -len(values), sum(values[-3:])), (name, k, most, None)]
    return made


def test_a_dictionary_of_states_gives_the_same(full: bool, seed: int) -> None:
    for i in range(1000 if full else len(RUNTIMES)):
        choice = random.Random(f"keyed operators {seed + i}")
        count, rows = choice.choice((0, 1, 60, 400)), choice.choice((1, 2, 7, 4096))
        runtime = RUNTIMES[(seed + i) % len(RUNTIMES)]
        with operator_session(seed + i, count) as session:
            apply(session, runtime, {"morsel_rows": rows})
            rows_found = _rows(session, RECENT)
            found = [(*row[:2], *row[3:]) for row in rows_found]
            assert found == _recent(seed + i, count, 4), f"{named(runtime)}, {rows} rows"
            at_end = {row[2] for row in rows_found if row[3] < 0 or row[4] is None}
            assert at_end <= {max((row[2] for row in rows_found), default=None)}


def test_checkpoints(seed: int, full: bool) -> None:
    for k in range(100 if full else 3):
        choice = random.Random(f"keyed operator checkpoint {seed + k}")
        with operator_session(seed + k, 300, morsel_rows=choice.choice((3, 50))) as session:
            plans = []
            for runtime in RUNTIMES[:1] + RUNTIMES[-2:] + RUNTIMES[4:5]:
                apply(session, runtime)
                plans.append((plan_of(session, RECENT), dict(session.settings)))
            stop_and_continue(*choice.choice(plans), choice, stops=3, others=plans)


def test_keys_are_told_apart_by_content() -> None:
    """NULL is a key, as is NaN; -0.0 is 0.0."""
    zeros = "CASE WHEN v > 70 THEN CAST('NaN' AS double) WHEN v > 40 THEN 0.0D ELSE -0.0D END"
    keys = f"{zeros} AS a, array(k, NULL) AS b, struct(v > 50 AS x) AS c, k > 1 AS d"
    keys += ", CAST(k AS decimal(9, 2)) AS e"
    with operator_session(2, 200) as session:

        @session.operator({"n": "bigint"}, state={"n": "int64"})
        def counted(state: Any, row: Any, emit: Emit) -> None:
            state.n += 1
            emit(state.n)

        text = f"SELECT * FROM counted(TABLE (SELECT {keys} FROM s) PARTITION BY (a, b, c, d, e)) x"
        seen, places = dict[str, int](), set[int]()
        for *key, n in _rows(session, text):
            name = repr(key).replace("-0.0", "0.0")
            seen[name] = seen.get(name, 0) + 1
            assert n == seen[name]
            places.add(n)
        assert len(seen) > 10
        assert max(places) > 10


def test_the_state_is_bounded(seed: int) -> None:
    """A key whose state is cleared takes no memory; others do, up to max_state."""
    with operator_session(seed, 4000, morsel_rows=64) as session:

        @session.operator({"n": "bigint"}, state={"n": "int64", "xs": ("float64", 1000)})
        def kept(state: Any, row: Any, emit: Emit, clears: bool) -> None:
            state.n += 1
            state.xs[:] = 1
            emit(state.n)
            if clears:
                state.clear()

        text = "SELECT max(n) AS n FROM kept(TABLE (SELECT ts AS t FROM s) PARTITION BY t, {}) AS x"
        session.sql("SET max_state = '6 MB'")
        assert _rows(session, text.format("true")) == [(1,)]
        with pytest.raises(RunError, match=r"state would grow to .* \(process#\d\)"):
            _rows(session, text.format("false"))


@pytest.mark.parametrize("runtime", RUNTIMES[:1] + RUNTIMES[-1:], ids=named)
def test_windows_and_joins_follow(runtime: dict[str, Any]) -> None:
    with operator_session(1) as session:
        apply(session, runtime, {"morsel_rows": 5})
        text = "SELECT k, window_start, count(*) AS n FROM {} [RANGE 10 MILLISECONDS SLIDE 10"
        text += " MILLISECONDS] GROUP BY k"
        found = _rows(session, text.format("same(TABLE s PARTITION BY k) AS x"))
        assert sorted(map(repr, found)) == sorted(map(repr, _rows(session, text.format("s"))))


def test_the_end_of_the_input(seed: int) -> None:
    """Once, behind all rows, in time for a window; of segments, too."""
    with operator_session(seed, 3000) as session:

        def last(state: Any, emit: Emit, how: str) -> None:
            if how == "fails":
                raise ValueError("no")
            emit(-state.n)

        @session.operator({"n": "bigint"}, state={"n": "int64"}, finish=last)
        def numbered(state: Any, row: Any, emit: Emit, how: str) -> None:
            state.n += 1
            if how != "quiet":
                emit(state.n)
            elif state.n == 2000:
                state.clear()

        every = "SELECT n FROM numbered(TABLE s, 'counts') AS x"
        keyed = "SELECT n FROM numbered(TABLE s PARTITION BY (k, v), 'quiet') x"
        wave = "SELECT window_end AS e, n FROM numbered(TABLE audio [ROWS 64 SLIDE 48], 'counts') x"
        by_window = "SELECT window_start, min(n) AS least FROM numbered(TABLE s, 'counts') x"
        by_window += " [RANGE 1 SECOND SLIDE 1 SECOND]"
        fails = "SELECT n FROM numbered(TABLE s, 'fails') x"
        many_keys = len({(k, v) for _, k, _, v in rows_of(seed, 3000)})
        for runtime in (RUNTIMES[0], RUNTIMES[1], RUNTIMES[-1]):
            apply(session, runtime, {"morsel_rows": 100})
            assert _rows(session, every) == [*((n,) for n in range(1, 3001)), (-3000,)]
            found = _rows(session, keyed)
            assert len(found) == many_keys
            assert sum(n for (n,) in found) == -3000
            *_, before, end = _rows(session, wave)
            assert end[0] > before[0]  # the watermark: no window that ends earlier can follow
            assert end[1] == -before[1]
            least = [n for _, n in _rows(session, by_window)]
            assert least[:-1] == sorted(least[:-1])
            assert least[-1] == -3000
            for text in (fails, f"{fails} ON BAD ROW KEEP"):
                with pytest.raises(
                    RunError, match=r"numbered\.finish raised ValueError: no at the end of its"
                ) as error:
                    _rows(session, text)
                assert error.value.position is not None
                assert "in the row at" not in error.value.message
            assert len(_rows(session, f"{fails} LIMIT 3000")) == 3000
            assert len(_rows(session, f"{fails} LIMIT 5")) == 5
            assert _rows(session, f"{every} WHERE n > 3000") == []
        empty = "(SELECT ts, v FROM s WHERE v < 0)"
        assert _rows(session, f"SELECT n FROM numbered(TABLE {empty}, 'fails') x") == []


def test_wrong_finish_functions() -> None:
    def plain(state: Any, row: Any, emit: Emit, most: int) -> None: ...

    def later(state: Any, emit: Emit, most: int) -> Iterator[int]:
        yield 1

    wrong: list[tuple[Any, str]] = [
        (3, "plain.finish is a function, not 3"),
        (later, "plain.finish is a coroutine or a generator"),
        (plain, "plain.finish is called with the state, emit, and the constants of plain"),
    ]
    for given, message in wrong:
        with pytest.raises(BindError, match=message):
            cql.operator({"x": "int"}, finish=given)(plain)
    with operator_session(1) as session:
        text = "SELECT * FROM recent(TABLE s PARTITION BY (k, ts), 4) AS x"
        with pytest.raises(NotSupportedError, match="PARTITION BY ts, a column with a watermark,"):
            _rows(session, text)


def test_wrong_clauses() -> None:
    wrong: list[tuple[str, type[CqlError], str]] = [
        ("s PARTITION BY z", BindError, "there is no column z"),
        ("s PARTITION BY", ParseError, "expected a column"),
        ("s PARTITION BY (k, v", ParseError, "is not closed|expected"),
        ("s PARTITION BY k + 1", ParseError, r"\+"),
        ("(SELECT k AS v2, v FROM s) PARTITION BY v2", BindError, "a column of PARTITION BY has"),
        ("audio [ROWS 5 SLIDE 5] PARTITION BY ch0", NotSupportedError, "a segment of a signal"),
        ("audio [ROWS 5 SLIDE 5] PARTITION BY k", BindError, "there is no column k"),
    ]
    with operator_session(1) as session:
        for table, kind, message in wrong:
            with pytest.raises(kind, match=message) as found:
                _rows(session, f"SELECT * FROM same(TABLE {table}) AS x")
            assert found.value.position is not None
        assert "for each name, k, kept: n int64" in str(session.sql(f"EXPLAIN {RECENT}"))
        printed: Any = session.sql(RECENT)
        assert "PARTITION BY (name, k), 4)" in printed._prepared.text
