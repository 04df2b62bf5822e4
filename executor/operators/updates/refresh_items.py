"""Which item of REFRESH a key is refreshed by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cql.base.call_timeout import TimeLimitError
from cql.base.model import Field
from cql.base.types import Kind
from cql.errors import RunError
from cql.executor.morsel.morsel import Words
from cql.executor.operators.updates.update_rows import Array, Mask
from cql.executor.strings.dictionary import Dictionary
from cql.planner.interpret.error import EvaluationError
from cql.planner.interpret.interpreter import evaluate
from cql.planner.nodes.expr import Value
from cql.planner.nodes.logical import RefreshItem


class RefreshItems:
    """``key``: the columns of the update key of the stream ``name``; ``dictionary`` has its texts.

    Conditions are evaluated once for each key that the queue does not know, by the interpreter."""

    def __init__(
        self, name: str, items: Sequence[RefreshItem], key: Sequence[Field], dictionary: Dictionary
    ) -> None:
        self._name, self._items, self._key = name, items, list(key)
        self._dictionary = dictionary

    def of(self, data: Sequence[Array], masks: Sequence[Mask | None]) -> Words:
        """For each of the keys with these columns, the number of the first item that holds; -1:
        none does."""
        columns = map(self._values, self._key, data, masks)
        return np.array([self._item(row) for row in zip(*columns, strict=True)], np.int64)

    def _values(self, field: Field, data: Array, mask: Mask | None) -> list[Any]:
        """The values of a column as the interpreter takes them."""
        if field.type.is_coded:
            texts: list[Any] = self._dictionary.decode(
                data, mask, field.type.to_arrow()
            ).to_pylist()
            return texts
        values: list[Any] = data.tolist()
        if field.type.kind is Kind.BOOLEAN:
            values = list(map(bool, values))
        if mask is None:
            return values
        return [v if valid else None for v, valid in zip(values, mask.tolist(), strict=True)]

    def _item(self, row: Sequence[Value]) -> int:
        for number, item in enumerate(self._items):
            if item.condition is None:
                return number
            try:
                holds = evaluate(item.condition, row)
            except EvaluationError as error:
                raise RunError(
                    f"REFRESH of stream {self._name}: {error.message}",
                    position=item.condition.pos,
                    hint="its conditions are evaluated for each key",
                ) from error
            except TimeLimitError as error:
                error.position = error.position or item.condition.pos
                raise
            if holds:
                return number
        return -1
