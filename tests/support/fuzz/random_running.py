"""Running functions over random streams, windows and joins with tables."""

from __future__ import annotations

from tests.support.fuzz.random_cases import Case, case_of
from tests.support.fuzz.random_shapes import Shape

#: Texts, and the streams that they read.
SHAPES = (
    (
        "SELECT t, s, iir(v, array(0.5, 0.25), array(1, -0.5, 0.1)) AS f, cfar(v, 1) AS c,"
        " trigger(q, 2, 0) AS h FROM a",
        "a",
    ),
    ("SELECT t, trigger(sta_lta(q, 2, 5), 1, 0.5) AS h, fir(k, 1, 0.5, 0.25) AS f FROM a", "a"),
    (  # late rows pass, and are late for the window above
        "SELECT count_if(c) AS n, max(f) AS f, window_end FROM"
        " (SELECT t, s, cfar(v, 1) AS c, recursive_sta_lta(q, 2, 3) AS f FROM a WHERE k > 0) AS r"
        " [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY s",
        "a",
    ),
    (
        "SELECT window_end, sta_lta(n, 2, 4) AS r, fir(k, 1, -1) AS change FROM"
        " (SELECT count(*) AS n, sum(k) AS k, window_end FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS])"
        " AS w",
        "a",
    ),
    (
        "SELECT a.t, t.n, fir(a.k + t.n, 1, 1, 1) AS f, cfar(a.q, 0) AS c FROM a JOIN"
        " (SELECT k, count(*) AS n FROM u GROUP BY k) AS t ON a.k = t.k",
        "au",
    ),
)


def running_case(index: int, seed: int) -> Case:
    """A query with running functions; each seed takes another one."""
    text, streams = SHAPES[(index + seed) % len(SHAPES)]
    return case_of(Shape(f"running/{index}", text, tuple(streams), ()), seed)
