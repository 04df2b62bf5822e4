"""Tables whose times are given in seconds."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

SECOND = 1_000_000


def rows(**columns: list[Any]) -> pa.Table:
    """A table of the columns; ``ts`` and ``at`` are given in seconds."""
    made = {name: pa.array(values) for name, values in columns.items()}
    for name in ("ts", "at"):
        if name in columns:
            micros = [int(t * SECOND) for t in columns[name]]
            made[name] = pa.array(micros, pa.timestamp("us"))
    return pa.table(made)
