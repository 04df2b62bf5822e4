"""Random programs over a segment store, run side by side with plain arrays."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from cql.base.types import BIGINT, DOUBLE, FLOAT, SMALLINT, TINYINT, struct
from cql.executor.kernels.signals import layout
from cql.executor.morsel.sample_types import number_of_kind, sample_dtype
from cql.executor.operators.signals import segment_store
from cql.executor.operators.signals.segment_store import Manager, Room, SegmentStore, Timebase
from tests.support.signals.stores import Unlimited

STEPS = 40
#: Samples that are structs, of which one needs the next word of memory.
STRUCTS = (
    sample_dtype(struct((("time", BIGINT), ("value", DOUBLE)))),
    sample_dtype(struct((("a", SMALLINT), ("b", struct((("c", FLOAT), ("d", TINYINT))))))),
)


def _plain(samples: Any) -> Any:
    """A copy, with zeros between the fields of structs."""
    made = np.zeros(len(samples), samples.dtype)
    for name in samples.dtype.names or ():
        made[name] = _plain(samples[name])
    if samples.dtype.names is None:
        made[:] = samples
    return made


@dataclass
class Known:
    """A segment that the program has a reference of, and what it must be."""

    address: int
    start: int
    samples: Any
    references: int = 1


class Program:
    """Steps of one thread over a store, which others may use, too."""

    def __init__(self, choice: random.Random, store: SegmentStore) -> None:
        self.choice, self.store = choice, store
        self.kind = np.dtype(choice.choice((*layout.KINDS, *STRUCTS)))
        self.base = store.number_of(Timebase(Fraction(choice.choice((10, 44_100))), 0))
        self.known: list[Known] = []
        self.serial = 0

    @property
    def segments(self) -> Any:
        """The kernels, compiled or not."""
        return segment_store.segments

    def step(self) -> None:
        steps = [self._make, self._share]
        if self.known:
            steps += [self._cut, self._append, self._append, self._append_to, self._pass_on]
            steps += [self._flat, self._retain, self._release, self._young, self._sweep]
            steps += [self._field] * (self.kind.fields is not None)
        self.choice.choice(steps)()
        if self.known:
            self.check(self.choice.choice(self.known))

    def end(self) -> None:
        """Gives all references back, after a last look at all segments."""
        for known in self.known:
            self.check(known)
            for _ in range(known.references):
                self.segments.release(known.address)
        self.known.clear()
        self.store.sweep(self.serial)

    def check(self, known: Known) -> None:
        store = self.store
        assert store.length(known.address) == len(known.samples)
        assert store.start(known.address) == known.start
        found = store.samples(known.address).view(known.samples.dtype)
        assert _plain(found).tobytes() == _plain(known.samples).tobytes()

    def _random(self, n: int | None = None, kind: Any = None) -> Any:
        choice, of = self.choice, self.kind if kind is None else kind
        size = choice.choice((0, 1, 2, 7, 30)) if n is None else n
        return np.frombuffer(choice.randbytes(size * of.itemsize), of)

    def _make(self) -> None:
        samples, start = self._random(), self.choice.randint(-5, 100)
        self.known.append(Known(self.store.make(self.base, start, samples), start, samples))

    def _share(self) -> None:
        """Segments that share a block of the host, which it forgets at once; it may have rows."""
        store, samples = self.store, self._random(30)
        if self.choice.random() < 0.5:
            fields = [("before", "int8"), ("own", self.kind), ("behind", "int8")]
            rows = np.zeros(len(samples), np.dtype(fields, align=True))
            rows["own"] = samples
            block, samples = store.share(rows), rows["own"]
        else:
            block = store.share(samples)
        for _ in range(self.choice.randint(0, 3)):
            first = self.choice.randint(0, 30)
            own = samples[first : first + self.choice.randint(0, 12)]
            self.known.append(Known(store.segment(self.base, first, own, block), first, own))
        store.let_go(block)

    def _cut(self) -> None:
        known = self.choice.choice(self.known)
        skip = self.choice.randint(0, len(known.samples))
        n = self.choice.randint(0, len(known.samples) - skip)
        made = self._made(self.segments.subseg(known.address, skip, n))
        self.known.append(Known(made, known.start + skip, known.samples[skip : skip + n]))

    def _field(self) -> None:
        """A field of structs; it may be of structs itself."""
        assert self.kind.fields is not None
        known = self.choice.choice(self.known)
        if known.samples.dtype == self.kind:
            name, (kind, offset) = self.choice.choice([*self.kind.fields.items()])
            own = self._made(self.segments.field_of(known.address, offset, number_of_kind(kind)))
            self.known.append(Known(own, known.start, known.samples[name]))

    def _append(self) -> None:
        """Appends segments that may be anywhere; the first one's reference is taken."""
        a, b = self.choice.choice(self.known), self.choice.choice(self.known)
        alike = a.samples.dtype == b.samples.dtype
        if alike and len(a.samples) + len(b.samples) < 500 and a is not b:
            self._joined(a, b)

    def _append_to(self) -> None:
        """Appends what follows, several times, as a window does."""
        a = self.choice.choice(self.known)
        for _ in range(self.choice.randint(1, 4)):
            samples, start = self._random(kind=a.samples.dtype), a.start + len(a.samples)
            b = Known(self.store.make(self.base, start, samples), start, samples)
            assert self.segments.are_adjacent(a.address, b.address)
            a = self._joined(a, b)
            self.segments.release(b.address)

    def _joined(self, a: Known, b: Known) -> Known:
        before = a.references
        made = self._made(self.segments.append(a.address, b.address))
        a.references -= 1
        samples = np.zeros(len(a.samples) + len(b.samples), a.samples.dtype)
        samples[: len(a.samples)], samples[len(a.samples) :] = a.samples, b.samples
        joined = Known(made, a.start, samples)
        if before > 1:  # others still have what it was
            assert made != a.address
        else:
            self.known = [known for known in self.known if known is not a]
        self.known.append(joined)
        return joined

    def _pass_on(self) -> None:
        known = self.choice.choice(self.known)
        made = self.segments.pass_on(known.address)
        self._made(made)
        copies = self.store.manager is Manager.COPY_ALWAYS
        assert (made == known.address) is not copies
        if copies:
            self.known.append(Known(made, known.start, known.samples))
        else:
            known.references += 1

    def _flat(self) -> None:
        known = self.choice.choice(self.known)
        at = self.segments.flat(known.address)
        self.store.check_room()
        assert (at != 0) == (len(known.samples) > 0)
        assert self.segments.flat(known.address) == at

    def _retain(self) -> None:
        known = self.choice.choice(self.known)
        self.segments.retain(known.address)
        known.references += 1

    def _release(self) -> None:
        known = self.choice.choice(self.known)
        known.references -= 1
        self.segments.release(known.address)
        self.known = [k for k in self.known if k.references]

    def _young(self) -> None:
        """Leaves a reference to the store, until the morsel is through."""
        self.serial += self.choice.randint(0, 2)
        known = self.choice.choice(self.known)
        self.segments.retain(known.address)
        self.segments.note_young(known.address, self.serial)

    def _sweep(self) -> None:
        self.store.sweep(self.serial - self.choice.randint(0, 3))

    def _made(self, address: int) -> int:
        self.store.check_room()
        assert address != 0
        return address


def new_store(manager: Manager, room: Room | None = None) -> tuple[SegmentStore, Unlimited]:
    account = Unlimited()
    return SegmentStore(account, manager, room or Room(1 << 12, 1 << 12, 1 << 12)), account


def check_empty(store: SegmentStore, account: Unlimited) -> None:
    """Nothing is left: segments, parts, blocks, and bytes of ``max_state``."""
    store.check()
    counts = store.counts
    assert (counts["segments"], counts["bytes"], counts["hosted"]) == (0, 0, 0)
    assert account.nbytes == 0
    q = store.words
    for free, used, table, link, width in (
        (layout.FREE_SEGMENT, layout.USED_SEGMENTS, 0, layout.FIRST, layout.SEGMENT),
        (layout.FREE_PART, layout.USED_PARTS, 1, layout.NEXT, layout.PART),
        (layout.FREE_BLOCK, layout.USED_BLOCKS, 2, layout.MADE, layout.BLOCK_WORDS),
    ):
        at, lines = int(q[free]), 0
        while at >= 0:
            assert store.tables[table].shape[1] == width
            at, lines = int(store.tables[table][at, link]), lines + 1
        assert lines == q[used], "a line that was used is not free"
