"""Unions of streams in which each value of a column has its own watermark (PUNCTUATE BY;
out-of-order paper A.2.1)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql.base.model import Field, Schema
from cql.base.types import BIGINT
from cql.errors import PlanError
from cql.executor.kernels.morsel_layout import (
    DONE,
    END_OF_INPUT,
    GROUP,
    IDLE,
    INFINITY,
    LATE_ROW_ADDRESS,
    LATE_ROWS,
    NEED,
    NEVER,
    OUT,
    OUTPUT_FULL,
    PORT,
    PUNCTUATIONS,
    ROWS,
)
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.flow.union import UnionOperator
from cql.query.query import Query
from cql.session.session import Session
from tests.support.checked import call_native
from tests.support.groupwise import WINDOW, results, table
from tests.support.operator_tools import workspace_of
from tests.support.runtimes import RUNTIMES, Settings, apply, named


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(False) as made:
        yield made


def united(session: Session, **u: Any) -> None:
    """In ``s``, value b lags; ``u`` has other column positions and no row of value a."""
    rows = [(1, "b"), (2, "a"), (5, "c"), (11, "a"), (31, "a"), (13, "c"), (4, "b"), (33, "b")]
    session.set("morsel_rows", 1)
    session.create_stream("s", table(rows, "t", "p"), ordered_by="t", punctuated_by="p")
    more = [("c", 0, 3), ("b", 1, 6), ("c", 2, 12), ("c", 3, 26), ("b", 4, 14), ("b", 5, 35)]
    data = table(more, "p", "v", "t")
    session.create_stream("u", data, ordered_by="t", **{"punctuated_by": "p", **u})


UNITED_GROUPS = [
    ("a", 1, 10),
    ("a", 1, 20),
    ("a", 1, 40),
    ("b", 3, 10),
    ("b", 1, 20),
    ("b", 2, 40),
]
UNITED_GROUPS += [("c", 2, 10), ("c", 2, 20), ("c", 1, 30)]
SPELLINGS = {
    "members": "(SELECT * FROM s UNION ALL SELECT t, p FROM u) AS x",
    "renamed": "(SELECT p, t FROM s WHERE t > 0 UNION ALL SELECT p AS q, t AS t2 FROM u) AS x",
    "nested": "(SELECT t, p FROM s UNION ALL SELECT t, p FROM"
    " (SELECT t, p FROM u WHERE v < 3 UNION ALL SELECT t, p FROM u WHERE v >= 3) AS y) AS x",
    "view": "w AS x",
    "with": "c AS x",
    "items": "s UNION (SELECT t, p FROM u) AS x",
}


@pytest.mark.sampled
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_of_unions(session: Session, spelling: str) -> None:
    """c's windows [0, 10) and [10, 20) close while other values lag: c passed them in both
    inputs."""
    united(session)
    inner = SPELLINGS["members"].removeprefix("(").removesuffix(") AS x")
    session.sql(f"CREATE VIEW w AS {inner}")
    text = (
        f"SELECT p, count(*) AS n, window_end AS e FROM {SPELLINGS[spelling]} {WINDOW} GROUP BY p"
    )
    text = f"WITH c AS ({inner}) {text}" if spelling == "with" else text
    found = results(session, text)
    assert Counter(found) == Counter(UNITED_GROUPS)
    assert found[0] == ("c", 2, 10)
    assert "the least of what s, u say of it" in str(session.sql(f"EXPLAIN {text}"))


@pytest.mark.sampled
@pytest.mark.parametrize("settings", RUNTIMES, ids=named)
def test_unions_in_every_runtime(session: Session, settings: Settings) -> None:
    """The union drops exactly the rows that are late by their own value at their own input."""
    apply(session, settings, {"morsel_rows": 3})
    rng = random.Random(5)
    expected: Counter[tuple[Any, ...]] = Counter()
    late = 0
    for name in ("s", "u"):
        # 61 values: more values advance at once than one morsel has room to punctuate
        base = [(i // 5, rng.choice([None, *(f"v{k}" for k in range(60))])) for i in range(1_500)]
        rows = sorted(base, key=lambda row: row[0] + 10 * len(row[1] or "") * (name == "u"))
        rows += [(0, "v1"), (40, "v2")]
        data = table(rows, "t", "p")
        session.create_stream(name, data, ordered_by="t", punctuated_by=("p", 60))
        known: dict[Any, int] = {}
        highest = 0
        for t, p in rows:
            if t // 10 * 10 + 10 <= max(known.get(p, 0), highest - 60):
                late += 1
            else:
                expected[p, t // 10 * 10 + 10] += 1
            known[p], highest = max(known.get(p, 0), t), max(highest, t)
    query = session.sql(
        f"SELECT p, count(*) AS n, window_end AS e FROM s UNION u AS x {WINDOW} GROUP BY p"
    )
    assert isinstance(query, Query)
    found = {(r["p"], r["e"]): r["n"] for r in query.to_arrow().to_pylist()}
    assert (found, late) == (expected, 4)
    ran = {m["operator"].split("#")[0]: m for m in query.metrics()}
    assert ran["union"]["values_purged"] > 0
    assert ran["union"]["values"] <= 61
    assert ran["aggregate"]["late_pairs"] == late


@pytest.mark.parametrize("way", ["whole", "computed"])
def test_a_member_may_have_one_watermark_for_all(session: Session, way: str) -> None:
    """A member's single watermark bounds every value: no window closes before that watermark passes
    the window's end."""
    united(session, **({"punctuated_by": None} if way == "whole" else {}))
    member = "SELECT t, p FROM u" if way == "whole" else "SELECT t, concat(p, '') FROM u"
    text = f"SELECT p, count(*) AS n, window_end AS e FROM (SELECT t, p FROM s UNION ALL {member})"
    text += f" AS x {WINDOW} GROUP BY p"
    found = results(session, text)
    late = way == "whole"  # 14 of b comes after 26 of c
    groups = [g if g != ("b", 1, 20) else None for g in UNITED_GROUPS] if late else UNITED_GROUPS
    assert Counter(found) == Counter(g for g in groups if g is not None)
    assert found[0] == ("b", 3, 10)
    assert found.index(("a", 1, 20)) < found.index(("c", 2, 20))
    assert "say of it and u of all rows (A.2.1)" in str(session.sql(f"EXPLAIN {text}"))


def test_a_wider_integer_has_the_values_of_a_narrow_one(session: Session) -> None:
    rows = [(1, 1), (2, 2), (11, 2), (12, 2), (25, 2), (4, 1), (13, 1)]
    session.set("morsel_rows", 1)
    narrow = table(rows, "t", "k")
    session.create_stream("s", narrow, ordered_by="t", punctuated_by="k")
    small = narrow.set_column(1, "k", narrow["k"].cast(pa.int16()))
    session.create_stream("u", small, ordered_by="t", punctuated_by="k")
    found = results(
        session, f"SELECT k, count(*), window_end FROM s UNION u AS x {WINDOW} GROUP BY k"
    )
    assert found[:1] == [(2, 2, 10)]
    assert Counter(found) == Counter([(1, 4, 10), (2, 2, 10), (2, 4, 20), (1, 2, 20), (2, 2, 30)])


def test_what_a_union_knows_of_values_is_bounded(session: Session, small_blocks: None) -> None:
    """The texts are ever new, and the dictionary drops the old ones."""
    session.set("morsel_rows", 64)
    peaks = []
    for n in (4_000, 12_000):
        for name in ("s", "u"):
            rows = [(i // 4, f"{name if i % 2 else ''} value {i}") for i in range(n)]
            clauses: dict[str, Any] = {"ordered_by": "t", "replace": True}
            session.create_stream(name, table(rows, "t", "p"), punctuated_by=("p", 10), **clauses)
        query = session.sql(f"SELECT p, count(*) AS n FROM s UNION u AS x {WINDOW} GROUP BY p")
        assert isinstance(query, Query)
        rows_of = Counter(r["n"] for r in query.to_arrow().to_pylist())
        assert rows_of == {1: n, 2: n // 2}
        peaks.append(next(m for m in query.metrics() if "values" in m)["peak_bytes"])
    assert peaks[0] == peaks[1]


def test_every_member_says_how_far_its_values_may_be_apart(session: Session) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"t": 1, "p": "a"}

    for name, by in (("s", ("p", 5)), ("u", "p")):
        session.create_stream(name, rows, ordered_by="t", bounded=False, punctuated_by=by)
    with pytest.raises(PlanError, match="how far its values may be apart") as found:
        session.sql(f"SELECT p, count(*) FROM s UNION u AS x {WINDOW} GROUP BY p")
    assert found.value.position is not None
    assert found.value.position.column == len("SELECT p, count(*) FROM s UNION ") + 1
    one = session.sql(f"SELECT p, count(*) AS n FROM s UNION s AS x {WINDOW} GROUP BY p")
    assert isinstance(one, Query)
    assert [n for batch in one for n in batch.column("n").to_pylist()] == [2]


# Direct calls of the operator ---------------------------------------------------------------------


SCHEMA = Schema((Field("t", BIGINT, True), Field("k", BIGINT, True)))
ONES = np.ones(64, np.uint8)
MARK = tuple[int, int | None]  # punctuation (time, value) of one value or of all (ALL)
ALL = -1


class Fed:
    """Calls a union operator directly: morsels go in, punctuation comes out."""

    def __init__(self, ports: int) -> None:
        names = tuple("abc"[:ports])
        self.union = UnionOperator("union", SCHEMA, names, (0,), workspace_of(64), (0, 1))
        self.late: list[tuple[int, int]] = []

    def give(
        self,
        port: int,
        *marks: MARK,
        rows: tuple[MARK, ...] = (),
        also: tuple[int, int] | None = None,
    ) -> list[Any]:
        made = [
            Morsel.allocate(SCHEMA, 64, ones=ONES.ctypes.data, late_rows=True) for _ in range(2)
        ]
        morsel, out = made
        for i, (t, k) in enumerate(rows):
            for c, value in enumerate((t, k)):
                data, mask = morsel.data[c], morsel.masks[c]
                assert data is not None
                assert mask is not None
                data[i], mask[i] = value or 0, value is not None
        records: list[tuple[int, int, int, int]] = []
        for t, k in marks:
            one = k == ALL
            records.append((0, t, -1 if one else 1, 0))
            records += [] if one else [(GROUP, k or 0, -1, int(k is None))]
        records += [] if also is None else [(*also, -1, 0)]
        morsel.punctuations[: 4 * len(records)] = np.ravel(records) if records else []
        morsel.words[[ROWS, PORT, OUT, PUNCTUATIONS]] = (
            len(rows),
            port,
            out.address,
            len(records),
        )
        found: list[Any] = []
        while True:
            out.words[[ROWS, PUNCTUATIONS, LATE_ROWS]] = 0
            status = call_native(
                self.union.address, self.union.descriptor.ctypes.data, morsel.address
            )
            if status == NEED:
                self.union.provide(morsel)
                continue
            said = out.punctuations[: 4 * int(out.words[PUNCTUATIONS])].reshape(-1, 4).tolist()
            for n, (attribute, value, second, before) in enumerate(said):
                if second == 1:
                    _, k, _, null = said[n + 1]
                    found.append((value, None if null else k, before))
                elif attribute != GROUP:
                    found.append((attribute, value))
            late = view_address(int(out.words[LATE_ROW_ADDRESS]), np.dtype(np.int64), 192)
            self.late += [(late[3 * i], late[3 * i + 2]) for i in range(out.words[LATE_ROWS])]
            if status == DONE:
                return found
            assert status == OUTPUT_FULL


def test_a_value_has_come_as_far_as_the_last_of_its_inputs() -> None:
    fed = Fed(2)
    assert fed.give(0, (10, 7)) == []
    assert fed.give(1, (5, 7), (30, None)) == [(5, 7, NEVER)]
    assert fed.give(1, (5, 7), (5, 7)) == []  # "minus duplicates": the paper's rule
    assert fed.give(1, (20, 7)) == [(10, 7, 5)]
    # punctuation of all values holds for each value; 7 is already at 10 in port 0
    assert fed.give(0, (8, ALL)) == [(8, None, NEVER)]
    assert fed.give(1, (8, ALL)) == [(0, 8)]
    assert fed.give(0, (20, ALL)) == [(20, 7, 10), (20, None, 8)]
    assert fed.union.counters()["values"] == 2
    assert fed.give(1, (20, ALL)) == [(0, 20)]
    assert fed.union.counters()["values"] == 1  # NULL stays: it is at 30 in port 1
    assert fed.give(0, also=(END_OF_INPUT, INFINITY)) == [(30, None, 20)]
    assert fed.give(1, (40, ALL)) == [(0, 40)]
    assert fed.union.counters()["values"] == 0
    assert fed.give(1, also=(END_OF_INPUT, INFINITY)) == [(END_OF_INPUT, INFINITY)]


def test_more_values_than_a_morsel_tells_of() -> None:
    """1,000 values exceed the initial room for entries and one morsel's room for punctuation."""
    fed = Fed(2)
    for k in range(0, 1_000, 20):
        assert fed.give(0, *((50, k + i) for i in range(20))) == []
    assert sorted(fed.give(1, (40, ALL))) == [(40, k, NEVER) for k in range(1_000)]
    assert fed.give(0, (60, ALL)) == [(0, 40)]
    assert fed.union.counters()["values"] == 0


def test_an_idle_input_holds_no_value_back() -> None:
    """A row of the idle input is late if it is below its value's output watermark."""
    fed = Fed(2)
    assert fed.give(0, (10, 7), (12, 8)) == []
    assert fed.give(1, also=(IDLE, 1)) == [(10, 7, NEVER), (12, 8, NEVER)]
    assert fed.give(0, (15, 7)) == [(15, 7, 10)]
    assert fed.give(1, also=(IDLE, 0), rows=((14, 7), (15, 7), (11, 8), (1, None), (1, 9))) == []
    assert fed.late == [(0, 15), (2, 12)]
    assert fed.union.too_late() == [("a", 0), ("b", 2)]
    assert fed.give(1, (20, 7)) == []
    assert fed.give(0, (16, 7)) == [(16, 7, 15)]
