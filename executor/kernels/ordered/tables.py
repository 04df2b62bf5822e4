"""The tables of the ordered runtime: a header, and a record for each task and each lane of it.

A *task* is an operator that can be scheduled, with its worklists and the buffer that puts its
outputs in order (ordered-multicore paper, section 2.2). A *lane* is one execution of it: a
stateless task has one for each worker, a partitioned one for each partition, a serial one has a
single one. Words that several threads write lie ``CACHE_LINE`` words apart.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.condition import BED
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.lib.mpmc_queue import CACHE_LINE, RING

# -- header ----------------------------------------------------------------------------------------
STOP = 0  # 1: workers leave as soon as they can
WANTED = 1  # workers from this number on leave
TASKS = 2
FIRST_TASK = 3  # address
FIRST_WORKER = 4
WORKERS = 5  # that share what there is to do
POLICY = 6  # ``picks``
SLICE = 7  # nanoseconds that a worker stays with a task
WINDOW = 8  # nanoseconds over which CT looks
CAPACITY = 9  # C of equation 1
LOCKED = 10  # 1: the lock-based buffer (figure 2)
SCHEME = 11  # of partitions' worklists
LEAST = 12  # LP: inputs that must wait
RANDOM = 13  # of tests: CALM; threads give their core away at random points, or one stalls, too
INPUTS = 14  # records of inputs
FIRST_INPUT = 15
TIMED = 16  # 1: someone wants to know what takes how long
MARKS = 17  # address of records (``markers``)
MARKED = 18  # morsels that have one, from serial number 0 on
MARKED_FROM = 19  # address of the task that they enter; 0: none
MARKED_TO = 20  # address of the task that they leave
ASKED = 21  # not 0: worker 0 is wanted in Python
LOOKS = 22  # in vain before a worker sleeps
INSIDE = 32  # morsels that are queued or worked on
WINDOW_BEGAN = INSIDE + CACHE_LINE
ADMITTED = WINDOW_BEGAN + CACHE_LINE  # morsels so far; with these words only worker 0 writes
ROWS_ADMITTED = ADMITTED + 1
MORSEL_WORK = ADMITTED + 2  # nanoseconds for a call of the heaviest task; 0: morsels are not sized
MORSEL_ROWS = ADMITTED + 3  # rows that they have now, and at the most
MOST_ROWS = ADMITTED + 4
SIZED_AT = ADMITTED + 5  # morsels, rows, and Python's work when their size was last chosen
SIZED_ROWS = ADMITTED + 6
SIZED_PYTHON = ADMITTED + 7
SINK = ADMITTED + CACHE_LINE  # the ring of results
SLEEPING = SINK + RING
PLAN = SLEEPING + BED

# -- a task -------------------------------------------------------------------------------------
KIND = 0
NUMBER = 1  # of the operator
ADDRESS = 2  # of its function; 0: Python runs it
LANES = 3
FIRST_LANE = 4
POOL = 5  # address of the ring of free output morsels
SLOTS = 6  # address of the buffer's slots: pairs (serial + 1, first morsel of the chain)
SIZE = 7  # slots, a power of two
PORTS = 8
FIRST_PORT = 9
EDGES = 10
FIRST_EDGE = 11
BORROWS = 12  # 1: its output shows columns of its input
RANK = 13  # place from the inputs on
MOST = 14  # workers that may be at it
TURNS = 15  # address of the order in which its ports are read (several ports only)
TURNS_MASK = 16
MORSELS = 17  # that belong to the pool
PARTS = 18  # partitions, each a lane
FRAGMENTS = 19  # address of fragments, views of inputs: by (slot, partition)
FRAGMENT = 20  # words of one
LISTS = 21  # address of the partitions' queues
MASTER = 22  # address of the master queue: numbers of partitions
MASTER_MASK = 23
UNDONE = 24  # address: fragments that are not done, by slot
OUTPUTS = 25  # address: chains of output morsels, by (slot, partition)
MERGED = 26  # address of the ring of morsels that outputs are merged into
ORDER = 27  # columns at the end of the outputs that say in which order they are merged
COLUMNS = 28  # address: bytes of a value, whether it has a mask, for each other column
WIDE = 29  # columns
FAILED = 30  # serial + 1 of the first input that failed, which holds back all behind it; 0: none
NEXT = 32  # serial that leaves next
FLAG = NEXT + CACHE_LINE  # someone sends
TAKEN = FLAG + CACHE_LINE  # serial that is taken next
PUT = TAKEN + CACHE_LINE  # serial that comes next
ALLOTTED = PUT + CACHE_LINE  # workers at it
TURN_TAKEN = ALLOTTED + CACHE_LINE
TURN_PUT = TURN_TAKEN + CACHE_LINE
SENT = TURN_PUT + CACHE_LINE  # place of the morsel whose outputs have all left
TIME = SENT + CACHE_LINE  # nanoseconds of workers
COUNT = TIME + 1  # inputs
MADE = TIME + 2  # output morsels
RECENT = TIME + 3  # nanoseconds in this window of CT
CALLS = TIME + 4
TOOK = TIME + 5  # items of punctuation, if TIMED
MASTER_TAKEN = TIME + CACHE_LINE
MASTER_PUT = MASTER_TAKEN + CACHE_LINE
DISPATCHING = MASTER_PUT + CACHE_LINE
EMITTED = DISPATCHING + CACHE_LINE  # rows that have left in their order
HELD_FOR = EMITTED + 1  # nanoseconds that outputs waited for those of earlier inputs, in all
SIZED_TIME = EMITTED + 2  # TIME when the size of morsels was last chosen
PASSED_ON = EMITTED + 3  # items of punctuation that have left, if TIMED
TASK = EMITTED + CACHE_LINE

STATELESS, SERIAL_ONE, PARTITIONED = range(3)

# -- a port: a worklist, filled by one thread at a time --------------------------------------------
QUEUE = 0  # address of its places
QUEUE_MASK = 1
FROM = 2  # the task that fills it; -1: an input
SPLIT = 3  # column that has the rows by partition, before their offsets; -1: none has
GOT = CACHE_LINE  # places that have been taken
GIVEN = 2 * CACHE_LINE  # places that have been filled
PORT_WORDS = 3 * CACHE_LINE

# -- a partition's queue of serials ----------------------------------------------------------------
LIST_GOT = 0
LIST_PUT = CACHE_LINE
HELD = 2 * CACHE_LINE  # who works on it, and serials that others have left to them
FIRST_SERIAL = 3 * CACHE_LINE

HYBRID, PARTITIONED_QUEUE, SHARED_QUEUE = range(3)
CALM, YIELDING, STALLING = range(3)

# -- an edge ---------------------------------------------------------------------------------------
TO_TASK = 0  # -1: the sink
TO_PORT = 1
VIEWS = 2  # ring of free views, where a morsel goes to several
COLLECTORS = 3  # of the sink: ring of free morsels that small results are copied into; 0: none are
COLLECTING = 4  # the one that is being filled; 0: none
COLLECTED = 5  # address: bytes of a value of each column; their number
COLLECTED_COLUMNS = 6
BY_BLOCK = 7  # 1: results of one block do not wait for those of another
ADDS_WAY = 8  # to that of a morsel
EDGE = 9

# -- a lane ----------------------------------------------------------------------------------------
DESCRIPTOR = 0
OUTPUT = 1  # address of the morsel that is filled; 0: none is taken
MORSEL = 2  # that is worked on; 0: none
TICKET = 3  # its serial in this task
CHAIN = 4  # outputs so far: first and last
CHAIN_END = 5
CODE = 6  # what Python's operator returned; UNASKED
STATE = 7
LANE = CACHE_LINE

#: The operator is called; its output is given away; it has failed, and is not called any more.
CALL, GIVE, FAILING = range(3)
UNASKED = -1

# -- a worker --------------------------------------------------------------------------------------
AT = 0  # task; -1: none
ON = 1  # its lane
BUDGET = 2  # inputs that are left of this slice
BEGAN = 3
DONE_HERE = 4  # inputs of this slice
SEED = 6
CLOCK = 7  # two words
SEEN = 9  # wakes of the sleepers
IDLE = 10  # looks in vain
BUSY = 11  # nanoseconds of work
SLEPT = 12
MERGING = 13  # serial + 1 whose outputs it merges
PLACES = 14  # address of room for two words for each row of a morsel
ASLEEP = 15  # nanoseconds
NOTED = 16  # how often it has noted the lengths of worklists
LENGTHS = 17  # address: of each task, their sum, and the longest
PYTHON_WORK = 18  # nanoseconds in which Python answered it
TOURNAMENT = 19  # address of MERGING_WORDS for each partition, where outputs are merged
MERGING_WORDS = 6  # four of the partition's next row, two nodes
SCRATCH = 2 * CACHE_LINE  # of what ``picks`` reads
NUMBERS = 8  # words per task there
MOST_TASKS = 64
WORKER = SCRATCH + NUMBERS * MOST_TASKS + CACHE_LINE

# -- an input --------------------------------------------------------------------------------------
ENTRY_POOL = 0  # ring of its morsels
PATH = 1  # address of visits (task, port, way): who sees its morsels, in the order of depth first
PATHS = 2  # visits
TARGET = 3  # task that takes its morsels; -1: the sink
TARGET_PORT = 4
INPUT = 8
VISIT = 3  # words


@njit(inline="always")
def task_at(plan: int, s: int) -> Any:
    return words(plan, PLAN)[FIRST_TASK] + 8 * TASK * s


@njit(inline="always")
def lane_at(task: int, lane: int) -> Any:
    return words(task, TASK)[FIRST_LANE] + 8 * LANE * lane


@njit(inline="always")
def port_at(task: int, port: int) -> Any:
    return words(task, TASK)[FIRST_PORT] + 8 * PORT_WORDS * port


@njit(inline="always")
def list_at(task: int, part: int) -> Any:
    s = words(task, TASK)
    return s[LISTS] + 8 * (FIRST_SERIAL + s[SIZE]) * part


@njit(inline="always")
def worker_at(plan: int, w: int) -> Any:
    return words(plan, PLAN)[FIRST_WORKER] + 8 * WORKER * w
