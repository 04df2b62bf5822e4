"""numba compiles the same code in less time."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from numba import njit, types

from cql.executor.jit import compile_speed
from cql.executor.kernels.lib.views import words


def mixed(a: Any, n: Any, x: Any) -> Any:
    total, most = 0, 1.5
    for i in range(n):
        total += (a[i] ^ 7) * 3 - (i << 2) // 5
        most = max(most, x * i % 2.5) if a[i] > 3 and a[i] != n else most
        a[i] = -a[i]
    return total + most


def rows(address: Any, n: Any) -> Any:
    view = words(address, n)
    for i in range(n):
        view[i] = view[i] * 2 - 1
    return view[0] + view.size


KINDS = [
    (mixed, (types.int64[::1], types.int64, types.float64)),
    (mixed, (types.int32[::1], types.uint64, types.float32)),
    (mixed, (types.uint8[::1], types.int32, types.int64)),
    (rows, (types.int64, types.int64)),
]


@contextlib.contextmanager
def unhurried() -> Iterator[None]:
    """numba as it is without us."""
    with contextlib.ExitStack() as stack:
        for owner, name, _ in compile_speed.CHANGES:
            stack.enter_context(mock.patch.object(owner, name, compile_speed.PLAINLY[name]))
        yield


def machine_code(function: Any, kinds: Any) -> list[str]:
    """The instructions of a fresh compilation, without names of functions: numba counts those."""
    compiled = njit(nogil=True)(function)
    compiled.compile(kinds)
    (text,) = compiled.inspect_asm().values()
    lines = [line for line in text.splitlines() if re.match(r"\t[^.]", line)]
    assert len(lines) > 20
    return [re.sub(r"[\w.]*_ZN[\w.$]+", "", line) for line in lines]


@pytest.mark.parametrize(("function", "kinds"), KINDS)
def test_machine_code_is_the_same(function: Any, kinds: Any) -> None:
    quick = machine_code(function, kinds)
    with unhurried():
        assert machine_code(function, kinds) == quick


def test_flags_that_mean_the_same_are_equal() -> None:
    from numba.core.compiler import Flags

    one, other = Flags(), Flags()
    one.nrt = other.nrt = True
    assert one == other
    assert hash(one) == hash(other)
    other.boundscheck = Flags().boundscheck  # written, but the default
    assert one == other
    other.boundscheck = True
    assert one != other
