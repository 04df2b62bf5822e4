"""Kernel text for morsels that all operators share: input columns, output rows, punctuation."""

from __future__ import annotations

from cql.base.model import Schema
from cql.executor.codegen.expressions.scope import Code
from cql.executor.codegen.kernel_builder import KernelText, Lazy
from cql.executor.kernels.lib.views import VIEWS
from cql.executor.kernels.morsel_layout import (
    CHOSEN,
    DETAIL,
    DETAIL_ROW,
    EPOCH,
    PUNCTUATION_ADDRESS,
    PUNCTUATION_WORDS,
    PUNCTUATIONS,
    ROWS,
    SEQUENCE,
    SERIAL,
    data_word,
    mask_word,
)


def morsel_columns(
    schema: Schema, name: str = "", sure: frozenset[int] = frozenset()
) -> list[Code | Lazy]:
    """The columns of a morsel. ``name`` distinguishes the columns of several inputs; columns in
    ``sure`` hold no NULL."""
    return [
        Lazy(
            f"{name}in{c}",
            f"{VIEWS[f.type.storage]}(u[{data_word(c)}], n)",
            f"{name}im{c}" if f.nullable and c not in sure else None,
            f"as_u8(u[{mask_word(c)}], n)",
            f.type,
        )
        for c, f in enumerate(schema)
    ]


def row_at(kernel: KernelText, place: str, *, partitioned: bool) -> str:
    """The morsel's row at a place among the rows that the kernel takes: all rows, or, if
    ``partitioned``, the rows of its partition (CHOSEN)."""
    if not partitioned:
        return f"uint64({place})"
    kernel.declare("chosen", f"as_i32(u[{CHOSEN}], n)")
    return f"uint64(chosen[uint64({place})])"


def open_output(kernel: KernelText) -> None:
    """Sets the output's header, and ``j``, its next row. The output of an operator that makes its
    rows of several rows has stream positions of its own (``emitted``)."""
    body = kernel.body
    body.lines(f"o[{SERIAL}] = u[{SERIAL}]", f"o[{EPOCH}] = u[{EPOCH}]")
    body.lines(f"j = o[{ROWS}]", "before = j")
    with body.block("if j == 0:"):
        body.line(f"o[{SEQUENCE}] = {kernel.word('emitted')}")


def close_output(kernel: KernelText) -> None:
    """Counts the output rows, and adds the counters to the descriptor."""
    body = kernel.body
    body.lines(f"o[{ROWS}] = j", f"{kernel.counter('rows_out')} += j - before")
    for name in kernel.counters:
        body.line(f"fetch_add_relaxed(desc + {8 * kernel.layout.slot(name)}, {name})")
    emitted = kernel.layout.slot("emitted")
    body.line(f"fetch_add_relaxed(desc + {8 * emitted}, j - before)")
    body.lines(f"u[{DETAIL}] = detail", f"u[{DETAIL_ROW}] = detail_row")


def read_punctuation(kernel: KernelText) -> str:
    return kernel.declare(
        "arrived", f"words(u[{PUNCTUATION_ADDRESS}], {PUNCTUATION_WORDS} * u[{PUNCTUATIONS}])"
    )


def send_punctuation(kernel: KernelText, attribute: str, value: str) -> None:
    """Appends a punctuation to the output's; ``kernels.drive.passing.send`` as text."""
    kernel.declare("sent", f"words(o[{PUNCTUATION_ADDRESS}], 256)")
    kernel.body.line(f"o[{PUNCTUATIONS}] = send(sent, o[{PUNCTUATIONS}], {attribute}, {value})")
