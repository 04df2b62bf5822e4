"""Our decorators produce the machine code that numba's produce, and numba stays unchanged for the
host program."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest
from numba import types
from numba.core.compiler import Flags

from cql.executor.jit.compile_speed import KernelFlags
from cql.executor.jit.decorators import njit
from cql.executor.kernels.lib.views import words
from tests.support.paths import ROOT


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


def listed(n: Any) -> Any:
    values, pairs = [], [(1, 2.0)]
    for i in range(n):
        values.append(i * 0.5)
        pairs.append((i, values[-1]))
    return values[0] + len(values) + pairs[n][1]


def refused(a: Any, n: Any) -> Any:
    kept = a[1:]
    if n < 0:
        raise ValueError("n must not be negative")
    kept[0] += n**2
    return kept.sum() // n


KINDS = [
    (listed, (types.int64,)),
    (refused, (types.int64[::1], types.int64)),
    (mixed, (types.int64[::1], types.int64, types.float64)),
    (mixed, (types.int32[::1], types.uint64, types.float32)),
    (mixed, (types.uint8[::1], types.int32, types.int64)),
    (rows, (types.int64, types.int64)),
]


def machine_code(compiler: Any, function: Any, kinds: Any) -> list[str]:
    """The instructions of a fresh compilation, without the names of functions, which numba
    numbers."""
    compiled = compiler(nogil=True)(function)
    compiled.compile(kinds)
    (text,) = compiled.inspect_asm().values()
    lines = [line for line in text.splitlines() if re.match(r"\t[^.]", line)]
    assert len(lines) > 20
    return [re.sub(r"[\w.]*_ZN[\w.$]+", "", line) for line in lines]


@pytest.mark.parametrize(("function", "kinds"), KINDS)
def test_machine_code_is_the_same(function: Any, kinds: Any) -> None:
    assert machine_code(njit, function, kinds) == machine_code(numba.njit, function, kinds)


def test_flags_that_mean_the_same_are_equal() -> None:
    one, other = KernelFlags(), KernelFlags()
    one.nrt = other.nrt = True
    assert one == other
    assert hash(one) == hash(other)
    other.boundscheck = KernelFlags().boundscheck  # set explicitly, to the default
    assert one == other
    other.boundscheck = True
    assert one != other


def test_flags_are_never_those_of_others() -> None:
    mine, plain = KernelFlags(), Flags()
    assert mine != plain
    assert plain != mine
    assert len({mine: 0, plain: 1}) == 2


def test_functions_of_both_call_each_other() -> None:
    @numba.njit
    def theirs(x: int) -> int:
        return x * 2

    @njit
    def ours(x: int) -> int:
        return theirs(x) + 1

    @numba.njit
    def caller(x: int) -> int:
        return ours(x) * 10

    assert (theirs(1), ours(1), caller(1)) == (2, 3, 30)


def test_there_is_machine_code_where_numba_is_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(numba.core.config, "DISABLE_JIT", 1)
    assert numba.njit(mixed) is mixed
    assert njit("int64(int64)")(lambda x: x + 1).signatures == [(types.int64,)]


# -- the host process ------------------------------------------------------------------------------


def run(program: str, **env: str) -> str:
    """The standard output of a program in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ATTRIBUTES = """
import sys

def attributes():
    found = {}
    for name, module in list(sys.modules.items()):
        if module is None or name.split(".")[0] not in ("numba", "llvmlite"):
            continue
        for key, value in list(vars(module).items()):
            found[name, key] = value
            if isinstance(value, type) and value.__module__.split(".")[0] in ("numba", "llvmlite"):
                for part, inner in list(vars(value).items()):
                    found[name, key, part] = inner
    return found

def changed(before):
    after = attributes()
    kept = []
    for place, value in before.items():
        now = after.get(place, "gone")
        if now is not value and not (type(now) in (int, str, tuple) and now == value):
            kept.append(place)
    return kept
"""


@pytest.mark.slow
def test_every_attribute_of_numba_is_the_same_before_during_and_after(tmp_path: Path) -> None:
    """A program compiles with numba, runs queries that compile kernels, and compiles with numba
    again."""
    program = f"""{ATTRIBUTES}
import numba, numpy as np
from numba.core import event

@numba.njit
def total(values):
    sum = 0.0
    for i in range(values.size):
        if values[i] > 2 and i % 3 != 1:
            sum += abs(values[i]) * 2 + i // 2
    return sum + values.max()

assert total(np.arange(10.0)) > 0
code = total.inspect_asm(total.signatures[0])
before = attributes()
assert len(before) > 20_000

during = []
class Look(event.Listener):
    def on_start(self, event):
        if event.data["name"].startswith("nopython_type_inference") and len(during) < 3:
            during.append(changed(before))
    def on_end(self, event):
        pass

import pyarrow as pa, cql
session = cql.connect(spark=False, kernel_cache={str(tmp_path)!r})
table = pa.table({{"ts": [1, 2, 3], "v": [1, 2, 3], "w": ["a", "b", None]}})
session.create_stream("s", table, ordered_by="ts")
session.register_function("twice", lambda x: 2 * abs(x), args=["bigint"], returns="bigint")
session.register_function("total", numba.njit(lambda x: x + 0.5), args=["double"], returns="double")
with event.install_listener("numba:run_pass", Look()):
    rows = session.sql("SELECT twice(v) AS t, total(v) AS h FROM s WHERE v > 1 AND w IS NOT NULL")
    assert rows.to_arrow().to_pylist() == [{{"t": 4, "h": 2.5}}]
    query = session.sql("SELECT count(*) AS n [RANGE 2, SLIDE 2] FROM s GROUP BY w")
    assert query.to_arrow().num_rows == 3
assert len(during) == 3
print(during, changed(before))

again = numba.njit(total.py_func)
assert again(np.arange(10.0)) == total(np.arange(10.0))
assert type(again._cache) is numba.core.caching.NullCache
import re
plain = lambda text: re.findall(r"^\\t[a-z]+", text, re.M)
assert plain(again.inspect_asm(again.signatures[0])) == plain(code)
"""
    assert run(program) == "[[], [], []] []\n"


@pytest.mark.slow
def test_the_cache_of_the_host_is_numbas(tmp_path: Path) -> None:
    """For a function of the host, numba's cache raises and keeps what it does without cql, and cql
    shows no compile notice."""
    module = tmp_path / "hosted.py"
    module.write_text(
        "import numba\n@numba.njit('int64(int64)', cache=True)\ndef f(x):\n    return x + 1\n"
    )
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import cql, cql.executor.kernels.lib.views
from cql.base import compile_notice
compile_notice.WATCH.begins = lambda: print("begins")
import hosted
from numba.core.caching import FunctionCache
assert type(hosted.f._cache) is FunctionCache
print(hosted.f(1), sum(hosted.f.stats.cache_hits.values()))
"""
    assert run(program) == "2 0\n"
    assert run(program) == "2 1\n"
    (index,) = (tmp_path / "__pycache__").glob("hosted.f-*.nbi")
    index.write_bytes(b"damaged")
    raises = program.replace(
        "import hosted",
        "try:\n    import hosted\nexcept Exception as e:\n    print(type(e)), exit()",
    )
    assert run(raises) == "<class '_pickle.UnpicklingError'>\n"


def test_without_any_folder_ours_takes_a_temporary_one(tmp_path: Path) -> None:
    """numba.njit refuses to cache, as it does without cql."""
    program = """
from cql.executor.jit.decorators import njit
from numba.core import caching, config
no = classmethod(lambda cls, py_func, py_file: None)
for locator in caching.CacheImpl._locator_classes:
    locator.from_function = no
import numba
def f(x):
    return x + 1
import textwrap
f.__code__ = f.__code__.replace(co_filename=textwrap.__file__)
made = njit("int64(int64)", cache=True)(f)
print(made(1), len(list(__import__("pathlib").Path(made.stats.cache_path).glob("*.nbi"))))
try:
    numba.njit("int64(int64)", cache=True)(f)
except RuntimeError as error:
    print(str(error)[:21], repr(config.CACHE_DIR))
"""
    assert run(program, NUMBA_CACHE_DIR="") == "2 1\ncannot cache function ''\n"
