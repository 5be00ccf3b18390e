"""Random programs: graphs of ops that compilers fuse, with odd extents and several element types."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from mgx_core import Program, Shape, ShapeError, dim, dtype
from mgx_core.ops import STANDARD

__all__ = ["THEMES", "Sketch", "sketches"]

make = STANDARD.make
EXTENTS: Final = (1, 2, 3, 4, 5, 7, 8, 16, 17)
LARGEST: Final = 4096  # maximum elements per value
UNARY: Final = (
    "relu",
    "tanh",
    "sigmoid",
    "neg",
    "abs",
    "erf",
    "sin",
    "gelu_erf",
    "leaky_relu",
    "softplus",
    "floor",
    "hard_swish",
)
BINARY: Final = ("add", "sub", "mul", "max", "min", "sqdiff")
INTEGER_UNARY: Final = ("relu", "neg", "abs", "sign")
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Theme:
    """The steps that one kind of random graph is built from; repeated entries are more frequent."""

    kind: dtype.DType
    steps: tuple[str, ...]
    symbolic: bool = False


POINTWISE = ("unary", "binary", "binary", "scalar", "where")
MOVEMENT = ("transpose", "reshape", "slice", "concat", "pad", "reverse")
THEMES: Final[dict[str, Theme]] = {
    "pointwise-float32": Theme(dtype.float32, POINTWISE),
    "pointwise-float16": Theme(dtype.float16, POINTWISE),
    "pointwise-bfloat16": Theme(dtype.bfloat16, POINTWISE),
    "pointwise-int32": Theme(dtype.int32, ("unary", "binary", "binary", "scalar", "where")),
    "reduce-float32": Theme(dtype.float32, (*POINTWISE, "reduce", "reduce", "softmax", "layernorm")),
    "reduce-float16": Theme(dtype.float16, (*POINTWISE, "reduce", "reduce", "softmax", "layernorm")),
    "movement-float32": Theme(dtype.float32, (*POINTWISE, *MOVEMENT)),
    "movement-int64": Theme(dtype.int64, (*POINTWISE, *MOVEMENT)),
    "dot-float32": Theme(dtype.float32, (*POINTWISE, "dot", "dot", "transpose", "softmax")),
    "dot-float16": Theme(dtype.float16, (*POINTWISE, "dot", "dot", "transpose", "softmax")),
    "convolution-float32": Theme(dtype.float32, (*POINTWISE, "convolution", "convolution", "pooling", "concat")),
    "converts": Theme(dtype.float32, (*POINTWISE, "convert", "convert", "reduce")),
    "mixed-float32": Theme(dtype.float32, (*POINTWISE, *MOVEMENT, "reduce", "dot", "softmax", "layernorm", "convert")),
    "symbolic-float32": Theme(dtype.float32, (*POINTWISE, "reduce", "transpose", "concat", "dot", "softmax"), True),
}


@dataclass
class Sketch:
    """A random program and the values of its parameters (for a symbolic one, several sets)."""

    program: Program
    feeds: list[dict[str, Any]]

    def __repr__(self) -> str:
        return f"{self.program.text()}\n{[{k: v.shape for k, v in f.items()} for f in self.feeds]}"


class Grower:
    """Adds random instructions to a module."""

    def __init__(self, theme: Theme, draw: Draw) -> None:
        self.theme = theme
        self.draw = draw
        self.program = Program()
        self.main = self.program.get_main_module()
        self.rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
        self.values: list[Any] = []

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def value(self, where: Callable[[Any], bool] = lambda v: True) -> Any:
        fitting = [v for v in self.values[-4:] if where(v)] or [v for v in self.values if where(v)]
        return self.pick(fitting) if fitting else None

    def parameter(self, dims: Sequence[Any]) -> None:
        self.values.append(self.main.add_parameter(f"x{len(self.main.parameters)}", Shape(self.theme.kind, dims)))

    def literal(self, kind: dtype.DType, *dims: int) -> Any:
        return self.main.add_literal(random_values(self.rng, kind, dims))

    def add(self, name: str, *inputs: Any, **attributes: Any) -> Any:
        return self.main.add(make(name, **attributes), *inputs)

    def spread(self, x: Any, dims: Sequence[Any]) -> Any:
        return x if x.shape.dims == tuple(dims) else self.add("multibroadcast", x, out_lens=tuple(dims))

    # steps: each returns an instruction, or None if none is possible

    def unary(self) -> Any:
        x = self.value(computable)
        return x and self.add(self.pick(UNARY if x.shape.dtype.is_float else INTEGER_UNARY), x)

    def binary(self) -> Any:
        x = self.value(computable)
        y = x and self.value(lambda v: v.shape.dtype is x.shape.dtype and common(x, v) is not None)
        if x is None or y is None:
            return None
        dims = common(x, y)
        assert dims is not None
        a, b = self.spread(x, dims), self.spread(y, dims)
        return self.add(self.pick(BINARY), *((a, b) if self.pick((True, False)) else (b, a)))

    def scalar(self) -> Any:
        x = self.value(computable)
        return x and self.add(
            self.pick(("add", "mul", "max")), x, self.spread(self.literal(x.shape.dtype, 1), x.shape.dims)
        )

    def where(self) -> Any:
        x = self.value(computable)
        if x is None:
            return None
        limit = self.spread(self.literal(x.shape.dtype, 1), x.shape.dims)
        return self.add("where", self.add(self.pick(("less", "greater")), x, limit), x, self.add("neg", x))

    def reduce(self) -> Any:
        x = self.value(lambda v: v.shape.rank and computable(v) and fixed(v))
        if x is None:
            return None
        axes = self.draw(st.sets(st.sampled_from(range(x.shape.rank)), min_size=1, max_size=2))
        names = (
            ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min")
            if x.shape.dtype.is_float
            else ("reduce_sum", "reduce_max")
        )
        return self.add(self.pick(names), x, axes=tuple(sorted(axes)))

    def softmax(self) -> Any:
        x = self.value(lambda v: v.shape.rank and v.shape.dtype.is_float and isinstance(v.shape.dims[-1], int))
        return x and self.add("softmax", x, axis=-1)

    def layernorm(self) -> Any:
        x = self.value(lambda v: v.shape.rank and v.shape.dtype.is_float and fixed(v))
        if x is None:
            return None
        n = x.shape.dims[-1]
        return self.add("layernorm", x, self.literal(x.shape.dtype, n), self.literal(x.shape.dtype, n), epsilon=0.01)

    def convert(self) -> Any:
        x = self.value(computable)
        return x and self.add(
            "convert", x, target_type=self.pick((dtype.float32, dtype.float16, dtype.float32, dtype.int32))
        )

    def transpose(self) -> Any:
        x = self.value(lambda v: v.shape.rank > 1)
        return x and self.add("transpose", x, permutation=tuple(self.draw(st.permutations(range(x.shape.rank)))))

    def reshape(self) -> Any:
        x = self.value(lambda v: v.shape.rank and fixed(v))
        if x is None:
            return None
        n = math.prod(x.shape.dims)
        divisors = [d for d in (1, 2, 3, 4, 5, 8) if n % d == 0]
        first = self.pick(divisors)
        return self.add("reshape", x, dims=self.pick(((n,), (first, n // first), (n // first, 1, first))))

    def slice(self) -> Any:
        x = self.value(lambda v: v.shape.rank and fixed(v) and max(v.shape.dims) > 1)
        if x is None:
            return None
        axis = self.pick([i for i, n in enumerate(x.shape.dims) if n > 1])
        n = x.shape.dims[axis]
        start = self.draw(st.integers(0, n - 1))
        end = self.draw(st.integers(start + 1, n))
        return self.add("slice", x, axes=(axis,), starts=(start,), ends=(end,), steps=(self.pick((1, 1, 2)),))

    def concat(self) -> Any:
        x = self.value(lambda v: v.shape.rank)
        if x is None:
            return None
        y = self.value(lambda v: v.shape == x.shape)
        axes = [i for i, n in enumerate(x.shape.dims) if isinstance(n, int)]
        return self.add("concat", x, y, axis=self.pick(axes)) if axes else None

    def pad(self) -> Any:
        x = self.value(lambda v: v.shape.rank and fixed(v))
        if x is None:
            return None
        pads = tuple(self.pick((0, 0, 1, 2)) for _ in range(2 * x.shape.rank))
        return self.add("pad", x, pads=pads)

    def reverse(self) -> Any:
        x = self.value(lambda v: v.shape.rank and fixed(v))
        return x and self.add("reverse", x, axes=(self.draw(st.integers(0, x.shape.rank - 1)),))

    def dot(self) -> Any:
        x = self.value(lambda v: v.shape.rank > 1 and v.shape.dtype.is_float and isinstance(v.shape.dims[-1], int))
        if x is None:
            return None
        k, n = x.shape.dims[-1], self.pick(EXTENTS)
        w = self.literal(x.shape.dtype, k, n)
        return self.add("dot", x, self.spread(w, (*x.shape.dims[:-2], k, n)))

    def convolution(self) -> Any:
        x = self.value(
            lambda v: v.shape.rank == 4 and v.shape.dtype.is_float and fixed(v) and min(v.shape.dims[2:]) > 2
        )
        if x is None:
            return None
        c = x.shape.dims[1]
        group = self.pick((1, c))
        k, pad = self.pick(((1, 0), (3, 1), (3, 0), (2, 0)))
        w = self.literal(x.shape.dtype, c if group > 1 else self.pick((1, 2, 4, 8)), c // group, k, k)
        return self.add("convolution", x, w, group=group, padding=(pad, pad), stride=(self.pick((1, 2)),) * 2)

    def pooling(self) -> Any:
        x = self.value(
            lambda v: v.shape.rank == 4 and v.shape.dtype.is_float and fixed(v) and min(v.shape.dims[2:]) > 2
        )
        return x and self.add(
            "pooling", x, mode=self.pick(("max", "average")), lengths=(2, 2), stride=(self.pick((1, 2)),) * 2
        )


def computable(v: Any) -> bool:
    return bool(v.shape.dtype.kind in "if")


def fixed(v: Any) -> bool:
    return not v.shape.dynamic()


def common(x: Any, y: Any) -> tuple[Any, ...] | None:
    """Returns the shape that two values broadcast to, None if they cannot be broadcast."""
    a, b = x.shape.dims, y.shape.dims
    rank = max(len(a), len(b))
    out = []
    for m, n in zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True):
        if m != n and 1 not in (m, n):
            return None
        out.append(n if m == 1 else m)
    return tuple(out)


def random_values(rng: np.random.Generator, kind: dtype.DType, dims: Sequence[int]) -> Any:
    if kind.is_float:
        return rng.uniform(-2, 2, dims).astype(np.float32).astype(kind.numpy)
    return rng.integers(-4, 5, dims).astype(kind.numpy)


@st.composite
def sketches(draw: Any, theme: Theme) -> Sketch:
    """Returns programs of one theme with one to three parameters, up to a dozen ops and up to three results."""
    g = Grower(theme, draw)
    if "convolution" in theme.steps:
        dims: tuple[Any, ...] = (
            draw(st.sampled_from((1, 2))),
            *(draw(st.sampled_from(s)) for s in ((1, 3, 4, 16), (5, 7, 8), (5, 8))),
        )
    else:
        low = 2 if "dot" in theme.steps or theme.symbolic else 0
        dims = tuple(draw(st.lists(st.sampled_from(EXTENTS), min_size=low, max_size=4)))
        while math.prod(dims) > LARGEST:
            dims = dims[1:]
    symbol = dim.symbol("n", 1, 64)
    for _ in range(draw(st.integers(1, 3))):
        own = tuple(draw(st.sampled_from((d, d, 1))) for d in dims)
        g.parameter((symbol, *own[1:]) if theme.symbolic else own)
    for _ in range(draw(st.integers(1, 12))):
        step = draw(st.sampled_from(theme.steps))
        try:
            made = getattr(g, step)()
        except ShapeError:  # two symbolic extents that do not broadcast
            continue
        if made is not None and made.shape.elements() <= 64 * LARGEST:
            g.values.append(made)
    results = [g.values[-1], *draw(st.lists(st.sampled_from(g.values), max_size=2))]
    g.main.add_return(list(dict.fromkeys(results)))
    feeds = []
    for n in (1, 3, 8) if theme.symbolic else (0,):
        shapes: dict[str, Any] = dict(g.program.get_parameter_shapes())
        feeds.append({k: random_values(g.rng, s.dtype, s.substitute({"n": n}).lens()) for k, s in shapes.items()})
    return Sketch(g.program, feeds)
