"""UNNEST as a running operator: each row with each element of its array. The kernel reads numbers
directly in the dictionary (``planner.interpret.entries``); the operator encodes texts, arrays and
structs first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.types import DataType
from cql.executor.codegen.expressions.scope import Code
from cql.executor.codegen.kernel_builder import Lazy, RowScope
from cql.executor.codegen.kernel_cache import Kernel, once
from cql.executor.codegen.morsel_io import morsel_columns
from cql.executor.kernels.lib.views import PACKED
from cql.executor.kernels.morsel_layout import PHASE, ROWS, data_word, mask_word
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.joins.row_expansion import PassingWriter
from cql.executor.operators.stage.kernel_operator import GeneratedOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes
from cql.executor.state.store import Role
from cql.executor.strings.dictionary import ARRAYS, RESULTS
from cql.executor.strings.nested import array_parts
from cql.executor.texts.column import VALID, Texts, to_arrow
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.physical import UnnestExec


@once
def write(node: UnnestExec) -> Kernel:
    return _UnnestWriter(node).write_provided()


@dataclass(slots=True)
class _UnnestWriter(PassingWriter):
    """Before the rows of each morsel, the kernel requests the elements: the addresses of the
    dictionary or, for elements with codes, the codes of all elements (``firsts``: each row's first
    element; ``there``: 0 for NULL)."""

    node: UnnestExec

    @property
    def partners(self) -> list[DataType]:
        return [self.node.element]

    @property
    def rest(self) -> tuple[Expr, ...]:
        return ()

    def find(self) -> None:
        kernel, body, node = self.kernel, self.kernel.body, self.node
        if node.element.is_coded:
            firsts = kernel.declare("firsts", f"words({kernel.word('firsts')}, n + 1)")
            kernel.declare("codes", f"as_i32({kernel.word('codes')}, {firsts}[uint64(n)])")
            if node.contains_null:
                kernel.declare("there", f"as_u8({kernel.word('there')}, {firsts}[uint64(n)])")
            body.lines("begin = firsts[r]", "end = firsts[r + uint64(1)]")
            return
        size = kernel.declare("dictionary", kernel.word("dictionary"))
        kernel.declare("starts", f"words({kernel.word('starts')}, {size} + 1)")
        arena = kernel.declare("arena", kernel.word("arena"))
        scope = RowScope(kernel, "r")
        scope.columns = morsel_columns(node.input.schema)
        code = scope.load(node.array)
        body.lines("begin = 0", "end = 0")
        with body.block(f"if {code.valid or 'True'}:"):
            body.lines(
                f"place = {arena} + starts[uint64({code.value})]",
                "end = int64(packed_i32(place, 1)[0])",
                "place += 4",
            )
            if node.contains_null:
                body.line("nulls = end < 0")
                with body.block("if nulls:"):
                    body.line("end = ~end")
                body.line("there = packed_u8(place, end)")
                with body.block("if nulls:"):
                    body.line("place += end")
            body.line(f"values = {PACKED[node.element.storage]}(place, end)")

    def count_row(self) -> None:
        self.kernel.body.line(f"{self.kernel.counter('elements')} += end - begin")

    def partner(self) -> list[Code | Lazy]:
        element = self.node.element
        of = "codes" if element.is_coded else "values"
        truth = " != 0" if element.storage == "bool" else ""
        self.kernel.body.line(f"element = {of}[uint64(at)]{truth}")
        if not self.node.contains_null:
            return [Code("element", None)]
        always = "" if element.is_coded else "not nulls or "
        self.kernel.body.line(f"known = {always}there[uint64(at)] != 0")
        return [Code("element", "known")]


class UnnestOperator(GeneratedOperator):
    """State, for elements with codes only: the codes of the current morsel's elements, which of
    them are not NULL, and the number of each row's first element. No state stays from one morsel to
    the next."""

    def __init__(self, name: str, node: UnnestExec, workspace: Workspace) -> None:
        super().__init__(name, workspace, write(node))
        self.node = node
        self._held: tuple[npt.NDArray[Any], ...] = ()  # kept alive: the kernel has their addresses

    @property
    def can_replicate(self) -> bool:
        return True

    def replica(self) -> UnnestOperator:
        return UnnestOperator(self.name, self.node, self.workspace)

    @property
    def added(self) -> list[int]:
        return [self.slot(name) for name in (*self._kernel.counters, "emitted")]

    @property
    def numbers_rows(self) -> bool:
        return True

    def provide(self, morsel: Morsel) -> None:
        dictionary = self.workspace.dictionary
        if self.node.element.is_coded:
            self._encode(morsel)
        else:
            size = len(dictionary)  # before the arrays, which another thread may replace by larger
            starts, arena = self._held = dictionary.starts, dictionary.arena
            self.bind("dictionary", size)
            self.bind("starts", starts.ctypes.data)
            self.bind("arena", arena.ctypes.data)
        morsel.words[PHASE] = 1

    def _encode(self, morsel: Morsel) -> None:
        n, array, dictionary = int(morsel.words[ROWS]), self.node.array, self.workspace.dictionary
        codes = view_address(int(morsel.words[data_word(array)]), np.dtype(np.int32), n)
        if self.node.input.schema[array].nullable:
            valid = view_address(int(morsel.words[mask_word(array)]), np.dtype(np.uint8), n)
            codes = np.where(valid != 0, codes, 0)
        else:
            valid = None
        places = dictionary.starts  # before the arena: a later arena covers at least these entries
        starts, ends = places[codes], places[codes + 1]
        if valid is not None:
            ends = np.where(valid != 0, ends, starts)
        element = self.node.element
        counts, there, elements = array_parts(Texts(dictionary.arena, starts, ends), element)
        assert isinstance(elements, Texts)
        status = np.full(len(elements), VALID, np.uint8) if there is None else there
        depth = ARRAYS if element.is_nested else RESULTS
        texts = to_arrow(elements, status, pa.binary())
        self._keep("codes", dictionary.encode_results(texts, depth))
        self._keep("firsts", np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]))
        if self.node.contains_null:
            self._keep("there", status)

    def _keep(self, name: str, values: npt.NDArray[Any]) -> None:
        self.fresh(name, values.size, values.dtype, Role.SCRATCH)
        self.state[name][:] = values

    def counters(self) -> dict[str, int]:
        return self.counted()

    def codes(self) -> Iterator[Codes]:
        self._held = ()
        for name, array in self.state.items():
            self.fresh(name, 0, array.dtype, Role.SCRATCH)
        return super().codes()
