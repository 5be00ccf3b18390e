"""RNN, GRU and LSTM."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core.ops.activation_table import ACTIVATIONS

from ..converter import converts
from ..node import Node

__all__ = ["layer_attributes"]

# ONNX's names in lower case -> op names
NAMES = {name.replace("_", ""): name for name in ACTIVATIONS}


def layer_attributes(n: Node, r: Instruction, functions: tuple[str, ...]) -> dict[str, Any]:
    """Returns attributes common to RNN, GRU and LSTM; functions: default activations of one direction."""
    direction = n.attr("direction", "forward").lower()
    if direction not in ("forward", "reverse", "bidirectional"):
        n.fail(f"direction must be forward, reverse or bidirectional, got {direction!r}")
    count = len(functions) * (2 if direction == "bidirectional" else 1)
    given = n.attr("activations", None)
    if not given:
        names = functions * (count // len(functions))
    else:
        unknown = [g for g in given if g.lower() not in NAMES]
        if unknown:
            n.fail(f"unknown activation function {unknown[0]!r}")
        names = tuple(NAMES[g.lower()] for g in given)
        names = _filled(names, functions, count)
    if len(names) != count:
        n.fail(f"{count} activations are required, got {len(names)}")
    alphas, betas = iter(n.attr("activation_alpha", [])), iter(n.attr("activation_beta", []))
    alpha, beta = [], []
    for name in names:
        known = ACTIVATIONS[name]
        alpha.append(0.0 if known.alpha is None else next(alphas, known.alpha))
        beta.append(0.0 if known.beta is None else next(betas, known.beta))
    hidden = n.attr("hidden_size", 0) or r.shape.dims[-1]
    if not isinstance(hidden, int):
        n.fail("attribute 'hidden_size' is required unless the recurrence weights have static extents")
    return {
        "hidden_size": hidden,
        "actv_func": names,
        "actv_alpha": tuple(alpha),
        "actv_beta": tuple(beta),
        "direction": direction,
        "clip": max(n.attr("clip", 0.0), 0.0),
    }


def _filled(names: tuple[str, ...], functions: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Pads lists shorter than the standard requires: one direction applies to both, the last entry repeats."""
    if len(names) == count or len(names) > count:
        return names
    if count == 2 * len(functions) and len(names) == len(functions):
        return names * 2
    half = len(functions)
    one = (*names[:half], *[names[-1]] * (half - len(names[:half])))
    return one * (count // half)


class Layout:
    """Converts batch-major operands and results (attribute `layout`) to and from the ops' layout."""

    def __init__(self, n: Node) -> None:
        self.n = n
        self.batch_major = bool(n.attr("layout", 0))

    def inwards(self, x: Instruction | None) -> Instruction | None:
        return self.n.transpose(x, [1, 0, 2]) if self.batch_major and x is not None else x

    def states(self, y: Instruction) -> Instruction:
        return self.n.transpose(y, [2, 0, 1, 3]) if self.batch_major else y

    def last(self, y: Instruction) -> Instruction:
        return self.n.transpose(y, [1, 0, 2]) if self.batch_major else y


def _results(
    n: Node, layout: Layout, hidden: Instruction, lens: Instruction | None, direction: str
) -> tuple[Instruction, Instruction]:
    last = n.add("rnn_last_hs_output", hidden, lens, direction=direction)
    return layout.states(hidden), layout.last(last)


@converts("RNN")
def rnn(
    n: Node,
    x: Instruction,
    w: Instruction,
    r: Instruction,
    bias: Instruction | None = None,
    sequence_lens: Instruction | None = None,
    initial_h: Instruction | None = None,
) -> tuple[Instruction, ...]:
    layout, attributes = Layout(n), layer_attributes(n, r, ("tanh",))
    operands = (layout.inwards(x), w, r, bias, sequence_lens, layout.inwards(initial_h))
    hidden = n.add("rnn", *operands, **attributes)
    return _results(n, layout, hidden, sequence_lens, attributes["direction"])


@converts("GRU")
def gru(
    n: Node,
    x: Instruction,
    w: Instruction,
    r: Instruction,
    bias: Instruction | None = None,
    sequence_lens: Instruction | None = None,
    initial_h: Instruction | None = None,
) -> tuple[Instruction, ...]:
    layout, attributes = Layout(n), layer_attributes(n, r, ("sigmoid", "tanh"))
    operands = (layout.inwards(x), w, r, bias, sequence_lens, layout.inwards(initial_h))
    linear = bool(n.attr("linear_before_reset", 0))
    hidden = n.add("gru", *operands, linear_before_reset=linear, **attributes)
    return _results(n, layout, hidden, sequence_lens, attributes["direction"])


@converts("LSTM")
def lstm(
    n: Node,
    x: Instruction,
    w: Instruction,
    r: Instruction,
    bias: Instruction | None = None,
    sequence_lens: Instruction | None = None,
    initial_h: Instruction | None = None,
    initial_c: Instruction | None = None,
    peephole: Instruction | None = None,
) -> tuple[Instruction, ...]:
    layout, attributes = Layout(n), layer_attributes(n, r, ("sigmoid", "tanh", "tanh"))
    operands = (layout.inwards(x), w, r, bias, sequence_lens, layout.inwards(initial_h), layout.inwards(initial_c))
    coupled = bool(n.attr("input_forget", 0))
    both = n.add("lstm", *operands, peephole, input_forget=coupled, **attributes)
    y, last = _results(n, layout, n.get(both, 0), sequence_lens, attributes["direction"])
    return y, last, layout.last(n.add("rnn_last_cell_output", both))
