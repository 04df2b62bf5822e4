"""The layout of a morsel as operators see it: a table of int64 words.

A morsel is both the output of the operator that filled it and the input of the next one; nothing is
copied in between. Its header holds counts and addresses, then come two words per column: the
address of the data and that of the byte mask (1: valid; a column without NULLs points to a mask of
ones). ``SERIAL`` orders morsels, ``SEQUENCE`` is the stream position of its first row. Late rows
are records of three words (row, attribute, row watermark), punctuations of four (attribute, value,
second attribute or -1, its value); an attribute is a column index. Group-wise punctuation is two
such records, and so no promise to who does not know it: (attribute, value, column of the groups,
what was promised of this one before) and (GROUP, value of that column, -1, 1 if it is NULL). A
column's buffers belong to the morsel unless the operator passed a column of its input on by
reference.
"""

from __future__ import annotations

import numpy as np

# Header words.
ROWS = 0
CURSOR = 1  # where the consumer resumes
PHASE = 2  # the consumer's phase
SUB = 3  # the consumer's place inside a row
PORT = 4
SERIAL = 5
SEQUENCE = 6
CAPACITY = 7  # rows that the morsel's own buffers hold
OUT = 8  # address of the morsel that the consumer fills
LATE_ROWS = 9  # count
LATE_ROW_ADDRESS = 10
PUNCTUATIONS = 11  # count
PUNCTUATION_ADDRESS = 12
DETAIL = 13  # NEED: which buffer; ERROR: which site
DETAIL_ROW = 14  # NEED: how many bytes or which code; ERROR: which row
EPOCH = 15
# Under the ordered runtime.
REFERENCES = 16  # how many still read the morsel, its columns or its punctuation
PARENT = 17  # address of the morsel whose columns it shows; 0: it shows its own
HOME = 18  # ring of free morsels that it returns to
FOLLOWING = 19  # address of the next one of its chain
OPERATOR = 20  # index of the operator that made it
OWN_LATE_ROWS = 21  # address of its own room for late rows
WIDTH = 22  # words of the morsel; those of its own columns follow, wherever these point now
CHOSEN = 23  # address of the numbers of the rows that count (int32); 0: all do
FEED = 24  # the input that the morsel was cut off, or whose morsel it was made for
BASE = 25  # stream position of the first row of that block (``InputScheduler.first``)
WAY = 26  # the way that it came on, where its input comes to an operator on several (``paths``)
HEADER = 27

LATE_ROW_WORDS = 3
PUNCTUATION_WORDS = 4
MIN_PUNCTUATIONS = 64  # room for that many at least

# What an operator returns.
DONE = 0
OUTPUT_FULL = 1  # take the output, then call again with the same morsel
NEED = 2  # provide DETAIL (DETAIL_ROW says how much), then call again
ERROR = 3  # row DETAIL_ROW failed at site DETAIL; calling again leaves it out

# Attributes of punctuation that are no columns.
END_OF_INPUT = -1  # no later row at all
IDLE = -2  # value 1: the input stops counting where progress is a minimum; 0: it counts again
NUMBERS = -3  # inside a stage: of the numbers that it gives its rows
NOWHERE = -4  # inside a stage: of a column without progress
GROUP = -5  # the second record of group-wise punctuation

INFINITY = np.iinfo(np.int64).max
NEVER = np.iinfo(np.int64).min


def data_word(column: int) -> int:
    return HEADER + 2 * column


def mask_word(column: int) -> int:
    return HEADER + 2 * column + 1
