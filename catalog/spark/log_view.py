"""The view that shows the table of a log of changes (``catalog.upsert_log``).

The log of ``db.t`` is the table ``db.t_log``. Its property says what the view is, so that a session
whose catalog has lost the view makes it again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from cql.base.model import Schema
from cql.catalog.spark import quoting
from cql.catalog.spark.quoting import Columns, Properties
from cql.catalog.spark.session import Session
from cql.catalog.spark.tables.table import Table
from cql.catalog.upsert_log import DELETED, SEQUENCE
from cql.errors import CatalogError

Name = tuple[str, ...]
#: The property of a view with the name of its log, which lies in the same database.
LOG = "cql.log"
#: The property of a log with its view, as JSON.
LOG_OF = "cql.log_of"
#: The property of a table with the columns of its PRIMARY KEY, as JSON.
KEY = "cql.key"
#: The column by which the view finds the newest row of a key.
_PLACE = "_place"


@dataclass(frozen=True, slots=True)
class LogView:
    """The view ``name`` with a ``key``. ``required``: the other columns that are never NULL."""

    name: str
    key: tuple[str, ...]
    required: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The property of the log."""
        return json.dumps({"view": self.name, "key": self.key, "required": self.required})


def log_name(name: Sequence[str]) -> Name:
    return (*name[:-1], f"{name[-1]}_log")


def check_columns(schema: Schema, what: str) -> None:
    if schema.find(_PLACE) is not None:
        raise CatalogError(
            f"{what}: the view of a log has its own column {_PLACE}",
            hint="name the column otherwise, or leave out the option upsert 'log'",
        )


def view_of(log: Table) -> LogView | None:
    """The view of a log; None for any other table."""
    text = log.properties.get(LOG_OF)
    if text is None:
        return None
    found = json.loads(text)
    return LogView(str(found["view"]), tuple(found["key"]), tuple(found["required"]))


def create(session: Session, log: Table, view: LogView) -> None:
    """Makes the view of a log."""
    names = [field.name for field in log.schema.fields]
    quoting.run(
        session,
        quoting.Template.CREATE_LOG_VIEW,
        view=(*log.name[:-1], view.name),
        properties=Properties({LOG: log.name[-1], KEY: json.dumps(view.key)}),
        columns=Columns(name for name in names if name not in (SEQUENCE, DELETED)),
        key=Columns(view.key),
        sequence=Columns((SEQUENCE,)),
        deleted=Columns((DELETED,)),
        place=Columns((_PLACE,)),
        log=log.name,
    )
