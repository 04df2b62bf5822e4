"""Files of samples: each has a rate, which is the rate of the stream. The files of a stream are one
signal: they agree in rate, channels and types."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction

import pyarrow as pa

from cql.base.model import Schema
from cql.catalog.convert import read_schema
from cql.errors import CatalogError
from cql.planner.nodes.catalog import Progress, StreamSpec


@dataclass(frozen=True, slots=True)
class Header:
    """What a file tells of its samples: ``hertz`` of each channel per second, and its columns."""

    hertz: float
    columns: pa.Schema


class SampledFormat(ABC):
    """A format of files of samples, for the files of one source. The first file, or the clause
    RATE, sets the rate that all files have; the first file also sets the columns."""

    #: The column with the times of the samples, if the format has one.
    times: str | None = None
    #: Files that are looked at before the first query; the others are checked when they are opened.
    looked_at = 1_000

    def __init__(self) -> None:
        self._first: tuple[str, Header] | None = None
        self._declared: float | None = None
        #: Notices about the files that were read. The source that passes a notice on removes it.
        self.notices: list[str] = []

    @abstractmethod
    def header(self, path: str) -> Header:
        """Raises CatalogError for a file that is damaged, or not of this format."""

    def infer(self, path: str, size: int) -> pa.Schema:
        del size
        return self.check(path)

    def check(self, path: str) -> pa.Schema:
        """The columns of a file. Raises CatalogError if it does not agree with the others."""
        header = self.header(path)
        if self._declared is not None and not _same(self._declared, header.hertz):
            raise CatalogError(
                f"RATE is {hertz(self._declared)} HZ, and file {path} has {hertz(header.hertz)}"
                " samples a second",
                hint="leave RATE out: the rate of the files is the rate of the stream",
            )
        if self._first is None:
            self._first = path, header
        other, first = self._first
        if not _same(first.hertz, header.hertz):
            raise CatalogError(
                f"file {path} has {hertz(header.hertz)} samples a second, and file {other} has"
                f" {hertz(first.hertz)}",
                hint="make a stream of the files of each rate",
            )
        if first.columns != header.columns:
            raise CatalogError(
                f"file {path} has the columns {_listed(header.columns, path)}, and file {other} has"
                f" {_listed(first.columns, other)}",
                hint="the files of a signal agree in channels and types: make a stream of each"
                " kind of files",
            )
        return header.columns

    def declare(self, spec: StreamSpec, schema: Schema) -> StreamSpec:
        """The clauses of a stream of these files with the columns ``schema``: their rate, and the
        order of their times if ``spec`` declares none. Raises CatalogError for another RATE, and
        without one if there is no file yet."""
        if spec.rate_hz is not None:
            self._declared = spec.rate_hz
            if self._first is not None:
                self.check(self._first[0])
        elif self._first is not None:
            self._declared = self._first[1].hertz
            spec = replace(spec, rate_hz=self._declared)
        else:
            raise CatalogError(
                "there is no file yet to tell the rate of the samples",
                hint="declare it, as in RATE 44100 HZ",
            )
        ordered = spec.progress or spec.computed_progress is not None
        if self.times is not None and not ordered and schema.find(self.times) is not None:
            spec = replace(
                spec, progress=(Progress(self.times, declared=f"ORDERED BY {self.times}"),)
            )
        return spec


def hertz(rate: float) -> str:
    return str(int(rate)) if float(rate).is_integer() else str(rate)


def _same(one: float, other: float) -> bool:
    return one == other or _exact(one) == _exact(other)


def _exact(rate: float) -> Fraction:
    """The rate as ``StreamSpec.rate`` has it."""
    return Fraction(str(rate)).limit_denominator(10**6)


def _listed(columns: pa.Schema, path: str) -> str:
    fields, unsupported = read_schema(columns, f"file {path}")
    return ", ".join([*(f"{f.name} {f.type}" for f in fields), *unsupported])
