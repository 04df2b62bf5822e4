"""Words of the dialect, loaded when the first one is typed (they come with the parser)."""

from __future__ import annotations

from functools import cache


@cache
def keywords() -> frozenset[str]:
    """Upper case."""
    from cql.dialect import KEYWORDS

    return frozenset(KEYWORDS)


@cache
def functions() -> frozenset[str]:
    """Lower case; scalar functions and aggregates that can be called by name."""
    from cql.planner.functions.aggregates import AGGREGATES
    from cql.planner.functions.registry import FUNCTIONS

    return frozenset(name.lower() for name in (*AGGREGATES, *FUNCTIONS))


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Types are highlighted apart from keywords.
TYPES = word_set(
    "ARRAY BIGINT BINARY BOOL BOOLEAN DATE DECIMAL DOUBLE FLOAT INT INTEGER INTERVAL LONG MAP "
    "SMALLINT STRING STRUCT TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TINYINT VARCHAR"
)
CONSTANTS = word_set("TRUE FALSE NULL")
