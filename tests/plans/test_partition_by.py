"""PARTITION BY HASH|RANGE(…) INTO n: where it is refused, and how EXPLAIN shows it.
(``test_ordered`` shows that it changes no row.)"""

from __future__ import annotations

import pyarrow as pa
import pytest

from cql.errors import BindError, CqlError, NotSupportedError, PlanError
from cql.session.session import Session

GROUPED = "SELECT k, v, count(*) AS n FROM a [RANGE 20 SLIDE 10 WA ts] GROUP BY k, v"
JOINED = "SELECT a.v, b.v AS w FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 5"


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(False)
    columns = {"ts": pa.int64(), "k": pa.int32(), "v": pa.int64(), "name": pa.string()}
    table = pa.table({n: pa.array([], t) for n, t in columns.items()})
    for name in "ab":
        session.create_stream(name, table, ordered_by="ts", unit="seconds")
    session.register_table("t", table.select(["k", "name"]))
    session.set("runtime", "ordered")
    session.set("workers", 2)
    return session


@pytest.mark.parametrize(
    ("text", "kind", "place", "message", "hint"),
    [
        (f"{GROUPED} PARTITION BY HASH(ts) INTO 3", BindError, "ts) INTO", "not among", None),
        (f"{GROUPED} PARTITION BY HASH INTO 300", BindError, "300", "1 to 256", None),
        (f"{GROUPED} PARTITION BY HASH INTO 0", BindError, "0", "1 to 256", None),
        (f"{GROUPED} PARTITION BY HASH INTO k", BindError, "k", "INTO needs a whole", None),
        (f"{GROUPED} PARTITION BY RANGE(k, v) INTO 3", BindError, "v) INTO", "one key", "HASH(a"),
        (
            "SELECT name, count(*) FROM a GROUP BY name PARTITION BY RANGE(name) INTO 3",
            BindError,
            "name) INTO",
            "this is string",
            "HASH(name)",
        ),
        (
            "SELECT k + 1, count(*) FROM a GROUP BY k + 1 PARTITION BY RANGE(k + 1) INTO 3",
            NotSupportedError,
            "PARTITION BY",
            "lowest and highest",
            "HASH",
        ),
        (
            "SELECT count(*) FROM a PARTITION BY HASH INTO 3",
            BindError,
            "PARTITION BY",
            "has one",
            "GROUP BY",
        ),
        ("SELECT v FROM a PARTITION BY HASH INTO 3", BindError, "PARTITION BY", "neither", None),
        (
            f"SELECT v FROM ({JOINED}) AS q PARTITION BY HASH INTO 3",
            BindError,
            "PARTITION BY",
            "neither",
            "behind the GROUP BY or the join",
        ),
        (f"{JOINED} PARTITION BY HASH(a.v) INTO 3", PlanError, "PARTITION BY", "(k = k)", "ON"),
        (f"{JOINED} PARTITION BY HASH(a.k + 1) INTO 3", BindError, "a.k + 1) INTO", "no col", None),
        (
            JOINED.replace("JOIN", "LEFT JOIN") + " PARTITION BY HASH INTO 3",
            NotSupportedError,
            "PARTITION BY",
            "a left join",
            "leave the clause out",
        ),
        (
            "SELECT a.v FROM a JOIN t ON a.k = t.k PARTITION BY HASH INTO 3",
            NotSupportedError,
            "PARTITION BY",
            "a join with a table",
            None,
        ),
        (
            "SELECT a.v FROM a JOIN b ON b.ts BETWEEN a.ts AND a.ts + 5 PARTITION BY HASH INTO 3",
            NotSupportedError,
            "PARTITION BY",
            "a join without keys",
            "ON a.k = b.k",
        ),
        (
            "SELECT k, count(*) FROM a [RANGE 100 SLIDE 1 WA ts] GROUP BY k PARTITION BY HASH INTO"
            " 3",
            NotSupportedError,
            "PARTITION BY",
            "windows by subtract",
            "SET window_operator = 'panes'",
        ),
        (
            "SELECT k, count(*) FROM a [RANGE 100] GROUP BY k PARTITION BY HASH INTO 3",
            NotSupportedError,
            "PARTITION BY",
            "a relation that changes",
            None,
        ),
        (
            "SELECT ts, k, count(*) FROM a GROUP BY ts, k PARTITION BY HASH(ts) INTO 3",
            PlanError,
            "PARTITION BY",
            "closes groups",
            "another key",
        ),
        (
            "SELECT name, upper(name), count(*) FROM a GROUP BY name, upper(name)"
            " PARTITION BY HASH INTO 3",
            NotSupportedError,
            "PARTITION BY",
            "looked up",
            "in a subquery",
        ),
    ],
)
def test_refusals(
    session: Session,
    text: str,
    kind: type[CqlError],
    place: str,
    message: str,
    hint: str | None,
) -> None:
    with pytest.raises(kind) as refused:
        session.sql(text).to_arrow()
    error = refused.value
    assert message in error.message
    assert hint is None or hint in (error.hint or "")
    assert error.position is not None
    assert text[error.position.column - 1 :].startswith(place)


def test_explain(session: Session) -> None:
    for query, by in ((GROUPED, "k, v"), (JOINED, "k")):
        assert f"8 parts by hash of {by} (PARTITION BY)" in plan(session, f"{query} HASH INTO 8")
    assert "1 part by range of v" in plan(session, f"{GROUPED} RANGE(v) INTO 1")
    session.set("runtime", "depth_first")
    assert "not split: depth_first (PARTITION BY)" in plan(session, f"{GROUPED} RANGE(v) INTO 8")
    session.set("runtime", "ordered")


def plan(session: Session, text: str) -> str:
    query, scheme = text.rsplit(" ", 3)[0], " ".join(text.rsplit(" ", 3)[1:])
    return str(session.sql(f"{query} PARTITION BY {scheme}").explain())


def test_a_join_keeps_its_place(session: Session) -> None:
    """Of several joins, PARTITION BY splits the last one as written."""
    text = "SELECT a.v FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 5"
    text += " JOIN a AS c ON c.v = b.v AND c.ts BETWEEN b.ts AND b.ts + 5"
    shown = str(session.sql(f"{text} PARTITION BY RANGE(c.v) INTO 8").explain())
    split = [line for line in shown.splitlines() if "PARTITION BY" in line]
    assert len(split) == 1
    assert "8 parts by range of v" in split[0]
    with pytest.raises(PlanError, match="k is not among the keys of this join"):
        session.sql(f"{text} PARTITION BY HASH(a.k) INTO 8").explain()
