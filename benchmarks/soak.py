"""The soak: endless queries over keys and texts that never come again, and memory that stays flat.

``python -m benchmarks.soak 10`` runs each variant for ten minutes, samples resident memory, and
prints its slope after the warm-up (a third of the time) in MB a minute. Variants:

- ``keys``: windows, sessions, relations with ISTREAM, DISTINCT, order, late and bad rows, side by
  side over fresh keys and texts, as fast as they go;
- ``texts``: functions over ever-new request lines, windows and sessions by them, depth first and in
  order on two workers;
- ``idle``: a union of which one input is silent for two thirds of the time (``IDLE AFTER``);
- ``heartbeat``: the only input is, and windows go on being told by the clock (``HEARTBEAT``);
- ``stall``: a replay whose source, and then whose reader, stops for ten seconds in the middle.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

import cql
from benchmarks import figure, harness, soak_texts
from benchmarks.figure import Check, Figure
from benchmarks.run import console_of_width
from benchmarks.soak_samples import (
    BATCH,
    DISORDER,
    NEVER,
    RATE,
    Reader,
    Span,
    paced,
    read,
    sampled,
    times,
)
from cql.catalog.memory import iterables
from cql.executor.morsel import buffers
from cql.executor.strings import compaction

#: Bytes of new texts after which a query compacts its dictionary (instead of 8 MB): a sawtooth of 8
#: MB in each query would hide a slope of 1 MB per minute.
LEAST = 1 << 20
#: Rows that wait for a query that falls behind on a busy machine (instead of 262,144).
WAITING = 10_000
#: Bytes of free buffers that the process keeps (instead of 256 MB).
POOL = 32 << 20
#: Seconds: IDLE AFTER, the slack of HEARTBEAT, the longest silence in results, the stall.
IDLE, SLACK, GAP, STALL = 2, 2, 10.0, 10.0

#: ``s`` has ever-new names (each three times within about a second) and ids; ``k`` has few values.
KEYS: Mapping[str, str] = {
    "windows": """SELECT name, count(*) AS n, min(other) AS low, upper(max(other)) AS high,
        window_end FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY name""",
    "panes": """SELECT id, name, count(*) AS n, first(other) AS f, window_end
        FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY id, name""",
    "distinct values": """SELECT k, count(DISTINCT name) AS n,
        count(DISTINCT concat(other, name)) AS m, window_end
        FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k""",
    "lists": """SELECT k, median(id) AS middle, mode(other) AS often,
        string_agg(name, ' ') AS names, window_end
        FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k""",
    "stacks": """SELECT max(name) AS high, max_by(other, id) AS o, window_end
        FROM s [RANGE 30 SECONDS SLIDE 1 SECOND]""",
    "sessions": """SELECT name, count(*) AS n, last(other) AS l, window_end
        FROM s [SESSION 2 SECONDS] GROUP BY name""",
    "top": """SELECT name, count(*) AS n, window_end FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS]
        GROUP BY name ORDER BY n DESC, name LIMIT 3""",
    "windows of windows": """SELECT n, max(name) AS high, count(*) AS names, window_end
        FROM (SELECT name, count(*) AS n, window_time
              FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS] GROUP BY name)
        [RANGE 10 SECONDS SLIDE 10 SECONDS WA window_time] GROUP BY n""",
    "istream": """ISTREAM(SELECT name, count(*) AS n, max(other) AS o FROM s [RANGE 3 SECONDS]
        GROUP BY name)""",
    "distinct": "ISTREAM(SELECT DISTINCT name, k FROM s [RANGE 3 SECONDS])",
    "rows": "DSTREAM(SELECT name, upper(other) AS o FROM s [ROWS 1000])",
    "relation": "SELECT max(name) AS high, count(*) AS n FROM s [RANGE 2 SECONDS] WHERE k = 0",
    "except": """ISTREAM(SELECT name FROM s [RANGE 3 SECONDS] WHERE k < 5
        EXCEPT SELECT name FROM s [RANGE 1 SECOND] WHERE k > 2)""",
    "order": "SELECT ts, lower(name) AS name FROM s ORDER BY ts",
    "bad rows": "SELECT concat(name, '!') AS loud, 1 / k AS x FROM s WHERE other LIKE '%7'",
}


# ----------------------------------------------------------------- the data


def rows(silence: Span = NEVER) -> Iterator[Any]:
    """Arrow batches of rows at RATE: ``id`` and ``name`` are new every third row, ``other`` in each
    row. No rows come in the ``silence``."""
    return paced(batch, silence)


def batch(first: int) -> Any:
    """The batch of BATCH rows from row number ``first`` on."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rng = np.random.default_rng(first)
    number = np.arange(first, first + BATCH)
    ids = number // 3
    return pa.record_batch(
        {
            "ts": times(number, rng),
            "id": pa.array(ids),
            "k": pa.array(rng.integers(0, 10, BATCH)),
            "name": pc.binary_join_element_wise("name", pa.array(ids).cast("string"), "_"),
            "other": pc.binary_join_element_wise("text", pa.array(number).cast("string"), "-"),
        }
    )


# ----------------------------------------------------------------- fresh keys


def keys(seconds: float, only: Sequence[str] = ()) -> Figure:
    """All queries of KEYS at once, each in a thread and over rows of its own."""
    with cql.connect(spark=False) as session:
        session.create_stream(
            "s", rows, ordered_by="ts", slack=f"{DISORDER:g} seconds", bounded=False
        )
        queries = {name: session.sql(KEYS[name]) for name in only or KEYS}
        return read("soak-keys", f"{len(queries)} queries over fresh keys", queries, seconds)


# ----------------------------------------------------------------- silence


def idle(seconds: float) -> Figure:
    """One of two inputs is silent for two thirds of the time."""
    with cql.connect(spark=False) as session:
        silent = partial(rows, (seconds / 6, seconds * 5 / 6))
        for name, source in (("a", rows), ("b", silent)):
            session.create_stream(
                name,
                source,
                ordered_by="ts",
                slack=f"{DISORDER:g} seconds",
                bounded=False,
                idle_after=f"{IDLE:g} seconds",
            )
        query = session.sql("""
            SELECT name, count(*) AS n, window_end
            FROM a UNION b AS m [RANGE 2 SECONDS SLIDE 1 SECOND WA ts] GROUP BY name""")
        return _silent("soak-idle", "One of two inputs falls silent", query, seconds)


def heartbeat(seconds: float) -> Figure:
    """The only input is silent for two thirds of the time; windows that began before still
    close."""
    with cql.connect(spark=False) as session:
        session.create_stream(
            "s",
            partial(rows, (seconds / 6, seconds * 5 / 6)),
            ordered_by="ts",
            slack=f"{DISORDER:g} seconds",
            bounded=False,
            heartbeat=("1 second", f"{SLACK} seconds"),
        )
        query = session.sql(f"""
            SELECT k, count(*) AS n, max(name) AS high, window_end
            FROM s [RANGE {math.ceil(seconds)} SECONDS SLIDE 1 SECOND] GROUP BY k""")
        return _silent("soak-heartbeat", "The only input falls silent", query, seconds)


def _silent(name: str, title: str, query: Any, seconds: float) -> Figure:
    reader = Reader(query)
    samples = sampled({"query": query}, {"query": reader}, seconds)
    gap = reader.longest_gap
    checks = [
        *samples.checks(),
        Check("longest gap between results in seconds", gap, f"under {GAP:g}", gap < GAP),
    ]
    return samples.drawn(name, f"{title} for {seconds * 2 / 3:.0f} s", checks)


def stall(seconds: float) -> Figure:
    """Two replays of ``seconds`` of rows by the clock: in one the reader stops for ten seconds in
    the middle, in the other the source does. Neither may lose rows or become idle."""
    import pyarrow as pa

    whole = pa.Table.from_batches(
        [batch(first) for first in range(0, math.ceil(seconds * RATE), BATCH)]
    )
    text = """SELECT k, count(*) AS n, max(name) AS high, window_end
        FROM {} AS m [RANGE 2 SECONDS SLIDE 1 SECOND WA ts] GROUP BY k"""
    declared: dict[str, Any] = {"ordered_by": "ts", "slack": f"{DISORDER:g} seconds"}
    declared["idle_after"] = "1 second"
    with cql.connect(spark=False) as session:
        session.create_stream("whole", whole, **declared)
        for name in ("a", "b"):
            session.sql(f"""
                CREATE STREAM {name} USING replay OPTIONS (table 'whole', time 'ts', speed '1')
                ORDERED BY ts WITHIN {DISORDER:g} SECONDS IDLE AFTER 1 SECOND""")
        session.create_stream("c", lambda: _stalling(whole), **declared)
        expected = _in_order(session.sql(text.format("whole UNION whole")).to_arrow())
        queries = {
            "the reader stalls": session.sql(text.format("a UNION b")),
            "the source stalls": session.sql(text.format("a UNION c")),
        }
        stalls = dict.fromkeys(queries, math.inf) | {"the reader stalls": seconds / 2}
        readers = {
            name: Reader(query, stall=(stalls[name], STALL), keeps=True)
            for name, query in queries.items()
        }
        samples = sampled(queries, readers)
    right = all(
        _in_order(pa.Table.from_batches(reader.batches)).equals(expected)
        for reader in readers.values()
    )
    checks = samples.checks()
    for name, reader in readers.items():
        gap = reader.longest_gap
        goal = f"at least {STALL / 2:g}"
        checks.append(Check(f"{name}: gap in seconds", gap, goal, gap >= STALL / 2))
    title = f"Replays with a stall of {STALL:g} s in the middle"
    return samples.drawn("soak-stall", title, checks, right=right)


def _stalling(whole: Any) -> Iterator[Any]:
    batches = whole.to_batches()
    for number, given in enumerate(batches):
        if number == len(batches) // 2:
            time.sleep(STALL)
        yield given


def _in_order(answer: Any) -> Any:
    return answer.sort_by([("window_end", "ascending"), ("k", "ascending")]).combine_chunks()


VARIANTS: Mapping[str, Callable[..., Figure]] = {
    "keys": keys,
    "texts": soak_texts.texts,
    "idle": idle,
    "heartbeat": heartbeat,
    "stall": stall,
}
#: The variants of which some queries may be chosen.
NAMED = ("keys", "texts")


@click.command()
@click.argument("minutes", type=click.FloatRange(0.1))
@click.argument("variants", nargs=-1, type=click.Choice([*VARIANTS]))
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([*KEYS, *soak_texts.TEXTS]),
    help="Queries of 'keys' or 'texts'.",
)
@click.option("--results", type=click.Path(path_type=Path), default=harness.RESULTS)
@click.option("--plots", type=click.Path(path_type=Path), help="Where pictures go (matplotlib).")
def main(
    minutes: float,
    variants: tuple[str, ...],
    only: tuple[str, ...],
    results: Path,
    plots: Path | None,
) -> None:
    """Runs each variant for so many minutes. Ends with 1 if one missed what it has to show."""
    console, met = console_of_width(), True
    compaction.LEAST, iterables.ROWS_AHEAD, buffers.KEPT_BYTES = LEAST, WAITING, POOL
    for variant in variants or VARIANTS:
        made = VARIANTS[variant](60 * minutes, *((only,) if variant in NAMED else ()))
        figure.show(made, console)
        saved = [str(harness.save(figure.record_of(made), results))]
        if plots is not None:
            saved.append(str(figure.plot([made], plots)))
        console.print(f"saved as {' and '.join(saved)}", highlight=False)
        met &= made.right and all(check.met for check in made.checks)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
