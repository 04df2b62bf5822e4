"""Common parts of reading any file: errors that name the file, and starting at a given row."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator

import pyarrow as pa

from cql.catalog.memory.rows import Rows
from cql.errors import CatalogError


@contextlib.contextmanager
def guarded(path: str, place: str = "") -> Iterator[None]:
    """Turns any error of a damaged or vanished file into a CatalogError that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise CatalogError(
            f"file {path} is gone", hint="put it back, or start the query anew without it"
        ) from error
    except PermissionError as error:
        raise CatalogError(
            f"file {path} may not be read", hint="its owner has to grant read permission"
        ) from error
    except (pa.ArrowException, OSError, EOFError, zlib.error, ValueError) as error:
        raise CatalogError(
            f"file {path}{place} cannot be read: {_first_line(error)}",
            hint=remedy(error, "restore it or take it away"),
        ) from error


def remedy(error: BaseException, damaged: str) -> str:
    """The remedy for a file that cannot be read; ``damaged`` is the one for damaged bytes."""
    text = str(error)
    if "timestamp[" in text and ("lose data" in text or "out of bounds" in text):
        return (
            "its times are finer than the microseconds that the engine keeps, or outside of the "
            "years that these hold: write the column rounded"
        )
    return f"the file is damaged or of another format: {damaged}"


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).split("\n", 1)[0]


def skipped(parts: Iterator[Rows], skip: int, path: str) -> Iterator[Rows]:
    """The parts without their first ``skip`` rows. Raises CatalogError if there are fewer rows."""
    seen = 0
    for part in parts:
        before = min(max(skip - seen, 0), part.count)
        seen += part.count
        if before < part.count:
            yield part.slice(before) if before else part
    if seen < skip:
        raise too_short(path, seen, skip)


def too_short(path: str, rows: int, skip: int) -> CatalogError:
    return CatalogError(
        f"file {path} has {rows} rows, and the query had read {skip} of it",
        hint="the file was replaced: start the query anew",
    )


def trusted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, after a check of its texts and codes. Arrow's readers do not check these, and
    kernels follow offsets and codes blindly. Raises ArrowInvalid."""
    for column in batch.columns:
        if not pa.types.is_primitive(column.type):
            column.validate(full=True)
    return batch
