"""The dictionary of a query over ever-new texts: what it costs to enter a text and to forget it.

The floor is what no dictionary can do without: to read the bytes of each text once, and to store
one number for each in a hash table of as many places. It neither keeps the bytes nor compares any.

Lines of 77 bytes on one core that reads 25 GB/s: the floor takes 13 ns for a text; to enter one
takes 25 ns and to forget it 2 ns, if none stays.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit, uint64

from benchmarks.harness import Benchmark, Contender, Limit, Ratio
from benchmarks.texts import requests
from benchmarks.workloads import sums
from cql.executor.protocols import BLOCK_ROWS
from cql.executor.strings.dictionary import Codes, Dictionary

#: Texts in all, and the most nanoseconds for each.
TEXTS, GOAL = 8 * BLOCK_ROWS, 40
FLOOR, ENTERED, GROWN = "floor: read, one store", "entered", "entered, with growth"
FORGOTTEN, HALF = "entered and forgotten", "entered, half of all forgotten"
_NONE = np.zeros(0, np.int32)


@njit(nogil=True)
def read_and_store(words: Any, offsets: Any, places: Any) -> int:
    """Sums the words of 8 bytes that begin in each text, and stores the text's number at a place
    that the sum chooses. Returns the number of texts."""
    mask = uint64(places.size - 1)
    for i in range(offsets.size - 1):
        total = uint64(0)
        for k in range(offsets[i] >> 3, offsets[i + 1] >> 3):
            total += words[k]
        places[((total * uint64(0x9E3779B97F4A7C15)) >> uint64(40)) & mask] = i
    return int(offsets.size - 1)


class Blocks:
    """``texts`` different request lines in blocks as large as those of sources. Each run returns
    the number of texts in each block."""

    def __init__(self, texts: int) -> None:
        lines = requests(texts, texts).column("k").combine_chunks()
        self._blocks = [lines.slice(at, BLOCK_ROWS) for at in range(0, texts, BLOCK_ROWS)]
        self._words = [_words(block) for block in self._blocks]
        self._places = np.zeros(2 * BLOCK_ROWS, np.int32)
        #: A dictionary for each run, which has room for as many texts as it had before.
        self._used = {name: Dictionary() for name in (ENTERED, FORGOTTEN, HALF)}

    def floor(self) -> list[int]:
        return [read_and_store(*words, self._places) for words in self._words]

    def empty(self) -> None:
        """Empties the dictionaries. What is empty already would lose its room."""
        for dictionary in self._used.values():
            if len(dictionary) > 1:
                _forget(dictionary, _NONE)

    def entered(self) -> list[int]:
        """Enters all texts where there is room."""
        return [len(_enter(self._used[ENTERED], block)) for block in self._blocks]

    def grown(self) -> list[int]:
        """Enters all texts into a new dictionary."""
        dictionary = Dictionary()
        return [len(_enter(dictionary, block)) for block in self._blocks]

    def forgotten(self) -> list[int]:
        """Enters a block and forgets it, again and again."""
        dictionary, sizes = self._used[FORGOTTEN], []
        for block in self._blocks:
            sizes.append(len(_enter(dictionary, block)))
            _forget(dictionary, _NONE)
        return sizes

    def half(self) -> list[int]:
        """Forgets, after each block, the block before it: the most that a query may have to move,
        which waits until as much is new as the last compaction kept."""
        dictionary, sizes = self._used[HALF], []
        for block in self._blocks:
            codes = _enter(dictionary, block)
            sizes.append(len(codes))
            _forget(dictionary, codes)
        return sizes


def _words(block: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    _, offsets, data = block.buffers()
    places = np.frombuffer(offsets, np.int32, len(block) + 1, 4 * block.offset)
    return np.frombuffer(data, np.uint64, data.size >> 3), places


def _enter(dictionary: Dictionary, block: pa.Array) -> Codes:
    codes = np.empty(len(block), np.int32)
    dictionary.encode(block, codes)
    return codes


def _forget(dictionary: Dictionary, kept: Codes) -> None:
    live = np.zeros(len(dictionary), bool)
    live[0] = live[kept] = True
    dictionary.compact(live)


def dictionary(rows: int | None = None, folder: Path | None = None) -> Benchmark:
    """``rows``: the number of texts. ``folder`` is unused: the texts are generated."""
    texts = rows or TEXTS
    blocks = Blocks(texts)
    goal = GOAL * 1e-9 * texts
    return Benchmark(
        "dictionary",
        f"{texts:,} request lines that all differ become codes of a dictionary",
        texts,
        sums(blocks.floor()),
        [
            Contender(FLOOR, blocks.floor, sums, pinned=True),
            Contender(ENTERED, blocks.entered, sums, blocks.empty, pinned=True),
            Contender(GROWN, blocks.grown, sums, pinned=True),
            Contender(FORGOTTEN, blocks.forgotten, sums, blocks.empty, pinned=True),
            Contender(HALF, blocks.half, sums, blocks.empty, pinned=True),
        ],
        [Ratio(FLOOR, ENTERED), Ratio(FLOOR, FORGOTTEN)],
        [Limit(ENTERED, goal), Limit(FORGOTTEN, goal)],
    )
