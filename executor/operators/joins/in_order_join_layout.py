"""The columns that an in-order window join stores, and the keys by which it looks rows up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cql.base.model import Schema
from cql.executor.codegen.key_packing import KeyPart, pack_keys
from cql.planner.nodes.expr import columns_of
from cql.planner.nodes.physical import WindowJoinExec


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the kernel. ``first``: the number of its first column among the columns of all
    inputs. ``kept``: the columns stored. ``out_time``: the output column that holds the input's
    time, and so gets its punctuation (None: there is none)."""

    port: int
    schema: Schema
    first: int
    time: int
    kept: tuple[int, ...]
    out_time: int | None

    @property
    def separate_times(self) -> bool:
        """Whether the time column is stored in addition to the int64 times."""
        return self.time in self.kept and self.schema[self.time].type.storage != "int64"


@dataclass(frozen=True, slots=True)
class Directory:
    """The keys by which rows of the inputs ``members`` are looked up. ``sets``: the numbers of the
    sets of equal columns that form a key. ``parts``: the place of each in the key's ``words``."""

    number: int
    sets: tuple[int, ...]
    members: tuple[int, ...]
    parts: tuple[KeyPart, ...]
    words: int


@dataclass(frozen=True, slots=True)
class Probe:
    """A lookup of partners in input ``port``: by a directory, or (None) among all its rows."""

    port: int
    directory: int | None


@dataclass(slots=True)
class JoinLayout:
    """``probes``: for a row of each input, the lookups of its partners, in order."""

    node: WindowJoinExec
    inputs: list[Input] = field(init=False)
    directories: list[Directory] = field(init=False)
    probes: list[list[Probe]] = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = [self._input(port) for port in range(len(self.node.inputs))]
        self._plan_probes()

    def _input(self, port: int) -> Input:
        node, child = self.node, self.node.inputs[port]
        first, schema = node.first(port), child.schema
        read = {*node.columns, *columns_of(*node.rest)}
        read |= {c for band in node.column_bands for c in (band.left, band.right)}
        keys = {c for members in node.keys for i, c in members if i == port}
        kept = tuple(c for c in range(len(schema)) if first + c in read or c in keys)
        time = node.times[port]
        out_time = None
        if time in child.progressing:
            out_time = next((k for k, c in enumerate(node.columns) if c == first + time), None)
        return Input(port, schema, first, time, kept, out_time)

    def column(self, number: int, port: int) -> int | None:
        """The column of input ``port`` in set ``number`` of equal columns; None if it has none."""
        return next((c for i, c in self.node.keys[number] if i == port), None)

    def owns(self, port: int, sets: Sequence[int]) -> bool:
        return all(self.column(s, port) is not None for s in sets)

    def _plan_probes(self) -> None:
        """Orders the lookups for a row of each input. The next lookup is in the input that shares
        the most sets of equal columns with the inputs before it."""
        members: dict[tuple[int, ...], set[int]] = {}
        orders: list[list[tuple[int, tuple[int, ...]]]] = []
        for one in self.inputs:
            bound, left, order = [one.port], [i.port for i in self.inputs if i is not one], []
            while left:
                port = max(left, key=lambda q: (len(self._shared(bound, q)), -q))
                shared = self._shared(bound, port)
                if shared:
                    members.setdefault(shared, set()).add(port)
                order.append((port, shared))
                bound.append(port)
                left.remove(port)
            orders.append(order)
        self.directories = []
        for sets, ports in sorted(members.items()):
            types = []
            for s in sets:
                port, column = self.node.keys[s][0]
                types.append(self.inputs[port].schema[column].type)
            parts, words = pack_keys(types)
            number = len(self.directories)
            made = Directory(number, sets, tuple(sorted(ports)), tuple(parts), words)
            self.directories.append(made)
        known = {d.sets: d.number for d in self.directories}
        self.probes = [[Probe(port, known.get(sets)) for port, sets in order] for order in orders]

    def _shared(self, bound: Sequence[int], port: int) -> tuple[int, ...]:
        return tuple(
            s
            for s in range(len(self.node.keys))
            if self.owns(port, [s]) and any(self.owns(b, [s]) for b in bound)
        )
