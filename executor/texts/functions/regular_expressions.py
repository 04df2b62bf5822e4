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


def _texts(arg: Argument, status: Status) -> pa.Array | None:
    """The texts of the VALID rows; NULL for the others."""
    if not isinstance(arg, Column) or not isinstance(arg.values, Texts):
        return None
    return to_arrow(arg.values, status, pa.string())


def _rlike(call: Call, args: Sequence[Argument], status: Status) -> npt.NDArray[Any] | None:
    texts, pattern = _texts(args[0], status), constant(args[1])
    if texts is None or pattern is None:
        return None
    assert isinstance(args[0], Column)
    assert isinstance(args[0].values, Texts)
    try:
        if shared := args[0].extractions.get(pattern):
            return _bytes(_parts(shared[0], texts, pattern).is_valid())
        part, rows = required_text(pattern), None
        if len(part) >= _LEAST:
            rows = np.flatnonzero(contained(args[0].values, part))
        if rows is None or rows.size > _MOST * len(texts):
            return _bytes(pc.match_substring_regex(texts, pattern=pattern))
        chosen = texts.take(pa.array(rows)) if rows.size else _EMPTY
        found = _bytes(pc.match_substring_regex(chosen, pattern=pattern))
    except (pa.ArrowInvalid, EvaluationError):
        return None
    out = np.zeros(len(texts), np.uint8)
    out[rows] = found[: rows.size]
    return out


def _extract(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    texts, pattern = _texts(args[0], status), constant(args[1])
    group = args[2].value if isinstance(args[2], Literal) else None
    if texts is None or pattern is None or not isinstance(group, int):
        return None
    assert isinstance(args[0], Column)
    shared = (e for e in args[0].extractions.get(pattern, ()) if group in e.groups)
    try:
        found = _parts(next(shared, Extraction((group,))), texts, pattern)
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


def _parts(shared: Extraction, texts: pa.Array, pattern: str) -> pa.StructArray:
    """Raises ArrowInvalid or EvaluationError for a pattern that is not valid."""
    if shared.parts is None:
        shared.parts = pc.extract_regex(texts, pattern=extraction(pattern, shared.groups))
    return shared.parts


def _replace(call: Call, args: Sequence[Argument], status: Status) -> Texts | None:
    texts, pattern, new = _texts(args[0], status), constant(args[1]), constant(args[2])
    if texts is None or pattern is None or new is None:
        return None
    texts = texts.fill_null("")
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
