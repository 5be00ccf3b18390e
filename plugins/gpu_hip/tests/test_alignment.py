"""Alignment: vector accesses are no wider than strides, offsets and addresses allow, in every layout.

The emulated device fails on a wide access that is not aligned to its size, as an NVIDIA GPU does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_trial import device, generate, run, same, traits, values

import mgx_core as mgx
from mgx_core import DeviceError, Module, No, Operation, Shape
from mgx_core import dtype as dt
from mgx_core.ops.attention import Attention
from mgx_core.ops.concat import Concat
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.index import Gather
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Contiguous
from mgx_core.ops.norm import LayerNorm, RmsNorm
from mgx_core.ops.pad import FixedPad
from mgx_core.ops.pointwise import Add, Erf
from mgx_core.ops.pooling import Pooling
from mgx_core.ops.reduce import Argmax, ReduceMean, ReduceSum
from mgx_core.ops.resize import Resize
from mgx_core.ops.sample import GridSample
from mgx_core.ops.slice import Slice
from mgx_core.ops.softmax import Softmax
from mgx_core.types.argument import Array
from mgx_core.types.shape import row_major
from mgx_gpu_hip.codegen.source import KernelSource, Tensor
from mgx_gpu_hip.library.attention import AttentionProblem, attention_graph
from mgx_gpu_hip.runtime import DeviceArray
from mgx_gpu_hip.target import GpuTarget

# extents that are multiples of a vector, and one that is not
CASES: dict[str, tuple[Operation, list[tuple[int, ...]]]] = {
    "copy": (Contiguous(), [(3, 16, 24)]),
    "copy odd": (Contiguous(), [(3, 5, 27)]),
    "slice": (Slice(axes=(1,), starts=(3,), ends=(19,)), [(6, 24, 8)]),
    "concat": (Concat(axis=1), [(4, 8, 16), (4, 3, 16)]),
    "concat odd": (Concat(axis=2), [(4, 8, 13), (4, 8, 16)]),
    "pad": (FixedPad(output_lens=(9, 24)), [(9, 17)]),
    "add": (Add(), [(4, 16, 32), (4, 16, 32)]),
    "add odd": (Add(), [(3, 7, 33), (3, 7, 33)]),
    "erf": (Erf(), [(8, 64)]),
    "softmax": (Softmax(axis=2), [(3, 8, 64)]),
    "softmax odd": (Softmax(axis=2), [(3, 8, 197)]),
    "softmax long": (Softmax(axis=1), [(2, 3000)]),
    "layer norm": (LayerNorm(axis=-1), [(6, 768), (768,), (768,)]),
    "rms norm": (RmsNorm(axis=-1), [(6, 100), (100,)]),
    "sum of rows": (ReduceSum(axes=(1,)), [(17, 96)]),
    "mean of columns": (ReduceMean(axes=(1,)), [(3, 40, 24)]),
    "argmax": (Argmax(axis=1), [(5, 72)]),
    "pooling": (Pooling(mode="average", lengths=(3, 3), stride=(1, 1), padding=(1, 1), count_include_pad=False), [(1, 8, 12, 12)]),
    "depthwise": (Convolution(group=16, padding=(1, 1)), [(1, 16, 10, 12), (16, 1, 3, 3)]),
    "convolution": (Convolution(padding=(1, 1)), [(1, 8, 7, 9), (16, 8, 3, 3)]),
    "product": (Dot(), [(2, 40, 48), (2, 48, 56)]),
    "product odd": (Dot(), [(33, 49), (49, 27)]),
    "one row": (Dot(), [(1, 128), (128, 72)]),
    "gather": (Gather(axis=0), [(20, 32)]),
    "resize": (Resize(scales=(1.0, 1.0, 2.0, 2.0)), [(1, 4, 6, 8)]),
    "grid": (GridSample(), [(2, 16, 6, 8), (2, 12, 10, 2)]),
    "grid odd": (GridSample(mode="cubic", padding_mode="reflection"), [(2, 3, 5, 7), (2, 9, 11, 2)]),
    "attention": (Attention(), [(2, 2, 40, 64), (2, 2, 56, 64), (2, 2, 56, 64)]),
    "attention odd": (Attention(), [(1, 2, 19, 24), (1, 2, 49, 24), (1, 2, 49, 32)]),
    "attention biased": (Attention(), [(1, 2, 20, 32), (1, 2, 33, 32), (1, 2, 33, 32), (1, 2, 20, 33)]),
    "one query": (Attention(), [(1, 4, 1, 64), (1, 4, 90, 64), (1, 4, 90, 64)]),
}  # fmt: skip


def layout(rng: np.random.Generator, of: str, lens: tuple[int, ...]) -> Tensor:
    """Draws a tensor with permuted axes in memory, some with gaps, at an address of some alignment."""
    kind, rank = dt.of(of), len(lens)
    order = list(range(rank))
    if rank > 1 and rng.random() < 0.5:
        order = list(rng.permutation(rank))
    pitch = [lens[a] + int(rng.choice([0, 0, 1, 3, 8])) * (n > 0) for n, a in enumerate(order)]
    packed = row_major(pitch)
    strides = [0] * rank
    for place, axis in enumerate(order):
        strides[axis] = packed[place]
    align = int(rng.choice([a for a in (1, 2, 4, 8, 16) if a >= kind.size]))
    return Tensor(kind, lens, tuple(strides), align)


def fuzzed(name: str, of: str, seed: int, wave: int) -> None:
    op, extents = CASES[name]
    rng = np.random.default_rng([seed, *name.encode()])
    arrays = [values(rng, dt.of(of), lens) for lens in extents]
    ins = [layout(rng, of, lens) for lens in extents]
    if name == "gather":
        arrays.append(rng.integers(0, 20, (7,)))
        ins.append(Tensor(dt.int64, (7,), (1,), 8))
    wanted = op.evaluate(arrays)
    outs = [layout(rng, str(np.asarray(wanted).dtype), np.asarray(wanted).shape)]
    source = generate(op, ins, outs, traits(wave))
    if isinstance(source, No):  # a layout that no kernel accepts is copied first
        outs = [Tensor.of(Shape(outs[0].dtype, outs[0].lens))]
        ins = [Tensor.of(Shape(x.dtype, x.lens)) for x in ins]
        source = generate(op, ins, outs, traits(wave))
    assert isinstance(source, KernelSource), source
    got = run(source, arrays, ins, outs, wave)
    if of == "bfloat16" and isinstance(op, Attention):
        same_attention(got[0], op, arrays, tolerance=2e-4)
    else:
        same(got, np.asarray(wanted), terms=512, tolerance=6e-3 if of == "float16" else 2e-4)


def same_attention(got: Array, op: Attention, arrays: list[Array], tolerance: float) -> None:
    """Compares within one ulp of each float32 value, the rounding of the weights, and the tolerance.

    A weight has a relative error of up to half an ulp of 1; half of that is allowed for the sum of absolute weighted values,
    since the errors of many keys partly cancel.
    """
    assert got.dtype == arrays[0].dtype
    q, k, v, *bias = (x.astype(np.float32) for x in arrays)
    wanted, sizes = (np.asarray(op.evaluate([q, k, x, *bias])).astype(np.float64) for x in (v, np.abs(v)))
    assert got.shape == wanted.shape
    unit = np.spacing(np.abs(wanted).astype(got.dtype)).astype(np.float64)
    near = tolerance * (np.abs(wanted) + np.abs(wanted).max(initial=1.0))
    excess = np.abs(got.astype(np.float64) - wanted) / (unit + dt.bfloat16.epsilon / 4 * sizes + near)
    assert excess.max() <= 1, f"{excess.max()} times the allowed rounding"


@pytest.mark.parametrize("of", ["float16", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_any_strides_offsets_and_addresses(name: str, of: str) -> None:
    for seed in range(2):
        fuzzed(name, of, seed, wave=32)


@pytest.mark.slow
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("of", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_many_strides_offsets_and_addresses(name: str, of: str, wave: int) -> None:
    if of == "bfloat16":
        pytest.skip("values are compared in float16 and float32") if name == "argmax" else None
    for seed in range(2, 12):
        fuzzed(name, of, seed, wave)


ACCESSES = {
    "load": ("const half_t* x, half_t* y", "vec<half_t, 8> v = ldv<half_t, 8>(x + AT); y[0] = v.v[0];"),
    "load of two": ("const half_t* x, half_t* y", "vec<half_t, 2> v = ldv<half_t, 2>(x + AT); y[0] = v.v[0];"),
    "store": ("const half_t* x, half_t* y", "vec<half_t, 4> v; v.v[0] = v.v[1] = v.v[2] = v.v[3] = x[0]; stv<half_t, 4>(y + AT, v);"),
    "copy to shared memory": ("const half_t* x, half_t* y",
        "SHARED(half_t, s, [64]); async_copy<16>(s, x + AT); async_commit(); async_wait<0>(); y[0] = s[0];"),
    "copy from a row": ("const half_t* x, half_t* y",
        "SHARED(half_t, s, [64]); async_copy<16>(s + AT, x); async_commit(); async_wait<0>(); y[0] = s[0];"),
    "fragment": ("const half_t* x, half_t* y",
        "SHARED(half_t, s, [512]); for (int i = threadIdx.x; i < 512; i += blockDim.x) s[i] = x[0]; __syncthreads(); "
        "frag_a<half_t> f; frag_load_a_shared(f, s + AT, 16); frag_c c; frag_fill(c, 0.f); frag_b<half_t> b; "
        "frag_load_b_shared(b, s, 16); frag_mma(c, f, b); if (threadIdx.x == 0) y[0] = to_h(c.x[0]);"),
    "fragment in memory": ("const half_t* x, half_t* y",
        "frag_a<half_t> f; frag_load_a(f, x + AT, 16); frag_b<half_t> b; frag_load_bt(b, x, 16); "
        "frag_c c; frag_fill(c, 0.f); frag_mma(c, f, b); if (threadIdx.x == 0) y[0] = to_h(c.x[0]);"),
}  # fmt: skip


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("name", ACCESSES)
def test_the_emulated_device_fails_on_a_misaligned_access(name: str, wave: int) -> None:
    parameters, body = ACCESSES[name]
    x, y = np.zeros(1024, np.float16), np.zeros(64, np.float16)
    for at, right in ((16, True), (1, False)):
        text = f"KERNEL(64) probe({parameters}) {{ {body.replace('AT', str(at))} }}\n"
        function = device(wave).compile(text, "probe")
        if right:
            function.launch((1,), (wave,), 0, [x, y])
        else:
            with pytest.raises(DeviceError, match="Misaligned"):
                function.launch((1,), (wave,), 0, [x, y])


def program(make: Any, *lens: tuple[int, ...], of: str = "float16") -> mgx.Program:
    made = mgx.Program()
    main = made.get_main_module()
    xs = [main.add_parameter(f"x{n}", Shape(of, shape)) for n, shape in enumerate(lens)]
    main.add_return(make(main, *xs))
    made.compile(GpuTarget("host", 1), offload_copy=False)
    return made


@pytest.mark.parametrize("shift", [0, 2, 6, 8, 16])
def test_arguments_and_results_at_odd_addresses(shift: int) -> None:
    made = program(lambda m, x, y: [m.add(Add(), x, y)], (5, 32), (5, 32))
    gpu = made.executable.context.device
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((5, 32)).astype(np.float16) for _ in range(2)]
    room = [gpu.allocate(320 + 64) for _ in range(3)]
    held = [DeviceArray(buffer, dt.float16, (5, 32), offset=shift) for buffer in room]
    for value, array in zip(given, held, strict=False):
        gpu.default_stream.copy_in(array.address, value)
    for _ in range(2):  # recorded, then replayed
        made.run_async({"x0": held[0], "x1": held[1], "main:#output_0": held[2]})
        gpu.default_stream.wait()
        np.testing.assert_array_equal(held[2].to_host(), given[0] + given[1])


def test_results_without_steps_are_on_the_device() -> None:
    constant = np.arange(6, dtype=np.float32).reshape(2, 3)

    def build(m: Module, x: Any) -> list[Any]:
        made = m.add(Add(), x, x)
        return [made, m.add_literal(constant), x, made, m.add_literal(np.float32(7))]

    made = program(build, (4, 5), of="float32")
    gpu = made.executable.context.device
    given = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    held = DeviceArray(gpu.upload(given), dt.float32, (4, 5))
    for results in (made.run({"x0": held}), made.run({"x0": given}), made.run_async({"x0": held})):
        assert all(isinstance(r.value, DeviceArray) for r in results)
        wanted = [given + given, constant, given, given + given, np.float32(7)]
        for got, value in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(got.to_numpy(), value)
        addresses = [r.value.address for r in results]
        assert len(set(addresses)) == len(addresses) and held.address not in addresses


@pytest.mark.parametrize("keys", [128, 197])
def test_a_bias_with_strided_elements_is_not_passed_to_the_library(keys: int) -> None:
    heads = 12
    lens = (1, heads, keys, keys)
    row_by_row = AttentionProblem.packed(1, heads, keys, keys, 64, bias=lens)
    assert not isinstance(attention_graph(row_by_row), No)
    inside = AttentionProblem.packed(1, heads, keys, keys, 64, bias=lens, bias_strides=(1, 1, keys * heads, heads))
    refused = attention_graph(inside)
    assert isinstance(refused, No) and "unit stride within a row" in refused.why
