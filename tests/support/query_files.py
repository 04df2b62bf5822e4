"""The files of ``queries/``: their headers, and random rows for their streams."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import cql
from cql.base.model import Schema
from cql.base.types import DataType, Kind
from cql.dialect import parse, to_sql
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.nodes import statements as st
from cql.query.query import Query
from queries.access_log.make_log import SAMPLE
from tests.support import dialect_corpus
from tests.support.paths import QUERIES

FILES = dialect_corpus.query_files()


ROWS = 120
#: What a column of this name holds: lines of an access log, since random texts are none.
LINE = "line"


def rows_of(schema: Schema, progressing: set[str], rng: random.Random) -> list[tuple[Any, ...]]:
    """Rows in time order. The other columns have few distinct values, so that groups hold several
    rows."""
    lines = SAMPLE.read_text("utf-8").splitlines()
    start = 1_700_000_000
    rows = []
    for i in range(ROWS):
        row: list[Any] = []
        for f in schema:
            if f.type.is_timestamp:
                row.append((start + 7 * i) * 1_000_000)
            elif f.type.kind is Kind.DATE:
                row.append(i // 10)
            elif f.name.lower() in progressing:
                row.append(i)
            elif f.type.is_integer:
                row.append(rng.randrange(4))
            elif f.type.kind is Kind.DECIMAL:
                row.append(rng.randrange(10_000))
            elif f.type.is_fraction:
                row.append(rng.randrange(100) / 2)
            elif f.type.kind is Kind.BOOLEAN:
                row.append(rng.random() < 0.5)
            elif f.name == LINE:
                row.append(lines[i])
            else:
                row.append(rng.choice(["a", "b", "c"]))
        rows.append(tuple(row))
    return rows


def declare(session: cql.Session, text: str, rng: random.Random) -> tuple[dict, Context]:
    """Declares the streams of a file over random rows in memory, and its functions, constants and
    views. Returns the rows of each stream, and a context with the others."""
    data: dict[str, Any] = {}
    for key, value in header(text):
        if key == "functions":
            (path,) = QUERIES.rglob(value)
            session.register_functions(path)
    names: dict[str, dict[Any, Any]] = {"constants": {}, "views": {}, "streams": {}}
    listed = [tree for key, value in header(text) if key == "streams" for tree in parse(value)]
    for tree in (*listed, *dialect_corpus.script(text)[0]):
        bound = bind(tree, session._catalog, Context(**names))
        if isinstance(bound, st.CreateStream):
            schema, spec = bound.definition.schema, bound.definition.spec
            assert schema is not None
            rows = rows_of(schema, {p.column.lower() for p in spec.progress}, rng)
            columns = [[row[k] for row in rows] for k in range(len(schema))]
            arrays = [column_of(c, f.type) for c, f in zip(columns, schema, strict=True)]
            table = pa.Table.from_arrays(arrays, schema=schema.to_arrow())
            session._catalog.local.register(bound.name, table, spec=spec, schema=schema)
            data[".".join(bound.name)] = rows
            continue
        session.sql(to_sql(tree))
        if isinstance(bound, st.CreateConstant):
            names["constants"][bound.name] = bound.value
        else:
            assert isinstance(bound, st.CreateView)
            names[f"{bound.definition.kind}s"][bound.name] = bound.definition
    return data, Context(**names, functions=dict(session._functions))


def planned(session: cql.Session, path: Path) -> Query:
    """The query of a file over random rows, which has not run."""
    text = path.read_text("utf-8")
    declare(session, text, random.Random(0))
    if path.stem == "insert_istream":
        session.sql("CREATE TABLE fast (k INT, speed DOUBLE)")
    before, query = dialect_corpus.script(text)
    *_, made = session._statements(to_sql(query) if before else text)
    assert isinstance(made, Query)
    return made


def column_of(values: list[Any], kind: DataType) -> pa.Array:
    if kind.kind is Kind.DECIMAL:
        values = [None if v is None else Decimal(v).scaleb(-kind.scale) for v in values]
    return pa.array(values, kind.to_arrow())


def header(text: str) -> list[tuple[str, str]]:
    """The ``-- key: value`` lines of a file; the key of the first line is empty."""
    lines = [line[2:].strip() for line in text.splitlines() if line.startswith("--")]
    found = [("", lines[0])]
    for line in lines[1:]:
        key, _, value = line.partition(":")
        found.append((key, value.strip()))
    return found


RUNNING = [p for p in FILES if ("expect", "runs") in header(p.read_text("utf-8"))]
