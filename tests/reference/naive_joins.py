"""The reference of joins: all pairs of rows, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from cql.base.window import WindowKind
from cql.planner.nodes.expr import Call, Cast, Column, Expr
from cql.planner.nodes.logical import (
    Filter,
    Join,
    Logical,
    Project,
    Windowed,
)
from tests.reference.naive_expr import evaluate as value_of
from tests.reference.naive_expr import is_true
from tests.reference.naive_order import progressing, windows_of
from tests.reference.naive_progress import NEVER
from tests.reference.naive_relations import Relations, parts_of
from tests.reference.naive_rows import Row, Run
from tests.reference.naive_tables import call
from tests.reference.naive_values import BadRowError


def joined(node: Join, rows_of: Callable[[Logical], list[Row]], run: Run) -> Iterator[Row]:
    """Each pair of rows whose windows meet and for which the condition holds.

    Two windows meet if the right row is at most the left RANGE later and the left row at most the
    right RANGE later, both ends in. A late row has no pairs; a row without a time is bad. A pair is
    bad if a part of the condition fails and no other part is false. Outer joins also give the rows
    without a partner; semi and anti joins give only rows of the left side.

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import call, column, stream
    >>> a, b = stream("a", "t bigint, k bigint"), stream("b", "u bigint, l bigint")
    >>> cross = Join(a, b, "cross", None)
    >>> apart = call("abs", call("sub", column(cross, "t"), column(cross, "u")))
    >>> both = Join(a, b, "inner", call("le", apart, 2))
    >>> evaluate(both, {"a": [(1, 7), (9, 8)], "b": [(3, 1), (4, 2), (11, 3), (5, 4)]}).rows
    [(1, 7, 3, 1), (9, 8, 11, 3)]
    >>> evaluate(replace(both, kind="anti"), {"a": [(1, 7), (5, 8)], "b": [(3, 1)]}).rows
    [(5, 8)]
    """
    if looks_up(node):
        yield from _with_table(node, rows_of, run)
        return
    if node.kind in ("asof", "asof left"):
        yield from _nearest(node, rows_of, run)
        return
    left, right = (_on_time(side, rows_of, run) for side in (node.left, node.right))
    width = len(node.left.schema)
    stays, waits = list(windows_of(node.left)), list(windows_of(node.right))
    parts = list(parts_of(node.condition))
    shown: list[tuple[Any, ...]] = []
    met: tuple[set[int], set[int]] = set(), set()
    for p, one in enumerate(left):
        for q, other in enumerate(right):
            near = all(
                (stay is None or other.values[b] - one.values[a] <= stay)
                and (wait is None or one.values[a] - other.values[b] <= wait)
                for a, stay in stays
                for b, wait in waits
            )
            values = (*one.values, *other.values)
            if not near:
                continue
            errors: list[BadRowError] = []
            if all(_holds(part, values, errors) for part in parts):
                if errors:
                    run.fails(errors[0])
                    continue
                met[0].add(p)
                met[1].add(q)
                shown.append(values)
    if node.kind in ("semi", "anti"):
        wanted = node.kind == "semi"
        shown = [one.values for p, one in enumerate(left) if (p in met[0]) == wanted]
    if node.kind in ("left", "full"):
        nothing = (None,) * len(node.right.schema)
        shown += [(*one.values, *nothing) for p, one in enumerate(left) if p not in met[0]]
    if node.kind in ("right", "full"):
        nothing = (None,) * width
        shown += [(*nothing, *other.values) for q, other in enumerate(right) if q not in met[1]]
    marks = (NEVER,) * (width + len(node.right.schema))
    yield from (Row(values, marks[: len(values)], k) for k, values in enumerate(shown))


def _with_table(node: Join, rows_of: Callable[[Logical], list[Row]], run: Run) -> Iterator[Row]:
    """A join of a stream and a table; the table is complete before the stream's first row.

    Each stream row, late or not, passes with each table row that it finds. A LEFT JOIN also passes
    the stream rows that find no table row.

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import call, column, stream, table
    >>> a, b = stream("a", "t bigint, k bigint"), table("b", "l bigint, v bigint")
    >>> same = call("eq", column(a, "k"), replace(column(b, "l"), index=2))
    >>> rows = {"a": [(1, 7), (5, 8), (2, 9)], "b": [(7, 1), (9, 2), (7, 3), (None, 4)]}
    >>> evaluate(Join(a, b, "left", same), rows).rows
    [(1, 7, 7, 1), (1, 7, 7, 3), (5, 8, None, None), (2, 9, 9, 2)]
    >>> evaluate(Join(a, b, "anti", same), rows).rows
    [(5, 8)]
    """
    turned = node.kind == "right" or (node.kind in ("inner", "cross") and not is_table(node.right))
    stream, table = (node.right, node.left) if turned else (node.left, node.right)
    width = len(table.schema)
    parts = list(parts_of(node.condition))
    held = rows_of(table)
    for row in rows_of(stream):
        found = False
        for other in held:
            values = (*other.values, *row.values) if turned else (*row.values, *other.values)
            errors: list[BadRowError] = []
            if not all(_holds(part, values, errors) for part in parts):
                continue
            if errors:
                run.fails(errors[0])
                continue
            found = True
            if node.kind not in ("semi", "anti"):
                yield _beside(row, other.values, turned)
        if node.kind in ("semi", "anti") and found == (node.kind == "semi"):
            yield row
        if node.kind in ("left", "right") and not found:
            yield _beside(row, (None,) * width, turned)


def _nearest(node: Join, rows_of: Callable[[Logical], list[Row]], run: Run) -> Iterator[Row]:
    """Each left row that is not late, with the nearest right row for which the condition holds.

    The one inequality between two columns decides: if the left time is the later one, the nearest
    right row is the latest, otherwise the earliest. Of several right rows with this time, the last
    to arrive counts.

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import call, column, stream
    >>> a, b = stream("a", "t bigint"), stream("b", "u bigint, v bigint")
    >>> since = call("ge", column(a, "t"), replace(column(b, "u"), index=1))
    >>> rows = {"a": [(1,), (5,), (4,), (9,)], "b": [(2, 1), (5, 2), (5, 3), (9, 4), (3, 5)]}
    >>> evaluate(Join(a, b, "asof", since), rows).rows
    [(5, 5, 3), (9, 9, 4)]
    >>> evaluate(Join(a, b, "asof left", since), rows).rows
    [(1, None, None), (5, 5, 3), (9, 9, 4)]
    """
    left, right = (_on_time(side, rows_of, run) for side in (node.left, node.right))
    width = len(node.left.schema)
    parts = list(parts_of(node.condition))
    (time, later), *_ = (found for part in parts for found in _inequality(part, width))
    marks = (NEVER,) * (width + len(node.right.schema))
    for k, one in enumerate(left):
        best = None
        for other in right:
            values = (*one.values, *other.values)
            if not all(is_true(part, values) for part in parts):
                continue
            if best is None or values[time] == best[time] or (values[time] > best[time]) == later:
                best = values
        if best is not None:
            yield Row(best, marks, k)
        elif node.kind == "asof left":
            yield Row((*one.values, *(None,) * len(node.right.schema)), marks, k)


def _inequality(part: Expr, width: int) -> Iterator[tuple[int, bool]]:
    """The right column of an inequality between two columns, and whether the left column is the
    later one; nothing for any other condition."""
    if not (isinstance(part, Call) and part.fn in ("ge", "gt", "le", "lt")):
        return
    bare = [a.arg if isinstance(a, Cast) else a for a in part.args]
    if all(isinstance(a, Column) for a in bare):
        a, b = (a.index for a in bare if isinstance(a, Column))
        if a < width <= b:
            yield b, part.fn in ("ge", "gt")
        elif b < width <= a:
            yield a, part.fn in ("le", "lt")


def _beside(row: Row, others: tuple[Any, ...], turned: bool) -> Row:
    """A stream row combined with a table row, whose columns come first if ``turned``."""
    marks = row.marks or (None,) * len(row.values)
    nothing = (None,) * len(others)
    if turned:
        return replace(row, values=(*others, *row.values), marks=(*nothing, *marks))
    return replace(row, values=(*row.values, *others), marks=(*marks, *nothing))


def is_table(node: Logical) -> bool:
    """Whether no column of ``node`` progresses: its rows are there from the beginning."""
    if isinstance(node, Windowed) or progressing(node):
        return False
    return all(map(is_table, node.inputs))


def looks_up(node: Join) -> bool:
    """Whether one side is a table whose rows need no partner."""
    sides = {"left": [node.right], "semi": [node.right], "anti": [node.right]}
    sides |= {"right": [node.left], "inner": [node.left, node.right]}
    sides["cross"] = sides["inner"]
    return any(map(is_table, sides.get(node.kind, [])))


def _holds(part: Expr, values: tuple[Any, ...], errors: list[BadRowError]) -> bool:
    try:
        return is_true(part, values)
    except BadRowError as error:
        errors.append(error)
        return True


def with_condition(node: Join, condition: Expr) -> Join:
    """The inner join with the WHERE condition above it: FROM a, b WHERE … means a JOIN b ON …"""
    both = condition
    if node.condition is not None:
        both = call("and", node.condition, condition)
    return replace(node, condition=both)


def holds_rows(node: Logical) -> bool:
    """Whether a window of rows (ROWS) is among the windows of a join's inputs."""
    match node:
        case Windowed():
            return node.window.kind is WindowKind.ROWS
        case Filter() | Project():
            return holds_rows(node.input)
        case Join():
            return holds_rows(node.left) or holds_rows(node.right)
        case _:
            return False


def together(node: Join, data: Relations, run: Run) -> Iterator[Row]:
    """Each pair of rows for which the condition holds and whose lives share an instant.

    >>> from tests.reference.naive import evaluate
    >>> from tests.reference.naive_tables import stream
    >>> from cql.base.window import Window
    >>> a, b = stream("a", "t bigint"), stream("b", "u bigint")
    >>> a, b = (Windowed(s, Window(WindowKind.ROWS, 0, rows=1)) for s in (a, b))
    >>> both = Join(a, b, "cross", None)
    >>> evaluate(both, {"a": [(1,), (2,), (2,), (6,)], "b": [(2,), (4,)]}).rows
    [(2, 2), (2, 4), (6, 4)]
    """
    found = _lives(node, data, data.instants(node), run)
    marks = (NEVER,) * len(node.schema)
    yield from (Row(values, marks, k) for k, (values, _) in enumerate(found))


Lives = list[tuple[tuple[Any, ...], set[int]]]


def _lives(node: Logical, data: Relations, instants: list[int], run: Run) -> Lives:
    """The rows of ``node``, each with the instants of its life."""
    match node:
        case Windowed():
            there: dict[int, set[int]] = {id(row): set() for _, row in data.members(node)}
            assert len(there) == len(data.members(node))
            for now in instants:
                for row in data.at(node, now):
                    there[id(row)].add(now)
            return [(row, there[id(row)]) for _, row in data.members(node)]
        case Filter(input=Join() as join):
            return _lives(with_condition(join, node.condition), data, instants, run)
        case Filter():
            lives = _lives(node.input, data, instants, run)
            return [(row, when) for row, when in lives if is_true(node.condition, row)]
        case Project():
            lives = _lives(node.input, data, instants, run)
            return [(tuple(value_of(e, row) for e in node.exprs), when) for row, when in lives]
        case Join():
            left, right = (_lives(side, data, instants, run) for side in data.sides(node))
            pairs = (
                ((*one, *other), when & others) for one, when in left for other, others in right
            )
            return [(row, when) for row, when in pairs if when and _asked(node, row, run)]
        case _:  # a table
            return [(row, set(instants)) for row in data.at(node, 0)]


def _asked(node: Join, values: tuple[Any, ...], run: Run) -> bool:
    errors: list[BadRowError] = []
    if not all(_holds(part, values, errors) for part in parts_of(node.condition)):
        return False
    if errors:
        run.fails(errors[0])
    return not errors


def _on_time(node: Logical, rows_of: Callable[[Logical], list[Row]], run: Run) -> list[Row]:
    kept = []
    bare = _bare(node)
    columns = sorted(progressing(bare)) if not isinstance(bare, Join) else []
    for row in rows_of(bare):
        late = False
        for column in columns:
            time, mark = row.values[column], row.marks[column]
            if time is None:
                run.fails(BadRowError("event time is NULL"))
                break
            late = mark is not None and time < mark
            if late:
                run.late += 1
                break
        else:
            kept.append(row)
    return kept


def _bare(node: Logical) -> Logical:
    match node:
        case Windowed():
            return node.input
        case Filter() | Project():
            return replace(node, input=_bare(node.input))
        case _:
            return node
