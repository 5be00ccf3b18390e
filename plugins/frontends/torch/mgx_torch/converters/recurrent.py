"""Whole recurrent layers and cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction
from mgx_core.converting.splitting import equal_parts

from ..converter import Converter, converts
from ..node import Node
from .linear import linear

__all__: list[str] = []

# torch's gate indices in the op's gate order
GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}


def ordered(n: Node, weight: Instruction, kind: str) -> Instruction:
    """Returns the rows of a weight or bias in the op's gate order."""
    order = GATES[kind]
    rows = weight.shape.dims[0] // len(order)
    if order == tuple(range(len(order))):
        return weight
    return n.add("concat", *(n.slice(weight, [0], [g * rows], [(g + 1) * rows]) for g in order), axis=0)


def joined(n: Node, xs: Sequence[Instruction]) -> Instruction:
    return n.add("concat", *(n.unsqueeze(x, [0]) for x in xs), axis=0) if len(xs) > 1 else n.unsqueeze(xs[0], [0])


def recurrent(kind: str, activation: str = "") -> Converter:
    def convert(
        n: Node,
        x: Instruction,
        state: Any,
        weights: Sequence[Instruction],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        if dropout and train:
            n.unsupported("a recurrent layer with dropout in training mode draws from torch's generator")
        single = x.shape.rank == 2
        states = list(state) if isinstance(state, (list, tuple)) else [state]
        for index, (last, first) in enumerate(zip(n.value[1:], states, strict=True), 1):
            if (
                n.output_used(index) and last.dim() != first.shape.rank
            ):  # torch 2.11 on a GPU; consumers may rely on that
                n.unsupported(f"torch's metadata of its last state has {last.dim()} axes instead of {first.shape.rank}")
        if single:
            x = n.unsqueeze(x, [0 if batch_first else 1])
            states = [n.unsqueeze(s, [1]) for s in states]
        y = n.transpose(x, [1, 0, 2]) if batch_first else x
        ways, each = (2 if bidirectional else 1), len(weights) // (layers * (2 if bidirectional else 1))
        if each % 2:  # weights of x and of the state, a bias of each, and an unexpected one
            n.unsupported("an LSTM with proj_size projects its state in every step, which the recurrent op does not")
        lasts: list[list[Instruction]] = [[] for _ in states]
        for layer in range(layers):
            sets = [weights[(layer * ways + d) * each : (layer * ways + d + 1) * each] for d in range(ways)]
            w = joined(n, [ordered(n, s[0], kind) for s in sets])
            r = joined(n, [ordered(n, s[1], kind) for s in sets])
            bias = None
            if has_biases:
                bias = joined(
                    n, [n.add("concat", ordered(n, s[2], kind), ordered(n, s[3], kind), axis=0) for s in sets]
                )
            start = [n.slice(s, [0], [layer * ways], [(layer + 1) * ways]) for s in states]
            given: dict[str, Any] = {
                "hidden_size": n.static(r.shape.dims[2], "the width of a recurrent layer"),
                "direction": "bidirectional" if bidirectional else "forward",
            }
            if kind == "gru":
                given["linear_before_reset"] = True
            if activation:
                given["actv_func"] = (activation,) * ways
            out = n.add(kind, y, w, r, bias, None, *start, **given)
            hidden = n.get(out, 0) if kind == "lstm" else out  # [steps, directions, batch, width]
            lasts[0].append(_last(n, hidden, ways))
            if len(states) > 1:
                lasts[1].append(n.get(out, 1))
            steps, _, batch, width = hidden.shape.dims
            y = n.reshape(n.transpose(hidden, [0, 2, 1, 3]), (steps, batch, ways * width))
        y = n.transpose(y, [1, 0, 2]) if batch_first else y
        ends = [n.add("concat", *found, axis=0) if len(found) > 1 else found[0] for found in lasts]
        if single:
            y = n.squeeze(y, [0 if batch_first else 1])
            ends = [n.squeeze(e, [1]) for e in ends]
        return (y, *ends)

    return convert


def _last(n: Node, hidden: Instruction, ways: int) -> Instruction:
    """Returns the last state of each direction; the reverse direction ends at the first step."""
    steps = hidden.shape.dims[0]
    forward = n.squeeze(n.slice(hidden, [0, 1], [steps - 1, 0], [steps, 1]), [0])
    if ways == 1:
        return forward
    return n.add("concat", forward, n.squeeze(n.slice(hidden, [0, 1], [0, 1], [1, 2]), [0]), axis=0)


converts("lstm.input")(recurrent("lstm"))
converts("gru.input")(recurrent("gru"))
converts("rnn_tanh.input")(recurrent("rnn", "tanh"))
converts("rnn_relu.input")(recurrent("rnn", "relu"))


def _gates(n: Node, x: Instruction, h: Instruction, w: Instruction, r: Instruction, b: Any, c: Any) -> tuple[Any, Any]:
    return linear(n, x, w, b), linear(n, h, r, c)


@converts("lstm_cell")
def lstm_cell(
    n: Node, x: Instruction, state: Sequence[Instruction], w: Instruction, r: Instruction, b: Any = None, c: Any = None
) -> tuple[Instruction, Instruction]:
    both = n.add("add", *_gates(n, x, state[0], w, r, b, c))
    i, f, g, o = equal_parts(n, both, 4)
    cell = n.add(
        "add", n.add("mul", n.add("sigmoid", f), state[1]), n.add("mul", n.add("sigmoid", i), n.add("tanh", g))
    )
    return n.add("mul", n.add("sigmoid", o), n.add("tanh", cell)), cell


@converts("gru_cell")
def gru_cell(
    n: Node, x: Instruction, h: Instruction, w: Instruction, r: Instruction, b: Any = None, c: Any = None
) -> Instruction:
    from_x, from_h = _gates(n, x, h, w, r, b, c)
    (xr, xz, xn), (hr, hz, hn) = equal_parts(n, from_x, 3), equal_parts(n, from_h, 3)
    reset, update = n.add("sigmoid", n.add("add", xr, hr)), n.add("sigmoid", n.add("add", xz, hz))
    new = n.add("tanh", n.add("add", xn, n.add("mul", reset, hn)))
    return n.add("add", new, n.add("mul", update, n.add("sub", h, new)))
