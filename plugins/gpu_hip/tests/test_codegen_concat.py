"""Pointwise groups that read concatenations, and the pass that makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import Module, Shape
from mgx_core import dtype as dt
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ops.activation import Relu
from mgx_core.ops.broadcast import Broadcast
from mgx_core.ops.concat import Concat
from mgx_core.ops.pointwise import Add, Mul
from mgx_core.passes.fuse_elementwise import FuseElementwise
from mgx_gpu_hip.codegen.source import KernelSource
from mgx_gpu_hip.codegen.table import generate
from mgx_gpu_hip.codegen.trial import channels_last, run, same, tensor, traits, values
from mgx_gpu_hip.fuse_concat import FuseConcat


def network(axis: int, lens: list[tuple[int, ...]]) -> Module:
    """relu(concat(xs) * scale + shift), one scale and shift a channel."""
    module = Module("main")
    xs = [module.add_parameter(f"x{i}", Shape.of(dt.float16, n)) for i, n in enumerate(lens)]
    joined = module.add(Concat(axis=axis), *xs)
    dims = tuple(joined.shape.lens())
    scale, shift = (
        module.add(Broadcast(axis=1, out_lens=dims), module.add_parameter(n, Shape.of(dt.float16, dims[1:2])))
        for n in "ab"
    )
    module.add_return([module.add(Relu(), module.add(Add(), module.add(Mul(), joined, scale), shift))])
    return module


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("layout", [None, channels_last])
@pytest.mark.parametrize(("axis", "parts"), [(1, (16, 8, 24)), (1, (3, 8, 5)), (0, (1, 2)), (3, (4, 6, 2))])
def test_concatenation_is_read_in_place(axis: int, parts: tuple[int, ...], layout: Any, wave: int) -> None:
    lens = [tuple(n if a == axis else d for a, d in enumerate((2, 16, 6, 8))) for n in parts]
    module = network(axis, lens)
    rng = np.random.default_rng(6)
    arrays = [values(rng, dt.float16, p.shape.lens()) for p in module.parameters.values()]
    wanted = Interpreter().run(module, arrays)
    assert FuseElementwise().apply(module) and FuseConcat().apply(module)
    (group,) = [i for i in module if i.op.name == "group"]
    np.testing.assert_array_equal(Interpreter().run(module, arrays)[0], wanted[0])
    order = [list(module.parameters.values()).index(i) for i in group.inputs]
    given = [arrays[n] for n in order]
    ins = [tensor("float16", a.shape, layout(a.shape) if layout and a.ndim == 4 else None) for a in given]
    outs = [tensor("float16", wanted[0].shape, layout(wanted[0].shape) if layout else None)]
    source = generate(group.op, ins, outs, traits(wave, 1), group.modules)
    assert isinstance(source, KernelSource) and len(source.launches) == 1
    if layout is channels_last and axis == 1:  # parts that are no whole vectors are read one by one
        assert ("ldv<half_t, 8>(p1" in source.text) == (parts == (16, 8, 24))
    same(run(source, given, ins, outs, wave), wanted, tolerance=4e-3)


def test_a_concatenation_with_other_readers_stays() -> None:
    module = network(1, [(2, 3, 4, 4), (2, 5, 4, 4)])
    joined = next(i for i in module if i.op.name == "concat")
    module.replace_return([*module.outputs, joined])
    assert FuseElementwise().apply(module)
    assert not FuseConcat().apply(module)
