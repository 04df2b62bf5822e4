"""Constant rows of a query (VALUES) as morsels."""

from __future__ import annotations

from collections.abc import Iterator

from cql.executor.kernels.morsel_layout import END_OF_INPUT, INFINITY, PUNCTUATIONS, ROWS, SEQUENCE
from cql.executor.morsel.morsel import Morsel
from cql.executor.strings.dictionary import Dictionary
from cql.planner.nodes.expr import Value
from cql.planner.nodes.physical import ValuesExec


def morsels_of(node: ValuesExec, dictionary: Dictionary, room: int, ones: int) -> Iterator[Morsel]:
    """Morsels of at most ``room`` rows; the last one ends the input."""
    for first in range(0, len(node.rows), room):
        rows = node.rows[first : first + room]
        morsel = Morsel.allocate(node.schema, len(rows), ones=ones)
        morsel.words[ROWS], morsel.words[SEQUENCE] = len(rows), first
        for k, f in enumerate(node.schema):
            values = [row[k].value for row in rows]
            data, mask = morsel.data[k], morsel.masks[k]
            assert data is not None
            if f.type.is_coded:
                data[:] = dictionary.encode_values([_bytes(v) for v in values])
            else:
                data[:] = [v or 0 for v in values]
            if mask is not None:
                mask[:] = [v is not None for v in values]
        if first + room >= len(node.rows):
            morsel.words[PUNCTUATIONS] = 1
            morsel.punctuations[:3] = END_OF_INPUT, INFINITY, -1
        yield morsel


def _bytes(value: Value) -> bytes:
    return value if isinstance(value, bytes) else str(value or "").encode()
