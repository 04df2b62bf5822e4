"""How a kernel calls a user function: by address, with its arguments in the descriptor.

The text of a kernel contains the place of the address, never the function's code, so that kernels
on disk stay valid when a name is redefined. ``int64 f(int64 own, int64 arguments, int64 results)``
reads 64-bit words and returns a status: 0 NULL, 1 valid, 2 error. numba compiles the function where
it can; otherwise the address calls Python (``kernels.lib.python_calls``), which finds the function
by ``own``. The caller cannot tell the difference.

numba fixes captured values (globals, closures) when it compiles, at the first use in a query. It
compiles called functions along, with Python's arithmetic (``udf.arithmetic``).
"""

from __future__ import annotations

import ctypes
import re
import struct
import threading
import types as python_types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from numba import types
from numba.core import ir
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.core.untyped_passes import InlineClosureLikes
from numba.extending import intrinsic

from cql.base.call_timeout import Limit, TimeLimitError
from cql.base.foreign import error_text
from cql.base.recursion import deep_stack
from cql.base.types import DataType, Kind
from cql.base.uninterruptible import uninterruptible
from cql.executor.codegen.expressions.scope import Called
from cql.executor.codegen.expressions.udf import flat
from cql.executor.jit.decorators import cfunc, njit
from cql.executor.jit.pipeline import passes
from cql.executor.kernels.lib.memory import bits_of_f64, words
from cql.executor.kernels.lib.python_calls import ERROR, call_python, python_function
from cql.executor.udf import arithmetic, loop_limit
from cql.planner.functions.user.aggregates import UserMethod
from cql.planner.functions.user.functions import UserFunction
from cql.planner.interpret.error import EvaluationError
from cql.planner.nodes.expr import Value

NULL, VALID = 0, 1
_COMPILED_KINDS = frozenset(
    (
        Kind.BOOLEAN,
        Kind.TINYINT,
        Kind.SMALLINT,
        Kind.INT,
        Kind.BIGINT,
        Kind.FLOAT,
        Kind.DOUBLE,
    )
)
_lock = threading.RLock()  # numba compiles one function at a time anyway


@dataclass(frozen=True, slots=True)
class UserCode:
    """A function as one operator calls it, at the address ``made.address``. ``python`` is the
    Python callback and the list of exceptions that interrupted it (Ctrl-C). ``limits`` has, by
    thread, the calls that exceeded the time limit. The operator raises both kinds."""

    made: _Made
    python: tuple[Callable[[int, int], int], list[BaseException]]
    limits: dict[int, TimeLimitError]

    @property
    def own(self) -> int:
        return id(self.python)

    @property
    def interrupts(self) -> list[BaseException]:
        return self.python[1]


@dataclass(frozen=True, slots=True)
class _Made:
    """``why`` is the reason for not compiling; None if compiled. ``keep`` holds the machine
    code."""

    address: int
    why: str | None
    keep: object = None


_known: weakref.WeakKeyDictionary[Called, _Made] = weakref.WeakKeyDictionary()


def code_of(function: Called) -> UserCode:
    """The code of ``function`` for one operator; compiled once per function. No argument or result
    may be text."""
    interrupts: list[BaseException] = []
    limits: dict[int, TimeLimitError] = {}
    called = _in_python(function, interrupts, limits)
    return UserCode(_made(function), (called, interrupts), limits)


def _made(function: Called) -> _Made:
    return _known.get(function) or uninterruptible(lambda: _made_once(function))


def _made_once(function: Called) -> _Made:
    with _lock:
        found = _known.get(function)
        if found is None:
            found = _known[function] = _make(function)
    return found


def why_in_python(function: Called) -> str | None:
    """Why a function runs in Python; None if it is compiled."""
    return _refusal(function) or _made(function).why


def _refusal(function: Called) -> str | None:
    """The reason, from the declaration alone, for not compiling; None if there is none."""
    if function.parallel is False:
        return "parallel=False lets one thread run it at a time"
    if function.sees_null:
        return "null_handling='call' hands None over"
    for kind in (*flat(function.shape), *function.results):
        if kind.kind not in _COMPILED_KINDS:
            return f"a {kind} is an object of Python there"
    return None


def _make(function: Called) -> _Made:
    compiled = _refusal(function) or _compile_or_why(function)
    if isinstance(compiled, str):
        return _Made(python_function.address, compiled)
    return _Made(compiled.address, None, compiled)


# -- words -------------------------------------------------------------------------------------


def to_word(value: Value, kind: DataType) -> int:
    """A stored value as the 64-bit word of an argument; NULL is 0."""
    if value is None:
        return 0
    if kind.is_fraction:
        return int(struct.unpack("q", struct.pack("d", value))[0])
    return int(value)


def from_word(word: int, kind: DataType) -> Value:
    if kind.is_fraction:
        return float(struct.unpack("d", struct.pack("q", word))[0])
    return word != 0 if kind.kind is Kind.BOOLEAN else word


# -- in Python -----------------------------------------------------------------------------------


def _in_python(
    function: Called, interrupts: list[BaseException], limits: dict[int, TimeLimitError]
) -> Callable[[int, int], int]:
    """The callback for ``call_python``. The arguments of a function that sees NULL are followed by
    their validity flags. After an interrupt every call fails: a kernel first delivers the rows
    before the failing one, then calls again."""
    kinds, results, masked = flat(function.shape), function.results, function.sees_null
    n = len(kinds)
    own = weakref.ref(function)  # the declaration owns its code; a strong reference would cycle

    def callback(arguments: int, address: int) -> int:
        if interrupts:
            return ERROR
        given = (ctypes.c_int64 * (2 * n if masked else n)).from_address(arguments)
        row = [from_word(given[k], kind) for k, kind in enumerate(kinds)]
        if masked:
            row = [v if given[n + k] else None for k, v in enumerate(row)]
        declared = own()
        assert declared is not None
        try:
            values = declared.compute(row)
        except EvaluationError:
            return ERROR
        except TimeLimitError as error:
            limits[threading.get_ident()] = error
            return ERROR
        if values is None:
            return NULL
        words = (ctypes.c_int64 * len(results)).from_address(address)
        for k, (value, kind) in enumerate(zip(values, results, strict=True)):
            words[k] = to_word(value, kind)
        return VALID

    return callback


# -- compiled ------------------------------------------------------------------------------------


def _compile_or_why(function: Called) -> Any:
    """The cfunc of ``function``, or a one-line reason why there is none. Where the cfunc raises,
    Python calls the function again and decides what is an error."""
    try:
        with _lock, deep_stack():
            return _compile(function)
    except _RefusedError as refused:
        return str(refused)
    except NumbaError as error:
        return _reason(error)
    except Exception as error:  # faults of numba, or of objects that the function captures
        return f"in numba: {_first_line(error_text(error))}"


class _RefusedError(Exception):
    """The reason why a function is not compiled."""


def _compile(function: Called) -> Any:
    plain = _plain(function)
    if not isinstance(plain, python_types.FunctionType):
        raise _RefusedError(f"a {type(plain).__name__} is no function written in Python")
    _compiling.reason, _compiling.limit = None, function.limit
    inner = _dispatcher(plain)
    signature = tuple(_numba_type(part) for part in function.shape)
    try:
        inner.compile(signature)
    except NumbaError:
        if _compiling.reason is not None:
            raise _RefusedError(_compiling.reason) from None
        raise
    made = inner.overloads[signature].signature.return_type
    load = _loader(signature)
    if function.gives_tuple:
        _check_state(made, function.results)
        store = _tuple_storer(function.results)
    else:
        (result,) = function.results
        _check_result(made, result)
        store = _storer(result)

    def call(own: int, arguments: int, results: int) -> int:
        try:
            value = inner(*load(arguments))
            if value is None:
                return NULL
            if store(results, value):
                return VALID
        except Exception:  # numba compiles no narrower clause; Python repeats the call
            pass
        return call_python(own, arguments, results)

    return cfunc("int64(int64, int64, int64)", nopython=True)(call)


def _check_result(made: Any, wanted: DataType) -> None:
    """Refuses a function whose inferred type differs from the declared: 2.5 is no bigint, compiled
    or not."""
    inner = types.unliteral(made.type if isinstance(made, types.Optional) else made)
    if wanted.kind is Kind.BOOLEAN:
        fits = isinstance(inner, types.Boolean)
    elif wanted.is_integer:
        fits = isinstance(inner, types.Boolean) or (
            isinstance(inner, types.Integer) and (inner.signed or inner.bitwidth < 64)
        )
    else:
        fits = isinstance(inner, types.Boolean | types.Integer | types.Float)
    if not fits:
        raise _RefusedError(f"it returns {inner} as numba sees it, not {wanted}")


def _check_state(made: Any, wanted: Sequence[DataType]) -> None:
    if not isinstance(made, types.BaseTuple) or len(made) != len(wanted):
        raise _RefusedError(f"it returns {made} as numba sees it, not a tuple of {len(wanted)}")
    for part, kind in zip(made.types, wanted, strict=True):
        if isinstance(part, types.Optional):
            raise _RefusedError("its state can hold None")
        _check_result(part, kind)


def _numba_type(kind: DataType | tuple[DataType, ...]) -> Any:
    if isinstance(kind, tuple):
        return types.Tuple(tuple(_numba_type(part) for part in kind))
    if kind.kind is Kind.BOOLEAN:
        return types.boolean
    return types.float64 if kind.is_fraction else types.int64


def _loader(signature: tuple[Any, ...]) -> Any:
    """``f(address)``: the words at ``address`` as a tuple of numba's types, nested as the
    signature."""
    wanted = types.Tuple(signature)

    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            count = 0

            def loaded(kind: Any) -> Any:
                nonlocal count
                if isinstance(kind, types.BaseTuple):
                    parts = [loaded(part) for part in kind.types]
                    return context.make_tuple(builder, kind, parts)
                word = types.float64 if kind == types.float64 else types.int64
                pointer = context.get_value_type(word).as_pointer()
                at = builder.add(args[0], context.get_constant(types.int64, 8 * count))
                count += 1
                value = builder.load(builder.inttoptr(at, pointer))
                return context.cast(builder, value, word, kind)

            return loaded(wanted)

        return wanted(types.int64), codegen

    return load


def _storer(kind: DataType) -> Any:
    """``f(address, value)``: stores a result; returns False if ``kind`` cannot hold it."""
    if kind.kind is Kind.FLOAT:

        @njit("boolean(int64, float64)")
        def store(results: int, value: float) -> bool:
            words(results, 1)[0] = bits_of_f64(types.float64(types.float32(value)))
            return True

    elif kind.is_fraction:

        @njit("boolean(int64, float64)")
        def store(results: int, value: float) -> bool:
            words(results, 1)[0] = bits_of_f64(value)
            return True

    else:
        bits = 8 * (1 if kind.kind is Kind.BOOLEAN else int(kind.storage.removeprefix("int")) // 8)
        least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

        @njit("boolean(int64, int64)")
        def store(results: int, value: int) -> bool:
            if not least <= value <= most:
                return False
            words(results, 1)[0] = value
            return True

    return store


def _tuple_storer(kinds: Sequence[DataType]) -> Any:
    """``f(address, values)``: stores a tuple of results; returns False if one does not fit."""

    @njit
    def store(results: int, values: Any) -> bool:
        return True

    for kind in reversed(kinds):
        store = _first_and_rest(_storer(kind), store)
    return store


def _first_and_rest(first: Any, rest: Any) -> Any:
    @njit
    def store(results: int, values: Any) -> bool:
        return first(results, values[0]) and rest(results + 8, values[1:])

    return store


# -- the code of the user --------------------------------------------------------------------------


class _Compiling(threading.local):
    """Per thread: the functions being compiled, innermost last, their time limit, and the reason
    for which the rewriter refused one inside numba."""

    def __init__(self) -> None:
        self.functions: list[object] = []
        self.limit: Limit | None = None
        self.reason: str | None = None


_compiling = _Compiling()
#: By called function and time limit: its dispatcher.
_dispatchers: weakref.WeakKeyDictionary[Any, dict[Limit | None, Any]] = weakref.WeakKeyDictionary()


def _refuse(reason: str) -> NoReturn:
    """Aborts the compilation; numba lets only its own errors through."""
    _compiling.reason = reason
    raise NumbaError(reason)


def _plain(value: object) -> Any:
    """The Python function behind a declared or an already compiled function."""
    while True:
        if isinstance(value, UserFunction | UserMethod):
            value = value.function
        elif isinstance(value, Dispatcher):
            value = value.py_func
        else:
            return value


def _dispatcher(function: Any) -> Any:
    return njit(function, pipeline_class=_UserCompiler, cache=False, nogil=True)


@register_pass(mutates_CFG=False, analysis_only=False)
class _PythonArithmetic(FunctionPass):
    """Replaces numba's arithmetic by checked arithmetic, and compiles called functions.

    It refuses a recursive function: compiled code would overflow its stack and end the process,
    where Python raises."""

    _name = "cql_python_arithmetic"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        rewriter = _Rewriter(state)
        for block in state.func_ir.blocks.values():
            body: list[Any] = []
            for statement in block.body:
                if isinstance(statement, ir.Assign):
                    rewriter.assign(statement, body)
                body.append(statement)
            block.body = body
        if _compiling.limit is not None:
            _limit_rounds(state.func_ir, _compiling.limit)
        return True


def _limit_rounds(function: Any, limit: Limit) -> None:
    """Counts the rounds of every loop, so that a loop over the time limit raises."""
    if function.func_id.func.__code__.co_exceptiontable:
        _refuse("under a time limit what has try or with runs in Python")
    blocks = function.blocks
    headers = {loop.header for loop in compute_cfg_from_blocks(blocks).loops().values()}
    if not headers:
        return
    first = blocks[min(blocks)]
    scope, loc = first.scope, first.loc
    rounds, step = ir.Var(scope, "cql_rounds", loc), ir.Var(scope, "$cql_round", loc)
    for name in (rounds.name, step.name):
        scope.localvars.define(name, ir.Var(scope, name, loc))
    for header in headers:
        blocks[header].body[:0] = [
            ir.Assign(ir.Global("round_of_a_loop", loop_limit.counter(limit), loc), step, loc),
            ir.Assign(ir.Expr.call(step, (rounds,), (), loc), rounds, loc),
        ]
    first.body.insert(0, ir.Assign(ir.Const(0, loc), rounds, loc))


class _Rewriter:
    def __init__(self, state: Any) -> None:
        self.state = state
        self.found: dict[str, Any] = {}  # variable → the module or constant that it holds
        self.count = 0

    def assign(self, statement: Any, before: list[Any]) -> None:
        value, name = statement.value, statement.target.name
        match value:
            case ir.Global() | ir.FreeVar():
                self._known(statement, value.value)
            case ir.Const():
                self._constant(value.value)
                self.found[name] = value.value
            case ir.Var():
                if value.name in self.found:
                    self.found[name] = self.found[value.name]
            case ir.Expr(op="getattr") if isinstance(
                self.found.get(value.value.name), python_types.ModuleType
            ):
                module = self.found[value.value.name]
                if hasattr(module, value.attr):
                    self._known(statement, getattr(module, value.attr))
            case ir.Expr(op="binop" | "inplace_binop"):
                self._operator(statement, value.fn, (value.lhs, value.rhs), before)
            case ir.Expr(op="unary"):
                self._operator(statement, value.fn, (value.value,), before)

    def _constant(self, value: Any) -> None:
        if type(value) is int and not -(2**63) <= value < 2**63:
            _refuse(f"the constant {value} has more than 64 bits")

    def _known(self, statement: Any, value: Any) -> None:
        """Handles a global: replaces it if it has a checked version or is a Python function."""
        name, loc = statement.target.name, statement.value.loc
        self._constant(value)
        self.found[name] = value
        checked = arithmetic.FUNCTIONS.get(id(value))
        if checked is not None:
            statement.value = ir.Global(getattr(value, "__name__", "f"), checked, loc)
            return
        plain = _plain(value)
        if not isinstance(plain, python_types.FunctionType):
            return
        if plain is value and self._numba_knows(value):
            return
        if any(plain is other for other in _compiling.functions):
            _refuse(f"{plain.__name__} calls itself")
        known = _dispatchers.setdefault(plain, {})
        if _compiling.limit not in known:
            known[_compiling.limit] = _dispatcher(plain)
        statement.value = ir.Global(plain.__name__, known[_compiling.limit], loc)

    def _numba_knows(self, value: Any) -> bool:
        try:
            self.state.typingctx.resolve_value_type(value)
        except (NumbaError, ValueError):
            return False
        return True

    def _operator(
        self, statement: Any, operator: Any, args: tuple[Any, ...], before: list[Any]
    ) -> None:
        function = arithmetic.OPERATORS.get(operator)
        if function is None:
            return
        if function is arithmetic.checked_pow:
            power = self.found.get(args[1].name)
            if isinstance(power, int) and power >= 0:
                function = arithmetic.checked_power
        scope, loc = statement.target.scope, statement.loc
        self.count += 1
        called = ir.Var(scope, f"$checked_{self.count}", loc)
        scope.localvars.define(called.name, called)
        before.append(ir.Assign(ir.Global(function.__name__, function, loc), called, loc))
        statement.value = ir.Expr.call(called, args, (), loc)


class _UserCompiler(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        return passes(
            self.state, lambda built: built.add_pass_after(_PythonArithmetic, InlineClosureLikes)
        )

    def compile_extra(self, func: Any) -> Any:
        _compiling.functions.append(func)
        try:
            return super().compile_extra(func)
        finally:
            _compiling.functions.pop()


# -- reasons -------------------------------------------------------------------------------------

_NOISE = re.compile(r"\x1b\[[0-9;]*m")
_SKIPPED = ("Failed in", "File ", "During:", "Invalid use of", "[", "Known signatures", " *")


def _first_line(text: str) -> str:
    """The most informative line of numba's report."""
    lines = [" ".join(line.split()) for line in _NOISE.sub("", text).splitlines()]
    causes = [k for k, line in enumerate(lines) if "raised a specific error" in line]
    if causes:
        lines = [line.partition("Error: ")[2] or line for line in lines[causes[-1] + 1 :]]
    kept = [line for line in lines if line and not line.startswith(_SKIPPED)]
    found = next(iter(kept or [line for line in lines if line]), "no reason given")
    return found if len(found) <= 200 else found[:197] + "..."


def _reason(error: NumbaError) -> str:
    return f"numba: {_first_line(str(error))}"
