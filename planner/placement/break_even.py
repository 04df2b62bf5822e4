"""The number of rows from which tasks on Spark's executors end sooner than a run in this process.

Tasks cost more processor time than a run here, which more cores share, and a job of tasks starts
slowly. With times in nanoseconds per row, the job ends sooner if ::

    rows * here  >  START + max(rows / cores, TASK_ROWS) * task + rows * RESULT * result

The figures were measured on two cores with ``benchmarks.spark_tasks``: Parquet tables of three
columns with 8 and 32 million rows, the processor time of all processes, warm. The difference of the
two tables is the time per row.
"""

from __future__ import annotations

import math

from cql.planner.placement.cost import Cost

#: Rows of a task, unless a setting gives the number of tasks.
TASK_ROWS = 2_000_000
#: Seconds: 1 for any job, 3 for the first one, which starts the Python workers.
START = 4.0
#: Nanoseconds to read one column of a row from Parquet (11 to 14 for filters of three columns).
READ = 11.0
#: Measured nanoseconds for each nanosecond of ``cost``, which leaves out misses of the caches
#: (1.5 for a filter, 2.3 for a count by key, 3 to 4 for sessions and functions of doubles).
WORK = 2.5
#: Nanoseconds per row that a task takes beside the plan: it plans, loads kernels, reads the times a
#: second time and packs the results (58 for a count of 1,024 groups that takes 39 here).
TASK = 20.0
#: Further nanoseconds per row to split, shuffle and merge the rows by key, and to aggregate them in
#: part and merge the parts.
SHUFFLE, PARTS = 290.0, 25.0
#: Nanoseconds per row of the result to receive it from the tasks, one after another (180 of all
#: processes, for rows of three columns).
RESULT = 100.0


def in_process(work: float, columns: float) -> float:
    """Nanoseconds per row of a run in this process. ``work`` are those of ``cost``, shared by the
    workers of the run; ``columns`` is the number of columns that are read."""
    return READ * columns + WORK * work


def in_tasks(found: Cost, columns: float, readings: float, shuffle: float) -> float:
    """Nanoseconds of processor time per row of all tasks. ``readings``: how often tasks read a row,
    on average; ``shuffle``: SHUFFLE, PARTS or 0."""
    return readings * (in_process(found.row, columns) + TASK) + shuffle


def break_even(here: float, task: float, result: float, cores: int) -> int | None:
    """The number of rows from which tasks end sooner; None if they never do.

    ``here`` and ``task`` are nanoseconds per row, of ``in_process`` and ``in_tasks``; ``result`` is
    the number of result rows for each row; ``cores`` those of the executors."""
    left = here - RESULT * result
    if left <= task / cores:
        return None
    start = START * 1e9
    return math.ceil(max(start / (left - task / cores), (start + TASK_ROWS * task) / left))


def readings_by_time(tasks: float, reach: int, extent: tuple[int, int]) -> float:
    """How often tasks by time read a row, on average: a row group is read by each task whose range,
    with ``reach`` around it, meets the times of the group. ``extent`` as in ``Statistics``."""
    whole, group = extent
    return min(1 + tasks * (reach + group) / max(whole, 1), max(tasks, 1.0))
