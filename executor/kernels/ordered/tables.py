"""The tables of the ordered runtime: a header, and a record for each task and each of its lanes.

A *task* is a schedulable operator with its worklists and the reorder buffer of its outputs
(ordered-multicore paper, section 2.2). A *lane* is one execution of the operator: a stateless task
has as many lanes as there are workers, a partitioned task has a lane for each partition, a serial
task has one lane. Words that different threads write are ``CACHE_LINE`` words apart.
"""

from __future__ import annotations

from typing import Any

from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.condition import BED
from cql.executor.kernels.lib.memory import words
from cql.executor.kernels.lib.mpmc_queue import CACHE_LINE, RING

# -- header ----------------------------------------------------------------------------------------
STOP = 0  # 1: workers leave as soon as they can
WANTED = 1  # workers with this number or a higher one leave
TASKS = 2  # number of tasks
FIRST_TASK = 3  # address
FIRST_WORKER = 4  # address
WORKERS = 5  # workers that share the work
POLICY = 6  # the heuristic (``schedulers``)
SLICE = 7  # nanoseconds that a worker stays with a task
WINDOW = 8  # length of CT's window, in nanoseconds
CAPACITY = 9  # C of equation 1
LOCKED = 10  # 1: the lock-based reorder buffer (figure 2)
SCHEME = 11  # the worklists of partitioned tasks: HYBRID, PARTITIONED_QUEUE or SHARED_QUEUE
LEAST = 12  # LP: least number of waiting inputs
RANDOM = 13  # for tests: CALM, YIELDING (threads yield at random) or STALLING (one also stalls)
INPUTS = 14  # number of input records
FIRST_INPUT = 15  # address
TIMED = 16  # 1: times and lengths of worklists are measured
MARKS = 17  # address of the records of ``markers``
MARKED = 18  # number of morsels that have a mark, from serial number 0 on
MARKED_FROM = 19  # address of the task where a marker enters; 0: none
MARKED_TO = 20  # address of the task where a marker leaves
RETURN_REQUESTED = 21  # not 0: worker 0 must return to Python
LOOKS = 22  # unsuccessful looks for work before a worker sleeps
INSIDE = 32  # morsels that are queued or worked on
WINDOW_BEGAN = INSIDE + CACHE_LINE
ADMITTED = WINDOW_BEGAN + CACHE_LINE  # morsels so far; only worker 0 writes this cache line
ROWS_ADMITTED = ADMITTED + 1
MORSEL_WORK = ADMITTED + 2  # nanoseconds for a call of the heaviest task; 0: morsels are not sized
MORSEL_ROWS = ADMITTED + 3  # current size of morsels in rows
MOST_ROWS = ADMITTED + 4  # maximal size of morsels in rows
SIZED_AT = ADMITTED + 5  # ADMITTED at which the size of morsels is next chosen
SIZED_ROWS = ADMITTED + 6  # ROWS_ADMITTED when the size was last chosen
SIZED_PYTHON = ADMITTED + 7  # the workers' PYTHON_WORK when the size was last chosen
SINK = ADMITTED + CACHE_LINE  # the ring of results
SLEEPING = SINK + RING
PLAN = SLEEPING + BED

# -- a task -------------------------------------------------------------------------------------
KIND = 0
NUMBER = 1  # index of the operator
ADDRESS = 2  # of the operator's function; 0: Python runs the operator
LANES = 3
FIRST_LANE = 4
POOL = 5  # address of the ring of free output morsels
SLOTS = 6  # address of the slots of the reorder buffer (``reorder``)
SIZE = 7  # slots, a power of two
PORTS = 8
FIRST_PORT = 9
EDGES = 10
FIRST_EDGE = 11
BORROWS = 12  # 1: output morsels refer to columns of the input morsel
RANK = 13  # position counted from the inputs
MOST = 14  # workers that may be at the task at once
TURNS = 15  # address of the queue of turns: the order in which ports are read (several ports only)
TURNS_MASK = 16
MORSELS = 17  # morsels that belong to the pool
PARTS = 18  # partitions; each has a lane
FRAGMENTS = 19  # address of the fragments, which are views of inputs, by (slot, partition)
FRAGMENT = 20  # words of a fragment
LISTS = 21  # address of the queues of the partitions
MASTER = 22  # address of the master queue, which holds numbers of partitions
MASTER_MASK = 23
UNDONE = 24  # address: number of unfinished fragments, by slot
OUTPUTS = 25  # address: chains of output morsels, by (slot, partition)
MERGED = 26  # address of the ring of free morsels into which outputs are merged
ORDER = 27  # number of trailing columns by which the outputs of partitions are merged
COLUMNS = 28  # address: for each other column the bytes of a value and whether it has a mask
WIDE = 29  # number of these other columns
FAILED = 30  # serial + 1 of the first input that failed; no later input leaves; 0: none
ALONE = 31  # the port whose morsels no other worker works beside; -1: none (``reorder``)
NEXT = 32  # serial of the input whose outputs leave next
FLAG = NEXT + CACHE_LINE  # 1: a worker sends outputs
TAKEN = FLAG + CACHE_LINE  # serial of the input that is taken next (several ports only)
TAKING = TAKEN + 1  # 1: a worker takes an input
OPEN = TAKEN + 2  # the least NEXT at which the next input may be taken
PUT = TAKEN + CACHE_LINE  # serial of the input that is dispatched next (partitioned tasks)
ALLOTTED = PUT + CACHE_LINE  # workers at the task
TURN_TAKEN = ALLOTTED + CACHE_LINE
TURN_PUT = TURN_TAKEN + CACHE_LINE
SENT = TURN_PUT + CACHE_LINE  # place of the last morsel whose outputs have all left
TIME = SENT + CACHE_LINE  # nanoseconds of all workers
COUNT = TIME + 1  # inputs done
MADE = TIME + 2  # output morsels
RECENT = TIME + 3  # nanoseconds of all workers in the current window of CT
CALLS = TIME + 4
TOOK = TIME + 5  # items of punctuation received, if TIMED
MASTER_TAKEN = TIME + CACHE_LINE
MASTER_PUT = MASTER_TAKEN + CACHE_LINE
DISPATCHING = MASTER_PUT + CACHE_LINE
EMITTED = DISPATCHING + CACHE_LINE  # rows that have left, in order
HELD_FOR = EMITTED + 1  # total nanoseconds that outputs waited for the outputs of earlier inputs
SIZED_TIME = EMITTED + 2  # TIME when the size of morsels was last chosen
PASSED_ON = EMITTED + 3  # items of punctuation sent, if TIMED
RENUMBERS = EMITTED + 4  # whether it numbers its output rows, as a partitioned task does
TASK = EMITTED + CACHE_LINE

STATELESS, SERIAL_ONE, PARTITIONED = range(3)

# -- a port: a worklist, filled by one thread at a time --------------------------------------------
QUEUE = 0  # address of the places of the worklist
QUEUE_MASK = 1
FROM = 2  # the task that fills the worklist; -1: an input
SPLIT = 3  # column that lists the rows by partition, before their offsets; -1: no such column
GOT = CACHE_LINE  # morsels taken so far
GIVEN = 2 * CACHE_LINE  # morsels added so far
PORT_WORDS = 3 * CACHE_LINE

# -- a partition's queue of serials ----------------------------------------------------------------
LIST_GOT = 0
LIST_PUT = CACHE_LINE
HELD = 2 * CACHE_LINE  # HYBRID: fragments claimed and not done (``count``); else 1: locked
FIRST_SERIAL = 3 * CACHE_LINE

HYBRID, PARTITIONED_QUEUE, SHARED_QUEUE = range(3)
CALM, YIELDING, STALLING = range(3)

# -- an edge ---------------------------------------------------------------------------------------
TO_TASK = 0  # -1: the sink
TO_PORT = 1
VIEWS = 2  # ring of free views, if a morsel goes to several edges
COLLECTORS = 3  # to the sink: ring of free morsels that collect small results; 0: no collecting
COLLECTING = 4  # the morsel that is being filled; 0: none
COLLECTED = 5  # address: bytes of a value, by column
COLLECTED_COLUMNS = 6  # number of columns
BY_BLOCK = 7  # 1: a result of another block ends the morsel that is being filled
ADDS_PATH = 8  # the number that the edge adds to the PATH_NUMBER of a morsel (``runtimes.paths``)
EDGE = 9

# -- a lane ----------------------------------------------------------------------------------------
DESCRIPTOR = 0
OUTPUT = 1  # address of the output morsel that is being filled; 0: none
MORSEL = 2  # address of the input morsel that is being worked on; 0: none
TICKET = 3  # serial of this input in this task
CHAIN = 4  # address of the first output morsel of this input; 0: none
CHAIN_END = 5  # address of the last output morsel
CODE = 6  # the code that the operator returned; NOT_CALLED: a Python operator must still be called
STATE = 7
OWNED = CACHE_LINE  # 1: a worker is at the lane of a stateless task, or its input is parked
CHAINED = OWNED + 1  # number of output morsels in the chain
LANE = 2 * CACHE_LINE

#: States of a lane: the operator is called next; its output is handed over next; the operator has
#: failed and is not called again.
CALL, GIVE, FAILING = range(3)
NOT_CALLED = -1
#: No lane, or no partition.
NOBODY = -1

# -- a worker --------------------------------------------------------------------------------------
AT = 0  # the task that the worker is at; -1: none
ON = 1  # the lane of this task
BUDGET = 2  # inputs that are left of this slice
BEGAN = 3  # clock, in nanoseconds, at the beginning of the slice
DONE_HERE = 4  # inputs done in this slice
SEED = 6  # state of the random generator
CLOCK = 7  # scratch of the clock: two words
SEEN = 9  # number of wakes (``condition``) when the worker last found no work
IDLE = 10  # consecutive unsuccessful looks for work
BUSY = 11  # nanoseconds of work
SLEPT = 12  # number of sleeps
MERGING = 13  # serial + 1 of the input whose outputs the worker merges; 0: none
PLACES = 14  # address of scratch: two words for each row of a morsel
ASLEEP = 15  # nanoseconds of sleep
NOTED = 16  # how often the worker has sampled the lengths of worklists
LENGTHS = 17  # address: for each task the sum of the sampled lengths and the greatest one
PYTHON_WORK = 18  # nanoseconds in which Python served events of the worker
TOURNAMENT = 19  # address of scratch for merging outputs: MERGING_WORDS for each partition
MERGING_WORDS = 6  # four words of the partition's next row, two nodes of the tournament tree
SCRATCH = 2 * CACHE_LINE  # the ``numbers`` of ``schedulers``
NUMBERS = 8  # words per task there
MOST_TASKS = 64
WORKER = SCRATCH + NUMBERS * MOST_TASKS + CACHE_LINE

# -- an input --------------------------------------------------------------------------------------
ENTRY_POOL = 0  # ring of free morsels of the input
PATH = 1  # address of the visits (task, port, way) of its morsels, in depth-first order
PATHS = 2  # number of visits
TARGET = 3  # the task that receives its morsels; -1: the sink
TARGET_PORT = 4
INPUT = 8
VISIT = 3  # words of a visit


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
