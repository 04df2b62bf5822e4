"""Figures 5, 6, 8, 10, 11 and 12 of the out-of-order paper: joins in order and out of order.

The inputs are replayed in the order of arrival of their rows. The in-order plan does the work of
such a system: unions merge, and a join's result is sorted before it is aggregated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import cql
from benchmarks.figure import Check, Figure, slope
from benchmarks.ours import integers
from benchmarks.skew import IN_ORDER, OUT_OF_ORDER, SKEWS, replayed
from benchmarks.workloads import SECOND, T0, Answer, Column, checksum

BANDS = (1, 5, 10, 20, 40)
JOINT, INDIVIDUAL = "joint", "individual"
SECONDS = 120
#: Packets per second of each link.
RATE = 1_000
FLOWS = 5_000
#: Replay speeds, relative to real time: of figures that show delays, and of latencies.
SPEED, SLOWLY = 100, 20

_KEYS = """M1.srcIP = {0}.destIP AND M1.destIP = {0}.srcIP AND M1.srcPort = {0}.destPort
AND M1.destPort = {0}.srcPort"""
Q3 = """
SELECT M1.ts, M2.ts, count(*) AS n FROM M1 [WA ts, RANGE {band} SECONDS],
M2 [WA ts, RANGE {band} SECONDS] WHERE M1.srcIP = M2.destIP AND M1.ts < M2.ts
GROUP BY M1.ts, M2.ts"""
Q6 = f"""
SELECT M1.srcIP, M1.destIP, M1.ts FROM A UNION B AS M1, C UNION D AS M2
WHERE CAST(M1.ts AS BIGINT) / 10 = CAST(M2.ts AS BIGINT) / 10 AND {_KEYS.format("M2")}"""
Q7 = f"""
SELECT count(*) AS n, window_end [RANGE 10 SECONDS, SLIDE 10 SECONDS, WA M1.ts] FROM M1, M2
WHERE M1.ts >= M2.ts - INTERVAL {{band}} SECONDS AND M1.ts <= M2.ts + INTERVAL {{band}} SECONDS
AND {_KEYS.format("M2")}"""
Q8 = f"""
SELECT M1.srcIP, M1.destIP, M1.ts FROM M1, M2 UNION C AS M3
WHERE M1.ts = M3.ts AND {_KEYS.format("M3")}"""

#: Figure 5: the longest delay of a few packets of one input, in minutes, and the band.
DELAYS, MINUTES, MINUTE = (1, 2, 3, 4, 5), 2, 60 * SECOND
_FIGURE_5 = (
    '"Overall, the OOP evaluation of the join query maintains 3 minutes fewer of S0 tuples, and'
    ' produces most join results earlier than the IOP evaluation." (§5.3)'
)
#: Figure 6: the band, in seconds below and above S0.ts, and its multiples.
BELOW, ABOVE, WIDER = 3, 2, (1, 2, 4, 8)
_FIGURE_6 = (
    '"As the figure shows, when both S0 and S1 progress to time 6, the join needs to buffer results'
    " produced by S0 tuples with ts values between 4 and 6. In general, the required buffering for"
    " ordering join output in IOP systems increases with the band size of the join predicate. […]"
    " In OOP systems, join results can be released on the fly, without any delay or buffering, and"
    ' processed immediately by a subsequent operator." (§5.3)'
)
_FIGURE_8 = (
    '"Joint punctuation is independent of band size, and therefore can be produced earlier than'
    " individual punctuation. This difference may be significant for joins where band size is large"
    ' relative to timestamp step, as may be the case in Q3." (§7)'
)
_FIGURE_10 = (
    '"The number of tuples that the IOP and OOP approaches need to maintain is the same. The'
    " difference is that in the IOP version, the tuples reside in input buffers of merge operators;"
    " in the OOP version, they are held in join hash tables. […] In the extreme case, the OOP join"
    ' uses about 20% more memory than the IOP case." (§8.1, experiment G3)'
)
_FIGURE_11 = (
    '"OOP significantly outperforms IOP on Q7, especially on memory and latency, as OOP can avoid'
    ' sorting the output of the band join before aggregating." (§8.2, experiment N1)'
)
_FIGURE_12 = (
    '"With the increase in the delay of the late tuples, the memory use for OOP increases more'
    " slowly than for IOP. The memory advantage of OOP comes from the Join operator in OOP purging"
    ' M2 tuples sooner than in IOP." (§8.2, experiment N2)'
)


def figures(rows: int | None = None) -> Iterator[Figure]:
    """``rows``: rows of each link, instead of RATE per second."""
    rate = RATE if rows is None else rows / SECONDS
    yield _held(rate)
    yield buffered(rate)
    yield _joint(rate)
    yield _tumbling(rate)
    yield from _bands(rate)
    yield _late(rate)


# -- data and runs ---------------------------------------------------------------------------------


def link(seed: int, rate: float, *, back: bool, step: int = 1) -> dict[str, Column]:
    """Packets of one direction of FLOWS flows, in time order, at multiples of ``step``
    microseconds."""
    flows = np.random.default_rng(11)
    ends = flows.integers(0, 4000, (2, FLOWS)).astype(np.int32)
    ports = flows.integers(1, 65536, (2, FLOWS)).astype(np.int32)
    rng = np.random.default_rng(seed)
    n = max(1, round(rate * SECONDS))
    flow = rng.integers(0, FLOWS, n)
    one, other = (1, 0) if back else (0, 1)
    return {
        "ts": np.sort(rng.integers(0, SECONDS * SECOND // step, n)) * step + T0,
        "srcIP": ends[one][flow],
        "destIP": ends[other][flow],
        "srcPort": ports[one][flow],
        "destPort": ports[other][flow],
    }


@dataclass(slots=True)
class Run:
    """Measurements of a run. ``waited``: per result, the event time in seconds by which the inputs
    were ahead of the result when it left. ``left``: per result, the clock when it left, and the
    clock when the inputs had reached its time, in seconds. ``held``: the most rows in the join."""

    state: int = 0
    seconds: float = 0.0
    answer: Answer = (0, "")
    waited: list[float] = field(default_factory=list)
    left: list[tuple[float, float]] = field(default_factory=list)
    held: int = 0
    join_bytes: int = 0
    merge_bytes: int = 0


def run(
    query: str,
    links: Mapping[str, Mapping[str, Column]],
    delays: Mapping[str, float],
    settings: Mapping[str, Any],
    ends: int | None = None,
    speed: int = 0,
    band: int = 0,
) -> Run:
    """``delays``: per link, in seconds. ``ends`` is the column of the result with the time for
    which the result is complete; the inputs reach this time ``band`` seconds later."""
    made = Run()
    with cql.connect(spark=False, **settings) as session:
        for name, columns in links.items():
            replayed(session, name, columns, delays.get(name, 0), speed)
        started, begun = time.process_time(), time.perf_counter()
        asked: Any = session.sql(query)
        batches = []
        last = T0 + (SECONDS - max(delays.values(), default=0) - band - 10) * SECOND
        for batch in asked:
            batches.append(batch)
            reached = asked.progress().event_time
            if ends is not None and reached is not None:
                told = integers(batch.column(ends))
                told = told[told < last]
                made.waited += ((reached - told) / SECOND).tolist()
                now = time.perf_counter() - begun
                made.left += [(now, (end - T0) / SECOND / max(speed, 1)) for end in told.tolist()]
        made.seconds = time.process_time() - started
        metrics = asked.metrics()
    made.state = sum(m.get("peak_bytes", 0) for m in metrics)
    made.held = sum(m.get(f"peak_{side}", 0) for m in metrics for side in ("left", "right"))
    made.join_bytes = sum(m["peak_bytes"] for m in metrics if m["operator"].startswith("join"))
    made.merge_bytes = sum(m["peak_bytes"] for m in metrics if m["operator"].startswith("merge"))
    if batches:
        width = range(batches[0].num_columns)
        made.answer = checksum(
            *(np.concatenate([integers(b.column(c)) for b in batches]) for c in width)
        )
    return made


# -- the figures -----------------------------------------------------------------------------------


def _held(rate: float) -> Figure:
    """Out of order, the band determines how long rows of the late input stay; in order, the longest
    delay does. Rows of the other input stay for both times."""
    seconds = 4 * SECONDS + 2 * 60 * max(DELAYS)
    rng = np.random.default_rng(5)
    n = max(100, round(rate * seconds / 200))
    names = "S0, out of order", "S0, sorted", "S1, out of order"
    series: dict[str, list[float]] = {name: [] for name in names}
    right = True
    for delay in DELAYS:
        on_time = np.sort(rng.integers(0, seconds * SECOND, n))
        come = on_time + np.where(rng.random(n) < 0.02, rng.integers(0, delay * MINUTE, n), 0)
        late = on_time[np.argsort(come, kind="stable")] + T0
        other = np.sort(rng.integers(0, seconds * SECOND, n)) + T0
        oop, oop_answer = _held_rows(late, other, delay, "oop_join")
        sync, sync_answer = _held_rows(late, other, delay, "sync_filter")
        right &= oop_answer == sync_answer
        of_minute = n / (seconds / 60)
        for name, rows in zip(names, (oop["left"], sync["sort"], oop["right"]), strict=True):
            series[name].append(rows / of_minute)
    fewer = series[names[1]][-1] - series[names[0]][-1]
    steady = max(series[names[0]]) - min(series[names[0]])
    checks = [
        Check("minutes of S0 that are not held, at 5 minutes", fewer, "2 to 4", 2 <= fewer <= 4),
        Check("minutes of S0, by how late rows may be", steady, "below 0.5", steady < 0.5),
    ]
    return Figure(
        "figure5",
        "Figure 5: rows that a band join of 2 minutes either way holds",
        (_FIGURE_5,),
        "the most that rows of S0 are late, in minutes", DELAYS, "minutes of rows", series,
        checks, right,
    )  # fmt: skip


def _held_rows(
    late: Column, other: Column, delay: int, operator: str
) -> tuple[dict[str, int], Answer]:
    """The most rows held, by place; the inputs arrive at the same pace."""
    import pyarrow as pa

    most = {"left": 0, "right": 0, "sort": 0}
    with cql.connect(spark=False, join_operator=operator) as session:
        for name, times, slack in (("S0", late, delay), ("S1", other, 0)):
            ts = pa.array(times).view(pa.timestamp("us", "UTC"))
            within = f"{slack} minutes" if slack else None
            session.create_stream(f"{name}_rows", pa.table({"ts": ts}), "ts", slack=within)
            clause = f" WITHIN {slack} MINUTES" if slack else ""
            session.sql(f"""
                CREATE STREAM {name} (ts timestamp) ORDERED BY ts{clause} USING replay OPTIONS
                (table '{name}_rows', time 'ts', step '1 second', skew '{slack} minutes')""")
        asked: Any = session.sql(f"""
            SELECT S0.ts, S1.ts AS other FROM S0, S1 WHERE S1.ts
            BETWEEN S0.ts - INTERVAL {MINUTES} MINUTES AND S0.ts + INTERVAL {MINUTES} MINUTES""")
        batches = []
        for batch in asked:
            batches.append(batch)
            held = [m["held"] for m in asked.metrics() if m["operator"].startswith("sort")]
            most["sort"] = max(most["sort"], sum(held))
        for m in asked.metrics():
            for side in ("left", "right"):
                most[side] = max(most[side], m.get(f"peak_{side}", 0))
    columns = [np.concatenate([integers(b.column(c)) for b in batches]) for c in (0, 1)]
    return most, checksum(*columns)


def buffered(rate: float) -> Figure:
    """Figure 6. Each stream has ``a_second`` rows in every second, which arrive together."""
    a_second = max(1, round(rate / 100))
    area = "the area of the figure"
    series: dict[str, list[float]] = {IN_ORDER: [], OUT_OF_ORDER: [], area: []}
    seconds: dict[str, list[float]] = {IN_ORDER: [], OUT_OF_ORDER: []}
    right = True
    for wider in WIDER:
        below, above = BELOW * wider, ABOVE * wider
        sorted_, answer = _results_held(a_second, below, above, " ORDER BY S0.ts")
        passed, same = _results_held(a_second, below, above, "")
        right &= answer == same
        series[IN_ORDER].append(sorted_.held)
        series[OUT_OF_ORDER].append(passed.held)
        # S0 tuples of the last ``above`` seconds wait, each with the S1 tuples from ``below``
        # seconds before it until now. Earlier S0 tuples can meet no further S1 tuple of the band.
        pairs = sum(below + 1 + behind for behind in range(above))
        series[area].append(pairs * a_second**2)
        for name, held in ((IN_ORDER, sorted_), (OUT_OF_ORDER, passed)):
            seconds[name].append(held.behind)
    exact = series[IN_ORDER] == series[area]
    goals = [ABOVE * wider for wider in WIDER]
    checks = [
        Check(f"seconds of S0 that wait at a band of -{BELOW}/+{ABOVE}", seconds[IN_ORDER][0],
              "the paper: 2, from 4 to 6", seconds[IN_ORDER] == goals),
        Check("results in order : the area", series[IN_ORDER][-1] / series[area][-1], "1", exact),
        Check("results that wait out of order", max(series[OUT_OF_ORDER]),
              "the paper: no buffering", not any(series[OUT_OF_ORDER])),
        Check("seconds that results wait out of order", max(seconds[OUT_OF_ORDER]),
              "the paper: no delay", not any(seconds[OUT_OF_ORDER])),
    ]  # fmt: skip
    return Figure(
        "figure6",
        f"Figure 6: results of a band join that wait for others before them, {a_second} rows a"
        " second in each input",
        (_FIGURE_6,),
        f"how many times a band of -{BELOW}/+{ABOVE} seconds", WIDER, "results that wait", series,
        checks, right,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Held:
    """The most results that wait, and the most seconds of event time between the later input time
    of a result and the time at which it leaves."""

    held: int
    behind: int


def _results_held(a_second: int, below: int, above: int, order: str) -> tuple[_Held, Answer]:
    """The results that wait between the join and its consumer."""
    import pyarrow as pa

    length = 4 * (below + above) + 20
    times = np.repeat(np.arange(length), a_second) * SECOND + T0
    held = behind = 0
    with cql.connect(spark=False, join_operator="oop_join", runtime="depth_first") as session:
        ts = pa.array(times).view(pa.timestamp("us", "UTC"))
        for name in ("S0", "S1"):
            session.create_stream(f"{name}_rows", pa.table({"ts": ts}), "ts")
            session.sql(f"""
                CREATE STREAM {name} (ts timestamp) ORDERED BY ts USING replay OPTIONS
                (table '{name}_rows', time 'ts', step '1 second')""")
        asked: Any = session.sql(f"""
            SELECT S0.ts, S1.ts AS other FROM S0, S1 WHERE S1.ts
            BETWEEN S0.ts - INTERVAL {below} SECONDS AND S0.ts + INTERVAL {above} SECONDS{order}""")
        batches = []
        for batch in asked:
            batches.append(batch)
            reached = asked.progress().event_time
            if reached is None or reached >= times[-1]:
                continue  # what the end of the inputs releases
            own = integers(batch.column(0))
            if not order:
                own = np.maximum(own, integers(batch.column(1)))
            behind = max(behind, int((reached - own.max()) // SECOND))
            waiting = [m["held"] for m in asked.metrics() if m["operator"].startswith("sort")]
            held = max(held, sum(waiting))
    columns = [np.concatenate([integers(b.column(c)) for b in batches]) for c in (0, 1)]
    return _Held(held, behind), checksum(*columns)


def _joint(rate: float) -> Figure:
    """Times are whole seconds, so that each group has several pairs."""
    links = {
        "M1": link(1, rate / 20, back=False, step=SECOND),
        "M2": link(2, rate / 20, back=True, step=SECOND),
    }
    series: dict[str, list[float]] = {JOINT: [], INDIVIDUAL: []}
    right = True
    for band in BANDS:
        runs = [
            run(Q3.format(band=band), links, {}, {"join_punctuation": how}, 1, SPEED)
            for how in series
        ]
        right &= runs[0].answer == runs[1].answer
        for values, one in zip(series.values(), runs, strict=True):
            values.append(float(np.mean(one.waited)) if one.waited else 0.0)
    grows = series[JOINT][-1] - series[JOINT][0]
    later = slope(BANDS, series[INDIVIDUAL])[0]
    checks = [
        Check("seconds that joint waits longer as the band grows", grows, "below 2", grows < 2),
        Check("seconds of individual by second of the band", later, "above 0.3", later > 0.3),
    ]
    return Figure(
        "figure8",
        "Figure 8, Q3: how long a group of both times waits",
        (_FIGURE_8,), "band in seconds", BANDS, "mean delay in s", series, checks, right,
    )  # fmt: skip


def _tumbling(rate: float) -> Figure:
    links = {
        name: link(seed, rate, back=name in "CD") for seed, name in enumerate("ABCD")
    }  # fmt: skip
    state, right, per_row = _compare(
        Q6, links, SKEWS, lambda skew: {"B": skew, "D": skew}, {"union_operator": "merge"}
    )
    more = state[OUT_OF_ORDER][-1] / state[IN_ORDER][-1]
    checks = [
        Check("out of order : in order at the largest skew", more, "at most 1.2", more <= 1.2),
        *(Check(f"bytes per held row, {k}", v, "told", True) for k, v in per_row.items()),
    ]
    return Figure(
        "figure10",
        f"Figure 10, Q6: a tumbling-window join of two unions, {rate:,.0f} packets/s a link",
        (_FIGURE_10,),
        "skew of B and D in seconds", SKEWS, "peak state in MB", state, checks, right,
    )  # fmt: skip


def _late(rate: float) -> Figure:
    # Equal times: a packet and its answer carry the same tenth of a second.
    step = SECOND // 10
    links = {
        "M1": link(1, rate, back=False, step=step),
        "M2": link(2, rate, back=True, step=step),
        "C": link(3, rate / 100, back=True, step=step),
    }
    state, right, _ = _compare(
        Q8, links, SKEWS, lambda delay: {"C": delay}, {"union_operator": "merge"}
    )
    out, in_ = (slope(SKEWS, state[name])[0] for name in (OUT_OF_ORDER, IN_ORDER))
    share = out / in_
    check = Check("growth by second of delay, out of order : in order", share, "below 1", share < 1)
    return Figure(
        "figure12",
        f"Figure 12, Q8: equal times, one input with late packets; {rate:,.0f} packets/s a link",
        (_FIGURE_12,),
        "delay of the late packets in seconds", SKEWS, "peak state in MB", state, [check], right,
    )  # fmt: skip


def _compare(
    query: str,
    links: Mapping[str, Mapping[str, Column]],
    xs: Sequence[int],
    delays: Any,
    in_order: Mapping[str, Any],
) -> tuple[dict[str, list[float]], bool, dict[str, float]]:
    """Peak state by plan, whether the answers agree, and bytes per row held at the end."""
    state: dict[str, list[float]] = {OUT_OF_ORDER: [], IN_ORDER: []}
    right, per_row = True, {}
    for x in xs:
        runs = {
            OUT_OF_ORDER: run(query, links, delays(x), {"union_operator": "pass_through"}),
            IN_ORDER: run(query, links, delays(x), in_order),
        }
        right &= runs[OUT_OF_ORDER].answer == runs[IN_ORDER].answer
        for name, made in runs.items():
            state[name].append(made.state / 1e6)
        out, merged = runs.values()
        per_row = {"join": out.join_bytes / max(1, out.held)}
        waiting = sum(x * len(links[n]["ts"]) / SECONDS for n in links if n not in delays(x))
        per_row["merge"] = merged.merge_bytes / max(1.0, waiting)
    return state, right, per_row


def _bands(rate: float) -> Iterator[Figure]:
    links = {"M1": link(1, rate, back=False), "M2": link(2, rate, back=True)}
    plans = {OUT_OF_ORDER: {}, IN_ORDER: {"order_enforcement": "sort"}}
    shown = {
        "memory": "peak state in MB",
        "latency": "ms after what lets a window leave",
        "time": "CPU s",
    }
    series: dict[str, dict[str, list[float]]] = {
        what: {name: [] for name in plans} for what in shown
    }
    right = True
    for settings in plans.values():
        run(Q7.format(band=BANDS[0]), links, {}, settings)  # compiles
    for band in BANDS:
        query = Q7.format(band=band)
        made = {name: run(query, links, {}, settings) for name, settings in plans.items()}
        paced = {name: run(query, links, {}, plans[name], 1, SLOWLY, band) for name in plans}
        right &= len({one.answer for one in (*made.values(), *paced.values())}) == 1
        # The row that lets a window leave comes ``band`` later; the least lag is that of the start.
        lags = {
            name: [now - came - band / SLOWLY for now, came in one.left]
            for name, one in paced.items()
        }
        least = min((lag for each in lags.values() for lag in each), default=0.0)
        for name in plans:
            series["memory"][name].append(made[name].state / 1e6)
            lag = float(np.mean(lags[name])) - least if lags[name] else 0.0
            series["latency"][name].append(1e3 * lag)
            series["time"][name].append(made[name].seconds)
    for what, label in shown.items():
        out, in_ = (sum(series[what][name]) for name in (OUT_OF_ORDER, IN_ORDER))
        share = out / in_ if in_ else 1.0
        check = Check("out of order : in order, all bands", share, "at most 1", share <= 1)
        yield Figure(
            f"figure11-{what}",
            f"Figure 11, Q7: a band join and a count of 10 s; {rate:,.0f} packets/s a link",
            (_FIGURE_11,), "band in seconds", BANDS, label, series[what], [check], right,
        )  # fmt: skip
