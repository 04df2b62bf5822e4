"""Splits morsels by key, for an operator that runs in partitions (ordered-multicore paper, §4).
The split copies no row: it lists the rows of each partition. It hashes the keys, or divides the
values of one key into ranges of equal width (that paper's figure 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cql.base.model import Field, Schema
from cql.base.types import BIGINT, INT, SMALLINT, DataType
from cql.executor.codegen.expressions.emit import Code, emit
from cql.executor.codegen.expressions.text import host_sites
from cql.executor.codegen.kernel_builder import KernelText, RowScope, passes
from cql.executor.codegen.kernel_cache import Kernel, once
from cql.executor.codegen.morsel_io import morsel_columns
from cql.executor.kernels.morsel_layout import (
    EPOCH,
    INFINITY,
    OUT,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    data_word,
    mask_word,
)
from cql.executor.morsel.arrow_columns import Array
from cql.executor.operators.contract import Parallelism
from cql.executor.operators.joins.key_index import partition_of, spread
from cql.executor.operators.stage.fused_steps import split_below
from cql.executor.operators.stage.kernel_operator import GeneratedOperator
from cql.executor.operators.workspace import Workspace
from cql.executor.state.declared import Declared
from cql.executor.state.store import Snapshot
from cql.planner.nodes.expr import Expr

#: Columns behind those of the input: row numbers grouped by partition, the offset at which each
#: partition's group begins, and the partition of each row (-1: the row is left out).
LISTS = (
    Field("rows", INT, False),
    Field("offsets", BIGINT, False),
    Field("part", SMALLINT, False),
)


def split_schema(schema: Schema) -> Schema:
    return Schema((*schema.fields, *LISTS))


class SplitOperator(GeneratedOperator):
    """``keys`` are expressions over ``schema``. ``types`` are the keys' common types over all
    inputs of the consuming operator. A row is left out unless all ``conditions`` hold. ``ranged``:
    splits by ranges of the one key (``Bounds``) instead of by hash."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        keys: Sequence[Expr],
        types: Sequence[DataType],
        parts: int,
        workspace: Workspace,
        conditions: Sequence[Expr] = (),
        *,
        ranged: bool = False,
    ) -> None:
        part = schema, tuple(keys), tuple(types), tuple(conditions), ranged
        super().__init__(name, workspace, _write(part))
        self._parts = parts
        self._conditions = len(conditions)
        self.bind("parts", parts)
        if ranged:
            self.divide(0, 0)

    def divide(self, low: int, high: int) -> None:
        """Makes the partitions ranges of equal width from ``low`` to ``high``. The first range also
        takes NULL and all lower keys, the last one all higher keys."""
        self.set("low", low)
        self.set("width", min((high - low) // self._parts + 1, INFINITY))

    def of_steps(self, saved: Snapshot, gone: Sequence[Snapshot]) -> Snapshot:
        if not saved.names:  # of no stage
            return self.snapshot()
        return split_below(saved, gone, self._slots, self._conditions)

    @property
    def parallelism(self) -> Parallelism:
        return Parallelism.STATELESS

    @property
    def passes_rows(self) -> bool:
        return True

    @property
    def numbers_rows(self) -> bool:
        return True

    def counters(self) -> dict[str, int]:
        return self.counted()


def can_split(schema: Schema, keys: Sequence[Expr], conditions: Sequence[Expr] = ()) -> bool:
    """Whether a kernel finds the partition of every row without Python: no key and no condition
    can fail or needs a table lookup."""
    if any(host_sites(expr) for expr in (*keys, *conditions)):  # the split has no columns for them
        return False
    types = tuple(key.type for key in keys)
    kernel = _write((schema, tuple(keys), types, tuple(conditions), False))
    needs = (kernel.tables, kernel.functions, kernel.sites, kernel.zones, kernel.parts)
    return not any(needs) and not kernel.uses_rank


@dataclass
class Bounds(Declared):
    """The ranges of a key, shared by ``splits`` (the splits of a join's inputs). ``places`` are the
    (input, column) pairs whose values set the ranges; ``known`` says whether a value has set
    them."""

    saved_numbers: ClassVar[tuple[str, ...]] = ("known",)

    splits: list[SplitOperator]
    places: list[tuple[int, int]]
    known: bool = False

    def learn(self, source: int, data: Sequence[Array], masks: Sequence[Array | None]) -> None:
        """Sets the ranges to the minimum and maximum of the first block of input ``source`` with a
        non-NULL value; later blocks change nothing."""
        for column in () if self.known else {c for k, c in self.places if k == source}:
            values, mask = data[column], masks[column]
            if mask is not None:
                values = values[mask != 0]
            if len(values):
                self.known = True
                for split in self.splits:
                    split.divide(int(values.min()), int(values.max()))


@once
def _write(
    part: tuple[Schema, tuple[Expr, ...], tuple[DataType, ...], tuple[Expr, ...], bool],
) -> Kernel:
    schema, keys, types, conditions, ranged = part
    kernel = KernelText()
    body, width = kernel.body, len(schema)
    with body.block():
        for word in (ROWS, SERIAL, SEQUENCE, EPOCH, PUNCTUATIONS):
            body.line(f"o[{word}] = u[{word}]")
        for c in range(width):
            for word in (data_word(c), mask_word(c)):
                body.line(f"o[{word}] = u[{word}]")
        size = f"{PUNCTUATION_WORDS} * u[{PUNCTUATIONS}]"
        body.line(f"arrived = words(u[{PUNCTUATION_ADDRESS}], {size})")
        body.line(f"leaving = words(o[{PUNCTUATION_ADDRESS}], {size})")
        with body.block(f"for k in range({size}):"):
            body.line("leaving[k] = arrived[k]")
        kernel.declare("parts", kernel.word("parts"))
        kernel.declare("part", f"as_i16(o[{data_word(width + 2)}], n)")
        with body.block("for i in range(n):"):
            body.line("r = uint64(i)")
            scope = RowScope(kernel, "r")
            scope.columns = morsel_columns(schema)
            # Evaluates conditions and keys for every row, without branches, so that the compiler
            # can hash several rows at once: no expression here can fail.
            tests = [passes(emit(condition, scope)) for condition in conditions]
            codes = [emit(key, scope) for key in keys]
            if ranged:
                body.line(f"q = {_range_of(codes[0], kernel)}")
            else:
                body.line(f"h = {spread(codes, types, kernel)}")
                body.line(f"q = {partition_of('h', 'parts')}")
            body.line(f"part[r] = q if {' and '.join(tests)} else -1" if tests else "part[r] = q")
        body.line(f"split_rows(morsel, u[{OUT}], {width}, parts)")
        passed = "n"
        if conditions:
            offsets = f"words(o[{data_word(width + 1)}], parts + 1)"
            body.lines(f"offsets = {offsets}", "passed = offsets[parts]")
            passed = "passed"
            body.line(f"{kernel.counter('filtered_0')} += n - passed")
        body.line(f"{kernel.counter('rows_in')} += n")
        body.line(f"{kernel.counter('rows_out')} += {passed}")
        for counter in kernel.counters:
            body.line(f"fetch_add_relaxed(desc + {8 * kernel.layout.slot(counter)}, {counter})")
        body.line("return 0")
    return kernel.operator(width + len(LISTS))


def _range_of(code: Code, kernel: KernelText) -> str:
    """The number of the range that holds a key. The distance of two keys may need all 64 bits,
    hence the unsigned division."""
    low, width = (kernel.declare(name, kernel.word(name)) for name in ("low", "width"))
    value = f"int64({code.value})"
    at = f"int64(min(uint64({value} - {low}) // uint64({width}), uint64(parts - 1)))"
    above = f"{value} > {low}"
    if code.valid is not None:
        above = f"{code.valid} and {above}"
    return f"{at} if {above} else 0"
