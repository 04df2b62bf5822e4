"""The words of an update queue: which key holds which place, in which order keys are served, and
how stale each key is.

A queue has no rows of its own. It says at which *place* a row lies; the owner of the queue keeps
the columns. The place numbers of a page are consecutive.

Times are int64 of one clock: nanoseconds of real time, or the ticks of a simulation.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.memory import lines, words

# Key schedulers (UpStream report, sections 4.2 and 5).
APPEND, SHED, FIFO, IN_PLACE, LINECUTTING = range(5)
# Storage (section 7).
PAGED, PREALLOCATED = range(2)

# Windows (section 6).
TUPLES, LAZY, EAGER = range(3)

# Words of a queue.
SCHEDULER = 0
STORAGE = 1
PAGE_ROWS = 2  # places of a page
PAGES = 3  # pages of the pool
KEYS = 4  # cells
FLIGHTS = 5  # room for updates between dequeue and delivery; a power of two
# Page pool.
UNUSED = 6  # pages from this one on were never used
RETURNED = 7  # first page that came back to the pool; the page's AFTER has the next; -1: none
NEXT_PAGE = 8  # nap, the page that gives the next place; -1: none
OPEN_PAGE = 9  # ELP, the first page in use that has a place left; -1: none
PAGES_USED = 10
PLACES_USED = 11  # places of residents, and dirty places
# Queue of keys.
HEAD = 12  # the place that is served next; -1: none
TAIL = 13
LAST_CUTTER = 14  # the last of the places at the head that cut in; -1: none did
OLDEST = 15  # of the residents, the one whose key has waited longest; -1: none
YOUNGEST = 16
RESIDENTS = 17
# In flight: the updates between dequeue and delivery, in order, as a ring.
TAKEN = 18  # updates dequeued so far
DELIVERED = 19
# Statistics monitor.
COST = 20  # average cost of an update, as the bits of a double
START = 21  # time of the first arrival
LATEST = 22  # time of the latest arrival
MEASURED = 23  # time at which the measured rate of arrivals begins: RATE_ROWS to twice as many ago
MEASURING = 24  # the time RATE_ROWS after it, or MEASURED
SEED = 25  # state of the random numbers
ARRIVED = 26
SUPERSEDED = 27
SHED_ROWS = 28
PROGRESS = 29  # event time: no later row is below it
SEEN_KEYS = 30  # keys that have arrived
GONE_AREA = 31  # areas of the keys whose cells are gone, as the bits of doubles: of the queue
GONE_STALENESS = 32  # of the application
GUARDED = 33  # LINECUTTING: whether cutters leave a share of the service to the others
CUT_SHARE = 34  # the share of the latest dequeues that cutters had, as the bits of a double
# Windows.
WINDOWS = 35  # TUPLES, LAZY or EAGER
SIZE = 36  # of a window, in units of event time
SLIDE = 37
BLOCK_ROWS = 38  # rows of a block; in a queue of windows, a place is a block
READY_HEAD = 39  # upq, the committed keys with rows to dequeue: the first; -1: none
READY_TAIL = 40
IDLE_HEAD = 41  # il, the committed keys without
ACTIVE_HEAD = 42  # the keys of which a window is open
ENDS = 43  # the latest end of a window that PROGRESS has reached; NEVER: none
ROWS_HELD = 44
ROWS_TAKEN = 45
ROWS_GONE = 46  # rows that were held
ROWS_LATE = 47  # rows that came behind a later one of their key, or behind the end of their windows
ROWS_BETWEEN = 48  # rows in no window: the slide is longer than the size
SERVED_WAITING = 49  # keys that wait while a window of theirs is served
# Access frequencies.
ITEMS = 50  # of REFRESH
RESTING = 51  # rows that wait until their keys are due
NEXT_DUE = 52  # when the first of the keys that rest is due; NEVER: none rests
FIRST_RESTING = (
    53  # of the rows that wait so, the one whose latest arrival is longest ago; -1: none
)
LAST_RESTING = 54
# Addresses.
CELLS = 55  # CELL words per key
PLACES = 56  # PLACE words per place
PAGE_TABLE = 57  # PAGE words per page
FLIGHT = 58  # FLIGHT_WORDS per update in flight
BUFFERS = 59  # BUFFER words per key
NODES = 60  # PLACE words per key: its links in the queue of keys
BLOCKS = 61  # BLOCK words per place
EVENTS = 62  # int64 per row: its event time
RESTS = 63  # REST words per key
ITEM_TABLE = 64  # ITEM words per item of REFRESH
QUEUE_WORDS = 65

# A key cell. Times that are unknown are NEVER.
EP = 0  # enclosing page; -1: the key has no place
DL = 1  # location in that page
WAITING = 2  # whether the key has an update in the queue
SINCE = 3  # arrival of the oldest update that is not dequeued; if the key rested: when it is due
SINCE_FROM = 4  # from when on queue staleness counts from SINCE
PENDING = 5  # arrival of the oldest update that is not delivered; or when it is due
PENDING_FROM = 6  # from when on application staleness counts from PENDING
IN_FLIGHT = 7  # number of the last update in flight; -1: none
LAST = 8  # the latest arrival
INTERVAL = 9  # average time between arrivals, as the bits of a double; 0: not known
ARRIVALS = 10
QUEUE_AREA = 11  # integral of queue staleness, as the bits of a double
STALENESS_AREA = 12  # integral of application staleness
NEWEST = 13  # the highest event time
NEWEST_PLACE = 14  # append queues: the place of the key's last update; -1: none
CELL = 15

# A place.
AFTER = 0  # the next one of the list
BEFORE = 1
OLDER = 2
YOUNGER = 3
OWNER = 4  # its cell
NEXT_ARRIVAL = 5  # append queues: the first arrival of the key behind this one; NEVER: none
FLOOR = 6  # PROGRESS when the first update at this place arrived
EVENT = 7  # event time of the row
PLACE = 8

# A page.
PAGE_AFTER = 0  # the next one of OPEN_PAGE's list, or of RETURNED's
PAGE_BEFORE = 1
FREED = 2  # the first place that was freed; the place's AFTER has the next; -1: none
FRESH = 3  # places that were in use at least once: these come first
IN_USE = 4  # places in use
PAGE = 5

# An update in flight.
FLIGHT_CELL = 0
FLIGHT_NEXT = 1  # the first arrival of the key behind it; NEVER: none
FLIGHT_WORDS = 2

# A window buffer (section 7.2): the rows of a key, oldest first, in blocks.
STATE = 0  # of the commitment: NONE, READY, IDLE or DONE
FIRST_BLOCK = 1  # -1: no rows
LAST_BLOCK = 2  # ET is behind its last row
DF_BLOCK = 3  # the row that is dequeued next; -1: the row that comes next
DF_ROW = 4
WS = 5  # start of the most recent window; NEVER: there was none
COMMITTED = 6  # start of the committed window; NEVER: there was none
WE = 7  # end of the committed window
OPENED = 8  # whether a row of the committed window was dequeued
NEXT_PENDING = 9  # when the first window behind the committed one closed; NEVER: none has
LINK_AFTER = 10  # the next key of READY_HEAD's list or of IDLE_HEAD's; -1: none
LINK_BEFORE = 11
ACTIVE = 12  # whether the key is in ACTIVE_HEAD's list
ACTIVE_AFTER = 13
ACTIVE_BEFORE = 14
ENDED = 15  # of an active key: the latest end of a window that it has reached
REACHED = 16  # group-wise punctuation: no later row of the key is below it; NEVER: there was none
GAP_FROM = 17  # EAGER: the key's last row before the first gap ahead of ENDED that is a window long
GAP_TO = 18  # the first row behind this gap; NEVER: there is none
BUFFER = 19
NONE, READY, IDLE, DONE = range(4)

# A block, or FixedLengthContiguousZone: its page and its offset in the page follow from its number.
BLOCK_AFTER = 0
BLOCK_BEFORE = 1
DEQUEUED = 2  # dequeue offset: its rows before this one are gone
ENQUEUED = 3  # enqueue offset: the next row comes here
BLOCK = 4

# The rest of a key, until it is due.
REFRESH = 0  # its item of REFRESH; -1: none
DUE = 1  # when the rest ends; NEVER: the key does not rest
REST_AFTER = 2  # the next key of the item's list; -1: none
REST_BEFORE = 3
REST = 4

# An item of REFRESH. Its keys rest equally long, so they are due in the order of their dequeues.
EVERY = 0  # how long
FIRST_REST = 1  # the key that is due first; -1: none rests
LAST_REST = 2
ITEM = 3


@njit(inline="always")
def cells_of(q: Any) -> Any:
    return lines(q[CELLS], q[KEYS], CELL)


@njit(inline="always")
def places_of(q: Any) -> Any:
    return lines(q[PLACES], q[PAGES] * q[PAGE_ROWS], PLACE)


@njit(inline="always")
def pages_of(q: Any) -> Any:
    return lines(q[PAGE_TABLE], q[PAGES], PAGE)


@njit(inline="always")
def flights_of(q: Any) -> Any:
    return lines(q[FLIGHT], q[FLIGHTS], FLIGHT_WORDS)


@njit(inline="always")
def buffers_of(q: Any) -> Any:
    return lines(q[BUFFERS], q[KEYS], BUFFER)


@njit(inline="always")
def nodes_of(q: Any) -> Any:
    return lines(q[NODES], q[KEYS], PLACE)


@njit(inline="always")
def blocks_of(q: Any) -> Any:
    return lines(q[BLOCKS], q[PAGES] * q[PAGE_ROWS], BLOCK)


@njit(inline="always")
def events_of(q: Any) -> Any:
    return words(q[EVENTS], q[PAGES] * q[PAGE_ROWS] * q[BLOCK_ROWS])


@njit(inline="always")
def rests_of(q: Any) -> Any:
    return lines(q[RESTS], q[KEYS], REST)


@njit(inline="always")
def items_of(q: Any) -> Any:
    """The items of REFRESH, one behind the other."""
    return words(q[ITEM_TABLE], q[ITEMS] * ITEM)


@njit("int64[::1](int64)", cache=True)
def queue_at(address: int) -> Any:
    """The words of the queue at an address."""
    return words(address, QUEUE_WORDS)
