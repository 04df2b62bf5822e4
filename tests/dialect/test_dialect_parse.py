"""Every construct of the dialect parses, prints, and parses back to an equal tree."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import pytest
from sqlglot import exp

from cql.dialect import KEYWORDS, nodes, parse, parse_one, position_of, to_duration, to_sql
from cql.dialect.duration import UNITS
from cql.dialect.grammar import ALLOWED
from cql.errors import ParseError, Position
from tests.support import dialect_corpus


@pytest.mark.parametrize("text", dialect_corpus.ALL)
def test_round_trip(text: str) -> None:
    tree = parse_one(text)
    printed = to_sql(tree)
    again = parse_one(printed)
    assert again == tree
    assert to_sql(again) == printed
    assert not list(tree.find_all(exp.Command))
    assert {type(node) for node in tree.walk()} <= ALLOWED


@pytest.mark.parametrize("text", dialect_corpus.ALL)
def test_everything_has_a_position(text: str) -> None:
    tree = parse_one("\n\n  " + text)
    assert position_of(tree) is not None
    assert position_of(tree).line == 3
    for node in tree.walk():
        if isinstance(node, (*nodes.CLAUSE_NODES, *nodes.STATEMENT_NODES, exp.Column, exp.Table)):
            assert position_of(node) is not None, repr(node)


@pytest.mark.parametrize("text", dialect_corpus.ALL)
def test_printing_leaves_the_tree_alone(text: str) -> None:
    tree = parse_one(text)
    before = tree.copy()
    to_sql(tree)
    assert tree == before


@pytest.mark.parametrize("text", dialect_corpus.ALL)
def test_letter_case_and_blanks_do_not_matter(text: str) -> None:
    spaced = re.sub(r"(?<=[\w)]) (?=\w)", "  -- comment\n\t/* and /* nested */ */ ", text)
    if "/*+" not in text and "'" not in text and '"' not in text and "`" not in text:
        assert to_sql(parse_one(spaced)) == to_sql(parse_one(text))
    words = "|".join(w for w in KEYWORDS if w not in ("S", "TEXT"))
    if not re.search(r"['\"`]", text):
        swapped = re.sub(rf"\b({words})\b", lambda m: m.group().swapcase(), text)
        assert to_sql(parse_one(swapped)).lower() == to_sql(parse_one(text)).lower()


def window_of(text: str) -> nodes.StreamWindow:
    found = parse_one(f"SELECT * FROM S {text}").find(nodes.StreamWindow)
    assert found is not None
    return found


def test_window_arguments() -> None:
    window = window_of("[RANGE 1.5 minutes, SLIDE 30 s, WA ts, OFFSET 1 s]")
    assert window.window_kind == "RANGE"
    assert window.args["range"].microseconds == 90_000_000
    assert window.args["slide"].microseconds == 30_000_000
    assert window.args["offset"].microseconds == 1_000_000
    assert isinstance(window.args["wa"], exp.Identifier)
    rows = window_of("[PARTITION BY a, b ROWS 10]")
    assert rows.window_kind == "ROWS"
    assert [column.name for column in rows.args["partition"]] == ["a", "b"]
    assert rows.args["rows"].name == "10"
    assert window_of("[RANGE UNBOUNDED]").args["range"] == exp.Var(this="UNBOUNDED")
    assert window_of("[NOW]").window_kind == "NOW"
    assert window_of("[SESSION 5 min]").args["gap"].microseconds == 300_000_000
    assert window_of("[RANGE 1 d SLIDE 1 d TIME ZONE 'UTC']").args["zone"].name == "UTC"
    assert window_of("[RANGE 1 h CUMULATE 5 min]").args["cumulate"].microseconds == 300_000_000


def test_windows_stand_where_their_item_is() -> None:
    select = parse_one("SELECT * FROM S [ROWS 1] AS a, T b [ROWS 2], U [ROWS 3], V")
    items = [select.args["from_"].this, *(join.this for join in select.args["joins"])]
    rows = [item.args[nodes.STREAM_WINDOW].args["rows"].name for item in items[:3]]
    assert rows == ["1", "2", "3"]
    assert [item.alias for item in items] == ["a", "b", "", ""]
    assert nodes.STREAM_WINDOW not in items[3].args


def test_union_in_from_binds_tighter_than_the_comma() -> None:
    select = parse_one("SELECT * FROM A UNION B AS m [ROWS 1], C UNION D AS n")
    first, second = select.args["from_"].this, select.args["joins"][0].this
    assert isinstance(first, nodes.FromUnion)
    assert isinstance(second, nodes.FromUnion)
    assert (first.alias, second.alias) == ("m", "n")
    assert [member.name for member in first.expressions] == ["A", "B"]
    assert first.args[nodes.STREAM_WINDOW].window_kind == "ROWS"
    assert not any(member.args.get(nodes.STREAM_WINDOW) for member in first.expressions)
    assert not any(member.alias for member in first.expressions)


def test_a_member_keeps_its_window_when_an_earlier_one_has_its_own() -> None:
    union = parse_one("SELECT * FROM A [ROWS 1] UNION B [ROWS 2] AS u").args["from_"].this
    assert nodes.STREAM_WINDOW not in union.args
    assert [m.args[nodes.STREAM_WINDOW].args["rows"].name for m in union.expressions] == ["1", "2"]
    assert union.alias == "u"


def test_window_behind_the_select_list() -> None:
    select = parse_one("SELECT count(*) [RANGE 1 min, SLIDE 1 min, WA M1.ts] FROM M1, M2")
    window = select.args[nodes.SELECT_WINDOW]
    assert window.args["wa"].sql() == "M1.ts"
    assert isinstance(window.args["wa"], exp.Column)


@pytest.mark.parametrize("operator", ["ISTREAM", "DSTREAM", "RSTREAM"])
def test_relation_to_stream_has_one_form(operator: str) -> None:
    around = parse_one(f"{operator}(SELECT a, b FROM S [NOW])")
    wrapped = parse_one(f"SELECT {operator}(a, b) FROM S [NOW]")
    bare = parse_one(f"SELECT {operator} a, b FROM S [NOW]")
    assert around == wrapped == bare
    assert around.args[nodes.R2S].name == operator


def test_flink_and_risingwave_spellings_are_one_node() -> None:
    long = parse_one("SELECT * FROM TABLE(HOP(TABLE t, DESCRIPTOR(c), INTERVAL '1' HOUR, '1 day'))")
    short = parse_one("SELECT * FROM HOP(t, c, INTERVAL '1' HOUR, INTERVAL '1 day')")
    named = parse_one(
        "SELECT * FROM TABLE(HOP(SIZE => INTERVAL 1 DAY, DATA => TABLE t, SLIDE => 1 hour, "
        "TIMECOL => DESCRIPTOR(c)))"
    )
    assert long == short == named
    table = long.find(nodes.WindowTable)
    assert table is not None
    assert table.window_kind == "HOP"
    assert table.args["source"].name == "t"
    assert table.args["time"].name == "c"
    assert table.args["size"].microseconds == 86_400_000_000
    assert table.args["slide"].microseconds == 3_600_000_000


def test_group_windows() -> None:
    spark = parse_one("SELECT 1 FROM t GROUP BY window(ts, '10 minutes', '5 minutes', '1 minute')")
    window = spark.find(nodes.GroupWindow)
    assert window is not None
    assert window.window_kind == "WINDOW"
    lengths = {k: window.args[k].microseconds for k in ("size", "slide", "offset")}
    assert lengths == {"size": 600_000_000, "slide": 300_000_000, "offset": 60_000_000}
    flink = parse_one("SELECT 1 FROM t GROUP BY HOP(ts, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE)")
    hop = flink.find(nodes.GroupWindow)
    assert hop is not None
    assert hop.args["size"].microseconds == 600_000_000


def test_query_clauses() -> None:
    query = parse_one(
        "SELECT /*+ window_operator(wid), morsel_rows(1024) */ a FROM t "
        "EMIT CHANGES ON BAD ROW KEEP LATE OUTPUT INTO l"
    )
    assert query.args[nodes.EMIT].this == "CHANGES"
    assert query.args[nodes.ON_BAD_ROW].this == "KEEP"
    assert query.args[nodes.LATE_OUTPUT].this.name == "l"
    hints = query.args["hint"].expressions
    assert [(h.this, [v.name for v in h.expressions]) for h in hints] == [
        ("window_operator", ["wid"]),
        ("morsel_rows", ["1024"]),
    ]


def test_create_stream_clauses() -> None:
    stream = parse_one(
        "CREATE OR REPLACE STREAM db.s (ts BIGINT NOT NULL, k INT) WITH ('path' = '/x') "
        "RATE 48 kHz QUEUE APPEND SHED RANDOM ORDERED BY ts IN SECONDS WITHIN 5 s UPDATE KEY (k) "
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND IDLE AFTER 1 min WINDOWS EAGER "
        "HEARTBEAT EVERY 1 s SLACK 2 s MAX ADVANCE 1 h PUNCTUATE ON ts EVERY 5 s ON BAD ROW KEEP"
    )
    args = stream.args
    assert isinstance(stream, nodes.CreateStream)
    assert (args["this"].db, args["this"].name, args["replace"]) == ("db", "s", True)
    assert [column.name for column in stream.expressions] == ["ts", "k"]
    assert [(o.key_name, o.value) for o in args["with_options"]] == [("path", "/x")]
    assert args["rate"].hertz == 48_000
    assert (args["queue"].this, args["queue"].args["shed"]) == ("APPEND", "RANDOM")
    (ordered,) = args["ordered_by"]
    assert (ordered.this.name, ordered.args["unit"]) == ("ts", "SECOND")
    assert ordered.args["within"].microseconds == 5_000_000
    (watermark,) = args["watermark"]
    assert watermark.args["delay"].microseconds == 5_000_000
    assert [key.name for key in args["update_key"].expressions] == ["k"]
    assert args["windows"].this == "EAGER"
    assert args["heartbeat"].args["slack"].microseconds == 2_000_000
    assert args["punctuate"][0].args["every"].microseconds == 5_000_000
    assert args["on_bad_row"].this == "KEEP"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("WATERMARK FOR t AS t - INTERVAL '5' SECOND", "WATERMARK t DELAY 5 seconds"),
        ("WATERMARK FOR t AS t - 5", "WATERMARK t DELAY 5"),
        ("WATERMARK FOR t AS t", "WATERMARK t DELAY OF 0"),
    ],
)
def test_watermarks_have_one_form(one: str, other: str) -> None:
    assert parse_one(f"CREATE STREAM s {one}") == parse_one(f"CREATE STREAM s {other}")


@pytest.mark.parametrize("word", sorted(UNITS))
def test_every_unit(word: str) -> None:
    assert window_of(f"[RANGE 2 {word.lower()} SLIDE 1 s]").args["range"].unit == UNITS[word]


def test_durations_are_exact() -> None:
    assert window_of("[RANGE 0.000001 s]").args["range"].microseconds == 1
    assert window_of("[RANGE 0.1 us]").args["range"].microseconds is None
    assert window_of("[RANGE 1 d OFFSET -2 h]").args["offset"].microseconds == -7_200_000_000
    assert window_of("[RANGE 1 month]").args["range"].microseconds is None
    assert window_of("[RANGE '1 hour 30 minutes']").args["range"].microseconds == 5_400_000_000
    interval = parse_one("SELECT INTERVAL '90' SECOND").find(exp.Interval)
    assert interval is not None
    length = to_duration(interval)
    assert length is not None
    assert length.microseconds == 90_000_000


def test_integer_division_is_typed() -> None:
    division = parse_one("SELECT a / b FROM t").find(exp.Div)
    assert division is not None
    assert division.args["typed"] is True


def test_names_keep_their_spelling() -> None:
    select = parse_one('SELECT SrcIp, "Dest IP", `len` FROM Main1')
    names = [column.name for column in select.find_all(exp.Column)]
    assert names == ["SrcIp", "Dest IP", "len"]


def test_a_script() -> None:
    text = "-- a\nSET a = 1;\n\n;SELECT 1 ; /* b */ SELECT ';' -- c\n;;"
    trees = parse(text)
    shown = [text[t.meta["text_start"] : t.meta["text_end"]] for t in trees]
    assert shown == ["SET a = 1", "SELECT 1", "SELECT ';'"]
    assert [position_of(t) for t in trees] == [
        Position(2, 1, 3),
        Position(4, 2, 6),
        Position(4, 21, 6),
    ]


@pytest.mark.parametrize("text", ["", " \n\t", "-- only this", "/* a /* b */ */", ";;", "\ufeff"])
def test_nothing(text: str) -> None:
    assert parse(text) == []
    with pytest.raises(ParseError):
        parse_one(text)


def test_positions() -> None:
    tree = parse_one("SELECT a,\n  -b + (c)\nFROM S\n  [RANGE 1 min, SLIDE 10 s,\n WA ts] AS x")
    first, second = tree.expressions
    assert position_of(first) == Position(1, 8, 1)
    assert position_of(second) == Position(2, 3, 8)
    window = tree.find(nodes.StreamWindow)
    assert window is not None
    assert position_of(window) == Position(4, 3, 1)
    assert position_of(window.args["slide"]) == Position(4, 23, 2)
    assert position_of(window.args["wa"]) == Position(5, 5, 2)
    assert position_of(exp.Column(this=exp.Identifier(this="a"))) is None


def test_keywords_are_upper_case_words() -> None:
    assert {"SELECT", "RANGE", "SLIDE", "ISTREAM", "WATERMARK", "MINUTE"} <= set(KEYWORDS)
    assert all(word.replace("_", "").isalnum() and word.isupper() for word in KEYWORDS)


def test_the_compiled_build_is_refused() -> None:
    code = """
        import sqlglot.parser
        sqlglot.parser.__file__ = "parser.cpython-311-x86_64-linux-gnu.so"
        try:
            import cql.dialect
        except ImportError as error:
            assert "sqlglotc" in str(error)
        else:
            raise SystemExit("imported")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)
