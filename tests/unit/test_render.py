"""Rows as text, for pipes and for terminals."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv as pc
import pytest

from cql.base.types import BIGINT, DATE, TIMESTAMP
from cql.errors import CqlError, Position, RunError
from cql.show import render

TABLE = pa.table(
    {
        "a": pa.array([1, None, 3], pa.int64()),
        "ts": pa.array([0, 10**15 + 500_000, None], pa.timestamp("us", "UTC")),
        "d": pa.array([0, None, -1], pa.date32()),
        "s": ["x", 'a\x1b[31m"q,', None],
        "f": [1.5, float("nan"), float("inf")],
        "b": [True, None, False],
        "n": [Decimal("1.50"), None, Decimal("-0.25")],
        "y": [b"\x00a", None, b""],
    }
)


def written(format: str, table: pa.Table = TABLE) -> str:
    out = io.StringIO()
    assert render.write_rows(table.to_batches(), table.column_names, format, out) == table.num_rows
    return out.getvalue()


def console(width: int | None = None) -> tuple[render.Console, io.StringIO]:
    out = io.StringIO()
    return render.console_for(out, **({"width": width} if width else {})), out


def test_csv() -> None:
    assert written("csv").splitlines() == [
        "a,ts,d,s,f,b,n,y",
        "1,1970-01-01 00:00:00,1970-01-01,x,1.5,true,1.50,0x0061",
        ',2001-09-09 01:46:40.5,,"a\x1b[31m""q,",nan,,,',
        "3,,1969-12-31,,inf,false,-0.25,0x",
    ]


@pytest.mark.parametrize(("format", "mark"), [("csv", ","), ("tsv", "\t")])
def test_null_and_the_empty_text_differ(format: str, mark: str) -> None:
    texts = [None, "", "x", 'q"', f"a{mark}b", "l\nl", "\r", " "]
    table = pa.table({"s": texts, "n": [None, 1, 2, 3, 4, 5, 6, 7]})
    out = written(format, table)
    assert out.splitlines()[:3] == [f"s{mark}n", mark, f'""{mark}1']
    options = {"parse_options": pc.ParseOptions(delimiter=mark, newlines_in_values=True)}
    convert = pc.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    back = pc.read_csv(io.BytesIO(out.encode()), convert_options=convert, **options)
    assert back.to_pydict() == table.to_pydict()
    assert written(format, pa.table({"": pa.array([None, ""])})) == '""\n\n""\n'


def test_json_refuses_two_columns_of_one_name() -> None:
    table = pa.table([[1], [2], [3]], names=["a", "A", "a"])
    with pytest.raises(RunError, match=r"two columns are called a: .*\n.*AS"):
        written("json", table)
    assert written("csv", table) == "a,A,a\n1,2,3\n"
    assert written("json", table.select([0, 1])) == '{"a": 1, "A": 2}\n'


def test_tsv_header_stands_alone_for_no_rows() -> None:
    assert written("tsv", TABLE.slice(0, 0)) == "a\tts\td\ts\tf\tb\tn\ty\n"


def test_json_is_one_strict_object_a_line() -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    lines = [json.loads(line, parse_constant=refuse) for line in written("json").splitlines()]
    assert lines[0]["a"] == 1
    assert lines[0]["b"] is True
    assert lines[1] == {
        "a": None,
        "ts": "2001-09-09 01:46:40.5",
        "d": None,
        "s": 'a\x1b[31m"q,',
        "f": "nan",
        "b": None,
        "n": None,
        "y": None,
    }


def test_times_far_beyond_python() -> None:
    column = pa.array([2**62, -(2**62), None], pa.timestamp("us"))
    shown = render.column_text(column)
    assert shown[0].startswith("148")
    assert shown[1].startswith("-1")
    assert shown[2] is None


def test_dictionary_columns_are_text() -> None:
    assert render.column_text(pa.array(["a", None, "a"]).dictionary_encode()) == ["a", None, "a"]


def test_durations() -> None:
    column = pa.array([datetime.timedelta(hours=1), None], pa.duration("us"))
    assert render.column_text(column) == ["1:00:00", None]


def test_a_row_cannot_move_the_cursor() -> None:
    where, out = console()
    render.print_rows(pa.table({"\x1b[2J": ["\x1b]0;owned\x07", "\u202ertl"]}), where)
    assert "\x1b" not in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert "\\x1b]0;owned\\x07" in out.getvalue()


def test_markup_in_data_is_data() -> None:
    where, out = console()
    render.print_rows(pa.table({"a": ["[red]x[/red] :smile:"]}), where)
    assert "[red]x[/red] :smile:" in out.getvalue()


def test_a_pipe_has_no_width() -> None:
    where, out = console()
    render.print_rows(pa.table({f"column_{i}": ["x" * 30] for i in range(12)}), where)
    assert all(f"column_{i}" in out.getvalue() for i in range(12))


def test_columns_in_the_middle_go_first() -> None:
    where, out = console(width=60)
    render.print_rows(pa.table({f"column_{i}": ["x" * 10] for i in range(12)}), where)
    shown = out.getvalue()
    assert "column_0" in shown
    assert "column_11" in shown
    assert "column_6" not in shown
    assert "8 columns behind column_1 not shown" in shown
    assert max(map(len, shown.splitlines())) <= 60


def test_one_column_is_always_shown() -> None:
    where, out = console(width=10)
    render.print_rows(pa.table({"a_long_name": ["x" * 30]}), where)
    assert out.getvalue()


def test_an_error_keeps_its_caret_below_the_word() -> None:
    where, out = console()
    error = CqlError(
        "no column foo", position=Position(2, 8, 3), hint="did you mean fo?", text="\nselect foo"
    )
    render.print_error(error, where)
    assert out.getvalue().splitlines() == [
        "error: no column foo (line 2, column 8)",
        "  select foo",
        "         ^^^",
        "hint: did you mean fo?",
    ]


def test_an_error_with_escapes_in_the_query_prints_none() -> None:
    where, out = console()
    render.print_error(CqlError("no", position=Position(1, 3), text="\x1b[2Jx"), where)
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().splitlines()[2] == "    ^"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0004, "0 ms"),
        (0.35, "350 ms"),
        (2.5, "2.5 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3700, "1 h 1 min"),
        (86_400 * 400 + 7300, "400 d 2 h"),
        (-2.5, "-2.5 s"),
    ],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert render.duration_text(seconds) == text


def test_rates_and_bars() -> None:
    assert render.rate_text(12_345_678, 1) == "12.3M rows/s"
    assert render.rate_text(5, 2) == "2.5 rows/s"
    assert render.rate_text(5, 0) == "0 rows/s"
    assert render.bar_text(1, 2, 4) == "━━╌╌  50%"
    assert render.bar_text(9, 2, 4) == "━━━━ 100%"
    assert render.bar_text(0, 0, 4) == "━━━━ 100%"


def test_event_times() -> None:
    assert render.event_time_text(None, TIMESTAMP) == "-"
    assert render.event_time_text(10**15, TIMESTAMP) == "2001-09-09 01:46:40"
    assert render.event_time_text(1, DATE) == "1970-01-02"
    assert render.event_time_text(12_345, BIGINT) == "12,345"


def test_doubles_of_a_table_are_rounded_and_those_of_pipes_are_not() -> None:
    values = [0.1 + 0.2, 1 / 3, 1e300 / 3, 123456789012345.0, 2.0, float("nan"), None]
    table = pa.table({"x": values})
    console = render.console_for(io.StringIO(), width=60)
    console.print(render.rich_table(table, width=60))
    assert isinstance(console.file, io.StringIO)
    lines = [line.strip("│ ") for line in console.file.getvalue().split("\n")[4:-2]]
    assert lines == [
        "0.3",
        "0.3333333333",
        "3.333333333e+299",
        "123456789012345.0",
        "2.0",
        "nan",
        "NULL",
    ]
    out = io.StringIO()
    render.write_rows(table.to_batches(), ["x"], "csv", out)
    assert "0.30000000000000004" in out.getvalue()
