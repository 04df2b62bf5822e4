"""Value logs of sessions: what DISTINCT and holistic calls keep of the rows of each open session.

A session has, for each log, a chain of its rows' values; when two sessions join, their chains are
concatenated. When a session closes, the kernel computes its lists (``array_agg``) and adds the
different values to the state of DISTINCT calls; it purges the chain after the session has left.
The results of other holistic calls are computed in numpy (``holistic``), at once for all sessions
that a watermark closes; their chains are then purged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cql.base.uninterruptible import load_module
from cql.executor.codegen.kernel_builder import NEED_RANK, NEED_RESULTS, NEED_ROOM, KernelText
from cql.executor.codegen.key_packing import WORD, key_expression
from cql.executor.kernels.lib import treap as chains
from cql.executor.kernels.lib.views import VIEWS
from cql.executor.kernels.morsel_layout import NEVER
from cql.executor.operators.aggregates.code import AggregateCode, argument
from cql.executor.operators.aggregates.holistic import Array, Entries, results
from cql.executor.operators.aggregates.value_log import Log
from cql.executor.state.codes import Codes
from cql.executor.state.stateful import Stateful
from cql.executor.strings.dictionary import ARRAYS
from cql.planner.interpret.entries import width as width_in_entry
from cql.planner.nodes.logical import AggregateCall

if TYPE_CHECKING:
    from cql.executor.operators.stage.session_windows import SessionOperator


def columns(logs: Sequence[Log]) -> list[tuple[str, str]]:
    """The columns of a session's record for its values: the head and the tail of its chains."""
    return [(f"{end}{log.suffix}", "int64") for log in logs for end in ("head", "tail")]


def scalars(logs: Sequence[Log]) -> list[str]:
    """The descriptor's words that are state of the logs."""
    return [f"{name}{log.suffix}" for log in logs for name in ("free", "used")]


def width(log: Log) -> int:
    """The number of words of an entry."""
    return chains.FIRST + len(log.args) + len(log.with_null)


def is_listed(log: Log, calls: Sequence[AggregateCall]) -> bool:
    """Whether the kernel computes the results of a log's calls: lists without ORDER BY, of values
    that are no codes."""
    lists = all(calls[k].fn == "array_agg" and not calls[k].order for k in log.calls)
    return lists and not (log.with_null or log.args[0].type.is_coded)


def is_distinct(log: Log, calls: Sequence[AggregateCall]) -> bool:
    """Whether a log is of DISTINCT calls that are not holistic; no other calls share it."""
    return not calls[log.calls[0]].holistic


def in_numpy(logs: Sequence[Log], calls: Sequence[AggregateCall]) -> list[Log]:
    """The logs whose results are requested."""
    return [log for log in logs if not (is_listed(log, calls) or is_distinct(log, calls))]


def lay_out(kernel: KernelText, log: Log, calls: Sequence[AggregateCall]) -> None:
    """Reserves the words of a log, one after the other, and sets those that are constants."""
    slots = {name: kernel.layout.slot(name + log.suffix) for name in chains.LOG}
    size, constants = 0, kernel.window_constants
    if is_listed(log, calls):
        element = calls[log.calls[0]].type.element
        assert element is not None
        size = width_in_entry(element) * (-1 if element.is_fraction else 1)
    constants[slots["width"]], constants[slots["sorted"]] = width(log), int(log.by_time)
    constants[slots["element"]], constants[slots["depth"]] = size, ARRAYS


def declare(kernel: KernelText, logs: Sequence[Log], calls: Sequence[AggregateCall]) -> None:
    for log in logs:
        s = log.suffix
        room = kernel.declare(f"room{s}", kernel.word(f"room{s}"))
        at, size = kernel.word(f"chain{s}"), f"{width(log)} * {room}"
        kernel.declare(f"chain{s}", f"words({at}, {size})")
        if is_distinct(log, calls):
            view = VIEWS["float64" if log.args[0].type.is_fraction else "int64"]
            kernel.declare(f"different{s}", f"{view}({at}, {size})")


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


def _call(kernel: KernelText, function: str, log: Log, session: str) -> str:
    """The call of a function of ``segment_sort`` on the chain of a session."""
    slot = kernel.layout.slot(chains.LOG[0] + log.suffix)
    head = f"head{log.suffix}[{session}]"
    return f"call_operator({kernel.word(function)}, desc + {8 * slot}, {head})"


def add_lists(kernel: KernelText, number: int, log: Log, calls: Sequence[AggregateCall]) -> None:
    """Computes the lists of session ``g``. Requests room in the dictionary, and the entries of a
    new code in the tables that the kernel reads."""
    body = kernel.body
    for k in log.calls:
        function = "set_of_chain" if calls[k].distinct else "list_of_chain"
        body.line(f"code = {_call(kernel, function, log, 'g')}")
        with body.block("if code < 0:"):
            kinds = f"detail = {NEED_RESULTS + 1 + number}"
            body.lines("status = 2", kinds, "detail_row = session", "break")
        body.lines(f"a{k}r[g] = code", f"a{k}h[g] = 1")
        with body.block(f"if code >= {kernel.word('codes_known')}:"):
            body.lines("status = 2", f"detail = {NEED_RANK}", "detail_row = 0", "break")


def add_different(
    kernel: KernelText, log: Log, calls: Sequence[AggregateCall], codes: Sequence[AggregateCode],
    emit: Callable[[int, tuple[str, ...]], None],
) -> None:  # fmt: skip
    """Computes the states of DISTINCT calls from the different values of session ``g``."""
    body, s = kernel.body, log.suffix
    boolean = " != 0" if log.args[0].type.storage == "bool" else ""
    body.line(_call(kernel, "keep_different", log, "g"))
    for k in log.calls:
        body.lines(*codes[k].init, f"entry = head{s}[g]")
        with body.block("while entry >= 0:"):
            body.line(f"at = {width(log)} * entry")
            body.line(f"{argument(k, 0)} = different{s}[at + {chains.FIRST}]{boolean}")
            body.line(f"entry = chain{s}[at]")
            emit(k, codes[k].update)
        with body.block("if status != 0:"):
            body.line("break")


def forget(kernel: KernelText, log: Log) -> None:
    """Purges the chain of the session in the word ``closing``."""
    kernel.body.line(_call(kernel, "free_chain", log, f"uint64({kernel.word('closing')})"))


class SessionLogs(Stateful):
    """The logs of a running stage that ends in sessions; their arrays are in its store."""

    def __init__(self, operator: SessionOperator) -> None:
        self.operator = operator
        self.logs = operator.code.logs
        assert operator.spec.aggregate is not None
        self.calls = operator.spec.aggregate.calls

    def allocate(self, entries: int) -> None:
        for number in range(len(self.logs)):
            self.grow(number, entries)
        for name in scalars(self.logs):
            self.operator._set(name, 0 if name.startswith("used") else -1)
        self.operator._set("results_to", NEVER)

    def grow(self, number: int, entries: int = 0) -> None:
        log, operator = self.logs[number], self.operator
        name = f"chain{log.suffix}"
        held = operator.state[name].size // width(log) if name in operator.state else 0
        operator.store.resize(name, width(log) * max(entries, 2 * held), np.int64)

    def bind(self) -> None:
        operator = self.operator
        for log in self.logs:
            s = log.suffix
            if f"chain{s}" in operator.state:
                operator._set(f"room{s}", operator.state[f"chain{s}"].size // width(log))
            operator._bind(f"dictionary{s}", operator.workspace.dictionary.control)
        if self.logs:
            kernel = load_module("cql.executor.kernels.relations.segment_sort")
            for name in ("list_of_chain", "set_of_chain", "free_chain", "keep_different"):
                operator._bind(name, getattr(kernel, name).address)

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        for log in self.logs:
            used = self.operator.scalars()[f"used{log.suffix}"]
            entries = self._nodes(log)[:used]
            for n, arg in enumerate(log.args):
                if arg.type.is_coded:
                    column = entries[:, chains.FIRST + n]
                    yield Codes(column, column >= 0)  # entries that were given back hold -1

    def make_room(self, number: int, session: int) -> None:
        """Makes room in the dictionary for the list of a session."""
        log = self.logs[number]
        heads = self.operator.column(f"head{log.suffix}")[session : session + 1].copy()
        size = chains.count_chains(self._nodes(log), heads, np.empty(1, np.int64))
        self.operator.workspace.dictionary.make_room(4 + 8 * size)  # with their number

    def finish(self, records: Array) -> None:
        """Computes the results of the sessions that are about to leave, but for those that the
        kernel computes."""
        operator = self.operator
        for log in in_numpy(self.logs, self.calls):
            entries = self._taken(log, records)
            for k in log.calls:
                values, valid = results(self.calls[k], entries, operator.workspace.dictionary)
                operator.column(f"a{k}r")[records] = values
                operator.column(f"a{k}h")[records] = valid

    def _nodes(self, log: Log) -> Array:
        return self.operator.state[f"chain{log.suffix}"].reshape(-1, width(log))

    def _taken(self, log: Log, records: Array) -> Entries:
        """Returns the entries of sessions, and gives the chains' entries back."""
        operator, s, wide = self.operator, log.suffix, width(log)
        nodes = self._nodes(log)
        heads = operator.column(f"head{s}")[records].copy()
        control = np.array([operator.scalars()[f"free{s}"], 0, 0, 0], np.int64)
        sizes = np.empty(records.size, np.int64)
        lines = np.empty((int(chains.count_chains(nodes, heads, sizes)), wide), np.int64)
        chains.take_chains(nodes, control, heads, lines)
        operator._set(f"free{s}", int(control[chains.FREE]))
        for end in ("head", "tail"):
            operator.column(f"{end}{s}")[records] = -1
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
