"""The words of a stage whose steps another run divides otherwise.

Without partitions, one kernel runs the steps below a windowed aggregate, too. In partitions these
steps are operators of their own: a stage, and the split operator, which evaluates the last filters.
So a checkpoint that continues with the other kind has the words of kernels with other steps: words
are found by name, and the counters of the steps are divided or joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cql.executor.state.repartition import SPLITS, is_divided, partitions_of, whole
from cql.executor.state.store import Snapshot

#: Counters of the rows that enter a kernel and leave it.
IN, OUT = "rows_in", "rows_out"
#: Begins the counters of results that a filter above the aggregate removed.
AFTER = "filtered_after_"
#: The next number of a step that numbers rows.
NUMBERED = "numbered"


def renamed(saved: Snapshot, slots: Mapping[str, int]) -> Snapshot:
    """A snapshot with the words that a kernel with ``slots`` has, 0 for those that were not
    saved."""
    names = tuple(slots)
    if saved.names == names:
        return saved
    found = word_of(saved)
    words = np.array([found.get(name, 0) for name in names], np.int64)
    return replace(saved, words=words, names=names)


def word_of(saved: Snapshot) -> dict[str, int]:
    """The saved words by name."""
    return dict(zip(saved.names, saved.words.tolist(), strict=True))


def filters(names: Iterable[str]) -> list[str]:
    """The counters of the rows that the filters below an aggregate removed, the lowest filter
    first."""
    lead = "filtered_"
    numbers = (name.removeprefix(lead) for name in names if name.startswith(lead))
    return [f"{lead}{n}" for n in sorted(int(number) for number in numbers if number.isdigit())]


def filters_after(saved: Snapshot) -> list[int]:
    """How many results of an aggregate each filter above it removed, in all partitions, the lowest
    filter first."""
    parts = [word_of(part) for part in partitions_of(saved)]
    return [sum(part[name] for part in parts) for name in parts[0] if name.startswith(AFTER)]


def with_filters(
    own: Snapshot, saved: Snapshot, above: Snapshot, slots: Mapping[str, int]
) -> Snapshot:
    """The snapshot ``own`` of an aggregate, which was ``saved``. It does the lowest filters of the
    stage ``above``, if the kernel with ``slots`` has counters of such, or no longer does."""
    names, before = [name for name in slots if name.startswith(AFTER)], filters_after(saved)
    if len(names) == len(before):
        return own
    first, *others = partitions_of(own)
    words, found = first.words.copy(), word_of(above)
    words[slots[OUT]] += sum(before)
    for name, lower in zip(names, filters(found), strict=False):
        words[slots[name]] = found[lower]
        words[slots[OUT]] -= found[lower]
    first = replace(first, words=words)
    return whole([first, *others]) if is_divided(own) else first


def without_steps(saved: Snapshot, slots: Mapping[str, int]) -> Snapshot:
    """The snapshot of a stage that leaves some steps to operators below it, from that of one that
    runs them."""
    found, made = word_of(saved), renamed(saved, slots)
    gone = [found[name] for name in filters(found) if name not in slots]
    if made is not saved:
        made.words[slots[IN]] -= sum(gone)
    return made


def with_steps(saved: Snapshot, below: Sequence[Snapshot], slots: Mapping[str, int]) -> Snapshot:
    """The snapshot of a stage that does the work of the operators ``below``, from that of one that
    left it to them."""
    words, own = saved.words.copy(), filters(slots)
    for one in below:
        if not one.names:  # partitions of the aggregate whose results are the rows
            after = filters_after(one)
            for name, gone in zip(own, after, strict=False):
                words[slots[name]] += gone
            words[slots[IN]] += sum(after)
            continue
        found = word_of(one)
        if SPLITS in found and not own:
            continue  # its filter is an operator of its own again
        words[slots[IN]] = max(int(words[slots[IN]]), found[IN])
        for name in filters(found):
            # a split operator has one counter for its filters, which are the last ones
            words[slots[own[-1] if SPLITS in found else name]] += found[name]
        if NUMBERED in found:
            words[slots[NUMBERED]] = found[NUMBERED]
    return replace(saved, words=words)


def steps_below(saved: Snapshot, gone: Sequence[Snapshot], slots: Mapping[str, int]) -> Snapshot:
    """The snapshot of a stage of steps, from that of a stage that ran these and an aggregate, or of
    operators that are ``gone``: a split operator that ran its filter."""
    made = renamed(saved, slots)
    words = made.words.copy()
    for found in map(word_of, gone):
        words[slots[IN]] = found[IN]
        for own, name in zip(filters(slots), filters(found), strict=True):
            words[slots[own]] = found[name]
    words[slots[OUT]] = words[slots[IN]] - sum(int(words[slots[name]]) for name in filters(slots))
    return Snapshot({}, words, names=made.names)


def split_below(
    saved: Snapshot, gone: Sequence[Snapshot], slots: Mapping[str, int], conditions: int
) -> Snapshot:
    """The snapshot of a split operator with so many filters, from that of a stage that ran these
    and an aggregate, or of stages of filters that are ``gone``."""
    found, words = word_of(saved), np.zeros(len(slots), np.int64)
    removed = [found[name] for name in filters(found)]
    out = found[IN] - sum(removed)
    own = sum(removed[len(removed) - conditions :]) if conditions else 0
    own += sum(one[name] for one in map(word_of, gone) for name in filters(one))
    words[slots[IN]], words[slots[OUT]] = out + own, out
    for name in filters(slots):
        words[slots[name]] = own
    return Snapshot({}, words, names=tuple(slots))
