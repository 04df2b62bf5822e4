"""The output columns of joins that keep the rows of both sides in slabs
(``kernels.joins.pair_rows``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cql.base.model import Schema
from cql.executor.morsel.morsel import Words


def output_words(columns: Sequence[int], output: Schema, width: int) -> Words:
    """The words of the output ``columns``, each a column of the left side, which has ``width``, or
    behind them of the right side."""
    made = [
        (c >= width, c - width if c >= width else c, output[k].nullable)
        for k, c in enumerate(columns)
    ]
    return np.array(made, np.int64).reshape(-1)
