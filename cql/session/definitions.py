"""The definitions of a session, and the statements that create and drop them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from cql.errors import BindError, NotSupportedError, did_you_mean
from cql.planner.nodes.catalog import PUSH
from cql.query.result import Result, done
from cql.session.names import SessionCatalog

if TYPE_CHECKING:
    from cql.planner.nodes import statements as st
    from cql.planner.nodes.expr import Literal

Name: TypeAlias = tuple[str, ...]


class Definitions:
    """The catalog, constants, views and named streams of one session."""

    def __init__(self, spark: Any) -> None:
        self.catalog = SessionCatalog(spark)
        self.constants: dict[str, Literal] = {}
        self.views: dict[Name, st.NamedQuery] = {}
        self.streams: dict[Name, st.NamedQuery] = {}

    def names(self) -> list[str]:
        """All names that a query may use, as text; starts no JVM."""
        return sorted({".".join(n) for n in (*self.views, *self.streams, *self.catalog.names())})

    def named_queries(self) -> dict[Name, st.NamedQuery]:
        """Views and named intermediate streams."""
        return {**self.views, **self.streams}

    def query_of(self, name: Name) -> st.NamedQuery | None:
        """The view or named stream called ``name``; None if there is none."""
        found = (q for known, q in self.named_queries().items() if _fold(known) == _fold(name))
        return next(found, None)

    def kind_of(self, name: Name) -> str | None:
        """The kind of ``name``: view, stream or table; None for an unknown name."""
        query = self.query_of(name)
        if query is not None:
            return query.kind
        relation = self.catalog.find(name)
        return None if relation is None else relation.kind

    def create_stream(self, bound: st.CreateStream) -> Result:
        definition = bound.definition
        if definition.table is None and definition.format is None and definition.schema is not None:
            definition = replace(definition, format=PUSH)
        elif definition.table is None and definition.format is None:
            raise BindError(
                "CREATE STREAM needs to know where its rows come from",
                position=bound.pos,
                hint="FROM TABLE t, USING csv OPTIONS (path '…'), WITH ('connector' = …), or a list"
                " of columns, for rows that INSERT and session.push give",
            )
        if self.is_taken(bound, "stream"):
            return done(f"stream {'.'.join(bound.name)} exists already")
        self.catalog.create_stream(bound.name, definition, replace=bound.replace)
        return done(f"stream {'.'.join(bound.name)} created")

    def create_view(self, bound: st.CreateView) -> Result:
        kind, name = bound.definition.kind, ".".join(bound.name)
        if self.is_taken(bound, kind):
            return done(f"{kind} {name} exists already")
        self._forget(bound.name)
        table = self.views if kind == "view" else self.streams
        table[bound.name] = bound.definition
        return done(f"{kind} {name} created")

    def create_table(self, bound: st.CreateTable) -> Result | st.Insert:
        """Creates the table; for AS SELECT, returns the INSERT that creates and fills the table."""
        from cql.planner.nodes import statements as st

        name = ".".join(bound.name)
        if self.is_taken(bound, "table"):
            return done(f"table {name} exists already")
        if bound.replace and (kind := self.kind_of(bound.name)) not in (None, "table"):
            raise BindError(
                f"{name} is a {kind}", position=bound.pos, hint=f"DROP {str(kind).upper()} {name}"
            )
        if bound.files is not None:
            self.catalog.check_files(bound.name, bound.files, bound.format_pos)
        self.catalog.check_layout(bound.name, bound.layout)
        if bound.query is not None:
            if bound.replace:
                raise NotSupportedError(
                    "CREATE OR REPLACE TABLE … AS is not supported",
                    position=bound.pos,
                    hint=f"DROP TABLE IF EXISTS {name}, then CREATE TABLE {name} AS …",
                )
            if bound.format is not None and bound.files is None:
                self.catalog.check_format(bound.name, bound.format)
            names = bound.query.schema.names
            return st.Insert(
                bound.name,
                names,
                bound.query,
                bound.pos,
                bound.files,
                bound.schema,
                bound.key,
                bound.layout,
            )
        if bound.files is not None:
            self.catalog.create_files(bound.name, bound.files, bound.key, replace=bound.replace)
            return done(f"table {name} created")
        assert bound.schema is not None
        if bound.replace:
            self.catalog.drop(bound.name, "table")
        self.catalog.create_table(
            bound.name, bound.schema, bound.key, bound.layout, format=bound.format
        )
        return done(f"table {name} created")

    def create_constant(self, bound: st.CreateConstant) -> Result:
        old = next((n for n in self.constants if n.lower() == bound.name.lower()), None)
        if old is not None:
            if not bound.replace:
                raise BindError(
                    f"constant {old} exists already",
                    position=bound.pos,
                    hint="CREATE OR REPLACE CONSTANT gives it another value",
                )
            del self.constants[old]
        self.constants[bound.name] = bound.value
        return done(f"constant {bound.name} created")

    def is_taken(
        self,
        bound: st.CreateStream | st.CreateView | st.CreateMaterializedView | st.CreateTable,
        kind: str,
    ) -> bool:
        """Whether IF NOT EXISTS makes the statement do nothing; BindError if the name is taken."""
        what = self.kind_of(bound.name)
        if what is None or bound.replace:
            return False
        if bound.if_not_exists:
            return True
        raise BindError(
            f"{what} {'.'.join(bound.name)} exists already",
            position=bound.pos,
            hint=f"CREATE OR REPLACE {kind.upper()} …, or CREATE {kind.upper()} IF NOT EXISTS …",
        )

    def _forget(self, name: Name) -> bool:
        """Drops the view or named stream ``name``; False if there is none."""
        for table in (self.views, self.streams):
            for known in list(table):
                if _fold(known) == _fold(name):
                    del table[known]
                    return True
        return False

    def drop(self, bound: st.Drop) -> Result:
        name = ".".join(bound.name)
        found = self.catalog.local.find(bound.name) if bound.kind == "table" else None
        if not self._drop_one(bound):
            if bound.if_exists:
                return done(f"there is no {bound.kind} {name}")
            known = self.constants if bound.kind == "constant" else self.names()
            other = None if bound.kind == "constant" else self.kind_of(bound.name)
            hint = did_you_mean(name, known, what="known")
            raise BindError(
                f"there is no {bound.kind} {name}",
                position=bound.pos,
                hint=hint if other is None else f"it is a {other}: DROP {other.upper()} {name}",
            )
        folder = getattr(found, "folder", None)
        stay = "" if folder is None else f"; its files stay in {folder}"
        return done(f"{bound.kind} {name} dropped{stay}")

    def _drop_one(self, bound: st.Drop) -> bool:
        match bound.kind:
            case "constant":
                wanted = bound.name[-1].lower()
                for known in [n for n in self.constants if n.lower() == wanted]:
                    del self.constants[known]
                    return True
                return False
            case "view" | "stream":
                query = self.query_of(bound.name)
                if query is not None and query.kind == bound.kind:
                    return self._forget(bound.name)
        return self.catalog.drop(bound.name, bound.kind)


def _fold(name: Name) -> Name:
    return tuple(part.lower() for part in name)
