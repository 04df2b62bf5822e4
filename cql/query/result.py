"""The result of a statement that is not a query: a small table, a text, or a message."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cql.errors import CqlError
from cql.query.query import Explanation
from cql.session.pyspark_names import pyspark_names
from cql.show import render

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from rich.console import Console

    from cql.errors import Position
    from cql.query.query import Query


@pyspark_names
@dataclass(frozen=True, slots=True)
class Result:
    """``columns`` and ``rows`` of SHOW and DESCRIBE; ``text`` of EXPLAIN; ``message`` of CREATE,
    DROP and SET: the change that the statement made."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    text: str | None = None
    message: str | None = None

    def to_arrow(self) -> pa.Table:
        """The rows; EXPLAIN gives one row ``plan``, a message one row ``message``."""
        import pyarrow as pa

        if self.text is not None:
            return pa.table({"plan": [self.text]})
        if self.message is not None:
            return pa.table({"message": [self.message]})
        return pa.table(
            {name: _column([row[i] for row in self.rows]) for i, name in enumerate(self.columns)}
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table of ``to_arrow`` as an Arrow C stream."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pd.DataFrame:
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def _repr_html_(self) -> str:
        """For notebooks: at most 100 rows."""
        from cql.show import notebook

        if self.text is not None or self.message is not None:
            return notebook.text_html(str(self))
        return notebook.result_html(self.columns, self.rows)

    def show(self) -> None:
        """Prints the result."""
        self._print_to(render.console_for(sys.stdout))

    def _print_to(self, console: Console) -> None:
        if self.text is not None:
            console.print(self.text, soft_wrap=True)
        elif self.message is not None:
            console.print(self.message, style="dim")
        else:
            console.print(render.plain_table(self.to_arrow()))
            console.print(render.count_text(len(self.rows)), style="dim")

    def __str__(self) -> str:
        if self.text is not None or self.message is not None:
            return self.text or self.message or ""
        return "\n".join("\t".join(map(str, row)) for row in (self.columns, *self.rows))


def _column(values: Sequence[Any]) -> pa.Array[Any]:
    import pyarrow as pa

    kind = None if any(v is not None for v in values) else pa.string()
    column: pa.Array[Any] = pa.array(values, kind)
    return column


def done(message: str) -> Result:
    return Result(message=message)


def explained(text: str) -> Result:
    return Result(text=Explanation(text))


@dataclass(frozen=True, slots=True)
class Analysis:
    """EXPLAIN ANALYZE of a query, at ``pos``.

    During its run, the session accepts other statements, for example from the query's own
    functions."""

    query: Query
    pos: Position | None

    def result(self) -> Result:
        try:
            return explained(self.query.explain("analyze"))
        except CqlError as error:
            error.position = error.position or self.pos
            raise
