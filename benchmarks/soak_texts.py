"""The soak of ever-new texts: request lines of 40 to 200 bytes, functions over them, and windows
and sessions by what these give. Each query runs depth first and, beside it, in order on two
workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import cql
from benchmarks.figure import Figure
from benchmarks.soak_samples import BATCH, DISORDER, paced, read, times
from benchmarks.texts import paths_of, request_lines

_NUMBER = "regexp_extract(line, '/([0-9]+[?]user=u[0-9]+)', 1)"
_PATH = "split_part(line, ' ', 2)"
#: ``line`` is new in each row of ``s``; ``k`` has few values.
TEXTS: Mapping[str, str] = {
    "upper": "SELECT ts, upper(line) AS u FROM s",
    "concat": "SELECT ts, concat(line, ' ', k) AS c FROM s",
    "regexp_extract": f"SELECT ts, {_NUMBER} AS r FROM s",
    "like": "SELECT ts, line FROM s WHERE line LIKE '%user=u9%'",
    "functions of codes": """SELECT k, upper(max(line)) AS u, concat(min(line), max(line)) AS c,
        regexp_extract(last(line), 'user=(u[0-9]+)', 1) AS r, window_end
        FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k""",
    "windows by upper": """SELECT upper(line) AS u, count(*) AS n, window_end
        FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY upper(line)""",
    "windows by regexp_extract": f"""SELECT {_NUMBER} AS r, count(*) AS n, max(line) AS high,
        window_end FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY {_NUMBER}""",
    "windows by split_part": f"""SELECT {_PATH} AS p, count(*) AS n, window_end
        FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY {_PATH}""",
    "sessions by upper": """SELECT upper(line) AS u, count(*) AS n, window_end
        FROM s [SESSION 2 SECONDS] GROUP BY upper(line)""",
    "sessions by regexp_extract": f"""SELECT {_NUMBER} AS r, last(line) AS l, window_end
        FROM s [SESSION 2 SECONDS] GROUP BY {_NUMBER}""",
}
RUNTIMES: Mapping[str, Mapping[str, Any]] = {
    "depth first": {"runtime": "depth_first"},
    "ordered": {"runtime": "ordered", "workers": 2},
}


def texts(seconds: float, only: Sequence[str] = ()) -> Figure:
    """All queries of TEXTS under all RUNTIMES at once."""
    names = [name for name in TEXTS if name in only or not only]
    with ExitStack() as sessions:
        queries: dict[str, Any] = {}
        for runtime, settings in RUNTIMES.items():
            session = sessions.enter_context(cql.connect(spark=False))
            session.create_stream(
                "s", rows, ordered_by="ts", slack=f"{DISORDER:g} seconds", bounded=False
            )
            for name, value in settings.items():
                session.set(name, value)
            queries |= {f"{name}, {runtime}": session.sql(TEXTS[name]) for name in names}
        return read("soak-texts", f"{len(queries)} queries over ever-new texts", queries, seconds)


def rows() -> Iterator[Any]:
    """Arrow batches of rows at a rate."""
    return paced(batch)


def batch(first: int) -> Any:
    """The batch of BATCH rows from row number ``first`` on."""
    rng = np.random.default_rng(first)
    number = np.arange(first, first + BATCH)
    lines = request_lines(pa.array(number).cast(pa.string()), _paths(), rng)
    return pa.record_batch(
        {
            "ts": times(number, rng),
            "k": pa.array(rng.integers(0, 10, BATCH)).cast(pa.string()),
            "line": lines,
        }
    )


@cache
def _paths() -> npt.NDArray[np.str_]:
    return paths_of(np.random.default_rng(5))
