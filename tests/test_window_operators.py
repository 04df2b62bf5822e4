"""The operators for windowed aggregates, step by step: none loses a row on the way."""

from __future__ import annotations

import random
from typing import Any

import pytest
from test_operators import Script

OPERATORS: dict[str, dict[str, Any]] = {
    "wid": {"window_operator": "wid"},
    "panes": {"window_operator": "panes"},
    "two_stacks": {"window_operator": "two_stacks"},
}
WINDOWS = (
    "RANGE 20 SLIDE 20",
    "RANGE 24 SLIDE 2",
    "RANGE 20 SLIDE 6",
    "RANGE 7 SLIDE 5",
    "RANGE 24 CUMULATE 4 OFFSET 3",
    "RANGE 20 CUMULATE 1",
)


@pytest.mark.parametrize("window", WINDOWS)
def test_pairs_are_conserved_after_every_punctuation(window: str, seed: int) -> None:
    """Those that came are emitted, late or held, whatever keeps them; and the groups that leave
    with a punctuation are the same."""
    text = f"SELECT k, count(*) AS n, sum(v) AS v, window_end FROM a [{window} WA ts] GROUP BY k"
    answers = {}
    for name, settings in OPERATORS.items():
        rng, script = random.Random(seed), Script(text, settings=settings)
        answers[name] = []
        time = 0
        for _ in range(40):
            time += rng.choice((0, 1, 3, 3, 10, 60))
            rows = [(time + rng.randint(-12, 8), rng.choice("abc"), 1) for _ in range(6)]
            script.push("\n".join(f"{max(t, 0)} {k} {v}" for t, k, v in rows))
            script.promise(time)
            for operator in script.operators:
                operator.conserve()
            answers[name].append(sorted(script.lines))
        script.end()
        answers[name].append(sorted(script.lines))
    for name, answer in answers.items():
        assert answer == answers["wid"], name
    assert len(answers["wid"][-1]) > 50
