"""IR for every primitive of `mgx_core.ops.scalar`, over vectors of every element type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from mgx_core import dtype as dt
from mgx_core.types.dtype import DType

from .code import Code, V
from .element import convert
from .integers import BITWISE, integer
from .math import FAST
from .math_in_float64 import HUGE_ANGLE, cos_small, fmod_small, sin_small, tan_small
from .math_of_float64 import FAST64, WIDE_ANGLES, shifted_sine

__all__ = ["apply", "libm"]

_COMPARE: Final = {"lt": ("olt", "slt", "ult"), "le": ("ole", "sle", "ule"), "gt": ("ogt", "sgt", "ugt"),
                   "ge": ("oge", "sge", "uge"), "eq": ("oeq", "eq", "eq"), "ne": ("une", "ne", "ne")}  # fmt: skip
_ROUNDING: Final = {"floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}


def apply(c: Code, name: str, dtype: DType, args: list[V]) -> V:
    """Returns one primitive; dtype: of the operands (of the choices for ``where``), as computed."""
    if name == "where":
        condition, a, b = args
        if condition.elem != "i1":
            condition = c.compare(
                "une" if condition.elem in ("float", "double") else "ne", condition, c.const(0, condition)
            )
        return c.select(condition, a, b)
    if name.startswith("logical"):
        return _logical(c, name[8:], dtype, args)
    if name in _COMPARE:
        ordered, signed, unsigned = _COMPARE[name]
        return c.compare(ordered if dtype.is_float else signed if dtype.kind == "i" else unsigned, args[0], args[1])
    if dtype.is_float:
        return _float(c, name, args)
    return args[0] if name in _ROUNDING else integer(c, name, dtype, args)


def _logical(c: Code, name: str, dtype: DType, args: list[V]) -> V:
    flags = [convert(c, a, dtype, dt.bool_) for a in args]
    if name == "not":
        return c.op("xor", flags[0], c.const(True, flags[0]))
    return c.op(BITWISE[name], *flags)


def _float(c: Code, name: str, args: list[V]) -> V:
    a = args[0]
    if name in ("add", "sub", "mul", "div"):
        return c.op("f" + name, a, args[1])
    if name == "exact_div":
        return c.op("fdiv", a, args[1])
    if name == "fma":
        return c.fma(*args)
    if name == "rounded_uint8":  # round(a) + b, clamped to 0 .. 255; 0 for NaN
        moved = c.op("fadd", c.intrinsic("rint", a), args[1])
        bounded = _float(c, "min_const", [_float(c, "max_number", [moved, c.const(0.0, a)]), c.const(255.0, a)])
        return _float(c, "whole_uint8", [bounded])
    if name == "rounded_int8":  # round(a) + b, clamped to -128 .. 127; 0 for NaN
        moved = c.op("fadd", c.intrinsic("rint", a), args[1])
        bounded = _float(c, "min_const", [_float(c, "max_const", [moved, c.const(-128.0, a)]), c.const(127.0, a)])
        return _float(c, "whole_int8", [_float(c, "number", [bounded])])
    if name == "max_number":  # the second operand, which is not NaN, replaces a NaN
        return c.select(c.compare("ogt", a, args[1]), a, args[1])
    if name in ("whole_int8", "whole_uint8"):  # of integral floats within the type's range
        return c.cast("trunc", c.cast("fptosi", a, "i32"), "i8")
    if name in ("max_const", "min_const"):  # the second operand is not NaN
        return c.select(c.compare("ogt" if name == "max_const" else "olt", args[1], a), args[1], a)
    if name in ("max", "min"):
        return extreme(c, name, a, args[1])
    if name in _ROUNDING:
        return c.intrinsic(_ROUNDING[name], a)
    simple: dict[str, Callable[[], V]] = {
        "neg": lambda: c.fneg(a),
        "abs": lambda: c.intrinsic("fabs", a),
        "sqrt": lambda: c.intrinsic("sqrt", a),
        "rsqrt": lambda: c.op("fdiv", c.const(1.0, a), c.intrinsic("sqrt", a)),
        "number": lambda: c.select(c.compare("uno", a, a), c.const(0.0, a), a),  # replaces NaN by 0
        "isnan": lambda: c.compare("uno", a, a),
        "isinf": lambda: c.compare("oeq", c.intrinsic("fabs", a), c.const(np.inf, a)),
        "sign": lambda: _sign(c, a),
        "mod": lambda: _mod(c, a, args[1]),
        "fmod": lambda: _fmod(c, *args),
    }
    if name in simple:
        return simple[name]()
    if a.elem == "float":
        if name in FAST:
            return FAST[name](c, *args)
        if name in ("sin", "cos", "tan"):
            return _angle(c, name, a)
    elif name in FAST64:
        return FAST64[name](c, a)
    elif name in WIDE_ANGLES:
        large = c.compare("ogt", c.intrinsic("fabs", a), c.const(HUGE_ANGLE, a))
        return _select_rare(c, large, shifted_sine(c, a, WIDE_ANGLES[name]), lambda: libm(c, name, a))
    return libm(c, name, *args)


def extreme(c: Code, name: str, a: V, b: V) -> V:
    """Returns the maximum or minimum; NaN if an operand is.  Constants are known not to be NaN."""
    how = "ogt" if name == "max" else "olt"
    if not a.ref.startswith("%"):
        return c.select(c.compare(how, a, b), a, b)  # selects b if unordered
    if not b.ref.startswith("%"):
        return c.select(c.compare(how, b, a), b, a)
    best = c.select(c.compare(how, a, b), a, b)
    return c.select(c.compare("uno", a, a), a, best)


def _sign(c: Code, a: V) -> V:
    one, zero = c.const(1.0, a), c.const(0.0, a)
    out = c.select(c.compare("ogt", a, zero), one, a)
    return c.select(c.compare("olt", a, zero), c.const(-1.0, a), out)


def _mod(c: Code, a: V, b: V) -> V:
    rest = _fmod(c, a, b)
    zero = c.const(0.0, a)
    apart = c.compare("ne", c.compare("olt", b, zero), c.compare("olt", rest, zero))
    moved = c.select(apart, c.op("fadd", rest, b), rest)
    none = c.compare("oeq", rest, zero)
    return c.select(none, c.intrinsic("copysign", zero, b), moved)


def _angle(c: Code, name: str, a: V) -> V:
    small = {"sin": sin_small, "cos": cos_small, "tan": tan_small}[name](c, a)
    large = c.compare("ogt", c.intrinsic("fabs", a), c.const(HUGE_ANGLE, a))
    return _select_rare(c, large, small, lambda: libm(c, name, a))


def _fmod(c: Code, a: V, b: V) -> V:
    if a.elem != "float":
        return libm(c, "fmod", a, b)
    small, large = fmod_small(c, a, b)
    return _select_rare(c, large, small, lambda: libm(c, "fmod", a, b))


def _select_rare(c: Code, odd: V, usual: V, other: Callable[[], V]) -> V:
    """Selects by lane between the common and the special case, which is computed only if any lane needs it."""
    some = odd
    if odd.n:
        bits = c.make(f"bitcast {odd.type} {odd.ref} to i{odd.n}", f"i{odd.n}", 0)
        some = c.make(f"icmp ne i{odd.n} {bits.ref}, 0", "i1", 0)
    return c.choose(some, lambda: c.select(odd, other(), usual), usual)


def libm(c: Code, name: str, *args: V) -> V:
    """Calls the C library's function for each lane."""
    a = args[0]
    function = name + ("f" if a.elem == "float" else "")
    if not a.n:
        return c.call(function, a.elem, 0, *args)
    helper = f"lanes_{function}_{a.n}"
    if helper not in c.extra:
        c.declared[function] = f"declare {a.elem} @{function}({', '.join([a.elem] * len(args))})"
        c.helper(helper, _lanes(helper, function, a, len(args)))
    refs = ", ".join(f"{x.type} {x.ref}" for x in args)
    return c.make(f"call {a.type} @{helper}({refs})", a.elem, a.n)


def _lanes(helper: str, function: str, a: V, count: int) -> str:
    names = [f"%x{i}" for i in range(count)]
    lines = [
        f"define internal {a.type} @{helper}({', '.join(f'{a.type} {x}' for x in names)}) noinline nounwind {{",
        "entry:",
    ]
    for i in range(count):
        lines.append(f"  %m{i} = alloca {a.type}, align 64")
        lines.append(f"  store {a.type} %x{i}, ptr %m{i}, align 64")
    lines += ["  br label %loop", "loop:", "  %i = phi i64 [0, %entry], [%j, %loop]"]
    for i in range(count):
        lines.append(f"  %p{i} = getelementptr {a.elem}, ptr %m{i}, i64 %i")
        lines.append(f"  %s{i} = load {a.elem}, ptr %p{i}")
    lines.append(f"  %r = call {a.elem} @{function}({', '.join(f'{a.elem} %s{i}' for i in range(count))})")
    lines += [
        f"  store {a.elem} %r, ptr %p0",
        "  %j = add i64 %i, 1",
        f"  %c = icmp ult i64 %j, {a.n}",
        "  br i1 %c, label %loop, label %done",
        "done:",
        f"  %out = load {a.type}, ptr %m0, align 64",
        f"  ret {a.type} %out",
        "}",
    ]
    return "\n".join(lines)
