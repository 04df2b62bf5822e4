"""The query files that tasks can share, over tables: rows and ledgers are those of a local run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.query_tables import COUNTS, SHARED, SharedQuery


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", SHARED)
def test_tasks_answer_a_query_file(
    spark: Any, tmp_path: Path, name: str, seed: int, full: bool
) -> None:
    """By time or rows, and by key where the query has one. Without --full, one way
    and one number of tasks."""
    number = list(SHARED).index(name) + seed
    query = SharedQuery(spark, tmp_path, name)
    try:
        assert query.here.rows.num_rows > 0
        ways = query.ways if full else [query.ways[number % len(query.ways)]]
        for by in ways:
            for tasks in COUNTS if full else [COUNTS[1:][number % 3]]:
                assert query.check(tasks, by) == "", (by, tasks)
    finally:
        query.close()
