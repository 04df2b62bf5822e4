"""Wraps emitted expressions in row loops of one generated module, and runs them over rows.

A result is a value in storage form, None for NULL, or ``Failed(kind)``. Booleans are Python bools,
text is str or bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cql.executor.dictionary import Dictionary
from cql.executor.expressions import IMPORTS, Code, emit, host_sites
from cql.executor.expressions import DictionaryTable, ErrorSite, HostSite
from cql.executor.host import DictionaryTables, compute_host_column
from cql.planner.expr import Expr, Literal
from cql.planner.evaluation import EvaluationError, evaluate
from cql.types import DataType


@dataclass(frozen=True)
class Failed:
    kind: str


@dataclass
class Job:
    """One row loop: writes ``exprs`` to outputs; ``host`` is the column computed from them."""

    exprs: tuple[Expr, ...]
    host: HostSite | None = None


@dataclass
class Harness:
    """A scope over a growing source text; see the contract in ``cql.executor.expressions``."""

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

    def fail(self, site: ErrorSite) -> str:
        self.sites.append(site)
        return f"errors[i] = {len(self.sites)}; continue"

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
        self.depth = 1
        for k, job in enumerate(jobs):
            self.line(f"if job == {k}:")
            with self.block():
                self.line("for i in range(n):")
                with self.block():
                    self.loaded.clear()
                    for a, expr in enumerate(job.exprs):
                        code = emit(expr, self)
                        self.line(f"out{k}_{a}[i] = {code.value}")
                        valid = "1" if code.valid is None else f"1 if {code.valid} else 0"
                        self.line(f"ok{k}_{a}[i] = {valid}")
        head = []
        for k, constant in enumerate(self.constants):
            if isinstance(constant, Literal):
                dtype = constant.type.storage
                test = f"k{k} != 0" if dtype == "bool" else f"{dtype}(k{k})"
                head.append(f"    k{k} = {test}")
        body = "\n".join([*head, *self.lines, "    return 0"])
        return (
            f"from numba import njit\n{IMPORTS}\n\n"
            f'@njit(cache=False, error_model="numpy", nogil=True)\n'
            f"def kernel(job, n, errors, need, rank, {', '.join(self._names(jobs))}):\n{body}\n"
        )

    def _names(self, jobs: Sequence[Job]) -> list[str]:
        names = [f"{p}{k}" for k in range(len(self.types)) for p in ("col", "mask")]
        names += [f"k{k}" for k in range(len(self.constants))]
        names += [f"{p}{k}" for k in range(len(self.tables)) for p in ("tv", "ts")]
        names += [f"{p}{k}" for k in range(len(self.hosts)) for p in ("hv", "hs")]
        for k, job in enumerate(jobs):
            names += [f"{p}{k}_{a}" for a in range(len(job.exprs)) for p in ("out", "ok")]
        return names


def _dtype(kind: DataType) -> np.dtype[Any]:
    return np.dtype(np.uint8 if kind.storage == "bool" else kind.storage)


class Kernel:
    """The compiled expressions. ``run`` can be called with many sets of rows."""

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
        self.function = module.kernel
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

    def _constant(self, constant: Literal | int) -> Any:
        if isinstance(constant, int):
            return np.int64(constant)
        if constant.type.is_text:
            return np.int64(self._code(constant.value))
        if constant.type.is_fraction:
            return np.float64(constant.value)
        return np.int64(constant.value)

    def run(self, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Per expression, its result for each row."""
        n = len(rows)
        columns = [a for k in range(len(self.types)) for a in self._column(k, rows)]
        constants = [self._constant(c) for c in self.scope.constants]
        hosts = [
            (np.zeros(n, _dtype(s.type)), np.zeros(n, np.uint8)) for s in self.scope.hosts
        ]
        outputs = [
            [(np.zeros(n, _dtype(e.type)), np.zeros(n, np.uint8)) for e in job.exprs]
            for job in self.jobs
        ]
        results = []
        for k, job in enumerate(self.jobs):
            errors = self._loop(k, n, columns, constants, hosts, outputs)
            if job.host is None:
                results.append([self._result(job.exprs[0], outputs[k][0], errors, i)
                                for i in range(n)])
                continue
            arguments = [
                (v, np.where(errors != 0, 2, ok).astype(np.uint8)) for v, ok in outputs[k]
            ]
            hosts[self.scope.hosts.index(job.host)] = compute_host_column(
                job.host, arguments, self.dictionary
            )
        return results

    def _loop(self, job, n, columns, constants, hosts, outputs) -> np.ndarray:
        need, errors = np.zeros(2, np.int64), np.zeros(n, np.int64)
        flat = [a for out in outputs for pair in out for a in pair]
        while True:
            self.tables.extend()
            tables = [a for pair in self.tables.arrays() for a in pair]
            rank = self.dictionary.rank()
            given = [*columns, *constants, *tables, *(a for h in hosts for a in h), *flat]
            errors[:] = 0
            if self.function(job, n, errors, need, rank, *given) == 0:
                return errors
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
    """The slow evaluation of the same row."""
    try:
        return evaluate(expr, row)
    except EvaluationError as error:
        return Failed(error.kind)


def same(a: Any, b: Any, ulps: int = 0) -> bool:
    """Equal bit by bit, NaNs alike; floats may differ by ``ulps``. Failures are alike."""
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
