"""Signed bytes that become unsigned: which ones, with equal results before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Instruction, Module
from mgx_core import dtype as dt
from mgx_core.ir.graph import Graph
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import nested
from mgx_core.ir.verify import verify
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_core.types.dim import symbol
from mgx_cpu_dnnl.target import CpuTarget
from mgx_cpu_dnnl.unsigned_bytes import UnsignedBytes


class Net:
    """A module of quantized values with one scale."""

    def __init__(self, zero: int = -128) -> None:
        self.module = Module()
        self.scale = self.module.add_literal(np.float32(0.05))
        self.zero = self.module.add_literal(np.int8(zero))
        self.x = self.module.add_parameter("x", mgx.shape(type="float", lens=[1, 4, 6, 6]))

    def add(self, name: str, *inputs: Instruction, **attributes: Any) -> Instruction:
        return self.module.add(mgx.op(name, **attributes), *inputs)

    def quantized(self) -> Instruction:
        return self.add("quantizelinear", self.x, self.scale, self.zero)

    def numbers(self, q: Instruction) -> Instruction:
        return self.add("dequantizelinear", q, self.scale, self.zero)

    def turned(self, *results: Instruction) -> bool:
        """Runs the pass; the results must be unchanged."""
        self.module.add_return(results)
        x = np.random.default_rng(3).normal(0, 4, (1, 4, 6, 6)).astype(np.float32)
        x.reshape(-1)[:2] = np.inf, -np.inf
        before = Interpreter().run(self.module, [x])
        changed = UnsignedBytes().apply(self.module)
        assert verify(self.module) == []
        for got, wanted in zip(Interpreter().run(self.module, [x]), before, strict=True):
            np.testing.assert_array_equal(got, wanted)
        return changed

    def bytes(self) -> set[Any]:
        """Returns the types of one-byte values that are not constants."""
        found = (i for i in self.module if isinstance(i.result, mgx.Shape) and not i.is_literal)
        return {i.shape.dtype for i in found} & {dt.int8, dt.uint8}


@pytest.mark.parametrize("zero", [-128, 22])
def test_a_quantization_and_what_reads_it_turn(zero: int) -> None:
    net = Net(zero)
    assert net.turned(net.numbers(net.quantized()))
    assert net.bytes() == {dt.uint8}
    zeros = [i.inputs[2].literal for i in net.module if len(i.inputs) == 3]
    assert [z is not None and int(np.asarray(z.value)) for z in zeros] == [zero + 128] * 2


def test_values_that_are_moved_turn_with_their_constants() -> None:
    net = Net()
    q = net.quantized()
    bordered = net.add("pad", q, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=-128.0)
    most = net.add("pooling", bordered, mode="max", lengths=(3, 3), stride=(1, 1))
    beside = net.add("concat", most, net.module.add_literal(np.full((1, 1, 6, 6), 5, np.int8)), q, axis=1)
    turned = net.add("transpose", beside, permutation=(0, 2, 3, 1))
    assert net.turned(net.numbers(turned), net.numbers(q))
    assert net.bytes() == {dt.uint8}


def test_slices_whose_length_depends_on_extents_turn() -> None:
    """As after a batch-to-space: the length of the slice is a symbol of its own, which later extents use."""
    m = Module()
    n = symbol("n", 1, 30)
    x = m.add_parameter("x", mgx.Shape.of(dt.float32, (n, 2)))
    scale, zero = m.add_literal(np.float32(0.05)), m.add_literal(np.int8(-128))
    q = m.add(mgx.op("quantizelinear"), x, scale, zero)
    part = m.add(mgx.op("slice", axes=[0], starts=[0], ends=[2 * n // 3 - n % 2 % 3]), q)
    real = m.add(mgx.op("dequantizelinear"), part, scale, zero)
    ones = m.add(mgx.op("multibroadcast", out_lens=real.shape.dims), m.add_literal(np.float32(1)))
    m.add_return([m.add(mgx.op("add"), real, ones)])
    given = np.random.default_rng(3).normal(0, 4, (9, 2)).astype(np.float32)
    (wanted,) = Interpreter().run(m, [given])
    assert part.shape.dims[0].symbol is not None and UnsignedBytes().apply(m)
    assert part.shape.dtype is dt.uint8 and verify(m) == []
    np.testing.assert_array_equal(Interpreter().run(m, [given])[0], wanted)


def test_a_zero_point_a_channel_and_one_that_the_quantization_lacks() -> None:
    net = Net()
    scales = net.module.add_literal(np.float32([0.1, 0.2, 0.3, 0.4]))
    zeros = net.module.add_literal(np.int8([-128, -128, 3, -1]))
    q = net.add("quantizelinear", net.x, scales, axis=1, out_type=dt.int8)
    assert net.turned(net.add("dequantizelinear", q, scales, zeros, axis=1))
    assert net.bytes() == {dt.uint8}


def test_values_without_a_zero_point_stay() -> None:
    net = Net(0)
    assert not net.turned(net.numbers(net.quantized()))


@pytest.mark.parametrize("how", ["result", "arithmetic", "zero point", "parameter", "beside a parameter"])
def test_values_that_others_see_stay(how: str) -> None:
    net = Net()
    q = net.quantized()
    given = net.module.add_parameter("q", mgx.shape(type="int8", lens=[1, 4, 6, 6]))
    point = net.module.add_parameter("zero", mgx.shape(type="int8", lens=[]))
    read = {
        "result": lambda: [net.numbers(q), q],
        "arithmetic": lambda: [net.numbers(q), net.add("relu", q)],
        "zero point": lambda: [net.numbers(q), net.add("dequantizelinear", q, net.scale, point)],
        "parameter": lambda: [net.numbers(given)],
        "beside a parameter": lambda: [net.numbers(net.add("concat", q, given, axis=1))],
    }
    net.module.add_return(read[how]())
    net.module.sweep()
    assert not UnsignedBytes().apply(net.module)


@pytest.mark.parametrize("options", [{}, {"disable_passes": ("unsigned-bytes",)}, {"fast_math": False}])
def test_products_read_results_of_relu_without_a_zero_point(options: dict[str, Any]) -> None:
    net, rng = Net(), np.random.default_rng(4)
    weights = net.module.add_literal(rng.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8))
    made = net.add("convolution", net.numbers(net.quantized()), net.add("dequantizelinear", weights, net.scale))
    net.module.add_return([made])
    program = mgx.Program(Graph(net.module))
    plain = program.clone()
    program.compile(CpuTarget(), **options)
    assert program.executable is not None
    found = [i for m in nested(program.executable.module) for i in m]
    products = [len(i.inputs) for i in found if isinstance(i.op, QuantConvolution)]
    assert products == ([] if "fast_math" in options else [3] if options else [2])
    kinds = {i.shape.dtype for i in found if isinstance(i.result, mgx.Shape) and not i.is_literal}
    assert (dt.uint8 in kinds) == (not options)
    x = rng.normal(0, 3, (1, 4, 6, 6)).astype(np.float32)
    plain.compile(mgx.get_target("ref"))
    wanted = plain.run({"x": x})[0].to_numpy()
    np.testing.assert_allclose(program.run({"x": x})[0].to_numpy(), wanted, rtol=1e-5, atol=1e-4)
