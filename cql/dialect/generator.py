"""Prints trees as text: the text of each node of ``nodes.py`` parses back to an equal node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from sqlglot import exp, generator

from cql.dialect import nodes


def _words(*parts: str | None) -> str:
    return " ".join(part for part in parts if part)


class CqlGenerator(generator.Generator):
    """Adds the dialect's clauses; everything else prints as sqlglot prints it."""

    TYPE_MAPPING: ClassVar[dict[Any, str]] = {
        **generator.Generator.TYPE_MAPPING,
        exp.DType.TEXT: "STRING",
        exp.DType.TIMESTAMPNTZ: "TIMESTAMP_NTZ",
        exp.DType.TIMESTAMPLTZ: "TIMESTAMP_LTZ",
    }
    AFTER_HAVING_MODIFIER_TRANSFORMS: ClassVar[dict[str, Callable[..., str]]] = {
        nodes.PARTITION_BY: lambda self, e: (
            f"{self.sep()}{self.sql(e, nodes.PARTITION_BY)}"
            if e.args.get(nodes.PARTITION_BY)
            else ""
        ),
        **generator.Generator.AFTER_HAVING_MODIFIER_TRANSFORMS,
    }
    TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., str]]] = {
        **generator.Generator.TRANSFORMS,
        exp.NullSafeEQ: lambda self, e: self.binary(e, "IS NOT DISTINCT FROM"),
        exp.IntDiv: lambda self, e: self.binary(e, "DIV"),
        exp.RegexpLike: lambda self, e: self.binary(e, "RLIKE"),
        nodes.Duration: lambda self, e: f"{self.sql(e, 'this')} {e.unit}",
        nodes.PartitionBy: lambda self, e: self.partition_by(e),
        nodes.StreamWindow: lambda self, e: self.stream_window(e),
        nodes.FromUnion: lambda self, e: self.from_union(e),
        nodes.FromWatermark: lambda self, e: (
            f"WATERMARK {self.sql(e, 'this')} DELAY OF {self.interval(e.args['delay'])}"
        ),
        nodes.WindowTable: lambda self, e: self.window_table(e),
        nodes.TableFunction: lambda self, e: self.table_function(e),
        nodes.TypedNumber: lambda self, e: f"{e.this}{e.args['kind']}",
        exp.HexString: lambda self, e: f"X'{e.this}'",
        nodes.GroupWindow: lambda self, e: self.group_window(e),
        nodes.JoinWindow: lambda self, e: f"WINDOW {self.sql(e, 'this')}",
        nodes.Emit: lambda self, e: f"EMIT {e.this}",
        nodes.OnBadRow: lambda self, e: f"ON BAD ROW {e.this}",
        nodes.LateOutput: lambda self, e: f"LATE OUTPUT INTO {self.sql(e, 'this')}",
        nodes.PlanHint: lambda self, e: self.plan_hint(e),
        nodes.Watermark: lambda self, e: self.watermark(e),
        nodes.PrimaryKey: lambda self, e: f"PRIMARY KEY {self.list_of(e.expressions)}",
        nodes.Option: lambda self, e: f"{self.sql(e, 'this')} = {self.sql(e, 'expression')}",
        nodes.OrderedBy: lambda self, e: self.ordered_by(e),
        nodes.Changelog: lambda self, e: (
            f"CHANGELOG BY {self.sql(e, 'this')}" if e.this else "CHANGELOG DEBEZIUM"
        ),
        nodes.UpdateKey: lambda self, e: _words("UPDATE KEY", self.list_of(e.expressions)),
        nodes.Queue: lambda self, e: _words(
            "QUEUE", e.this, "SHED" if e.args.get("shed") else None, e.args.get("shed")
        ),
        nodes.WindowsMode: lambda self, e: f"WINDOWS {e.this}",
        nodes.StalenessGoal: lambda self, e: f"STALENESS UNDER {self.sql(e, 'this')}",
        nodes.Refresh: lambda self, e: (
            f"REFRESH {', '.join(self.sql(item) for item in e.expressions)}"
        ),
        nodes.RefreshItem: lambda self, e: _words(
            self.sql(e, "this"), f"EVERY {self.sql(e, 'every')}"
        ),
        nodes.Rate: lambda self, e: _words(
            f"RATE {self.sql(e, 'this')} {e.args['unit']}",
            f"TOLERANCE {self.sql(e, 'tolerance')}" if e.args.get("tolerance") else None,
        ),
        nodes.IdleAfter: lambda self, e: f"IDLE AFTER {self.sql(e, 'this')}",
        nodes.Heartbeat: lambda self, e: (
            f"HEARTBEAT EVERY {self.sql(e, 'every')} SLACK {self.sql(e, 'slack')}"
        ),
        nodes.MaxAdvance: lambda self, e: f"MAX ADVANCE {self.sql(e, 'this')}",
        nodes.Punctuate: lambda self, e: self.punctuate(e),
        nodes.CreateStream: lambda self, e: self.create(e, "STREAM"),
        nodes.CreateView: lambda self, e: self.create(e, "VIEW"),
        nodes.CreateMaterializedView: lambda self, e: self.materialized_view(e),
        nodes.RefreshView: lambda self, e: _words(
            "REFRESH MATERIALIZED VIEW",
            self.sql(e, "this"),
            "FULL" if e.args.get("full") else None,
            f"EVERY {self.sql(e, 'every')}" if e.args.get("every") else None,
        ),
        nodes.CreateTable: lambda self, e: self.create(e, "TABLE"),
        nodes.CreateConstant: lambda self, e: _words(
            "CREATE",
            "OR REPLACE" if e.args.get("replace") else None,
            f"CONSTANT {self.sql(e, 'this')} = {self.sql(e, 'expression')}",
        ),
        nodes.InsertInto: lambda self, e: _words(
            "INSERT INTO", self.sql(e, "this"), self.list_of(e.expressions), self.sql(e, "query")
        ),
        nodes.SetSetting: lambda self, e: _words(
            "SET",
            e.name,
            "=" if e.args.get("expression") is not None else None,
            self.sql(e, "expression"),
        ),
        nodes.ResetSetting: lambda self, e: _words("RESET", e.name),
        nodes.Explain: lambda self, e: _words("EXPLAIN", e.args.get("mode"), self.sql(e, "this")),
        nodes.StatementSet: lambda self, e: _words(
            "EXECUTE STATEMENT SET BEGIN", *(f"{self.sql(i)};" for i in e.expressions), "END"
        ),
        nodes.ShowObjects: lambda self, e: _words(
            "SHOW",
            e.this,
            "IN" if e.args.get("place") else None,
            self.sql(e, "place"),
            "LIKE" if e.args.get("like") else None,
            self.sql(e, "like"),
            self.sql(e, "query"),
        ),
        nodes.UseDatabase: lambda self, e: f"USE {self.sql(e, 'this')}",
        nodes.DescribeObject: lambda self, e: _words(
            "DESCRIBE",
            "MATERIALIZED VIEW" if e.args.get("materialized") else None,
            self.sql(e, "this"),
        ),
        nodes.DropObject: lambda self, e: _words(
            "DROP",
            e.args["kind"],
            "IF EXISTS" if e.args.get("exists") else None,
            self.sql(e, "this"),
        ),
        nodes.StopQuery: lambda self, e: f"STOP QUERY {self.sql(e, 'this')}",
    }

    def list_of(self, items: Iterable[exp.Expr]) -> str:
        printed = [self.sql(item) for item in items]
        return f"({', '.join(printed)})" if printed else ""

    def interval(self, length: exp.Expr) -> str:
        """A duration as an expression: ``INTERVAL '10' MINUTE``."""
        if isinstance(length, nodes.Duration):
            return f"INTERVAL '{length.this.name}' {length.unit}"
        return self.sql(length)

    # ----------------------------------------------------------------- queries

    def select_sql(self, expression: exp.Select) -> str:
        head = _words(
            "SELECT", self.sql(expression, "hint").strip(), self.sql(expression, "distinct").strip()
        )
        projections = f"{self.sep()}{self.expressions(expression)}"
        window = self.sql(expression, nodes.SELECT_WINDOW)
        sql = self.query_modifiers(
            expression,
            head + projections,
            f"{self.sep()}{window}" if window else "",
            self.sql(expression, "from_", comment=False),
        )
        return self._to_stream(expression, self.prepend_ctes(expression, sql))

    def set_operations(self, expression: exp.SetOperation) -> str:
        return self._to_stream(expression, super().set_operations(expression))

    def _to_stream(self, query: exp.Expr, sql: str) -> str:
        r2s = query.args.get(nodes.R2S)
        return f"{r2s.name}({sql})" if r2s else sql

    def hint_sql(self, expression: exp.Hint) -> str:
        return f"/*+ {', '.join(self.sql(hint) for hint in expression.expressions)} */"

    def plan_hint(self, hint: nodes.PlanHint) -> str:
        return f"{hint.this}{self.list_of(hint.expressions)}"

    def partition_by(self, clause: nodes.PartitionBy) -> str:
        keys = self.list_of(clause.expressions)
        return f"PARTITION BY {clause.this}{keys} INTO {self.sql(clause, 'expression')}"

    def limit_sql(self, expression: exp.Limit, top: bool = False) -> str:
        per_window = " PER WINDOW" if expression.args.get(nodes.PER_WINDOW) else ""
        return super().limit_sql(expression, top) + per_window

    def after_limit_modifiers(self, expression: exp.Expr) -> list[str]:
        keys = (nodes.JOIN_WINDOW, nodes.EMIT, nodes.ON_BAD_ROW, nodes.LATE_OUTPUT)
        own = [f"{self.sep()}{self.sql(expression, k)}" for k in keys if expression.args.get(k)]
        return [*super().after_limit_modifiers(expression), *own]

    # ----------------------------------------------------------------- FROM items

    def _behind_item(self, item: exp.Expr) -> str:
        """The text after the item itself: ``WATERMARK …``, alias, window and joins."""
        alias = self.sql(item, "alias")
        joins = "".join(self.sql(join) for join in item.args.get("joins") or [])
        behind = _words(
            self.sql(item, nodes.FROM_WATERMARK),
            f"AS {alias}" if alias else None,
            self.sql(item, nodes.STREAM_WINDOW),
        )
        return (f" {behind}" if behind else "") + joins

    def table_sql(self, expression: exp.Table, sep: str = " AS ") -> str:
        head = _words(
            "STREAM" if expression.args.get(nodes.STREAM) else None,
            self.table_parts(expression),
            self.sql(expression, "version"),
        )
        return head + self._behind_item(expression)

    def version_sql(self, expression: exp.Version) -> str:
        return f"FOR SYSTEM_TIME AS OF {self.sql(expression, 'expression')}"

    def subquery_sql(self, expression: exp.Subquery, sep: str = " AS ") -> str:
        head = self.wrap(expression) + self._behind_item(expression)
        # joins follow a wrapped item, modifiers follow a wrapped query: never both
        modified = head if expression.args.get("joins") else self.query_modifiers(expression, head)
        return self.prepend_ctes(expression, modified)

    def join_sql(self, expression: exp.Join, join_op: str | None = None) -> str:
        sql = super().join_sql(expression, join_op)
        if sql.startswith(", ") and _is_open_list(_left_of(expression)):
            return f" JOIN {sql.removeprefix(', ')}"
        return sql

    def values_sql(self, expression: exp.Values, values_as_table: bool = True) -> str:
        rows = ", ".join(self.sql(row) for row in expression.expressions)
        sql = f"VALUES {rows}"
        behind = self._behind_item(expression)
        return self.query_modifiers(expression, sql + behind)

    def from_union(self, union: nodes.FromUnion) -> str:
        operator = " UNION DISTINCT " if union.args.get("distinct") else " UNION "
        members = operator.join(self.sql(member) for member in union.expressions)
        if isinstance(union.parent, nodes.FromUnion):
            members = f"({members})"
        return members + self._behind_item(union)

    def stream_window(self, window: nodes.StreamWindow) -> str:
        args = window.args
        parts: list[str] = []
        if args.get("partition"):
            columns = ", ".join(self.sql(column) for column in args["partition"])
            parts.append(f"PARTITION BY {columns}")
        if window.window_kind in ("NOW", "UNBOUNDED"):
            parts.append(window.window_kind)
        if args.get("gap"):
            parts.append(f"SESSION {self.sql(args['gap'])}")
        parts += [
            f"{key.upper()} {self.sql(args[key])}"
            for key in ("rows", "range", "slide", "cumulate", "wa", "offset")
            if args.get(key) is not None
        ]
        if args.get("zone"):
            parts.append(f"TIME ZONE {self.sql(args['zone'])}")
        if args.get("rests"):
            parts.append("WITH RESTS")
        return f"[{', '.join(parts)}]"

    def window_table(self, table: nodes.WindowTable) -> str:
        source = table.args["source"]
        partition = table.args.get("partition")
        named = f"TABLE {self.sql(source)}"
        if not isinstance(source, exp.Table):
            named = f"TABLE ({self.sql(source)})"
        if partition:
            named += f" PARTITION BY {', '.join(self.sql(column) for column in partition)}"
        arguments = [f"DATA => {named}", f"TIMECOL => DESCRIPTOR({self.sql(table, 'time')})"]
        arguments += [
            f"{key.upper()} => {self.interval(length)}"
            for key in ("step", "slide", "size", "gap", "offset")
            if (length := table.args.get(key)) is not None
        ]
        return f"TABLE({table.window_kind}({', '.join(arguments)}))" + self._behind_item(table)

    def table_function(self, item: nodes.TableFunction) -> str:
        keys = [self.sql(key) for key in item.args.get("partition") or ()]
        by = f"PARTITION BY {keys[0] if len(keys) == 1 else self.list_of(item.args['partition'])}"
        table = _words(f"TABLE {self.sql(item, 'source')}", by if keys else None)
        given = [table, *map(self.sql, item.expressions)]
        return f"{self.sql(item, 'this')}({', '.join(given)})" + self._behind_item(item)

    def group_window(self, window: nodes.GroupWindow) -> str:
        order = ("size", "slide") if window.window_kind == "WINDOW" else ("slide", "size")
        arguments = [self.sql(window, "this")] if window.args.get("this") else []
        arguments += [
            self.interval(length)
            for key in (*order, "gap", "offset")
            if (length := window.args.get(key)) is not None
        ]
        return f"{window.window_kind}({', '.join(arguments)})"

    # ----------------------------------------------------------------- CREATE

    def create(self, statement: exp.Expr, kind: str) -> str:
        args = statement.args
        clauses: list[str] = []
        if args.get("from_table"):
            clauses.append(f"FROM TABLE {self.sql(args['from_table'])}")
        if args.get("format"):
            clauses.append(f"USING {self.sql(args['format'])}")
        if args.get("options"):
            clauses.append(f"OPTIONS {self.list_of(args['options'])}")
        if args.get("with_options"):
            clauses.append(f"WITH {self.list_of(args['with_options'])}")
        if args.get("partitioned_by"):
            clauses.append(f"PARTITIONED BY {self.list_of(args['partitioned_by'])}")
        for key in _CLAUSE_ORDER:
            value = args.get(key)
            found = value if isinstance(value, list) else [value]
            clauses += [self.sql(clause) for clause in found if clause is not None]
        if args.get("query"):
            clauses.append(f"AS {self.sql(args['query'])}")
        return _words(
            "CREATE",
            "OR REPLACE" if args.get("replace") else None,
            kind,
            "IF NOT EXISTS" if args.get("exists") else None,
            self.sql(statement, "this"),
            self.list_of(statement.expressions),
            *clauses,
        )

    def watermark(self, clause: nodes.Watermark) -> str:
        expression = clause.args.get("expression")
        column = self.sql(clause, "this")
        if expression is not None:
            return f"WATERMARK FOR {column} AS {self.sql(expression)}"
        if isinstance(clause.parent, nodes.CreateStream) and clause.arg_key == "expressions":
            return f"WATERMARK FOR {column} AS {column} - {self.interval(clause.args['delay'])}"
        return f"WATERMARK {column} DELAY {self.sql(clause, 'delay')}"

    def ordered_by(self, clause: nodes.OrderedBy) -> str:
        unit, within = clause.args.get("unit"), clause.args.get("within")
        return _words(
            f"ORDERED BY {self.sql(clause, 'this')}",
            f"IN {unit}S" if unit else None,
            f"WITHIN {self.sql(within)}" if within is not None else None,
        )

    def materialized_view(self, node: nodes.CreateMaterializedView) -> str:
        comment, freshness = node.args.get("comment"), node.args.get("freshness")
        return _words(
            "CREATE",
            "OR REPLACE" if node.args.get("replace") else None,
            "MATERIALIZED VIEW",
            "IF NOT EXISTS" if node.args.get("exists") else None,
            self.sql(node, "this"),
            f"COMMENT {self.sql(comment)}" if comment is not None else None,
            f"FRESHNESS {self.sql(freshness)}" if freshness is not None else None,
            f"AS {self.sql(node, 'query')}",
        )

    def punctuate(self, clause: nodes.Punctuate) -> str:
        column = self.sql(clause, "this")
        if clause.args.get("by"):
            within = clause.args.get("within")
            return _words(
                f"PUNCTUATE BY {column}",
                f"WITHIN {self.sql(within)}" if within is not None else None,
            )
        when, every = clause.args.get("when"), clause.args.get("every")
        return _words(
            f"PUNCTUATE ON {column}",
            f"WHEN {self.sql(when)}" if when is not None else None,
            f"EVERY {self.sql(every)}" if every is not None else None,
        )


_CLAUSE_ORDER = (
    "ordered_by",
    "watermark",
    "update_key",
    "changelog",
    "queue",
    "windows",
    "rate",
    "staleness",
    "refresh",
    "idle_after",
    "heartbeat",
    "max_advance",
    "punctuate",
    "on_bad_row",
    "late_output",
)


def _left_of(join: exp.Join) -> exp.Expr | None:
    """The FROM item just before a join."""
    parent = join.parent
    if parent is None:
        return None
    before = [j for j in parent.args["joins"] if (j.index or 0) < (join.index or 0)]
    behind: exp.Expr | None = before[-1] if before else parent.args.get("from_")
    return behind.this if behind is not None else parent


def _is_open_list(item: exp.Expr | None) -> bool:
    """Whether a comma after the item would begin another row of VALUES."""
    return isinstance(item, exp.Values) and not any(
        item.args.get(key) for key in ("alias", nodes.STREAM_WINDOW, nodes.FROM_WATERMARK)
    )
