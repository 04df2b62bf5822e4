"""Lowers the source of kernels to steps that a model checker can take one at a time.

A function that calls an atomic operation (directly or not) is lowered to *blocks*. A block is a
Python function of the live variables that ends at the next operation or call. A thread that waits
before an operation is therefore a tuple of block numbers and values, which can be compared, kept
and resumed any number of times; a generator cannot. Functions without atomic operations run
unchanged.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import io
import textwrap
import tokenize
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from cql.executor.kernels.lib import atomics

#: The kinds of results of a block; the kind comes first in the result.
OPERATION, CALL, RETURN = range(3)


class Operation:
    """An atomic operation; threads may be switched before it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: int) -> Any:
        raise AssertionError(f"{self.name} was called outside of a model")


ATOMICS = {
    id(getattr(atomics, name)): Operation(name)
    for name in (
        "fetch_add",
        "fetch_add_relaxed",
        "exchange",
        "compare_and_swap",
        "load",
        "load_acquire",
        "load_relaxed",
        "store",
        "store_release",
        "store_relaxed",
        "fence",
        "pause",
    )
}


@dataclass(frozen=True)
class Change:
    """A mistake that a check must find: the text ``old``, which occurs once in the source of
    ``function`` (of a kernel or of a test), is replaced by ``new``."""

    function: Any
    old: str
    new: str


@dataclass(eq=False)
class _Block:
    body: list[ast.stmt] = field(default_factory=list)
    end: tuple[Any, ...] = ()
    live: tuple[str, ...] = ()

    @property
    def followers(self) -> list[_Block]:
        return [part for part in self.end if isinstance(part, _Block)]


class Program:
    """Lowered functions. ``blocks[k](result, *variables)`` returns (OPERATION, name, arguments,
    whether the result is used, the next block, its variables), (CALL, entry block, arguments, the
    next block, its variables) or (RETURN, value). ``replaced`` maps the id or the name of a global
    to its replacement."""

    def __init__(self, replaced: Mapping[int | str, Any], changes: Sequence[Change] = ()) -> None:
        self.blocks: list[Callable[..., tuple[Any, ...]]] = []
        self.names: list[str] = []
        self._replaced, self._changes = {**ATOMICS, **replaced}, changes
        self._entries: dict[Any, int] = {}
        self._plain: dict[Any, Callable[..., Any]] = {}
        self._steps: dict[Any, bool] = {}

    def entry(self, function: Any) -> int:
        """The number of the first block of a function."""
        f = _source_of(function)
        if f not in self._entries:
            self._entries[f] = self.reserve(f.__name__)
            _Lowering(self, f).lower(self._entries[f])
        return self._entries[f]

    def reserve(self, name: str) -> int:
        self.blocks.append(lambda *_: (RETURN, None))
        self.names.append(name)
        return len(self.blocks) - 1

    def tree(self, f: Any) -> ast.FunctionDef:
        text = _text(f)
        for change in self._changes:
            if _source_of(change.function) is f:
                assert text.count(change.old) == 1, f"{f.__name__} has not once: {change.old}"
                text = text.replace(change.old, change.new)
        tree = ast.parse(text).body[0]
        assert isinstance(tree, ast.FunctionDef)
        tree.decorator_list, tree.returns = [], None
        for arg in tree.args.args:
            arg.annotation = None
        return tree

    def resolve(self, f: Any, name: str) -> Any:
        """The value of a global of a function, or its replacement."""
        if name in self._replaced:
            return self._replaced[name]
        known = f.__globals__, vars(builtins), vars(atomics)  # a change may name any operation
        value = next((space[name] for space in known if name in space), None)
        return self._replaced.get(id(value), value)

    def steps(self, function: Any) -> bool:
        """Whether a function calls an operation, directly or not."""
        f = _source_of(function)
        if f not in self._steps:
            self._steps[f] = False  # for the recursive call of a function that calls itself
            called = (self.callee(f, n) for n in ast.walk(self.tree(f)))
            self._steps[f] = any(c is not None for c in called)
        return self._steps[f]

    def callee(self, f: Any, node: ast.AST) -> Any:
        """The operation, or the function with operations, that ``node`` calls; else None."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        value = self.resolve(f, node.func.id)
        if isinstance(value, Operation):
            return value
        return value if _has_source(value) and self.steps(value) else None

    def namespace(self, f: Any, tree: ast.AST) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                value = self.resolve(f, node.id)
                if not _has_source(value):
                    found[node.id] = value
                elif not self.steps(value):
                    found[node.id] = self.plain(value)
        return found

    def plain(self, function: Any) -> Callable[..., Any]:
        """A function without operations, compiled from its source with the changes."""
        f = _source_of(function)
        if f not in self._plain:
            tree = self.tree(f)
            space = self.namespace(f, tree)
            _execute([tree], space)
            self._plain[f] = space[tree.name]
        return self._plain[f]


def _source_of(function: Any) -> Any:
    return getattr(function, "py_func", function)


@cache
def _text(f: Any) -> str:
    """The source of a function without its comments, so that no mistake depends on their words."""
    lines = textwrap.dedent(inspect.getsource(f)).splitlines()
    tokens = [*tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline)]
    for token in tokens:
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    return "\n".join(line for line in lines if line) + "\n"


def _has_source(value: Any) -> bool:
    return inspect.isfunction(_source_of(value))


def _execute(body: list[ast.stmt], space: dict[str, Any]) -> None:
    module = ast.fix_missing_locations(ast.Module(body, []))
    exec(compile(module, "<lowered>", "exec"), space)


def _name(text: str) -> ast.Name:
    return ast.Name(text, ast.Load())


def _assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _tuple(parts: Iterable[ast.expr]) -> ast.Tuple:
    return ast.Tuple(list(parts), ast.Load())


class _Lowering:
    def __init__(self, program: Program, f: Any) -> None:
        self._program, self._f, self._tree = program, f, program.tree(f)
        self._blocks = [_Block()]
        self._now = self._blocks[0]
        self._loops: list[tuple[_Block, _Block]] = []  # where ``continue`` and ``break`` go
        self._temporaries = 0

    def lower(self, entry: int) -> None:
        args = [a.arg for a in self._tree.args.args]
        self._statements(self._tree.body)
        self._end("return", ast.Constant(None))
        self._blocks = [b for b in self._blocks if b.end]  # others are unreachable, after a return
        self._find_live()
        numbers = {
            b: entry if k == 0 else self._program.reserve(self._f.__name__)
            for k, b in enumerate(self._blocks)
        }
        first = self._blocks[0]
        first.body[:0] = [_assign(n, ast.Constant(None)) for n in first.live if n not in args]
        first.live = tuple(args)
        space = self._program.namespace(self._f, self._tree)
        _execute([self._function(b, numbers) for b in self._blocks], space)
        for number in numbers.values():
            self._program.blocks[number] = space[f"block_{number}"]

    # -- blocks ------------------------------------------------------------------------------------

    def _new(self) -> _Block:
        block = _Block()
        self._blocks.append(block)
        return block

    def _end(self, kind: str, *parts: Any, then: _Block | None = None) -> None:
        if not self._now.end:
            self._now.end = (kind, *parts)
        self._now = then or self._new()

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}_"

    def _keep(self, value: ast.expr) -> ast.expr:
        """Stores a value in a temporary unless the rest of the expression cannot change it."""
        if isinstance(value, ast.Constant) or (
            isinstance(value, ast.Name) and value.id != "result_"
        ):
            return value
        name = self._temporary()
        self._now.body.append(_assign(name, value))
        return _name(name)

    # -- statements --------------------------------------------------------------------------------

    def _leaves(self, node: ast.AST) -> bool:
        """Whether control leaves the block inside ``node``: by an operation, a call or a jump."""
        is_loop = isinstance(node, ast.For | ast.While)
        jumps = (ast.Return,) if is_loop else (ast.Return, ast.Break, ast.Continue)
        return any(
            isinstance(n, jumps) or self._program.callee(self._f, n) is not None
            for n in ast.walk(node)
        )

    def _statements(self, body: list[ast.stmt]) -> None:
        for node in body:
            if self._leaves(node):
                self._statement(node)
            else:
                self._now.body.append(node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(ast.Call() as call):
                self._call(call, used=False)
            case ast.Assign(targets, value) if not any(map(self._leaves, targets)):
                flat = self._flat(value)
                self._now.body.append(ast.Assign(targets, flat))
            case ast.AnnAssign(target, _, ast.expr() as value):
                self._statement(ast.Assign([target], value))
            case ast.AugAssign(ast.Name(name), op, value):
                self._statement(_assign(name, ast.BinOp(_name(name), op, value)))
            case ast.Return():
                self._end("return", self._flat(node.value or ast.Constant(None)))
            case ast.Break():
                self._end("goto", self._loops[-1][1])
            case ast.Continue():
                self._end("goto", self._loops[-1][0])
            case ast.If(test, body, other):
                yes, no, after = self._new(), self._new(), self._new()
                self._branch(test, yes, no)
                for block, inside in ((yes, body), (no, other)):
                    self._now = block
                    self._statements(inside)
                    self._end("goto", after)
                self._now = after
            case ast.While(test, body):
                head, first, after = self._new(), self._new(), self._new()
                self._end("goto", head, then=head)
                self._branch(test, first, after)
                self._loop(body, first, head, after)
            case ast.For(ast.Name(target), ast.Call(ast.Name("range"), args), body):
                self._for(target, [*map(self._keep, self._flat_all(args))], body)
            case _:
                raise NotImplementedError(ast.unparse(node))

    def _loop(self, body: list[ast.stmt], first: _Block, again: _Block, after: _Block) -> None:
        self._now = first
        self._loops.append((again, after))
        self._statements(body)
        self._loops.pop()
        self._end("goto", again, then=after)

    def _for(self, target: str, bounds: list[ast.expr], body: list[ast.stmt]) -> None:
        """A loop over a range with a positive step."""
        assert not _names(body, ast.Store) & _names(bounds, ast.Load)
        start, stop, step = {
            1: (ast.Constant(0), *bounds, ast.Constant(1)),
            2: (*bounds, ast.Constant(1)),
            3: tuple(bounds),
        }[len(bounds)]
        at = self._temporary()
        head, first, again, after = (self._new() for _ in range(4))
        self._now.body.append(_assign(at, start))
        self._end("goto", head, then=head)
        self._branch(ast.Compare(_name(at), [ast.Lt()], [stop]), first, after)
        first.body.append(_assign(target, _name(at)))
        self._loop(body, first, again, after)
        again.body.append(_assign(at, ast.BinOp(_name(at), ast.Add(), step)))
        again.end = ("goto", head)

    def _branch(self, test: ast.expr, yes: _Block, no: _Block) -> None:
        match test:
            case ast.BoolOp(op, values) if self._leaves(test):
                for value in values[:-1]:
                    more = self._new()
                    pair = (more, no) if isinstance(op, ast.And) else (yes, more)
                    self._branch(value, *pair)
                    self._now = more
                self._branch(values[-1], yes, no)
            case ast.UnaryOp(ast.Not(), inner):
                self._branch(inner, no, yes)
            case _:
                self._end("branch", self._flat(test), yes, no)

    # -- expressions -------------------------------------------------------------------------------

    def _call(self, node: ast.Call, *, used: bool) -> ast.expr:
        """Ends the block with a call that has operations; the expression of its result."""
        called = self._program.callee(self._f, node)
        args = self._flat_all(node.args)
        if called is None:  # only its arguments have operations
            call = ast.Call(node.func, args, [])
            if not used:
                self._now.body.append(ast.Expr(call))
            return call
        then, text = self._new(), f"{self._f.__name__}: {ast.unparse(node)}"
        self._end("call", called, args, used, text, then, then=then)
        return self._keep(_name("result_")) if used else ast.Constant(None)

    def _flat(self, node: ast.expr) -> ast.expr:
        """An expression of the same value without operations, which are performed before it."""
        if not self._leaves(node):
            return node
        match node:
            case ast.Call():
                return self._call(node, used=True)
            case ast.IfExp(test, one, other):
                return self._choice(test, one, other)
            case ast.BoolOp(_, parts) if all(isinstance(p, ast.Compare) for p in parts):
                return self._choice(node, ast.Constant(True), ast.Constant(False))
            case ast.Tuple(parts):
                return _tuple(self._flat_all(parts))
            case ast.BinOp(left, op, right):
                a, b = self._flat_all([left, right])
                return ast.BinOp(a, op, b)
            case ast.UnaryOp(op, operand):
                return ast.UnaryOp(op, self._flat(operand))
            case ast.Compare(left, [op], [right]):
                a, b = self._flat_all([left, right])
                return ast.Compare(a, [op], [b])
            case ast.Subscript(value, at, ast.Load()):
                a, b = self._flat_all([value, at])
                return ast.Subscript(a, b, ast.Load())
        raise NotImplementedError(ast.unparse(node))

    def _flat_all(self, nodes: Sequence[ast.expr]) -> list[ast.expr]:
        found: list[ast.expr] = []
        for k, node in enumerate(nodes):
            value = self._flat(node)
            if any(self._leaves(n) for n in nodes[k + 1 :]):
                value = self._keep(value)
            found.append(value)
        return found

    def _choice(self, test: ast.expr, one: ast.expr, other: ast.expr) -> ast.expr:
        name, yes, no, after = self._temporary(), self._new(), self._new(), self._new()
        self._branch(test, yes, no)
        for block, value in ((yes, one), (no, other)):
            self._now = block
            flat = self._flat(value)
            self._now.body.append(_assign(name, flat))
            self._end("goto", after)
        self._now = after
        return _name(name)

    # -- live variables ----------------------------------------------------------------------------

    def _find_live(self) -> None:
        """Finds the live variables of each block: only these belong to the state of a thread."""
        local = {a.arg for a in self._tree.args.args}.union(
            *(_names([s], ast.Store) for b in self._blocks for s in b.body)
        )
        # The variables that a block reads before it sets them, and the variables that it sets.
        first: dict[_Block, tuple[set[str], set[str]]] = {}
        for block in self._blocks:
            used, defined = _uses(block.body)
            parts = [p for part in block.end for p in (part if type(part) is list else [part])]
            at_end = _names([p for p in parts if isinstance(p, ast.AST)], ast.Load)
            first[block] = (used | at_end - defined) & local, defined
        live = {block: used for block, (used, _) in first.items()}
        changed = True
        while changed:
            changed = False
            for block in reversed(self._blocks):
                used, defined = first[block]
                new = used.union(*(live[b] - defined for b in block.followers))
                if new != live[block]:
                    live[block], changed = new, True
        for block in self._blocks:
            block.live = tuple(sorted(live[block]))

    # -- code --------------------------------------------------------------------------------------

    def _function(self, block: _Block, numbers: Mapping[_Block, int]) -> ast.stmt:
        def goes(to: _Block) -> ast.stmt:
            args = [ast.Constant(None), *map(_name, to.live)]
            return ast.Return(ast.Call(_name(f"block_{numbers[to]}"), args, []))

        def returned(*parts: Any) -> ast.stmt:
            return ast.Return(
                _tuple(p if isinstance(p, ast.expr) else ast.Constant(p) for p in parts)
            )

        end: list[ast.stmt] = []
        match block.end:
            case ("goto", to):
                end = [goes(to)]
            case ("branch", test, yes, no):
                end = [ast.If(test, [goes(yes)], []), goes(no)]
            case ("return", value):
                end = [returned(RETURN, value)]
            case ("call", called, args, used, text, then):
                rest = numbers[then], _tuple(map(_name, then.live))
                self._program.names[numbers[then]] = text
                if isinstance(called, Operation):
                    end = [returned(OPERATION, called.name, _tuple(args), used, *rest)]
                else:
                    end = [returned(CALL, self._program.entry(called), _tuple(args), *rest)]
        args = ", ".join(("result_", *block.live))
        function = ast.parse(f"def block_{numbers[block]}({args}): pass").body[0]
        assert isinstance(function, ast.FunctionDef)
        function.body = [*block.body, *end]
        return function


def _names(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> set[str]:
    names = (n for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, context)}


def _uses(body: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
    """The names that the statements read before they set them, and the names that they set."""
    used: set[str] = set()
    defined: set[str] = set()
    for node in body:
        match node:
            case ast.If(test, yes, no):
                one, other = _uses(yes), _uses(no)
                used |= (_names([test], ast.Load) | one[0] | other[0]) - defined
                defined |= one[1] & other[1]
            case ast.For(target, over, inner):
                inside = _uses(inner)[0] - _names([target], ast.Store)
                used |= (_names([over], ast.Load) | inside) - defined
            case ast.While(test, inner):
                used |= (_names([test], ast.Load) | _uses(inner)[0]) - defined
            case ast.AugAssign(ast.Name(name)):
                used |= {name, *_names([node], ast.Load)} - defined
            case _:
                used |= _names([node], ast.Load) - defined
                defined |= _names([node], ast.Store)
    return used, defined
