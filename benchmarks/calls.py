"""Call data records for the detection of high-mobility fraud (``queries/ordered``): figure 1 of
Prasaad, Ramalingam, Rajan, "Scaling Ordered Stream Processing on Shared-Memory Multicores" (2018).

Seeded, and in order of ``ts``. The phone of rank r makes a share ~ 1 / sqrt(r) of the calls. Each
phone circles near its home, at a radius of 5 to 30 km and a speed of 15 to 100 km/h; its calls have
the area code of the home. Areas lie at least 400 km apart; the area of rank r has a share ~ 1 /
sqrt(r) of the phones. Five phones of a thousand are cloned: every other call of a cloned phone is
made in another area.

``python -m benchmarks.calls FOLDER --rows 1000000`` writes the records as Parquet.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tpcxbb import ranks, table_of, timestamps
from benchmarks.workloads import SECOND, T0, Column

PHONES = 100_000
AREA_CODES = (212, 213, 312, 713, 602, 215, 210, 619, 214, 408)
#: Calls per second of event time.
RATE = 5.0
#: The share of cloned phones.
CLONED = 0.005

_HOUR = 3600 * SECOND


def call_records(
    n: int, seed: int = 1, rate: float = RATE, phones: int = PHONES, cloned: float = CLONED
) -> pa.Table:
    """``n`` calls: ``ts``, ``area_code`` (the caller's), ``caller``, ``callee``, the positions of
    both in kilometres (``caller_x``, ``caller_y``, ``callee_x``, ``callee_y``), and ``seconds``."""
    rng = np.random.default_rng([seed, 8])
    ts = np.sort(rng.integers(0, int(n / rate * SECOND), n)) + T0
    caller = ranks(rng, phones, 0.5, n)
    callee = (caller + rng.integers(1, phones, n)) % phones
    area = ranks(rng, len(AREA_CODES), 0.5, phones)
    away = (area + rng.integers(1, len(AREA_CODES), phones)) % len(AREA_CODES)
    clone = np.where(rng.random(phones) < cloned, away, area)
    # Places are complex numbers: x + iy.
    home = rng.uniform(-50, 50, phones) + 1j * rng.uniform(-50, 50, phones)
    radius, phase = rng.uniform(5, 30, phones), rng.uniform(0, 2 * np.pi, phones)
    turns = rng.uniform(15, 100, phones) / radius / _HOUR  # radians per microsecond

    def places(phone: Column) -> Column:
        where = np.where(rng.random(n) < 0.5, clone[phone], area[phone])
        middle = 400 * where + 200j * (where % 2)
        circle = radius[phone] * np.exp(1j * (phase[phone] + turns[phone] * (ts - T0)))
        found: Column = middle + home[phone] + circle
        return found

    calling, called = places(caller), places(callee)
    return table_of(
        {
            "ts": timestamps(ts),
            "area_code": np.array(AREA_CODES, np.int32)[area[caller]],
            "caller": caller + 1,
            "callee": callee + 1,
            "caller_x": calling.real.copy(),
            "caller_y": calling.imag.copy(),
            "callee_x": called.real.copy(),
            "callee_y": called.imag.copy(),
            "seconds": rng.geometric(1 / 120, n).astype(np.int32),
        }
    )


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(folder: Path, rows: int, seed: int) -> None:
    """Writes call_records as Parquet into FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(call_records(rows, seed), folder / "call_records.parquet")
    click.echo(f"call_records: {rows:,} rows")


if __name__ == "__main__":
    main()
