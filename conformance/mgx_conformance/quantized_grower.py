"""Random graphs of ops on dequantized tensors: quantizations of every type, weights, and the ops between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from mgx_core import Module, Shape, dtype
from mgx_core.ops import STANDARD

__all__ = ["Grower"]

make = STANDARD.make
COMMON: Final = (dtype.uint8, dtype.int8)
RARE: Final = (
    dtype.uint16, dtype.int16, dtype.uint4, dtype.int4,
    dtype.float8_e4m3fn, dtype.float8_e5m2, dtype.float8_e4m3fnuz, dtype.float8_e5m2fnuz,
)  # fmt: skip
UNARY: Final = ("relu", "sigmoid", "tanh", "hard_swish", "gelu_erf", "leaky_relu", "neg", "abs")


class Grower:
    """Adds a graph of ops on dequantized tensors to a module, and knows every value; feed: values of parameters by name."""

    def __init__(self, rng: np.random.Generator, main: Module, feed: dict[str, Any]) -> None:
        self.rng = rng
        self.main = main
        self.feed = feed
        self.known: dict[Any, Any] = {}
        self.image = self.likely(0.6)
        channels = int(rng.choice([1, 3, 4, 8, 16, 17, 32]))
        size = int(rng.integers(3, 9))
        self.dims = (
            (int(rng.integers(1, 3)), channels, size, size) if self.image else (int(rng.integers(1, 4)), size, channels)
        )
        self.values: list[Any] = []
        self.values.append(self.quantized(self.parameter(self.dims)))

    def likely(self, chance: float) -> bool:
        return bool(self.rng.random() < chance)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def parameter(self, dims: Sequence[int]) -> Any:
        name = f"x{len(self.feed)}"
        self.feed[name] = (self.rng.standard_normal(tuple(dims)) * self.pick([0.1, 1.0, 8.0])).astype(np.float32)
        made = self.main.add_parameter(name, Shape(dtype.float32, list(dims)))
        self.known[made] = self.feed[name]
        return made

    def literal(self, array: Any) -> Any:
        made = self.main.add_literal(np.ascontiguousarray(array))
        self.known[made] = array
        return made

    def add(self, name: str, *inputs: Any, **attributes: Any) -> Any:
        op = make(name, **attributes)
        made = self.main.add(op, *inputs)
        with np.errstate(all="ignore"):
            self.known[made] = op.evaluate([self.known[i] for i in inputs])
        return made

    # quantization

    def type(self) -> dtype.DType:
        found: dtype.DType = self.pick(COMMON) if self.likely(0.75) else self.pick(RARE)
        return found

    def numbers(self, value: Any, to: dtype.DType, axis: int = -1, block: int = 0) -> tuple[Any, Any | None]:
        """Returns a scale for which a tensor fits, or nearly, per tensor, per index of an axis or per block of it; and a zero
        point.
        """
        magnitude = np.abs(value)
        if axis >= 0 and block:
            parts = np.split(magnitude, range(block, value.shape[axis], block), axis)
            top = np.concatenate([p.max(axis, keepdims=True) for p in parts], axis)
        elif axis >= 0:
            top = magnitude.max(tuple(a for a in range(value.ndim) if a != axis))
        else:
            top = np.asarray(magnitude.max(initial=0))
        reach = min(float(to.highest), 448.0) if to.is_float else (float(to.highest) - float(to.lowest)) / 2
        scale = (np.maximum(top, 1e-3) / reach * self.rng.uniform(0.5, 1.5)).astype(np.float32)
        if self.likely(0.2):
            scale = np.exp2(np.ceil(np.log2(scale))).astype(np.float32)
        if to.is_float or self.likely(0.3):
            return scale, np.zeros(scale.shape, to.numpy) if to.is_float or self.likely(0.5) or to.lowest == 0 else None
        middle = 0 if to.lowest else (int(to.highest) + 1) // 2
        zero = middle if self.likely(0.4) else int(self.rng.integers(int(to.lowest), int(to.highest) + 1))
        return scale, np.full(scale.shape, zero).astype(to.numpy)

    def quantized(self, x: Any, to: dtype.DType | None = None) -> Any:
        """Returns a tensor after quantizelinear and dequantizelinear."""
        to = to or self.type()
        value = self.known[x]
        axis = int(self.rng.integers(value.ndim)) if self.likely(0.1) else -1
        block = int(self.pick([2, 3, 4])) if axis >= 0 and self.likely(0.3) else 0
        scale, zero = self.numbers(value, to, axis, block)
        given = [self.literal(scale), *([] if zero is None else [self.literal(zero)])]
        at = {"axis": axis, "block_size": block} if axis >= 0 else {}
        narrow = self.add("quantizelinear", x, *given, **at, **({"out_type": to} if zero is None else {}))
        return self.add("dequantizelinear", narrow, *given, **at)

    def narrow(self, x: Any) -> Any:
        """Returns the narrow tensor that a dequantizelinear reads."""
        return x.inputs[0]

    def weights(self, dims: Sequence[int], axes: Sequence[int]) -> Any:
        """Returns constant weights quantized per tensor, per index of one of these axes, or per block of one."""
        wide = (self.rng.standard_normal(tuple(dims)) * self.rng.uniform(0.05, 0.5)).astype(np.float32)
        to = dtype.int8 if self.likely(0.6) else self.type()
        axis = -1 if self.likely(0.3) else int(self.pick(axes))
        block = int(self.pick([2, 3, 4])) if axis >= 0 and self.likely(0.15) else 0
        scale, zero = self.numbers(wide, to, axis, block)
        if zero is not None and self.likely(0.5):
            zero = np.zeros_like(zero)
        at: Mapping[str, Any] = {"axis": axis, "block_size": block} if axis >= 0 else {}
        op = make("quantizelinear", **at, **({"out_type": to} if zero is None else {}))
        stored = op.evaluate([wide, scale, *([] if zero is None else [zero])])
        given = [self.literal(scale), *([] if zero is None else [self.literal(zero)])]
        return self.add("dequantizelinear", self.literal(stored), *given, **at)

    # ops

    def step(self) -> None:
        options = ["unary", "silu", "binary", "concat", "transpose", "reshape", "product", "product", "softmax"]
        options += ["mean", "cut", "rows", "row_product"]
        options += (
            ["pooling", "enlarged", "convolution_transposed", *["convolution"] * 4] if self.image else ["batch_product"]
        )
        made = getattr(self, self.pick(options))(self.pick(self.values[-3:]))
        if made is not None and 0 < self.known[made].size <= 20000:
            self.values.append(self.quantized(made))

    def unary(self, x: Any) -> Any:
        return self.add(self.pick(UNARY), x)

    def silu(self, x: Any) -> Any:
        return self.add("mul", x, self.quantized(self.add("sigmoid", x)))

    def binary(self, x: Any) -> Any:
        others = [v for v in self.values if v.shape.dims == x.shape.dims]
        return self.add(self.pick(["add", "add", "mul", "sub"]), x, self.pick(others))

    def concat(self, x: Any) -> Any:
        others = [v for v in self.values if v.shape.dims == x.shape.dims]
        return self.add("concat", x, self.pick(others), axis=min(1, x.shape.rank - 1))

    def transpose(self, x: Any) -> Any:
        return self.add("transpose", x, permutation=tuple(map(int, self.rng.permutation(x.shape.rank))))

    def reshape(self, x: Any) -> Any:
        dims = x.shape.dims
        return self.add("reshape", x, dims=(*dims[:-2], dims[-2] * dims[-1]) if len(dims) > 2 else (1, *dims))

    def softmax(self, x: Any) -> Any:
        return self.add("softmax", x, axis=-1)

    def product(self, x: Any) -> Any:
        dims = x.shape.dims
        w = self.weights((dims[-1], int(self.rng.integers(1, 40))), (0, 1))
        flat = self.add("reshape", x, dims=(int(np.prod(dims[:-1])), dims[-1]))
        made = self.add("dot", flat, w)
        return self.biased(made, 1)

    def batch_product(self, x: Any) -> Any:
        rank = x.shape.rank
        turned = self.add("transpose", self.pick([v for v in self.values if v.shape.dims == x.shape.dims]),
                          permutation=(*range(rank - 2), rank - 1, rank - 2))  # fmt: skip
        return self.add("dot", x, turned)

    def convolution(self, x: Any) -> Any:
        if x.shape.rank != 4:
            return None
        _, c, h, w = x.shape.dims
        deep = self.likely(0.25)
        count, size = (c if deep else int(self.rng.integers(1, 33))), int(self.pick([1, 1, 3]))
        if min(h, w) + 2 < size:
            return None
        kernel = self.weights((count, 1 if deep else c, size, size), (0, 0, 0, 1))
        pad = int(self.rng.integers(0, 2)) if size > 1 else 0
        if min(h, w) + 2 * pad < size:
            return None
        made = self.add("convolution", x, kernel, padding=(pad,) * 4, stride=(int(self.pick([1, 1, 2])),) * 2,
                        dilation=(1, 1), group=c if deep else 1)  # fmt: skip
        return self.biased(made, 1)

    def biased(self, x: Any, axis: int) -> Any:
        if self.likely(0.4):
            return x
        bias = self.literal((self.rng.standard_normal(x.shape.dims[axis]) * 0.3).astype(np.float32))
        made = self.add("add", x, self.add("broadcast", bias, axis=axis, out_lens=x.shape.dims))
        return self.add("relu", made) if self.likely(0.5) else made

    def pooling(self, x: Any) -> Any:
        if x.shape.rank != 4 or min(x.shape.dims[2:]) < 2:
            return None
        return self.add(
            "pooling", x, mode=self.pick(["max", "average"]), lengths=(2, 2), stride=(2, 2), padding=(0,) * 4
        )

    def mean(self, x: Any) -> Any:
        return self.add("reduce_mean", x, axes=(int(self.rng.integers(x.shape.rank)),))

    def cut(self, x: Any) -> Any:
        axis = int(self.rng.integers(x.shape.rank))
        first = int(self.rng.integers(x.shape.dims[axis]))
        return self.add("slice", x, axes=(axis,), starts=(first,), ends=(x.shape.dims[axis],))

    def rows(self, x: Any) -> Any:
        """Returns an embedding next to x: rows of a quantized table."""
        count, width = int(self.rng.integers(2, 9)), x.shape.dims[-1]
        indices = self.literal(self.rng.integers(0, count, x.shape.dims[:-1]))
        return self.add("add", x, self.add("gather", self.weights((count, width), (0, 1)), indices, axis=0))

    def row_product(self, x: Any) -> Any:
        """Returns the product of one row, as in a decoder's step."""
        row = self.add("slice", self.add("reshape", x, dims=(-1, x.shape.dims[-1])), axes=(0,), starts=(0,), ends=(1,))
        return self.biased(self.add("dot", row, self.weights((x.shape.dims[-1], 32), (0, 1))), 1)

    def enlarged(self, x: Any) -> Any:
        if x.shape.rank != 4:
            return None
        dims = (*x.shape.dims[:2], *(2 * d for d in x.shape.dims[2:]))
        return self.add("resize", x, sizes=dims, mode=self.pick(["nearest", "linear"]))

    def convolution_transposed(self, x: Any) -> Any:
        if x.shape.rank != 4:
            return None
        kernel = self.weights((x.shape.dims[1], int(self.rng.integers(1, 9)), 2, 2), (0, 1))
        made = self.add("convolution_backwards", x, kernel, padding=(0,) * 4, stride=(2, 2), dilation=(1, 1))
        return self.biased(made, 1)
