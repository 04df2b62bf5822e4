"""Queries on two executor processes whose Python has the library only from the driver's .zip."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster.start import driven
from tests.support.query_tables import SHARED


@pytest.mark.slow
def test_query_files_on_a_cluster(tmp_path: Path, full: bool) -> None:
    """Each query file that tasks can share, in 1, 2, 5 and 16 tasks, by time or rows and by key."""
    if not full:
        pytest.skip("with --full")
    before, *answers, after = driven("tests.support.cluster.queries", tmp_path)
    assert set(before) == {""}  # no executor has the library beforehand
    assert all("cql.zip" in place for place in after)
    assert [name for name, _ in answers] == list(SHARED)
    assert [(name, found) for name, found in answers if found] == []
