"""A running operator: a compiled function, its descriptor, and its state as named flat arrays.

The kernel requests what it lacks (NEED) and reports the failing row (ERROR). This class answers: it
grows state, fills dictionary tables and computes host columns. State arrays hold plain numbers,
never Python objects, so that a checkpoint could save them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cql.base.model import Schema
from cql.base.types import DOUBLE, Kind
from cql.base.uninterruptible import load_module
from cql.base.zones import days_of
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.codegen.expressions.scope import Called
from cql.executor.codegen.kernel_builder import (
    NEED_HOST,
    NEED_KIND,
    NEED_RANK,
    NEED_RESULTS,
    NEED_ROOM,
    NEED_TABLE,
    NEED_WINDOWS,
)
from cql.executor.codegen.kernel_cache import Kernel
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, NEVER, PHASE, ROWS, SUB
from cql.executor.kernels.windows import region_table
from cql.executor.morsel.morsel import Morsel, Words, stored_dtype
from cql.executor.operators.aggregates.value_log import finish
from cql.executor.operators.contract import Operator, Parallelism
from cql.executor.operators.order.sort_keys import order_words
from cql.executor.operators.stage import fused_steps, sharing
from cql.executor.operators.stage.pair_counters import pairs
from cql.executor.operators.stage.spec import StageCode, StageSpec, Table
from cql.executor.operators.windows.choose import write_stage
from cql.executor.operators.workspace import Workspace
from cql.executor.state.codes import Codes
from cql.executor.state.repartition import Owners
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Role, Snapshot, State, StateStore
from cql.executor.strings.dictionary import Dictionary
from cql.executor.strings.host_functions import DictionaryTables, compute_host_column
from cql.executor.udf.errors import explained, function_codes, raise_interrupt
from cql.planner.interpret.entries import read_array
from cql.planner.nodes.expr import Literal
from cql.planner.nodes.logical import SortKey
from cql.planner.nodes.physical import BucketExec, ProjectExec

if TYPE_CHECKING:
    from types import ModuleType

    from cql.executor.udf.compile import UserCode
    from cql.planner.nodes.physical import WidAggregateExec

#: The key word of every NaN (``kernels.lib.memory.key_bits``).
NAN_BITS = 0x7FF8000000000000
INITIAL_ENTRIES = 1 << 10
INITIAL_SLOTS = 16


class StageOperator(Operator):
    """A compiled stage. ``like``: an operator of the same name and spec, with which this one shares
    the code and the dictionary tables (``replica``)."""

    #: Whether replicas may compute entries of its dictionary tables while its kernel runs.
    shares_tables = False

    def __init__(
        self, name: str, spec: StageSpec, workspace: Workspace, like: StageOperator | None = None
    ) -> None:
        self.name = name
        self.spec = spec
        self.workspace = workspace
        self.store = StateStore(name, workspace)
        self._functions: Sequence[UserCode] = ()
        self._zones: dict[int, Words] = {}  # kept alive for the kernel
        self._entries: dict[str, int] = {}  # capacity of the slab of groups, and of each set
        self.code: StageCode = write_stage(spec) if like is None else like.code
        self._slots = self.code.kernel.slots
        self.descriptor = np.zeros(len(self._slots), np.int64)
        self.address = self._compile(self.code)
        self._own_status: list[npt.NDArray[np.uint8]] = []
        self._own_version = -1
        if like is None:
            self.tables = DictionaryTables(self.code.kernel.tables, workspace.dictionary)
        else:
            self.tables, self.shares_tables = like.tables, True
        if spec.aggregate is not None:
            self._allocate_windows()
        self._bind_constants()
        self._bind_arrays()
        self._counted = self._counting()

    def _counting(self) -> tuple[Words, dict[str, int]]:
        """The words that hold the counters, and their slots: one tuple, since other threads read
        it."""
        return self.descriptor, {n: self._slots[n] for n in self.code.kernel.counters}

    def _compile(self, code: StageCode) -> int:
        self._module = self.workspace.load(code.kernel.text)
        return int(self._module.op.address)

    def replica(self) -> StageOperator:
        """A second operator of this stage, for other morsels: it has host columns of its own, and
        shares the tables of values by text, so that each text is computed once."""
        if not self.shares_tables:
            self.shares_tables = True
            self._bind_tables()
        made = StageOperator(self.name, self.spec, self.workspace, self)
        made.allocate_host()
        made.refresh()
        return made

    def reassume(self, assume_valid: frozenset[int], like: Any = None) -> None:
        """Rebuilds the kernel for another ``assume_valid``, after NULLs have come; the state stays.
        ``like``: a rebuilt replica, whose code and dictionary tables this one takes."""
        if assume_valid == self.spec.assume_valid:
            return
        words = self.scalars()
        self.spec = replace(self.spec, assume_valid=assume_valid)
        self.code = write_stage(self.spec) if like is None else like.code
        self._slots = self.code.kernel.slots
        self.store.bound.clear()
        self.descriptor = np.zeros(len(self._slots), np.int64)
        self.address = self._compile(self.code)
        if like is None:
            self.workspace.dictionary.account(self.tables.nbytes, 0)
            self.tables = DictionaryTables(self.code.kernel.tables, self.workspace.dictionary)
        else:
            self.tables = like.tables
        self._own_version = -1
        for name, value in words.items():
            self._set(name, value)
        self._bind_constants()
        self._bind_arrays()
        self.allocate_host()
        self._counted = self._counting()

    def push_down_top_n(self, schema: Schema, keys: Sequence[SortKey], most: int) -> None:
        """Limits the results of each window to ``most`` rows, the first ones by ``keys`` (top-n
        pushdown). ``keys`` are columns of ``schema``, the output, and no texts."""
        kernel = load_module("cql.executor.kernels.order.top_n")
        order, room = order_words(schema, keys, kernel.OWN), self.workspace.morsel_rows
        order[[kernel.MOST, kernel.ROOM]] = most, room
        for name, word, size, dtype in (
            ("rows examined", kernel.EXAMINED, 2 * room, np.int32),
            ("words of rows", kernel.WORDS, 2 * room, np.int64),
            ("rows chosen", kernel.CHOSEN, room, np.uint8),
        ):
            self.store.resize(name, size, dtype, Role.SCRATCH)
            order[word] = self.state[name].ctypes.data
        masks = order[kernel.OWN + 1 : kernel.OWN + 2 * len(schema) : 2]
        masks[:] = [f.nullable for f in schema]
        self._first = order  # kept alive for the kernel
        self._set("most", 2 * most)  # among fewer rows, selecting the first ones does not pay
        self._bind("row_order", order.ctypes.data)
        self._bind("first_rows", kernel.first_rows.address)

    # -- constants, tables, host columns ---------------------------------------------------------

    def _bind_constants(self) -> None:
        kernel = self.code.kernel
        self._bind("ones", self.workspace.ones.ctypes.data)
        self.store.bound |= constant_slots(kernel)
        self.bind_constants()
        for k, (zone, shift) in enumerate(kernel.zones):
            days = days_of(zone, shift)
            table = np.array([days.instants, days.offsets, days.firsts], np.int64)
            self._zones[k] = table
            self._bind(f"zone {k}", table.ctypes.data)
            self._bind(f"zone {k} length", table.shape[1])
        if kernel.functions:
            self._functions = function_codes(kernel.functions)
            for k, code in enumerate(self._functions):
                self._bind(f"function {k}", code.made.address)
                self._bind(f"function {k} own", code.own)

    def bind_constants(self) -> None:
        bind_constants(self.code.kernel, self._module, self.descriptor, self.workspace)

    @property
    def python_functions(self) -> list[Called]:
        """The users' functions that the kernel calls and that run in Python."""
        called = zip(self.code.kernel.functions, self._functions, strict=True)
        return [function for function, code in called if code.made.why is not None]

    def refresh(self) -> None:
        """Extends dictionary tables and ranks, before a morsel, to every code that the morsel can
        hold."""
        if self.code.kernel.tables:
            self.tables.extend()
            self._bind_tables()
        if self.code.kernel.uses_rank:
            self._rank = self.workspace.dictionary.rank()
            self._bind("rank", self._rank.ctypes.data)
            self._bind("rank length", self._rank.size)

    @property
    def needs_refresh(self) -> bool:
        return bool(self.code.kernel.tables) or self.code.kernel.uses_rank

    def _bind_tables(self) -> None:
        with self.tables.lock:
            bound = self._bound_tables = self.tables.arrays()  # kept alive for the kernel
            if self.shares_tables:
                if self._own_version != self.tables.version:
                    self._own_version = self.tables.version
                    self._own_status = [status.copy() for _, status in bound]
                bound = [(v, s) for (v, _), s in zip(bound, self._own_status, strict=True)]
        for k, (values, status) in enumerate(bound):
            self._bind(f"table {k} values", values.ctypes.data)
            self._bind(f"table {k} status", status.ctypes.data)
            self._bind(f"table {k} length", values.size)

    def _set(self, slot: str, value: int) -> None:
        if slot in self._slots:
            self.descriptor[self._slots[slot]] = value

    def _bind(self, slot: str, value: int) -> None:
        """``_set``, for an address, or a size of this process: a word that no snapshot has."""
        self._set(slot, value)
        if slot in self._slots:
            self.store.bound.add(self._slots[slot])

    # -- state -----------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The arrays of the state, by name."""
        return self.store.arrays

    def _allocate_windows(self) -> None:
        for table in self.code.tables:
            suffix = table.suffix
            self._resize_entries(table, INITIAL_ENTRIES)
            self.store.resize("heads" + suffix, region_table.CLASSES, np.int64)
            self.store.resize("top" + suffix, 1, np.int64)
            self._set("direct" + suffix, int(table.direct))
        self._slots_open(INITIAL_SLOTS)
        following = [name for name in self._slots if name.startswith("next_window")]
        for name in ("watermark", "punctuated", "front", "back", *following):
            self._set(name, NEVER)
        self._set("closing", -1)
        self._set("spare", INITIAL_SLOTS)
        if self.spec.aggregate is not None and self.spec.aggregate.adaptive:
            from cql.executor.operators.windows.adaptive import MODES

            for name in ("mode", "proposed"):
                self._set(name, MODES.index(self.spec.aggregate.operator))

    def _resize_entries(self, table: Table, entries: int) -> None:
        suffix, aggregate = table.suffix, self.spec.aggregate
        if table.hashed:
            self._resize_slab(
                "index" + suffix, region_table.PLACES * entries, np.int32, Role.DERIVED
            )
        self._resize_slab("records" + suffix, len(table.columns) * entries, np.int64)
        if not suffix and aggregate is not None and any(k.nullable for k in aggregate.keys):
            self._resize_slab("nulls", entries, np.int64)
        self._entries[suffix] = entries

    def _resize_slab(
        self, name: str, size: int, dtype: npt.DTypeLike, role: Role = Role.STATE
    ) -> None:
        """Resizes a slab to ``size`` entries. The room behind the old content is not cleared: a
        region is cleared when it is taken, an entry is set when it is made."""
        self.store.resize(name, size, dtype, role, clears=False)

    def release(self) -> None:
        """Lets the memory of the windows go, when the query has ended."""
        self.store.release(
            name + s for s in self._entries for name in ("index", "records", "nulls")
        )

    def _slots_open(self, slots: int) -> None:
        before = self.state["window_ids"].size if "window_ids" in self.state else 0
        names = ["window_ids", "heap", "spares"]
        names += [n + t.suffix for t in self.code.tables for n in ("bases", "classes", "counts")]
        for name in names:
            self.store.resize(name, slots, np.int64)
        self.store.resize("places", 2 * slots, np.int64)
        ids, opened, places = self.state["window_ids"], before, self.state["places"]
        places[:] = 0
        for slot in range(opened):  # the directory was full: every old slot has an open window
            region_table.insert_slot(places, ids, 2 * slots - 1, int(ids[slot]), slot)
        fresh = np.arange(slots - 1, before - 1, -1, dtype=np.int64)
        self.state["spares"][: fresh.size] = fresh
        self._set("spare", fresh.size)

    def _bind_arrays(self) -> None:
        for name, array in self.state.items():
            self._bind(name, array.ctypes.data)
        for table in self.code.tables:
            self._set("entries" + table.suffix, self._entries[table.suffix])
            self._set("width" + table.suffix, len(table.columns))
            self._set("hashed" + table.suffix, table.hashed)
        if "window_ids" in self.state:
            self._set("slots", self.state["window_ids"].size)
            self._set("tables", len(self.code.tables))
            for name in region_table.CALLED:
                self._bind(name, getattr(region_table, name).address)
        self._bind_tables()

    def _table(self, suffix: str) -> Table:
        return next(t for t in self.code.tables if t.suffix == suffix)

    def column(self, name: str, suffix: str = "") -> npt.NDArray[Any]:
        """A column of a table's entries, by name: a view of one field of the records."""
        columns = dict(self._table(suffix).columns)
        dtype, offset = stored_dtype(columns[name]), 8 * list(columns).index(name)
        records = self.state["records" + suffix]
        return np.ndarray(self._entries[suffix], dtype, records, offset, (8 * len(columns),))

    def codes(self) -> Iterator[Codes]:
        yield from super().codes()
        yield from constants(self.code.kernel, self.descriptor)
        if self.code.codes:
            entries = self._entries_in_use()
            for suffix, name, shift in self.code.codes:
                yield Codes(self.column(name, suffix), entries[suffix], shift)

    def recoded(self) -> None:
        super().recoded()
        sort_constants(self.code.kernel, self.descriptor)
        if self.code.codes:
            self._index_again()

    def _slots_in_use(self) -> Words:
        """The slots of the open windows."""
        free = self.state["spares"][: self.scalars()["spare"]]
        return np.setdiff1d(np.arange(self.state["window_ids"].size), free)

    def _index_again(self) -> None:
        """Rebuilds the indexes that the open windows have in the tables."""
        for number, table in enumerate(self.code.tables):
            if table.hashed:
                block = region_table.FIRST_TABLE + number * region_table.BLOCK
                address = self.descriptor.ctypes.data + 8 * block
                region_table.index_again(address, self._slots_in_use())

    def _entries_in_use(self) -> dict[str, Words]:
        """For each table, the numbers of the entries that the open windows have in it."""
        slots = self._slots_in_use()
        return {suffix: self._entries_of(slots, suffix) for suffix in self._entries}

    def _entries_of(self, slots: Words, suffix: str) -> Words:
        """The numbers of the entries that the windows in ``slots`` have in a table."""
        bases, counts = (self.state[name + suffix][slots] for name in ("bases", "counts"))
        before = np.cumsum(counts) - counts
        return np.repeat(bases - before, counts) + np.arange(counts.sum())

    def scalars(self) -> dict[str, int]:
        """All words of the descriptor by name: state, counters, constants and addresses."""
        return {name: int(self.descriptor[slot]) for name, slot in self._slots.items()}

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state; the runtime has no morsel inside."""
        used = {}
        for table in self.code.tables:
            top = int(self.state["top" + table.suffix][0])
            used["records" + table.suffix] = len(table.columns) * top
            if not table.suffix:
                used["nulls"] = top
        return self._named(self.store.snapshot(self.descriptor, used))

    def _named(self, saved: Snapshot) -> Snapshot:
        return replace(saved, names=tuple(self._slots))

    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan. The codes are those of the
        snapshot: ``map_codes`` follows."""
        sizes = {}
        for table in self.code.tables:
            entries = int(saved.words[self._slots["entries" + table.suffix]])
            self._resize_entries(table, entries)
            sizes["records" + table.suffix] = len(table.columns) * entries
            if not table.suffix:
                sizes["nulls"] = entries
        self.store.restore(saved, self.descriptor, sizes)
        self._bind_arrays()
        self._index_again()

    def with_steps(self, saved: Snapshot, below: Sequence[Snapshot]) -> Snapshot:
        return fused_steps.with_steps(saved, below, self._slots)

    def with_filters(self, own: Snapshot, saved: Snapshot, above: Snapshot) -> Snapshot:
        return fused_steps.with_filters(own, saved, above, self._slots)

    def of_steps(self, saved: Snapshot, gone: Sequence[Snapshot]) -> Snapshot:
        return fused_steps.steps_below(saved, gone, self._slots)

    def repartition(self, saved: Sequence[Snapshot], owners: Owners) -> list[Snapshot]:
        """Of WID and of panes."""
        from cql.executor.operators.stage.window_partitions import Divided, shared

        node = self.spec.aggregate
        assert node is not None
        saved = [fused_steps.without_steps(one, self._slots) for one in saved]
        counters = self.code.kernel.counters
        divided = Divided(saved, self.code.tables, self._slots["spare"], node.keys, owners)
        made = []
        for part in range(owners.parts):
            words = shared(saved, self._slots, counters, part)
            arrays, own = divided.part(part, INITIAL_ENTRIES)
            for name, value in own.items():
                words[self._slots[name]] = value
            made.append(self._named(Snapshot(arrays, words)))
        return made

    # -- requests of a runtime -------------------------------------------------------------------

    def provide(self, morsel: Morsel) -> None:
        detail, amount = int(morsel.words[DETAIL]), int(morsel.words[DETAIL_ROW])
        number = detail & ~NEED_KIND
        match detail & NEED_KIND:
            case kind if kind == NEED_HOST:
                self._provide_host(number, morsel)
            case kind if kind == NEED_TABLE:
                self.tables.fill(number, amount)
                self._bind_tables()
            case kind if kind == NEED_ROOM:
                self._grow(self.code.tables[number], amount)
            case kind if kind == NEED_RANK:
                self.refresh()
            case kind if kind == NEED_RESULTS:
                self._finish(amount)
                return  # the arrays are the same
            case kind if kind == NEED_WINDOWS:
                self._slots_open(2 * self.state["window_ids"].size)
            case _:
                raise AssertionError(f"{self.name} asks for {detail}")
        self._bind_arrays()

    def _finish(self, slot: int) -> None:
        assert self.spec.aggregate is not None
        finish(self, self.spec.aggregate, self.code.logs, slot, self.workspace)
        self._set("finished", 1)
        if self.needs_refresh:  # results may be new codes
            self.refresh()

    def _grow(self, table: Table, wanted: int) -> None:
        entries = self._entries[table.suffix]
        needed = int(self.state["top" + table.suffix][0]) + wanted
        while entries < needed:
            entries *= 2
        self._resize_entries(table, entries)

    def _provide_host(self, k: int, morsel: Morsel) -> None:
        raise_interrupt(self._functions)  # an argument that no row reads would hide an interrupt
        n = int(morsel.words[ROWS])
        site = self.code.kernel.hosts[k]
        arguments = [
            (self.state[f"host {k} argument {a}"][:n], self.state[f"host {k} mask {a}"][:n])
            for a in range(len(site.args))
        ]
        values, status = compute_host_column(site, arguments, self.workspace.dictionary)
        self.state[f"host {k} values"][:n] = values
        self.state[f"host {k} status"][:n] = status
        morsel.words[PHASE] = k + 1
        if self.needs_refresh:  # results may be new codes
            self.refresh()

    def allocate_host(self) -> None:
        """Allocates argument and result columns of host sites, for morsels of ``morsel_rows``."""
        rows = self.workspace.morsel_rows
        for k, site in enumerate(self.code.kernel.hosts):
            for a, arg in enumerate(site.args):
                self._host(f"{k} argument {a}", stored_dtype(arg.type.storage))
                self._host(f"{k} mask {a}", np.uint8)
            self._host(f"{k} values", stored_dtype(site.type.storage))
            self._host(f"{k} status", np.uint8)
        self._bind("host rows", rows)
        if self.code.kernel.hosts:
            self._bind_arrays()

    def _host(self, name: str, dtype: npt.DTypeLike) -> None:
        self.store.resize(f"host {name}", self.workspace.morsel_rows, dtype, Role.SCRATCH)

    # -- what it is for a runtime ----------------------------------------------------------------

    @property
    def _is_stateless(self) -> bool:
        return sharing.is_stateless(self.spec)

    @property
    def parallelism(self) -> Parallelism:
        shared = self._is_stateless and not sharing.needs_python(self.code.kernel)
        return Parallelism.STATELESS if shared else Parallelism.SERIAL

    @property
    def can_replicate(self) -> bool:
        kernel = self.code.kernel
        if not (self._is_stateless and sharing.needs_python(kernel)):
            return False
        return sharing.can_replicate(kernel, self.python_functions)

    @property
    def added(self) -> list[int]:
        kernel = self.code.kernel
        return [kernel.slots[name] for name in kernel.counters]

    @property
    def calls_users(self) -> bool:
        aggregate = self.spec.aggregate
        if aggregate is not None and any(call.function is not None for call in aggregate.calls):
            return True
        return next(sharing.functions_of(self.code.kernel), None) is not None

    @property
    def gives_one_at_most(self) -> bool:
        repeats = any(isinstance(step, BucketExec) for step in self.spec.steps)
        return self.spec.aggregate is None and not repeats

    @property
    def passes_by_reference(self) -> bool:
        return self.code.passes

    @property
    def fills(self) -> bool:
        return not (self.code.by_ref or self.code.passes)

    @property
    def passes_rows(self) -> bool:
        projects = all(isinstance(step, ProjectExec) for step in self.spec.steps)
        return projects and self.spec.aggregate is None

    @property
    def assume_valid(self) -> frozenset[int]:
        return self.spec.assume_valid

    @property
    def text_tables(self) -> DictionaryTables:
        return self.tables

    @property
    def aggregate(self) -> WidAggregateExec | None:
        return self.spec.aggregate

    @property
    def source_text(self) -> str:
        return self.code.kernel.text

    # -- rows that fail --------------------------------------------------------------------------

    @property
    def fails_by_row(self) -> bool:
        return True

    @property
    def can_fail(self) -> bool:
        return any(not site.kind.endswith("event time") for site in self.code.kernel.sites)

    @property
    def counts_bad_rows(self) -> bool:
        return True

    def refused_kind(self, morsel: Morsel) -> str:
        if morsel.words[PHASE] > len(self.code.kernel.hosts):
            return "bad_results"
        return "bad_pairs" if morsel.words[SUB] > 0 else "bad"

    def error(self, morsel: Morsel) -> ErrorSite:
        site = self.code.kernel.sites[int(morsel.words[DETAIL])]
        return explained(site, self._functions, self.descriptor, self.workspace.dictionary)

    def is_fatal(self, morsel: Morsel) -> bool:
        return int(morsel.words[DETAIL]) in self.code.fatal

    def counters(self) -> dict[str, int]:
        descriptor, slots = self._counted
        return {name: int(descriptor[slot]) for name, slot in slots.items()}

    def derived_counters(self, counters: Mapping[str, Any]) -> dict[str, int]:
        return pairs(self.spec, counters)

    @property
    def parts(self) -> Sequence[Stateful]:
        return (self.store,)


def constant_slots(kernel: Kernel) -> set[int]:
    """The words that ``bind_constants`` writes."""
    found = {slot for slot, _ in (*kernel.constants, *kernel.window_constants)}
    for slot, keys in kernel.sorted:
        found |= set(range(slot, slot + 2 * len(keys)))
    return found | {kernel.slots[f"part {k}"] for k in range(kernel.parts)}


def bind_constants(kernel: Kernel, module: ModuleType, words: Words, workspace: Workspace) -> None:
    """Writes a kernel's constants and the addresses of its parts into its descriptor, ``words``."""
    dictionary = workspace.dictionary
    for slot, value in kernel.constants:
        if isinstance(value, Literal) and value.type.kind is Kind.SIGNAL:
            assert isinstance(value.value, bytes)
            words[slot] = workspace.signals.constant(read_array(value.value, DOUBLE))
        else:
            words[slot] = constant_bits(value, dictionary)
    for slot, number in kernel.window_constants:
        words[slot] = number
    for slot, keys in kernel.sorted:
        put_in_order(words, slot, keys, dictionary)
    for k in range(kernel.parts):
        words[kernel.slots[f"part {k}"]] = getattr(module, f"part{k}").address


def constants(kernel: Kernel, words: Words) -> Iterator[Codes]:
    """The codes among the constants of a kernel, in its descriptor ``words``."""
    for slot, value in kernel.constants:
        if isinstance(value, Literal) and value.type.is_coded:
            yield Codes(words[slot : slot + 1])
    for slot, keys in kernel.sorted:
        if keys[0].type.is_coded:
            yield Codes(words[slot : slot + len(keys)])


def sort_constants(kernel: Kernel, words: Words) -> None:
    """Sorts the constants again whose codes have changed."""
    for slot, keys in kernel.sorted:
        if keys[0].type.is_coded:
            found = words[slot : slot + len(keys)].copy()
            _put(words, slot, found, words[slot + len(keys) : slot + 2 * len(keys)].copy())


def put_in_order(words: Words, slot: int, keys: Sequence[Literal], dictionary: Dictionary) -> None:
    """Writes the words of ``keys``, sorted, and their numbers from ``slot`` on
    (``Kernel.sorted``)."""
    found = np.array([_key_bits(key, dictionary) for key in keys], np.int64)
    _put(words, slot, found, np.arange(len(keys)))


def _put(words: Words, slot: int, keys: Words, numbers: Words) -> None:
    order, count = np.argsort(keys, kind="stable"), len(keys)
    words[slot : slot + count] = keys[order]
    words[slot + count : slot + 2 * count] = numbers[order]


def _key_bits(literal: Literal, dictionary: Dictionary) -> int:
    """A constant as a key word: equal values have equal words (``kernels.lib.memory.key_bits``)."""
    if literal.type.is_fraction:
        value = np.float64(stored_dtype(literal.type.storage).type(literal.value))
        return NAN_BITS if value != value else int((value + 0.0).view(np.int64))
    return constant_bits(literal, dictionary)


def constant_bits(literal: Literal | int, dictionary: Dictionary) -> int:
    """A constant as a word of a descriptor."""
    if isinstance(literal, int):
        return literal
    value = literal.value
    if value is None:
        return 0
    if literal.type.is_coded:
        data = value if isinstance(value, bytes) else str(value).encode()
        return int(dictionary.encode_values([data])[0])
    if literal.type.is_fraction:
        return int(np.float64(value).view(np.int64))
    return int(value)
