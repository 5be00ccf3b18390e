"""Ops that run one by one because their extents depend on data: when they get a program of their own."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.targets.emitted import EmittedKernel
from mgx_core.types.argument import Array
from mgx_core.types.shape import Shape, TupleShape


@pytest.mark.parametrize(
    ("name", "attributes", "made"),
    [("concat", {"axis": 0}, [0, 0, 0, 1, 1, 2, 2]), ("dot", {}, [1, 2, 3, 3, 3, 3, 4])],
)
def test_programs_are_made_at_once_or_for_shapes_that_come_again(
    name: str, attributes: dict[str, int], made: list[int]
) -> None:
    target, options = mgx.get_target("cpu"), mgx.CompileOptions()
    context = target.get_context()
    kernels = target.kernels(context)
    emitter = target.emitter(kernels, context, options)
    made_op, found = mgx.op(name, **attributes), []
    for count in (1, 2, 3, 3, 3, 2, 4):
        x = np.arange(6 * count, dtype=np.float32).reshape(count, 6)
        args = [x, x if name == "concat" else np.ones((6, 2), np.float32)]
        shapes = [mgx.Shape("float32", a.shape) for a in args]
        kernel = kernels.pick(made_op, shapes, context, ()).kernel
        value = context.programs.run(kernel, made_op, (), args, emitter)
        np.testing.assert_array_equal(value, np.concatenate(args) if name == "concat" else args[0] @ args[1])
        found.append(len(context.programs))
    assert found == made


@op("test_one_part")
class OnePart(Operation):
    """A tuple of one item: x."""

    def infer(self, x: Shape) -> TupleShape:
        return TupleShape([x])

    def compute(self, x: Array) -> tuple[Array]:
        return (x,)


@pytest.mark.parametrize("rows", [2, 0])
def test_a_tuple_of_one_item_stays_one_without_elements(rows: int) -> None:
    target = mgx.get_target("cpu")
    context = target.get_context()
    emitter = target.emitter(target.kernels(context), context, mgx.CompileOptions())
    kernel = EmittedKernel("copied", OnePart(), (), lambda e, op, modules, args: (e.copy(args[0]),))
    x = np.ones((rows, 6), np.float32)
    (found,) = context.programs.run(kernel, OnePart(), (), [x], emitter)
    np.testing.assert_array_equal(found, x)
