"""Runs generated kernels on the emulated device and compares them with the reference."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from emulated_device import HostDevice

from mgx_core import Module
from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.types.dtype import DType
from mgx_core.types.shape import row_major
from mgx_gpu_hip.codegen.generators import source_of
from mgx_gpu_hip.codegen.source import Buffer, DeviceTraits, KernelSource, Tensor
from mgx_gpu_hip.kernel import GpuKernel
from mgx_gpu_hip.plans import PLANS

Array = np.ndarray[Any, Any]


@cache
def device(wave: int) -> HostDevice:
    return HostDevice(wave=wave)


def traits(wave: int = 32, sm_count: int = 4) -> DeviceTraits:
    return DeviceTraits(wave=wave, sm_count=sm_count)


def tensor(of: Any, lens: Sequence[int], strides: Sequence[int] | None = None) -> Tensor:
    return Tensor(dt.of(of), tuple(lens), tuple(row_major(lens) if strides is None else strides))


def channels_last(lens: Sequence[int]) -> tuple[int, ...]:
    """Returns the strides of [n, c, *s] stored as [n, *s, c]."""
    n, c, *s = lens
    packed = row_major([n, *s, c])
    return (packed[0], packed[-1], *packed[1:-1])


def values(rng: np.random.Generator, of: DType, lens: Sequence[int]) -> Array:
    if of.kind == "f":
        return rng.standard_normal(lens).astype(of.numpy)
    if of.kind == "b":
        return np.asarray(rng.random(lens) < 0.5)
    return np.asarray(rng.integers(0, 100, lens)).astype(of.numpy)


def placed(x: Array, at: Tensor) -> Array:
    """Returns the memory of a strided tensor that contains x; memory between its elements has random values."""
    flat = np.full(at.space * x.dtype.itemsize, 0xFF, np.uint8).view(x.dtype)
    steps = [s * x.dtype.itemsize for s in at.strides]
    np.lib.stride_tricks.as_strided(flat, x.shape, steps)[...] = x
    return flat


def seen(flat: Array, at: Tensor) -> Array:
    return np.lib.stride_tricks.as_strided(flat, at.lens, [s * flat.dtype.itemsize for s in at.strides]).copy()


def generate(
    op: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    device: DeviceTraits,
    modules: Sequence[Module] = (),
) -> KernelSource | No:
    """Returns the source of the first plan that has a generator for an op, or every refusal."""
    refused = []
    for name, kernel in PLANS.offers(op, [None if x is None else x.shape for x in inputs], None, modules):
        if isinstance(kernel, GpuKernel) and kernel.write is not None:
            source = source_of(kernel.write, op, inputs, outputs, device, modules)
            if not isinstance(source, No):
                return source
            refused.append(f"{name}: {source.why}")
        elif isinstance(kernel, No):
            refused.append(f"{name}: {kernel.why}")
    return No("; ".join(refused))


def run(
    source: KernelSource | No,
    arrays: Sequence[Array | None],
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    wave: int = 32,
    order: str = "backward",
) -> list[Array]:
    """Runs a kernel on arrays, each at an address with exactly its tensor's alignment; returns its outputs."""
    assert isinstance(source, KernelSource), source
    given = [None if a is None or t is None else placed(a, t) for a, t in zip(arrays, inputs, strict=True)]
    made = [np.full(t.space * t.dtype.size, 0xFF, np.uint8).view(t.dtype.numpy) for t in outputs]
    scratch = [np.full(s, 0xFF, np.uint8) for s in source.scratch]
    buffers: dict[str, Sequence[Array | None]] = {"input": given, "output": made, "scratch": scratch}
    shifted = {id(x): t.align for x, t in zip((*given, *made), (*inputs, *outputs), strict=True) if t and t.align < 16}
    for launch in source.launches:
        args = [buffers[a.kind][a.index] if isinstance(a, Buffer) else a.value for a in launch.args]
        function = device(wave).compile(source.text, launch.entry)
        with _shifted(device(wave), args, shifted) as addresses:
            function.launch(launch.grid, launch.block, launch.shared_bytes, addresses, order)
    return [seen(flat, t) for flat, t in zip(made, outputs, strict=True)]


@contextmanager
def _shifted(on: HostDevice, args: Sequence[Any], shifts: Mapping[int, int]) -> Iterator[list[Any]]:
    """Copies arrays with a shift (by their id) to that many bytes after an aligned address; a context manager that returns the
    arguments.
    """
    held = {n: (a, shifts[id(a)]) for n, a in enumerate(args) if id(a) in shifts and a.nbytes}
    starts = {
        n: on.array(np.concatenate([np.zeros(shift, np.uint8), a.view(np.uint8)])) for n, (a, shift) in held.items()
    }
    try:
        yield [starts[n] + held[n][1] if n in held else a for n, a in enumerate(args)]
        for n, (a, shift) in held.items():
            ctypes.memmove(a.__array_interface__["data"][0], starts[n] + shift, a.nbytes)
    finally:
        for start in starts.values():
            on.free(start)


def same(got: Sequence[Array], wanted: Any, terms: int = 1, tolerance: float | None = None) -> None:
    """Asserts equality up to rounding of `terms` sums in the result's type (at least 32 bits internally); exact for integers."""
    wanted = wanted if isinstance(wanted, (tuple, list)) else (wanted,)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        b = np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, a.shape, b.dtype, b.shape)
        of = dt.of(a.dtype)
        if of.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        unit = max(of.epsilon, 2.0**-52 if of.bits == 64 else 2.0**-23)
        limit = tolerance if tolerance is not None else 4 * unit + 2.0**-23 * (8 + terms) * (of.bits < 64)
        wide = b.astype(np.float64)
        scale = np.nanmax(np.abs(wide[np.isfinite(wide)]), initial=1.0)
        np.testing.assert_allclose(a.astype(np.float64), wide, rtol=limit, atol=limit * scale)
