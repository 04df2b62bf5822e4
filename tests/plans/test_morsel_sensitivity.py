"""For one morsel size, every runtime gives the same output order; another size changes the order
only of plans for which ``depends_on_morsels`` is true."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from cql.planner.placement.morsel_sensitivity import depends_on_morsels
from cql.session.session import Session

ROWS = 12_000  # the rows of several morsels


@pytest.fixture(scope="module")
def session() -> Session:
    rng = random.Random(5)
    session = Session(False)
    for name in ("s", "r"):
        columns = {
            "t": sorted(rng.randrange(ROWS // 4) for _ in range(ROWS)),
            "k": [rng.randrange(40) for _ in range(ROWS)],
            "v": list(range(ROWS)),
        }
        session.create_stream(name, pa.table(columns), ordered_by="t", unit="seconds")
    return session


DEPEND = {
    "joined with itself": (
        "SELECT a.v AS v, b.v AS w FROM s AS a JOIN s AS b"
        " ON a.k = b.k AND b.t BETWEEN a.t - 20 AND a.t + 20"
    ),
    "rows without a partner": (
        "SELECT s.v AS v, r.v AS w FROM s LEFT JOIN r ON s.k = r.k AND r.t BETWEEN s.t AND s.t + 9"
    ),
    "changes": (
        "SELECT k, count(*) AS n, window_end FROM s [RANGE 500 SLIDE 500] GROUP BY k EMIT CHANGES"
    ),
}
FREE = {
    "united with itself": "SELECT v FROM s WHERE k < 9 UNION ALL SELECT -v AS v FROM s WHERE k > 5",
    "filtered": "SELECT v FROM s WHERE k < 9",
    "joined": (
        "SELECT s.v AS v, r.v AS w FROM s JOIN r ON s.k = r.k AND r.t BETWEEN s.t AND s.t + 9"
    ),
    "the whole relation": "SELECT RSTREAM(DISTINCT k) FROM s [RANGE 2] WHERE v % 17 = 0",
    "what is left of it": "SELECT DISTINCT k FROM s [PARTITION BY k ROWS 1] WHERE v % 17 = 0",
}


def result(session: Session, text: str, runtime: str, rows: int) -> pa.Table:
    session.set("runtime", runtime)
    session.set("workers", 3 if runtime == "ordered" else 0)
    session.set("morsel_rows", rows)
    return session.sql(text).to_arrow()


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("name", [*DEPEND, *FREE])
def test_runtimes_give_one_order(session: Session, name: str) -> None:
    text = {**DEPEND, **FREE}[name]
    expected = result(session, text, "depth_first", 65_536)
    assert expected.num_rows
    for runtime in ("fifo", "ordered"):
        assert result(session, text, runtime, 65_536).equals(expected), runtime
    for rows in (7, 512):
        alone = result(session, text, "depth_first", rows)
        assert result(session, text, "ordered", rows).equals(alone), rows
        if name in FREE:
            assert alone.equals(expected), rows


@pytest.mark.parametrize("name", [*DEPEND, *FREE])
def test_which_plans_depend_on_morsels(session: Session, name: str) -> None:
    plan = session.sql({**DEPEND, **FREE}[name])._plan
    assert depends_on_morsels(plan) == (name in DEPEND)
