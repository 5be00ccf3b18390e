"""Offsets above 2^31 and 2^32 elements: few elements at large strides, in memory that is mapped but not resident."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from emulated_device import HostDevice
from kernel_trial import generate, same, traits, values

from mgx_core import Operation
from mgx_core import dtype as dt
from mgx_core.ops.attention import Attention
from mgx_core.ops.index import Gather
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Contiguous
from mgx_core.ops.pad import Pad
from mgx_core.ops.pointwise import Add, Erf
from mgx_core.ops.reduce import ReduceSum
from mgx_core.ops.sample import GridSample
from mgx_core.ops.scatter import ScatterAdd
from mgx_core.ops.slice import Slice
from mgx_core.ops.softmax import Softmax
from mgx_core.types.argument import Array
from mgx_core.types.shape import row_major
from mgx_gpu_hip.codegen.source import Buffer, KernelSource, Tensor

FAR = (1 << 31) + (1 << 12)
UNRESERVED = 0x4000  # MAP_NORESERVE


def memory(t: Tensor) -> Array:
    held = mmap.mmap(-1, max(t.space * t.dtype.size, 16), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | UNRESERVED)
    return np.frombuffer(held, np.uint8)


def window(flat: Array, t: Tensor, shape: tuple[int, ...]) -> Array:
    seen = flat[: t.space * t.dtype.size].view(t.dtype.numpy)
    return np.lib.stride_tricks.as_strided(seen, shape, [s * t.dtype.size for s in t.strides])


def check(op: Operation, arrays: list[Array], spread: dict[int, tuple[int, ...]], flags: tuple[str, ...] = ()) -> None:
    """Compares an op with its reference; spread: strides of some operands and results by index; the others are row-major."""
    wanted = np.asarray(op.evaluate(arrays))
    every = [*arrays, wanted]
    ts = [Tensor(dt.of(x.dtype), x.shape, spread.get(n, tuple(row_major(x.shape)))) for n, x in enumerate(every)]
    held = [memory(t) for t in ts]
    for flat, t, x in zip(held[:-1], ts, arrays, strict=False):
        window(flat, t, x.shape)[...] = x
    run(op, ts, held, flags)
    same([window(held[-1], ts[-1], wanted.shape).copy()], wanted, terms=64, tolerance=4e-3)


def run(op: Operation, ts: list[Tensor], held: list[Array], flags: tuple[str, ...] = ()) -> None:
    """Runs the kernel of an op on operands and its result, the last one, in this memory."""
    source = generate(op, ts[:-1], ts[-1:], traits(32))
    assert isinstance(source, KernelSource), source
    scratch = [np.zeros(size, np.uint8) for size in source.scratch]
    places: dict[str, list[Any]] = {"input": held[:-1], "output": held[-1:], "scratch": scratch}
    device = HostDevice(32, flags=flags)
    for launch in source.launches:
        args = [places[a.kind][a.index].ctypes.data if isinstance(a, Buffer) else a.value for a in launch.args]
        device.compile(source.text, launch.entry).launch(launch.grid, launch.block, launch.shared_bytes, args)


def halves(*lens: int) -> Array:
    return values(np.random.default_rng(1), dt.float16, lens)


def step(n: int) -> int:
    return -(-FAR // (n - 1) // 64) * 64


CASES: dict[str, tuple[Operation, list[Array], dict[int, tuple[int, ...]]]] = {
    "copy": (Contiguous(), [halves(5, 33)], {0: (step(5), 1)}),
    "write": (Erf(), [halves(5, 33)], {1: (step(5), 1)}),
    "sum of columns": (ReduceSum(axes=(0,)), [halves(40, 33)], {0: (step(40), 1)}),
    "softmax": (Softmax(axis=1), [halves(5, 33)], {0: (step(5), 1)}),
    "gather": (Gather(axis=0), [halves(5, 33), np.array([4, 0, -1])], {0: (step(5), 1)}),
    "scatter": (ScatterAdd(axis=0), [halves(5, 3), np.array([[4, 0, -2]]), halves(1, 3)], {3: (step(5), 1)}),
    "product": (Dot(), [halves(5, 33), halves(33, 7)], {0: (step(5), 1)}),
    "columns of small matrices": (Dot(), [halves(5, 32), halves(32, 7)], {0: (1, 3 * step(32))}),
    "rows of small matrices": (Dot(), [halves(5, 32), halves(32, 8)], {1: (3 * step(32), 1)}),
    "small matrices, both transposed": (Dot(), [halves(5, 32), halves(32, 7)], {0: (1, 3 * step(32)), 1: (1, 40)}),
    "channels": (GridSample(), [halves(1, 5, 4, 6), halves(1, 3, 3, 2)], {0: (0, step(5), 6, 1)}),
    "rows": (GridSample(mode="cubic"), [halves(1, 8, 4, 6), halves(1, 3, 3, 2)], {0: (0, 1, step(4), 8)}),
    "sampled": (GridSample(), [halves(1, 5, 4, 6), halves(1, 3, 3, 2)], {2: (0, step(5), 3, 1)}),
    "attention": (Attention(), [halves(1, 2, n, 8) for n in (5, 9, 9)], {1: (0, 72, step(9), 1)}),
}


@pytest.mark.parametrize("name", CASES)
def test_offsets_beyond_32_bits(name: str) -> None:
    check(*CASES[name])


def test_distances_of_neighbors_that_one_thread_reads() -> None:
    """Signed arithmetic wraps here, as it may on a device: 7 distances exceed 31 bits."""
    x, y = (values(np.random.default_rng(n), dt.int8, (1024, 8)) for n in range(2))
    check(Add(), [x, y], {0: (3, step(8))}, ("-fwrapv",))


def test_the_last_elements_of_an_odd_number() -> None:
    check(Add(), [halves(1003), halves(1003)], {0: (2 * FAR // 1000,)})


LONG = 3 << 30
MARKS = [(1 << 31) + n for n in (-3, -1, 0, 1, 77)]
AROUND = (-((1 << 31) - 4), -(LONG - (1 << 31) - 80))


@pytest.mark.parametrize(
    ("op", "part"),
    [
        (
            Slice(axes=(0,), starts=(MARKS[-1],), ends=(MARKS[0] - 1,), steps=(-1,)),
            np.s_[MARKS[-1] : MARKS[0] - 1 : -1],
        ),
        (Slice(axes=(0,), starts=(MARKS[0],), ends=(MARKS[-1] + 1,), steps=(2,)), np.s_[MARKS[0] : MARKS[-1] + 1 : 2]),
        (Pad(pads=AROUND), np.s_[-AROUND[0] : LONG + AROUND[1]]),
        (Pad(pads=AROUND, mode="edge"), np.s_[-AROUND[0] : LONG + AROUND[1]]),
        (Pad(pads=AROUND, mode="reflect"), np.s_[-AROUND[0] : LONG + AROUND[1]]),
    ],
)
def test_places_along_an_axis_of_more_than_31_bits(op: Operation, part: slice) -> None:
    x = Tensor(dt.uint8, (LONG,), (1,))
    held = memory(x)
    held[MARKS] = np.arange(1, len(MARKS) + 1)
    wanted = held[part]
    made = np.zeros(wanted.shape, np.uint8)
    run(op, [x, Tensor(dt.uint8, wanted.shape, (1,))], [held, made])
    np.testing.assert_array_equal(made, wanted)
