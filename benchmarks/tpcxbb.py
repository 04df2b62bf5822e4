"""A retailer's streams as in TPCx-BB, for queries 1, 2, 3, 4 and 15 (``queries/tpcxbb``): clicks on
the portal and items sold in stores; and the table of items.

Seeded; the rows of a stream are in order of ``ts``. Names are those of TPCx-BB without the table
prefix. TPCx-BB's two columns for day and second are one timestamp here, and the type of a click is
a column of its own instead of a column of the page.

- The item of rank r has a share ~ 1 / r of views and of sales (ranks are independent of item
  numbers). Users and stores of rank r have a share ~ 1 / sqrt(r), so the busiest user has 0.2%.
- The category of rank r, of 10, has a share ~ 1 / sqrt(r) of the items. Prices in a category rise
  and fall by 60% over eight weeks, with a different phase per category.
- Sessions have a geometric number of clicks (mean 8), 45 s apart; one gap of a hundred is up to 55
  minutes longer. Tickets have a geometric number of items (mean 5, at most 20), scanned 5 s apart.

``python -m benchmarks.tpcxbb FOLDER --rows 1000000`` writes all three as Parquet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workloads import SECOND, T0, Column

USERS, ITEMS, STORES, CATEGORIES = 50_000, 10_000, 20, 10
#: Approximate rows per second of event time.
CLICK_RATE, SALE_RATE = 1.0, 0.25
KINDS = ("view", "cart", "checkout", "buy")
VIEW, CART, CHECKOUT, BUY = range(len(KINDS))

_MINUTE = 60 * SECOND
_SEASON = 56 * 24 * 60 * _MINUTE
_MOST_SCANNED = 20
_MOST_PAID = 99_999_99  # the largest decimal(7, 2), in cents


def web_clickstreams(
    n: int, seed: int = 1, rate: float = CLICK_RATE, users: int = USERS
) -> pa.Table:
    """``n`` clicks: ``ts``, ``user_sk`` (NULL in 5% of the sessions: unknown user), ``item_sk``
    (NULL for a checkout) and ``click_type``, one of ``KINDS``.

    A session consists of views; a ``cart`` click may follow a view of the same item. Three of ten
    sessions with a cart end in a ``checkout``, followed by a ``buy`` of each item in the cart."""
    rng = np.random.default_rng([seed, 1])
    visits = _Bursts.drawn(rng, n, mean=8)
    rows, of = visits.rows, visits.number
    cart = (visits.place > 0) & (rng.random(rows) < 0.12)
    viewed = np.maximum.accumulate(np.where(cart, 0, np.arange(rows)))
    item = _popular(rng, rows, seed)[viewed]
    gaps = rng.exponential(45 * SECOND, rows) + SECOND
    gaps += np.where(rng.random(rows) < 0.01, rng.uniform(0, 55 * _MINUTE, rows), 0)
    ts = visits.times(rng, rate, gaps)

    carts = np.bincount(of, cart, visits.count).astype(np.int64)
    ordering = (carts > 0) & (rng.random(visits.count) < 0.3)
    orders = np.flatnonzero(ordering)
    ordered_at = ts[visits.begins + visits.lengths - 1] + 30 * SECOND
    bought = np.flatnonzero(cart & ordering[of])
    bought_at = ordered_at[of[bought]] + (1 + _places(carts[orders])) * SECOND // 10

    ts = np.concatenate([ts, ordered_at[orders], bought_at])
    kept = np.argsort(ts, kind="stable")[:n]
    sizes = [rows, orders.size, bought.size]
    kind = np.repeat(np.array([VIEW, CHECKOUT, BUY], np.int8), sizes)
    kind[:rows][cart] = CART
    session = np.concatenate([of, orders, of[bought]])[kept]
    item = np.concatenate([item, np.zeros(orders.size, np.int64), item[bought]])[kept]
    user = 1 + ranks(rng, users, 0.5, visits.count)
    nobody = rng.random(visits.count) < 0.05
    return table_of(
        {
            "ts": timestamps(ts[kept]),
            "user_sk": pa.array(user[session], mask=nobody[session]),
            "item_sk": pa.array(item, mask=kind[kept] == CHECKOUT),
            "click_type": pa.array(KINDS).take(pa.array(kind[kept])),
        },
        nullable=("user_sk", "item_sk"),
    )


def store_sales(n: int, seed: int = 1, rate: float = SALE_RATE) -> pa.Table:
    """``n`` sold items: ``ts``, ``ticket_number``, ``store_sk``, ``item_sk`` and ``net_paid``, a
    decimal(7, 2). A ticket contains each item at most once."""
    rng = np.random.default_rng([seed, 2])
    tickets = _Bursts.drawn(rng, n, mean=5, most=_MOST_SCANNED)
    item = _popular(rng, tickets.rows, seed)
    _, once = np.unique(tickets.number * (ITEMS + 1) + item, return_index=True)
    ts = tickets.times(rng, rate, rng.exponential(4 * SECOND, tickets.rows) + SECOND)[once]
    order = np.argsort(ts, kind="stable")[:n]
    kept = once[order]
    ts, ticket, item = ts[order], tickets.number[kept], item[kept]
    store = 1 + ranks(rng, STORES, 0.5, tickets.count).astype(np.int32)

    season = (ts - T0) / _SEASON + _categories(seed)[item - 1] / CATEGORIES
    price = np.random.default_rng([seed, 3]).lognormal(7, 0.6, ITEMS)[item - 1]
    paid = price * rng.geometric(0.6, ts.size) * (1 + 0.6 * np.sin(2 * np.pi * season))
    return table_of(
        {
            "ts": timestamps(ts),
            "ticket_number": ticket + 1,
            "store_sk": store[ticket],
            "item_sk": item,
            "net_paid": _decimals(np.minimum(np.rint(paid), _MOST_PAID).astype(np.int64)),
        }
    )


def items(seed: int = 1) -> pa.Table:
    """``item_sk``, from 1 to ``ITEMS``, and ``category_id``, from 1 to 10 or (1%) NULL."""
    none = np.random.default_rng([seed, 7]).random(ITEMS) < 0.01
    category = pa.array(1 + _categories(seed), mask=none)
    columns = {"item_sk": np.arange(1, ITEMS + 1), "category_id": category}
    return table_of(columns, nullable=("category_id",))


TABLES: Mapping[str, Callable[[int, int], pa.Table]] = {
    "web_clickstreams": web_clickstreams,
    "store_sales": store_sales,
    "items": lambda n, seed: items(seed),
}


# ----------------------------------------------------------------- draws


@dataclass(frozen=True, slots=True)
class _Bursts:
    """Rows in bursts (sessions, tickets), burst by burst: the length of each burst, and the number
    of the burst of each row."""

    lengths: Column
    number: Column

    @classmethod
    def drawn(
        cls, rng: np.random.Generator, n: int, mean: float, most: int | None = None
    ) -> _Bursts:
        """More than ``n`` rows, so that ``n`` remain after some are removed."""
        lengths = rng.geometric(1 / mean, int(1.25 * n / mean) + 100)
        lengths = np.minimum(lengths, most or n)
        return cls(lengths, np.repeat(np.arange(lengths.size), lengths))

    @property
    def count(self) -> int:
        return self.lengths.size

    @property
    def rows(self) -> int:
        return self.number.size

    @property
    def begins(self) -> Column:
        """The first row of each burst."""
        begins: Column = np.cumsum(self.lengths) - self.lengths
        return begins

    @property
    def place(self) -> Column:
        """The index of each row within its burst, from 0."""
        return _places(self.lengths)

    def times(self, rng: np.random.Generator, rate: float, gaps: Column) -> Column:
        """The time of each row in microseconds. ``gaps`` precede the rows, except for the first row
        of a burst. Burst starts are uniform, at ``rate`` rows per second overall."""
        span = self.rows / rate * SECOND
        starts = T0 + np.sort(rng.integers(0, int(span), self.count))
        since = np.cumsum(gaps.astype(np.int64))
        times: Column = np.repeat(starts - since[self.begins], self.lengths) + since
        return times


def _places(lengths: Column) -> Column:
    """0, 1, … for each length, concatenated."""
    begins = np.cumsum(lengths) - lengths
    places: Column = np.arange(int(lengths.sum())) - np.repeat(begins, lengths)
    return places


def ranks(rng: np.random.Generator, n: int, skew: float, size: int) -> Column:
    """``size`` ranks below ``n``, from 0: rank r has a probability ~ 1 / (r + 1) ** ``skew``."""
    shares = np.cumsum(np.arange(1, n + 1) ** -skew)
    ranks: Column = np.searchsorted(shares, rng.random(size) * shares[-1], "right")
    return ranks


def _popular(rng: np.random.Generator, size: int, seed: int) -> Column:
    """``size`` item numbers, drawn by popularity."""
    number: Column = 1 + np.random.default_rng([seed, 5]).permutation(ITEMS)
    return number[ranks(rng, ITEMS, 1.0, size)]


def _categories(seed: int) -> Column:
    """The category of each item, from 0."""
    return ranks(np.random.default_rng([seed, 6]), CATEGORIES, 0.5, ITEMS).astype(np.int32)


def table_of(columns: Mapping[str, Column | pa.Array], nullable: Collection[str] = ()) -> pa.Table:
    """A table whose columns are declared NOT NULL, except for those in ``nullable``."""
    arrays = {name: pa.array(column) for name, column in columns.items()}
    fields = [pa.field(name, array.type, name in nullable) for name, array in arrays.items()]
    return pa.table(list(arrays.values()), pa.schema(fields))


def timestamps(micros: Column) -> pa.Array:
    return pa.array(micros).view(pa.timestamp("us", tz="UTC"))


def _decimals(cents: Column) -> pa.Array:
    words = np.stack([cents, cents >> 63], 1)
    kind = pa.decimal128(7, 2)
    return pa.Array.from_buffers(kind, cents.size, [None, pa.py_buffer(words)])


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--rows", default=1_000_000, show_default=True, help="Rows of each stream.")
@click.option("--seed", default=1, show_default=True)
def main(folder: Path, rows: int, seed: int) -> None:
    """Writes web_clickstreams, store_sales and items as Parquet into FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in TABLES.items():
        table = make(rows, seed)
        pq.write_table(table, folder / f"{name}.parquet")
        click.echo(f"{name}: {table.num_rows:,} rows")


if __name__ == "__main__":
    main()
