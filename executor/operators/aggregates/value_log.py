"""Value logs: what the kernel of a windowed aggregate keeps for its holistic calls.

A log is a table without an index: the values of the rows of each window (or pane) in arrival order,
each with the number of its group. Calls over the same arguments share a log. When a window closes,
``holistic`` computes the results from the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from cql.base.window import WindowKind
from cql.executor.codegen.expressions.emit import Code
from cql.executor.kernels.windows.region_table import find_slot
from cql.executor.morsel.buffers import POOL
from cql.executor.operators.aggregates.code import AggregateCode, argument
from cql.executor.operators.aggregates.holistic import Array, Entries, results
from cql.executor.operators.stage.spec import Table
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.logical import AggregateCall
from cql.planner.nodes.physical import WidAggregateExec

if TYPE_CHECKING:
    from cql.executor.operators.workspace import Workspace


#: The numbers of entries in a table.
Place: TypeAlias = "slice | Array"


@dataclass(frozen=True, slots=True)
class Log:
    """A value log. ``calls``: the numbers of the calls that read it. ``args``: their arguments;
    those in ``with_null`` can be NULL, since they only order rows. ``by_time``: whether a call
    needs the order by (window attribute, arrival)."""

    number: int
    calls: tuple[int, ...]
    args: tuple[Expr, ...]
    with_null: tuple[int, ...]
    by_time: bool

    @property
    def suffix(self) -> str:
        return f"_log{self.number}"

    def value(self, n: int) -> str:
        return f"logged{self.number}_{n}"

    def valid(self, n: int) -> str:
        return f"logged{self.number}_{n}_ok"

    @property
    def owner(self) -> str:
        return f"owner{self.suffix}"

    @property
    def width(self) -> int:
        """The number of columns of an entry."""
        return 1 + len(self.args) + len(self.with_null) + 2 * self.by_time

    @property
    def table(self) -> Table:
        columns = [self.owner, *(self.value(n) for n in range(len(self.args)))]
        columns += [self.valid(n) for n in self.with_null]
        columns += [f"time{self.suffix}", f"sequence{self.suffix}"] if self.by_time else []
        return Table(self.suffix, tuple((c, "int64") for c in columns), 0)


def logs_of(calls: tuple[AggregateCall, ...], *, distinct: bool = False) -> tuple[Log, ...]:
    """The logs of the holistic calls and, with ``distinct``, of the DISTINCT calls. Calls of either
    kind over the same arguments under the same FILTER share a log."""
    shared: dict[tuple[object, ...], list[int]] = {}
    for k, call in enumerate(calls):
        if call.holistic or (distinct and call.distinct):
            key = call.args, call.where, ordering(call), call.holistic
            shared.setdefault(key, []).append(k)
    return tuple(
        Log(
            number,
            tuple(ks),
            calls[ks[0]].args,
            tuple(n for n in sorted(ordering(calls[ks[0]])) if calls[ks[0]].args[n].nullable),
            any(calls[k].by_time for k in ks),
        )
        for number, ks in enumerate(shared.values())
    )


def ordering(call: AggregateCall) -> frozenset[int]:
    """The arguments that only order rows: a row counts even if one of them is NULL."""
    first = max(1, len(call.args) - len(call.order))
    return frozenset(range(first, len(call.args)))


def holistic_code(call: AggregateCall, k: int) -> AggregateCode:
    """The code of a holistic call. Its state is its result, which ``finish`` writes when the window
    has closed."""
    a, none = f"a{k}", "-1" if call.type.is_coded else "0"
    boolean = call.type.storage == "bool"
    return AggregateCode(
        ((f"{a}r", call.type.storage), (f"{a}h", "bool")),
        (f"{a}r[g] = {none}", f"{a}h[g] = 0"),
        (),
        (f"{a}v = {a}h[g] != 0",) if call.nullable else (),
        Code(f"({a}r[g] != 0)" if boolean else f"{a}r[g]", f"{a}v" if call.nullable else None),
        merge=(),  # its values move instead
        ordered=call.by_time,
        codes=(f"{a}r",) if call.type.is_coded else (),
        sees_null=ordering(call),
    )


def append(log: Log, owner: str, words: list[str]) -> list[str]:
    """Lines that append the row at hand to the current window's log, which has room for it, and set
    ``at`` to the new entry. ``owner``: the number of the row's group; ``words``: the arguments."""
    s, k = log.suffix, log.calls[0]
    columns = {log.owner: owner}
    columns |= {log.value(n): word for n, word in enumerate(words)}
    columns |= {log.valid(n): f"1 if {argument(k, n)}_ok else 0" for n in log.with_null}
    columns |= {f"time{s}": "T", f"sequence{s}": "Q"} if log.by_time else {}
    return [
        f"at = bases{s}[slot] + counts{s}[slot]",
        *(f"{column}[at] = {value}" for column, value in columns.items()),
        f"counts{s}[slot] += 1",
    ]


class Windows(Protocol):
    """The part of a running aggregate's state that its logs need."""

    @property
    def state(self) -> dict[str, Array]: ...

    def column(self, name: str, suffix: str = "") -> Array: ...

    def scalars(self) -> dict[str, int]: ...


def finish(
    windows: Windows,
    node: WidAggregateExec,
    logs: tuple[Log, ...],
    slot: int,
    workspace: Workspace,
) -> None:
    """Computes the results of the holistic calls for all groups of the window in ``slot``. Raises
    RunError if the values of the window do not fit into ``max_state``."""
    state = windows.state
    base, n = int(state["bases"][slot]), int(state["counts"][slot])
    for log in logs:
        parts = _parts(windows, node, log, slot)
        owners = windows.column(log.owner, log.suffix)
        group = [owners[at] if into is None else into[owners[at]] for at, into in parts]
        places, to = [at for at, _ in parts], slice(base, base + n)
        write(windows, node, log, n, _joined(group), places, to, workspace)


def write(
    windows: Windows,
    node: WidAggregateExec,
    log: Log,
    groups: int,
    group: Array,
    places: Sequence[Place],
    to: Place,
    workspace: Workspace,
) -> None:
    """Computes the results of the calls of one log for ``groups`` groups, and writes them to the
    entries ``to`` of the group table. ``places``: the numbers of the groups' entries in the log.
    ``group``: the group of each of these entries, below ``groups``."""
    # the most bytes at a time: the gathered columns, their sorted copies and the sort keys
    size = 8 * group.size * (2 * log.width + 4)
    workspace.resize(0, size, "the values of one window")
    entries = _entries(windows, log, groups, group, places)
    for k in log.calls:
        values, valid = results(node.calls[k], entries, workspace.dictionary)
        windows.column(f"a{k}r")[to] = values
        windows.column(f"a{k}h")[to] = valid
    workspace.resize(size, 0, "the values of one window")


def _parts(
    windows: Windows, node: WidAggregateExec, log: Log, slot: int
) -> list[tuple[Place, Array | None]]:
    """The numbers of a window's entries in a log: those of its own region, then those of each of
    its panes. A pane's part has the number, in the window, of each of the pane's groups."""
    state, s = windows.state, log.suffix

    def region(at: int) -> slice:
        base = int(state["bases" + s][at])
        return slice(base, base + int(state["counts" + s][at]))

    parts: list[tuple[Place, Array | None]] = [(region(slot), None)]
    if node.pane is None or node.window is None:
        return parts
    places, ids = state["places"], state["window_ids"]
    first, panes = int(ids[slot]) >> 1, (node.window.range or 0) // node.pane
    stop = first + panes
    if node.window.kind is WindowKind.CUMULATE:  # a gathered region's id has its last pane
        first, stop = first - panes + 1, windows.scalars()["next_window"] + 1
    into = windows.column("into")
    for pane in range(first, stop):
        at = int(find_slot(places, ids, places.size - 1, 2 * pane))
        if at >= 0:
            base = int(state["bases"][at])
            parts.append((region(at), into[base : base + int(state["counts"][at])]))
    return parts


def _entries(
    windows: Windows, log: Log, groups: int, group: Array, places: Sequence[Place]
) -> Entries:
    s = log.suffix

    def gathered(name: str) -> Array:
        column = windows.column(name, s)
        return _joined([column[at] for at in places])

    arguments = range(len(log.args))
    return Entries(
        groups,
        group,
        tuple(gathered(log.value(n)) for n in arguments),
        tuple(gathered(log.valid(n)) != 0 if n in log.with_null else None for n in arguments),
        gathered(f"time{s}") if log.by_time else None,
        gathered(f"sequence{s}") if log.by_time else None,
    )


def _joined(parts: list[Array]) -> Array:
    """The parts, one after the other; a single part is not copied."""
    if len(parts) == 1:
        return parts[0]
    joined = POOL.empty(np.int64, sum(part.size for part in parts))
    return np.concatenate(parts, out=joined)
