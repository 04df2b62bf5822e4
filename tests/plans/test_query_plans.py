"""The physical plan of each query file, with the reason for each choice, equals the reviewed golden
file in ``tests/plans/queries``."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import cql
from cql.dialect import to_sql
from tests.support import dialect_corpus, goldens
from tests.support.query_files import RUNNING, declare

pytestmark = pytest.mark.auto_runtime

QUERIES = goldens.FOLDER / "queries"


@pytest.mark.parametrize("path", RUNNING, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_plan(path: Path, rewrite: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text("utf-8")
    with cql.connect(spark=False) as session:
        declare(session, text, random.Random(0))
        if path.stem == "insert_istream":
            session.sql("CREATE TABLE fast (k INT, speed DOUBLE)")
        before, query = dialect_corpus.script(text)
        plans: list[str] = []
        goldens.record(monkeypatch, plans)
        list(session._statements(to_sql(query) if before else text))
    goldens.agree(QUERIES / path.parent.name / f"{path.stem}.txt", plans[-1], rewrite=rewrite)


def test_every_golden_has_its_query() -> None:
    held = {f"{p.parent.name}/{p.stem}" for p in QUERIES.rglob("*.txt")}
    assert held == {f"{p.parent.name}/{p.stem}" for p in RUNNING}
