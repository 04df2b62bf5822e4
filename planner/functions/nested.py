"""The functions of arrays and structs that users call by name, and ``x[i]`` and ``x.field``."""

from __future__ import annotations

from collections.abc import Sequence

from cql.base.types import BIGINT, BOOLEAN, INT, NULL, STRING, DataType, Kind, array, struct
from cql.errors import BindError, NotSupportedError, Position, did_you_mean
from cql.planner.functions import signals
from cql.planner.functions.coercion import cast, common_type, unify
from cql.planner.functions.folding import can_fail
from cql.planner.functions.signals import is_segment, sample
from cql.planner.functions.signature import (
    Builder,
    Signature,
    argument,
    check_ordered,
    literal_text,
    strict,
    wrong,
)
from cql.planner.interpret.nested import element_of
from cql.planner.nodes.expr import Call, Expr, Literal

_CATEGORY = "array and struct"


def _array(args: Sequence[Expr], usage: str, pos: Position | None) -> DataType:
    """The type of the elements of the first argument. Raises BindError if it is no array."""
    if args[0].type.kind is not Kind.ARRAY:
        raise wrong(usage, args, pos)
    return element_of(args[0].type)


def _beside(args: Sequence[Expr], usage: str, pos: Position | None) -> tuple[Expr, Expr]:
    """An array and a value of the type of its elements."""
    element, value = _array(args, usage, pos), args[1]
    is_text = value.type == STRING and element != STRING
    if is_text or common_type((element, value.type)) != element:
        raise BindError(
            f"the elements of {args[0].type} are not compared with {value.type}",
            position=value.pos or pos,
            hint=f"CAST(… AS {element}) says so",
        )
    return args[0], cast(value, element, pos)


def _size(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    if is_segment(args[0]):
        return strict("count", args, BIGINT, pos)
    _array(args, "size(array)", pos)
    return strict("size", args, INT, pos)


def _element(fn: str, usage: str) -> Builder:
    """The element with a number, as ``fn`` counts it."""

    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        element = _array(args, usage, pos)
        number = argument(args[1], INT, usage, 2, pos)
        nullable = args[0].type.contains_null or fn in ("get", "try_element_at")
        return strict(fn, (args[0], number), element, pos, nullable=nullable)

    return build


def _contains(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    pair = _beside(args, "array_contains(array, value)", pos)
    return strict("array_contains", pair, BOOLEAN, pos, nullable=pair[0].type.contains_null)


def _position(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    return strict("array_position", _beside(args, "array_position(array, value)", pos), BIGINT, pos)


def _extreme(fn: str) -> Builder:
    def build(args: tuple[Expr, ...], pos: Position | None) -> Expr:
        element = _array(args, f"{fn}(array)", pos)
        check_ordered(Literal(None, element), fn, args[0].pos or pos)
        return strict(fn, args, element, pos, nullable=True)

    return build


def _slice(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage = "slice(array, start, length)"
    _array(args, usage, pos)
    places = (argument(a, INT, usage, k, pos) for k, a in enumerate(args[1:], 2))
    return strict("slice", (args[0], *places), args[0].type, pos)


def _join(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage = "array_join(array, separator [, instead of NULL])"
    if _array(args, usage, pos) != STRING:
        raise wrong(usage, args, pos)
    texts = (argument(a, STRING, usage, k, pos) for k, a in enumerate(args[1:], 2))
    return strict("array_join", (args[0], *texts), STRING, pos)


def _check_no_segment(values: Sequence[Expr], pos: Position | None) -> None:
    """Raises NotSupportedError for a segment of a signal among the ``values``."""
    found = next((v for v in values if is_segment(v)), None)
    if found is not None:
        raise NotSupportedError(
            "a segment of a signal inside an array is not supported",
            position=found.pos or pos,
            hint="select it as a column of its own",
        )


def _make_array(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    _check_no_segment(args, pos)
    values = unify(args, pos, "array") if args else []
    element = values[0].type.without_length if values else NULL
    if element == NULL:
        raise BindError(
            "the array has no element with a type", position=pos, hint="array(CAST(NULL AS INT))"
        )
    kind = array(element, contains_null=any(v.nullable for v in values))
    return Call("array", tuple(values), kind, False, pos)


def _named_struct(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    usage = "named_struct(name, value, …)"
    if len(args) % 2:
        raise wrong(usage, args, pos)
    names = [literal_text(a, "the name of a field", pos) for a in args[::2]]
    return make_struct(names, args[1::2], pos)


def _struct(args: tuple[Expr, ...], pos: Position | None) -> Expr:
    """Without the names that the text of a query gives: the binder calls ``make_struct``."""
    return make_struct([f"col{place}" for place in range(1, len(args) + 1)], args, pos)


def make_struct(names: Sequence[str], values: Sequence[Expr], pos: Position | None) -> Expr:
    """The struct of the ``values`` under their ``names``; of segments, the segment of structs."""
    folded = [name.lower() for name in names]
    twice = next((n for n in folded if folded.count(n) > 1), None)
    if twice is not None:
        raise BindError(f"the struct has two fields named {twice}", position=pos)
    if any(map(is_segment, values)):
        return signals.of_structs(names, values, pos)
    typed = [cast(v, STRING, pos) if v.type == NULL else v for v in values]
    kind = struct(tuple((n, v.type.without_length) for n, v in zip(names, typed, strict=True)))
    return Call("named_struct", tuple(typed), kind, False, pos)


def item(value: Expr, number: Expr, pos: Position | None) -> Expr:
    """``value[number]``, counted from 0, or ``value['field']``."""
    named = is_segment(value) and value.type.is_of_structs and number.type == STRING
    if value.type.kind is Kind.STRUCT or named:
        return field(value, literal_text(number, "the field of a struct", number.pos or pos), pos)
    if is_segment(value):
        return sample(value, number, pos)
    if value.type.kind is not Kind.ARRAY:
        raise BindError(
            f"[…] takes an element of an array, not of {value.type}", position=value.pos or pos
        )
    if not number.type.is_integer and number.type != NULL:
        raise BindError(
            f"the number of an element is a whole number, not a value of type {number.type}",
            position=number.pos or pos,
        )
    nullable = value.type.contains_null
    if number.type == NULL:
        number = cast(number, INT, pos)
    return strict("item", (value, number), element_of(value.type), pos, nullable=nullable)


def field(value: Expr, name: str, pos: Position | None) -> Expr:
    """``value.name``. Raises BindError if the value is no struct or has no such field."""
    kind = value.type
    if kind.kind is Kind.ARRAY and element_of(kind).kind is Kind.STRUCT:
        raise NotSupportedError(
            f"the fields of all structs in an array ({kind}) are not supported",
            position=pos,
            hint="UNNEST makes a row of each struct, and array[0].field is the field of one",
        )
    if not kind.struct_fields:
        raise BindError(
            f"a value of type {kind} has no field {name}", position=pos, hint="it is not a struct"
        )
    names = [n for n, _ in kind.struct_fields]
    at = next((k for k, n in enumerate(names) if n.lower() == name.lower()), None)
    if at is None:
        raise BindError(
            f"there is no field {name} in {kind}",
            position=pos,
            hint=did_you_mean(name, names, what="its fields are"),
        )
    if is_segment(value):
        return signals.field(value, at, pos)
    if (
        isinstance(value, Call)
        and value.fn == "named_struct"
        and not any(map(can_fail, value.args))
    ):
        return value.args[at]
    return Call("field", (value, Literal(at, INT)), kind.fields[at][1], True, pos)


def _built(usage: str, help: str, count: tuple[int, int | None], build: Builder) -> Signature:
    return Signature(usage.split("(", 1)[0], _CATEGORY, usage, help, count, build)


NESTED: tuple[Signature, ...] = (
    _built("array(a, …)", "The array of the values.", (1, None), _make_array),
    _built("struct(a, b AS c, …)", "The struct of the values.", (1, None), _struct),
    _built("named_struct(name, value, …)", "The struct of the values.", (2, None), _named_struct),
    _built("size(array)", "The number of elements.", (1, 1), _size),
    _built("get(array, n)", "The element number n, from 0; NULL if there is none.", (2, 2),
           _element("get", "get(array, n)")),
    _built("element_at(array, n)", "The element number n, from 1, or -1 from the end.", (2, 2),
           _element("element_at", "element_at(array, n)")),
    _built("try_element_at(array, n)", "element_at; NULL if there is none.", (2, 2),
           _element("try_element_at", "try_element_at(array, n)")),
    _built("array_contains(array, value)", "Whether an element equals the value.", (2, 2),
           _contains),
    _built("array_position(array, value)", "Where the value is first, from 1; 0: nowhere.", (2, 2),
           _position),
    _built("array_min(array)", "The least element that is not NULL.", (1, 1),
           _extreme("array_min")),
    _built("array_max(array)", "The greatest element that is not NULL.", (1, 1),
           _extreme("array_max")),
    _built("slice(array, start, length)", "A part; counts from 1, from the end below 0.", (3, 3),
           _slice),
    _built("array_join(array, separator [, instead of NULL])", "The texts joined by a separator.",
           (2, 3), _join),
)  # fmt: skip
