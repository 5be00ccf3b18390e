"""Smoke test of runtime and compilers on a real GPU, with timings: ``python device_smoke.py [cuda|hip]``."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import DeviceError
from mgx_gpu_hip.compile.build import build
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.compile.source import parameter_codes
from mgx_gpu_hip.runtime import Device, DeviceArray, OutOfMemoryError, import_array, open_device

ADD = """KERNEL(256) add{n}(const float* RESTRICT x, float* RESTRICT y, float a, u32 n4) {{
  grid_wait();
  for (u32 i = blockIdx.x * 256 + threadIdx.x; i < n4; i += gridDim.x * 256) {{
    vec<float, 4> v = ldv<float, 4>(x + i * 4);
    UNROLL for (int k = 0; k < 4; ++k) v.v[k] += a;
    stv(y + i * 4, v);
  }}
  grid_done();
}}"""


def source(n: int) -> Any:
    return SimpleNamespace(name=f"add{n}", text=ADD.format(n=n))


def compile_times(device: Device) -> Device:
    compiler = compiler_for(device.arch)
    print(f"compiler {compiler.name} {compiler.version}, {len(os.sched_getaffinity(0))} cores")
    for jobs, batch in ((1, 1), (4, 1), (16, 1), (16, 0), (1, 32)):
        os.environ["MGX_CACHE_DIR"] = tempfile.mkdtemp()
        start = time.perf_counter()
        codes = build([source(n) for n in range(48)], device.arch, jobs=jobs, batch=batch)
        made = time.perf_counter()
        modules = {code.image: device.load(code.image) for code in codes}
        for n, code in enumerate(codes):
            modules[code.image].function(code.name, parameter_codes(source(n).text, code.name))
        print(f"  48 kernels, {jobs} jobs, batch {batch}: {made - start:.3f} s, load {time.perf_counter() - made:.4f} s, "
              f"{len(modules)} modules")  # fmt: skip
    return device


def launches(device: Device) -> None:
    code = build([source(0)], device.arch)[0]
    function = device.load(code.image).function("add0", parameter_codes(source(0).text, "add0"))
    print("add0:", function.attributes(), "resident blocks", function.resident(256))
    x = np.arange(1 << 16, dtype=np.float32)
    stream = device.stream()
    buffers = [device.upload(x), device.upload(x)]
    n = 100

    def chain(overlap: bool) -> Any:
        return [
            function.bind((64,), (256,), 0, [buffers[i % 2], buffers[1 - i % 2], 1.0, x.size // 4], overlap)
            for i in range(n)
        ]

    for overlap in (False, True):
        queue = chain(overlap)
        stream.copy_in(buffers[0].address, x)
        for launch in queue:
            launch(stream.handle)
        np.testing.assert_array_equal(device.download(np.empty_like(x), buffers[n % 2], stream), x + n)
        start = time.perf_counter()
        for launch in queue:
            launch(stream.handle)
        host = time.perf_counter() - start
        stream.wait()
        with device.capture(stream) as capture:
            for launch in queue:
                launch(stream.handle)
        graph = capture.graph
        assert graph is not None and graph.nodes() == n
        exec = graph.instantiate()
        exec.upload(stream)
        stream.copy_in(buffers[0].address, x)
        exec.launch(stream.handle)
        np.testing.assert_array_equal(device.download(np.empty_like(x), buffers[n % 2], stream), x + n)
        first, last = device.event(timing=True), device.event(timing=True)
        for _ in range(3):
            exec.launch(stream.handle)
        first.record(stream)
        start = time.perf_counter()
        for _ in range(20):
            exec.launch(stream.handle)
        queued = time.perf_counter() - start
        last.record(stream)
        last.wait()
        kernel = last.since(first) / 20 / n * 1e3
        print(
            f"chain of {n}, overlap {overlap}: host {host / n * 1e6:.2f} us per launch; graph {kernel:.2f} us per kernel,"
        )
        print(f"  {queued / 20 * 1e6:.1f} us per graph launch on the host")
    for launch in queue:
        launch.set(2, 2.0)
    with device.capture(stream) as again:
        for launch in queue:
            launch(stream.handle)
    assert again.graph is not None
    start = time.perf_counter()
    assert exec.update(again.graph)
    print(f"graph update {(time.perf_counter() - start) * 1e6:.0f} us")
    stream.copy_in(buffers[0].address, x)
    exec.launch(stream.handle)
    np.testing.assert_array_equal(device.download(np.empty_like(x), buffers[n % 2], stream), x + 2 * n)
    size = 1 << 28
    large = [device.allocate(size * 4), device.allocate(size * 4)]
    copy = function.bind((device.properties.units * 8,), (256,), 0, [*large, 1.0, size // 4])
    copy(stream.handle)
    first.record(stream)
    for _ in range(10):
        copy(stream.handle)
    last.record(stream)
    last.wait()
    print(f"pointwise {10 * 2 * size * 4 / last.since(first) / 1e9:.2f} TB/s")


def memory(device: Device) -> None:
    total = device.memory()[1]
    try:
        device.allocate(total + (1 << 30))
        raise AssertionError("more memory than there is")
    except OutOfMemoryError as error:
        print("expected:", error)
    start = time.perf_counter()
    for _ in range(1000):
        device.allocate(1 << 20).free()
    print(f"allocate and free from the pool {(time.perf_counter() - start) * 1e3:.2f} us")
    device.pool.trim()
    pinned, buffer, stream = device.pinned(1 << 28), device.allocate(1 << 28), device.stream()
    view = pinned.array(np.float32, (1 << 26,))
    view[...] = 1
    for name, copy in (
        ("in", lambda: stream.copy_in(buffer.address, view)),
        ("out", lambda: stream.copy_out(view, buffer.address)),
    ):
        copy()
        stream.wait()
        start = time.perf_counter()
        copy()
        stream.wait()
        print(f"pinned copy {name} {(1 << 28) / (time.perf_counter() - start) / 1e9:.1f} GB/s")
    plain = np.ones(1 << 26, np.float32)
    start = time.perf_counter()
    device.upload(plain)
    print(f"pageable upload {(1 << 28) / (time.perf_counter() - start) / 1e9:.1f} GB/s")


def errors(device: Device) -> None:
    code = build([source(0)], device.arch)[0]
    module = device.load(code.image)
    for what, call in (
        ("missing kernel", lambda: module.function("nope", "P")),
        ("no code", lambda: device.load(b"\x7fELF" + bytes(200))),
        (
            "too many threads",
            lambda: module.function("add0", parameter_codes(source(0).text, "add0")).launch(
                device.default_stream, (1,), (2048,), 0, [0, 0, 1.0, 0]
            ),
        ),
    ):
        try:
            call()
        except DeviceError as error:
            print(f"expected, {what}: {error}")
        else:
            raise AssertionError(what)


def with_torch(device: Device) -> None:
    try:
        import torch
    except ImportError:
        print("torch is not installed")
        return
    if not torch.cuda.is_available():
        print("torch finds no GPU")
        return
    code = build([source(0)], device.arch)[0]
    function = device.load(code.image).function("add0", parameter_codes(source(0).text, "add0"))
    theirs = torch.cuda.Stream()
    with torch.cuda.stream(theirs):
        x = torch.arange(4096, device="cuda", dtype=torch.float32) * 2
        stream = device.stream(theirs.cuda_stream)
        taken = import_array(device, x, stream)
        assert taken.address == x.data_ptr() and taken.dims == (4096,) and taken.dtype is dt.float32
        out = device.allocate(4096 * 4)
        function.launch(stream, (4,), (256,), 0, [taken, out, 1.0, 1024])
        ours = DeviceArray(out, dt.float32, (64, 64), stream=stream)
        y = torch.from_dlpack(ours)
        assert y.data_ptr() == ours.address and torch.equal(y.reshape(-1), x + 1)
        z = torch.as_tensor(ours, device="cuda")
        assert z.data_ptr() == ours.address and torch.equal(z, y)
        bf16 = torch.ones(8, device="cuda", dtype=torch.bfloat16)
        assert import_array(device, bf16, stream).dtype is dt.bfloat16
        transposed = import_array(device, x.reshape(64, 64).T, stream)
        assert transposed.strides == (1, 64)
        again = torch.from_dlpack(DeviceArray(out, dt.bfloat16, (4, 8), stream=stream))
        assert again.dtype == torch.bfloat16
    mine = device.stream()
    function.launch(mine, (4,), (256,), 0, [taken, out, 5.0, 1024])
    w = torch.from_dlpack(DeviceArray(out, dt.float32, (4096,), stream=mine))  # torch's stream waits for ours
    assert torch.equal(w, x + 5)
    print(f"torch {torch.__version__}: arrays and streams shared")


def main(kind: str = "cuda") -> None:
    device = open_device(kind)
    print(device, device.properties, device.memory(), "missing calls:", device.driver.missing)
    for part in (compile_times, launches, memory, errors, with_torch):
        print(f"--- {part.__name__}")
        part(device)
    print("all right")


if __name__ == "__main__":
    main(*sys.argv[1:2])
