"""Cases of ops with modules: control flow, and groups as fusion makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mgx_core import Shape, dtype
from mgx_core.ops import STANDARD

from .case import FLOATS, LAYOUTS, Case, Family, data, given

__all__ = ["family"]

family = Family("control")
make = STANDARD.make
F = dtype.float32


def module(program: Any, name: str, parameters: Sequence[tuple[str, tuple[int, ...]]], body: Any) -> Any:
    """Returns a module with typed parameters that returns the results of `body`."""
    made = program.create_module(name)
    values = [made.add_parameter(f"p{n}", Shape(kind, dims)) for n, (kind, dims) in enumerate(parameters)]
    made.add_return(list(body(made, *values)))
    return made


@family.cases("if")
def branch(name: str) -> Iterable[Case]:
    def modules(program: Any) -> Sequence[Any]:
        return [
            module(program, "then", (), lambda m: [m.add_literal(np.array([1, 2], np.float32))]),
            module(program, "else", (), lambda m: [m.add_literal(np.array([3, 4], np.float32))]),
        ]

    for value in (True, False):
        yield Case(make(name), (given(value),), f"{value}".lower(), modules=modules)


@family.cases("loop")
def loop(name: str) -> Iterable[Case]:
    def modules(program: Any) -> Sequence[Any]:
        def body(m: Any, n: Any, going: Any, x: Any) -> list[Any]:
            y = m.add(make("add"), x, x)
            return [going, y, m.add(make("tanh"), y)]

        return [module(program, "body", (("int64", ()), ("bool", ()), ("float32", (2, 3))), body)]

    for trips in (0, 1, 4):
        yield Case(
            make(name), (given(trips), given(True), data(F, 2, 3, low=-0.1, high=0.1)), f"trips{trips}", modules=modules
        )


@family.cases("scan")
def scan(name: str) -> Iterable[Case]:
    def modules(program: Any) -> Sequence[Any]:
        def body(m: Any, state: Any, row: Any) -> list[Any]:
            total = m.add(make("add"), state, row)
            return [total, m.add(make("mul"), total, row)]

        return [module(program, "body", (("float32", (3,)), ("float32", (3,))), body)]

    yield Case(make(name, states=1), (data(F, 3), data(F, 5, 3)), "forward", modules=modules)
    yield Case(make(name, states=1, input_directions=(1,)), (data(F, 3), data(F, 5, 3)), "backward", modules=modules)


def chain(kind: str, dims: tuple[int, ...]) -> Any:
    def modules(program: Any) -> Sequence[Any]:
        def body(m: Any, a: Any, b: Any) -> list[Any]:
            return [m.add(make("tanh"), m.add(make("mul"), m.add(make("add"), a, b), b))]

        return [module(program, "chain", ((kind, dims), (kind, dims)), body)]

    return modules


@family.cases("pointwise")
def pointwise(name: str) -> Iterable[Case]:
    for kind in FLOATS[:3]:
        for dims in ((2, 3, 5), (0, 3), (17, 67)):
            operands = (data(kind, *dims), data(kind, *dims))
            label = "x".join(map(str, dims))
            yield Case(
                make(name), operands, label, LAYOUTS[:5] if dims == (2, 3, 5) else LAYOUTS[:1], chain(kind.name, dims)
            )


def reducing(kind: str, dims: tuple[int, ...]) -> Any:
    def modules(program: Any) -> Sequence[Any]:
        def body(m: Any, a: Any, b: Any) -> list[Any]:
            total = m.add(make("reduce_sum", axes=(len(dims) - 1,)), m.add(make("mul"), a, b))
            return [m.add(make("sub"), a, m.add(make("multibroadcast", out_lens=dims), total))]

        return [module(program, "reducing", ((kind, dims), (kind, dims)), body)]

    return modules


@family.cases("fused_reduce")
def fused_reduce(name: str) -> Iterable[Case]:
    for kind in FLOATS[:2]:
        for dims in ((2, 3, 5), (3, 301)):
            operands = (data(kind, *dims), data(kind, *dims))
            layouts = LAYOUTS[:5] if len(dims) == 3 else LAYOUTS[:1]
            op = make(name, axes=(len(dims) - 1,))
            yield Case(op, operands, "x".join(map(str, dims)), layouts, reducing(kind.name, dims))


@family.cases("group")
def group(name: str) -> Iterable[Case]:
    def modules(program: Any) -> Sequence[Any]:
        def body(m: Any, a: Any, b: Any) -> list[Any]:
            return [m.add(make("relu"), m.add(make("dot"), a, b))]

        return [module(program, "dot_relu", (("float32", (5, 7)), ("float32", (7, 6))), body)]

    yield Case(make(name, tag="dot"), (data(F, 5, 7), data(F, 7, 6)), "dot", LAYOUTS[:5], modules)


@family.cases("select_module")
def select_module(name: str) -> Iterable[Case]:
    def modules(program: Any) -> Sequence[Any]:
        def body(m: Any, a: Any) -> list[Any]:
            return [m.add(make("neg"), a)]

        return [
            module(program, "first", (("float32", (2, 3)),), body),
            module(program, "second", (("float32", (4, 3)),), body),
        ]

    yield Case(make(name), (data(F, 2, 3),), "", modules=modules)


@family.cases("run_on_target")
def run_on_target(name: str) -> Iterable[Case]:
    def modules(program: Any) -> Sequence[Any]:
        def body(m: Any, a: Any) -> list[Any]:
            return [m.add(make("neg"), a)]

        return [module(program, "elsewhere", (("float32", (2, 3)),), body)]

    yield Case(make(name), (data(F, 2, 3),), "", modules=modules)
