"""The ordered runtime under a virtual clock, for machines with any number of cores.

A pipeline is a chain of tasks, each with a cost, a selectivity and a degree of parallelism
(ordered-multicore paper, section 2). Workers take the steps of
``cql.executor.kernels.ordered.worker``, ``reorder`` and ``partitions``; each step takes some
virtual nanoseconds. The engine's own function (``kernels.ordered.schedulers``) picks a worker's
task. Nothing else happens between two yields, so steps that are atomic there are atomic here. Draws
depend only on the seed and the input number: every runtime does the same work.

A tuple is a morsel of one row. Latency is the paper's *processing latency* (§2.1): from the start
of a morsel at the first task until all its output has left the last task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.multicore_model import (
    HYBRID,
    LOCK_BASED,
    NEAR,
    PARTITIONED,
    QUEUES,
    SERIAL,
    SHARED,
    STATELESS,
    Draws,
    Machine,
    Simulated,
    Task,
    Totals,
)
from benchmarks.multicore_near import nearest
from cql.executor.kernels.ordered import schedulers
from cql.executor.runtimes.ordered import POLICIES

#: The steps of a worker: each yields its nanoseconds, or None to wait for another worker.
Steps = Generator[float | None, None, Any]
#: The number of inputs of a worklist that ``nearest`` looks at.
_SEEN = 16


def simulate(
    chain: Sequence[Task], machine: Machine, morsels: int, *, seed: int = 0, timed: int = 0
) -> Simulated:
    """Runs ``morsels`` morsels through the tasks and times them from task ``timed`` on; before that
    task each morsel is one input. Raises RuntimeError if no worker can continue: with ``retries``
    all may hold outputs that wait for an input on which no worker works."""
    return _Run(chain, machine, morsels, seed, timed).run()


# -- what a run is made of -------------------------------------------------------------------------


@dataclass(slots=True)
class _Lock:
    held: bool = False
    waiting: deque[int] = field(default_factory=deque)


class _State:
    """A task of a run. Its words are those of ``kernels.ordered.tables``."""

    def __init__(self, task: Task, number: int, machine: Machine, seed: int) -> None:
        self.task, self.number = task, number
        self.draws = Draws(task, seed, number)
        self.places, self.slots = (machine.places or machine.depth, machine.slots or machine.depth)
        parts = len(task.shares)
        assert (task.kind == PARTITIONED) == (parts > 0)
        most = {STATELESS: machine.workers, SERIAL: 1, PARTITIONED: min(machine.workers, parts)}
        self.most = most[task.kind]
        self.queue: deque[int] = deque()  # the worker that made each input
        self.given = self.taken = self.next = 0
        self.buffer: dict[int, tuple[int, int]] = {}  # by input: unsent outputs, their maker
        self.flag = _Lock()
        self.stuck: deque[int] = deque()  # workers that wait for a slot
        self.marks: deque[tuple[int, int]] = deque()  # inputs before a marker, its morsel
        self.allotted = 0
        self.count, self.recent = 0, 0.0
        self.totals = Totals()
        self.shown = 0  # outputs of a serial task whose columns are still shown
        self.suspended: int | None = None  # unsent outputs of a serial task's input
        self.lists: list[deque[tuple[int, float, int]]] = [deque() for _ in range(parts)]
        self.held = [0] * parts
        self.master: deque[int] = deque()
        self.unclaimed = self.split = 0  # fragments: unclaimed, and in total
        self.undone: dict[int, int] = {}
        self.door = _Lock()  # of the shared queue
        self.locks = [_Lock() for _ in range(parts)]


class _Run:
    def __init__(
        self, chain: Sequence[Task], machine: Machine, morsels: int, seed: int, timed: int
    ) -> None:
        self.machine, self.morsels, self.timed = machine, morsels, timed
        self.states = [_State(s, k, machine, seed) for k, s in enumerate(chain)]
        self.now, self._ticket, self.admitted, self.done = 0.0, 0, 0, 0
        self.released = 0  # morsels whose columns are not shown any more
        #: By task (source: -1): the task behind which its outputs are no longer shown.
        self.until = {k: self._until(k) for k in range(-1, len(chain) - 1)}
        self.heap: list[tuple[float, int, int]] = []
        self.workers = [self._work(w) for w in range(machine.workers)]
        self.idle: deque[tuple[int, float]] = deque()  # workers without work, since when
        self.spinning: deque[int] = deque()
        self.busy, self.idled = ([0.0] * machine.workers for _ in range(2))
        self.entered, self.left = np.full((2, morsels), np.nan)
        self.order: list[int] = []
        self.window_began = 0.0
        self.interpreter = _Lock()
        self.numbers = np.zeros((len(chain), schedulers.OF), np.int64)
        self.locked = machine.reorder == LOCK_BASED
        self.does = {
            STATELESS: self._stateless,
            SERIAL: self._serial,
            PARTITIONED: self._partitioned,
        }

    def run(self) -> Simulated:
        if self.machine.interval:
            self.workers.append(self._source())
            self._at(0.0, self.machine.workers)
        elif not self.machine.leader:
            self._admit()
        for w in range(self.machine.workers):
            self._at(0.0, w)
        while self.done < self.morsels:
            if not self.heap:
                raise RuntimeError("no worker can go on")
            self.now, _, w = heappop(self.heap)
            passes = next(self.workers[w])
            if passes is not None:
                self._at(passes, w)
        totals = [s.totals for s in self.states]
        return Simulated(
            self.entered, self.left, self.order, totals, self.busy, self.idled, self.now
        )

    def _at(self, after: float, w: int) -> None:
        self._ticket += 1
        heappush(self.heap, (self.now + after, self._ticket, w))

    def _wake(self, n: int = 1) -> None:
        """After a change, at most ``n`` of the idle but awake workers notice it."""
        while n > 0 and self.spinning:
            self._at(self.machine.wake, self.spinning.popleft())
            n -= 1
        asleep = self._asleep()
        for _ in range(min(n, len(self.idle) - asleep)):
            self._at(self.machine.wake, self.idle[asleep][0])
            del self.idle[asleep]

    def _asleep(self) -> int:
        """The number of sleeping workers: those idle for the longest time."""
        for k, (_, since) in enumerate(self.idle):
            if self.now - since <= self.machine.looks:
                return k
        return len(self.idle)

    def _rouse(self, n: int = 1) -> None:
        """Wakes all sleeping workers (``kernels.lib.condition.wake``), and at most ``n`` of the
        idle but awake ones."""
        for _ in range(self._asleep()):
            self._at(self.machine.rouse, self.idle.popleft()[0])
        self._wake(n)

    def _run_worker_zero(self) -> None:
        """Worker 0, if idle, notices that it can admit a morsel."""
        if 0 in self.spinning:
            self.spinning.remove(0)
            self._at(self.machine.wake, 0)
            return
        for k in range(self._asleep(), len(self.idle)):
            if self.idle[k][0] == 0:
                del self.idle[k]
                self._at(self.machine.wake, 0)
                return

    # -- morsels and markers -----------------------------------------------------------------------

    def _source(self) -> Steps:
        while True:
            if not self.machine.leader:
                self._admit()
            self._rouse()
            yield self.machine.interval

    def _admissible(self) -> int:
        """The number of morsels that have arrived and for which there is room."""
        first, come = self.states[0], self.morsels
        if self.machine.interval:
            come = min(come, int(self.now / self.machine.interval + 1e-6) + 1)
        inside = self.admitted - self.released if first.task.shows else len(first.queue)
        return min(first.places - inside, come - self.admitted)

    def _admit(self, most: int | None = None) -> None:
        first, n = self.states[0], self._admissible()
        n = n if most is None else min(n, most)
        for morsel in range(self.admitted, self.admitted + n):
            first.marks.append((morsel + 1, morsel))
        first.queue.extend([-1] * n)
        first.given += n
        self.admitted += n
        if n > 0:
            self._rouse(n)

    def _enters(self, s: _State, ticket: int) -> None:
        if s.number == self.timed and np.isnan(self.entered[ticket]):
            self.entered[ticket] = self.now
        if s.number == 0 and not self.machine.leader:
            self._admit()

    def _mark(self, token: int, k: int) -> None:
        """The marker of a morsel reaches task ``k``, behind the inputs already given to the task,
        or leaves the last task. The marker of an output of task n has token -1 - n; it ends where
        the output is no longer shown."""
        while k < len(self.states):
            s = self.states[k]
            if s.next < s.given:
                s.marks.append((s.given, token))
                return
            if self._ends(token, k):
                return
            k += 1
        self.left[token] = self.now
        self.done += 1

    def _ends(self, token: int, k: int) -> bool:
        """A marker leaves task ``k``; returns whether it ends there."""
        if token < 0:
            if k < self.until[-1 - token]:
                return False
            self.states[-1 - token].shown -= 1
            self._wake()
            return True
        if k == self.until[-1]:
            self.released += 1
            if self.machine.leader:
                self._run_worker_zero()
            else:
                self._admit()
        return False

    def _until(self, k: int) -> int:
        after = range(k + 1, len(self.states))
        return next((j for j in after if not self.states[j].task.shows), after[-1])

    def _passed(self, s: _State) -> None:
        """All outputs of the next input have left."""
        s.next += 1
        while s.marks and s.marks[0][0] <= s.next:
            token = s.marks.popleft()[1]
            if not self._ends(token, s.number):
                self._mark(token, s.number + 1)
        while s.stuck:
            self._at(0.0, s.stuck.popleft())
        if s.queue:
            self._wake()

    # -- a worker ----------------------------------------------------------------------------------

    def _work(self, w: int) -> Steps:
        machine = self.machine
        while True:
            yield machine.choose
            if w == 0 and machine.leader:
                while self._admissible() > 0:
                    self._admit(1)
                    yield machine.read
            for s in self.states:
                if s.task.kind != SERIAL:
                    yield from self._send_pending(s)  # there may be room now
                if s.task.kind == PARTITIONED:
                    self._dispatch(s)
            k = self._pick(w)
            began = self.now
            if k == schedulers.NONE and w == 0 and machine.leader and self._admissible() > 0:
                continue  # a morsel became admissible after the look
            if k == schedulers.NONE:
                self.idle.append((w, self.now))
                yield None
                self.idled[w] += self.now - began
                continue
            s = self.states[k]
            s.allotted += 1
            cost = s.totals.busy // max(s.count, 1)
            budget = max(int(machine.slice // max(cost, 1)), 1) if s.count else 1
            done = yield from self.does[s.task.kind](w, s, budget)
            spent = self.now - began
            s.allotted -= 1
            s.count += done
            s.recent += spent
            s.totals.busy += spent
            self.busy[w] += spent
            if self.now - self.window_began >= machine.window:
                self.window_began = self.now
                for each in self.states:
                    each.recent = 0.0
            if done == 0 and spent == 0 and machine.worklist == QUEUES:
                # The waiting inputs belong to partitions of other workers: look again on a change.
                self.spinning.append(w)
                yield None
                self.idled[w] += self.now - began
            else:
                self._rouse()

    def _pick(self, w: int) -> int:
        machine = self.machine
        self.numbers[:] = [
            (
                self._waits(s),
                s.allotted,
                s.totals.busy,
                s.count,
                s.recent,
                self._ahead(s),
                *expected,
            )
            for s, expected in zip(self.states, self._expected(), strict=True)
        ]
        slice_ns = int(machine.slice)
        if machine.scheduler == NEAR:
            farther = [self._farther(s, w) for s in self.states]
            return nearest(self.numbers, farther, slice_ns, self.admitted)
        policy = POLICIES[machine.scheduler]
        return int(
            schedulers.pick(policy, self.numbers, 1, machine.capacity, slice_ns, self.admitted)
        )

    def _waits(self, s: _State) -> int:
        if s.allotted >= s.most:
            return 0
        if s.task.kind == PARTITIONED:
            return s.unclaimed
        if s.task.kind == SERIAL:
            can_give = self._room(s) > 0 and self._free_morsels(s) > 0
            return len(s.queue) + (s.suspended is not None) if can_give else 0
        return len(s.queue) if self.machine.retries else min(len(s.queue), self._free(s))

    def _expected(self) -> Iterator[tuple[int, int]]:
        """``worker._expect`` for each task."""
        inputs = self.states[0].given
        for s in self.states:
            outputs = round(inputs * (max(s.totals.outputs, 1) / s.next if s.next else 1.0))
            many = s.split / s.taken if s.task.kind == PARTITIONED and s.taken else 1.0
            yield round(inputs * many), outputs
            inputs = outputs

    def _ahead(self, s: _State) -> int:
        return len(self.states[s.number + 1].queue) if s.number + 1 < len(self.states) else 0

    def _free(self, s: _State) -> int:
        """The number of free slots for inputs not yet taken."""
        return s.next + s.slots - s.taken

    def _fetch(self, s: _State, maker: int, w: int) -> float:
        return s.task.fetch * self.machine.distance(maker, w) if s.task.fetch else 0.0

    def _taking(self, s: _State) -> float:
        return self.machine.take + (s.allotted - 1) * self.machine.contend

    def _farther(self, s: _State, w: int) -> float:
        """The extra time of worker ``w`` to fetch one of the next inputs, compared with others."""
        makers = [maker for maker in islice(s.queue, _SEEN) if maker >= 0]
        if not makers:
            return 0.0
        everyone = range(self.machine.workers)
        mean = sum(self.machine.distance(0, v) for v in everyone) / len(everyone)
        own = sum(self.machine.distance(maker, w) for maker in makers) / len(makers)
        return s.task.fetch * (own - mean)

    def _take(self, s: _State) -> int:
        """Takes the next input; returns the worker that made it."""
        if len(s.queue) == s.places:
            self._wake()  # the upstream task has room again
        s.taken += 1
        return s.queue.popleft()

    # -- tasks ----------------------------------------------------------------------------------

    def _stateless(self, w: int, s: _State, budget: int) -> Steps:
        for done in range(budget):
            if not s.queue or (self._free(s) <= 0 and not self.machine.retries):
                return done
            ticket, maker = s.taken, self._take(s)
            self._enters(s, ticket)
            yield self._taking(s) + self._fetch(s, maker, w) + s.draws.cost(ticket)
            s.totals.inputs += 1
            yield from self._send(w, s, ticket)
        return budget

    def _serial(self, w: int, s: _State, budget: int) -> Steps:
        done = 0
        while True:
            if s.suspended is None:
                if done >= budget or not s.queue or self._free_morsels(s) <= 0:
                    return done
                ticket, maker = s.taken, self._take(s)
                self._enters(s, ticket)
                if s.task.host:
                    yield from self._acquire(w, self.interpreter, s.totals)
                yield self._taking(s) + self._fetch(s, maker, w) + s.draws.cost(ticket)
                if s.task.host:
                    self._release(self.interpreter)
                s.totals.inputs += 1
                s.suspended = s.draws.outputs(ticket)
            while s.suspended > 0:
                n = min(s.suspended, self._room(s), self._free_morsels(s))
                if n <= 0:
                    return done
                yield n * self.machine.send
                self._push(w, s, n)
                s.suspended -= n
                if self._is_shown(s):
                    s.shown += n
                    for _ in range(n):
                        self._mark(-1 - s.number, s.number + 1)
            s.suspended = None
            self._passed(s)
            done += 1

    def _partitioned(self, w: int, s: _State, budget: int) -> Steps:
        done, on = 0, schedulers.NONE
        while True:
            if on == schedulers.NONE:
                if done >= budget:
                    return done
                on = yield from self._claim(w, s)
                if on == schedulers.NONE:
                    return done
            ticket, share, maker = s.lists[on].popleft()
            self._enters(s, ticket)
            moved = self._fetch(s, maker, w) + s.draws.cost(ticket)
            yield self._taking(s) + s.task.fragment + moved * share
            s.undone[ticket] -= 1
            if s.undone[ticket] == 0:
                del s.undone[ticket]
                s.totals.inputs += 1
                yield from self._send(w, s, ticket)
                self._dispatch(s)
            done += 1
            if not self._keeps(s, on, budget - done):
                on = schedulers.NONE

    def _is_shown(self, s: _State) -> bool:
        return s.number + 1 < len(self.states) and self.states[s.number + 1].task.shows

    def _free_morsels(self, s: _State) -> int:
        """The number of free output morsels; a serial task has as many as a buffer has slots."""
        return s.slots - s.shown if self._is_shown(s) else s.slots

    # -- partitions (``kernels.ordered.partitions``) -----------------------------------------------

    def _dispatch(self, s: _State) -> None:
        while s.queue and (self._free(s) > 0 or self.machine.retries):
            ticket, maker = s.taken, self._take(s)
            parts = s.draws.fragments(ticket)
            s.undone[ticket] = len(parts)
            s.unclaimed += len(parts)
            for q, share in parts:
                s.lists[q].append((ticket, share, maker))
                s.split += 1
                s.master.append(q)
            self._wake(len(parts))

    def _claim(self, w: int, s: _State) -> Steps:
        """Claims a partition that has a fragment and no other worker."""
        if self.machine.worklist == QUEUES:
            parts = len(s.lists)
            home = w * parts // self.machine.workers
            for q in (*range(home, parts), *range(home)):
                if s.lists[q] and not s.held[q]:
                    s.held[q] = 1
                    s.unclaimed -= 1
                    return q
            return schedulers.NONE
        if self.machine.worklist == HYBRID:
            while s.master:
                q = s.master.popleft()
                s.unclaimed -= 1
                s.held[q] += 1
                if s.held[q] == 1:
                    return q
            return schedulers.NONE
        yield from self._acquire(w, s.door, s.totals)
        q = schedulers.NONE
        if s.master:
            q = s.master.popleft()
            s.unclaimed -= 1
            yield from self._acquire(w, s.locks[q], s.totals)
        self._release(s.door)
        return q

    def _keeps(self, s: _State, q: int, budget: int) -> bool:
        if self.machine.worklist == HYBRID:
            s.held[q] -= 1
            return s.held[q] > 0
        if self.machine.worklist == SHARED:
            self._release(s.locks[q])
            return False
        if s.lists[q] and budget > 0:
            s.unclaimed -= 1
            return True
        s.held[q] = 0
        return False

    # -- order (``kernels.ordered.reorder``) -------------------------------------------------------

    def _send(self, w: int, s: _State, ticket: int) -> Steps:
        outputs = s.draws.outputs(ticket)
        while ticket >= s.next + s.slots:
            began = self.now
            s.stuck.append(w)
            yield None
            s.totals.slot_wait += self.now - began
        if not self.locked:
            s.buffer[ticket] = outputs, w
            yield from self._send_pending(s)
            return
        yield from self._acquire(w, s.flag, s.totals)
        s.buffer[ticket] = outputs, w
        yield from self._send_ready(s)
        self._release(s.flag)

    def _send_pending(self, s: _State) -> Steps:
        while s.next in s.buffer and not s.flag.held:
            before = s.next
            s.flag.held = True
            yield from self._send_ready(s)
            self._release(s.flag)
            if s.next == before:
                return

    def _send_ready(self, s: _State) -> Steps:
        while s.next in s.buffer:
            outputs, maker = s.buffer[s.next]
            while outputs > 0:
                n = min(outputs, self._room(s))
                if n <= 0:
                    s.buffer[s.next] = outputs, maker
                    return
                yield n * self.machine.send
                self._push(maker, s, n)
                outputs -= n
            del s.buffer[s.next]
            self._passed(s)

    def _room(self, s: _State) -> int:
        if s.number + 1 == len(self.states):
            return self.morsels * 1000
        below = self.states[s.number + 1]
        return below.places - len(below.queue)

    def _push(self, maker: int, s: _State, n: int) -> None:
        s.totals.outputs += n
        if s.number + 1 == len(self.states):
            self.order += [s.next] * n
            self._rouse()
            return
        below = self.states[s.number + 1]
        below.queue.extend([maker] * n)
        below.given += n
        self._wake(n)

    def _acquire(self, w: int, lock: _Lock, totals: Totals) -> Steps:
        if lock.held:
            began = self.now
            lock.waiting.append(w)
            yield None
            totals.lock_wait += self.now - began
        lock.held = True
        yield self.machine.lock

    def _release(self, lock: _Lock) -> None:
        if lock.waiting:
            self._at(self.machine.handover, lock.waiting.popleft())
        else:
            lock.held = False
