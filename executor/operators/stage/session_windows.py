"""The running stage that ends in sessions (``windows.sessions`` writes its kernel)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cql.executor.codegen.kernel_builder import NEED_KIND, NEED_RESULTS, NEED_ROOM
from cql.executor.kernels.lib import treap as chains
from cql.executor.kernels.morsel_layout import DETAIL, DETAIL_ROW, INFINITY, NEVER
from cql.executor.kernels.windows import sessions
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.operators.aggregates.session_values import SessionLogs, width
from cql.executor.operators.stage import fused_steps
from cql.executor.operators.stage.operator import INITIAL_ENTRIES, StageOperator
from cql.executor.operators.stage.window_partitions import owners_of, shared
from cql.executor.state.repartition import Owners, Taken, Values, gather, in_new_order
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Role, Snapshot

#: The space of the records (``state.repartition``).
_RECORD = "record"


class SessionOperator(StageOperator):
    """A running stage that ends in sessions. State: the sessions' records, index and heap, and the
    value logs."""

    def _allocate_windows(self) -> None:
        self._logs = SessionLogs(self)
        self._logs.allocate(INITIAL_ENTRIES)
        self._resize_records(INITIAL_ENTRIES)
        for name in ("watermark", "punctuated"):
            self._set(name, NEVER)
        for name in ("closing", "free"):
            self._set(name, -1)

    def _resize_records(self, entries: int) -> None:
        width = len(self._table("").columns)
        self._resize_slab("records", width * entries, np.int64)
        self.store.resize("heap", 2 * entries, np.int64)
        self.store.resize("index", sessions.PLACES * entries, np.int32, Role.DERIVED)
        self._entries[""] = entries

    def _bind_arrays(self) -> None:
        super()._bind_arrays()
        self._logs.bind()
        if not self.needs_refresh:
            self._bind("codes_known", INFINITY)
        for name in ("open_session", "next_session", "close_session"):
            self._bind(name, getattr(sessions, name).address)
        names = [name for name, _ in self._table("").columns]
        self._set("null_word", names.index("nulls") if "nulls" in names else 0)

    def provide(self, morsel: Morsel) -> None:
        detail = int(morsel.words[DETAIL])
        if detail == NEED_RESULTS:
            self._finish_sessions()
        elif detail & NEED_KIND == NEED_RESULTS:
            self._logs.make_room(detail - NEED_RESULTS - 1, int(morsel.words[DETAIL_ROW]))
        elif detail & NEED_KIND != NEED_ROOM:
            super().provide(morsel)
        elif detail > NEED_ROOM:
            self._logs.grow(detail - NEED_ROOM - 1)
            self._bind_arrays()
        else:
            self._resize_records(2 * self._entries[""])
            self._bind_arrays()
            self._index_again()

    def _finish_sessions(self) -> None:
        """Computes the results of the value logs for the sessions that the watermark closes."""
        watermark = int(self.descriptor[self._slots["watermark"]])
        address = self.descriptor.ctypes.data
        self._logs.finish(sessions.closing_sessions(address, watermark))
        self._set("results_to", watermark)
        if self.needs_refresh:  # results may be new codes
            self.refresh()

    def refresh(self) -> None:
        known = len(self.workspace.dictionary)
        super().refresh()
        self._bind("codes_known", known)

    def snapshot(self) -> Snapshot:
        return self._named(self.store.snapshot(self.descriptor))

    def restore(self, saved: Snapshot) -> None:
        self._resize_records(int(saved.words[self._slots["entries"]]))
        self.store.restore(saved, self.descriptor)
        self._bind_arrays()
        self._index_again()

    def repartition(self, saved: Sequence[Snapshot], owners: Owners) -> list[Snapshot]:
        saved = [fused_steps.without_steps(one, self._slots) for one in saved]
        names = [name for name, _ in self._table("").columns]
        records = [one.arrays["records"].reshape(-1, len(names)) for one in saved]
        takes = [Taken() for _ in range(owners.parts)]
        for k, (one, lines) in enumerate(zip(saved, records, strict=True)):
            for taken, held in zip(takes, self._held_by(one, lines, owners), strict=True):
                taken.take(k, _RECORD, held, len(lines))
                for log in self.code.logs:
                    chain = one.arrays[f"chain{log.suffix}"].reshape(-1, width(log))
                    heads = lines[held, names.index(f"head{log.suffix}")]
                    nodes = nodes_of(chain[:, chains.NEXT], heads)
                    taken.take(k, f"chain{log.suffix}", nodes, len(chain))
        return [self._part(saved, taken, part) for part, taken in enumerate(takes)]

    def _held_by(self, saved: Snapshot, lines: Words, owners: Owners) -> list[Words]:
        """The records of the open sessions of each new partition."""
        assert self.spec.aggregate is not None
        names = [name for name, _ in self._table("").columns]
        held = saved.arrays["heap"][1 : 2 * int(saved.words[self._slots["open"]]) : 2]
        held = np.sort(held[lines[held, sessions.OLDER] != sessions.JOINED])
        nulls = lines[held, names.index("nulls")] if "nulls" in names else None
        keys = lines[held, sessions.KEY :]
        own = owners_of(keys, nulls, self.spec.aggregate.keys, owners)
        return [held[own == part] for part in range(owners.parts)]

    def _part(self, saved: Sequence[Snapshot], taken: Taken, part: int) -> Snapshot:
        """The snapshot of a new partition."""
        names = [name for name, _ in self._table("").columns]
        refers = {sessions.OLDER: _RECORD, sessions.NEWER: _RECORD}
        layout, n = {}, taken.count(_RECORD)
        sizes = {_RECORD: _room(n)}
        words = shared(saved, self._slots, self.code.kernel.counters, part)
        given = {"entries": sizes[_RECORD], "open": n, "free": -1, "used": n}
        for log in self.code.logs:
            chain = f"chain{log.suffix}"
            layout[chain] = Values(chain, width(log), {chains.NEXT: chain})
            refers |= {names.index(f"{end}{log.suffix}"): chain for end in ("head", "tail")}
            sizes[chain] = _room(taken.count(chain))
            given |= {f"free{log.suffix}": -1, f"used{log.suffix}": taken.count(chain)}
        layout["records"] = Values(_RECORD, len(names), refers)
        arrays = gather(layout, [one.arrays for one in saved], taken, sizes)
        lines = arrays["records"].reshape(-1, len(names))[:n]
        ends = lines[:, sessions.LAST] + int(words[self._slots["gap"]])
        order = in_new_order((ends, lines[:, sessions.SESSION_BORN]))
        arrays["heap"] = np.zeros(2 * sizes[_RECORD], np.int64)
        arrays["heap"][: 2 * n] = np.stack((ends[order], order), 1).reshape(-1)
        for name, value in given.items():
            words[self._slots[name]] = value
        # In partitions, the word is the place of the latest row; else, the next session's number.
        words[self._slots["born"]] = 1 + max(int(one.words[self._slots["born"]]) for one in saved)
        if "results_to" in self._slots:
            slot = self._slots["results_to"]
            words[slot] = min(int(one.words[slot]) for one in saved)
        return self._named(Snapshot(arrays, words))

    @property
    def parts(self) -> Sequence[Stateful]:
        return (*super().parts, self._logs)

    def _entries_in_use(self) -> dict[str, Words]:
        return {"": self.open_records()}

    def _index_again(self) -> None:
        sessions.index_again(self.descriptor.ctypes.data)

    def open_records(self) -> Words:
        """The records of the open sessions."""
        records: Words = self.state["heap"][1 : 2 * self.scalars()["open"] : 2]
        kept: Words = records[self.column("s_older")[records] != sessions.JOINED]
        return kept


def nodes_of(following: Words, heads: Words) -> Words:
    """The entries of the chains that begin with ``heads`` (-1: none), ascending; ``following``: the
    next entry of each."""
    used = np.zeros(len(following), np.uint8)
    chains.mark_chains(following.copy(), heads.copy(), used)
    return np.flatnonzero(used)


def _room(wanted: int) -> int:
    """A capacity, a power of two, for ``wanted`` entries."""
    return max(INITIAL_ENTRIES, 1 << max(wanted - 1, 0).bit_length())
