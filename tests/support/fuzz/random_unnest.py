"""Random arrays under UNNEST."""

from __future__ import annotations

from tests.support.fuzz.random_cases import Case, case_of
from tests.support.fuzz.random_shapes import Shape

_WINDOWS = "SELECT k, {} AS xs, window_time FROM a [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k"


_SESSIONS = "SELECT k, {} AS xs FROM a [SESSION 2 SECONDS] GROUP BY k"


_TABLE = "SELECT k, {} AS xs FROM u GROUP BY k"


#: Texts, and the streams that they read.
SHAPES = (
    (
        f"SELECT e, count(*) AS n, sum(k) AS k, window_end FROM"
        f" ({_SESSIONS.format('collect_set(s)')}) [RANGE 9 SECONDS SLIDE 3 SECONDS] AS w"
        " CROSS JOIN UNNEST(w.xs) AS e WHERE k > 0 OR e > 'a' GROUP BY e",
        "a",
    ),
    (
        f"SELECT a.e AS one, b.e AS other, count(*) AS n, window_end FROM"
        f" ({_SESSIONS.format('collect_set(CAST(q AS TINYINT))')})"
        " [RANGE 8 SECONDS SLIDE 8 SECONDS] AS w,"
        " UNNEST(w.xs) AS a (e) JOIN UNNEST(w.xs) AS b (e) ON a.e < b.e GROUP BY a.e, b.e"
        " ORDER BY n DESC, one, other LIMIT 5",
        "a",
    ),
    (
        "SELECT x.e AS x, y.e AS y, window_time FROM"
        f" ({_WINDOWS.format('array_agg(b) AS bs, array_agg(h)')}) AS w,"
        " UNNEST(w.xs) AS x (e) LEFT JOIN UNNEST(w.bs) AS y (e) ON TRUE",
        "a",
    ),
    (  # late rows pass, and are late for the window above
        "SELECT upper(e) AS e, count(*) AS n, window_end"
        " [RANGE 4 SECONDS SLIDE 2 SECONDS WA a.t]"
        f" FROM a LEFT JOIN ({_TABLE.format('array_agg(s)')}) AS t ON a.k = t.k"
        " LEFT JOIN UNNEST(CASE WHEN a.k > 0 THEN t.xs END) AS x (e) ON TRUE GROUP BY upper(e)",
        "au",
    ),
    (
        "SELECT e, count(*) AS n FROM (SELECT k, percentile(y, array(0.25, 0.5)) AS ps FROM u"
        " GROUP BY k) AS t, UNNEST(t.ps) AS x (e) GROUP BY e",
        "u",
    ),
    (  # arrays and structs of the query, with NULLs, as keys and in one another
        "SELECT d.p AS p, e, xs, count(*) AS n, first(d) AS f, window_end FROM"
        " (SELECT t, array(k, q, IF(b, v, NULL)) AS xs, struct(s AS p, h) AS d FROM a)"
        " [RANGE 8 SECONDS SLIDE 4 SECONDS WA t] AS w CROSS JOIN UNNEST(w.xs) AS e"
        " GROUP BY d.p, e, xs",
        "a",
    ),
    (
        "SELECT i.x AS x, i.y AS y, size(w.xs) AS n, get(w.xs, 1).y AS z, slice(w.xs, 2, 9) AS r"
        " FROM (SELECT t, array(struct(q AS x, s AS y), IF(v > 0, struct(k AS x, s AS y), NULL))"
        " AS xs FROM a) AS w LEFT JOIN UNNEST(w.xs) AS i (x, y) ON TRUE",
        "a",
    ),
)


def unnest_shape(index: int) -> Shape:
    text, streams = SHAPES[index]
    return Shape(f"unnest/{index}", text, tuple(streams), ())


def unnest_case(index: int, seed: int) -> Case:
    """A query with UNNEST; each seed takes another one."""
    return case_of(unnest_shape((index + seed) % len(SHAPES)), seed)
