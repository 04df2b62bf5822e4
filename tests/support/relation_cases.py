"""Queries over relations, random data for them, and the changes that the reference expects."""

from __future__ import annotations

import random
import re
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from cql.base.types import BIGINT
from cql.base.window import MAX_EVENT_TIME
from cql.planner.nodes.logical import Logical
from tests.reference.naive import relations_of
from tests.reference.naive_compare import difference, storage_rows
from tests.reference.naive_order import Order
from tests.reference.naive_relations import BEGINNING
from tests.reference.naive_rows import Run
from tests.support.fuzz.random_cases import (
    MORSELS,
    Case,
    draw_piecewise,
    open_session,
    runtime_settings,
)
from tests.support.fuzz.random_data import DAY, random_stream
from tests.support.fuzz.random_shapes import Shape

RELATIONS = (
    "SELECT count(*) AS c, sum(q) AS s FROM n [RANGE 7]",
    "SELECT k, count(*) AS c, min(v) AS lo, max(s) AS hi FROM n [RANGE 12] GROUP BY k",
    "SELECT s, avg(q) AS m, stddev(q) AS d FROM a [RANGE 3 SECONDS] WHERE q > -5 GROUP BY s",
    "SELECT k, last(s) AS l, first(v) AS f, count(s) AS c FROM n [ROWS 5] GROUP BY k",
    "SELECT count_if(b) AS c, bool_or(b) AS o, max(x) AS x FROM b [ROWS 20]",
    "SELECT k, sum(q) FILTER (WHERE b) AS s, count(*) AS c"
    " FROM m [PARTITION BY k ROWS 3] GROUP BY k",
    "SELECT t, s, q FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY s ORDER BY t) AS p FROM n)"
    " WHERE p = 1",
    "SELECT t, k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, b ORDER BY t DESC) AS p"
    " FROM m) WHERE p = 1",
    "SELECT t, x, h, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY x, h ORDER BY t) AS p"
    " FROM b WHERE q > -8) WHERE p < 2",
    "SELECT k, v, p FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS p"
    " FROM n [RANGE 9]) WHERE p <= 2",
    "SELECT DISTINCT s, b FROM n [RANGE 9]",
    "SELECT DISTINCT k FROM m [PARTITION BY s, k ROWS 1] WHERE q > 0",
    "SELECT s, count(*) AS c FROM d [RANGE 4 DAYS] GROUP BY s",
    "SELECT sum(q) AS s, count(v) AS c, max(y) AS y FROM a [RANGE UNBOUNDED]",
    "SELECT count(*) AS c FROM n [NOW]",
    "SELECT g, max(q) AS m FROM n [RANGE 6] GROUP BY g HAVING count(*) > 1",
    "SELECT max(c) AS c, sum(c) AS s, min(h) AS h, count(*) AS n"
    " FROM (SELECT k, count(*) AS c, max(s) AS h FROM n [RANGE 8] GROUP BY k)",
    "SELECT k, s FROM n [RANGE 5] EXCEPT SELECT k, s FROM m [RANGE 9]",
    "SELECT k FROM n [RANGE 5] EXCEPT ALL SELECT k FROM m [ROWS 6]",
    "SELECT s FROM n [ROWS 8] INTERSECT SELECT s FROM m [RANGE 9]",
    "SELECT b, k FROM n [RANGE 20] INTERSECT ALL SELECT b, k FROM m [RANGE 20]",
    "SELECT s FROM n [RANGE 5] UNION SELECT s FROM m [RANGE 9]",
    "SELECT k, count(*) AS c FROM (SELECT k FROM n [RANGE 5] UNION ALL SELECT k FROM m [ROWS 4])"
    " GROUP BY k",
    "SELECT s, max(q) AS m, sum(y) AS y FROM (SELECT s, q, y FROM n [RANGE 5] UNION ALL"
    " SELECT s, q, y FROM m [RANGE 11]) GROUP BY s",
    "SELECT q, k, s, b, v, w, g FROM n [RANGE 10] ORDER BY q DESC, k, s, b, v, w, g LIMIT 4"
    " EMIT CHANGES",
    "SELECT s, count(*) AS c FROM n [RANGE 10] GROUP BY s"
    " ORDER BY c DESC, s NULLS LAST LIMIT 3 OFFSET 1",
    "SELECT x, count(*) AS c FROM n [RANGE 15] GROUP BY x ORDER BY x DESC LIMIT 2",
    "SELECT * FROM (SELECT q, k, s, b, v, w, g, row_number() OVER (PARTITION BY b, s"
    " ORDER BY q DESC, k, v, w, g) AS p FROM n [RANGE 10]) WHERE p <= 2",
    "SELECT s, c, p FROM (SELECT s, k, count(*) AS c, row_number() OVER (PARTITION BY k ORDER BY"
    " count(*) DESC, s NULLS LAST) AS p FROM n [ROWS 12] GROUP BY s, k) WHERE p < 3 AND k > -5",
    "SELECT k, s, row_number() OVER (ORDER BY s DESC NULLS LAST, k, b) AS p, b"
    " FROM m [PARTITION BY k ROWS 2] WHERE q > -8",
    "SELECT max(p) AS p, count(*) AS c, k FROM (SELECT k, q, row_number() OVER (PARTITION BY k"
    " ORDER BY q % 3, q, k) AS p FROM n [RANGE 9]) WHERE 3 >= p GROUP BY k",
    "SELECT k, q FROM n [RANGE 6] WHERE q > (SELECT avg(q) FROM m [RANGE 9])",
    "SELECT k, s, (SELECT max(s) FROM m [ROWS 3] WHERE q > 0) AS h FROM n [ROWS 4]",
    "SELECT k, s FROM n [RANGE 8] WHERE s IN (SELECT s FROM m [RANGE 5])",
    "SELECT k, q FROM n WHERE k NOT IN (SELECT k FROM m [ROWS 3])",
    "SELECT b, v IN (SELECT q FROM m [RANGE 20]) AS i, s FROM n [ROWS 6]",
    "SELECT k, s FROM n [RANGE 9] AS n WHERE EXISTS"
    " (SELECT * FROM m [RANGE 9] AS m WHERE m.k = n.k AND n.s = m.s AND m.q > 0)",
    "SELECT s, count(*) AS c FROM n [RANGE 9] AS n WHERE NOT EXISTS"
    " (SELECT 1 FROM m [ROWS 5] AS m WHERE m.s = n.s) GROUP BY s",
    "SELECT EXISTS (SELECT 1 FROM m [NOW] WHERE q > 3) AS e, k FROM n [NOW]",
    "SELECT k, s FROM n [RANGE 9] AS n WHERE EXISTS"
    " (SELECT * FROM m [RANGE 9] AS m WHERE m.k = n.k AND m.q > n.q)",
    "SELECT s, count(*) AS c FROM n [ROWS 9] AS n WHERE NOT EXISTS"
    " (SELECT 1 FROM m [ROWS 5] AS m WHERE m.v < n.v AND m.s <> n.s) GROUP BY s",
    "SELECT k, EXISTS (SELECT 1 FROM m [RANGE 5] AS m WHERE m.s >= n.s) AS e FROM n [RANGE 9] AS n",
    "SELECT k, q NOT IN (SELECT q FROM m [RANGE 9] AS m WHERE m.b = n.b) AS i FROM n [ROWS 6] AS n",
    "SELECT k, q FROM n [RANGE 9] AS n WHERE q NOT IN"
    " (SELECT q FROM m [ROWS 5] AS m WHERE m.k < n.k AND m.s IS NOT NULL)",
    "SELECT s, count(*) AS c FROM n [RANGE 20] GROUP BY s"
    " HAVING count(*) >= (SELECT count(*) FROM m [RANGE 2])",
    "SELECT k, (SELECT count(*) FROM m [RANGE 2] WHERE q > 50) AS c FROM n [NOW]",
    "SELECT k, s FROM n [RANGE 9] WHERE s IN (SELECT * FROM (VALUES ('a'), ('b')) AS x (s))"
    " EMIT CHANGES",
    "SELECT b, sum(q) AS s, max(v) AS m FROM m [PARTITION BY k ROWS 2] GROUP BY b",
    "SELECT b, count(*) AS c FROM m [PARTITION BY k ROWS 2] GROUP BY b",
    "SELECT b, k, sum(q) AS s FROM m [PARTITION BY k ROWS 2] GROUP BY b, k",
    "SELECT first(s) AS f, last(v) AS l, max_by(b, k) AS m FROM m [PARTITION BY s ROWS 2]"
    " WHERE q > -5",
    "SELECT count(*) AS c, sum(q) AS s FROM n [RANGE 7] WHERE q > 50",
    "SELECT count(*) AS c FROM (SELECT k FROM n [RANGE 5] EXCEPT SELECT k FROM m [RANGE 9])",
    "SELECT max(q) % 3 AS w FROM n [ROWS 3] GROUP BY b",
    "SELECT k, count(*) AS c FROM n GROUP BY k EMIT CHANGES",
    "SELECT DISTINCT s FROM n EMIT CHANGES",
    "SELECT s, count(*) AS c, sum(q) AS q, window_end FROM n [RANGE 20 SLIDE 10] GROUP BY s"
    " EMIT CHANGES",
    "SELECT max(v) AS v, last(s) AS l FROM a [RANGE 3 SECONDS SLIDE 3 SECONDS] WHERE q > -5"
    " EMIT CHANGES",
    "SELECT k, count(*) AS c, window_start FROM (SELECT t, k FROM n UNION ALL SELECT t, k FROM m)"
    " AS u [RANGE 7 SLIDE 5, WA t] GROUP BY k HAVING count(*) > 1 ORDER BY c EMIT CHANGES",
    "SELECT k, count(DISTINCT s) AS c, sum(DISTINCT q) AS d, avg(DISTINCT y) AS a, count(*) AS n"
    " FROM n [RANGE 12] GROUP BY k",
    "SELECT b, median(q) AS m, mode(s) AS o, percentile(y, array(0.2, 0.95)) AS p, max(v) AS v"
    " FROM m [ROWS 9] GROUP BY b",
    "SELECT array_agg(s) AS l, string_agg(DISTINCT s, ',') AS j, count(DISTINCT v) AS c"
    " FROM n [RANGE 6] WHERE q > -5",
    "SELECT s, percentile_disc(0.3) WITHIN GROUP (ORDER BY v DESC) AS d, median(DISTINCT q) AS m,"
    " mode() WITHIN GROUP (ORDER BY x DESC) AS o, sum(DISTINCT q) FILTER (WHERE b) AS f"
    " FROM a [RANGE 6 SECONDS] GROUP BY s",
    "SELECT k, sum(DISTINCT q) AS s, count(DISTINCT x) AS c, mode(b) AS m, last(s) AS l"
    " FROM n [RANGE UNBOUNDED] GROUP BY k",
    "SELECT b, array_agg(v ORDER BY s DESC, v) AS l, median(h) AS m, count(DISTINCT g) AS c"
    " FROM m [PARTITION BY k ROWS 2] GROUP BY b",
    "SELECT median(c) AS m, count(DISTINCT h) AS d, sum(DISTINCT c) AS s, mode(h) AS o"
    " FROM (SELECT k, count(*) AS c, max(s) AS h FROM n [RANGE 8] GROUP BY k)",
    "SELECT s, median(q) AS m, count(DISTINCT k) AS c FROM (SELECT s, q, k FROM n [RANGE 5]"
    " UNION ALL SELECT s, q, k FROM m [ROWS 6]) GROUP BY s HAVING count(DISTINCT k) <> 2",
    "SELECT s, count(DISTINCT k) AS c, array_agg(v) AS l, median(q) AS q, window_end"
    " FROM n [RANGE 20 SLIDE 10] GROUP BY s EMIT CHANGES",
    "SELECT b, first(v) AS f, last(s) AS l, string_agg(s) AS j, sum(DISTINCT q) AS d, window_start"
    " FROM a [RANGE 3 SECONDS SLIDE 3 SECONDS] GROUP BY b EMIT CHANGES",
    "SELECT s, min(q) AS q, window_end FROM TABLE(CUMULATE(TABLE n , DESCRIPTOR(t), 5, 20))"
    " GROUP BY s, window_start, window_end EMIT CHANGES",
)  # fmt: skip


STREAMS = (
    "SELECT ISTREAM(k, s) FROM n [RANGE 5] WHERE q > 0",
    "SELECT DSTREAM(k, b) FROM n [RANGE 5]",
    "SELECT RSTREAM(k) FROM n [RANGE 3] WHERE q > 0",
    "SELECT RSTREAM(*) FROM a [NOW]",
    "SELECT ISTREAM(*) FROM n [ROWS 3]",
    "SELECT DSTREAM(v) FROM m [PARTITION BY k ROWS 2]",
    "SELECT ISTREAM(s, count(*)) FROM n [RANGE 6] GROUP BY s",
    "SELECT ISTREAM(count(*)) FROM n [RANGE 6] WHERE q > 50",
    "SELECT RSTREAM(sum(q)) FROM n [PARTITION BY k ROWS 2] WHERE q > 50",
    "SELECT DSTREAM(max(q)) FROM n [ROWS 4]",
    "ISTREAM(SELECT DISTINCT k FROM n [RANGE 4])",
    "DSTREAM(SELECT k FROM n [RANGE 4] EXCEPT SELECT k FROM m [RANGE 4])",
    "ISTREAM(n [ROWS 5] EXCEPT m [NOW])",
    "SELECT s, count(*) AS c, window_end FROM (SELECT ISTREAM(s) FROM n [ROWS 5])"
    " [RANGE 20 SLIDE 10] GROUP BY s",
    "SELECT k, q FROM n WHERE k IN (SELECT * FROM (VALUES (1), (2), (NULL)) AS x (k)) OR q > 5",
    "SELECT s, sum(q) AS q, window_end FROM n [RANGE 20 SLIDE 10]"
    " WHERE k NOT IN (SELECT * FROM (VALUES (1), (2)) AS x (k)) GROUP BY s",
    "SELECT k FROM n WHERE k IN (SELECT * FROM (VALUES (1), (1), (3)) AS x (k))",
    "SELECT count(*) AS c, k IN (SELECT * FROM (VALUES (1), (2)) AS x (k)) AS there, window_end"
    " FROM n [RANGE 20 SLIDE 5] GROUP BY there",
    "SELECT count(*) AS c, window_end FROM n [ROWS 4 SLIDE 2]"
    " WHERE EXISTS (SELECT 1 FROM (VALUES ('a'), ('b')) AS x (s) WHERE x.s = n.s)",
    "SELECT q, window_end, p FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start,"
    " window_end ORDER BY q DESC, k, v) AS p FROM TABLE(TUMBLE(TABLE n, DESCRIPTOR(t), 10)))"
    " WHERE p <= 2",
    "SELECT k, window_start, p FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, k"
    " ORDER BY q, v) AS p FROM TABLE(HOP(TABLE n, DESCRIPTOR(t), 5, 20))) WHERE p = 1",
    "SELECT s, count(*) AS c, window_end FROM (SELECT s, window_time AS w FROM"
    " TABLE(TUMBLE(TABLE n, DESCRIPTOR(t), 10))) [RANGE 20 SLIDE 10 WA w] GROUP BY s",
    "SELECT w, count(*) AS c FROM (SELECT window_start AS w FROM"
    " TABLE(HOP(TABLE n, DESCRIPTOR(t), 5, 20))) GROUP BY w",
    "SELECT k, (SELECT max(k) FROM (VALUES (1), (7)) AS x (k)) AS most FROM n",
    "SELECT k, q FROM n WHERE q > -9 AND EXISTS"
    " (SELECT 1 FROM (VALUES (1, 3), (7, 10)) AS x (l, h) WHERE x.l <= n.q AND n.q < x.h)",
    "SELECT k, q FROM n WHERE NOT EXISTS"
    " (SELECT 1 FROM (VALUES (1, 3), (7, NULL)) AS x (l, h) WHERE x.l = n.k AND n.q < x.h)",
    "SELECT k, q FROM n WHERE k NOT IN"
    " (SELECT l FROM (VALUES (1, 3), (NULL, 10)) AS x (l, h) WHERE x.h > n.q)",
    "SELECT k FROM n [ROWS 3] WHERE k IN (SELECT * FROM (VALUES (1), (2)) AS x (k))",
    "SELECT ISTREAM(k, q) FROM n [NOW] WHERE q > (SELECT avg(q) FROM n [RANGE 30])",
    "SELECT * FROM n [RANGE 5]",
    "SELECT k, s FROM a [NOW] WHERE q > 2",
    "SELECT q, k, s FROM n [RANGE 5] ORDER BY q DESC NULLS FIRST, k, s LIMIT 9 OFFSET 2",
    "SELECT t, k FROM n [ROWS 3] WHERE q > -9 ORDER BY t, k NULLS FIRST",
)


SUBQUERIES = tuple(
    text for text in (*RELATIONS, *STREAMS) if re.search(r"(IN|EXISTS|[>=,]) \(SELECT", text)
)
NAMES = ("a", "b", "n", "m", "d")


def case_of(text: str, rng: random.Random) -> Case:
    words = text.replace("(", " ").replace(")", " ").replace(",", " ").split()
    used = tuple(
        dict.fromkeys(w for i, w in enumerate(words) if w in NAMES and _is_input(words, i))
    )
    streams = tuple(random_stream(rng, name) for name in used)
    fuse = random.Random(text).random() < 0.7  # cases of one text share their kernels
    settings: dict[str, Any] = runtime_settings(rng) | {"fuse": fuse}
    morsel = rng.choice(MORSELS)
    if morsel is not None:
        settings["morsel_rows"] = morsel
    shape = Shape(0, text, used, ())
    piecewise = draw_piecewise(rng, shape, streams)
    return Case(f"0:{text}", shape, streams, {}, True, settings, (), piecewise)


def subquery_case(index: int, seed: int) -> Case:
    """A query with a subquery; each seed takes another one."""
    text = SUBQUERIES[(index + seed) % len(SUBQUERIES)]
    made = case_of(text, random.Random(f"subquery {index}:{seed}"))
    return replace(made, seed=f"subquery {index}:{seed}")


def _is_input(words: list[str], i: int) -> bool:
    before = words[i - 1] if i else ""
    behind = words[i + 1] if i + 1 < len(words) else ""
    return before in ("FROM", "TABLE") or behind.startswith("[")


def changes_of(case: Case) -> list[tuple[Any, ...]]:
    """Runs the engine. Returns its changes as (_time, row…, weight), with the net weight per
    instant and row."""
    with open_session(case) as session, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        query = session.sql(case.text, **case.params)
        batches = list(query.batches())
        table = pa.Table.from_batches(batches, schema=query.schema.to_arrow())
    rows = storage_rows(table)
    kind = query.schema[0].type
    day = DAY if kind.is_timestamp else 1
    beginning = -MAX_EVENT_TIME if kind == BIGINT else -719_162 * day
    net: Counter[Any] = Counter()
    kept: dict[Any, tuple[Any, ...]] = {}
    for time, weight, *row in rows:
        time = BEGINNING if time == beginning else time
        key = (time, repr([0.0 if v == 0 else v for v in row]))
        kept.setdefault(key, (time, *row))
        net[key] += weight
    return [(*kept[key], n) for key, n in net.items() if n]


Changes: TypeAlias = "list[tuple[Any, ...]]"


def expected_changes(case: Case, plan: Logical) -> Changes:
    """The changes that the reference computes."""
    run = Run({s.name: s.rows for s in case.streams}, True, Order())
    return [(now, *row, n) for now, row, n in relations_of(run).changes(plan)]


def difference_of_changes(expected: Changes, case: Case) -> str | None:
    """Runs the engine. Returns a difference from ``expected``, or None."""
    return difference(expected, changes_of(case))
