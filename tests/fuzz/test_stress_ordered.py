"""Random plans under the ordered runtime (``stress_ordered``); ``--full`` runs more plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.fuzz.count_cases import data_set
from tests.support.fuzz.random_cases import open_session, run_engine
from tests.support.fuzz.stress_ordered import forked, several


@pytest.mark.slow
def test_the_output_of_depth_first(seed: int, full: bool) -> None:
    counts, told = several(range(200 if full else 8), seed)
    assert not told
    assert counts["equal"] > counts["failed as they must"]


def test_a_stream_that_comes_to_a_join_in_turns_runs_ordered() -> None:
    case = forked(data_set("join/9", 1))
    with open_session(case) as session:
        session.set("runtime", "ordered")
        shown = session.sql(case.text, **case.params).explain("analyze")
    assert "UNION" in case.text
    assert "runtime: ordered" in shown
    assert "it ran depth first" not in shown


def test_turns_that_are_over_make_room() -> None:
    """At the end of this stream, ended turns fill the turn queue of the join with the table, and no
    morsel is inside. The runtime must remove these turns, or the turns of the last morsel find no
    place."""
    case = data_set("tablejoin/38", 4)
    text = """
        WITH u AS (SELECT * FROM a WHERE q > 1 UNION ALL SELECT * FROM u UNION ALL SELECT * FROM a)
        SELECT l.t AS lt, m.t AS mt FROM u l SEMI JOIN u r ON l.k = r.q JOIN o m ON l.s = m.s
        WHERE l.k IS NULL"""
    settings = {"runtime": "ordered", "workers": 1, "scheduler": "ct_printed"}
    settings |= {"fuse": False, "morsel_rows": 1}
    case = replace(case, shape=replace(case.shape, text=text), settings=settings)
    assert run_engine(case)[0].num_rows == 0
