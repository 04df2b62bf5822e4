"""A window in the select list stands for its start and end, under Spark's names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import cql
from cql.session.session import Session

WINDOW = "window(ts, '2 seconds')"
TUMBLE = "TUMBLE(ts, INTERVAL '2' SECOND)"
COUNTS = f"(SELECT window, k, count(*) AS n FROM s GROUP BY {WINDOW}, k) AS q"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        made.sql("CREATE STREAM s (ts TIMESTAMP, k INT, v DOUBLE) ORDERED BY ts")
        seconds = ", ".join(f"(TIMESTAMP '2024-01-01 00:00:0{k}', {k % 2}, {k})" for k in range(6))
        made.sql(f"INSERT INTO s VALUES {seconds}")
        made.end("s")
        yield made


@pytest.mark.parametrize(
    ("items", "keys", "names"),
    [
        ("window", WINDOW, ["window_start", "window_end"]),
        (WINDOW, WINDOW, ["window_start", "window_end"]),
        (f"{WINDOW} AS w", WINDOW, ["w_start", "w_end"]),
        (f"{WINDOW} AS w", "w", ["w_start", "w_end"]),
        (f"{WINDOW} AS w", "1 ORDER BY 1", ["w_start", "w_end"]),
        (WINDOW, f"{WINDOW} ORDER BY window", ["window_start", "window_end"]),
        (TUMBLE, TUMBLE, ["window_start", "window_end"]),
        ("window.start, window.end", WINDOW, ["start", "end"]),
        ("window.start AS a, window.end", WINDOW, ["a", "end"]),
    ],
)
def test_a_window_is_its_start_and_end(
    session: Session, items: str, keys: str, names: list[str]
) -> None:
    found = _table(session, f"SELECT {items}, count(*) AS n FROM s GROUP BY {keys}")
    plain = _table(
        session,
        "SELECT window_start, window_end, count(*) AS n FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS]",
    )
    assert found.column_names == [*names, "n"]
    assert found.rename_columns(plain.column_names) == plain


@pytest.mark.parametrize(
    ("item", "names"),
    [("window", ["window_start", "window_end"]), ("window.start", ["start"])],
)
def test_the_window_of_a_query_in_from(session: Session, item: str, names: list[str]) -> None:
    found = _table(session, f"SELECT {item}, sum(n) AS n FROM {COUNTS} GROUP BY {item}")
    assert found.column_names == [*names, "n"]
    assert found["n"].to_pylist() == [2, 2, 2]


def test_columns_have_the_name_of_the_function_as_it_is_written(session: Session) -> None:
    found = _table(session, "SELECT VAR_POP(v), variance(v), ucase('a') AS u, len('ab') FROM s")
    assert found.column_names == ["var_pop(v)", "variance(v)", "u", "len('ab')"]


def _table(session: Session, text: str) -> Any:
    return session.sql(text).to_arrow()
