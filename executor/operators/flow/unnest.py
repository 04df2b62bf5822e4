"""UNNEST as a running operator: each row with each element of its array. The kernel reads numbers
directly in the dictionary (``executor.strings.arrays``); the operator encodes texts first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.base.types import DataType
from cql.executor.codegen.expressions.scope import Code
from cql.executor.codegen.kernel_builder import NEED_ROOM, Lazy, RowScope
from cql.executor.codegen.kernel_cache import Kernel, once
from cql.executor.codegen.morsel_io import close_output, morsel_columns, open_output
from cql.executor.kernels.lib.views import PACKED
from cql.executor.kernels.morsel_layout import PHASE, ROWS, data_word, mask_word
from cql.executor.morsel.egress import view_address
from cql.executor.morsel.morsel import Morsel
from cql.executor.operators.contract import CodeColumn
from cql.executor.operators.joins.row_expansion import PassingWriter
from cql.executor.operators.stage.kernel_operator import GeneratedOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.store import Role
from cql.executor.strings import arrays
from cql.executor.strings.dictionary import RESULTS
from cql.planner.nodes.expr import Expr
from cql.planner.nodes.physical import UnnestExec

#: The bytes of an empty array of texts.
_NO_TEXTS = bytes(4)


@once
def write(node: UnnestExec) -> Kernel:
    return _UnnestWriter(node).write()


@dataclass(slots=True)
class _UnnestWriter(PassingWriter):
    """Before the rows of each morsel, the kernel requests the elements: the addresses of the
    dictionary or, for texts, the codes of all elements (``firsts``: each row's first element)."""

    node: UnnestExec

    @property
    def partners(self) -> list[DataType]:
        return [self.node.element]

    @property
    def rest(self) -> tuple[Expr, ...]:
        return ()

    def write(self) -> Kernel:
        kernel, body = self.kernel, self.kernel.body
        kernel.layout.slot("emitted")
        with body.block():
            open_output(kernel)
            with body.block(f"if u[{PHASE}] == 0 and n > 0:"):
                body.lines("status = 2", f"detail = {NEED_ROOM}")
            with body.block(f"if u[{PHASE}] == 1:"):
                self.rows(phase=1)
            with body.block("if status == 0:"):
                self.punctuation()
            close_output(kernel)
            body.line("return status")
        return kernel.operator(max(len(self.node.input.schema), len(self.node.schema)))

    def find(self) -> None:
        kernel, body, node = self.kernel, self.kernel.body, self.node
        if node.element.is_text:
            firsts = kernel.declare("firsts", f"words({kernel.word('firsts')}, n + 1)")
            kernel.declare("codes", f"as_i32({kernel.word('codes')}, {firsts}[uint64(n)])")
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
                f"entry = uint64({code.value})",
                "at = starts[entry]",
                f"end = (starts[entry + uint64(1)] - at) // {arrays.width(node.element)}",
            )
            body.line(f"values = {PACKED[node.element.storage]}({arena} + at, end)")

    def count_row(self) -> None:
        self.kernel.body.line(f"{self.kernel.counter('elements')} += end - begin")

    def partner(self) -> list[Code | Lazy]:
        element = self.node.element
        of = "codes" if element.is_text else "values"
        truth = " != 0" if element.storage == "bool" else ""
        self.kernel.body.line(f"element = {of}[uint64(at)]{truth}")
        return [Code("element", None)]


class UnnestOperator(GeneratedOperator):
    """State, for texts only: the codes of the current morsel's elements, and the number of each
    row's first element. No state stays from one morsel to the next."""

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
        if self.node.element.is_text:
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
        entries = dictionary.decode(codes, valid, pa.large_binary()).fill_null(_NO_TEXTS)
        texts, counts = arrays.lists_of_texts(entries)
        self._keep("codes", dictionary.encode_results(texts, RESULTS))
        self._keep("firsts", np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]))

    def _keep(self, name: str, values: npt.NDArray[Any]) -> None:
        self.fresh(name, values.size, values.dtype, Role.SCRATCH)
        self.state[name][:] = values

    def counters(self) -> dict[str, int]:
        return self.counted()

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        """Only while no morsel is inside: what the last one had goes."""
        self._held = ()
        for name, array in self.state.items():
            self.fresh(name, 0, array.dtype, Role.SCRATCH)
