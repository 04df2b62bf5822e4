"""LIKE and the searches of one text in another, for all rows of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cql.base.uninterruptible import load_module
from cql.executor.texts.column import Bytes, Column, Places, Status, Texts
from cql.executor.texts.functions.arguments import constant, texts_in
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.text import like_segments
from cql.planner.nodes.expr import Call

if TYPE_CHECKING:
    from cql.executor.texts.functions.table import Argument

Flags = npt.NDArray[np.uint8]


def _kernels() -> Any:
    return load_module("cql.executor.kernels.texts.search")


def _like(call: Call, args: Sequence[Argument], status: Status) -> Flags | None:
    text, pattern, *escape = args
    found = constant(pattern)
    if found is None or not isinstance(text, Column):
        return None
    return matches(text.values, found, constant(escape[0]) if escape else "\\")


def matches(texts: Any, pattern: str, escape: str | None) -> Flags | None:
    """Which texts are LIKE the pattern; None for a pattern that is an error."""
    if escape is None:
        return None
    try:
        runs, bounds, plain = _runs(pattern, escape)
    except EvaluationError:
        return None
    out = np.empty(len(texts), np.uint8)
    kernels = _kernels()
    sizes = np.diff(bounds)
    if plain.all() and sizes.size in (2, 3):
        only = runs if np.count_nonzero(sizes) == 1 else None
        if only is not None and sizes.size == 3 and sizes[1]:
            return contained(texts, only.tobytes().decode())
        if only is not None and sizes.size == 2:
            kernel = kernels.starts_with if sizes[0] else kernels.ends_with
            kernel(texts.data, texts.starts, texts.ends, only, out)
            return out
    kernels.like(texts.data, texts.starts, texts.ends, runs, bounds, plain, out)
    return out


@lru_cache(maxsize=1024)
def _runs(pattern: str, escape: str) -> tuple[Bytes, Places, Flags]:
    """The runs of a LIKE pattern as the kernel takes them. Raises EvaluationError."""
    runs = [run for run in like_segments(pattern, escape) if run is not None]
    coded = [b"".join(b"\xff" if c is None else c.encode() for c in run) for run in runs]
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(run) for run in coded])])
    plain = np.array([None not in run for run in runs], np.uint8)
    return np.frombuffer(b"".join(coded), np.uint8), bounds.astype(np.int64), plain


#: The tests for a part, as ``has_part`` numbers them.
_TESTS = ("starts_with", "ends_with", "contains")


def _part(search: str) -> Callable[[Call, Sequence[Argument], Status], Flags | None]:
    """A test of the text in the first argument for a part."""

    def test(call: Call, args: Sequence[Argument], status: Status) -> Flags | None:
        texts, part = texts_in(args[0], status.size), constant(args[1])
        if texts is None:
            return None
        out = np.ones(len(texts), np.uint8)
        if part is None:
            parts = texts_in(args[1], status.size)
            if parts is None:
                return None
            _kernels().has_part(
                texts.data, texts.starts, texts.ends, parts.data, parts.starts, parts.ends,
                _TESTS.index(search), out,
            )  # fmt: skip
            return out
        if search == "contains":
            return contained(texts, part)
        needle = np.frombuffer(part.encode(), np.uint8)
        if needle.size:
            getattr(_kernels(), search)(texts.data, texts.starts, texts.ends, needle, out)
        return out

    return test


def contained(texts: Texts, part: str) -> Flags:
    """Which texts contain ``part``."""
    out, needle = np.ones(len(texts), np.uint8), np.frombuffer(part.encode(), np.uint8)
    if needle.size and texts.is_dense:
        _kernels().contains(texts.data, texts.starts, texts.ends, needle, out)
    elif needle.size:
        bounds, plain = np.array([0, 0, needle.size, needle.size]), np.ones(3, np.uint8)
        _kernels().like(texts.data, texts.starts, texts.ends, needle, bounds, plain, out)
    return out


BLOCKS = {
    "like": _like,
    "contains": _part("contains"),
    "startswith": _part("starts_with"),
    "endswith": _part("ends_with"),
}
