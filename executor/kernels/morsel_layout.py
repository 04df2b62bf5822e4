"""The layout of a morsel as operators see it: a table of int64 words.

One operator fills the morsel and the next one reads the same morsel; nothing is copied in between.
The header holds counts and addresses. Two words per column follow: the address of the data and the
address of the byte mask (1: valid; a column without NULLs points to a mask of ones). ``SERIAL``
orders the morsels, ``SEQUENCE`` is the stream position of the first row.

A late row is a record of three words: row, attribute, row watermark. A punctuation is a record of
four words: attribute, value, second attribute or -1, value of the second attribute. An attribute is
a column index. A group-wise punctuation is two records: (attribute, value, column of the groups,
previous watermark of the group) and (GROUP, value of that column, -1, 1 if that value is NULL). An
operator that does not know group-wise punctuation reads no watermark from the two records.

The buffers of a column belong to the morsel, unless the operator passed a column of its input on by
reference.
"""

from __future__ import annotations

import numpy as np

# Header words.
ROWS = 0
CURSOR = 1  # row at which the consumer resumes
PHASE = 2  # the consumer's phase
SUB = 3  # the consumer's position inside a row
PORT = 4
SERIAL = 5
SEQUENCE = 6
CAPACITY = 7  # rows for which the morsel's own buffers have room
OUT = 8  # address of the morsel that the consumer fills
LATE_ROWS = 9  # count
LATE_ROW_ADDRESS = 10
PUNCTUATIONS = 11  # count
PUNCTUATION_ADDRESS = 12
DETAIL = 13  # NEED: the buffer; ERROR: the site
DETAIL_ROW = 14  # NEED: the number of bytes, or the code; ERROR: the row
EPOCH = 15
# Used by the ordered runtime only.
REFERENCES = 16  # readers that still use the morsel, its columns or its punctuation
PARENT = 17  # address of the morsel whose columns this one shows; 0: it shows its own columns
HOME = 18  # ring of free morsels to which the morsel returns
FOLLOWING = 19  # address of the next morsel of the chain
OPERATOR = 20  # index of the operator that made the morsel
OWN_LATE_ROWS = 21  # address of the morsel's own buffer for late rows
WIDTH = 22  # words of the morsel; a copy of the addresses of its own buffers follows them
CHOSEN = 23  # address of the numbers (int32) of the selected rows; 0: every row is selected
FEED = 24  # the input from whose block the morsel was cut, or for whose morsel it was made
BASE = 25  # stream position of the first row of that block (``InputScheduler.first``)
PATH_NUMBER = 26  # the morsel's path, where several lead from its input to an operator (``paths``)
HEADER = 27

LATE_ROW_WORDS = 3
PUNCTUATION_WORDS = 4
MIN_PUNCTUATIONS = 64  # every morsel has room for this number of punctuation records

# What an operator returns.
DONE = 0
OUTPUT_FULL = 1  # take the output, then call again with the same morsel
NEED = 2  # provide DETAIL (DETAIL_ROW says how much), then call again
ERROR = 3  # row DETAIL_ROW failed at site DETAIL; calling again skips that row

# Attributes of punctuation that are not columns.
END_OF_INPUT = -1  # no row follows
IDLE = -2  # value 1: the input no longer counts in a minimum of watermarks; 0: it counts again
NUMBERS = -3  # inside a stage: the sequence numbers that the stage gives its rows
NOWHERE = -4  # inside a stage: a column without a watermark
GROUP = -5  # the second record of group-wise punctuation

INFINITY = np.iinfo(np.int64).max
NEVER = np.iinfo(np.int64).min


def data_word(column: int) -> int:
    return HEADER + 2 * column


def mask_word(column: int) -> int:
    return HEADER + 2 * column + 1
