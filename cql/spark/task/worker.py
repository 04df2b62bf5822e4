"""The tasks of placements without a shuffle, as Spark's Python workers run them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cql.errors import CqlError
from cql.planner.nodes.statements import Name
from cql.query.run import Run
from cql.spark.job.job import Job
from cql.spark.task.rows import LookedUp, Part, PartSource, Shipped, pieces_of, timed
from cql.spark.task.sent import ERROR, Effort, Sent, counts_of, error_to_json, results
from cql.spark.task.task import in_worker, job_from, run_of


@in_worker
def run_tasks(
    job: str, looked_up: Shipped, timed_run: bool, tasks: Iterable[str]
) -> Iterator[Sent]:
    """Runs the tasks of one partition. ``looked_up``: the rows of inputs that are no tables of
    files; ``timed_run``: measures the time of the operators. An error of ours is sent, so that
    Spark does not try the task again."""
    for task in tasks:
        try:
            yield from _run_task(job_from(job), looked_up.value, timed_run, json.loads(task))
        except CqlError as error:
            yield ERROR, error_to_json(error)


def open_task(
    job: Job, looked_up: LookedUp, task: Mapping[str, Any]
) -> tuple[Run, Mapping[Name, PartSource]]:
    """The run of a task, and the parts that it reads, by their names in the text."""
    parts: dict[Name, PartSource] = {}
    for name, described in task["parts"]:
        relation = job.relations[tuple(name)]
        assert relation is not None
        parts[tuple(name)] = PartSource(relation, Part.from_json(described))
    sources = pieces_of(job, looked_up)
    sources |= {name: timed(name, part, part.time) for name, part in parts.items()}
    return run_of(job, sources, task["low"], task["high"]), parts


def _run_task(
    job: Job, looked_up: LookedUp, timed_run: bool, task: Mapping[str, Any]
) -> Iterator[Sent]:
    effort = Effort()
    run, parts = open_task(job, looked_up, task)
    run.timed = timed_run
    yield from results(
        run, effort, lambda: [[n, list(map(counts_of, part.counted))] for n, part in parts.items()]
    )
