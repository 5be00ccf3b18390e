"""Structurally equal nested modules: the layers of a network repeat a few bodies, so that each is processed only once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator

import numpy as np

from ..ops.operation import Operation
from ..types.shape import Shape
from .instruction import Instruction
from .module import Module, nested

__all__ = ["Classes", "equal_bodies", "signature"]

SMALL = 16  # the most bytes of a constant compared by value


def equal_bodies(module: Module) -> dict[Module, Module]:
    """Maps each nested module that is structurally equal to another one to the first such module in order.

    Bodies of control flow and bodies that capture outer values are excluded.  Also interns equal ops and shapes.
    """
    _intern(module)
    classes = Classes()
    classes.add(_bodies(module))
    members = Counter(classes.first.values())
    return {body: one for body, one in classes.first.items() if members[one] > 1}


def _intern(module: Module) -> None:
    """Interns equal ops and equal shapes, so that comparing them is cheap."""
    ops: dict[Operation, Operation] = {}
    shapes: dict[Shape, Shape] = {}
    for inner in nested(module):
        for ins in inner:
            ins.op = ops.setdefault(ins.op, ins.op)
            if isinstance(ins.result, Shape):
                ins.result = shapes.setdefault(ins.result, ins.result)


def signature(body: Module, first: dict[Module, Module] | None = None) -> Hashable | None:
    """Structural key of a body: equal for structurally equal bodies.

    None for a body that captures outer values, has constants of more than a few elements, or runs modules whose
    representative is not in `first`.
    """
    at: dict[Instruction, int] = {}
    parts: list[Hashable] = []
    for n, ins in enumerate(body):
        at[ins] = n
        constant: Hashable = None
        if ins.literal is not None:
            value = ins.literal.value
            if not isinstance(value, np.ndarray) or value.dtype.kind == "O" or value.nbytes > SMALL:
                return None
            constant = value.tobytes()
        inner: list[Hashable] = []
        for module in ins.modules:
            one = None if first is None else first.get(module)
            if one is None:
                return None
            inner.append(one)
        try:
            inputs = tuple([at[i] for i in ins.inputs])
        except KeyError:
            return None
        parts.append((None if ins.is_param else ins.op, inputs, ins.result, constant, *inner))
    return tuple(parts)


class Classes:
    """Equivalence classes of modules that compute the same, including nested modules.

    first: for each module that was added and has a `signature`, the first that computes the same.
    """

    def __init__(self) -> None:
        self.first: dict[Module, Module] = {}
        self._members: dict[Hashable, Module] = {}

    def add(self, modules: Iterable[Module]) -> None:
        """Adds modules, inner ones first."""
        for module in modules:
            key = signature(module, self.first)
            if key is not None:
                self.first[module] = self._members.setdefault(key, module)

    def key(self, module: Module) -> Hashable | None:
        """Returns a key that is equal for modules that compute the same; None if `signature` is None."""
        self.add(_bodies(module))
        return signature(module, self.first)


def _bodies(module: Module) -> Iterator[Module]:
    """Yields the bodies of all groups, inner ones first."""
    seen: set[Module] = set()
    for ins in module:
        for body in ins.modules:
            if body not in seen:
                seen.add(body)
                yield from _bodies(body)
                if not ins.op.control:
                    yield body
