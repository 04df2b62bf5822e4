"""The sqlglot nodes that belong to the dialect; a tree with any other node is refused.

sqlglot parses far more syntax than this engine supports. A node that this module does not list
never reaches the planner.
"""

from __future__ import annotations

from sqlglot import exp

from cql.dialect import nodes
from cql.dialect.lexical import MAX_TREE_DEPTH, words
from cql.dialect.tokens import RELATION_TO_STREAM

TYPED_FUNCTIONS: frozenset[str] = frozenset(
    words(
        "ABS ANY_VALUE APPROX_DISTINCT ARRAY ARRAY_CONTAINS ARRAY_SIZE AVG BIT_LENGTH "
        "CBRT CEIL "
        "CEILING COALESCE CONCAT CONCAT_WS CORR COUNT COUNT_IF COVAR_POP COVAR_SAMP CURRENT_DATE "
        "CURRENT_TIMESTAMP DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR DENSE_RANK EXP FIRST_VALUE FLOOR "
        "GREATEST HEX HOUR INITCAP LAG LAST_VALUE LEAD LEAST LEFT LENGTH LN LOG LOWER LPAD LTRIM "
        "MAP MAX "
        "MEDIAN MIN MINUTE MOD MONTH NTILE NULLIF POW POWER QUARTER RANK REPEAT REPLACE REVERSE "
        "RIGHT ROUND ROW_NUMBER RPAD RTRIM SECOND SIGN SIN COS TAN SPLIT SQRT STDDEV STDDEV_POP "
        "STDDEV_SAMP STRUCT SUM UNHEX UPPER VARIANCE VAR_POP VAR_SAMP WEEK YEAR"
    )
)
"""Calls with a class of their own; every other call is an ``exp.Anonymous`` with name and
arguments.
"""

_PLAIN: tuple[type[exp.Expr], ...] = (
    exp.Add,
    exp.Alias,
    exp.And,
    exp.AtTimeZone,
    exp.Between,
    exp.BitwiseAnd,
    exp.BitwiseLeftShift,
    exp.BitwiseNot,
    exp.BitwiseOr,
    exp.BitwiseRightShift,
    exp.BitwiseXor,
    exp.Boolean,
    exp.Bracket,
    exp.Column,
    exp.ColumnConstraint,
    exp.ColumnDef,
    exp.CommentColumnConstraint,
    exp.ComputedColumnConstraint,
    exp.CTE,
    exp.Cube,
    exp.DataType,
    exp.DataTypeParam,
    exp.Distinct,
    exp.Div,
    exp.Dot,
    exp.DPipe,
    exp.EQ,
    exp.Escape,
    exp.Except,
    exp.Filter,
    exp.From,
    exp.Group,
    exp.GroupingSets,
    exp.GT,
    exp.GTE,
    exp.Having,
    exp.HexString,
    exp.Hint,
    exp.Identifier,
    exp.IgnoreNulls,
    exp.ILike,
    exp.In,
    exp.IntDiv,
    exp.Intersect,
    exp.Interval,
    exp.Is,
    exp.Join,
    exp.Like,
    exp.Limit,
    exp.Literal,
    exp.LT,
    exp.LTE,
    exp.MatchRecognize,
    exp.MatchRecognizeMeasure,
    exp.Mod,
    exp.Mul,
    exp.Neg,
    exp.NEQ,
    exp.Not,
    exp.NotNullColumnConstraint,
    exp.Null,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.Offset,
    exp.Or,
    exp.Order,
    exp.Ordered,
    exp.Paren,
    exp.Placeholder,
    exp.PrimaryKeyColumnConstraint,
    exp.PropertyEQ,
    exp.Qualify,
    exp.RegexpLike,
    exp.RespectNulls,
    exp.Rollup,
    exp.Select,
    exp.Star,
    exp.Sub,
    exp.Subquery,
    exp.Table,
    exp.TableAlias,
    exp.Tuple,
    exp.Union,
    exp.Values,
    exp.Var,
    exp.Version,
    exp.Where,
    exp.Window,
    exp.WindowSpec,
    exp.With,
    exp.WithinGroup,
)
_FUNCTIONS: tuple[type[exp.Expr], ...] = (
    exp.Anonymous,
    exp.Array,
    exp.Case,
    exp.Cast,
    exp.Exists,
    exp.Extract,
    exp.If,
    exp.StrPosition,
    exp.Substring,
    exp.Pad,
    exp.Trim,
    exp.TryCast,
    *(exp.FUNCTION_BY_NAME[name] for name in TYPED_FUNCTIONS if name in exp.FUNCTION_BY_NAME),
)
ALLOWED: frozenset[type[exp.Expr]] = frozenset(
    {*_PLAIN, *_FUNCTIONS, *nodes.STATEMENT_NODES, *nodes.CLAUSE_NODES}
)

_QUERY_ARGS = frozenset(
    words(
        "this expression expressions with_ distinct hint from_ joins match where group having "
        "qualify windows "
        "order limit offset alias r2s select_window stream_window from_watermark join_window emit "
        "partition_by on_bad_row late_output"
    )
)
_TABLE_ARGS = frozenset(
    words("this db catalog alias joins version stream stream_window from_watermark")
)
_ARGS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Select: _QUERY_ARGS,
    exp.Union: _QUERY_ARGS,
    exp.Except: _QUERY_ARGS,
    exp.Intersect: _QUERY_ARGS,
    exp.Subquery: _QUERY_ARGS,
    exp.Values: _QUERY_ARGS,
    exp.Table: _TABLE_ARGS,
    exp.CTE: frozenset({"this", "alias"}),
    exp.With: frozenset({"expressions", "recursive"}),
    exp.Limit: frozenset({"expression", nodes.PER_WINDOW}),
    exp.Offset: frozenset({"expression"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Distinct: frozenset({"expressions"}),
    exp.Group: frozenset({"expressions", "all"}),
    exp.Star: frozenset({"except_"}),
    exp.DataTypeParam: frozenset({"this"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe", "requires_string"}),
}
_WORDS: dict[type[exp.Expr], str] = {
    exp.Anonymous: "this function",
    exp.Tuple: "a list of values",
    exp.Kwarg: "a named argument",
}


class ForeignNodeError(Exception):
    """``node`` is in the tree and does not belong to the dialect."""

    def __init__(self, node: exp.Expr, message: str) -> None:
        super().__init__(message)
        self.node = node
        self.message = message


def check(tree: exp.Expr) -> None:
    """Raises ForeignNodeError for foreign nodes, foreign arguments and trees too deep to walk."""
    stack: list[tuple[exp.Expr, int]] = [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        kind = type(node)
        if depth > MAX_TREE_DEPTH:
            raise ForeignNodeError(node, "this expression is too long or nests too deeply")
        if kind not in ALLOWED:
            raise ForeignNodeError(node, f"{_words(kind)} is not part of this dialect")
        if (wrong := _misplaced(node)) is not None:
            raise ForeignNodeError(node, wrong)
        allowed = _ARGS.get(kind)
        for key, value in node.args.items():
            if not value:
                continue
            if allowed is not None and key not in allowed:
                shown = key.strip("_").replace("_", " ").upper()
                raise ForeignNodeError(node, f"{shown} is not part of this dialect here")
            children = value if isinstance(value, list) else (value,)
            stack += [(child, depth + 1) for child in children if isinstance(child, exp.Expr)]


def _misplaced(node: exp.Expr) -> str | None:
    """The message for a node that sqlglot accepts in a place where it has no meaning; else None."""
    parent = node.parent
    if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
        if isinstance(parent, exp.Anonymous) and str(parent.this).upper() in ("ANY", "SOME", "ALL"):
            name = str(parent.this).upper()
            return f"{name} over a query is not supported: x IN (SELECT …), x > (SELECT max(…) …)"
        if isinstance(parent, exp.Anonymous) and str(parent.this).upper() == "LATERAL":
            return "LATERAL is not supported: JOIN (SELECT …) AS x ON …, or WHERE EXISTS (SELECT …)"
        if isinstance(parent, exp.Func) and not isinstance(parent, exp.Exists):
            return "a query as an argument needs parentheses of its own"
    elif isinstance(node, exp.Anonymous):
        if isinstance(node.this, str) and node.this.upper() in RELATION_TO_STREAM:
            return f"{node.this.upper()} takes the whole select list"
    elif isinstance(node, exp.Star):
        at = parent.parent if isinstance(parent, exp.Column) else parent
        if node.args.get("except_") and not isinstance(at, exp.Select):
            return "* EXCEPT stands only in a select list"
    elif isinstance(node, exp.Dot):
        if isinstance(node.this, exp.Literal):
            return "a number has no fields"
    elif isinstance(node, exp.Cube | exp.Rollup | exp.GroupingSets):
        if not node.expressions:
            return f"{node.key.upper()} needs a list of columns"
    elif isinstance(node, exp.DataType) and not isinstance(
        parent, exp.Cast | exp.ColumnDef | exp.DataType
    ):
        return "a type is no value"
    return None


def _words(kind: type[exp.Expr]) -> str:
    return _WORDS.get(kind) or "".join(
        f" {c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(kind.__name__)
    )
