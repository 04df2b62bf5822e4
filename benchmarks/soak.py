"""The soak: endless queries over keys and texts that never come again, and memory that stays flat.

``python -m benchmarks.soak 10`` runs each variant for ten minutes, samples resident memory, and
prints its slope after the warm-up (a third of the time) in MB a minute. Variants:

- ``keys``: windows, sessions, relations with ISTREAM, DISTINCT, order, late and bad rows, side by
  side over fresh keys and texts, as fast as they go;
- ``idle``: a union of which one input is silent for two thirds of the time (``IDLE AFTER``);
- ``heartbeat``: the only input is, and windows go on being told by the clock (``HEARTBEAT``);
- ``stall``: a replay whose source, and then whose reader, stops for ten seconds in the middle.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np

import cql
from benchmarks import figure, harness, machine
from benchmarks.figure import Check, Figure, slope
from benchmarks.run import console_of_width
from benchmarks.workloads import SECOND, T0
from cql.catalog.memory import iterables
from cql.executor.strings import compaction

#: The largest slope of memory after the warm-up, in MB per minute.
SLOPE = 1.0
WARM_UP = 1 / 3
POINTS = 20
SAMPLE = 1.0
#: Rows per second of each query, and the disorder in seconds (some rows exceed it).
RATE, DISORDER = 5_000, 2.0
BATCH = 500
#: Bytes of new texts after which a query compacts its dictionary (instead of 8 MB): a sawtooth of 8
#: MB in each query would hide a slope of 1 MB per minute.
TEXTS = 1 << 20
#: Rows that wait for a query that falls behind on a busy machine (instead of 262,144).
WAITING = 10_000
#: Start and end, in seconds.
Span: TypeAlias = tuple[float, float]
NEVER: Span = (math.inf, math.inf)
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


@dataclass(slots=True)
class Samples:
    """Samples of a run, one per second: MB resident, MB of state by query."""

    seconds: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)
    state: dict[str, list[float]] = field(default_factory=dict)

    def add(self, second: float, queries: Mapping[str, Any]) -> None:
        self.seconds.append(second)
        self.resident.append(machine.resident_mb())
        for name, query in queries.items():
            self.state.setdefault(name, []).append(state_mb(query))

    def slope(self, values: Sequence[float]) -> float:
        """The slope per minute, after the warm-up."""
        warm = int(np.searchsorted(self.seconds, self.seconds[-1] * WARM_UP))
        return slope([s / 60 for s in self.seconds[warm:]], values[warm:])[0]

    def checks(self) -> list[Check]:
        whole = self.slope(self.resident)
        slopes = {name: self.slope(values) for name, values in self.state.items()}
        most = max(slopes, key=lambda name: slopes[name])
        goal = f"under {SLOPE:g} MB a minute"
        return [
            Check("slope of resident memory after warm-up", whole, goal, whole < SLOPE),
            Check(f"slope of state, most ({most})", slopes[most], goal, slopes[most] < SLOPE),
        ]

    def drawn(
        self, name: str, title: str, checks: Sequence[Check], *, right: bool = True
    ) -> Figure:
        """A figure of twenty points, each a mean."""
        count = len(self.seconds)
        parts = np.array_split(np.arange(count), min(POINTS, count))

        def means(values: Sequence[float]) -> list[float]:
            return [float(np.mean(np.asarray(values)[part])) for part in parts]

        minutes = [round(s / 60, 2) for s in means(self.seconds)]
        total = [sum(values) for values in zip(*self.state.values(), strict=True)]
        series = {"resident": means(self.resident), "state": means(total)}
        return Figure(name, title, (), "minutes", minutes, "MB", series, checks, right)


# ----------------------------------------------------------------- the data


def rows(silence: Span = NEVER) -> Iterator[Any]:
    """Arrow batches at RATE: ``ts`` up to DISORDER seconds out of order, one row in a thousand even
    later. ``id`` and ``name`` are new every third row, ``other`` in each row. No rows come in the
    ``silence``."""
    begun = time.monotonic()
    for first in itertools.count(0, BATCH):
        second = first / RATE
        time.sleep(max(0.0, begun + second - time.monotonic()))
        if not silence[0] <= second < silence[1]:
            yield batch(first)


def batch(first: int) -> Any:
    """The batch of BATCH rows from row number ``first`` on."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rng = np.random.default_rng(first)
    number = np.arange(first, first + BATCH)
    late = rng.integers(0, int(DISORDER * SECOND), BATCH)
    late += (rng.random(BATCH) < 1e-3) * 3 * SECOND
    ids = number // 3
    return pa.record_batch(
        {
            "ts": pa.array(T0 + number * SECOND // RATE - late).view(pa.timestamp("us", "UTC")),
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
        readers = {name: Reader(query) for name, query in queries.items()}
        samples = sampled(queries, readers, seconds)
    least = min(readers, key=lambda name: readers[name].rows)
    given = readers[least].rows
    late = sum(reader.late for reader in readers.values())
    checks = [
        *samples.checks(),
        Check(f"rows given, least ({least})", given, "above 0", given > 0),
        Check("late rows", late, "above 0", late > 0),
    ]
    return samples.drawn("soak-keys", f"{len(queries)} queries over fresh keys", checks)


class Reader:
    """Reads a query to its end in a thread; after ``stall`` seconds the reader stops for STALL
    seconds. ``batches`` are the results, if kept. ``longest_gap`` is the longest silence between
    two results, in seconds."""

    def __init__(self, query: Any, *, stall: float = math.inf, keeps: bool = False) -> None:
        self.rows = self.late = 0
        self.longest_gap = 0.0
        self.batches: list[Any] = []
        self.started, self.over = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self._query, self._stall, self._keeps = query, stall, keeps
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._read()
            self.late = self._query.progress().late
        except BaseException as error:  # ``stop`` raises it again
            self.error = error
        finally:
            self.started.set()
            self.over.set()

    def _read(self) -> None:
        begun = last = math.inf
        for given in self._query.batches():
            now = time.monotonic()
            begun = min(begun, now)
            self.longest_gap = max(self.longest_gap, now - last)
            last = now
            self.rows += given.num_rows
            if self._keeps:
                self.batches.append(given)
            self.started.set()
            if now - begun >= self._stall:
                self._stall = math.inf
                time.sleep(STALL)

    def stop(self) -> None:
        self._query.stop()
        self._thread.join()
        if self.error is not None:
            raise self.error


def sampled(
    queries: Mapping[str, Any], readers: Mapping[str, Reader], seconds: float = math.inf
) -> Samples:
    """Samples from the first result of the last query (everything is compiled then) until all
    queries have ended, or for ``seconds``; then stops them."""
    samples = Samples()
    for reader in readers.values():
        reader.started.wait()
    begun = time.monotonic()
    try:
        while (now := time.monotonic() - begun) < seconds:
            samples.add(now, queries)
            if all(each.over.is_set() for each in readers.values()):
                break
            if any(each.error for each in readers.values()):
                break
            time.sleep(SAMPLE)
    finally:
        for reader in readers.values():
            reader.stop()
    return samples


def state_mb(query: Any) -> float:
    state: int = sum(entry.get("state_bytes", 0) for entry in query.metrics())
    return state / 1e6


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
            name: Reader(query, stall=stalls[name], keeps=True) for name, query in queries.items()
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
    "idle": idle,
    "heartbeat": heartbeat,
    "stall": stall,
}


@click.command()
@click.argument("minutes", type=click.FloatRange(0.1))
@click.argument("variants", nargs=-1, type=click.Choice([*VARIANTS]))
@click.option("--only", multiple=True, type=click.Choice([*KEYS]), help="Queries of 'keys'.")
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
    compaction.LEAST, iterables.ROWS_AHEAD = TEXTS, WAITING
    for variant in variants or VARIANTS:
        made = VARIANTS[variant](60 * minutes, *((only,) if variant == "keys" else ()))
        figure.show(made, console)
        saved = [str(harness.save(figure.record_of(made), results))]
        if plots is not None:
            saved.append(str(figure.plot([made], plots)))
        console.print(f"saved as {' and '.join(saved)}", highlight=False)
        met &= made.right and all(check.met for check in made.checks)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
