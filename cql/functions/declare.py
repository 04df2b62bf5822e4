"""Declaring functions in Python: ``cql.function``, and what ``connect(functions=…)`` takes.

    @cql.function("double", args=["double", "double"])
    def hypotenuse(a, b):
        return math.sqrt(a * a + b * b)

    @cql.function
    def shout(text: str) -> str:
        return text.upper() + "!"

    session = cql.connect(functions=[hypotenuse, shout])

A declaration states that the function is a pure function of its arguments: the engine may reuse a
result, may call the function again for the same arguments, and may skip a call whose result no
operator reads.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import traceback
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from cql.base import types as t
from cql.base.foreign import error_text, object_text
from cql.base.reentrancy import OneAtATime
from cql.errors import BindError, CatalogError, CqlError
from cql.functions.checks import (
    USAGE,
    Type,
    annotated,
    check_null_handling,
    check_spelling,
    checked_name,
    data_type,
    signature,
)
from cql.functions.declare_aggregate import declare_aggregate, is_definition
from cql.functions.declare_operator import renamed

if TYPE_CHECKING:
    from cql.planner.functions.user.aggregates import UserAggregate
    from cql.planner.functions.user.functions import UserFunction
    from cql.planner.functions.user.operators import UserOperator

    Declared: TypeAlias = UserFunction | UserAggregate | UserOperator
#: The values that ``connect(functions=…)`` accepts.
Functions: TypeAlias = "Iterable[Any] | Mapping[str, Any] | ModuleType | str | Path"


def function(
    returns: Type | Callable[..., Any] | None = None,
    *,
    args: Sequence[Type] | None = None,
    name: str | None = None,
    null_handling: str = "default",
    parallel: bool | None = None,
) -> Any:
    """Declares a Python function as an SQL function; the decorated name stays callable.

    ``returns`` and ``args`` are SQL types (``"bigint"``, ``"decimal(10,2)"``) or Python types;
    missing types come from the annotations (int is bigint, float is double, str is string).
    ``null_handling``: "default" gives NULL for a NULL argument, without a call; "call" passes None.
    ``parallel`` None lets several threads run the function at once. True does too, and states that
    this is faster because the function releases the GIL (as numpy does in large operations). False
    forbids concurrent calls, and compilation. Raises BindError for a type that is missing or that
    no column can have, and for the name of a function of the engine."""
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
    """The declaration of the Python function ``made``, or of an aggregate; see ``function``. An
    operator, which is declared already, gets the ``name``."""
    from cql.planner.functions.user.functions import UserFunction
    from cql.planner.functions.user.operators import UserOperator

    if type(made) is UserOperator:
        return made if name is None else renamed(made, name)
    if is_definition(made):
        return declare_aggregate(made, name, args, returns, null_handling, parallel)
    if type(made) is UserFunction:
        made = made.function
    if not callable(made):
        raise BindError(f"a function is needed, not {object_text(made)}", hint=USAGE)
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
    except Exception:  # a user's object that raises in an attribute access is no function
        return False


def _own_name(made: object) -> str:
    """The object's ``__name__``; an empty text if the attribute is no text or raises."""
    try:
        return str.__str__(getattr(made, "__name__", ""))
    except Exception:
        return ""


# -- several at once ---------------------------------------------------------------------------


def collect(functions: Functions) -> list[Declared]:
    """The declarations of a module, of a module's file, of a list of functions, or of a mapping of
    names to functions.

    The functions of a list or a mapping, and the classes that are aggregates, may be declared or
    only annotated."""
    return list(_collect(functions))


def _collect(functions: Functions) -> Iterator[Declared]:
    from cql.planner.functions.user.operators import UserOperator

    if isinstance(functions, str | Path):
        functions = load(functions)
    if isinstance(functions, ModuleType):
        found = [v for v in vars(functions).values() if is_declared(v)]
        if not found:
            raise BindError(
                f"the module {functions.__name__} declares no function",
                hint="decorate them with @cql.function, @cql.aggregate or @cql.operator",
            )
        yield from dict.fromkeys(found)
        return
    if isinstance(functions, Mapping):
        for name, made in functions.items():
            if type(made) is UserOperator:
                yield renamed(made, name)
            elif is_declared(made):
                kinds, result = [k for _, k in made.parameters], made.returns
                nulls = "call" if made.sees_null else "default"
                yield declare(made, name, kinds, result, nulls, made.parallel)
            else:
                yield declare(made, name, None, None, "default")
        return
    for made in typing.cast("Iterable[Any]", functions):
        yield made if is_declared(made) else declare(made, None, None, None, "default")


def is_declared(value: object) -> bool:
    from cql.planner.functions.user.aggregates import UserAggregate
    from cql.planner.functions.user.functions import UserFunction
    from cql.planner.functions.user.operators import UserOperator

    return type(value) in (UserFunction, UserAggregate, UserOperator)


def load(source: str | Path) -> ModuleType:
    """Loads a module by its file's path or by its name; CatalogError if the module fails."""
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
    message = error_text(error)
    name, _, text = message.partition(": ")
    return f"{source} raised {name}{line}" + (f": {text}" if text else "")
