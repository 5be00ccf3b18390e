"""Constants passed as kernel parameters, so that graphs that differ only in their values share code."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mgx_core import dtype as dt

from .code import Code, V
from .graph import Node, number
from .native_loop import bits_of
from .space import Args

__all__ = ["constant_bits", "constant_text", "enter_parameters", "parameter_constants", "parameter_value"]

PLAIN = (0.0, 1.0)  # magnitudes for which specialized code is simpler
# uses that parameters support; integer products are excluded, since a known factor becomes shifts
USES = {
    dt.float32: ("add", "sub", "mul", "exact_div", "lt", "le", "gt", "ge"),
    dt.int32: ("add", "sub"),
    dt.int64: ("add", "sub"),
}


def parameter_constants(nodes: Sequence[Node], fit: Callable[[Node], bool] = lambda node: True) -> list[Node]:
    """Returns the constants to pass as parameters: all their users support it, see `USES`, and satisfy `fit`."""
    users: dict[int, list[Node]] = {}
    for node in nodes:
        for a in node.args:
            users.setdefault(a.ident, []).append(node)

    def is_given(node: Node) -> bool:
        uses = USES.get(node.dtype)
        if node.kind != "const" or uses is None:
            return False
        value = float(number(node))
        if not math.isfinite(value) or abs(value) in PLAIN:
            return False
        return all(u.kind == "prim" and u.word in uses and fit(u) for u in users.get(node.ident, ()))

    return [node for node in nodes if is_given(node)]


def enter_parameters(args: Args, given: Sequence[Node]) -> None:
    """Appends the constants to a kernel's arguments, as bit patterns."""
    args.enter({f"number{i}": constant_bits(node) for i, node in enumerate(given)})


def constant_bits(node: Node) -> int:
    """Returns a constant of at most 64 bits as an integer argument."""
    return bits_of(float(number(node))) if node.dtype is dt.float32 else int(number(node))


def parameter_value(c: Code, node: Node, bits: V) -> V:
    """Returns a constant from the argument with its bit pattern."""
    if node.dtype is dt.int64:
        return bits
    low = c.cast("trunc", bits, "i32")
    return low if node.dtype is dt.int32 else c.cast("bitcast", low, "float")


def constant_text(given: Sequence[Node]) -> Callable[[Node], str]:
    """Returns a function that returns a constant's text for a key: its value, or a placeholder if it is a parameter."""
    idents = {node.ident for node in given}
    return lambda node: "given" if node.ident in idents else node.word
