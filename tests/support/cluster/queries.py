"""The driver of ``test_cluster``: each query file that tasks can share, in tasks on a cluster.

    python -m tests.support.cluster.queries FOLDER

Prints lines of JSON: whether each executor had the library before, then for each query what is
wrong, then from where each executor has the library."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.cluster.start import session
from tests.support.query_tables import COUNTS, SHARED, SharedQuery


def library(_: Iterable[int]) -> Iterator[str]:
    """Where a worker has this library from; empty if it has none."""
    try:
        yield str(importlib.import_module("cql").__file__)
    except ModuleNotFoundError:
        yield ""


def places(spark: Any) -> list[str]:
    context = spark.sparkContext
    found: list[str] = context.parallelize(range(8), 8).mapPartitions(library).collect()
    return found


def wrong(spark: Any, folder: Path, name: str) -> str:
    """What is wrong with the runs of a query; empty if nothing is."""
    query = SharedQuery(spark, folder, name)
    try:
        for by in query.ways:
            for tasks in COUNTS:
                if found := query.check(tasks, by):
                    return f"by {by} in {tasks} tasks: {found}"
        return ""
    finally:
        query.close()


def main(folder: Path) -> None:
    spark = session(folder)
    print(json.dumps(places(spark)), flush=True)
    for name in SHARED:
        try:
            print(json.dumps([name, wrong(spark, folder / "tables", name)]), flush=True)
        except Exception as error:  # the others run, too
            print(json.dumps([name, f"{type(error).__name__}: {error}"]), flush=True)
    print(json.dumps(places(spark)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
