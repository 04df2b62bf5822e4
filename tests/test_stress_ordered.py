"""Random plans under the ordered runtime (``stress_ordered``); more of them with ``--full``."""

from __future__ import annotations

from count_cases import data_set
from random_cases import open_session
from stress_ordered import forked, several


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
