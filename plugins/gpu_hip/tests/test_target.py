"""Whole programs on the emulated device, compared with the unoptimized reference."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.ir.interpreter import Interpreter
from mgx_core.types.dim import symbol
from mgx_gpu_hip.compile import build as builder
from mgx_gpu_hip.runtime import DeviceArray
from mgx_gpu_hip.step_sources import StepSource
from mgx_gpu_hip.target import GpuTarget

rng = np.random.default_rng(7)
Build = Callable[[mgx.Module], list[mgx.Instruction]]


@pytest.fixture
def target() -> GpuTarget:
    """For tests that do not depend on the wave size."""
    return GpuTarget("host", 1)


@pytest.fixture(params=[0, 1], ids=["wave64", "wave32"])
def either_wave(request: Any) -> GpuTarget:
    return GpuTarget("host", request.param)


@pytest.mark.parametrize("rows", [3, symbol("n")])
def test_compiling_without_a_device_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, rows: Any) -> None:
    def missing(kind: str, number: int) -> Any:
        raise mgx.DeviceError("no GPU was found")

    monkeypatch.setattr("mgx_gpu_hip.context.open_device", missing)
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("exp"), m.add_parameter("x", mgx.Shape("float32", [rows, 2])))])
    with pytest.raises(mgx.DeviceError, match="no GPU was found"):
        program.compile(GpuTarget("cuda"))
    assert not program.is_compiled()


@pytest.mark.parametrize("named", ["host:first", "host:", "cuda:0x1", ":-1"])
def test_a_device_that_is_named_by_no_number_is_refused(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGX_GPU_DEVICE", named)
    with pytest.raises(mgx.ParameterError, match=f"MGX_GPU_DEVICE must name a device as in cuda:1, got '{named}'"):
        GpuTarget().get_context().device  # noqa: B018


def literal(m: mgx.Module, *shape: int, scale: float = 0.3) -> mgx.Instruction:
    return m.add_literal((rng.standard_normal(shape) * scale).astype(np.float32))


def wide(m: mgx.Module, x: mgx.Instruction, like: mgx.Instruction) -> mgx.Instruction:
    return m.add(mgx.op("multibroadcast", out_lens=like.shape.dims), x)


def image(m: mgx.Module, *lens: Any, of: str = "float32") -> mgx.Instruction:
    return m.add_parameter("x", mgx.shape(type=of, lens=lens))


def compiled(build: Build, target: GpuTarget, **options: Any) -> tuple[mgx.Program, dict[str, Any], list[Any]]:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return(build(m))
    given = {n: mgx.generate_argument(i.shape, seed=k).to_numpy() for k, (n, i) in enumerate(m.parameters.items())}
    wanted = list(Interpreter().run(m, list(given.values())))
    program.compile(target, **options)
    return program, given, wanted


def check(build: Build, target: GpuTarget, tolerance: float = 1e-5, host: tuple[str, ...] = ()) -> None:
    """Checks that the results of two runs equal the reference's; `host`: the ops that run there."""
    program, given, wanted = compiled(build, target)
    for _ in range(2):
        for a, b in zip(program.run(given), wanted, strict=True):
            found = a.to_numpy()
            assert found.dtype == b.dtype
            np.testing.assert_allclose(found, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max())))
    runner = program.executable.instances()[0].runner
    assert tuple(s.call.op.name for s in runner.hosted) == host, runner.schedule.notes


@pytest.mark.parametrize("group", [1, 8])
def test_convolution_with_bias_and_activation(either_wave: GpuTarget, group: int) -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        op = mgx.op("convolution", padding=[1, 1], stride=[2, 2], dilation=[1, 1], group=group)
        y = m.add(op, image(m, 2, 8, 9, 7), literal(m, 16, 8 // group, 3, 3))
        y = m.add(mgx.op("add"), y, wide(m, literal(m, 1, 16, 1, 1), y))
        return [m.add(mgx.op("relu"), y)]

    check(build, either_wave)


@pytest.mark.parametrize("rows", [2, symbol("n", 1, 8)])
def test_maxima_are_unpooled_on_the_device(either_wave: GpuTarget, rows: Any) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add(mgx.op("tanh"), image(m, rows, 3, 8, 6))
    windows = {"lengths": [2, 2], "stride": [2, 2]}
    found = m.add(mgx.op("max_pool_indices", **windows), x)
    parts = [m.add(mgx.op("get_tuple_elem", index=n), found) for n in (0, 1)]
    m.add_return([m.add(mgx.op("relu"), m.add(mgx.op("max_unpool", **windows), *parts))])
    plain = m.clone()
    program.compile(either_wave)
    for count in (2,) if rows == 2 else (2, 5, 1):
        given = rng.standard_normal((count, 3, 8, 6)).astype(np.float32)
        (wanted,) = Interpreter().run(plain, [given])
        np.testing.assert_allclose(program.run({"x": given})[0].to_numpy(), wanted, rtol=1e-5, atol=1e-6)
    for instance in program.executable.instances():
        assert not instance.runner.hosted and [p for p in instance.placements if p.place == "host"] == []


def test_dot_with_epilogue(either_wave: GpuTarget) -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        y = m.add(mgx.op("dot"), image(m, 2, 7, 32), wide(m, literal(m, 32, 48), m.add_literal(np.zeros((2, 32, 48)))))
        return [m.add(mgx.op("gelu_erf"), m.add(mgx.op("add"), y, wide(m, literal(m, 48), y)))]

    check(build, either_wave)


def test_attention_is_one_kernel(either_wave: GpuTarget) -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = image(m, 2, 20, 3 * 32)

        def heads(n: int, order: tuple[int, ...]) -> mgx.Instruction:
            part = m.add(mgx.op("slice", axes=[2], starts=[32 * n], ends=[32 * n + 32]), x)
            return m.add(mgx.op("transpose", permutation=order), m.add(mgx.op("reshape", dims=[2, 20, 2, 16]), part))

        k = heads(1, (0, 2, 3, 1))
        q = heads(0, (0, 2, 1, 3))
        s = m.add(mgx.op("dot"), m.add(mgx.op("mul"), q, wide(m, m.add_literal(np.float32(0.25)), q)), k)
        o = m.add(mgx.op("dot"), m.add(mgx.op("softmax", axis=3), s), heads(2, (0, 2, 1, 3)))
        o = m.add(mgx.op("transpose", permutation=(0, 2, 1, 3)), o)
        return [m.add(mgx.op("reshape", dims=[2, 20, 32]), o)]

    check(build, either_wave, 2e-5)
    program, given, _ = compiled(build, either_wave)
    program.run(given)
    assert len(program.executable.instances()[0].runner.schedule.steps) == 1


def test_norm_pooling_and_concat(either_wave: GpuTarget) -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = image(m, 2, 6, 8, 8)
        p = m.add(mgx.op("pooling", mode="max", padding=[0, 0], stride=[2, 2], lengths=[2, 2]), x)
        q = m.add(mgx.op("pooling", mode="average", padding=[0, 0], stride=[2, 2], lengths=[2, 2]), x)
        joined = m.add(mgx.op("concat", axis=1), p, q)
        mean = m.add(mgx.op("reduce_mean", axes=[2, 3]), joined)
        return [joined, m.add(mgx.op("softmax", axis=1), mean)]

    check(build, either_wave)


def test_results_of_earlier_runs_survive(target: GpuTarget) -> None:
    program, given, _ = compiled(lambda m: [m.add(mgx.op("tanh"), image(m, 4, 5))], target)
    first = program.run(given)[0].to_numpy()
    kept = first.copy()
    program.run({"x": given["x"] + 1})
    np.testing.assert_array_equal(first, kept)


def test_a_symbolic_batch_has_an_instance_for_each_extent(target: GpuTarget) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape.of(dt.float32, (symbol("batch", 1, 8), 6)))
    m.add_return([m.add(mgx.op("relu"), x)])
    program.compile(target)
    for n in (1, 3, 1):
        data = rng.standard_normal((n, 6)).astype(np.float32)
        np.testing.assert_array_equal(program.run({"x": data})[0].to_numpy(), np.maximum(data, 0))
    assert len(program.executable.instances()) == 2


def test_a_wrong_input_is_named(target: GpuTarget) -> None:
    program, _, _ = compiled(lambda m: [m.add(mgx.op("tanh"), image(m, 4, 5))], target)
    with pytest.raises(mgx.MgxError, match="'x'"):
        program.run({"x": np.zeros((4, 6), np.float32)})


def test_device_arrays_go_in_and_come_out(target: GpuTarget) -> None:
    program, given, wanted = compiled(lambda m: [m.add(mgx.op("exp"), image(m, 4, 5))], target, offload_copy=False)
    device = program.executable.context.device
    held = DeviceArray(device.upload(given["x"]), dt.float32, (4, 5))
    for call in (program.run, program.run_async):
        value = call({"x": held})[0]
        np.testing.assert_allclose(value.to_numpy(), wanted[0], rtol=1e-6)


def test_results_are_written_to_the_callers_places(target: GpuTarget) -> None:
    program, given, wanted = compiled(lambda m: [m.add(mgx.op("exp"), image(m, 4, 5))], target, offload_copy=False)
    device = program.executable.context.device
    place = DeviceArray(device.allocate(80), dt.float32, (4, 5))
    held = DeviceArray(device.upload(given["x"]), dt.float32, (4, 5))
    program.run_async({"x": held, "main:#output_0": place})
    device.default_stream.wait()
    got = np.empty((4, 5), np.float32)
    device.download(got, place.address)
    np.testing.assert_allclose(got, wanted[0], rtol=1e-6)


def test_repeated_runs_check_nothing_again(target: GpuTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    program, given, wanted = compiled(lambda m: [m.add(mgx.op("exp"), image(m, 4, 5))], target, offload_copy=False)
    executable = program.executable
    device = executable.context.device
    x, other = (DeviceArray(device.upload(given["x"] + n), dt.float32, (4, 5)) for n in (0, 1))
    program.run_async({"x": x})
    with monkeypatch.context() as patch:
        patch.setattr(executable, "bind", lambda parameters: pytest.fail("checked again"))
        for _ in range(2):
            np.testing.assert_allclose(program.run_async({"x": x})[0].to_numpy(), wanted[0], rtol=1e-6)
    np.testing.assert_allclose(program.run_async({"x": other})[0].to_numpy(), np.exp(given["x"] + 1), rtol=1e-6)
    with pytest.raises(mgx.MgxError, match="'x'"):
        program.run_async({"x": DeviceArray(x.buffer, dt.float32, (5, 4))})
    with pytest.raises(mgx.MgxError, match="'x'"):
        program.run_async({"x": DeviceArray(x.buffer, dt.int32, (4, 5))})
    with pytest.raises(mgx.MgxError, match="'y'"):
        program.run_async({"x": x, "y": x})
    with pytest.raises(mgx.MgxError, match="row-major"):
        program.run_async({"x": DeviceArray(x.buffer, dt.float32, (4, 5), strides=(1, 4))})
    np.testing.assert_allclose(program.run_async({"x": given["x"]})[0].to_numpy(), wanted[0], rtol=1e-6)


def test_repeated_runs_hold_no_places_of_the_caller(target: GpuTarget) -> None:
    program, given, wanted = compiled(lambda m: [m.add(mgx.op("exp"), image(m, 4, 5))], target, offload_copy=False)
    device = program.executable.context.device
    x = DeviceArray(device.upload(given["x"]), dt.float32, (4, 5))
    place = DeviceArray(device.allocate(80), dt.float32, (4, 5))
    for _ in range(3):
        device.default_stream.fill(place.address, 0, 80)
        (result,) = program.run_async({"x": x, "main:#output_0": place})
        np.testing.assert_allclose(result.to_numpy(), wanted[0], rtol=1e-6)
        assert result.data_ptr() == place.address
    program.run_async({"x": x})
    program.run_async({"x": x})
    gone = weakref.ref(place)
    del place, result
    assert gone() is None


def test_queued_runs_check_and_keep_nothing(target: GpuTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = image(m, 4, 5)
        return [m.add(mgx.op("exp"), x), m.add(mgx.op("relu"), x)]

    program, given, wanted = compiled(build, target, offload_copy=False)
    executable = program.executable
    device = executable.context.device
    x = DeviceArray(device.upload(given["x"]), dt.float32, (4, 5))
    places = [DeviceArray(device.allocate(80), dt.float32, (4, 5)) for _ in range(2)]
    parameters = {"x": x, "main:#output_0": places[0], "main:#output_1": places[1]}
    assert executable.queued(parameters) is None  # nothing has run there yet
    executable.run_async(parameters, 0, "")
    call = executable.queued(parameters)
    assert call is not None
    monkeypatch.setattr(executable, "bind", lambda parameters: pytest.fail("checked again"))
    for _ in range(2):
        for place in places:
            device.default_stream.fill(place.address, 0, 80)
        call(0)
        device.default_stream.wait()
        for place, want in zip(places, wanted, strict=True):
            got = np.empty((4, 5), np.float32)
            device.download(got, place.address)
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_kernels_compile_for_an_amd_device(either_wave: GpuTarget) -> None:
    pytest.importorskip("ziglang")

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        op = mgx.op("convolution", padding=[1, 1], stride=[1, 1], dilation=[1, 1])
        y = m.add(mgx.op("relu"), m.add(op, image(m, 1, 4, 6, 6), literal(m, 8, 4, 3, 3)))
        return [m.add(mgx.op("reduce_mean", axes=[2, 3]), y)]

    program, given, _ = compiled(build, either_wave)
    program.run(given)
    steps = program.executable.instances()[0].runner.schedule.steps
    codes = builder.build([StepSource(s) for s in steps], "gfx90a")
    assert len(codes) == len(steps) and all(c.image for c in codes)


def test_keys_of_grouped_heads_are_copied_in_their_layout(target: GpuTarget) -> None:
    def build(m: mgx.Module) -> list[Any]:
        q = m.add_parameter("q", mgx.Shape("float16", [1, 6, 1, 64]))
        k, v = (m.add_parameter(n, mgx.Shape("float16", [1, 2, 70, 64])) for n in "kv")

        def heads(x: Any) -> Any:
            apart = m.add(mgx.op("unsqueeze", axes=[2]), x)
            wide = m.add(mgx.op("multibroadcast", out_lens=[1, 2, 3, *apart.shape.lens()[3:]]), apart)
            return m.add(mgx.op("reshape", dims=[1, 6, *apart.shape.lens()[3:]]), wide)

        turned = m.add(mgx.op("transpose", permutation=[0, 1, 3, 2]), k)
        weights = m.add(mgx.op("softmax", axis=3), m.add(mgx.op("dot"), q, heads(turned)))
        return [m.add(mgx.op("dot"), weights, heads(v))]

    program, given, wanted = compiled(build, target)
    (got,) = program.run(given)
    np.testing.assert_allclose(got.to_numpy(), wanted[0], rtol=1e-2, atol=1e-2)
    (attention,) = [s for s in program.executable.instances()[0].plan.steps if s.name.startswith("attention")]
    keys = attention.inputs[1]
    assert keys.lens[-2:] == [64, 70] and keys.strides[-2:] == [1, 64]


def test_normalized_heads_keep_the_layout_of_the_tensor_they_are_sliced_from(target: GpuTarget) -> None:
    def build(m: mgx.Module) -> list[Any]:
        x = m.add_parameter("x", mgx.Shape("float32", [2, 20, 3, 4, 8]))  # [images, tokens, q k v, heads, size]
        all_heads = m.add(mgx.op("transpose", permutation=[2, 0, 3, 4, 1]), x)
        q = m.add(mgx.op("slice", axes=[0], starts=[1], ends=[2]), all_heads)
        q = m.add(mgx.op("squeeze", axes=[0]), q)
        norm = m.add(mgx.op("sqrt"), m.add(mgx.op("reduce_sum", axes=[3]), m.add(mgx.op("mul"), q, q)))
        y = m.add(mgx.op("div"), q, m.add(mgx.op("multibroadcast", out_lens=[2, 4, 8, 20]), norm))
        return [m.add(mgx.op("pad", pads=[0, 0, 0, 0, 0, 1, 0, 0]), y)]

    check(build, target)
    program, given, _ = compiled(build, target)
    program.run(given)
    norm, pad = program.executable.instances()[0].plan.steps[:2]
    assert norm.kernel == "generated fused_reduce" and list(pad.inputs[0].strides) == [640, 8, 1, 32]


def test_a_depthwise_convolution_whose_sum_is_read_twice(target: GpuTarget) -> None:
    def build(m: mgx.Module) -> list[Any]:
        x, y = (m.add_parameter(n, mgx.Shape("float16", [1, 16, 8, 8])) for n in "xy")
        w = m.add_literal(np.random.default_rng(1).standard_normal((16, 1, 3, 3)).astype(np.float16))
        sums = m.add(mgx.op("convolution", group=16, padding=[1, 1]), x, w)
        total = m.add(mgx.op("add"), sums, y)
        return [total, m.add(mgx.op("relu"), total)]

    program, given, wanted = compiled(build, target)
    for got, value in zip(program.run(given), wanted, strict=True):
        np.testing.assert_allclose(got.to_numpy(), value, rtol=2e-2, atol=5e-2)


EMPTY: dict[str, list[Any]] = {
    "nonzero": [np.ones((3, 0), bool)],
    "compress": [np.ones((3, 5), np.float32), np.ones(0, bool)],
    "nonmaxsuppression": [np.ones((1, 0, 4), np.float32), np.ones((1, 2, 0), np.float32), np.array([3])],
}


@pytest.mark.parametrize("name", EMPTY)
def test_rows_are_counted_of_nothing(name: str) -> None:
    given = EMPTY[name]
    program = mgx.Program()
    m = program.get_main_module()
    xs = [m.add_parameter(f"x{n}", mgx.Shape(str(x.dtype), x.shape)) for n, x in enumerate(given)]
    rows = m.add(mgx.op(name), *xs)
    m.add_return([rows, m.add(mgx.op("transpose", permutation=list(range(rows.shape.rank))[::-1]), rows)])
    wanted = list(Interpreter().run(m, given))
    program.compile(GpuTarget("host", 1))
    for got, right in zip(program.run({f"x{n}": x for n, x in enumerate(given)}), wanted, strict=True):
        assert got.to_numpy().shape == right.shape and got.to_numpy().dtype == right.dtype


@pytest.mark.parametrize(("size", "copies"), [(32, 0), (64, 1)])
def test_a_sum_is_written_in_the_order_that_a_reshape_reads(size: int, copies: int, target: GpuTarget) -> None:
    """Relative positions of windows are added to scores [heads, h, w, h, w], which attention reads as [heads, hw, hw].

    Where the sum is transposed for its reader anyway, it keeps the order of its first operand.
    """

    def build(m: mgx.Module) -> list[Any]:
        x = m.add_parameter("x", mgx.Shape("float32", [3, 2, 4, 8]))
        y = m.add_parameter("y", mgx.Shape("float32", [2, 3, 1, 8]))
        turned = m.add(mgx.op("transpose", permutation=[1, 0, 2, 3]), x)
        total = m.add(mgx.op("add"), turned, m.add(mgx.op("multibroadcast", out_lens=[2, 3, 4, 8]), y))
        if size == 64:
            total = m.add(mgx.op("transpose", permutation=[2, 3, 1, 0]), total)
        return [m.add(mgx.op("softmax", axis=-1), m.add(mgx.op("reshape", dims=[192 // size, size]), total))]

    check(build, target)
    program, _, _ = compiled(build, target)
    steps = program.executable.instances()[0].plan.steps
    assert sum(s.name.startswith("contiguous") for s in steps) == copies


def test_heads_that_a_convolution_reads_as_an_image_are_copied_to_channels_last(target: GpuTarget) -> None:
    """[batch, heads, h w, size] becomes an image of heads * size channels in one copy, which the convolution need not repeat."""

    def build(m: mgx.Module) -> list[Any]:
        x = m.add_parameter("x", mgx.Shape("float16", [2, 3, 20, 8]))
        heads = m.add(mgx.op("transpose", permutation=[0, 1, 3, 2]), x)
        image = m.add(mgx.op("reshape", dims=[2, 24, 4, 5]), heads)
        return [m.add(mgx.op("convolution"), image, m.add_literal(np.ones((16, 24, 1, 1), np.float16) / 8))]

    check(build, target)
    program, _, _ = compiled(build, target)
    copy, convolution, *_ = program.executable.instances()[0].plan.steps
    assert copy.name.startswith("contiguous") and list(convolution.inputs[0].strides) == [480, 1, 120, 24]


def test_sums_of_shuffled_pixels_that_a_convolution_reads_have_their_channels_innermost(target: GpuTarget) -> None:
    def build(m: mgx.Module) -> list[Any]:
        def shuffled(name: str) -> Any:
            x = m.add_parameter(name, mgx.Shape("float32", [2, 3, 5, 8, 2, 2]))
            turned = m.add(mgx.op("transpose", permutation=[0, 3, 1, 4, 2, 5]), x)
            return m.add(mgx.op("reshape", dims=[2, 8, 6, 10]), turned)

        image = m.add(mgx.op("add"), shuffled("x"), shuffled("y"))
        made = m.add(mgx.op("convolution"), image, m.add_literal(np.ones((16, 8, 1, 1), np.float32) / 8))
        return [m.add(mgx.op("add"), made, m.add(mgx.op("concat", axis=1), image, image))]

    check(build, target)
    program, _, _ = compiled(build, target)
    *copies, total, convolution = program.executable.instances()[0].plan.steps[:4]
    assert [c.name.startswith("contiguous") for c in copies] == [True, True]
    assert list(total.outputs[0].strides) == list(convolution.inputs[0].strides) == [480, 1, 80, 8]


def test_masked_spectra_are_written_as_the_sequences_that_a_convolution_reads(target: GpuTarget) -> None:
    """Two masks of one spectrum, [batch, time, masks, channels] in memory, become sequences of their own, channels innermost."""

    def build(m: mgx.Module) -> list[Any]:
        x = m.add_parameter("x", mgx.Shape("float32", [2, 9, 2, 16]))
        y = m.add_parameter("y", mgx.Shape("float32", [2, 1, 16, 9]))
        masks = m.add(mgx.op("transpose", permutation=[0, 2, 3, 1]), x)
        both = m.add(mgx.op("multibroadcast", out_lens=[2, 2, 16, 9]), y)
        sequences = m.add(mgx.op("reshape", dims=[4, 16, 9]), m.add(mgx.op("mul"), masks, both))
        return [
            m.add(
                mgx.op("convolution", padding=[0], stride=[1], dilation=[1]),
                sequences,
                m.add_literal(np.ones((8, 16, 2), np.float32) / 8),
            )
        ]

    check(build, target)
    program, _, _ = compiled(build, target)
    product, convolution, *_ = program.executable.instances()[0].plan.steps
    assert list(product.outputs[0].strides) == [288, 144, 1, 16]
    assert list(convolution.inputs[0].strides) == [144, 1, 16]


def test_an_image_that_others_read_too_is_row_major(target: GpuTarget) -> None:
    def build(m: mgx.Module) -> list[Any]:
        x = m.add_parameter("x", mgx.Shape("float16", [2, 3, 20, 8]))
        heads = m.add(mgx.op("transpose", permutation=[0, 1, 3, 2]), x)
        image = m.add(mgx.op("reshape", dims=[2, 24, 4, 5]), heads)
        made = m.add(mgx.op("convolution"), image, m.add_literal(np.ones((16, 24, 1, 1), np.float16) / 8))
        return [made, m.add(mgx.op("softmax", axis=3), image)]

    check(build, target)
    program, _, _ = compiled(build, target)
    assert list(program.executable.instances()[0].plan.steps[1].inputs[0].strides) == [480, 20, 5, 1]


@pytest.mark.parametrize("inner", [True, False])
def test_patches_keep_their_channels_innermost_for_a_norm(inner: bool, target: GpuTarget) -> None:
    """MobileViT normalizes images that are cut into patches; the convolutions around it have their channels innermost."""

    def build(m: mgx.Module) -> list[Any]:
        x = m.add_parameter("x", mgx.Shape("float32", [2, 4, 2, 3, 2, 8] if inner else [2, 8, 4, 2, 3, 2]))
        x = m.add(mgx.op("transpose", permutation=[0, 5, 2, 4, 1, 3] if inner else [0, 1, 3, 5, 2, 4]), x)
        image = m.add(mgx.op("reshape", dims=[2, 8, 4, 12]), x)
        image = m.add(mgx.op("add"), image, m.add_parameter("y", mgx.Shape("float32", [2, 8, 4, 12])))
        mean = m.add(mgx.op("reduce_mean", axes=[1, 2, 3]), image)
        return [m.add(mgx.op("sub"), image, m.add(mgx.op("multibroadcast", out_lens=[2, 8, 4, 12]), mean))]

    check(build, target)
    program, _, _ = compiled(build, target)
    copy = next(s for s in program.executable.instances()[0].plan.steps if s.name.startswith("contiguous"))
    assert list(copy.outputs[0].strides) == ([384, 1, 192, 96, 24, 8] if inner else [384, 48, 24, 12, 3, 1])


@pytest.mark.parametrize("lens", [(3, 40, 50, 20), (300, 8, 8, 8)])
@pytest.mark.parametrize("of", ["float16", "bfloat16"])
def test_products_with_wide_sums_read_narrow_operands(lens: tuple[int, ...], of: str, target: GpuTarget) -> None:
    """`quantize_fp16` leaves products that may exceed float16 in float32; their operands were rounded before."""
    batch, rows, depth, columns = lens

    def build(m: mgx.Module) -> list[Any]:
        x = m.add_parameter("x", mgx.Shape(of, [batch, rows, depth]))
        y = m.add_parameter("y", mgx.Shape(of, [batch, columns, depth]))
        wide = [m.add(mgx.op("convert", target_type="float32"), v) for v in (x, y)]
        wide[1] = m.add(mgx.op("transpose", permutation=[0, 2, 1]), wide[1])
        product = m.add(mgx.op("dot"), *wide)
        return [m.add(mgx.op("tanh"), product)]

    check(build, target)
    program, _, _ = compiled(build, target)
    product = next(s for s in program.executable.instances()[0].plan.steps if s.name.startswith("product"))
    assert [i.shape.dtype.name for i in product.inputs] == [of, of]
    assert product.outputs[0].shape.dtype is dt.float32


@pytest.mark.parametrize("batches", [([], [3]), ([1], [3]), ([2, 1], [3]), ([2, 3], [])])
@pytest.mark.parametrize("rows", [4, 40])
def test_products_with_wide_sums_broadcast_their_batches(rows: int, batches: Any, target: GpuTarget) -> None:
    def build(m: mgx.Module) -> list[Any]:
        a, b = batches
        x = m.add_parameter("x", mgx.Shape("float16", [*a, rows, 12]))
        return [m.add(mgx.op("quant_dot"), x, m.add_parameter("y", mgx.Shape("float16", [*b, 12, 20])))]

    check(build, target)


ROUNDED: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"fast_math": False}, False),
    ({"fast_math": False, "aggressiveness": 2}, True),
    ({"aggressiveness": 0}, False),
    ({"optimize": False}, False),
]


@pytest.mark.parametrize(
    ("options", "fires"), [*ROUNDED, ({"fusion_rules": {"narrow-operands-of-wide-sums": False}}, False)]
)
def test_wide_sums_on_matrix_units_need_permission_to_round(
    options: dict[str, Any], fires: bool, target: GpuTarget
) -> None:
    """Matrix units round their sums otherwise than float32 does."""
    program = mgx.Program()
    m = program.get_main_module()
    wide = [
        m.add(mgx.op("convert", target_type="float32"), m.add_parameter(n, mgx.Shape("float16", [40, 40])))
        for n in "xy"
    ]
    m.add_return([m.add(mgx.op("dot"), *wide)])
    program.compile(target, **options)
    assert ("quant_dot" in str(program)) is fires


@pytest.mark.parametrize(("options", "fires"), [*ROUNDED, ({"fusion_rules": {"scale-out-of-scores": False}}, False)])
def test_scales_leave_scores_only_with_permission_to_round(
    options: dict[str, Any], fires: bool, target: GpuTarget
) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    q, k = (m.add_parameter(n, mgx.Shape("float16", [20, 20])) for n in "qk")
    scaled = m.add(mgx.op("mul"), q, wide(m, m.add_literal(np.float16(0.3)), q))
    m.add_return([m.add(mgx.op("softmax", axis=1), m.add(mgx.op("dot"), scaled, k))])
    program.compile(target, **options)
    assert ('group[tag="dot"]' in str(program)) is fires  # the scale is the product's epilogue


@pytest.mark.parametrize("rows", [20, 8, symbol("n", 1, 40)])
@pytest.mark.parametrize("masked", [False, True])
def test_scaled_scores_that_exceed_float16_without_their_scale(masked: bool, rows: Any, target: GpuTarget) -> None:
    """Exporters scale queries and keys so that their products, of 128,000 here, stay finite in float16."""
    program = mgx.Program()
    m = program.get_main_module()
    q = m.add_parameter("q", mgx.shape(type="float16", lens=[2, rows, 32]))
    k = m.add_parameter("k", mgx.shape(type="float16", lens=[2, 32, rows]))
    scaled = [m.add(mgx.op("mul"), x, wide(m, m.add_literal(np.float16(0.01)), x)) for x in (q, k)]
    scores = m.add(mgx.op("dot"), *scaled)
    if masked:
        scores = m.add(
            mgx.op("add"), scores, m.add_parameter("mask", mgx.shape(type="float16", lens=scores.shape.dims))
        )
    m.add_return([m.add(mgx.op("softmax", axis=2), scores)])
    plain = m.clone()
    program.compile(target)
    for n in (5, 9, 3) if not isinstance(rows, int) else (rows,):
        given = {"q": np.full((2, n, 32), 50, np.float16), "k": np.full((2, 32, n), 80, np.float16)}
        given["k"] += np.arange(n, dtype=np.float16) / 4
        if masked:
            given["mask"] = rng.standard_normal((2, n, n)).astype(np.float16)
        (wanted,) = Interpreter().run(plain, list(given.values()))
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(program.run(given)[0].to_numpy(), wanted, rtol=0, atol=2e-2)
    steps = [s.name.split("_")[0] for s in program.executable.instances()[0].plan.steps]
    assert steps.count("pointwise") == masked  # the scale needs no launch


def test_scores_of_attention_in_float32_are_left_to_its_kernels(target: GpuTarget) -> None:
    def build(m: mgx.Module) -> list[Any]:
        q, k, v = (m.add_parameter(n, mgx.Shape("float16", [1, 2, 20, 16])) for n in "qkv")
        q, k, v = (m.add(mgx.op("convert", target_type="float32"), x) for x in (q, k, v))
        scores = m.add(mgx.op("dot"), q, m.add(mgx.op("transpose", permutation=[0, 1, 3, 2]), k))
        return [m.add(mgx.op("dot"), m.add(mgx.op("softmax", axis=3), scores), v)]

    check(build, target)
    program, _, _ = compiled(build, target)
    assert "quant_dot" not in str(program)


def test_a_reduction_of_a_constant_over_symbolic_extents_has_no_operands(target: GpuTarget) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    lens = [symbol("n", 1, 8), 4]
    x = image(m, *lens)
    twos = m.add(mgx.op("multibroadcast", out_lens=lens), m.add_literal(np.float32(2)))
    total = m.add(mgx.op("reduce_sum", axes=[0, 1]), m.add(mgx.op("exp"), twos))
    rest = m.add(mgx.op("sub"), twos, m.add(mgx.op("multibroadcast", out_lens=lens), total))
    m.add_return([rest, m.add(mgx.op("tanh"), x)])
    program.compile(target)
    for n in (3, 1, 5):
        found = program.run({"x": np.zeros((n, 4), np.float32)})[0].to_numpy()
        np.testing.assert_allclose(found, np.full((n, 4), 2 - 4 * n * np.exp(np.float32(2))), rtol=1e-6)


@pytest.mark.parametrize(("size", "copies"), [(128, 1), (64, 0)])
def test_operands_of_a_norm_are_copied_to_one_order(size: int, copies: int, target: GpuTarget) -> None:
    """A residual in planes and the result of a convolution with its channels innermost; small ones are read as they are."""

    def build(m: mgx.Module) -> list[Any]:
        x = m.add_parameter("x", mgx.Shape("float32", [2, 8, 64, size]))
        y = m.add_parameter("y", mgx.Shape("float32", [2, 64, size, 8]))
        total = m.add(mgx.op("add"), x, m.add(mgx.op("transpose", permutation=[0, 3, 1, 2]), y))
        mean = m.add(mgx.op("reduce_mean", axes=[1, 2, 3]), total)
        return [m.add(mgx.op("sub"), total, m.add(mgx.op("multibroadcast", out_lens=[2, 8, 64, size]), mean))]

    check(build, target)
    program, _, _ = compiled(build, target)
    steps = program.executable.instances()[0].plan.steps
    assert sum(s.name.startswith("contiguous") for s in steps) == copies


@pytest.mark.parametrize("before", [True, False])
def test_a_constant_is_laid_out_once_as_the_other_operand_of_a_norm(before: bool, target: GpuTarget) -> None:
    """Positions that are added to images whose channels are innermost."""

    def build(m: mgx.Module) -> list[Any]:
        positions = literal(m, 2, 8, 64, 128)
        y = m.add_parameter("y", mgx.Shape("float32", [2, 64, 128, 8]))
        turned = m.add(mgx.op("transpose", permutation=[0, 3, 1, 2]), y)
        total = m.add(mgx.op("add"), *((positions, turned) if before else (turned, positions)))
        mean = m.add(mgx.op("reduce_mean", axes=[1, 2, 3]), total)
        return [m.add(mgx.op("sub"), total, m.add(mgx.op("multibroadcast", out_lens=[2, 8, 64, 128]), mean))]

    check(build, target)
    program, _, _ = compiled(build, target)
    (result, *steps) = reversed(program.executable.instances()[0].plan.steps)
    assert result.name.startswith("contiguous") and not any(s.name.startswith("contiguous") for s in steps)
