"""The words of the dialect, loaded with the parser when the user types the first word."""

from __future__ import annotations

from functools import cache


@cache
def keywords() -> frozenset[str]:
    """The keywords in upper case."""
    from cql.dialect import KEYWORDS

    return frozenset(KEYWORDS)


@cache
def functions() -> frozenset[str]:
    """The names of functions and aggregates, in lower case."""
    from cql.planner.functions.aggregates import AGGREGATES
    from cql.planner.functions.registry import FUNCTIONS
    from cql.planner.functions.running import RUNNING

    return frozenset(name.lower() for name in (*AGGREGATES, *FUNCTIONS, *RUNNING))


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: The names of types, whose highlighting differs from keywords.
TYPES = word_set(
    "ARRAY BIGINT BINARY BOOL BOOLEAN DATE DECIMAL DOUBLE FLOAT INT INTEGER INTERVAL LONG MAP "
    "SMALLINT STRING STRUCT TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TINYINT VARCHAR"
)
CONSTANTS = word_set("TRUE FALSE NULL")
