"""The pages of ``\\help``: short, each with examples that run (a test parses all of them)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cql.base.settings import FOR_EXPERIMENTS, SETTINGS, Setting
from cql.errors import CqlError, did_you_mean


@dataclass(frozen=True, slots=True)
class Page:
    """``summary`` is one line; ``body`` plain text; ``examples`` are statements of the dialect."""

    topic: str
    summary: str
    body: str
    examples: tuple[str, ...] = ()

    def text(self) -> str:
        shown = [f"{self.topic}: {self.summary}", "", self.body.strip("\n")]
        if self.examples:
            shown += ["", "Examples:"]
            for example in self.examples:
                shown += ["", *("    " + line for line in (example + ";").split("\n"))]
        return "\n".join(shown)


_PAGES = (
    Page(
        "SELECT",
        "a continuous query",
        """
A query over streams runs until its input ends or you stop it (Ctrl-C); over bounded input (tables,
files) it runs to the end and always gives its last window. FROM takes streams, tables, views,
subqueries and unions; each may carry a window in brackets.

  SELECT [DISTINCT] columns FROM source [window] [AS name] [WHERE …]
  [GROUP BY …] [HAVING …] [ORDER BY … LIMIT n]

ORDER BY and LIMIT work within each window. Without one, ORDER BY a time with a watermark orders an
endless stream, too; other orders need an end. See also WINDOW, FUNCTIONS, TYPES.""",
        (
            "SELECT origin, dep_delay FROM flights WHERE dep_delay > 60",
            "SELECT origin, count(*) AS flights, avg(dep_delay) AS delay\n"
            "FROM flights [RANGE 1 hour SLIDE 10 minutes]\nGROUP BY origin",
        ),
    ),
    Page(
        "WINDOW",
        "which rows belong together in time",
        """
  [RANGE 1 hour SLIDE 10 minutes]         sliding: one result per window and group
  [RANGE 1 hour SLIDE 1 hour]             tumbling: windows do not overlap
  [RANGE 1 hour SLIDE 10 minutes WA ts]   over the attribute ts (default: the stream's first)
  [RANGE 1 day SLIDE 1 day TIME ZONE 'Europe/Prague']   of local days
  [RANGE 1 day CUMULATE 1 hour]           grows by an hour, up to a day
  [RANGE 10000 SLIDE 10000]               over an integer attribute: in its own units
  [SESSION 5 minutes]                     rows of a group at most 5 minutes apart
  [ROWS 100 SLIDE 10]                     over the numbers of the rows, as they come
  [PARTITION BY k ROWS 100 SLIDE 10]      over those of each k

Windows are [k * slide, k * slide + range), aligned to 1970-01-01 UTC. A window gives its rows when
the stream has passed its end (see WATERMARK). The columns window_start, window_end and window_time
belong to every windowed result. A window may also stand after the select list, as in the papers.
Flink's and Spark's spellings mean the same: TUMBLE, HOP, and window(ts, '10 minutes').
Without SLIDE, [RANGE …], [ROWS …] and [NOW] are relations, whose rows also leave.""",
        (
            "SELECT count(*) FROM flights [RANGE 1 hour SLIDE 10 minutes]",
            "SELECT origin, max(dep_delay), window_start\n"
            "FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(ts), INTERVAL '1' HOUR))\n"
            "GROUP BY origin, window_start, window_end",
            "SELECT window.start, count(*) FROM flights\n"
            "GROUP BY window(ts, '1 hour', '10 minutes')",
        ),
    ),
    Page(
        "STREAM",
        "declare a source, and the columns that have a watermark",
        """
  CREATE [OR REPLACE] STREAM name [(columns)]
    FROM TABLE table [OPTIONS (follow 'true')]
    or  USING parquet|csv|json|arrow OPTIONS (path '…')
    ORDERED BY ts [IN SECONDS|MILLISECONDS|…] [WITHIN 5 seconds]
    or  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
    or  PUNCTUATE ON ts [WHEN marker]
    [PUNCTUATE BY column [WITHIN 1 minute]]
    [MAX ADVANCE 1 hour] [IDLE AFTER 5 seconds] [HEARTBEAT EVERY 1 second SLACK 2 seconds]

ORDERED BY declares that ts never falls (WITHIN: never by more than that). IN gives the unit of an
integer ts, so that durations may be used. A followed Spark table has no end: its stream gives the
rows of the table, then every row that is added to it. From Python:
session.create_stream('flights', table, ordered_by='ts', slack='5 minutes').

Without a source, CREATE STREAM s (columns) takes rows from INSERT INTO s and session.push("s", …).
Without any data, USING rate makes rows (ts, key, value): rows_per_second of them until you stop the
query, or with rows '1000' a thousand at once.""",
        (
            "CREATE STREAM flights FROM TABLE nyc.flights\nORDERED BY ts WITHIN 5 minutes",
            "CREATE STREAM trades (ts TIMESTAMP, symbol STRING, price DOUBLE)\n"
            "USING csv OPTIONS (path 'trades.csv')\nORDERED BY ts",
            "CREATE STREAM ticks USING rate OPTIONS (rows_per_second '20')\nORDERED BY ts",
            "DROP STREAM trades",
        ),
    ),
    Page(
        "WATERMARK",
        "watermarks, late rows and when a window closes",
        """
A watermark t of a column says that no later row lies below t. It comes from ORDERED BY … WITHIN d,
from WATERMARK FOR ts AS ts - INTERVAL …, from punctuation in the source (PUNCTUATE ON ts: rows in
which a marker is true, or cql.Punctuation between rows of an iterable), and from the end of bounded
input. PUNCTUATE BY column keeps a watermark for each value of the column, which closes the windows
of that value; over a union, the lowest of its members' watermarks for the value counts. Joins,
ORDER BY and all other operators go by one watermark: WITHIN behind the row furthest ahead.
An advance above MAX ADVANCE (an hour unless declared) waits until three further rows confirm it.
On endless input, an input that is silent for IDLE AFTER holds back no other input, and HEARTBEAT
advances the watermark with the clock while a source is silent.
A window closes when the watermark reaches its end. A row that comes after its window has closed is
late: it is missing in that window and counted. EXPLAIN ANALYZE, the status line and (from Python)
query.late() show late rows; SHOW LATE suggests a slack. More slack gives fewer late rows, and later
results. SELECT … LATE OUTPUT INTO t keeps the rows that are missing in a window.""",
        (
            "CREATE STREAM clicks (ts TIMESTAMP, page STRING)\n"
            "USING json OPTIONS (path 'clicks.jsonl')\n"
            "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
        ),
    ),
    Page(
        "INSERT",
        "send results into a table",
        """
  INSERT INTO table [(columns)] SELECT …
  CREATE TABLE t (column TYPE, …)                            in memory (db.t: in Spark)
  CREATE TABLE t (…) USING parquet OPTIONS (path 'folder')   files (csv, json, arrow)
  CREATE TABLE t [USING … OPTIONS (…)] AS SELECT …           made and filled

Columns go by position, or by the list behind the table's name. Over bounded input the
statement runs to its end and publishes all rows at once; a failed or interrupted one leaves nothing
behind. Over unbounded input it runs in the background and publishes about every epoch_ms: SHOW
QUERIES lists it and STOP QUERY ends it. Running an INSERT again appends again. A Spark table is
read back with plain spark.sql.

EXECUTE STATEMENT SET BEGIN INSERT …; INSERT …; END; runs INSERTs as one: they read a stream once,
and windows that differ in their lengths only share their panes.""",
        (
            "CREATE TABLE delays (origin STRING, delay DOUBLE, window_end TIMESTAMP)",
            "INSERT INTO delays\nSELECT origin, avg(dep_delay) AS delay, window_end\n"
            "FROM flights [RANGE 1 hour SLIDE 10 minutes] GROUP BY origin",
        ),
    ),
    Page(
        "VIEW",
        "name a query",
        """
  CREATE [OR REPLACE] VIEW name AS SELECT …      expanded wherever the name is used
  CREATE STREAM name AS SELECT …                 the same, as a stream with its own window_time
  CREATE STREAM name UPDATE KEY (k) AS SELECT …  runs by itself, with an update queue behind it
  DROP VIEW name

A materialized view is a table of Spark that holds the rows of a query. REFRESH adds what the tables
of the query have gained; FRESHNESS refreshes before a SELECT that would read older rows.

  CREATE [OR REPLACE] MATERIALIZED VIEW db.name [COMMENT 'text'] [FRESHNESS 1 MINUTE] AS SELECT …
  REFRESH MATERIALIZED VIEW db.name [FULL] [EVERY 1 MINUTE]
  SHOW MATERIALIZED VIEWS        DESCRIBE | DROP MATERIALIZED VIEW db.name""",
        (
            "CREATE VIEW late_flights AS SELECT ts, origin, dep_delay FROM flights\n"
            "WHERE dep_delay > 60",
            "SELECT origin, count(*) FROM late_flights [RANGE 1 day SLIDE 1 hour] GROUP BY origin",
            "CREATE MATERIALIZED VIEW nyc.delays FRESHNESS 5 MINUTES AS\n"
            "SELECT origin, count(*) AS n\n"
            "FROM nyc.flights [RANGE 1 day SLIDE 1 day] GROUP BY origin",
        ),
    ),
    Page(
        "EXPLAIN",
        "how a query runs, and why",
        """
  EXPLAIN [PHYSICAL] query    operators with the reason for each choice
  EXPLAIN LOGICAL query       the meaning of the query, with names and types resolved
  EXPLAIN ANALYZE query       runs it (bounded input) and adds rows, rates, time, memory
  EXPLAIN ANALYZE q1          the figures of a query of the session, also while it runs

From Python: query.explain('physical').""",
        (
            "EXPLAIN SELECT origin, count(*) FROM flights [RANGE 1 hour SLIDE 10 minutes]\n"
            "GROUP BY origin",
        ),
    ),
    Page(
        "SHOW",
        "what there is",
        """
  SHOW STREAMS | TABLES | VIEWS | QUERIES | FUNCTIONS | SETTINGS | CONSTANTS [LIKE 'pattern']
  SHOW MATERIALIZED VIEWS     (also: IN db)
  DESCRIBE name               columns, order, watermark (also: \\d name)
  SHOW LATE | BAD ROWS [q1]   the ledgers of the latest query, or of the one that is named
  SHOW STALENESS [q1]         what waits in the queues of update streams, and how stale results are
  STOP QUERY q1               ends a query that runs in the background""",
        ("SHOW STREAMS", "SHOW FUNCTIONS LIKE 'date%'", "DESCRIBE flights"),
    ),
    Page(
        "SET",
        "settings, for the session or for one query",
        """
  SET name = value            for the session        SET name     shows one
  RESET name                  back to its default    SET          shows all
  SELECT /*+ name(value) */   for this query alone

On the command line: cql run FILE --set name=value. From Python: cql.connect(name=value).
\\help SETTINGS describes all of them; those for experiments come last.""",
        (
            "SET runtime = fifo",
            "SET max_state = '2 GB'",
            "SELECT /*+ fuse(off) */ origin FROM flights",
        ),
    ),
    Page(
        "CONSTANTS",
        "constants and parameters",
        """
  CREATE CONSTANT name = value     known to all queries of the session
  CREATE CONSTANT name = array(1, 0.5, …)
                                   a list of numbers, as in dot(x, name)
  :name                            a parameter: cql run FILE --param name=5, or
                                   session.sql(text, name=5)

Both may stand wherever a number, a text or a duration may.""",
        (
            "CREATE CONSTANT threshold = 60",
            "SELECT origin FROM flights WHERE dep_delay > :minutes",
        ),
    ),
    Page(
        "TYPES",
        "Spark SQL's types, NULL rules and errors",
        """
  boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s) up to 38 digits (18 held),
  string, binary, date, timestamp (UTC, microseconds), timestamp_ntz, interval

Overflow, division by zero and a failed CAST make a bad row (see BADROWS); TRY_CAST gives NULL.
integer / integer is an integer, truncated. -0.0 = 0.0 and NaN = NaN as keys.""",
        ("SELECT CAST('2013-01-01' AS DATE), TRY_CAST('x' AS INT), 7 / 2",),
    ),
    Page(
        "BADROWS",
        "rows that cannot be read or evaluated",
        """
A row that cannot be read (a line of a CSV or JSON file, a Python row of the wrong type), one
without an event time, or one whose evaluation fails (overflow, division by zero, cast) is a bad
row. Over bounded input the first one fails the query; over unbounded input it is kept in a ledger
(SHOW BAD ROWS) with its source, its offset there and the reason. A column that no query reads is
not looked at. SET on_bad_row = fail |
keep decides otherwise, and so does ON BAD ROW KEEP behind a query. From Python:
query.bad_rows().""",
        ("SELECT 100 / dep_delay FROM flights ON BAD ROW KEEP",),
    ),
    Page(
        "SPARK",
        "Spark tables as sources and targets",
        """
Names that this session did not create are looked up in Spark's catalog, with one, two or three
parts; the JVM starts when the first such name is used. From Python pass your own session:
cql.connect(spark=spark). Rows of file-backed tables do not go through the JVM. Results are tables
that plain spark.sql reads.""",
        ("SELECT count(*) FROM spark_catalog.nyc.flights",),
    ),
    Page(
        "SHELL",
        "keys and commands of this shell",
        """
  \\help [TOPIC]   this help               \\d [NAME]    list or describe
  \\set [NAME VALUE]  settings             \\timing      time of each statement on and off
  \\x                 one column a line, or tables
  \\i FILE         run a file              \\load FILE   functions of a Python file
  \\plot FILE SELECT …    draw it into a PNG or SVG file; of a second SELECT behind ;
                     the columns start and stop are shaded ranges
  \\q, Ctrl-D      leave

A statement ends with ; and may span lines. Ctrl-C stops the running query, or clears the line.
Tab completes keywords, tables, columns and settings; Up and Ctrl-R search the history.""",
    ),
)


def _settings_page() -> Page:
    for_use = [s for s in SETTINGS.values() if not s.experiment]
    experiments = [s for s in SETTINGS.values() if s.experiment]
    heading = f"{FOR_EXPERIMENTS.capitalize()}, which compare the mechanisms of the papers:"
    lines = [*_described(for_use), "", heading, "", *_described(experiments)]
    return Page("SETTINGS", "all settings, with their defaults", "\n".join(lines))


def _described(settings: Iterable[Setting]) -> Iterator[str]:
    for setting in settings:
        yield f"  {setting.name} = {setting.format(setting.default)}"
        yield _indented(setting.help)
        yield _indented(f"Takes {setting.takes()}.")
        if setting.later:
            yield _indented(f"Not supported yet: {', '.join(setting.later)}.")


def _indented(text: str) -> str:
    return textwrap.fill(text, 92, initial_indent="      ", subsequent_indent="      ")


_OWN_FUNCTIONS = """
user: functions of your own, written in Python. From Python: @session.function, or
cql.connect(functions=…). Here: \\load FILE, or cql --functions FILE on the command line, with a
file that declares them:

  import cql

  @cql.function
  def fahrenheit(celsius: float) -> float:
      return celsius * 9 / 5 + 32

An aggregate is a class of functions, under @cql.aggregate or @session.aggregate: init(),
update(state, x), final(state); merge(a, b) and retract(state, x) let more operators serve it.

EXPLAIN says which of them are compiled, and why the others are not.
"""


def _functions_page() -> Page:
    # The registry needs the planner, which loads only for this page.
    from cql.planner.functions.aggregates import AGGREGATES
    from cql.planner.functions.registry import FUNCTIONS
    from cql.planner.functions.running import RUNNING

    lines = ["SHOW FUNCTIONS LIKE 'name%' gives the usage and a line about each."]
    known = (*AGGREGATES.values(), *FUNCTIONS.values(), *RUNNING.values())
    for kind in dict.fromkeys(f.category for f in known):
        names = sorted(f.name for f in known if f.category == kind)
        lines += [
            "",
            f"{kind}:",
            *textwrap.wrap(", ".join(names), 92, initial_indent="  ", subsequent_indent="  "),
        ]
    lines += ["", *_OWN_FUNCTIONS.strip("\n").split("\n")]
    body = "\n".join(lines)
    return Page("FUNCTIONS", "functions and aggregates", body, ("SHOW FUNCTIONS LIKE 'date%'",))


_BY_TOPIC: Mapping[str, Page] = {p.topic: p for p in _PAGES}

#: Synonyms of topics, and the topic of each.
_ALIASES = {
    "CREATE": "STREAM",
    "STREAMS": "STREAM",
    "WINDOWS": "WINDOW",
    "RANGE": "WINDOW",
    "SLIDE": "WINDOW",
    "TUMBLE": "WINDOW",
    "HOP": "WINDOW",
    "SESSION": "WINDOW",
    "GROUP BY": "SELECT",
    "FROM": "SELECT",
    "WHERE": "SELECT",
    "ORDER BY": "SELECT",
    "LIMIT": "SELECT",
    "ORDERED BY": "STREAM",
    "LATE": "WATERMARK",
    "PROGRESS": "WATERMARK",
    "VIEWS": "VIEW",
    "TABLE": "INSERT",
    "CREATE TABLE": "INSERT",
    "CREATE STREAM": "STREAM",
    "CREATE VIEW": "VIEW",
    "MATERIALIZED": "VIEW",
    "MATERIALIZED VIEW": "VIEW",
    "REFRESH": "VIEW",
    "DESCRIBE": "SHOW",
    "STOP": "SHOW",
    "QUERIES": "SHOW",
    "RESET": "SET",
    "HINTS": "SET",
    "PARAMETERS": "CONSTANTS",
    "CONSTANT": "CONSTANTS",
    "BAD ROWS": "BADROWS",
    "NULL": "TYPES",
    "CAST": "TYPES",
    "FUNCTION": "FUNCTIONS",
    "UDF": "FUNCTIONS",
    "LOAD": "FUNCTIONS",
    "AGGREGATES": "FUNCTIONS",
    "SETTING": "SETTINGS",
    "KEYS": "SHELL",
    "COMMANDS": "SHELL",
}


def topics() -> tuple[str, ...]:
    return (*_BY_TOPIC, "FUNCTIONS", "SETTINGS")


def page(topic: str) -> Page:
    """The page on ``topic`` (case does not matter); CqlError with candidates if there is none."""
    word = " ".join(topic.upper().rstrip(";").split())
    word = _ALIASES.get(word, word)
    match word:
        case "SETTINGS":
            return _settings_page()
        case "FUNCTIONS":
            return _functions_page()
        case _ if word in _BY_TOPIC:
            return _BY_TOPIC[word]
        case _:
            known = (*topics(), *_ALIASES)
            hint = did_you_mean(topic, known) or "\\help lists the topics"
            raise CqlError(f"there is no help on {topic}", hint=hint)


def overview() -> str:
    """The list of topics."""
    rows = [(p.topic, p.summary) for p in _PAGES]
    rows += [("FUNCTIONS", "functions and aggregates"), ("SETTINGS", "all settings")]
    width = max(len(topic) for topic, _ in rows)
    lines = [f"  {topic:<{width}}  {summary}" for topic, summary in rows]
    return "\n".join(["Type \\help and one of:", "", *lines])
