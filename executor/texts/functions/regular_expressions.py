"""Regular expressions for all rows of a block: RE2, through pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cql.executor.texts.column import (
    Column,
    Extraction,
    Status,
    Texts,
    texts_of,
    to_arrow,
)
from cql.executor.texts.functions.arguments import constant
from cql.executor.texts.functions.required_text import required_text
from cql.executor.texts.functions.search import contained
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.text import MAX_REPEAT, extraction, replacement_of
from cql.planner.nodes.expr import Call, Literal

if TYPE_CHECKING:
    from cql.executor.texts.functions.table import Argument


#: A part that every match has is sought first if it has so many characters, and the pattern is then
#: sought in the texts that have it, if they are at most this share.
_LEAST, _MOST = 2, 0.5
#: A text in which a pattern is sought that is sought in no other one, to tell whether it is valid.
_EMPTY = pa.array([""])
#: The most groups with which RE2 takes its fastest way (one pass): a fifth group doubles the time.
_TOGETHER = 4


def _column(arg: Argument) -> Column | None:
    """The argument if it is a column of texts."""
    return arg if isinstance(arg, Column) and isinstance(arg.values, Texts) else None


def _array(column: Column, status: Status) -> pa.Array:
    """The texts of the VALID rows; NULL for the others."""
    assert isinstance(column.values, Texts)
    return to_arrow(column.values, status, pa.string())


def _rlike(call: Call, args: Sequence[Argument], status: Status) -> npt.NDArray[Any] | None:
    column, pattern = _column(args[0]), constant(args[1])
    if column is None or pattern is None:
        return None
    try:
        if shared := column.extractions.get(pattern):
            return _bytes(_parts(shared[0], column, status, pattern).is_valid())
        return _matches(column, status, pattern)
    except (pa.ArrowInvalid, EvaluationError):
        return None


def _matches(column: Column, status: Status, pattern: str) -> npt.NDArray[Any]:
    """Raises ArrowInvalid for a pattern that is not valid."""
    texts, part, rows = _array(column, status), required_text(pattern), None
    if len(part) >= _LEAST:
        rows = np.flatnonzero(contained(texts_of(texts), part))
    if rows is None or rows.size > _MOST * len(texts):
        return _bytes(pc.match_substring_regex(texts, pattern=pattern))
    chosen = texts.take(pa.array(rows)) if rows.size else _EMPTY
    found = _bytes(pc.match_substring_regex(chosen, pattern=pattern))
    out = np.zeros(len(texts), np.uint8)
    out[rows] = found[: rows.size]
    return out


def _extract(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    column, pattern = _column(args[0]), constant(args[1])
    group = args[2].value if isinstance(args[2], Literal) else None
    if column is None or pattern is None or not isinstance(group, int):
        return None
    shared = (e for e in column.extractions.get(pattern, ()) if group in e.groups)
    try:
        found = _parts(next(shared, Extraction((group,))), column, status, pattern)
    except (pa.ArrowInvalid, EvaluationError):
        return None
    # NULL where the pattern is not found
    return texts_of(pc.struct_field(found, f"found{group}").fill_null(""))


def extractions(wanted: Mapping[str, Iterable[int]]) -> dict[str, list[Extraction]]:
    """For the groups that are ``wanted`` of each pattern, which of them are extracted together."""
    return {
        pattern: [Extraction(groups) for groups in _in_lots(sorted(set(some)))]
        for pattern, some in wanted.items()
    }


def _in_lots(groups: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for first in range(0, len(groups), _TOGETHER):
        yield tuple(groups[first : first + _TOGETHER])


def _parts(shared: Extraction, column: Column, status: Status, pattern: str) -> pa.StructArray:
    """Raises ArrowInvalid or EvaluationError for a pattern that is not valid."""
    if shared.parts is None:
        named = extraction(pattern, shared.groups)
        shared.parts = pc.extract_regex(_array(column, status), pattern=named)
    return shared.parts


def _replace(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    column, pattern, new = _column(args[0]), constant(args[1]), constant(args[2])
    if column is None or pattern is None or new is None:
        return None
    texts = _array(column, status).fill_null("")
    lengths = pc.binary_length(texts)
    longest = int(pc.max(lengths).as_py() or 0)
    if (longest + 1) * (len(new) + longest * new.count("$")) > MAX_REPEAT:
        return None
    try:
        made = pc.replace_substring_regex(texts, pattern=pattern, replacement=replacement_of(new))
    except (pa.ArrowInvalid, EvaluationError):
        return None
    return texts_of(made)


def _bytes(found: pa.Array) -> npt.NDArray[Any]:
    """Booleans as bytes; 0 for NULL."""
    made: npt.NDArray[Any] = found.fill_null(False).to_numpy(zero_copy_only=False)
    return made.view(np.uint8)


BLOCKS = {"rlike": _rlike, "regexp_extract": _extract, "regexp_replace": _replace}
