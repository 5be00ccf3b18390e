"""Fused recurrent cells and sequences, and CTC decoders."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core.converting.splitting import equal_parts
from mgx_core.types.dim import product

from ..converter import converts
from ..node import Node


class Lstm:
    """An LSTM cell with its attributes; gates are ordered in the weights as the operator defines."""

    def __init__(self, n: Node, w: Instruction, peepholes: list[Instruction], bias: Instruction) -> None:
        self.n = n
        self.w, self.bias = w, bias
        self.peepholes = peepholes if n.flag("use_peephole") else None
        newer = n.op_type.endswith("V2")
        self.order = (0, 2, 1, 3) if newer else (0, 1, 2, 3)
        self.forget = 0.0 if newer else n.float("forget_bias", 1.0)
        self.clip = n.float("cell_clip", 0.0 if newer else 3.0)

    def step(self, x: Instruction, cell: Instruction, hidden: Instruction) -> list[Instruction]:
        """Returns the gates and states of one step: i, cs, f, o, ci, co, h."""
        n, dtype = self.n, x.shape.dtype

        def add(a: Instruction, b: Instruction) -> Instruction:
            return n.pointwise("add", a, b)

        def mul(a: Instruction, b: Instruction) -> Instruction:
            return n.pointwise("mul", a, b)

        gates = equal_parts(n, add(n.add("dot", n.concat([x, hidden], 1), self.w), self.bias), 4)
        i, g, f, o = (gates[k] for k in self.order)
        if self.forget:
            f = add(f, n.literal(self.forget, dtype))
        if self.peepholes is not None:
            i, f = add(i, mul(cell, self.peepholes[0])), add(f, mul(cell, self.peepholes[1]))
        i, f, g = n.pointwise("sigmoid", i), n.pointwise("sigmoid", f), n.pointwise("tanh", g)
        cell = add(mul(g, i), mul(cell, f))
        if self.clip > 0:
            cell = n.pointwise("clip", cell, n.literal(-self.clip, dtype), n.literal(self.clip, dtype))
        o = n.pointwise("sigmoid", o if self.peepholes is None else add(o, mul(cell, self.peepholes[2])))
        out = n.pointwise("tanh", cell)
        return [i, cell, f, o, g, out, mul(out, o)]


@converts("LSTMBlockCell")
def lstm_cell(
    n: Node, x: Instruction, cell: Instruction, hidden: Instruction, w: Instruction, *rest: Instruction
) -> Any:
    *peepholes, bias = rest
    return tuple(Lstm(n, w, peepholes, bias).step(x, cell, hidden))


@converts("BlockLSTM", "BlockLSTMV2")
def lstm(
    n: Node,
    length: Instruction,
    x: Instruction,
    cell: Instruction,
    hidden: Instruction,
    w: Instruction,
    *rest: Instruction,
) -> Any:
    """Returns all steps; results of steps beyond the given length are 0."""
    *peepholes, bias = rest
    count = x.shape.dims[0]
    if not isinstance(count, int):
        n.unsupported("a number of steps that is known only at run time")
    layer = Lstm(n, w, peepholes, bias)
    steps = []
    for t in range(count):
        made = layer.step(n.squeeze(n.slice(x, [0], [t], [t + 1]), [0]), cell, hidden)
        cell, hidden = made[1], made[6]
        steps.append(made)
    parts = [n.concat([n.unsqueeze(s[k], [0]) for s in steps], 0) for k in range(7)]
    known = n.constant(length)
    if known is not None and int(known.reshape(())) >= count:
        return tuple(parts)
    times = n.literal(np.arange(count).reshape(-1, 1, 1), length.shape.dtype)
    going = n.pointwise("less", times, length)
    return tuple(n.pointwise("where", going, p, n.literal(0, p.shape.dtype)) for p in parts)


@converts("GRUBlockCell")
def gru_cell(
    n: Node, x: Instruction, hidden: Instruction, w: Instruction, c: Instruction, b: Instruction, d: Instruction
) -> Any:
    gates = n.pointwise("add", n.add("dot", n.concat([x, hidden], 1), w), b)
    r, u = equal_parts(n, n.pointwise("sigmoid", gates), 2)
    inner = n.concat([x, n.pointwise("mul", r, hidden)], 1)
    new = n.pointwise("tanh", n.pointwise("add", n.add("dot", inner, c), d))
    rest = n.pointwise("sub", n.literal(1, u.shape.dtype), u)
    made = n.pointwise("add", n.pointwise("mul", u, hidden), n.pointwise("mul", rest, new))
    return r, u, new, made


@converts("CTCGreedyDecoder")
def greedy(n: Node, x: Instruction, lengths: Instruction) -> Any:
    classes = x.shape.dims[2]
    if not isinstance(classes, int):
        n.unsupported("an unknown number of classes")
    blank = n.int("blank_index", -1) % classes
    return n.items(n.add("tf_ctc_greedy", x, lengths, blank=blank, merge=n.flag("merge_repeated")))


@converts("CTCBeamSearchDecoder")
def beam_search(n: Node, x: Instruction, lengths: Instruction) -> Any:
    paths = n.int("top_paths")
    if not 0 < paths <= n.int("beam_width"):
        n.fail(f"top_paths must lie in 1..{n.int('beam_width')}, got {paths}")
    merge = n.flag("merge_repeated", True)
    made = n.items(n.add("tf_ctc_beam", x, lengths, width=n.int("beam_width"), paths=paths, merge=merge))
    return (*made[0:-1:3], *made[1:-1:3], *made[2:-1:3], made[-1])


@converts("UnravelIndex")
def unravel(n: Node, x: Instruction, dims: Instruction) -> Instruction:
    extents = n.whole(dims, "the extents")
    flat = n.reshape(x, (product(x.shape.dims),))
    rows = []
    for d in reversed(extents):
        rows.append(n.pointwise("fmod", flat, n.literal(d, flat.shape.dtype)))
        flat = n.pointwise("div", flat, n.literal(d, flat.shape.dtype))
    made = n.concat([n.unsqueeze(r, [0]) for r in reversed(rows)], 0)
    return made if x.shape.rank else n.reshape(made, (len(extents),))
