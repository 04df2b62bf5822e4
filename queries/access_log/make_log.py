"""An access log in the "combined" format of Apache and nginx, the same for each seed.

Rows are lines by the time at which they are written: a request's time is that of its start, up to
``LONGEST`` seconds before its line. Times are local, in whole seconds; in the first hour the clocks
go back from +0200 to +0100.

- The client of rank r has a share ~ 1 / r ** 0.8 of the sessions, the path of rank r a share
  ~ 1 / r of the requests. A twentieth of the clients has an IPv6 address.
- Sessions have a geometric number of requests (mean 12), 8 s apart; one pause of a hundred is up to
  25 minutes longer. The referer of a request is the page before it in its session.
- Two of five requests have a query string with the id of their session and a new number; one of
  seven asks for an item of a new number. Some paths are not ASCII, percent-encoded or raw.
- A share of the lines is cut short, torn by another line, empty, or no request.

``python queries/access_log/make_log.py`` writes ``data/access.log`` again; a test compares.
``python queries/access_log/make_log.py FILE --rows 1000000`` writes another log.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SAMPLE = Path(__file__).resolve().parent / "data" / "access.log"
#: Lines per second of a busy server, and the share of its lines that are damaged.
RATE, DAMAGED = 20.0, 0.004
SECOND = 1_000_000
#: Sunday 2024-10-27, 00:40 UTC: 20 minutes before the clocks of Central Europe go back.
START = 1_729_989_600 * SECOND
CLOCKS_BACK = START + 1200 * SECOND
#: Seconds from the start of a request to its line, at most.
LONGEST = 8
#: Lines that are joined at a time.
PIECE = 100_000

Column = np.ndarray[Any, np.dtype[Any]]

WORDS = (
    "shop", "list", "item", "cart", "search", "help", "api", "v2", "images", "étage", "größe",
    "caf%C3%A9", "%E6%9D%B1%E4%BA%AC", "東京", "news", "about", "static", "feed",
)  # fmt: skip
ENDINGS = ("", "", "", "/", ".html", ".css", ".js", ".png", ".svg")
BROWSERS = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
    " Chrome/{}.0.0.0 Safari/537.36",
    "Mozilla/5.0 (X11; Linux x86_64; rv:{0}.0) Gecko/20100101 Firefox/{0}.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15"
    " (KHTML, like Gecko) Version/{} Mobile Safari",
    'Mozilla/5.0 (Linux; Android 14; \\"Pixel {}\\") AppleWebKit/537.36',
)
ROBOTS = (
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "Mozilla/5.0 (compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)",
    "Scrapy/2.11 (+https://scrapy.org)",
    "archive-crawler/3.4",
    "curl/8.5.0",
    "-",
)
#: Agents by code: ROBOTS, then each browser in several versions.
AGENTS = (*ROBOTS, *(browser.format(n) for browser in BROWSERS for n in range(110, 128)))
USERS = ("-",) * 30 + ("frank", "ann", "j.novák")
METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE")
METHOD_SHARES = (0.87, 0.09, 0.02, 0.01, 0.01)
STATUSES = (200, 304, 301, 403, 404, 500, 502, 503)
STATUS_SHARES = (0.84, 0.05, 0.02, 0.01, 0.05, 0.015, 0.01, 0.005)
OUTSIDE = ("-", "-", "https://www.google.com/", "https://news.example.org/a?id=7&from=rss")
SITE = "https://shop.example.com"
NOISE = (
    r'203.0.113.66 - - [27/Oct/2024:02:41:07 +0200] "\x16\x03\x01\x02\x00\x01" 400 157 "-" "-"',
    '203.0.113.66 - - [27/Oct/2024:02:41:09 +0200] "-" 408 - "-" "-"',
    '"GET / HTTP/1.0" 200 12',
    "[notice] caught SIGTERM, shutting down",
    "%h %l %u %t \\\"%r\\\" %>s %b",
    "",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Requests:
    """Codes of the parts of each line; ``before`` and ``item_before`` are of the page before in the
    session (-1 for the first page), ``item`` is a number behind the path (-1: none)."""

    time: Column
    client: Column
    session: Column
    method: Column
    path: Column
    item: Column
    before: Column
    item_before: Column
    asks: Column
    status: Column
    size: Column

    def take(self, rows: Any) -> Requests:
        return Requests(*(getattr(self, f.name)[rows] for f in fields(self)))


def access_log(rows: int, seed: int = 1, rate: float = RATE, damaged: float = DAMAGED) -> pa.Table:
    """``rows`` lines in the order in which they are written, ``rate`` lines per second, of which a
    share of ``damaged`` are none: one column ``line`` of strings."""
    rng = np.random.default_rng([seed, 8])
    made = _requests(rng, rows, rate)
    written = made.time + np.minimum(rng.exponential(0.7, made.time.size), LONGEST) * SECOND
    made = made.take(np.argsort(written, kind="stable")[:rows])
    texts = _Texts(rng, int(made.client.max()) + 1, int(made.path.max()) + 1)
    pieces = (texts.lines(made.take(slice(at, at + PIECE))) for at in range(0, rows, PIECE))
    spoiled = [_damaged(lines, damaged, rng) for lines in pieces]
    return pa.table({"line": pa.chunked_array(spoiled, pa.string())})


def sample() -> pa.Table:
    """The lines of ``data/access.log``: few in an hour and a half, more of them damaged."""
    return access_log(300, rate=0.05, damaged=0.03)


def text_of(table: pa.Table) -> str:
    """The text of a log file."""
    return "".join(f"{line}\n" for line in table.column("line").to_pylist())


def _requests(rng: np.random.Generator, rows: int, rate: float) -> Requests:
    """More than ``rows`` requests, session by session."""
    lengths = rng.geometric(1 / 12, rows // 11 + 40)
    sessions, n = lengths.size, int(lengths.sum())
    first = np.cumsum(lengths) - lengths
    session = np.repeat(np.arange(sessions), lengths)
    pauses = rng.exponential(8 * SECOND, n)
    pauses += np.where(rng.random(n) < 0.01, rng.uniform(0, 1500 * SECOND, n), 0)
    since = np.cumsum(pauses)
    begins = np.sort(rng.uniform(0, n / rate * SECOND, sessions))
    time = START + begins[session] + since - since[first][session]

    clients = _ranks(rng, max(20, rows // 60), 0.8, sessions)
    path = _ranks(rng, max(60, min(3000, rows // 10)), 1.0, n)
    item = np.where(rng.random(n) < 1 / 7, rng.integers(0, 1 << 40, n), -1)
    starts = np.zeros(n, np.bool_)
    starts[first] = True
    method = rng.choice(len(METHODS), n, p=METHOD_SHARES)
    status = rng.choice(len(STATUSES), n, p=STATUS_SHARES)
    empty = (method == 2) | (status == 1)
    size = np.where(empty, -1, rng.lognormal(8.5, 1.4, n).astype(np.int64))
    return Requests(
        time.astype(np.int64), clients[session], session, method, path, item,
        np.where(starts, -1, np.roll(path, 1)), np.where(starts, -1, np.roll(item, 1)),
        rng.random(n) < 0.4, status, size,
    )  # fmt: skip


def _ranks(rng: np.random.Generator, n: int, skew: float, size: int) -> Column:
    """``size`` ranks below ``n``, from 0: rank r has a probability ~ 1 / (r + 1) ** ``skew``."""
    shares = np.cumsum(np.arange(1, n + 1) ** -skew)
    ranks: Column = np.searchsorted(shares, rng.random(size) * shares[-1], "right")
    return ranks


class _Texts:
    """The texts of the codes: addresses, users and agents by client, and paths."""

    def __init__(self, rng: np.random.Generator, clients: int, paths: int) -> None:
        hexes = [f"{n:04x}" for n in range(1 << 16)]
        self._hexes = pa.array(hexes)
        number = rng.permutation(1 << 24)[:clients]
        self._address = pa.array(
            f"2001:db8:{hexes[b >> 8]}::{b & 255:x}"
            if k % 20 == 7
            else f"{100 + (b >> 21)}.{b >> 16 & 31}.{b >> 8 & 255}.{b & 255}"
            for k, b in enumerate(number.tolist())
        )
        self._user = pa.array(USERS).take(pa.array(rng.integers(0, len(USERS), clients)))
        agent = rng.integers(0, len(AGENTS), clients)
        robot = rng.random(clients) < 0.15
        agent[robot] = rng.integers(0, len(ROBOTS), int(robot.sum()))
        self._agent = pa.array(AGENTS).take(pa.array(agent))
        self._path = pa.array(self._made_path(rng, k) for k in range(paths))

    def _made_path(self, rng: np.random.Generator, rank: int) -> str:
        if rank == 0:
            return "/"
        words = rng.choice(WORDS, rng.integers(1, 5))
        return "/" + "/".join(words) + f"-{rank}" + str(rng.choice(ENDINGS))

    def lines(self, made: Requests) -> pa.Array:
        path = self._paths(made.path, made.item)
        asks = ["?sid=", self._id(made.session * 2654435761), "&n=", self._id(made.time * 48271)]
        query = pc.if_else(pa.array(made.asks), _joined(*asks), "")
        outside = pa.array(OUTSIDE).take(pa.array(made.session % len(OUTSIDE)))
        page = _joined(SITE, self._paths(np.maximum(made.before, 0), made.item_before))
        size = pa.array(made.size)
        return _joined(
            self._address.take(pa.array(made.client)),
            " - ", self._user.take(pa.array(made.client)),
            " [", _clock(made.time),
            '] "', pa.array(METHODS).take(pa.array(made.method)),
            " ", path, query,
            pc.if_else(pa.array(made.client % 3 == 0), " HTTP/2.0", " HTTP/1.1"),
            '" ', pa.array(map(str, STATUSES)).take(pa.array(made.status)),
            " ", pc.if_else(pc.less(size, 0), "-", size.cast(pa.string())),
            ' "', pc.if_else(pa.array(made.before < 0), outside, page),
            '" "', self._agent.take(pa.array(made.client)), '"',
        )  # fmt: skip

    def _paths(self, path: Column, item: Column) -> pa.Array:
        numbered = _joined("/item/", pa.array(item).cast(pa.string()))
        return pc.if_else(pa.array(item < 0), self._path.take(pa.array(path)), numbered)

    def _id(self, number: Column) -> pa.Array:
        """Twelve hexadecimal digits of a number."""
        return _joined(*(self._hexes.take(pa.array(number >> k & 0xFFFF)) for k in (32, 16, 0)))


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "").cast(pa.string())


def _clock(time: Column) -> pa.Array:
    """``27/Oct/2024:02:40:00 +0200``."""
    seconds, rows = np.unique(time // SECOND, return_inverse=True)
    summer = seconds < CLOCKS_BACK // SECOND
    local = pa.array(seconds + np.where(summer, 7200, 3600)).cast(pa.timestamp("s"))
    zone = pc.if_else(pa.array(summer), " +0200", " +0100")
    return _joined(pc.strftime(local, "%d/%b/%Y:%H:%M:%S"), zone).take(pa.array(rows))


def _damaged(lines: pa.Array, share: float, rng: np.random.Generator) -> pa.Array:
    """The lines, of which a share are no requests any more."""
    rows = np.sort(rng.choice(len(lines), round(len(lines) * share), replace=False))
    spoiled = []
    for line in lines.take(pa.array(rows)).to_pylist():
        kind, cut = rng.integers(0, 4), rng.integers(20, len(line))
        spoiled.append((line[:cut], line[:cut] + line, str(rng.choice(NOISE)), "")[kind])
    mask = np.zeros(len(lines), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(lines, pa.array(mask), pa.array(spoiled, pa.string()))


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--rate", default=RATE, show_default=True, help="Lines per second.")
@click.option("--damaged", default=DAMAGED, show_default=True, help="Share of damaged lines.")
@click.option("--seed", default=1, show_default=True)
def main(file: Path | None, rows: int, rate: float, damaged: float, seed: int) -> None:
    """Writes an access log; without FILE, the sample."""
    table = sample() if file is None else access_log(rows, seed, rate, damaged)
    (file or SAMPLE).write_text(text_of(table), encoding="utf-8")


if __name__ == "__main__":
    main()
