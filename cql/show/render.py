"""Rows as text: for terminals, for pipes, and for the status line of a running query.

All texts of data and queries are printed as plain text with escaped control characters, so that no
row can move the cursor or change the terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any, Literal

from cql.base.types import DataType
from cql.errors import CqlError, RunError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """``text`` on one line, with control and direction characters as escapes."""
    return _CONTROL.sub(lambda m: ascii(m.group())[1:-1], text)


# --------------------------------------------------------------------------- values


def column_text(column: pa.Array[Any]) -> list[str | None]:
    """One column as text, NULL as None. Times are UTC, ``2013-01-01 05:00:00[.ffffff]``."""
    import pyarrow.types as t

    kind = column.type
    if t.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if t.is_timestamp(kind) or t.is_date(kind):
        return _time_text(column)
    if t.is_list(kind):
        lists = _lists(column, column_text)
        return [None if x is None else f"[{', '.join(_or_null(e) for e in x)}]" for x in lists]
    if t.is_struct(kind):
        structs = _structs(column, column_text)
        return [None if x is None else f"{{{', '.join(map(_or_null, x))}}}" for x in structs]
    values: list[Any] = column.to_pylist() if not t.is_duration(kind) else _duration_values(column)
    return [None if v is None else _value_text(v) for v in values]


def _lists(
    column: pa.Array[Any], shown: Callable[[pa.Array[Any]], list[Any]]
) -> Iterator[list[Any] | None]:
    """Each list as text, with its elements as ``shown`` gives them."""
    import pyarrow.compute as pc

    elements, at = shown(column.flatten()), 0
    for length in pc.list_value_length(column).to_pylist():
        yield None if length is None else elements[at : at + length]
        at += length or 0


def _structs(
    column: pa.Array[Any], shown: Callable[[pa.Array[Any]], list[Any]]
) -> Iterator[tuple[Any, ...] | None]:
    """The fields of each struct, as ``shown`` gives them."""
    fields = zip(*map(shown, column.flatten()), strict=True)
    for row, valid in zip(fields, column.is_valid().to_pylist(), strict=True):
        yield row if valid else None


def _or_null(text: str | None) -> str:
    return "NULL" if text is None else text


def _time_text(column: pa.Array[Any]) -> list[str | None]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.types as t

    is_date = t.is_date(column.type)
    if is_date:
        column = column.cast(pa.date32())
    unit = "D" if is_date else column.type.unit
    numbers = column.cast(pa.int32() if is_date else pa.int64())
    filled = numbers.fill_null(0).to_numpy(zero_copy_only=False).astype("int64")
    texts = np.datetime_as_string(filled.astype(f"datetime64[{unit}]"))
    valid = column.is_valid().to_pylist()
    pairs = zip(texts.tolist(), valid, strict=True)
    return [_plain_time(text) if ok else None for text, ok in pairs]


def _plain_time(iso: str) -> str:
    day, _, clock = iso.partition("T")
    if not clock:
        return day
    clock, _, fraction = clock.partition(".")
    fraction = fraction.rstrip("0")
    return f"{day} {clock}" + (f".{fraction}" if fraction else "")


def _duration_values(column: pa.Array[Any]) -> list[timedelta | int | None]:
    import pyarrow as pa

    micros = column.cast(pa.duration("us")).cast(pa.int64()).to_pylist()
    limit = 86_400_000_000 * 999_999_999  # the microseconds of the longest timedelta
    return [timedelta(microseconds=m) if m is not None and abs(m) < limit else m for m in micros]


def _value_text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return "0x" + value.hex()
        case float():
            return repr(value)
        case str():
            return value
        case _:
            return str(value)


def _json_value(text: str | None, kind: pa.DataType, value: Any) -> Any:
    import pyarrow.types as t

    if value is None or t.is_boolean(kind) or t.is_integer(kind):
        return value
    if t.is_floating(kind):
        # JSON has no NaN and no infinity
        return value if value == value and abs(value) != float("inf") else text
    return text


# --------------------------------------------------------------------------- pipes


def write_rows(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], format: str, out: IO[str]
) -> int:
    """Writes batches as they arrive; returns the number of rows.

    The formats are ``csv`` and ``tsv`` (with a header; NULL is empty, an empty text is ``""``) and
    ``json`` (one object per line). Raises RunError for ``json`` if two columns have the same name,
    because an object would hold only one of them."""
    if format == "json":
        _refuse_twice(names)
    else:
        delimiter = "\t" if format == "tsv" else ","
        out.write(delimiter.join(map(_quoted, names)) + "\n")
        out.flush()
    rows = 0
    for batch in batches:
        if format == "json":
            out.writelines(_json_lines(batch))
        else:
            columns = [_separated(column) for column in batch.columns]
            out.writelines(delimiter.join(row) + "\n" for row in zip(*columns, strict=True))
        rows += batch.num_rows
        out.flush()
    return rows


_SPECIAL = re.compile('[",\t\r\n]')


def _separated(column: pa.Array[Any]) -> list[str]:
    """The values of a column as fields of ``csv`` or ``tsv``."""
    import pyarrow.types as t

    texts = column_text(column)
    if t.is_integer(column.type) or t.is_floating(column.type) or t.is_boolean(column.type):
        return [text or "" for text in texts]
    return ["" if text is None else _quoted(text) for text in texts]


def _quoted(text: str) -> str:
    if text and not _SPECIAL.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _refuse_twice(names: Sequence[str]) -> None:
    twice = next((name for k, name in enumerate(names) if name in names[:k]), None)
    if twice is not None:
        raise RunError(
            f"two columns are called {twice}: an object of JSON holds one of them",
            hint="name them with AS, or write csv",
        )


def _json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    names = batch.schema.names
    columns = [_json_column(column) for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n"


def _json_column(column: pa.Array[Any]) -> list[Any]:
    import pyarrow.types as t

    if t.is_list(column.type):
        return list(_lists(column, _json_column))
    if t.is_struct(column.type):
        names = [field.name for field in column.type]
        rows = _structs(column, _json_column)
        return [None if row is None else dict(zip(names, row, strict=True)) for row in rows]
    texts = column_text(column)
    values = texts if t.is_temporal(column.type) else column.to_pylist()
    pairs = zip(texts, values, strict=True)
    return [_json_value(text, column.type, value) for text, value in pairs]


# --------------------------------------------------------------------------- terminals


_CELL = 40  # maximal number of characters in a cell of a terminal's table


def rich_table(table: pa.Table, *, width: int, remedy: str = "") -> Table:
    """All rows of ``table`` (callers slice it first) in the columns that fit into ``width``.

    If not all columns fit, the table leaves out and counts the columns in the middle; ``remedy``
    tells the user how to see them. Numbers are right-aligned, fractions have at most ten digits,
    NULL is dimmed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    batches = table.to_batches()
    kinds = [f.type for f in table.schema]
    cells = [[t for b in batches for t in _shown(b.column(i))] for i in range(len(kinds))]
    heads = [(printable(f.name), type_name(f.type)) for f in table.schema]
    shown = [[None if t is None else _cut(printable(t)) for t in column] for column in cells]
    wide = [_natural_width(*h, column) for h, column in zip(heads, shown, strict=True)]
    left, right = _fit(wide, width)
    drawn = Table(box=box.ROUNDED, header_style="bold")
    kept = [*range(left), *range(len(kinds) - right, len(kinds))]
    for i in kept:
        head = Text(heads[i][0]).append("\n" + heads[i][1], style="not bold dim")
        drawn.add_column(head, justify="right" if _is_number(kinds[i]) else "left", no_wrap=True)
    for row in zip(*(shown[i] for i in kept), strict=True):
        drawn.add_row(*(Text("NULL", "dim") if t is None else Text(t) for t in row))
    if len(kept) < len(kinds):
        hidden = count_text(len(kinds) - len(kept), "column")
        drawn.caption = (
            f"{hidden} behind {heads[left - 1][0]} not shown: the window is too narrow{remedy}"
        )
        drawn.caption_justify = "left"
    return drawn


def records(table: pa.Table) -> Text:
    """All rows, each value uncut on its own line."""
    from rich.text import Text

    batches = table.to_batches()
    names = [printable(name) for name in table.column_names]
    wide = max(map(len, names), default=0)
    columns = [
        [t for b in batches for t in column_text(b.column(i))] for i in range(table.num_columns)
    ]
    drawn = Text()
    for number, row in enumerate(zip(*columns, strict=True), 1):
        drawn.append(f"─[ row {number} ]─\n", "bold")
        for name, value in zip(names, row, strict=True):
            drawn.append(f"{name:<{wide}} │ ")
            drawn.append("NULL\n" if value is None else f"{printable(value)}\n", _style(value))
    drawn.rstrip()
    return drawn


def _style(value: str | None) -> str:
    return "dim" if value is None else ""


def _shown(column: pa.Array[Any]) -> list[str | None]:
    """``column_text`` with long fractions rounded to ten digits: 0.1 + 0.2 is 0.3."""
    import pyarrow.types as t

    texts = column_text(column)
    if not t.is_floating(column.type):
        return texts
    return [text if text is None or len(text) <= 11 else _rounded(text) for text in texts]


def _rounded(number: str) -> str:
    value = float(number)
    if value.is_integer() and abs(value) < 1e16:
        return number
    text = f"{value:.10g}"
    return text if set(text) & set(".en") else f"{text}.0"


def _cut(text: str) -> str:
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def _natural_width(name: str, kind: str, column: Sequence[str | None]) -> int:
    from rich.cells import cell_len

    return max(cell_len(name), len(kind), *(4 if t is None else cell_len(t) for t in column), 1) + 3


def _fit(wide: Sequence[int], width: int) -> tuple[int, int]:
    """The numbers of columns to show from the left and from the right; at least one in all."""
    left = right = 0
    room = width - 1
    while left + right < len(wide):
        from_left = left <= right
        room -= wide[left] if from_left else wide[-1 - right]
        if room < 0 and left:
            break
        left, right = (left + 1, right) if from_left else (left, right + 1)
    return left, right


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow.types as t

    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind))


def type_name(arrow: pa.DataType) -> str:
    """The dialect's name of an Arrow type (Arrow's own name where the dialect has none)."""
    import pyarrow as pa

    from cql.base.types import from_arrow

    if pa.types.is_list(arrow):
        return f"array<{type_name(arrow.value_type)}>"
    ours: DataType | None = from_arrow(arrow)
    return str(arrow if ours is None else ours)


def plain_table(table: pa.Table) -> Table:
    """All rows of ``table`` without types; long texts wrap."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.ROUNDED, header_style="bold")
    for field in table.schema:
        justify: Literal["right", "left"] = "right" if _is_number(field.type) else "left"
        drawn.add_column(Text(printable(field.name)), justify=justify, overflow="fold")
    for batch in table.to_batches():
        for row in zip(*(column_text(c) for c in batch.columns), strict=True):
            drawn.add_row(*(Text("" if t is None else printable(t)) for t in row))
    return drawn


def print_rows(table: pa.Table, console: Console, *, more: bool = False) -> None:
    """Prints ``table`` and its number of rows; ``more``: further rows follow."""
    if table.num_columns:
        console.print(rich_table(table, width=console.width))
    tail = ", and more that are not shown" if more else ""
    console.print(count_text(table.num_rows) + tail, style="dim")


def count_text(rows: int, what: str = "row") -> str:
    return f"{rows:,} {what}" + ("" if rows == 1 else "s")


def error_text(error: CqlError) -> Text:
    """An error for a terminal: message, the line of the query with its caret, the hint."""
    from rich.text import Text

    lines = str(error).split("\n")
    drawn = Text()
    for index, line in enumerate(lines):
        if index:
            drawn.append("\n")
        if index == 0:
            drawn.append("error: ", "bold red")
            drawn.append(_keep_spaces(line), "red")
        elif line.startswith("hint: "):
            drawn.append("hint: ", "bold cyan")
            drawn.append(_keep_spaces(line[6:]))
        elif set(line.strip()) == {"^"}:
            drawn.append(line, "bold red")
        else:
            drawn.append(_keep_spaces(line))
    return drawn


def _keep_spaces(line: str) -> str:
    """Replaces each control character by one character, so that the caret stays in place."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", line)


def print_error(error: CqlError, console: Console) -> None:
    console.print(error_text(error), soft_wrap=True)


# --------------------------------------------------------------------------- status


def rate_text(rows: float, seconds: float) -> str:
    """Rows per second, three digits: ``12.3M rows/s``."""
    rate = rows / seconds if seconds > 0 else 0.0
    for factor, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= factor:
            return f"{rate / factor:.3g}{suffix} rows/s"
    return f"{rate:.3g} rows/s"


def figure_text(number: float) -> str:
    """A number to about three digits."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def size_text(taken: int) -> str:
    """A number of bytes, to about three digits."""
    for unit, size in (("B", 1), ("kB", 1e3), ("MB", 1e6)):
        if taken < 1000 * size:
            return f"{figure_text(taken / size)} {unit}"
    return f"{figure_text(taken / 1e9)} GB"


def duration_text(seconds: float) -> str:
    """A duration in at most two units: ``350 ms``, ``2.5 s``, ``3 min 20 s``, ``5 d 2 h``."""
    if seconds < 0:
        return "-" + duration_text(-seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    for big, small, per_big, per_small in (
        ("min", "s", 60, 1),
        ("h", "min", 3600, 60),
        ("d", "h", 86_400, 3600),
    ):
        if seconds < per_big * (60 if big != "h" else 24) or big == "d":
            whole, rest = divmod(int(seconds), per_big)
            tail = f" {rest // per_small} {small}" if rest // per_small else ""
            return f"{whole:,} {big}{tail}"
    raise AssertionError(seconds)


def event_time_text(value: int | None, kind: DataType | None) -> str:
    """An event time, given in storage units, as a column of its type shows the value."""
    if value is None:
        return "-"
    if kind is None or not (kind.is_timestamp or kind.storage == "int32"):
        return f"{value:,}"
    import numpy as np

    unit = "datetime64[us]" if kind.is_timestamp else "datetime64[D]"
    return _plain_time(str(np.array([value]).astype(unit)[0]))


def bar_text(done: int, total: int, width: int = 24) -> str:
    """A progress bar of ``width`` characters."""
    share = min(1.0, done / total) if total > 0 else 1.0
    filled = int(share * width)
    return "━" * filled + "╌" * (width - filled) + f" {share:4.0%}"


def console_for(stream: IO[str], **options: Any) -> Console:
    """A rich console without automatic markup (no emoji, no highlighted numbers). On a pipe, the
    console cuts and wraps nothing."""
    from rich.console import Console

    console = Console(file=stream, markup=False, emoji=False, highlight=False, **options)
    if not console.is_terminal and "width" not in options:
        console.width = 100_000
    return console


def stack(*parts: RenderableType) -> RenderableType:
    from rich.console import Group

    return Group(*parts)
