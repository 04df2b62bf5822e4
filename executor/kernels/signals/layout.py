"""The layout of the segment store: isochronous samples in reference-counted blocks (XStream paper,
section III.B and figure 5).

A *segment* is a reference-counted line with a place in time: a timebase, the number of its first
sample there, and a length. Its samples are those of its *parts*, in order: each part is a range of
a *block*, which counts the parts that share it. So a segment can share samples with others, and a
block is given back when no segment has a part of it. A block of the host may have *rows*, a sample
of each channel in each (WindowStride, section IV.B). A block of structs has rows, too: the segment
of a field shares them.

A column of signals holds the addresses of segments. The tables never move. State holds the numbers
of segments, not their addresses.
"""

from __future__ import annotations

# Words of a store.
LOCK = 0  # 1: a thread changes the tables
MANAGER = 1
SEGMENTS = 2  # addresses of the tables
PARTS = 3
BLOCKS = 4
YOUNG = 5
MOST_SEGMENTS = 6  # lines for which there is room
MOST_PARTS = 7
MOST_BLOCKS = 8
FREE_SEGMENT = 9  # the first free line among those that were used, -1: none
FREE_PART = 10
FREE_BLOCK = 11
USED_SEGMENTS = 12  # lines that were used; those behind are fresh
USED_PARTS = 13
USED_BLOCKS = 14
LIVE_SEGMENTS = 15
BYTES = 16  # bytes of the blocks that the store made
COPIED = 17  # bytes that were copied from block to block
FIRST_YOUNG = 18  # the young segments, in a ring of MOST_SEGMENTS lines: the number of the first,
NEXT_YOUNG = 19  # and of the next one
FULL = 20  # not 0: something was refused since there was no room
EMPTY = 21  # the address of a segment without samples, for a function that finds no room
PREPARED = 22  # address of the first table that functions prepared (``prepared``); 0: none
PREPARED_BYTES = 23
TIMEBASES_AT = 24  # address of the table of timebases (``timebase``)
MOST_TIMEBASES = 25
USED_TIMEBASES = 26  # lines that were used, as of the other tables
STORE = 27

# Why something was refused (FULL), 0: nothing was.
NO_ROOM = 1
NO_TIMEBASE = 2

# Memory managers.
COPY_ALWAYS = 0
REFCOUNT_COPY = 1
REFCOUNT_REALLOC = 2
REFCOUNT_LAZY = 3

# A line of SEGMENTS.
REFERENCES = 0
FLAT = 1  # the address of the samples, if they are in one range
LENGTH = 2  # samples
START = 3  # the number of the first sample in its timebase
BASE = 4  # the number of the timebase, shifted by KIND_BITS, plus the kind of the samples
OWNER = 5  # the address of the store
FIRST = 6  # the first part, -1: none; of a free line, the next free one
LAST = 7
SEGMENT = 8

# A line of PARTS.
BLOCK = 0
AT = 1  # the address of its first sample
SAMPLES = 2
NEXT = 3  # the next part of the segment, or the next free line; -1: none
PART = 4

# A line of BLOCKS.
SHARES = 0  # parts of it, and 1 while its maker holds it
DATA = 1  # its address
SIZE = 2  # bytes
MADE = 3  # 1: by the store; 0: by the host; of a free line, the next free one
STEP = 4  # the bytes of a row, if the block has rows or structs; 0: one channel of numbers
BLOCK_WORDS = 5

# A line of YOUNG.
SERIAL = 0  # of the morsel for which the segment was made
MADE_SEGMENT = 1  # its address
YOUNG_WORDS = 2

#: An operator gives its output on when the segments in it have so many samples.
MOST_SAMPLES = 1 << 22
#: The kinds of samples, by their number. A kind above STRUCT is a struct of so many words more.
KINDS = ("int8", "int16", "int32", "int64", "float32", "float64", "complex128")
SIZES = (1, 2, 4, 8, 4, 8, 16)
STRUCT = len(KINDS)
KIND_BITS = 16
KIND = (1 << KIND_BITS) - 1
