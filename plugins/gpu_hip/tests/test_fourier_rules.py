"""Fourier transforms run as one product or one kernel each: a product if their length has a factor of 11."""

from __future__ import annotations

import numpy as np
import pytest
from built_program import BuiltProgram

import mgx_core as mgx
from mgx_gpu_hip.target import GpuTarget


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"onesided": True}, 1),
        ({"onesided": True, "inverse": True, "dft_length": 220}, 2),
        ({"onesided": True, "dft_length": 502}, 1),
    ],
    ids=["forward", "back", "padded"],
)
def test_one_product(given: dict, kind: int, device: int) -> None:
    built = BuiltProgram(1)
    n = 111 if given.get("inverse") else 220
    x = built.argument(2, 3, n, kind, kind="float16")[0]
    steps = built.checked_steps(built.add("dft", x, axis=2, **given), device, 3e-3)
    assert sum(s.kernel.endswith("dot") for s in steps) == 1
    assert not any(s.instruction.shape.dtype.size == 4 for s in steps)


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
@pytest.mark.parametrize(("inverse", "squeezed"), [(False, False), (True, False), (True, True)])
def test_only_the_results_that_are_read_are_computed(inverse: bool, squeezed: bool, device: int) -> None:
    built = BuiltProgram(3)
    x = built.argument(2, 3, 111 if inverse else 220, 2 if inverse else 1, kind="float16")[0]
    y = built.add("dft", x, axis=2, onesided=True, inverse=inverse)
    y = built.add("squeeze", y, axes=[-1]) if squeezed else y
    y = built.add("slice", y, axes=[2], starts=[8], ends=[40])
    steps = built.checked_steps(y, device, 3e-3)
    (product,) = [s for s in steps if s.kernel.endswith("dot")]
    assert product.instruction.shape.dims[-1] == (32 if inverse else 64)


@pytest.mark.parametrize("read", ["whole", "parts", "batch"])
def test_a_transform_that_is_read_otherwise_is_whole(read: str) -> None:
    built = BuiltProgram(4)
    y = built.add("dft", built.argument(2, 3, 220, 1, kind="float16")[0], axis=2, onesided=True)
    cuts = {"whole": [([2], [0], [40])], "parts": [([2], [0], [40]), ([2], [60], [70])], "batch": [([0], [0], [1])]}
    parts = [built.add("slice", y, axes=a, starts=s, ends=e) for a, s, e in cuts[read]]
    parts = [built.add("concat", *parts, axis=2)] if read == "parts" else parts
    parts = [built.add("concat", *parts, y, axis=2)] if read == "whole" else parts
    steps = built.checked_steps(parts[0], 1, 3e-3)
    (product,) = [s for s in steps if s.kernel.endswith("dot")]
    assert product.instruction.shape.dims[-1] == 222


@pytest.mark.parametrize(("length", "kind"), [(4400, "float16"), (1100, "float32")])
def test_two_products(length: int, kind: str) -> None:
    built = BuiltProgram(2)
    x = built.argument(2, length, 1, kind=kind)[0]
    steps = built.checked_steps(built.add("dft", x, axis=1, onesided=True), 1, 3e-3)
    assert any(s.instruction.shape.dtype.size == 4 for s in steps) and len(steps) > 2, [s.kernel for s in steps]


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
@pytest.mark.parametrize(("length", "kind"), [(128, "float16"), (4096, "float16"), (64, "float32"), (2048, "float32")])
def test_one_kernel(length: int, kind: str, device: int) -> None:
    built = BuiltProgram(5)
    x = built.argument(2, length, 1, kind=kind)[0]
    (step,) = built.checked_steps(built.add("dft", x, axis=1, onesided=True), device, 3e-3)
    assert step.kernel == "generated dft"


@pytest.mark.parametrize("axis", [2, 1])
def test_few_results_of_adjacent_numbers_are_a_product(axis: int) -> None:
    built = BuiltProgram(6)
    x = built.argument(*((2, 3, 128, 1) if axis == 2 else (2, 128, 3, 1)), kind="float16")[0]
    y = built.add("slice", built.add("dft", x, axis=axis, onesided=True), axes=[axis], starts=[3], ends=[35])
    steps = built.checked_steps(y, 1, 3e-3)
    assert [s.kernel.rpartition(" ")[2] for s in steps if s.kernel.endswith(("dot", "dft"))] == [
        "dot" if axis == 2 else "dft"
    ]


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_other_numbers_of_transforms_take_the_same_kernel(device: int) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [mgx.DynamicDimension(1, 64), 96, 1]))
    y = main.add(mgx.op("dft", axis=1, onesided=True), x)
    main.add_return([y, main.add(mgx.op("dft", axis=1, onesided=True, inverse=True), y)])
    program.compile(GpuTarget("host", device))
    for n in (40, 25):
        given = np.random.default_rng(n).standard_normal((n, 96, 1)).astype(np.float32)
        spectrum, back = (r.to_numpy() for r in program.run({"x": given}))
        wanted = np.fft.rfft(given[..., 0], axis=1)
        np.testing.assert_allclose(spectrum, np.stack([wanted.real, wanted.imag], -1), atol=2e-5)
        np.testing.assert_allclose(back, given, atol=5e-6)
    names = [[s.name for s in i.runner.schedule.steps] for i in program.executable.instances()]
    assert len(names) == 2 and names[0] == names[1]
