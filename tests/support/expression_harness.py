"""Compiles emitted expressions into row loops of one generated module, and runs them over rows.

A result is a value in storage form, None for NULL, or ``Failed(kind)``. Booleans are Python bools,
text is str or bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cql.base.types import DataType
from cql.executor.codegen import module as codegen
from cql.executor.codegen.expressions.emit import (
    Code,
    DictionaryTable,
    ErrorSite,
    HostSite,
    emit,
    host_sites,
)
from cql.executor.kernels.lib.views import VIEWS
from cql.executor.operators.stage.operator import constant_bits, put_in_order
from cql.executor.strings.dictionary import Dictionary
from cql.executor.strings.host_functions import DictionaryTables, compute_host_column
from cql.planner.interpret.interpreter import EvaluationError, evaluate
from cql.planner.nodes.expr import Expr, Literal

CHUNK = 8  # jobs per compiled function: larger functions take longer to compile than more functions


@dataclass(frozen=True)
class Failed:
    kind: str


@dataclass
class Job:
    """One row loop, which writes ``exprs`` to outputs. ``host`` is the host column that is computed
    from these outputs."""

    exprs: tuple[Expr, ...]
    host: HostSite | None = None


@dataclass
class Harness:
    """The scope of emitted expressions, which appends lines to a source text. The contract is in
    ``cql.executor.codegen.expressions.emit``."""

    types: Sequence[DataType]
    nullable: Sequence[bool]
    lines: list[str] = field(default_factory=list)
    depth: int = 0
    temps: int = 0
    constants: list[Literal | int] = field(default_factory=list)
    tables: list[DictionaryTable] = field(default_factory=list)
    hosts: list[HostSite] = field(default_factory=list)
    sites: list[ErrorSite] = field(default_factory=list)
    loaded: dict[int, Code] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    slots_of: dict[str, int] = field(default_factory=dict)
    #: By name, an array of words: sorted keys, or constants.
    rows: dict[str, tuple[tuple[Literal, ...], tuple[Literal | int, ...]]] = field(
        default_factory=dict
    )

    def load(self, column: int) -> Code:
        if column not in self.loaded:
            name = self.temp("c")
            boolean = " != 0" if self.types[column].storage == "bool" else ""
            self.line(f"{name} = col{column}[i]{boolean}")
            if self.nullable[column]:
                self.line(f"{name}_ok = mask{column}[i] != 0")
            self.loaded[column] = Code(name, f"{name}_ok" if self.nullable[column] else None)
        return self.loaded[column]

    def constant(self, literal: Literal) -> str:
        self.constants.append(literal)
        return f"k{len(self.constants) - 1}"

    def extra_constant(self, value: int) -> str:
        self.constants.append(value)
        return f"k{len(self.constants) - 1}"

    def table(self, table: DictionaryTable) -> tuple[str, str]:
        if table not in self.tables:
            self.tables.append(table)
        k = self.tables.index(table)
        return f"tv{k}", f"ts{k}"

    def rank(self) -> str:
        return "rank"

    def host(self, site: HostSite) -> tuple[str, str]:
        k = self.hosts.index(site)
        boolean = " != 0" if site.type.storage == "bool" else ""
        return f"(hv{k}[i]{boolean})", f"hs{k}[i]"

    def need_table(self, table: DictionaryTable, code: str) -> str:
        return f"need[0] = {self.tables.index(table)}; need[1] = {code}; return 1"

    def need_rank(self) -> str:
        return "need[0] = -1; return 1"

    def fail(self, site: ErrorSite) -> str:
        self.sites.append(site)
        return f"errors[i] = {len(self.sites)}; continue"

    def words(self, values: Sequence[Literal | int]) -> Callable[[str], str]:
        return self._row([], values)

    def sorted_words(
        self, keys: Sequence[Literal]
    ) -> tuple[Callable[[str], str], Callable[[str], str]]:
        row = self._row(keys, ())
        return row, lambda number: row(f"{len(keys)} + {number}")

    def _row(
        self, keys: Sequence[Literal], values: Sequence[Literal | int]
    ) -> Callable[[str], str]:
        name = f"w{len(self.rows)}"
        self.views[name] = "words"
        self.rows[name] = tuple(keys), tuple(values)
        return lambda number: f"{name}[{number}]"

    def divide(self, expr: Expr) -> Expr:
        return expr

    def part(self, expr: Expr, emit: object) -> None:
        return None

    def temp(self, prefix: str = "x") -> str:
        self.temps += 1
        return f"{prefix}{self.temps}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    # -- the module ----------------------------------------------------------------------------

    def jobs(self, exprs: Sequence[Expr]) -> list[Job]:
        out: list[Job] = []
        for expr in exprs:
            for site in host_sites(expr):
                if site not in self.hosts:
                    self.hosts.append(site)
                    out.append(Job(site.args, site))
        return out + [Job((e,)) for e in exprs]

    def write(self, jobs: Sequence[Job]) -> str:
        """The text of the module: one function per ``CHUNK`` jobs. A function receives the
        addresses of its arrays by slot."""
        text = ["from cql.executor.jit.decorators import njit"]
        for first in range(0, len(jobs), CHUNK):
            self.lines, self.depth = [], 1
            for k in range(first, min(first + CHUNK, len(jobs))):
                self.line(f"if job == {k}:")
                with self.block():
                    self.line("for i in range(n):")
                    with self.block():
                        self._job(k, jobs[k])
            text.append(self._function(first // CHUNK, "\n".join(self.lines)))
        return codegen.module_text("\n\n\n".join(text) + "\n")

    def _job(self, k: int, job: Job) -> None:
        self.loaded.clear()
        for a, expr in enumerate(job.exprs):
            code = emit(expr, self)
            self.views[f"out{k}_{a}"] = VIEWS[expr.type.storage]
            self.views[f"ok{k}_{a}"] = "as_u8"
            self.line(f"out{k}_{a}[i] = {code.value}")
            valid = "1" if code.valid is None else f"1 if {code.valid} else 0"
            self.line(f"ok{k}_{a}[i] = {valid}")

    def _declarations(self) -> dict[str, str]:
        """The declaration of each name that a loop can use. Also assigns the slots."""
        views = {"errors": "words", "need": "words", "rank": "as_i32"}
        for k, kind in enumerate(self.types):
            views |= {f"col{k}": VIEWS[kind.storage], f"mask{k}": "as_u8"}
        for k, table in enumerate(self.tables):
            views |= {f"tv{k}": VIEWS[table.type.storage], f"ts{k}": "as_u8"}
        for k, site in enumerate(self.hosts):
            views |= {f"hv{k}": VIEWS[site.type.storage], f"hs{k}": "as_u8"}
        out = {}
        for name, view in (views | self.views).items():
            slot = self.slots_of.setdefault(name, len(self.slots_of))
            out[name] = f"{view}(d[{2 * slot}], d[{2 * slot + 1}])"
        for k, constant in enumerate(self.constants):
            slot = self.slots_of.setdefault(f"k{k}", len(self.slots_of))
            out[f"k{k}"] = _constant_text(constant, f"d[{2 * slot}]")
        return out

    def _function(self, number: int, body: str) -> str:
        used = set(re.findall(r"[a-z]+[0-9_]*", body))
        head = [f"    {n} = {text}" for n, text in self._declarations().items() if n in used]
        return (
            '@njit("int64(int64, int64, int64[::1])", error_model="numpy", nogil=True,'
            " pipeline_class=KernelCompiler)\n"
            f"def kernel{number}(job, n, d):\n" + "\n".join([*head, body, "    return 0"])
        )


def _constant_text(constant: Literal | int, word: str) -> str:
    if isinstance(constant, int):
        return word
    kind = constant.type
    if kind.is_fraction:
        return f"{kind.storage}(f64_of_bits({word}))"
    return f"{word} != 0" if kind.storage == "bool" else f"{kind.storage}({word})"


def _dtype(kind: DataType) -> np.dtype[Any]:
    return np.dtype(np.uint8 if kind.storage == "bool" else kind.storage)


class Kernel:
    """The compiled expressions; each ``run`` evaluates them over one set of rows."""

    def __init__(
        self,
        exprs: Sequence[Expr],
        types: Sequence[DataType],
        folder: Path,
        nullable: Sequence[bool] | None = None,
    ) -> None:
        self.types = tuple(types)
        self.exprs = tuple(exprs)
        self.dictionary = Dictionary()
        self.scope = Harness(self.types, nullable or [True] * len(types))
        self.jobs = self.scope.jobs(exprs)
        self.text = self.scope.write(self.jobs)
        name = "kernel_" + hashlib.sha256(self.text.encode()).hexdigest()[:16]
        path = folder / f"{name}.py"
        path.write_text(self.text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.functions = [getattr(module, f"kernel{k}") for k in range(-(-len(self.jobs) // CHUNK))]
        self.tables = DictionaryTables(self.scope.tables, self.dictionary)

    def _code(self, value: Any) -> int:
        raw = value.encode() if isinstance(value, str) else value
        return int(self.dictionary.encode_values([raw])[0])

    def _column(self, k: int, rows: Sequence[Sequence[Any]]) -> list[np.ndarray]:
        kind = self.types[k]
        raw = [row[k] for row in rows]
        stored = [0 if v is None else self._code(v) if kind.is_text else v for v in raw]
        with np.errstate(over="ignore"):
            values = np.array(stored, _dtype(kind))
        return [values, np.array([v is not None for v in raw], np.uint8)]

    def _constant(self, constant: Literal | int) -> int:
        if isinstance(constant, int):
            return constant
        if constant.type.is_text:
            return self._code(constant.value)
        if constant.type.is_fraction:
            return int(struct.unpack("q", struct.pack("d", constant.value))[0])
        return int(constant.value)

    def run(self, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """For each expression, its results for all rows."""
        n = len(rows)
        arrays: dict[str, np.ndarray] = {}
        for k in range(len(self.types)):
            arrays[f"col{k}"], arrays[f"mask{k}"] = self._column(k, rows)
        words = {f"k{k}": self._constant(c) for k, c in enumerate(self.scope.constants)}
        for name, (keys, values) in self.scope.rows.items():
            arrays[name] = np.zeros(2 * len(keys) or len(values), np.int64)
            if keys:
                put_in_order(arrays[name], 0, keys, self.dictionary)
            else:
                arrays[name][:] = [constant_bits(value, self.dictionary) for value in values]
        results = []
        for k, job in enumerate(self.jobs):
            for a, expr in enumerate(job.exprs):
                arrays[f"out{k}_{a}"] = np.zeros(n, _dtype(expr.type))
                arrays[f"ok{k}_{a}"] = np.zeros(n, np.uint8)
            errors = self._loop(k, n, arrays, words)
            outputs = [
                (arrays.pop(f"out{k}_{a}"), arrays.pop(f"ok{k}_{a}")) for a in range(len(job.exprs))
            ]
            if job.host is None:
                results.append(
                    [self._result(job.exprs[0], outputs[0], errors, i) for i in range(n)]
                )
                continue
            failed = errors != 0
            given = [(v, np.where(failed, 2, ok).astype(np.uint8)) for v, ok in outputs]
            h = self.scope.hosts.index(job.host)
            arrays[f"hv{h}"], arrays[f"hs{h}"] = compute_host_column(
                job.host, given, self.dictionary
            )
        return results

    def _loop(
        self, job: int, n: int, arrays: dict[str, np.ndarray], words: dict[str, int]
    ) -> np.ndarray:
        need, errors = np.zeros(2, np.int64), np.zeros(n, np.int64)
        while True:
            self.tables.extend()
            held = {"errors": errors, "need": need, "rank": self.dictionary.rank(), **arrays}
            for k, (values, status) in enumerate(self.tables.arrays()):
                held |= {f"tv{k}": values, f"ts{k}": status}
            d = np.zeros(2 * len(self.scope.slots_of), np.int64)
            for name, slot in self.scope.slots_of.items():
                if name in words:
                    d[2 * slot] = words[name]
                elif name in held:
                    d[2 * slot : 2 * slot + 2] = held[name].ctypes.data, held[name].size
            errors[:] = 0
            if self.functions[job // CHUNK](job, n, d) == 0:
                return errors
            if need[0] >= 0:  # otherwise the loop needs ranks, which each pass renews
                self.tables.fill(int(need[0]), int(need[1]))

    def _result(self, expr: Expr, out: tuple[np.ndarray, np.ndarray], errors, i: int) -> Any:
        if errors[i]:
            return Failed(self.scope.sites[errors[i] - 1].kind)
        values, ok = out
        value = values[i].item()
        if not ok[i]:
            assert value == 0, f"NULL of {expr} is {value}"
            return None
        assert expr.nullable or ok[i]
        if expr.type.storage == "bool":
            return bool(value)
        if expr.type.is_text:
            raw = self.dictionary.value(value)
            return raw.decode() if str(expr.type) == "string" else raw
        return value


def twin(expr: Expr, row: Sequence[Any]) -> Any:
    """The result of the interpreter for one row."""
    try:
        return evaluate(expr, row)
    except EvaluationError as error:
        return Failed(error.kind)


def same(a: Any, b: Any, ulps: int = 0) -> bool:
    """Whether two results are equal bit by bit. Floats may differ by ``ulps`` units in the last
    place; all NaNs are equal, and so are all failures."""
    if isinstance(a, Failed) or isinstance(b, Failed):
        return isinstance(a, Failed) and isinstance(b, Failed)
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        if a != a or b != b:
            return a != a and b != b
        x, y = (struct.unpack("q", struct.pack("d", v))[0] for v in (a, b))
        return abs(x - y) <= ulps
    return a == b
