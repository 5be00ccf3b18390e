"""Cases of recurrent layers and of the ops that read their states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mgx_core import Shape, TupleShape, dtype
from mgx_core.ops import STANDARD

from .case import FLOATS, LAYOUTS, Case, Family, data, given

__all__ = ["family"]

family = Family("recurrent")
make = STANDARD.make
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
S, B, N, H = 4, 3, 5, 6


@family.cases("rnn", "gru", "lstm")
def layer(name: str) -> Iterable[Case]:
    g = GATES[name]
    for n, kind in enumerate(FLOATS[:3]):
        x, w, r = data(kind, S, B, N), data(kind, 1, g * H, N), data(kind, 1, g * H, H)
        bias, lengths = data(kind, 1, 2 * g * H), given([4, 2, 3], dtype.int32)
        start = data(kind, 1, B, H)
        states = (start, start) if name == "lstm" else (start,)
        yield Case(make(name, hidden_size=H), (x, w, r), "plain", LAYOUTS if n == 0 else LAYOUTS[:1])
        yield Case(make(name, hidden_size=H), (x, w, r, bias, None, *states), "states")
        if n:
            continue
        yield Case(make(name, hidden_size=H), (x, w, r, bias, lengths), "lengths")
        none = given([0, 4, 1], dtype.int32)
        yield Case(make(name, hidden_size=H), (x, w, r, bias, none, *states), "sequence-without-steps")
        yield Case(make(name, hidden_size=H, direction="reverse"), (x, w, r, bias, lengths), "reverse")
        yield Case(make(name, hidden_size=H, clip=0.3), (x, w, r, bias), "clip")
        both = tuple(data(kind, 2, *d) for d in ((g * H, N), (g * H, H), (2 * g * H,)))
        yield Case(make(name, hidden_size=H, direction="bidirectional"), (x, *both), "bidirectional", LAYOUTS[:3])
        long = (data(kind, 17, 1, N), w, r, bias)
        yield Case(make(name, hidden_size=H), long, "long")
        if name == "gru":
            yield Case(make(name, hidden_size=H, linear_before_reset=True), (x, w, r, bias), "linear-before-reset")
        if name == "lstm":
            peephole = (x, w, r, bias, None, *states, data(kind, 1, 3 * H))
            yield Case(make(name, hidden_size=H), peephole, "peephole")
            yield Case(make(name, hidden_size=H, input_forget=True), (x, w, r, bias), "input-forget")
        functions: dict[str, Any] = {"rnn": ("relu",), "gru": ("sigmoid", "relu"), "lstm": ("sigmoid", "relu", "tanh")}
        yield Case(make(name, hidden_size=H, actv_func=functions[name]), (x, w, r, bias), "activations")


STATES = (data(FLOATS[0], S, 2, B, H), given([4, 2, 3], dtype.int32))


@family.cases("rnn_last_hs_output", "rnn_var_sl_last_output", "rnn_var_sl_shift_output")
def states(name: str) -> Iterable[Case]:
    for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        operands = (data(FLOATS[0], S, count, B, H), STATES[1])
        yield Case(make(name, direction=direction), operands, direction, LAYOUTS[:3])
    if name == "rnn_last_hs_output":
        yield Case(make(name), (data(FLOATS[0], S, 1, B, H),), "whole")


@family.cases("rnn_var_sl_shift_sequence")
def shift(name: str) -> Iterable[Case]:
    yield Case(make(name), (data(FLOATS[0], S, B, N), STATES[1]), "", LAYOUTS[:3])


def pair() -> tuple[Any, Any]:
    rng = np.random.default_rng(8)
    hidden, cell = rng.normal(size=(S, 1, B, H)).astype(np.float32), rng.normal(size=(1, B, H)).astype(np.float32)
    return TupleShape([Shape("float32", hidden.shape), Shape("float32", cell.shape)]), (hidden, cell)


@family.cases("rnn_last_cell_output")
def cell(name: str) -> Iterable[Case]:
    yield Case(make(name), (pair(),), "")


@family.cases("get_tuple_elem")
def item(name: str) -> Iterable[Case]:
    for index in (0, 1):
        yield Case(make(name, index=index), (pair(),), f"index{index}")
