"""Tables that a join reads again at an interval (``SET table_refresh``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cql.base.slack import parse_slack
from cql.errors import NotSupportedError
from cql.planner.nodes.physical import (
    FilterExec,
    Physical,
    ProjectExec,
    SourceExec,
    TableJoinExec,
    ValuesExec,
    live,
)


def apply(root: Physical, settings: Mapping[str, Any]) -> Physical:
    """``root`` with a refresh interval on each table that an endless stream is joined with. A
    bounded query reads each table once, when it begins.

    Raises NotSupportedError for a table that is computed by more than filters and projections."""
    text = str(settings["table_refresh"])
    length = parse_slack(text)
    if length is None or length.microseconds is None:
        return root
    return _applied(root, length.microseconds, text)


def _applied(node: Physical, every: int, text: str) -> Physical:
    node = node.with_inputs(tuple(_applied(child, every, text) for child in node.inputs))
    if not isinstance(node, TableJoinExec) or not live(node.input):
        return node
    why = f"{node.why}; read again every {text}, between two turns of the stream"
    return replace(node, table=_again(node.table, every, node), why=why)


def _again(node: Physical, every: int, join: TableJoinExec) -> Physical:
    match node:
        case SourceExec() if node.query is not None:
            raise NotSupportedError(
                f"SET table_refresh for the stream {node.name}, which is a query, is not supported"
                " by this version",
                position=node.pos,
                hint="CREATE TABLE … AS has its rows; or SET table_refresh = 'off'",
            )
        case SourceExec():
            return replace(node, refresh=every)
        case ValuesExec():
            return node
        case FilterExec() | ProjectExec():
            return node.with_inputs((_again(node.input, every, join),))
        case _:
            raise NotSupportedError(
                "SET table_refresh for a table that is joined, united or aggregated before the"
                " stream sees it is not supported by this version",
                position=join.pos,
                hint="join the stream with each table by itself; or SET table_refresh = 'off'",
            )
