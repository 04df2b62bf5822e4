"""Arrays as results of operators of the user: which objects they may be, and what follows them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql.errors import RunError
from cql.session.session import Session
from tests.support.run_checkpoints import plan_of, stop_and_continue
from tests.support.runtimes import RUNTIMES, apply
from tests.support.user_operators import Emit, operator_session

_INSTANT = datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)
#: By the type of a column, emitted objects and what they are in the result.
GOOD: dict[str, list[tuple[Any, Any]]] = {
    "array<double>": [
        (np.arange(6, dtype=np.int16)[::2], [0.0, 2.0, 4.0]),
        (np.array([-0.0, np.inf]), [0.0, np.inf]),
        ([1, np.float32(0.5), None], [1.0, 0.5, None]),
        ((), []),
        (np.ma.masked_array([1.0, 2.0], [False, True]), [1.0, None]),
        (np.array([1.0, None], object), [1.0, None]),
    ],
    "array<float>": [(np.array([0.1, 1e300]), [float(np.float32(0.1)), np.inf])],
    "array<tinyint>": [(np.array([-128, 127]), [-128, 127]), ([np.uint8(3)], [3])],
    "array<bigint>": [(np.array([2**63 - 1], np.uint64), [2**63 - 1])],
    "array<boolean>": [(np.array([True, False]), [True, False]), ([np.True_], [True])],
    "array<string>": [(["a", None, "ü"], ["a", None, "ü"]), (np.array(["b"]), ["b"])],
    "array<timestamp>": [([_INSTANT], [_INSTANT])],
    "array<decimal(4,1)>": [([Decimal("1.5"), 2], [Decimal("1.5"), Decimal("2.0")])],
}
#: Objects that fail, and a part of the message.
BAD: dict[str, list[tuple[Any, str]]] = {
    "array<double>": [
        (np.zeros((2, 2)), "emitted as x an array of 2 dimensions, and array<double> has one"),
        (np.zeros(2, complex), "emitted as x 0j, which is a complex"),
        (1.0, "emitted as x 1.0, which is no list and no array of numpy"),
        ("ab", "which is no list and no array of numpy"),
        (["a"], "emitted as x 'a', which is a str, not a float"),
    ],
    "array<tinyint>": [
        (np.array([0, 300]), "emitted as x an array with 300, which array<tinyint> cannot hold"),
        (np.array([0.5]), "emitted as x 0.5, which is a float, not an int"),
    ],
    "array<bigint>": [(np.array([2**63], np.uint64), "an array with 9223372036854775808")],
}


@pytest.fixture
def session() -> Iterator[Session]:
    with operator_session(1) as made:
        yield made


def _column(session: Session, text: str) -> list[Any]:
    query: Any = session.sql(text)
    return [next(iter(row.values())) for row in query.to_arrow().to_pylist()]


@pytest.mark.parametrize("kind", GOOD)
def test_what_an_array_may_be(session: Session, kind: str) -> None:
    given = [*GOOD[kind], (None, None)]

    @session.operator({"x": kind}, state={"n": "int64"})
    def emits(state: Any, row: Any, emit: Emit) -> None:
        if state.n < len(given):
            emit(given[state.n][0])
        state.n += 1

    assert _column(session, "SELECT x FROM emits(TABLE s) AS e") == [made for _, made in given]
    for wrong, message in BAD.get(kind, []):
        given[0] = wrong, None
        with pytest.raises(RunError, match=message):
            _column(session, "SELECT x FROM emits(TABLE s) AS e")


@pytest.mark.parametrize("runtime", RUNTIMES[:1] + RUNTIMES[-1:], ids=["depth_first", "ordered"])
def test_what_follows_arrays(session: Session, runtime: dict[str, Any]) -> None:
    """Segments in, arrays out: elements, UNNEST, and another operator."""

    @session.operator({"wave": "array<smallint>", "ends": "array<double>"})
    def loud(state: Any, row: Any, emit: Emit) -> None:
        if row.ch0.max() > 200:
            emit(row.ch0, ends=row.ch0[[0, -1]] / 2)

    @session.operator({"most": "int"})
    def highest(state: Any, row: Any, emit: Emit) -> None:
        emit(max(row.wave))

    apply(session, runtime, {"morsel_rows": 100})
    table = "loud(TABLE audio [ROWS 64 SLIDE 48]) AS x"
    samples = np.random.default_rng(1).normal(0, 100, 3200).astype(np.int16)
    waves = [w for k in range(0, 3137, 48) if (w := samples[k : k + 64]).max() > 200]
    assert len(waves) > 5
    query: Any = session.sql(f"SELECT wave, ends, wave[1] AS first, size(wave) AS n FROM {table}")
    found = query.to_arrow()
    assert found.schema.field("wave").type == pa.list_(pa.int16())
    assert found.to_pylist() == [
        {"wave": w.tolist(), "ends": [w[0] / 2, w[-1] / 2], "first": w[1], "n": 64} for w in waves
    ]
    unnested = f"SELECT e FROM (SELECT wave FROM {table}) AS y, UNNEST(y.wave) AS u(e)"
    assert _column(session, unnested) == np.concatenate(waves).tolist()
    over = f"SELECT most FROM highest(TABLE (SELECT wave FROM {table})) AS h"
    assert _column(session, over) == [w.max() for w in waves]


def test_checkpoints_and_memory(session: Session, seed: int) -> None:
    @session.operator({"xs": "array<double>"}, state={"n": "int64", "xs": ("float64", 3)})
    def recent_values(state: Any, row: Any, emit: Emit) -> None:
        state.xs[state.n % 3] = row.v or 0.0
        state.n += 1
        emit(state.xs)

    @session.operator({"xs": "array<double>"})
    def floods(state: Any, row: Any, emit: Emit) -> None:
        for _ in range(1000):
            emit(np.zeros(1000))

    session.set("morsel_rows", 30)
    text, plans = "SELECT xs FROM recent_values(TABLE s) AS x", []
    for runtime in ("depth_first", "ordered"):
        session.set("runtime", runtime)
        plans.append((plan_of(session, text), dict(session.settings)))
    stop_and_continue(*plans[0], random.Random(f"arrays {seed}"), stops=2, others=plans)
    session.sql("SET max_state = '6 MB'")
    with pytest.raises(RunError, match="state would grow to"):
        _column(session, "SELECT size(xs) AS n FROM floods(TABLE s) AS x")
