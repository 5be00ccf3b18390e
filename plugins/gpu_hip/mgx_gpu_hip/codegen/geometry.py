"""Index arithmetic: loop nests with merged axes, vector widths, offset expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mgx_core.types.traced_int import divides

from .source import Tensor, storage_type

__all__ = [
    "Loop", "Reader", "ceil_div", "decompose", "distance", "index_type", "merge", "nest", "offset_code",
    "power_of_two", "uniform_step", "vector_width",
]  # fmt: skip


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def power_of_two(n: int) -> int:
    """Returns the smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def uniform_step(lens: Sequence[int], strides: Sequence[int]) -> int | None:
    """Returns the stride between the items of several axes, 0 where all are one; None if it is not uniform."""
    real = [(n, s) for n, s in zip(lens, strides, strict=True) if n != 1]
    if not real or all(s == 0 for _, s in real):
        return 0
    expected = real[-1][1]
    if expected == 0:
        return None
    step = expected
    for n, s in reversed(real):
        if s != expected:
            return None
        expected *= n
    return step


@dataclass(frozen=True)
class Loop:
    """Extents, outermost first, and the strides of each tensor along them."""

    dims: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        return math.prod(self.dims)


def merge(dims: Sequence[int], strides: Sequence[Sequence[int]], order: Sequence[int] | None = None) -> Loop:
    """Returns a loop nest without axes of extent 1, with axes merged if all strides allow; `order`: of axes, outermost first."""
    axes = [a for a in (range(len(dims)) if order is None else order) if dims[a] != 1]
    out: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis in axes:
        n = dims[axis]
        if out and all(s[-1] == given[axis] * n for s, given in zip(steps, strides, strict=True)):
            out[-1] *= n
            for s, given in zip(steps, strides, strict=True):
                s[-1] = given[axis]
        else:
            out.append(n)
            for s, given in zip(steps, strides, strict=True):
                s.append(given[axis])
    return Loop(tuple(out), tuple(tuple(s) for s in steps))


def memory_order(strides: Sequence[int], dims: Sequence[int]) -> list[int]:
    """Returns axes by decreasing stride; axes of stride 0 keep their position."""
    order = list(range(len(dims)))
    moving = [a for a in order if strides[a] and dims[a] != 1]
    sorted_ = sorted(moving, key=lambda a: (-strides[a], a))
    put = iter(sorted_)
    return [next(put) if a in moving else a for a in order]


def index_type(*xs: Tensor | None) -> str:
    """Returns the type of element offsets: 32 bits if they suffice."""
    return "u32" if all(x is None or x.space < 1 << 31 for x in xs) else "u64"


def aligned(x: Tensor, strides: Sequence[int], offset: int, width: int) -> bool:
    """Returns True if `width` elements along the last axis can be accessed as one vector (or several of 16 bytes)."""
    if not strides or strides[-1] != 1:
        return False
    unit = min(16, width * x.dtype.size)
    return x.align % unit == 0 and all(divides(unit, s * x.dtype.size) for s in (*strides[:-1], offset))


def vector_width(extent: int, xs: Sequence[tuple[Tensor, Sequence[int], int]], most: int = 16) -> int:
    """Returns the widest vector that divides the last axis and is aligned for all `xs` (tensor, strides, offset)."""
    width = most
    while width > 1 and (not divides(width, extent) or not all(aligned(x, s, o, width) for x, s, o in xs)):
        width //= 2
    return width


def preferred_width(xs: Sequence[Tensor]) -> int:
    """Returns the elements in 16 bytes of the narrowest float type, at most 32 bytes of the widest; for int8 alone 16."""
    sizes = [x.dtype.size for x in xs] or [4]
    return max(1, min(16 // min(sizes), 32 // max(sizes)))


def decompose(name: str, dims: Sequence[int], prefix: str, first_open: bool = True) -> tuple[list[str], list[str]]:
    """Returns statements that split a flat index into coordinates `prefix0`.., innermost last, and their names."""
    names = [f"{prefix}{i}" for i in range(len(dims))]
    lines: list[str] = []
    rest = name
    for i in reversed(range(1, len(dims))):
        lines.append(f"const u32 {names[i]} = {rest} % {dims[i]}u, {prefix}q{i} = {rest} / {dims[i]}u;")
        rest = f"{prefix}q{i}"
    if dims:
        lines.append(f"const u32 {names[0]} = {rest}{'' if first_open else f' % {dims[0]}u'};")
    return lines, names


def offset_code(names: Sequence[str], strides: Sequence[int], offset: int, index: str, scale: int = 1) -> str:
    """Returns the sum of coordinates times strides; the last coordinate counts groups of `scale` elements."""
    terms = []
    for i, (name, stride) in enumerate(zip(names, strides, strict=True)):
        step = stride * (scale if i == len(names) - 1 else 1)
        if not step:
            continue
        wide = name if index == "u32" else f"({index}){name}"
        terms.append(wide if step == 1 else f"{wide} * {step}u" if index == "u32" else f"{wide} * {step}ull")
    if offset:
        terms.append(f"{offset}u" if index == "u32" else f"{offset}ull")
    return " + ".join(terms) or "0"


def nest(heads: Sequence[Sequence[str]], inner: Sequence[str]) -> list[str]:
    """Returns statements inside nested loops; heads: for each loop, its opening line and leading statements."""
    if not heads:
        return list(inner)
    (head, *first), *rest = heads
    return [head, *(f"  {line}" for line in (*first, *nest(rest, inner))), "}"]


def distance(step: int, width: int) -> str:
    """Returns the stride between elements as an expression to multiply with `k`, an int below `width`."""
    return f"{step}" if step * (width - 1) < 1 << 31 else f"{step}ll"


def load_code(x: Tensor, width: int) -> str:
    """Returns the function that loads `width` adjacent elements."""
    return f"{'ldv' if width * x.dtype.size <= 16 else 'load_many'}<{storage_type(x.dtype)}, {width}>"


def store_code(x: Tensor, width: int) -> str:
    """Returns the function that stores `width` adjacent elements."""
    return f"{'stv' if width * x.dtype.size <= 16 else 'store_many'}<{storage_type(x.dtype)}, {width}>"


class Reader:
    """Reads `width` elements of a thread: as a vector, as one broadcast element, or one by one."""

    def __init__(self, x: Tensor, strides: Sequence[int], offset: int, width: int) -> None:
        self.x = x
        self.step = strides[-1] if strides else 0
        self.width = width
        self.strides = tuple(strides)
        self.offset = offset
        if width == 1 or self.step == 0:
            self.how = "one"
        elif aligned(x, strides, offset, width):
            self.how = "vector"
        else:
            self.how = "each"

    def lines(self, name: str, pointer: str, at: str) -> list[str]:
        """Returns statements that read into `name`; `at`: offset of the first element."""
        t = storage_type(self.x.dtype)
        if self.how == "one":
            return [f"const {t} {name} = {pointer}[{at}];"]
        if self.how == "vector":
            return [f"const vec<{t}, {self.width}> {name} = {load_code(self.x, self.width)}({pointer} + ({at}));"]
        step = "" if self.step == 1 else f" * {distance(self.step, self.width)}"
        return [
            f"{t} {name}[{self.width}];",
            f"UNROLL for (int k = 0; k < {self.width}; ++k) {name}[k] = {pointer}[{at} + k{step}];",
        ]

    def element(self, name: str) -> str:
        """Returns the expression of element `k`."""
        return name if self.how == "one" else f"{name}.v[k]" if self.how == "vector" else f"{name}[k]"
