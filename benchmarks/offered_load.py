"""Figure 7 of the XStream paper: throughput of the schedulers as the offered load grows beyond
their capacity, without rate control of the source (a) and with it (b).

    python -m benchmarks.run offered-load --plots FOLDER

The plan is that of EngineBench with ten operators. Morsels of samples arrive at an even rate by the
clock. Without rate control whatever has arrived is admitted, so that queues grow; with it, at most
eight morsels are admitted when all operators have reached completion (the paper's tupleBurst,
``SET tuple_burst``). The engine itself always has rate control: the memory of a queue that grows is
allocated by Python, for longer than an operator runs, so that without rate control a queue that was
held up once may not recover.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from statistics import median

from benchmarks.engine_bench import BURST, SCHEDULERS, Engine
from benchmarks.figure import Check, Figure
from cql.executor.graph.graph import Edge
from cql.executor.kernels.morsel_layout import SERIAL
from cql.executor.runtimes.queued import Queued

OPERATORS, ROWS = 10, 1024
#: Offered load, as shares of what the fastest scheduler can take.
LOADS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
SECONDS = 0.3
#: Morsels before those that count.
WARM = 1000
ROUNDS = 3
_UNBOUNDED = 1 << 60
_QUOTES = (
    '"The figure shows a drop-off in the sustained throughput as the offered load increases. We'
    " determined that this degradation is due to the buildup in input queues when the system is"
    ' overloaded." (III.C.3)',
    "\"admission control causes each scheduler's response to increased load to be flat rather than"
    ' collapsing" (III.C.3)',
)


def figures(rows: int | None = None) -> Iterator[Figure]:
    """With a number of rows, a quick look: each run takes a tenth of the time."""
    seconds = SECONDS if rows is None else SECONDS / 10
    fastest = max(_throughput(scheduler, inf, seconds, True)[0] for scheduler in SCHEDULERS)
    offered = [share * fastest for share in LOADS]
    for controlled in (False, True):
        series: dict[str, list[float]] = {}
        right = True
        for scheduler in SCHEDULERS:
            series[scheduler] = []
            for load in offered:
                runs = [_throughput(scheduler, load, seconds, controlled) for _ in range(ROUNDS)]
                series[scheduler].append(median(rate for rate, _ in runs) / 1e6)
                right &= all(is_right for _, is_right in runs)
        panel = "(b) with rate control" if controlled else "(a) without rate control"
        yield Figure(
            f"offered-load-{'b' if controlled else 'a'}",
            f"Figure 7: {OPERATORS} pass-through operators, morsels of {ROWS:,}",
            _QUOTES,
            "offered load in M samples/s",
            [round(load / 1e6, 1) for load in offered],
            "M samples/s",
            series,
            _checks(series, controlled),
            right,
            sheet="offered-load",
            panel=panel,
        )


def _checks(series: Mapping[str, Sequence[float]], controlled: bool) -> list[Check]:
    found = []
    for scheduler, rates in series.items():
        left = rates[-1] / max(rates)
        what = f"{scheduler}, at the highest load : its best"
        if controlled:
            found.append(Check(what, left, "the paper: flat", left >= 0.8))
        elif scheduler != "depth_first":  # it has no queues that could grow
            found.append(Check(what, left, "the paper: a drop-off", left < 0.8))
    return found


def _throughput(
    scheduler: str, offered: float, seconds: float, controlled: bool
) -> tuple[float, bool]:
    """Samples a second that leave the plan while ``offered`` samples a second arrive, and whether
    they leave in order."""
    burst = BURST * ROWS if controlled else _UNBOUNDED  # ``admit`` only enters what it gets
    engine, edge = Engine(scheduler, ROWS, 0, OPERATORS, burst), Edge(0, 0)
    runtime = engine.runtime
    engine.morsels = WARM
    engine.run()  # loads kernels and allocates the morsels of a usual burst
    engine.delivered.clear()
    engine.total = 0
    admitted = 0
    began = time.perf_counter()
    while (now := time.perf_counter() - began) < seconds:
        arrived = admitted + BURST if offered == inf else int(now * offered / ROWS)
        if controlled or not isinstance(runtime, Queued):
            arrived = min(arrived, admitted + BURST)
        for serial in range(admitted, arrived):
            engine.source.words[SERIAL] = serial
            runtime.admit(engine.source, edge)
        admitted = max(arrived, admitted)
        if isinstance(runtime, Queued) and not controlled:
            waiting = int((runtime._tail - runtime._head).sum())
            runtime._run(max(0, waiting - 1))
        else:
            runtime.drain()
    taken = time.perf_counter() - began
    done = len(engine.delivered)
    in_order = engine.delivered == list(range(done))
    runtime.drain()
    return done * ROWS / taken, in_order and engine.total == admitted * ROWS
