"""Programs for testing the contract of executables."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Program, Shape, dim
from mgx_core.ops import STANDARD

__all__ = ["doubling", "layers", "measured", "passing_through", "symbolic", "values"]

make = STANDARD.make


def weights(seed: int, *dims: int) -> Any:
    return (np.random.default_rng(seed).standard_normal(dims) / np.sqrt(dims[0])).astype(np.float32)


def dense(main: Any, x: Any, seed: int, n: int, m: int) -> Any:
    """tanh(x w + b)."""
    y = main.add(make("dot"), x, main.add_literal(weights(seed, n, m)))
    b = main.add(make("multibroadcast", out_lens=y.shape.dims), main.add_literal(weights(seed + 1, m)))
    return main.add(make("tanh"), main.add(make("add"), y, b))


def layers(rows: Any = 4) -> Program:
    """Returns two dense layers, a softmax and a sum: products, groups, a reduction, two parameters, three results."""
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", (rows, 24)))
    s = main.add_parameter("scale", Shape("float32", (1,)))
    y = dense(main, dense(main, x, 1, 24, 48), 3, 48, 10)
    y = main.add(make("mul"), y, main.add(make("multibroadcast", out_lens=y.shape.dims), s))
    total = main.add(make("reduce_sum", axes=(1,)), main.add(make("abs"), y))
    main.add_return([main.add(make("softmax", axis=-1), y), total, main.add(make("argmax", axis=1), y)])
    return program


def symbolic() -> Program:
    """Returns the same program for 1 to 64 rows."""
    return layers(dim.symbol("rows", 1, 64))


def passing_through() -> Program:
    """Returns results that are a parameter, a literal, views of both, and one value twice."""
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", (3, 4)))
    c = main.add_literal(weights(7, 3, 4))
    view = main.add(make("transpose", permutation=(1, 0)), x)
    part = main.add(make("slice", axes=(0,), starts=(1,), ends=(3,)), c)
    y = main.add(make("add"), x, c)
    main.add_return([x, c, view, part, y, y])
    return program


def measured() -> Program:
    """Returns results with data-dependent extents, whose operands have no other readers."""
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", (3, 4)))
    y = main.add_parameter("y", Shape("float32", (12,)))
    found = main.add(make("nonzero"), main.add(make("relu"), x))
    repeated = main.add(make("multibroadcast", out_lens=found.shape.dims), main.add_literal(weights(8, 1)))
    like = main.add(make("nonzero"), main.add(make("relu"), main.add(make("neg"), x)))
    filled = main.add(make("neg"), main.add(make("fill"), main.add_literal(weights(9, 1)), like))
    counted = main.add(make("nonzero"), main.add(make("relu"), y))
    count = main.add(make("dimensions_of", start=1, end=2), counted)
    first = main.add_literal(np.zeros(1, np.int64))
    main.add_return([repeated, filled, main.add(make("slice", axes=(0,), starts=(0,)), y, first, count)])
    return program


def doubling() -> Program:
    """Returns a loop whose state doubles in each of a thousand trips."""
    program = Program()
    main = program.get_main_module()
    body = program.create_module("body")
    body.add_parameter("trip", Shape("int64", ()))
    going = body.add_parameter("going", Shape("bool", ()))
    state = body.add_parameter("state", Shape("float32", (dim.symbol("n"),)))
    body.add_return([going, body.add(make("concat", axis=0), state, state)])
    x = main.add_parameter("x", Shape("float32", (2,)))
    trips = main.add_literal(np.array(1000))
    made = main.add(make("loop"), trips, main.add_absent(), x, modules=[body])
    main.add_return([main.add(make("get_tuple_elem", index=0), made)])
    return program


def values(program: Program, seed: int, rows: int = 4) -> dict[str, Any]:
    """Returns random values of a program's parameters."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, Any] = dict(program.get_parameter_shapes())
    return {n: rng.standard_normal(s.substitute({"rows": rows}).lens()).astype(np.float32) for n, s in shapes.items()}
