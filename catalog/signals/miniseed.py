"""MiniSEED files: a row is a time, with the samples of all channels at that time.

obspy decodes a file as a whole. ``trace_rows`` aligns its traces.
"""

from __future__ import annotations

import fnmatch
import os
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from cql.base.model import Field
from cql.catalog.convert import UNREADABLE
from cql.catalog.files.reading import guarded, too_short
from cql.catalog.memory.rows import Rows
from cql.catalog.options import Options
from cql.catalog.signals.sampled import Header, SampledFormat, hertz
from cql.catalog.signals.trace_rows import Trace, laid_out, pieces
from cql.errors import CatalogError

TIME = "time"
#: Types of samples by their encoding; those that are not listed are whole numbers.
_TYPES = {
    "FLOAT32": pa.float32(),
    "FLOAT64": pa.float64(),
    "GEOSCOPE24": pa.float32(),
    "GEOSCOPE16_3": pa.float32(),
    "GEOSCOPE16_4": pa.float32(),
}
#: libmseed keeps its messages in one place for all threads, and so does Python its warnings.
_LOCK = threading.Lock()


class MiniSeedFormat(SampledFormat):
    """Columns: ``time``, and one for each channel. Option: channel, patterns of channels ('BH?') or
    of whole ids ('IU.ANMO.00.BHZ') to read; all others are left out."""

    name = "mseed"
    times = TIME
    looked_at = 16  # the whole file is read for its header

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._wanted = options.texts("channel")
        self._last: tuple[tuple[str, int, int], Header, dict[str, str]] | None = None

    def header(self, path: str) -> Header:
        return self._look(path)[0]

    def _look(self, path: str) -> tuple[Header, dict[str, str]]:
        """The header of a file, and the column of each channel by its id. Those of the last file
        are kept: a query looks at a file before it reads the file."""
        with guarded(path):
            status = os.stat(path)
        key = path, status.st_size, status.st_mtime_ns
        known = self._last
        if known is None or known[0] != key:
            header, names = self._described(path, _traces(path, headers=True))
            known = self._last = key, header, names
        return known[1], known[2]

    def _described(self, path: str, traces: Sequence[Any]) -> tuple[Header, dict[str, str]]:
        by_id: dict[str, list[Any]] = {}
        for trace in traces:
            if self._is_wanted(trace.id):
                by_id.setdefault(trace.id, []).append(trace)
        if not by_id:
            found = ", ".join(sorted({trace.id for trace in traces}))
            raise CatalogError(
                f"file {path} has no channel {', '.join(self._wanted)}",
                hint=f"its channels are {found}",
            )
        names = _names(sorted(by_id))
        fields = [pa.field(TIME, pa.timestamp("us", "UTC"), nullable=False)]
        rates: dict[float, str] = {}
        for id, name in names.items():
            kinds = {_TYPES.get(t.stats.mseed.encoding, pa.int32()) for t in by_id[id]}
            texts = any(t.stats.mseed.encoding == "ASCII" for t in by_id[id])
            reason = "its samples are texts" if texts else None
            if not texts and len(kinds) > 1:
                reason = f"its samples are of the types {' and '.join(sorted(map(str, kinds)))}"
            if reason is None:
                rates |= {t.stats.sampling_rate: name for t in by_id[id] if t.stats.npts}
            note = None if reason is None else {UNREADABLE: reason.encode()}
            fields.append(pa.field(name, kinds.pop(), metadata=note))
        if len(rates) != 1 or next(iter(rates)) <= 0:
            listed = ", ".join(f"{name} {hertz(rate)}" for rate, name in sorted(rates.items()))
            raise CatalogError(
                f"file {path} has channels of several rates, in hertz: {listed}"
                if len(rates) > 1
                else f"file {path} has no channel with a rate",
                hint="the option channel 'BH?' reads some of them",
            )
        return Header(next(iter(rates)), pa.schema(fields)), names

    def _is_wanted(self, id: str) -> bool:
        spelt = id, id.replace(".", "_"), id.rsplit(".", 1)[-1]
        return not self._wanted or any(
            fnmatch.fnmatchcase(text.upper(), pattern.upper())
            for text in spelt
            for pattern in self._wanted
        )

    def complete(self, path: str) -> bool:
        _library()
        try:
            self.header(path)
        except CatalogError:
            return False
        return True

    def count(self, path: str) -> tuple[int, Mapping[str, int]] | None:
        return None

    def read(
        self, path: str, fields: Sequence[Field], names: Sequence[str], skip: int
    ) -> Iterator[Rows]:
        del fields
        header, columns = self._look(path)
        usable = {f.name for f in header.columns if UNREADABLE not in (f.metadata or {})}
        traces = []
        for trace in _traces(path, headers=False):
            name = columns.get(trace.id)
            if name is None or name not in usable or not len(trace.data):
                continue
            kind = header.columns.field(name).type
            if pa.from_numpy_dtype(trace.data.dtype) != kind:
                raise CatalogError(
                    f"file {path} has samples of {name} of the types {kind} and {trace.data.dtype}",
                    hint="convert the channel to one of them",
                )
            traces.append(Trace(name, trace.stats.starttime.ns, trace.data))
        layout = laid_out(traces, header.hertz)
        for name, count in layout.overlapping.items():
            if name in names:
                self.notices.append(
                    f"file {path} has {count} samples of {name} at the times of others: the others,"
                    " of the trace that begins first, are kept"
                )
        if skip > layout.rows:
            raise too_short(path, layout.rows, skip)
        types = {f.name: f.type for f in header.columns}
        yield from pieces(layout, {n: types[n] for n in names}, TIME, skip)


def _names(ids: Sequence[str]) -> dict[str, str]:
    """The column of each id: its channel, or all of it if its channel is in the file twice or the
    file is of several stations."""
    parts = [id.split(".") for id in ids]
    channels, stations = {p[3] for p in parts}, {(p[0], p[1]) for p in parts}
    if len(stations) == 1 and len(channels) == len(ids):
        return {id: p[3] for id, p in zip(ids, parts, strict=True)}
    return {id: "_".join(p) for id, p in zip(ids, parts, strict=True)}


def _traces(path: str, *, headers: bool) -> Sequence[Any]:
    """The traces of a file, as obspy reads them. Raises CatalogError for damaged records too, which
    obspy only warns of."""
    library = _library()
    with _LOCK, guarded(path), open(path, "rb") as file:
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            error: Exception | None = None
            try:
                found: Sequence[Any] = library.read(file, format="MSEED", headonly=headers)
            except Exception as failed:  # of many kinds, some of them plain Exceptions
                error = failed
        told = [str(w.message) for w in raised if w.category.__name__ == "InternalMSEEDWarning"]
        if error is not None or told:
            text = told[0] if told else str(error).strip().rsplit("\n", 1)[-1]
            if text.startswith("Cannot open file"):  # obspy found nothing in it
                text = "it has no whole record of samples"
            raise ValueError(text) from error
    length = min((trace.stats.mseed.record_length for trace in found), default=1)
    more = os.stat(path).st_size % length
    if more:
        raise CatalogError(
            f"file {path} is cut short: its last record has {more} of {length} bytes",
            hint="restore it or take it away",
        )
    return found


@cache
def _library() -> Any:
    """The library obspy. Raises CatalogError if it is not installed."""
    try:
        with _LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the modules that obspy imports
            import obspy
    except ImportError as error:
        raise CatalogError(
            f"MiniSEED files are read by the library obspy, which cannot be loaded: {error}",
            hint="pip install 'cql-streams[seismic]'",
        ) from error
    return obspy
