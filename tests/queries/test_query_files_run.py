"""Every query file in this version's scope runs and equals the reference, under every runtime;
every other file binds and is refused, naming the clause and its position."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import cql
from cql.dialect import to_sql
from cql.errors import NotSupportedError
from cql.planner.bind.statement import bind
from cql.planner.nodes import statements as st
from tests.reference import naive, naive_compare
from tests.support import dialect_corpus
from tests.support.query_files import FILES, RUNNING, declare, header
from tests.support.runtime_queries import compare, pairwise


@pytest.mark.sampled
@pytest.mark.slow
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


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.filterwarnings(  # xstream/network
    "ignore:this query runs depth first. what one operator gives in parts comes together again"
)
@pytest.mark.parametrize("path", RUNNING, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_the_ordered_runtime_changes_no_row(
    path: Path, stress: None, seed: int, full: bool
) -> None:
    text = path.read_text(encoding="utf-8")
    choices = pairwise(seed)
    if not full:
        choices = choices[RUNNING.index(path) % 10 :: 10]
    with cql.connect(spark=False) as session:
        declare(session, text, random.Random(f"{path.stem} {seed}"))
        tree = dialect_corpus.script(text)[1]
        compare(session, to_sql(tree.args.get("query", tree)), choices)
