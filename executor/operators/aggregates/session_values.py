"""Value logs of sessions: what DISTINCT and holistic calls keep of the rows of each open session.

A session has, for each log, a chain of its rows' values; when two sessions join, their chains are
concatenated. Before the sessions that punctuation closes leave, the results of all of them are
computed at once: the result of a holistic call in numpy (``holistic``); for a DISTINCT call the
different values, which the kernel adds to its state. The chains are then purged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cql.base.uninterruptible import load_module
from cql.executor.codegen.kernel_builder import NEED_RESULTS, NEED_ROOM, KernelText
from cql.executor.codegen.key_packing import WORD, key_expression
from cql.executor.kernels.lib import treap as chains
from cql.executor.kernels.lib.views import VIEWS
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.operators.aggregates.code import AggregateCode, argument
from cql.executor.operators.aggregates.holistic import (
    Array,
    Entries,
    first_of_each_value,
    results,
    stored,
)
from cql.executor.operators.aggregates.value_log import Log
from cql.executor.strings import arrays
from cql.executor.strings.dictionary import ARRAYS
from cql.planner.nodes.logical import AggregateCall

if TYPE_CHECKING:
    from cql.executor.operators.contract import CodeColumn
    from cql.executor.operators.stage.session_windows import SessionOperator


def columns(logs: Sequence[Log], anew: Sequence[int]) -> list[tuple[str, str]]:
    """The columns of a session's record for its values: the head and the tail of its chains, and
    for DISTINCT calls (``anew``) the start and the number of its different values."""
    ends = [(f"{end}{log.suffix}", "int64") for log in logs for end in ("head", "tail")]
    return ends + [(f"{name}{k}", "int64") for k in anew for name in ("from", "many")]


def scalars(logs: Sequence[Log]) -> list[str]:
    """The descriptor's words that are state of the logs."""
    kept = [f"{name}{log.suffix}" for log in logs for name in ("free", "used")]
    return [*kept, "results_to"] if logs else []


def width(log: Log) -> int:
    """The number of words of an entry."""
    return chains.FIRST + len(log.args) + len(log.with_null)


def declare(
    kernel: KernelText, logs: Sequence[Log], anew: Sequence[int], calls: Sequence[AggregateCall]
) -> None:
    for log in logs:
        s = log.suffix
        room = kernel.declare(f"room{s}", kernel.word(f"room{s}"))
        kernel.declare(f"chain{s}", f"words({kernel.word(f'chain{s}')}, {width(log)} * {room})")
    for k in anew:
        view = VIEWS["float64" if calls[k].args[0].type.is_fraction else "int64"]
        at, size = kernel.word(f"different{k}"), kernel.word(f"differents{k}")
        kernel.declare(f"different{k}", f"{view}({at}, {size})")


def begin(logs: Sequence[Log]) -> list[str]:
    """Lines that give a new session empty chains."""
    return [f"{end}{log.suffix}[g] = -1" for log in logs for end in ("head", "tail")]


def make_room(
    kernel: KernelText, number: int, log: Log, condition: str | None, leave: list[str]
) -> None:
    """Requests room for one more entry, before the row changes any state."""
    s = log.suffix
    full = f"{kernel.word(f'free{s}')} < 0 and {kernel.word(f'used{s}')} >= room{s}"
    with kernel.body.block(f"if {condition or 'True'} and {full}:"):
        kernel.body.lines(f"status = 2; detail = {NEED_ROOM + 1 + number}", leave[0])


def append(kernel: KernelText, log: Log, condition: str | None) -> None:
    """Adds the row's values to the chain of session ``g``."""
    s, k, body = log.suffix, log.calls[0], kernel.body
    free, used = kernel.word(f"free{s}"), kernel.word(f"used{s}")
    words = ["-1", "T" if log.by_time else "0", "Q" if log.by_time else "0"]
    for n, arg in enumerate(log.args):
        word = key_expression(arg.type, argument(k, n), WORD)
        words.append(f"{word} if {argument(k, n)}_ok else 0" if n in log.with_null else word)
    words += [f"1 if {argument(k, n)}_ok else 0" for n in log.with_null]
    with body.block(f"if {condition or 'True'}:"):
        body.line(f"entry = {free}")
        with body.block("if entry >= 0:"):
            body.line(f"{free} = chain{s}[{width(log)} * entry]")
        with body.block("else:"):
            body.lines(f"entry = {used}", f"{used} = entry + 1")
        body.line(f"at = {width(log)} * entry")
        body.lines(*(f"chain{s}[at + {w}] = {word}" for w, word in enumerate(words)))
        with body.block(f"if tail{s}[g] >= 0:"):
            body.line(f"chain{s}[{width(log)} * tail{s}[g]] = entry")
        with body.block("else:"):
            body.line(f"head{s}[g] = entry")
        body.line(f"tail{s}[g] = entry")


def join(kernel: KernelText, logs: Sequence[Log]) -> None:
    """Appends the chains of session ``gone`` to those of ``kept``."""
    body = kernel.body
    for log in logs:
        s = log.suffix
        with body.block(f"if head{s}[gone] >= 0:"):
            with body.block(f"if tail{s}[kept] >= 0:"):
                body.line(f"chain{s}[{width(log)} * tail{s}[kept]] = head{s}[gone]")
            with body.block("else:"):
                body.line(f"head{s}[kept] = head{s}[gone]")
            body.line(f"tail{s}[kept] = tail{s}[gone]")
            body.lines(f"head{s}[gone] = -1", f"tail{s}[gone] = -1")


def request_results(kernel: KernelText) -> None:
    """Requests the results, once for all sessions that the watermark closes."""
    with kernel.body.block(f"if {kernel.word('results_to')} < {kernel.word('watermark')}:"):
        kernel.body.lines("status = 2", f"detail = {NEED_RESULTS}", "detail_row = 0", "break")


def add_different(
    kernel: KernelText, k: int, call: AggregateCall, code: AggregateCode,
    emit: Callable[[tuple[str, ...]], None],
) -> None:  # fmt: skip
    """Computes the state of a DISTINCT call from the different values of session ``g``."""
    body, kind = kernel.body, call.args[0].type
    boolean = " != 0" if kind.storage == "bool" else ""
    body.lines(*code.init)
    with body.block(f"for at in range(from{k}[g], from{k}[g] + many{k}[g]):"):
        body.line(f"{argument(k, 0)} = different{k}[at]{boolean}")
        emit(code.update)


class SessionLogs:
    """The logs of a running stage that ends in sessions."""

    def __init__(self, operator: SessionOperator) -> None:
        self.operator = operator
        self.logs = operator.code.logs
        assert operator.spec.aggregate is not None
        self.calls = operator.spec.aggregate.calls

    def allocate(self, entries: int) -> None:
        for number in range(len(self.logs)):
            self.grow(number, entries)
        for name in scalars(self.logs):
            empty = {"used": 0, "free": -1, "results": NEVER}
            self.operator._set(name, empty[name.split("_")[0]])

    def grow(self, number: int, entries: int = 0) -> None:
        log, operator = self.logs[number], self.operator
        name = f"chain{log.suffix}"
        held = operator.state[name].size // width(log) if name in operator.state else 0
        operator.store.resize(name, width(log) * max(entries, 2 * held), np.int64)

    def bind(self) -> None:
        state = self.operator.state
        for log in self.logs:
            name = f"chain{log.suffix}"
            if name in state:
                self.operator._set(f"room{log.suffix}", state[name].size // width(log))
            for k in log.calls:
                if f"different{k}" in state:
                    self.operator._set(f"differents{k}", state[f"different{k}"].size)

    def map_codes(self, change: Callable[[CodeColumn], CodeColumn]) -> None:
        for log in self.logs:
            used = self.operator.scalars()[f"used{log.suffix}"]
            entries = self.operator.state[f"chain{log.suffix}"].reshape(-1, width(log))[:used]
            for n, arg in enumerate(log.args):
                if arg.type.is_coded:
                    column = entries[:, chains.FIRST + n]
                    held = column >= 0  # entries that were given back hold -1
                    column[held] = change(column[held].astype(np.int32))

    def finish(self, records: Array) -> None:
        """Computes the results of the sessions that are about to leave."""
        operator = self.operator
        for log in self.logs:
            if self._is_list(log):
                self._list(log, records)
                continue
            entries = self._taken(log, records)
            for k in log.calls:
                call = self.calls[k]
                if call.holistic:
                    values, valid = results(call, entries, operator.workspace.dictionary)
                    operator.column(f"a{k}r")[records] = values
                    operator.column(f"a{k}h")[records] = valid
                else:
                    self._different(k, entries, records)

    def _is_list(self, log: Log) -> bool:
        """Whether a log serves a single array_agg, without ORDER BY and over values that are no
        codes."""
        call = self.calls[log.calls[0]]
        plain = len(log.calls) == 1 and call.fn == "array_agg" and not call.order
        return plain and not (log.with_null or call.args[0].type.is_coded)

    def _list(self, log: Log, records: Array) -> None:
        (k,) = log.calls
        operator, call, s = self.operator, self.calls[k], log.suffix
        element = call.type.element
        assert element is not None
        nodes = operator.state[f"chain{s}"].reshape(-1, width(log))
        heads = operator.column(f"head{s}")
        control = np.array([operator.scalars()[f"free{s}"], 0, 0, 0], np.int64)
        kernel = load_module("cql.executor.kernels.relations.segment_sort")
        found = kernel.lists_of_chains(nodes, control, heads[records], call.distinct, log.by_time)
        values, counts = found
        self._forget(log, records, int(control[chains.FREE]))
        entries = arrays.entries_of(stored(values, element), counts, element)
        codes = operator.workspace.dictionary.encode_results(entries, ARRAYS)
        operator.column(f"a{k}r")[records] = codes
        operator.column(f"a{k}h")[records] = 1

    def _forget(self, log: Log, records: Array, free: int) -> None:
        """Sets the chains of sessions to empty, after their entries were given back; ``free`` is
        the first free entry."""
        self.operator._set(f"free{log.suffix}", free)
        for end in ("head", "tail"):
            self.operator.column(f"{end}{log.suffix}")[records] = -1

    def _taken(self, log: Log, records: Array) -> Entries:
        """Returns the entries of sessions, and gives the chains' entries back."""
        operator, s, wide = self.operator, log.suffix, width(log)
        nodes = operator.state[f"chain{s}"].reshape(-1, wide)
        heads = operator.column(f"head{s}")[records].copy()
        control = np.array([operator.scalars()[f"free{s}"], 0, 0, 0], np.int64)
        sizes = np.empty(records.size, np.int64)
        lines = np.empty((int(chains.count_chains(nodes, heads, sizes)), wide), np.int64)
        chains.take_chains(nodes, control, heads, lines)
        self._forget(log, records, int(control[chains.FREE]))
        args = len(log.args)
        of = {n: chains.FIRST + args + i for i, n in enumerate(log.with_null)}
        return Entries(
            records.size,
            np.repeat(np.arange(records.size), sizes),
            tuple(np.ascontiguousarray(lines[:, chains.FIRST + n]) for n in range(args)),
            tuple(lines[:, of[n]] != 0 if n in of else None for n in range(args)),
            np.ascontiguousarray(lines[:, chains.TIME]) if log.by_time else None,
            np.ascontiguousarray(lines[:, chains.SEQUENCE]) if log.by_time else None,
        )

    def _different(self, k: int, entries: Entries, records: Array) -> None:
        operator, name = self.operator, f"different{k}"
        found = first_of_each_value(entries)
        words = found.words[0]
        old = operator.state.get(name, words[:0])
        operator.workspace.resize(old.nbytes, words.nbytes, operator.name)
        operator.state[name] = words
        counts = found.counts
        operator.column(f"from{k}")[records] = np.cumsum(counts) - counts
        operator.column(f"many{k}")[records] = counts
