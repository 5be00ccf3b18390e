"""Plans tested by their choice of steps: shared concatenations, LSTM loops, sums in epilogues, times per step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(11)


def ran(program: mgx.Program, tolerance: float = 1e-5) -> Any:
    m = program.get_main_module()
    given = {n: mgx.generate_argument(i.shape, seed=k).to_numpy() for k, (n, i) in enumerate(m.parameters.items())}
    wanted = Interpreter().run(m, list(given.values()))
    program.compile(CpuTarget(), validate=True)
    for _ in range(2):
        for a, b in zip(program.run(given), wanted, strict=True):
            np.testing.assert_allclose(a.to_numpy(), b, rtol=tolerance, atol=tolerance)
    return program.executable.instances()[0].runner, given


def constant(m: mgx.Module, *lens: int) -> mgx.Instruction:
    return m.add_literal((rng.standard_normal(lens) * 0.3).astype(np.float32))


def test_growing_concatenations_copy_each_operand_once() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    parts = [m.add_parameter("x", mgx.shape(type="float32", lens=[1, 16, 6, 6]))]
    conv = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1], "group": 1}
    for _ in range(4):
        joined = parts[0] if len(parts) == 1 else m.add(mgx.op("concat", axis=1), *parts)
        made = m.add(
            mgx.op("convolution", **conv), m.add(mgx.op("relu"), joined), constant(m, 16, joined.shape.lens()[1], 3, 3)
        )
        parts.append(made)
    m.add_return([m.add(mgx.op("relu"), m.add(mgx.op("concat", axis=1), *parts))])
    runner, _ = ran(program, 1e-4)
    assert sum(s.name == "copy" for s in runner.schedule.steps) <= 7  # 5 operands, the image, the result


def test_a_residual_with_a_bias_of_its_own_is_no_loop() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.shape(type="float32", lens=[1, 16, 8, 8]))
    conv = mgx.op("convolution", padding=[0, 0], stride=[1, 1], dilation=[1, 1], group=1)

    def biased(y: mgx.Instruction) -> mgx.Instruction:
        bias = m.add(mgx.op("multibroadcast", out_lens=y.shape.dims), constant(m, 1, 16, 1, 1))
        return m.add(mgx.op("add"), y, bias)

    first = m.add(mgx.op("relu"), m.add(conv, x, constant(m, 16, 16, 1, 1)))
    m.add_return([m.add(mgx.op("add"), biased(first), biased(m.add(conv, first, constant(m, 16, 16, 1, 1))))])
    runner, _ = ran(program)
    assert not any(s.name.startswith("loop") for s in runner.schedule.steps), [s.name for s in runner.schedule.steps]


def test_times_add_up_per_instruction() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.shape(type="float32", lens=[64, 64]))
    m.add_return([m.add(mgx.op("softmax", axis=1), m.add(mgx.op("dot"), x, constant(m, 64, 64)))])
    _, given = ran(program)
    timings = program.executable.time(given, 3, 1)
    assert {getattr(t.instruction.op, "of", t.instruction.op).name for t in timings} >= {"softmax"}
    assert len(timings) == 2
    assert all(t.seconds[0] > 0 for t in timings)


def test_a_conversion_between_product_and_epilogue_rounds() -> None:
    """20000 * 8 is infinite in float16, and stays so when it is halved in float32."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.shape(type="float32", lens=[4, 8]))
    made = m.add(mgx.op("dot"), x, m.add_literal(np.full((8, 8), 20000, np.float32)))
    for kind in ("float16", "float32"):
        made = m.add(mgx.op("convert", target_type=kind), made)
    m.add_return([m.add(mgx.op("mul"), made, m.add_literal(np.full((4, 8), 0.5, np.float32)))])
    program.compile(CpuTarget(), fast_math=False)
    (found,) = program.run({"x": np.ones((4, 8), np.float32)})
    assert np.isinf(np.asarray(found)).all()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_concatenation_that_is_also_an_operand_of_a_longer_one(order: tuple[int, int]) -> None:
    """Both share memory, which contains the shorter one twice."""
    program = mgx.Program()
    m = program.get_main_module()
    x, y = (m.add_parameter(name, mgx.Shape("float32", [2, 3])) for name in "xy")
    first = m.add(mgx.op("concat", axis=1), x, y)
    both = first, m.add(mgx.op("concat", axis=1), x, y, first, x)
    m.add_return([both[n] for n in order])
    program.compile(CpuTarget())
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    wanted = np.hstack([rows, -rows]), np.hstack([rows, -rows, rows, -rows, rows])
    found = program.run({"x": rows, "y": -rows})
    for got, n in zip(found, order, strict=True):
        np.testing.assert_array_equal(np.asarray(got), wanted[n])


def test_a_refused_copy_leaves_shared_concatenations_alone() -> None:
    from mgx_core.errors import Refused
    from mgx_cpu_dnnl.concat_sharing import Chain
    from mgx_cpu_dnnl.emitter import CpuEmitter
    from mgx_cpu_dnnl.plans import PLANS

    class Emitter(CpuEmitter):
        refusing = True

        def chain(self, operands: int) -> Chain:
            return chain

        def copy_into(self, source: Any, target: Any) -> None:
            if self.refusing:
                raise Refused("not now")
            super().copy_into(source, target)

    m = mgx.Module("main")
    shape = mgx.Shape("float32", [2, 3])
    concat = mgx.op("concat", axis=1)
    chain = Chain(m.add(concat, m.add_parameter("x", shape), m.add_parameter("y", shape)))
    e = Emitter(PLANS)
    kernel = PLANS.pick(concat, [shape, shape], None).kernel
    operands = [e.input(shape, n) for n in range(2)]
    assert isinstance(e.attempt(kernel, concat, (), operands), mgx.No)
    assert chain.storage is None
    assert chain.filled == 0
    Emitter.refusing = False
    assert not isinstance(e.attempt(kernel, concat, (), operands), mgx.No)
    assert sum(s.name == "copy" for s in e.steps) == 2


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"sizes": (17, 40), "mode": "linear"},
        {"sizes": (4, 31), "mode": "cubic", "coordinate_transformation_mode": "align_corners"},
        {"scales": (0.4, 2.5), "mode": "linear", "antialias": True},
        {"scales": (2.0, 3.0), "mode": "nearest"},
    ],
    ids=str,
)
def test_resampling_axis_by_axis(attributes: dict[str, Any], dtype: str) -> None:
    """Intermediate values between the passes are as precise as the reference's; after a convolution they are channels-last."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape(dtype, [2, 5, 9, 13]))
    resize = mgx.op("resize", axes=(2, 3), **attributes)
    rows = [m.add(resize, x)]
    if dtype == "float32":
        conv = mgx.op("convolution", padding=[0, 0], stride=[1, 1], dilation=[1, 1], group=1)
        rows.append(m.add(resize, m.add(conv, x, constant(m, 7, 5, 1, 1))))
    m.add_return(rows)
    tolerance = {"float64": 1e-12, "float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    runner, _ = ran(program, tolerance)
    assert sum("resize" in s.name for s in runner.schedule.steps) == 2 * len(rows)


def test_a_sum_of_a_part_of_channels_keeps_them_last() -> None:
    """Attention over splits: after a convolution, sums of halves of its channels keep its channels-last layout."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [1, 16, 8, 8]))
    first, second = (
        main.add_literal(rng.standard_normal((n, c, 1, 1)).astype(np.float32)) for n, c in ((64, 16), (8, 32))
    )
    halves = main.add(mgx.op("reshape", dims=(1, 2, 32, 8, 8)), main.add(mgx.op("convolution"), x, first))
    total = main.add(mgx.op("reduce_sum", axes=(1,)), main.add(mgx.op("sigmoid"), halves))
    main.add_return([main.add(mgx.op("convolution"), main.add(mgx.op("squeeze", axes=(1,)), total), second)])
    feed = {"x": rng.standard_normal((1, 16, 8, 8)).astype(np.float32)}
    (wanted,) = Interpreter().run(main, list(feed.values()))
    program.compile(CpuTarget())
    np.testing.assert_allclose(np.asarray(program.run(feed)[0]), wanted, rtol=1e-4, atol=1e-4)
    steps = [s.name.split()[0] for s in program.executable.instances()[-1].runner.schedule.steps]
    assert steps.count("copy") <= 2, steps  # of x, and of the result: none between the sum and its reader


@pytest.mark.parametrize(
    ("apart", "turned", "joined"),
    [
        ((1, 16, 2, 2, 6, 5), (0, 1, 4, 2, 5, 3), (1, 16, 12, 10)),  # depth to space
        ((2, 16, 2, 2, 3, 5), (0, 1, 4, 2, 5, 3), (2, 16, 6, 10)),
        ((1, 4, 16, 6, 5), (0, 2, 1, 3, 4), (1, 64, 6, 5)),  # channel shuffle
        ((1, 8, 8, 6, 5), (0, 2, 1, 3, 4), (1, 64, 30, 1)),
    ],
)
def test_reassembled_images_stay_channels_last(apart: Any, turned: Any, joined: Any) -> None:
    """Between two convolutions elements are moved once, directly to where the second one reads them."""
    program = mgx.Program()
    m = program.get_main_module()
    lens = [apart[0], 8, *((apart[-2], apart[-1]))]
    x = m.add_parameter("x", mgx.Shape("float32", lens))
    y = m.add(mgx.op("sigmoid"), m.add(mgx.op("convolution", padding=[1, 1]), x, constant(m, 64, 8, 3, 3)))
    y = m.add(mgx.op("transpose", permutation=turned), m.add(mgx.op("reshape", dims=apart), y))
    y = m.add(mgx.op("reshape", dims=joined), y)
    m.add_return([m.add(mgx.op("convolution", padding=[1, 1]), y, constant(m, 24, joined[1], 3, 3))])
    runner, _ = ran(program, 1e-4)
    steps = [s.name.split()[0] for s in runner.schedule.steps]
    assert steps.count("copy") <= 3, steps  # of x, between the convolutions, and of the result
