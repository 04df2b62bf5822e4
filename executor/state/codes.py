"""Dictionary codes in the state of a query, and their renumbering."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

#: Codes of the query's dictionary, -1 for none.
CodeColumn: TypeAlias = npt.NDArray[np.int32]
#: Gives each code its new one. It returns its argument itself if all codes stay.
Change: TypeAlias = Callable[[CodeColumn], CodeColumn]


@dataclass(frozen=True, slots=True)
class Codes:
    """Words with codes: those of ``column``, an array of the state or a view of one, at the entries
    ``held`` (``...``: at all). The other entries hold anything. ``shift``: the lowest bit of the
    code in a word that other parts of a key share (``codegen.key_packing``)."""

    column: npt.NDArray[Any]
    held: npt.NDArray[Any] | EllipsisType = ...
    shift: int = 0


def not_null(
    column: npt.NDArray[Any], mask: npt.NDArray[Any] | None, held: npt.NDArray[np.integer[Any]]
) -> Codes:
    """The codes at the entries ``held``, but for NULLs: 0 in ``mask`` (None: there are none)."""
    return Codes(column, held if mask is None else held[mask[held] != 0])


def renumber(found: Iterable[Codes], change: Change) -> bool:
    """Replaces all codes by ``change(codes)``. Returns whether they may have changed."""
    changed = False
    for codes in found:
        words = codes.column[codes.held]
        old = (words >> codes.shift).astype(np.int32)
        new = change(old)
        if new is not old:
            codes.column[codes.held] = words + ((new.astype(np.int64) - old) << codes.shift)
            changed = True
    return changed


class HoldsCodes(Protocol):
    def map_codes(self, change: Change) -> None:
        """Replaces all dictionary codes by ``change(codes)``."""
        ...
