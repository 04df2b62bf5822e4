"""The expected answers of the queries in ``queries/cql``, computed without the engine.

The standard library reads the rows. DuckDB aggregates windows, over pairs of a row and a window
that holds the row. Plain Python computes relations from scratch at each instant.
``python -m tests.support.stream_queries`` writes the golden files.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa

from tests.support.paths import QUERIES

FOLDER = QUERIES / "cql"

Rows = list[tuple[Any, ...]]
#: The names of the columns and the rows.
Table = tuple[str, Rows]


def minutes(n: float) -> dt.timedelta:
    return dt.timedelta(minutes=n)


def seconds(n: float) -> dt.timedelta:
    return dt.timedelta(seconds=n)


# ------------------------------------------------------------------------------------ the streams

CENT = Decimal("0.01")


def money(text: str) -> Decimal:
    return Decimal(text).quantize(CENT)


#: By column that is no number: the function that parses its text.
READ: dict[str, Callable[[str], Any]] = {
    "ts": dt.datetime.fromisoformat,
    "started": dt.datetime.fromisoformat,
    "ended": dt.datetime.fromisoformat,
    "price": money,
    "reserve": money,
} | dict.fromkeys(
    ("src", "dst", "proto", "flag", "bidder", "seller", "buyer", "burrow", "ring"), str
)
#: By stream: its event time and its slack.
WITHIN: dict[str, tuple[str, Any]] = {
    "backbone": ("ts", seconds(4)),
    "customer": ("ts", seconds(20)),
    "flows": ("ended", seconds(8)),
    "bids": ("ts", seconds(30)),
    "opened": ("ts", seconds(0)),
    "closed": ("ts", seconds(0)),
    "readings": ("ts", minutes(1)),
    "visits": ("ts", minutes(1)),
    "positions": ("t", 10),
}


@cache
def arrivals(name: str) -> list[SimpleNamespace]:
    """The rows of a stream in arrival order, without damaged lines. Each row has its number
    ``seq``, its event time ``time`` and its row watermark ``mark`` (None for the first row)."""
    column, within = WITHIN[name]
    found: list[SimpleNamespace] = []
    highest = None
    for values in _records(name):
        time = values[column]
        mark = None if highest is None else highest - within
        found.append(SimpleNamespace(seq=len(found), time=time, mark=mark, **values))
        highest = time if highest is None else max(highest, time)
    return found


def _records(name: str) -> Iterator[dict[str, Any]]:
    if name == "readings":
        for line in (FOLDER / "data" / "readings.json").read_text("utf-8").splitlines():
            reading = json.loads(line)
            yield reading | {"ts": dt.datetime.fromisoformat(reading["ts"])}
        return
    with (FOLDER / "data" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for record in csv.DictReader(file):
            try:
                values = {k: None if v == "" else READ.get(k, int)(v) for k, v in record.items()}
            except (ValueError, TypeError):
                continue
            if values[WITHIN[name][0]] is not None:
                yield values


def punctual(name: str) -> list[SimpleNamespace]:
    """The rows that relations and orders read: the rows that are not late, by time and then by
    arrival."""
    rows = [r for r in arrivals(name) if r.mark is None or r.time >= r.mark]
    return sorted(rows, key=lambda r: r.time)


# ------------------------------------------------------------------------------------ windows

#: Pairs of a row and a window that holds the row and ends after its row watermark. Times are in
#: microseconds (in seconds for the cars' reports).
WINDOWED = """(
    SELECT *, w AS window_start, w + {width} AS window_end
    FROM (SELECT *, unnest(generate_series(time // {slide} * {slide} - {width},
                                           time // {slide} * {slide}, {slide})) AS w FROM {name})
    WHERE w <= time AND time < w + {width} AND (mark IS NULL OR w + {width} > mark)
)"""
MINUTE = 60_000_000


def over(name: str, width: int, slide: int) -> str:
    return WINDOWED.format(name=name, width=width, slide=slide)


def duck(sql: str, *streams: str) -> Table:
    """The answer of DuckDB over the streams in arrival order."""
    connection = duckdb.connect()
    for name in streams:
        rows = [vars(row) for row in arrivals(name)]
        table = pa.table({k: _column(k, [row[k] for row in rows]) for k in rows[0]})
        connection.register(name, table)
    answer = connection.sql(sql)
    return ",".join(answer.columns), answer.fetchall()


def _column(name: str, values: list[Any]) -> Any:
    if name in ("time", "mark"):
        moment = any(isinstance(v, dt.datetime) for v in values)
        kind = pa.timestamp("us") if moment else pa.int64()
        return pa.array(values, kind).cast(pa.int64())
    if name in ("price", "reserve"):
        return pa.array(values, pa.decimal128(8, 2))
    return pa.array(values)


def net_link_load() -> Table:
    both = "(SELECT * FROM backbone UNION ALL SELECT * FROM customer)"
    return duck(
        "SELECT count(*) AS packets, sum(bytes) AS bytes, make_timestamp(window_start) AS"
        f" window_start FROM {over(both, MINUTE, MINUTE)} GROUP BY window_start",
        "backbone",
        "customer",
    )


def net_top_sources() -> Table:
    return duck(
        "SELECT src, sum(bytes) AS bytes, make_timestamp(window_end) AS window_end"
        f" FROM {over('backbone', MINUTE, MINUTE // 3)} GROUP BY src, window_end"
        " QUALIFY row_number() OVER (PARTITION BY window_end ORDER BY sum(bytes) DESC, src) <= 3",
        "backbone",
    )


def net_heavy_ports() -> Table:
    return duck(
        "SELECT proto, port, count(*) AS packets, sum(bytes) AS bytes,"
        " make_timestamp(window_end) AS window_end"
        f" FROM {over('backbone', MINUTE // 2, MINUTE // 2)} GROUP BY proto, port, window_end"
        " HAVING sum(bytes) > 2000",
        "backbone",
    )


def net_scans() -> Table:
    return duck(
        "SELECT src, count(DISTINCT dst) AS hosts, make_timestamp(window_start) AS window_start,"
        " make_timestamp(window_end) AS window_end"
        f" FROM {over('backbone', MINUTE // 2, MINUTE // 6)} WHERE flag = 'syn'"
        " GROUP BY src, window_start, window_end HAVING hosts > 6",
        "backbone",
    )


def net_syn_share() -> Table:
    """A packet counts in the windows that end after its row watermark and after the latest time of
    the earlier tcp packets less two seconds (the slack, which only sees tcp packets)."""
    kept = (
        "(SELECT * REPLACE (greatest(mark, max(time) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED"
        " PRECEDING AND 1 PRECEDING) - 2000000) AS mark) FROM customer WHERE proto = 'tcp')"
    )
    return duck(
        "SELECT count(*) AS packets, count(*) FILTER (WHERE flag = 'syn') AS syn,"
        f" make_timestamp(window_end) AS window_end FROM {over(kept, MINUTE, MINUTE // 2)}"
        " GROUP BY window_end",
        "customer",
    )


def net_flow_ages() -> Table:
    return duck(
        "SELECT src, count(*) AS flows, max(epoch_us(ended) // 1000000 - epoch_us(started) //"
        " 1000000) AS longest, sum(bytes) AS bytes, make_timestamp(window_end) AS window_end"
        f" FROM {over('flows', MINUTE, MINUTE)} GROUP BY src, window_end",
        "flows",
    )


def auction_hot_item() -> Table:
    """Of the items with the highest count, the item whose first bid in the window arrived first."""
    counts = (
        "(SELECT item, count(*) AS n, min(seq) AS came, window_end AS ending"
        f" FROM {over('bids', 10 * MINUTE, MINUTE)} GROUP BY item, window_end)"
    )
    # The count of a window that ends at e has the time e - 1, which lies in the minute before e.
    return duck(
        "SELECT first(item ORDER BY n DESC, came) AS item, max(n) AS bids,"
        f" make_timestamp(ending) AS window_end FROM {counts} GROUP BY ending",
        "bids",
    )


def auction_unsold() -> Table:
    return duck("SELECT ts, item FROM closed WHERE buyer IS NULL OR price IS NULL", "closed")


def habitat_warmth() -> Table:
    return duck(
        "SELECT site, avg(temp) AS mean_temp, min(temp) AS coldest, count(*) - count(temp) AS"
        " failed, max(humidity) AS humidity, make_timestamp(window_end) AS window_end"
        f" FROM {over('readings', 20 * MINUTE, 5 * MINUTE)} GROUP BY site, window_end",
        "readings",
    )


def road_segment_statistics() -> Table:
    speeds = (
        "(SELECT car, xway, dir, seg, avg(speed) AS speed, window_end - 1 AS time, NULL AS mark"
        f" FROM {over('positions', 60, 60)} GROUP BY car, xway, dir, seg, window_end)"
    )
    return duck(
        f"SELECT xway, dir, seg, avg(speed) AS lav, window_end FROM {over(speeds, 300, 60)}"
        " GROUP BY xway, dir, seg, window_end",
        "positions",
    )


def road_volume() -> Table:
    return duck(
        "SELECT xway, dir, seg, count(DISTINCT car) AS cars, window_end"
        f" FROM {over('positions', 60, 60)} GROUP BY xway, dir, seg, window_end",
        "positions",
    )


def road_tolls() -> Table:
    return duck(
        "SELECT xway, dir, seg, 2 * (cars - 3) * (cars - 3) AS toll, cars, window_end FROM"
        " (SELECT xway, dir, seg, count(DISTINCT car) AS cars, avg(speed) AS speed, window_end"
        f" FROM {over('positions', 120, 60)} GROUP BY xway, dir, seg, window_end)"
        " WHERE speed < 40 AND cars > 3",
        "positions",
    )


def road_fastest() -> Table:
    return duck(
        "SELECT dir, first(car ORDER BY speed DESC, time, seq) AS car, max(speed) AS speed,"
        f" window_end FROM {over('positions', 60, 60)} WHERE speed IS NOT NULL"
        " GROUP BY dir, window_end",
        "positions",
    )


# ------------------------------------------------------------------------------------ sessions


def sessions(name: str, key: Callable[[SimpleNamespace], Hashable], gap: Any) -> Iterator[Rows]:
    """The sessions of each key, as lists of rows by time.

    A row is left out if ``time + gap`` does not exceed its ``mark``. Two rows are in one session if
    their times differ by at most the gap and ``time + gap`` of each exceeds the ``mark`` of the
    other."""
    groups: dict[Hashable, list[SimpleNamespace]] = defaultdict(list)
    for row in arrivals(name):
        if row.mark is None or row.time + gap > row.mark:
            groups[key(row)].append(row)
    for rows in groups.values():
        left = rows
        while left:
            session, rest = [left[0]], left[1:]
            grew = True
            while grew:
                joined = [r for r in rest if any(_meet(r, s, gap) for s in session)]
                rest = [r for r in rest if r not in joined]
                session += joined
                grew = bool(joined)
            yield sorted(session, key=lambda r: (r.time, r.seq))
            left = rest


def _meet(a: SimpleNamespace, b: SimpleNamespace, gap: Any) -> bool:
    near = abs(a.time - b.time) <= gap
    return near and all(p.mark is None or q.time + gap > p.mark for p, q in ((a, b), (b, a)))


def net_bursts() -> Table:
    found = [
        (s[0].src, s[0].dst, len(s), sum(r.bytes for r in s), s[0].ts, s[-1].ts + seconds(15))
        for s in sessions("customer", lambda r: (r.src, r.dst), seconds(15))
    ]
    return "src,dst,packets,bytes,window_start,window_end", found


def habitat_visits() -> Table:
    found = []
    for s in sessions("visits", lambda r: r.burrow, minutes(5)):
        rings = [r.ring for r in s]
        read = sum(ring is not None for ring in rings)
        ends = (s[0].ts, s[-1].ts + minutes(5))
        found.append((s[0].burrow, len(s), read, rings[0], rings[-1], *ends))
    return "burrow,seen,read,first_ring,last_ring,window_start,window_end", found


# ------------------------------------------------------------------------------------ relations

TICK = dt.timedelta(microseconds=1)
Holds = Callable[[Any], Iterable[tuple[Any, ...]]]


def instants(*streams: list[SimpleNamespace], lasting: Any = None, tick: Any = TICK) -> list[Any]:
    """The instants at which rows enter and, if ``lasting`` is given, at which they have left: one
    ``tick`` after time + lasting."""
    times = {r.time for rows in streams for r in rows}
    if lasting is not None:
        times |= {time + lasting + tick for time in times}
    return sorted(times)


def differences(moments: Sequence[Any], holds: Holds) -> Iterator[tuple[Any, int, tuple[Any, ...]]]:
    """(instant, weight, row): the difference between the bags of each instant and the instant
    before."""
    before: Counter[tuple[Any, ...]] = Counter()
    for now in moments:
        bag = Counter(holds(now))
        for row in before.keys() | bag.keys():
            if bag[row] != before[row]:
                yield now, bag[row] - before[row], row
        before = bag


def changes(columns: str, moments: Sequence[Any], holds: Holds) -> Table:
    found = [(now, weight, *row) for now, weight, row in differences(moments, holds)]
    return f"_time,_weight,{columns}", found


def last(rows: Iterable[SimpleNamespace], now: Any) -> list[SimpleNamespace]:
    return [r for r in rows if r.time <= now]


def within(rows: Iterable[SimpleNamespace], now: Any, length: Any) -> list[SimpleNamespace]:
    return [r for r in rows if now - length <= r.time <= now]


def by(rows: Iterable[SimpleNamespace], *names: str) -> dict[Any, list[SimpleNamespace]]:
    groups: dict[Any, list[SimpleNamespace]] = defaultdict(list)
    for row in rows:
        groups[tuple(getattr(row, n) for n in names)].append(row)
    return groups


def mean(values: Iterable[Any]) -> Any:
    known = [v for v in values if v is not None]
    if not known:
        return None
    found = sum(known) / len(known)
    # The mean of decimals has six decimal places, as in Spark.
    return found.quantize(Decimal("1e-6"), ROUND_HALF_UP) if isinstance(found, Decimal) else found


def net_new_pairs() -> Table:
    rows = punctual("customer")
    moments = instants(rows, lasting=seconds(30))
    found = differences(moments, lambda t: {(r.src, r.dst) for r in within(rows, t, seconds(30))})
    return "src,dst", [row for _, weight, row in found if weight > 0]


def net_syn_now() -> Table:
    rows = punctual("customer")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        found = [r.bytes for r in within(rows, now, seconds(20)) if r.flag == "syn"]
        return [(len(found), sum(found) if found else None)]

    return changes("syn,bytes", instants(rows, lasting=seconds(20)), holds)


def net_both_links() -> Table:
    a, b = punctual("backbone"), punctual("customer")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        here, there = ({(r.src,) for r in within(x, now, seconds(15))} for x in (a, b))
        return here & there

    return changes("src", instants(a, b, lasting=seconds(15)), holds)


def net_vanished() -> Table:
    a = [r for r in punctual("backbone") if r.proto != "icmp"]
    b = punctual("customer")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        here, there = ({(r.src,) for r in within(x, now, minutes(1))} for x in (a, b))
        return here - there

    found = differences(instants(a, b, lasting=minutes(1)), holds)
    return "src", [row for _, weight, row in found if weight < 0]


def auction_euros() -> Table:
    found = [
        (r.item, r.bidder, (r.price * Decimal("0.92")).quantize(CENT, ROUND_HALF_UP))
        for r in punctual("bids")
        if r.price > 3
    ]
    return "item,bidder,euros", found


def auction_leaders() -> Table:
    rows = punctual("bids")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        for (item,), bids in by(last(rows, now), "item").items():
            highest, lowest = max(r.price for r in bids), min(r.price for r in bids)
            leader = next(r.bidder for r in bids if r.price == highest)
            yield item, leader, highest, next(r.bidder for r in bids if r.price == lowest)

    return changes("item,leader,highest,first_bidder", instants(rows), holds)


def auction_buyer_prices() -> Table:
    rows = punctual("closed")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        for (buyer,), sales in by(last(rows, now), "buyer").items():
            if buyer is not None:
                yield buyer, mean(r.price for r in sales[-3:]), len(sales[-3:])

    return changes("buyer,mean_price,auctions", instants(rows), holds)


def auction_open_count() -> Table:
    began, ended = punctual("opened"), punctual("closed")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        open_ = {r.item for r in last(began, now)} - {r.item for r in last(ended, now)}
        return [(len(open_),)]

    return changes("open_auctions", instants(began, ended), holds)


def auction_recent_bids() -> Table:
    rows = punctual("bids")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        prices = [r.price for r in last(rows, now)[-5:]]
        return [(len(prices), min(prices), max(prices), mean(prices))]

    return changes("bids,lowest,highest,mean_price", instants(rows), holds)


def auction_high_bids() -> Table:
    rows = punctual("bids")
    found = []
    for bid in rows:
        prices = [r.price for r in within(rows, bid.time, minutes(5))]
        if bid.price > mean(prices):
            found.append((bid.item, bid.bidder, bid.price))
    return "item,bidder,price", found


def auction_every_five() -> Table:
    """Windows [5k, 5k + 10) over the numbers of the bids in arrival order, late bids included."""
    rows = arrivals("bids")
    found = []
    for start in range(-5, len(rows), 5):
        bids = [r for r in rows if start <= r.seq < start + 10]
        named = sum(r.bidder is not None for r in bids)
        found.append((len(bids), named, max(r.price for r in bids)))
    return "bids,named,highest", found


def auction_totals() -> Table:
    rows = punctual("bids")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        for (item,), bids in by(last(rows, now), "item").items():
            if len(bids) > 2:
                named = sum(r.bidder is not None for r in bids)
                yield item, len(bids), named, max(r.price for r in bids)

    return changes("item,bids,named,highest", instants(rows), holds)


def habitat_smooth() -> Table:
    rows = punctual("readings")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        for (mote,), found in by(last(rows, now), "mote").items():
            temps = [r.temp for r in found[-3:]]
            yield mote, mean(temps), sum(t is not None for t in temps)

    return changes("mote,mean_temp,readings", instants(rows), holds)


def habitat_silent() -> Table:
    rows = punctual("readings")
    moments = instants(rows, lasting=minutes(5))
    found = differences(moments, lambda t: {(r.mote,) for r in within(rows, t, minutes(5))})
    return "mote", [row for _, weight, row in found if weight < 0]


def habitat_map() -> Table:
    rows = [r for r in punctual("readings") if r.site == "shore"]
    found = []
    for now in instants(rows):
        latest = [mote[-1] for mote in by(last(rows, now), "mote").values()]
        found += [(r.mote, r.temp, r.humidity) for r in latest]
    return "mote,temp,humidity", found


def habitat_in_order() -> Table:
    rows = sorted(punctual("visits"), key=lambda r: (r.ts, r.burrow, r.ring or ""))
    return "ts,burrow,ring", [(r.ts, r.burrow, r.ring) for r in rows]


def habitat_warm_sites() -> Table:
    rows = punctual("readings")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        for (site,), found in by(within(rows, now, minutes(10)), "site").items():
            warmth = mean(r.temp for r in found)
            if warmth is not None and warmth > 11:
                yield site, warmth

    return changes("site,mean_temp", instants(rows, lasting=minutes(10)), holds)


def _standing(rows: list[SimpleNamespace], now: Any, *same: str) -> list[SimpleNamespace]:
    """The latest report of each car whose last four reports agree in the columns ``same``."""
    cars = [reports[-4:] for reports in by(last(rows, now), "car").values()]
    return [c[-1] for c in cars if len(c) == 4 and len(by(c, *same)) == 1]


def road_stopped_cars() -> Table:
    rows = punctual("positions")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        return [(r.car, r.pos, r.t) for r in _standing(rows, now, "pos")]

    return changes("car,pos,since", instants(rows), holds)


def road_accidents() -> Table:
    rows = punctual("positions")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        places = by(
            _standing(rows, now, "xway", "dir", "lane", "pos"), "xway", "dir", "lane", "pos"
        )
        return [(*place, len(cars)) for place, cars in places.items() if len(cars) >= 2]

    found = differences(instants(rows), holds)
    return "found,xway,dir,lane,pos,cars", [(now, *row) for now, weight, row in found if weight > 0]


def road_entries() -> Table:
    rows = punctual("positions")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        latest = [reports[-1] for reports in by(last(rows, now), "car").values()]
        return [(r.car, r.seg) for r in latest if r.dir == 1]

    found = differences(instants(rows), holds)
    return "car,seg", [row for _, weight, row in found if weight > 0]


def road_current_segments() -> Table:
    rows = punctual("positions")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        latest = [reports[-1] for reports in by(last(rows, now), "car").values()]
        for (way, seg), cars in by(latest, "dir", "seg").items():
            if len(cars) > 3:
                newest = max(cars, key=lambda r: (r.time, r.seq))
                yield way, seg, len(cars), mean(r.speed for r in cars), newest.car

    return changes("dir,seg,cars,mean_speed,latest", instants(rows), holds)


def road_busiest() -> Table:
    rows = punctual("positions")

    def holds(now: Any) -> Iterable[tuple[Any, ...]]:
        groups = by(within(rows, now, 30), "dir", "seg")
        counts = [(*place, len(reports)) for place, reports in groups.items()]
        return sorted(counts, key=lambda c: (-c[2], c[0], c[1]))[:2]

    return changes("dir,seg,reports", instants(rows, lasting=30, tick=1), holds)


# ------------------------------------------------------------------------------------ golden files

ANSWERS: dict[str, Callable[[], Table]] = {
    name: made
    for name, made in list(globals().items())
    if name.startswith(("net_", "auction_", "habitat_", "road_"))
}


def golden(name: str) -> str:
    """The text of a golden file of ``queries/cql``."""
    # ``habitat_in_order`` defines the order of its rows.
    return golden_text(*ANSWERS[name](), in_order=name == "habitat_in_order")


def golden_text(columns: str, rows: Rows, *, in_order: bool = False) -> str:
    """A header and the rows, which are sorted for reading unless ``in_order``; NULL is an empty
    field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns.split(","))
    texts = [[_text(v) for v in row] for row in rows]
    in_time = [c for c in ("_time", "window_end", "window_start") if c in columns.split(",")]
    at = [columns.split(",").index(c) for c in in_time]
    if not in_order:
        texts.sort(key=lambda row: ([_key(row[i]) for i in at], [_key(v) for v in row]))
    writer.writerows(texts)
    return out.getvalue()


def table_of(text: str) -> tuple[list[str], Rows]:
    """The header and the rows of a golden file, or of CSV output; numbers as floats."""
    head, *rows = csv.reader(io.StringIO(text))
    return head, [tuple(map(_value, row)) for row in rows]


def _value(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dt.datetime) and value.microsecond:
        return str(value).rstrip("0")
    return str(value)


def _key(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return float("inf"), text


if __name__ == "__main__":
    for stem in ANSWERS:
        (FOLDER / "golden" / f"{stem}.csv").write_text(golden(stem), encoding="utf-8")
