"""Writes the kernel that aggregates a changing relation: groups gain and lose rows, and at the end
of each instant the kernel outputs the changes of the groups that changed.

States are entries of one slab: one per group and, for ``two_stacks`` and ``rescan``, one per row.
Each of four methods forgets rows in its own way.

``append_only``: no row ever leaves.
``retract``: a row that leaves is subtracted from the state of its group.
``two_stacks``: rows leave in the order in which they entered, so a group keeps them in two stacks.
An entry of the front stack holds the aggregate of itself and of all entries below it. The group's
own entry holds the aggregate of the back stack. Each row is merged twice and never subtracted.
``rescan``: rows leave in any order. A group that lost a row is aggregated anew from its other rows.

DISTINCT and holistic calls keep their values outside the slab, in value logs. For each instant
and group, a log gives the kernel the result of a holistic call. For a DISTINCT call whose state can
retract a value, the log gives the rows that bring a new value or remove the last copy of one; for
other DISTINCT calls, all values of the group. The states of DISTINCT calls stand in the group's
entry ``separate``, not in the entry with the states over its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cql.base.types import DataType
from cql.executor.codegen import module
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.codegen.expressions.scope import Called
from cql.executor.codegen.kernel_cache import once
from cql.executor.kernels.lib.views import VIEWS
from cql.executor.operators.aggregates.changelog_values import ValueLog, value_logs
from cql.executor.operators.aggregates.code import AggregateCode, argument
from cql.executor.operators.aggregates.functions import aggregate_code
from cql.executor.operators.aggregates.udaf import declare_own, own_lines
from cql.planner.nodes.expr import Column
from cql.planner.nodes.physical import ChangeAggregateExec

APPEND_ONLY, RETRACT, TWO_STACKS, RESCAN = "append_only", "retract", "two_stacks", "rescan"
#: Arrays with one value per group and with one value per entry: name and dtype.
OF_GROUP = (
    ("live", "int64"),
    ("back", "int64"),
    ("separate", "int64"),
    ("front", "int64"),
    ("newest", "int64"),
    ("shown", "bool"),
    ("marked", "bool"),
    ("dirty", "bool"),
)
OF_ENTRY = (("link", "int64"), ("free", "int64"))


@dataclass(frozen=True, slots=True)
class ChangeAggregateCode:
    """``slots``: the descriptor's words by name. ``state``: columns of an entry, as (name, dtype).
    ``results``: columns of a group, two per call (value, valid), as (name, dtype). ``logged``: the
    same columns for holistic calls only, with the last result from the value log. ``logs``: the
    value logs; the words ``in<c>`` and ``im<c>`` have the columns that they read, too.
    ``listed``: numbers of the logs that give the kernel all values of a group.
    ``sites``: errors by number."""

    text: str
    slots: Mapping[str, int]
    state: tuple[tuple[str, str], ...]
    results: tuple[tuple[str, str], ...]
    logged: tuple[tuple[str, str], ...]
    logs: tuple[ValueLog, ...]
    listed: frozenset[int]
    sites: tuple[ErrorSite, ...]
    uses_rank: bool
    texts: tuple[str, ...]  # state columns that hold codes
    functions: tuple[Called, ...]  # user functions that the kernel calls


@once
def write(node: ChangeAggregateExec) -> ChangeAggregateCode:
    return _Writer(node).write()


class _Writer:
    def __init__(self, node: ChangeAggregateExec) -> None:
        self.node = node
        self.layout = module.Layout()
        self.head, self.body = module.Text(), module.Text()
        self.sites: list[ErrorSite] = []
        self.functions: list[Called] = []
        self.own_words: dict[str, int] = {}
        self._declared: set[str] = set()
        self.codes: dict[int, AggregateCode] = {}
        self.logs = value_logs(node.calls)
        self.log_of = {k: log for log in self.logs for k in log.calls}
        for k, call in enumerate(node.calls):
            if call.holistic:
                continue
            loose = not node.keys or call.where is not None or any(a.nullable for a in call.args)
            # a group can lose all rows that have a value, so its result may be NULL
            loose = loose or node.method != APPEND_ONLY
            self.codes[k] = aggregate_code(call, k, loose)
        append = node.method == APPEND_ONLY
        #: ``plain``: calls whose state is over rows. ``moved``: DISTINCT calls whose state follows
        #: single values. ``anew``: DISTINCT calls whose state is computed anew from all values.
        self.plain = {k: c for k, c in self.codes.items() if k not in self.log_of}
        sets = {k: c for k, c in self.codes.items() if k in self.log_of}
        self.moved = {k: c for k, c in sets.items() if append or c.retract}
        self.anew = {k: c for k, c in sets.items() if k not in self.moved}

    def write(self) -> ChangeAggregateCode:
        self._declare()
        body = self.body
        body.lines("i = 0", "out = 0", "status = 0", "detail = 0", "now = 0", "pair = 0")
        body.line(f"sequence = d[{self._slot('sequence')}]")
        with body.block("while i < n:"):
            body.lines("now = times[i]", "many = 0")
            with body.block("while i < n and times[i] == now:"):
                body.lines("r = uint64(i)", "q = uint64(owners[r])", "w = weights[r]")
                with body.block("if marked[q] == 0:"):
                    body.lines("marked[q] = 1", "touched[many] = int64(q)", "many += 1")
                self._arguments()
                self._apply()
                with body.block("if status != 0:"):
                    body.line("break")
                body.line("i += 1")
            with body.block("if status != 0:"):
                body.line("break")
            with body.block("for k in range(many):"):
                body.lines("q = uint64(touched[k])", "marked[q] = 0")
                self._show()
                with body.block("if status != 0:"):
                    body.line("break")
                body.line("pair += 1")
            with body.block("if status != 0:"):
                body.line("break")
        body.lines(
            f"d[{self._slot('out')}] = out", f"d[{self._slot('detail')}] = detail",
            f"d[{self._slot('now')}] = now",
            f"d[{self._slot('free top')}] = free_top",
            f"d[{self._slot('sequence')}] = sequence + n", "return status",
        )  # fmt: skip
        words = len(self.layout)
        opening = f"    d = words(desc, {words})\n    n = d[{self._slot('n')}]\n"
        head = "".join(f"    {line}\n" for line in str(self.head).splitlines())
        lines = "".join(f"    {line}\n" for line in str(self.body).splitlines())
        text = f"{module.OPERATOR}\ndef op(desc, morsel):\n{opening}{head}{lines}"
        return ChangeAggregateCode(
            module.module_text(text),
            self.layout.slots,
            self._state(),
            self._results(),
            self._logged(),
            self.logs,
            frozenset(self.log_of[k].number for k in self.anew),
            tuple(self.sites),
            any(c.ranked is not None for c in self.codes.values()),
            tuple(name for c in self.codes.values() for name in c.codes),
            tuple(self.functions),
        )

    def _slot(self, name: str) -> int:
        return self.layout.slot(name)

    def _state(self) -> tuple[tuple[str, str], ...]:
        return tuple(column for code in self.codes.values() for column in code.columns)

    def _results(self) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        for k, call in enumerate(self.node.calls):
            found += [(f"r{k}", call.type.storage), (f"v{k}", "bool")]
        return tuple(found)

    def _logged(self) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        for k, call in enumerate(self.node.calls):
            if call.holistic:
                found += [(f"logged{k}", call.type.storage), (f"logged{k}_ok", "bool")]
        return tuple(found)

    def _array(self, name: str, dtype: str, size: str) -> None:
        self.head.line(f"{name} = {VIEWS[dtype]}(d[{self._slot(name)}], {size})")

    def _declare(self) -> None:
        head = self.head
        for name in ("times", "weights", "owners", "touched"):
            self._array(name, "int64", "n")
        head.line(f"groups = d[{self._slot('groups')}]")
        head.line(f"entries = d[{self._slot('entries')}]")
        head.line(f"room = d[{self._slot('room')}]")
        head.line(f"free_top = d[{self._slot('free top')}]")
        for name, dtype in OF_GROUP:
            self._array(name, dtype, "groups")
        for name, dtype in (*OF_ENTRY, *self._state()):
            self._array(name, dtype, "entries")
        for name, dtype in self._results():
            self._array(name, dtype, "groups")
            self._array(f"out_{name}", dtype, "room")
        for name in ("out_owner", "out_time", "out_weight"):
            self._array(name, "int64", "room")
        for column, type_ in self._read().items():
            self._array(f"in{column}", type_.storage, "n")
            self._array(f"im{column}", "bool", "n")
        if any(c.ranked is not None for c in self.codes.values()):
            head.line(f"rank = as_i32(d[{self._slot('rank')}], d[{self._slot('codes')}])")
        if self.logs:
            head.line(f"pairs = d[{self._slot('pairs')}]")
        for name, dtype in self._logged():
            self._array(name, dtype, "groups")
            self._array(name.replace("logged", "res"), dtype, "pairs")
        for log in self.logs:
            for expr in (*log.args, *((log.where,) if log.where else ())):
                self._slot(f"in{_column(expr)}")
                self._slot(f"im{_column(expr)}")
            self._array(f"fresh{log.number}", "bool", "pairs")
        for number in dict.fromkeys(self.log_of[k].number for k in self.moved):
            self._array(f"moved{number}", "int64", "n")
        for log in {self.log_of[k].number: self.log_of[k] for k in self.anew}.values():
            number, size = log.number, f"d[{self._slot(f'values of {log.number}')}]"
            self._array(f"first{number}", "int64", "pairs + 1")
            self._array(
                f"values{number}", "float64" if log.args[0].type.is_fraction else "int64", size
            )
        declare_own(self, list(self.codes.values()))

    # -- called by the code of user-defined aggregates (``aggregates.udaf.Kernel``) ---------------

    def declare(self, name: str, text: str) -> str:
        if name not in self._declared:
            self._declared.add(name)
            self.head.line(f"{name} = {text}")
        return name

    def words(self, count: int) -> int:
        first = len(self.layout)
        for word in range(first, first + count):
            self._slot(f"own word {word}")
        return first

    def function(self, function: Called) -> tuple[str, str]:
        if function not in self.functions:
            self.functions.append(function)
        k = self.functions.index(function)
        address = self.declare(f"fn{k}", f"d[{self._slot(f'function {k}')}]")
        return address, self.declare(f"fo{k}", f"d[{self._slot(f'function {k} own')}]")

    def site(self, made: ErrorSite) -> int:
        if made not in self.sites:
            self.sites.append(made)
        return self.sites.index(made)

    def _read(self) -> dict[int, DataType]:
        calls = [self.node.calls[k] for k in (*self.plain, *self.moved)]
        exprs = [e for c in calls for e in (*c.args, *((c.where,) if c.where else ()))]
        found = {e.index: e.type for e in exprs if isinstance(e, Column)}
        if self.node.entered is not None:
            found[self.node.entered] = self.node.input.schema[self.node.entered].type
        return found

    # -- a row -----------------------------------------------------------------------------------

    def _arguments(self) -> None:
        """``x<k>`` is the argument of call k, ``f<k>`` whether the call sees the row."""
        body, entered = self.body, self.node.entered
        time = "now" if entered is None else f"int64(in{entered}[r])"
        body.lines(f"T = {time}", "Q = sequence + i")
        for k in (*self.plain, *self.moved):
            call, conditions = self.node.calls[k], []
            if call.where is not None:
                at = _column(call.where)
                conditions.append(f"im{at}[r] != 0 and in{at}[r] != 0")
            for n, arg in enumerate(call.args):
                at, x = _column(arg), argument(k, n)
                boolean = " != 0" if arg.type.storage == "bool" else ""
                body.line(f"{x} = in{at}[r]{boolean}")
                body.line(f"{x}_ok = im{at}[r] != 0")
                if n not in self.codes[k].sees_null:
                    conditions.append(f"{x}_ok")
            body.line(f"f{k} = {' and '.join(conditions) or 'True'}")

    def _update(self) -> None:
        """Adds the row to entry ``g``."""
        for k, code in self.plain.items():
            with self.body.block(f"if f{k}:"):
                self._emit(k, code.update)

    def _take_out(self) -> None:
        """Takes the row out of entry ``g``."""
        for k, code in self.plain.items():
            with self.body.block(f"if f{k}:"):
                self._emit(k, code.retract)

    def _merge(self) -> None:
        """Adds entry ``m`` to entry ``g``."""
        for k, code in self.plain.items():
            self._emit(k, code.merge)

    def _init(self) -> None:
        for code in self.plain.values():
            self.body.lines(*code.init)

    def _init_separate(self) -> None:
        """Sets the DISTINCT states in entry ``g`` to those of no values."""
        for code in (*self.moved.values(), *self.anew.values()):
            self.body.lines(*code.init)

    def _emit(self, k: int, lines: Sequence[str]) -> None:
        site, call, code = -1, self.node.calls[k], self.codes[k]
        if code.fatal is not None:
            site = self.site(ErrorSite("overflow", code.fatal, call.pos))
        if code.own is not None:
            lines = own_lines(self, set(), call, code.own, lines, "break")
        leave = f"status = 3; detail = {site}; break"
        self.body.lines(*(line.replace("{leave}", leave) for line in lines))

    def _new_entry(self, name: str) -> None:
        self.body.lines("free_top -= 1", f"{name} = free[free_top]", f"g = uint64({name})")
        self._init()

    def _own_entry(self) -> None:
        """Sets ``g`` to the group's own entry, which is created if missing."""
        with self.body.block("if back[q] < 0:"):
            self._new_entry("e")
            self.body.line("back[q] = e")
        self.body.line("g = uint64(back[q])")

    def _apply_values(self) -> None:
        """Updates the states of DISTINCT calls if the row brings a new value or removes the last
        copy of one."""
        body = self.body
        with body.block("if separate[q] < 0:"):
            body.lines("free_top -= 1", "separate[q] = free[free_top]", "g = uint64(separate[q])")
            self._init_separate()
        body.line("g = uint64(separate[q])")
        for k, code in self.moved.items():
            moved = f"moved{self.log_of[k].number}[r]"
            with body.block(f"if {moved} > 0:"):
                self._emit(k, code.update)
            if self.node.method != APPEND_ONLY:
                with body.block(f"if {moved} < 0:"):
                    self._emit(k, code.retract)
        if self.moved and self.node.method != APPEND_ONLY:
            with body.block("if live[q] == 0:"):
                for code in self.moved.values():
                    body.lines(*code.init)  # drops the rounding errors of floats

    def _apply(self) -> None:
        body = self.body
        body.line("live[q] += w")
        if self.moved or self.anew:
            self._apply_values()
        if not self.plain:
            return
        if self.node.method in (APPEND_ONLY, RETRACT):
            self._own_entry()
            with body.block("for copy in range(w):"):
                self._update()
            if self.node.method == RETRACT:
                with body.block("for copy in range(-w):"):
                    self._take_out()
                with body.block("if live[q] == 0:"):
                    self._init()  # drops the rounding errors of floats
            return
        with body.block("for copy in range(w):"):
            self._new_entry("e")
            self._update()
            with body.block("if status != 0:"):
                body.line("break")
            body.lines("link[e] = newest[q]", "newest[q] = e", "fresh = e")
            self._own_entry()
            with body.block("if dirty[q] == 0:"):
                body.line("m = uint64(fresh)")
                self._merge()
        with body.block("for copy in range(-w):"):
            if self.node.method == TWO_STACKS:
                self._pop()
            else:
                self._remove()

    def _pop(self) -> None:
        """Removes the oldest row. If the front stack is empty, moves the back stack to it first."""
        body = self.body
        with body.block("if front[q] < 0:"):
            body.lines("e = newest[q]", "below = int64(-1)")
            with body.block("while e >= 0:"):
                body.line("following = link[e]")
                with body.block("if below >= 0:"):
                    body.lines("g = uint64(e)", "m = uint64(below)")
                    self._merge()
                body.lines("link[e] = below", "below = e", "e = following")
            with body.block("if status != 0:"):
                body.line("break")
            body.lines("front[q] = below", "newest[q] = -1", "g = uint64(back[q])")
            self._init()
        body.lines("e = front[q]", "front[q] = link[e]", "free[free_top] = e", "free_top += 1")

    def _remove(self) -> None:
        """Removes the latest row whose state equals that of the leaving row. Where the input has
        entry times, the states of order-sensitive aggregates also compare these."""
        body = self.body
        self._new_entry("s")
        self._update()
        with body.block("if status != 0:"):
            body.line("break")
        body.lines("before = int64(-1)", "e = newest[q]", "m = uint64(s)")
        with body.block("while e >= 0:"):
            body.lines("g = uint64(e)")
            with body.block(f"if {self._equal()}:"):
                body.line("break")
            body.lines("before = e", "e = link[e]")
        body.lines("free[free_top] = s", "free_top += 1")
        with body.block("if e >= 0:"):
            with body.block("if before < 0:"):
                body.line("newest[q] = link[e]")
            with body.block("else:"):
                body.line("link[before] = link[e]")
            body.lines("free[free_top] = e", "free_top += 1", "dirty[q] = 1")

    def _equal(self) -> str:
        tests = []
        when = "q" if self.node.entered is not None else "tq"
        for code in self.plain.values():
            for name, dtype in code.columns:
                if code.ordered and name[-1] in when:
                    continue
                same = f"{name}[g] == {name}[m]"
                if dtype.startswith("float"):
                    same = f"({same} or ({name}[g] != {name}[g] and {name}[m] != {name}[m]))"
                tests.append(same)
        return " and ".join(tests) or "True"

    # -- an instant is over ----------------------------------------------------------------------

    def _show(self) -> None:
        body = self.body
        grouped = bool(self.node.keys)
        body.line(f"there = {'live[q] > 0' if grouped else 'True'}")
        if self.plain:
            self._total()
            with body.block("if status != 0:"):
                body.line("break")
        for k, code in self.plain.items():
            self._emit_result(k, code)
        self._show_values()
        same = ["shown[q] != 0", "there"]
        for k, call in enumerate(self.node.calls):
            equal = f"y{k} == r{k}[q]"
            if call.type.storage == "bool":
                equal = f"y{k} == (r{k}[q] != 0)"
            if call.type.is_fraction:
                equal = f"({equal} or (y{k} != y{k} and r{k}[q] != r{k}[q]))"
            same.append(f"z{k} == (v{k}[q] != 0) and (not z{k} or {equal})")
        with body.block(f"if not ({' and '.join(f'({s})' for s in same)}):"):
            if self.node.shows != "istream":
                with body.block("if shown[q] != 0:"):
                    self._output_change(-1)
            body.line("shown[q] = there")
            with body.block("if there:"):
                body.lines("pass", *(f"r{k}[q] = y{k}" for k in range(len(self.node.calls))))
                body.lines(*(f"v{k}[q] = z{k}" for k in range(len(self.node.calls))))
                if self.node.shows != "dstream":
                    self._output_change(1)
        if self.plain and self.node.method == TWO_STACKS:
            body.lines("free[free_top] = s", "free_top += 1")

    def _emit_result(self, k: int, code: AggregateCode) -> None:
        self._emit(k, code.final_lines)
        self.body.lines(f"y{k} = {code.result.value}", f"z{k} = {code.result.valid or 'True'}")

    def _show_values(self) -> None:
        """Computes the results of the calls that keep values."""
        body = self.body
        for k, call in enumerate(self.node.calls):
            if call.holistic:
                with body.block(f"if fresh{self.log_of[k].number}[pair] != 0:"):
                    body.line(f"logged{k}[q], logged{k}_ok[q] = res{k}[pair], res{k}_ok[pair]")
                boolean = " != 0" if call.type.storage == "bool" else ""
                body.lines(f"y{k} = logged{k}[q]{boolean}", f"z{k} = logged{k}_ok[q] != 0")
        if self.moved or self.anew:
            body.line("g = uint64(separate[q])")
        for k, code in self.anew.items():
            log, kind = self.log_of[k].number, self.node.calls[k].args[0].type
            with body.block(f"if fresh{log}[pair] != 0:"):
                body.lines(*code.init)
                with body.block(f"for at in range(first{log}[pair], first{log}[pair + 1]):"):
                    boolean = " != 0" if kind.storage == "bool" else ""
                    body.line(f"{argument(k, 0)} = values{log}[at]{boolean}")
                    self._emit(k, code.update)
                with body.block("if status != 0:"):
                    body.line("break")
        for k, code in (self.moved | self.anew).items():
            self._emit_result(k, code)

    def _total(self) -> None:
        """Sets ``g`` to an entry with the aggregate of all rows of the group."""
        body = self.body
        if self.node.method == TWO_STACKS:
            self._new_entry("s")
            for stack in ("front", "back"):
                with body.block(f"for once in range({stack}[q] >= 0):"):
                    body.line(f"m = uint64({stack}[q])")
                    self._merge()
            return
        self._own_entry()
        if self.node.method == RESCAN:
            with body.block("if dirty[q] != 0:"):
                self._init()
                body.lines("dirty[q] = 0", "e = newest[q]")
                with body.block("while e >= 0:"):
                    body.line("m = uint64(e)")
                    self._merge()
                    body.line("e = link[e]")

    def _output_change(self, weight: int) -> None:
        body = self.body
        body.lines(
            "out_owner[out] = int64(q)", "out_time[out] = now", f"out_weight[out] = {weight}"
        )
        for name, _ in self._results():
            body.line(f"out_{name}[out] = {name}[q]")
        body.line("out += 1")


def _column(expr: object) -> int:
    assert isinstance(expr, Column)
    return expr.index
