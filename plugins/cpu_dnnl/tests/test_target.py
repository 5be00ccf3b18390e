"""Whole programs on the cpu target, compared with the unoptimized reference."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(7)


def literal(m: mgx.Module, *shape: int, scale: float = 0.3) -> mgx.Instruction:
    return m.add_literal((rng.standard_normal(shape) * scale).astype(np.float32))


def broadcast(m: mgx.Module, x: mgx.Instruction, like: mgx.Instruction) -> mgx.Instruction:
    return m.add(mgx.op("multibroadcast", out_lens=like.shape.dims), x)


def check(build: Callable[[mgx.Module], list[mgx.Instruction]], tolerance: float = 1e-5, host: int = 0) -> mgx.Program:
    """Checks that the program's results on cpu equal the reference's; `host`: the steps expected on the host."""
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return(build(m))
    given = {n: mgx.generate_argument(i.shape, seed=k).to_numpy() for k, (n, i) in enumerate(m.parameters.items())}
    wanted = Interpreter().run(m, list(given.values()))
    program.compile(CpuTarget(), validate=True)
    for _ in range(2):
        got = program.run(given)
        for a, b in zip(got, wanted, strict=True):
            assert a.to_numpy().dtype == b.dtype
            np.testing.assert_allclose(
                a.to_numpy(), b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max()))
            )
    runner = program.executable.instances()[0].runner
    assert [s.name for s in runner.program.hosted] == [s.name for s in runner.program.hosted][:host], runner.notes
    assert len(runner.program.hosted) == host
    return program


def image(m: mgx.Module, *lens: int) -> mgx.Instruction:
    return m.add_parameter("x", mgx.shape(type="float32", lens=lens))


@pytest.mark.parametrize("group", [1, 4, 8])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_with_bias_and_activation(group: int, stride: int) -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        op = mgx.op("convolution", padding=[1, 1], stride=[stride, stride], dilation=[1, 1], group=group)
        y = m.add(op, image(m, 2, 8, 13, 11), literal(m, 16, 8 // group, 3, 3))
        y = m.add(mgx.op("add"), y, broadcast(m, literal(m, 1, 16, 1, 1), y))
        return [m.add(mgx.op("relu"), y)]

    check(build)


def test_residual_is_added_in_place_only_when_nothing_reads_it_again() -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        op = mgx.op("convolution", padding=[1, 1], stride=[1, 1], dilation=[1, 1])
        first = m.add(op, image(m, 1, 8, 9, 9), literal(m, 8, 8, 3, 3))
        second = m.add(op, first, literal(m, 8, 8, 3, 3))
        joined = m.add(mgx.op("relu"), m.add(mgx.op("add"), second, first))
        third = m.add(op, joined, literal(m, 8, 8, 3, 3))
        return [m.add(mgx.op("add"), third, joined), first]

    check(build)


@pytest.mark.parametrize("kind", ["dot", "convolution"])
def test_residual_that_a_later_link_reads_again(kind: str) -> None:
    lens = [1, 16, 5, 5] if kind == "convolution" else [5, 16]

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        h = m.add(mgx.op("softmax", axis=1), m.add_parameter("h", mgx.shape(type="float32", lens=lens)))
        product = m.add(mgx.op(kind), image(m, *lens), literal(m, 16, 16, *[1] * (len(lens) - 2)))
        return [m.add(mgx.op("mul"), m.add(mgx.op("add"), product, h), h)]

    check(build)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("whole", ["int32", "int8"])
@pytest.mark.parametrize("kind", ["dot", "convolution"])
def test_results_that_are_cut_to_whole_numbers(kind: str, whole: str, last: bool) -> None:
    lens = [1, 16, 5, 5] if kind == "convolution" else [5, 16]

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        product = m.add(mgx.op(kind), image(m, *lens), literal(m, 16, 16, *[1] * (len(lens) - 2), scale=3))
        cut = m.add(mgx.op("convert", target_type=whole), product)
        return [cut if last else m.add(mgx.op("relu"), m.add(mgx.op("convert", target_type="float32"), cut))]

    check(build)


@pytest.mark.parametrize(
    "activation", ["relu", "gelu_erf", "gelu_tanh", "sigmoid", "tanh", "swish", "quick_gelu", "hard_swish"]
)
def test_dot_with_epilogue(activation: str) -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = image(m, 2, 7, 32)
        weights = literal(m, 32, 48)
        y = m.add(mgx.op("dot"), x, m.add(mgx.op("multibroadcast", out_lens=(2, 32, 48)), weights))
        y = m.add(mgx.op("add"), y, broadcast(m, literal(m, 48), y))
        return [m.add(mgx.op(activation), y)]

    check(build)


def test_dot_of_its_own_residual() -> None:
    """The left operand is also the addend: it must not be overwritten while it is read."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add(mgx.op("exp"), image(m, 5, 16))
        y = m.add(mgx.op("dot"), x, literal(m, 16, 16))
        return [m.add(mgx.op("add"), y, x)]

    check(build)


@pytest.mark.parametrize("mask", [False, True])
def test_attention(mask: bool) -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = image(m, 2, 10, 24)
        heads = []
        for _ in range(3):
            y = m.add(mgx.op("dot"), x, m.add(mgx.op("multibroadcast", out_lens=(2, 24, 24)), literal(m, 24, 24)))
            y = m.add(mgx.op("reshape", dims=(2, 10, 3, 8)), y)
            heads.append(m.add(mgx.op("transpose", permutation=(0, 2, 1, 3)), y))
        q, k, v = heads
        scores = m.add(mgx.op("dot"), q, m.add(mgx.op("transpose", permutation=(0, 1, 3, 2)), k))
        scores = m.add(mgx.op("mul"), scores, broadcast(m, m.add_literal(np.float32(0.3)), scores))
        if mask:
            hidden = np.where(np.tri(10, dtype=bool), 0, -np.inf).astype(np.float32)
            scores = m.add(mgx.op("add"), scores, broadcast(m, m.add_literal(hidden), scores))
        weights = m.add(mgx.op("softmax", axis=3), scores)
        y = m.add(mgx.op("transpose", permutation=(0, 2, 1, 3)), m.add(mgx.op("dot"), weights, v))
        return [m.add(mgx.op("reshape", dims=(2, 10, 24)), y)]

    program = check(build)
    names = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    assert any(n.startswith("attention") for n in names), names


def test_pooling_concat_and_views() -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = image(m, 1, 6, 12, 12)
        window = {"padding": (1, 1), "stride": (2, 2), "lengths": (3, 3)}
        a = m.add(mgx.op("pooling", mode="max", **window), x)
        b = m.add(mgx.op("pooling", mode="average", **window), x)
        c = m.add(mgx.op("pooling", mode="average", count_include_pad=True, **window), x)
        y = m.add(mgx.op("concat", axis=1), a, b, c)
        part = m.add(mgx.op("slice", axes=(1,), starts=(4,), ends=(14,)), y)
        return [m.add(mgx.op("transpose", permutation=(0, 2, 3, 1)), part)]

    check(build)


def test_normalizations() -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = image(m, 3, 5, 64)
        y = m.add(mgx.op("layernorm", axis=-1, epsilon=1e-5), x, literal(m, 64), literal(m, 64))
        z = m.add(mgx.op("rmsnorm", axis=-1, epsilon=1e-5), x, literal(m, 64))
        return [m.add(mgx.op("softmax", axis=1), y), z, m.add(mgx.op("reduce_mean", axes=(1, 2)), x)]

    check(build)


def test_lstm() -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = image(m, 9, 2, 16)
        w, r, b = literal(m, 2, 4 * 24, 16), literal(m, 2, 4 * 24, 24), literal(m, 2, 8 * 24)
        both = m.add(mgx.op("lstm", hidden_size=24, direction="bidirectional"), x, w, r, b)
        return [m.add(mgx.op("get_tuple_elem", index=n), both) for n in range(2)]

    check(build)


def test_declined_ops_are_reported_on_the_host() -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        return [m.add(mgx.op("matrix_exp"), image(m, 3, 3))]

    check(build, host=1)


def test_an_error_on_the_host_names_the_node() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x, axis = m.add_parameter("x", mgx.Shape("float32", [3])), m.add_parameter("axis", mgx.Shape("int64", []))
    op = mgx.op("prefix_scan_sum")
    sums = [m.add(op, x, axis), m.add(op, m.add(mgx.op("neg"), x), axis)]
    for n, made in enumerate(sums):
        made.sources = (f"sum{n}",)
    m.add_return(sums)
    program.compile(CpuTarget())
    with pytest.raises(mgx.ShapeError, match=r"^node 'sum0': prefix_scan_sum.*: axis must lie in \[-1, 0\]"):
        program.run({"x": np.ones(3, np.float32), "axis": np.array(7)})


@pytest.mark.parametrize("op", [mgx.op("dot"), mgx.op("concat", axis=1)], ids=["dot", "concat"])
def test_operands_whose_open_extents_do_not_fit_are_not_read(op: mgx.Operation) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    a, b, c, d = map(mgx.dim.symbol, "abcd")
    x = m.add_parameter("x", mgx.Shape("float32", [a, b]))
    m.add_return([m.add(op, x, m.add_parameter("y", mgx.Shape("float32", [c, d])))])
    program.compile(CpuTarget())
    with pytest.raises(mgx.ShapeError, match=r"must (be )?equal"):
        program.run({"x": np.ones((5, 40), np.float32), "y": np.ones((4, 3), np.float32)})


def test_symbolic_batch_makes_an_instance_each_and_shares_packed_weights() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    batch = mgx.dim.symbol("batch", 1, 64)
    x = m.add_parameter("x", mgx.Shape("float32", [batch, 16, 9, 9]))
    y = m.add(mgx.op("convolution", padding=[1, 1], stride=[1, 1], dilation=[1, 1]), x, literal(m, 16, 16, 3, 3))
    m.add_return([m.add(mgx.op("relu"), y)])
    program.compile(CpuTarget())
    for n in (1, 3, 17):
        given = rng.standard_normal((n, 16, 9, 9)).astype(np.float32)
        (wanted,) = Interpreter().run(m, [given])
        np.testing.assert_allclose(program.run({"x": given})[0].to_numpy(), wanted, rtol=1e-4, atol=1e-4)
    packs = {id(b.owner) for i in program.executable.instances() for b in i.plan.literals if b.array is None}
    assert len(packs) == 1


def test_one_program_from_many_threads() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    op = mgx.op("convolution", padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    y = m.add(op, image(m, 1, 8, 16, 16), literal(m, 8, 8, 3, 3))
    m.add_return([m.add(mgx.op("relu"), y)])
    program.compile(CpuTarget())
    inputs = [rng.standard_normal((1, 8, 16, 16)).astype(np.float32) for _ in range(24)]
    wanted = [Interpreter().run(m, [x])[0] for x in inputs]

    def run(x: Any) -> Any:
        return program.run({"x": x})[0].to_numpy()

    with ThreadPoolExecutor(8) as pool:
        for got, right in zip(pool.map(run, inputs), wanted, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)


def test_results_survive_later_runs() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("exp"), image(m, 4, 8))])
    program.compile(CpuTarget())
    first = program.run({"x": np.zeros((4, 8), np.float32)})[0].to_numpy()
    for n in range(50):
        program.run({"x": np.full((4, 8), n, np.float32)})
    np.testing.assert_array_equal(first, np.ones((4, 8), np.float32))


def test_wrong_input_is_named() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("exp"), image(m, 4, 8))])
    program.compile(CpuTarget())
    with pytest.raises(mgx.ParameterError, match=r"'x' must be float32\[4, 8\], got float64"):
        program.run({"x": np.zeros((4, 8))})


@pytest.mark.parametrize("with_argument", [False, True])
def test_constants_and_repeated_results_are_copied_by_the_runner(with_argument: bool) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [2, 3]))
    scale = main.add_literal(np.arange(3, dtype=np.float32))
    total = main.add(mgx.op("relu"), x)
    main.add_return([total, scale, total, *([x] if with_argument else [])])
    program.compile(mgx.get_target("cpu"))
    given = np.asfortranarray(np.float32([[1, -2, 3], [4, 5, -6]]))
    for x_now in (given, given.copy(order="C"), given.copy(order="C")):
        results = [np.asarray(r) for r in program.run({"x": x_now})]
        wanted = [np.maximum(given, 0), np.arange(3), np.maximum(given, 0), *([given] if with_argument else [])]
        assert not np.shares_memory(results[0], results[2])
        for got, right in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(got, right)
            assert got.flags.c_contiguous and got.flags.writeable and not np.shares_memory(got, x_now)
            got[:] = 7  # later runs do not see it
    (instance,) = program.executable.instances()
    assert instance.runner.fresh is not with_argument
