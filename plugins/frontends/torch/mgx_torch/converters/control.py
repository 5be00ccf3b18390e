"""Higher-order operators: cond, while_loop, scan, regions, operators with effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mgx_core import Instruction, Module, Shape
from mgx_core import dtype as dt
from mgx_core.converting.loops import carried
from mgx_core.types.shape import AnyShape

from ..converter import converts
from ..node import Node

__all__: list[str] = []


def _tensors(n: Node, values: Sequence[Any]) -> list[Instruction]:
    return [n.tensor(v) for v in values]


@converts("cond", domain="higher_order")
def cond(n: Node, predicate: Any, yes: Any, no: Any, operands: Sequence[Any] = ()) -> Any:
    modules = []
    for name, branch in (("then", yes), ("else", no)):
        inner, found = n.graph.subgraph(n, branch, name, (), operands)
        inner.add_return(found)
        modules.append(inner)
    condition = n.reshape(n.tensor(predicate, dt.bool_), ())
    return n.items(n.add("if", condition, modules=modules))


@converts("invoke_subgraph", domain="higher_order")
def invoke_subgraph(n: Node, body: Any, identifier: str, *operands: Any) -> Any:
    """Inlines a region of `torch.compiler.nested_compile_region`."""
    return n.graph.convert(body.graph, operands)


@converts("while_loop", domain="higher_order")
def while_loop(n: Node, test: Any, body: Any, states: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    given = _tensors(n, states)
    first = n.graph.convert(test.graph, [*given, *more])
    start = n.reshape(n.tensor(_only(first), dt.bool_), ())

    def build(shapes: list[AnyShape]) -> Module:
        signature = [_scalar(dt.int64), _scalar(dt.bool_), *shapes]
        inner = Module(n.graph.module_name("body"))
        made = [inner.add_parameter(f"{inner.name}_{i}", s) for i, s in enumerate(signature)]
        child = n.graph.child(inner)
        results = [child.output(r) for r in child.convert(body.graph, [*made[2:], *more])]
        again = child.output(_only(child.convert(test.graph, [*results, *more])))
        inner.add_return([again, *results])
        return inner

    inner = carried([g.result for g in given], build, 1)
    return n.items(n.add("loop", None, start, *given, modules=[inner]))


@converts("scan", domain="higher_order")
def scan(n: Node, body: Any, states: Sequence[Any], xs: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    given, slices = _tensors(n, states), _tensors(n, xs)
    shapes = [*(g.shape for g in given), *(_row(x) for x in slices)]
    inner, found = n.graph.subgraph(n, body, "scan", shapes, more)
    inner.add_return(found)
    rows = len(found) - len(given)
    out = n.add(
        "scan",
        *given,
        *slices,
        modules=[inner],
        states=len(given),
        input_axes=(0,) * len(slices),
        input_directions=(0,) * len(slices),
        output_axes=(0,) * rows,
        output_directions=(0,) * rows,
    )
    return n.items(out)


@converts("map_impl", "map", domain="higher_order")
def map_(n: Node, body: Any, xs: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    return scan(n, body, (), xs, more)


def _only(found: Any) -> Any:
    return found[0] if isinstance(found, (list, tuple)) else found


def _scalar(dtype: Any) -> AnyShape:
    return Shape.of(dtype, [])


def _row(x: Instruction) -> AnyShape:
    return Shape.of(x.shape.dtype, x.shape.dims[1:])


@converts("with_effects", domain="higher_order")
def with_effects(n: Node, token: Any, operator: Any, *_: Any, is_matrix: bool = False) -> tuple[None]:
    """Drops checks of results in exported programs, whose tokens (they order effects) are None; others run in torch."""
    if token is not None or operator is not torch.ops.aten._linalg_check_errors.default:
        n.unsupported(f"{operator} has an effect besides its results, which a program cannot have; remove the call")
    return (None,)
