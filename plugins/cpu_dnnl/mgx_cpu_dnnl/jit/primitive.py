"""IR for every primitive of `mgx_core.ops.scalar`, over vectors of every element type, and for conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from mgx_core import dtype as dt
from mgx_core.types.dtype import DType

from . import math as fast
from .code import BITS, Code, V

__all__ = [
    "COST",
    "MEMORY",
    "apply",
    "computed",
    "convert",
    "elem_of",
    "from_memory",
    "raw_type",
    "supported",
    "to_memory",
]

# element types in memory; bool takes a byte
MEMORY: Final[dict[DType, str]] = {
    dt.bool_: "i8", dt.int8: "i8", dt.uint8: "i8", dt.int16: "i16", dt.uint16: "i16", dt.int32: "i32", dt.uint32: "i32",
    dt.int64: "i64", dt.uint64: "i64", dt.float16: "half", dt.bfloat16: "i16", dt.float32: "float",
    dt.float64: "double",
}  # fmt: skip

# rough vector instructions a primitive takes, for grains and for the choice between keeping and recomputing
COST: Final[dict[str, int]] = {
    "div": 8, "exact_div": 8, "sqrt": 8, "rsqrt": 16, "exp": 14, "exp_negative": 13,
    "expm1": 18, "log": 24, "log2": 25, "log1p": 34,
    "erf": 22, "tanh": 20, "sigmoid": 20, "sin": 50, "cos": 50, "tan": 60, "pow": 110,
    "mod": 200, "fmod": 200, "sign": 4, "max": 2, "min": 2,
}  # fmt: skip
COST.update(dict.fromkeys(("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"), 300))


def supported(dtype: DType) -> bool:
    return dtype in MEMORY


def raw_type(dtype: DType) -> DType | None:
    """An integer type of the same width, for moving bits."""
    return {1: dt.uint8, 2: dt.uint16, 4: dt.uint32, 8: dt.uint64}.get(dtype.size)


def computed(dtype: DType) -> DType:
    """The type that values of `dtype` have in registers."""
    return dt.float32 if dtype in (dt.float16, dt.bfloat16) else dtype


def elem_of(dtype: DType) -> str:
    """The IR element type of values in registers."""
    return "i1" if dtype is dt.bool_ else MEMORY[computed(dtype)]


# memory ----------------------------------------------------------------------------------------------------------------


def from_memory(c: Code, x: V, dtype: DType) -> V:
    """A loaded value as it is computed with."""
    if dtype is dt.bool_:
        return c.compare("ne", x, c.const(0, x))
    if dtype is dt.float16:
        return c.cast("fpext", x, "float")
    if dtype is dt.bfloat16:
        wide = c.cast("zext", x, "i32")
        return c.cast("bitcast", c.op("shl", wide, c.const(16, wide)), "float")
    return x


def to_memory(c: Code, x: V, dtype: DType) -> V:
    """A computed value as it is stored: narrow floats rounded to nearest even."""
    if dtype is dt.bool_:
        return c.cast("zext", x, "i8")
    if dtype is dt.float16:
        return c.cast("fptrunc", x, "half")
    if dtype is dt.bfloat16:
        whole = c.cast("bitcast", x, "i32")
        last = c.op("and", c.op("lshr", whole, c.const(16, whole)), c.const(1, whole))
        rounded = c.op("add", c.op("add", whole, c.const(0x7FFF, whole)), last)
        nan = c.op("or", whole, c.const(0x00400000, whole))
        rounded = c.select(c.compare("uno", x, x), nan, rounded)
        return c.cast("trunc", c.op("lshr", rounded, c.const(16, whole)), "i16")
    return x


def convert(c: Code, x: V, dtype: DType, to: DType) -> V:
    """A computed value of one type as a computed value of another, as `mgx_core.ops.scalar.convert` defines it."""
    if to in (dt.float16, dt.bfloat16):
        wide = convert(c, x, dtype, dt.float32)
        return wide if dtype is to else from_memory(c, to_memory(c, wide, to), to)
    dtype = computed(dtype)
    if dtype is to:
        return x
    elem = elem_of(to)
    if to is dt.bool_:
        return c.compare("une" if dtype.is_float else "ne", x, c.const(0, x))
    if dtype is dt.bool_:
        return c.cast("uitofp" if to.is_float else "zext", x, elem)
    if dtype.is_float and to.is_float:
        return c.cast("fpext" if to.bits > dtype.bits else "fptrunc", x, elem)
    if dtype.is_float:
        how = "fptosi" if to.kind == "i" else "fptoui"
        if to.bits < 32:  # through int32, where the machine converts vectors
            x = fast.clamp(c, x, float(to.lowest), float(to.highest))
            x = c.select(c.compare("uno", x, x), c.const(0.0, x), x)
            return c.cast("trunc", c.cast("fptosi", x, "i32"), elem)
        name = f"llvm.{how}.sat.{_short(elem, x.n)}.{_short(x.elem, x.n)}"
        return c.call(name, elem, x.n, x)
    if to.is_float:
        return c.cast("sitofp" if dtype.kind == "i" else "uitofp", x, elem)
    if to.bits == dtype.bits:
        return x
    if to.bits < dtype.bits:
        return c.cast("trunc", x, elem)
    return c.cast("sext" if dtype.kind == "i" else "zext", x, elem)


def _short(elem: str, n: int) -> str:
    short = {"float": "f32", "double": "f64"}.get(elem, elem)
    return f"v{n}{short}" if n else short


# primitives ------------------------------------------------------------------------------------------------------------

_COMPARE: Final = {"lt": ("olt", "slt", "ult"), "le": ("ole", "sle", "ule"), "gt": ("ogt", "sgt", "ugt"),
                   "ge": ("oge", "sge", "uge"), "eq": ("oeq", "eq", "eq"), "ne": ("une", "ne", "ne")}  # fmt: skip
_ROUNDING: Final = {"floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}
_BITWISE: Final = {"and": "and", "or": "or", "xor": "xor"}


def apply(c: Code, name: str, dtype: DType, args: list[V]) -> V:
    """One primitive; dtype: of the operands (of the choices for ``where``), as computed."""
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
    return _float(c, name, args) if dtype.is_float else _integer(c, name, dtype, args)


def _logical(c: Code, name: str, dtype: DType, args: list[V]) -> V:
    flags = [convert(c, a, dtype, dt.bool_) for a in args]
    if name == "not":
        return c.op("xor", flags[0], c.const(True, flags[0]))
    return c.op(_BITWISE[name], *flags)


def _float(c: Code, name: str, args: list[V]) -> V:
    a = args[0]
    if name in ("add", "sub", "mul", "div"):
        return c.op("f" + name, a, args[1])
    if name == "exact_div":
        return c.op("fdiv", a, args[1])
    if name == "fma":
        return c.fma(*args)
    if name == "rounded_uint8":  # round(a) + b between 0 and 255, 0 for NaN
        moved = c.op("fadd", c.intrinsic("rint", a), args[1])
        bounded = _float(c, "min_const", [_float(c, "max_number", [moved, c.const(0.0, a)]), c.const(255.0, a)])
        return _float(c, "whole_uint8", [bounded])
    if name == "max_number":  # the second operand, which is a number, in place of NaN
        return c.select(c.compare("ogt", a, args[1]), a, args[1])
    if name in ("whole_int8", "whole_uint8"):  # of whole numbers that the type holds
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
        "number": lambda: c.select(c.compare("uno", a, a), c.const(0.0, a), a),  # 0 in place of NaN
        "isnan": lambda: c.compare("uno", a, a),
        "isinf": lambda: c.compare("oeq", c.intrinsic("fabs", a), c.const(np.inf, a)),
        "sign": lambda: _sign(c, a),
        "mod": lambda: _mod(c, a, args[1]),
        "fmod": lambda: _libm(c, "fmod", *args),
    }
    if name in simple:
        return simple[name]()
    if a.elem == "float":
        if name in fast.FAST:
            return fast.FAST[name](c, *args)
        if name in ("sin", "cos", "tan"):
            return _angle(c, name, a)
    if name == "exp_negative":
        name = "exp"
    if name == "sigmoid":
        one = c.const(1.0, a)
        return c.op("fdiv", one, c.op("fadd", one, _libm(c, "exp", c.fneg(a))))
    return _libm(c, name, *args)


def extreme(c: Code, name: str, a: V, b: V) -> V:
    """The larger or smaller; NaN if either is.  Constants are known not to be NaN."""
    how = "ogt" if name == "max" else "olt"
    if not a.ref.startswith("%"):
        return c.select(c.compare(how, a, b), a, b)  # unordered picks b
    if not b.ref.startswith("%"):
        return c.select(c.compare(how, b, a), b, a)
    best = c.select(c.compare(how, a, b), a, b)
    return c.select(c.compare("uno", a, a), a, best)


def _sign(c: Code, a: V) -> V:
    one, zero = c.const(1.0, a), c.const(0.0, a)
    out = c.select(c.compare("ogt", a, zero), one, a)
    return c.select(c.compare("olt", a, zero), c.const(-1.0, a), out)


def _mod(c: Code, a: V, b: V) -> V:
    rest = _libm(c, "fmod", a, b)
    zero = c.const(0.0, a)
    apart = c.compare("ne", c.compare("olt", b, zero), c.compare("olt", rest, zero))
    moved = c.select(apart, c.op("fadd", rest, b), rest)
    none = c.compare("oeq", rest, zero)
    return c.select(none, c.intrinsic("copysign", zero, b), moved)


def _angle(c: Code, name: str, a: V) -> V:
    small = {"sin": fast.sin_small, "cos": fast.cos_small, "tan": fast.tan_small}[name](c, a)
    large = c.compare("ogt", c.intrinsic("fabs", a), c.const(fast.HUGE_ANGLE, a))
    if a.n:
        bits = c.make(f"bitcast {large.type} {large.ref} to i{a.n}", f"i{a.n}", 0)
        some = c.make(f"icmp ne i{a.n} {bits.ref}, 0", "i1", 0)
    else:
        some = large
    return c.choose(some, lambda: c.select(large, _libm(c, name, a), small), small)


def _libm(c: Code, name: str, *args: V) -> V:
    """The C library's function lane by lane."""
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


# integers and bool ------------------------------------------------------------------------------------------------------


def _integer(c: Code, name: str, dtype: DType, args: list[V]) -> V:
    a = args[0]
    signed = dtype.kind == "i"
    zero = c.const(0, a)
    if dtype is dt.bool_:
        name = {"add": "bitwise_or", "mul": "bitwise_and", "max": "bitwise_or", "min": "bitwise_and"}.get(name, name)
    if name in ("add", "sub", "mul"):
        return c.op(name, a, args[1])
    if name.startswith("bitwise"):
        return c.op("xor", a, c.const(-1, a)) if name == "bitwise_not" else c.op(_BITWISE[name[8:]], a, args[1])
    if name in ("max", "min"):
        how = ("s" if signed else "u") + ("gt" if name == "max" else "lt")
        return c.select(c.compare(how, a, args[1]), a, args[1])
    if name in ("div", "mod", "fmod"):
        return _divided(c, name, signed, a, args[1])
    if name in ("shift_left", "shift_right"):
        return _shifted(c, name, signed, a, args[1])
    if name == "neg":
        return c.op("sub", zero, a)
    if name == "abs":
        return c.select(c.compare("slt", a, zero), c.op("sub", zero, a), a) if signed else a
    if name == "sign":
        up = c.cast("zext", c.compare("ne", a, zero), a.elem)
        return c.select(c.compare("slt", a, zero), c.const(-1, a), up) if signed else up
    if name in (*_ROUNDING,):
        return a
    if name in ("isnan", "isinf"):
        return c.make(f"and {V('', 'i1', a.n).type} zeroinitializer, zeroinitializer", "i1", a.n)
    if name == "pow":
        return _power(c, signed, a, args[1])
    raise NotImplementedError(f"{name} of {dtype}")


def _divided(c: Code, name: str, signed: bool, a: V, b: V) -> V:
    """Quotient toward zero, or a remainder; 0 for a divisor of 0, and no trap for the lowest number over -1."""
    zero, one = c.const(0, a), c.const(1, a)
    none = c.compare("eq", b, zero)
    special = none
    minus = None
    if signed:
        minus = c.compare("eq", b, c.const(-1, b))
        special = c.op("or", none, minus)
    safe = c.select(special, one, b)
    if BITS[a.elem] <= 32:
        quotient = _exact(c, signed, a, safe)
    else:
        quotient = c.op("sdiv" if signed else "udiv", a, safe)
    if name == "div":
        if minus is not None:
            quotient = c.select(minus, c.op("sub", zero, a), quotient)
        return c.select(none, zero, quotient)
    rest = c.op("sub", a, c.op("mul", quotient, safe))
    if name == "mod" and signed:
        apart = c.compare("slt", c.op("xor", rest, b), zero)
        moved = c.op("and", apart, c.compare("ne", rest, zero))
        rest = c.select(moved, c.op("add", rest, b), rest)
    return c.select(special, zero, rest)


def _exact(c: Code, signed: bool, a: V, b: V) -> V:
    """The quotient of integers of up to 32 bits through float64, which holds it and its fraction apart from 0."""
    to, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    q = c.op("fdiv", c.cast(to, a, "double"), c.cast(to, b, "double"))
    return c.cast(back, q, a.elem)


def _shifted(c: Code, name: str, signed: bool, a: V, b: V) -> V:
    width = c.const(BITS[a.elem], a)
    whole = c.compare("uge", b, width)
    steps = c.select(whole, c.const(0, b), b)
    out = c.op("shl" if name == "shift_left" else "ashr" if signed else "lshr", a, steps)
    rest = c.const(0, a)
    if signed and name == "shift_right":
        rest = c.op("ashr", a, c.const(BITS[a.elem] - 1, a))
    return c.select(whole, rest, out)


def _power(c: Code, signed: bool, a: V, b: V) -> V:
    """Squaring and multiplying; negative exponents give the truncated inverse."""
    one, zero = c.const(1, a), c.const(0, a)
    exponent = b
    if signed:
        exponent = c.select(c.compare("slt", b, zero), zero, b)
    begin, end = V("0", "i64", 0), V(str(BITS[a.elem]), "i64", 0)

    def step(_: V, carried: list[V]) -> list[V]:
        out, base, rest = carried
        odd = c.compare("ne", c.op("and", rest, one), zero)
        return [
            c.select(odd, c.op("mul", out, base), out),
            c.op("mul", base, base),
            c.op("lshr", rest, one),
        ]

    out = c.loop(begin, end, 1, step, [one, a, exponent])[1]
    if not signed:
        return out
    minus = c.const(-1, a)
    sign = c.select(c.compare("ne", c.op("and", b, one), zero), a, one)
    inverse = c.select(c.compare("eq", a, one), one, c.select(c.compare("eq", a, minus), sign, zero))
    # numpy turns 1 / 0, an infinity, into the lowest number
    inverse = c.select(c.compare("eq", a, zero), c.const(1 << (BITS[a.elem] - 1), a), inverse)
    return c.select(c.compare("slt", b, zero), inverse, out)
