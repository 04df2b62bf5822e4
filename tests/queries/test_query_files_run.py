"""Every query file: those of this version's scope run and equal the reference, whoever runs them;
every other one binds and is refused, naming the clause and its position."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.base.model import Schema
from cql.base.types import DataType, Kind
from cql.dialect import parse, to_sql
from cql.errors import NotSupportedError
from cql.planner.bind.context import Context
from cql.planner.bind.statement import bind
from cql.planner.nodes import statements as st
from tests.dialect.test_query_files_parse import header
from tests.reference import naive, naive_compare
from tests.runtimes.test_ordered import compare, pairwise
from tests.support import dialect_corpus

FILES = dialect_corpus.query_files()
ROWS = 120


def rows_of(schema: Schema, progressing: set[str], rng: random.Random) -> list[tuple[Any, ...]]:
    """Rows in order of time; everything else is drawn from few values, so that groups meet."""
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
            else:
                row.append(rng.choice(["a", "b", "c"]))
        rows.append(tuple(row))
    return rows


def declare(session: cql.Session, text: str, rng: random.Random) -> tuple[dict, Context]:
    """Makes the streams of a file with rows in memory; returns the rows, and what else it names."""
    data: dict[str, Any] = {}
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
    return data, Context(**names)


def column_of(values: list[Any], kind: DataType) -> pa.Array:
    if kind.kind is Kind.DECIMAL:
        values = [Decimal(v).scaleb(-kind.scale) for v in values]
    return pa.array(values, kind.to_arrow())


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_query_file_runs_or_is_refused(path: Path, seed: int) -> None:
    text = path.read_text(encoding="utf-8")
    (expectation,) = [value for key, value in header(text) if key == "expect"]
    with cql.connect(spark=False) as session:
        data, context = declare(session, text, random.Random(f"{path.stem} {seed}"))
        if path.stem == "insert_istream":
            session.sql("CREATE TABLE fast (k INT, speed DOUBLE)")
        before, tree = dialect_corpus.script(text)
        bound = bind(tree, session._catalog, context)
        if expectation == "runs":
            query = bound.query if isinstance(bound, st.Insert) else bound
            assert isinstance(query, st.Query)
            result = session.sql(to_sql(tree) if before else text).to_arrow()
            if isinstance(bound, st.Insert):
                result = session.sql(f"SELECT * FROM {'.'.join(bound.target)}").to_arrow()
            if "EMIT CHANGES" in text:
                changes = naive.relations(data).changes(query.plan)
                want = [(now, weight, *row) for now, row, weight in changes]
                found = naive_compare.difference(want, naive_compare.storage_rows(result))
                assert found is None, found
                return
            answer = naive.evaluate(query.plan, data)
            naive_compare.assert_same(answer, result, query.plan)
            return
        with pytest.raises(NotSupportedError) as refused:
            session.sql(text)
        clause = expectation.removeprefix("refused:").strip()
        assert clause.lower() in refused.value.message.lower()
        assert refused.value.position is not None


RUNNING = [p for p in FILES if ("expect", "runs") in header(p.read_text("utf-8"))]


@pytest.mark.parametrize("path", RUNNING, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_the_ordered_runtime_changes_no_row(
    path: Path, stress: None, seed: int, full: bool
) -> None:
    if not full and (RUNNING.index(path) + seed) % 6:
        pytest.skip("with --full")
    text = path.read_text(encoding="utf-8")
    choices = pairwise(seed)
    if not full:
        choices = choices[RUNNING.index(path) % 10 :: 10]
    with cql.connect(spark=False) as session:
        declare(session, text, random.Random(f"{path.stem} {seed}"))
        tree = dialect_corpus.script(text)[1]
        compare(session, to_sql(tree.args.get("query", tree)), choices)
