"""The syntax nodes that plain SQL does not have; each prints as the text that it was parsed from.

Nodes that belong to sqlglot's own nodes have these argument keys::

    SELECT ISTREAM(a) ...                  query.args["r2s"]               (str)
    SELECT count(*) [RANGE 1 min] FROM S   select.args["select_window"]    (StreamWindow)
    FROM S [RANGE 1 min] AS x              item.args["stream_window"]      (StreamWindow)
    FROM S WATERMARK ts DELAY OF ...       item.args["from_watermark"]     (FromWatermark)
    FROM STREAM S                          table.args["stream"]            (True)
    ... WINDOW 10 minutes                  query.args["join_window"]       (JoinWindow)
    ... PARTITION BY HASH(k) INTO 8        select.args["partition_by"]     (PartitionBy)
    ... LIMIT 3 PER WINDOW                 query.args["limit"].args["per_window"]   (True)
    ... EMIT CHANGES                       query.args["emit"]              (Emit)
    ... ON BAD ROW KEEP                    query.args["on_bad_row"]        (OnBadRow)
    ... LATE OUTPUT INTO t                 query.args["late_output"]       (LateOutput)
    SELECT /*+ morsel_rows(7) */ ...       select.args["hint"]             (exp.Hint of PlanHint)

A FROM item is an ``exp.Table``, ``exp.Subquery``, ``exp.Values``, :class:`FromUnion` or
:class:`WindowTable`.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from sqlglot import exp

R2S = "r2s"
STREAM_WINDOW = "stream_window"
SELECT_WINDOW = "select_window"
FROM_WATERMARK = "from_watermark"
STREAM = "stream"
JOIN_WINDOW = "join_window"
PARTITION_BY = "partition_by"
EMIT = "emit"
PER_WINDOW = "per_window"
ON_BAD_ROW = "on_bad_row"
LATE_OUTPUT = "late_output"

Args = dict[str, bool]

_ITEM_ARGS: Args = {"alias": False, "joins": False, STREAM_WINDOW: False, FROM_WATERMARK: False}

MICROSECONDS: dict[str, Decimal] = {
    "NANOSECOND": Decimal("0.001"),
    "MICROSECOND": Decimal(1),
    "MILLISECOND": Decimal(1_000),
    "SECOND": Decimal(1_000_000),
    "MINUTE": Decimal(60_000_000),
    "HOUR": Decimal(3_600_000_000),
    "DAY": Decimal(86_400_000_000),
    "WEEK": Decimal(604_800_000_000),
}
"""The exact length of each unit that has one (a month and a year have none)."""


class Duration(exp.Expression):
    """``1.5 HOUR``: ``this`` is a number literal, ``unit`` a singular upper-case word."""

    arg_types: ClassVar[Args] = {"this": True, "unit": True}

    @property
    def unit(self) -> str:
        return str(self.args["unit"])

    @property
    def microseconds(self) -> int | None:
        """The exact length, or None for months and years and for a fraction of a microsecond."""
        scale = MICROSECONDS.get(self.unit)
        if scale is None:
            return None
        try:
            total = Decimal(self.this.name) * scale
        except InvalidOperation:
            return None
        return int(total) if total == total.to_integral_value() else None


# --------------------------------------------------------------------------- in queries


class StreamWindow(exp.Expression):
    """``[PARTITION BY k ROWS 3, RANGE 1 MINUTE, SLIDE 10 SECOND, WA ts, OFFSET 5 SECOND]``.

    ``kind`` is a str: ``RANGE``, ``ROWS``, ``NOW``, ``UNBOUNDED`` or ``SESSION``
    (``[SESSION 5 min]``). ``range``, ``slide``, ``offset`` and ``gap`` are durations (see
    ``duration.py``); ``rows`` and the SLIDE of a ROWS window are integer literals, parameters or
    constants; ``range`` and ``rows`` may be ``exp.Var("UNBOUNDED")``; ``cumulate`` is the step by
    which windows of ``range`` grow (``[RANGE 1 DAY, CUMULATE 1 HOUR]``); ``zone`` is the text after
    TIME ZONE; ``rests`` is ``exp.Var("RESTS")`` for WITH RESTS. ``wa`` is an Identifier (``WA ts``)
    or a Column (``WA M1.ts``); ``partition`` is a list of Identifiers or Columns.
    """

    arg_types: ClassVar[Args] = {
        "kind": True,
        "range": False,
        "rows": False,
        "gap": False,
        "slide": False,
        "cumulate": False,
        "zone": False,
        "rests": False,
        "wa": False,
        "offset": False,
        "partition": False,
    }

    @property
    def window_kind(self) -> str:
        return str(self.args["kind"])


class FromUnion(exp.Expression):
    """``FROM A UNION B AS m [w]``: the bag union of FROM items (``distinct`` after UNION
    DISTINCT).
    """

    arg_types: ClassVar[Args] = {"expressions": True, "distinct": False, **_ITEM_ARGS}


class FromWatermark(exp.Expression):
    """``WATERMARK ts DELAY OF INTERVAL '5' SECOND`` after a FROM item (Spark)."""

    arg_types: ClassVar[Args] = {"this": True, "delay": True}


class WindowTable(exp.Expression):
    """``TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTE))`` and its shorter spellings.

    ``kind`` is TUMBLE (``size``), HOP (``slide``, ``size``), CUMULATE (``step``, ``size``) or
    SESSION (``gap``, ``partition``); all take an ``offset`` but SESSION. ``source`` is an
    ``exp.Table`` or a query, ``time`` an Identifier.
    """

    arg_types: ClassVar[Args] = {
        "kind": True,
        "source": True,
        "time": True,
        "size": False,
        "slide": False,
        "step": False,
        "gap": False,
        "offset": False,
        "partition": False,
        **_ITEM_ARGS,
    }

    @property
    def window_kind(self) -> str:
        return str(self.args["kind"])


class TableFunction(exp.Expression):
    """``f(TABLE t PARTITION BY k, 3)``: an operator of the user called ``this`` over ``source`` (an
    item of FROM), for each key alone (``partition``: names of columns), with constants behind it
    (``expressions``)."""

    arg_types: ClassVar[Args] = {
        "this": True,
        "source": True,
        "partition": False,
        "expressions": False,
        **_ITEM_ARGS,
    }


class TypedNumber(exp.Expression):
    """Spark's ``1L``, ``2.0D``: ``this`` the number (str), ``kind`` one of NUMBER_TYPES (str)."""

    arg_types: ClassVar[Args] = {"this": True, "kind": True}


#: The suffixes of a number, and the type that each gives.
NUMBER_TYPES = {
    "Y": "TINYINT",
    "S": "SMALLINT",
    "L": "BIGINT",
    "F": "FLOAT",
    "D": "DOUBLE",
    "BD": "DECIMAL",
}


class GroupWindow(exp.Expression):
    """``GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)``, ``window(ts, '10 minutes', '5 minutes')``.

    ``kind`` is the function as one of TUMBLE, HOP, SESSION, WINDOW, SESSION_WINDOW; ``this`` the
    time expression (None in ``hop(INTERVAL .., INTERVAL ..)``); ``size``, ``slide``, ``gap``,
    ``offset`` are durations.
    """

    arg_types: ClassVar[Args] = {
        "kind": True,
        "this": False,
        "size": False,
        "slide": False,
        "gap": False,
        "offset": False,
    }

    @property
    def window_kind(self) -> str:
        return str(self.args["kind"])


class JoinWindow(exp.Expression):
    """``SELECT * FROM S, T WHERE S.a = T.a WINDOW 10 MINUTE``."""

    arg_types: ClassVar[Args] = {"this": True}


class PartitionBy(exp.Expression):
    """``PARTITION BY HASH(a, b) INTO 8``: ``this`` is HASH or RANGE (str), ``expressions`` the keys
    (none: all), ``expression`` the number of partitions.
    """

    arg_types: ClassVar[Args] = {"this": True, "expressions": False, "expression": True}


class Emit(exp.Expression):
    """``EMIT CHANGES``, ``EMIT FINAL``, ``EMIT ON WINDOW CLOSE`` (``this``: str)."""

    arg_types: ClassVar[Args] = {"this": True}


class OnBadRow(exp.Expression):
    """``ON BAD ROW KEEP`` or ``FAIL`` (``this``: str), of a query or a stream."""

    arg_types: ClassVar[Args] = {"this": True}


class LateOutput(exp.Expression):
    """``LATE OUTPUT INTO t`` (``this``: exp.Table), of a query or a stream."""

    arg_types: ClassVar[Args] = {"this": True}


def first_select(node: exp.Expr | None) -> exp.Select | None:
    """The SELECT at the beginning of a query, where its hints are; None for VALUES."""
    while isinstance(node, exp.SetOperation | exp.Subquery):
        node = node.this
    return node if isinstance(node, exp.Select) else None


class PlanHint(exp.Expression):
    """``morsel_rows(1024)`` inside ``/*+ … */``: ``this`` the name (str), ``expressions`` the
    values.

    A value is an ``exp.Literal``, or an ``exp.Var`` for a bare word.
    """

    arg_types: ClassVar[Args] = {"this": True, "expressions": False}


# --------------------------------------------------------------------------- CREATE STREAM


class Watermark(exp.Expression):
    """``WATERMARK ts DELAY 5 SECOND`` (= ``WATERMARK FOR ts AS ts - INTERVAL '5' SECOND``).

    ``this`` is an Identifier. Either ``delay`` is a duration (a literal 0 for ``AS ts``) or
    ``expression`` holds any other expression.
    """

    arg_types: ClassVar[Args] = {"this": True, "delay": False, "expression": False}


class PrimaryKey(exp.Expression):
    """``PRIMARY KEY (k, …)`` in a column list (``expressions``: Identifiers)."""

    arg_types: ClassVar[Args] = {"expressions": True}


class Option(exp.Expression):
    """``path '/data'`` in OPTIONS, ``'path' = '/data'`` in WITH: both are literals or words."""

    arg_types: ClassVar[Args] = {"this": True, "expression": True}

    @property
    def key_name(self) -> str:
        return str(self.this.name)

    @property
    def value(self) -> str:
        return str(self.expression.name)


class OrderedBy(exp.Expression):
    """``ORDERED BY ts IN SECONDS WITHIN 5 SECOND`` (``unit``: str, singular)."""

    arg_types: ClassVar[Args] = {"this": True, "unit": False, "within": False}


class UpdateKey(exp.Expression):
    """``UPDATE KEY (k)``; without columns it means the PRIMARY KEY."""

    arg_types: ClassVar[Args] = {"expressions": False}


class Changelog(exp.Expression):
    """``CHANGELOG BY op``: ``this`` is the column with the codes; CHANGELOG DEBEZIUM has none."""

    arg_types: ClassVar[Args] = {"this": False}


class Queue(exp.Expression):
    """``QUEUE APPEND SHED RANDOM``: ``this`` (str) is APPEND, FIFO, IN-PLACE, LINECUTTING or
    ADAPTIVE."""

    arg_types: ClassVar[Args] = {"this": True, "shed": False}


class WindowsMode(exp.Expression):
    """``WINDOWS LAZY`` or ``WINDOWS EAGER`` (``this``: str)."""

    arg_types: ClassVar[Args] = {"this": True}


class StalenessGoal(exp.Expression):
    """``STALENESS UNDER 200 ms``."""

    arg_types: ClassVar[Args] = {"this": True}


class Refresh(exp.Expression):
    """``REFRESH k = 1 EVERY 1 MINUTE, EVERY 5 SECONDS`` (``expressions``: RefreshItem)."""

    arg_types: ClassVar[Args] = {"expressions": True}


class RefreshItem(exp.Expression):
    """``k = 1 EVERY 1 MINUTE``; the last item of a REFRESH may have no condition (``this``)."""

    arg_types: ClassVar[Args] = {"this": False, "every": True}


class Rate(exp.Expression):
    """``RATE 48 KHZ TOLERANCE 2 MICROSECONDS``: a number literal, HZ, KHZ or MHZ (str), and how far
    the time of a sample may be from where the rate says."""

    arg_types: ClassVar[Args] = {"this": True, "unit": True, "tolerance": False}

    @property
    def hertz(self) -> Decimal:
        scale = {"HZ": 1, "KHZ": 1_000, "MHZ": 1_000_000}[str(self.args["unit"])]
        return Decimal(self.this.name) * scale


class IdleAfter(exp.Expression):
    """``IDLE AFTER 5 SECOND``."""

    arg_types: ClassVar[Args] = {"this": True}


class Heartbeat(exp.Expression):
    """``HEARTBEAT EVERY 1 SECOND SLACK 2 SECOND``."""

    arg_types: ClassVar[Args] = {"every": True, "slack": True}


class MaxAdvance(exp.Expression):
    """``MAX ADVANCE 1 HOUR``."""

    arg_types: ClassVar[Args] = {"this": True}


class Punctuate(exp.Expression):
    """``PUNCTUATE ON ts [WHEN marker] [EVERY 5 SECOND]``, or ``PUNCTUATE BY col [WITHIN 1 HOUR]``
    (``by``: each value of the column has its own watermark).
    """

    arg_types: ClassVar[Args] = {
        "this": True,
        "when": False,
        "every": False,
        "by": False,
        "within": False,
    }


class CreateStream(exp.Expression):
    """``CREATE STREAM s (ts TIMESTAMP, a INT) ORDERED BY ts WITHIN 5 SECOND``.

    ``this`` is an ``exp.Table``; ``expressions`` the column list: ``exp.ColumnDef``,
    :class:`Watermark`, :class:`PrimaryKey`; a ColumnDef without a type is a computed column, with
    an ``exp.ComputedColumnConstraint``. The source is one of ``from_table`` (exp.Table),
    ``format`` (Identifier) with ``options``, ``with_options``; both lists hold :class:`Option`.
    ``query`` is the SELECT after AS. ``ordered_by``, ``watermark`` and ``punctuate`` are lists.
    """

    arg_types: ClassVar[Args] = {
        "this": True,
        "replace": False,
        "exists": False,
        "expressions": False,
        "from_table": False,
        "format": False,
        "options": False,
        "with_options": False,
        "ordered_by": False,
        "watermark": False,
        "update_key": False,
        "changelog": False,
        "queue": False,
        "windows": False,
        "rate": False,
        "staleness": False,
        "refresh": False,
        "idle_after": False,
        "heartbeat": False,
        "max_advance": False,
        "punctuate": False,
        "on_bad_row": False,
        "late_output": False,
        "query": False,
    }


# --------------------------------------------------------------------------- other statements


class CreateView(exp.Expression):
    """``CREATE OR REPLACE VIEW v (a, b) AS SELECT …`` (``expressions``: Identifiers)."""

    arg_types: ClassVar[Args] = {
        "this": True,
        "replace": False,
        "exists": False,
        "expressions": False,
        "query": True,
    }


class CreateMaterializedView(exp.Expression):
    """``CREATE MATERIALIZED VIEW v COMMENT 'x' FRESHNESS 1 MINUTE AS SELECT …`` (``comment``:
    literal; ``freshness``: duration). The meta ``query_start`` is the offset of the query in the
    text."""

    arg_types: ClassVar[Args] = {
        "this": True,
        "replace": False,
        "exists": False,
        "comment": False,
        "freshness": False,
        "query": True,
    }


class RefreshView(exp.Expression):
    """``REFRESH MATERIALIZED VIEW v FULL EVERY 1 MINUTE`` (``this``: exp.Table; ``every``:
    duration)."""

    arg_types: ClassVar[Args] = {"this": True, "full": False, "every": False}


class CreateTable(exp.Expression):
    """``CREATE TABLE t (a INT) USING parquet`` and ``CREATE TABLE t AS SELECT …``. ``LOCATION 'x'``
    becomes the option path. ``partitioned_by`` are Identifiers."""

    arg_types: ClassVar[Args] = {
        "this": True,
        "replace": False,
        "exists": False,
        "expressions": False,
        "format": False,
        "options": False,
        "with_options": False,
        "partitioned_by": False,
        "query": False,
    }


class CreateConstant(exp.Expression):
    """``CREATE CONSTANT SYN = 2``: ``this`` an Identifier, ``expression`` a constant expression."""

    arg_types: ClassVar[Args] = {"this": True, "replace": False, "expression": True}


class InsertInto(exp.Expression):
    """``INSERT INTO t (a, b) SELECT …`` (``expressions``: Identifiers)."""

    arg_types: ClassVar[Args] = {"this": True, "expressions": False, "query": True}


class SetSetting(exp.Expression):
    """``SET name = value``; without ``expression``, SET shows the setting. ``this`` is an exp.Var.

    The value is an ``exp.Literal``, ``exp.Boolean``, ``exp.Null``, ``exp.Neg``, :class:`Duration`,
    or ``exp.Var`` for a bare word.
    """

    arg_types: ClassVar[Args] = {"this": True, "expression": False}


class ResetSetting(exp.Expression):
    """``RESET name``; without a name, all settings."""

    arg_types: ClassVar[Args] = {"this": False}


class Explain(exp.Expression):
    """``EXPLAIN PHYSICAL SELECT …`` (``mode``: str or None; ``this``: a statement, or the
    Identifier of a query of the session)."""

    arg_types: ClassVar[Args] = {"this": True, "mode": False}


class StatementSet(exp.Expression):
    """``EXECUTE STATEMENT SET BEGIN INSERT …; INSERT …; END`` (``expressions``: the INSERTs)."""

    arg_types: ClassVar[Args] = {"expressions": True}


class ShowObjects(exp.Expression):
    """``SHOW TABLES IN db LIKE 'x%'`` (``this``: str such as STREAMS or BAD ROWS; ``like``:
    literal; ``place``: exp.Table, a database or the catalog of databases; ``query``: Identifier, of
    LATE and BAD ROWS)."""

    arg_types: ClassVar[Args] = {"this": True, "like": False, "place": False, "query": False}


class UseDatabase(exp.Expression):
    """``USE db`` (``this``: exp.Table)."""

    arg_types: ClassVar[Args] = {"this": True}


class DescribeObject(exp.Expression):
    """``DESCRIBE name`` (``this``: exp.Table; ``materialized``: DESCRIBE MATERIALIZED VIEW)."""

    arg_types: ClassVar[Args] = {"this": True, "materialized": False}


class DropObject(exp.Expression):
    """``DROP STREAM IF EXISTS s`` (``kind``: STREAM, VIEW, MATERIALIZED VIEW, TABLE or
    CONSTANT; ``this``: exp.Table).
    """

    arg_types: ClassVar[Args] = {"this": True, "kind": True, "exists": False}


class StopQuery(exp.Expression):
    """``STOP QUERY n`` (``this``: a number or string literal, or an Identifier)."""

    arg_types: ClassVar[Args] = {"this": True}


STATEMENT_NODES: tuple[type[exp.Expression], ...] = (
    CreateStream,
    CreateView,
    CreateMaterializedView,
    RefreshView,
    CreateTable,
    CreateConstant,
    InsertInto,
    SetSetting,
    ResetSetting,
    Explain,
    StatementSet,
    ShowObjects,
    UseDatabase,
    DescribeObject,
    DropObject,
    StopQuery,
)
#: The statements that a query set may hold: an INSERT, or a query by itself.
MEMBERS: tuple[type[Any], ...] = (InsertInto, exp.Query, exp.Values)
CLAUSE_NODES: tuple[type[exp.Expression], ...] = (
    Duration,
    StreamWindow,
    FromUnion,
    FromWatermark,
    WindowTable,
    TableFunction,
    TypedNumber,
    GroupWindow,
    JoinWindow,
    PartitionBy,
    Emit,
    OnBadRow,
    LateOutput,
    PlanHint,
    Watermark,
    PrimaryKey,
    Option,
    OrderedBy,
    UpdateKey,
    Changelog,
    Queue,
    WindowsMode,
    Rate,
    IdleAfter,
    StalenessGoal,
    Refresh,
    RefreshItem,
    Heartbeat,
    MaxAdvance,
    Punctuate,
)
