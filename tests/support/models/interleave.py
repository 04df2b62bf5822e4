"""Model checking of kernels: explores every interleaving of a few threads that run kernel source.

A scenario builds a memory of int64 words and starts threads over it; ``explore`` visits every state
that the threads can reach. It raises ``ScheduleError``, with the steps that lead to the fault, for:

- a failed requirement of a thread or of the final check (``require``), and an access outside of the
  allocated words;
- a deadlock, and a state from which no schedule comes to an end (threads that wait for ever);
- mode ``races``: a *data race*. Two threads access the same word, at least one access is a write,
  at least one access is plain, and no release and acquire order the two accesses. For each access
  the checker keeps the set of threads that are ordered after it, and of the words to which such
  threads have since stored with release (the sets of "Goldilocks: a race-aware Java runtime", Elmas
  et al., PLDI 2007). A relaxed store to a word, or a release store of another thread, removes the
  word from these sets; a failed ``compare_and_swap`` acquires nothing.

The model switches threads before atomic operations only. Without data races this covers every
behaviour of plain accesses too, because a thread can observe another order of plain accesses only
by a race. The model does not switch threads before an operation on a word that only one thread
touches, that all threads only read, or that all threads only add to without using the sum. The
exploration itself finds these words, and starts again whenever it has misjudged a word.

In the modes ``races`` and ``values`` all operations are sequentially consistent. In mode ``x86`` a
relaxed or release store waits in a buffer of its thread and reaches the memory in order, at any
later time; read-modify-write operations, fences and sequentially consistent stores wait until the
buffer is empty. Early loads, which ARM allows, are not modelled, but mode ``races`` finds the data
races that they would cause. Mode ``values`` has neither the search for races nor the buffers.

States are compared by their hashes of 61 bits: the probability that any two of a million states
have the same hash is at most 1e-6.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cql.executor.kernels.lib import clock, memory
from cql.executor.kernels.lib import condition as sleep
from cql.executor.kernels.lib.memory import words
from tests.support.models.lowered import CALL, OPERATION, Change, Operation, Program
from tests.support.models.modelled_memory import (
    DO,
    EMPTIES,
    KindError,
    Memory,
    ScheduleError,
    require,
)

State = tuple[Any, ...]
#: A thread, and True if its oldest buffered store reaches the memory, False if the thread runs.
Move = tuple[int, bool]

#: Maximal number of states of a scenario; a scenario with more states has an endless counter.
_MOST = 20_000_000
#: Number of random schedules that are tried first, and the maximal number of steps of each.
_WALKS, _LONGEST = 25, 500
#: Maximal number of blocks that a thread runs without a switch; it may be waiting for another
#: thread.
_SPIN = 50


# -- POSIX, for ``sleep`` --------------------------------------------------------------------------

mutex_lock = Operation("mutex_lock")
mutex_unlock = Operation("mutex_unlock")
condition_leave = Operation("condition_leave")
condition_wait = Operation("condition_wait")
broadcast = Operation("broadcast")


def timed_wait(condition: int, mutex: int, until: int) -> int:
    """``pthread_cond_timedwait`` without a timeout."""
    seen = condition_leave(condition, mutex)
    condition_wait(condition, seen)
    mutex_lock(mutex)
    return 0


def no_time(scratch: int, most: int) -> None:
    """Replaces ``in_a_while``: no function of the model reads the deadline."""


def stopped_clock(scratch: int) -> int:
    """Replaces ``nanoseconds``: the time is always 0."""
    time = words(scratch, 2)
    time[0] = time[1] = 0
    return 0


POSIX = {
    id(sleep._lock): mutex_lock,
    id(sleep._unlock): mutex_unlock,
    id(sleep._wait): timed_wait,
    id(sleep._broadcast): broadcast,
    id(sleep.in_a_while): no_time,
    id(clock.nanoseconds): stopped_clock,
}


@dataclass(frozen=True)
class Explored:
    """The number of states, of steps between states, and of states in which all threads ended."""

    states: int
    steps: int
    ends: int


class Model(Memory):
    """Threads over a memory. Build a model with ``words``, ``put``, ``run`` and ``start``."""

    def __init__(
        self,
        mode: str = "races",
        *,
        replaced: Mapping[int | str, Any] | None = None,
        changes: Sequence[Change] = (),
    ) -> None:
        super().__init__(mode)
        own: dict[int | str, Any] = {
            id(memory.words): self._view,
            id(memory.copy_bytes): self._copy,
        }
        self._program = Program({**POSIX, **own, **(replaced or {})}, changes)
        self._starts: list[tuple[int, tuple[Any, ...]]] = []

    def run(self, function: Any, *args: int) -> Any:
        """Calls a kernel on the current memory: before the exploration on the initial memory, in a
        final check on the memory of that end state."""
        if not self._program.steps(function):
            return self._program.plain(function)(*args)
        blocks, frames = self._program.blocks, []
        out = blocks[self._program.entry(function)](None, *args)
        while True:
            if out[0] == OPERATION:
                _, name, given, _, block, live = out
                out = blocks[block](DO[name](self, *given), *live)
            elif out[0] == CALL:
                frames.append(out[3:])
                out = blocks[out[1]](None, *out[2])
            elif frames:
                block, live = frames.pop()
                out = blocks[block](out[1], *live)
            else:
                return out[1]

    def start(self, function: Any, *args: int) -> None:
        """Adds a thread that calls ``function``."""
        self._starts.append((self._program.entry(function), args))
        self.threads += 1

    # -- steps of threads --------------------------------------------------------------------------

    def _can_run(self, t: int, thread: Any) -> bool:
        if thread is None:
            return False
        name, args, _ = thread
        if name in EMPTIES and self._buffers[t]:
            return False
        if name == "mutex_lock":
            return self._at(args[0]) == 0
        if name == "condition_wait":
            return self._at(args[0]) != args[1]
        return True

    def _go(self, t: int, frames: list[Any], out: tuple[Any, ...]) -> Any:
        """Runs a thread up to the next operation where threads may be switched: (operation,
        arguments, frames); None: the thread has ended."""
        blocks, steps = self._program.blocks, 0
        while True:
            steps += 1
            if out[0] == OPERATION:
                _, name, args, used, block, live = out
                if self._is_point(name, args, used) or steps > _SPIN:
                    return name, args, (*frames, (block, live))
                out = blocks[block](DO[name](self, *args), *live)
            elif out[0] == CALL:
                frames.append(out[3:])
                out = blocks[out[1]](None, *out[2])
            elif frames:
                block, live = frames.pop()
                out = blocks[block](out[1], *live)
            else:
                return None

    def _step(self, t: int, thread: Any) -> Any:
        """Performs the operation before which a thread waits, then runs the thread as ``_go``."""
        self._thread = t
        name, args, frames = thread
        block, live = frames[-1]
        out = self._program.blocks[block](DO[name](self, *args), *live)
        return self._go(t, list(frames[:-1]), out)

    def load_state(self, state: State) -> None:
        self._values[:] = state[0]
        self._known = dict(state[2])
        self._buffers[:] = state[3]
        self._thread = -1

    def _saved(self, threads: tuple[Any, ...]) -> State:
        return tuple(self._values), threads, frozenset(self._known.items()), tuple(self._buffers)

    def begin(self) -> State:
        self._values[:] = [self._initial[a] for a in self._place]
        self._known, self._buffers = {}, [()] * self.threads
        threads = []
        for t, (entry, args) in enumerate(self._starts):
            self._thread = t
            threads.append(self._go(t, [], self._program.blocks[entry](None, *args)))
        return self._saved(tuple(threads))

    def moves(self, state: State) -> list[Move]:
        """The moves that are possible from the loaded state."""
        found = [(t, False) for t, thread in enumerate(state[1]) if self._can_run(t, thread)]
        return found + [(t, True) for t, waiting in enumerate(state[3]) if waiting]

    def follow(self, state: State, move: Move) -> State:
        """The state after a move; ``state`` must be loaded."""
        t, flush = move
        if flush:
            (address, value), *rest = self._buffers[t]
            self._buffers[t] = tuple(rest)
            self._set(address, value)
            return self._saved(state[1])
        threads = list(state[1])
        threads[t] = self._step(t, threads[t])
        return self._saved(tuple(threads))

    def describe(self, state: State, move: Move) -> str:
        t, flush = move
        if flush:
            return f"  {t}: its store to {state[3][t][0][0]} arrives"
        name, args, frames = state[1][t]
        return f"  {t}: {self._program.names[frames[-1][0]]}  [{name}{args}]"

    # -- exploring ---------------------------------------------------------------------------------

    def explore(self, final: Callable[[], None] = lambda: None) -> Explored:
        """Explores all schedules; calls ``final`` in each state in which all threads have ended."""
        self._exploring = True
        while True:
            try:
                for self._learning in (True, False):
                    self._try_some(final)
                return _Search(self, final).run()
            except KindError:
                pass

    def _try_some(self, final: Callable[[], None]) -> None:
        """Tries a few random schedules, which find frequent faults fast. While the kinds of words
        are learnt, faults are not reported."""
        rng = random.Random(1)
        for _ in range(_WALKS):
            state, lines = self.begin(), []
            try:
                for _ in range(_LONGEST):
                    self.load_state(state)
                    moves = self.moves(state)
                    if not moves:
                        self.check_end(state, final)
                        break
                    move = rng.choice(moves)
                    lines.append(self.describe(state, move))
                    state = self.follow(state, move)
            except ScheduleError as problem:
                if not self._learning:
                    raise ScheduleError("\n".join([str(problem), *lines])) from None

    def check_end(self, state: State, final: Callable[[], None]) -> None:
        """Checks the loaded state, which has no move: all threads must have ended, and ``final``
        must hold."""
        left = [t for t, thread in enumerate(state[1]) if thread is not None]
        require(not left, f"threads {left} wait for ever")
        final()


class _Search:
    """A search through all states, which are numbered in the order in which they are found."""

    def __init__(self, model: Model, final: Callable[[], None]) -> None:
        self._model, self._final = model, final
        self._numbers: dict[int, int] = {}  # by hash
        self._from: list[tuple[int, Move]] = [(-1, (-1, False))]
        self._edges = array("q"), array("q")
        self._ends: list[int] = []

    def run(self) -> Explored:
        model = self._model
        first = model.begin()
        self._numbers[hash(first)] = 0
        waiting = [(first, 0)]
        while waiting:
            state, number = waiting.pop()
            move = None
            try:
                model.load_state(state)
                moves = model.moves(state)
                if not moves:
                    self._ends.append(number)
                    model.check_end(state, self._final)
                for move in moves:
                    model.load_state(state)
                    self._reached(model.follow(state, move), number, move, waiting)
            except ScheduleError as problem:
                raise ScheduleError(f"{problem}\n{self._way(number, move)}") from None
        self._all_can_end()
        return Explored(len(self._from), len(self._edges[0]), len(self._ends))

    def _reached(
        self, state: State, number: int, move: Move, waiting: list[tuple[State, int]]
    ) -> None:
        found = self._numbers.setdefault(hash(state), len(self._from))
        if found == len(self._from):
            assert found < _MOST, "too many states"
            self._from.append((number, move))
            waiting.append((state, found))
        self._edges[0].append(number)
        self._edges[1].append(found)

    def _all_can_end(self) -> None:
        """Requires that from every state some schedule comes to an end: no thread waits in a loop
        for ever."""
        back: list[list[int]] = [[] for _ in self._from]
        for a, b in zip(*self._edges, strict=True):
            back[b].append(a)
        reached, waiting = set(self._ends), list(self._ends)
        while waiting:
            for a in back[waiting.pop()]:
                if a not in reached:
                    reached.add(a)
                    waiting.append(a)
        for number in range(len(self._from)):
            if number not in reached:
                raise ScheduleError(f"from here on there is no end\n{self._way(number)}")

    def _way(self, number: int, last: Move | None = None) -> str:
        """The steps that lead to a state, one per line, and the step ``last`` after them."""
        moves = [] if last is None else [last]
        while number > 0:
            number, move = self._from[number]
            moves.insert(0, move)
        model, lines = self._model, []
        state = model.begin()
        for k, move in enumerate(moves):
            model.load_state(state)
            lines.append(model.describe(state, move))
            if k < len(moves) - 1:
                state = model.follow(state, move)
        return "\n".join(lines)


# -- scenarios -------------------------------------------------------------------------------------

#: A model, and the check that must pass when all threads of the model have ended.
Scenario = tuple[Model, Callable[[], None]]


def explored(scenario: Scenario) -> Explored:
    model, final = scenario
    return model.explore(final)


def problem(scenario: Scenario) -> str:
    """The first line of the fault that the checker finds in a scenario with a mistake."""
    try:
        explored(scenario)
    except ScheduleError as found:
        return str(found).splitlines()[0]
    raise AssertionError("the mistake is not found")
