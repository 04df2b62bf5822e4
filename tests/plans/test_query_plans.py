"""The physical plan of each query file, with the reason for each choice, equals the reviewed golden
file in ``tests/plans/queries``."""

from __future__ import annotations

from pathlib import Path

import pytest

import cql
from tests.support import goldens
from tests.support.query_files import RUNNING, planned

pytestmark = pytest.mark.auto_runtime

QUERIES = goldens.FOLDER / "queries"


@pytest.mark.parametrize("path", RUNNING, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_plan(path: Path, rewrite: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[str] = []
    with cql.connect(spark=False) as session:
        goldens.record(monkeypatch, plans)
        planned(session, path)
    goldens.agree(QUERIES / path.parent.name / f"{path.stem}.txt", plans[-1], rewrite=rewrite)


def test_every_golden_has_its_query() -> None:
    held = {f"{p.parent.name}/{p.stem}" for p in QUERIES.rglob("*.txt")}
    assert held == {f"{p.parent.name}/{p.stem}" for p in RUNNING}
