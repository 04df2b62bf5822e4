"""The methods of a session that register functions, and declare streams and tables over data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from cql.errors import BindError, did_you_mean
from cql.session.declare import (
    Clauses,
    Names,
    Slack,
    as_columns,
    declare,
    is_spark_frame,
    listed,
    over_frame,
    parts_of,
)
from cql.session.pyspark_names import pyspark_names

if TYPE_CHECKING:
    from cql.functions.checks import Type
    from cql.functions.declare import Declared, Functions
    from cql.functions.declare_operator import State
    from cql.planner.functions.user.operators import UserOperator
    from cql.session.names import SessionCatalog


@pyspark_names
class Registering(ABC):
    """A base class of ``Session``. Any thread may register."""

    _catalog: SessionCatalog
    _functions: dict[str, Declared]
    _lock: AbstractContextManager[Any]

    @abstractmethod
    def _check_open(self) -> None:
        """Raises CqlError if the session is closed."""

    @abstractmethod
    def _notice(self, message: str, where: str = "") -> None:
        """Shows a notice, each text once."""

    # ----------------------------------------------------------------- functions

    def function(
        self,
        returns: Type | Callable[..., Any] | None = None,
        *,
        args: Sequence[Type] | None = None,
        name: str | None = None,
        null_handling: str = "default",
        parallel: bool | None = None,
    ) -> Any:
        """``cql.function`` that also registers: a decorator for functions of this session."""
        from cql.functions.declare import function as declaring

        made = declaring(
            returns, args=args, name=name, null_handling=null_handling, parallel=parallel
        )
        if callable(returns) and not isinstance(returns, type):
            return self._register(made)
        return lambda function: self._register(made(function))

    def aggregate(
        self,
        returns: Type | None = None,
        *,
        args: Sequence[Type] | None = None,
        name: str | None = None,
        null_handling: str = "default",
        parallel: bool | None = None,
    ) -> Any:
        """``cql.aggregate`` that also registers: a decorator for aggregates of this session."""
        from cql.functions.declare_aggregate import aggregate, is_definition

        made = aggregate(
            returns, args=args, name=name, null_handling=null_handling, parallel=parallel
        )
        if is_definition(returns):
            return self._register(made)
        return lambda definition: self._register(made(definition))

    def operator(
        self,
        returns: Mapping[str, Type],
        *,
        state: Mapping[str, State] | None = None,
        args: Sequence[Type] | None = None,
        name: str | None = None,
        finish: Callable[..., None] | None = None,
    ) -> Callable[[Any], UserOperator]:
        """``cql.operator`` that also registers: a decorator for operators of this session."""
        from cql.functions.declare_operator import operator

        made = operator(returns, state=state, args=args, name=name, finish=finish)

        def decorate(function: Any) -> UserOperator:
            declared = made(function)
            self._register(declared)
            return declared

        return decorate

    def register_function(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Type] | None = None,
        returns: Type | None = None,
        *,
        null_handling: str = "default",
        parallel: bool | None = None,
    ) -> None:
        """Registers a Python function, a class that is an aggregate (``cql.aggregate``), or an
        operator (``cql.operator``), as ``name`` for later queries.

        Replaces a function of the same name; existing queries keep the old function. For the other
        parameters see ``cql.function``."""
        from cql.functions.declare import declare as declared

        self._register(declared(function, name, args, returns, null_handling, parallel))

    def register_functions(self, functions: Functions) -> None:
        """Registers all functions of a list, a mapping, a module or a Python file; see
        ``connect``."""
        from cql.functions.declare import collect

        for function in collect(functions):
            self._register(function)

    def drop_function(self, name: str) -> None:
        """Removes a user's function; BindError if there is none."""
        with self._lock:
            if self._functions.pop(str(name).lower(), None) is None:
                known = [f.name for f in self._functions.values()]
                raise BindError(
                    f"there is no function {name} of yours",
                    hint=did_you_mean(str(name), known, what="there are"),
                )

    def _register(self, function: Declared) -> Declared:
        self._check_open()
        with self._lock:
            self._functions[function.name.lower()] = function
        return function

    # ----------------------------------------------------------------- data

    def create_stream(
        self,
        name: str,
        data: Any,
        ordered_by: Names | None = None,
        *,
        unit: str | None = None,
        watermark: Mapping[str, Slack] | str | None = None,
        slack: Slack | None = None,
        update_key: Names | None = None,
        changelog: str | None = None,
        changelog_by: str | None = None,
        queue: str | None = None,
        windows: str | None = None,
        staleness: Slack | None = None,
        refresh: str | None = None,
        rate: float | None = None,
        tolerance: Slack | None = None,
        punctuated: Mapping[str, str] | Names | None = None,
        max_advance: Slack | None = None,
        idle_after: Slack | None = None,
        heartbeat: tuple[Slack, Slack] | None = None,
        punctuated_by: str | tuple[str, Slack] | None = None,
        bounded: bool | None = None,
        replace: bool = False,
        **options: Any,
    ) -> None:
        """Declares a stream over ``data``.

        ``data`` is an Arrow table, dataset or batch reader, a pandas, polars or Spark frame, a
        query that ends, any other object with Arrow's C stream or C array, the name of a table, a
        path (with the ``options`` of its format), or an iterable or function of batches, mappings
        or tuples.

        ``ordered_by`` names the window attributes. ``unit`` is the unit of an integer attribute
        (``'seconds'``). ``slack`` is the maximal disorder of the attributes (``'5 seconds'``, a
        timedelta, or a number of their units). ``watermark`` is another spelling of both:
        ``{'ts': '5 seconds'}``. ``punctuated`` names the attributes with punctuations in the
        source: ``cql.Punctuation`` between its rows, or rows with a true marker,
        ``{'ts': 'marker'}``. ``max_advance``, ``idle_after`` and ``heartbeat=(every, slack)`` are
        the clauses of CREATE STREAM. ``update_key`` names the columns by which a newer row takes
        the place of an older one that waits; ``queue`` is the queue in which rows wait
        (``'in-place'``, ``'fifo'``, ``'linecutting'``, ``'append'``, ``'append shed random'``,
        ``'adaptive'``), ``windows`` is ``'lazy'`` or ``'eager'``, ``staleness`` is the goal of
        STALENESS UNDER (``'200 ms'``), ``refresh`` has the items of REFRESH
        (``"symbol = 'IBM' EVERY 1 MINUTE, EVERY 5 SECONDS"``). ``changelog_by`` names the column
        with the operation codes of rows that are changes; ``changelog='debezium'``: the rows are
        envelopes.
        ``punctuated_by`` is a column with one watermark per value, alone or with the maximal lag
        of a value: ``('protocol', '1 minute')``.

        ``bounded=False``: an iterable that never ends, or a folder or Spark table to follow. A
        streaming DataFrame of Spark is unbounded by itself; ``poll='100 ms'`` is Spark's polling
        interval for its rows, or for the rows of a followed table."""
        self._check_open()
        clauses = Clauses(
            ordered_by,
            unit,
            watermark,
            slack,
            update_key,
            changelog,
            changelog_by,
            queue,
            windows,
            staleness,
            refresh,
            rate,
            tolerance,
            punctuated,
            max_advance,
            idle_after,
            heartbeat,
            punctuated_by,
        )
        with self._lock:
            declare(self._catalog, parts_of(name), data, clauses, bounded, options, replace=replace)
            found = self._catalog.local.find(parts_of(name)) if is_spark_frame(data) else None
            if found is not None:
                self._note_left_out(name, found.unsupported)

    def register_table(
        self,
        name: str,
        data: Any,
        *,
        primary_key: Names | None = None,
        replace: bool = False,
    ) -> None:
        """Creates a table in memory with the rows of ``data`` (any data of ``create_stream`` that
        holds columns or rows). With a ``primary_key``, of one column or several, the last row of
        each key counts, and an INSERT replaces rows."""
        self._check_open()
        key = listed(primary_key)
        with self._lock:
            if is_spark_frame(data):
                left_out = over_frame(self._catalog, parts_of(name), data, key, replace=replace)
                self._note_left_out(name, left_out)
            else:
                rows = as_columns(data, f"table {name}")
                self._catalog.local.create_table(parts_of(name), rows, key=key, replace=replace)

    def _note_left_out(self, name: str, columns: Mapping[str, str]) -> None:
        """Issues a notice about the columns of a Spark DataFrame that no query can use."""
        for why in columns.values():
            self._notice(f"{name} is read without a column: {why}")
