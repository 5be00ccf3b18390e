"""oneDNN primitives on values whose strides have no descriptor or are misread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_cpu_dnnl.shared import shared
from mgx_cpu_dnnl.target import CpuTarget


class Net:
    """A program of float32 values without steps on the host."""

    def __init__(self) -> None:
        self.program = mgx.Program()
        self.module = self.program.get_main_module()
        self.given: dict[str, Any] = {}

    def value(self, name: str, *lens: int) -> mgx.Instruction:
        self.given[name] = np.random.default_rng(len(self.given)).standard_normal(lens).astype(np.float32)
        return self.module.add_parameter(name, mgx.shape(type="float", lens=list(lens)))

    def add(self, name: str, *inputs: mgx.Instruction, **attributes: Any) -> mgx.Instruction:
        return self.module.add(mgx.op(name, **attributes), *inputs)

    def result(self, out: mgx.Instruction) -> Any:
        self.module.add_return([out])
        self.program.compile(CpuTarget(), validate=True)
        (got,) = self.program.run(self.given)
        runner = self.program.executable.instances()[0].runner
        assert not runner.program.hosted, runner.notes
        return got.to_numpy()


@pytest.mark.parametrize("behind", ["", "relu"])
@pytest.mark.parametrize(
    ("lens", "steps"), [([2, 3, 43], [1, 2, 1]), ([5, 8, 7, 4], [1, 1, 2, 1]), ([3, 8, 16, 1], [2, 1, 1, 2])]
)
def test_products_of_every_second_row(lens: list[int], steps: list[int], behind: str) -> None:
    net = Net()
    x = net.add("step", net.value("x", *lens), axes=list(range(len(lens))), steps=steps)
    w = net.value("w", lens[-1], 50)
    out = net.add("dot", x, net.add("multibroadcast", w, out_lens=[*x.shape.lens()[:-2], lens[-1], 50]))
    got = net.result(net.add(behind, out) if behind else out)
    wanted = net.given["x"][tuple(slice(None, None, s) for s in steps)] @ net.given["w"]
    np.testing.assert_allclose(got, np.maximum(wanted, 0) if behind else wanted, rtol=1e-5, atol=1e-5)


def test_every_second_row_is_added_to_a_product() -> None:
    net = Net()
    x, w = net.value("x", 2, 3, 40), net.value("w", 2, 40, 16)
    more = net.add("step", net.value("more", 2, 5, 16), axes=[1], steps=[2])
    got = net.result(net.add("add", net.add("dot", x, w), more))
    wanted = net.given["x"] @ net.given["w"] + net.given["more"][:, ::2]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_every_second_row_is_added_to_a_convolution() -> None:
    net = Net()
    x, w = net.value("x", 1, 8, 4, 4), net.value("w", 16, 8, 1, 1)
    more = net.add("step", net.value("more", 1, 16, 7, 4), axes=[2], steps=[2])
    got = net.result(net.add("add", net.add("convolution", x, w), more))
    image = net.given["x"].reshape(8, 16)
    wanted = (net.given["w"].reshape(16, 8) @ image).reshape(1, 16, 4, 4) + net.given["more"][:, :, ::2]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("kind", [np.float32, np.int8])
def test_every_second_column_is_added_to_a_product(kind: Any, rows: int) -> None:
    net = Net()
    x = net.value("x", rows, 40)
    w = np.random.default_rng(9).integers(-9, 9, (40, 50)).astype(kind)
    right = net.module.add_literal(w)
    if kind is np.int8:
        scale, zero = net.module.add_literal(np.float32(0.125)), net.module.add_literal(np.int8(0))
        x = net.add("dequantizelinear", net.add("quantizelinear", x, scale, zero), scale, zero)
        right = net.add("dequantizelinear", right, net.module.add_literal(np.float32(1)), zero)
    more = net.add("step", net.value("more", rows, 100), axes=[1], steps=[2])
    got = net.result(net.add("add", net.add("dot", x, right), more))
    given = net.given["x"]
    if kind is np.int8:
        given = np.clip(np.rint(given / 0.125), -128, 127) * 0.125
    np.testing.assert_allclose(got, given @ w.astype(np.float32) + net.given["more"][:, ::2], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["dot", "convolution"])
def test_every_second_number_of_a_vector_multiplies_columns(name: str) -> None:
    net = Net()
    x, w = (
        (net.value("x", 4, 8), net.value("w", 8, 50))
        if name == "dot"
        else (net.value("x", 1, 8, 3, 3), net.value("w", 50, 8, 1, 1))
    )
    out = net.add(name, x, w)
    for number in range(2):  # the first may be a bias
        vector = net.add("step", net.value(f"v{number}", 100), axes=[0], steps=[2])
        wide = net.add("broadcast", vector, axis=1, out_lens=out.shape.lens())
        out = net.add("mul" if number else "add", out, wide)
    got = net.result(out)
    given = net.given
    wanted = (
        given["x"] @ given["w"] if name == "dot" else np.einsum("nchw,oc->nohw", given["x"], given["w"][:, :, 0, 0])
    )
    first, second = (given[f"v{n}"][::2].reshape(1, 50, *[1] * (wanted.ndim - 2)) for n in range(2))
    np.testing.assert_allclose(got, (wanted + first) * second, rtol=1e-5, atol=1e-4)


def test_the_only_number_of_a_product_as_one_without_axes() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float", [1, 9]))
    column = m.add_literal(np.arange(9, dtype=np.float32).reshape(9, 1))
    total = m.add(mgx.op("reshape", dims=[]), m.add(mgx.op("dot"), x, column))
    m.add_return([m.add(mgx.op("neg"), total)])
    program.compile(CpuTarget())
    got = program.run({"x": np.ones((1, 9), np.float32)})[0].to_numpy()
    assert got.shape == () and float(got) == -36


@pytest.mark.parametrize("k", [1, 3, 16, 17])
def test_infinities_stay_in_their_results_where_heads_share_a_matrix(k: int) -> None:
    """oneDNN's products of bfloat16 process rows of repeated matrices in pairs; an odd last row has a neighbor."""
    program = mgx.Program()
    m = program.get_main_module()
    a = m.add_parameter("a", mgx.Shape("bfloat16", [2, 3, 5, k]))
    b = m.add_parameter("b", mgx.Shape("bfloat16", [2, 1, k, 8]))
    wide = m.add(mgx.op("multibroadcast", out_lens=(2, 3, k, 8)), b)
    m.add_return([m.add(mgx.op("dot"), a, wide)])
    bfloat16 = mgx.dtype.bfloat16.numpy
    given = [np.ones([2, 3, 5, k], bfloat16), np.full([2, 1, k, 8], 0.5, bfloat16)]
    given[0][0, 0, 0, k - 1] = np.inf
    program.compile(CpuTarget(), fast_math=False)
    found = np.asarray(program.run(dict(zip("ab", given, strict=True)))[0].to_numpy(), np.float32)
    wanted = np.full([2, 3, 5, 8], k / 2, np.float32)
    wanted[0, 0, 0] = np.inf
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("rows", "repeated", "together"), [(8, True, True), (16, True, False), (8, False, False)])
def test_many_small_products_with_the_same_matrix_are_one(rows: int, repeated: bool, together: bool) -> None:
    """Blocks of an image times one matrix: the blocks' rows are concatenated, unless there are many rows or different
    matrices.
    """
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.shape(type="float32", lens=[1, 3, 4, rows, 5, 6]))
    blocks = m.add(mgx.op("transpose", permutation=[0, 2, 4, 1, 3, 5]), x)
    lens = [1, 4, 5, 3, 6, 8]
    w = m.add_parameter("w", mgx.shape(type="float32", lens=lens[-2:] if repeated else lens))
    each = m.add(mgx.op("multibroadcast", out_lens=lens), w) if repeated else w
    m.add_return([m.add(mgx.op("dot"), blocks, each)])
    feed = {n: mgx.generate_argument(i.shape, seed=k).to_numpy() for k, (n, i) in enumerate(m.parameters.items())}
    wanted = feed["x"].transpose(0, 2, 4, 1, 3, 5).astype(np.float64) @ feed["w"].astype(np.float64)
    program.compile(CpuTarget())
    np.testing.assert_allclose(program.run(feed)[0].to_numpy(), wanted, rtol=1e-5, atol=1e-5)
    steps = [s.name.split()[0] for s in program.executable.instances()[0].runner.schedule.steps]
    assert ("product" not in steps) == together, steps  # loops read them in place


def test_one_row_far_from_the_next_multiplies_by_the_kernel_of_one_close_to_it() -> None:
    net = Net()
    net.given["spread"] = np.random.default_rng(8).standard_normal((1, 4, 24)).astype(np.float32)
    lens = mgx.shape(type="float", dyn_dims=[(1, 4), (4, 4), (24, 24)])
    spread = net.add("transpose", net.module.add_parameter("spread", lens), permutation=[1, 0, 2])
    w = net.module.add_literal(np.random.default_rng(9).standard_normal((4, 24, 32)).astype(np.float32))
    first, second = (net.add("relu", net.add("dot", x, w)) for x in (spread, net.value("close", 4, 1, 24)))
    got = net.result(net.add("concat", first, second, axis=1))
    rows = [net.given["spread"].transpose(1, 0, 2), net.given["close"]]
    wanted = np.maximum(np.concatenate([r @ w.get_literal().to_numpy() for r in rows], 1), 0)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    steps = net.program.executable.instances()[0].runner.schedule.steps
    products = {s.name for s in steps if s.name.startswith("matmul" if shared().engine.wide else "product")}
    assert len(products) == 1, [s.name for s in steps]


@pytest.mark.parametrize("behind", ["", "relu"])
@pytest.mark.parametrize(
    ("a", "b", "looped"),
    [
        ([6, 1, 4, 4], [6, 30, 4, 4], True),
        ([6, 30, 4, 4], [6, 1, 4, 4], True),
        ([1, 20, 3, 16, 8], [4, 20, 1, 8, 1], True),
        ([6, 1, 4], [6, 4, 4], False),
        ([2, 3, 9, 80], [2, 1, 80, 500], False),
        ([4, 3, 20, 5], [1, 1, 5, 7], False),
    ],
)
def test_many_small_products_that_share_matrices_are_one_loop(
    a: list[int], b: list[int], looped: bool, behind: str
) -> None:
    net = Net()
    batch = list(np.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2])))
    operands = [
        net.add("multibroadcast", net.value(name, *lens), out_lens=[*batch, *lens[-2:]])
        for name, lens in (("a", a), ("b", b))
    ]
    out = net.add("dot", *operands)
    got = net.result(net.add(behind, out) if behind else out)
    wanted = net.given["a"] @ net.given["b"]
    np.testing.assert_allclose(got, np.maximum(wanted, 0) if behind else wanted, rtol=1e-5, atol=1e-5)
    steps = [s.name for s in net.program.executable.instances()[0].runner.schedule.steps]
    looped |= not shared().engine.wide and b[-2:] == [4, 4]  # where vectors are shorter
    assert any(name.startswith("product") for name in steps) == looped, steps


def test_many_small_products_of_a_transposed_batch_are_one_loop() -> None:
    net = Net()
    x = net.add("transpose", net.value("x", 40, 2, 6, 6), permutation=[1, 0, 2, 3])
    got = net.result(net.add("dot", x, net.value("w", 2, 40, 6, 5)))
    np.testing.assert_allclose(got, net.given["x"].transpose(1, 0, 2, 3) @ net.given["w"], rtol=1e-5, atol=1e-5)
    steps = [s.name for s in net.program.executable.instances()[0].runner.schedule.steps]
    assert not any(name.startswith("matmul") for name in steps), steps


def steps_of(net: Net) -> list[str]:
    assert net.program.executable is not None
    return [step.name.split()[0] for step in net.program.executable.instances()[0].runner.schedule.steps]


@pytest.mark.parametrize("behind", ["", "relu"])
@pytest.mark.parametrize(("k", "n"), [(130, 130), (9, 2100), (3000, 7), (1, 20000)])
@pytest.mark.parametrize("batch", [[], [1], [1, 1]])
def test_one_row_times_a_matrix_that_is_not_constant(k: int, n: int, batch: list[int], behind: str) -> None:
    net = Net()
    x, w = net.value("x", *batch, 1, k), net.value("w", *batch, k, n)
    out = net.add("dot", x, w)
    got = net.result(net.add(behind, out) if behind else out)
    wanted = net.given["x"].astype(np.float64) @ net.given["w"].astype(np.float64)
    np.testing.assert_allclose(got, np.maximum(wanted, 0) if behind else wanted, rtol=1e-4, atol=1e-4)
    assert "row" in steps_of(net)


def test_one_row_times_columns_of_a_matrix() -> None:
    net = Net()
    x = net.add("step", net.value("x", 1, 400), axes=[1], steps=[2])
    w = net.add("slice", net.value("w", 200, 300), axes=[1], starts=[11], ends=[251])
    got = net.result(net.add("dot", x, w))
    np.testing.assert_allclose(got, net.given["x"][:, ::2] @ net.given["w"][:, 11:251], rtol=1e-4, atol=1e-4)
    assert "row" in steps_of(net)


def test_one_row_times_a_transposed_matrix() -> None:
    net = Net()
    turned = net.add("transpose", net.value("w", 300, 200), permutation=[1, 0])
    got = net.result(net.add("dot", net.value("x", 1, 200), net.add("neg", turned)))
    np.testing.assert_allclose(got, -net.given["x"] @ net.given["w"].T, rtol=1e-4, atol=1e-4)
