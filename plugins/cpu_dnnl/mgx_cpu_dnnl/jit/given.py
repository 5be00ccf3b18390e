"""Numbers of a graph that code is given as arguments, so that graphs that differ in them alone share code."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mgx_core import dtype as dt

from .code import Code, V
from .graph import Node, number
from .native_loop import bits_of
from .space import Args

__all__ = ["enter_given", "given_numbers", "given_value", "text_of_number"]

PLAIN = (0.0, 1.0)  # what code for them is simpler than for any number, up to their sign


def given_numbers(nodes: Sequence[Node], fit: Callable[[Node], bool] = lambda node: True) -> list[Node]:
    """Returns the float32 numbers that are added or multiplied only, by nodes that fit."""
    users: dict[int, list[Node]] = {}
    for node in nodes:
        for a in node.args:
            users.setdefault(a.ident, []).append(node)

    def is_given(node: Node) -> bool:
        if node.kind != "const" or node.dtype is not dt.float32:
            return False
        value = float(number(node))
        if not math.isfinite(value) or abs(value) in PLAIN:
            return False
        return all(u.kind == "prim" and u.extra in ("add", "sub", "mul") and fit(u) for u in users.get(node.ident, ()))

    return [node for node in nodes if is_given(node)]


def enter_given(args: Args, given: Sequence[Node]) -> None:
    """Adds the numbers to a kernel's arguments, as bits."""
    args.enter({f"number{i}": bits_of(float(number(node))) for i, node in enumerate(given)})


def given_value(c: Code, bits: V) -> V:
    """Returns a number from the argument that holds its bits."""
    return c.cast("bitcast", c.cast("trunc", bits, "i32"), "float")


def text_of_number(given: Sequence[Node]) -> Callable[[Node], str]:
    """Returns what a key says of a number: its value unless it is given."""
    idents = {node.ident for node in given}
    return lambda node: "given" if node.ident in idents else node.extra
