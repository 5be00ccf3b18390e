"""Cases of elementwise ops: every accepted type, special values, odd and empty extents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from mgx_core import Pointwise, dtype
from mgx_core.ops import STANDARD
from mgx_core.ops.convert import Convert
from mgx_core.types.dtype import DType

from .case import FLOATS, FP8, INTS, LAYOUTS, NARROW, Case, Family, Operand, data, given

__all__ = ["family"]

family = Family("pointwise")

# range in which an op is defined and its value representable in every type; per input
DOMAINS: Final[dict[str, tuple[tuple[float, float], ...]]] = {
    "log": ((0.1, 10),), "log2": ((0.1, 10),), "log1p": ((-0.5, 10),), "sqrt": ((0, 10),), "rsqrt": ((0.1, 10),),
    "recip": ((0.2, 10),), "asin": ((-1, 1),), "acos": ((-1, 1),), "atanh": ((-0.9, 0.9),), "acosh": ((1, 10),),
    "tan": ((-1.4, 1.4),), "pow": ((0.1, 3), (0, 3)), "div": ((-9, 9), (1, 9)), "mod": ((-9, 9), (1, 5)),
    "fmod": ((-9, 9), (1, 5)), "clip": ((-3, 3), (-1, 0), (0, 2)), "bit_shift_left": ((0, 15), (0, 3)),
    "bit_shift_right": ((0, 15), (0, 3)), "add": ((-4, 4), (-3, 3)), "sub": ((-4, 4), (-4, 3)),
}  # fmt: skip
KINDS: Final = {"b": (dtype.bool_,), "f": FLOATS, "c": (dtype.complex64,), "s": (dtype.string,)}
SPECIAL: Final = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, np.inf, -np.inf, np.nan]
# elsewhere a kernel may give NaN, an infinity or the limit where the reference gives another of these
ODD_AT: Final = {"pow", "mod", "fmod", "div", "sqdiff", "prelu", "mul", "add", "sub", "hard_swish", "swish", "quick_gelu",
                 "mish", "gelu_erf", "gelu_tanh", "celu", "selu", "elu", "softsign", "shrink", "sinh", "cosh"}  # fmt: skip
LESS: Final = {"uint": {"sub", "add"}}


def types_of(op: type[Pointwise]) -> Iterator[DType]:
    """Yields the element types that an op accepts, the most common first."""
    for kind in ("f", "iu", "b", "c", "s"):
        for letter in kind:
            if letter in op.accepts and letter in KINDS:
                yield from KINDS[letter]
            elif letter in op.accepts:
                yield from (t for t in INTS if t.kind == letter)


def operand(name: str, index: int, kind: DType, dims: tuple[int, ...]) -> Operand:
    if name == "where" and index == 0:
        kind = dtype.bool_
    ranges = DOMAINS.get(name, ((-3.0, 3.0),))
    low, high = ranges[min(index, len(ranges) - 1)]
    if kind.kind == "u":  # no wrapping below zero: other kinds of overflow have a separate case
        low, high = max(low, 0), max(high, 1)
        if name == "sub":
            low, high = ((5, 9), (0, 4))[index]
    if name == "neg" and kind.kind == "u":
        low, high = 0, 3
    return data(kind, *dims, low=low, high=high)


def pointwise(name: str) -> Iterable[Case]:
    op: Any = STANDARD.get(name)
    arity = op.arity
    made = op()

    def case(kind: DType, dims: tuple[int, ...], label: str = "", layouts: tuple[str, ...] = ("contiguous",)) -> Case:
        return Case(made, tuple(operand(name, i, kind, dims) for i in range(arity)), label, layouts)

    for n, kind in enumerate(types_of(op)):
        yield case(kind, (2, 3, 5), "", LAYOUTS if n == 0 else LAYOUTS[:3:2] if kind.kind in "fb" else LAYOUTS[:1])
        if n < 2:
            yield case(kind, (13, 17), "odd")
        if n == 0:
            yield case(kind, (), "scalar")
            yield case(kind, (0, 3), "empty")
            yield case(kind, (1, 1, 1), "one")
            yield case(kind, (65, 259), "large")
            yield case(kind, (2, 1, 3, 1, 2, 5), "rank6")
        if kind.kind == "f":
            yield from specials(name, made, kind, arity)
        elif kind.is_integer and kind.bits <= 32 and name in ("add", "sub", "mul", "neg", "abs"):
            yield extremes(made, kind, arity)


def specials(name: str, made: Any, kind: DType, arity: int) -> Iterator[Case]:
    """All pairs of special values: zeros of both signs, infinities, NaN, the largest and smallest values."""
    if name in ODD_AT or arity > 2:
        return
    values = np.array([*SPECIAL, kind.highest, kind.lowest], np.float64).astype(kind.numpy)
    if arity == 1:
        yield Case(made, (given(values, kind),), "special")
    else:
        a, b = np.meshgrid(values, values)
        yield Case(made, (given(a, kind), given(b, kind)), "special")


def extremes(made: Any, kind: DType, arity: int) -> Case:
    """Extreme values, for which integers wrap around."""
    values = np.array([kind.lowest, kind.highest, 0, 1, 2, kind.highest - 1, kind.lowest + 1], kind.numpy)
    grid = np.meshgrid(*[values] * arity)
    return Case(made, tuple(given(g, kind) for g in grid), "wrap")


NAMES: Final = [op.name for op in STANDARD if issubclass(op, Pointwise) and op is not Convert]
family.cases(*NAMES)(pointwise)


@family.cases("isinf")
def isinf(name: str) -> Iterable[Case]:
    yield from pointwise(name)
    for negative, positive in ((True, False), (False, True), (False, False)):
        op = STANDARD.make("isinf", detect_negative=negative, detect_positive=positive)
        yield Case(op, (given(np.array(SPECIAL, np.float32)),), f"{negative}-{positive}".lower())


ACTIVATIONS: Final[dict[str, dict[str, float]]] = {
    "leaky_relu": {"alpha": 0.3}, "thresholded_relu": {"alpha": 0.4}, "elu": {"alpha": 0.7}, "celu": {"alpha": 2.0},
    "selu": {"alpha": 1.2, "gamma": 0.9}, "hard_sigmoid": {"alpha": 0.3, "beta": 0.4}, "swish": {"alpha": 1.5},
    "shrink": {"lambd": 0.7, "bias": 0.2}, "quick_gelu": {"alpha": 1.0},
}  # fmt: skip


@family.cases(*ACTIVATIONS)
def activation(name: str) -> Iterable[Case]:
    yield from pointwise(name)
    for kind in FLOATS[:2]:
        op = STANDARD.make(name, **ACTIVATIONS[name])
        yield Case(op, (data(kind, 3, 11, low=-3, high=3),), "attributes")


@family.cases("convert")
def convert(name: str) -> Iterable[Case]:
    kinds = (dtype.bool_, *FLOATS, *INTS)
    for source in kinds:
        for target in kinds:
            if source is target:
                continue
            low, high = (0, 3) if "u" in (source.kind, target.kind) else (-3, 3)
            plain = (source.name, target.name) in (("float32", "float16"), ("int32", "float32"), ("float16", "float32"))
            yield Case(STANDARD.make(name, target_type=target), (data(source, 5, 9, low=low, high=high),), f"to-{target}",
                       LAYOUTS if plain else LAYOUTS[:1])  # fmt: skip
    for target in (*FP8, dtype.float6_e2m3fn, dtype.float6_e3m2fn, dtype.float4_e2m1fn):
        for source in FLOATS:
            for saturate in (True, False):
                values = np.array([*SPECIAL[:8], 3.3, 5.1, 100, -300, 1e4, 0.01, 0.3], np.float64).astype(source.numpy)
                op = STANDARD.make(name, target_type=target, saturate=saturate)
                yield Case(op, (given(values, source),), f"to-{target}" + ("" if saturate else "-unsaturated"))
        back = np.array([0, 1, -1, 0.5, 1.5, 2, -3, 4], np.float32).astype(target.numpy)
        yield Case(STANDARD.make(name, target_type=dtype.float32), (given(back, target),), "to-float32")
    for target in NARROW[:4]:
        low = 0 if target.kind == "u" else target.lowest
        values = np.arange(low, target.highest + 1)
        yield Case(STANDARD.make(name, target_type=target), (given(values, dtype.int32),), f"to-{target}")
        yield Case(STANDARD.make(name, target_type=dtype.float32), (given(values, target),), "to-float32")
    yield Case(STANDARD.make(name, target_type=dtype.bool_), (given(np.array(SPECIAL, np.float32)),), "special-to-bool")
    text = given(np.array(["1.5", "-2", "1e3", "NaN"], dtype=object))
    yield Case(STANDARD.make(name, target_type=dtype.float32), (text,), "from-text")


@family.cases("bit_cast")
def bit_cast(name: str) -> Iterable[Case]:
    for source, target in ((dtype.float32, dtype.int32), (dtype.int32, dtype.float32), (dtype.uint8, dtype.int8),
                           (dtype.float16, dtype.uint16), (dtype.float64, dtype.int64)):  # fmt: skip
        yield Case(
            STANDARD.make(name, target_type=target), (data(source, 3, 7, low=0, high=9),), f"to-{target}", LAYOUTS[:4]
        )


@family.cases("identity")
def identity(name: str) -> Iterable[Case]:
    for kind in (*FLOATS, *INTS, dtype.bool_, *FP8, *NARROW, dtype.string):
        yield Case(STANDARD.make(name), (data(kind, 3, 4, low=0, high=1),), "", LAYOUTS[:3])
