"""ai.onnx.preview.training: optimizer steps and gradients."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core.errors import counted

from ..converter import converts
from ..gradient import gradients
from ..node import Node

TRAINING = "ai.onnx.preview.training"


@converts("Adagrad", domain=TRAINING)
def adagrad(n: Node, *inputs: Instruction) -> Any:
    names = ("decay_factor", "epsilon", "norm_coefficient")
    return n.items(n.add("adagrad", *inputs, **{name: n.attr(name) for name in names if n.has(name)}))


@converts("Adam", domain=TRAINING)
def adam(n: Node, *inputs: Instruction) -> Any:
    names = ("alpha", "beta", "epsilon", "norm_coefficient", "norm_coefficient_post")
    return n.items(n.add("adam", *inputs, **{name: n.attr(name) for name in names if n.has(name)}))


@converts("Momentum", domain=TRAINING)
def momentum(n: Node, *inputs: Instruction) -> Any:
    names = ("alpha", "beta", "mode", "norm_coefficient")
    return n.items(n.add("momentum", *inputs, **{name: n.attr(name) for name in names}))


@converts("Gradient", domain=TRAINING)
def gradient(n: Node, *inputs: Instruction) -> Any:
    """Converts Gradient: differentiates y with respect to the tensors named by xs; the inputs are the values of xs and zs."""
    names = [*n.attr("xs"), *n.attr("zs", [])]
    if len(names) != len(inputs):
        n.fail(f"xs and zs name {counted(len(names), 'tensor')}, got {counted(len(inputs), 'value')}")
    named: list[Instruction] = []
    for name in [*names, n.attr("y")]:
        found = n.parser.lookup(name)
        if found is None:
            n.fail(f"tensor {name!r} is absent")
        named.append(found)
    return tuple(gradients(n, named[-1], named[:-1], list(inputs))[: len(n.attr("xs"))])
