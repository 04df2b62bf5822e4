"""Writes the files in ``data/``: small, the same each time, and disordered as their story has it.

Rows are listed by arrival. Most are behind by what WITHIN of their stream allows, late rows
by more.
``python queries/cql/make_data.py`` writes them again; a test compares.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent / "data"
MORNING = dt.datetime(2024, 3, 1, 9, 0)

Row = tuple[Any, ...]


def clock(seconds: float) -> str:
    """A time of that morning, whole seconds without a fraction."""
    moment = MORNING + dt.timedelta(milliseconds=round(seconds * 1000))
    return str(moment)[:-3] if moment.microsecond else str(moment)


def by_arrival(
    rows: Iterable[tuple[float, Row]], rng: random.Random, delay: float, late: float, share: float
) -> list[Row]:
    """Rows as they arrive: each up to ``delay`` seconds behind its time, and a ``share`` of them
    another ``late`` seconds behind that."""
    arriving = []
    for time, row in rows:
        behind = rng.random() * delay + (late if rng.random() < share else 0)
        arriving.append((time + behind, row))
    return [row for _, row in sorted(arriving, key=lambda pair: pair[0])]


# ------------------------------------------------------------------------- network monitoring


def packets(seed: str, hosts: int, start: float, late: float) -> list[Row]:
    """Five minutes of a link: ts, src, dst, port (NULL for icmp), proto, flag, bytes. In the third
    minute 10.0.0.66 tries the hosts one after the other."""
    rng = random.Random(seed)
    rows: list[tuple[float, Row]] = []
    time = start
    while time < 300:
        src, dst = rng.randrange(hosts) + 1, rng.randrange(3) + 1
        proto = rng.choice(["tcp", "tcp", "tcp", "udp", "icmp"])
        port = None if proto == "icmp" else rng.choice([22, 53, 80, 443])
        flag = rng.choice(["syn", "ack", "ack", "fin"]) if proto == "tcp" else None
        size = rng.randrange(1, 60) * 25
        rows.append(
            (time, (clock(time), f"10.0.0.{src}", f"10.0.1.{dst}", port, proto, flag, size))
        )
        time += rng.randrange(1, 17) / 4
    if hosts > 5:
        for i in range(14):
            at = 125 + 2.5 * i
            rows.append((at, (clock(at), "10.0.0.66", f"10.0.1.{i + 1}", 22, "tcp", "syn", 40)))
    return by_arrival(rows, rng, delay=4, late=late, share=0.05)


def flows() -> list[str]:
    """Flow records of a router, as lines: started, ended, src, dst, bytes. Some are damaged."""
    rng = random.Random("flows")
    rows: list[tuple[float, Row]] = []
    end = 5.0
    while end < 420:
        begin = end - rng.choice([0.5, 2, 8, 30, 75])
        src, dst = f"10.0.0.{rng.randrange(4) + 1}", f"10.0.1.{rng.randrange(3) + 1}"
        rows.append((end, (clock(begin), clock(end), src, dst, rng.randrange(1, 90) * 100)))
        end += rng.randrange(1, 12)
    lines = [csv_line(row) for row in by_arrival(rows, rng, delay=8, late=60, share=0.05)]
    lines[11] = lines[11].rsplit(",", 1)[0] + ",12x0"  # not a number
    lines[23] = "," + lines[23].split(",", 1)[1]  # no start
    begin, _, rest = lines[37].split(",", 2)
    lines[37] = f"{begin},,{rest}"  # no end: no event time
    lines[52] = "router restarted"
    return lines


# ------------------------------------------------------------------------------------- auctions

ITEMS = {101: "ann", 102: "bob", 103: "ann", 104: "cid", 105: "bob", 106: "ann", 107: "cid"}


def auctions() -> dict[str, list[Row]]:
    """Half an hour of auctions: opened (ts, item, seller, reserve), bids (ts, item, bidder, price),
    closed (ts, item, buyer, price). What nobody bid for closes without a buyer and a price."""
    rng = random.Random("auctions")
    opened: list[tuple[float, Row]] = []
    bids: list[tuple[float, Row]] = []
    closed: list[tuple[float, Row]] = []
    for n, (item, seller) in enumerate(ITEMS.items()):
        begin = 60.0 * rng.randrange(8) + 10 * n
        end = begin + rng.choice([240, 480, 900, 1200])
        reserve = rng.choice([None, 5.0, 12.5])
        opened.append((begin, (clock(begin), item, seller, reserve)))
        price, buyer, time = 2.5, None, begin
        while item != 104 and (time := time + rng.randrange(5, 160)) < end:
            price += rng.randrange(1, 9) / 2
            buyer = rng.choice(["dan", "eve", "fay", "gil"])
            bidder = buyer if rng.random() > 0.06 else None  # without a name
            bids.append((time, (clock(time), item, bidder, price)))
        sold = None if buyer is None else price
        closed.append((end, (clock(end), item, buyer, sold)))
    return {
        "opened": by_arrival(opened, rng, delay=0, late=0, share=0),
        "bids": by_arrival(bids, rng, delay=25, late=300, share=0.06),
        "closed": by_arrival(closed, rng, delay=0, late=0, share=0),
    }


# --------------------------------------------------------------------------- habitat monitoring


def readings() -> list[dict[str, Any]]:
    """An hour of six motes in the burrows of an island, one reading in about two minutes: ts, mote,
    site, temp (NULL where the sensor failed), humidity. Mote 4 falls silent after twenty minutes,
    and a batch of mote 2 is sent when its radio is back, too late."""
    rng = random.Random("readings")
    rows: list[tuple[float, Row]] = []
    for mote in range(1, 7):
        site = ("north", "north", "ridge", "ridge", "shore", "shore")[mote - 1]
        time = 11.0 * mote
        while time < (1200 if mote == 4 else 3600):
            warmth = 9 + mote / 2 + 3 * (time > 1500 and mote == 6) + rng.randrange(-6, 7) / 4
            temp = None if rng.random() < 0.08 else warmth
            rows.append((time, (clock(time), mote, site, temp, rng.randrange(60, 96))))
            time += rng.randrange(90, 151)
    arrived = by_arrival(rows, rng, delay=60, late=0, share=0)
    batch = [r for r in arrived if r[1] == 2 and clock(1500) <= r[0] < clock(2000)]
    rest = [r for r in arrived if r not in batch]
    at = next(i for i, r in enumerate(rest) if r[0] > clock(2400))
    names = ("ts", "mote", "site", "temp", "humidity")
    return [dict(zip(names, r, strict=True)) for r in [*rest[:at], *batch, *rest[at:]]]


def visits() -> list[Row]:
    """Birds at burrows, by their rings: ts, burrow, ring (NULL where it could not be read)."""
    rng = random.Random("visits")
    rows: list[tuple[float, Row]] = []
    for burrow in ("b1", "b2", "b3"):
        time = float(rng.randrange(100))
        while time < 3600:
            for _ in range(rng.randrange(1, 6)):
                ring = rng.choice(["K7", "K9", "M2", None])
                rows.append((time, (clock(time), burrow, ring)))
                time += rng.choice([15, 40, 120, 300])  # 300: a gap exactly
            time += rng.randrange(301, 900)
    return by_arrival(rows, rng, delay=50, late=700, share=0.05)


# ----------------------------------------------------------------------------------- Linear Road


def positions() -> list[Row]:
    """Ten minutes of an expressway: each thirty seconds every car reports t, car, speed (NULL at
    times), xway, lane, dir, seg, pos. Cars 7 and 11 crash and stand for three minutes, car 15
    breaks down alone."""
    rng = random.Random("positions")
    rows: list[tuple[float, Row]] = []
    for car in range(1, 25):
        direction, lane = car % 2, rng.randrange(1, 4)
        pos = rng.randrange(3) * 5280 + rng.randrange(5280)
        time = rng.randrange(30)
        stands = {7: (180, 360), 11: (180, 360), 15: (300, 450)}.get(car, (0, 0))
        if car in (7, 11):
            direction, lane, pos, time = 1, 2, 6000 + (car == 11) * 300, 5 + car
        while time < 600:
            standing = stands[0] <= time < stands[1]
            speed = 0 if standing else rng.randrange(18, 45 if 6 < car < 18 else 65)
            if standing and car in (7, 11):
                pos = 13300
            shown = None if rng.random() < 0.04 else speed
            rows.append((time, (time, car, shown, 0, lane, direction, pos // 5280, pos)))
            if not standing:
                pos += speed * 44  # thirty seconds, in feet
            time += 30
    return by_arrival(rows, rng, delay=9, late=45, share=0.03)


# ----------------------------------------------------------------------------------------- files


def csv_line(row: Row) -> str:
    return ",".join("" if v is None else str(v) for v in row)


def as_csv(header: str, rows: Iterable[Row]) -> Callable[[], Iterator[str]]:
    return lambda: iter([header.replace(" ", ","), *map(csv_line, rows)])


def files() -> dict[str, str]:
    """The text of each file by its name."""
    link = "ts src dst port proto flag bytes"
    sale = auctions()
    lines: dict[str, Iterable[str]] = {
        "backbone.csv": as_csv(link, packets("backbone", 9, 0.0, 30))(),
        "customer.csv": as_csv(link, packets("customer", 5, 1.5, 60))(),
        "flows.csv": ["started,ended,src,dst,bytes", *flows()],
        "opened.csv": as_csv("ts item seller reserve", sale["opened"])(),
        "bids.csv": as_csv("ts item bidder price", sale["bids"])(),
        "closed.csv": as_csv("ts item buyer price", sale["closed"])(),
        "readings.json": map(json.dumps, readings()),
        "visits.csv": as_csv("ts burrow ring", visits())(),
        "positions.csv": as_csv("t car speed xway lane dir seg pos", positions())(),
    }
    return {name: "".join(f"{line}\n" for line in text) for name, text in lines.items()}


if __name__ == "__main__":
    for name, text in files().items():
        (DATA / name).write_text(text, encoding="utf-8")
