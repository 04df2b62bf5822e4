"""Holistic aggregates, whose state is all values of a group, and arrays: against DuckDB, in bounded
memory, through every kind of operator and into tables."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from io import StringIO
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import cql
from cql.errors import BindError, CqlError, NotSupportedError, RunError
from cql.show import render
from tests.reference.naive_compare import difference, storage_rows
from tests.support.fuzz.random_data import Stream, random_stream, to_table
from tests.support.results import results

ROWS = pa.table(
    {
        "ts": [1, 2, 3, 4, 5, 6, 11, 12],
        "k": [1, 1, 2, 2, 1, 1, 1, None],
        "v": [3, 3, 3, 1, None, 2, 7, 8],
        "x": ["a", "b", "c", "d", "e", None, "g", "h"],
        "y": [1.0, float("nan"), 2.0, 2.0, 5.0, 9.0, 1.0, 1.0],
    }
)


@pytest.fixture
def session() -> Iterator[cql.Session]:
    with cql.connect(False) as session:
        session.create_stream("s", ROWS, ordered_by="ts", unit="seconds")
        yield session


# DuckDB -------------------------------------------------------------------------------------------

#: Each call, and its DuckDB equivalent over rows that are numbered by ``i`` in order of ``t``.
CALLS = {
    "median(q)": "median(q)",
    "median(DISTINCT q)": "median(DISTINCT q)",
    "percentile(q, 0.3)": "quantile_cont(q, 0.3)::DOUBLE",
    "percentile(q, array(0.1, 0.75))": "quantile_cont(q::DOUBLE, [0.1, 0.75])",
    "percentile_cont(0.9) WITHIN GROUP (ORDER BY q DESC)": "quantile_cont(q::DOUBLE, 0.1)",
    "approx_percentile(v, 0.4)": "quantile_disc(v, 0.4)",
    "approx_percentile(g, 0.4)": "quantile_disc(g, 0.4)",
    "array_agg(s)": "coalesce(array_agg(s ORDER BY i) FILTER (s IS NOT NULL), [])",
    "array_agg(y ORDER BY q DESC)": "coalesce(array_agg(y ORDER BY q DESC NULLS LAST, i) "
    "FILTER (y IS NOT NULL), [])",
    "array_agg(b)": "coalesce(array_agg(b ORDER BY i) FILTER (b IS NOT NULL), [])",
    "array_agg(DISTINCT v ORDER BY v DESC)": "coalesce(array_agg(DISTINCT v ORDER BY v DESC) "
    "FILTER (v IS NOT NULL), [])",
    "string_agg(s, '-')": "string_agg(s, '-' ORDER BY i)",
    "listagg(s, ';') WITHIN GROUP (ORDER BY v)": "string_agg(s, ';' ORDER BY v NULLS FIRST, i)",
    "group_concat(s)": "group_concat(s ORDER BY i)",
    "max_by(s, v)": "arg_max_null(s, v ORDER BY i)",
    "min_by(y, s)": "arg_min_null(y, s ORDER BY i)",
    "sum(DISTINCT q)": "sum(DISTINCT q)::BIGINT",
    "avg(DISTINCT q)": "avg(DISTINCT q)",
}
_WINDOWED = """
  (SELECT *, k_ * 5 AS ws, k_ * 5 + 30 AS we FROM
    (SELECT *, unnest(generate_series((t - 30) // 5 - 1, t // 5 + 1)) AS k_ FROM numbered)
   WHERE k_ * 5 <= t AND t < k_ * 5 + 30)
"""


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.usefixtures("shared_kernels")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("operator", ["whole", "wid", "panes"])
def test_duckdb_says_the_same(operator: str, seed: int) -> None:
    rng = random.Random(f"holistic {seed}")
    data = [r for r in random_stream(rng, "n").rows if r[0] is not None]
    table = to_table(Stream("n", tuple(sorted(data, key=lambda r: r[0])), 0))
    ours, theirs = ", ".join(CALLS), ", ".join(CALLS.values())
    with cql.connect(False, morsel_rows=rng.choice((1, 7, 64))) as session:
        if operator != "whole":
            session.set("window_operator", operator)
        session.create_stream("n", table, ordered_by="t")
        window, source, bounds = "", "numbered", ""
        if operator != "whole":
            window, source, bounds = " [RANGE 30 SLIDE 5 WA t]", _WINDOWED, ", we"
        text = f"SELECT k, {ours} FROM n{window} GROUP BY k"
        if bounds:
            text = text.replace(" FROM", ", window_end FROM")
        mine = storage_rows(session.sql(text).to_arrow())
    duck = duckdb.connect()
    duck.execute("SET integer_division = true")
    duck.register("n", table)
    duck.execute("CREATE TABLE numbered AS SELECT *, row_number() OVER () AS i FROM n")
    answer = duck.sql(f"SELECT k, {theirs}{bounds} FROM {source} GROUP BY k{bounds}")
    assert difference(storage_rows(answer.to_arrow_table()), mine) is None


# Values -------------------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("median(v)", 3.0),
        ("percentile(v, array(0, 0.25, 1))", [1.0, 2.5, 8.0]),
        ("percentile_disc(0.5) WITHIN GROUP (ORDER BY v)", 3.0),
        ("percentile_disc(0.25) WITHIN GROUP (ORDER BY v DESC)", 7.0),
        ("approx_percentile(v, 0.5, 100)", 3),
        ("mode(v)", 3),
        ("mode(k, TRUE)", 1),
        ("mode() WITHIN GROUP (ORDER BY x DESC)", "h"),
        ("array_agg(x)", ["a", "b", "c", "d", "e", "g", "h"]),
        ("collect_list(x) FILTER (WHERE k = 2)", ["c", "d"]),
        ("collect_set(v)", [3, 1, 2, 7, 8]),
        ("array_agg(v > 2)", [True, True, True, False, False, True, True]),
        ("string_agg(x)", "abcdegh"),
        ("group_concat(DISTINCT v)", "3,1,2,7,8"),
        ("listagg(x, ', ') WITHIN GROUP (ORDER BY k DESC NULLS FIRST)", "h, c, d, a, b, e, g"),
        ("array_agg(x) FILTER (WHERE k > 9)", []),
        ("median(v) FILTER (WHERE k > 9)", None),
        ("string_agg(x) FILTER (WHERE k > 9)", None),
        ("upper(string_agg(x))", "ABCDEGH"),
    ],
)
def test_values(session: cql.Session, call: str, value: object) -> None:
    assert results(session, f"SELECT {call} FROM s") == [(value,)]


def test_a_share_is_exact() -> None:
    """0.07 * 100 is more than 7 in floats."""
    with cql.connect(False) as session:
        session.create_stream("s", pa.table({"ts": range(100), "v": range(1, 101)}), "ts")
        found = results(session, "SELECT quantile(v, 0.07), percentile(v, 0.07) FROM s")
        assert found == [(7, 7.93)]


def test_no_rows(session: cql.Session) -> None:
    text = "SELECT median(v), array_agg(x), mode(x), string_agg(x) FROM s WHERE ts > 99"
    assert results(session, text) == [(None, [], None, None)]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("median(‹k > 1›)", BindError, "argument 1 of median must be a number"),
        ("‹percentile›(v)", BindError, "percentile does not take 1 argument"),
        ("percentile(v, ‹2›)", BindError, "a constant from 0 to 1"),
        ("percentile(v, ‹k›)", BindError, "a constant from 0 to 1"),
        ("percentile(v, array(0.1, ‹7›))", BindError, "a constant from 0 to 1"),
        ("‹percentile_cont›(0.5)", BindError, "needs WITHIN GROUP"),
        ("‹percentile_cont›(0.5) WITHIN GROUP (ORDER BY v, k)", BindError, "ordered by one value"),
        ("‹sum›(v) WITHIN GROUP (ORDER BY v)", BindError, "sum takes no WITHIN GROUP"),
        ("‹sum›(v ORDER BY k)", NotSupportedError, "ORDER BY in sum is not supported"),
        ("‹median›(v ORDER BY k)", NotSupportedError, "ORDER BY in median is not supported"),
        ("‹upper›(x) WITHIN GROUP (ORDER BY k)", BindError, "upper is no aggregate"),
        ("‹mode›(v) WITHIN GROUP (ORDER BY v)", BindError, "mode does not take"),
        ("mode(v, ‹3›)", BindError, "must be TRUE or FALSE"),
        ("‹array_agg›(x, k)", BindError, "array_agg does not take 2 arguments"),
        ("‹array_agg›(DISTINCT x ORDER BY k)", BindError, "ordered by x or not at all"),
        ("string_agg(x, ‹x›)", BindError, "the separator of string_agg must be a constant string"),
        ("percentile_approx(v, 0.5, ‹0›)", BindError, "a constant whole number above 0"),
    ],
)
def test_refusals(session: cql.Session, call: str, error: type[CqlError], message: str) -> None:
    text = f"SELECT {call} FROM s"
    with pytest.raises(error, match=message) as caught:
        session.sql(text.replace("‹", "").replace("›", ""))
    assert caught.value.column == text.index("‹") + 1


# Arrays -------------------------------------------------------------------------------------------

LISTS = "(SELECT k, array_agg(x) AS a FROM s GROUP BY k)"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (f"SELECT a, count(*) FROM {LISTS} GROUP BY a", 3),
        (f"SELECT a FROM {LISTS} UNION ALL SELECT a FROM {LISTS}", 6),
        (f"SELECT a FROM {LISTS} UNION SELECT a FROM {LISTS}", 3),
        (f"SELECT a FROM {LISTS} WHERE a = a AND k = 2", [(["c", "d"],)]),
        (f"SELECT k, a FROM {LISTS} ORDER BY k LIMIT 1", [(None, ["h"])]),
        (
            f"SELECT CASE WHEN k = 2 THEN a END FROM {LISTS} ORDER BY k",
            [(None,), (None,), (["c", "d"],)],
        ),
        (f"SELECT count(DISTINCT a), max_by(a, k) FROM {LISTS}", [(3, ["c", "d"])]),
    ],
)
def test_arrays_go_on(session: cql.Session, text: str, answer: object) -> None:
    for fuse in (True, False):
        session.set("fuse", fuse)
        found = results(session, text)
        assert len(found) == answer if isinstance(answer, int) else found == answer


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"SELECT a FROM {LISTS} ORDER BY a", "ORDER BY: values of type array<string> have no"),
        (f"SELECT max(a) FROM {LISTS}", "max: values of type array<string> have no order"),
        (f"SELECT max_by(k, a) FROM {LISTS}", "max_by: values of type array<string> have no order"),
        (f"SELECT greatest(a, a) FROM {LISTS}", "greatest: values of type array<string> have no"),
        (f"SELECT a < a FROM {LISTS}", "<: values of type array<string> have no order"),
        (f"SELECT a = 'x' FROM {LISTS}", "= needs values of one type, not array<string>, string"),
        (f"SELECT upper(a) FROM {LISTS}", "argument 1 of upper must be string"),
        (f"SELECT CAST(a AS BIGINT) FROM {LISTS}", "cannot cast array<string> to bigint"),
        (f"SELECT array_agg(a) FROM {LISTS}", "array_agg of arrays and structs is not supported"),
        (f"SELECT mode(a) FROM {LISTS}", "mode of arrays and structs is not supported"),
    ],
)
def test_what_arrays_are_not_for(session: cql.Session, text: str, message: str) -> None:
    with pytest.raises(CqlError, match=message) as caught:
        session.sql(text)
    assert caught.value.position is not None


@pytest.mark.parametrize(
    ("call", "kind", "values"),
    [
        ("array_agg(v)", pa.int64(), [3, 3, 3, 1, 2, 7, 8]),
        ("array_agg(CAST(v AS TINYINT))", pa.int8(), [3, 3, 3, 1, 2, 7, 8]),
        ("array_agg(v > 2)", pa.bool_(), [True, True, True, False, False, True, True]),
        ("array_agg(x)", pa.string(), list("abcdegh")),
        ("array_agg(CAST(x AS BINARY))", pa.binary(), [c.encode() for c in "abcdegh"]),
        ("array_agg(CAST(k AS FLOAT))", pa.float32(), [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 1.0]),
    ],
)
def test_types_of_elements(
    session: cql.Session, call: str, kind: pa.DataType, values: list[Any]
) -> None:
    table = session.sql(f"SELECT {call} AS a FROM s").to_arrow()
    table.validate(full=True)
    assert table.schema.field("a").type.value_type == kind
    assert table.column("a").to_pylist() == [values]


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "DECIMAL(9, 2)"])
def test_elements_of_other_types(session: cql.Session, kind: str) -> None:
    cast = f"CAST(k AS {kind})" if kind.startswith("DEC") else f"CAST('2024-02-29' AS {kind})"
    both = f"SELECT array_agg({cast}) AS a, first({cast}) AS b FROM s"
    (found,) = session.sql(both).to_arrow().to_pylist()
    assert found["a"][0] == found["b"]


def test_arrays_as_text(session: cql.Session) -> None:
    table = session.sql("SELECT k, array_agg(x) AS a FROM s GROUP BY k").to_arrow()
    assert render.column_text(table.column("a").chunk(0)) == ["[a, b, e, g]", "[c, d]", "[h]"]
    assert render.type_name(table.schema.field("a").type) == "array<string>"
    out = StringIO()
    render.write_rows(table.to_batches(), table.schema.names, "json", out)
    assert json.loads(out.getvalue().split("\n")[1]) == {"k": 2, "a": ["c", "d"]}


# Memory -------------------------------------------------------------------------------------------


def peak(rows_: int, **settings: object) -> int:
    """State bytes of holistic aggregates over windows; each row is in 60 windows."""
    table = pa.table({"ts": range(rows_), "v": [i * 7919 % 1000 for i in range(rows_)]})
    with cql.connect(False, morsel_rows=256, **settings) as session:
        session.create_stream("s", table, ordered_by="ts")
        query = session.sql("SELECT median(v), array_agg(v) FROM s [RANGE 6000 SLIDE 100 WA ts]")
        query.to_arrow()
        (state,) = (m["state_bytes"] for m in query.metrics() if "state_bytes" in m)
    return int(state)


def test_windows_share_one_log_in_panes() -> None:
    wid, panes = peak(20_000, window_operator="wid"), peak(20_000, window_operator="panes")
    assert panes * 10 < wid


def test_logs_go_with_their_windows() -> None:
    assert peak(60_000) <= peak(20_000)


def test_max_state_counts_values() -> None:
    with cql.connect(False, morsel_rows=256, max_state="1 MB") as session:
        session.create_stream("s", pa.table({"ts": range(60_000)}), ordered_by="ts")
        with pytest.raises(RunError, match="over max_state = 1,000,000"):
            session.sql("SELECT median(ts) FROM s").to_arrow()


@pytest.mark.slow
def test_texts_of_results_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    from cql.executor.strings import compaction

    monkeypatch.setattr(compaction, "LEAST", 1 << 10)
    n = 30_000
    table = pa.table({"ts": range(n), "x": [f"text number {i}" for i in range(n)]})
    with cql.connect(False, morsel_rows=256) as session:
        session.create_stream("s", table, ordered_by="ts")
        text = (
            "SELECT array_agg(x) AS a, string_agg(x, '-') AS t, mode(x) AS m, max_by(x, ts) AS l "
            "FROM s [RANGE 30 SLIDE 10 WA ts]"
        )
        for row in session.sql(text).to_arrow().to_pylist():
            assert row["t"] == "-".join(row["a"])
            assert row["l"] == row["a"][-1]
            assert row["m"] == min(row["a"])
