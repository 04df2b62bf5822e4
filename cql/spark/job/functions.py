"""Functions of a user as text, for another process.

A function travels as the source of a small module: its definition, and what it refers to. That may
be constants, small arrays of numbers, modules that can be imported there, and other functions of
its own module. A function that refers to anything else is refused: nothing is pickled.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import inspect
import linecache
import os
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cql.errors import NotSupportedError
from cql.functions.declare import declare
from cql.functions.declare_operator import declare_operator
from cql.planner.functions.user.aggregates import UserAggregate
from cql.planner.functions.user.functions import UserFunction
from cql.planner.functions.user.operators import UserOperator
from cql.planner.nodes.declaration_json import type_from_json, type_to_json

if TYPE_CHECKING:
    from cql.functions.declare import Declared


def function_to_json(declared: Declared) -> dict[str, Any]:
    """The declaration with its source. Raises NotSupportedError for a function that refers to
    something that cannot travel."""
    made = _made(declared)
    finish = declared.finish if isinstance(declared, UserOperator) else None
    source = _received(made)
    if source is None:
        module = _Module(declared.name)
        module.define(made.__name__, made)
        if finish is not None:
            module.define(finish.__name__, finish)
        source = module.source()
    found = {
        "name": declared.name,
        "object": made.__name__,
        "source": source,
        "args": [type_to_json(kind) for _, kind in declared.parameters],
    }
    if isinstance(declared, UserOperator):
        columns = [[name, type_to_json(kind)] for name, kind in declared.returns]
        state = [[f.name, f.dtype, list(f.shape)] for f in declared.state]
        last = None if finish is None else finish.__name__
        return found | {"columns": columns, "state": state, "finish": last}
    return found | {
        "returns": type_to_json(declared.returns),
        "null_handling": "call" if declared.sees_null else "default",
        "parallel": declared.parallel,
    }


def function_from_json(data: Mapping[str, Any]) -> Declared:
    """The declaration that ``function_to_json`` described. Equal sources give the same object, so
    that a process compiles a function once."""
    made = _namespace(data["source"])[data["object"]]
    kinds = [type_from_json(kind) for kind in data["args"]]
    if "state" in data:
        columns = {name: type_from_json(kind) for name, kind in data["columns"]}
        state = {name: (dtype, tuple(shape)) for name, dtype, shape in data["state"]}
        last = data["finish"]
        finish = None if last is None else _namespace(data["source"])[last]
        return declare_operator(made, data["name"], columns, state, kinds, finish)
    return declare(
        made,
        data["name"],
        kinds,
        type_from_json(data["returns"]),
        data["null_handling"],
        data["parallel"],
    )


@lru_cache(maxsize=256)
def _namespace(source: str) -> dict[str, Any]:
    """The names that the module ``source`` defines. A traceback shows its lines."""
    file = f"{_FILES}{hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": file}
    exec(compile(source, file, "exec"), namespace)
    return namespace


#: The names of the modules that came as source begin so.
_FILES = "<cql "


def _received(made: Any) -> str | None:
    """The source from which ``function_from_json`` made a function; None for others."""
    name = str(made.__module__)
    lines = linecache.getlines(name) if name.startswith(_FILES) else []
    return "".join(lines) or None


def _made(value: object) -> Any:
    """The Python function or class behind a declaration; ``value`` itself if it is none."""
    if isinstance(value, UserFunction | UserOperator):
        return value.function
    return value.definition if isinstance(value, UserAggregate) else value


class _Module:
    """Collects the definitions that a function needs, each behind what it refers to."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._known: dict[str, object] = {}
        self._texts: list[str] = []

    def source(self) -> str:
        return "\n\n".join(self._texts) + "\n"

    def define(self, name: str, value: object) -> None:
        """Adds the definition of ``name``, once."""
        value = _made(value)
        if name in self._known:
            if self._known[name] is not value:
                raise self._refused(f"two things that are called {name}")
            return
        self._known[name] = value
        self._texts.append(self._text(name, value))

    def _text(self, name: str, value: object) -> str:
        if isinstance(value, ModuleType):
            return f"import {value.__name__} as {name}"
        if _is_constant(value):
            return f"{name} = {value!r}"
        if isinstance(value, float):
            return f"{name} = float({str(value)!r})"
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _NUMBERS:
            return self._array(name, np.asarray(value))
        if isinstance(value, FunctionType | type) and not _is_installed(value):
            return self._definition(name, value)
        if isinstance(value, FunctionType | BuiltinFunctionType | type):
            return f"from {value.__module__} import {value.__name__} as {name}"
        raise self._refused(f"{name}, a {type(value).__name__}")

    def _array(self, name: str, value: npt.NDArray[Any]) -> str:
        if value.nbytes > _MOST_BYTES:
            raise self._refused(f"{name}, an array of {value.nbytes:,} bytes ({_MOST_BYTES:,} go)")
        made = f"frombuffer(bytes.fromhex({value.tobytes().hex()!r}), {value.dtype.str!r})"
        shaped = f".reshape({value.shape})" if value.ndim else "[0]"
        return f'{name} = __import__("numpy").{made}{shaped}'

    def _definition(self, name: str, value: FunctionType | type) -> str:
        if value.__name__ != name:
            raise self._refused(f"{name}, another name of {value.__name__}")
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            raise self._refused(f"{name}, whose source is not at hand") from None
        if not isinstance(tree, ast.FunctionDef | ast.ClassDef):
            raise self._refused(f"{name}, which is no def and no class")
        tree.decorator_list = []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                self._without_annotations(node)
        for function in _functions(value):
            self._check_source(name, function, tree)
            for used, held in _references(function):
                self.define(used, held)
        return ast.unparse(tree)

    def _without_annotations(self, node: ast.FunctionDef) -> None:
        """Annotations may refer to names that are not there; defaults must be constants."""
        node.returns = None
        arguments = node.args
        for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            arg.annotation = None
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is None:
                continue
            try:
                ast.literal_eval(default)
            except ValueError:
                raise self._refused(f"the default {ast.unparse(default)}") from None

    def _check_source(self, name: str, function: FunctionType, tree: ast.stmt) -> None:
        """Raises NotSupportedError if the file has changed since it defined the function."""
        if function.__code__.co_freevars:
            return
        module = compile(ast.Module([tree], []), "<source>", "exec")
        found = {_code_of(code) for code in _codes(module)}
        if _code_of(function.__code__) not in found:
            raise self._refused(f"{name}, whose source has changed since it was defined")

    def _refused(self, what: str) -> NotSupportedError:
        return NotSupportedError(
            f"function {self._function} cannot run in another process: it refers to {what}",
            hint="a function travels with the constants, small arrays of numbers, imported modules"
            " and functions of its module that it uses",
        )


#: Arrays of numpy that travel with a function: the kinds of their values, and their bytes.
_NUMBERS, _MOST_BYTES = "biufcmM", 1 << 16


def _is_constant(value: object) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False


def _is_installed(value: FunctionType | type) -> bool:
    """Whether another process can import ``value``: from the standard library or an installed
    package, by its name."""
    module = inspect.getmodule(value)
    file = getattr(module, "__file__", None)
    if module is None or value.__module__ == "__main__":
        return False
    if getattr(module, value.__name__, None) is not value:
        return False
    return file is None or file.startswith(_LIBRARIES)


#: The folders of the standard library and of installed packages.
_LIBRARIES = tuple(sysconfig.get_path(p) + os.sep for p in ("stdlib", "purelib", "platlib"))


def _functions(value: FunctionType | type) -> Iterator[FunctionType]:
    if isinstance(value, FunctionType):
        yield value
        return
    for member in vars(value).values():
        made = member.__func__ if isinstance(member, staticmethod) else member
        if isinstance(made, FunctionType):
            yield made


def _references(function: FunctionType) -> Iterator[tuple[str, object]]:
    """The names that ``function`` takes from around it, with their values. Other names are those of
    builtins, or fail when the function uses them."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        yield name, cell.cell_contents
    for name in dict.fromkeys(_global_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _global_names(code: CodeType) -> Iterator[str]:
    for each in _codes(code):
        for step in dis.get_instructions(each):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                yield step.argval


def _codes(code: CodeType) -> Iterator[CodeType]:
    """``code`` and the code of all functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _code_of(code: CodeType) -> tuple[object, ...]:
    """What a function does, without its place in a file. Imports around a function decide how its
    calls of methods are compiled; that does not count."""
    steps = tuple(
        (_ALIKE.get(step.opname, step.opname), None if step.opcode in _JUMPS else _value_of(step))
        for step in dis.get_instructions(code)
        if step.opname not in _EMPTY
    )
    return code.co_name, code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], steps


def _value_of(step: dis.Instruction) -> object:
    value = step.argval
    return _code_of(value) if isinstance(value, CodeType) else repr(value)


_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_ALIKE = {"LOAD_METHOD": "LOAD_ATTR"}
_EMPTY = frozenset(("CACHE", "NOP", "PRECALL", "PUSH_NULL", "RESUME"))
