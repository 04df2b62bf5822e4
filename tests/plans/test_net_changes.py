"""Where a changelog needs no netting: no row both enters and leaves at one instant."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from cql.session.session import Session

ROWS = 2_000
#: Texts, and whether the plan nets their changes.
TEXTS = {
    "SELECT k, count(*) AS n FROM a [RANGE 10 SLIDE 10] GROUP BY k EMIT CHANGES": False,
    "SELECT k, count(*) AS n FROM a [RANGE 10 SLIDE 10] GROUP BY k HAVING count(*) > 2"
    " EMIT CHANGES": False,
    "SELECT n FROM (SELECT k, count(*) AS n FROM a [RANGE 10 SLIDE 10] GROUP BY k)"
    " EMIT CHANGES": True,
    "SELECT k, count(*) AS n FROM a [RANGE 10 SLIDE 5] GROUP BY k EMIT CHANGES": True,
    "SELECT k % 2 AS k, count(*) AS n FROM a [RANGE 10 SLIDE 10] GROUP BY k EMIT CHANGES": True,
}


@pytest.fixture(scope="module")
def session() -> Session:
    """A stream with late rows: they come up to 30 below the highest time, and 5 are waited for."""
    r = random.Random(1)
    times = [max(0, t // 4 - r.choice((0, 0, 1, 4, 12, 30))) for t in range(ROWS)]
    columns = {"t": times, "k": [r.randrange(4) for _ in times]}
    session = Session(False)
    table = pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})
    session.create_stream("a", table, ordered_by="t", slack=5)
    session.set("morsel_rows", 64)
    return session


@pytest.mark.parametrize("text", TEXTS)
def test_no_row_enters_and_leaves_at_one_instant(session: Session, text: str) -> None:
    assert ("Net" in str(session.sql(text).explain()).replace("└─ ", "").split()) is TEXTS[text]
    changes = session.sql(text).to_arrow().to_pylist()
    entered = Counter(map(str, (_row(c) for c in changes if c["_weight"] > 0)))
    left = Counter(map(str, (_row(c) for c in changes if c["_weight"] < 0)))
    assert entered
    assert not entered & left


def _row(change: dict[str, object]) -> list[object]:
    return [value for name, value in change.items() if name != "_weight"]
