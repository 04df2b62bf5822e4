"""The result of a query as a DataFrame of Spark, whose tasks run when Spark reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from cql.catalog.spark.result import accumulator_by_task, frame_of_streams, frame_of_table
from cql.planner.nodes.physical import PhysicalPlan
from cql.planner.placement.scale_out import chosen
from cql.query.query import import_extra
from cql.spark.job.job import Job
from cql.spark.run.driver import SparkRun, error_of
from cql.spark.task.sent import ERROR, ROWS, Sent


class FrameRun(SparkRun):
    """The run behind a DataFrame: its figures are those of the tasks that have ended since Spark
    first read the frame."""

    def __init__(self, plan: PhysicalPlan, job: Job) -> None:
        super().__init__(plan, job, int(job.settings.get("partitions", 0)))
        self._schema, self._text = plan.root.schema.to_arrow(), job.text
        self._accumulated: Any = None

    def frame(self) -> Any:
        """The DataFrame. Lists the files that it will read. Raises NotSupportedError for a plan or
        a source that tasks cannot share."""
        chosen(self._shared.plan, "auto")
        made = self._tasks.make(self.on_notice, timed=False)
        if made is None:
            return frame_of_table(self._schema.empty_table())
        import_extra("pandas")
        self._accumulated = accumulator_by_task(self._tasks.session)
        rows = made.mapPartitionsWithIndex(partial(_rows, self._accumulated, self._text))
        return frame_of_streams(self._tasks.session, rows, self._schema)

    def _all_reports(self) -> list[dict[str, Any]]:
        return [] if self._accumulated is None else list(self._accumulated.value.values())


def _rows(accumulated: Any, text: str, task: int, found: Iterable[Sent]) -> Iterator[tuple[bytes]]:
    """The rows that a task sends; its report goes to the driver."""
    for kind, sent in found:
        if kind == ROWS:
            yield (sent,)
        elif kind == ERROR:
            raise error_of(json.loads(sent)).with_text(text)
        else:
            accumulated.add({task: json.loads(sent)})
