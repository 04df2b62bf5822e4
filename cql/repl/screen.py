"""A query on a terminal: live results, progress, and Ctrl-C within a second.

The query runs in its own thread; the terminal's thread only waits and draws. So the terminal's
thread always receives Ctrl-C, whether the query compiles, runs a kernel, or waits for the JVM.
"""

from __future__ import annotations

import _thread
import queue
import select
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from cql.query.query import Query
from cql.query.query_set import QuerySet
from cql.show import render

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console, RenderableType
    from rich.live import Live

    from cql.query.run import Progress

#: In seconds: the interval between two looks at the query, and the maximal wait for its end after
#: Ctrl-C.
TICK = 0.1
PATIENCE = 0.8
#: Seconds after which a bounded query shows its progress.
QUIET = 1.0
#: An event time this many seconds from now belongs to a replay or a generator, not to a clock.
_PAST = 30 * 86_400.0
#: Maximal number of rows shown of a bounded result.
SHOWN_ROWS = 40


class Stopped(Exception):  # noqa: N818 - not an error: the user pressed Ctrl-C
    """Ctrl-C has stopped the query; ``lingering`` if the query has not ended yet."""

    def __init__(self, lingering: bool) -> None:
        super().__init__("stopped")
        self.lingering = lingering


class Feed:
    """Runs ``query`` in a thread and queues its batches, at most 8 ahead of the reader."""

    def __init__(self, query: Query | QuerySet) -> None:
        self.query = query
        self._queue: queue.Queue[pa.RecordBatch | None] = queue.Queue(maxsize=8)
        self._abandoned = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def start(self) -> Feed:
        # Not threading.Thread: Ctrl-C during its start breaks its lock.
        _thread.start_new_thread(self._work, ())
        return self

    def _work(self) -> None:
        try:
            if isinstance(self.query, QuerySet) or self.query.is_insert:
                self.query.insert()
            else:
                for batch in self.query:
                    if not self._put(batch):
                        return
        except BaseException as error:  # the reader of the batches raises the error
            self._error = error
        finally:
            self._put(None)
            self._ended.set()

    def _put(self, batch: pa.RecordBatch | None) -> bool:
        while not self._abandoned.is_set():
            try:
                self._queue.put(batch, timeout=TICK)
                return True
            except queue.Full:
                continue
        return False

    def __iter__(self) -> Iterator[pa.RecordBatch | None]:
        """Yields the batches, and None after each ``TICK`` without a batch. Raises the query's
        error."""
        while True:
            try:
                batch = self._queue.get(timeout=TICK)
            except queue.Empty:
                yield None
                continue
            if batch is None:
                break
            yield batch
        if self._error is not None:
            raise self._error

    def stop(self) -> bool:
        """Requests the end of the query; False if it has not ended after ``PATIENCE`` seconds (it
        then ends later)."""
        self._abandoned.set()
        self.query.stop(timeout=0)
        return self._ended.wait(PATIENCE)


class Screen:
    """Draws queries on ``console``; ``progress`` is the setting (auto, on, off).

    ``expanded`` shows one column per line; None means that there is no shell with a command for
    it."""

    def __init__(
        self, console: Console, progress: str = "auto", *, expanded: bool | None = None
    ) -> None:
        self._console = console
        self._expanded = expanded
        self._live = progress == "on" or (progress == "auto" and console.is_terminal)

    def present(self, query: Query | QuerySet) -> None:
        """Runs ``query`` and shows its result. Raises the query's error, and Stopped after
        Ctrl-C."""
        if isinstance(query, QuerySet):
            self._set(query)
        elif query.is_insert and query._live:
            query.start()
            name = query.name
            self._console.print(
                f"{name} runs in the background: SHOW QUERIES, STOP QUERY {name}", style="dim"
            )
        elif query.is_insert:
            self._insert(query)
        elif query._live:
            self._unbounded(query)
        else:
            self._bounded(query)

    def stream(self, query: Query, out: IO[str]) -> Iterator[pa.RecordBatch]:
        """Yields the batches of a SELECT to a caller that writes them to ``out``; draws progress.

        Raises BrokenPipeError as soon as ``out`` has no reader, even while no rows arrive."""
        with _running(query) as feed, self._drawing(transient=True) as live:
            began = time.monotonic()
            for batch in feed:
                if has_no_reader(out):
                    raise BrokenPipeError
                if batch is not None:
                    yield batch
                self._draw_progress(live, query, began)

    def _set(self, queries: QuerySet) -> None:
        if not queries._live:
            with _running(queries) as feed, self._drawing(transient=True) as live:
                began = time.monotonic()
                for _ in feed:
                    self._draw_progress(live, queries.queries[0], began)
        else:
            queries.start()
        queries._result()._print_to(self._console)

    def _insert(self, query: Query) -> None:
        with _running(query) as feed, self._drawing(transient=True) as live:
            began = time.monotonic()
            for _ in feed:
                self._draw_progress(live, query, began)
        self._console.print(query.summary(), style="dim")

    def _bounded(self, query: Query) -> None:
        import pyarrow as pa

        kept: list[pa.RecordBatch] = []
        rows = 0
        with _running(query) as feed, self._drawing(transient=True) as live:
            began = time.monotonic()
            for batch in feed:
                if has_no_reader(self._console.file):
                    raise BrokenPipeError
                if batch is not None:
                    if rows < SHOWN_ROWS:
                        kept.append(batch.slice(0, SHOWN_ROWS - rows))
                    rows += batch.num_rows
                self._draw_progress(live, query, began)
        table = pa.Table.from_batches(kept, schema=query.schema.to_arrow())
        if table.num_columns:
            self._console.print(self._rows(table))
        hidden = f" (the first {SHOWN_ROWS} are shown)" if rows > SHOWN_ROWS else ""
        self._console.print(query.summary() + hidden, style="dim")

    def _unbounded(self, query: Query) -> None:
        import pyarrow as pa

        last: deque[pa.RecordBatch] = deque()
        schema = query.schema.to_arrow()
        shown = max(3, shutil.get_terminal_size().lines - 8)
        if self._expanded:
            shown = max(1, shown // (len(schema) + 1))
        if self._live:
            self._console.print("Ctrl-C stops the query", style="dim")
        with _running(query) as feed, self._drawing(transient=False) as live:
            drawn = 0.0
            for batch in feed:
                if has_no_reader(self._console.file):
                    raise BrokenPipeError
                if batch is not None:
                    _keep_last(last, batch, shown)
                now = time.monotonic()
                if live is not None and now - drawn >= TICK:
                    drawn = now
                    table = pa.Table.from_batches(list(last), schema=schema)
                    live.update(self._live_table(table, query), refresh=True)
            table = pa.Table.from_batches(list(last), schema=schema)
            if live is not None:
                live.update(self._live_table(table, query), refresh=True)
        if live is None:
            self._console.print(self._rows(table))
        self._console.print(query.summary(), style="dim")

    def _rows(self, table: pa.Table) -> RenderableType:
        if self._expanded and table.num_rows:
            return render.records(table)
        remedy = "" if self._expanded is None else " (\\x shows one column a line)"
        return render.rich_table(table, width=self._console.width, remedy=remedy)

    def _live_table(self, table: pa.Table, query: Query) -> RenderableType:
        return render.stack(self._rows(table), _status(query, self._console.width))

    def _draw_progress(self, live: Live | None, query: Query, began: float) -> None:
        if live is not None and time.monotonic() - began > QUIET:
            live.update(_status(query, self._console.width), refresh=True)

    @contextmanager
    def _drawing(self, *, transient: bool) -> Iterator[Live | None]:
        if not self._live:
            yield None
            return
        from rich.live import Live
        from rich.text import Text

        with Live(Text(""), console=self._console, auto_refresh=False, transient=transient) as live:
            yield live


def has_no_reader(out: IO[str]) -> bool:
    """Whether ``out`` is a pipe, a socket or a terminal whose other end is closed."""
    try:
        number = out.fileno()
    except (OSError, ValueError, AttributeError):  # ``out`` has no file descriptor
        return False
    waiting = select.poll()
    waiting.register(number, 0)  # poll reports POLLERR and POLLHUP without a request
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in waiting.poll(0))


@contextmanager
def _running(query: Query | QuerySet) -> Iterator[Feed]:
    """Runs ``query`` during the ``with`` block; Ctrl-C inside ends the query and raises Stopped."""
    feed = Feed(query)
    try:
        # Ctrl-C may come while the thread starts.
        feed.start()
        yield feed
    except KeyboardInterrupt:
        raise Stopped(lingering=not feed.stop()) from None
    except BaseException:
        feed.stop()
        raise


def _keep_last(last: deque[pa.RecordBatch], batch: pa.RecordBatch, rows: int) -> None:
    """Appends ``batch`` and drops all but the last ``rows`` rows."""
    last.append(batch)
    surplus = sum(b.num_rows for b in last) - rows
    while surplus > 0:
        first = last.popleft()
        if first.num_rows > surplus:
            last.appendleft(first.slice(surplus))
        surplus -= first.num_rows


def _status(query: Query, width: int) -> RenderableType:
    from rich.text import Text

    # Always one line: a live display that changes its height flickers.
    return Text(status_line(query, width=width), "cyan", no_wrap=True, overflow="ellipsis")


def status_line(query: Query, now: float | None = None, width: int | None = None) -> str:
    """``━━╌╌  45%  12,300 rows read, 4.1k rows/s  event time …  lag …  3 late, 0 bad``.

    A line longer than ``width`` drops the lag first, then the bar, the event time and the rows, and
    keeps late and bad rows."""
    if not query._has_run:
        return "starting"
    progress = query.progress()
    tasks = None if progress.tasks is None else "{:,} of {:,} tasks".format(*progress.tasks)
    if not progress.rows_in and tasks is not None:
        return f"{tasks} ({render.duration_text(progress.elapsed)})"
    if not progress.rows_in:
        # A run has metrics of its operators once they are compiled.
        state = "waiting for rows" if query.metrics() else "compiling"
        return f"{state} ({render.duration_text(progress.elapsed)})"
    rate = render.rate_text(progress.rows_in, progress.elapsed)
    parts = {"rows": f"{render.count_text(progress.rows_in)} read, {rate}"}
    if query.bounded and progress.total_rows:
        parts = {"bar": render.bar_text(progress.rows_in, progress.total_rows), **parts}
    if tasks is not None:
        parts["tasks"] = tasks
    if progress.event_time is not None:
        parts["event time"] = f"event time {_event_time(query, progress)}"
        lag = _lag(query, progress, time.time() if now is None else now)
        if lag is not None:
            parts["lag"] = f"lag {render.duration_text(lag)}"
    late = f"{progress.late:,} late, " if query._windowed else ""
    parts["late"] = f"{late}{progress.bad:,} bad"
    for part in ("lag", "bar", "event time", "rows"):
        if width is None or len("  ".join(parts.values())) <= width:
            break
        parts.pop(part, None)
    return "  ".join(parts.values())


def _event_time(query: Query, progress: Progress) -> str:
    return render.event_time_text(progress.event_time, query._event_time_type)


def _lag(query: Query, progress: Progress, now: float) -> float | None:
    """Seconds from event time to now; None for bounded input and for times far from the clock."""
    kind = query._event_time_type
    if query.bounded or kind is None or not kind.is_timestamp or progress.event_time is None:
        return None
    lag = now - progress.event_time / 1e6
    return lag if abs(lag) < _PAST else None
