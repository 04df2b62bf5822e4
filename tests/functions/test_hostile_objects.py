"""Users' objects whose own methods raise or lie: the query ends with one of our errors or keeps the
row, and no foreign exception escapes."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import cql
from cql.base.foreign import type_name
from cql.errors import BindError, CatalogError, CqlError, RunError
from tests.support.function_fixtures import ROWS, column, session_of, values


class OwnError(Exception):
    """An error without a text: ``str`` and ``repr`` raise."""

    def __str__(self) -> str:
        raise ValueError("in str")

    __repr__ = __str__


class OwnBaseError(BaseException):
    pass


class TextError(Exception):
    """An error whose text is a hostile subclass of str with an unprintable character."""

    def __str__(self) -> str:
        return Text("half \ud800 of it")


def refuse(*_: Any, **__: Any) -> Any:
    raise OwnError


class Text(str):
    __slots__ = ()
    encode = __len__ = __iter__ = __format__ = __eq__ = __getitem__ = refuse  # type: ignore[assignment]
    __hash__ = refuse  # type: ignore[assignment]
    __str__ = __repr__ = refuse


class Whole(int):
    __index__ = __int__ = __eq__ = __lt__ = __le__ = __ge__ = __float__ = refuse  # type: ignore[assignment]
    bit_length = __hash__ = __repr__ = __str__ = refuse  # type: ignore[assignment]


class Real(float):
    __float__ = __int__ = __eq__ = __lt__ = __hash__ = __repr__ = refuse  # type: ignore[assignment]


class Raw(bytes):
    __bytes__ = __len__ = __iter__ = __eq__ = __hash__ = __repr__ = refuse  # type: ignore[assignment]


class Day(dt.date):
    toordinal = __sub__ = __eq__ = __hash__ = __repr__ = refuse  # type: ignore[assignment]


class Moment(dt.datetime):
    replace = __sub__ = __eq__ = __hash__ = __repr__ = refuse  # type: ignore[assignment]


class Span(dt.timedelta):
    __floordiv__ = __eq__ = __hash__ = __repr__ = refuse  # type: ignore[assignment]


class Zone(dt.tzinfo):
    utcoffset = dst = tzname = refuse


class Fixed(Decimal):
    __abs__ = __ge__ = as_tuple = is_finite = __eq__ = __repr__ = refuse  # type: ignore[assignment]
    __hash__ = refuse  # type: ignore[assignment]


class Pair(tuple):  # type: ignore[type-arg]
    __slots__ = ()
    __len__ = __iter__ = __getitem__ = __eq__ = __hash__ = __repr__ = refuse  # type: ignore[assignment]


class Odd:
    """An object whose every special method raises."""

    __eq__ = __len__ = __bool__ = __iter__ = __repr__ = __index__ = __float__ = refuse
    __hash__ = refuse  # type: ignore[assignment]
    __class__ = property(refuse)  # type: ignore[assignment]


def raising(error: BaseException) -> Callable[[Any], Any]:
    def function(given: Any) -> Any:
        raise error

    return function


#: (function of i, its result type, a part of the message)
BAD: list[tuple[Callable[[Any], Any], str, str]] = [
    (raising(OwnError()), "bigint", "f raised OwnError"),
    (raising(OwnError()), "string", "f raised OwnError"),
    (raising(OwnBaseError("no")), "bigint", "f raised OwnBaseError: no"),
    (raising(GeneratorExit()), "string", "f raised GeneratorExit"),
    (raising(TextError()), "bigint", r"f raised TextError: half \ud800 of it"),
    (lambda i: Odd(), "bigint", "an Odd"),
    (lambda i: Odd(), "string", "an Odd"),
    (lambda i: Odd(), "double", "an Odd"),
    (lambda i: Odd(), "boolean", "an Odd"),
    (lambda i: Odd(), "decimal(10,2)", "an Odd"),
    (lambda i: Odd(), "timestamp", "an Odd"),
    (lambda i: Text("x"), "bigint", "f returned <Text>, which is a Text, not an int"),
    (lambda i: dt.datetime(2020, 1, 1, tzinfo=Zone()), "timestamp", "cannot be read: OwnError"),
    (lambda i: pd.NaT, "timestamp", "which is a NaTType, not a datetime"),
    (lambda i: Decimal("1E-999999999"), "decimal(10,2)", "which a decimal(10,2) cannot hold"),
]

#: (function of i, its result type, the expected value)
GOOD: list[tuple[Callable[[Any], Any], str, Any]] = [
    (lambda i: Text("é"), "string", "é"),
    (lambda i: Whole(7), "bigint", 7),
    (lambda i: Whole(7), "tinyint", 7),
    (lambda i: Real(0.5), "double", 0.5),
    (lambda i: Raw(b"ab"), "binary", b"ab"),
    (lambda i: Day(2020, 1, 2), "date", dt.date(2020, 1, 2)),
    (lambda i: Moment(2020, 1, 2), "timestamp_ntz", dt.datetime(2020, 1, 2)),
    (
        lambda i: pd.Timestamp("2020-01-02 03:04:05.000006789", tz="Asia/Tokyo"),
        "timestamp",
        dt.datetime(2020, 1, 1, 18, 4, 5, 6, tzinfo=dt.UTC),
    ),
    (lambda i: Span(hours=1), "interval", dt.timedelta(hours=1)),
    (lambda i: Fixed("1.25"), "decimal(10,2)", Decimal("1.25")),
    (lambda i: Decimal("0E+999999999"), "decimal(10,2)", Decimal("0.00")),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_whatever_a_function_raises_or_returns_is_a_bad_row(number: int) -> None:
    function, gives, message = BAD[number]
    with session_of() as session:
        session.register_function("f", lambda i: function(i) if i == 5 else None, ["bigint"], gives)
        text = "SELECT i, f(CAST(i AS BIGINT)) FROM s"
        with pytest.raises(RunError, match=re.escape(message)) as caught:
            session.sql(text).to_arrow()
        assert "in the row at offset 5 of s" in str(caught.value)
        query = session.sql(f"{text} ON BAD ROW KEEP")
        assert query.to_arrow()["i"].to_pylist() == [i for i in range(ROWS) if i != 5]
        (bad,) = query.bad_rows().to_pylist()
        assert message in bad["reason"]


@pytest.mark.parametrize("number", range(len(GOOD)))
def test_a_subclass_gives_the_value_that_it_holds(number: int) -> None:
    function, gives, value = GOOD[number]
    with session_of() as session:
        session.register_function("f", function, ["bigint"], gives)
        assert values(session.sql("SELECT f(CAST(i AS BIGINT)) FROM s")) == [value] * ROWS


def test_an_interrupt_is_no_bad_row() -> None:
    with session_of() as session:
        session.register_function("f", raising(KeyboardInterrupt()), ["string"], "string")
        with pytest.raises(KeyboardInterrupt):
            session.sql("SELECT f(w) FROM s ON BAD ROW KEEP").to_arrow()


def test_what_an_object_hides_does_not_hinder_its_declaration() -> None:
    class Closed:
        __name__ = property(refuse)
        __signature__ = property(refuse)
        __bool__ = __eq__ = __hash__ = __repr__ = refuse  # type: ignore[assignment]

        def __call__(self, n: int) -> int:
            return n + 1

    with session_of() as session:
        session.register_function("f", Closed(), ["bigint"], "bigint")
        assert values(session.sql("SELECT f(CAST(i AS BIGINT)) FROM s")) == list(range(1, ROWS + 1))
        with pytest.raises(BindError):
            session.register_function("g", Odd(), ["bigint"], "bigint")


# -- aggregates ------------------------------------------------------------------------------------


def aggregate(**roles: Any) -> type:
    """A sum; ``roles`` replaces some of its functions."""
    own: dict[str, Any] = {
        "init": lambda: (0,),
        "update": lambda state, x: (state[0] + x,),
        "final": lambda state: state[0],
    }
    return type("total", (), {**own, **roles})


@pytest.mark.parametrize("role", ["update", "final"])
@pytest.mark.parametrize("error", [OwnError(), OwnBaseError("no"), SystemExit(3)], ids=type_name)
def test_an_aggregate_that_raises_ends_the_query_with_our_error(
    role: str, error: BaseException
) -> None:
    def fails(*given: Any) -> Any:
        raise error

    with session_of() as session:
        session.register_function("total", aggregate(**{role: fails}), ["bigint"], "bigint")
        with pytest.raises(RunError, match=f"total.{role} raised {type(error).__name__}"):
            session.sql("SELECT total(n) FROM s GROUP BY TUMBLE(ts, 10)").to_arrow()


STATES = [Odd(), [], "x", 1, (1, 2), (Odd(),), (Text("x"),), (None,)]


@pytest.mark.parametrize("number", range(len(STATES)))
def test_a_state_that_is_none_ends_the_query_with_our_error(number: int) -> None:
    state = STATES[number]
    with session_of() as session:
        made = aggregate(update=lambda s, x: state)
        session.register_function("total", made, ["bigint"], "bigint")
        with pytest.raises(RunError, match=r"total.update returned"):
            session.sql("SELECT total(n) FROM s GROUP BY TUMBLE(ts, 10)").to_arrow()


def test_a_state_of_subclasses_holds_what_these_hold() -> None:
    with session_of() as session:
        made = aggregate(update=lambda s, x: Pair((Whole(s[0] + x),)))
        session.register_function("total", made, ["bigint"], "bigint")
        text = "SELECT {}(n) FROM s GROUP BY TUMBLE(ts, 10)"
        assert values(session.sql(text.format("total"))) == values(session.sql(text.format("sum")))


# -- sources ---------------------------------------------------------------------------------------


class Row(dict):  # type: ignore[type-arg]
    """A row whose values cannot be read."""

    get = __getitem__ = refuse


class Rows(list):  # type: ignore[type-arg]
    __iter__ = refuse


class Endless:
    def __iter__(self) -> Iterator[Any]:
        raise OwnError


def broken(error: BaseException) -> Callable[[], Iterator[Any]]:
    def rows() -> Iterator[Any]:
        yield from ({"ts": i, "v": i} for i in range(3))
        raise error

    return rows


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize(
    "error", [OwnError(), OwnBaseError("no"), SystemExit(3), GeneratorExit()], ids=type_name
)
def test_an_iterable_that_raises_ends_the_query_with_our_error(
    error: BaseException, bounded: bool
) -> None:
    with cql.connect(spark=False) as session:
        session.create_stream("a", broken(error), ordered_by="ts", unit="seconds", bounded=bounded)
        name = type(error).__name__
        with pytest.raises(CatalogError, match=f"stream a failed after row 3: {name}"):
            list(session.sql("SELECT v FROM a").batches())


UNREADABLE = [Endless(), Endless, Rows([{"ts": 1}]), lambda: Endless(), lambda: 3, refuse]


@pytest.mark.parametrize("number", range(len(UNREADABLE)))
def test_an_iterable_that_cannot_start_is_refused(number: int) -> None:
    data = UNREADABLE[number]
    with cql.connect(spark=False) as session, pytest.raises(CqlError):
        session.create_stream("a", data, ordered_by="ts", unit="seconds")


def test_rows_that_cannot_be_read_are_bad_rows() -> None:
    class Tuple(tuple):  # type: ignore[type-arg]
        __slots__ = ()
        __len__ = refuse

    rows = [
        {"ts": 1, "k": "x"},
        Tuple((2, "y")),
        Row(ts=3, k="z"),
        {"ts": 4, "k": Text("q")},
        {"ts": 5, "k": Odd()},
        Odd(),
        {"ts": 7, "k": 8},
    ]
    with cql.connect(spark=False) as session:
        session.create_stream("a", lambda: iter(rows), ordered_by="ts", unit="seconds")
        with pytest.raises(CqlError):
            session.sql("SELECT ts FROM a").to_arrow()
        query = session.sql("SELECT ts, k FROM a ON BAD ROW KEEP")
        kept = query.to_arrow().to_pylist()
        assert kept == [{"ts": 1, "k": "x"}, {"ts": 4, "k": "q"}]
        assert [bad["offset"] for bad in query.bad_rows().to_pylist()] == [1, 2, 4, 5, 6]


def test_a_first_row_that_cannot_be_read_is_refused() -> None:
    with cql.connect(spark=False) as session:
        for rows in ([Row(ts=1)], [{"ts": Odd()}], [Odd()]):
            with pytest.raises(CqlError):
                session.create_stream("a", rows, ordered_by="ts", unit="seconds")


def test_a_generator_that_cannot_be_closed_ends_the_query_with_our_error() -> None:
    def rows() -> Iterator[Any]:
        try:
            for i in itertools.count():
                yield {"ts": i}
        finally:
            raise OwnError

    with cql.connect(spark=False) as session:
        session.create_stream("a", rows(), ordered_by="ts", unit="seconds")
        batches = session.sql("SELECT ts FROM a").batches()
        next(batches)
        with pytest.raises(CatalogError, match="stream a failed when it was closed: OwnError"):
            batches.close()  # type: ignore[attr-defined]


def test_a_batch_reader_over_python_ends_the_query_with_our_error() -> None:
    schema = pa.schema([("ts", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[1, 2]], schema=schema)
        raise OwnError

    with cql.connect(spark=False) as session:
        reader = pa.RecordBatchReader.from_batches(schema, batches())
        session.create_stream("a", reader, ordered_by="ts", unit="seconds")
        with pytest.raises(CatalogError, match="stream a failed after row 2"):
            session.sql("SELECT ts FROM a").to_arrow()


def test_a_callback_that_raises_ends_the_query_with_our_error() -> None:
    with session_of() as session:
        session.on_notice = refuse
        with pytest.raises(RunError, match="on_notice raised OwnError"):
            session._notice("something")
    assert column("i")[0] == 0
