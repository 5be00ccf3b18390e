"""Linear attention in one launch, compared with the reference on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_trial import generate, run, same, tensor, traits

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.ops.linear_attention import LinearAttention
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape
from mgx_gpu_hip.target import GpuTarget

LIMITS = {"float16": 2e-3, "float32": 2e-5, "float64": 1e-12}


def given(of: str, rule: str, sizes: tuple[int, int, int, int], kept: int, shared: int, past: str) -> list[Any]:
    """Returns operands for `sizes`, (steps, heads of the keys, size of a key, width of a value), of two sequences."""
    rng = np.random.default_rng(3)
    steps, heads, size, width = sizes

    def part(*dims: int, of: str = of, factor: float = 0.5) -> Any:
        return (rng.standard_normal(dims) * factor).astype(dt.of(of).numpy)

    made = [part(2, steps, 2 * heads * size), part(2, steps, heads * size, factor=0.3), part(2, steps, heads * width)]
    made.append(part(2, heads, size, width, of=past) if past else None)
    made.append(-abs(part(2, steps, kept)) if "gated" in rule else None)
    made.append(abs(part(2, steps, shared)) if "delta" in rule else None)
    return made


@pytest.mark.parametrize(("wave", "of"), [(32, "float16"), (64, "float32"), (32, "float64")])
@pytest.mark.parametrize(
    ("rule", "sizes", "by_row", "shared", "past"),
    [
        ("linear", (1, 2, 3, 5), False, 2, ""),
        ("gated_delta", (5, 2, 1, 3), True, 1, "float32"),  # keys of one element
        ("linear", (0, 2, 1, 3), False, 2, "float32"),  # no steps: the state is copied
        ("gated", (17, 2, 16, 130), False, 2, "float32"),
        ("gated", (5, 1, 33, 7), True, 1, ""),
        ("delta", (33, 3, 20, 4), False, 1, "float16"),
        ("gated_delta", (6, 2, 70, 9), True, 2, "float32"),
        ("gated_delta", (3, 1, 600, 3), False, 1, ""),
    ],
)
def test_every_rule_agrees_with_the_reference(
    wave: int, of: str, rule: Any, sizes: tuple[int, int, int, int], by_row: bool, shared: int, past: str
) -> None:
    """Steps, columns and rows that are no multiples of what a block holds; queries share keys in pairs."""
    steps, heads, size, width = sizes
    op = LinearAttention(q_num_heads=2 * heads, kv_num_heads=heads, update_rule=rule)
    arrays = given(of, rule, sizes, heads * size if by_row else heads, shared, past)
    inputs = [None if a is None else tensor(a.dtype.name, a.shape) for a in arrays]
    outputs = [tensor(of, (2, steps, 2 * heads * width)), tensor(past or of, (2, heads, size, width))]
    got = run(generate(op, inputs, outputs, traits(wave)), arrays, inputs, outputs, wave)
    wanted = op.compute(*arrays)
    same(got[:1], wanted[:1], tolerance=LIMITS[of])
    same(got[1:], wanted[1:], tolerance=max(LIMITS[of], LIMITS[past or of]))


def test_strided_operands_and_results() -> None:
    op = LinearAttention(q_num_heads=2, kv_num_heads=2, update_rule="linear")
    arrays = given("float32", "linear", (4, 2, 8, 6), 2, 2, "float32")
    arrays[0] = arrays[0][..., :16]
    inputs = [None if a is None else tensor("float32", a.shape) for a in arrays]
    inputs[0] = tensor("float32", (2, 4, 16), (16, 32, 1))  # steps outermost, as slices of a product may be
    inputs[3] = tensor("float32", (2, 2, 8, 6), (96, 48, 1, 8))
    outputs = [tensor("float32", (2, 4, 12), (1, 24, 2)), tensor("float32", (2, 2, 8, 6), (200, 96, 1, 9))]
    same(
        run(generate(op, inputs, outputs, traits()), arrays, inputs, outputs),
        op.compute(*arrays),
        tolerance=LIMITS["float32"],
    )


def test_what_does_not_fit_is_refused() -> None:
    """More rows than lanes hold, or a step of more queries than shared memory."""
    for heads, size, why in ((1, 2049, "at most 2048 elements"), (32, 512, "bytes of shared memory")):
        op = LinearAttention(q_num_heads=heads, kv_num_heads=1, update_rule="linear")
        inputs = [tensor("float32", (1, 2, n)) for n in (heads * size, size, 4)]
        outputs = [tensor("float32", (1, 2, heads * 4)), tensor("float32", (1, 1, size, 4))]
        refused = generate(op, inputs, outputs, traits())
        assert isinstance(refused, No) and why in refused.why, refused


@pytest.mark.parametrize("open_extents", [False, True])
def test_one_launch_for_any_number_of_steps(open_extents: bool) -> None:
    """Also where the number of steps and of sequences is symbolic: both lengths use one kernel."""
    names = {"q": 12, "k": 6, "v": 8, "d": 2, "b": 2}
    batch, length = (symbol("B", 1, 4), symbol("T", 1, 64)) if open_extents else (2, 20)
    program = mgx.Program()
    main = program.get_main_module()
    shapes = {n: Shape.of(dt.float32, (batch, length, w)) for n, w in names.items()}
    shapes["s"] = Shape.of(dt.float32, (batch, 2, 3, 4))
    operands = {n: main.add_parameter(n, s) for n, s in shapes.items()}
    attention = mgx.op("linear_attention", q_num_heads=4, kv_num_heads=2)
    made = main.add(attention, *(operands[n] for n in "qkvsdb"))
    main.add_return([main.add(mgx.op("get_tuple_elem", index=i), made) for i in range(2)])
    program.compile(GpuTarget("host", 1))
    rng = np.random.default_rng(2)
    kernels = set()
    for steps in (20, 33) if open_extents else (20,):
        feed = {n: rng.standard_normal((2, steps, w)).astype(np.float32) / 2 for n, w in names.items()}
        feed["s"] = rng.standard_normal((2, 2, 3, 4)).astype(np.float32)
        found = [x.to_numpy() for x in program.run(feed)]
        for one, other in zip(found, attention.evaluate([feed[n] for n in "qkvsdb"]), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        assert program.executable is not None
        steps_run = program.executable.instances()[-1].plan.steps
        assert [s.kernel for s in steps_run] == ["generated linear_attention"]
        kernels.add(steps_run[0].name)
    assert len(kernels) == 1
