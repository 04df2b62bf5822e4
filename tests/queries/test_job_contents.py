"""What travels with a job (``cql.spark.job.job``), and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import linecache
import math
import random
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import CqlError, NotSupportedError, PlanError, RunError
from cql.functions.declare import load
from cql.planner.functions.user.content_hash import content_hash
from cql.planner.nodes.physical import sources
from cql.query.query import Query
from cql.session.session import Session
from cql.spark.job.functions import function_from_json, function_to_json
from cql.spark.job.job import Job, literal_from_json, literal_to_json
from cql.spark.task.task import query_of
from tests.support.own_aggregates import own_spread, own_sum

ROWS = pa.table(
    {
        "t": pa.array(range(0, 60, 3), pa.int64()),
        "k": pa.array([n % 3 for n in range(20)], pa.int32()),
        "v": pa.array([n / 2 for n in range(20)]),
        "w": pa.array(["a", "b", None, "d"] * 5),
        "d": pa.array([Decimal(n) / 4 for n in range(20)], pa.decimal128(20, 2)),
    }
)


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        made.create_stream("s", ROWS, ordered_by="t", slack=3)
        yield made


def sent(query: Query, change: Callable[[Any], None] = lambda data: None) -> Query:
    """The query that another process makes of the job of ``query``; ``change`` changes the job on
    its way."""
    data = json.loads(query._prepared.job().to_json())
    change(data)
    job = Job.from_json(json.dumps(data))
    found = {s.relation.name: s.relation.source() for s in sources(query._plan.root)}
    return query_of(job, found)


def check(session: Session, text: str, **parameters: Any) -> Query:
    """Both processes give the same rows and columns; returns the query of the other one."""
    query = session.sql(text, **parameters)
    made = sent(query)
    expected = query.to_arrow()
    assert made.to_arrow().equals(expected)
    assert expected.num_rows > 0
    return made


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -7,
        2**62,
        0.1,
        -0.0,
        math.inf,
        "it's ü",
        b"\x00\xff",
        Decimal("12.34"),
        dt.date(2024, 2, 29),
        dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC),
        dt.timedelta(days=-1, microseconds=7),
    ],
    ids=repr,
)
def test_parameters_travel(session: Session, value: Any) -> None:
    check(session, "SELECT k, :p AS p FROM s WHERE v < 5", p=value)


def test_nan_travels(session: Session) -> None:
    made = sent(session.sql("SELECT :p AS p FROM s", p=math.nan)).to_arrow()
    assert math.isnan(made["p"][0].as_py())


@pytest.mark.parametrize("cast", ["float", "double", "binary", "string", "decimal(30,2)", "date"])
def test_constants_travel(session: Session, cast: str) -> None:
    value = "'2024-01-01'" if cast in ("binary", "string", "date") else "7.25"
    session.sql(f"CREATE CONSTANT c = CAST({value} AS {cast})")
    check(session, "SELECT k, c AS c FROM s")


def test_constants_that_are_lists_travel(session: Session) -> None:
    session.sql("CREATE CONSTANT weights = array(1, -0.5, 2.5e-3)")
    check(session, "SELECT k, weights AS w, v * get(weights, 1) AS x FROM s")


def test_random_numbers_travel_bit_by_bit() -> None:
    from cql.base.types import DOUBLE
    from cql.planner.nodes.expr import Literal

    rng = random.Random(1)
    for _ in range(200):
        literal = Literal(rng.uniform(-1, 1) * 10 ** rng.randint(-300, 300), DOUBLE)
        assert literal_from_json(json.loads(json.dumps(literal_to_json(literal)))) == literal


# ------------------------------------------------------------------ names


def test_views_and_streams_travel(session: Session) -> None:
    session.sql("CREATE VIEW few AS SELECT t, k, v FROM s WHERE v > :least", least=1)
    session.sql("CREATE STREAM fewer AS SELECT t, k, v AS x FROM few WHERE k < 2", least=1)
    session.sql("CREATE VIEW other AS SELECT k FROM s")
    text = "SELECT k, max(x) AS m, window_end FROM fewer [RANGE 9 SLIDE 3] GROUP BY k"
    query = session.sql(text, least=1)
    made = query._prepared.job()
    assert sorted(made.views) == [("few",)]
    assert sorted(made.streams) == [("fewer",)]
    assert sent(query).to_arrow().equals(query.to_arrow())


def test_a_later_definition_does_not_count(session: Session) -> None:
    session.sql("CREATE VIEW few AS SELECT k FROM s WHERE k = 0")
    query = session.sql("SELECT * FROM few")
    session.sql("CREATE OR REPLACE VIEW few AS SELECT k FROM s WHERE k = 1")
    assert set(sent(query).to_arrow()["k"].to_pylist()) == {0}


def test_columns_of_all_types_travel(session: Session) -> None:
    check(session, "SELECT t, k, v, w, d FROM s")


def test_computed_columns_travel(session: Session) -> None:
    session.create_stream("c", ROWS, replace=True)
    session.sql(
        "CREATE STREAM computed (t BIGINT, k INT, u AS t * 2, WATERMARK FOR u AS u - 4)"
        " FROM TABLE c"
    )
    check(session, "SELECT count(*) AS n, window_end FROM computed [RANGE 8 SLIDE 8]")


def test_an_insert_travels(session: Session) -> None:
    session.sql("CREATE TABLE kept (k BIGINT, v DOUBLE, w STRING)")
    query = next(session._statements("INSERT INTO kept (v, k) SELECT k, v FROM s"))
    assert isinstance(query, Query)
    assert sent(query).to_arrow().schema.names == ["v", "k"]


def test_hints_and_settings_travel(session: Session) -> None:
    session.set("window_operator", "buffered")
    text = "SELECT /*+ morsel_rows(7) */ k, sum(v) AS x FROM s [RANGE 9 SLIDE 3] GROUP BY k"
    made = check(session, text)
    assert "buffered" in made.explain()


# ------------------------------------------------------------------ functions

FACTOR = 3


def scaled(x: float) -> float:
    return helped(x) * FACTOR + math.pi


def helped(x: float, more: float = 0.5) -> float:
    """Adds."""
    return x + more


def test_functions_travel_by_their_source(session: Session) -> None:
    near = 10.0

    @session.function
    def closed(x: float) -> float:
        return sum(x for _ in range(2)) + near

    session.register_functions([scaled, own_sum, own_spread])
    made = check(session, "SELECT k, scaled(v) AS a, closed(v) AS b FROM s")
    assert "compiled" in made.explain()
    check(
        session,
        "SELECT own_sum(k) AS n, own_spread(v) AS m, window_end FROM s [RANGE 9 SLIDE 3]",
    )


def test_functions_that_no_text_mentions_stay(session: Session) -> None:
    session.register_function("stays", lambda x: x, ["int"], "int")
    assert not session.sql("SELECT k FROM s")._prepared.job().functions


def test_equal_sources_are_one_function() -> None:
    declared = cql.function(scaled)
    first, second = (function_from_json(function_to_json(declared)) for _ in range(2))
    assert first.function is second.function


def summed_rest(state: Any, emit: Any, most: int) -> None:
    emit(helped(state.sum))


@cql.operator(
    {"total": "double", "n": "int"},
    state={"sum": "float64", "ks": ("int64", (2, 2))},
    finish=summed_rest,
)
def summed(state: Any, row: Any, emit: Any, most: int) -> None:
    """Sums, a few at a time."""
    state.sum += helped(row.v or 0.0)
    state.ks[1, 1] += row.k or 0
    if state.ks[1, 1] >= most:
        emit(state.sum, n=state.ks[1, 1])
        state.ks = 0


def test_operators_travel(session: Session) -> None:
    session.register_functions([summed])
    made = check(session, "SELECT n, total FROM summed(TABLE s, 3) AS x WHERE total > 1")
    assert "operator summed: in Python, once per row" in made.explain()


WEIGHTS = np.array([[0.5, np.nan, -0.0], [1e300, np.inf, 3.25]])
OFFSET = np.int64(-7)


def weighed(x: float) -> float:
    return float(np.nansum(WEIGHTS[:, ::2]) + WEIGHTS[1, 2] * x + int(OFFSET))


def test_arrays_of_numbers_travel(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.register_functions([weighed])
    check(session, "SELECT weighed(v) AS a FROM s")
    hashes = [content_hash(cql.function(weighed))]
    for name, value in (
        ("WEIGHTS", WEIGHTS + 1),
        ("WEIGHTS", WEIGHTS.astype(np.complex128)),
        ("OFFSET", np.int64(7)),
    ):
        with monkeypatch.context() as patched:
            patched.setitem(weighed.__globals__, name, value)
            hashes.append(content_hash(cql.function(weighed)))
    assert len(set(hashes)) == len(hashes)
    monkeypatch.setitem(weighed.__globals__, "WEIGHTS", np.zeros((2, 5000)))
    with pytest.raises(NotSupportedError, match="refers to WEIGHTS, an array of 80,000 bytes"):
        function_to_json(cql.function(weighed))


def waits(x: int) -> int:
    time.sleep(0)
    return random.Random(x).randrange(5) + len(json.dumps([x]))


def test_methods_of_imported_modules_travel(session: Session) -> None:
    session.register_functions([waits])
    check(session, "SELECT waits(k) AS a FROM s")


def test_changed_sources_do_not_travel(session: Session, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for line in ("return x - 1", "return x + 2", "return abs(x + 1)", "return x + y"):
        file.write_text("y = 1\n\n\ndef more(x: int) -> int:\n    return x + 1\n", "utf-8")
        module = load(file)
        file.write_text(f"y = 1\n\n\ndef more(x: int) -> int:\n    {line}\n", "utf-8")
        linecache.checkcache()
        session.register_function("more", module.more, ["bigint"], "bigint")
        with pytest.raises(NotSupportedError, match="whose source has changed"):
            session.sql("SELECT more(k) AS a FROM s")._prepared.job().to_json()


def test_a_lambda_does_not_travel(session: Session) -> None:
    session.register_function("f", lambda x: x, ["int"], "int")
    query = session.sql("SELECT f(k) AS x FROM s")
    with pytest.raises(NotSupportedError, match="function f cannot run in another process"):
        query._prepared.job().to_json()


def test_a_function_that_refers_to_an_object_does_not_travel(session: Session) -> None:
    held = object()

    @session.function
    def bound(x: int) -> int:
        return x if held else 0

    with pytest.raises(NotSupportedError, match="refers to held, a object"):
        session.sql("SELECT bound(k) AS x FROM s")._prepared.job().to_json()


# ------------------------------------------------------------------ refusals


def test_errors_show_their_place_in_the_whole_text(session: Session) -> None:
    text = "SELECT k FROM s;\n  SELECT 1 / (k - 1) AS x\nFROM s"
    *_, query = session._statements(text)
    assert isinstance(query, Query)
    places = []
    for made in (query, sent(query)):
        with pytest.raises(RunError) as caught:
            made.to_arrow()
        places.append(caught.value.position)
    assert places[0] is not None
    assert places[0] == places[1]


def test_other_statements_of_a_text_stay(session: Session) -> None:
    *_, query = session._statements("SELECT 'secret' AS x FROM s; SELECT k FROM s")
    assert isinstance(query, Query)
    assert "secret" not in query._prepared.job().to_json()


def test_another_library_is_refused_by_name(session: Session) -> None:
    def older(data: Any) -> None:
        data["version"] = "0" * 64

    with pytest.raises(CqlError, match=r"another version of the library .* there"):
        sent(session.sql("SELECT k FROM s"), older)


def test_another_plan_is_refused(session: Session) -> None:
    def other(data: Any) -> None:
        data["settings"]["window_operator"] = "wid"

    query = session.sql("SELECT k, sum(v) AS x FROM s [RANGE 9 SLIDE 3] GROUP BY k")
    with pytest.raises(PlanError, match="plans the query in another way"):
        sent(query, other)
