"""Queries on operator calls in FX graphs: names, arguments and results."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import torch

from .node import Complex

__all__ = ["asserts", "flat", "is_assertion", "is_complex", "keywords_of", "name_of", "subgraphs"]


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


def is_assertion(fx: torch.fx.Node) -> bool:
    """Returns True for a check of a number or an element of a tensor at run time."""
    return fx.target in ASSERTIONS


def asserts(fx: torch.fx.Node) -> bool:
    """Returns True for an assertion, and for scalars used only by assertions."""
    if is_assertion(fx):
        return True
    number = isinstance(fx.meta.get("val"), (torch.SymInt, torch.SymBool))
    return number and bool(fx.users) and all(map(asserts, fx.users))


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
