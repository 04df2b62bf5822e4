"""Which text columns of the sources must be encoded, and which are only carried to the result.

A carried column travels as row numbers into its source block and is read from the block at the end,
at no cost per row in the kernels. A column that is compared, grouped by, computed on or kept in
state is encoded in the query's dictionary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from cql.base.model import Schema
from cql.base.recursion import deep_stack
from cql.planner.nodes.expr import Call, Column, Expr, columns_of
from cql.planner.nodes.physical import (
    ArrivalExec,
    AsofJoinExec,
    BucketExec,
    ChangeAggregateExec,
    DupelimExec,
    FilterExec,
    KeyWindowsExec,
    LateRowsExec,
    LimitExec,
    LookupExec,
    MergeUnionExec,
    NumberExec,
    OnTimeExec,
    OopJoinExec,
    Physical,
    ProjectExec,
    PunctuatedSortExec,
    RelationExec,
    RelationJoinExec,
    RowNumberExec,
    SetOperationExec,
    SlackExec,
    SortExec,
    SourceExec,
    StreamExec,
    SubqueryJoinExec,
    TableJoinExec,
    TopExec,
    UnionExec,
    UnnestExec,
    ValuesExec,
    WidAggregateExec,
    WindowJoinExec,
    sources,
)

Place = tuple[int, int]  # (source, column of that source)


@dataclass(frozen=True, slots=True)
class TextColumns:
    """``encoded``: the source columns to encode. ``carried``: per plan, for each carried output
    column, the column of each source that it is read from."""

    encoded: frozenset[Place]
    carried: tuple[dict[int, dict[int, int]], ...]


@deep_stack()
def analyse(roots: Sequence[Physical]) -> TextColumns:
    order = {id(s): k for k, s in enumerate(sources(*roots))}
    encoded: set[Place] = set()
    outputs: list[dict[int, set[Place]]] = []
    for root in roots:
        _demand(root, set(), order, encoded)
        forwarded: dict[int, set[Place]] = {}
        for i in _text(root.schema):
            places = _origin(root, i, order)
            if places is None:
                _demand(root, {i}, order, encoded)
            else:
                forwarded[i] = places
        outputs.append(forwarded)
    grown = True
    while grown:
        grown = False
        for places in (p for forwarded in outputs for p in forwarded.values()):
            if places & encoded and not places <= encoded:
                encoded |= places
                grown = True
    carried = (
        {i: dict(sorted(p)) for i, p in forwarded.items() if not p & encoded}
        for forwarded in outputs
    )
    return TextColumns(frozenset(encoded), tuple(carried))


def _origin(node: Physical, column: int, order: dict[int, int]) -> set[Place] | None:
    """The source columns that an output column passes on unchanged; None if it is computed. At most
    one column per source, so that a row's source determines the column."""
    match node:
        case SourceExec():
            return {(order[id(node)], column)}
        case FilterExec() | SlackExec() | OnTimeExec() | LimitExec():
            return _origin(node.input, column, order)
        case ProjectExec(in_blocks=True):
            return {(order[id(node.input)], column)}
        case ProjectExec():
            forwarded = _forwarded(node.exprs[column])
            return None if forwarded is None else _origin(node.input, forwarded, order)
        case ArrivalExec() | BucketExec() | NumberExec():
            inner = len(node.input.schema)
            return _origin(node.input, column, order) if column < inner else None
        case LookupExec():
            return _origin(node.input, column, order) if column < node.width else None
        case TableJoinExec() | UnnestExec():
            passed = node.columns[column]
            return _origin(node.input, passed, order) if passed < node.width else None
        case UnionExec():
            found: set[Place] = set()
            for child in node.inputs:
                places = _origin(child, column, order)
                if places is None:
                    return None
                found |= places
            return found
        case ValuesExec() | MergeUnionExec() | PunctuatedSortExec() | WidAggregateExec():
            return None
        case SortExec() | KeyWindowsExec() | LateRowsExec() | DupelimExec() | RelationExec():
            return None
        case SubqueryJoinExec() | OopJoinExec() | RelationJoinExec() | AsofJoinExec():
            return None
        case WindowJoinExec() | ChangeAggregateExec() | SetOperationExec() | TopExec():
            return None
        case RowNumberExec() | StreamExec():
            return None
        case _:
            assert_never(node)


def _demand(node: Physical, needed: set[int], order: dict[int, int], encoded: set[Place]) -> None:
    """Adds to ``encoded`` the source columns that the ``needed`` output columns, or the operators
    below, need as codes."""
    match node:
        case SourceExec():
            encoded |= {(order[id(node)], c) for c in needed}
        case ValuesExec():
            pass
        case FilterExec():
            used = _text_of((node.condition,), node.input.schema)
            _demand(node.input, needed | used, order, encoded)
        case ProjectExec(in_blocks=True):
            encoded |= {(order[id(node.input)], c) for c in needed}
        case ProjectExec():
            computed = tuple(e for e in node.exprs if _forwarded(e) is None)
            forwarded = {c for i in needed if (c := _forwarded(node.exprs[i])) is not None}
            used = _text_of(computed, node.input.schema)
            _demand(node.input, forwarded | used, order, encoded)
        case ArrivalExec() | BucketExec() | NumberExec() | SlackExec() | OnTimeExec() | LimitExec():
            _demand(node.input, needed, order, encoded)
        case UnionExec():
            for child in node.inputs:
                _demand(child, needed, order, encoded)
        case WidAggregateExec():
            inner = (e for c in node.calls for e in (*c.args, *((c.where,) if c.where else ())))
            used = _text_of((*node.keys, *inner), node.input.schema)
            _demand(node.input, used, order, encoded)
        case OopJoinExec() | RelationJoinExec() | AsofJoinExec() | WindowJoinExec():  # keep rows
            for child in node.inputs:
                _demand(child, _text(child.schema), order, encoded)
        case LookupExec():
            keys = {c for c in _text(node.input.schema) if c >= node.width}
            forwarded = {c for c in needed if c < node.width}
            _demand(node.input, forwarded | keys, order, encoded)
            _demand(node.query, keys, order, encoded)
        case TableJoinExec():
            tested = {c for c in columns_of(*node.rest) if c < node.width}
            used = {a for a, _ in node.keys} | tested | {node.columns[c] for c in needed}
            text = _text(node.input.schema)
            _demand(node.input, used & text, order, encoded)
            _demand(node.table, _text(node.table.schema), order, encoded)
        case UnnestExec():
            used = {node.array, *(node.columns[c] for c in needed)} - {node.width}
            _demand(node.input, used, order, encoded)
        case MergeUnionExec():  # its waiting rows outlive their block
            for child in node.inputs:
                _demand(child, _text(node.schema), order, encoded)
        case (
            PunctuatedSortExec() | SortExec() | KeyWindowsExec() | LateRowsExec() | DupelimExec()
        ):  # an operator that keeps whole rows
            _demand(node.input, _text(node.input.schema), order, encoded)
        case RelationExec() | SubqueryJoinExec() | ChangeAggregateExec() | SetOperationExec():
            _demand(node.input, _text(node.input.schema), order, encoded)
        case TopExec() | RowNumberExec() | StreamExec():
            _demand(node.input, _text(node.input.schema), order, encoded)
        case _:
            assert_never(node)


def _forwarded(expr: Expr) -> int | None:
    """The input column that ``expr`` passes on, at most after a check; None for what computes."""
    match expr:
        case Column():
            return expr.index
        case Call(fn="checked_cast" | "checked_value", args=(Column() as value, _)):
            return value.index if value.type.is_text else None
    return None


def _text(schema: Schema) -> set[int]:
    return {i for i, f in enumerate(schema) if f.type.is_coded}


def _text_of(exprs: tuple[Expr, ...], schema: Schema) -> set[int]:
    return {c for c in columns_of(*exprs) if schema[c].type.is_coded}
