"""Notebook tracebacks of our errors: they show the user's lines and the message, and none of our
frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import cql
from cql.errors import CqlError
from cql.session.session import Session


@pytest.fixture
def session() -> Iterator[Session]:
    with cql.connect(spark=False) as made:
        made.create_stream("s", pa.table({"ts": [1, 2], "v": [1, 0]}), ordered_by="ts")
        yield made


def shown(work: Callable[[], Any]) -> list[str]:
    """The lines that IPython prints: it takes them from the error's ``_render_traceback_``."""
    with pytest.raises(CqlError) as caught:
        work()
    lines = caught.value._render_traceback_()
    assert all(isinstance(line, str) and "\n" not in line for line in lines)
    return lines


WRONG: dict[str, Callable[[Session], Any]] = {
    "parse": lambda session: session.sql("SELECT FROM WHERE"),
    "bind": lambda session: session.sql("SELECT vv FROM s"),
    "run": lambda session: session.sql("SELECT 1 % v AS z FROM s").to_arrow(),
    "show": lambda session: session.sql("SELECT 1 % v AS z FROM s").show(),
    "setting": lambda session: session.set("morsel_row", 1),
    "data": lambda session: session.create_stream("t", {"ts": [object()]}, ordered_by="ts"),
    "name": lambda session: session.drop_function("f"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_our_frames_are_left_out(session: Session, wrong: str) -> None:
    with pytest.raises(CqlError) as caught:
        WRONG[wrong](session)
    message = f"{type(caught.value).__name__}: {caught.value}".split("\n")
    lines = caught.value._render_traceback_()
    assert lines[-len(message) :] == message
    frames = [line for line in lines if line.startswith("  File ")]
    assert frames
    assert all(__file__ in line for line in frames)
    assert len(lines) <= len(message) + 1 + 3 * len(frames)


def test_what_failed_in_code_of_the_user_is_shown(session: Session) -> None:
    def rows() -> Iterator[dict[str, int]]:
        yield {"ts": 1}
        raise KeyError("of the generator")

    session.create_stream("g", rows, ordered_by="ts")
    lines = shown(lambda: session.sql("SELECT ts FROM g").to_arrow())
    text = "\n".join(lines)
    assert 'raise KeyError("of the generator")' in text
    assert "which led to" in lines
    assert text.index("KeyError: 'of the generator'") < text.index("CatalogError: stream g failed")
    assert "iterables.py" not in text


def test_every_frame_is_shown_where_it_is_asked_for(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CqlError) as caught:
        session.sql("SELECT vv FROM s")
    assert hasattr(caught.value, "_render_traceback_")
    monkeypatch.setenv("CQL_TRACEBACK", "full")
    assert not hasattr(caught.value, "_render_traceback_")  # IPython draws its own
    frames = 0
    trace = caught.value.__traceback__
    while trace is not None:
        frames, trace = frames + 1, trace.tb_next
    assert frames > 2  # the error itself keeps all frames
