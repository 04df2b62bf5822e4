"""Large expressions: their results, their split into parts, and queries that wait for
compilation."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cql.base.lru import LruCache
from cql.base.recursion import deep_stack
from cql.base.types import BIGINT, BOOLEAN
from cql.errors import CqlError, RunError
from cql.executor.codegen import kernel_builder, kernel_cache, module
from cql.executor.codegen.expressions import parts as expression_parts
from cql.executor.codegen.expressions.lookup import choice, membership
from cql.executor.codegen.expressions.parts import divide
from cql.executor.jit import compiler_process
from cql.planner.nodes.expr import Call, Case, Column, Expr, Literal, walk
from cql.session.session import Session

N = 60
ROWS = {
    "ts": list(range(N)),
    "v": [None if k % 9 == 8 else k - 9 for k in range(N)],
    "w": [k * 31 % 11 for k in range(N)],
    "s": [None if k % 7 == 6 else f"t{k % 30}" for k in range(N)],
    "x": [float("nan") if k % 10 == 9 else (k % 20) / 2 - 0.0 for k in range(N)],
}


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(False) as made:
        made.create_stream("a", pa.table(ROWS), ordered_by="ts", unit="seconds")
        yield made


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small expressions are split into parts like large ones."""
    cut_small(monkeypatch)


def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WHOLE", 8), ("WHOLE_LEVELS", 3), ("PART", 6), ("LEVELS", 3)):
        monkeypatch.setattr(expression_parts, name, value)
    monkeypatch.setattr(kernel_cache, "WRITTEN", LruCache(1 << 17, len))  # an empty kernel cache


def got(session: Session, text: str) -> list[Any]:
    return session.sql(text).to_arrow().column(0).to_pylist()


# --------------------------------------------------------------------------- tables of constants

MANY = range(1000)
TABLES: list[tuple[str, Callable[[int], Any]]] = [
    (
        f"CASE {' '.join(f'WHEN v = {i} THEN {i * 3}' for i in MANY)} END",
        lambda k: None if (v := ROWS["v"][k]) is None or v < 0 else 3 * v,
    ),
    (
        "CASE s "
        + " ".join(f"WHEN 't{i}' THEN 'r{i}'" for i in reversed(MANY) if i % 3)
        + " ELSE s END",
        lambda k: (s := ROWS["s"][k]) and (f"r{s[1:]}" if int(s[1:]) % 3 else s),
    ),
    (
        "CASE "
        + " ".join(f"WHEN v IN ({i}, {i + 1}, 5) OR v = {-i} THEN {i}" for i in range(10, 40, 2))
        + " WHEN v = 3 THEN NULL ELSE w END",
        lambda k: _several(ROWS["v"][k], ROWS["w"][k]),
    ),
    (
        f"x IN ({', '.join(f'{i / 2}D' for i in range(17))}, -0.0D)",
        lambda k: ROWS["x"][k] <= 8,
    ),
    (
        " OR ".join(f"w = {i}" for i in range(0, 40, 2)),
        lambda k: ROWS["w"][k] % 2 == 0,
    ),
    (
        " AND ".join(f"v <> {i}" for i in range(20)),
        lambda k: None if (v := ROWS["v"][k]) is None else not 0 <= v < 20,
    ),
]


def _several(v: int | None, w: int) -> int | None:
    if v is None:
        return w
    for i in range(10, 40, 2):
        if v in (i, i + 1, 5, -i):
            return i
    return None if v == 3 else w


@pytest.mark.parametrize("table", range(len(TABLES)))
def test_constants_are_looked_up(session: Session, table: int) -> None:
    text, expected = TABLES[table]
    query = session.sql(f"SELECT {text} AS y FROM a")
    assert query.to_arrow().column(0).to_pylist() == [expected(k) for k in range(N)]
    source = query.explain("kernel")
    assert str(source).count("\n") < 150  # independent of the number of constants


def test_constants_of_texts_that_are_numbered_anew(session: Session) -> None:
    """Compaction changes the codes of texts; the lookup table is sorted again."""
    rows = 3000
    texts = pa.table({"ts": range(rows), "s": [f"new {k}" if k % 3 else "t7" for k in range(rows)]})
    session.create_stream("b", texts, ordered_by="ts", unit="seconds")
    session.set("morsel_rows", 64)
    case = " ".join(f"WHEN 't{i}' THEN 'r{i}'" for i in range(20))
    found = got(session, f"SELECT CASE s {case} END AS y FROM b")
    assert found == [None if k % 3 else "r7" for k in range(rows)]


# --------------------------------------------------------------------------- parts

PARTS = [
    "CASE WHEN v < 0 THEN w WHEN v < 5 THEN v * w WHEN v < w THEN v - w ELSE w + 9 END",
    "v + w * 2 + v * 3 + w * 4 + v * 5 + w * 6 + v * 7 + w * 8 + v * 9 + w * 10",
    "v > 1 AND w > 2 AND v * w > 3 AND v - w > -4 AND v + w > 5 AND v < 50 AND w < 9",
    "v < 1 OR w = 2 OR v * w < 3 OR v - w > 40 OR v + w < 5 OR v > 45 OR w > 9",
    "coalesce(nullif(v, 1), nullif(w, 2), nullif(v + w, 3), nullif(v * w, 4))",
    "least(v, w, v * w, v - w, v + w, w * w, v * v)",
    "greatest(v, w, v * w, v - w, v + w, w * w, v * v)",
    "CASE WHEN upper(s) = 'T3' THEN concat_ws('-', s, v, w) WHEN s < 't2' THEN s ELSE 'z' END",
    "CASE WHEN w > 0 AND v / w > 1 THEN v / w + v % w WHEN w = 0 THEN -1 ELSE v * w END",
    "x * 2 + x * 3 - x / 4 + x * 5 + x * 6 - x * 7 + sqrt(x * x) + x * 8",
    "CASE WHEN v > 0 THEN CASE WHEN v > 1 THEN CASE WHEN v > 2 THEN CASE WHEN w > 3 THEN v"
    " ELSE w END ELSE 2 END ELSE 1 END ELSE 0 END",
]


def _same(a: list[Any], b: list[Any]) -> bool:
    return all(x == y or (x != x and y != y) for x, y in zip(a, b, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["depth_first", "ordered"])
def test_parts_give_what_the_whole_gives(
    session: Session, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    """All expressions are columns of one query, which runs without and with parts."""
    session.set("runtime", runtime)
    session.set("workers", 2 if runtime == "ordered" else 0)
    session.set("morsel_rows", 16)
    text = f"SELECT {', '.join(f'{e} AS c{k}' for k, e in enumerate(PARTS))} FROM a"
    whole = session.sql(text).to_arrow()
    cut_small(monkeypatch)
    query = session.sql(text)
    parts = query.to_arrow()
    assert str(query.explain("kernel")).count("def part") >= len(PARTS)
    for name in whole.column_names:
        assert _same(whole[name].to_pylist(), parts[name].to_pylist()), name


def test_a_row_that_fails_in_a_part(session: Session, small_parts: None) -> None:
    """The part belongs to a column, to a filter, or to an argument of a text function."""
    deep = "v + w * 2 + v * 3 + w * 4 + 100 / (v - 3) + v * 5 + w * 6 + v * 7"
    for text in (
        f"SELECT {deep} AS y FROM a",
        f"SELECT v FROM a WHERE {deep} > 0",
        f"SELECT concat_ws('-', s, {deep}) AS y FROM a",
    ):
        with pytest.raises(CqlError, match="division by zero") as caught:
            session.sql(text).to_arrow()
        assert caught.value.line == 1
        kept = session.sql(f"{text} ON BAD ROW KEEP")
        rows = kept.to_arrow().num_rows
        assert kept.progress().bad == 1
        assert rows == N - 1 or "WHERE" in text


def test_a_case_deeper_than_python_indents(session: Session) -> None:
    text = f"SELECT {'CASE WHEN w > 0 THEN ' * 99} 1 {'END ' * 99} AS y FROM a"
    assert got(session, text) == [1 if w > 0 else None for w in ROWS["w"]]


def test_how_expressions_are_cut() -> None:
    """No function has more nodes than three times PART, and the leaves keep their order."""
    v = Column(0, "v", BIGINT)

    def less(k: int) -> Expr:
        return Call("lt", (v, Call("mul", (v, Literal(k, BIGINT)), BIGINT)), BOOLEAN)

    total: Expr = v
    for k in range(500):
        total = Call("add", (total, Literal(k, BIGINT)), BIGINT)
    tests = tuple(less(k) for k in range(400))
    for expr in (
        total,
        Call("and", tests, BOOLEAN),
        Call("or", tests, BOOLEAN),
        Call("coalesce", tests, BOOLEAN),
        Call("least", tests, BOOLEAN),
        Case(tuple((t, v) for t in tests), v, BIGINT),
    ):
        with deep_stack():
            whole, parts = divide(expr)
        assert len(parts) > 5
        for root in (whole, *parts.values()):
            inside, waiting = 0, [root]
            while waiting:
                node = waiting.pop()
                inside += 1
                if node is root or id(node) not in parts:
                    waiting += _children(node)
            assert inside <= 3 * expression_parts.PART
        leaves = [e for e in walk(expr) if not _children(e)]
        assert [e for e in walk(whole) if not _children(e)] == leaves
    assert divide(less(1)).parts == {}


# --------------------------------------------------------------------------- many small expressions

SMALL = [
    "v + w",
    "CASE WHEN v > w THEN v * 2 ELSE w END",
    "s",
    "v / w",
    "upper(s)",
    "x * 2 > v",
    "coalesce(v, w, 3)",
    "concat_ws('-', s, v + w)",
    "TRY_CAST(x AS INT) % 3",
    "7",
    "v IS NULL OR s < 't2'",
    "CASE s WHEN 't3' THEN 'x' ELSE s END",
]
SUMS = [
    "sum(v + w)",
    "min(CASE WHEN v > 3 THEN x END)",
    "count(nullif(v, w))",
    "max(w * w)",
    "avg(x)",
    "sum(v * x)",
]
GROUPED = [
    f"SELECT {', '.join(f'{e} AS c{k}' for k, e in enumerate(SMALL))} FROM a WHERE w > 0",
    f"SELECT {', '.join(f'{e} AS c{k}' for k, e in enumerate(SUMS))}, window_end"
    " FROM a [RANGE 20 SLIDE 20 WA ts] GROUP BY w",
]


def group_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the kernel group a few small expressions, as it otherwise groups many."""
    monkeypatch.setattr(kernel_builder, "MANY", 8)
    monkeypatch.setattr(kernel_builder, "GROUP", 12)
    monkeypatch.setattr(kernel_cache, "WRITTEN", LruCache(1 << 17, len))  # an empty kernel cache


def test_groups_give_what_each_gives(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several workers may run the same functions at once, each with its own memory words."""
    session.set("morsel_rows", 16)
    session.set("partitions", 3)
    session.set("workers", 2)
    whole = [session.sql(text).to_arrow() for text in GROUPED]
    group_small(monkeypatch)
    session.set("runtime", "ordered")
    for text, expected in zip(GROUPED, whole, strict=True):
        query = session.sql(text)
        found = query.to_arrow()
        assert str(query.explain("kernel")).count("def part") > 1
        for name in expected.column_names:
            assert _same(expected[name].to_pylist(), found[name].to_pylist()), name


def test_a_row_that_fails_in_a_group(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this row is bad, at the position of the expression that failed first."""
    group_small(monkeypatch)
    text = (
        "SELECT v + w AS a, w * 2 AS b, 100 / (v - 3) AS c, 10 % (v - 3) AS d, upper(s) AS e FROM a"
    )
    with pytest.raises(CqlError, match="division by zero") as caught:
        session.sql(text).to_arrow()
    assert (caught.value.line, caught.value.column) == (1, text.index("100 /") + 1)
    kept = session.sql(f"{text} ON BAD ROW KEEP")
    assert kept.to_arrow().num_rows == N - 1
    assert kept.progress().bad == 1


def _functions(session: Session, monkeypatch: pytest.MonkeyPatch, text: str) -> list[int]:
    """The number of lines of each function of the kernel, which is not compiled."""
    texts: list[str] = []

    def load(text: str, *_: Any) -> Any:
        texts.append(text)
        raise compiler_process.StoppedError

    with monkeypatch.context() as patched:
        patched.setattr(module, "load", load)
        assert session.sql(text).to_arrow().num_rows == 0
    (written_,) = texts
    return [part.count("\n") for part in written_.split("\ndef ")[1:]]


@pytest.mark.auto_runtime
def test_no_function_computes_many_expressions(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest function hardly grows with the number of expressions; 40 of them stay in one
    function."""

    def columns(n: int) -> str:
        cases = (f"CASE WHEN v > {i} THEN w + {i} ELSE v * {i} END AS c{i}" for i in range(n))
        return f"SELECT {', '.join(cases)} FROM a"

    def sums(n: int) -> str:
        calls = (f"sum(CASE WHEN v > {i} THEN w ELSE v * {i} END) AS c{i}" for i in range(n))
        return f"SELECT {', '.join(calls)}, window_end FROM a [RANGE 10 SLIDE 10 WA ts] GROUP BY w"

    for few in (columns(40), sums(40)):
        assert len(_functions(session, monkeypatch, few)) == 1
    for many, a_column in ((columns, 8), (sums, 30)):
        sizes = {n: _functions(session, monkeypatch, many(n)) for n in (100, 200)}
        assert max(sizes[200][:-1]) <= max(sizes[100][:-1]) + 10 < 800
        assert len(sizes[200]) - 1 > 1.8 * (len(sizes[100]) - 1)
        assert sizes[200][-1] - sizes[100][-1] < 100 * a_column


def _children(expr: Expr) -> list[Expr]:
    from cql.planner.nodes.expr import children

    return list(children(expr))


def test_what_is_no_table() -> None:
    v, other = Column(0, "v", BIGINT), Column(1, "o", BIGINT)
    one, none = Literal(1, BIGINT), Literal(None, BIGINT)

    def eq(a: Expr, b: Expr) -> Call:
        return Call("eq", (a, b), BOOLEAN)

    assert membership(eq(v, one)) == membership(eq(one, v))
    assert membership(eq(v, none)) is None
    assert membership(eq(v, other)) is None
    assert membership(Call("or", (eq(v, one), eq(other, one)), BOOLEAN)) is None
    assert membership(Call("and", (eq(v, one), eq(v, one)), BOOLEAN)) is None
    few = Case(tuple((eq(v, Literal(k, BIGINT)), one) for k in range(3)), None, BIGINT)
    assert choice(few) is None


# --------------------------------------------------------------------------- compilation


@pytest.fixture
def in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE", 10)


def test_a_large_kernel_is_compiled_by_another_process(tmp_path: Path, in_a_process: None) -> None:
    """The process stores the kernel on disk; an error in the kernel's text raises as usual."""
    lines = "\n".join(f"x{k} = {k}" for k in range(20))
    file = str(tmp_path / "who")
    text = f"import os\n{lines}\nwith open({file!r}, 'a') as f:\n    f.write(f'{{os.getpid()}} ')\n"
    module.load(text, str(tmp_path))
    who = [int(pid) for pid in (tmp_path / "who").read_text().split()]
    assert len(who) == 2
    assert who[0] != os.getpid() == who[1]
    with pytest.raises(ZeroDivisionError):
        module.load(text + "1 / 0\n", str(tmp_path))


HANGS = "import time\n" + "\n".join(f"x{k} = {k}" for k in range(20)) + "\ntime.sleep(600)\n"


def test_an_interrupt_ends_the_compilation(
    tmp_path: Path,
    in_a_process: None,
    interrupts: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    children = []
    begin = compiler_process.subprocess.Popen

    def started(*args: Any, **options: Any) -> Any:
        children.append(begin(*args, **options))
        return children[0]

    def press() -> bool:
        if len(children) == 1:
            interrupts()
        return False

    monkeypatch.setattr(compiler_process.subprocess, "Popen", started)
    with pytest.raises(KeyboardInterrupt):
        module.load(HANGS, str(tmp_path), press)
    (child,) = children
    assert child.returncode is not None


def test_a_query_that_is_stopped_while_it_compiles(
    session: Session, tmp_path: Path, in_a_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another query compiles its kernel in the meantime."""
    begun, asked = threading.Event(), []

    def compile_separately(path: Path, stop: Callable[[], bool]) -> None:
        begun.set()
        while not stop():
            asked.append(1)
        raise compiler_process.StoppedError

    session.set("kernel_cache", str(tmp_path))
    query = session.sql("SELECT v * 3 - 7777 AS y, w - v AS z FROM a WHERE v < 7777")
    with monkeypatch.context() as patched:
        patched.setattr(module, "compile_separately", compile_separately)
        reader = threading.Thread(target=lambda: list(query))
        reader.start()
        assert begun.wait(60)
        patched.setattr(module, "LARGE", 10**6)
        assert got(session, "SELECT w FROM a WHERE w > 100000") == []
        query.stop()
        reader.join(60)
    assert not reader.is_alive()
    assert query.status == "stopped"


def test_a_kernel_beyond_all_bounds(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 40)
    with pytest.raises(RunError, match=r"too large to compile: its kernel has \d+ lines, of which"):
        session.sql("SELECT v + 31 AS a, v * 37 AS b, w - v AS c FROM a WHERE v > 41").to_arrow()


def test_a_compiler_that_was_killed(
    tmp_path: Path, in_a_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os, signal\n" + "\n" * 20 + "os.kill(os.getpid(), signal.SIGKILL)\n"
    with pytest.raises(RunError, match="ended by signal 9"):
        module.load(text, str(tmp_path))
