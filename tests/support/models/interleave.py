"""Model checking of kernels: every interleaving of a few threads that run their source.

A scenario builds a memory of int64 words and starts threads over it; ``explore`` visits every state
that they can reach. What it reports (``ScheduleError``, with the steps that lead there):

- whatever a thread or the final check requires (``require``), accesses outside of what was
  allocated;
- a deadlock, and a state from which no schedule comes to an end (threads that wait for ever);
- mode ``races``: a *data race*, two accesses to a word of different threads, one of them a write
  and one of them plain, that no release and acquire put in order. What an access has been ordered
  with is known to threads, and to the words that they stored to with release since (the sets of
  "Goldilocks: a race-aware Java runtime", Elmas et al., PLDI 2007). A word's relaxed store, or a
  release store of another thread, ends what it had released; a failed ``compare_and_swap`` acquires
  nothing.

Threads are switched before atomic operations only. Where no access races, that is every behaviour
of plain accesses too: whoever sees another order would have to race. An operation on a word that
one thread touches, or that all threads only read, or only add to without looking at the sum, is no
point to switch threads either; which words are of that kind is found by exploring, which begins
again whenever one turns out not to be.

Operations are sequentially consistent, or (mode ``x86``) stores that are not so wait in a buffer of
their thread, and reach the memory in order, at any time; operations that read and write, fences and
other stores wait until it is empty. Loads that come early, as they may on ARM, are not modelled;
the races that they would make are found. Mode ``values`` looks at neither.

States are compared by their hashes (61 bits: a million states meet with a probability of 1e-6 at
the most).
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
#: A thread, and whether its oldest store reaches the memory (else it runs).
Move = tuple[int, bool]

#: States of a scenario, at most: more are a thread that counts without end.
_MOST = 20_000_000
#: Schedules that are tried before, and steps of each.
_WALKS, _LONGEST = 25, 500
#: Steps of a thread on words of its own, at most: perhaps it waits for what another one does.
_SPIN = 50


# -- POSIX, for ``sleep`` --------------------------------------------------------------------------

mutex_lock = Operation("mutex_lock")
mutex_unlock = Operation("mutex_unlock")
condition_leave = Operation("condition_leave")
condition_wait = Operation("condition_wait")
broadcast = Operation("broadcast")


def timed_wait(condition: int, mutex: int, until: int) -> int:
    """``pthread_cond_timedwait`` whose time never comes."""
    seen = condition_leave(condition, mutex)
    condition_wait(condition, seen)
    mutex_lock(mutex)
    return 0


def no_time(scratch: int, most: int) -> None:
    """``in_a_while``, where it is not looked at."""


def stopped_clock(scratch: int) -> int:
    """``nanoseconds``."""
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
    """How much there was: states, steps between them, and states in which all had ended."""

    states: int
    steps: int
    ends: int


class Model(Memory):
    """Threads over a memory. Build it with ``words``, ``put``, ``run`` and ``start``."""

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
        """Calls a kernel: on the initial memory, or on that of an end."""
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
        """One more thread."""
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
        """A thread until its next point: (operation, arguments, frames); None: it has ended."""
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
        """The operation that a thread waits before, and on to its next point."""
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
        """What can happen next to the state that was loaded."""
        found = [(t, False) for t, thread in enumerate(state[1]) if self._can_run(t, thread)]
        return found + [(t, True) for t, waiting in enumerate(state[3]) if waiting]

    def follow(self, state: State, move: Move) -> State:
        """The state after a move, of the state that was loaded."""
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
        """All schedules. ``final`` is called when all threads have ended."""
        self._exploring = True
        while True:
            try:
                for self._learning in (True, False):
                    self._try_some(final)
                return _Search(self, final).run()
            except KindError:
                pass

    def _try_some(self, final: Callable[[], None]) -> None:
        """A few schedules: what goes wrong often is found soon. Not while kinds of words are
        learnt."""
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
        """Of the state that was loaded, in which no thread can go on."""
        left = [t for t, thread in enumerate(state[1]) if thread is not None]
        require(not left, f"threads {left} wait for ever")
        final()


class _Search:
    """States by number, in the order in which they were found."""

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
        """From every state some schedule comes to an end: nobody waits in a loop for ever."""
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
        """The steps that lead to a state, and one more."""
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

#: A model, and what holds when all its threads have ended.
Scenario = tuple[Model, Callable[[], None]]


def explored(scenario: Scenario) -> Explored:
    model, final = scenario
    return model.explore(final)


def problem(scenario: Scenario) -> str:
    """What is found to go wrong in a scenario with a mistake."""
    try:
        explored(scenario)
    except ScheduleError as found:
        return str(found).splitlines()[0]
    raise AssertionError("the mistake is not found")
