"""Recurrent layers unrolled into matrix products and pointwise ops, for targets without a kernel of their own for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..types.dtype import float32, float64
from .activation import Elu, HardSigmoid, LeakyRelu, Relu, Sigmoid, Softplus, Softsign
from .attention_parts import full
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .compare import GreaterOrEqual
from .concat import Concat
from .convert import Convert
from .linear import Dot
from .movement import Transpose
from .operation import Operation
from .pointwise import Add, Clip, Mul, Sub, Where
from .recurrent_layer import Recurrent
from .reshape import Reshape
from .slice import Slice
from .trigonometry import Tanh

__all__ = ["gru_parts", "lstm_parts", "rnn_parts"]

MOST_STEPS: Final = 512  # longer sequences are not unrolled: compiling them would take longer than running them
MOST_GATES: Final = 3 * MOST_STEPS  # the most instructions of all steps and directions
SIMPLE: Final[dict[str, Callable[[float, float], Operation]]] = {
    "relu": lambda alpha, beta: Relu(),
    "tanh": lambda alpha, beta: Tanh(),
    "sigmoid": lambda alpha, beta: Sigmoid(),
    "leaky_relu": lambda alpha, beta: LeakyRelu(alpha=alpha),
    "hard_sigmoid": lambda alpha, beta: HardSigmoid(alpha=alpha, beta=beta),
    "elu": lambda alpha, beta: Elu(alpha=alpha),
    "softsign": lambda alpha, beta: Softsign(),
    "softplus": lambda alpha, beta: Softplus(),
}


class Unrolled:
    """The decomposition of one direction of a layer."""

    def __init__(self, layer: Recurrent, b: Builder, direction: int, x: Operand, w: Operand, r: Operand) -> None:
        self.layer = layer
        self.b = b
        self.d = direction
        self.x = x
        self.w = w
        self.r = r
        self.h = layer.hidden_size
        self.size = int(x.shape.dims[1])

    def part(self, x: Operand, axis: int, start: int, end: int) -> Operand:
        return self.b.add(Slice(axes=(axis,), starts=(start,), ends=(end,)), x)

    def own(self, x: Operand) -> Operand:
        """Returns this direction's entry along axis 0, without that axis."""
        return self.b.add(Reshape(dims=x.shape.dims[1:]), self.part(x, 0, self.d, self.d + 1))

    def rows(self, vector: Operand) -> Operand:
        """Returns a vector broadcast over the batch."""
        return self.b.add(Multibroadcast(out_lens=(self.size, *vector.shape.dims)), vector)

    def initial(self, state: Operand | None) -> Operand:
        if state is not None:
            return self.own(state)
        zero = self.b.literal(np.zeros((), self.x.shape.dtype.numpy))
        return self.b.add(Multibroadcast(out_lens=(self.size, self.h)), zero)

    def bias(self, bias: Operand | None) -> tuple[Operand, Operand] | None:
        """Returns the biases of w and of r, broadcast over the batch."""
        if bias is None:
            return None
        mine, half = self.own(bias), self.layer.gates * self.h
        return self.rows(self.part(mine, 0, 0, half)), self.rows(self.part(mine, 0, half, 2 * half))

    def turned(self, weights: Operand) -> Operand:
        return self.b.add(Transpose(permutation=(1, 0)), self.own(weights))

    def add(self, *xs: Operand | None) -> Operand:
        out: Operand | None = None
        for x in xs:
            if x is not None:
                out = x if out is None else self.b.add(Add(), out, x)
        assert out is not None
        return out

    def mul(self, x: Operand, y: Operand) -> Operand:
        return self.b.add(Mul(), x, y)

    def gate(self, x: Operand, index: int, count: int = 1) -> Operand:
        return self.part(x, 1, index * self.h, (index + count) * self.h)

    def clipped(self, x: Operand) -> Operand:
        clip, b = self.layer.clip, self.b
        return b.add(Clip(), x, full(b, -clip, x), full(b, clip, x)) if clip else x

    def active(self, index: int, x: Operand) -> Operand:
        """Returns the cell's activation function number `index`."""
        layer, b = self.layer, self.b
        name, alpha, beta = layer.functions_of(self.d)[index]
        if name in SIMPLE:
            return b.add(SIMPLE[name](alpha, beta), x)
        if name == "affine":
            return self.add(self.mul(x, full(b, alpha, x)), full(b, beta, x))
        if name == "scaled_tanh":
            return self.mul(full(b, alpha, x), b.add(Tanh(), self.mul(x, full(b, beta, x))))
        over = b.add(GreaterOrEqual(), x, full(b, alpha, x))
        return b.add(Where(), over, x, full(b, 0.0, x))

    def products(self) -> list[Operand]:
        """Returns x w^T [b, gates h] for every step."""
        s, n, i = (int(v) for v in self.x.shape.dims)
        flat = self.b.add(Reshape(dims=(s * n, i)), self.x)
        whole = self.b.add(Dot(), flat, self.turned(self.w))
        return [self.part(whole, 0, t * n, (t + 1) * n) for t in range(s)]

    def one_minus(self, x: Operand) -> Operand:
        return self.b.add(Sub(), full(self.b, 1.0, x), x)


def _alive(b: Builder, x: Operand, lens: Operand | None, hidden: int) -> list[Operand | None]:
    """Returns for each step a bool mask [b, h] of the sequences that are long enough."""
    steps, size = int(x.shape.dims[0]), int(x.shape.dims[1])
    if lens is None:
        return [None] * steps
    column = b.add(Multibroadcast(out_lens=(size, hidden)), b.add(Reshape(dims=(size, 1)), lens))
    return [b.add(GreaterOrEqual(), column, full(b, t + 1, column)) for t in range(steps)]


Cell = Callable[..., tuple[Operand, ...]]  # (input products of a step, states) -> next states


def _unroll(
    layer: Recurrent, b: Builder, operands: tuple[Operand | None, ...], kinds: int, prepare: Callable[..., Cell]
) -> tuple[Operand, list[Operand]] | None:
    """Returns hidden states [s, d, b, h] as an operand of x's type, and each direction's last state of the last kind [b, h].

    None if the number of steps is not static.
    operands: those of the layer; kinds: number of states; prepare: creates one direction's cell from it, r and the bias.
    Narrow floats are computed as float32, so that a long recurrence does not lose their precision.
    """
    given: list[Any] = [*operands, *[None] * (2 + kinds)][: 5 + kinds]
    to, lens = given[0].shape.dtype, given.pop(4)
    x, w, r, bias, *first = [_wide(b, v) for v in given]
    if any(v.shape.dynamic() for v in (x, w, r)) or int(x.shape.dims[0]) > MOST_STEPS or not x.shape.elements():
        return None
    steps, size, h = int(x.shape.dims[0]), int(x.shape.dims[1]), layer.hidden_size
    if steps * layer.directions * (int(w.shape.dims[1]) // h) > MOST_GATES:
        return None
    alive = _alive(b, x, lens, h)
    sides: list[Operand] = []
    lasts: list[Operand] = []
    for d in range(layer.directions):
        one = Unrolled(layer, b, d, x, w, r)
        cell = prepare(one, r, bias)
        now = tuple(one.initial(state) for state in first)
        inputs = one.products()
        rows: list[Any] = [None] * steps
        for t in layer.steps(d, steps):
            new = cell(inputs[t], *now)
            here = alive[t]
            now = new if here is None else tuple(b.add(Where(), here, n, o) for n, o in zip(new, now, strict=True))
            shown = new[0] if here is None else b.add(Where(), here, new[0], full(b, 0.0, new[0]))
            rows[t] = b.add(Reshape(dims=(1, 1, size, h)), shown)
        sides.append(b.add(Concat(axis=0), *rows))
        lasts.append(now[-1])
    whole = sides[0] if len(sides) == 1 else b.add(Concat(axis=1), *sides)
    return b.add(Convert(target_type=to), whole), lasts


def _wide(b: Builder, x: Any) -> Any:
    if x is None or x.shape.dtype in (float32, float64):
        return x
    return b.add(Convert(target_type=float32), x)


def rnn_parts(layer: Recurrent, b: Builder, *operands: Operand | None) -> Operand | None:
    """Decomposes a default `rnn` into simpler ops; None if its steps cannot be counted."""

    def prepare(one: Unrolled, r: Operand, bias: Operand | None) -> Cell:
        weights, both = one.turned(r), one.bias(bias)
        shift = None if both is None else one.add(*both)
        return lambda now, state: (one.active(0, one.clipped(one.add(now, b.add(Dot(), state, weights), shift))),)

    found = _unroll(layer, b, operands, 1, prepare)
    return None if found is None else found[0]


def gru_parts(layer: Recurrent, linear_before_reset: bool, b: Builder, *operands: Operand | None) -> Operand | None:
    """Decomposes a default `gru` into simpler ops; None if its steps cannot be counted."""
    h = layer.hidden_size

    def prepare(one: Unrolled, r: Operand, bias: Operand | None) -> Cell:
        weights, both = one.turned(r), one.bias(bias)
        early, late = one.part(weights, 1, 0, 2 * h), one.part(weights, 1, 2 * h, 3 * h)
        shift = None if both is None else one.gate(one.add(*both), 0, 2)
        own, other = (None, None) if both is None else (one.gate(both[0], 2), one.gate(both[1], 2))

        def cell(now: Operand, state: Operand) -> tuple[Operand, ...]:
            gates = one.active(0, one.clipped(one.add(one.gate(now, 0, 2), b.add(Dot(), state, early), shift)))
            update, reset = one.gate(gates, 0), one.gate(gates, 1)
            if linear_before_reset:
                inner = one.mul(reset, one.add(b.add(Dot(), state, late), other))
            else:
                inner = one.add(b.add(Dot(), one.mul(reset, state), late), other)
            new = one.active(1, one.clipped(one.add(one.gate(now, 2), own, inner)))
            return (one.add(one.mul(one.one_minus(update), new), one.mul(update, state)),)

        return cell

    found = _unroll(layer, b, operands, 1, prepare)
    return None if found is None else found[0]


def lstm_parts(
    layer: Recurrent, input_forget: bool, b: Builder, *operands: Operand | None
) -> tuple[Operand, Operand] | None:
    """Decomposes an `lstm` into simpler ops; None if its steps cannot be counted."""
    lens, peephole = [*operands, *[None] * 4][4], _wide(b, [*operands, *[None] * 6][7])

    def prepare(one: Unrolled, r: Operand, bias: Operand | None) -> Cell:
        weights, both = one.turned(r), one.bias(bias)
        shift = None if both is None else one.add(*both)
        looks = None if peephole is None else one.rows(one.own(peephole))

        def opened(gates: Operand, index: int, memory: Operand) -> Operand:
            """Returns gate 0 (input), 1 (output) or 2 (forget), with its peephole, if any."""
            look = None if looks is None else one.mul(one.gate(looks, index), memory)
            return one.active(0, one.clipped(one.add(one.gate(gates, index), look)))

        def cell(now: Operand, state: Operand, memory: Operand) -> tuple[Operand, ...]:
            gates = one.add(now, b.add(Dot(), state, weights), shift)
            let = opened(gates, 0, memory)
            keep = one.one_minus(let) if input_forget else opened(gates, 2, memory)
            new = one.add(one.mul(keep, memory), one.mul(let, one.active(1, one.clipped(one.gate(gates, 3)))))
            return one.mul(opened(gates, 1, new), one.active(2, new)), new

        return cell

    found = _unroll(layer, b, operands, 2, prepare)
    if found is None:
        return None
    hidden, ends = found
    if lens is not None:  # zero for a sequence without steps
        column = b.add(Reshape(dims=(*lens.shape.dims, 1)), lens)
        any_step = b.add(GreaterOrEqual(), column, full(b, 1, column))
        ends = [
            b.add(Where(), b.add(Multibroadcast(out_lens=v.shape.dims), any_step), v, full(b, 0.0, v)) for v in ends
        ]
    rows = [b.add(Reshape(dims=(1, *v.shape.dims)), v) for v in ends]
    whole = rows[0] if len(rows) == 1 else b.add(Concat(axis=0), *rows)
    return hidden, b.add(Convert(target_type=hidden.shape.dtype), whole)
