"""Queries over streams with PUNCTUATE BY: their results, and random shapes."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from cql.session.session import Session
from tests.support.fuzz import random_windows
from tests.support.fuzz.random_shapes import Shape, _numbered, _Writer
from tests.support.results import rows

WINDOW = "[RANGE 10 SLIDE 10]"


COUNT = f"SELECT p, count(*) AS n, window_end AS e FROM s {WINDOW} GROUP BY p"


def results(session: Session, text: str = COUNT) -> list[tuple[Any, ...]]:
    return rows(session.sql(text))


def table(rows: list[tuple[Any, ...]], *names: str) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(c) for name, c in zip(names, columns, strict=True)})


SHAPES = 8


#: The index of the first shape over a union.
UNITED = 4


def by_value(index: int) -> Shape:
    writer = _Writer(random.Random(f"by value {index}"))
    text = random_windows.by_value(writer, united=index >= UNITED)
    return _numbered(1000 + index, text, writer)
