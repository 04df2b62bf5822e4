"""Queries and results in a notebook: HTML tables of a bounded number of rows.

All texts of data and queries are escaped.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cql.errors import CqlError
from cql.show import render

if TYPE_CHECKING:
    import pyarrow as pa

    from cql.base.model import Schema
    from cql.planner.nodes.physical import PhysicalPlan
    from cql.query.query import Query

#: Maximal number of rows shown, of a query and of a result (for example of SHOW).
ROWS = 20
RESULT_ROWS = 100
#: Maximal number of characters shown of a cell.
_CELL = 200
#: Seconds that a notebook waits for the first rows.
PATIENCE = 2.0


def can_be_read_again(plan: PhysicalPlan) -> bool:
    """Whether an additional run can read the inputs without consuming them and without calling a
    user's code: so for tables, files and Arrow data, not for iterators and Spark."""
    from cql.catalog.local import StoredRelation
    from cql.planner.nodes.physical import sources

    return all(
        isinstance(node.relation, StoredRelation)
        and getattr(node.relation.source(), "rereadable", False)
        for node in sources(plan.root)
    )


def query_html(query: Query, preview: Query | None, otherwise: str) -> str:
    """The columns of ``query``, and the rows that ``preview`` gives within ``PATIENCE`` seconds.

    ``preview`` is another query of the same plan, or None where nothing may run; then ``otherwise``
    is the reason for showing no rows."""
    heads = [(f.name, str(f.type)) for f in query.schema]
    about = f"{query.name}, {query.status}"
    if preview is None:
        return _table(heads, [], f"{about}: {otherwise}")
    found = _first_rows(preview)
    if found is None:
        tail = f"no row came within {PATIENCE:g} seconds: show() and to_arrow() wait for them"
        return _table(heads, [], f"{about}: {tail}")
    if isinstance(found, CqlError):
        return _table(heads, [], about) + f"<pre>{_escaped(str(found))}</pre>"
    table, more = found
    columns = [render.column_text(c) for c in _columns(table, query.schema)]
    count = render.count_text(table.num_rows)
    tail = f"the first {count}, and there are more" if more else count
    return _table(heads, zip(*columns, strict=True), f"{about}: {tail}")


def result_html(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The rows as an HTML table without types, at most ``RESULT_ROWS``."""
    shown = ([None if v is None else str(v) for v in row] for row in rows[:RESULT_ROWS])
    more = len(rows) > RESULT_ROWS
    tail = f" (the first {RESULT_ROWS} are shown)" if more else ""
    return _table([(c, "") for c in columns], shown, render.count_text(len(rows)) + tail)


def text_html(text: str) -> str:
    return f"<pre>{_escaped(text)}</pre>"


def _first_rows(preview: Query) -> tuple[pa.Table, bool] | CqlError | None:
    """The first rows and whether more rows follow; or the query's error; or None if the rows do not
    arrive in time (the stopped preview then ends in the background)."""
    found: list[tuple[pa.Table, bool] | CqlError] = []

    def work() -> None:
        try:
            found.append(preview._head(ROWS))
        except CqlError as error:
            found.append(error)

    thread = threading.Thread(target=work, name=f"cql preview of {preview.name}", daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if found:
        return found[0]
    preview.stop(timeout=0)
    return None


def _columns(table: pa.Table, schema: Schema) -> list[pa.Array[object]]:
    """Each column as one array."""
    whole = table.combine_chunks()
    batch = whole.to_batches()[0] if whole.num_rows else None
    if batch is None:
        import pyarrow as pa

        return [pa.array([], f.type.to_arrow()) for f in schema]
    return list(batch.columns)


def _table(
    heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[str | None]], caption: str
) -> str:
    drawn = ["<table>", "<thead><tr>"]
    for name, kind in heads:
        type_line = f"<br><small>{_escaped(kind)}</small>" if kind else ""
        drawn.append(f"<th>{_escaped(name)}{type_line}</th>")
    drawn.append("</tr></thead><tbody>")
    for row in rows:
        cells = (f"<td>{'<em>NULL</em>' if v is None else _escaped(_cut(v))}</td>" for v in row)
        drawn.append(f"<tr>{''.join(cells)}</tr>")
    drawn.append(f"</tbody></table><p><small>{_escaped(caption)}</small></p>")
    return "".join(drawn)


def _cut(text: str) -> str:
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def _escaped(text: str) -> str:
    return "\n".join(html.escape(render.printable(line)) for line in text.split("\n"))
