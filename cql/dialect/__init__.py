"""The SQL of this engine: sqlglot's parser with windows, streams and their statements.

>>> tree = parse_one("SELECT count(*) FROM S [RANGE 1 minute, SLIDE 1 minute, WA ts]")
>>> to_sql(tree)
'SELECT COUNT(*) FROM S [RANGE 1 MINUTE, SLIDE 1 MINUTE, WA ts]'
"""

from __future__ import annotations

import sqlglot.parser as _sqlglot_parser

if not str(_sqlglot_parser.__file__).endswith(".py"):
    raise ImportError(
        "the compiled sqlglot build (sqlglotc) cannot be extended: "
        "uninstall it (pip uninstall sqlglotc) and keep plain sqlglot"
    )

from cql.dialect.duration import to_duration
from cql.dialect.sql import Cql, parse, parse_one, position_of, to_sql
from cql.dialect.tokens import KEYWORDS

__all__ = [
    "KEYWORDS",
    "Cql",
    "parse",
    "parse_one",
    "position_of",
    "to_duration",
    "to_sql",
]
