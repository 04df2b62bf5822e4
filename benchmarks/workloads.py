"""The data: seeded generators, their answers, and a disk cache of both.

This is our own copy of the fixed denominator's generator. At full size the columns equal the
denominator's columns byte for byte, and the answers must be those of ``FIXED``. A smaller size
draws from the same distributions; numpy computes its answers in the same way.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Column: TypeAlias = npt.NDArray[Any]
#: The number of rows, and a checksum of the rows that is independent of their order.
Answer: TypeAlias = tuple[int, str]

#: Start of event time, in microseconds: a multiple of 300 s.
T0 = 1_699_999_800 * 1_000_000
SECOND = 1_000_000
#: The window length of ``packets``.
WIDTH = 10 * SECOND
FULL = 10_000_000
#: Rows of each side of a join.
FULL_SIDE = 1_000_000

#: The answers of the fixed denominator, at FULL packets or events, or FULL_SIDE rows per side.
FIXED: Mapping[str, Mapping[str, Answer]] = {
    "packets": {"counts": (655360, "7c35b8a0fc95e6b2")},
    "links": {"count": (20, "ec31a7d45d41a81d"), "groups": (20000, "3b177c6cc4b2fa52")},
    "flows": {"matches": (10, "5fc586abed45d32d")},
    "bids": {"price": (9200000, "60442747817454"), "q2": (75890, "0576d71a60241cbe")},
}

_FOLDER = Path(__file__).parent / "data"
_VERSION = 3


@dataclass(frozen=True, slots=True)
class Workload:
    """``columns`` have equal lengths; ``size`` is the size requested from the generator."""

    name: str
    size: int
    columns: Mapping[str, Column]
    answers: Mapping[str, Answer]

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values())))


# ----------------------------------------------------------------- checksums


def mix(x: Column) -> Column:
    x = x.astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Column = x ^ (x >> np.uint64(31))
    return mixed


def checksum(*columns: Any) -> Answer:
    """The checksum of a bag of rows, given as integer columns of equal lengths."""
    h: Column | None = None
    with np.errstate(over="ignore"):
        for column in columns:
            c = np.asarray(column).astype(np.int64).view(np.uint64)
            h = mix(c + np.uint64(0x9E3779B97F4A7C15) if h is None else h * np.uint64(31) + c)
        assert h is not None
        total = int(np.sum(h, dtype=np.uint64)) if len(h) else 0
    return len(h), f"{total:016x}"


def sums(*columns: Any) -> Answer:
    """The number of rows, and the sum of each column: cheap even for results as long as the
    input."""
    return len(columns[0]), " ".join(str(int(np.asarray(c).sum())) for c in columns)


# ----------------------------------------------------------------- generators


def packets(n: int) -> Workload:
    """``n`` packets in time order over 100 s, between 256 x 256 pairs of addresses.

    Answers: ``counts`` of the rows (window_start, srcIP, destIP, count) of windows of 10 s;
    ``closed``, the same without the windows that end after the last packet."""
    rng = np.random.default_rng(1)
    ts, length = _packet_times(rng, n, 100 * SECOND)
    sources = rng.integers(-(2**31), 2**31, 256).astype(np.int32)
    targets = rng.integers(-(2**31), 2**31, 256).astype(np.int32)
    pair = rng.integers(0, 65536, n)
    columns = {
        "srcIP": sources[pair >> 8],
        "destIP": targets[pair & 255],
        "srcPort": rng.integers(1024, 65536, n).astype(np.int32),
        "destPort": rng.integers(1, 1024, n).astype(np.int32),
        "len": length,
        "ts": ts,
    }
    window = (ts - T0) // WIDTH
    counts = np.bincount(window * 65536 + pair, minlength=10 * 65536).reshape(-1, 65536)
    w, p = np.nonzero(counts)
    rows = (T0 + w * WIDTH, sources[p >> 8], targets[p & 255], counts[w, p])
    closed = T0 + (w + 1) * WIDTH <= ts[-1]
    answers = {"counts": checksum(*rows), "closed": checksum(*(c[closed] for c in rows))}
    return Workload("packets", n, columns, answers)


def _packet_times(rng: np.random.Generator, n: int, duration: int) -> tuple[Column, Column]:
    ts = np.sort(rng.integers(0, duration, n)).astype(np.int64) + T0
    sizes = np.array([40, 52, 576, 1420, 1500], np.int32)
    length = rng.choice(sizes, n, p=[0.35, 0.15, 0.1, 0.2, 0.2])
    return ts, (length + rng.integers(0, 24, n)).astype(np.int32)


def bids(n: int) -> Workload:
    """The bids (92%) among ``n`` events of Nexmark, one event every 10 microseconds.

    Answers: ``price``, the sum of q1's prices (price * 908 / 1000); ``q1``, the sums of its columns
    (auction, price, bidder, ts); ``q2`` of the rows (auction, price) where auction % 123 = 0."""
    rng = np.random.default_rng(5)
    i = np.arange(n, dtype=np.int64)
    epoch, off = i // 50, i % 50
    ts = T0 + i * 10
    # 1 person : 3 auctions : 46 bids
    person, auction_event = off < 1, (off >= 1) & (off < 4)
    bid = off >= 4
    last_auction = np.where(
        off < 1, epoch * 3 - 1, np.where(off < 4, epoch * 3 + off - 1, epoch * 3 + 2)
    )
    # Persons and auctions are not used, but their random draws precede those of the bids.
    rng.integers(0, 11 * 9, int(person.sum()))
    auctions = int(auction_event.sum())
    for low, high in ((0, 4), (0, 1000), (0, 5), (1, 20 * SECOND)):
        rng.integers(low, high, auctions)
    nb = int(bid.sum())
    la, lp = last_auction[bid], epoch[bid]
    hot = rng.integers(0, 2, nb) > 0
    cold = np.maximum(la - rng.integers(0, 100, nb), 0)
    auction = np.where(hot, la // 100 * 100, cold) + 1000
    hot = rng.integers(0, 4, nb) > 0
    cold = np.maximum(lp - rng.integers(0, 1000, nb), 0)
    bidder = np.where(hot, lp // 100 * 100 + 1, cold) + 1000
    price = np.rint(10.0 ** (rng.random(nb) * 6) * 100).astype(np.int64)
    columns = {"auction": auction, "bidder": bidder, "price": price, "ts": ts[bid]}
    euro = price * 908 // 1000
    chosen = auction % 123 == 0
    answers = {
        "price": sums(euro),
        "q1": sums(auction, euro, bidder, ts[bid]),
        "q2": checksum(auction[chosen], price[chosen]),
    }
    return Workload("bids", n, columns, answers)


#: Parameters of ``links``: the third link is LATE; windows of RANGE slide by SLIDE, in panes of
#: SLIDE, or slide by FINE.
RANGE, SLIDE, FINE = 300 * SECOND, 60 * SECOND, 5 * SECOND
LATE = 30 * SECOND
_SPAN = 960 * SECOND


def links(n: int) -> Workload:
    """``n`` packets of three links (9 : 9 : 2) over 960 s, with 1,000 addresses, in order of
    arrival: packets of the third link arrive 30 s late.

    Answers, each over the windows that hold a packet: ``count`` of (window_start, count), 5 minutes
    by 1 minute; ``groups`` of (window_start, srcIP, count, sum, min and max of len), the same
    windows; ``closed``, like ``groups`` without the windows that end later than 30 s before the
    last packet; ``fine`` of (window_start, srcIP, count, sum), 5 minutes by 5 seconds; ``tumbling``
    of the same columns, 5 minutes."""
    rng = np.random.default_rng(2)
    sources = np.sort(rng.choice(2**31, 1000, replace=False)).astype(np.int32)
    parts = []
    for number, share in ((1, 9), (2, 9), (3, 2)):
        rows = n * share // 20
        ts, length = _packet_times(rng, rows, _SPAN)
        parts.append((np.full(rows, number, np.int32), rng.integers(0, 1000, rows), length, ts))
    link, group, length, ts = (np.concatenate(c) for c in zip(*parts, strict=True))
    order = np.argsort(ts + np.where(link == 3, LATE, 0), kind="stable")
    link, group, length, ts = link[order], group[order], length[order], ts[order]
    columns = {"link": link, "srcIP": sources[group], "len": length, "ts": ts}
    made = _windows(ts, SLIDE, group, length, sources)
    closed = made[0] + RANGE <= ts.max() - LATE
    answers = {
        "count": checksum(*_windows(ts, SLIDE, None, length, sources)[:2]),
        "groups": checksum(*made),
        "closed": checksum(*(c[closed] for c in made)),
        "fine": checksum(*_windows(ts, FINE, group, length, sources)[:4]),
        "tumbling": checksum(*_windows(ts, RANGE, group, length, sources)[:4]),
    }
    return Workload("links", n, columns, answers)


def _windows(
    ts: Column, slide: int, group: Column | None, length: Column, sources: Column
) -> tuple[Column, ...]:
    """(window_start, srcIP, count, sum, min, max) of the windows of RANGE by ``slide`` and the
    groups that hold a packet, computed from panes of ``slide``; without srcIP if there are no
    groups."""
    panes, over = -(-_SPAN // slide), RANGE // slide
    wide = 1 if group is None else len(sources)
    at: Column = (ts - T0) // slide * wide + (0 if group is None else group)
    size = (panes + 2 * (over - 1), wide)  # windows reach beyond both ends
    count, total = np.zeros(size, np.int64), np.zeros(size, np.int64)
    least, most = np.full(size, 2**31), np.full(size, -1)
    inner = slice((over - 1), (over - 1) + panes)
    count[inner] = np.bincount(at, minlength=panes * wide).reshape(-1, wide)
    total[inner] = np.bincount(at, length, minlength=panes * wide).reshape(-1, wide)
    np.minimum.at(least[inner].reshape(-1), at, length)
    np.maximum.at(most[inner].reshape(-1), at, length)
    starts = np.arange(panes + over - 1)
    held = [c[starts[:, None] + np.arange(over)] for c in (count, total, least, most)]
    made = [held[0].sum(1), held[1].sum(1), held[2].min(1), held[3].max(1)]
    w, g = np.nonzero(made[0])
    values = tuple(column[w, g] for column in made)
    start = T0 + (w - over + 1) * slide
    return (start, *values) if group is None else (start, sources[g], *values)


#: The largest distance between matching packets of ``flows``, either way, in microseconds.
BAND = SECOND


def flows(n: int) -> Workload:
    """``n`` packets each way over 100 s. Each flow has 20 packets, so only the band separates the
    few matching pairs. Columns ``l_…`` are of one direction, ``r_…`` of the other, where source
    and target are exchanged.

    Answers: ``matches`` of (window_start, count): pairs of one flow at most BAND apart, by the
    left packet's window of 10 s; ``closed``, the same without the windows that end later than BAND
    before the last packets."""
    return _flows("flows", n, n // 20)


def rare_flows(n: int) -> Workload:
    """Like ``flows``, with as many flows as packets: the addresses alone nearly determine the
    pairs."""
    return _flows("rare_flows", n, n)


def _flows(name: str, n: int, count: int) -> Workload:
    rng = np.random.default_rng(3)
    ips = rng.choice(2**31, 4000, replace=False).astype(np.int32)
    ends = ips[rng.integers(0, 2000, count)], ips[2000 + rng.integers(0, 2000, count)]
    ports = (
        rng.integers(1024, 65536, count).astype(np.int32),
        rng.integers(1, 1024, count).astype(np.int32),
    )
    ts, length = zip(*(_packet_times(rng, n, 100 * SECOND) for _ in range(2)), strict=True)
    flow = [rng.integers(0, count, n) for _ in range(2)]
    columns: dict[str, Column] = {}
    for side, k in (("l", 0), ("r", 1)):
        named = {
            "srcIP": ends[k],
            "destIP": ends[1 - k],
            "srcPort": ports[k],
            "destPort": ports[1 - k],
        }
        columns |= {f"{side}_{c}": values[flow[k]] for c, values in named.items()}
        columns |= {f"{side}_len": length[k], f"{side}_ts": ts[k]}
    _, key = np.unique(np.stack([*ends, *ports], 1), axis=0, return_inverse=True)
    left, right = (key.ravel()[f] for f in flow)
    far = np.int64(1) << 40
    lasts = np.sort(right * far + (ts[1] - T0))
    base = left * far + (ts[0] - T0)
    pairs = np.searchsorted(lasts, base + BAND, "right")
    pairs -= np.searchsorted(lasts, np.maximum(base - BAND, left * far), "left")
    counts = np.bincount((ts[0] - T0) // WIDTH, pairs).astype(np.int64)
    starts = T0 + np.arange(len(counts)) * WIDTH
    closed = starts + WIDTH <= min(ts[0][-1], ts[1][-1]) - BAND
    made = starts, counts
    answers = {"matches": checksum(*made), "closed": checksum(*(c[closed] for c in made))}
    return Workload(name, n, columns, answers)


# ----------------------------------------------------------------- on disk


def load(make: Callable[[int], Workload], size: int, folder: Path | None = None) -> Workload:
    """The workload of ``make(size)``, from ``folder`` (default: ``data`` beside this file), or made
    now and kept there."""
    place = (folder or _FOLDER) / f"{make.__name__}-{size}-v{_VERSION}"
    if not place.exists():
        made = make(size)
        _check_fixed(made)
        _save(made, place)
    told = json.loads((place / "answers.json").read_text(encoding="utf-8"))
    answers: dict[str, Answer] = {name: (int(n), str(digest)) for name, (n, digest) in told.items()}
    columns = {file.stem: np.load(file) for file in sorted(place.glob("*.npy"))}
    return Workload(make.__name__, size, columns, answers)


def _check_fixed(made: Workload) -> None:
    """Checks the answers, because another numpy version might draw other data under the same
    name."""
    if made.size != (FULL_SIDE if made.name in ("flows", "rare_flows") else FULL):
        return
    for name, answer in FIXED.get(made.name, {}).items():
        if made.answers[name] != answer:
            raise RuntimeError(
                f"{made.name} differ from the fixed ones: {name} is {made.answers[name]}, "
                f"not {answer} (numpy {np.__version__})"
            )


def _save(made: Workload, place: Path) -> None:
    with _Built(place) as aside:
        for name, column in made.columns.items():
            np.save(aside / f"{name}.npy", column)
        (aside / "answers.json").write_text(json.dumps(dict(made.answers)), encoding="utf-8")


class _Built:
    """A folder that appears atomically; the first of several makers wins."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __enter__(self) -> Path:
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._aside = Path(tempfile.mkdtemp(prefix=".", dir=self._place.parent))
        return self._aside

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self._place.exists():
            self._aside.chmod(0o755)
            self._aside.rename(self._place)
        else:
            shutil.rmtree(self._aside)


def parquet_parts(
    make: Callable[[int], Workload],
    size: int,
    folder: Path | None = None,
    parts: int = 10,
    side: str = "",
) -> tuple[Path, Mapping[str, Answer]]:
    """A folder of parquet files in time order (by name and by modification time, the order of
    Spark's file source), with ``ts`` as a timestamp; and the answers. ``side``: the prefix of the
    columns to write, if the workload has several."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    base = folder or _FOLDER
    place = base / f"{make.__name__}-{size}-{side}{parts}parts-v{_VERSION}"
    workload = load(make, size, folder)
    if not place.exists():
        table = to_arrow(workload, side)
        assert isinstance(table, pa.Table)
        n = table.num_rows
        with _Built(place) as aside:
            for i in range(parts):
                start, end = i * n // parts, (i + 1) * n // parts
                file = aside / f"part-{i:05d}.parquet"
                pq.write_table(table.slice(start, end - start), file)
                os.utime(file, (1_700_000_000 + i, 1_700_000_000 + i))
    return place, workload.answers


def to_arrow(workload: Workload, side: str = "") -> Any:
    """The columns with prefix ``side`` as an Arrow table over the same memory, with ``ts`` as a UTC
    timestamp."""
    import pyarrow as pa

    arrays = {
        name.removeprefix(side): pa.array(column)
        for name, column in workload.columns.items()
        if name.startswith(side)
    }
    arrays["ts"] = arrays["ts"].view(pa.timestamp("us", tz="UTC"))
    return pa.table(arrays)
