"""A process that is forked while a query runs ends cleanly, does not touch its parent's resources,
and may run queries of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from cql.errors import RunError
from cql.query.sink_writer import Publisher
from tests.support.fake_run import FakeRun, batch

#: Forks once per entry of ``children``, in the middle of a run; the parent then reads on.
SCRIPT = """
import atexit, os, signal, sys, threading
import pyarrow as pa
import cql
from cql.base import uninterruptible
from cql.catalog.spark import session as spark_session

ROWS, TEXT = 2000, "SELECT ts, v FROM s WHERE v >= 0"
forked = threading.Event()

def rows():
    for i in range(ROWS):
        if i == 1000:
            forked.wait(60)
        yield {"ts": i, "v": i}

def refused(query, batches):
    try:
        next(batches)
    except cql.CqlError as error:
        assert "belongs to the process that this one was forked from" in str(error), error
    else:
        raise AssertionError("it went on")

def runs(query, batches):
    assert session.sql(TEXT).to_arrow().num_rows == ROWS

class Spark:
    def stop(self):
        os._exit(9)

class Own:
    session = Spark()

children = {
    "leaves": lambda query, batches: sys.exit(0),
    "reads": refused,
    "closes": lambda query, batches: batches.close(),
    "stops": lambda query, batches: query.stop(),
    "ends the session": lambda query, batches: session.close(),
    "compiles": lambda query, batches: uninterruptible.uninterruptible(lambda: None),
    "has no Spark": lambda query, batches: spark_session.stop(),
    "runs": runs,
}
for runtime, source in (("ordered", "table"), ("ordered", "live"), ("depth_first", "live")):
    session = cql.connect(False, runtime=runtime, workers=2 if runtime == "ordered" else 0)
    session.set("morsel_rows", 16)
    table = rows if source == "live" else pa.table({"ts": range(ROWS), "v": range(ROWS)})
    session.create_stream("s", table, ordered_by="ts", unit="seconds", bounded=source == "table")
    for name, does in children.items():
        if (source == "live" and name == "runs") or (source == "table") < (name == "leaves"):
            continue  # the iterable would wait for the parent; and an exit takes seconds
        forked.clear()
        query = session.sql(TEXT)
        batches = query.batches()
        taken = next(batches).num_rows
        if name == "compiles":
            uninterruptible._at_work.acquire()
        if name == "has no Spark":
            spark_session._own = Own()
        pid = os.fork()
        if pid == 0:
            signal.alarm(120)  # ends a process that hangs
            try:
                does(query, batches)
                del query, batches
                atexit._run_exitfuncs()
            except Exception as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        if name == "compiles":
            uninterruptible._at_work.release()
        spark_session._own = None
        _, status = os.waitpid(pid, 0)
        forked.set()
        taken += sum(batch.num_rows for batch in batches)
        print(runtime, source, name, status, taken, query.status)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it has no fork")
def test_a_process_that_is_forked_within_a_run() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (ended.stderr, ended.returncode) == ("", 0)
    both = ("reads", "closes", "stops", "ends the session", "compiles", "has no Spark")
    done = [f"ordered table {name}" for name in ("leaves", *both, "runs")]
    done += [f"{runtime} live {name}" for runtime in ("ordered", "depth_first") for name in both]
    assert ended.stdout.splitlines() == [f"{name} 0 2000 finished" for name in done]


def test_a_forked_process_publishes_nothing() -> None:
    """The open epoch and its staged file belong to the parent process."""
    steps: list[str] = []

    class Recording:
        """A sink that records the name of each call."""

        def __getattr__(self, step: str) -> Callable[..., None]:
            return lambda *given: steps.append(step)

    run: Any = FakeRun()
    for leave in (Publisher.commit, Publisher.abandon):
        publisher = Publisher(Recording(), None, lambda rows: None, run)  # type: ignore[arg-type]
        with publisher:
            publisher.write(batch(1))
            publisher._process += 1  # simulates another process id
            with pytest.raises(RunError, match="belongs to the process that this one was forked"):
                publisher.write(batch(2))
            leave(publisher)
    assert steps == ["begin", "write"] * 2
