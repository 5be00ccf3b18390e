"""Scalar expressions as HIP C++, and conversions between element types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgx_core.errors import UnsupportedError
from mgx_core.ops.convert import SATURATING, Convert
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.scalar import PRIMITIVES, Attr, Call, Cast, Const, Expr, Input
from mgx_core.types.dtype import DType

from .primitives import FAST, FLOATS, HIP, constant, quotient
from .source import compute_type, storage_type, supported, to_storage

__all__ = ["Lines", "Value", "convert", "literal_value", "pointwise_value", "store_value"]


@dataclass(frozen=True)
class Value:
    """A C++ expression and its C type; `packed` is its stored (narrow float) form, if already computed.

    wide: the float variable that `packed` is the clipped 8-bit float of, if it is.
    """

    code: str
    ctype: str
    packed: str = ""
    packed_as: DType | None = None
    number: float | int | bool | None = None
    wide: str = ""


class Lines:
    """Statements with local variables; equal expressions share a variable."""

    def __init__(self, prefix: str = "t") -> None:
        self.lines: list[str] = []
        self.known: dict[tuple[str, str], str] = {}
        self.prefix = prefix
        self.fast = False  # results are rounded to 16 bits, so approximate functions suffice

    def let(self, ctype: str, code: str) -> str:
        """Returns a variable with the value of `code`."""
        if code.isidentifier():
            return code
        name = self.known.get((ctype, code))
        if name is None:
            name = f"{self.prefix}{len(self.known)}"
            self.known[ctype, code] = name
            self.lines.append(f"const {ctype} {name} = {code};")
        return name


# expressions --------------------------------------------------------------------------------------------------------------


def pointwise_value(op: Pointwise, inputs: Sequence[Value], result: DType, lines: Lines) -> Value:
    """Returns a pointwise op of values, in the type that `result` is computed in."""
    if isinstance(op, Convert):
        inputs = [_convertible(op, inputs[0], lines)]
    like = inputs[0].ctype if inputs else "float"
    lines.fast = result.kind == "f" and result.bits <= 16 and not isinstance(op, Convert)
    value = _walk(type(op).scalar, op, inputs, like, lines)
    if value.ctype != compute_type(result):
        value = convert(value, result, lines)
    if value.number is not None or value.packed:
        return value
    return Value(lines.let(value.ctype, value.code), value.ctype)


def _convertible(op: Convert, x: Value, lines: Lines) -> Value:
    """Returns the operand of a conversion; saturating ones are clipped to the range of the narrow type (NaN is kept)."""
    to = op.target_type
    if not supported(to):
        raise UnsupportedError(f"kernels do not support {to}")
    if not op.saturate or to.name not in SATURATING or x.packed_as is to:
        return x
    low, high = float(to.lowest), float(to.highest)
    if x.number is not None:
        number = x.number if x.number != x.number else min(max(float(x.number), low), high)
        return Value(constant(number, "float"), "float", number=number)
    kind = x.ctype if x.ctype in FLOATS else "float"
    name = lines.let(kind, x.code if kind == x.ctype else f"(float){x.code}")
    low_code, high_code = constant(low, kind), constant(high, kind)
    return Value(
        lines.let(kind, f"{name} < {low_code} ? {low_code} : {name} > {high_code} ? {high_code} : {name}"), kind
    )


def _walk(e: Expr, op: Pointwise, inputs: Sequence[Value], like: str, lines: Lines) -> Value:
    match e:
        case Input(index=index):
            return inputs[index]
        case Const(value=value):
            return Value("", "", number=value)
        case Attr(name=name):
            return Value("", "", number=getattr(op, name))
        case Cast(value=inner, to=to):
            target = getattr(op, to) if isinstance(to, str) else to
            return convert(_retyped(_walk(inner, op, inputs, like, lines), like), target, lines)
        case Call(primitive=primitive, args=args):
            return _call(primitive, [_walk(a, op, inputs, like, lines) for a in args], like, lines)
    raise TypeError(e)


def _retyped(v: Value, ctype: str) -> Value:
    """Returns an untyped number with the type of the other operand."""
    if v.ctype:
        return v
    assert v.number is not None
    ctype = "bool" if isinstance(v.number, bool) else ctype
    return Value(constant(v.number, ctype), ctype, number=v.number)


def _call(primitive: str, args: Sequence[Value], like: str, lines: Lines) -> Value:
    given = 1 if primitive == "where" else 0
    typed = [a.ctype for a in args[given:] if a.ctype]
    if typed:
        ctype = max(typed, key=_rank)
    elif like not in FLOATS and any(isinstance(a.number, float) for a in args):
        ctype = "float"
    else:
        ctype = like
    operands = [_retyped(args[0], "bool").code] if given else []
    for a in args[given:]:
        if not a.ctype:
            assert a.number is not None
            operands.append(constant(a.number, ctype))
        else:
            operands.append(a.code if a.ctype == ctype else f"({ctype}){a.code}")
    if given and not operands[0].isidentifier():
        operands[0] = f"({operands[0]})"
    special = _power(ctype, operands, args) if primitive == "pow" else ""
    if primitive == "div" and ctype == "float" and args[1].number is not None:
        special = quotient(lines.let(ctype, operands[0]) if " " in operands[0] else operands[0], args[1].number)
    named = [lines.let(ctype if i or not given else "bool", o) if " " in o else o for i, o in enumerate(operands)]
    quick = lines.fast and ctype == "float" and primitive in FAST
    code = special or (f"fast::{primitive}({', '.join(named)})" if quick else HIP[primitive](ctype, named))
    result = "bool" if PRIMITIVES[primitive][1] else ctype
    return Value(lines.let(result, code), result)


def _power(ctype: str, operands: Sequence[str], args: Sequence[Value]) -> str:
    """Returns small integer powers of floats as products."""
    n = args[1].number
    if ctype not in FLOATS or n not in (1, 2, 3):
        return ""
    return " * ".join([operands[0]] * int(n))


def _rank(ctype: str) -> tuple[int, int]:
    return (
        0 if ctype == "bool" else 2 if ctype in FLOATS else 1,
        {"float": 32, "double": 64, "bool": 8}.get(ctype) or int(ctype[1:]),
    )


# conversion ---------------------------------------------------------------------------------------------------------------


def convert(v: Value, to: DType, lines: Lines) -> Value:
    """Returns a value as another element type, by the rules of `scalar.convert`."""
    if not supported(to):
        raise UnsupportedError(f"kernels do not support {to}")
    kind = compute_type(to)
    if v.number is not None:
        number = v.number
        if to.kind == "b":
            return Value(constant(number != 0, "bool"), "bool", number=number != 0)
        from mgx_core.ops.scalar import convert as exact

        host = np.asarray(number, np.float32 if v.ctype == "float" else None)
        number = exact(host, to).astype(to.accumulate).item()
        return Value(constant(number, kind), kind, number=number)
    code = v.code
    if to.kind == "b":
        return Value(code if v.ctype == "bool" else lines.let("bool", f"{code} != 0"), "bool")
    if to.is_integer and v.ctype in FLOATS:
        return Value(lines.let(kind, f"convert<{kind}>({code})"), kind)
    if to.kind == "f" and to.bits < 32:
        single = code if v.ctype == "float" else f"(float){code}"
        if v.packed and v.packed_as is to:
            return v
        packed = lines.let(storage_type(to), to_storage(single, to))
        return Value(lines.let("float", f"to_f({packed})"), "float", packed, to)
    return Value(code if v.ctype == kind else lines.let(kind, f"({kind}){code}"), kind)


def store_value(v: Value, to: DType) -> str:
    """Returns the stored form of a value with result type `to`."""
    if v.number is not None and to.bits >= 32:
        return v.code
    return v.packed if v.packed and v.packed_as is to else to_storage(v.code, to)


def literal_value(array: Any, of: DType) -> Value:
    """Returns the element of a one-element constant."""
    from mgx_core.ops.scalar import widen

    number = widen(np.asarray(array)).reshape(-1)[0].item()
    kind = compute_type(of)
    return Value(constant(number, kind), kind, number=number)
