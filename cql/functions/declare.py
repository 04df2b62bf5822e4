"""Declaring functions in Python: ``cql.function``, and what ``connect(functions=…)`` takes.

    @cql.function("double", args=["double", "double"])
    def hypotenuse(a, b):
        return math.sqrt(a * a + b * b)

    @cql.function
    def shout(text: str) -> str:
        return text.upper() + "!"

    session = cql.connect(functions=[hypotenuse, shout])

A function is declared to be a pure function of its arguments: the engine may call it once and keep
the result, call it again, or not call it where nobody reads the result.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import traceback
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import ModuleType, UnionType
from typing import TYPE_CHECKING, Any, TypeAlias

from cql.base import types as t
from cql.base.foreign import error_text, object_text
from cql.base.reentrancy import OneAtATime
from cql.base.types import DataType
from cql.errors import BindError, CatalogError, CqlError

if TYPE_CHECKING:
    from cql.planner.functions.user_aggregates import UserAggregate
    from cql.planner.functions.user_functions import UserFunction

    Declared: TypeAlias = UserFunction | UserAggregate
#: A type: an SQL type's name, a Python type, or a DataType.
Type: TypeAlias = "str | type | DataType"
#: What ``connect(functions=…)`` takes.
Functions: TypeAlias = "Iterable[Any] | Mapping[str, Any] | ModuleType | str | Path"

_PYTHON_TYPES: dict[str, DataType] = {
    "bool": t.BOOLEAN,
    "int": t.BIGINT,
    "float": t.DOUBLE,
    "str": t.STRING,
    "bytes": t.BINARY,
    "date": t.DATE,
    "datetime": t.TIMESTAMP,
    "timedelta": t.INTERVAL,
    "bool_": t.BOOLEAN,
    "int8": t.TINYINT,
    "int16": t.SMALLINT,
    "int32": t.INT,
    "int64": t.BIGINT,
    "float32": t.FLOAT,
    "float64": t.DOUBLE,
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USAGE = 'as in @cql.function("double", args=["bigint", "double"])'


def function(
    returns: Type | Callable[..., Any] | None = None,
    *,
    args: Sequence[Type] | None = None,
    name: str | None = None,
    null_handling: str = "default",
    parallel: bool | None = None,
) -> Any:
    """Declares a Python function as one of SQL; the decorated name stays callable.

    ``returns`` and ``args`` are SQL types (``"bigint"``, ``"decimal(10,2)"``) or Python ones;
    what is not given comes from the annotations (int is bigint, float double, str string).
    ``null_handling``: "default" gives NULL for a NULL argument, without a call; "call" hands None
    over. ``parallel``: several threads may be in it at once, and True says that this is faster, for
    it lets go of the interpreter (numpy does in large operations); False, that they must not, nor
    is it compiled. Raises BindError for a type that is missing or that no column can have, and for
    a name that a function of the engine has."""
    if callable(returns) and not isinstance(returns, type):
        return declare(returns, name, args, None, null_handling, parallel)
    result: Type | None = returns

    def decorate(made: Callable[..., Any]) -> Declared:
        return declare(made, name, args, result, null_handling, parallel)

    return decorate


def declare(
    made: Any,
    name: str | None,
    args: Sequence[Type] | None,
    returns: Type | None,
    null_handling: str,
    parallel: bool | None = None,
) -> Declared:
    """The declaration of the Python function ``made``, or of an aggregate; see ``function``."""
    from cql.functions.declare_aggregate import declare_aggregate, is_definition
    from cql.planner.functions.user_functions import UserFunction

    if is_definition(made):
        return declare_aggregate(made, name, args, returns, null_handling, parallel)
    if type(made) is UserFunction:
        made = made.function
    if not callable(made):
        raise BindError(f"a function is needed, not {object_text(made)}", hint=_USAGE)
    called = checked_name(name if name is not None else _own_name(made))
    check_null_handling(null_handling)
    if _gives_no_value(made):
        raise BindError(f"{called} gives no value: it is a coroutine or a generator")
    names, annotations = signature(called, made, None if args is None else len(args))
    if args is None:
        kinds = [annotated(called, f"argument {n}", annotations.get(n)) for n in names]
    else:
        kinds = [data_type(a, f"argument {k} of {called}") for k, a in enumerate(args, 1)]
    if returns is None:
        result = annotated(called, "the result", annotations.get("return"))
    else:
        result = data_type(returns, f"the result of {called}")
    if result == t.NULL or t.NULL in kinds:
        raise BindError(f"{called}: void is no type of a function")
    doc = (inspect.getdoc(made) or "").strip().partition("\n")[0]
    declared = UserFunction(
        called,
        made,
        tuple(zip(names, kinds, strict=True)),
        result,
        null_handling == "call",
        doc or "A function of yours.",
        parallel=parallel,
        lock=OneAtATime() if parallel is False else None,
    )
    check_spelling(called, len(names))
    return declared


def _gives_no_value(made: object) -> bool:
    try:
        return inspect.iscoroutinefunction(made) or inspect.isgeneratorfunction(made)
    except Exception:  # an object of a user's that raises when it is looked at is no function
        return False


def _own_name(made: object) -> str:
    """Its ``__name__``; none where an object of a user's has no text there, or raises."""
    try:
        return str.__str__(getattr(made, "__name__", ""))
    except Exception:
        return ""


_HELP_NULL = "'default': a NULL argument gives NULL without a call; 'call' hands None over"


def check_null_handling(given: str) -> None:
    if given not in ("default", "call"):
        raise BindError(f"null_handling is 'default' or 'call', not {given!r:.40}", hint=_HELP_NULL)


def checked_name(name: str) -> str:
    """``name``, if a function can be called that."""
    from cql.planner.bind.expressions.expression import is_reserved
    from cql.planner.functions.aggregates import is_aggregate
    from cql.planner.functions.registry import is_taken

    if _NAME.fullmatch(name) is None:
        shown = "a lambda" if name == "<lambda>" else f"{name[:60]!r}"
        raise BindError(f"{shown} is no name of a function", hint="give it one: name='my_function'")
    if is_taken(name) or is_aggregate(name) or is_reserved(name):
        raise BindError(
            f"{name} is a function of the engine", hint=f"choose another: name='my_{name.lower()}'"
        )
    return name


def check_spelling(name: str, count: int) -> None:
    """Refuses names that the grammar reads in a way of its own (keywords, mostly)."""
    from sqlglot import exp

    from cql.dialect import parse_one

    inner = ", ".join(f"a{k}" for k in range(count))
    try:
        (found,) = parse_one(f"SELECT {name}({inner})").expressions
        plain = isinstance(found, exp.Anonymous) and found.name.lower() == name.lower()
    except CqlError:
        plain = False
    if not plain:
        raise BindError(
            f"{name} is a word of the language", hint=f"choose another: name='my_{name.lower()}'"
        )


def signature(
    name: str, made: Callable[..., Any], count: int | None
) -> tuple[list[str], Mapping[str, Any]]:
    """Names of the parameters that SQL passes, and the annotations; ``count`` is how many types
    were given."""
    try:
        parameters = list(inspect.signature(made).parameters.values())
    except Exception:  # some functions written in C do not tell, and objects of users may raise
        parameters = []
        if count is None:
            raise BindError(
                f"the arguments of {name} are not known", hint=f"give their types, {_USAGE}"
            ) from None
        return [f"a{k}" for k in range(1, count + 1)], {}
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    needed = [p for p in plain if p.default is p.empty]
    if count is None:
        if rest:
            raise BindError(f"{name} takes any number of arguments", hint=f"give types, {_USAGE}")
        taken = [p for p in plain if p.default is p.empty or p.annotation is not p.empty]
        count = len(taken)
    names = [p.name for p in plain[:count]]
    names += [f"a{k}" for k in range(len(names) + 1, count + 1)]
    keyword = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if keyword:
        raise BindError(f"{name} needs {keyword[0]} by keyword; SQL passes arguments by position")
    if count < len(needed) or (count > len(plain) and not rest):
        raise BindError(
            f"{name} takes {len(plain)} argument{'' if len(plain) == 1 else 's'},"
            f" and {count} type{' is' if count == 1 else 's are'} given"
        )
    return names, _annotations(made)


def _annotations(made: Callable[..., Any]) -> Mapping[str, Any]:
    plain: Any = made if inspect.isroutine(made) else type(made).__call__
    try:
        return typing.get_type_hints(plain)
    except Exception:  # it evaluates texts, such as "decimal(10,2)", which may raise anything
        return dict(getattr(plain, "__annotations__", {}))


def annotated(name: str, what: str, annotation: Any) -> DataType:
    if annotation is None:
        raise BindError(f"the type of {what} of {name} is not known", hint=f"give types, {_USAGE}")
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        inner = [a for a in typing.get_args(annotation) if a is not type(None)]
        annotation = inner[0] if len(inner) == 1 else annotation
    if isinstance(annotation, str):  # under ``from __future__ import annotations``
        annotation = annotation.strip("'\"")
        word = annotation.removesuffix("| None").strip().rpartition(".")[2]
        if word in _PYTHON_TYPES:
            return _PYTHON_TYPES[word]
    return data_type(annotation, f"{what} of {name}")


def data_type(given: Any, what: str) -> DataType:
    """The type that a user names; ``what`` it is of, for the error."""
    if isinstance(given, DataType):
        return given
    if given is Decimal:
        raise BindError(f"the type of {what} needs its digits", hint='write "decimal(18,2)"')
    if isinstance(given, type):
        known = given.__module__ in ("builtins", "datetime", "numpy")
        if known and given.__name__ in _PYTHON_TYPES:
            return _PYTHON_TYPES[given.__name__]
    elif isinstance(given, str):
        return _sql_type(given, what)
    raise BindError(
        f"the type of {what} is no type of a column: {given!r:.60}",
        hint='an SQL type as text ("bigint", "decimal(10,2)"), or bool, int, float, str, bytes,'
        " date, datetime, timedelta",
    )


def _sql_type(text: str, what: str) -> DataType:
    from cql.dialect import parse_one
    from cql.planner.bind.expressions import literals

    try:
        (cast,) = parse_one(f"SELECT CAST(a AS {text})").expressions
        return literals.data_type(cast.args["to"], None)
    except (CqlError, KeyError, ValueError):
        raise BindError(
            f"{text[:60]!r} is no type (of {what})",
            hint="boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), date,"
            " timestamp, timestamp_ntz, interval, string or binary",
        ) from None


# -- several at once ---------------------------------------------------------------------------


def collect(functions: Functions) -> list[Declared]:
    """The declarations of a module, of a file with one, of a list of functions, or of a mapping of
    names to functions. What a list or a mapping holds may be declared or annotated, and so may
    classes that are aggregates."""
    return list(_collect(functions))


def _collect(functions: Functions) -> Iterator[Declared]:
    if isinstance(functions, str | Path):
        functions = load(functions)
    if isinstance(functions, ModuleType):
        found = [v for v in vars(functions).values() if is_declared(v)]
        if not found:
            raise BindError(
                f"the module {functions.__name__} declares no function",
                hint="decorate them with @cql.function or @cql.aggregate",
            )
        yield from dict.fromkeys(found)
        return
    if isinstance(functions, Mapping):
        for name, made in functions.items():
            if is_declared(made):
                kinds, result = [k for _, k in made.parameters], made.returns
                nulls = "call" if made.sees_null else "default"
                yield declare(made, name, kinds, result, nulls, made.parallel)
            else:
                yield declare(made, name, None, None, "default")
        return
    for made in typing.cast("Iterable[Any]", functions):
        yield made if is_declared(made) else declare(made, None, None, None, "default")


def is_declared(value: object) -> bool:
    from cql.planner.functions.user_aggregates import UserAggregate
    from cql.planner.functions.user_functions import UserFunction

    return type(value) in (UserFunction, UserAggregate)


def load(source: str | Path) -> ModuleType:
    """The module of a Python file (its path) or of a name; CatalogError if it cannot be run."""
    path = Path(source).expanduser()
    is_file = isinstance(source, Path) or path.suffix == ".py" or path.exists()
    try:
        if not is_file:
            return importlib.import_module(str(source))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise CatalogError(f"{path} is no Python file", hint="its name ends in .py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except CqlError:
        raise
    except FileNotFoundError as error:
        if is_file and not path.exists():
            raise CatalogError(f"cannot read {path}: {error.strerror}") from None
        raise CatalogError(_raised(source, error)) from error
    except (Exception, SystemExit) as error:
        raise CatalogError(_raised(source, error)) from error
    return module


def _raised(source: str | Path, error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename.endswith(str(source))]
    line = f" in line {own[-1].lineno}" if own else ""
    said = error_text(error)
    name, _, text = said.partition(": ")
    return f"{source} raised {name}{line}" + (f": {text}" if text else "")
