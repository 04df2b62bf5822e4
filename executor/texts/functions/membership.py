"""IN with a list of texts, for all rows of a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cql.base.uninterruptible import load_module
from cql.executor.texts.column import NULL, VALID, Column, Status, Texts, texts_from
from cql.planner.nodes.expr import Call, Literal

if TYPE_CHECKING:
    from cql.executor.texts.functions.table import Argument


def _in_list(call: Call, args: Sequence[Argument], status: Status) -> npt.NDArray[Any] | None:
    """The value of the first argument is NULL, in the list, unknown beside a NULL, or not there."""
    value, *items = args
    if not isinstance(value, Column) or not isinstance(value.values, Texts):
        return None
    literals = [item.value if isinstance(item, Literal) else 0 for item in items]
    known = [x.encode() if isinstance(x, str) else x for x in literals]
    members = texts_from([x for x in known if isinstance(x, bytes)])
    if len(members) + known.count(None) < len(known):
        return None
    places = members.data, members.starts, members.ends
    kernels = load_module("cql.executor.kernels.texts.membership")
    slots = np.zeros(1 << (2 * len(members)).bit_length(), np.int64)
    kernels.build(*places, slots)
    texts = value.values
    out = np.empty(len(texts), np.uint8)
    kernels.contained(*places, slots, texts.data, texts.starts, texts.ends, out)
    unknown = value.status == NULL
    if None in known:
        unknown |= out == 0
    status[unknown & (status == VALID)] = NULL
    return out


BLOCKS = {"in_list": _in_list}
