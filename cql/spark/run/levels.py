"""Whether parts of rows are worth a shuffle: their number, from a sample."""

from __future__ import annotations

import json
import math

from cql.errors import CqlError
from cql.spark.job.job import Job
from cql.spark.run.parts import Input
from cql.spark.task.levels import parts_of
from cql.spark.task.rows import Part

#: Rows for each part from which parts are worth their aggregation: fewer cost as much to shuffle as
#: the rows themselves.
WORTH_PARTS = 2.0


def rows_of_a_part(job: Job, one: Input, rows: int) -> float:
    """The number of rows for each part in a first task of ``rows`` rows, as the row group in the
    middle of the input lets expect it: its rows are aggregated here. Parts are thought to be drawn
    evenly from their possible values."""
    k = len(one.groups) // 2
    part = Part.from_json(json.loads(json.dumps(one.part([(k, True)]))))
    try:
        *_, (_, (_, _, _, report)) = parts_of(job, one.name, part, ())
    except CqlError:
        return 1.0  # the tasks will fail as this one did
    effort = json.loads(report)["effort"]
    values = _values(int(effort["rows_in"]), int(effort["rows_out"]))
    return rows / max(_among(rows, values), 1.0)


def _among(rows: int, values: float) -> float:
    """The number of distinct values among ``rows`` rows that draw them evenly."""
    return values * -math.expm1(-rows / values) if values else 0.0


def _values(rows: int, distinct: int) -> float:
    """The number of values from which ``rows`` rows draw ``distinct`` ones."""
    low, high = float(distinct), 1e18
    for _ in range(100):
        middle = math.sqrt(low * high) if low else 0.0
        if _among(rows, middle) < distinct:
            low = middle
        else:
            high = middle
    return low
