"""Queries on operator calls in FX graphs: names, arguments and results."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import torch

from .node import Complex, described

__all__ = [
    "ARITHMETIC",
    "asserts",
    "flat",
    "is_assertion",
    "is_complex",
    "keywords_of",
    "name_of",
    "only_computed_with",
    "subgraphs",
]


def name_of(target: Any) -> tuple[str, str, str]:
    """Returns namespace, operator and overload of a call's target."""
    if isinstance(target, torch._ops.OpOverload):
        namespace, _, packet = target._schema.name.partition("::")
        return namespace, packet, target._overloadname
    if isinstance(target, torch._ops.HigherOrderOperator):
        return "higher_order", target.name(), ""
    return (
        "python",
        str(target.__name__) if isinstance(target, (FunctionType, BuiltinFunctionType)) else str(target),
        "",
    )


ASSERTIONS: Final = frozenset(
    (torch.ops.aten._assert_scalar.default, torch.ops.aten._assert_async.msg, torch.ops.aten._assert_async.default)
)
# on integers that are scalars, not extents
ARITHMETIC: Final = frozenset((operator.add, operator.sub, operator.mul, operator.neg, operator.floordiv, operator.mod))


def is_assertion(fx: torch.fx.Node) -> bool:
    """Returns True for a check of a number or an element of a tensor at run time."""
    return fx.target in ASSERTIONS


def asserts(fx: torch.fx.Node) -> bool:
    """Returns True for an assertion, and for scalars used only by assertions."""
    if is_assertion(fx):
        return True
    number = isinstance(fx.meta.get("val"), (torch.SymInt, torch.SymBool))
    return number and bool(fx.users) and all(map(asserts, fx.users))


def only_computed_with(fx: torch.fx.Node) -> bool:
    """Returns True if an integer, and numbers computed from it, are in no size, and operators take them like elements."""
    wanted = fx.meta["val"].node.expr.free_symbols
    for node in fx.graph.nodes:
        for found in flat(node.meta.get("val")):
            if isinstance(found, torch.Tensor) and any(
                isinstance(d, torch.SymInt) and d.node.expr.free_symbols & wanted for d in found.shape
            ):
                return False
    return bool(wanted) and _only_computed_with(fx)


def _only_computed_with(fx: torch.fx.Node) -> bool:
    readers = [u for u in fx.users if described(u) is not None]  # assertions have no result
    return all(
        isinstance(u.meta["val"], torch.SymBool)
        or (isinstance(u.target, torch._ops.OpOverload) and _is_element(fx, u))
        or (u.target in ARITHMETIC and isinstance(u.meta["val"], torch.SymInt) and _only_computed_with(u))
        for u in readers
    )


def _is_element(fx: torch.fx.Node, reader: torch.fx.Node) -> bool:
    """Returns True if an operator takes numbers of any type where this one is passed, thus not extents, axes or indices."""
    if torch.Tag.pointwise in reader.target.tags:
        return True
    places = [*enumerate(reader.args), *reader.kwargs.items()]
    schema = reader.target._schema.arguments
    types = {key: a.type for n, a in enumerate(schema) for key in (n, a.name)}
    found = [types[key] for key, given in places if given is fx]
    plain = [t.getElementType() if isinstance(t, torch.OptionalType) else t for t in found]
    return bool(plain) and all(isinstance(t, torch.NumberType) for t in plain)


def subgraphs(fx: torch.fx.Node) -> list[torch.fx.GraphModule]:
    """Returns the subgraphs that a node calls: branches, loop bodies, checkpointed regions."""
    module = fx.graph.owning_module
    given = [getattr(module, str(x.target), None) for x in fx.all_input_nodes if x.op == "get_attr"]
    return [inner for inner in given if isinstance(inner, torch.fx.GraphModule)]


def is_complex(value: Any) -> bool:
    return any(isinstance(v, torch.Tensor) and v.is_complex() for v in flat(value))


def flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)) and not isinstance(value, Complex):
        return [x for v in value for x in flat(v)]
    if isinstance(value, Mapping):
        return [x for v in value.values() for x in flat(v)]
    return [value]


def keywords_of(converter: Any) -> frozenset[str]:
    """Returns the names of a converter's parameters after the node."""
    return frozenset(list(inspect.signature(converter).parameters)[1:])
